"""Tests of the arguments of handlers, the processes that run, and the counts of workers."""

from __future__ import annotations

import gc
import itertools
import os
import sys
import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import given, strategies as st
from prometheus_client.parser import text_string_to_metric_families

import jsync
from jsync import errors
from jsync.testing import message
from jsync.worker import process as worker_process, supervisor
from jsync.worker.http import parse_address
from jsync.worker.metrics import HandlerMetrics, WorkerReport, prometheus_text
from jsync.worker.process_pool import (
    HEALTHY_SECONDS,
    INITIAL_BACKOFF,
    MAX_BACKOFF,
    MAX_FAILED_STARTS,
    USAGE,
    ProcessPool,
    ProcessState,
)
from jsync.worker.routes import adapt_handler

if TYPE_CHECKING:
    from jsync import JetStreamMsg


class Order(msgspec.Struct):
    id: int


MSG = message("orders.paid", b'{"id": 7}')


# Handlers -----------------------------------------------------------------------------


def test_a_text_payload_is_no_json() -> None:
    def of_text(text: str, msg: JetStreamMsg) -> object:
        return text, msg

    assert adapt_handler(of_text)(MSG) == ('{"id": 7}', MSG)


def test_a_payload_may_be_given_beside_the_handler() -> None:
    def handle(order):  # type: ignore[no-untyped-def]
        return order

    packed = message("a", msgspec.msgpack.encode(Order(7)))
    assert adapt_handler(handle, Order)(MSG) == Order(7)
    assert adapt_handler(handle, dict[str, int])(MSG) == {"id": 7}
    assert adapt_handler(handle, jsync.MsgPack(Order))(packed) == Order(7)


@pytest.mark.parametrize(
    "payload", [Order, dict[str, Any], jsync.JSON(Order), jsync.JSON(Any)]
)
def test_deeply_nested_payloads_raise_the_same_error(payload: Any) -> None:
    data = b'{"id": 7, "more": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    with pytest.raises(errors.InvalidPayloadError, match="not a valid"):
        adapt_handler(lambda order: order, payload)(message("a", data))


@pytest.mark.parametrize("data", [b"", b"nonsense", b'{"id": "x"}', b"\xff"])
@pytest.mark.parametrize("payload", [Order, jsync.JSON(Order), jsync.MsgPack(Order)])
def test_an_invalid_payload_raises_one_error(data: bytes, payload: Any) -> None:
    with pytest.raises(errors.InvalidPayloadError, match="not a valid"):
        adapt_handler(lambda order: order, payload)(message("a", data))


def test_a_message_alone_takes_no_payload() -> None:
    def of_message(msg: JetStreamMsg) -> None: ...

    with pytest.raises(errors.ConfigError, match="takes no payload: leave out payload"):
        adapt_handler(of_message, Order)


def test_a_decorated_handler_stays_a_function() -> None:
    app = jsync.Worker(stream="ORDERS")

    @app.handle("orders.paid", consumer="billing")
    def bill(order: Order) -> int:
        return order.id

    assert bill(Order(7)) == 7
    assert repr(app) == "<Worker of ORDERS.billing>"


@pytest.mark.parametrize(
    "bad",
    [
        {"consumer": "a.b"},
        {"consumer": "taken"},
        {"consumer": None},
        {"group": "g"},
        {"consumer": None, "group": "a.b"},
        {"consumer": None, "group": "g", "workers": 2},
        {"consumer": None, "group": "g", "max_messages": 5},
        {"consumer": None, "group": "g", "member": "a.b"},
        {"member": "m"},
        {"stream": "a b"},
        {"workers": 0},
        {"time_limit": 0},
        {"max_messages": 0},
        {"max_messages": 1, "workers": 2},
        {"ack_wait": -1},
        {"retry": 5},
    ],
)
def test_a_handler_rejects_bad_options(bad: Any) -> None:
    app = jsync.Worker(stream="ORDERS")
    app.handle("a", consumer="taken")(lambda msg: msg)
    with pytest.raises(errors.ConfigError):
        app.handle("a", **{"consumer": "billing"} | bad)(lambda msg: msg)


def test_a_bare_handle_decorator_names_its_arguments() -> None:
    app: Any = jsync.Worker(stream="ORDERS")
    with pytest.raises(errors.ConfigError, match=r'handle\("orders\.new", consumer='):
        app.handle(lambda data: data)  # as @app.handle above a function calls it


def test_a_handler_needs_a_stream_and_a_subject() -> None:
    with pytest.raises(errors.ConfigError, match="stream"):
        jsync.Worker().handle("a", consumer="b")(lambda msg: msg)
    with pytest.raises(errors.ConfigError, match="subject"):
        jsync.Worker(stream="S").handle("a..b", consumer="b")(lambda msg: msg)


# Processes ----------------------------------------------------------------------------


def process_pool(slots: int = 2) -> ProcessPool:
    """Return a pool whose processes all work."""
    made = ProcessPool(slots)
    for process, place in enumerate(made.due(0)):
        made.started(process, place)
        assert made.is_ready(process, 0) is None
    assert made.ready == slots
    return made


def test_a_process_that_ends_restarts_after_growing_pauses() -> None:
    made = process_pool(1)
    pauses = []
    for process in range(12):
        made.ended(process, -9, 1.0)
        due = made.next_due()
        assert due is not None
        pauses.append(due - 1.0)
        assert made.due(due - 0.001) == []
        assert made.due(due) == [0]
        made.started(process + 1, 0)
        made.is_ready(process + 1, 1.0)
    assert pauses[:3] == pytest.approx(
        [INITIAL_BACKOFF, 2 * INITIAL_BACKOFF, 4 * INITIAL_BACKOFF]
    )
    assert pauses[-1] == MAX_BACKOFF
    assert made.fatal is None
    assert made.restarts == 12


def test_a_process_that_ran_long_restarts_at_once() -> None:
    made = process_pool(1)
    for process in range(5):
        made.ended(process, 1, HEALTHY_SECONDS)
        assert (
            made.next_due() == HEALTHY_SECONDS + INITIAL_BACKOFF * 2.0**process
            or process
        )
        made.started(process + 1, 0)
        made.is_ready(process + 1, 0)
    made.ended(5, 1, HEALTHY_SECONDS * 2)
    assert made.next_due() == pytest.approx(HEALTHY_SECONDS * 2 + INITIAL_BACKOFF)


def test_processes_never_becoming_ready_are_a_crash_loop() -> None:
    made = ProcessPool(2)
    for process in range(MAX_FAILED_STARTS):
        assert made.fatal is None
        made.started(process, process % 2)
        made.ended(process, 1, 0)
    assert "crash loop" in (made.fatal or "")


def test_a_ready_process_resets_the_failed_start_count() -> None:
    made = process_pool(1)
    for process in range(3 * MAX_FAILED_STARTS):
        made.ended(process, 1, 0)
        made.started(process + 1, 0)
        if process % 2:
            made.is_ready(process + 1, 0)
    assert made.fatal is None


def test_a_wrongly_configured_process_ends_everything_at_once() -> None:
    made = ProcessPool(2)
    made.started(0, 0)
    made.ended(0, USAGE, 0)
    assert made.fatal


def test_leaving_tells_each_process_once_and_begins_none() -> None:
    made = process_pool(2)
    assert made.shut_down() == [0, 1]
    assert made.shut_down() == []
    made.ended(0, 0, 1)
    over = [made.is_over]
    made.ended(1, 0, 1)
    assert [*over, made.is_over] == [False, True]
    assert made.due(100) == []


def test_a_process_still_starting_is_replaced_at_once() -> None:
    """It may have read the code before the change, and may hang."""
    made = ProcessPool(1)
    made.started(1, 0)
    made.rolling_restart()
    assert made.superseded() == [1]
    assert made.superseded() == []
    assert made.to_replace() is None
    made.ended(1, -15, 1.0)
    assert made.due(1.0) == [0]
    made.started(2, 0)
    made.is_ready(2, 1.0)
    assert made.to_replace() is None
    assert made.fatal is None


def test_a_supervisor_that_was_frozen_replaces_no_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It has not read their signs of life meanwhile."""
    now = 0.0
    monkeypatch.setattr(supervisor, "monotonic", lambda: now)
    pool = supervisor.Supervisor(["no command"], heartbeat_timeout=60.0)
    pool._pool.started(0, 0)
    pool._pool.is_ready(0, now)
    ended: list[float] = []
    process = SimpleNamespace(pid=1, reported_at=0.0, kill_at=None, end=ended.append)
    pool._processes[0] = process  # type: ignore[assignment]

    def turn(at: float) -> None:
        nonlocal now
        now = at
        pool._events.put(lambda: None)
        pool._run_once()

    turn(1000.0)
    assert ended == []
    for second in range(1001, 1061):
        turn(second)
    assert len(ended) == 1


@pytest.mark.parametrize("kind", ["read", "follow"])
def test_without_threads_a_process_starts_later(
    monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    real = threading.Thread.start
    failed: list[threading.Thread] = []

    def start(thread: threading.Thread) -> None:
        if thread.name == f"jsync-worker-{kind}" and not failed:
            failed.append(thread)
            raise RuntimeError("can't start new thread")
        real(thread)

    monkeypatch.setattr(threading.Thread, "start", start)
    command = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    made = supervisor.Supervisor(command, processes=2)
    gc.collect()
    before = open_files()
    made._run_once()
    assert len(failed) == 1
    assert len(made._processes) == 1
    while len(made._processes) < 2:
        made._run_once()
    for process in made._processes.values():
        process.kill()
    while made._processes:
        made._events.get(timeout=60)()
    gc.collect()
    assert open_files() == before


def open_files() -> set[str]:
    return set(os.listdir("/proc/self/fd")) if sys.platform == "linux" else set()


def test_a_hanging_replacement_makes_way_for_the_next() -> None:
    made = process_pool(1)
    made.rolling_restart()
    assert made.to_replace() == 0
    made.started(1, 0)
    made.rolling_restart()
    assert made.superseded() == [1]
    assert made.to_replace() is None, "one process more at a time"
    made.ended(1, -9, 1.0)
    assert made.due(100) == []
    assert made.to_replace() == 0
    made.started(2, 0)
    assert made.is_ready(2, 2.0) == 0


def test_processes_are_replaced_one_by_one() -> None:
    made = process_pool(2)
    made.rolling_restart()
    assert made.to_replace() == 0
    assert made.to_replace() is None
    made.started(2, 0)
    assert made.ready == 2
    assert made.is_ready(2, 1) == 0, "only now the old one ends"
    assert made.to_replace() is None
    made.ended(0, 0, 1)
    assert made.due(100) == []
    assert made.to_replace() == 1
    made.started(3, 1)
    assert made.is_ready(3, 1) == 1
    made.ended(1, 0, 1)
    assert made.to_replace() is None
    assert made.ready == 2
    assert made.restarts == 2


def test_a_failed_replacement_keeps_the_old_process_working() -> None:
    made = process_pool(2)
    made.rolling_restart()
    assert made.to_replace() == 0
    made.started(2, 0)
    made.ended(2, 1, 1)
    assert made.to_replace() is None
    assert made.states[0].current is ProcessState.READY
    assert made.due(100) == []


def test_a_replacement_that_cannot_start_changes_nothing() -> None:
    made = process_pool(2)
    made.rolling_restart()
    assert made.to_replace() == 0
    made.not_started(0, 1)
    assert made.to_replace() is None
    assert made.ready == 2
    assert made.due(100) == []
    made.rolling_restart()
    assert made.to_replace() == 0


def test_processes_that_cannot_start_are_retried_beside_others() -> None:
    made = process_pool(2)
    made.ended(1, -9, 0)
    for number in range(20):
        assert made.due(20.0 * number) == []
        assert made.due(20.0 * number + MAX_BACKOFF) == [1]
        made.not_started(1, 20.0 * number + 20)
    made.ended(0, -9, 0)
    for _ in range(MAX_FAILED_STARTS):
        assert made.fatal is None
        made.not_started(0, 0)
    assert "crash loop" in (made.fatal or "")


def test_an_old_process_ending_early_is_not_missed() -> None:
    made = process_pool(1)
    made.rolling_restart()
    made.to_replace()
    made.started(1, 0)
    made.ended(0, -9, 1)
    assert made.due(100) == []
    assert made.is_ready(1, 2) is None
    assert made.ready == 1


def test_nothing_of_an_ended_process_is_kept() -> None:
    made = ProcessPool(1)
    sizes = set()
    for number in range(50):
        (place,) = made.due(100.0 * number)
        made.started(number, place)
        made.is_ready(number, 100.0 * number)
        made.ended(number, 1, 100.0 * number + 50)
        sizes.add(len(made.states) + len(made._place) + len(made._ready_since))
    assert sizes == {0}
    made.shut_down()
    assert made.is_over


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3)), max_size=60))
def test_each_place_has_a_process_or_gets_one(events: list[tuple[int, int]]) -> None:
    """The pool continues through all events until it ends by itself or is told to end."""
    made, numbers, now = ProcessPool(3), itertools.count(), 0.0

    def begin(place: int) -> None:
        if which == 2:
            made.not_started(place, now)
        else:
            made.started(next(numbers), place)

    for what, which in events:
        now += 31.0
        for place in made.due(now):
            begin(place)
        alive = list(made.states)
        process = alive[which % len(alive)] if alive else None
        match what:
            case 0 | 1 if process is not None:
                made.is_ready(process, now)
            case 2 if process is not None:
                made.ended(process, 1, now)
            case 3:
                made.rolling_restart()
                made.superseded()
            case 4:
                replaced = made.to_replace()
                if replaced is not None:
                    begin(replaced)
            case 5 if which == 3:
                made.shut_down()
        if made.fatal is not None or made.leaving:
            return
        at_work = (ProcessState.STARTING, ProcessState.READY)
        held = {
            made._place[process]
            for process, phase in made.states.items()
            if phase.current in at_work
        }
        assert {*made._place.values()} | set(made._due) == {0, 1, 2}
        assert held.isdisjoint(made._due)


# Reports ---------------------------------------------------------------------------------


class Stuck:
    """A worker whose server does not answer."""

    def __init__(self) -> None:
        self.answer = threading.Event()

    def wait(self) -> bool:
        return self.answer.wait()

    def stop(self, grace: float) -> None:
        """Not used."""

    def report(self, *, lag: bool = False) -> WorkerReport:
        if lag:
            self.answer.wait(60)
        return WorkerReport(ready=True)


def test_reports_do_not_wait_for_a_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are the signs of life: without them a process counts as stuck."""
    monkeypatch.setattr(worker_process, "REPORT_SECONDS", 0.01)
    reading, writing = os.pipe()
    reports, worker = worker_process.ReportWriter(writing), Stuck()
    with open(reading, "rb") as lines:
        reports.start()
        reports.started(worker)
        told = [
            msgspec.json.decode(lines.readline(), type=WorkerReport) for _ in range(20)
        ]
        reports.end()
        worker.answer.set()
    assert told[-1].ready
    os.close(writing)


# Metrics ------------------------------------------------------------------------------


def test_the_metrics_are_prometheus_text() -> None:
    seconds = [0] * 16
    seconds[0], seconds[3], seconds[-1] = 5, 2, 1
    figures = HandlerMetrics(seconds=seconds, total_seconds=400.5, failed=3, pending=9)
    text = prometheus_text({"ORDERS.billing": figures}, 4, 3, 2)
    families = {family.name: family for family in text_string_to_metric_families(text)}
    (failures,) = families["jsync_worker_failures"].samples
    assert (failures.labels, failures.value) == (
        *({"stream": "ORDERS", "consumer": "billing"}, 3),
    )
    assert families["jsync_worker_num_pending"].samples[0].value == 9
    assert families["jsync_worker_num_ack_pending"].samples == []
    histogram = families["jsync_worker_handler_seconds"].samples
    values = {s.labels.get("le", s.name.rpartition("_")[2]): s.value for s in histogram}
    assert [values[key] for key in ("0.001", "0.025", "300.0", "+Inf")] == [5, 7, 7, 8]
    assert (values["sum"], values["count"]) == (400.5, 8)
    assert families["jsync_worker_processes_ready"].samples[0].value == 3


def test_process_counts_add_up_but_lag_does_not() -> None:
    total = HandlerMetrics.sum(
        [HandlerMetrics(failed=1, pending=5), HandlerMetrics(failed=2, pending=6)]
    )
    assert (total.failed, total.pending) == (3, 6)
    ended = total.without_gauges()
    assert (ended.failed, ended.pending, ended.in_hand) == (3, None, 0)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:8080", ("127.0.0.1", 8080)),
        ("[::1]:1", ("::1", 1)),
        (":0", ("0.0.0.0", 0)),
    ],
)
def test_an_address_of_http(text: str, address: tuple[str, int]) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize("text", ["8080", "", "a:b", "a:70000", "a:"])
def test_an_invalid_address_is_rejected(text: str) -> None:
    with pytest.raises(errors.ConfigError, match="HOST:PORT"):
        parse_address(text)
