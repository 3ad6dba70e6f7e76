"""Tests of the messages that a fast ingest sends again after Ctrl-C, `close` or a new server."""

from __future__ import annotations

import sys
import threading
import traceback
from typing import TYPE_CHECKING, Any

import pytest

import jsync
from jsync import errors
from jsync.jetstream.ingest import driver as fast_ingest, engine as fast_engine
from jsync.jetstream.ingest.driver import FastIngest
from jsync.jetstream.ingest.engine import IngestEngine, IngestState

from ....support.connection_faults import Events, connect
from ....support.threads import LONG
from .test_ingest import stored

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from jsync import JetStream, Stream
    from jsync.server import LocalServer


from .test_ingest import stream as stream

pytestmark = pytest.mark.server

DELICATE = {
    function.__code__
    for function in (
        *(FastIngest._drive_loop, FastIngest._write, FastIngest._begin_batch),
        *(FastIngest._restart, FastIngest._unsubscribe),
        *(IngestEngine.restart, IngestEngine.record_sent),
    )
}


class CtrlC:
    """Raises KeyboardInterrupt before one line of the code that sends again, and counts these
    lines.
    """

    def __init__(self, at: int) -> None:
        self.at = at
        self.lines = 0

    def __enter__(self) -> None:
        self._before = sys.gettrace()
        sys.settrace(self._trace)

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._before)

    def _trace(self, frame: FrameType, event: str, _: object) -> Any:
        if frame.f_code not in DELICATE:
            return None
        if event == "line":
            self.lines += 1
            if self.lines == self.at:
                raise KeyboardInterrupt
        return self._trace


def test_ctrl_c_anywhere_neither_loses_nor_doubles_messages(
    js: JetStream, unique: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fast_ingest, "BLOCKED_SECONDS", 0.01)
    never = CtrlC(0)
    with pytest.raises(errors.NoStreamResponseError), never:
        js.fast_ingest(ack_timeout=LONG).add(unique, b"first")
    monkeypatch.setattr(fast_engine, "MAX_RESTARTS", 10)
    for line in range(1, never.lines):
        ingest = js.fast_ingest(ack_timeout=LONG)
        # No stream accepts the message, so the ingest sends it repeatedly.
        with pytest.raises(KeyboardInterrupt), CtrlC(line):
            ingest.add(unique, b"first")
        sent = [b"first"] * ingest.added
        name = f"{unique}-{line}"
        js.create_stream(
            name=name, subjects=[unique], allow_batched=True, storage="memory"
        )
        for payload in (b"second", b"third"):
            ingest.add(unique, payload)
            sent.append(payload)
        count = ingest.close().count
        assert (count, stored(js, name)) == (len(sent), sent), f"line {line}"
        js.delete_stream(name)


def broken(ingest: FastIngest, unique: str) -> None:
    """Leave one message stored, and one to be sent again in another batch."""
    ingest.add(f"{unique}.a", b"0")
    with ingest._writer:
        ingest._to_resend.append((f"{unique}.a", bytes(1000), None, 1))


def test_resent_messages_precede_new_ones_after_ctrl_c(
    js: JetStream, stream: Stream, unique: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ingest = js.fast_ingest()
    broken(ingest, unique)

    def interrupt(_: FastIngest) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(FastIngest, "_handle_replies", interrupt)
        with pytest.raises(KeyboardInterrupt):
            ingest.close()
    ingest.add(f"{unique}.a", b"1")
    assert ingest.close().count == 3
    assert stored(js, unique) == [b"0", bytes(1000), b"1"]


def test_an_oversized_message_after_reconnect_ends_the_ingest(
    js: JetStream, stream: Stream, unique: str
) -> None:
    ingest = js.fast_ingest()
    broken(ingest, unique)
    ingest._session.write_buffer.set_max_payload(500)
    ingest._writer.limit = 0
    for call in (lambda: ingest.add(f"{unique}.a", b"small"), ingest.close):
        with pytest.raises(errors.IngestError, match="max_payload") as caught:
            call()
        assert isinstance(caught.value.__cause__, errors.MaxPayloadError)
        assert caught.value.acked in (0, 1)  # jsync may not have read the ack yet
    with pytest.raises(errors.IngestError):
        _ = ingest.pub_ack


@pytest.mark.parametrize("part", ["pause", "begin"])
def test_a_connection_closed_between_batches_ends_the_ingest(
    server: LocalServer,
    js: JetStream,
    stream: Stream,
    unique: str,
    part: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fast_ingest, "backoff_delay", lambda _: LONG)
    with connect(server.url, Events()) as nc:
        ingest = nc.jetstream().fast_ingest(flow=1)
        ingest.add(f"{unique}.a", b"0")
        # This is the state after a stream has too much to store, or after a batch has ended.
        ingest._writer.limit = 0
        ingest._engine._state.current = IngestState.BROKEN
        if part == "pause":
            ingest._engine.busy = errors.JetStreamError("too much to store")
            threading.Timer(0.2, nc.close).start()
        else:
            begin = FastIngest._begin_batch

            def close_and_begin(*arguments: Any) -> None:
                nc.close()
                begin(*arguments)

            monkeypatch.setattr(FastIngest, "_begin_batch", close_and_begin)
        for call in (lambda: ingest.add(f"{unique}.a", b"1"), ingest.close):
            with pytest.raises(errors.IngestConnectionError) as caught:
                call()
            assert isinstance(caught.value.__cause__, errors.ConnectionClosedError)
            assert caught.value.acked in (0, 1)  # jsync may not have read the ack yet
        with pytest.raises(errors.IngestConnectionError):
            _ = ingest.pub_ack


@pytest.mark.parametrize(
    "make",
    [
        lambda js: js.fast_ingest(ack_timeout=0),
        lambda js: js.atomic_batch(max_messages=0),
    ],
    ids=["ingest", "batch"],
)
def test_an_ingest_with_refused_options_has_a_repr(
    js: JetStream, make: Callable[[JetStream], object]
) -> None:
    with pytest.raises(errors.ConfigError) as caught:
        make(js)
    halves = [
        frame.f_locals["self"]
        for frame, _ in traceback.walk_tb(caught.tb)
        if isinstance(
            frame.f_locals.get("self"),
            jsync.FastIngest | jsync.AtomicBatch,
        )
    ]
    assert halves
    for half in halves:
        assert type(half).__name__ in repr(half)
