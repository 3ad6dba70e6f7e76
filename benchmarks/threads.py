"""Compare threads of one process with the GIL and without: `python -m benchmarks.threads`.

1, 2 and 4 threads read a stream, each with its own consumer. They share one connection or
have one each. They take the messages raw, or run a handler in pure Python that decodes JSON
and works for 20 µs. `consume(workers=n)` and separate processes are measured for comparison.
On a free-threaded Python each case also runs with the GIL.

Every figure is the median over rounds. Ratios are taken within a round, in which all cases
run one after the other. The rate is measured while every thread has messages:
from the first message of the thread that begins last to the end of the one that ends first.
`cores` is CPU time divided by wall time, of the whole run. On a busy machine it is more
reliable than the rate. At the end the program reports whether two threads have at least 1.7
times the rate of one.

The handlers are functions of a module, as most handlers are. CPython 3.13 makes such a
function immortal. Threads that call a nested function write its reference count in turns.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import sysconfig
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import jsync
from jsync.server import LocalServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

STREAM = "THREADS"
WORK_NS = 20_000
STAMP_EVERY = 500
"""Messages of a thread between two looks at the clock."""
BAR = 1.7
COUNTS = (1, 2, 4)
OURSELVES = [sys.executable, "-m", "benchmarks.threads"]
BODY = json.dumps({"id": 17, "name": "a name", "tags": ["x", "y"], "sum": 1.5}).encode()


class Case(NamedTuple):
    """One way to share the reading among threads."""

    kind: str
    """`raw` or `handler` on one connection (`shared`) or several (`own`), or `workers`."""
    connections: str
    threads: int
    gil: bool

    @property
    def name(self) -> str:
        return f"{self.kind}, {self.connections}"

    @property
    def label(self) -> str:
        """The text that `--only` searches."""
        return f"{self.name}, {self.threads} threads, GIL {'on' if self.gil else 'off'}"


def cases() -> Iterator[Case]:
    free = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
    for gil in (False, True) if free else (True,):
        for kind in ("raw", "handler"):
            for connections in ("shared", "own", "processes"):
                for threads in COUNTS:
                    yield Case(kind, connections, threads, gil)
        for threads in COUNTS:
            yield Case("handler", "workers", threads, gil)


class Span(NamedTuple):
    """The work of one thread, as times with the number of messages handled by then."""

    stamps: list[tuple[float, int]]

    def handled_by(self, moment: float) -> float:
        """Return the number of messages that the thread had handled at a moment."""
        before = (self.stamps[0][0], 0)
        for at, count in self.stamps:
            if at >= moment:
                share = (moment - before[0]) / ((at - before[0]) or 1)
                return before[1] + share * (count - before[1])
            before = (at, count)
        return before[1]


def common_rate(spans: list[Span]) -> float:
    """Return the messages per second of the time in which all of them work."""
    begin = max(span.stamps[0][0] for span in spans)
    end = min(span.stamps[-1][0] for span in spans)
    handled = sum(span.handled_by(end) - span.handled_by(begin) for span in spans)
    return handled / (end - begin)


turns_of_work = 1
"""Small, so it is one of the integers that are immortal."""


def work() -> int:
    total = 0
    for _ in range(10):
        for i in range(turns_of_work):
            total += i & 7
    return total


def set_turns(turns: int) -> None:
    global turns_of_work  # noqa: PLW0603 (an attribute would be shared by the threads)
    turns_of_work = turns


def turns_that_fit() -> int:
    """Return the turns with which `work` takes 20 µs of CPU on this machine."""
    set_turns(100)
    best = float("inf")
    for _ in range(200):
        begin = time.thread_time_ns()
        work()
        best = min(best, time.thread_time_ns() - begin)
    return max(1, round(100 * WORK_NS / best))


def handle(msg: jsync.JetStreamMsg) -> None:
    json.loads(msg.data)
    work()


def take(msg: jsync.JetStreamMsg) -> None:
    """Do nothing with the message."""


def read(
    js: jsync.JetStream,
    count: int,
    call: Callable[[jsync.JetStreamMsg], None],
    spans: list[Span],
) -> None:
    consumer = js.create_consumer(STREAM, ack_policy="none")
    stamps = []
    with consumer.messages(stop_after=count, max_messages=2000) as messages:
        for done, msg in enumerate(messages):
            if not done % STAMP_EVERY:
                stamps.append((time.monotonic(), done))
            call(msg)
    stamps.append((time.monotonic(), count))
    spans.append(Span(stamps))


def consume(
    js: jsync.JetStream,
    count: int,
    call: Callable[[jsync.JetStreamMsg], None],
    workers: int,
) -> Span:
    """Consume with several threads, which share one consumer until its end."""
    consumer = js.create_consumer(STREAM, ack_policy="none")
    begin = time.monotonic()
    consumer.consume(call, stop_after=count, workers=workers, max_messages=2000).wait()
    return Span([(begin, 0), (time.monotonic(), count)])


def measure(url: str, case: Case, count: int) -> None:
    """Run one case in this process, and print its spans and the CPU time as JSON."""
    call = handle if case.kind == "handler" else take
    threads = 1 if case.connections in ("workers", "processes") else case.threads
    nc = [
        jsync.connect(url) for _ in range(threads if case.connections == "own" else 1)
    ]
    contexts = [nc[i % len(nc)].jetstream() for i in range(threads)]
    print("ready", flush=True)  # processes begin together
    sys.stdin.readline()
    begin, cpu = time.monotonic(), time.process_time()
    spans: list[Span] = []
    if case.connections == "workers":
        spans.append(consume(contexts[0], count, call, case.threads))
    else:
        running = [
            threading.Thread(target=read, args=(js, count, call, spans))
            for js in contexts
        ]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()
    figures = {
        "spans": [span.stamps for span in spans],
        "cores": (time.process_time() - cpu) / (time.monotonic() - begin),
        "gil": getattr(sys, "_is_gil_enabled", lambda: True)(),
    }
    print(json.dumps(figures), flush=True)
    for one in nc:
        one.close()


def run(url: str, case: Case, count: int, turns: int) -> dict[str, float]:
    """Run a case in separate processes, and return its rate and the cores that it used."""
    processes = [
        subprocess.Popen(
            [
                *OURSELVES,
                f"--case={json.dumps(case)}",
                f"--url={url}",
                f"--messages={count}",
                f"--turns={turns}",
            ],
            env=os.environ | {"PYTHON_GIL": str(int(case.gil))},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parent.parent,
        )
        for _ in range(case.threads if case.connections == "processes" else 1)
    ]
    for process in processes:
        assert process.stdout is not None
        if process.stdout.readline() != "ready\n":
            raise SystemExit(f"{case} did not begin")
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    found = [json.loads(process.communicate()[0]) for process in processes]
    if any(one["gil"] != case.gil for one in found):
        raise SystemExit(f"{case} ran with the GIL {found[0]['gil']}")
    spans = [Span(stamps) for one in found for stamps in one["spans"]]
    return {"rate": common_rate(spans), "cores": sum(one["cores"] for one in found)}


def tell(rounds: list[dict[Case, dict[str, float]]]) -> bool:
    """Print the table.

    Returns:
        Whether two threads with handlers reach the bar without a GIL.
    """
    print(f"{'case':22}{'GIL':>4}{'threads':>9}{'rate/s':>11}{'by one':>9}{'cores':>8}")
    passed = True
    for case in rounds[0]:
        one = case._replace(threads=1)
        rate = statistics.median(found[case]["rate"] for found in rounds)
        ratio = statistics.median(
            found[case]["rate"] / found[one]["rate"] for found in rounds
        )
        cores = statistics.median(found[case]["cores"] for found in rounds)
        gil = "on" if case.gil else "off"
        print(
            f"{case.name:22}{gil:>4}{case.threads:>9}{rate:>11,.0f}{ratio:>9.2f}{cores:>8.2f}"
        )
        if case.kind == "handler" and case.threads == 2 and not case.gil:
            passed &= ratio >= BAR or case.connections == "processes"
    return passed


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.threads")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--messages", type=int, default=20_000, help="of a thread")
    parser.add_argument(
        "--only",
        default="",
        help="a regular expression, as 'handler.*[12] threads, GIL off'",
    )
    parser.add_argument("--url", help=argparse.SUPPRESS)
    parser.add_argument("--case", help=argparse.SUPPRESS)
    parser.add_argument("--turns", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.case:
        set_turns(options.turns)
        measure(options.url, Case(*json.loads(options.case)), options.messages)
        return 0
    wanted = [case for case in cases() if re.search(options.only, case.label)]
    print(f"{sys.version}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    turns = turns_that_fit()
    rounds = []
    with LocalServer() as server, jsync.connect(server.url) as nc:
        js = nc.jetstream()
        js.create_stream(name=STREAM, subjects=["threads"], storage="memory")
        with js.publisher() as publisher:
            for _ in range(options.messages):
                publisher.publish("threads", BODY)
        for number in range(options.rounds):
            print(f"round {number + 1}", file=sys.stderr)
            rounds.append(
                {
                    case: run(server.url, case, options.messages, turns)
                    for case in wanted
                }
            )
    passed = tell(rounds)
    print(f"load {os.getloadavg()[0]:.1f} at the end")
    if any(not case.gil for case in wanted):
        print(f"two threads reach {BAR} times one: {'yes' if passed else 'NO'}")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
