"""The scenarios of `jsync bench`: publish, consume, and wait for one answer."""

from __future__ import annotations

from time import perf_counter, process_time
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import jsync

_CLOCK_INTERVAL = 256
"""The number of messages between two looks at the clock."""


class BenchResult(NamedTuple):
    """The result of a scenario."""

    what: str
    messages: int
    seconds: float
    cpu: float
    """CPU time of this process, in seconds."""
    latency: tuple[float, float] | None = None
    """Median and 99th percentile in seconds, if the scenario waits for each message."""

    @property
    def rate(self) -> float:
        return self.messages / self.seconds if self.seconds else 0.0


class BenchOptions(NamedTuple):
    """The amount of work, and the stream and connection to measure."""

    nc: jsync.Connection
    js: jsync.JetStream
    stream: jsync.Stream
    subject: str
    payload: bytes
    messages: int
    seconds: float
    """The longest duration of each scenario."""


Scenario = tuple[str, "Callable[[BenchOptions], tuple[int, list[float]]]"]


def run(plan: BenchOptions, scenario: Scenario) -> BenchResult:
    """Run a scenario. Blocks."""
    what, work = scenario
    begin, cpu = perf_counter(), process_time()
    messages, waits = work(plan)
    seconds, cpu = perf_counter() - begin, process_time() - cpu
    latency = None
    if waits:
        waits.sort()
        latency = waits[len(waits) // 2], waits[len(waits) * 99 // 100]
    return BenchResult(what, messages, seconds, cpu, latency)


def scenarios(*, fast_ingest: bool) -> Iterator[Scenario]:
    """Yield the scenarios in the order in which they must run.

    The first ones publish the messages that the last ones consume.
    """
    yield "request, one at a time", _requests
    yield "publish, one at a time", _publish
    yield "core publish", _core
    yield "publisher", _publisher
    if fast_ingest:
        yield "fast ingest", _ingest
    yield "ordered read", _ordered
    yield "consume with acks", _consume


def _within(plan: BenchOptions) -> Iterator[int]:
    """Yield numbers until there are enough messages or the time is up."""
    until = perf_counter() + plan.seconds
    for number in range(plan.messages):
        if number % _CLOCK_INTERVAL == 0 and perf_counter() > until:
            return
        yield number


def _timed(plan: BenchOptions, call: Callable[[], object]) -> tuple[int, list[float]]:
    waits: list[float] = []
    until = perf_counter() + plan.seconds / 4
    before = perf_counter()
    while before < until:
        call()
        now = perf_counter()
        waits.append(now - before)
        before = now
    return len(waits), waits


def _requests(plan: BenchOptions) -> tuple[int, list[float]]:
    # A request to JetStream involves no process but this one and the server.
    return _timed(plan, plan.stream.info)


def _publish(plan: BenchOptions) -> tuple[int, list[float]]:
    return _timed(plan, lambda: plan.js.publish(plan.subject, plan.payload))


def _core(plan: BenchOptions) -> tuple[int, list[float]]:
    count, publish = 0, plan.nc.publish
    # On a subject without subscribers. The scenarios below measure storing in a stream.
    subject, payload = f"{plan.subject}.core", plan.payload
    for number in _within(plan):
        publish(subject, payload)
        count = number + 1
    plan.nc.flush(30)
    return count, []


def _publisher(plan: BenchOptions) -> tuple[int, list[float]]:
    count, subject, payload = 0, plan.subject, plan.payload
    with plan.js.publisher() as publisher:
        publish = publisher.publish
        for number in _within(plan):
            publish(subject, payload)
            count = number + 1
    return count, []


def _ingest(plan: BenchOptions) -> tuple[int, list[float]]:
    subject, payload = plan.subject, plan.payload
    with plan.js.fast_ingest() as ingest:
        add = ingest.add
        for _ in _within(plan):
            add(subject, payload)
    return ingest.pub_ack.count or 0, []


def _ordered(plan: BenchOptions) -> tuple[int, list[float]]:
    count = 0
    with plan.stream.ordered_consumer().messages(until_end=True) as messages:
        for _ in zip(_within(plan), messages, strict=False):
            count += 1
    return count, []


def _consume(plan: BenchOptions) -> tuple[int, list[float]]:
    held = min(plan.messages, plan.stream.info().state.messages)
    if not held:
        return 0, []
    count = 0
    worker = plan.stream.create_consumer(durable_name="bench", max_ack_pending=20_000)
    with worker.messages(max_messages=2000, stop_after=held) as messages:
        for _, msg in zip(_within(plan), messages, strict=False):
            msg.ack()
            count += 1
    plan.nc.flush(30)
    return count, []
