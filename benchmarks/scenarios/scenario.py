"""The parts of a scenario: the jobs of several peers, the columns of its table, and the bars."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from ..place import PeerError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ..place import Place

Result: TypeAlias = "dict[str, float]"
Round: TypeAlias = "dict[str, Result]"
Job: TypeAlias = "Callable[[], Result]"


@dataclass(frozen=True)
class Column:
    title: str
    value: Callable[[Result], float | None]


@dataclass(frozen=True)
class Bar:
    """A figure of one round that should be at most, or at least, `limit`."""

    text: str
    limit: float
    value: Callable[[Round], float]
    at_most: bool = True


@dataclass(frozen=True)
class Scenario:
    title: str
    columns: list[Column]
    jobs: Callable[[Place], Iterator[tuple[str, Job]]]
    bars: list[Bar] = field(default_factory=list)

    def round(self, place: Place, turn: int) -> Round:
        """Run each peer once. The order changes with the round, so no peer is always last."""
        jobs = list(self.jobs(place))
        first = turn % len(jobs)
        done: Round = {}
        for name, job in jobs[first:] + jobs[:first]:
            try:
                done[name] = job()
            except PeerError as error:
                place.failures[f"{self.title}, {name}"] = str(error)
        return {name: done[name] for name, _ in jobs if name in done}


def key(name: str) -> Callable[[Result], float | None]:
    return lambda result: result.get(name)


def rate(result: Result) -> float:
    """Return thousands per second."""
    return result["count"] / result["seconds"] / 1000


def cpu(result: Result) -> float:
    """Return microseconds of CPU time per message."""
    return result["cpu"] / result["count"] * 1e6


def server_cpu(result: Result) -> float | None:
    """Return microseconds of CPU time of the server per message."""
    spent = result.get("server_cpu")
    return spent / result["count"] * 1e6 if spent else None


RATES = [
    Column("thousand/s", rate),
    Column("CPU, us each", cpu),
    Column("server CPU, us each", server_cpu),
]
RATE = RATES[:1]
LATENCIES = [
    Column("p50, us", key("latency_p50")),
    Column("p99, us", key("latency_p99")),
    Column("CPU, us each", cpu),
]
