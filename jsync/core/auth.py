"""CONNECT fields from credentials: user, token, nkey, creds, or a user's callback.

No secret appears in a `repr` or an error. Files are read when they are used, so that
credentials may be rotated on disk between two connections. There is no socket, thread or clock.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from ..errors import AuthenticationError, ConfigError
from ..validation import check_callable

if TYPE_CHECKING:
    from .server_address import ServerAddress

Secret: TypeAlias = str | Callable[[], str]
"""A secret, or a callable that fetches it for each connection."""

FIELDS = frozenset({"user", "pass", "auth_token", "jwt", "nkey", "sig"})
"""The CONNECT fields that an `auth_callback` may return."""

# Like nats.go, ignore the labels between the dashes.
_BLOCK = re.compile(rb"-{3,}[^\n]*-{3,}\s+(\S+)\s+-{3,}[^\n]*-{3,}")


class Authenticator:
    """The authentication that the options choose.

    For its server, the `user:password@` or `token@` of a URL replaces `user`, `password`,
    `token` and `nkey_seed`, because the URL is more specific. It is sent in addition to
    `creds` and `auth_callback` (as nats.go).
    """

    __slots__ = ("_callback", "_creds", "_nkey_seed", "_password", "_token", "_user")

    def __init__(
        self,
        *,
        user: Secret | None = None,
        password: Secret | None = None,
        token: Secret | None = None,
        nkey_seed: str | bytes | None = None,
        creds: str | os.PathLike[str] | bytes | None = None,
        auth_callback: Callable[[bytes], Mapping[str, str]] | None = None,
    ) -> None:
        self._user = user
        self._password = password
        self._token = token
        self._nkey_seed: bytes | None = None
        self._creds: Path | bytes | None = None
        self._callback = auth_callback
        options = {
            "user": user,
            "token": token,
            "nkey_seed": nkey_seed,
            "creds": creds,
            "auth_callback": auth_callback,
        }
        given = [name for name, value in options.items() if value is not None]
        if len(given) > 1:
            raise ConfigError(f"{' and '.join(given)} exclude each other: give one")
        if password is not None and user is None:
            raise ConfigError("a password needs a user")
        for name, secret in (("user", user), ("password", password), ("token", token)):
            if not (secret is None or isinstance(secret, str) or callable(secret)):
                raise ConfigError(f"{name} has to be a str or a callable returning one")
            if callable(secret):
                check_callable(secret, name)
            if secret == "" and name != "password":
                raise ConfigError(f"{name} is empty")
        if auth_callback is not None:
            if not callable(auth_callback):  # it may be a secret in the wrong place
                raise ConfigError("auth_callback has to be callable")
            check_callable(auth_callback, "auth_callback")
        if nkey_seed is not None:
            self._nkey_seed = _check_nkey_seed(nkey_seed)
        if creds is not None:
            self._creds = _check_creds(creds)

    @property
    def method(self) -> str:
        """The name of the method: user, token, nkey, creds, callback or none."""
        methods = {
            "user": self._user,
            "token": self._token,
            "nkey": self._nkey_seed,
            "creds": self._creds,
            "callback": self._callback,
        }
        return next((m for m, value in methods.items() if value is not None), "none")

    @property
    def needs_callables(self) -> bool:
        """True if `connect_fields` may run user code, which can take any time."""
        secrets = (self._user, self._password, self._token, self._callback)
        return any(callable(secret) for secret in secrets)

    def connect_fields(
        self, nonce: str | None, server: ServerAddress
    ) -> dict[str, str]:
        """Return the fields to add to CONNECT, with a signature of the `nonce` if needed.

        Raises `AuthenticationError` with a cause if a file cannot be read or a callable
        raises. Such a failure may be temporary, unlike a rejection of the server.
        """
        challenge = (nonce or "").encode()
        if server.has_userinfo:
            fields = _drop_absent(
                {
                    "user": server.user,
                    "pass": server.password,
                    "auth_token": server.token,
                }
            )
        elif self._nkey_seed is not None:
            if not challenge:
                raise AuthenticationError(
                    f"{server.url} sent no nonce to sign: it has no nkey users"
                )
            fields = _sign(self._nkey_seed, challenge)
        else:
            fields = _drop_absent(
                {
                    "user": _reveal("user", self._user),
                    "pass": _reveal("password", self._password),
                    "auth_token": _reveal("token", self._token),
                }
            )
        if self._creds is not None:
            fields |= _creds_fields(self._creds, challenge)
        elif self._callback is not None:
            fields |= _callback_fields(self._callback, challenge)
        return fields

    def __repr__(self) -> str:
        return f"<Authenticator {self.method}>"

    def __reduce__(self) -> str:
        raise TypeError("an Authenticator holds secrets and is not pickled")


def _drop_absent(fields: Mapping[str, str | None]) -> dict[str, str]:
    return {name: value for name, value in fields.items() if value is not None}


def _reveal(name: str, secret: Secret | None) -> str | None:
    if secret is None or isinstance(secret, str):
        return secret
    try:
        value = secret()
    except BaseException as error:  # not even SystemExit may end a thread of jsync
        raise AuthenticationError(
            f"the {name} callable raised {type(error).__name__}"
        ) from error
    if not isinstance(value, str):
        raise AuthenticationError(
            f"the {name} callable returned {type(value).__name__} instead of str"
        )
    return value


def _callback_fields(
    callback: Callable[[bytes], Mapping[str, str]], nonce: bytes
) -> dict[str, str]:
    try:
        fields = dict(callback(nonce))
    except BaseException as error:  # not even SystemExit may end a thread of jsync
        raise AuthenticationError(
            f"auth_callback raised {type(error).__name__}"
        ) from error
    if unknown := [str(name) for name in fields if name not in FIELDS]:
        raise AuthenticationError(
            f"auth_callback returned {', '.join(unknown)}; CONNECT takes {', '.join(sorted(FIELDS))}"
        )
    for name, value in fields.items():
        if not isinstance(value, str):
            raise AuthenticationError(
                f"auth_callback returned {type(value).__name__} instead of str for {name}"
            )
    return fields


def _check_nkey_seed(seed: str | bytes) -> bytes:
    text = seed.encode(errors="replace") if isinstance(seed, str) else seed
    if not isinstance(text, bytes):
        raise ConfigError("nkey_seed has to be str or bytes")
    text = text.strip()
    if problem := _seed_problem(text):
        raise ConfigError(
            f"nkey_seed is {problem} (give the seed itself, not its path)"
        )
    return text


def _check_creds(creds: str | os.PathLike[str] | bytes) -> Path | bytes:
    if isinstance(creds, bytes):
        return creds
    if not isinstance(creds, str | os.PathLike):
        raise ConfigError("creds has to be a path, or the content of one as bytes")
    path = os.fspath(creds)
    if not path or "\n" in path or "-----BEGIN" in path:
        raise ConfigError(
            "creds is not a path: give the content of a creds file as bytes"
        )
    return Path(path).expanduser()


def _creds_fields(creds: Path | bytes, nonce: bytes) -> dict[str, str]:
    where = "in memory" if isinstance(creds, bytes) else f"of {creds}"
    try:
        text = creds if isinstance(creds, bytes) else creds.read_bytes()
    except OSError as error:
        raise AuthenticationError(
            f"cannot read the credentials file {creds!s}: {error.strerror}"
        ) from error
    try:
        jwt, seed = _parse_creds(text)
        fields = {"jwt": jwt.decode("ascii")}
    except ValueError as error:
        raise AuthenticationError(f"the credentials {where} have {error}") from error
    if nonce:  # a server that sends no nonce ignores the JWT too
        fields["sig"] = _sign(seed, nonce)["sig"]
    return fields


def _parse_creds(text: bytes) -> tuple[bytes, bytes]:
    blocks: list[bytes] = _BLOCK.findall(text)
    seed = next((b for b in blocks if b.startswith(b"SU")), None)
    jwt = next((b for b in blocks if b.count(b".") == 2 and b.isascii()), None)
    if jwt is None:
        raise ValueError("no user JWT")
    if seed is None:
        raise ValueError("no user seed")
    if problem := _seed_problem(seed):
        raise ValueError(f"a seed that is {problem}")
    return jwt, seed


def _seed_problem(seed: bytes) -> str:
    # nkeys does not verify the checksum, so that a typo would only cause a refused login.
    if not seed.startswith(b"SU"):
        return "not the seed of a user: that begins with SU"
    if not re.fullmatch(rb"[A-Z2-7]+", seed):
        return "not base32"
    if len(seed) != 58:
        return "cut short or too long"
    raw = base64.b32decode(seed + b"======")
    if binascii.crc_hqx(raw[:-2], 0) != int.from_bytes(raw[-2:], "little"):
        return "mistyped: its checksum is wrong"
    return ""


def _sign(seed: bytes, nonce: bytes) -> dict[str, str]:
    import nkeys  # noqa: PLC0415 (brings in libsodium, which few connections need)

    pair = nkeys.from_seed(bytearray(seed))
    try:
        signature = base64.urlsafe_b64encode(pair.sign(nonce)).rstrip(b"=")
        return {"nkey": pair.public_key.decode(), "sig": signature.decode()}
    finally:
        pair.wipe()
