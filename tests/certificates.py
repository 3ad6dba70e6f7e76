"""Make certificates for TLS tests: valid ones, and one for each reason to reject a certificate."""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

if TYPE_CHECKING:
    from pathlib import Path

DAY = datetime.timedelta(days=1)
LOCAL_NAMES: tuple[x509.GeneralName, ...] = (
    x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
    x509.IPAddress(ipaddress.ip_address("::1")),
    x509.DNSName("localhost"),
)


@dataclass(frozen=True)
class Certificate:
    """A certificate with its key, as PEM files for the peers and as objects to sign others with."""

    cert: Path
    key: Path
    x509: x509.Certificate
    private_key: ec.EllipticCurvePrivateKey


@dataclass(frozen=True)
class Certificates:
    """The result of `make_certificates`. `ca` has signed all of them except `other_ca`."""

    ca: Certificate
    other_ca: Certificate
    """A CA that has signed nothing. A client that trusts only this CA rejects our servers."""
    server: Certificate
    """For 127.0.0.1, ::1 and localhost."""
    wrong_host: Certificate
    """A certificate for elsewhere.test only."""
    expired: Certificate
    """A certificate like `server` that expired yesterday."""
    client: Certificate
    """A certificate for client@jsync.test, for servers that verify clients."""

    def server_config(
        self,
        certificate: Certificate | None = None,
        *,
        verify: bool = False,
        **more: str,
    ) -> str:
        """Return a `tls` block for nats-server. `more` are further settings, verbatim."""
        shown = certificate or self.server
        settings = {
            "cert_file": f'"{shown.cert}"',
            "key_file": f'"{shown.key}"',
            "ca_file": f'"{self.ca.cert}"',
            **more,
        }
        # `verify: false` and `verify_and_map` would override each other at random
        if verify:
            settings["verify"] = "true"
        lines = "".join(f"  {name}: {value}\n" for name, value in settings.items())
        return f"tls {{\n{lines}}}\n"


def make_certificates(directory: Path) -> Certificates:
    """Make all certificates and write their PEM files into `directory`.

    Takes a few milliseconds.
    """
    now = datetime.datetime.now(datetime.UTC)
    ca = _make(directory, "ca", None, ends=now + 30 * DAY)
    other_ca = _make(directory, "other-ca", None, ends=now + 30 * DAY)

    def signed(
        name: str, names: tuple[x509.GeneralName, ...], ends: datetime.datetime
    ) -> Certificate:
        return _make(directory, name, ca, names=names, ends=ends)

    return Certificates(
        ca=ca,
        other_ca=other_ca,
        server=signed("server", LOCAL_NAMES, now + 30 * DAY),
        wrong_host=signed(
            "wrong-host", (x509.DNSName("elsewhere.test"),), now + 30 * DAY
        ),
        expired=signed("expired", LOCAL_NAMES, now - DAY),
        client=signed(
            "client", (x509.RFC822Name("client@jsync.test"),), now + 30 * DAY
        ),
    )


def _make(
    directory: Path,
    name: str,
    issuer: Certificate | None,
    *,
    names: tuple[x509.GeneralName, ...] = (),
    ends: datetime.datetime,
) -> Certificate:
    key = ec.generate_private_key(ec.SECP256R1())
    signer = issuer.private_key if issuer else key
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"jsync {name}")])
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.x509.subject if issuer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(ends - 60 * DAY)
        .not_valid_after(ends)
        .add_extension(x509.BasicConstraints(issuer is None, None), critical=True)
        .add_extension(
            x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False
        )
        # Python 3.13 verifies strictly and requires the two key usages and identifiers.
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()),
            critical=False,
        )
        .add_extension(_key_usage(authority=issuer is None), critical=True)
    )
    if issuer:
        usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        builder = builder.add_extension(
            x509.SubjectAlternativeName(names), critical=False
        ).add_extension(x509.ExtendedKeyUsage(usages), critical=False)
    certificate = builder.sign(signer, hashes.SHA256())

    cert_path = directory / f"{name}.pem"
    key_path = directory / f"{name}.key"
    cert_path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    key_path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return Certificate(cert_path, key_path, certificate, key)


def _key_usage(*, authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=authority,
        crl_sign=authority,
        encipher_only=False,
        decipher_only=False,
    )
