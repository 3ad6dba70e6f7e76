"""Tests of servers with operators, accounts, users and passwords, which other tests use."""

from __future__ import annotations

import base64
import time
from typing import TYPE_CHECKING

import nkeys
import pytest

from ...support.accounts import (
    Key,
    Operator,
    Permissions,
    nkey_config,
    password_config,
    token_config,
)
from ...support.servers import RawClient, wait_for

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from jsync.server import LocalServer

    from ...conftest import StartServer
    from ...support.accounts import Account, User

pytestmark = pytest.mark.server

REFUSED = "-ERR 'Authorization Violation'"


def signature(client: RawClient, key: Key) -> str:
    signed = key.sign(client.info["nonce"].encode())
    return base64.urlsafe_b64encode(signed).rstrip(b"=").decode()


def log_in(client: RawClient, user: User) -> str:
    return client.connect(jwt=user.jwt, sig=signature(client, user.key))


def test_an_account_user_gets_in_and_has_jetstream(
    jwt_server: LocalServer, account: Account, unique: str
) -> None:
    with RawClient(jwt_server.url) as client:
        assert log_in(client, account.user()) == "PONG"
        config = {"name": unique, "subjects": [unique]}
        assert "error" not in client.request(f"$JS.API.STREAM.CREATE.{unique}", config)


def test_a_creds_file_holds_jwt_and_seed(
    jwt_server: LocalServer, account: Account, tmp_path: Path
) -> None:
    user = account.user("someone")
    lines = user.write_creds(tmp_path / "user.creds").read_text().splitlines()
    jwt = lines[lines.index("-----BEGIN NATS USER JWT-----") + 1]
    seed = lines[lines.index("-----BEGIN USER NKEY SEED-----") + 1]
    pair = nkeys.from_seed(seed.encode())
    with RawClient(jwt_server.url) as client:
        signed = pair.sign(client.info["nonce"].encode())
        sig = base64.urlsafe_b64encode(signed).rstrip(b"=").decode()
        assert client.connect(jwt=jwt, sig=sig) == "PONG"


def test_a_signature_of_another_key_is_refused(
    jwt_server: LocalServer, account: Account
) -> None:
    with RawClient(jwt_server.url) as client:
        sig = signature(client, Key("user"))
        assert client.connect(jwt=account.user().jwt, sig=sig) == REFUSED


def test_a_bearer_needs_no_signature(jwt_server: LocalServer, account: Account) -> None:
    with RawClient(jwt_server.url) as client:
        assert client.connect(jwt=account.user(bearer=True).jwt) == "PONG"


def test_a_user_of_an_unknown_account_is_refused(jwt_server: LocalServer) -> None:
    from_elsewhere = Operator().account("ELSEWHERE").user()
    with RawClient(jwt_server.url) as client:
        assert log_in(client, from_elsewhere) == REFUSED


def test_an_expired_user_is_refused(jwt_server: LocalServer, account: Account) -> None:
    with RawClient(jwt_server.url) as client:
        assert log_in(client, account.user(expires_in=-5)) == REFUSED


def test_a_user_is_sent_away_on_expiry(
    jwt_server: LocalServer, account: Account
) -> None:
    with RawClient(jwt_server.url) as client:
        assert log_in(client, account.user(expires_in=3)) == "PONG"
        while not (line := client.read_line()).startswith("-ERR"):
            pass
        assert line == "-ERR 'User Authentication Expired'"


def test_a_revoked_user_is_sent_away(
    own_server: StartServer, account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = own_server(config=account.operator.config)
    user = account.user()
    with RawClient(server.url) as client:
        assert log_in(client, user) == "PONG"
        # The operator in the new configuration is unchanged, even a second later.
        later = time.time() + 1
        monkeypatch.setattr(time, "time", lambda: later)
        account.revoke(user)
        server.reload(account.operator.config)
        while not (line := client.read_line()).startswith("-ERR"):
            pass
        assert line == "-ERR 'User Authentication Revoked'"


DENIALS = [
    (Permissions(publish_deny=("secret",)), b"PUB secret 0\r\n\r\n", "Publish"),
    (Permissions(publish_allow=("open",)), b"PUB secret 0\r\n\r\n", "Publish"),
    (Permissions(subscribe_deny=("secret",)), b"SUB secret 1\r\n", "Subscription"),
    (Permissions(subscribe_allow=("open",)), b"SUB secret 1\r\n", "Subscription"),
]


def first_error(client: RawClient) -> str:
    while not (line := client.read_line()).startswith("-ERR"):
        pass
    return line


@pytest.mark.parametrize(("permissions", "command", "operation"), DENIALS)
def test_permissions_hold_for_jwts(
    jwt_server: LocalServer,
    account: Account,
    permissions: Permissions,
    command: bytes,
    operation: str,
) -> None:
    with RawClient(jwt_server.url) as client:
        assert log_in(client, account.user(permissions=permissions)) == "PONG"
        client.send(command)
        violation = f"-ERR 'Permissions Violation for {operation} to \"secret\"'"
        assert first_error(client) == violation


@pytest.mark.parametrize(("permissions", "command", "operation"), DENIALS)
def test_permissions_hold_for_passwords(
    own_server: StartServer, permissions: Permissions, command: bytes, operation: str
) -> None:
    server = own_server(config=password_config({"ann": "s3cret"}, ann=permissions))
    with RawClient(server.url) as client:
        assert client.connect(user="ann", **{"pass": "s3cret"}) == "PONG"
        client.send(command)
        violation = f"-ERR 'Permissions Violation for {operation} to \"secret\"'"
        assert first_error(client) == violation


def right_password(client: RawClient) -> str:
    return client.connect(user="bob", **{"pass": "pass word"})


def wrong_password(client: RawClient) -> str:
    return client.connect(user="bob", **{"pass": "password"})


@pytest.mark.parametrize(
    ("config", "right", "wrong"),
    [
        (password_config({"bob": "pass word"}), right_password, wrong_password),
        (
            token_config("t0k en"),
            lambda client: client.connect(auth_token="t0k en"),
            lambda client: client.connect(auth_token="t0ken"),
        ),
    ],
    ids=["password", "token"],
)
def test_plain_secrets_let_in(
    own_server: StartServer,
    config: str,
    right: Callable[[RawClient], str],
    wrong: Callable[[RawClient], str],
) -> None:
    server = own_server(config=config)
    with RawClient(server.url) as client:
        assert client.info["auth_required"] is True
        assert right(client) == "PONG"
    with RawClient(server.url) as client:
        assert wrong(client) == REFUSED


def test_an_nkey_lets_in(own_server: StartServer) -> None:
    key, other = Key("user"), Key("user")
    server = own_server(config=nkey_config(key))
    for shown, signed, reply in ((key, key, "PONG"), (key, other, REFUSED)):
        with RawClient(server.url) as client:
            sig = signature(client, signed)
            assert client.connect(nkey=shown.public, sig=sig) == reply


def test_a_password_can_change_while_the_server_runs(
    own_server: StartServer,
) -> None:
    server = own_server(config=password_config({"bob": "password"}))
    with RawClient(server.url) as client:
        assert wrong_password(client) == "PONG"
        server.reload(password_config({"bob": "pass word"}))
        assert first_error(client) == REFUSED

    def gets_in() -> bool:
        with RawClient(server.url) as client:
            return right_password(client) == "PONG"

    wait_for(gets_in)
