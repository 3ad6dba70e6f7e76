"""Tests of handlers that raise."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

import jsync
from jsync import errors

from ....support.connection_faults import Events, connect
from ....support.servers import wait_for
from ....support.threads import SOON, Recorder
from .support import (
    Handler,
    fill,
    settled,
)

if TYPE_CHECKING:
    from jsync.server import LocalServer


pytestmark = pytest.mark.server


def raising(
    worker: jsync.Consumer, on_exception: Any, *, count: int = 6
) -> tuple[Handler, jsync.ConsumeContext, errors.CallbackError]:
    handler, told = Handler(bad=2), Recorder()
    consuming = worker.consume(
        handler, on_exception=on_exception, on_error=told, stop_after=count
    )
    error = told.get()
    assert isinstance(error, errors.CallbackError)
    assert isinstance(error.__cause__, LookupError)
    assert error.__cause__.args == (2,)
    return handler, consuming, error


def test_a_raising_handler_leaves_its_message_unacknowledged(
    nc: jsync.Connection, stream: jsync.Stream, worker: jsync.Consumer
) -> None:
    fill(nc, stream, 6)
    handler, consuming, _ = raising(worker, "continue")
    assert consuming.wait(SOON)
    assert handler.numbers == list(range(6))
    wait_for(lambda: worker.info().num_ack_pending == 1)


def test_a_raising_handler_is_logged_with_its_traceback(
    nc: jsync.Connection,
    stream: jsync.Stream,
    worker: jsync.Consumer,
    caplog: pytest.LogCaptureFixture,
) -> None:
    fill(nc, stream, 6)
    _, consuming, _ = raising(worker, "continue")
    assert consuming.wait(SOON)
    (record,) = [r for r in caplog.records if r.name == "jsync.consume"]
    assert record.levelname == "ERROR"
    assert f"{stream.name}.worker" in record.getMessage()
    assert record.exc_info
    assert isinstance(record.exc_info[1], LookupError)


def test_a_raising_handlers_message_can_return_after_delay(
    nc: jsync.Connection, stream: jsync.Stream, worker: jsync.Consumer
) -> None:
    fill(nc, stream, 6)
    handler, told = Handler(bad=2), Recorder()
    delay = timedelta(milliseconds=200)
    with nc.subscribe(f"$JS.ACK.{stream.name}.worker.>") as acks:
        consuming = worker.consume(
            handler, on_exception="nak", nak_delay=delay, on_error=told, stop_after=7
        )
        assert consuming.wait(SOON)
        naks = [acks.next(SOON).data for _ in range(7)]
    assert handler.numbers == [0, 1, 2, 3, 4, 5, 2]
    assert [data for data in naks if data.startswith(b"-NAK")] == [
        b'-NAK {"delay": 200000000}'
    ]
    wait_for(lambda: settled(worker))


def test_immediate_naks_exhausting_max_deliver_cause_a_warning(
    stream: jsync.Stream,
) -> None:
    limited = stream.create_consumer(durable_name="limited", max_deliver=5)
    with pytest.warns(RuntimeWarning, match="max_deliver=5 .* pass nak_delay") as told:
        limited.consume(Handler(), on_exception="nak").stop()
    assert [warning.filename for warning in told] == [__file__]
    pushed = stream.create_push_consumer(
        durable_name="pushed", max_deliver=5, deliver_subject=f"{stream.name}-deliver"
    )
    with pytest.warns(RuntimeWarning, match="max_deliver=5") as told:
        pushed.consume(Handler(), on_exception="nak").stop()
    assert [warning.filename for warning in told] == [__file__]


def test_naks_exhausting_nothing_cause_no_warning(
    js: jsync.JetStream,
    stream: jsync.Stream,
    worker: jsync.Consumer,
    recwarn: pytest.WarningsRecorder,
) -> None:
    limited = stream.create_consumer(durable_name="limited", max_deliver=5)
    worker.consume(Handler(), on_exception="nak").stop()
    limited.consume(Handler(), on_exception="nak", nak_delay=1).stop()
    limited.consume(Handler(), on_exception="term").stop()
    # jsync has not asked the server about this consumer, so it cannot warn.
    js.consumer(stream.name, "limited").consume(Handler(), on_exception="nak").stop()
    assert not [str(warning.message) for warning in recwarn]


@pytest.mark.parametrize("delay", [-1, "5", True, float("nan"), float("inf"), 2e9])
def test_an_invalid_nak_delay_is_rejected(worker: jsync.Consumer, delay: Any) -> None:
    with pytest.raises(errors.ConfigError, match="nak_delay"):
        worker.consume(Handler(), on_exception="nak", nak_delay=delay)


def test_a_nak_delay_without_naks_is_refused(worker: jsync.Consumer) -> None:
    with pytest.raises(errors.ConfigError, match="needs on_exception='nak'"):
        worker.consume(Handler(), on_exception="term", nak_delay=1)


def test_a_raising_handlers_message_can_return_at_once(
    nc: jsync.Connection, stream: jsync.Stream, worker: jsync.Consumer
) -> None:
    fill(nc, stream, 6)
    handler, consuming, _ = raising(worker, "nak", count=7)
    assert consuming.wait(SOON)
    assert sorted(handler.numbers) == [0, 1, 2, 2, 3, 4, 5]
    wait_for(lambda: settled(worker))


def test_a_raising_handler_can_give_up_its_message(
    nc: jsync.Connection, stream: jsync.Stream, worker: jsync.Consumer
) -> None:
    fill(nc, stream, 6)
    handler, consuming, _ = raising(worker, "term")
    assert consuming.wait(SOON)
    assert handler.numbers == list(range(6))
    wait_for(lambda: settled(worker))


def test_a_handler_that_raises_can_end_the_consuming(
    nc: jsync.Connection, stream: jsync.Stream, worker: jsync.Consumer
) -> None:
    fill(nc, stream, 6)
    handler, consuming, error = raising(worker, "stop")
    with pytest.raises(errors.CallbackError) as raised:
        consuming.wait(SOON)
    assert raised.value.__cause__ is error.__cause__
    assert isinstance(consuming.error, errors.CallbackError)
    assert handler.numbers == [0, 1, 2]
    with worker.fetch(3, timeout=SOON) as rest:
        assert sorted(int(msg.data) for msg in rest) == [3, 4, 5]


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, GeneratorExit])
def test_a_thread_survives_an_exit_in_its_handler(
    nc: jsync.Connection,
    stream: jsync.Stream,
    worker: jsync.Consumer,
    kind: type[BaseException],
) -> None:
    fill(nc, stream, 3)
    told, count = Recorder(), []

    def handle(msg: jsync.JetStreamMsg) -> None:
        count.append(msg)
        raise kind

    with worker.consume(handle, on_error=told, stop_after=3) as consuming:
        assert consuming.wait(SOON)
    assert len(count) == 3
    assert isinstance(told.get().__cause__, kind)


def test_an_on_error_that_raises_ends_nothing(
    nc: jsync.Connection, stream: jsync.Stream, worker: jsync.Consumer
) -> None:
    fill(nc, stream, 6)
    handler = Handler(bad=2)

    def fail(error: Exception) -> None:
        raise ZeroDivisionError from error

    with worker.consume(handler, on_error=fail, stop_after=6) as consuming:
        assert consuming.wait(SOON)
    assert handler.numbers == list(range(6))


def test_without_on_error_the_connections_callback_is_called(
    server: LocalServer, nc: jsync.Connection, stream: jsync.Stream
) -> None:
    stream.create_consumer(durable_name="other")
    fill(nc, stream, 3)
    events = Events()
    with connect(server.url, events) as other:
        consumer = other.jetstream().stream(stream.name).consumer("other")
        with consumer.consume(Handler(bad=1), stop_after=3) as consuming:
            assert consuming.wait(SOON)
        assert isinstance(events.wait("error"), errors.CallbackError)
