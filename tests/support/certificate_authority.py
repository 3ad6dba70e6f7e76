"""The authority that makes the certificates of the TLS tests.

`python -m tests.support.certificate_authority DIRECTORY` makes them for a Python without `cryptography`, whose
tests find the directory in JSYNC_TESTS_CERTIFICATES.
"""

from __future__ import annotations

import datetime
import ipaddress
import sys
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from .certificates import Certificates, certificates_in

DAY = datetime.timedelta(days=1)
LOCAL_NAMES: tuple[x509.GeneralName, ...] = (
    x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
    x509.IPAddress(ipaddress.ip_address("::1")),
    x509.DNSName("localhost"),
)


@dataclass(frozen=True)
class Signer:
    """A certificate that can sign others."""

    x509: x509.Certificate
    private_key: ec.EllipticCurvePrivateKey


def make_certificates(directory: Path) -> Certificates:
    """Make all certificates and write their PEM files into `directory`.

    Takes a few milliseconds.
    """
    now = datetime.datetime.now(datetime.UTC)
    ca = _make(directory, "ca", None, ends=now + 30 * DAY)
    _make(directory, "other-ca", None, ends=now + 30 * DAY)

    def sign(
        name: str, names: tuple[x509.GeneralName, ...], ends: datetime.datetime
    ) -> None:
        _make(directory, name, ca, names=names, ends=ends)

    sign("server", LOCAL_NAMES, now + 30 * DAY)
    sign("wrong-host", (x509.DNSName("elsewhere.test"),), now + 30 * DAY)
    sign("expired", LOCAL_NAMES, now - DAY)
    sign("client", (x509.RFC822Name("client@jsync.test"),), now + 30 * DAY)
    return certificates_in(directory)


def _make(
    directory: Path,
    name: str,
    issuer: Signer | None,
    *,
    names: tuple[x509.GeneralName, ...] = (),
    ends: datetime.datetime,
) -> Signer:
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
        # Python 3.13 verifies strictly and asks for the two key usages and identifiers.
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

    directory.joinpath(f"{name}.pem").write_bytes(
        certificate.public_bytes(serialization.Encoding.PEM)
    )
    directory.joinpath(f"{name}.key").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return Signer(certificate, key)


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


if __name__ == "__main__":
    make_certificates(Path(sys.argv[1]))
