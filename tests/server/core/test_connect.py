"""Tests of the first connect: addresses, timeouts and rejected connections."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import sys
import threading
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

import jsync
from jsync import errors

from ...support.connection_faults import open_files
from ...support.connections import black_hole, canned_server, refusing_url, works
from ...support.optional_libraries import needs_gevent
from ...support.processes import run_child
from ...support.proxy import FaultProxy
from ...support.servers import monitor, threads_since, wait_for
from ...support.threads import LONG, SOON, Recorder, Thread

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jsync.server import LocalServer

    from ...conftest import StartServer

pytestmark = pytest.mark.server


def client_page(server: LocalServer, nc: jsync.Connection) -> dict[str, Any]:
    page = monitor(server, f"connz?cid={nc.client_id}&subs=1&auth=1")
    found: dict[str, Any] = page["connections"][0]
    return found


# Addresses ----------------------------------------------------------------------------


@pytest.mark.tcp_only(reason="the URLs are nats://")
@pytest.mark.parametrize(
    "url",
    [
        "nats://127.0.0.1:{port}",
        "127.0.0.1:{port}",
        "NATS://127.0.0.1:{port}/",
        "nats://localhost:{port}",
    ],
)
def test_a_url_may_be_short(server: LocalServer, url: str) -> None:
    with jsync.connect(url.format(port=server.port)) as nc:
        assert works(nc)
        assert nc.is_connected


@pytest.mark.tcp_only(reason="the URLs are nats://")
def test_a_server_on_ipv6_is_reached(own_server: StartServer) -> None:
    server = own_server(args=["-a", "::1"])
    with jsync.connect(f"nats://[::1]:{server.port}") as nc:
        assert works(nc)
        assert nc.connected_url == f"nats://[::1]:{server.port}"
        assert nc.client_ip == "::1"


@pytest.mark.tcp_only(reason="the URLs are nats://")
def test_a_dual_stack_name_reaches_the_listening_address(
    own_server: StartServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = own_server()
    v4 = socket.getaddrinfo("127.0.0.1", server.port, type=socket.SOCK_STREAM)
    v6 = socket.getaddrinfo("::1", server.port, type=socket.SOCK_STREAM)
    monkeypatch.setattr(socket, "getaddrinfo", lambda *args, **more: v6 + v4)
    with jsync.connect(f"nats://both.test:{server.port}") as nc:
        assert works(nc)


class WithoutIPv6(socket.socket):
    """A socket of a kernel without IPv6."""

    def __init__(self, family: int = -1, *args: Any, **options: Any) -> None:
        if family == socket.AF_INET6:
            raise OSError(errno.EAFNOSUPPORT, os.strerror(errno.EAFNOSUPPORT))
        super().__init__(family, *args, **options)


@pytest.mark.tcp_only(reason="the URLs are nats://")
def test_an_address_unknown_to_the_kernel_is_skipped(
    server: LocalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    v4 = socket.getaddrinfo("127.0.0.1", server.port, type=socket.SOCK_STREAM)
    v6 = socket.getaddrinfo("::1", server.port, type=socket.SOCK_STREAM)
    monkeypatch.setattr(socket, "getaddrinfo", lambda *args, **more: v6 + v4)
    monkeypatch.setattr(socket, "socket", WithoutIPv6)
    with jsync.connect(f"nats://both.test:{server.port}") as nc:
        assert works(nc)
    monkeypatch.setattr(socket, "getaddrinfo", lambda *args, **more: v6)
    with pytest.raises(errors.ConnectionError, match="not supported"):
        jsync.connect(f"nats://both.test:{server.port}")


@pytest.mark.tcp_only(reason="the URLs are nats://")
def test_connections_spread_over_the_addresses_of_a_name(
    own_server: StartServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = own_server(args=["-a", "0.0.0.0"])
    hosts = [f"127.0.0.{n}" for n in range(1, 5)]
    found = [
        socket.getaddrinfo(host, server.port, type=socket.SOCK_STREAM)[0]
        for host in hosts
    ]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *args, **more: found)

    def reached(*, randomize: bool) -> str:
        url = f"nats://many.test:{server.port}"
        with jsync.connect(url, randomize=randomize) as nc:
            return vars(nc._session.io)["_stream"]._sock.getpeername()[0]  # type: ignore[no-any-return]

    assert {reached(randomize=False) for _ in range(5)} == {hosts[0]}
    assert len({reached(randomize=True) for _ in range(40)}) == 4


@contextlib.contextmanager
def silent_address() -> Iterator[int]:
    """A port of 127.0.0.1 that does not answer to connections: its queue is full."""
    with ExitStack() as sockets:
        listener = sockets.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(3):
            sock = sockets.enter_context(socket.socket())
            sock.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                sock.connect(listener.getsockname())
        yield listener.getsockname()[1]


@pytest.mark.tcp_only(reason="the URLs are nats://")
@pytest.mark.skipif(sys.platform != "linux", reason="a full queue refuses elsewhere")
def test_silent_addresses_leave_time_for_a_distant_server(
    server: LocalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ExitStack() as stack:
        proxy = stack.enter_context(FaultProxy("127.0.0.1", server.port))
        ports = [stack.enter_context(silent_address()) for _ in range(19)]
        found = [
            socket.getaddrinfo("127.0.0.1", port, type=socket.SOCK_STREAM)[0]
            for port in (*ports, proxy.port)
        ]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *args, **more: found)
        proxy.delay(0.5)
        with jsync.connect(
            "nats://many.test:1", connect_timeout=10, randomize=False
        ) as nc:
            assert works(nc)
        files = open_files()
        found.pop()
        with pytest.raises(errors.ConnectionError, match="no connection to"):
            jsync.connect("nats://many.test:1", connect_timeout=0.5)
        assert open_files() <= files


@pytest.mark.tcp_only(reason="the URLs are nats://")
def test_an_error_names_each_address_and_its_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    port = int(refusing_url().rpartition(":")[2])
    v4 = socket.getaddrinfo("127.0.0.1", port, type=socket.SOCK_STREAM)
    v6 = socket.getaddrinfo("::1", port, type=socket.SOCK_STREAM)
    monkeypatch.setattr(socket, "getaddrinfo", lambda *args, **more: v6 + v4)
    monkeypatch.setattr(socket, "socket", WithoutIPv6)
    with pytest.raises(errors.ConnectionError) as caught:
        jsync.connect(f"nats://both.test:{port}")
    assert str(caught.value) == (
        f"cannot connect to both.test:{port}: ::1: Address family not supported by "
        "protocol; 127.0.0.1: Connection refused"
    )


def test_a_process_without_descriptors_gets_a_typed_error(server: LocalServer) -> None:
    script = """
    import resource, sys
    import jsync
    with jsync.connect(sys.argv[1]) as nc:
        pass
    resource.setrlimit(resource.RLIMIT_NOFILE, (6, 6))
    files = []
    try:
        while True:
            files.append(open("/dev/null"))
    except OSError:
        pass
    while files:
        try:
            jsync.connect(sys.argv[1], connect_timeout=2).close()
        except jsync.errors.ConnectionError as error:
            assert "Too many open files" in str(error), error
        else:
            break
        files.pop().close()
    for file in files:
        file.close()
    """
    run_child(script, server.url)


@pytest.mark.parametrize("form", ["list", "commas"])
def test_of_several_servers_one_that_answers_is_taken(
    server: LocalServer, form: str
) -> None:
    urls = [refusing_url(), server.url, refusing_url()]
    with jsync.connect(urls if form == "list" else ",".join(urls)) as nc:
        assert nc.connected_url == server.url
        assert set(nc.servers) == set(urls)


def test_servers_are_tried_in_order_without_randomize(own_server: StartServer) -> None:
    first, second = own_server(), own_server()
    with jsync.connect([first.url, second.url], randomize=False) as nc:
        assert nc.connected_url == first.url
    first.kill()
    with jsync.connect([first.url, second.url], randomize=False) as nc:
        assert nc.connected_url == second.url


def test_the_connection_shows_the_info_of_the_server(server: LocalServer) -> None:
    with jsync.connect(server.url) as nc:
        assert nc.server_info.port == server.port
        assert nc.server_info.jetstream
        assert nc.max_payload == nc.server_info.max_payload == 1 << 20
        assert nc.client_ip == "127.0.0.1"
        assert nc.client_id > 0
        assert nc.last_error is None
        assert repr(nc) == f"<Connection connected to {server.url}>"
    assert repr(nc) == "<Connection closed>"
    assert nc.connected_url is None


def test_the_name_is_shown_by_the_server(server: LocalServer, unique: str) -> None:
    with jsync.connect(server.url, name=f"{unique} ä") as nc:
        page = client_page(server, nc)
        assert page["name"] == f"{unique} ä"
        assert page["lang"] == "python-jsync"


def test_no_echo_spares_us_our_own_messages(server: LocalServer, unique: str) -> None:
    with jsync.connect(server.url, no_echo=True) as nc:
        mine = nc.subscribe(unique)
        nc.publish(unique, b"mine")
        nc.flush()
        with jsync.connect(server.url) as other:
            other.publish(unique, b"other")
            assert mine.next().data == b"other"


def test_requests_use_the_inbox_prefix(server: LocalServer, unique: str) -> None:
    with jsync.connect(server.url, inbox_prefix=f"my.{unique}") as nc:
        nc.subscribe(
            unique, callback=lambda msg: msg.respond((msg.reply or "").encode())
        )
        assert nc.request(unique).data.decode().startswith(f"my.{unique}.")


@pytest.mark.tcp_only(reason="the address is that of nats://")
def test_a_refused_connection_raises_with_the_address() -> None:
    url = refusing_url()
    # The attempt can fail before or after `connect` starts to wait. The caller sees the same
    # error.
    for _ in range(50):
        with pytest.raises(errors.ConnectionError, match="refused") as caught:
            jsync.connect(url)
        assert type(caught.value) is errors.ConnectionError
        assert url.removeprefix("nats://") in str(caught.value)


def test_an_unresolvable_name_is_a_connection_error() -> None:
    with pytest.raises(errors.ConnectionError, match=r"cannot resolve 'no\.invalid'"):
        jsync.connect("nats://no.invalid:4222")


@pytest.mark.tcp_only(reason="the server speaks before it is asked")
def test_the_error_lists_why_each_server_failed() -> None:
    nobody = refusing_url()
    with canned_server(b"HTTP/1.1 400 Bad Request\r\n\r\n") as web:
        with pytest.raises(errors.NoServersError) as caught:
            jsync.connect([nobody, web])
    assert set(caught.value.errors) == {nobody, web}
    assert isinstance(caught.value.errors[web], errors.ProtocolError)
    assert "refused" in str(caught.value.errors[nobody])


# Not a NATS server --------------------------------------------------------------------


@pytest.mark.parametrize(
    "banner",
    [
        b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n",
        b"220 smtp.test ESMTP\r\n",
        b"\x00\x01\x02\x03 binary",
        b"INFO {not json}\r\n",
        b"INFO []\r\n",
        b"INFO {}\r\n",
    ],
    ids=["http", "ssh", "smtp", "binary", "broken-info", "list-info", "empty-info"],
)
def test_a_non_nats_peer_is_a_protocol_error(banner: bytes) -> None:
    with canned_server(banner) as url:
        with pytest.raises(errors.ProtocolError):
            jsync.connect(url, connect_timeout=LONG)


def test_a_server_hanging_up_is_a_connection_error() -> None:
    def hang_up() -> None:
        listener.accept()[0].close()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = Thread(hang_up)
        with pytest.raises(errors.ConnectionError, match="before an INFO"):
            jsync.connect(f"nats://127.0.0.1:{listener.getsockname()[1]}")
        thread.result()


def test_a_server_without_headers_is_too_old() -> None:
    with canned_server(b'INFO {"version":"2.1.0","headers":false}\r\n') as url:
        with pytest.raises(errors.ProtocolError, match=r"2\.1\.0"):
            jsync.connect(url)


@pytest.mark.tcp_only(reason="the error names another step")
def test_silence_is_a_timeout() -> None:
    with black_hole() as url:
        with pytest.raises(errors.TimeoutError, match="waiting for INFO"):
            jsync.connect(url, connect_timeout=0.2)


# connect_timeout ----------------------------------------------------------------------


@pytest.mark.parametrize("silent", [1, 90])
def test_connect_timeout_bounds_the_whole_attempt(silent: int) -> None:
    with ExitStack() as holes:
        urls = [holes.enter_context(black_hole()) for _ in range(silent)]
        begin = time.monotonic()
        with pytest.raises((errors.ConnectionError, errors.TimeoutError)):
            jsync.connect(urls, connect_timeout=0.5)
        # A timeout for each server alone would add up to 45 s.
        assert time.monotonic() - begin < SOON


def test_a_silent_server_leaves_time_for_the_next(server: LocalServer) -> None:
    with black_hole() as first, black_hole() as second:
        urls = [first, second, server.url]
        with jsync.connect(urls, randomize=False, connect_timeout=3) as nc:
            assert nc.connected_url == server.url


def test_a_server_silent_after_info_is_a_timeout() -> None:
    info = b'INFO {"version":"2.15.1","headers":true,"max_payload":1048576}\r\n'
    with canned_server(info) as url:
        with pytest.raises(errors.TimeoutError, match="PONG"):
            jsync.connect(url, connect_timeout=1.0)


def test_a_trickling_server_does_not_extend_the_attempt() -> None:
    stop = threading.Event()

    def trickle() -> None:
        guest, _ = listener.accept()
        with guest:
            for byte in b'INFO {"a":"' + b"x" * 10_000:
                if stop.wait(0.05):
                    return
                guest.send(bytes([byte]))

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = Thread(trickle)
        begin = time.monotonic()
        with pytest.raises(errors.TimeoutError):
            jsync.connect(
                f"nats://127.0.0.1:{listener.getsockname()[1]}", connect_timeout=0.3
            )
        assert time.monotonic() - begin < SOON
        stop.set()
        thread.error()


def test_a_hanging_name_resolution_ends_at_connect_timeout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    released = threading.Event()

    def hang(*args: object, **more: object) -> None:
        released.wait(LONG)
        raise OSError("released")

    monkeypatch.setattr(socket, "getaddrinfo", hang)
    try:
        begin = time.monotonic()
        with pytest.raises(errors.TimeoutError):
            jsync.connect("nats://slow.test", connect_timeout=0.2)
        assert time.monotonic() - begin < SOON
    finally:
        released.set()


@pytest.mark.tcp_only(reason="the URLs are nats://")
def test_a_resolver_that_hangs_costs_no_other_server(
    own_server: StartServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = own_server()
    released, asked = threading.Event(), Recorder()
    real = socket.getaddrinfo

    def hang(host: str, *args: Any, **options: Any) -> Any:
        if host != "slow.test":
            return real(host, *args, **options)
        asked(host)
        released.wait(LONG)
        raise OSError("released")

    monkeypatch.setattr(socket, "getaddrinfo", hang)
    try:
        with jsync.connect(
            ["nats://slow.test", server.url],
            connect_timeout=1,
            randomize=False,
            reconnect_wait=0.01,
        ) as nc:
            assert works(nc)
            # The slow one is tried again, and then the good one.
            nc.force_reconnect()
            wait_for(lambda: nc.stats().reconnects == 1)
            assert works(nc)
            assert asked.get() == "slow.test"
            assert not asked.waiting, "no second thread hangs"
    finally:
        released.set()


@pytest.mark.tcp_only(reason="the URLs are nats://")
def test_a_reconnect_uses_the_addresses_that_came_late(
    own_server: StartServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = own_server()
    late, over = threading.Event(), threading.Event()
    lookups: list[threading.Event] = []
    real = socket.getaddrinfo

    def look_up(host: str, *args: Any, **options: Any) -> Any:
        if host == "slow.test":
            if lookups:
                # The second one takes longer than an attempt, and later ones do not end.
                (late if len(lookups) == 1 else over).wait(LONG)
            lookups.append(late)
            host = "127.0.0.1"
        return real(host, *args, **options)

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    try:
        url = f"nats://slow.test:{server.port}"
        with jsync.connect(url, connect_timeout=1, reconnect_wait=0.5) as nc:
            nc.force_reconnect()
            wait_for(lambda: "in time" in str(nc.last_error))
            late.set()
            wait_for(lambda: nc.stats().reconnects == 1)
            assert works(nc)
    finally:
        late.set()
        over.set()


# After the first attempt --------------------------------------------------------------


def test_retry_on_failed_connect_returns_while_still_trying(
    own_server: StartServer, unique: str
) -> None:
    server = own_server()
    server.kill()
    connected = Recorder()
    with jsync.connect(
        server.url,
        retry_on_failed_connect=True,
        connect_timeout=0.3,
        reconnect_wait=0.02,
        on_connect=connected,
    ) as nc:
        assert not nc.is_connected
        sub = nc.subscribe(unique)
        nc.publish(unique, b"kept")
        with pytest.raises(errors.TimeoutError):
            nc.flush(timeout=0.05)
        server.start()
        connected.get()
        assert sub.next().data == b"kept"


def test_a_timeout_while_disconnected_names_the_server(
    own_server: StartServer,
) -> None:
    server = own_server()
    server.kill()
    with jsync.connect(server.url, retry_on_failed_connect=True) as nc:
        address = server.url.removeprefix("nats://")
        with pytest.raises(errors.TimeoutError, match=f"connect to {address}: "):
            nc.jetstream().publish("orders", b"", timeout=0.05)
        nc.close()


def test_retry_on_failed_connect_waits_for_no_timeout(
    own_server: StartServer,
) -> None:
    server = own_server()
    server.kill()
    begin = time.monotonic()
    with jsync.connect(
        server.url, retry_on_failed_connect=True, connect_timeout=60
    ) as nc:
        assert time.monotonic() - begin < SOON
        assert not nc.is_connected
        assert isinstance(nc.last_error, errors.ConnectionError)
        nc.close()


def test_retry_on_failed_connect_waits_for_running_servers(
    server: LocalServer,
) -> None:
    with jsync.connect(server.url, retry_on_failed_connect=True) as nc:
        assert nc.is_connected


def test_without_retry_the_first_failure_is_final(own_server: StartServer) -> None:
    server = own_server()
    server.kill()
    before = set(threading.enumerate())
    with pytest.raises(errors.ConnectionError):
        jsync.connect(server.url, reconnect_wait=0.01)
    wait_for(lambda: not threads_since(before))


# Rejected connections -----------------------------------------------------------------


@needs_gevent
def test_a_process_patched_by_eventlet_is_refused() -> None:
    script = """
        import sys, warnings
        warnings.simplefilter("ignore")  # eventlet advises against its use
        import eventlet
        eventlet.monkey_patch(**{name: True for name in sys.argv[2:]})
        import jsync
        from jsync import errors
        try:
            jsync.connect(sys.argv[1], connect_timeout=0.2)
        except errors.ConfigError as error:
            print(error)
    """
    for patched in ("socket", "thread", "select"):
        output = run_child(script, refusing_url(), patched)
        assert output.startswith("eventlet has patched"), output
