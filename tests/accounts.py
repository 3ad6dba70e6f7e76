"""Operators, accounts and users without nsc: nkeys, JWTs, creds, and server configurations."""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import math
import os
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import nkeys

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path


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
    """Which subjects a user may publish and subscribe to; empty lists allow everything."""

    publish_allow: tuple[str, ...] = ()
    publish_deny: tuple[str, ...] = ()
    subscribe_allow: tuple[str, ...] = ()
    subscribe_deny: tuple[str, ...] = ()

    def claims(self) -> dict[str, dict[str, list[str]]]:
        """As a JWT has them."""
        return {
            "pub": _rules(self.publish_allow, self.publish_deny),
            "sub": _rules(self.subscribe_allow, self.subscribe_deny),
        }

    def config(self) -> dict[str, dict[str, list[str]]]:
        """As a server configuration has them."""
        claims = self.claims()
        return {"publish": claims["pub"], "subscribe": claims["sub"]}


EVERYTHING = Permissions()


@dataclass
class User:
    """A user of an account. Each reading of `jwt` and `creds` makes them anew."""

    account: Account
    name: str
    expires_in: float | None = None
    """Seconds from the reading of `jwt`, up to one more: they are whole. None is never."""
    permissions: Permissions = EVERYTHING
    bearer: bool = False
    """Let the JWT do without a signature of the nonce."""
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
        """The text of a `.creds` file."""
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
    """An account of an operator, with JetStream unless told otherwise."""

    operator: Operator
    name: str
    jetstream: bool = True
    key: Key = field(default_factory=lambda: Key("account"))
    revoked: dict[str, int] = field(default_factory=dict)
    """Public keys of users, and until when their JWTs count as revoked."""

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
        """Revoke what the user has so far; in force after a reload with the new config."""
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
    """An operator with a system account; `config` lets a server trust it."""

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
        """Made once: a server that finds another one in its configuration reloads nothing."""
        claims = {"type": "operator", "system_account": self.system.key.public}
        return encode_jwt("OPERATOR", self.key.public, self.key, claims)

    @property
    def config(self) -> str:
        """The configuration of a server that knows the accounts made so far."""
        preload = {account.key.public: account.jwt for account in self.accounts}
        return (
            f"operator: {self.jwt}\n"
            f"system_account: {self.system.key.public}\n"
            "resolver: MEMORY\n"
            f"resolver_preload: {json.dumps(preload)}\n"
        )


def encode_jwt(
    name: str,
    subject: str,
    issuer: Key,
    claims: Mapping[str, object],
    expires_in: float | None = None,
) -> str:
    """Return a NATS JWT, version 2, signed by `issuer` and made out to `subject`."""
    now = int(time.time())
    body: dict[str, object] = {
        "iat": now,
        "iss": issuer.public,
        "name": name,
        "sub": subject,
        "nats": {**claims, "version": 2},
    }
    if expires_in is not None:
        body["exp"] = math.ceil(time.time() + expires_in)
    body["jti"] = base64.b32encode(hashlib.sha256(_json(body)).digest()).decode()
    header = {"typ": "JWT", "alg": "ed25519-nkey"}
    signed = f"{_base64(_json(header))}.{_base64(_json(body))}"
    return f"{signed}.{_base64(issuer.sign(signed.encode()))}"


def password_config(users: Mapping[str, str], **permissions: Permissions) -> str:
    """Return a configuration of users with passwords; `permissions` are by user name."""
    return _users_config(
        {"user": user, "password": password, **_permissions(permissions.get(user))}
        for user, password in users.items()
    )


def nkey_config(*keys: Key, permissions: Permissions | None = None) -> str:
    """Return a configuration of users that prove an nkey."""
    return _users_config(
        {"nkey": key.public, **_permissions(permissions)} for key in keys
    )


def token_config(token: str) -> str:
    """Return a configuration with one token for all."""
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
