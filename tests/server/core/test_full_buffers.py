"""Tests of full buffers in both directions, with and without TLS."""

from __future__ import annotations

import contextlib
import functools
import re
import select
import signal
import subprocess
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

import jsync
from jsync import errors

from ...support.connection_faults import (
    Events,
    FakeServer,
    Peer,
    _no_crash,  # noqa: F401 (a fixture of every test here)
    connect,
    is_stuck,
    unsent,
)
from ...support.processes import run_child
from ...support.proxy import FaultProxy
from ...support.servers import wait_for
from ...support.threads import SOON, Thread

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jsync.connection import Connection

    from ...conftest import StartServer
    from ...support.certificates import Certificates

pytestmark = pytest.mark.server

# A server would drop a client that reads nothing for ten seconds as a slow consumer.
PATIENT = 'write_deadline: "60s"\nmax_pending: 256MB\n'


def fill(connection: Connection, size: int, subject: str = "void") -> None:
    """Publish until about `size` bytes wait for a connection that accepts no more."""
    while not is_stuck(connection):
        while unsent(connection) < size:
            connection.publish(subject, bytes(1000))


@pytest.fixture
def patient(own_server: StartServer) -> Iterator[FaultProxy]:
    """A proxy with small buffers, in front of a server with a long write deadline."""
    server = own_server(jetstream=False, config=PATIENT)
    with FaultProxy("127.0.0.1", server.port, receive_buffer=8192) as proxy:
        yield proxy


@pytest.fixture
def patient_tls(
    own_server: StartServer, certificates: Certificates
) -> Iterator[FaultProxy]:
    server = own_server(
        jetstream=False, config=PATIENT + certificates.server_config(timeout='"20s"')
    )
    with FaultProxy(
        "127.0.0.1", server.port, receive_buffer=8192, scheme="tls"
    ) as proxy:
        yield proxy


WSS = pytest.mark.tcp_only(reason="test_websocket has wss:// instead of tls://")


@pytest.fixture(params=["plain", pytest.param("tls", marks=WSS)])
def line(
    request: pytest.FixtureRequest, certificates: Certificates
) -> tuple[FaultProxy, dict[str, Any]]:
    """The proxy of a patient server, and the arguments of `connect` for it."""
    if request.param == "plain":
        return request.getfixturevalue("patient"), {}
    return request.getfixturevalue("patient_tls"), {"tls_ca": certificates.ca.cert}


Line = tuple[FaultProxy, dict[str, Any]]


def test_two_full_buffers_do_not_lock_each_other(line: Line) -> None:
    """Both directions are busy and both sides stop reading. Then both read again."""
    proxy, options = line
    count, size = 30_000, 1000
    events = Events()
    with (
        connect(
            f"{proxy.url.partition(':')[0]}://127.0.0.1:{proxy._target[1]}",
            Events(),
            **options,
        ) as direct,
        connect(
            proxy.url,
            events,
            write_buffer_size=1 << 20,
            write_timeout=60.0,
            **options,
        ) as nc,
    ):
        down = nc.subscribe("down", max_pending_bytes=1 << 30)
        up = direct.subscribe("up", max_pending_bytes=1 << 30)
        nc.flush()
        direct.flush()
        proxy.deaf()

        def publish(connection: Connection, subject: str) -> None:
            for number in range(count):
                connection.publish(subject, b"%0*d" % (size, number))

        flows = [
            Thread(publish, nc, "up"),
            Thread(publish, direct, "down"),
        ]
        wait_for(functools.partial(is_stuck, nc))
        flows[0].wait_until_blocked()
        assert not flows[0].ended
        proxy.hear()
        for name, subscription in (("up", up), ("down", down)):
            for number in range(count):
                data = subscription.next(30).data
                assert int(data) == number, name
        for flow in flows:
            flow.result()
        nc.flush()
        assert "disconnect" not in events.names
        assert down.dropped == up.dropped == 0


def test_messages_are_read_while_nothing_can_be_written(line: Line) -> None:
    """The I/O thread never blocks in a write, and never waits for threads that do."""
    proxy, options = line
    events = Events()
    server = f"{proxy.url.partition(':')[0]}://127.0.0.1:{proxy._target[1]}"
    with (
        connect(server, Events(), **options) as direct,
        connect(
            proxy.url,
            events,
            write_buffer_size=1 << 20,
            write_timeout=60.0,
            **options,
        ) as nc,
    ):
        down = nc.subscribe("down")
        nc.flush()
        proxy.deaf("client")
        writers = [Thread(publish_many, nc, 10_000) for _ in range(3)]
        wait_for(functools.partial(is_stuck, nc))
        for writer in writers:
            writer.wait_until_blocked()
        for number in range(5000):
            direct.publish("down", b"%d" % number)
        assert [int(down.next(10).data) for _ in range(5000)] == [*range(5000)]
        assert not any(writer.ended for writer in writers)
        proxy.hear("client")
        wait_for(functools.partial(is_heard, nc, proxy))
        proxy.deaf("client")
        nc.close()
        for writer in writers:
            assert isinstance(writer.error(), errors.ConnectionClosedError | None)


def is_heard(nc: Connection, proxy: FaultProxy) -> bool:
    return proxy.bytes_to["server"] > 3 << 20


def test_a_publisher_waits_until_the_buffer_has_room(line: Line) -> None:
    proxy, options = line
    events = Events()
    with connect(
        proxy.url, events, write_buffer_size=500_000, write_timeout=60.0, **options
    ) as nc:
        nc.flush()
        proxy.deaf("client")
        writers = [Thread(publish_many, nc, 5000) for _ in range(4)]
        wait_for(functools.partial(is_stuck, nc))
        for writer in writers:
            writer.wait_until_blocked()
        # The buffer is full, and never exceeds its limit. Writers wait until it is half full.
        assert 250_000 < unsent(nc) <= 500_000
        proxy.hear("client")
        for writer in writers:
            writer.result()
        nc.flush()
        assert nc.stats().out_messages == 20_000
        assert "disconnect" not in events.names


def publish_many(nc: Connection, count: int, size: int = 1000) -> None:
    for _ in range(count):
        nc.publish("v", bytes(size))


def test_a_publisher_waiting_too_long_gets_write_timeout(line: Line) -> None:
    proxy, options = line
    with connect(
        proxy.url, Events(), write_buffer_size=500_000, write_timeout=0.3, **options
    ) as nc:
        nc.flush()
        proxy.deaf("client")
        begin = time.monotonic()
        with pytest.raises(errors.WriteTimeoutError):
            fill(nc, 1 << 20)
        waited = time.monotonic() - begin
        assert waited >= 0.3
        before = nc.stats().out_messages
        with pytest.raises(errors.WriteTimeoutError):
            nc.publish("void", bytes(1000))
        with pytest.raises(errors.WriteTimeoutError):
            nc.request("void", bytes(1000), timeout=60)
        assert nc.stats().out_messages == before
        # The publish failed, but the connection is not lost.
        proxy.hear("client")
        nc.flush()
        nc.publish("void", b"again")
        nc.flush()
        assert nc.stats().reconnects == 0


def test_a_reconnect_or_close_wakes_a_blocked_publisher(line: Line) -> None:
    proxy, options = line
    events = Events()
    nc = connect(
        proxy.url, events, write_buffer_size=500_000, write_timeout=60.0, **options
    )
    nc.flush()
    proxy.deaf("client")
    writer = Thread(publish_many, nc, 10_000)
    wait_for(functools.partial(is_stuck, nc))
    writer.wait_until_blocked()
    proxy.cut()
    proxy.hear("client")
    events.wait("reconnect")
    writer.result()
    nc.flush()
    proxy.deaf("client")
    writer = Thread(publish_many, nc, 10_000)
    wait_for(functools.partial(is_stuck, nc))
    writer.wait_until_blocked()
    begin = time.monotonic()
    nc.close()
    assert time.monotonic() - begin < SOON
    assert isinstance(writer.error(), errors.ConnectionClosedError)


def test_the_loss_itself_wakes_a_blocked_publisher(line: Line) -> None:
    """It does not need to wait for the reconnect to learn that there is no room."""
    proxy, options = line
    events = Events()
    nc = connect(
        proxy.url,
        events,
        write_buffer_size=500_000,
        write_timeout=60.0,
        reconnect_buffer_size=1000,
        **options,
    )
    try:
        nc.flush()
        proxy.deaf("client")
        writer = Thread(publish_many, nc, 10_000)
        wait_for(functools.partial(is_stuck, nc))
        writer.wait_until_blocked()
        proxy.refuse()
        proxy.cut()
        assert isinstance(writer.error(), errors.ReconnectBufferFullError)
        assert not nc.is_connected
    finally:
        nc.close()


def test_ctrl_c_ends_a_blocked_publish(line: Line) -> None:
    proxy, options = line
    with connect(
        proxy.url, Events(), write_buffer_size=500_000, write_timeout=20.0, **options
    ) as nc:
        nc.flush()
        proxy.deaf("client")
        main = threading.main_thread().ident
        assert main is not None

        def interrupt() -> None:
            wait_for(lambda: unsent(nc) > 250_000)
            wait_for(functools.partial(is_stuck, nc))
            signal.pthread_kill(main, signal.SIGINT)

        interrupter = Thread(interrupt)
        with pytest.raises(KeyboardInterrupt):
            publish_many(nc, 10_000)
        interrupter.result()
        proxy.hear("client")
        nc.flush(30)
        nc.publish("void")
        nc.flush()


def test_a_message_over_half_the_buffer_waits_normally() -> None:
    """Runs in another process, because this once span with the GIL held forever."""
    run_child(
        """
        import jsync
        from jsync.server import LocalServer
        from tests.support.connection_faults import is_stuck, unsent
        from tests.support.proxy import FaultProxy

        with (
            LocalServer(jetstream=False) as server,
            FaultProxy(
                "127.0.0.1", server.port, scheme="nats", receive_buffer=4096
            ) as proxy,
            jsync.connect(
                proxy.url, write_buffer_size=1 << 20, write_timeout=0.5
            ) as nc,
        ):
            proxy.deaf("client")
            while not is_stuck(nc):
                while unsent(nc) < 400_000:
                    nc.publish("void", bytes(1000))
            try:
                nc.publish("void", bytes(900_000))
            except jsync.errors.WriteTimeoutError:
                proxy.hear("client")
            else:
                raise AssertionError("it fitted")
            nc.publish("void", bytes(900_000))  # and with room it goes
            nc.flush()
        """
    )


def test_a_message_larger_than_the_buffer_goes_alone(patient: FaultProxy) -> None:
    with connect(patient.url, Events(), write_buffer_size=10_000) as nc:
        subscription = nc.subscribe("data")
        for size in (5000, 500_000, 9000, 1_000_000):
            nc.publish("data", b"x" * size)
        for size in (5000, 500_000, 9000, 1_000_000):
            assert len(subscription.next(10).data) == size


def test_pong_passes_while_the_buffer_is_full() -> None:
    """The PONG does not wait behind any number of blocked publishers."""
    ponged, may_ping, may_read = (threading.Event() for _ in range(3))
    read: list[int] = []

    def script(peer: Peer) -> None:
        peer.handshake()
        assert may_ping.wait(60)
        # The PONGs can need more room than the buffer has left.
        peer.send(b"PING\r\n" * 3)
        assert may_read.wait(60)
        size = 0
        for _ in range(3):
            while (frame := peer.frame()) != b"PONG\r\n":
                size += len(frame)
        read.append(size)
        ponged.set()
        peer.serve()

    with (
        FakeServer(script, receive_buffer=8192) as fake,
        connect(
            fake.url, Events(), write_buffer_size=500_000, write_timeout=60.0
        ) as nc,
    ):
        stop = threading.Event()

        def publish(size: int) -> int:
            count = 0
            while not stop.is_set():
                nc.publish("v", bytes(size))
                count += 1
            return count

        writers = [Thread(publish, size) for size in (0, 1000, 1000, 1000)]
        wait_for(functools.partial(is_stuck, nc))
        for writer in writers:
            writer.wait_until_blocked()
        full = nc.stats().out_bytes + 20 * nc.stats().out_messages
        waiting = unsent(nc)
        may_ping.set()
        # jsync answers before the buffer has room.
        wait_for(lambda: unsent(nc) == waiting + 3 * len(b"PONG\r\n"))
        may_read.set()
        assert ponged.wait(60)
        stop.set()
        counts = [writer.result() for writer in writers]
        assert sum(counts) == nc.stats().out_messages
        assert read[0] <= full + 100_000, "behind those that were written already"


def test_a_full_buffer_blocks_neither_subscribe_nor_unsubscribe(
    patient: FaultProxy,
) -> None:
    with connect(
        patient.url, Events(), write_buffer_size=500_000, write_timeout=60.0
    ) as nc:
        nc.flush()
        patient.deaf("client")
        # The second writer fills the buffer to its last bytes.
        writers = [Thread(publish_many, nc, 5000), Thread(publish_many, nc, 50_000, 0)]
        wait_for(functools.partial(is_stuck, nc))
        for writer in writers:
            writer.wait_until_blocked()
        begin = time.monotonic()
        subscription = nc.subscribe("late")
        nc.subscribe("gone").unsubscribe()
        assert time.monotonic() - begin < SOON
        patient.hear("client")
        for writer in writers:
            writer.result()
        nc.publish("late", b"1")
        assert subscription.next(10).data == b"1"


# TLS records in order -------------------------------------------------------------------


@WSS
def test_records_of_several_writers_stay_in_order(
    patient_tls: FaultProxy, certificates: Certificates
) -> None:
    proxy, ca = patient_tls, certificates.ca.cert
    writers, count = 4, 3000
    events = Events()
    with (
        connect(f"tls://127.0.0.1:{proxy._target[1]}", Events(), tls_ca=ca) as direct,
        connect(
            proxy.url,
            events,
            tls_ca=ca,
            write_buffer_size=300_000,
            write_timeout=60.0,
        ) as nc,
    ):
        received = direct.subscribe("up.*", max_pending_bytes=1 << 30)
        nc.subscribe("service", callback=lambda msg: msg.respond(msg.data))
        direct.flush()

        def write(writer: int) -> None:
            for number in range(count):
                data = b"%d %d " % (writer, number) + b"x" * (number * 37 % 3000)
                nc.publish(f"up.{writer}", data)
                if number % 500 == 0:
                    assert nc.request("service", data, timeout=30).data == data

        threads = [Thread(write, writer) for writer in range(writers)]
        for _ in range(10):
            proxy.deaf("client")
            time.sleep(0.02)  # lets buffers fill, but the test does not depend on it
            proxy.hear("client")
            proxy.deaf("server")
            time.sleep(0.02)
            proxy.hear("server")
        seen = [0] * writers
        for _ in range(writers * count):
            writer, number, padding = received.next(30).data.split(b" ")
            assert int(number) == seen[int(writer)]
            assert len(padding) == int(number) * 37 % 3000
            seen[int(writer)] += 1
        for thread in threads:
            thread.result()
        assert seen == [count] * writers
        assert "disconnect" not in events.names


class OpenSSLServer:
    """`openssl s_server`, an available server that can be told to update its keys.

    It prints the bytes from the client and sends the given bytes, which must not begin with one of
    its command letters.
    """

    def __init__(self, certificates: Certificates, *options: str) -> None:
        server = certificates.server
        self._process = subprocess.Popen(
            [
                *("openssl", "s_server", "-accept", "127.0.0.1:0", "-tls1_3"),
                *("-cert", str(server.cert), "-key", str(server.key), *options),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        assert self._process.stdout is not None
        self._output = self._process.stdout
        self.printed = b""
        self.wait_for(b"ACCEPT 127.0.0.1:")
        while b"\n" not in self.printed.partition(b"ACCEPT 127.0.0.1:")[2]:
            self.read()
        port = self.printed.partition(b"ACCEPT 127.0.0.1:")[2].split()[0]
        self.url = f"tls://127.0.0.1:{int(port)}"

    def read(self, timeout: float = 10) -> None:
        ready, _, _ = select.select([self._output], [], [], timeout)
        assert ready, self.printed[-1000:]
        data = self._output.read1(1 << 16)  # type: ignore[attr-defined]
        assert data, self.printed[-1000:]
        self.printed += data

    def wait_for(self, what: bytes) -> None:
        while what not in self.printed:
            self.read()

    def type(self, data: bytes) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(data)
        self._process.stdin.flush()

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


def shake_hands(server: OpenSSLServer, certificates: Certificates) -> Connection:
    made = Thread(
        functools.partial(
            jsync.connect,
            server.url,
            tls_ca=certificates.ca.cert,
            tls_handshake_first=True,
            allow_reconnect=False,
            connect_timeout=20,
        )
    )
    server.wait_for(b"CIPHER is")
    server.type(b'INFO {"headers":true,"max_payload":1048576}\r\n')
    server.wait_for(b"PING\r\n")
    server.type(b"+OK\r\nPONG\r\n")
    return made.result()


def test_the_next_write_answers_a_key_update(
    certificates: Certificates,
) -> None:
    server = OpenSSLServer(certificates, "-msg")
    try:
        with contextlib.closing(shake_hands(server, certificates)):
            server.type(b"K\n")
            server.wait_for(b", KeyUpdate")  # the key update of the client
            server.printed = server.printed.rpartition(b", KeyUpdate")[2]
            server.type(b"+OK\r\nPING\r\n")
            server.wait_for(b"<<< TLS 1.3, Handshake [length 0005], KeyUpdate")
            server.wait_for(b"PONG\r\n")
    finally:
        server.close()


def test_key_updates_under_load_keep_records_in_order(
    certificates: Certificates,
) -> None:
    server = OpenSSLServer(certificates)
    try:
        nc = shake_hands(server, certificates)
        with nc:
            stop = threading.Event()

            counts = [0] * 3

            def publish(writer: int) -> None:
                while not stop.is_set():
                    number = counts[writer]
                    nc.publish(f"up.{writer}.{number}", b"x" * (number % 100))
                    counts[writer] += 1
                    time.sleep(0.0001)

            writers = [Thread(publish, writer) for writer in range(3)]
            for _ in range(20):
                # asks the client to update its keys, and updates its own
                server.type(b"K\n")
                until = time.monotonic() + 0.02
                while time.monotonic() < until:
                    server.read()
            while min(counts) <= 50:
                server.read()
            stop.set()
            for thread in writers:
                thread.result()
            nc.publish("end")
            server.wait_for(b"PUB end 0\r\n")
            assert nc.is_connected, nc.last_error
            nc.close()
        # A message of s_server itself can come in the middle of a frame that took two records.
        printed = re.sub(rb"SSL_do_handshake -> 1\n|Read BLOCK\n", b"", server.printed)
        frames = printed.partition(b"PING\r\n")[2]
        for writer, count in enumerate(counts):
            positions = [
                frames.find(b"PUB up.%d.%d " % (writer, number))
                for number in range(count)
            ]
            assert -1 not in positions
            assert positions == sorted(positions)
    finally:
        server.close()
