"""Tests of WebSocket with the real server, through a faulty proxy, and with a fake server."""

from __future__ import annotations

import functools
import logging
import os
import sys
import threading
import traceback
from typing import TYPE_CHECKING, Any

import pytest

import jsync
from jsync import errors

from ...support.connection_faults import (
    Events,
    FakeServer,
    Peer,
    answers,
    connect,
    unsent,
)
from ...support.connections import works
from ...support.proxy import FaultProxy, Side
from ...support.reference import CLOSE, CONTINUED, PING, PONG, framed
from ...support.servers import free_port, wait_for
from ...support.threads import LONG, SOON
from ...support.websocket_scripts import WebSocketPeer, websocket
from .test_dialers import proxy as real_proxy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jsync.server import LocalServer

    from ...conftest import StartServer
    from ...support.accounts import Account
    from ...support.certificates import Certificates

pytestmark = pytest.mark.server

KINDS = ["ws", "unmasked", "compressed", "wss", "wss, compressed"]
SIZES = [0, 1, 50, 63, 64, 125, 126, 1000, 65_535, 65_536, 900_000]


def listener(tls: str = "", *, compressed: bool = False) -> str:
    lines = f"listen: 127.0.0.1:-1\ncompression: {str(compressed).lower()}\n"
    return f"websocket {{\n{lines}{tls or 'no_tls: true'}\n}}\n"


def is_connected(nc: jsync.Connection) -> bool:
    return nc.is_connected


def url_of(server: LocalServer) -> str:
    return server.websocket_url


def port_of(server: LocalServer) -> int:
    return int(url_of(server).rpartition(":")[2])


@pytest.fixture(scope="module")
def config(certificates: Certificates) -> str:
    return certificates.server_config()


@pytest.fixture
def wss_server(own_server: StartServer, config: str) -> LocalServer:
    return own_server(config=listener(config))


@pytest.fixture
def ws_server(own_server: StartServer) -> LocalServer:
    return own_server(websocket=True)


@pytest.fixture(params=KINDS)
def nc(
    request: pytest.FixtureRequest,
    own_server: StartServer,
    config: str,
    certificates: Certificates,
) -> Iterator[jsync.Connection]:
    kind: str = request.param
    tls = config if "wss" in kind else ""
    server = own_server(config=listener(tls, compressed="compressed" in kind))
    options: dict[str, Any] = {"tls_ca": certificates.ca.cert} if tls else {}
    with jsync.connect(
        url_of(server), ws_masking=kind != "unmasked", **options
    ) as connection:
        assert connection.connected_url == url_of(server)
        yield connection


# With the real server -----------------------------------------------------------------


def test_messages_of_every_size_arrive_unchanged(nc: jsync.Connection) -> None:
    subscription = nc.subscribe("sizes")
    for size in SIZES:
        data = os.urandom(size // 2) + bytes(size - size // 2)
        nc.publish("sizes", data, headers={"Size": str(size)})
        msg = subscription.next(SOON)
        assert msg.data == data
        assert msg.headers is not None
        assert msg.headers["Size"] == str(size)


def test_a_burst_keeps_its_order(nc: jsync.Connection) -> None:
    subscription = nc.subscribe("burst")
    for number in range(20_000):
        nc.publish("burst", b"%d" % number + b"x" * (number % 300))
    for number in range(20_000):
        assert subscription.next(SOON).data.rstrip(b"x") == b"%d" % number


def test_threads_publish_and_request_at_once(nc: jsync.Connection) -> None:
    with nc.subscribe("echo", callback=lambda msg: msg.respond(msg.data)):
        wrong = []

        def ask(number: int) -> None:
            for i in range(50):
                data = b"%d %d" % (number, i) * (i + 1)
                nc.publish("elsewhere", data)
                if nc.request("echo", data, timeout=SOON).data != data:
                    wrong.append(data)

        threads = [threading.Thread(target=ask, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong


def test_jetstream_stores_and_delivers(nc: jsync.Connection) -> None:
    js = nc.jetstream()
    js.create_stream(name="ORDERS", subjects=["orders.>"])
    with js.publisher() as publisher:
        for number in range(2000):
            publisher.publish("orders.new", b"%d" % number)
    consumer = js.create_consumer("ORDERS", name="reader")
    seen = []
    for msg in consumer.messages(idle_timeout=SOON):
        seen.append(int(msg.data))
        msg.ack()
        if len(seen) == 2000:
            break
    assert seen == list(range(2000))


def test_a_server_without_websocket_has_no_such_url(server: LocalServer) -> None:
    if server.url.startswith("nats:"):
        with pytest.raises(errors.Error, match="websocket=True"):
            _ = server.websocket_url


def test_a_connection_shows_its_scheme(ws_server: LocalServer) -> None:
    with jsync.connect(url_of(ws_server)) as nc:
        assert "ws://" in repr(nc)
        assert nc.rtt(SOON) > 0


def test_reconnecting_loses_no_message_of_a_stream(own_server: StartServer) -> None:
    server = own_server(websocket=True)
    events = Events()
    with connect(url_of(server), events) as nc:
        js = nc.jetstream()
        js.create_stream(name="KEPT", subjects=["kept"])
        subscription = nc.subscribe("live")
        for losses in range(1, 4):
            js.publish("kept", b"x")
            before = url_of(server)
            server.kill()
            events.wait("disconnect", losses)
            nc.publish("live", b"while away")
            server.start()
            assert url_of(server) == before
            assert subscription.next(LONG).data == b"while away"
        assert js.stream("KEPT").info().state.messages == 3


def test_servers_of_the_cluster_are_found_as_websockets(
    own_server: StartServer,
) -> None:
    ports = [free_port(), free_port()]
    routes = ", ".join(f"nats://127.0.0.1:{port}" for port in ports)
    first, second = (
        own_server(
            jetstream=False,
            websocket=True,
            config=(
                f"server_name: n{port}\n"
                f"cluster {{ name: c, listen: 127.0.0.1:{port}, routes: [{routes}] }}"
            ),
        )
        for port in ports
    )
    events = Events()
    with connect(url_of(first), events) as nc:
        wait_for(lambda: url_of(second) in nc.servers, LONG)
        first.kill()
        events.wait("reconnect")
        assert nc.connected_url == url_of(second)
        assert works(nc)


def test_one_pool_has_servers_with_tls_and_without(
    ws_server: LocalServer, wss_server: LocalServer, certificates: Certificates
) -> None:
    urls = [url_of(ws_server), url_of(wss_server)]
    ws_server.kill()
    context = certificates.ca.cert
    with jsync.connect(urls, tls_ca=context, randomize=False) as nc:
        assert nc.connected_url == url_of(wss_server)
    with pytest.raises(errors.ConfigError, match="for all servers, or for none"):
        jsync.connect([url_of(wss_server), "nats://127.0.0.1:1"])


def test_set_servers_may_change_to_websocket_and_back(ws_server: LocalServer) -> None:
    events = Events()
    with connect(ws_server.url, events) as nc:
        subscription = nc.subscribe("a")
        for number, url in enumerate([url_of(ws_server), ws_server.url], 1):
            nc.set_servers([url])
            nc.force_reconnect()
            events.wait("reconnect", number)
            assert nc.connected_url == url
            nc.publish("a", b"%d" % number)
            assert subscription.next(SOON).data == b"%d" % number


@pytest.mark.parametrize("way", ["user", "token", "userinfo", "nkey", "creds"])
def test_credentials_are_those_of_any_connection(
    way: str, own_server: StartServer, account: Account
) -> None:
    config, userinfo = "", ""
    options: dict[str, Any] = {}
    if way == "creds":
        config = account.operator.config
        options = {"creds": account.user("w").creds.encode()}
    elif way == "nkey":
        import nkeys  # noqa: PLC0415

        seed = nkeys.encode_seed(os.urandom(32), nkeys.PREFIX_BYTE_USER)
        public = nkeys.from_seed(bytearray(seed)).public_key.decode()
        config = f"authorization {{ users: [{{ nkey: {public} }}] }}"
        options = {"nkey_seed": seed.decode()}
    elif way == "token":
        config, options = 'authorization { token: "s3cret" }', {"token": "s3cret"}
    else:
        config = 'authorization { user: "u", password: "s3cret" }'
        options = {"user": "u", "password": "s3cret"} if way == "user" else {}
        userinfo = "u:s3cret@" if way == "userinfo" else ""
    server = own_server(websocket=True, config=config)
    url = url_of(server).replace("://", f"://{userinfo}")
    with jsync.connect(url, **options) as nc:
        assert works(nc)
    with pytest.raises(errors.AuthenticationError):
        jsync.connect(url_of(server), user="u", password="wrong")


def test_a_client_certificate_is_shown(
    own_server: StartServer, certificates: Certificates
) -> None:
    server = own_server(config=listener(certificates.server_config(verify=True)))
    trust: dict[str, Any] = {"tls_ca": certificates.ca.cert}
    with pytest.raises(errors.TLSError):
        jsync.connect(url_of(server), **trust)
    client = certificates.client
    with jsync.connect(
        url_of(server), **trust, tls_cert=client.cert, tls_key=client.key
    ) as nc:
        assert works(nc)


def test_tls_options_turn_ws_into_wss(
    wss_server: LocalServer, certificates: Certificates
) -> None:
    url = url_of(wss_server).replace("wss://", "ws://")
    with jsync.connect(url, tls_ca=certificates.ca.cert) as nc:
        assert works(nc)


def test_a_name_is_verified(
    wss_server: LocalServer, certificates: Certificates
) -> None:
    with pytest.raises(errors.TLSError, match="elsewhere"):
        jsync.connect(
            url_of(wss_server),
            tls_ca=certificates.ca.cert,
            tls_hostname="elsewhere.test",
        )


def test_it_goes_through_a_proxy_and_a_dialer(ws_server: LocalServer) -> None:
    with (
        real_proxy("http") as port,
        jsync.connect(url_of(ws_server), proxy=f"http://127.0.0.1:{port}") as nc,
    ):
        assert works(nc)
    import socket  # noqa: PLC0415

    def dialer(host: str, port: int, timeout: float) -> socket.socket:
        return socket.create_connection((host, port), timeout)

    with jsync.connect(url_of(ws_server), dialer=dialer) as nc:
        assert works(nc)


def test_an_encrypted_one_goes_through_an_http_proxy(
    wss_server: LocalServer, certificates: Certificates
) -> None:
    ca = certificates.ca.cert
    with real_proxy("http") as port:
        proxy = f"http://127.0.0.1:{port}"
        with jsync.connect(url_of(wss_server), proxy=proxy, tls_ca=ca) as nc:
            assert nc.connected_url == url_of(wss_server)
            assert works(nc)
        # The proxy only forwards bytes, so TLS is checked against the server.
        with pytest.raises(errors.TLSError, match="certificate"):
            jsync.connect(url_of(wss_server), proxy=proxy)
    with pytest.raises(errors.Error):
        jsync.connect(url_of(wss_server), proxy=proxy, tls_ca=ca)


# The wrong port -----------------------------------------------------------------------


def test_the_plain_port_behind_ws_is_named(ws_server: LocalServer) -> None:
    with pytest.raises(errors.WebSocketError, match="plain port of a NATS server"):
        jsync.connect(ws_server.url.replace("nats://", "ws://"))


def test_the_websocket_port_behind_nats_is_named(ws_server: LocalServer) -> None:
    with pytest.raises(errors.TimeoutError, match="needs ws:// or wss://"):
        jsync.connect(
            url_of(ws_server).replace("ws://", "nats://"), connect_timeout=0.5
        )


def test_a_port_with_tls_behind_ws_is_named(wss_server: LocalServer) -> None:
    with pytest.raises(errors.TLSError, match="use wss://"):
        jsync.connect(url_of(wss_server).replace("wss://", "ws://"))


def test_a_port_without_tls_behind_wss_is_named(ws_server: LocalServer) -> None:
    with pytest.raises(errors.TLSError):
        jsync.connect(url_of(ws_server).replace("ws://", "wss://"))


# Through a faulty proxy ---------------------------------------------------------------


def test_a_cut_anywhere_in_the_handshake_is_retried(
    ws_server: LocalServer,
) -> None:
    with FaultProxy("127.0.0.1", port_of(ws_server), scheme="ws") as proxy:
        with jsync.connect(proxy.url) as nc:
            assert works(nc)
        sizes = proxy.bytes_to
        sides: tuple[Side, ...] = ("client", "server")
        for to, size in [
            (side, n) for side in sides for n in range(1, sizes[side], 23)
        ]:
            proxy.cut_after(size, to)
            with connect(proxy.url, Events(), retry_on_failed_connect=True) as nc:
                wait_for(functools.partial(is_connected, nc), LONG)
                proxy.cut_after(1 << 40, to)
                wait_for(functools.partial(answers, nc), LONG)


@pytest.mark.parametrize("kind", ["ws", "compressed", "wss", "wss, compressed"])
@pytest.mark.parametrize("to", ["client", "server"])
def test_cuts_inside_frames_lose_no_acknowledged_message(
    to: Side,
    kind: str,
    own_server: StartServer,
    config: str,
    certificates: Certificates,
) -> None:
    tls = config if "wss" in kind else ""
    server = own_server(config=listener(tls, compressed=True))
    options: dict[str, Any] = {"tls_ca": certificates.ca.cert} if tls else {}
    scheme = url_of(server).partition(":")[0]
    with FaultProxy("127.0.0.1", port_of(server), scheme=scheme) as proxy:
        events = Events()
        with connect(
            proxy.url,
            events,
            ws_compression="compressed" in kind,
            reconnect_jitter_tls=0.01,
            **options,
        ) as nc:
            js = nc.jetstream(timeout=SOON)
            js.create_stream(name="KEPT", subjects=["kept"])
            acked = 0
            for number in range(40):
                proxy.cut_after(37 * number + 1, to)
                try:
                    js.publish("kept", b"%04d" % number + os.urandom(number * 30))
                    acked += 1
                except errors.Error:
                    continue
            proxy.cut_after(1 << 40, to)
            wait_for(lambda: nc.is_connected, LONG)
            assert events.of("disconnect")
            assert works(nc)
            stream = js.stream("KEPT")
            assert stream.info().state.messages >= acked


def test_a_proxy_that_reads_slowly_gets_every_byte(ws_server: LocalServer) -> None:
    with (
        FaultProxy(
            "127.0.0.1", port_of(ws_server), scheme="ws", receive_buffer=4096
        ) as proxy,
        jsync.connect(proxy.url) as nc,
        jsync.connect(ws_server.url) as other,
    ):
        subscription = other.subscribe("much", max_pending_bytes=1 << 30)
        other.flush(SOON)
        proxy.deaf("client")
        blocks = [os.urandom(100_000) for _ in range(60)]
        for block in blocks:
            nc.publish("much", block)
        assert unsent(nc) > 0
        proxy.hear("client")
        for block in blocks:
            assert subscription.next(SOON).data == block


@pytest.mark.parametrize("scheme", ["ws", "wss"])
def test_a_silent_line_is_given_up(
    scheme: str, request: pytest.FixtureRequest, certificates: Certificates
) -> None:
    server: LocalServer = request.getfixturevalue(f"{scheme}_server")
    options: dict[str, Any] = {}
    if scheme == "wss":
        options = {"tls_ca": certificates.ca.cert, "reconnect_jitter_tls": 0.01}
    with FaultProxy("127.0.0.1", port_of(server), scheme=scheme) as proxy:
        events = Events()
        with connect(proxy.url, events, ping_interval=0.1, **options) as nc:
            proxy.deaf("server")
            lost = events.wait("disconnect")
            assert isinstance(lost.__cause__, errors.StaleConnectionError)
            proxy.hear("server")
            wait_for(lambda: nc.is_connected, LONG)
            assert works(nc)


@pytest.mark.parametrize("scheme", ["ws", "wss"])
@pytest.mark.parametrize(
    "garbage", [b"\xff" * 40, b"\x82\x05HELLO", b"\x80\x01x", bytes(300)]
)
def test_garbage_ends_the_connection_and_the_next_works(
    garbage: bytes,
    scheme: str,
    request: pytest.FixtureRequest,
    certificates: Certificates,
) -> None:
    server: LocalServer = request.getfixturevalue(f"{scheme}_server")
    options: dict[str, Any] = {}
    if scheme == "wss":
        options = {"tls_ca": certificates.ca.cert, "reconnect_jitter_tls": 0.01}

    def spoil(data: bytes, to: Side) -> bytes:
        return garbage + data if to == "client" else data

    with FaultProxy("127.0.0.1", port_of(server), scheme=scheme) as proxy:
        events = Events()
        with connect(proxy.url, events, **options) as nc:
            proxy.rewrite(spoil)
            nc.publish("a")
            with pytest.raises(errors.Error):
                nc.rtt(SOON)
            proxy.rewrite(None)
            events.wait("reconnect")
            assert works(nc)


# A fake server ------------------------------------------------------------------------


def test_path_and_headers_reach_the_server() -> None:
    seen: list[WebSocketPeer] = []

    def script(peer: WebSocketPeer) -> None:
        seen.append(peer)
        peer.handshake()
        peer.serve()

    with FakeServer(websocket(script)) as fake:
        url = f"ws://127.0.0.1:{fake.port}/nats?token=s3cret"
        given = {"Authorization": "Bearer s3cret", "X-Two": ["1", "2"]}
        with jsync.connect(url, ws_headers=given) as nc:
            assert "s3cret" not in repr(nc)
            assert "s3cret" not in (nc.connected_url or "")
        with jsync.connect(url, ws_headers=lambda: {"X-Time": "now"}):
            pass
    assert seen[0].request.startswith(b"GET /nats?token=s3cret HTTP/1.1\r\n")
    assert seen[0].fields["Authorization"] == "Bearer s3cret"
    assert seen[0].request.count(b"X-Two: ") == 2
    assert seen[1].fields["X-Time"] == "now"


def test_nothing_shows_headers_or_query_of_a_websocket(
    ws_server: LocalServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="jsync.connection")
    headers = {"Authorization": "Bearer s3cret"}

    def reject(peer: Peer) -> None:
        WebSocketPeer(peer)
        peer.send(b"HTTP/1.1 302 Found\r\nLocation: http://h/?token=s3cret\r\n\r\n")

    with FakeServer(reject) as fake:
        url = f"ws://127.0.0.1:{fake.port}/a?token=s3cret"
        with pytest.raises(errors.WebSocketError) as caught:
            jsync.connect(url, ws_headers=headers)
    said = "".join(traceback.format_exception(caught.value))
    events = Events()
    with (
        FaultProxy("127.0.0.1", port_of(ws_server), scheme="ws") as proxy,
        connect(f"{proxy.url}/a?token=s3cret", events, ws_headers=headers) as nc,
    ):
        proxy.refuse()
        proxy.cut()
        wait_for(lambda: "refused" in str(nc.last_error))
        said += f"{nc!r} {nc._session!r} {nc._session.options!r} {nc.servers} {nc.last_error}"
        proxy.accept()
        events.wait("reconnect")
        said += f"{nc.connected_url} {nc.last_error}"
    assert "redirects" in caplog.text
    assert "/a" in caplog.text
    assert "s3cret" not in said + caplog.text


def test_a_headers_callable_that_raises_fails_the_attempt() -> None:
    def fail() -> dict[str, str]:
        raise RuntimeError("no vault")

    with FakeServer(Peer.hang) as fake, pytest.raises(errors.Error, match="no vault"):
        jsync.connect(f"ws://127.0.0.1:{fake.port}", ws_headers=fail)


def test_a_headers_callable_that_exits_fails_at_once() -> None:
    with FakeServer(Peer.hang) as fake:
        url = f"ws://127.0.0.1:{fake.port}"
        with pytest.raises(errors.Error, match="ws_headers raised SystemExit"):
            jsync.connect(url, ws_headers=sys.exit, connect_timeout=LONG)


def test_bad_headers_are_rejected_before_anything_is_sent() -> None:
    with pytest.raises(errors.ConfigError, match="ws_headers"):
        jsync.connect("ws://127.0.0.1:1", ws_headers={"A b": "c"})


def test_answers_of_http_become_errors_with_a_status() -> None:
    def script(peer: Peer) -> None:
        WebSocketPeer(peer)
        peer.send(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")

    with FakeServer(script) as fake:
        with pytest.raises(errors.WebSocketError, match="403 Forbidden") as caught:
            jsync.connect(f"ws://127.0.0.1:{fake.port}")
        assert caught.value.status == 403


def test_an_answer_that_never_comes_is_a_timeout() -> None:
    with (
        FakeServer(Peer.hang) as fake,
        pytest.raises(errors.TimeoutError, match="WebSocket upgrade"),
    ):
        jsync.connect(f"ws://127.0.0.1:{fake.port}", connect_timeout=0.3)


def test_a_ping_of_the_websocket_gets_its_pong() -> None:
    ponged = threading.Event()

    def script(peer: WebSocketPeer) -> None:
        peer.accept()
        # One ping comes before INFO, in the middle of the handshake, and one later.
        peer.send(b"early", PING)
        peer.send(
            b'INFO {"version":"2.15.1","headers":true,"proto":1,"max_payload":9999}\r\n'
        )
        assert peer.line().startswith(b"CONNECT ")
        assert peer.line() == b"PING\r\n"
        peer.send(b"PONG\r\n")
        peer.send(b"late", PING)
        while (0x80 | PONG, b"late") not in peer.frames:
            peer.read()
        assert (0x80 | PONG, b"early") in peer.frames
        ponged.set()
        peer.serve()

    with FakeServer(websocket(script)) as fake:
        with jsync.connect(f"ws://127.0.0.1:{fake.port}"):
            assert ponged.wait(SOON)


def test_messages_in_fragments_come_whole() -> None:
    def script(peer: WebSocketPeer) -> None:
        peer.handshake()
        while not (line := peer.line()).startswith(b"SUB a "):
            pass
        sid = line.split()[-1]
        message = b"MSG a %b 5\r\nhello\r\n" % sid
        for at in range(1, len(message)):
            peer.peer.send(framed(message[:at], final=False))
            peer.send(b"", PING)
            peer.peer.send(framed(message[at:], CONTINUED))
        peer.serve()

    with FakeServer(websocket(script)) as fake:
        with jsync.connect(f"ws://127.0.0.1:{fake.port}") as nc:
            subscription = nc.subscribe("a")
            for _ in range(len(b"MSG a 1 5\r\nhello\r\n") - 1):
                assert subscription.next(SOON).data == b"hello"


def test_a_server_that_closes_gives_its_reason() -> None:
    def script(peer: WebSocketPeer) -> None:
        peer.handshake()
        peer.send(b"\x03\xe9going away", CLOSE)
        while peer.read()[0] != 0x80 | CLOSE:  # waits for the close frame of the client
            pass

    def again(peer: WebSocketPeer) -> None:
        peer.handshake()
        peer.serve()

    events = Events()
    with FakeServer(websocket(script), websocket(again)) as fake:
        with connect(f"ws://127.0.0.1:{fake.port}", events):
            assert "1001 going away" in str(events.wait("disconnect"))
            events.wait("reconnect")


def test_closing_sends_a_close_frame_to_the_server() -> None:
    seen: list[tuple[int, bytes]] = []

    def script(peer: WebSocketPeer) -> None:
        peer.handshake()
        try:
            peer.serve()
        finally:
            seen.extend(peer.frames)

    with FakeServer(websocket(script)) as fake:
        with jsync.connect(f"ws://127.0.0.1:{fake.port}"):
            pass
        wait_for(lambda: bool(seen), LONG)
    assert seen[-1] == (0x80 | CLOSE, b"\x03\xe8")


def test_a_server_error_outweighs_the_close_after_it() -> None:
    def script(peer: WebSocketPeer) -> None:
        peer.accept()
        peer.send(b'INFO {"version":"2.15.1","headers":true,"proto":1}\r\n')
        peer.line()
        peer.peer.send(
            framed(b"-ERR 'Authorization Violation'\r\n") + framed(b"\x03\xf0x", CLOSE)
        )

    with FakeServer(websocket(script)) as fake:
        with pytest.raises(errors.AuthenticationError):
            jsync.connect(f"ws://127.0.0.1:{fake.port}")
