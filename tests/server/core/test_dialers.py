"""Tests of connections through a proxy, and through sockets that you connect yourself."""

from __future__ import annotations

import contextlib
import logging
import re
import socket
import ssl
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import pytest

import jsync
from jsync import errors

from ...support.connection_faults import Events, connect
from ...support.connections import refusing_url, works
from ...support.servers import free_port, wait_for
from ...support.threads import LONG, SOON

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from jsync.server import LocalServer

    from ...conftest import StartServer
    from ...support.certificates import Certificates

pytestmark = pytest.mark.server

SECRET = "open-sesame"

# pproxy expects the event loop that the main thread had before Python 3.14.
PPROXY = """
import asyncio, pproxy.server
asyncio.set_event_loop(asyncio.new_event_loop())
pproxy.server.main()
"""


@contextlib.contextmanager
def proxy(*protocols: str, secret: str = "") -> Iterator[int]:
    """A real proxy on another port, with a user and a password if `secret` is given."""
    port = free_port()
    url = f"{'+'.join(protocols)}://127.0.0.1:{port}"
    command = [
        sys.executable,
        "-c",
        PPROXY,
        "-l",
        url + (f"#{secret}" if secret else ""),
    ]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as process:
        try:
            wait_for(lambda: is_open(port) or process.poll() is not None, LONG)
            assert process.poll() is None, process.stdout and process.stdout.read()
            yield port
        finally:
            process.kill()
            process.wait()


def is_open(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
        return True
    return False


@pytest.fixture(params=["http", "socks5"])
def scheme(request: pytest.FixtureRequest) -> str:
    value: str = request.param
    return value


def test_messages_go_through_a_proxy(server: LocalServer, scheme: str) -> None:
    with proxy(scheme) as port:
        url = f"{scheme}://127.0.0.1:{port}"
        with jsync.connect(server.url, proxy=url) as nc:
            assert works(nc)
            assert nc.connected_url == server.url


def test_a_proxy_takes_only_the_right_credentials(
    server: LocalServer, scheme: str
) -> None:
    # The wrong credentials come first, because this proxy remembers the addresses it let in.
    with proxy(scheme, secret=f"me:{SECRET}") as port:
        for user in ("", f"me:wrong-{SECRET}@"):
            with pytest.raises(errors.ProxyError) as caught:
                jsync.connect(server.url, proxy=f"{scheme}://{user}127.0.0.1:{port}")
            assert SECRET not in str(caught.value)
            assert f"{scheme}://127.0.0.1:{port}" in str(caught.value)
        with jsync.connect(
            server.url, proxy=f"{scheme}://me:{SECRET}@127.0.0.1:{port}"
        ) as nc:
            assert works(nc)


def test_tls_goes_through_a_proxy(
    own_server: StartServer, certificates: Certificates, scheme: str
) -> None:
    server = own_server(jetstream=False, config=certificates.server_config())
    with (
        proxy(scheme) as port,
        jsync.connect(
            server.url,
            tls_ca=certificates.ca.cert,
            proxy=f"{scheme}://127.0.0.1:{port}",
        ) as nc,
    ):
        assert works(nc)


def test_a_connection_comes_back_through_its_proxy(
    own_server: StartServer, scheme: str
) -> None:
    server = own_server(jetstream=False)
    with (
        proxy(scheme) as port,
        connect(server.url, Events(), proxy=f"{scheme}://127.0.0.1:{port}") as nc,
        nc.events() as events,
    ):
        server.restart()
        assert isinstance(events.next(LONG), jsync.Disconnected)
        assert isinstance(events.next(LONG), jsync.Reconnected)
        assert works(nc)


def test_a_proxy_not_reaching_the_server_is_named(scheme: str) -> None:
    with (
        proxy(scheme) as port,
        pytest.raises((errors.ProxyError, errors.ConnectionError)) as caught,
    ):
        jsync.connect(refusing_url(), proxy=f"{scheme}://127.0.0.1:{port}")
    assert str(port) in str(caught.value) or "closed" in str(caught.value)


def test_a_proxy_that_is_away_is_named(server: LocalServer, scheme: str) -> None:
    away = refusing_url().removeprefix("nats")
    words = re.escape(f"{scheme}{away} cannot be reached")
    with pytest.raises(errors.ProxyError, match=words):
        jsync.connect(server.url, proxy=f"{scheme}{away}")


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("https://host:1", "TLS to the proxy itself"),
        ("ftp://host:1", "http:// or socks5://"),
        ("http://", "host"),
        ("http://host:99999", "port"),
        ("http://host:0", "port"),
        ("host:1:2", "port"),
        (f"http://user:{SECRET}/@host:1", "port .* percent-encode"),
        ("http://[::1", "host"),
        ("http://a..b:1", "host"),
        ("http://host\n:1", "blanks"),
        (f"http://user:{SECRET}@ho st", "blanks"),
        ("http://host/path", "path"),
        (7, "URL"),
    ],
)
def test_the_error_names_the_proxys_wrong_part(
    server: LocalServer, url: str, words: str
) -> None:
    with pytest.raises(errors.ConfigError, match=words) as caught:
        jsync.connect(server.url, proxy=url)
    assert SECRET not in str(caught.value)


def test_a_dialer_and_a_proxy_exclude_each_other(server: LocalServer) -> None:
    with pytest.raises(errors.ConfigError, match="excludes proxy"):
        jsync.connect(server.url, proxy="http://127.0.0.1:1", dialer=plain)
    with pytest.raises(errors.ConfigError, match="dialer"):
        jsync.connect(server.url, dialer="plain")  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["nats_proxy", "ALL_PROXY", "https_proxy"])
def test_the_environment_names_the_proxy(
    server: LocalServer, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for other in ("nats", "all", "https", "http", "no"):
        monkeypatch.delenv(f"{other}_proxy", raising=False)
        monkeypatch.delenv(f"{other}_proxy".upper(), raising=False)
    with proxy("http") as port:
        monkeypatch.setenv(name, f"http://127.0.0.1:{port}")
        with jsync.connect(server.url, proxy=True) as nc:
            assert nc.client_ip == "127.0.0.1"
            assert works(nc)
        monkeypatch.setenv(name, f"http{refusing_url().removeprefix('nats')}")
        with pytest.raises(errors.ProxyError):
            jsync.connect(server.url, proxy=True)
        with jsync.connect(server.url) as nc:
            assert works(nc)
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        with jsync.connect(server.url, proxy=True) as nc:
            assert works(nc)


def test_no_log_line_shows_a_proxys_secret(
    server: LocalServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    url = f"http://me:{SECRET}@127.0.0.1:{refusing_url().rpartition(':')[2]}"
    with jsync.connect(
        server.url, proxy=url, retry_on_failed_connect=True, connect_timeout=0.5
    ) as nc:
        wait_for(lambda: nc.last_error is not None)
        shown = f"{nc._session!r} {nc.last_error} {nc!r} {nc._session.options!r}"
        shown += repr(nc._session.io._proxy)  # type: ignore[attr-defined]
        nc.close()
    assert SECRET not in shown
    assert SECRET not in caplog.text


# A proxy that misbehaves -----------------------------------------------------------------

ANSWER = b"HTTP/1.1 200 Connection established\r\nVia: 1.1 us\r\n\r\n"


@contextlib.contextmanager
def answering(answer: Callable[[socket.socket], object]) -> Iterator[str]:
    """The URL of a proxy that calls `answer` with each connection."""
    guests: list[socket.socket] = []
    listener = socket.create_server(("127.0.0.1", 0))

    def serve(sock: socket.socket) -> None:
        with contextlib.suppress(OSError):
            answer(sock)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                sock, _ = listener.accept()
                guests.append(sock)
                threading.Thread(target=serve, args=(sock,), daemon=True).start()

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(SOON)
        for sock in guests:
            sock.close()


def read_request(sock: socket.socket) -> bytes:
    data = b""
    while not data.endswith(b"\r\n\r\n"):
        data += sock.recv(4096)
    return data


@pytest.mark.parametrize("cut", range(len(ANSWER)))
def test_an_answer_cut_at_any_byte_raises(server: LocalServer, cut: int) -> None:
    def answer(sock: socket.socket) -> None:
        read_request(sock)
        sock.sendall(ANSWER[:cut])
        sock.close()

    with answering(answer) as url, pytest.raises(errors.ProxyError, match="hung up"):
        jsync.connect(server.url, proxy=url, connect_timeout=LONG)


@pytest.mark.parametrize(
    "garbage",
    [
        b"INFO {}\r\n",
        b"SSH-2.0-x\r\n\r\n",
        b"HTTP/1.1 20\r\n\r\n",
        b"HTTP/1.1 abc\r\n\r\n",
        b"\x00" * 100,
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 20_000,
        b"HTTP/1.1 502 \x1b[31mBad\r\n\r\n",
    ],
)
def test_an_answer_other_than_http_is_an_error(
    server: LocalServer, garbage: bytes
) -> None:
    def answer(sock: socket.socket) -> None:
        read_request(sock)
        sock.sendall(garbage)
        sock.recv(1)

    with answering(answer) as url, pytest.raises(errors.ProxyError) as caught:
        jsync.connect(server.url, proxy=url, connect_timeout=LONG)
    assert "\x1b" not in str(caught.value)


def test_info_right_after_a_proxys_answer_is_kept(
    server: LocalServer,
) -> None:
    def answer(sock: socket.socket) -> None:
        request = read_request(sock)
        assert request.startswith(b"CONNECT 127.0.0.1:")
        with socket.create_connection(("127.0.0.1", server.port)) as upstream:
            sock.sendall(ANSWER + upstream.recv(1 << 16))
            join(sock, upstream)

    with answering(answer) as url, jsync.connect(server.url, proxy=url) as nc:
        assert works(nc)


def test_a_proxy_may_pass_on_single_bytes(server: LocalServer) -> None:
    def answer(sock: socket.socket) -> None:
        read_request(sock)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with socket.create_connection(("127.0.0.1", server.port)) as upstream:
            for byte in ANSWER + upstream.recv(1 << 16):
                sock.sendall(bytes([byte]))
            join(sock, upstream)

    with answering(answer) as url, jsync.connect(server.url, proxy=url) as nc:
        assert works(nc)


def join(one: socket.socket, other: socket.socket) -> None:
    """Forward bytes in both directions until both ends have closed."""
    back = threading.Thread(target=carry, args=(other, one), daemon=True)
    back.start()
    carry(one, other)
    back.join(SOON)


def carry(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)


def test_a_silent_proxy_ends_at_the_timeout(server: LocalServer) -> None:
    with answering(read_request) as url, pytest.raises(errors.TimeoutError):
        jsync.connect(server.url, proxy=url, connect_timeout=0.3)


# Dialers ---------------------------------------------------------------------------------


def plain(host: str, port: int, timeout: float) -> socket.socket:
    return socket.create_connection((host, port), timeout)


def test_a_dialer_connects_and_connects_again(own_server: StartServer) -> None:
    server = own_server(jetstream=False)
    calls: list[tuple[str, int]] = []

    def dialer(host: str, port: int, timeout: float) -> socket.socket:
        calls.append((host, port))
        assert 0 < timeout <= LONG
        return plain(host, port, timeout)

    with connect(server.url, Events(), dialer=dialer, connect_timeout=LONG) as nc:
        assert works(nc)
        server.restart()
        wait_for(lambda: nc.stats().reconnects == 1)
        assert works(nc)
    assert set(calls) == {("127.0.0.1", server.port)}
    assert len(calls) > 1


def test_a_dialer_may_use_a_unix_socket(server: LocalServer, tmp_path: Path) -> None:
    path = str(tmp_path / "nats")

    def dialer(_host: str, _port: int, timeout: float) -> socket.socket:
        sock = socket.socket(socket.AF_UNIX)
        sock.settimeout(timeout)
        sock.connect(path)
        return sock

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()

        def serve() -> None:
            sock, _ = listener.accept()
            upstream = socket.create_connection(("127.0.0.1", server.port))
            with sock, upstream:
                join(sock, upstream)

        serving = threading.Thread(target=serve, daemon=True)
        serving.start()
        with jsync.connect(server.url, dialer=dialer) as nc:
            assert works(nc)
        serving.join(SOON)


def raising(error: Exception) -> Callable[[str, int, float], socket.socket]:
    def dialer(_host: str, _port: int, _timeout: float) -> socket.socket:
        raise error

    return dialer


@pytest.mark.parametrize(
    ("dialer", "error", "words"),
    [
        (
            raising(ConnectionRefusedError(111, "refused")),
            errors.ConnectionError,
            "refused",
        ),
        (
            raising(ZeroDivisionError("oh")),
            errors.CallbackError,
            "ZeroDivisionError: oh",
        ),
        (lambda *_: None, errors.ConfigError, "not NoneType"),
        (
            lambda *_: socket.socket(type=socket.SOCK_DGRAM),
            errors.ConfigError,
            "stream",
        ),
        (
            lambda *_: ssl.create_default_context().wrap_socket(
                socket.socket(), server_hostname="x"
            ),
            errors.ConfigError,
            "plain one",
        ),
    ],
)
def test_a_dialer_that_fails_raises_its_reason(
    server: LocalServer,
    dialer: Callable[[str, int, float], socket.socket],
    error: type[Exception],
    words: str,
) -> None:
    with pytest.raises(error, match=words):
        jsync.connect(server.url, dialer=dialer)


def test_an_exiting_dialer_fails_the_attempt_at_once(server: LocalServer) -> None:
    with pytest.raises(errors.CallbackError, match="dialer raised SystemExit"):
        jsync.connect(server.url, dialer=lambda *_: sys.exit(1), connect_timeout=LONG)


def test_close_closes_a_late_dialers_socket_without_waiting(
    own_server: StartServer,
) -> None:
    server = own_server(jetstream=False)
    asked, go = threading.Event(), threading.Event()
    late: list[socket.socket] = []

    def dialer(host: str, port: int, timeout: float) -> socket.socket:
        sock = plain(host, port, timeout)
        if asked.is_set() or nc_is_up.is_set():
            asked.set()
            assert go.wait(LONG)
            late.append(sock)
        return sock

    nc_is_up = threading.Event()
    with connect(server.url, Events(), dialer=dialer, connect_timeout=LONG) as nc:
        nc_is_up.set()
        nc.force_reconnect()
        assert asked.wait(LONG)
        nc.close()
        assert not nc._session.io._thread.is_alive()  # type: ignore[attr-defined]
        go.set()
        wait_for(lambda: bool(late) and late[0].fileno() == -1)


def test_a_slow_dialer_ends_at_the_timeout(server: LocalServer) -> None:
    go = threading.Event()
    try:
        with pytest.raises(errors.TimeoutError, match="dialer"):
            jsync.connect(
                server.url,
                connect_timeout=0.3,
                dialer=lambda *_: go.wait(LONG) and None,  # type: ignore[arg-type]
            )
    finally:
        go.set()
