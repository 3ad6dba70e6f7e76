"""Make operators, accounts and users without nsc: nkeys, JWTs, creds and server configurations."""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import math
import os
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import nkeys

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from jsync import Msg


class Key:
    """A new nkey of an operator, account or user."""

    def __init__(self, role: Literal["operator", "account", "user"]) -> None:
        prefix = getattr(nkeys, f"PREFIX_BYTE_{role.upper()}")
        seed: bytes = nkeys.encode_seed(os.urandom(32), prefix)
        self._pair = nkeys.from_seed(seed)
        self.seed = seed.decode()
        self.public: str = self._pair.public_key.decode()

    def sign(self, data: bytes) -> bytes:
        signature: bytes = self._pair.sign(data)
        return signature


@dataclass(frozen=True)
class Permissions:
    """The subjects that a user may publish and subscribe to. Empty lists allow everything."""

    publish_allow: tuple[str, ...] = ()
    publish_deny: tuple[str, ...] = ()
    subscribe_allow: tuple[str, ...] = ()
    subscribe_deny: tuple[str, ...] = ()

    def claims(self) -> dict[str, dict[str, list[str]]]:
        """Return the permissions in the form of a JWT."""
        return {
            "pub": _rules(self.publish_allow, self.publish_deny),
            "sub": _rules(self.subscribe_allow, self.subscribe_deny),
        }

    def config(self) -> dict[str, dict[str, list[str]]]:
        """Return the permissions in the form of a server configuration."""
        claims = self.claims()
        return {"publish": claims["pub"], "subscribe": claims["sub"]}


EVERYTHING = Permissions()


@dataclass
class User:
    """A user of an account. Each read of `jwt` and `creds` makes a new JWT."""

    account: Account
    name: str
    expires_in: float | None = None
    """The seconds from reading `jwt` to its expiry, rounded up to whole seconds.

    None means never.
    """
    permissions: Permissions = EVERYTHING
    bearer: bool = False
    """Let the JWT be used without a signature of the nonce."""
    key: Key = field(default_factory=lambda: Key("user"))

    @property
    def jwt(self) -> str:
        claims: dict[str, Any] = {
            "type": "user",
            "subs": -1,
            "data": -1,
            "payload": -1,
            "bearer_token": self.bearer,
            **self.permissions.claims(),
        }
        return encode_jwt(
            self.name, self.key.public, self.account.key, claims, self.expires_in
        )

    @property
    def creds(self) -> str:
        """Return the text of a `.creds` file."""
        return (
            f"-----BEGIN NATS USER JWT-----\n{self.jwt}\n------END NATS USER JWT------\n\n"
            f"{'*' * 25} IMPORTANT {'*' * 25}\n"
            "NKEY Seed printed below can be used to sign and prove identity.\n\n"
            f"-----BEGIN USER NKEY SEED-----\n{self.key.seed}\n"
            "------END USER NKEY SEED------\n"
        )

    def write_creds(self, path: Path) -> Path:
        path.write_text(self.creds)
        return path


@dataclass
class Account:
    """An account of an operator. JetStream is enabled by default."""

    operator: Operator
    name: str
    jetstream: bool = True
    key: Key = field(default_factory=lambda: Key("account"))
    revoked: dict[str, int] = field(default_factory=dict)
    """The public keys of revoked users, with the time up to which their JWTs are revoked."""

    def user(
        self,
        name: str = "user",
        *,
        expires_in: float | None = None,
        permissions: Permissions = EVERYTHING,
        bearer: bool = False,
    ) -> User:
        return User(self, name, expires_in, permissions, bearer)

    def revoke(self, user: User) -> None:
        """Revoke all JWTs of the user so far.

        The server applies this when it reloads the new config.
        """
        self.revoked[user.key.public] = int(time.time())

    @property
    def jwt(self) -> str:
        unlimited = ("subs", "data", "payload", "imports", "exports", "conn", "leaf")
        stored = ("mem_storage", "disk_storage", "streams", "consumer")
        limits: dict[str, int | bool] = dict.fromkeys(unlimited, -1)
        limits |= dict.fromkeys(stored, -1 if self.jetstream else 0)
        limits["wildcards"] = True
        claims = {"type": "account", "limits": limits, "revocations": self.revoked}
        return encode_jwt(self.name, self.key.public, self.operator.key, claims)


class Operator:
    """An operator with a system account. A server with `config` trusts the operator."""

    def __init__(self) -> None:
        self.key = Key("operator")
        self.system = Account(self, "SYS", jetstream=False)
        self.accounts = [self.system]

    def account(self, name: str, *, jetstream: bool = True) -> Account:
        account = Account(self, name, jetstream)
        self.accounts.append(account)
        return account

    @functools.cached_property
    def jwt(self) -> str:
        """Return the JWT of the operator.

        It is made once, because a server rejects a reload with another.
        """
        claims = {"type": "operator", "system_account": self.system.key.public}
        return encode_jwt("OPERATOR", self.key.public, self.key, claims)

    @property
    def config(self) -> str:
        """Return the configuration of a server that knows the accounts made so far."""
        preload = {account.key.public: account.jwt for account in self.accounts}
        return (
            f"operator: {self.jwt}\n"
            f"system_account: {self.system.key.public}\n"
            "resolver: MEMORY\n"
            f"resolver_preload: {json.dumps(preload)}\n"
        )


@dataclass(frozen=True)
class AuthCallout:
    """A callback that lets all users in, for a server with `config` (ADR-26).

    The user `auth` with the password `auth` subscribes it to `SUBJECT`.
    """

    SUBJECT: ClassVar[str] = "$SYS.REQ.USER.AUTH"

    expires_in: float | None = None
    issuer: Key = field(default_factory=lambda: Key("account"))

    @property
    def config(self) -> str:
        """Return the configuration of a server that sends its users to the service."""
        return (
            "accounts {\n  AUTH { users: [{user: auth, password: auth}] }\n  APP {}\n}\n"
            "authorization {\n  timeout: 1\n  auth_callout {\n"
            f"    issuer: {self.issuer.public}\n"
            "    account: AUTH\n    auth_users: [auth]\n  }\n}\n"
        )

    def __call__(self, msg: Msg) -> None:
        """Answer the request of a server: each user is one of the account APP."""
        body = msg.data.split(b".")[1]
        request = json.loads(base64.urlsafe_b64decode(body + b"=="))["nats"]
        key = request["user_nkey"]
        user = encode_jwt(
            "user",
            key,
            self.issuer,
            {"type": "user", "subs": -1, "data": -1, "payload": -1},
            self.expires_in,
            audience="APP",
        )
        answer = encode_jwt(
            "answer",
            key,
            self.issuer,
            {"type": "authorization_response", "jwt": user},
            audience=request["server_id"]["id"],
        )
        msg.respond(answer.encode())


def encode_jwt(
    name: str,
    subject: str,
    issuer: Key,
    claims: Mapping[str, object],
    expires_in: float | None = None,
    audience: str | None = None,
) -> str:
    """Return a NATS JWT, version 2, about `subject` and signed by `issuer`."""
    now = int(time.time())
    body: dict[str, object] = {
        "iat": now,
        "iss": issuer.public,
        "name": name,
        "sub": subject,
        "nats": {**claims, "version": 2},
    }
    if audience is not None:
        body["aud"] = audience
    if expires_in is not None:
        body["exp"] = math.ceil(time.time() + expires_in)
    body["jti"] = base64.b32encode(hashlib.sha256(_json(body)).digest()).decode()
    header = {"typ": "JWT", "alg": "ed25519-nkey"}
    signed = f"{_base64(_json(header))}.{_base64(_json(body))}"
    return f"{signed}.{_base64(issuer.sign(signed.encode()))}"


def password_config(users: Mapping[str, str], **permissions: Permissions) -> str:
    """Return a configuration of users with passwords. The keys of `permissions` are user names."""
    return _users_config(
        {"user": user, "password": password, **_permissions(permissions.get(user))}
        for user, password in users.items()
    )


MAX_BYTES_REQUIRED = (
    "jetstream {}\n"
    "accounts { A {\n"
    "  users: [{user: a, password: a}]\n"
    "  jetstream { max_bytes_required: true, max_file: 100MB, max_mem: 100MB }\n"
    "} }\n"
    "no_auth_user: a\n"
)
"""A configuration with an account that requires a limit for each stream."""


def nkey_config(*keys: Key, permissions: Permissions | None = None) -> str:
    """Return a configuration of users that authenticate with an nkey."""
    return _users_config(
        {"nkey": key.public, **_permissions(permissions)} for key in keys
    )


def token_config(token: str) -> str:
    """Return a configuration with one token for all users."""
    return f"authorization {{ token: {json.dumps(token)} }}\n"


def _users_config(users: Iterable[dict[str, object]]) -> str:
    return f"authorization {{ users: {json.dumps(list(users))} }}\n"


def _permissions(permissions: Permissions | None) -> dict[str, object]:
    return {} if permissions is None else {"permissions": permissions.config()}


def _rules(allow: tuple[str, ...], deny: tuple[str, ...]) -> dict[str, list[str]]:
    rules = {"allow": list(allow), "deny": list(deny)}
    return {name: subjects for name, subjects in rules.items() if subjects}


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
