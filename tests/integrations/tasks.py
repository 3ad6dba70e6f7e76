"""The tasks of the tests, which workers import."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from celery import Celery
from celery.exceptions import Reject
from kombu import Queue

ACK_WAIT = 3.0
"""Seconds until the task of a killed worker reaches another one."""


def make_app(url: str) -> Celery:
    app = Celery("tests.integrations.tasks", set_as_current=False)
    app.conf.update(
        broker_url=url,
        result_backend=url,
        broker_transport_options={"ack_wait": ACK_WAIT} | _more(),
        broker_connection_retry_on_startup=True,
        worker_prefetch_multiplier=1,
        task_queues=[
            Queue("celery"),
            Queue("ranked", max_priority=9),
        ],
        task_default_queue="celery",
        task_create_missing_queues=True,
        task_acks_late=True,
        worker_redirect_stdouts=False,
    )
    for task in (add, big, pid, slow, gated, note, fail_once, reject):
        app.task(task, bind=task in (fail_once, reject), name=f"tasks.{task.__name__}")
    return app


def _more() -> dict[str, Any]:
    after = os.environ.get("TEST_SCHEDULE_AFTER")
    return {} if after is None else {"schedule_after": float(after)}


def add(a: int, b: int) -> int:
    return a + b


def big(size: int, *, fails: bool = False) -> str:
    """Return so many bytes, or raise them."""
    if fails:
        raise ValueError("x" * size)
    return "x" * size


def pid() -> int:
    return os.getpid()


def slow(path: str, seconds: float) -> int:
    """Note that it has begun, and take its time."""
    note(path, "begun")
    time.sleep(seconds)
    note(path, "ended")
    return os.getpid()


def gated(path: str, gate: str) -> int:
    """Note that it has begun, and wait until the file `gate` exists."""
    note(path, "begun")
    while not Path(gate).exists():
        time.sleep(0.01)
    return os.getpid()


def note(path: str, text: str) -> None:
    with Path(path).open("a") as file:
        file.write(f"{text}\n")


def fail_once(self: Any, path: str) -> int:
    """Fail, and be tried again in a moment."""
    note(path, "tried")
    if not self.request.retries:
        raise self.retry(countdown=0.1)
    return int(self.request.retries)


def reject(self: Any, path: str, requeue: bool) -> str:
    """Refuse the message until it is delivered again."""
    note(path, "tried")
    if self.request.delivery_info["redelivered"]:
        return "redelivered"
    raise Reject("not now", requeue=requeue)


if url := os.environ.get("TEST_URL"):
    app = make_app(url)
