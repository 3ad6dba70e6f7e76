"""The result backend of Celery: outages, lost answers, deleted buckets, chords."""

from __future__ import annotations

import contextlib
import threading
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from celery import Celery
from celery.exceptions import BackendStoreError
from celery.result import GroupResult

import jsync
from jsync.errors import Error, KeyNotFoundError

from ..support.connection_faults import FakeServer, Peer
from ..support.proxy import FaultProxy
from .conftest import SECONDS
from .kombu_support import Once
from .tasks import make_app

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from celery import Celery

    from jsync.integrations.celery import JetStreamBackend
    from jsync.server import LocalServer

pytestmark = pytest.mark.server


@pytest.fixture
def backend(app: Celery) -> JetStreamBackend:
    # Outages are longer than a call of jsync itself waits.
    app.conf.result_backend_transport_options = {"timeout": 0.3}
    backend: JetStreamBackend = app.backend
    backend.set("first", b"")  # it is connected, and has its bucket
    return backend


@pytest.fixture
def proxied(broker: LocalServer) -> Iterator[tuple[FaultProxy, JetStreamBackend]]:
    with FaultProxy("127.0.0.1", broker.port) as proxy:
        app = make_app(proxy.url.replace("nats://", "jetstream://"))
        app.conf.result_backend_transport_options = {
            "timeout": 0.5,
            "connect": {"reconnect_wait": 0.05},
        }
        app.backend.set("first", b"")
        yield proxy, app.backend
        app.backend.close()
        app.close()


@contextlib.contextmanager
def away(broker: LocalServer, seconds: float) -> Iterator[None]:
    """The server is away when the block begins, and comes back some seconds later."""
    broker.kill()
    back = threading.Timer(seconds, broker.start)
    back.start()
    try:
        yield
    finally:
        back.join()


def test_results_are_stored_and_read_after_an_outage(
    broker: LocalServer, backend: JetStreamBackend
) -> None:
    with away(broker, 0.6):
        backend.store_result("a", 1, "SUCCESS")
    with away(broker, 0.6):
        assert backend.get_task_meta("a")["result"] == 1
    with away(broker, 0.6):
        keys = [backend.get_key_for_task(name) for name in ("a", "b")]
        assert [value is not None for value in backend.mget(keys)] == [True, False]


def test_an_error_that_is_too_large_is_cut(
    app: Celery, broker: LocalServer, backend: JetStreamBackend
) -> None:
    """Nobody waits for the result of its task for ever."""
    with jsync.connect(broker.url) as nc:
        small = nc.jetstream().stream("KV_kombu-results")
        for task, limit in (("a", None), ("b", 10_000)):
            small.update(max_msg_size=limit or -1)
            size = limit or 2_000_000
            error, where = ValueError("x" * size), "y" * size
            backend.store_result(task, error, "FAILURE", traceback=where)
            with pytest.raises(BackendStoreError, match=r"ValueError.*xxx"):
                app.AsyncResult(task).get(timeout=SECONDS)


def test_a_result_is_waited_for_through_an_outage(
    app: Celery, broker: LocalServer, backend: JetStreamBackend
) -> None:
    waiting = app.AsyncResult("a")
    store = threading.Timer(1.5, backend.store_result, ("a", 1, "SUCCESS"))
    with away(broker, 0.6):
        store.start()
        assert waiting.get(timeout=SECONDS) == 1
    store.join()


def test_waiting_for_a_result_survives_an_outage(
    broker: LocalServer, backend: JetStreamBackend
) -> None:
    results: list[Any] = []
    waiting = threading.Thread(
        target=lambda: results.append(backend.wait_for("a", timeout=SECONDS))
    )
    waiting.start()
    time.sleep(0.5)
    with away(broker, 0.6):
        pass
    backend.store_result("a", 1, "SUCCESS")
    waiting.join(SECONDS)
    assert [meta["result"] for meta in results] == [1]


def test_a_deleted_bucket_is_made_again(
    broker: LocalServer, backend: JetStreamBackend
) -> None:
    calls: list[Callable[[], object]] = [
        lambda: backend.set("a", b"1"),
        lambda: backend.get("a"),
    ]
    for call in calls:
        with jsync.connect(broker.url) as nc:
            nc.jetstream().delete_key_value("kombu-results")
        call()
        with jsync.connect(broker.url) as nc:
            assert nc.jetstream().key_value("kombu-results").status().config.ttl


def test_an_addition_whose_answer_is_lost_counts_once(
    proxied: tuple[FaultProxy, JetStreamBackend],
) -> None:
    proxy, backend = proxied
    numbers = []
    for number in range(10):
        act = proxy.cut if number % 2 else lambda: None
        lost = Once(b'"stream":"KV_kombu-results"', act, "client")
        proxy.rewrite(lost)
        numbers.append(backend.incr("counter"))
        assert lost.happened.is_set()
    assert numbers == list(range(1, 11))


def test_additions_of_several_threads_all_count(backend: JetStreamBackend) -> None:
    numbers: list[int] = []

    def add() -> None:
        for _ in range(10):
            number = backend.incr("counter")
            numbers.append(number)

    threads = [threading.Thread(target=add) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
    assert sorted(numbers) == list(range(1, 41))


def test_a_replica_that_is_behind_hides_no_value(
    broker: LocalServer, backend: JetStreamBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    def behind(*_args: object, **_options: object) -> None:
        raise KeyNotFoundError("no key")

    backend.set("a", b"1")
    backend.set("b", b"1")
    backend.delete("b")
    options = backend._settings.options
    object.__setattr__(options, "replicas", 3)
    monkeypatch.setattr(jsync.KeyValue, "get", behind)
    assert [backend.get(key) for key in "abc"] == [b"1", None, None]


def test_threads_do_not_wait_for_each_others_attempts() -> None:
    threads, failures = 6, []

    def read(backend: JetStreamBackend) -> None:
        try:
            backend.bucket.get("a")
        except Error as error:
            failures.append(error)

    with FakeServer(Peer.hang) as silent:
        app = make_app(silent.url.replace("nats://", "jetstream://"))
        connect = {"connect": {"connect_timeout": 0.5}}
        app.conf.result_backend_transport_options = connect
        backend = app.backend
        waiting = [threading.Thread(target=read, args=(backend,)) for _ in range(6)]
        for thread in waiting:
            thread.start()
        for thread in waiting:
            thread.join(SECONDS)
        assert len(failures) == threads
        assert len(silent.peers) < threads
        app.close()


# Chords --------------------------------------------------------------------------------


class Parts:
    """A chord whose parts return by hand, and the calls of its body."""

    def __init__(self, app: Celery, size: int) -> None:
        self.app = app
        self.backend: JetStreamBackend = app.backend
        self.called: list[Any] = []
        self.ids = [f"part-{number}" for number in range(size)]
        results = [app.AsyncResult(name) for name in self.ids]
        self.group = GroupResult("gid", results, app=app)
        self.backend.apply_chord(("gid", results), None)
        self.backend.set_chord_size("gid", size)
        self.chord = app.signature("tasks.add")

    def returns(self, part: int) -> None:
        """A part has run, and its result is stored."""
        name = self.ids[part]
        request = SimpleNamespace(id=name, group="gid", chord=self.chord)
        self.backend.store_result(name, part, "SUCCESS", request=request)
        self.backend.on_chord_part_return(request, "SUCCESS", part)


@pytest.fixture
def parts(app: Celery, monkeypatch: pytest.MonkeyPatch) -> Parts:
    found = Parts(app, 3)

    def delay(signature: Any, *arguments: Any) -> None:
        found.called.append(arguments)

    monkeypatch.setattr("celery.canvas.Signature.delay", delay)
    return found


def test_a_chord_part_that_runs_twice_counts_once(parts: Parts) -> None:
    for part in (0, 0, 1, 0, 1):
        parts.returns(part)
    assert parts.called == []
    parts.returns(2)
    assert parts.called == [([0, 1, 2],)]
    for part in range(3):  # they run again, after the chord has ended
        parts.returns(part)
    assert len(parts.called) == 1


def test_a_part_killed_calling_the_body_calls_again(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def killed(*_: object) -> None:
        raise Killed

    parts.returns(0)
    parts.returns(1)
    with monkeypatch.context() as patch:
        patch.setattr(GroupResult, "join_native", killed)
        patch.setattr(GroupResult, "delete", killed)  # what follows does not run either
        with pytest.raises(Killed):
            parts.returns(2)
    parts.returns(0)
    assert parts.called == []
    parts.returns(2)
    assert parts.called == [([0, 1, 2],)]


def test_a_chord_leaves_one_key_beside_its_results(
    broker: LocalServer, parts: Parts
) -> None:
    for part in range(3):
        parts.returns(part)
    keys = set(parts.backend.bucket.keys("chord-unlock-gid.>", "chord-unlock-gid"))
    assert keys == {"chord-unlock-gid.body"}


def test_a_part_has_succeeded_once_it_is_counted(app: Celery, parts: Parts) -> None:
    """Celery asks for the state when a process of the pool was killed."""
    name = parts.ids[0]
    request = SimpleNamespace(id=name, group="gid", chord=parts.chord)
    parts.backend.store_result(name, 0, "SUCCESS", request=request)
    assert app.AsyncResult(name).state == "PENDING"
    parts.returns(0)
    assert app.AsyncResult(name).state == "SUCCESS"
    for part in (1, 2):
        parts.returns(part)
    assert app.AsyncResult(name).state == "SUCCESS"


def test_parts_that_return_together_call_the_body(app: Celery, parts: Parts) -> None:
    together = threading.Barrier(3)

    def run(part: int) -> None:
        together.wait(SECONDS)
        parts.returns(part)
        app.backend.close()  # each thread has its own

    threads = [threading.Thread(target=run, args=(part,)) for part in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
    assert parts.called == [([0, 1, 2],)]
