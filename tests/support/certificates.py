"""Certificates for TLS tests: good ones, and one for each way of being refused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class Certificate:
    """The PEM files of a certificate and its key."""

    cert: Path
    key: Path


@dataclass(frozen=True)
class Certificates:
    """The certificates of the tests. `ca` has signed all of them except `other_ca`."""

    ca: Certificate
    other_ca: Certificate
    """Signed nothing here: who trusts only this one trusts no server of ours."""
    server: Certificate
    """For 127.0.0.1, ::1 and localhost."""
    wrong_host: Certificate
    """For elsewhere.test only."""
    expired: Certificate
    """As `server`, but it ended yesterday."""
    client: Certificate
    """For client@jsync.test, to show to a server that verifies."""

    def server_config(
        self,
        certificate: Certificate | None = None,
        *,
        verify: bool = False,
        **more: str,
    ) -> str:
        """Return a `tls` block for nats-server; `more` are further settings as they are."""
        shown = certificate or self.server
        settings = {
            "cert_file": f'"{shown.cert.as_posix()}"',
            "key_file": f'"{shown.key.as_posix()}"',
            "ca_file": f'"{self.ca.cert.as_posix()}"',
            **more,
        }
        if verify:  # `verify: false` and `verify_and_map` would take turns to win
            settings["verify"] = "true"
        lines = "".join(f"  {name}: {value}\n" for name, value in settings.items())
        return f"tls {{\n{lines}}}\n"


def certificates_in(directory: Path) -> Certificates:
    """Return the certificates that `python -m tests.support.certificate_authority` wrote into `directory`."""

    def named(name: str) -> Certificate:
        return Certificate(directory / f"{name}.pem", directory / f"{name}.key")

    return Certificates(
        ca=named("ca"),
        other_ca=named("other-ca"),
        server=named("server"),
        wrong_host=named("wrong-host"),
        expired=named("expired"),
        client=named("client"),
    )
