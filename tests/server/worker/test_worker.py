"""Tests of workers, which run handlers of consumers in one process."""

from __future__ import annotations

import _thread
import contextlib
import json
import logging
import signal
import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec
import pytest

import jsync
from jsync import Retry, errors
from jsync.jetstream import consumer as consumer_module
from jsync.models import MaxDeliveries
from jsync.worker import (
    dead_letters,
    runner as worker_runner,
    worker as worker_module,
)
from jsync.worker.dead_letters import MaxDeliveriesListener
from jsync.worker.logs import JSONFormatter, TextFormatter
from jsync.worker.sources import GroupSource

from ...matrix.leaf import answers
from ...support.processes import Child
from ...support.servers import free_port, publish_block, wait_for
from ...support.threads import LONG, SOON, Recorder, Thread

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jsync.server import LocalServer

    from ...conftest import StartServer


class Order(msgspec.Struct):
    id: int


@pytest.fixture
def dead(js: jsync.JetStream, unique: str) -> Iterator[jsync.Stream]:
    """The stream of the dead letters."""
    name = f"{unique}DEAD"
    stream = js.create_stream(name=name, subjects=[f"dead.{unique}"], storage="memory")
    yield stream
    stream.delete()


@pytest.fixture
def told() -> Recorder:
    return Recorder()


@pytest.fixture
def app(
    stream: jsync.Stream, dead: jsync.Stream, unique: str, told: Recorder
) -> jsync.Worker:
    retry = Retry(delays=[0.01], attempts=2, dead_letter=f"dead.{unique}")
    return jsync.Worker(stream=stream.name, retry=retry, on_error=told)


def settled(js: jsync.JetStream, stream: jsync.Stream) -> bool:
    info = js.consumer(stream.name, "w").info()
    return info.num_pending == info.num_ack_pending == 0


def publish(js: jsync.JetStream, stream: jsync.Stream, *ids: int) -> None:
    for number in ids:
        js.publish(f"{stream.name}.a", msgspec.json.encode(Order(number)))


def strand(consumer: jsync.Consumer, count: int) -> None:
    """Deliver messages until the server gives them up, at the third delivery."""
    for _ in range(3):
        for msg in consumer.fetch(count, timeout=SOON):
            msg.nak()
    with contextlib.suppress(errors.TimeoutError):
        consumer.next(0.1)  # the server gives the messages up
    wait_for(lambda: consumer.info().num_ack_pending == 0)


def test_a_message_is_acknowledged_when_its_handler_returns(
    nc: jsync.Connection, js: jsync.JetStream, stream: jsync.Stream, app: jsync.Worker
) -> None:
    done: list[int] = []

    @app.handle(f"{stream.name}.a", consumer="w", workers=3)
    def handle(order: Order, msg: jsync.JetStreamMsg) -> None:
        assert msg.metadata.consumer == "w"
        done.append(order.id)

    publish(js, stream, *range(50))
    js.publish(f"{stream.name}.other")
    with app.start(nc) as running:
        assert running.ready
        wait_for(lambda: len(done) == 50)
        wait_for(lambda: settled(js, stream))
        figures = running.report(lag=True).consumers[f"{stream.name}.w"]
    assert sorted(done) == list(range(50))
    assert (sum(figures.seconds), figures.failed, figures.pending) == (50, 0, 0)
    assert js.consumer(stream.name, "w").info().ack_floor.consumer_seq == 50


def test_a_report_keeps_the_last_known_lag(
    nc: jsync.Connection, js: jsync.JetStream, stream: jsync.Stream, app: jsync.Worker
) -> None:
    @app.handle(f"{stream.name}.a", consumer="w")
    def handle(order: Order) -> None:
        raise AssertionError("there is no message")

    def lag(*, ask: bool) -> tuple[int | None, int | None]:
        figures = running.report(lag=ask).consumers[f"{stream.name}.w"]
        return figures.pending, figures.ack_pending

    with app.start(nc) as running:
        assert lag(ask=False) == (None, None)
        assert lag(ask=True) == (0, 0)
        assert lag(ask=False) == (0, 0)
        js.consumer(stream.name, "w").delete()
        assert lag(ask=True) == (None, None)
        assert lag(ask=False) == (None, None)


def test_failed_messages_are_retried_then_become_dead_letters(
    nc: jsync.Connection,
    js: jsync.JetStream,
    stream: jsync.Stream,
    dead: jsync.Stream,
    app: jsync.Worker,
    told: Recorder,
) -> None:
    @app.handle(f"{stream.name}.a", consumer="w")
    def handle(order: Order) -> None:
        if order.id == 2:
            raise LookupError("no such customer")

    publish(js, stream, 1, 2, 3)
    js.publish(f"{stream.name}.a", b"nonsense")
    with app.start(nc) as running:
        given_up = [told.get(), told.get()]
        wait_for(lambda: settled(js, stream))
        figures = running.report().consumers[f"{stream.name}.w"]
    # A payload that cannot be decoded is not retried.
    assert {(each.sequence, each.attempts) for each in given_up} == {(2, 2), (4, 1)}
    assert dead.info().state.messages == 2
    assert (figures.failed, figures.retried, figures.dead) == (3, 1, 2)
    assert figures.redelivered == 1


def test_a_codec_error_of_the_handler_is_retried(
    nc: jsync.Connection,
    js: jsync.JetStream,
    stream: jsync.Stream,
    dead: jsync.Stream,
    app: jsync.Worker,
) -> None:
    # It is about an entry of a bucket, for example, and not about the message.
    attempts: list[int] = []

    @app.handle(f"{stream.name}.a", consumer="w")
    def handle(msg: jsync.JetStreamMsg) -> None:
        attempts.append(msg.metadata.num_delivered)
        if len(attempts) == 1:
            raise errors.CodecError("no JSON", key="rates")

    publish(js, stream, 1)
    with app.start(nc):
        wait_for(lambda: settled(js, stream))
    assert attempts == [1, 2]
    assert dead.info().state.messages == 0


def test_a_worker_without_dead_letters_never_gives_up(
    nc: jsync.Connection, js: jsync.JetStream, stream: jsync.Stream
) -> None:
    app = jsync.Worker(stream=stream.name)
    attempts: list[int] = []

    @app.handle(
        f"{stream.name}.a", consumer="w", retry=Retry(delays=[0], attempts=None)
    )
    def handle(msg: jsync.JetStreamMsg) -> None:
        attempts.append(msg.metadata.num_delivered)
        if len(attempts) < 30:
            raise LookupError

    publish(js, stream, 1)
    with app.start(nc):
        wait_for(lambda: settled(js, stream))
    assert attempts == list(range(1, 31))


def test_a_worker_is_a_member_of_a_group(
    nc: jsync.Connection, js: jsync.JetStream, stream: jsync.Stream
) -> None:
    """One member at a time gets the messages of a key, one by one and in order."""
    subjects = f"{stream.name}.*"
    group = js.create_consumer_group(
        stream.name, "g", partitions=6, filters={subjects: [1]}
    )
    done: list[tuple[str, str, bytes]] = []
    retry = Retry(delays=[0.01], attempts=3)

    def app(member: str) -> jsync.Worker:
        app = jsync.Worker(stream=stream.name, retry=retry)

        @app.handle(subjects, group="g", member=member)
        def handle(data: bytes, msg: jsync.JetStreamMsg) -> None:
            if msg.metadata.num_delivered == 1 and data == b"3":
                raise LookupError
            done.append((member, msg.subject, data))

        return app

    for number in range(5):
        for key in "abcdefgh":
            js.publish(f"{stream.name}.{key}", b"%d" % number)
    with app("one").start(nc) as one, app("two").start(nc):
        wait_for(lambda: len(done) == 40)
        assert one.ready
        wait_for(lambda: sum(group.lag().values()) == 0)
        figures = one.report(lag=True).consumers[f"{stream.name}.g"]
    for key in "abcdefgh":
        mine = [each for each in done if each[1] == f"{stream.name}.{key}"]
        assert [data for _, _, data in mine] == [b"0", b"1", b"2", b"3", b"4"]
    assert {name for name, _, _ in done} == {"one", "two"}
    assert (figures.pending, figures.ack_pending) == (0, 0)
    assert group.info().members == ("one", "two")
    js.delete_consumer_group(stream.name, "g")


def test_a_worker_whose_start_fails_joins_no_group(
    nc: jsync.Connection, js: jsync.JetStream, stream: jsync.Stream
) -> None:
    """Running members would lose partitions that nobody reads."""
    subjects = f"{stream.name}.*"
    group = js.create_consumer_group(
        stream.name, "g", partitions=4, filters={subjects: [1]}
    )
    routes: dict[str, list[tuple[str, str | None]]] = {
        "early": [("g", f"nobody.{stream.name}")],
        "late": [("g", None), ("missing", None)],
    }
    for name, of in routes.items():
        app = jsync.Worker(stream=stream.name)
        for number, (each, dead_letter) in enumerate(of):
            retry = Retry(attempts=1, dead_letter=dead_letter)
            handle = app.handle(
                subjects, group=each, member=f"{name}{number}", retry=retry
            )
            handle(lambda _: None)
        with pytest.raises(errors.Error):
            app.start(nc)
    assert group.info().members == ()
    js.delete_consumer_group(stream.name, "g")


def test_a_failed_start_leaves_another_instance_its_member(
    nc: jsync.Connection, js: jsync.JetStream, stream: jsync.Stream
) -> None:
    subjects = f"{stream.name}.*"
    group = js.create_consumer_group(
        stream.name, "g", partitions=4, filters={subjects: [1]}
    )
    app = jsync.Worker(stream=stream.name)
    app.handle(subjects, group="g", member="a")(lambda _: None)
    failing = GroupSource(js, app._routes[0])
    failing.admit()
    with app.start(nc) as running:
        wait_for(lambda: [each.active for each in group.members()] == [True])
        failing.withdraw()
        assert group.info().members == ("a",)
        assert running.ready
    failing.withdraw()
    assert group.info().members == ()
    js.delete_consumer_group(stream.name, "g")


def test_a_worker_that_contradicts_its_group_never_starts(
    nc: jsync.Connection, js: jsync.JetStream, stream: jsync.Stream
) -> None:
    def started(group: str, subject: str = f"{stream.name}.*") -> None:
        app = jsync.Worker(stream=stream.name)
        app.handle(subject, group=group, member="b")(lambda msg: None)
        app.start(nc)

    with pytest.raises(errors.ConsumerGroupNotFoundError):
        started("g")
    group = js.create_consumer_group(
        stream.name,
        "g",
        partitions=1,
        filters={f"{stream.name}.*": [1]},
        mappings={"a": [0]},
    )
    with pytest.raises(errors.FilterMismatchError, match="subjects of the group"):
        started("g", f"{stream.name}.other")
    with pytest.raises(errors.ConfigError, match="no member 'b', only a"):
        started("g")
    group.set_mappings({})
    group.add_members("c")
    with pytest.raises(errors.ConfigError, match="more members than its 1 partitions"):
        started("g")
    # `b` would come before `c`, and take its partition.
    assert group.info().members == ("c",)
    js.delete_consumer_group(stream.name, "g")


def test_a_context_manager_is_around_each_call(
    nc: jsync.Connection, js: jsync.JetStream, stream: jsync.Stream
) -> None:
    seen: list[object] = []

    @contextlib.contextmanager
    def around(msg: jsync.JetStreamMsg) -> Iterator[None]:
        seen.append(msg.metadata.num_delivered)
        try:
            yield
        except LookupError:
            seen.append("failed")
            raise

    app = jsync.Worker(
        stream=stream.name, retry=Retry(delays=[0.01], attempts=2), around=around
    )

    @app.handle(f"{stream.name}.a", consumer="w")
    def handle(data: bytes, msg: jsync.JetStreamMsg) -> None:
        if msg.metadata.num_delivered == 1:
            raise LookupError

    publish(js, stream, 1)
    with app.start(nc):
        wait_for(lambda: len(seen) == 3)
        wait_for(lambda: settled(js, stream))
    assert seen == [1, "failed", 2]


def test_a_long_handler_keeps_its_message(
    nc: jsync.Connection, js: jsync.JetStream, stream: jsync.Stream, app: jsync.Worker
) -> None:
    """The worker repeatedly asks the server for more time."""
    calls, go = [], threading.Event()

    @app.handle(f"{stream.name}.a", consumer="w", workers=2, ack_wait=1)
    def handle(msg: jsync.JetStreamMsg) -> None:
        calls.append(msg)
        assert go.wait(LONG)

    with nc.subscribe(f"$JS.ACK.{stream.name}.w.>") as acks:
        publish(js, stream, 1)
        with app.start(nc):
            try:
                assert [acks.next(SOON).data for _ in range(6)] == [b"+WPI"] * 6
            finally:
                go.set()
            wait_for(lambda: settled(js, stream))
    assert len(calls) == 1


def test_no_message_waits_behind_a_handler(
    nc: jsync.Connection, js: jsync.JetStream, stream: jsync.Stream, app: jsync.Worker
) -> None:
    """It would be delivered again without having had a handler."""
    begun, go = threading.Semaphore(0), threading.Event()

    @app.handle(f"{stream.name}.a", consumer="w", workers=2)
    def handle(order: Order) -> None:
        begun.release()
        assert go.wait(LONG)

    publish(js, stream, *range(5))
    with app.start(nc):
        for _ in range(2):
            assert begun.acquire(timeout=SOON)
        nc.flush()
        info = js.consumer(stream.name, "w").info()
        go.set()
        wait_for(lambda: settled(js, stream))
    assert (info.num_ack_pending, info.num_pending) == (2, 3)


def test_prefetched_messages_are_kept_alive(
    nc: jsync.Connection, js: jsync.JetStream, stream: jsync.Stream, app: jsync.Worker
) -> None:
    go, attempts = threading.Event(), list[int]()

    @app.handle(f"{stream.name}.a", consumer="w", max_messages=3, ack_wait=1)
    def handle(msg: jsync.JetStreamMsg) -> None:
        attempts.append(msg.metadata.num_delivered)
        assert go.wait(LONG)

    with nc.subscribe(f"$JS.ACK.{stream.name}.w.>") as acks:
        publish(js, stream, *range(4))
        with app.start(nc):
            extended: dict[str, int] = {}
            while len(extended) < 3 or min(extended.values()) < 4:
                msg = acks.next(SOON)
                assert msg.data == b"+WPI"
                extended[msg.subject] = extended.get(msg.subject, 0) + 1
            assert js.consumer(stream.name, "w").info().num_pending == 1
            go.set()
            wait_for(lambda: settled(js, stream))
    assert attempts == [1] * 4


def test_a_frozen_server_makes_a_worker_unready(
    own_server: StartServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection does not notice it before its pings do."""
    monkeypatch.setattr(worker_module, "CONFIRM_SECONDS", 0.1)
    monkeypatch.setattr(worker_module, "READY_SECONDS", 1.0)
    server = own_server()
    with jsync.connect(server.url) as nc:
        js = nc.jetstream(timeout=0.5)
        js.create_stream(name="S", subjects=["s"])
        app = jsync.Worker(stream="S")
        app.handle("s", consumer="w")(lambda _: None)
        with app.start(nc, js) as running:
            assert running.ready
            server.pause()
            try:
                wait_for(lambda: not running.ready)
                assert nc.is_connected
            finally:
                server.resume()
            wait_for(lambda: running.ready)


@pytest.fixture
def soon_confirmed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers check their consumers often."""
    monkeypatch.setattr(worker_module, "CONFIRM_SECONDS", 0.1)
    monkeypatch.setattr(consumer_module, "CONFIRM_SECONDS", 0.1)


@pytest.mark.usefixtures("soon_confirmed")
def test_a_changed_ack_wait_applies_to_held_messages(
    nc: jsync.Connection, js: jsync.JetStream, stream: jsync.Stream, app: jsync.Worker
) -> None:
    """One message has a handler, and one waits for it."""
    go, attempts = threading.Event(), list[int]()

    @app.handle(f"{stream.name}.a", consumer="w", max_messages=2)
    def handle(msg: jsync.JetStreamMsg) -> None:
        attempts.append(msg.metadata.num_delivered)
        assert go.wait(LONG)

    publish(js, stream, 1, 2)
    with app.start(nc):
        wait_for(lambda: len(attempts) == 1)
        with nc.subscribe(f"$JS.ACK.{stream.name}.w.>") as acks:
            js.update_consumer(stream.name, durable_name="w", ack_wait=1)
            extended: dict[str, int] = {}
            while len(extended) < 2 or min(extended.values()) < 6:
                msg = acks.next(5)  # by the former `ack_wait`, one comes after 10 s
                extended[msg.subject] = extended.get(msg.subject, 0) + 1
        go.set()
        wait_for(lambda: settled(js, stream))
    assert attempts == [1, 1]


@pytest.mark.usefixtures("soon_confirmed")
@pytest.mark.parametrize(("limit", "attempts"), [(1, 1), (2, 1), (3, 2)])
def test_a_changed_max_deliver_strands_no_message(
    nc: jsync.Connection,
    js: jsync.JetStream,
    stream: jsync.Stream,
    dead: jsync.Stream,
    unique: str,
    told: Recorder,
    limit: int,
    attempts: int,
) -> None:
    retry = Retry(delays=[0.01], attempts=5, dead_letter=f"dead.{unique}")
    app = jsync.Worker(stream=stream.name, retry=retry, on_error=told)
    calls: list[int] = []

    @app.handle(f"{stream.name}.a", consumer="w")
    def handle(msg: jsync.JetStreamMsg) -> NoReturn:
        calls.append(msg.metadata.num_delivered)
        raise ValueError

    with app.start(nc) as running:
        js.update_consumer(stream.name, durable_name="w", max_deliver=limit)
        error = told.get()
        assert isinstance(error, errors.ConfigError)
        assert f"max_deliver={limit}" in str(error)
        publish(js, stream, 1)
        assert isinstance(told.get(), errors.RetriesExhaustedError)
        assert running.ready
        js.update_consumer(stream.name, durable_name="w", max_deliver=-1)
        retrier = running._calls[0].retrier
        wait_for(lambda: retrier._policy.attempts == 5)
        publish(js, stream, 2)
        assert isinstance(told.get(), errors.RetriesExhaustedError)
    assert calls == [*range(1, attempts + 1), 1, 2, 3, 4, 5]
    assert dead.info().state.messages == 2
    assert told.waiting == 0


@pytest.mark.usefixtures("soon_confirmed")
def test_a_changed_filter_makes_a_worker_unready(
    nc: jsync.Connection,
    js: jsync.JetStream,
    stream: jsync.Stream,
    app: jsync.Worker,
    told: Recorder,
) -> None:
    app.handle(f"{stream.name}.a", consumer="w")(lambda _: None)
    with app.start(nc) as running:
        js.update_consumer(
            stream.name, durable_name="w", filter_subject=f"{stream.name}.b"
        )
        assert isinstance(told.get(), errors.FilterMismatchError)
        wait_for(lambda: not running.ready)
        js.update_consumer(
            stream.name, durable_name="w", filter_subject=f"{stream.name}.a"
        )
        wait_for(lambda: running.ready)
    assert told.waiting == 0


def test_a_member_without_partitions_is_not_ready(
    nc: jsync.Connection,
    js: jsync.JetStream,
    stream: jsync.Stream,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(worker_module, "CONFIRM_SECONDS", 0.1)
    subjects = f"{stream.name}.*"
    group = js.create_consumer_group(
        stream.name, "g", partitions=2, filters={subjects: [1]}
    )
    app = jsync.Worker(stream=stream.name)
    app.handle(subjects, group="g", member="a")(lambda _: None)
    with app.start(nc) as running:
        wait_for(lambda: running.ready)
        group.delete_members("a")
        wait_for(lambda: not running.ready)
        group.add_members("a")
        wait_for(lambda: running.ready)
    js.delete_consumer_group(stream.name, "g")


def test_a_late_group_handler_keeps_its_message(
    nc: jsync.Connection, js: jsync.JetStream, stream: jsync.Stream, told: Recorder
) -> None:
    """Another member would handle the same key at the same time."""
    subjects = f"{stream.name}.*"
    js.create_consumer_group(stream.name, "g", partitions=1, filters={subjects: [1]})
    app, go = jsync.Worker(stream=stream.name, on_error=told), threading.Event()

    @app.handle(subjects, group="g", member="a", time_limit=0.1, ack_wait=1)
    def handle(data: bytes) -> None:
        assert go.wait(LONG)

    with nc.subscribe(f"$JS.ACK.{stream.name}-g.a.>") as acks:
        with app.start(nc):
            publish(js, stream, 1)
            assert isinstance(told.get(), errors.HandlerTimeoutError)
            assert [acks.next(SOON).data for _ in range(4)] == [b"+WPI"] * 4
            go.set()
            while (data := acks.next(SOON).data) != b"+ACK":
                assert data == b"+WPI"
    assert not told.waiting
    js.delete_consumer_group(stream.name, "g")


def test_a_handler_that_takes_too_long_has_failed(
    nc: jsync.Connection,
    js: jsync.JetStream,
    stream: jsync.Stream,
    dead: jsync.Stream,
    app: jsync.Worker,
    told: Recorder,
) -> None:
    go = threading.Event()

    @app.handle(f"{stream.name}.a", consumer="w", workers=3, time_limit=0.1)
    def handle(order: Order) -> None:
        if order.id == 1:
            assert go.wait(LONG)

    publish(js, stream, 1, 2, 3)
    with app.start(nc) as running:
        try:
            kinds = [type(told.get()) for _ in range(3)]
            assert sorted(kind.__name__ for kind in kinds) == [
                *(
                    "HandlerTimeoutError",
                    "HandlerTimeoutError",
                    "RetriesExhaustedError",
                ),
            ]
            wait_for(lambda: settled(js, stream))
        finally:
            go.set()
        figures = running.report().consumers[f"{stream.name}.w"]
    assert (figures.timeouts, figures.dead) == (2, 1)
    assert dead.info().state.messages == 1


def test_time_limits_still_work_after_a_thread_shortage(
    nc: jsync.Connection,
    js: jsync.JetStream,
    stream: jsync.Stream,
    app: jsync.Worker,
    told: Recorder,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    go, started = threading.Event(), threading.Event()

    def none_left(**_: Any) -> NoReturn:
        started.set()
        raise RuntimeError("can't start new thread")

    @app.handle(f"{stream.name}.a", consumer="w", workers=2, time_limit=0.1)
    def handle(order: Order) -> None:
        assert go.wait(LONG)

    with app.start(nc):
        try:
            with monkeypatch.context() as patch:
                patch.setattr(
                    worker_runner, "threading", SimpleNamespace(Thread=none_left)
                )
                publish(js, stream, 1)
                assert started.wait(LONG)
                assert isinstance(told.get(), errors.HandlerTimeoutError)
            publish(js, stream, 2)
            assert isinstance(told.get(), errors.HandlerTimeoutError)
        finally:
            go.set()


def test_a_stop_lets_handlers_finish_the_prefetched_messages(
    nc: jsync.Connection, js: jsync.JetStream, stream: jsync.Stream, app: jsync.Worker
) -> None:
    begun, go, done = threading.Event(), threading.Event(), []

    @app.handle(f"{stream.name}.a", consumer="w", max_messages=3)
    def handle(order: Order) -> None:
        begun.set()
        assert go.wait(LONG)
        done.append(order.id)

    publish(js, stream, 1, 2, 3)
    running = app.start(nc)
    assert begun.wait(SOON)
    wait_for(lambda: js.consumer(stream.name, "w").info().num_ack_pending == 3)
    threading.Timer(0.1, go.set).start()
    running.stop(LONG)
    assert done == [1, 2, 3]
    assert running.wait(0)
    wait_for(lambda: settled(js, stream))


def test_a_handler_may_stop_its_worker_and_finish(
    nc: jsync.Connection, js: jsync.JetStream, stream: jsync.Stream, app: jsync.Worker
) -> None:
    done: list[int] = []
    raised, hook = Recorder(), Recorder()
    app.on_stop(hook)

    @app.handle(f"{stream.name}.a", consumer="w", max_messages=3)
    def handle(order: Order) -> None:
        if order.id == 1:
            wait_for(lambda: js.consumer(stream.name, "w").info().num_ack_pending == 3)
            try:
                running.stop(LONG)
            except errors.DrainTimeoutError as late:
                raised(late)
            assert not hook.waiting
        done.append(order.id)

    running = app.start(nc)
    publish(js, stream, 1, 2, 3)
    assert running.wait(SOON)
    assert (done, raised.waiting, hook.waiting) == ([1, 2, 3], 0, 1)
    wait_for(lambda: settled(js, stream))


def test_a_handler_cannot_wait_for_its_own_worker(
    nc: jsync.Connection, js: jsync.JetStream, stream: jsync.Stream, app: jsync.Worker
) -> None:
    raised = Recorder()

    @app.handle(f"{stream.name}.a", consumer="w")
    def handle(order: Order) -> None:
        try:
            running.wait(LONG)
        except errors.BlockingCallError as error:
            raised(error)

    with app.start(nc) as running:
        publish(js, stream, 1)
        assert "stop()" in str(raised.get())


def test_a_second_stop_waits_for_the_first_one(
    nc: jsync.Connection, js: jsync.JetStream, stream: jsync.Stream, app: jsync.Worker
) -> None:
    begun, go = threading.Event(), threading.Event()
    done: list[int] = []

    @app.handle(f"{stream.name}.a", consumer="w")
    def handle(order: Order) -> None:
        begun.set()
        assert go.wait(LONG)
        done.append(order.id)

    publish(js, stream, 1)
    running = app.start(nc)
    assert begun.wait(SOON)
    first = Thread(running.stop, LONG)
    wait_for(lambda: not running.ready)
    with pytest.raises(errors.DrainTimeoutError):
        running.stop(0.1)
    second = Thread(running.stop, LONG)
    second.wait_until_blocked()
    go.set()
    second.result()
    assert done == [1]
    first.result()
    running.stop(0)


def test_a_hook_may_stop_an_already_stopping_worker(
    nc: jsync.Connection, app: jsync.Worker, stream: jsync.Stream
) -> None:
    app.handle(f"{stream.name}.a", consumer="w")(lambda _: None)
    again = Recorder()

    @app.on_stop
    def stop() -> None:
        running.stop(LONG)
        again("returned")

    running = app.start(nc)
    Thread(running.stop, LONG).result()
    assert again.get() == "returned"


def test_a_hook_cannot_wait_for_its_own_worker(
    nc: jsync.Connection, app: jsync.Worker, stream: jsync.Stream
) -> None:
    app.handle(f"{stream.name}.a", consumer="w")(lambda _: None)
    raised = Recorder()

    @app.on_stop
    def stop() -> None:
        try:
            running.wait(LONG)
        except errors.BlockingCallError as error:
            raised(error)

    running = app.start(nc)
    Thread(running.stop, LONG).result()
    assert "on_stop" in str(raised.get())
    assert running.wait(0)


def test_a_handler_that_outlasts_its_stop_is_reported(
    nc: jsync.Connection,
    js: jsync.JetStream,
    stream: jsync.Stream,
    app: jsync.Worker,
    told: Recorder,
) -> None:
    go = threading.Event()

    @app.handle(f"{stream.name}.a", consumer="w")
    def handle(order: Order) -> None:
        running.stop(0.1)
        assert go.wait(LONG)

    running = app.start(nc)
    publish(js, stream, 1)
    try:
        assert isinstance(told.get(), errors.DrainTimeoutError)
        assert running.wait(SOON)
    finally:
        go.set()


def test_a_drain_finishes_handlers_and_ends_the_worker(
    server: LocalServer, js: jsync.JetStream, stream: jsync.Stream, app: jsync.Worker
) -> None:
    begun, go = threading.Event(), threading.Event()
    done: list[int] = []

    @app.handle(f"{stream.name}.a", consumer="w", max_messages=5)
    def handle(order: Order) -> None:
        begun.set()
        assert go.wait(SOON)
        done.append(order.id)

    publish(js, stream, *range(5))
    with jsync.connect(server.url) as nc:
        running = app.start(nc)
        assert begun.wait(SOON)
        wait_for(lambda: js.consumer(stream.name, "w").info().num_ack_pending == 5)
        draining = Thread(nc.drain)
        draining.wait_until_blocked()
        go.set()
        draining.result()
    assert done == list(range(5))
    assert settled(js, stream)
    with pytest.raises(errors.ConnectionClosedError):
        running.wait(SOON)
    running.stop()


def test_ctrl_c_in_a_stop_ends_other_waits(
    nc: jsync.Connection, js: jsync.JetStream, stream: jsync.Stream, app: jsync.Worker
) -> None:
    begun, go = threading.Event(), threading.Event()

    @app.handle(f"{stream.name}.a", consumer="w")
    def handle(order: Order) -> None:
        begun.set()
        assert go.wait(LONG)

    def interrupt() -> None:
        wait_for(lambda: not running.ready)
        _thread.interrupt_main()

    publish(js, stream, 1)
    running = app.start(nc)
    assert begun.wait(SOON)
    waiting = Thread(running.wait, LONG)
    with pytest.raises(KeyboardInterrupt):  # noqa: PT012 (Ctrl-C may come at once)
        Thread(interrupt)
        running.stop(LONG)
    assert waiting.result()
    go.set()


def test_a_late_stop_returns_messages_without_a_handler(
    nc: jsync.Connection, js: jsync.JetStream, stream: jsync.Stream, app: jsync.Worker
) -> None:
    begun, go = threading.Event(), threading.Event()

    @app.handle(f"{stream.name}.a", consumer="w", max_messages=3)
    def handle(order: Order) -> None:
        begun.set()
        assert go.wait(LONG)

    publish(js, stream, 1, 2, 3)
    running = app.start(nc)
    assert begun.wait(SOON)
    wait_for(lambda: js.consumer(stream.name, "w").info().num_ack_pending == 3)
    with pytest.raises(errors.DrainTimeoutError):
        running.stop(0.1)
    given_back = js.consumer(stream.name, "w").fetch(2, timeout=SOON)
    assert [json.loads(msg.data)["id"] for msg in given_back] == [2, 3]
    go.set()


def test_hooks_run_around_the_messages(
    nc: jsync.Connection, js: jsync.JetStream, stream: jsync.Stream, app: jsync.Worker
) -> None:
    order: list[object] = []
    app.on_start(lambda context: order.append(type(context)))
    app.on_start(lambda _: order.append("second"))
    app.on_stop(lambda: order.append("last"))
    app.on_stop(lambda: order.append("almost"))
    app.handle(f"{stream.name}.a", consumer="w")(lambda _: order.append("message"))
    publish(js, stream, 1)
    with app.start(nc):
        wait_for(lambda: "message" in order)
    assert order == [jsync.JetStream, "second", "message", "almost", "last"]


def test_a_failed_start_ends_the_running_parts(
    nc: jsync.Connection, stream: jsync.Stream, app: jsync.Worker
) -> None:
    ended = Recorder()
    app.on_stop(ended)
    app.handle(f"{stream.name}.a", consumer="w", retry=Retry())(lambda msg: None)
    app.handle("a", stream=f"{stream.name}X", consumer="w")(lambda msg: None)
    with pytest.raises(errors.StreamNotFoundError):
        app.start(nc)
    assert ended.waiting == 1


def test_dead_letters_without_a_stream_prevent_the_start(
    nc: jsync.Connection, stream: jsync.Stream
) -> None:
    for subject, words in (
        (f"nobody.{stream.name}", "no stream takes"),
        (f"{stream.name}.dead", "its own dead letters"),
    ):
        app = jsync.Worker(stream=stream.name, retry=Retry(dead_letter=subject))
        app.handle(f"{stream.name}.a", consumer="w")(lambda msg: None)
        with pytest.raises(errors.ConfigError, match=words):
            app.start(nc)


def test_a_subject_outside_of_the_stream_is_refused(
    nc: jsync.Connection, js: jsync.JetStream, stream: jsync.Stream
) -> None:
    def start(subject: str) -> None:
        app = jsync.Worker(stream=stream.name)
        app.handle(subject, consumer="w")(lambda _: None)
        with app.start(nc):
            stream.consumer("w").delete()

    with pytest.raises(errors.FilterMismatchError, match="gets no message"):
        start("elsewhere.a")
    assert not list(stream.consumers())
    start(f"*.{stream.name}")  # some of its messages may be for the handler
    js.publish(f"{stream.name}.old", b"1")
    js.update_stream(name=stream.name, subjects=[f"{stream.name}.new"])
    start(f"{stream.name}.old")  # a message from before
    with pytest.raises(errors.FilterMismatchError):
        start(f"{stream.name}.other")


@pytest.mark.parametrize("kind", ["mirror", "sources", "subject_transform"])
def test_subjects_of_copied_streams_are_not_compared(
    nc: jsync.Connection, js: jsync.JetStream, stream: jsync.Stream, kind: str
) -> None:
    name = f"{stream.name}-copy"
    fields: dict[str, dict[str, Any]] = {
        "mirror": {"mirror": {"name": stream.name}},
        "sources": {"sources": [{"name": stream.name}], "subjects": [name]},
        "subject_transform": {
            "subjects": [name],
            "subject_transform": {"src": name, "dest": f"{stream.name}.a"},
        },
    }
    copied = js.create_stream(name=name, **fields[kind])
    try:
        app = jsync.Worker(stream=name)
        app.handle(f"{stream.name}.a", consumer="w")(lambda _: None)
        with app.start(nc) as running:
            wait_for(lambda: running.ready)
    finally:
        copied.delete()


def test_a_consumer_of_more_subjects_is_refused(
    nc: jsync.Connection, stream: jsync.Stream
) -> None:
    both = [f"{stream.name}.a", f"{stream.name}.b"]
    stream.create_consumer(durable_name="w", filter_subjects=both)
    app = jsync.Worker(stream=stream.name)
    app.handle(both[0], consumer="w")(lambda _: None)
    with pytest.raises(errors.FilterMismatchError, match=r"gets .*a, .*b, and"):
        app.start(nc)


def test_an_existing_consumer_is_used_as_it_is(
    nc: jsync.Connection, js: jsync.JetStream, stream: jsync.Stream
) -> None:
    stream.create_consumer(
        durable_name="w", filter_subject=f"{stream.name}.a", ack_wait=7
    )
    app, done = jsync.Worker(stream=stream.name), threading.Event()
    app.handle(f"{stream.name}.a", consumer="w")(lambda _: done.set())
    publish(js, stream, 1)
    with app.start(nc):
        assert done.wait(SOON)
    assert stream.consumer("w").config.ack_wait == 7
    other = jsync.Worker(stream=stream.name)
    other.handle(f"{stream.name}.b", consumer="w")(lambda _: None)
    with pytest.raises(errors.FilterMismatchError):
        other.start(nc)


def test_a_deleted_consumer_ends_the_worker_and_raises(
    nc: jsync.Connection, js: jsync.JetStream, stream: jsync.Stream, app: jsync.Worker
) -> None:
    app.handle(f"{stream.name}.a", consumer="w", retry=Retry())(lambda _: None)
    with contextlib.closing(app.start(nc)) as running:
        consumer = js.consumer(stream.name, "w")
        wait_for(lambda: consumer.info().num_waiting == 1)
        js.delete_consumer(stream.name, "w")
        for _ in range(2):
            with pytest.raises(errors.ConsumerDeletedError):
                running.wait(SOON)
        assert not running.ready
    with pytest.raises(errors.ConsumerDeletedError):
        running.wait(SOON)


def test_an_on_error_that_raises_ends_nothing(
    nc: jsync.Connection, js: jsync.JetStream, stream: jsync.Stream
) -> None:
    def raise_it(error: Exception) -> None:
        raise error

    app, go = jsync.Worker(stream=stream.name, on_error=raise_it), threading.Event()
    retry = Retry(delays=[0], attempts=2)

    @app.handle(
        f"{stream.name}.a", consumer="w", retry=retry, time_limit=0.05, workers=4
    )
    def handle(order: Order) -> None:
        if order.id == 1:
            assert go.wait(LONG)
        raise LookupError

    publish(js, stream, 1, 2, 3)
    with app.start(nc) as running:

        def figures() -> tuple[int, int]:
            found = running.report().consumers[f"{stream.name}.w"]
            return found.dropped, found.timeouts

        # Every message ends. Both attempts of the first are too late, and others may be as well.
        wait_for(lambda: settled(js, stream) and figures() >= (3, 2))
        go.set()
    assert figures()[0] == 3


def test_logs_name_the_message_in_hand(
    nc: jsync.Connection, js: jsync.JetStream, stream: jsync.Stream, app: jsync.Worker
) -> None:
    lines: list[dict[str, Any]] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(json.loads(self.format(record)))

    log, handler = logging.getLogger("test.of.a.handler"), Handler()
    handler.setFormatter(JSONFormatter())
    log.addHandler(handler)
    log.propagate = False  # a report of pytest cannot contain a lone surrogate
    app.handle(f"{stream.name}.a", consumer="w", retry=Retry())(
        lambda _: log.warning("a %s \udc80\x1b", "word")
    )
    publish(js, stream, 1)
    with app.start(nc):
        wait_for(lambda: settled(js, stream))
    log.warning("outside")
    about = {"stream": stream.name, "consumer": "w", "subject": f"{stream.name}.a"}
    assert lines[0].items() >= (about | {"sequence": 1, "attempt": 1}).items()
    assert lines[0]["text"] == "a word \udc80\x1b"
    assert "subject" not in lines[1]


def test_text_logs_name_the_message_in_hand(
    nc: jsync.Connection, js: jsync.JetStream, stream: jsync.Stream, app: jsync.Worker
) -> None:
    lines: list[str] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(self.format(record))

    log, handler = logging.getLogger("test.of.text"), Handler()
    handler.setFormatter(TextFormatter())
    log.addHandler(handler)
    log.propagate = False
    app.handle(f"{stream.name}.a", consumer="w", retry=Retry())(
        lambda _: log.warning("failed")
    )
    publish(js, stream, 1)
    with app.start(nc):
        wait_for(lambda: settled(js, stream))
    log.warning("outside")
    assert lines == [f"failed ({stream.name} 1)", "outside"]


def test_messages_that_the_server_strands_become_dead_letters(
    nc: jsync.Connection,
    js: jsync.JetStream,
    stream: jsync.Stream,
    dead: jsync.Stream,
    app: jsync.Worker,
    told: Recorder,
) -> None:
    """As if a process had died in each delivery of the message."""
    consumer = stream.create_consumer(
        durable_name="w", filter_subject=f"{stream.name}.a", max_deliver=3
    )
    app.handle(f"{stream.name}.a", consumer="w")(lambda _: None)
    js.publish(f"{stream.name}.a", b"lost", headers={"Trace": "x"})
    for _ in range(3):
        consumer.next(SOON).nak()
    with app.start(nc) as one, app.start(nc) as other:
        assert isinstance(told.get(), errors.RetriesExhaustedError)
        wait_for(lambda: settled(js, stream))
        counts = [
            each.report().consumers[f"{stream.name}.w"].dead for each in (one, other)
        ]
    assert sum(counts) == 1
    letter = dead.get_message(1)
    assert letter.data == b"lost"
    headers = letter.headers or jsync.Headers()
    assert headers["Trace"] == "x"
    assert "max_deliver" in headers["Dead-Letter-Reason"]
    assert dead.info().state.messages == 1


def test_a_dead_letter_leaves_out_unreadable_headers(
    server: LocalServer,
    nc: jsync.Connection,
    stream: jsync.Stream,
    dead: jsync.Stream,
    app: jsync.Worker,
    told: Recorder,
) -> None:
    @app.handle(f"{stream.name}.a", consumer="w")
    def handle(msg: jsync.JetStreamMsg) -> None:
        raise ValueError(f"headers: {msg.headers}")

    publish_block(server.url, f"{stream.name}.a", b"no headers", b"data")
    with app.start(nc):
        while not isinstance(told.get(), errors.RetriesExhaustedError):
            pass
    letter = dead.get_message(1)
    headers = letter.headers or jsync.Headers()
    assert letter.data == b"data"
    assert headers["Dead-Letter-Reason"] == "ValueError: headers: None"


def test_stranded_messages_with_unreadable_headers_become_dead_letters(
    server: LocalServer,
    nc: jsync.Connection,
    js: jsync.JetStream,
    stream: jsync.Stream,
    dead: jsync.Stream,
    app: jsync.Worker,
    told: Recorder,
) -> None:
    consumer = stream.create_consumer(
        durable_name="w", filter_subject=f"{stream.name}.a", max_deliver=3
    )
    app.handle(f"{stream.name}.a", consumer="w")(lambda _: None)
    publish_block(server.url, f"{stream.name}.a", b"no headers", b"odd")
    js.publish(f"{stream.name}.a", b"good")
    for _ in range(3):
        for msg in consumer.fetch(2, timeout=SOON):
            msg.nak()
    with app.start(nc):
        kinds = [type(told.get()) for _ in range(2)]
    assert kinds == [errors.RetriesExhaustedError] * 2
    assert {dead.get_message(n).data for n in (1, 2)} == {b"odd", b"good"}


def test_messages_stranded_without_a_listener_become_dead_letters(
    nc: jsync.Connection, js: jsync.JetStream, dead: jsync.Stream, unique: str
) -> None:
    """The server publishes its advisory once, and keeps the message of a work queue."""
    stream = js.create_stream(
        name=f"{unique}Q", subjects=[f"{unique}Q.*"], retention="workqueue"
    )
    consumer = stream.create_consumer(
        durable_name="w", filter_subject=f"{unique}Q.*", max_deliver=3
    )
    for subject in "ab":
        js.publish(f"{unique}Q.{subject}", subject.encode())
    strand(consumer, 2)
    done = Recorder()
    retry = Retry(delays=[0.01], attempts=2, dead_letter=f"dead.{unique}")
    app = jsync.Worker(stream=stream.name, retry=retry)
    app.handle(f"{unique}Q.*", consumer="w")(lambda msg: done(msg.data))
    with app.start(nc):
        wait_for(lambda: dead.info().state.messages == 2)
        js.publish(f"{unique}Q.a", b"good")
        assert done.get() == b"good"
        wait_for(lambda: stream.info().state.messages == 0)
    assert [dead.get_message(each).data for each in (1, 2)] == [b"a", b"b"]
    stream.delete()


def test_a_stranded_message_too_large_is_reported_once(
    nc: jsync.Connection,
    js: jsync.JetStream,
    dead: jsync.Stream,
    unique: str,
    told: Recorder,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A later search stores its dead letter, once that fits."""
    monkeypatch.setattr(dead_letters, "SEARCH_SECONDS", 0.0)
    monkeypatch.setattr(dead_letters, "RETRY_INTERVAL", 0.05)
    dead.update(max_msg_size=1000)
    stream = js.create_stream(
        name=f"{unique}Q", subjects=[f"{unique}Q"], retention="workqueue"
    )
    js.publish(stream.name, b"x" * 900)
    strand(stream.create_consumer(durable_name="w", max_deliver=3), 1)
    retry = Retry(delays=[0.01], attempts=2, dead_letter=f"dead.{unique}")
    app = jsync.Worker(stream=stream.name, retry=retry, on_error=told)
    app.handle(">", consumer="w")(lambda _: None)
    with app.start(nc) as running:
        wait_for(lambda: running.report().consumers[f"{stream.name}.w"].kept >= 3)
        dead.update(max_msg_size=-1)
        kinds = [type(told.get()) for _ in range(2)]
        wait_for(lambda: stream.info().state.messages == 0)
    assert kinds == [errors.DeadLetterError, errors.RetriesExhaustedError]
    assert dead.get_message(1).data == b"x" * 900
    stream.delete()


def test_each_round_buries_a_stranded_message_once(
    nc: jsync.Connection,
    js: jsync.JetStream,
    dead: jsync.Stream,
    unique: str,
    told: Recorder,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each search finds them again, while their dead letters cannot be stored."""
    dead.update(max_msgs=1, discard="new")
    js.publish(f"dead.{unique}", b"full")
    stream = js.create_stream(
        name=f"{unique}Q", subjects=[f"{unique}Q"], retention="workqueue"
    )
    for _ in range(2):
        js.publish(stream.name)
    strand(stream.create_consumer(durable_name="w", max_deliver=3), 2)
    search, rounds = MaxDeliveriesListener._search, 0

    def counted(self: MaxDeliveriesListener) -> dict[int, MaxDeliveries]:
        nonlocal rounds
        rounds += 1
        return search(self)

    monkeypatch.setattr(MaxDeliveriesListener, "_search", counted)
    monkeypatch.setattr(dead_letters, "SEARCH_SECONDS", 0.0)
    monkeypatch.setattr(dead_letters, "RETRY_INTERVAL", 0.02)
    retry = Retry(attempts=2, dead_letter=f"dead.{unique}")
    app = jsync.Worker(stream=stream.name, retry=retry, on_error=told)
    app.handle(">", consumer="w")(lambda _: None)
    with app.start(nc):
        for buried in range(1, 21):
            assert isinstance(told.get(), errors.DeadLetterError)
            assert buried <= 2 * rounds
    stream.delete()


def test_a_message_acknowledged_just_now_is_not_buried(
    nc: jsync.Connection,
    js: jsync.JetStream,
    dead: jsync.Stream,
    unique: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The servers count its ack before the stream removes it."""
    stream = js.create_stream(
        name=f"{unique}Q", subjects=[f"{unique}Q"], retention="workqueue"
    )
    js.publish(stream.name)
    consumer = stream.create_consumer(durable_name="w", max_deliver=3)
    consumer.next(SOON).nak()
    held = consumer.next(SOON)
    search, looks = MaxDeliveriesListener._search, 0

    def look(self: MaxDeliveriesListener) -> dict[int, MaxDeliveries]:
        nonlocal looks
        looks += 1
        if looks > 1:
            return search(self)
        given_up = MaxDeliveries(
            stream=stream.name, consumer="w", stream_seq=1, deliveries=3
        )
        return {1: given_up}

    monkeypatch.setattr(MaxDeliveriesListener, "_search", look)
    monkeypatch.setattr(dead_letters, "SEARCH_SECONDS", 0.0)
    monkeypatch.setattr(dead_letters, "RETRY_INTERVAL", 0.02)
    retry = Retry(attempts=2, dead_letter=f"dead.{unique}")
    app = jsync.Worker(stream=stream.name, retry=retry)
    app.handle(">", consumer="w")(lambda _: None)
    with app.start(nc):
        wait_for(lambda: looks > 3)
        assert stream.info().state.messages == 1
        held.ack_sync()
    assert dead.info().state.messages == 0
    stream.delete()


def test_a_forged_advisory_buries_no_message_in_hand(
    nc: jsync.Connection,
    js: jsync.JetStream,
    dead: jsync.Stream,
    unique: str,
    told: Recorder,
) -> None:
    stream = js.create_stream(
        name=f"{unique}Q", subjects=[f"{unique}Q"], retention="workqueue"
    )
    js.publish(stream.name)
    consumer = stream.create_consumer(durable_name="w", max_deliver=3)
    consumer.next(SOON).nak()
    begun, release = threading.Event(), threading.Event()
    retry = Retry(attempts=2, dead_letter=f"dead.{unique}")
    app = jsync.Worker(stream=stream.name, retry=retry, on_error=told)

    @app.handle(">", consumer="w")
    def handle(_: jsync.JetStreamMsg) -> None:
        begun.set()
        release.wait(SOON)

    kind = "io.nats.jetstream.advisory.v1.max_deliver"
    about = {"stream": stream.name, "consumer": "w", "stream_seq": 1, "deliveries": 3}
    forged = json.dumps({"type": kind} | about).encode()
    where = f"$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.{stream.name}.w"
    with app.start(nc):
        assert begun.wait(SOON)
        nc.publish(where, forged)
        nc.publish(where, b"the next one")
        assert isinstance(told.get(), errors.JetStreamError)
        assert stream.info().state.messages == 1
        release.set()
        wait_for(lambda: stream.info().state.messages == 0)
    assert dead.info().state.messages == 0
    stream.delete()


def test_advisories_are_heeded_where_searches_are_forbidden(
    own_server: StartServer, told: Recorder
) -> None:
    server = own_server(
        config="""jetstream: enabled, no_auth_user: all, authorization { users: [
            { user: all, password: x },
            { user: few, password: x, permissions: { publish: {
                deny: "$JS.API.STREAM.MSG.GET.>" } } } ] }"""
    )
    with (
        jsync.connect(server.url) as nc,
        jsync.connect(server.url, user="few", password="x") as few,
    ):
        js = nc.jetstream()
        stream = js.create_stream(
            name="Q", subjects=["q"], retention="workqueue", allow_direct=True
        )
        dead = js.create_stream(name="DEAD", subjects=["dead"])
        js.publish("q")
        subject = "$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.Q.w"
        with nc.subscribe(subject) as advisories:
            strand(stream.create_consumer(durable_name="w", max_deliver=3), 1)
            advisory = advisories.next(SOON)
        retry = Retry(attempts=2, dead_letter="dead")
        app = jsync.Worker(stream="Q", retry=retry, on_error=told)
        app.handle(">", consumer="w")(lambda _: None)
        with app.start(few):
            assert isinstance(told.get(), errors.PermissionsError)
            nc.publish(subject, advisory.data)
            wait_for(lambda: dead.info().state.messages == 1)


def test_dead_letters_continue_after_an_unreadable_advisory(
    nc: jsync.Connection,
    js: jsync.JetStream,
    stream: jsync.Stream,
    dead: jsync.Stream,
    app: jsync.Worker,
    told: Recorder,
) -> None:
    consumer = stream.create_consumer(
        durable_name="w", filter_subject=f"{stream.name}.a", max_deliver=3
    )
    app.handle(f"{stream.name}.a", consumer="w")(lambda _: None)

    def advise(**fields: object) -> bytes:
        kind = "io.nats.jetstream.advisory.v1.max_deliver"
        about = {"type": kind, "stream": stream.name, "consumer": "w", "deliveries": 3}
        return json.dumps(about | fields).encode()

    ids = [js.publish(f"{stream.name}.a", b"lost").seq for _ in range(2)]
    strand(consumer, 2)
    undelivered = js.publish(f"{stream.name}.b", b"not delivered").seq
    bad = [
        b"",
        b"[" * 5000,
        advise(),
        advise(stream_seq=-1),
        advise(stream_seq=1 << 64),
        advise(stream_seq=undelivered),
        advise(stream_seq=ids[0], deliveries=2),
        advise(stream_seq=ids[0], timestamp="2026-01-01T00:00:00Z"),
    ]
    unknown = advise(stream_seq=(1 << 64) - 1)
    other_domain = advise(stream_seq=ids[0], domain="other")
    good = [advise(stream_seq=each) for each in ids]
    with app.start(nc):
        for data in (*bad, unknown, other_domain, *good):
            where = f"CONSUMER.MAX_DELIVERIES.{stream.name}.w"
            nc.publish(f"$JS.EVENT.ADVISORY.{where}", data)
        kinds = [type(told.get()) for _ in (*bad, *ids)]
    # Each one is reported once: nothing that cannot be stored waits for another attempt.
    assert kinds == [errors.JetStreamError] * 8 + [errors.RetriesExhaustedError] * 2
    assert told.waiting == 0
    assert dead.info().state.messages == 2


def test_an_advisory_of_another_domain_deletes_no_message(
    own_server: StartServer,
) -> None:
    """The hub and the leaf node have streams and consumers of the same names."""
    port = free_port()
    hub = own_server(
        config=f'jetstream {{ domain: hub }}\nleafnodes {{ listen: "127.0.0.1:{port}" }}'
    )
    leaf = own_server(
        config=f"""jetstream {{ domain: leaf }}
        leafnodes {{ remotes: [{{ url: "nats-leaf://127.0.0.1:{port}" }}], reconnect: 1 }}"""
    )
    told, release = Recorder(), threading.Event()
    with jsync.connect(hub.url) as nc, jsync.connect(leaf.url) as leaf_nc:
        js, far = nc.jetstream(), leaf_nc.jetstream()
        wait_for(lambda: answers(leaf_nc.jetstream(domain="hub")))
        for each, subject in ((js, "hub"), (far, "leaf")):
            each.create_stream(name="W", subjects=[subject], retention="workqueue")
            each.create_consumer(
                "W", durable_name="w", max_deliver=3, filter_subject=subject
            )
            each.publish(subject)
            each.consumer("W", "w").next(SOON).nak()
        js.create_stream(name="DEAD", subjects=["dead"])
        retry = Retry(attempts=2, dead_letter="dead")
        app = jsync.Worker(stream="W", retry=retry, on_error=told)
        app.handle("hub", consumer="w")(lambda _: release.wait(SOON))
        with (
            js.advisories(MaxDeliveries) as heard,
            nc.jetstream(domain="hub").advisories(MaxDeliveries) as own,
            app.start(nc),
        ):
            for _ in range(2):
                far.consumer("W", "w").next(SOON).nak()
            with contextlib.suppress(errors.TimeoutError):
                far.consumer("W", "w").next(0.1)  # the leaf node gives its message up
            advisory = heard.next(SOON)
            assert (advisory.domain, advisory.stream_seq) == ("leaf", 1)
            nc.publish(
                "$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.W.w", b"the next one"
            )
            assert isinstance(told.get(), errors.JetStreamError)
            assert js.stream("W").info().state.messages == 1
            assert js.stream("DEAD").info().state.messages == 0
            with pytest.raises(errors.JetStreamError, match="not an advisory"):
                own.next(SOON)
            release.set()


SCRIPT = """
    import os, signal, sys, jsync
    url, stream = sys.argv[1:]
    app = jsync.Worker(stream=stream, connect=lambda: jsync.connect(url))
    @app.handle(f"{stream}.a", consumer="w")
    def handle(msg):
        os.kill(os.getpid(), signal.SIGTERM)
    @app.on_stop
    def stop():
        print("stopped", flush=True)
    app.run(grace=10)
"""


def test_a_program_runs_a_worker_until_sigterm(
    server: LocalServer, js: jsync.JetStream, stream: jsync.Stream
) -> None:
    publish(js, stream, 1)
    with Child(SCRIPT, server.url, stream.name) as child:
        assert child.finish() == (0, "stopped\n", "")
    assert settled(js, stream)


WAITING = """
    import sys, time, jsync
    url, stream, wait = sys.argv[1:]
    app = jsync.Worker(stream=stream, connect=lambda: jsync.connect(url))
    @app.on_start
    def start(js):
        print("waits", flush=True)
        if wait == "lock":
            js.key_value(f"{stream}L").lock("boot", ttl=10).acquire()
        else:
            time.sleep(600)
    @app.on_stop
    def stop():
        print("stopped", flush=True)
    app.handle(f"{stream}.a", consumer="w")(lambda data: None)
    app.run(grace=60)
"""


def test_sigterm_ends_a_worker_whose_on_start_waits(
    server: LocalServer, js: jsync.JetStream, stream: jsync.Stream
) -> None:
    bucket = f"{stream.name}L"
    kv = js.create_key_value(bucket=bucket, limit_marker_ttl=60)
    with (
        kv.lock("boot", ttl=10),
        Child(WAITING, server.url, stream.name, "lock") as child,
    ):
        assert child.line() == "waits"
        child.process.send_signal(signal.SIGTERM)
        assert child.finish() == (0, "stopped\n", "")
    js.delete_key_value(bucket)
    with Child(WAITING, server.url, stream.name, "other") as child:
        assert child.line() == "waits"
        child.process.send_signal(signal.SIGTERM)
        child.process.send_signal(signal.SIGINT)
        code, output, said = child.finish()
        assert (code, output) == (0, "")
        assert "does not end" in said


def test_a_worker_starts_within_limits_of_the_stream(
    nc: jsync.Connection, js: jsync.JetStream, unique: str, told: Recorder
) -> None:
    limits = jsync.ConsumerLimits(max_ack_pending=10)
    stream = js.create_stream(
        name=unique, subjects=[f"{unique}.>"], consumer_limits=limits
    )
    handled = Recorder()
    app = jsync.Worker(stream=unique, on_error=told)

    @app.handle(f"{unique}.a", consumer="w")
    def handle(order: Order) -> None:
        handled(order.id)

    publish(js, stream, *range(20))
    running = app.start(nc)
    assert [handled.get() for _ in range(20)] == list(range(20))
    running.stop()
    assert stream.consumer("w").config.max_ack_pending == 10
    stream.delete()


def test_a_dead_letter_stored_late_has_its_reason(
    nc: jsync.Connection,
    js: jsync.JetStream,
    stream: jsync.Stream,
    dead: jsync.Stream,
    app: jsync.Worker,
    told: Recorder,
) -> None:
    js.publish(f"dead.{dead.name.removesuffix('DEAD')}", b"full")
    dead.update(max_msgs=1, discard="new")

    @app.handle(f"{stream.name}.a", consumer="w")
    def handle(order: Order) -> None:
        raise LookupError("no such customer")

    publish(js, stream, 1)
    with app.start(nc):
        # The handler has the message up to four times, and the fifth time it has not.
        wait_for(lambda: told.waiting >= 4)
        dead.update(max_msgs=10)
        wait_for(lambda: settled(js, stream))
    letter = dead.get_message(2)
    assert letter.headers is not None
    assert letter.headers["Dead-Letter-Reason"] == "LookupError: no such customer"
