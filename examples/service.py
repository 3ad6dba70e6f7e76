"""A service: any free instance answers a request.

    python examples/service.py           runs until Ctrl-C
    python examples/service.py --once    sends itself requests, then exits

Services use core NATS, without a stream. A request fails at once if no instance is running.
`jsync service ls` and `nats micro ls` list the service.
"""

from __future__ import annotations

import os
import sys

import msgspec

import jsync
from jsync.errors import NoRespondersError, ServiceError

URL = os.environ.get("NATS_URL", "nats://127.0.0.1:4222")


class Question(msgspec.Struct):
    numbers: list[float]


class Answer(msgspec.Struct):
    mean: float


def mean(question: Question) -> Answer:
    """Return the mean.

    The service calls this function on its threads, up to four at a time.
    """
    if not question.numbers:
        raise ServiceError(400, "no numbers")
    return Answer(sum(question.numbers) / len(question.numbers))


def ask(nc: jsync.Connection, numbers: list[float]) -> str:
    try:
        return str(nc.services.call("mean", Question(numbers), reply_type=Answer))
    except ServiceError as error:
        return f"rejected: {error.description}"


def main(*, once: bool) -> None:
    with jsync.connect(URL) as nc:
        with nc.service("means", "1.0.0", description="Means of numbers") as service:
            service.endpoint("mean", workers=4)(mean)
            if not once:
                service.wait()
            print(ask(nc, [1, 2, 6]))
            print(ask(nc, []))
            (stats,) = service.stats().endpoints
            print(f"{stats.num_requests} requests, {stats.num_errors} errors")
        try:
            ask(nc, [1])
        except NoRespondersError:
            print("the service has stopped")


if __name__ == "__main__":
    try:
        main(once="--once" in sys.argv)
    except KeyboardInterrupt:
        print("done")
