"""Tests of TLS: trust, client certificates, the handshake and faults."""

from __future__ import annotations

import contextlib
import itertools
import shutil
import socket
import ssl
import threading
from typing import TYPE_CHECKING, Any

import pytest

import jsync
from jsync import errors

from ...support.connection_faults import Events, connect, open_files
from ...support.connections import black_hole, canned_server, refusing_url, works
from ...support.proxy import Ending, FaultProxy, Side
from ...support.servers import monitor, wait_for
from ...support.threads import LONG, SOON, Recorder, Thread

if TYPE_CHECKING:
    from pathlib import Path

    from jsync.server import LocalServer

    from ...conftest import StartServer
    from ...support.certificates import Certificates

pytestmark = pytest.mark.server


def is_encrypted(server: LocalServer, nc: jsync.Connection) -> bool:
    page = monitor(server, f"connz?cid={nc.client_id}")
    return "tls_version" in page["connections"][0]


# Trust --------------------------------------------------------------------------------


def test_a_server_with_our_own_authority_is_trusted(
    own_server: StartServer, certificates: Certificates
) -> None:
    server = own_server(config=certificates.server_config(), args=["-m", "-1"])
    with jsync.connect(server.url, tls_ca=certificates.ca.cert) as nc:
        assert works(nc)
        assert is_encrypted(server, nc)
        assert nc.connected_url == server.url


def test_tls_begins_when_the_server_asks_for_it(
    tls_server: LocalServer, certificates: Certificates
) -> None:
    url = f"nats://127.0.0.1:{tls_server.port}"
    context = ssl.create_default_context(cafile=certificates.ca.cert)
    with jsync.connect(url, tls=context) as nc:
        assert works(nc)
    # Only the server asks for TLS here, and the system does not know our CA.
    with pytest.raises(errors.TLSError, match="certificate"):
        jsync.connect(url)


def test_the_systems_authorities_do_not_vouch_for_ours(
    tls_server: LocalServer,
) -> None:
    with pytest.raises(errors.TLSError, match="not accepted"):
        jsync.connect(tls_server.url)


def test_another_authority_does_not_vouch_for_ours(
    tls_server: LocalServer, certificates: Certificates
) -> None:
    with pytest.raises(errors.TLSError, match="not accepted"):
        jsync.connect(tls_server.url, tls_ca=certificates.other_ca.cert)


def test_another_hosts_certificate_is_refused_unless_named(
    own_server: StartServer, certificates: Certificates
) -> None:
    server = own_server(config=certificates.server_config(certificates.wrong_host))
    with pytest.raises(errors.TLSError, match=r"127\.0\.0\.1"):
        jsync.connect(server.url, tls_ca=certificates.ca.cert)
    with jsync.connect(
        server.url, tls_ca=certificates.ca.cert, tls_hostname="elsewhere.test"
    ) as nc:
        assert works(nc)


@pytest.mark.parametrize("first", [False, True])
def test_only_dns_sees_an_absolute_names_dot(
    own_server: StartServer,
    certificates: Certificates,
    monkeypatch: pytest.MonkeyPatch,
    first: bool,
) -> None:
    first_word = "true" if first else "false"
    config = certificates.server_config(handshake_first=first_word)
    server = own_server(config=config)
    asked = []
    real = socket.getaddrinfo

    def resolve(host: str, *args: Any, **options: Any) -> Any:
        asked.append(host)
        return real(host.removesuffix("."), *args, **options)

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    url = server.url.replace("127.0.0.1", "localhost.")
    with jsync.connect(
        url, tls_ca=certificates.ca.cert, tls_handshake_first=first
    ) as nc:
        assert works(nc)
        assert nc.connected_url == url
    with pytest.raises(errors.TLSError, match=r"'elsewhere\.test'"):
        jsync.connect(
            url,
            tls_ca=certificates.ca.cert,
            tls_hostname="elsewhere.test.",
            tls_handshake_first=first,
        )
    assert set(asked) == {"localhost."}


def test_an_expired_certificate_is_refused(
    own_server: StartServer, certificates: Certificates
) -> None:
    server = own_server(config=certificates.server_config(certificates.expired))
    with pytest.raises(errors.TLSError, match="expired"):
        jsync.connect(server.url, tls_ca=certificates.ca.cert)


def test_a_given_context_is_used_unchanged(tls_server: LocalServer) -> None:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with jsync.connect(tls_server.url, tls=context) as nc:
        assert works(nc)


# Our own certificate ------------------------------------------------------------------


def test_a_client_certificate_lets_in(
    mutual_tls_server: LocalServer, certificates: Certificates
) -> None:
    with jsync.connect(
        mutual_tls_server.url,
        tls_ca=certificates.ca.cert,
        tls_cert=certificates.client.cert,
        tls_key=certificates.client.key,
    ) as nc:
        assert works(nc)


def test_a_missing_client_certificate_is_a_tls_error(
    mutual_tls_server: LocalServer, certificates: Certificates
) -> None:
    for _ in range(5):  # the alert comes before our CONNECT, or after it
        with pytest.raises(errors.TLSError):
            jsync.connect(mutual_tls_server.url, tls_ca=certificates.ca.cert)


def test_certificate_files_are_read_again_for_a_reconnect(
    mutual_tls_server: LocalServer, certificates: Certificates, tmp_path: Path
) -> None:
    cert, key = tmp_path / "client.pem", tmp_path / "client.key"
    shutil.copy(certificates.client.cert, cert)
    shutil.copy(certificates.client.key, key)
    reconnected = Recorder()
    with (
        FaultProxy("127.0.0.1", mutual_tls_server.port, scheme="tls") as proxy,
        jsync.connect(
            proxy.url,
            tls_ca=certificates.ca.cert,
            tls_cert=cert,
            tls_key=key,
            reconnect_wait=0.01,
            reconnect_jitter_tls=0.01,
            on_reconnect=reconnected,
        ) as nc,
    ):
        # The server does not know this certificate.
        shutil.copy(certificates.other_ca.cert, cert)
        shutil.copy(certificates.other_ca.key, key)
        proxy.cut()
        wait_for(lambda: isinstance(nc.last_error, errors.TLSError))
        assert not nc.is_connected
        # During a rotation the key and the certificate do not match.
        shutil.copy(certificates.client.key, key)
        wait_for(lambda: isinstance(nc.last_error, errors.ConfigError))
        assert not nc.is_closed
        shutil.copy(certificates.client.cert, cert)
        reconnected.get()
        assert works(nc)


@pytest.mark.parametrize("option", ["tls_ca", "tls_cert"])
def test_a_missing_file_raises_at_once(
    tls_server: LocalServer, tmp_path: Path, option: str
) -> None:
    options: dict[str, Any] = {option: tmp_path / "gone.pem"}
    with pytest.raises(errors.ConfigError, match=rf"{option} .*gone\.pem"):
        jsync.connect(tls_server.url, **options)


def test_a_file_without_certificate_raises_a_clear_error(tmp_path: Path) -> None:
    there = tmp_path / "notes.txt"
    there.write_text("no certificate\n")
    for option, words in (
        ("tls_ca", "no certificate or crl found"),
        ("tls_cert", "no certificate and key in PEM"),
    ):
        options: dict[str, Any] = {option: there}
        with pytest.raises(errors.ConfigError) as told:
            jsync.connect("nats://127.0.0.1:1", **options)
        assert str(told.value) == f"{option} {there}: {words}"


@pytest.mark.parametrize("name", [".test", "a" * 70, "a\0b", "a..b"], ids=repr)
def test_an_impossible_hostname_raises_before_connecting(name: str) -> None:
    with pytest.raises(errors.ConfigError, match="no TLS to"):
        jsync.connect(refusing_url(), tls_hostname=name)


def test_a_context_for_servers_raises_before_connecting() -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with pytest.raises(errors.ConfigError, match="PROTOCOL_TLS_SERVER"):
        jsync.connect(refusing_url(), tls=context)


# The start of TLS ---------------------------------------------------------------------


def test_handshake_first_suits_a_server_beginning_with_tls(
    own_server: StartServer, certificates: Certificates
) -> None:
    server = own_server(config=certificates.server_config(handshake_first="true"))
    with jsync.connect(
        server.url, tls_ca=certificates.ca.cert, tls_handshake_first=True
    ) as nc:
        assert works(nc)
    with pytest.raises(errors.TimeoutError, match="tls_handshake_first"):
        jsync.connect(server.url, tls_ca=certificates.ca.cert, connect_timeout=0.3)


def test_handshake_first_with_a_plain_server_raises(
    server: LocalServer,
) -> None:
    with pytest.raises(errors.TLSError):
        jsync.connect(server.url, tls_handshake_first=True)


@pytest.mark.parametrize("how", ["url", "option"])
def test_wanted_tls_is_never_given_up_for_plaintext(
    server: LocalServer, certificates: Certificates, how: str
) -> None:
    options: dict[str, Any] = {"tls": True} if how == "option" else {}
    scheme = "tls" if how == "url" else "nats"
    with pytest.raises(errors.TLSError, match="the server does not offer it"):
        jsync.connect(f"{scheme}://127.0.0.1:{server.port}", **options)


def test_wanted_tls_sends_no_secrets_in_the_clear() -> None:
    heard = bytearray()
    info = b'INFO {"version":"2.15.1","headers":true,"auth_required":true}\r\n'

    def listen() -> None:
        guest, _ = listener.accept()
        with guest:
            guest.sendall(info)
            guest.settimeout(LONG)
            while data := guest.recv(4096):
                heard.extend(data)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = Thread(listen)
        with pytest.raises(errors.TLSError):
            jsync.connect(f"tls://bob:s3cret@127.0.0.1:{listener.getsockname()[1]}")
        thread.result()
    assert b"s3cret" not in heard
    assert b"CONNECT" not in heard


def test_plaintext_injected_before_the_tls_handshake_is_refused() -> None:
    info = b'INFO {"version":"2.15.1","headers":true,"tls_required":true}\r\n'
    with canned_server(info + b"INFO {}\r\n") as url:
        with pytest.raises(errors.ProtocolError, match="injected"):
            jsync.connect(url)


def test_an_endless_tls_handshake_is_a_timeout() -> None:
    info = b'INFO {"version":"2.15.1","headers":true,"tls_required":true}\r\n'
    with canned_server(info) as url:
        with pytest.raises(errors.TimeoutError, match="waiting for the TLS handshake"):
            jsync.connect(url, connect_timeout=1.5)
    with black_hole() as url:
        with pytest.raises(errors.TimeoutError, match="waiting for the TLS handshake"):
            jsync.connect(url, tls_handshake_first=True, connect_timeout=1.5)
        url = f"wss://{url.partition('://')[2]}"
        with pytest.raises(errors.TimeoutError, match="waiting for the TLS handshake"):
            jsync.connect(url, connect_timeout=1.5)


@pytest.mark.parametrize("first", [False, True], ids=["after INFO", "first"])
@pytest.mark.parametrize("to", ["client", "server"])
def test_handshakes_cut_anywhere_leave_nothing_behind(
    own_server: StartServer, certificates: Certificates, first: bool, to: Side
) -> None:
    config = certificates.server_config(handshake_first="true" if first else "false")
    server = own_server(jetstream=False, config=config)
    options: dict[str, Any] = {
        "tls_ca": certificates.ca.cert,
        "tls_handshake_first": first,
        "connect_timeout": LONG,
    }
    with FaultProxy("127.0.0.1", server.port, scheme="tls") as proxy:
        with jsync.connect(proxy.url, **options):
            total = proxy.bytes_to[to]
        wait_for(lambda: not proxy.connected)
        files = open_files()
        endings: tuple[Ending, ...] = ("reset", "fin")
        for size, ending in itertools.product(range(1, total, 37), endings):
            proxy.cut_after(size, to, ending)
            with contextlib.suppress(errors.ConnectionError):
                jsync.connect(proxy.url, **options).close()
        wait_for(lambda: not proxy.connected)
        assert open_files() <= files


def test_servers_with_wrong_certificates_cost_no_good_one(
    own_server: StartServer, certificates: Certificates
) -> None:
    good, *bad = [
        own_server(jetstream=False, config=certificates.server_config(shown))
        for shown in (None, certificates.wrong_host, certificates.expired)
    ]
    events = Events()
    urls = [server.url for server in (good, *bad)]
    with connect(
        urls,
        events,
        randomize=False,
        tls_ca=certificates.ca.cert,
        reconnect_jitter_tls=0.01,
    ) as nc:
        good.kill()
        pool = nc._session.io.pool
        wait_for(lambda: all(each.attempts > 1 for each in pool.candidates()))
        failures = pool.errors()
        assert "not valid for '127.0.0.1'" in str(failures[bad[0].url])
        assert "has expired" in str(failures[bad[1].url])
        good.start()
        events.wait("reconnect")
        assert nc.connected_url == good.url
        assert works(nc)


# The encrypted line -------------------------------------------------------------------


@pytest.fixture
def nc(tls_server: LocalServer, certificates: Certificates) -> Any:
    with jsync.connect(tls_server.url, tls_ca=certificates.ca.cert) as nc:
        yield nc


def test_large_payloads_pass_both_ways(nc: jsync.Connection, unique: str) -> None:
    largest = bytes(range(256)) * (nc.max_payload // 256)
    sub = nc.subscribe(unique)
    for size in (0, 1, 16_383, 16_384, 16_385, 100_000, nc.max_payload):
        nc.publish(unique, largest[:size])
        assert sub.next().data == largest[:size]


def test_bursts_of_large_payloads_arrive_whole_in_order(
    nc: jsync.Connection, unique: str
) -> None:
    sub = nc.subscribe(unique)
    payloads = [bytes([i]) * 300_000 for i in range(60)]
    for payload in payloads:
        nc.publish(unique, payload)
    assert [sub.next().data == payload for payload in payloads] == [True] * 60


def test_messages_of_many_threads_stay_whole_and_ordered(
    nc: jsync.Connection, unique: str
) -> None:
    threads, each = 8, 3000
    sub = nc.subscribe(f"{unique}.*")
    barrier = threading.Barrier(threads)

    def publish(number: int) -> None:
        barrier.wait()
        for i in range(each):
            nc.publish(f"{unique}.{number}", b"%d " % i + b"x" * (i % 700))

    publishers = [Thread(publish, number) for number in range(threads)]
    seen = dict.fromkeys(range(threads), 0)
    for _ in range(threads * each):
        msg = sub.next()
        number = int(msg.subject.rpartition(".")[2])
        count, _, padding = msg.data.partition(b" ")
        assert int(count) == seen[number]
        assert padding == b"x" * (int(count) % 700)
        seen[number] += 1
    for publisher in publishers:
        publisher.result()
    assert nc.is_connected
    assert nc.stats().reconnects == 0


def test_requests_of_many_threads_get_their_own_replies(
    nc: jsync.Connection, unique: str
) -> None:
    nc.subscribe(unique, callback=lambda msg: msg.respond(msg.data))

    def ask(number: int) -> bool:
        questions = [b"%d %d" % (number, i) for i in range(50)]
        return all(
            nc.request(unique, question).data == question for question in questions
        )

    asking = [Thread(ask, number) for number in range(8)]
    assert all(thread.result() for thread in asking)


def test_a_lone_message_leaves_at_once(nc: jsync.Connection, unique: str) -> None:
    with nc.subscribe(unique) as sub:
        for _ in range(20):
            nc.publish(unique, b"alone")
            assert sub.next(timeout=LONG).data == b"alone"
    assert nc.rtt() < LONG


def test_drain_sends_all_that_was_published(
    tls_server: LocalServer, certificates: Certificates, unique: str
) -> None:
    with jsync.connect(tls_server.url, tls_ca=certificates.ca.cert) as reader:
        sub = reader.subscribe(unique)
        reader.flush()
        with jsync.connect(tls_server.url, tls_ca=certificates.ca.cert) as nc:
            for i in range(20_000):
                nc.publish(unique, b"%d" % i)
        assert [int(sub.next().data) for _ in range(20_000)] == list(range(20_000))


def test_a_reconnect_encrypts_again(
    tls_server: LocalServer, certificates: Certificates, unique: str
) -> None:
    reconnected = Recorder()
    with (
        FaultProxy("127.0.0.1", tls_server.port, scheme="tls") as proxy,
        jsync.connect(
            proxy.url,
            tls_ca=certificates.ca.cert,
            reconnect_wait=0.01,
            reconnect_jitter_tls=0.01,
            on_reconnect=reconnected,
        ) as nc,
    ):
        sub = nc.subscribe(unique)
        proxy.cut()
        reconnected.get()
        nc.publish(unique, b"again")
        assert sub.next().data == b"again"


def test_nothing_but_info_passes_in_the_clear(
    tls_server: LocalServer, certificates: Certificates, unique: str
) -> None:
    passed = bytearray()

    def listen(data: bytes, to: str) -> bytes:
        passed.extend(data)
        return data

    with FaultProxy("127.0.0.1", tls_server.port, scheme="tls") as proxy:
        proxy.rewrite(listen)
        with jsync.connect(proxy.url, tls_ca=certificates.ca.cert, token="t0ken") as nc:
            sub = nc.subscribe(unique)
            nc.publish(unique, b"a secret", headers={"Name": "another"})
            sub.next()
    assert b"INFO" in passed
    for secret in ("t0ken", unique, "a secret", "another", "CONNECT", "PING"):
        assert secret.encode() not in passed


# Through a faulty proxy ---------------------------------------------------------------


def acked(js: jsync.JetStream, proxy: FaultProxy, to: Side) -> int:
    """Return how many of forty publishes were acknowledged. Each is cut at another byte."""
    count = 0
    for number in range(40):
        proxy.cut_after(37 * number + 1, to)
        with contextlib.suppress(errors.Error):
            js.publish("kept", b"%04d" % number + bytes(number * 30))
            count += 1
    proxy.cut_after(1 << 40, to)
    return count


@pytest.mark.parametrize("to", ["client", "server"])
@pytest.mark.parametrize("by", ["main thread", "thread"])
def test_cuts_at_any_byte_lose_no_acknowledged_message(
    by: str, to: Side, own_server: StartServer, certificates: Certificates
) -> None:
    server = own_server(config=certificates.server_config())
    with FaultProxy("127.0.0.1", server.port, scheme="tls") as proxy:
        events = Events()
        with connect(
            proxy.url,
            events,
            tls_ca=certificates.ca.cert,
            reconnect_jitter_tls=0.01,
        ) as nc:
            js = nc.jetstream(timeout=SOON)
            js.create_stream(name="KEPT", subjects=["kept"])
            if by == "thread":
                # A thread that waits for its replies encrypts and decrypts by itself.
                count = Thread(acked, js, proxy, to).result()
            else:
                count = acked(js, proxy, to)
            wait_for(lambda: nc.is_connected, LONG)
            assert events.of("disconnect")
            assert works(nc)
            assert js.stream("KEPT").info().state.messages >= count


@pytest.mark.parametrize("by", ["main thread", "thread"])
def test_a_changed_byte_makes_a_reconnect_that_works(
    by: str, tls_server: LocalServer, certificates: Certificates
) -> None:
    def spoil(data: bytes, to: Side) -> bytes:
        return data[:-1] + bytes([data[-1] ^ 1]) if to == "client" else data

    def ask(nc: jsync.Connection) -> bool:
        assert works(nc)
        proxy.rewrite(spoil)
        with pytest.raises(errors.ConnectionLostError):
            nc.request("nobody", timeout=LONG)
        proxy.rewrite(None)
        return True

    with FaultProxy("127.0.0.1", tls_server.port, scheme="tls") as proxy:
        events = Events()
        with connect(
            proxy.url, events, tls_ca=certificates.ca.cert, reconnect_jitter_tls=0.01
        ) as nc:
            assert Thread(ask, nc).result() if by == "thread" else ask(nc)
            lost = events.wait("disconnect")
            assert isinstance(lost.__cause__, errors.TLSError)
            events.wait("reconnect")
            assert works(nc)
