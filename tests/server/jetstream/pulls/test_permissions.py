"""Tests that a pull which the server refuses ends with the missing permission."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import jsync
from jsync import errors
from jsync.jetstream.api import CallbackRequest

from ....support.accounts import Permissions, password_config
from ....support.threads import LONG, Recorder, Thread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ....conftest import StartServer

pytestmark = pytest.mark.server

PULLS = "$JS.API.CONSUMER.MSG.NEXT.>"
CONFIG = password_config(
    {"owner": "x", "reader": "x", "silent": "x"},
    reader=Permissions(publish_deny=(PULLS,)),
    silent=Permissions(publish_deny=("$JS.ACK.>", "$JS.FC.>")),
)


@pytest.fixture
def owner(own_server: StartServer) -> Iterator[jsync.Connection]:
    server = own_server(config=CONFIG)
    with jsync.connect(server.url, user="owner", password="x") as nc:
        stream = nc.jetstream().create_stream(name="S", subjects=["S.>"])
        stream.create_consumer(durable_name="worker")
        for number in range(3):
            nc.jetstream().publish("S.a", b"%d" % number)
        yield nc


@pytest.fixture
def reader(owner: jsync.Connection) -> Iterator[jsync.JetStream]:
    """A context of a user that may not pull."""
    url = owner.connected_url or ""
    with jsync.connect(url, user="reader", password="x", on_error=str) as nc:
        yield nc.jetstream()


def wait_for_end(worker: jsync.Consumer) -> None:
    with worker.consume(print) as reading:
        reading.wait(LONG)


READS: dict[str, Callable[[jsync.Consumer], Any]] = {
    "next": lambda worker: worker.next(timeout=LONG),
    "fetch": lambda worker: list(worker.fetch(3, timeout=LONG)),
    "fetch to Arrow": lambda worker: worker.fetch(3, timeout=LONG).to_arrow(),
    "fetch_nowait": lambda worker: list(worker.fetch_nowait(3, timeout=LONG)),
    "messages": lambda worker: list(worker.messages()),
    "arrow_batches": lambda worker: list(worker.arrow_batches()),
    "consume": wait_for_end,
}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_a_denied_pull_ends_with_the_permission(
    reader: jsync.JetStream, read: Callable[[jsync.Consumer], Any]
) -> None:
    worker = reader.consumer("S", "worker")
    error = Thread(read, worker).error()
    assert isinstance(error, errors.PermissionsError)
    assert error.subject == "$JS.API.CONSUMER.MSG.NEXT.S.worker"


ORDERED_READS: dict[str, Callable[[jsync.OrderedConsumer], Any]] = {
    "next": lambda ordered: ordered.next(timeout=LONG),
    "fetch": lambda ordered: list(ordered.fetch(3, timeout=LONG)),
    "fetch_nowait": lambda ordered: list(ordered.fetch_nowait(3)),
    "messages": lambda ordered: list(ordered.messages()),
}


@pytest.mark.parametrize("read", ORDERED_READS.values(), ids=ORDERED_READS)
def test_a_denied_ordered_pull_creates_no_consumers(
    owner: jsync.Connection,
    reader: jsync.JetStream,
    read: Callable[[jsync.OrderedConsumer], Any],
) -> None:
    told = Recorder()
    with owner.jetstream().advisories(jsync.models.ConsumerAction, callback=told):
        owner.flush()
        with reader.ordered_consumer("S") as ordered:
            error = Thread(read, ordered).error()
        # The advisory can come after the error.
        created = told.get()
    assert isinstance(error, errors.PermissionsError)
    assert error.subject.startswith(PULLS[:-1])
    assert created.action == "create"
    assert told.waiting == 0 or told.get().action == "delete"


def test_a_denied_request_calls_back_with_the_permission(
    reader: jsync.JetStream,
) -> None:
    told = Recorder()
    api = reader.bind_stream("S")._api
    CallbackRequest(api, "CONSUMER.MSG.NEXT.S.worker", None, told)
    assert isinstance(told.get(), errors.PermissionsError)


@pytest.fixture
def silent(owner: jsync.Connection) -> Iterator[jsync.Connection]:
    """A connection of a user that may pull, but not send acks."""
    url = owner.connected_url or ""
    with jsync.connect(url, user="silent", password="x", on_error=str) as nc:
        yield nc


def acknowledge_all(worker: jsync.Consumer) -> None:
    for msg in worker.messages():
        msg.ack()


def acknowledge_in_callbacks(worker: jsync.Consumer) -> None:
    with worker.consume(jsync.JetStreamMsg.ack) as reading:
        reading.wait(LONG)


@pytest.mark.parametrize("read", [acknowledge_all, acknowledge_in_callbacks])
def test_a_denied_ack_ends_reading(
    silent: jsync.Connection, read: Callable[[jsync.Consumer], None]
) -> None:
    error = Thread(read, silent.jetstream().consumer("S", "worker")).error()
    assert isinstance(error, errors.PermissionsError)
    assert error.subject.startswith("$JS.ACK.S.worker.")


def test_a_denied_ack_ends_a_push_subscription(silent: jsync.Connection) -> None:
    with silent.jetstream().subscribe("S.>", idle_heartbeat=60) as subscription:
        subscription.next(timeout=LONG).ack()
        with pytest.raises(errors.PermissionsError) as refused:
            list(iter(lambda: subscription.next(timeout=LONG), None))
    assert refused.value.subject.startswith("$JS.ACK.S.")


def test_denied_flow_control_ends_a_push_subscription(
    owner: jsync.Connection, silent: jsync.Connection
) -> None:
    with owner.jetstream().publisher() as publisher:
        for _ in range(100):
            publisher.publish("S.a", bytes(50_000))
    with (
        silent.jetstream().subscribe("S.>", ordered=True) as subscription,
        pytest.raises(errors.PermissionsError) as refused,
    ):
        list(iter(lambda: subscription.next(timeout=LONG), None))
    assert refused.value.subject.startswith("$JS.FC.S.")


def test_denied_acks_of_others_end_nothing(
    owner: jsync.Connection, silent: jsync.Connection
) -> None:
    owner.jetstream().create_consumer("S", durable_name="worker2")
    with silent.jetstream().consumer("S", "worker").messages() as messages:
        assert messages.next(LONG).data == b"0"
        silent.jetstream().consumer("S", "worker2").next(timeout=LONG).ack()
        silent.flush()
        assert [messages.next(LONG).data for _ in range(2)] == [b"1", b"2"]
        owner.jetstream().publish("S.a", b"3")
        assert messages.next(LONG).data == b"3"


def test_a_worker_without_acks_makes_no_dead_letters(
    owner: jsync.Connection, silent: jsync.Connection
) -> None:
    js = owner.jetstream()
    dead = js.create_stream(name="DEAD", subjects=["dead"])
    js.create_consumer("S", durable_name="w", filter_subject="S.>", ack_wait=0.2)
    app = jsync.Worker(stream="S", retry=jsync.Retry(attempts=1, dead_letter="dead"))
    app.handle("S.>", consumer="w")(lambda _: None)
    with pytest.raises(errors.PermissionsError), app.start(silent) as running:
        running.wait(LONG)
    assert dead.info().state.messages == 0
