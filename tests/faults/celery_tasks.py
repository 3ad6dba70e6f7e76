"""The tasks of the Celery campaign, which its workers import. Each run leaves a line."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from celery import Celery
from kombu import Exchange, Queue

ACK_WAIT = 6.0
"""Well above the outages of the world in which each task runs once."""

TOPIC = Exchange("work", type="topic")
QUEUES = [
    Queue("plain"),
    Queue("ranked", max_priority=3),
    Queue("routed", TOPIC, routing_key="work.#"),
    Queue("victim", TOPIC, routing_key="victim.#"),
]


def make_app(url: str) -> Celery:
    app = Celery("tests.faults.celery_tasks", set_as_current=False)
    options = {
        "ack_wait": ACK_WAIT,
        "timeout": 2,
        "connect": {"reconnect_wait": 0.1, "reconnect_jitter": 0.05},
    }
    app.conf.update(
        broker_url=url,
        result_backend=url,
        broker_transport_options=options,
        result_backend_transport_options=options,
        broker_connection_retry_on_startup=True,
        task_queues=QUEUES,
        task_default_queue="plain",
        task_reject_on_worker_lost=True,
        task_publish_retry_policy={"max_retries": 10, "interval_max": 0.2},
        worker_prefetch_multiplier=2,
        worker_redirect_stdouts=False,
        worker_cancel_long_running_tasks_on_connection_loss=False,
    )
    app.task(run, name="run", acks_late=True)
    app.task(run, name="run_early", acks_late=False)
    app.task(total, name="total", acks_late=True)
    app.task(hold, name="hold", acks_late=True)
    return app


def run(name: str, seconds: float = 0.0, *_: Any) -> str:
    """Note the run, and take some time."""
    note(name)
    time.sleep(seconds)
    return name


def total(parts: list[str], name: str) -> list[str]:
    note(name)
    return sorted(parts)


def hold(name: str, gate: str) -> None:
    """Note the run, and end when there is a file at `gate`."""
    note(name)
    while not Path(gate).exists():
        time.sleep(0.05)


def note(name: str) -> None:
    line = f"{name}\n".encode()
    file = os.open(os.environ["CAMPAIGN_RUNS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(file, line)
    finally:
        os.close(file)


if url := os.environ.get("CAMPAIGN_URL"):
    app = make_app(url)
