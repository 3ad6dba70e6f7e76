"""Ordered consumers on a real server: exact order, whatever is done to them."""

from __future__ import annotations

import contextlib
import json
import random
import signal
import threading
from itertools import islice
from time import monotonic
from typing import TYPE_CHECKING, Any

import pytest

import jsync
from jsync import errors

from ..faults import Events, connect
from ..proxy import FaultProxy, Frames
from ..servers import wait_for
from .support import LONG, SOON, Child, Recorder, Thread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from jsync.models import DeliverPolicy
    from jsync.server import LocalServer

    from ..conftest import StartServer

pytestmark = pytest.mark.server

POLICIES: tuple[DeliverPolicy, ...] = ("all", "new", "last", "last_per_subject")
QUICK: dict[str, Any] = {"expires": 1.0, "idle_heartbeat": 0.5}


@pytest.fixture
def nc(server: LocalServer) -> Iterator[jsync.Connection]:
    with jsync.connect(server.url) as connection:
        yield connection


@pytest.fixture
def stream(nc: jsync.Connection, unique: str) -> Iterator[jsync.Stream]:
    stream = nc.jetstream().create_stream(
        name=unique, subjects=[f"{unique}.>"], storage="memory", allow_direct=True
    )
    yield stream
    with contextlib.suppress(errors.StreamNotFoundError):
        stream.delete()


@pytest.fixture
def far(proxy: FaultProxy) -> Iterator[jsync.Connection]:
    """A connection through the proxy, which reconnects at once."""
    with connect(proxy.url, Events()) as connection:
        yield connection


@pytest.fixture
def far_stream(far: jsync.Connection, stream: jsync.Stream) -> jsync.Stream:
    return far.jetstream().stream(stream.name)


@pytest.fixture
def told() -> Recorder:
    return Recorder()


def fill(nc: jsync.Connection, stream: jsync.Stream, count: int) -> None:
    """Store the numbers from what was stored on, on three subjects in turn."""
    first = stream.info().state.last_seq
    for number in range(first, first + count):
        nc.publish(f"{stream.name}.{'abc'[number % 3]}", b"%d" % number)
    nc.flush()
    wait_for(lambda: stream.info().state.last_seq == first + count)


def numbers(messages: Any) -> list[int]:
    return [int(msg.data) for msg in messages]


def take(messages: jsync.MessagesContext, count: int) -> list[int]:
    return [int(messages.next(SOON).data) for _ in range(count)]


def consumers(nc: jsync.Connection, stream: jsync.Stream) -> list[str]:
    """The names of the consumers on the server, as another client sees them."""
    reply = nc.request(f"$JS.API.CONSUMER.NAMES.{stream.name}", b"{}")
    return json.loads(reply.data).get("consumers") or []


def delete_consumers(nc: jsync.Connection, stream: jsync.Stream) -> None:
    for name in consumers(nc, stream):
        nc.request(f"$JS.API.CONSUMER.DELETE.{stream.name}.{name}")


def delete_consumers_behind_pulls(
    nc: jsync.Connection, stream: jsync.Stream, messages: jsync.MessagesContext
) -> None:
    """Delete them once all that was pulled two at a time has come.

    A pull that crosses the deletion may be swallowed by the server: then nobody hears of it
    until heartbeats are late.
    """
    wait_for(lambda: messages.pending == 2)
    delete_consumers(nc, stream)


def by_messages(consumer: jsync.OrderedConsumer, count: int) -> list[int]:
    with consumer.messages(stop_after=count) as messages:
        return numbers(messages)


def by_consume(consumer: jsync.OrderedConsumer, count: int) -> list[int]:
    got: list[int] = []
    with consumer.consume(lambda m: got.append(int(m.data)), stop_after=count) as work:
        assert work.wait(SOON)
    return got


def by_fetch(consumer: jsync.OrderedConsumer, count: int) -> list[int]:
    got: list[int] = []
    while len(got) < count:
        with consumer.fetch(min(7, count - len(got)), timeout=SOON) as batch:
            got += numbers(batch)
    return got


def by_fetching_bytes(consumer: jsync.OrderedConsumer, count: int) -> list[int]:
    got: list[int] = []
    while len(got) < count:
        with consumer.fetch(max_bytes=1000, timeout=0.5) as batch:
            got += numbers(islice(batch, count - len(got)))
    return got


def by_fetching_at_once(consumer: jsync.OrderedConsumer, count: int) -> list[int]:
    return numbers(consumer.fetch_nowait(count))


def by_next(consumer: jsync.OrderedConsumer, count: int) -> list[int]:
    return [int(consumer.next(SOON).data) for _ in range(count)]


FACES = [
    *(by_messages, by_consume, by_fetch, by_fetching_bytes, by_fetching_at_once),
    by_next,
]
every_face = pytest.mark.parametrize("face", FACES, ids=lambda f: f.__name__)


# What it reads


@every_face
def test_every_face_reads_the_stream_in_order(
    nc: jsync.Connection, stream: jsync.Stream, face: Callable[..., list[int]]
) -> None:
    fill(nc, stream, 40)
    assert face(stream.ordered_consumer(), 40) == list(range(40))


@every_face
def test_every_face_goes_on_where_another_was_left(
    nc: jsync.Connection, stream: jsync.Stream, face: Callable[..., list[int]]
) -> None:
    fill(nc, stream, 90)
    consumer = stream.ordered_consumer()
    for start in range(0, 90, 30):
        assert by_fetch(consumer, 10) == list(range(start, start + 10))
        assert face(consumer, 15) == list(range(start + 10, start + 25))
        assert by_messages(consumer, 5) == list(range(start + 25, start + 30))


def test_the_context_makes_one_by_the_name_of_its_stream(
    nc: jsync.Connection, stream: jsync.Stream
) -> None:
    fill(nc, stream, 9)
    js = nc.jetstream()
    consumer = js.ordered_consumer(stream.name, filter_subjects=f"{stream.name}.b")
    assert numbers(consumer.messages(until_end=True)) == [1, 4, 7]
    assert consumer.stream_name == stream.name


def test_it_is_a_consumer_without_acks_in_the_memory_of_one_server(
    nc: jsync.Connection, stream: jsync.Stream
) -> None:
    stream.ordered_consumer(
        name_prefix="watch", metadata={"owner": "me"}, inactive_threshold=60
    )
    (name,) = consumers(nc, stream)
    assert name.startswith("watch_")
    config = stream.consumer(name).info().config
    assert config.ack_policy == "none"
    assert config.max_deliver == 1
    assert config.mem_storage is True
    assert config.num_replicas == 1
    assert config.inactive_threshold == 60
    assert (config.metadata or {})["owner"] == "me"


def test_two_with_one_prefix_do_not_take_each_others_messages(
    nc: jsync.Connection, stream: jsync.Stream
) -> None:
    fill(nc, stream, 20)
    first = stream.ordered_consumer(name_prefix="same")
    second = stream.ordered_consumer(name_prefix="same")
    with first.messages() as one, second.messages() as two:
        assert take(one, 20) == take(two, 20) == list(range(20))


def test_headers_only_brings_no_payload(
    nc: jsync.Connection, stream: jsync.Stream
) -> None:
    fill(nc, stream, 1)
    msg = stream.ordered_consumer(headers_only=True).next()
    assert msg.data == b""
    assert msg.headers is not None
    assert msg.headers["Nats-Msg-Size"] == "1"


@pytest.mark.parametrize(
    ("options", "first"),
    [
        ({}, 0),
        ({"deliver_policy": "all"}, 0),
        ({"opt_start_seq": 6}, 5),
        ({"deliver_policy": "last"}, 9),
        ({"deliver_policy": "new"}, 10),
    ],
)
@pytest.mark.parametrize("lost", ["never", "before it begins", "on the way"])
def test_each_policy_is_exact_also_when_the_consumer_is_lost(
    nc: jsync.Connection,
    stream: jsync.Stream,
    options: dict[str, Any],
    first: int,
    lost: str,
) -> None:
    fill(nc, stream, 10)
    consumer = stream.ordered_consumer(**options)
    fill(nc, stream, 5)
    if lost == "before it begins":
        delete_consumers(nc, stream)
    with consumer.messages(max_messages=2) as messages:
        got = take(messages, 3)
        if lost == "on the way":
            delete_consumers_behind_pulls(nc, stream, messages)
        fill(nc, stream, 5)
        got += take(messages, 20 - first - 3)
    assert got == list(range(first, 20))


def test_a_start_time_is_exact_also_when_the_consumer_is_lost(
    nc: jsync.Connection, stream: jsync.Stream
) -> None:
    for number in range(10):  # one at a time, so that each has a microsecond of its own
        nc.jetstream().publish(f"{stream.name}.a", b"%d" % number)
    start = stream.ordered_consumer(opt_start_seq=6).next().metadata.timestamp
    consumer = stream.ordered_consumer(opt_start_time=start)
    delete_consumers(nc, stream)
    assert numbers(consumer.messages(until_end=True)) == [5, 6, 7, 8, 9]


def fill_in_pairs(nc: jsync.Connection, stream: jsync.Stream, count: int) -> None:
    """Store numbers, two on a subject: the odd ones are the last of theirs."""
    for number in range(count):
        nc.publish(f"{stream.name}.{number // 2}", b"%d" % number)
    nc.flush()
    wait_for(lambda: stream.info().state.last_seq == count)


def test_the_last_of_each_subject_come_once_when_the_consumer_is_lost_half_way(
    nc: jsync.Connection, stream: jsync.Stream, told: Recorder
) -> None:
    fill_in_pairs(nc, stream, 20)
    consumer = stream.ordered_consumer(deliver_policy="last_per_subject")
    with consumer.messages(max_messages=2, on_error=told) as messages:
        assert take(messages, 4) == [1, 3, 5, 7]
        delete_consumers_behind_pulls(nc, stream, messages)
        # 15 gives way to 20; 21 and 22 are both new, and neither gives way.
        for number, subject in ((20, "7"), (21, "1"), (22, "1")):
            nc.jetstream().publish(f"{stream.name}.{subject}", b"%d" % number)
        got: list[int] = []
        while not got or got[-1] != 22:
            got += take(messages, 1)
    assert [n for n in got if n != 15] == [9, 11, 13, 17, 19, 20, 21, 22]
    assert isinstance(told.get(), errors.OrderedConsumerResetError)


def test_a_fetch_passes_over_what_was_read_when_half_of_the_last_are_left(
    nc: jsync.Connection, stream: jsync.Stream
) -> None:
    fill_in_pairs(nc, stream, 20)
    consumer = stream.ordered_consumer(deliver_policy="last_per_subject")
    assert by_fetch(consumer, 6) == [1, 3, 5, 7, 9, 11]
    delete_consumers(nc, stream)
    begun = monotonic()
    assert numbers(consumer.fetch(3, timeout=LONG)) == [13, 15, 17]
    assert numbers(consumer.fetch_nowait(3)) == [19]
    assert monotonic() - begun < SOON


# What cannot be read


def test_a_missing_stream_is_an_error_at_the_call(
    nc: jsync.Connection, unique: str
) -> None:
    with pytest.raises(errors.StreamNotFoundError):
        nc.jetstream().ordered_consumer(unique)


def test_what_the_server_refuses_is_an_error_at_the_call(
    nc: jsync.Connection, unique: str
) -> None:
    js = nc.jetstream()
    queue = js.create_stream(name=unique, subjects=[unique], retention="workqueue")
    with pytest.raises(errors.APIError):
        queue.ordered_consumer()
    queue.delete()


@pytest.mark.parametrize(
    "options",
    [{"name_prefix": "a.b"}, {"max_reset_attempts": 0}, {"filter_subjects": "a b"}],
)
def test_bad_options_are_refused_before_anything_is_sent(
    nc: jsync.Connection, options: dict[str, Any]
) -> None:
    with pytest.raises(errors.ConfigError):
        nc.jetstream().ordered_consumer("MISSING", **options)


def test_bad_options_of_reading_are_refused(
    stream: jsync.Stream,
) -> None:
    consumer = stream.ordered_consumer()
    bad: Any = "nak"
    with pytest.raises(errors.ConfigError, match="given back"):
        consumer.consume(print, on_exception=bad)
    with pytest.raises(errors.ConfigError):
        consumer.messages(max_messages=1, max_bytes=1)
    with pytest.raises(errors.ConfigError):
        consumer.messages(idle_timeout=0)
    with pytest.raises(errors.ConfigError):
        consumer.fetch()


# Losses


@pytest.mark.parametrize("face", ["messages", "consume", "fetch"])
def test_a_message_that_gets_lost_on_the_way_is_read_in_its_place(
    nc: jsync.Connection,
    stream: jsync.Stream,
    far_stream: jsync.Stream,
    proxy: FaultProxy,
    told: Recorder,
    face: str,
) -> None:
    fill(nc, stream, 60)
    lost: list[bytes] = []

    def passes(frame: bytes) -> bool:
        number = frame.split(b"\r\n")[1]
        if number in {b"20", b"21", b"45"}.difference(lost):
            lost.append(number)
            return False
        return True

    proxy.rewrite(Frames(passes))
    consumer = far_stream.ordered_consumer()
    got: list[int] = []
    if face == "messages":
        with consumer.messages(stop_after=60, on_error=told) as messages:
            got = numbers(messages)
    elif face == "consume":
        with consumer.consume(
            lambda m: got.append(int(m.data)), stop_after=60, on_error=told
        ) as work:
            assert work.wait(SOON)
    else:
        with consumer.fetch(60, timeout=SOON, on_error=told) as batch:
            got = numbers(batch)
    assert got == list(range(60))
    assert len(lost) == 3
    reset = told.get()
    assert isinstance(reset, errors.OrderedConsumerResetError)
    assert "missing" in str(reset.__cause__)


def test_a_consumer_that_falls_silent_is_replaced(
    nc: jsync.Connection,
    stream: jsync.Stream,
    far_stream: jsync.Stream,
    proxy: FaultProxy,
    told: Recorder,
) -> None:
    fill(nc, stream, 10)
    silent = False

    def passes(frame: bytes) -> bool:
        return not (silent and b".pull." in frame.split(b"\r\n")[0])

    proxy.rewrite(Frames(passes))
    with far_stream.ordered_consumer().messages(**QUICK, on_error=told) as messages:
        assert take(messages, 10) == list(range(10))
        silent = True
        fill(nc, stream, 10)
        reset = told.get()
        silent = False
        assert take(messages, 10) == list(range(10, 20))
    assert isinstance(reset.__cause__, errors.MissedHeartbeatError)


@every_face
def test_a_consumer_that_is_deleted_is_replaced(
    nc: jsync.Connection, stream: jsync.Stream, face: Callable[..., list[int]]
) -> None:
    fill(nc, stream, 30)
    consumer = stream.ordered_consumer()
    assert face(consumer, 10) == list(range(10))
    delete_consumers(nc, stream)
    assert face(consumer, 20) == list(range(10, 30))


def test_a_consumer_is_replaced_as_often_as_it_is_deleted(
    nc: jsync.Connection, stream: jsync.Stream, told: Recorder
) -> None:
    with stream.ordered_consumer().messages(on_error=told) as messages:
        for start in range(0, 50, 10):
            fill(nc, stream, 10)
            assert take(messages, 10) == list(range(start, start + 10))
            delete_consumers(nc, stream)
            assert isinstance(told.get(), errors.OrderedConsumerResetError)


@every_face
def test_nothing_is_lost_with_the_connection(
    nc: jsync.Connection,
    stream: jsync.Stream,
    far_stream: jsync.Stream,
    proxy: FaultProxy,
    face: Callable[..., list[int]],
) -> None:
    fill(nc, stream, 30)
    consumer = far_stream.ordered_consumer()
    assert face(consumer, 10) == list(range(10))
    proxy.cut()
    assert face(consumer, 20) == list(range(10, 30))


def test_it_reads_on_while_the_connection_is_cut_anywhere(
    nc: jsync.Connection,
    stream: jsync.Stream,
    far_stream: jsync.Stream,
    proxy: FaultProxy,
) -> None:
    dice = random.Random(1)
    fill(nc, stream, 5000)
    got: list[int] = []
    with far_stream.ordered_consumer().messages(stop_after=5000) as messages:
        for msg in messages:
            got.append(int(msg.data))
            if len(got) % 500 == 0:
                proxy.cut_after(dice.randrange(30_000), "client")
    assert got == list(range(5000))


def test_it_goes_on_when_the_server_was_killed(
    own_server: StartServer, told: Recorder
) -> None:
    server = own_server()
    with connect(server.url, Events()) as nc:
        stream = nc.jetstream().create_stream(name="S", subjects=["S.>"])
        fill(nc, stream, 20)
        with stream.ordered_consumer().messages(on_error=told) as messages:
            assert take(messages, 10) == list(range(10))
            for start in (10, 20):
                server.kill()
                server.start()
                fill(nc, stream, 10)
                assert take(messages, 10) == list(range(start, start + 10))
        assert isinstance(told.get(), errors.OrderedConsumerResetError)


def test_what_was_handed_over_while_disconnected_is_not_read_twice(
    nc: jsync.Connection,
    stream: jsync.Stream,
    far_stream: jsync.Stream,
    proxy: FaultProxy,
) -> None:
    fill(nc, stream, 20)
    consumer = far_stream.ordered_consumer()
    with consumer.messages() as messages:
        wait_for(lambda: messages.pending == 20)
        proxy.refuse()
        proxy.cut()
        assert take(messages, 5) == list(range(5))
    proxy.accept()
    assert numbers(consumer.messages(until_end=True)) == list(range(5, 20))


# The ends


def end_of(consumer: jsync.OrderedConsumer, face: str) -> Callable[[], object]:
    """A call that reads until an error ends it, and raises that."""

    def read() -> None:
        if face == "messages":
            with consumer.messages(**QUICK) as messages:
                for _ in messages:
                    pass
        elif face == "consume":
            with consumer.consume(lambda m: None, **QUICK) as work:
                work.wait(LONG)
        elif face == "fetch":
            while True:
                with consumer.fetch(10, timeout=1.0) as batch:
                    for _ in batch:
                        pass
        else:
            while True:
                with contextlib.suppress(errors.TimeoutError):
                    consumer.next(1.0)

    return read


ways = pytest.mark.parametrize("face", ["messages", "consume", "fetch", "next"])


@ways
@pytest.mark.parametrize("successor", [False, True], ids=["gone", "another"])
def test_a_deleted_stream_is_an_error_also_when_there_is_another_one(
    nc: jsync.Connection, stream: jsync.Stream, face: str, successor: bool
) -> None:
    fill(nc, stream, 10)
    reading = Thread(end_of(stream.ordered_consumer(), face))
    reading.wait_until_blocked()
    stream.delete()
    if successor:
        nc.jetstream().create_stream(stream.config)
    assert isinstance(reading.error(), errors.StreamNotFoundError)


@ways
def test_closing_the_connection_is_an_error(
    server: LocalServer, stream: jsync.Stream, face: str
) -> None:
    nc = jsync.connect(server.url)
    consumer = nc.jetstream().ordered_consumer(stream.name)
    reading = Thread(end_of(consumer, face))
    reading.wait_until_blocked()
    nc.close()
    assert isinstance(reading.error(), errors.ConnectionClosedError)


@ways
def test_closing_while_the_server_is_away_is_an_error(
    stream: jsync.Stream, proxy: FaultProxy, face: str
) -> None:
    nc = connect(proxy.url, Events())
    reading = Thread(end_of(nc.jetstream().ordered_consumer(stream.name), face))
    reading.wait_until_blocked()
    proxy.refuse()
    proxy.cut()
    nc.close()
    assert isinstance(reading.error(), errors.ConnectionClosedError)


def test_it_gives_up_when_no_consumer_can_be_made(
    stream: jsync.Stream, proxy: FaultProxy, told: Recorder
) -> None:
    with connect(proxy.url, Events()) as nc:
        js = nc.jetstream(timeout=0.2)
        consumer = js.ordered_consumer(stream.name, max_reset_attempts=2)
        with consumer.messages(**QUICK, on_error=told) as messages:
            proxy.rewrite(Frames(lambda frame: b"consumer_create" not in frame))
            proxy.cut()
            with pytest.raises(errors.OrderedConsumerResetError) as caught:
                messages.next(LONG)
        assert isinstance(caught.value.__cause__, errors.TimeoutError)
        # A creation before that may have been late as well, on a busy machine.
        kinds = set[type]()
        while len(kinds) < 2:
            kinds.add(type(told.get()))
        assert kinds == {errors.OrderedConsumerResetError, errors.TimeoutError}


def test_stop_ends_it_while_the_server_is_away(
    stream: jsync.Stream, far_stream: jsync.Stream, proxy: FaultProxy
) -> None:
    consumer = far_stream.ordered_consumer()
    messages = consumer.messages()
    reading = Thread(lambda: numbers(messages))
    reading.wait_until_blocked()
    proxy.refuse()
    proxy.cut()
    messages.stop()
    assert reading.result() == []
    proxy.accept()


def test_what_was_not_read_when_it_was_stopped_is_read_next(
    nc: jsync.Connection, stream: jsync.Stream
) -> None:
    fill(nc, stream, 100)
    consumer = stream.ordered_consumer()
    with consumer.messages() as messages:
        assert take(messages, 3) == [0, 1, 2]
        wait_for(lambda: messages.pending > 50)
    with consumer.fetch(20) as batch:
        assert numbers(islice(batch, 4)) == [3, 4, 5, 6]
    for msg in consumer.messages():
        assert int(msg.data) == 7
        break
    for msg in consumer.fetch(50):
        assert int(msg.data) == 8
        break
    assert int(consumer.next().data) == 9


def test_drain_reads_what_has_come_and_no_more(
    nc: jsync.Connection, stream: jsync.Stream
) -> None:
    fill(nc, stream, 100)
    consumer = stream.ordered_consumer()
    messages = consumer.messages(max_messages=10)
    got = take(messages, 1)
    messages.drain()
    got += numbers(messages)
    assert got == list(range(len(got)))
    assert len(got) < 100
    assert int(consumer.next().data) == len(got)


def test_consume_drains_and_stops(nc: jsync.Connection, stream: jsync.Stream) -> None:
    fill(nc, stream, 100)
    consumer = stream.ordered_consumer()
    got: list[int] = []
    begun = threading.Event()

    def handle(msg: jsync.JetStreamMsg) -> None:
        got.append(int(msg.data))
        if len(got) == 5:
            assert begun.wait(SOON)
            work.stop()

    work = consumer.consume(handle, max_messages=10)
    begun.set()
    assert work.wait(SOON)
    assert got == [0, 1, 2, 3, 4]
    with consumer.consume(lambda m: got.append(int(m.data)), max_messages=10):
        pass
    assert got == list(range(len(got)))


def test_a_handler_that_raises_is_told_of_and_may_end_it(
    nc: jsync.Connection, stream: jsync.Stream, told: Recorder
) -> None:
    fill(nc, stream, 10)

    def handle(msg: jsync.JetStreamMsg) -> None:
        if int(msg.data) == 3:
            raise ValueError("three")

    consumer = stream.ordered_consumer()
    work = consumer.consume(handle, on_exception="stop", on_error=told)
    with pytest.raises(errors.CallbackError):
        work.wait(SOON)
    assert isinstance(told.get(), errors.CallbackError)
    assert int(consumer.next().data) == 4


def test_one_reads_it_at_a_time(nc: jsync.Connection, stream: jsync.Stream) -> None:
    fill(nc, stream, 10)
    consumer = stream.ordered_consumer()
    with consumer.messages() as messages:
        assert take(messages, 1) == [0]
        for attempt in (consumer.messages, consumer.next, lambda: consumer.fetch(1)):
            with pytest.raises(errors.ConcurrentUseError):
                attempt()
    with consumer.fetch(5) as batch:
        assert int(next(batch).data) == 1
        with pytest.raises(errors.ConcurrentUseError):
            consumer.next()
    assert int(consumer.next().data) == 2


def test_no_consumer_is_left_behind_on_the_server(
    nc: jsync.Connection, stream: jsync.Stream
) -> None:
    fill(nc, stream, 10)
    consumer = stream.ordered_consumer()
    for _ in range(3):
        with consumer.messages() as messages:
            messages.next()
            delete_consumers(nc, stream)
    consumer.fetch(5).close()
    wait_for(lambda: not consumers(nc, stream))
    assert numbers(stream.ordered_consumer().messages(until_end=True)) == [*range(10)]
    wait_for(lambda: not consumers(nc, stream))
    assert len(numbers(stream.ordered_consumer().messages(stop_after=5))) == 5
    wait_for(lambda: not consumers(nc, stream))
    stream.ordered_consumer().consume(lambda m: None, until_end=True)
    wait_for(lambda: not consumers(nc, stream))


def test_nothing_piles_up_in_the_connection(
    nc: jsync.Connection, stream: jsync.Stream
) -> None:
    session = nc._session
    consumer = stream.ordered_consumer()
    begun = len(session.interests), len(session.replies)
    for _ in range(30):
        fill(nc, stream, 4)
        assert consumer.next().data
        for _ in consumer.fetch(5):
            break
        for msg in consumer.messages():
            delete_consumers(nc, stream)
            assert msg.data
            break
        assert consumer.next().data
    consumer.messages().stop()
    wait_for(lambda: (len(session.interests), len(session.replies)) == begun)


@pytest.mark.parametrize(
    "denied", ["$JS.API.STREAM.INFO.S", "$JS.API.CONSUMER.CREATE.>"]
)
def test_who_may_not_look_at_the_stream_may_read_it(
    own_server: StartServer, denied: str
) -> None:
    server = own_server(
        config=f"""
        authorization {{ users: [
            {{ user: a, password: a }}
            {{ user: b, password: b, permissions: {{ publish: {{ deny: ["{denied}"] }} }} }}
        ] }}
        """
    )
    with (
        jsync.connect(server.url, user="a", password="a") as owner,
        jsync.connect(server.url, user="b", password="b") as reader,
    ):
        stream = owner.jetstream().create_stream(name="S", subjects=["S.>"])
        fill(owner, stream, 20)
        js = reader.jetstream(timeout=0.5)
        if "CREATE" in denied:
            with pytest.raises(errors.PermissionsError):
                js.ordered_consumer("S")
            return
        with js.ordered_consumer("S").messages(on_error=lambda e: None) as messages:
            assert take(messages, 10) == list(range(10))
            delete_consumers(owner, stream)
            fill(owner, stream, 10)
            assert take(messages, 20) == list(range(10, 30))


def test_polling_an_idle_stream_keeps_its_consumer(
    nc: jsync.Connection, stream: jsync.Stream
) -> None:
    consumer = stream.ordered_consumer()
    names = consumers(nc, stream)
    for _ in range(5):
        with pytest.raises(errors.TimeoutError):
            consumer.next(0.05)
        assert not numbers(consumer.fetch_nowait(5))
    fill(nc, stream, 3)
    assert by_next(consumer, 3) == [0, 1, 2]
    assert consumers(nc, stream) == names


def test_a_wait_of_next_ends_in_time_while_the_server_is_away(
    stream: jsync.Stream, far_stream: jsync.Stream, proxy: FaultProxy
) -> None:
    consumer = far_stream.ordered_consumer()
    proxy.refuse()
    proxy.cut()
    for _ in range(3):
        with pytest.raises(errors.TimeoutError):
            consumer.next(0.2)
    proxy.accept()


WAITS = {
    "iterating": "for msg in messages: pass",
    "messages": "messages.next(60)",
    "consume": "consumer.consume(print).wait(60)",
    "fetch": "list(consumer.fetch(5, timeout=60))",
    "next": "consumer.next(60)",
}


@pytest.mark.parametrize("wait", WAITS)
@pytest.mark.parametrize("away", [False, True], ids=["idle", "away"])
def test_ctrl_c_ends_the_wait_and_nothing_else(
    own_server: StartServer, wait: str, away: bool
) -> None:
    server = own_server()
    script = f"""
        import logging, sys, jsync
        logging.disable()
        nc = jsync.connect(sys.argv[1], reconnect_wait=0.05)
        js = nc.jetstream()
        consumer = js.create_stream(name="S", subjects=["S"]).ordered_consumer()
        if {wait in ("iterating", "messages")}:
            messages = consumer.messages()
        js.publish("S", b"0")
        if {wait in ("iterating", "messages")}:
            print(messages.next().data.decode(), flush=True)
        else:
            print(consumer.next().data.decode(), flush=True)
        sys.stdin.readline()
        for _ in range({1 if wait == "consume" else 2}):
            try:
                print("waiting", flush=True)
                {WAITS[wait]}
            except KeyboardInterrupt:
                print("interrupted", flush=True)
        sys.stdin.readline()
        if {wait in ("iterating", "messages")}:
            messages.stop()
        js.publish("S", b"1", timeout=20)
        if {wait != "consume"}:
            print(consumer.next(20).data.decode(), flush=True)
        nc.close()
    """
    with Child(script, server.url) as child:
        assert child.line() == "0"
        if away:
            server.kill()
        child.go_on()
        for _ in range(1 if wait == "consume" else 2):
            assert child.line() == "waiting"
            child.process.send_signal(signal.SIGINT)
            assert child.line() == "interrupted"
        if away:
            server.start()
        child.go_on()
        if wait != "consume":
            assert child.line() == "1"
        code, _, errors_ = child.finish()
        assert (code, errors_) == (0, "")


# Reading to the end


def test_reading_an_empty_stream_to_its_end_ends_at_once(
    stream: jsync.Stream,
) -> None:
    begun = monotonic()
    for policy in POLICIES:
        consumer = stream.ordered_consumer(deliver_policy=policy)
        assert numbers(consumer.messages(until_end=True)) == []
        assert numbers(consumer.messages(until_end=True)) == []
        with consumer.consume(print, until_end=True) as work:
            assert work.wait(SOON)
    assert monotonic() - begun < SOON


def test_reading_to_the_end_ends_when_the_filter_matches_nothing(
    nc: jsync.Connection, stream: jsync.Stream
) -> None:
    fill(nc, stream, 50)
    begun = monotonic()
    for policy in POLICIES:
        consumer = stream.ordered_consumer(
            deliver_policy=policy,
            filter_subjects=f"{stream.name}.none",
        )
        assert numbers(consumer.messages(until_end=True)) == []
    assert monotonic() - begun < SOON


@pytest.mark.parametrize("options", [{}, {"max_messages": 1}, {"max_bytes": 200}])
def test_reading_to_the_end_takes_what_is_there_and_then_what_has_come_since(
    nc: jsync.Connection, stream: jsync.Stream, options: dict[str, Any]
) -> None:
    consumer = stream.ordered_consumer(
        filter_subjects=[f"{stream.name}.a", f"{stream.name}.c"]
    )
    for start in range(0, 90, 30):
        fill(nc, stream, 30)
        expected = [n for n in range(start, start + 30) if n % 3 != 1]
        with consumer.messages(until_end=True, **options) as messages:
            assert numbers(messages) == expected
            with pytest.raises(errors.SubscriptionClosedError):
                messages.next(0)
    got: list[int] = []
    fill(nc, stream, 3)
    with consumer.consume(lambda m: got.append(int(m.data)), until_end=True) as work:
        assert work.wait(SOON)
    assert got == [90, 92]


def test_reading_to_the_end_ends_though_the_stream_goes_on(
    nc: jsync.Connection, stream: jsync.Stream
) -> None:
    fill(nc, stream, 500)
    consumer = stream.ordered_consumer()
    with consumer.messages(until_end=True, max_messages=10) as messages:
        for number, msg in enumerate(messages):
            assert int(msg.data) == number
            nc.publish(f"{stream.name}.a", b"%d" % (500 + number))
            nc.publish(f"{stream.name}.a", b"more")
    assert number == 499


@pytest.mark.parametrize("what", ["purge", "purge a subject", "delete the last"])
def test_reading_to_the_end_ends_when_the_rest_is_deleted_meanwhile(
    nc: jsync.Connection, stream: jsync.Stream, what: str
) -> None:
    fill(nc, stream, 90)
    consumer = stream.ordered_consumer(
        filter_subjects=f"{stream.name}.c" if "subject" in what else None
    )
    begun = monotonic()
    with consumer.messages(until_end=True, max_messages=4) as messages:
        got = take(messages, 1)
        if what == "delete the last":
            for sequence in range(41, 91):
                request = json.dumps({"seq": sequence}).encode()
                nc.request(f"$JS.API.STREAM.MSG.DELETE.{stream.name}", request)
        else:
            options = {"filter": f"{stream.name}.c"} if "subject" in what else {}
            request = json.dumps(options).encode()
            nc.request(f"$JS.API.STREAM.PURGE.{stream.name}", request)
        got += numbers(messages)
    assert got == sorted(got)
    if what == "delete the last":
        assert got[:40] == list(range(40))
    assert len(got) < 60
    assert monotonic() - begun < SOON


def test_reading_to_the_end_ends_when_the_rest_expires(
    nc: jsync.Connection, unique: str
) -> None:
    js = nc.jetstream()
    stream = js.create_stream(
        name=unique, subjects=[f"{unique}.>"], storage="memory", max_age=0.5
    )
    fill(nc, stream, 50)
    with stream.ordered_consumer().messages(until_end=True, max_messages=4) as messages:
        take(messages, 1)
        wait_for(lambda: not stream.info().state.messages)
        assert len(numbers(messages)) < 10
    stream.delete()


def test_reading_to_the_end_survives_losses(
    nc: jsync.Connection,
    stream: jsync.Stream,
    far_stream: jsync.Stream,
    proxy: FaultProxy,
) -> None:
    fill(nc, stream, 300)
    with far_stream.ordered_consumer().messages(
        until_end=True, max_messages=20
    ) as messages:
        got = take(messages, 50)
        delete_consumers(nc, stream)
        got += take(messages, 50)
        proxy.cut()
        got += take(messages, 50)
        proxy.cut_after(500, "client")
        got += numbers(messages)
    assert got == list(range(300))


def test_reading_to_the_end_finds_a_last_message_that_got_lost(
    nc: jsync.Connection,
    stream: jsync.Stream,
    far_stream: jsync.Stream,
    proxy: FaultProxy,
) -> None:
    fill(nc, stream, 10)
    lost: list[bytes] = []

    def passes(frame: bytes) -> bool:
        if frame.startswith(b"MSG") and frame.endswith(b"\r\n9\r\n") and not lost:
            lost.append(frame)
            return False
        return True

    proxy.rewrite(Frames(passes))
    with far_stream.ordered_consumer().messages(until_end=True, **QUICK) as messages:
        assert numbers(messages) == list(range(10))
    assert lost


def test_reading_to_the_end_is_an_error_when_the_stream_is_deleted(
    nc: jsync.Connection, stream: jsync.Stream
) -> None:
    fill(nc, stream, 100)
    consumer = stream.ordered_consumer()
    with consumer.messages(until_end=True, max_messages=2) as messages:
        take(messages, 1)
        stream.delete()
        with pytest.raises(errors.StreamNotFoundError):
            numbers(messages)
    with pytest.raises(errors.StreamNotFoundError):
        consumer.messages(until_end=True)
