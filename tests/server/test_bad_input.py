"""Tests that bad arguments are rejected before anything is sent."""

from __future__ import annotations

import math
import threading
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import numpy
import pytest

import jsync
from jsync import errors

from ..support.servers import monitor, threads_since
from ..support.threads import SOON, Thread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from jsync.server import LocalServer

    from ..support.proxy import FaultProxy

pytestmark = pytest.mark.server


class Watched:
    """A connection, and another one that sees all its messages."""

    def __init__(
        self, server: LocalServer, nc: jsync.Connection, everything: jsync.Subscription
    ) -> None:
        self.server = server
        self.nc = nc
        self._everything = everything

    def assert_nothing_was_sent(self) -> None:
        """Check that no message was sent, and that the connection still works."""
        assert self.nc.stats().out_messages == 0
        self.nc.flush()
        page = monitor(self.server, f"connz?cid={self.nc.client_id}")
        connection = page["connections"][0]
        assert (connection["in_msgs"], connection["in_bytes"]) == (0, 0)
        self.nc.publish("sentinel", b"the first")
        assert self._everything.next().subject == "sentinel"
        assert self.nc.is_connected
        assert self.nc.stats().reconnects == 0
        assert self.nc.last_error is None

    def assert_no_subscription(self) -> None:
        self.nc.flush()
        page = monitor(self.server, f"connz?cid={self.nc.client_id}&subs=1")
        subjects = page["connections"][0].get("subscriptions_list", [])
        assert [s for s in subjects if not s.startswith("_INBOX.")] == []


@pytest.fixture(scope="module")
def small_server() -> Iterator[LocalServer]:
    """A server for this module alone, so that its tests see no other messages."""
    from jsync.server import LocalServer  # noqa: PLC0415

    with LocalServer(
        jetstream=False, config="max_payload: 65536", args=["-m", "-1"]
    ) as server:
        yield server


@pytest.fixture
def watched(small_server: LocalServer) -> Iterator[Watched]:
    with (
        jsync.connect(small_server.url) as reader,
        jsync.connect(small_server.url) as nc,
    ):
        everything = reader.subscribe(">")
        reader.flush()
        yield Watched(small_server, nc, everything)


BAD_SUBJECTS = {
    "empty": "",
    "space": "a b",
    "leading space": " a",
    "trailing space": "a ",
    "tab": "a\tb",
    "CR": "a\rb",
    "LF": "a\nb",
    "CRLF with a command": "a 0\r\n\r\nPUB b 0\r\n\r\n",
    "NUL": "a\0b",
    "empty token": "a..b",
    "leading dot": ".a",
    "trailing dot": "a.",
    "dot alone": ".",
    "lone surrogate": "a\ud800",
    "too long for a server": "a" * 4001,
}
WILDCARDS = {"star": "a.*", "greater": "a.>", "star alone": "*", "greater alone": ">"}
MISPLACED_WILDCARDS = {"star inside": "a*.b", "greater inside": "a.>.b"}


def by_name(cases: dict[str, str]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("subject", cases.values(), ids=cases.keys())


@by_name(BAD_SUBJECTS | WILDCARDS | MISPLACED_WILDCARDS)
def test_an_invalid_publish_subject_is_refused_before_sending(
    watched: Watched, subject: str
) -> None:
    nc = watched.nc
    calls: list[Callable[[], object]] = [
        lambda: nc.publish(subject, b"bad"),
        lambda: nc.publish("good", b"bad", reply=subject),
        lambda: nc.request(subject, b"bad"),
        lambda: nc.request_many(subject, b"bad"),
    ]
    for call in calls:
        with pytest.raises(errors.InvalidSubjectError) as caught:
            call()
        assert isinstance(caught.value, ValueError)
    watched.assert_nothing_was_sent()


@by_name(BAD_SUBJECTS | MISPLACED_WILDCARDS)
def test_an_invalid_subscribe_subject_is_refused_before_sending(
    watched: Watched, subject: str
) -> None:
    for queue in (None, "group"):
        with pytest.raises(errors.InvalidSubjectError):
            watched.nc.subscribe(subject, queue=queue)
    watched.assert_no_subscription()
    watched.assert_nothing_was_sent()


def test_two_subjects_too_long_together_are_never_sent(
    watched: Watched,
) -> None:
    with pytest.raises(errors.InvalidSubjectError, match="more than"):
        watched.nc.publish("a" * 4000, reply="b" * 41)
    with pytest.raises(errors.InvalidSubjectError, match="more than"):
        watched.nc.subscribe("a" * 4000, queue="b" * 41)
    watched.assert_no_subscription()
    watched.assert_nothing_was_sent()


def test_a_server_accepts_subjects_up_to_the_limit(
    small_server: LocalServer,
) -> None:
    longest = "a" * 4000
    with jsync.connect(small_server.url) as nc:
        payload = bytes(60_000)  # the command contains the size of the payload
        headers = {"A": "b"}
        nc.subscribe(
            longest, queue="q" * 40, callback=lambda msg: msg.respond(msg.data)
        )
        assert nc.request(longest, payload, headers=headers).data == payload
        nc.publish(longest, payload, reply="r" * 40, headers=headers)
        nc.flush()
        assert nc.stats().reconnects == 0


@by_name(
    {
        name: BAD_SUBJECTS[name]
        for name in ("empty", "space", "CR", "LF", "NUL", "too long for a server")
    }
)
def test_an_invalid_queue_is_rejected_before_sending(
    watched: Watched, subject: str
) -> None:
    with pytest.raises(errors.InvalidSubjectError):
        watched.nc.subscribe("good", queue=subject)
    watched.assert_no_subscription()
    watched.assert_nothing_was_sent()


@pytest.mark.parametrize(
    "headers",
    [
        {"": "no name"},
        {"A b": "space"},
        {"A:b": "colon"},
        {"A\r\nB": "line break"},
        {"A": "b\r\nC: d"},
        {"A": "b\r\n\r\nbody"},
        {"A": "b\n"},
        {"A": "\r"},
        {"Ä": "not ASCII"},
        {"A": ["good", "b\nad"]},
        {"A": b"bytes"},
        {"A": 1},
        {"A": [1]},
        {1: "number"},
        {"A": "\ud800"},
    ],
    ids=repr,
)
def test_invalid_headers_are_refused_before_sending(
    watched: Watched, headers: Any
) -> None:
    nc = watched.nc
    calls: list[Callable[[], object]] = [
        lambda: nc.publish("good", b"", headers=headers),
        lambda: nc.request("good", b"", headers=headers),
        lambda: nc.request_many("good", b"", headers=headers),
    ]
    for call in calls:
        with pytest.raises((errors.InvalidHeaderError, TypeError)):
            call()
    watched.assert_nothing_was_sent()


def test_an_oversized_payload_is_refused_before_sending(
    watched: Watched,
) -> None:
    nc = watched.nc
    assert nc.max_payload == 65536
    sub = nc.subscribe("mine")
    too_large = b"x" * 65537
    calls: list[Callable[[], object]] = [
        lambda: nc.publish("good", too_large),
        lambda: nc.request("good", too_large),
        lambda: nc.request_many("good", too_large),
        # The limit applies to the sum of headers and payload.
        lambda: nc.publish("good", too_large[:-1], headers={"A": "b"}),
        lambda: jsync.Msg("mine", reply="good").respond(too_large),
    ]
    for call in calls[:-1]:
        with pytest.raises(errors.MaxPayloadError) as caught:
            call()
        assert isinstance(caught.value, ValueError)
        assert "65536" in str(caught.value)
    assert sub.pending == 0
    watched.assert_nothing_was_sent()


@pytest.mark.parametrize("data", ["text", None, 1, ["bytes"], {"a": 1}], ids=repr)
def test_payloads_other_than_bytes_are_a_type_error(
    watched: Watched, data: Any
) -> None:
    nc = watched.nc
    for call in (nc.publish, nc.request, nc.request_many):
        with pytest.raises(TypeError, match="bytes"):
            call("good", data)
    watched.assert_nothing_was_sent()


@pytest.mark.parametrize("subject", [None, 1, b"bytes"], ids=repr)
def test_subjects_other_than_str_are_a_type_error(
    watched: Watched, subject: Any
) -> None:
    nc = watched.nc
    for call in (nc.publish, nc.request, nc.request_many, nc.subscribe):
        with pytest.raises(TypeError):
            call(subject)
    watched.assert_no_subscription()
    watched.assert_nothing_was_sent()


@pytest.mark.parametrize(
    "timeout",
    [-1, -0.001, math.nan, "1", 10**400],
    ids=["below", "just below", "nan", "str", "too large"],
)
def test_an_invalid_timeout_sends_nothing(watched: Watched, timeout: Any) -> None:
    nc = watched.nc
    refused = (errors.ConfigError, errors.TimeoutError)
    calls: list[Callable[[], object]] = [
        lambda: nc.request("good", b"bad", timeout=timeout),
        lambda: list(nc.request_many("good", b"bad", timeout=timeout)),
        lambda: nc.flush(timeout=timeout),
        lambda: nc.rtt(timeout=timeout),
        lambda: nc.subscribe("none").next(timeout=timeout),
    ]
    for call in calls:
        assert isinstance(Thread(call).error(), refused)
    watched.assert_nothing_was_sent()


@pytest.mark.tcp_only(reason="it counts the bytes of a PING")
@pytest.mark.parametrize("timeout", [-1, 0])
def test_a_ping_without_time_is_not_sent(proxy: FaultProxy, timeout: int) -> None:
    with jsync.connect(proxy.url) as nc:
        before = proxy.bytes_to["server"]
        for call in (nc.flush, nc.rtt):
            with pytest.raises(errors.TimeoutError):
                call(timeout=timeout)
        nc.flush()
        assert proxy.bytes_to["server"] - before == len(b"PING\r\n")


@pytest.mark.parametrize("timeout", [math.nan, "1"], ids=repr)
def test_an_invalid_drain_timeout_drains_nothing(
    small_server: LocalServer, timeout: Any
) -> None:
    with jsync.connect(small_server.url) as nc:
        sub = nc.subscribe("mine")
        with pytest.raises((ValueError, TypeError)):
            sub.drain(timeout=timeout)
        with pytest.raises((ValueError, TypeError)):
            nc.drain(timeout=timeout)
        nc.publish("mine", b"still here")
        assert sub.next().data == b"still here"


@pytest.mark.parametrize(
    "options",
    [
        {"callback": "not callable"},
        {"max_pending_messages": -1},
        {"max_pending_messages": 0},
        {"max_pending_bytes": -1},
        {"max_pending_bytes": 0},
        {"max_pending_messages": "many"},
        {"max_pending_messages": 1.5},
        {"max_pending_bytes": math.inf},
        {"max_pending_bytes": 1 << 64},
    ],
    ids=repr,
)
def test_invalid_options_of_a_subscription_are_rejected(
    watched: Watched, options: dict[str, Any]
) -> None:
    with pytest.raises(errors.ConfigError):
        watched.nc.subscribe("good", **options)
    watched.assert_no_subscription()


@pytest.mark.parametrize("after", [0, -1, "1", 1.5, math.inf, 1 << 64])
def test_unsubscribe_rejects_an_invalid_count_of_messages(
    watched: Watched, after: Any
) -> None:
    with watched.nc.subscribe("mine") as sub:
        with pytest.raises(errors.ConfigError):
            sub.unsubscribe(after=after)
        watched.nc.publish("mine", b"still here")
        assert sub.next().data == b"still here"


@pytest.mark.parametrize(
    "options",
    [
        {"stall": -1.0},
        {"stall": math.nan},
        {"max_messages": 0},
        {"max_messages": -1},
        {"max_messages": "1"},
        {"sentinel": "not callable"},
    ],
    ids=repr,
)
def test_invalid_request_many_options_are_rejected_before_sending(
    watched: Watched, options: dict[str, Any]
) -> None:
    with pytest.raises(errors.ConfigError):
        watched.nc.request_many("good", b"bad", **options)
    watched.assert_nothing_was_sent()


@pytest.mark.parametrize(
    "options",
    [
        {"servers": ""},
        {"servers": []},
        {"servers": [1]},
        {"servers": "http://127.0.0.1"},
        {"servers": "nats://127.0.0.1:99999"},
        {"servers": "nats://127.0.0.1:4222/path"},
        {"servers": "nats://::1:4222"},
        {"user": "a", "token": "b"},
        {"password": "lonely"},
        {"user": ""},
        {"user": 1},
        {"token": b"bytes"},
        {"nkey_seed": "SUNOTASEED"},
        {"creds": ""},
        {"creds": 1},
        {"auth_callback": "not callable"},
        {"tls": False, "tls_ca": "ca.pem"},
        {"tls": "yes"},
        {"tls_key": "key.pem"},
        {"connect_timeout": 0},
        {"connect_timeout": -1},
        {"connect_timeout": math.inf},
        {"connect_timeout": math.nan},
        {"connect_timeout": "5"},
        {"connect_timeout": True},
        {"write_timeout": 0},
        {"drain_timeout": -1},
        {"ping_interval": 0},
        {"max_pings_out": 0},
        {"max_pings_out": "2"},
        {"reconnect_wait": -1},
        {"reconnect_jitter": -1},
        {"reconnect_jitter_tls": -1},
        {"reconnect_delay": "not callable"},
        {"max_reconnects": -2},
        {"max_reconnects": "many"},
        {"inbox_prefix": ""},
        {"inbox_prefix": "a b"},
        {"inbox_prefix": "a.>"},
        {"inbox_prefix": 1},
        {"max_pending_messages": 0},
        {"max_pending_bytes": -1},
        {"write_buffer_size": 0},
        {"reconnect_buffer_size": -1},
        {"name": 1},
        {"allow_reconnect": "no"},
        {"no_echo": 1},
        {"tls_ca": 5},
        {"tls_cert": 5},
        {"tls_cert": "cert.pem", "tls_key": 5},
        {"tls_hostname": 5},
        {"context": "a" * 5000},
        {"on_error": "not callable"},
        {"on_closed": 1},
    ],
    ids=repr,
)
def test_invalid_options_of_connect_are_rejected_at_once(
    small_server: LocalServer, options: dict[str, Any]
) -> None:
    before = set(threading.enumerate())
    options = {"servers": small_server.url, **options}
    with pytest.raises(errors.ConfigError) as caught:
        jsync.connect(**options)
    assert isinstance(caught.value, ValueError)
    assert not threads_since(before)


@pytest.mark.parametrize(
    "five", [timedelta(seconds=5), numpy.int64(5), numpy.float32(5)], ids=repr
)
def test_connect_takes_durations_as_real_numbers_or_timedelta(
    small_server: LocalServer, five: Any
) -> None:
    names = ("connect_timeout", "write_timeout", "ping_interval", "drain_timeout")
    pauses = ("reconnect_wait", "reconnect_jitter", "reconnect_jitter_tls")
    given: dict[str, Any] = dict.fromkeys(names + pauses, five)
    given["max_pings_out"] = numpy.int64(2)
    with jsync.connect(small_server.url, **given) as nc:
        options = nc._session.options
        for name in names + pauses:
            assert type(getattr(options, name)) is float
            assert getattr(options, name) == 5.0
        assert type(options.max_pings_out) is int


def test_an_invalid_duration_of_connect_is_shown() -> None:
    with pytest.raises(errors.ConfigError, match=r"connect_timeout .*, not '5'"):
        jsync.connect(connect_timeout="5")  # type: ignore[arg-type]


def test_an_unknown_option_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="colour"):
        jsync.connect(colour="blue")  # type: ignore[call-arg]


def test_a_huge_ping_interval_keeps_no_core_busy(small_server: LocalServer) -> None:
    import time  # noqa: PLC0415

    with jsync.connect(small_server.url, ping_interval=1e12) as nc:
        before = time.process_time()
        with pytest.raises(errors.TimeoutError):
            nc.subscribe("nothing.comes").next(timeout=0.3)
        assert time.process_time() - before < 0.15
        assert nc.rtt(timeout=SOON) > 0
