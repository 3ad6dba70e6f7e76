"""Tests of credentials: passwords, tokens, nkeys, creds, and callables that return them."""

from __future__ import annotations

import os
import sys
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

import jsync
from jsync import errors
from jsync.core import io_thread

from ...support.accounts import (
    AuthCallout,
    Key,
    nkey_config,
    password_config,
    token_config,
)
from ...support.connection_faults import Events, connect
from ...support.connections import works
from ...support.proxy import FaultProxy
from ...support.servers import monitor, threads_since, wait_for
from ...support.threads import LONG, SOON, Recorder

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from jsync.server import LocalServer

    from ...conftest import StartServer
    from ...support.accounts import Account

pytestmark = pytest.mark.server


@pytest.mark.parametrize("how", ["options", "callables", "url"])
def test_user_and_password_let_in(own_server: StartServer, how: str) -> None:
    server = own_server(config=password_config({"bob": "p@ss /word"}))
    match how:
        case "options":
            nc = jsync.connect(server.url, user="bob", password="p@ss /word")
        case "callables":
            nc = jsync.connect(
                server.url, user=lambda: "bob", password=lambda: "p@ss /word"
            )
        case _:
            nc = jsync.connect(server.url.replace("://", "://bob:p%40ss%20%2Fword@"))
    with nc:
        assert works(nc)
        assert "word" not in f"{nc!r} {nc.connected_url} {nc.servers}"


@pytest.mark.parametrize("how", ["option", "callable", "url"])
def test_a_token_lets_in(own_server: StartServer, how: str) -> None:
    server = own_server(config=token_config("t0ken"))
    match how:
        case "option":
            nc = jsync.connect(server.url, token="t0ken")
        case "callable":
            nc = jsync.connect(server.url, token=lambda: "t0ken")
        case _:
            nc = jsync.connect(server.url.replace("://", "://t0ken@"))
    with nc:
        assert works(nc)
        assert "t0ken" not in f"{nc!r} {nc.connected_url} {nc.servers}"


def test_an_nkey_seed_lets_in(own_server: StartServer) -> None:
    key, other = Key("user"), Key("user")
    server = own_server(config=nkey_config(key))
    for seed in (key.seed, key.seed.encode()):
        with jsync.connect(server.url, nkey_seed=seed) as nc:
            assert works(nc)
    with pytest.raises(errors.AuthenticationError) as caught:
        jsync.connect(server.url, nkey_seed=other.seed)
    assert other.seed not in str(caught.value)


def test_creds_let_in_as_path_or_content(
    jwt_server: LocalServer, account: Account, tmp_path: Path
) -> None:
    path = account.user().write_creds(tmp_path / "user.creds")
    creds: list[str | Path | bytes] = [path, os.fspath(path), path.read_bytes()]
    for given in creds:
        with jsync.connect(jwt_server.url, creds=given) as nc:
            assert works(nc)


def test_creds_are_read_again_for_a_reconnect(
    jwt_server: LocalServer, account: Account, tmp_path: Path
) -> None:
    path = account.user("before").write_creds(tmp_path / "user.creds")
    reconnected = Recorder()
    with (
        FaultProxy("127.0.0.1", jwt_server.port) as proxy,
        jsync.connect(
            proxy.url,
            creds=path,
            on_reconnect=reconnected,
            reconnect_wait=0.01,
            ignore_auth_error_abort=True,
        ) as nc,
    ):
        expired = account.user("gone", expires_in=-60)
        expired.write_creds(path)
        proxy.cut()
        # jsync reads the expired credentials, and the server rejects them. With the old ones it
        # would work.
        wait_for(lambda: isinstance(nc.last_error, errors.AuthenticationError))
        assert not nc.is_connected
        account.user("after").write_creds(path)
        reconnected.get()
        assert works(nc)


def test_creds_that_are_missing_say_which_file(
    jwt_server: LocalServer, tmp_path: Path
) -> None:
    with pytest.raises(errors.AuthenticationError, match=r"gone\.creds"):
        jsync.connect(jwt_server.url, creds=tmp_path / "gone.creds")


def test_an_expired_jwt_is_an_authentication_error(
    jwt_server: LocalServer, account: Account
) -> None:
    creds = account.user(expires_in=-60).creds.encode()
    with pytest.raises(errors.AuthenticationError):
        jsync.connect(jwt_server.url, creds=creds)


def test_an_auth_callback_signs_the_nonce(own_server: StartServer) -> None:
    key = Key("user")
    server = own_server(config=nkey_config(key))
    nonces = []

    def sign(nonce: bytes) -> Mapping[str, str]:
        import base64  # noqa: PLC0415

        nonces.append(nonce)
        signature = base64.urlsafe_b64encode(key.sign(nonce)).rstrip(b"=").decode()
        return {"nkey": key.public, "sig": signature}

    with jsync.connect(server.url, auth_callback=sign) as nc:
        assert works(nc)
    assert len(nonces) == 1
    assert nonces[0]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"user": "bob", "password": "wrong"},
        {"user": "nobody", "password": "right"},
        {"token": "right"},
    ],
    ids=["none", "password", "user", "token"],
)
def test_wrong_credentials_are_an_authentication_error(
    own_server: StartServer, options: dict[str, Any]
) -> None:
    server = own_server(config=password_config({"bob": "right"}))
    with pytest.raises(errors.AuthenticationError, match="Authorization Violation"):
        jsync.connect(server.url, **options)


def test_wrong_credentials_do_not_show_in_the_error(own_server: StartServer) -> None:
    server = own_server(config=password_config({"bob": "right"}))
    with pytest.raises(errors.AuthenticationError) as caught:
        jsync.connect(server.url.replace("://", "://bob:s3cret@"))
    seen: BaseException | None = caught.value
    while seen is not None:
        assert "s3cret" not in f"{seen!s} {seen!r}"
        seen = seen.__cause__ or seen.__context__


def test_secrets_are_fetched_on_a_separate_thread(
    own_server: StartServer,
) -> None:
    server = own_server(config=token_config("t0ken"))
    threads = []

    def token() -> str:
        threads.append(threading.current_thread())
        return "t0ken"

    with jsync.connect(server.url, token=token):
        assert threads[0] is not threading.current_thread()
        assert not threads[0].name.endswith("-io")


def test_a_slow_secret_ends_with_connect_timeout(
    server: LocalServer,
) -> None:
    released = threading.Event()

    def slow() -> str:
        released.wait(LONG)
        return "too late"

    try:
        begin = time.monotonic()
        with pytest.raises(errors.AuthenticationError, match="took longer"):
            jsync.connect(server.url, token=slow, connect_timeout=0.2)
        assert time.monotonic() - begin < SOON
    finally:
        released.set()


def test_secrets_that_hang_pile_up_no_threads(
    own_server: StartServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(io_thread, "HANGING_SECONDS", 1000)
    server = own_server(config="authorization { token: secret }")
    released = threading.Event()
    released.set()
    asked: list[int] = []

    def slow() -> str:
        asked.append(1)
        released.wait(LONG)
        return "secret"

    with connect(server.url, Events(), token=slow, connect_timeout=0.2) as nc:
        released.clear()
        nc.force_reconnect()
        pool = nc._session.io.pool
        wait_for(lambda: pool.candidates()[0].attempts > 3)
        assert len(asked) == 2, "no second thread hangs"
        released.set()
        wait_for(lambda: nc.stats().reconnects == 1)
        assert works(nc)


def test_a_hanging_secret_delays_no_deadline_and_end(own_server: StartServer) -> None:
    server = own_server(config=token_config("secret"))
    asked, released, failed = threading.Event(), threading.Event(), Recorder()
    hangs = False

    def token() -> str:
        if hangs:
            asked.set()
            released.wait(LONG)
        return "secret"

    before = set(threading.enumerate())
    nc = connect(server.url, Events(), token=token, connect_timeout=LONG)
    try:
        with nc.subscribe("silent"):
            publisher = nc.jetstream().publisher(
                resend=True,
                ack_timeout=2,
                on_error=lambda future, error: failed(error),
            )
            publisher.publish("silent", b"", msg_id="1")
            hangs = True
            nc.force_reconnect()
            assert asked.wait(SOON)
            assert isinstance(failed.get(), errors.TimeoutError)
        nc.close()
        io_thread = f"{nc._session.name}-io"
        wait_for(lambda: io_thread not in {t.name for t in threads_since(before)}, SOON)
    finally:
        released.set()
        nc.close()


def test_an_earlier_hanging_call_delays_no_end(
    own_server: StartServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(io_thread, "HANGING_SECONDS", 1000)
    server = own_server(config=token_config("secret"))
    released, failed = threading.Event(), Recorder()
    released.set()

    def token() -> str:
        released.wait(LONG)
        return "secret"

    before = set(threading.enumerate())
    nc = connect(server.url, Events(), token=token, connect_timeout=0.2)
    try:
        with nc.subscribe("silent"):
            publisher = nc.jetstream().publisher(
                resend=True,
                ack_timeout=2,
                on_error=lambda future, error: failed(error),
            )
            publisher.publish("silent", b"", msg_id="1")
            released.clear()
            nc.force_reconnect()
            io = nc._session.io
            assert isinstance(io, io_thread.IOThread)
            wait_for(lambda: io.pool.candidates()[0].attempts > 0)
            # The next attempt waits for the call that hangs, for a long time.
            monkeypatch.setattr(
                io, "_options", replace(io._options, connect_timeout=LONG)
            )
            assert isinstance(failed.get(), errors.TimeoutError)
        nc.close()
        io_thread_name = f"{nc._session.name}-io"
        wait_for(lambda: io_thread_name not in {t.name for t in threads_since(before)})
    finally:
        released.set()
        nc.close()


def raise_from_vault() -> str:
    raise LookupError("the vault is shut")


@pytest.mark.parametrize(
    "options",
    [
        {"token": raise_from_vault},
        {"user": "bob", "password": raise_from_vault},
        {"auth_callback": lambda nonce: raise_from_vault()},
    ],
    ids=["token", "password", "auth_callback"],
)
def test_failing_secrets_are_authentication_errors_with_their_cause(
    server: LocalServer, options: dict[str, Any]
) -> None:
    with pytest.raises(errors.AuthenticationError) as caught:
        jsync.connect(server.url, **options)
    assert isinstance(caught.value.__cause__, LookupError)


@pytest.mark.parametrize(
    "options",
    [
        {"token": sys.exit},
        {"user": "bob", "password": sys.exit},
        {"auth_callback": sys.exit},
    ],
    ids=["token", "password", "auth_callback"],
)
def test_an_exiting_secret_callable_is_an_authentication_error(
    server: LocalServer, options: dict[str, Any]
) -> None:
    with pytest.raises(errors.AuthenticationError, match="raised SystemExit") as caught:
        jsync.connect(server.url, connect_timeout=LONG, **options)
    assert isinstance(caught.value.__cause__, SystemExit)


# Auth callout -------------------------------------------------------------------------


@pytest.fixture
def callout(own_server: StartServer) -> Iterator[tuple[str, jsync.Connection]]:
    """The URL of a server with auth callout, and a connection for its service."""
    server = own_server(jetstream=False, config=CALLOUT.config)
    with jsync.connect(server.url, user="auth", password="auth") as service:
        yield server.url, service


CALLOUT = AuthCallout()


def test_a_user_of_a_callout_outlives_its_expiry(
    callout: tuple[str, jsync.Connection],
) -> None:
    url, service = callout
    service.subscribe(CALLOUT.SUBJECT, callback=replace(CALLOUT, expires_in=2))
    service.flush()
    events = Events()
    with connect(url, events, user="me", password="mine", connect_timeout=LONG) as nc:
        lost = events.wait("disconnect")
        assert isinstance(lost.__cause__, errors.AuthenticationError)
        assert "Expired" in str(lost)
        events.wait("reconnect")
        assert works(nc)


def test_a_callout_without_its_service_is_waited_for(
    callout: tuple[str, jsync.Connection],
) -> None:
    url, service = callout
    with pytest.raises(errors.AuthenticationError, match="Authorization Violation"):
        jsync.connect(url, user="me", password="mine", connect_timeout=LONG)
    events = Events()
    options = {"user": "me", "password": "mine", "connect_timeout": LONG}
    with service.subscribe(CALLOUT.SUBJECT, callback=CALLOUT):
        service.flush()
        nc = connect(url, events, ignore_auth_error_abort=True, **options)
        assert works(nc)
    with nc:
        service.flush()
        nc.force_reconnect()
        wait_for(lambda: nc._session.io.pool.candidates()[0].attempts > 2)
        assert isinstance(nc.last_error, errors.AuthenticationError)
        service.subscribe(CALLOUT.SUBJECT, callback=CALLOUT)
        events.wait("reconnect")
        assert works(nc)


def test_a_full_server_is_tried_until_one_leaves(own_server: StartServer) -> None:
    server = own_server(jetstream=False, config="max_connections: 2", args=["-m", "-1"])
    events = Events()
    with (
        connect(server.url, events) as nc,
        FaultProxy("127.0.0.1", server.port) as proxy,
        connect(proxy.url, Events()) as first,
    ):
        with pytest.raises(errors.ServerLimitError, match="maximum connections"):
            jsync.connect(server.url)
        proxy.refuse()
        proxy.cut()
        wait_for(lambda: monitor(server, "connz")["num_connections"] == 1)
        with jsync.connect(server.url):
            proxy.accept()
            wait_for(lambda: isinstance(first.last_error, errors.ServerLimitError))
        wait_for(lambda: first.is_connected)
        assert works(first)
        assert works(nc)
        assert not events.of("disconnect")
