"""TLS over bytes: what to send, and what was meant by what came. Knows no socket.

Imported by connections that are encrypted, and by no other: `ssl` takes long to import.
"""

from __future__ import annotations

import os
import ssl
from typing import TYPE_CHECKING

from .._fast import Records
from ..errors import ConfigError, TLSError

if TYPE_CHECKING:
    from .options import Options

RECORD = 16 * 1024  # the most plaintext in one TLS record


class Tls:
    """One side of an encrypted stream, the client's.

    After each call `outgoing` has what is to be sent for it: a step of the handshake, an
    alert, a key update or records. Once `records` has been called, the extension does all
    this.
    """

    def __init__(self, options: Options, hostname: str) -> None:
        self._hostname = hostname
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = tls_context(options).wrap_bio(
            self._incoming, self._outgoing, server_hostname=hostname
        )

    def records(self) -> Records:
        """The same for the extension, from now on."""
        return Records(self._tls, self._incoming, self._outgoing, _explain)

    def outgoing(self) -> bytes:
        """What has to be sent now; each byte is returned once."""
        return self._outgoing.read()

    def shake_hands(self, data: bytes) -> bool:
        """Take what came, and go on with the handshake; whether it is done.

        `TLSError` says what is wrong with the certificate.
        """
        self._incoming.write(data)
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        except (ssl.SSLError, ssl.CertificateError) as error:
            raise _tls_error(error, self._hostname) from error
        return True

    def decrypt(self, data: bytes) -> tuple[bytes, bool]:
        """The plaintext of what came, and whether the peer has ended the stream."""
        self._incoming.write(data)
        parts = []
        try:
            while part := self._tls.read(RECORD):
                parts.append(part)
        except ssl.SSLWantReadError:
            return b"".join(parts), False
        except ssl.SSLZeroReturnError:
            return b"".join(parts), True
        except ssl.SSLError as error:
            raise _tls_error(error, "") from error
        return b"".join(parts), False

    def encrypt(self, data: bytes) -> None:
        """Make records of `data`."""
        try:
            if data:
                self._tls.write(data)
        except ssl.SSLError as error:
            raise _tls_error(error, "") from error


def _explain(error: Exception) -> Exception | None:
    """The error to raise for what the extension met; None if more has to come first."""
    if isinstance(error, ssl.SSLWantReadError):
        return None
    if isinstance(error, ssl.SSLError):
        return _tls_error(error, "")
    return error


def _tls_error(error: Exception, hostname: str) -> TLSError:
    if isinstance(error, ssl.SSLCertVerificationError):
        return TLSError(
            f"the certificate of the server is not accepted: {error.verify_message}"
            + (f" (expected {hostname!r})" if hostname else "")
        )
    return TLSError(f"TLS failed: {_words(error)}")


def _words(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return (error.reason or str(error)).replace("_", " ").lower()
    return getattr(error, "strerror", None) or str(error)


def tls_context(options: Options) -> ssl.SSLContext:
    """The context that the options describe, read anew so that files may be rotated."""
    if isinstance(options.tls, ssl.SSLContext):
        return options.tls
    try:
        context = ssl.create_default_context(
            cafile=os.fspath(options.tls_ca) if options.tls_ca is not None else None
        )
    except OSError as error:
        raise ConfigError(f"tls_ca {options.tls_ca}: {_words(error)}") from error
    if options.tls_cert is not None:
        try:
            # Give an empty password: an encrypted key would ask for one on the
            # terminal.
            context.load_cert_chain(
                options.tls_cert, options.tls_key, password=_no_password
            )
        except (OSError, ValueError) as error:
            # For a file that is not PEM, OpenSSL says only "PEM lib".
            nameless = isinstance(error, ssl.SSLError) and error.reason is None
            words = "no certificate and key in PEM" if nameless else _words(error)
            raise ConfigError(f"tls_cert {options.tls_cert}: {words}") from error
    return context


def _no_password() -> bytes:
    raise ValueError("the key is encrypted: give an SSLContext with it loaded")
