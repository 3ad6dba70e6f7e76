"""Tests of reading a stream that was restored to older data: no row is skipped silently.

Each reader here stands for a process of Spark. The calls are those of its engine.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

import jsync
from jsync import errors
from jsync.spark import fingerprint, stream_state
from jsync.spark.connection import close_connections

from ..support.campaign import seeded
from .campaign import KILLS
from .engine import latest, sequences, streaming
from .restoring import Restorable, Snapshot
from .support import fill, numbers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from jsync.server import LocalServer

    from .support import Batches, Reading


@pytest.fixture
def restorable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Restorable]:
    # With a single server, the reader does not need to wait for a leader that is behind.
    monkeypatch.setattr(stream_state, "CATCH_UP_SECONDS", 0.0)
    restorable = Restorable(tmp_path)
    yield restorable
    close_connections()
    restorable.close()


def options_of(restorable: Restorable, stream: str) -> dict[str, str]:
    return {
        "nats.servers": restorable.server.url,
        "stream": stream,
        "startingOffsets": "earliest",
    }


@contextmanager
def filled(restorable: Restorable, count: int, start: int) -> Iterator[jsync.Stream]:
    """Publish `count` more numbers, and yield the stream."""
    with jsync.connect(restorable.server.url) as nc:
        js = nc.jetstream()
        stream = js.create_stream(name="A", subjects=["A.>"], max_msgs_per_subject=-1)
        fill(js, stream, *numbers(count, start=start))
        yield stream


def read_then_restore(
    restorable: Restorable, *, back: int, read: int, after: int, **more: object
) -> dict[str, object]:
    """Read up to `read`, restore the state of `back`, and publish `after` new messages."""
    with filled(restorable, back, 1):
        pass
    restorable.back_up("A")
    with filled(restorable, read - back, back + 1):
        reader = streaming(options_of(restorable, "A"), **more)
        end = latest(reader, reader.initialOffset())
        close_connections()
    restorable.restore("A")
    if after:
        with filled(restorable, after, 1001):
            pass
    return end


@pytest.mark.parametrize("after", [0, 10, 30, 31, 60])
def test_new_messages_after_a_restore_are_not_skipped(
    restorable: Restorable, after: int
) -> None:
    """With 30 the last sequence equals that of the checkpoint. From 31 on it is higher."""
    end = read_then_restore(restorable, back=20, read=50, after=after)
    strict = streaming(options_of(restorable, "A"))
    with pytest.raises(errors.DataLossError, match=r"stream A (was|ends)") as caught:
        latest(strict, end)
    assert caught.value.stream == "A"
    lenient = streaming(options_of(restorable, "A"), failOnDataLoss=False)
    found = latest(lenient, end)
    assert sequences(lenient, lenient.partitions(end, found)) == list(
        range(21, 21 + after)
    )
    # The reader has continued, and reports the restore once.
    assert latest(lenient, found) == found
    assert latest(streaming(options_of(restorable, "A")), found) == found


def test_continuing_after_a_restore_reports_the_place(
    restorable: Restorable, caplog: pytest.LogCaptureFixture
) -> None:
    end = read_then_restore(restorable, back=20, read=50, after=60)
    latest(streaming(options_of(restorable, "A"), failOnDataLoss=False), end)
    assert "stream A was restored from older data" in caplog.text
    assert "continuing at sequence 21, because failOnDataLoss is false" in caplog.text


def test_no_batch_is_repeated_from_a_restored_stream(
    restorable: Restorable,
) -> None:
    """Its driver died, and its rows have changed."""
    end = read_then_restore(restorable, back=20, read=50, after=60)
    start = {"v": 1, "streams": {}}
    with pytest.raises(errors.DataLossError, match="was restored from older data"):
        streaming(options_of(restorable, "A")).partitions(start, end)
    lenient = streaming(options_of(restorable, "A"), failOnDataLoss=False)
    assert sequences(lenient, lenient.partitions(start, end)) == list(range(1, 21))
    after = latest(lenient, end)
    assert sequences(lenient, lenient.partitions(end, after)) == list(range(21, 81))


@pytest.mark.parametrize("gone", ["deleted", "purged"])
def test_a_restore_is_noticed_without_the_last_message(
    restorable: Restorable, gone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Messages before the last one were stored later than it."""
    monkeypatch.setattr(fingerprint, "MAX_CLOCK_SKEW", timedelta())
    end = read_then_restore(restorable, back=20, read=50, after=60)
    with filled(restorable, 0, 1) as stream:
        if gone == "deleted":
            stream.delete_message(50)
        else:
            stream.purge(sequence=30)
            stream.delete_message(50)
    with pytest.raises(errors.DataLossError, match=r"sequence (21|30) is later than"):
        latest(streaming(options_of(restorable, "A")), end)


def test_a_restored_stream_with_everything_read_lost_nothing(
    restorable: Restorable,
) -> None:
    with filled(restorable, 20, 1):
        reader = streaming(options_of(restorable, "A"))
        end = latest(reader, reader.initialOffset())
        close_connections()
    restorable.back_up("A")
    with filled(restorable, 30, 21):
        pass
    restorable.restore("A")
    with filled(restorable, 5, 1001):
        reader = streaming(options_of(restorable, "A"))
        found = latest(reader, end)
        assert sequences(reader, reader.partitions(end, found)) == list(range(21, 26))


def delete_the_last(stream: jsync.Stream) -> None:
    stream.delete_message(10)


def delete_and_add(stream: jsync.Stream) -> None:
    stream.delete_message(10)
    stream.delete_message(9)


def purge_all(stream: jsync.Stream) -> None:
    stream.purge()


def change_nothing(stream: jsync.Stream) -> None:
    pass


@pytest.mark.parametrize(
    "change", [change_nothing, delete_the_last, delete_and_add, purge_all]
)
@pytest.mark.parametrize("more", [0, 5])
def test_read_messages_that_go_are_no_restore(
    options: dict[str, str],
    js: jsync.JetStream,
    stream: jsync.Stream,
    change: Callable[[jsync.Stream], None],
    more: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fingerprint, "MAX_CLOCK_SKEW", timedelta())
    fill(js, stream, *numbers(10))
    reader = streaming(options)
    end = latest(reader, reader.initialOffset())
    change(stream)
    fill(js, stream, *numbers(more))
    again = streaming(options)
    found = latest(again, end)
    assert (found == end) is (more == 0)
    if more:
        planned = again.partitions(end, found)
        assert sequences(again, planned) == list(range(11, 16))


def test_unread_messages_taken_by_a_restore_are_lost(
    restorable: Restorable,
) -> None:
    """The query is at 10. The stream was at 50, and is at 20 again."""
    with filled(restorable, 20, 1):
        pass
    restorable.back_up("A")
    with filled(restorable, 30, 21):
        reader = streaming(options_of(restorable, "A"), maxOffsetsPerTrigger=10)
        start = reader.initialOffset()
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
        assert end["streams"]["A"]["next"] == 11
        close_connections()
    restorable.restore("A")
    with filled(restorable, 60, 1001):
        pass
    with pytest.raises(errors.DataLossError, match="was restored from older data"):
        latest(streaming(options_of(restorable, "A")), end)
    lenient = streaming(options_of(restorable, "A"), failOnDataLoss=False)
    found = latest(lenient, end)
    assert sequences(lenient, lenient.partitions(end, found)) == list(range(11, 81))


def test_a_stream_restored_by_servers_continues_without_duplicates(
    options: dict[str, str], nc: jsync.Connection, js: jsync.JetStream, unique: str
) -> None:
    """By its time of creation, a stream restored through the API is a new stream."""
    stream = js.create_stream(name=f"{unique}R", subjects=[f"{unique}R.>"])
    options["stream"] = stream.name
    fill(js, stream, *numbers(20))
    snapshot = Snapshot(nc, stream.name)
    fill(js, stream, *numbers(30, start=21))
    reader = streaming(options)
    end = latest(reader, reader.initialOffset())
    snapshot.restore()
    fill(js, stream, *numbers(60, start=1001))
    with pytest.raises(errors.DataLossError, match="restored from a backup"):
        latest(streaming(options), end)
    lenient = streaming(options, failOnDataLoss=False)
    found = latest(lenient, end)
    assert sequences(lenient, lenient.partitions(end, found)) == list(range(21, 81))
    stream.delete()


def test_a_checkpoint_without_marks_continues_and_gets_one(
    options: dict[str, str], js: jsync.JetStream, stream: jsync.Stream
) -> None:
    fill(js, stream, *numbers(10))
    reader = streaming(options)
    end = latest(reader, reader.initialOffset())
    del end["streams"][stream.name]["mark"]
    again = streaming(options)
    assert latest(again, end) == end
    assert sequences(again, again.partitions(reader.initialOffset(), end)) == list(
        range(1, 11)
    )
    fill(js, stream, *numbers(5))
    found = latest(again, end)
    assert found["streams"][stream.name]["mark"]["sequence"] == 15


def test_a_batch_requests_one_message_at_most(
    options: dict[str, str],
    js: jsync.JetStream,
    stream: jsync.Stream,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = []
    get_message = jsync.Stream.get_message

    def counted(self: jsync.Stream, *args: int, **more: bool) -> jsync.StoredMessage:
        asked.append(args)
        return get_message(self, *args, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(jsync.Stream, "get_message", counted)
    fill(js, stream, *numbers(10))
    reader = streaming(options)
    end = latest(reader, reader.initialOffset())
    for batch in range(1, 4):
        assert latest(reader, end) == end  # without new messages there is no request
        assert len(asked) == batch - 1
        fill(js, stream, *numbers(5))
        start, end = end, latest(reader, end)
        reader.partitions(start, end)
        assert len(asked) == batch


def test_a_user_without_message_permission_still_reads(
    own_server: Callable[..., LocalServer], caplog: pytest.LogCaptureFixture
) -> None:
    server = own_server(
        config="""
        accounts { A { jetstream: enabled, users: [
          { user: all, password: x }
          { user: reader, password: x, permissions: {
              publish: { deny: "$JS.API.STREAM.MSG.GET.>" } } } ] } }
        """
    )
    with ExitStack() as stack, pytest.MonkeyPatch.context() as patch:
        patch.setenv("READER", "x")
        nc = stack.enter_context(jsync.connect(server.url, user="all", password="x"))
        js = nc.jetstream()
        stream = js.create_stream(name="A", subjects=["A.>"])
        fill(js, stream, *numbers(10))
        stack.callback(close_connections)
        options = {
            "nats.servers": server.url,
            "nats.user": "reader",
            "nats.passwordEnv": "READER",
            "stream": "A",
            "startingOffsets": "earliest",
        }
        reader = streaming(options)
        end = latest(reader, reader.initialOffset())
        fill(js, stream, *numbers(5))
        found = latest(reader, end)
        assert sequences(reader, reader.partitions(end, found)) == list(range(11, 16))
        assert "was restored from older data" in caplog.text


def test_a_query_ends_before_skipping_a_restored_row(
    restorable: Restorable, reading: Reading, batches: Batches
) -> None:
    with filled(restorable, 20, 1):
        pass
    restorable.back_up("A")
    more = {"nats_servers": restorable.server.url, "startingOffsets": "earliest"}
    with filled(restorable, 30, 21):
        batches.available(reading.stream("A", **more))
    restorable.restore("A")
    with filled(restorable, 60, 1001):
        pass
    with pytest.raises(Exception, match="was restored from older data"):
        batches.available(reading.stream("A", **more))
    assert batches.sequences == list(range(1, 51))
    batches.available(reading.stream("A", failOnDataLoss=False, **more))
    assert batches.sequences[50:] == list(range(21, 81))


@pytest.mark.fault
@pytest.mark.parametrize("restore", range(KILLS))
def test_restoring_any_older_state_skips_no_row(
    restorable: Restorable, restore: int
) -> None:
    moment = seeded(restore)
    read = moment.randrange(2, 400)
    back = moment.randrange(1, read)
    after = moment.randrange(2 * read)
    end = read_then_restore(restorable, back=back, read=read, after=after)
    with pytest.raises(errors.DataLossError, match=r"stream A (was|ends)"):
        latest(streaming(options_of(restorable, "A")), end)
    lenient = streaming(options_of(restorable, "A"), failOnDataLoss=False)
    found = latest(lenient, end)
    assert sequences(lenient, lenient.partitions(end, found)) == list(
        range(back + 1, back + 1 + after)
    )
