"""TLS as a conversion between plaintext and ciphertext, without a socket.

Only encrypted connections import this module, because `ssl` takes long to import.
"""

from __future__ import annotations

import os
import ssl
from typing import TYPE_CHECKING

from .._fast import TLSRecords
from ..errors import ConfigError, TLSError

if TYPE_CHECKING:
    from .options import Options

MAX_RECORD = 16 * 1024  # the most plaintext in one TLS record


class TLSLayer:
    """The client side of an encrypted stream.

    After each call, `outgoing` returns the bytes to send: a step of the handshake, an
    alert, a key update or records. Once `records` has been called, the extension does all
    this instead.
    """

    def __init__(self, options: Options, hostname: str) -> None:
        self._hostname = hostname
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        context = tls_context(options)
        try:
            self._tls = context.wrap_bio(
                self._incoming, self._outgoing, server_hostname=hostname
            )
        except (ValueError, TypeError, ssl.SSLError) as error:
            # No name that a certificate can have, or a context for servers.
            raise ConfigError(f"no TLS to {hostname!r}: {error}") from error

    def records(self) -> TLSRecords:
        """Return the TLS state for the extension, which encrypts from now on."""
        return TLSRecords(self._tls, self._incoming, self._outgoing, _explain)

    def outgoing(self) -> bytes:
        """Return the bytes to send now, each of them once."""
        return self._outgoing.read()

    def do_handshake(self, data: bytes) -> bool:
        """Continue the handshake with received bytes. Return whether it is done.

        Raises `TLSError` if the handshake fails, for example for a wrong certificate.
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
        """Return the plaintext of received bytes, and whether the peer ended the stream."""
        self._incoming.write(data)
        parts = []
        try:
            while part := self._tls.read(MAX_RECORD):
                parts.append(part)
        except ssl.SSLWantReadError:
            return b"".join(parts), False
        except ssl.SSLZeroReturnError:
            return b"".join(parts), True
        except ssl.SSLError as error:
            raise _tls_error(error, "") from error
        return b"".join(parts), False

    def encrypt(self, data: bytes) -> None:
        """Encrypt `data` as records, for `outgoing`."""
        try:
            if data:
                self._tls.write(data)
        except ssl.SSLError as error:
            raise _tls_error(error, "") from error


def _explain(error: Exception) -> Exception | None:
    """Return the error to raise for one in the extension, None if more bytes are needed."""
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
    return TLSError(f"TLS failed: {_error_text(error)}")


def _error_text(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return (error.reason or str(error)).replace("_", " ").lower()
    return getattr(error, "strerror", None) or str(error)


def tls_context(options: Options) -> ssl.SSLContext:
    """Return the context of the options. Reads the files each time, as they may rotate."""
    if isinstance(options.tls, ssl.SSLContext):
        return options.tls
    try:
        context = ssl.create_default_context(
            cafile=os.fspath(options.tls_ca) if options.tls_ca is not None else None
        )
    except OSError as error:
        raise ConfigError(f"tls_ca {options.tls_ca}: {_error_text(error)}") from error
    if options.tls_cert is not None:
        try:
            # Without a password callback, OpenSSL would prompt on the terminal for the
            # password of an encrypted key.
            context.load_cert_chain(
                options.tls_cert, options.tls_key, password=_no_password
            )
        except (OSError, ValueError) as error:
            # For a file that is not PEM, the error of OpenSSL is only "PEM lib".
            nameless = isinstance(error, ssl.SSLError) and error.reason is None
            words = "no certificate and key in PEM" if nameless else _error_text(error)
            raise ConfigError(f"tls_cert {options.tls_cert}: {words}") from error
    return context


def _no_password() -> bytes:
    raise ValueError("the key is encrypted: give an SSLContext with it loaded")
