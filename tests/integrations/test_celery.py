"""Celery itself, with real workers: pools, kills, control, events, results."""

from __future__ import annotations

import contextlib
import importlib.metadata
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from celery import chord, group
from celery.exceptions import (
    TaskRevokedError,
    TimeoutError as CeleryTimeoutError,
)

import jsync

from ..support.servers import wait_for
from .conftest import SECONDS, url
from .tasks import make_app

if TYPE_CHECKING:
    from pathlib import Path

    from celery import Celery

    from jsync.server import LocalServer

    from .conftest import Workers

pytestmark = pytest.mark.server


def send(app: Celery, name: str, *args: Any, **options: Any) -> Any:
    return app.send_task(f"tasks.{name}", args, **options)


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


@pytest.mark.parametrize("pool", ["solo", "threads", "prefork", "gevent"])
def test_tasks_groups_and_chords_run_in_each_pool(
    app: Celery, workers: Workers, pool: str
) -> None:
    worker = workers.start(pool)
    assert send(app, "add", 1, 2).get(timeout=SECONDS) == 3
    add = app.signature("tasks.add")
    many = group(add.clone((i, i)) for i in range(30))
    assert sorted(many().get(timeout=SECONDS)) == [2 * i for i in range(30)]
    total = chord([add.clone((1, 1)), add.clone((2, 2))])(
        app.signature("tasks.pid", immutable=True)
    )
    assert (total.get(timeout=SECONDS) == worker.pid) == (pool != "prefork")
    assert workers.stop(worker) == 0


def test_a_chord_awaits_the_groups_in_its_header(app: Celery, workers: Workers) -> None:
    """A group at the end of a chain in a header: several parts, where Celery sees one."""
    workers.start("solo")

    def add(number: int) -> Any:
        return app.signature("tasks.add", (1, number), immutable=True)

    inner = add(200) | group(add(1000), add(2000))
    tasks = add(0) | group(add(100), inner) | add(10)
    assert tasks.apply_async().get(timeout=SECONDS) == 11
    frozen = chord([add(1), add(2)], add(3))
    frozen.freeze()
    for _ in range(2):
        assert frozen.apply_async().get(timeout=SECONDS) == 4


def test_a_killed_worker_loses_no_task(
    app: Celery, workers: Workers, tmp_path: Path
) -> None:
    path = tmp_path / "notes"
    first = workers.start("prefork")
    results = [send(app, "slow", str(path), 1.0) for _ in range(4)]
    wait_for(lambda: "begun" in lines(path), SECONDS)
    workers.kill(first)
    second = workers.start("prefork")
    for result in results:
        assert result.get(timeout=SECONDS)
    with jsync.connect(workers.server.url) as nc:
        stream = nc.jetstream().stream("kombu-celery")
        wait_for(lambda: stream.info().state.messages == 0, SECONDS)
    assert workers.stop(second) == 0


def test_a_long_task_is_run_once(app: Celery, workers: Workers, tmp_path: Path) -> None:
    path = tmp_path / "notes"
    workers.start("prefork")
    workers.start("prefork")
    # Twice ack_wait: without signs of life the other worker would get it.
    assert send(app, "slow", str(path), 7.0).get(timeout=SECONDS)
    assert lines(path) == ["begun", "ended"]


def test_retries_and_rejects_come_again(
    app: Celery, workers: Workers, tmp_path: Path
) -> None:
    workers.start()
    assert send(app, "fail_once", str(tmp_path / "a")).get(timeout=SECONDS) == 1
    result = send(app, "reject", str(tmp_path / "b"), True)
    assert result.get(timeout=SECONDS) == "redelivered"
    send(app, "reject", str(tmp_path / "c"), False)
    with jsync.connect(workers.server.url) as nc:
        stream = nc.jetstream().stream("kombu-celery")
        wait_for(lambda: stream.info().state.messages == 0, SECONDS)
    assert lines(tmp_path / "c") == ["tried"]


def test_higher_priorities_run_first_within_the_prefetch_count(
    app: Celery, workers: Workers, tmp_path: Path
) -> None:
    path = tmp_path / "notes"
    workers.start("solo", "-Q", "ranked")  # it prefetches two tasks
    gate = tmp_path / "gate"
    first = send(app, "gated", str(tmp_path / "first"), str(gate), queue="ranked")
    wait_for(lambda: lines(tmp_path / "first") == ["begun"], SECONDS)
    with jsync.connect(workers.server.url) as nc:
        stream = nc.jetstream().stream("kombu-ranked")

        def fetched() -> int:
            return sum(c.info().num_ack_pending for c in stream.consumers())

        send(app, "note", str(path), "prefetched", queue="ranked")
        wait_for(lambda: fetched() == 2, SECONDS)
        for priority in (0, 9, 4):
            arguments = str(path), str(priority)
            send(app, "note", *arguments, queue="ranked", priority=priority)
        assert fetched() == 2
    gate.touch()
    assert first.get(timeout=SECONDS)
    wait_for(lambda: len(lines(path)) == 4, SECONDS)
    assert lines(path) == ["prefetched", "9", "4", "0"]


@pytest.mark.parametrize("after", [None, "0.1"])
def test_a_task_awaits_its_eta_locally_or_remotely(
    app: Celery, workers: Workers, monkeypatch: pytest.MonkeyPatch, after: str | None
) -> None:
    if after is not None:
        app.conf.broker_transport_options |= {"schedule_after": float(after)}
        monkeypatch.setenv("TEST_SCHEDULE_AFTER", after)
    eta = datetime.now(UTC) + timedelta(seconds=6)
    result = send(app, "add", 1, 1, eta=eta)
    with jsync.connect(workers.server.url) as nc:
        stream = nc.jetstream().stream("kombu-celery")
        found = stream.info(subjects_filter=">").state.subjects or {}
    assert any(".later." in subject for subject in found) == (after is not None)
    workers.start()
    assert result.get(timeout=SECONDS) == 2
    assert result.date_done >= eta


def test_workers_answer_inspect_and_obey_control(
    app: Celery, workers: Workers, tmp_path: Path
) -> None:
    workers.start("prefork")
    workers.start("threads")
    inspect = app.control.inspect(timeout=1)
    both = {"w1@here", "w2@here"}
    wait_for(lambda: set(inspect.ping() or {}) == both, SECONDS)
    assert {q["name"] for q in inspect.active_queues()["w1@here"]} == {
        "celery",
        "ranked",
    }
    app.control.add_consumer("extra", destination=["w1@here"], reply=True)
    assert send(app, "add", 2, 2, queue="extra").get(timeout=SECONDS) == 4
    slow = send(app, "slow", str(tmp_path / "n"), 600.0)
    wait_for(lambda: lines(tmp_path / "n") == ["begun"], SECONDS)
    revoked = send(app, "add", 1, 1, countdown=2)
    app.control.revoke(revoked.id)
    with pytest.raises(TaskRevokedError):
        revoked.get(timeout=SECONDS)
    (name,) = [n for n, tasks in inspect.active().items() if tasks]
    if name == "w1@here":  # threads cannot be ended
        app.control.revoke(slow.id, terminate=True, signal="SIGKILL")
        with pytest.raises(TaskRevokedError):
            slow.get(timeout=SECONDS)


def test_events_reach_a_receiver(app: Celery, workers: Workers) -> None:
    workers.start("solo", "-E")
    seen: list[str] = []
    with app.connection_for_read() as connection:
        receiver = app.events.Receiver(
            connection, handlers={"*": lambda event: seen.append(event["type"])}
        )
        with receiver.consumer_context() as (heard, _, _):
            send(app, "add", 1, 1)

            def done() -> bool:
                with contextlib.suppress(TimeoutError):
                    heard.drain_events(timeout=0.2)
                return "task-succeeded" in seen

            wait_for(done, SECONDS)
    assert {"task-received", "task-started", "task-succeeded"} <= set(seen)


def test_workers_gossip_and_mingle(app: Celery, workers: Workers) -> None:
    workers.start("solo", quiet=False)
    workers.start("solo", quiet=False)
    assert send(app, "add", 1, 1).get(timeout=SECONDS) == 2


def test_celery_purges(app: Celery) -> None:
    for _ in range(3):
        send(app, "add", 1, 1)
    assert app.control.purge() == 3


def test_results_are_stored_forgotten_and_waited_for(app: Celery) -> None:
    backend = app.backend
    backend.store_result("with space/é", {"a": 1}, "SUCCESS")
    result = app.AsyncResult("with space/é")
    assert (result.get(timeout=SECONDS), result.state) == ({"a": 1}, "SUCCESS")
    app.AsyncResult("with space/é").forget()
    assert app.AsyncResult("with space/é").state == "PENDING"
    with pytest.raises(CeleryTimeoutError):
        app.AsyncResult("nobody").get(timeout=0.2)
    assert [backend.incr("counter") for _ in range(3)] == [1, 2, 3]
    status = backend.bucket.status()
    assert (status.bucket, status.config.ttl) == ("kombu-results", 24 * 3600)


def test_rpc_results_come_back_too(broker: LocalServer, workers: Workers) -> None:
    app = make_app(url(broker))
    app.conf.result_backend = "rpc://"
    script = (
        "import sys; from tests.integrations.tasks import make_app\n"
        "app = make_app(sys.argv[1]); app.conf.result_backend = 'rpc://'\n"
        "app.worker_main(['worker', '-P', 'solo', '--without-gossip',"
        " '--without-mingle', '-n', 'rpc@here'])"
    )
    process = subprocess.Popen([sys.executable, "-c", script, url(broker)])
    try:
        assert send(app, "add", 1, 2).get(timeout=SECONDS) == 3
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait(SECONDS)
        app.backend.result_consumer.stop()
        app.close()


def test_celery_with_another_broker_does_not_load_jsync() -> None:
    (entry,) = [
        entry
        for entry in importlib.metadata.entry_points(group="kombu.serializers")
        if entry.value.startswith("kombu_jetstream")
    ]
    assert entry.name == "jetstream"
    script = (
        "import sys, celery; app = celery.Celery(broker='memory://'); app.connection()\n"
        "assert 'kombu.serialization' in sys.modules\n"
        "from kombu.transport import TRANSPORT_ALIASES\n"
        "assert 'jetstream' in TRANSPORT_ALIASES and 'jsync' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
