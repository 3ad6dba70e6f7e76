"""Tests that no credential shows in logs, errors, `repr`, warnings or pickles."""

from __future__ import annotations

import contextlib
import gc
import logging
import pickle
import traceback
import warnings
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest

import jsync
from jsync import errors, metrics
from jsync.server import LocalServer

from ..support.accounts import Key, Operator, nkey_config, password_config, token_config
from ..support.connections import works
from ..support.proxy import FaultProxy
from ..support.servers import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.server

PASSWORD = "p@ss/w0rd-of-bob"
TOKEN = "t0ken-of-nobody"


@dataclass
class Credential:
    """The credential that a server asks for, and the arguments of a client that has it."""

    server: LocalServer
    options: dict[str, Any]
    secrets: list[str]
    userinfo: str = ""
    """The part of the URL before the host."""

    def url(self, port: int) -> str:
        return f"nats://{self.userinfo}127.0.0.1:{port}"


@pytest.fixture(scope="module")
def other_server() -> Iterator[LocalServer]:
    """A server that accepts none of the credentials."""
    with LocalServer(config=password_config({"someone": "else"})) as server:
        yield server


@pytest.fixture(scope="module")
def credentials(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[dict[str, Credential]]:
    key, account = Key("user"), Operator().account("APP")
    user = account.user()
    path = user.write_creds(tmp_path_factory.mktemp("creds") / "user.creds")
    in_creds = [user.key.seed, user.jwt, *user.jwt.split(".")[1:]]
    fetched = {"user": "bob", "pass": PASSWORD}
    with ExitStack() as running:

        def start(config: str) -> LocalServer:
            return running.enter_context(LocalServer(config=config))

        passwords = start(password_config({"bob": PASSWORD}))
        tokens = start(token_config(TOKEN))
        nkeys = start(nkey_config(key))
        jwts = start(account.operator.config)
        quoted = quote(PASSWORD, safe="")
        password, token = [PASSWORD, quoted], [TOKEN]
        yield {
            "password": Credential(
                passwords, {"user": "bob", "password": PASSWORD}, password
            ),
            "password callable": Credential(
                passwords, {"user": "bob", "password": lambda: PASSWORD}, password
            ),
            "password in the URL": Credential(
                passwords, {}, password, f"bob:{quoted}@"
            ),
            "auth_callback": Credential(
                passwords, {"auth_callback": lambda nonce: fetched}, password
            ),
            "token": Credential(tokens, {"token": TOKEN}, token),
            "token callable": Credential(tokens, {"token": lambda: TOKEN}, token),
            "token in the URL": Credential(tokens, {}, token, f"{TOKEN}@"),
            "nkey_seed": Credential(nkeys, {"nkey_seed": key.seed}, [key.seed]),
            "creds as a path": Credential(jwts, {"creds": path}, in_creds),
            "creds as content": Credential(
                jwts, {"creds": user.creds.encode()}, in_creds
            ),
        }


KINDS = [
    *("password", "password callable", "password in the URL", "auth_callback"),
    *("token", "token callable", "token in the URL", "nkey_seed"),
    *("creds as a path", "creds as content"),
]


@pytest.fixture(params=KINDS)
def credential(
    request: pytest.FixtureRequest, credentials: dict[str, Credential]
) -> Credential:
    return credentials[request.param]


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> Iterator[list[str]]:
    """The texts that a test has collected, with all log lines at level DEBUG."""
    heard: list[str] = []
    caplog.set_level(logging.DEBUG)
    yield heard
    formatter = logging.Formatter("%(name)s %(threadName)s %(message)s")
    heard += [formatter.format(record) for record in caplog.records]


def words_of(error: BaseException | None) -> Iterator[str]:
    """Yield all texts that a report on an error could show, with its causes and copies."""
    while error is not None:
        yield f"{error} {error!r} {error.args!r} {vars(error)!r}"
        yield "".join(traceback.format_exception(error))
        if isinstance(error, errors.Error):
            pickled = pickle.dumps(error)
            yield pickled.decode("latin-1")
            yield repr(pickle.loads(pickled))
        error = error.__cause__ or error.__context__


def words_about(nc: jsync.Connection) -> Iterator[str]:
    """Yield all texts that a program could print of a connection and its inner parts."""
    session = nc._session
    parts = [
        nc,
        session,
        session.options,
        session.io,
        session.server,
        session.callbacks,
    ]
    parts += [session.io.pool, *session.io.pool.servers, nc.jetstream(), nc.stats()]
    yield " ".join(f"{part!r} {part}" for part in parts)
    yield f"{nc.name} {nc.servers} {nc.connected_url} {nc.server_info} {nc.client_id}"
    yield metrics.prometheus_text(nc)
    yield from words_of(nc.last_error)
    for part in parts:
        # Most parts cannot be pickled. The others must contain no secret.
        with contextlib.suppress(Exception):
            yield pickle.dumps(part).decode("latin-1")


def assert_hidden(secrets: list[str], said: list[str]) -> None:
    everything = "\n".join(said)
    for secret in secrets:
        # A part of a secret is as bad as the whole. A repr cuts long strings like this.
        for part in {secret, secret[:12], secret[-12:]}:
            if part in everything:
                line = next(line for line in said if part in line)
                pytest.fail(f"a secret shows in: {line.replace(part, '*****')}")


def test_no_loss_rejection_or_reconnect_shows_a_secret(
    credential: Credential,
    other_server: LocalServer,
    said: list[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    reported: list[Exception | None] = []
    with FaultProxy("127.0.0.1", credential.server.port) as proxy:
        with jsync.connect(
            [credential.url(proxy.port), credential.url(other_server.port)],
            **credential.options,
            randomize=False,
            reconnect_wait=0.01,
            ignore_auth_error_abort=True,
            on_error=reported.append,
            on_disconnect=reported.append,
            on_closed=reported.append,
        ) as nc:
            assert works(nc)
            said += words_about(nc)
            proxy.refuse()
            proxy.cut()
            wait_for(lambda: isinstance(nc.last_error, errors.AuthenticationError))
            said += words_about(nc)
            proxy.accept()
            wait_for(lambda: nc.is_connected)
            assert works(nc)
            said += words_about(nc)
        said += words_about(nc)
    wait_for(lambda: None in reported)
    assert len(reported) >= 2, "lost, closed"
    for error in reported:
        said += words_of(error)
    assert any("lost" in record.message for record in caplog.records)
    said += [record.getMessage() for record in caplog.records]
    assert_hidden(credential.secrets, said)


def test_no_error_of_connecting_shows_it(
    credential: Credential, other_server: LocalServer, said: list[str]
) -> None:
    with FaultProxy("127.0.0.1", other_server.port) as gone:
        gone.refuse()
        nowhere = [credential.url(gone.port)]
        refused = [credential.url(other_server.port)]
        wrong_host = [
            credential.url(other_server.port).replace("127.0.0.1", "no such host")
        ]
        no_tls = [credential.url(credential.server.port).replace("nats:", "tls:")]
        for servers in (nowhere, refused, nowhere + refused, wrong_host, no_tls):
            with pytest.raises(errors.Error) as caught:
                jsync.connect(servers, **credential.options, connect_timeout=5)
            said += words_of(caught.value)
        with pytest.raises(errors.ConfigError) as excluded:
            jsync.connect(refused, **{"token": "x", "creds": "y"} | credential.options)
        said += words_of(excluded.value)
    assert_hidden(credential.secrets, said)


def test_a_forgotten_connection_does_not_show_it(
    credential: Credential, said: list[str]
) -> None:
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        jsync.connect(credential.url(credential.server.port), **credential.options)
        gc.collect()
        wait_for(lambda: bool(warned))
    said += [str(warning) for warning in warned]
    assert "never closed" in said[0]
    assert_hidden(credential.secrets, said)


def test_unreadable_creds_show_only_their_path(
    credentials: dict[str, Credential], tmp_path: Path, said: list[str]
) -> None:
    server = credentials["creds as a path"].server
    content = credentials["creds as content"].options["creds"].decode()
    secrets = credentials["creds as content"].secrets
    broken = {
        "cut": content[:-90],
        "swapped": content.replace("SU", "SA"),
        "no jwt": content.replace("eyJ", ""),
    }
    for name, text in broken.items():
        path = tmp_path / f"{name}.creds"
        path.write_text(text)
        for creds in (path, text.encode()):
            with contextlib.suppress(errors.Error):
                jsync.connect(server.url, creds=creds).close()
                pytest.fail(f"{name}: such creds cannot let in")
            with pytest.raises(errors.Error) as caught:
                jsync.connect(server.url, creds=creds)
            said += words_of(caught.value)
    assert_hidden(secrets, said)
