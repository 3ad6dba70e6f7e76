"""Tests that a call ends everything that it has begun if Ctrl-C comes between two of its waits."""

from __future__ import annotations

import _thread
import dis
import gc
import itertools
import os
import signal
import sys
import threading
from collections import defaultdict
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest

import jsync
from jsync import errors
from jsync.core import (
    base_subscription,
    io_thread,
    network_stream,
    session,
    state,
    subscription,
)
from jsync.core.options import Options
from jsync.core.session import Session
from jsync.services import runner, service

from ...support.connections import refusing_url
from ...support.servers import threads_since, wait_for
from ...support.threads import SOON

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import CodeType, FrameType

    from jsync.server import LocalServer

pytestmark = pytest.mark.server


@pytest.fixture
def nothing_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    wait_for(lambda: not threads_since(before), SOON)


def interrupt(*_: object) -> Any:
    raise KeyboardInterrupt


@pytest.mark.usefixtures("nothing_left")
def test_a_connection_whose_thread_had_just_begun_ends(
    server: LocalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = threading.Thread.start

    def begin_and_interrupt(thread: threading.Thread) -> None:
        begin(thread)
        interrupt()

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", begin_and_interrupt)
        with pytest.raises(KeyboardInterrupt):
            jsync.connect(server.url)


def test_a_connection_without_its_thread_leaves_no_descriptor(
    server: LocalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    gc.collect()
    before = len(os.listdir("/dev/fd"))
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        for _ in range(20):
            with pytest.raises(RuntimeError, match="can't start new thread"):
                jsync.connect(server.url)
    gc.collect()
    assert len(os.listdir("/dev/fd")) < before + 10


@cache
def ends_of_with(code: CodeType) -> frozenset[int]:
    """Return the instructions of `code` that are about to call `__exit__` of a `with` block.

    No `except` covers these instructions. Python handles signals after a call, at a jump backward
    and at the beginning of a function, so Ctrl-C never raises there.
    """
    found: set[int] = set()
    instructions = list(dis.get_instructions(code))
    for index, instruction in enumerate(instructions):
        before = instructions[index - 3 : index]
        if (
            instruction.opname in ("PRECALL", "CALL")
            and instruction.arg in (2, 3)
            and [(each.opname, each.argval) for each in before]
            == [("LOAD_CONST", None)] * 3
        ):
            found.update(each.offset for each in before)
            found.update(each.offset for each in instructions[index : index + 2])
            earlier = instructions[index - 4]
            if earlier.opname in ("SWAP", "COPY"):  # the code returns from the block
                found.add(earlier.offset)
    return frozenset(found)


@cache
def returns(code: CodeType) -> frozenset[int]:
    """Return the instructions of `code` that go to its end, without an `except` as well."""
    pairs = itertools.pairwise(dis.get_instructions(code))
    return frozenset(
        each.offset
        for first, then in pairs
        if (first.opname.startswith("LOAD_") and then.opname == "RETURN_VALUE")
        or (first.opname == "POP_TOP" and then.opname == "JUMP_FORWARD")
        for each in (first, then)
        if each.opname != "POP_TOP"
    )


def interrupted_before(
    instruction: int, files: set[str], call: Callable[[], object]
) -> bool:
    """Make a call with Ctrl-C before its nth instruction in `files`.

    Returns:
        False if the call has fewer instructions.
    """
    left = instruction

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal left
        if frame.f_code.co_filename not in files:
            return None
        frame.f_trace_opcodes = True
        code, at = frame.f_code, frame.f_lasti
        if event == "opcode" and at not in ends_of_with(code) | returns(code):
            left -= 1
            if left < 0:
                interrupt()
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False


def signalled_before(
    instruction: int, files: set[str], call: Callable[[], object]
) -> bool:
    """Make a call with SIGINT before its nth instruction in `files`.

    Unlike `interrupted_before`, this raises KeyboardInterrupt where Python handles the signal.

    Returns:
        False if the call has fewer instructions.
    """
    left = instruction
    # A call would handle the signal here, in the trace function. The access to an item does not.
    signals: defaultdict[int, None] = defaultdict(_thread.interrupt_main)

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal left
        if frame.f_code.co_filename not in files:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            left -= 1
            if left < 0:
                sys.settrace(None)
                _ = signals[0]
        return trace

    before = sys.gettrace()
    # A process that began in the background ignores the signal.
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    gc.disable()  # Hypothesis has a callback of it, which would take the signal
    try:
        try:
            sys.settrace(trace)
            call()
        finally:
            sys.settrace(before)
    except KeyboardInterrupt:
        assert left < 0
    finally:
        gc.enable()
        signal.signal(signal.SIGINT, handler)
    return left < 0


def test_ctrl_c_at_any_instruction_leaves_no_descriptor() -> None:
    with pytest.raises(errors.ConnectionError) as refused:
        jsync.connect(refusing_url())
    options = next(
        frame.frame.f_locals["options"]
        for frame in refused.traceback
        if isinstance(frame.frame.f_locals.get("options"), Options)
    )
    files = {str(module.__file__) for module in (session, network_stream, io_thread)}
    gc.collect()
    before = len(os.listdir("/dev/fd"))
    for instruction in itertools.count():
        if not interrupted_before(
            instruction, files, lambda: Session(options, io_thread.IOThread)
        ):
            break
    assert instruction > 100
    gc.collect()
    assert len(os.listdir("/dev/fd")) == before


def test_ctrl_c_at_any_instruction_leaves_no_subscription(
    nc: jsync.Connection, unique: str
) -> None:
    files = {str(module.__file__) for module in (session, subscription)}
    before = set(nc._session.interests)
    for instruction in itertools.count():
        if not interrupted_before(
            instruction,
            files,
            lambda: subscription.subscribe(nc, unique, callback=print),
        ):
            break
        assert set(nc._session.interests) == before
    assert instruction > 50


def test_ctrl_c_around_a_block_leaves_no_subscription(
    nc: jsync.Connection, unique: str
) -> None:
    modules = session, subscription, base_subscription
    files = {__file__, *(str(module.__file__) for module in modules)}
    before = set(nc._session.interests)

    def use() -> None:
        # Python 3.11 can interrupt the decorator of `Connection.subscribe` when it returns.
        with subscription.subscribe(nc, unique, callback=print):
            pass

    for instruction in itertools.count():
        if not signalled_before(instruction, files, use):
            break
        assert set(nc._session.interests) == before, instruction
    assert instruction > 100


def test_ctrl_c_around_a_block_leaves_no_service(
    nc: jsync.Connection, unique: str
) -> None:
    files = {__file__, *(str(module.__file__) for module in (service, runner, state))}
    before = set(nc._session.interests)

    begun: list[service.Service] = []

    def use() -> None:
        made = service.Service(nc, "ctrl-c", "1.0.0")
        made._begin()
        with made:
            begun.append(made)
            made.endpoint("echo", subject=unique)(lambda request: request.respond())

    for instruction in itertools.count(step=3):
        if not signalled_before(instruction, files, use):
            break
        wait_for(lambda: set(nc._session.interests) == before, SOON)
        assert all(each.wait(SOON) for each in begun), instruction
        begun.clear()
    assert instruction > 100


def test_a_half_made_object_has_a_repr() -> None:
    with pytest.raises(errors.ConfigError) as refused:
        jsync.connect(refusing_url(), token="a", user="b")
    shown = [repr(frame.frame.f_locals) for frame in refused.traceback[1:]]
    assert any("<IOThread jsync-" in text for text in shown)


@pytest.mark.usefixtures("nothing_left")
def test_a_connection_that_was_being_closed_ends(
    server: LocalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    nc = jsync.connect(server.url)
    monkeypatch.setattr(nc._session, "ping", interrupt)
    with pytest.raises(KeyboardInterrupt):
        nc.close()
    wait_for(lambda: nc.is_closed, SOON)


@pytest.mark.usefixtures("nothing_left")
def test_a_connection_whose_block_was_being_left_ends(
    server: LocalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    forked = Session.forked
    moments = iter([interrupt])

    def look(session: Session) -> bool:
        next(moments, bool)()
        return bool(forked.__get__(session))

    with pytest.raises(KeyboardInterrupt), jsync.connect(server.url) as nc:
        monkeypatch.setattr(Session, "forked", property(look))
    assert nc.is_closed


def test_a_consume_whose_thread_had_just_begun_ends(
    nc: jsync.Connection, stream: jsync.Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = threading.Thread.start
    begun = []

    def begin_and_interrupt(thread: threading.Thread) -> None:
        begun.append(thread)
        begin(thread)
        interrupt()

    consumer = stream.create_consumer()
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", begin_and_interrupt)
        with pytest.raises(KeyboardInterrupt):
            consumer.consume(print, workers=1)
    wait_for(lambda: not any(thread.is_alive() for thread in begun), SOON)


def test_a_consume_whose_block_was_being_left_ends(
    nc: jsync.Connection, stream: jsync.Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    consuming = stream.create_consumer().consume(print)
    monkeypatch.setattr(consuming, "drain", interrupt)
    with pytest.raises(KeyboardInterrupt), consuming:
        pass
    assert consuming.wait(SOON)


@pytest.mark.parametrize("how", ["stop", "drain"])
def test_a_consume_that_was_being_ended_ends(
    nc: jsync.Connection,
    stream: jsync.Stream,
    monkeypatch: pytest.MonkeyPatch,
    how: str,
) -> None:
    consuming = stream.create_consumer().consume(print)
    with monkeypatch.context() as patch:
        patch.setattr(nc._session, "stop_delivery", interrupt)
        with pytest.raises(KeyboardInterrupt):
            getattr(consuming, how)()
    assert consuming.wait(SOON)
