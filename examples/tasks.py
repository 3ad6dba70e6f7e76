"""A task queue like Celery in a hundred lines, for Django, Flask or a script.

    python examples/tasks.py worker      runs a worker: start as many as you like
    python examples/tasks.py             queues three tasks and waits for their results
    python examples/tasks.py --once      queues the tasks, then runs them itself

Web servers fork. Each process therefore opens its own connection when it first needs one.
"""

from __future__ import annotations

import functools
import os
import sys
from typing import TYPE_CHECKING, Any

import msgspec

import jsync

if TYPE_CHECKING:
    from collections.abc import Callable

URL = os.environ.get("NATS_URL", "nats://127.0.0.1:4222")
TASKS: dict[str, Callable[..., Any]] = {}


class Call(msgspec.Struct):
    task: str
    args: list[Any]


@functools.cache
def connection(pid: int) -> jsync.Connection:
    """Return the connection of the process with this id. A forked child opens its own."""
    nc = jsync.connect(URL, name=f"tasks of {pid}")
    js = nc.jetstream()
    js.create_stream(name="TASKS", subjects=["tasks.*"], retention="workqueue")
    js.create_stream(
        name="RESULTS",
        subjects=["results.*"],
        max_age=3600,
        max_msgs_per_subject=1,
    )
    return nc


def jetstream() -> jsync.JetStream:
    return connection(os.getpid()).jetstream()


class Result:
    """The result of a queued task."""

    def __init__(self, key: str) -> None:
        self.key = key

    def get(self, timeout: float = 10) -> Any:
        """Block until the result is there, and return it."""
        results = jetstream().ordered_consumer(
            "RESULTS", filter_subjects=f"results.{self.key}"
        )
        return msgspec.json.decode(results.next(timeout).data)


class Task:
    """A function that you can call directly, or queue with `task.delay(...)`."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.name = function.__name__
        TASKS[self.name] = function

    def __call__(self, *args: Any) -> Any:
        return self.function(*args)

    def delay(self, *args: Any) -> Result:
        """Queue a call. Returns once the stream has stored it."""
        call = msgspec.json.encode(Call(self.name, list(args)))
        ack = jetstream().publish(f"tasks.{self.name}", call)
        return Result(str(ack.seq))


def work(tasks: int | None = None) -> None:
    """Run queued tasks: `tasks` of them, or forever."""
    js = jetstream()
    worker = js.stream("TASKS").create_consumer(durable_name="workers", max_deliver=3)
    with worker.messages(max_messages=10, stop_after=tasks) as messages:
        for msg in messages:
            call = msgspec.json.decode(msg.data, type=Call)
            try:
                value = TASKS[call.task](*call.args)
            except Exception as error:  # noqa: BLE001 - any task's error is its result
                value = {"error": repr(error)}
            js.publish(
                f"results.{msg.metadata.stream_sequence}", msgspec.json.encode(value)
            )
            msg.ack_sync()  # wait until the task has left the queue


# The tasks of an application ---------------------------------------------------------


@Task
def add(one: int, other: int) -> int:
    return one + other


@Task
def greet(name: str) -> str:
    return f"Hello {name}"


def main(arguments: list[str]) -> None:
    if "worker" in arguments:
        work()
        return
    results = [add.delay(2, 3), greet.delay("NATS"), add.delay(1, "two")]
    if "--once" in arguments:
        work(len(results))
    for result in results:
        print(result.get())
    connection(os.getpid()).close()


if __name__ == "__main__":
    main(sys.argv[1:])
