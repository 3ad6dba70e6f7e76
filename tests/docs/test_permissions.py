"""Tests that the permissions that the page on authentication names are the ones that calls need."""

from __future__ import annotations

import re
import threading
from typing import TYPE_CHECKING

import pytest

import jsync
from jsync import errors
from jsync.server import LocalServer

from ..support.accounts import Permissions, password_config
from ..support.servers import wait_for
from ..support.threads import LONG
from .markdown import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from jsync import Connection

pytestmark = pytest.mark.server

PAGE = (ROOT / "docs/guides/tls-auth.md").read_text()
TABLE = PAGE.partition("| calls | may publish |")[2].partition("\n\n")[0]
ROWS = [line.strip("| ").split(" | ") for line in TABLE.splitlines()[2:]]
REFERENCE = re.compile(r"like `(\w+)`(?: for the stream `(\w+)`)?")
SUBJECT = re.compile(r"`((?:\$|orders|dead)[^`]+)`")


def subjects_of(index: int) -> list[str]:
    """Return the subjects that a row of the table names, and those of the rows to which it refers."""
    cell = ROWS[index][1]
    found = SUBJECT.findall(cell)
    for call, stream in REFERENCE.findall(cell):
        # `get` and `put` are calls of buckets and of object stores.
        owner = max(n for n in range(index) if f"`{call}`" in ROWS[n][0])
        named = subjects_of(owner)
        found += [name.replace("ORDERS", stream) if stream else name for name in named]
    return found


def needed(index: int) -> list[str]:
    """Return the subjects of a row without those that only some streams need."""
    cell = ROWS[index][1]
    always = SUBJECT.findall(re.split(r", and with(?:out)? ", cell)[0])
    return [] if "like `" in cell else always


def publish(nc: Connection) -> None:
    js = nc.jetstream()
    js.publish("orders.new", b"")
    with js.publisher() as publisher:
        publisher.publish("orders.new", b"")
    with js.fast_ingest() as ingest:
        ingest.add("orders.new", b"")
    with js.atomic_batch() as batch:
        batch.add("orders.new", b"")


def pull(nc: Connection) -> None:
    worker = nc.jetstream().consumer("ORDERS", "worker")
    worker.next(timeout=LONG).ack_sync(timeout=LONG)
    for msg in worker.fetch(1, timeout=LONG):
        msg.nak()


def stream(nc: Connection) -> None:
    nc.jetstream().stream("ORDERS")


def stream_consumer(nc: Connection) -> None:
    nc.jetstream().stream("ORDERS").consumer("worker")


def get_message(nc: Connection) -> None:
    stream = nc.jetstream().stream("ORDERS")
    stream.get_message(1)
    assert list(stream.get_messages())
    assert list(stream.get_last_messages("orders.>"))


def ordered(nc: Connection) -> None:
    stream = nc.jetstream().stream("ORDERS")
    assert list(stream.ordered_consumer().messages(until_end=True))
    assert list(stream.read_arrow())


def subscribe(nc: Connection) -> None:
    js = nc.jetstream()
    with js.subscribe("orders.>", stream="ORDERS") as subscription:
        subscription.next(timeout=LONG).ack()
        nc.flush()
    with js.subscribe("orders.>", stream="ORDERS", ordered=True) as log:
        for _ in range(100):
            log.next(timeout=LONG)


def kv_get(nc: Connection) -> None:
    config = nc.jetstream().key_value("CONFIG")
    config.get("key")
    assert config.get_many(["key"])


def kv_put(nc: Connection) -> None:
    config = nc.jetstream().key_value("CONFIG")
    revision = config.put("other", b"")
    config.update("other", b"", last=revision)
    config.delete("other")
    config.create("other", b"")
    config.purge("other")


def kv_watch(nc: Connection) -> None:
    config = nc.jetstream().key_value("CONFIG")
    assert list(config.keys())
    assert config.history("key")
    with config.watch() as watch:
        watch.next(timeout=LONG)
    with config.live() as live:
        assert live["key"] == b"value"


def kv_lock(nc: Connection) -> None:
    config = nc.jetstream().key_value("CONFIG")
    with config.lock("lock", ttl=30):
        assert not config.lock("lock", ttl=30).acquire(timeout=0.1)


def object_get(nc: Connection) -> None:
    files = nc.jetstream().object_store("FILES")
    assert files.get("file") == bytes(300_000)
    files.info("file")


def object_put(nc: Connection) -> None:
    files = nc.jetstream().object_store("FILES")
    files.put("new", b"1")
    files.put("new", b"2")
    files.delete("new")


def object_list(nc: Connection) -> None:
    files = nc.jetstream().object_store("FILES")
    assert list(files.list())
    with files.watch() as watch:
        watch.next(timeout=LONG)


def worker(nc: Connection) -> None:
    app = jsync.Worker(
        stream="ORDERS",
        retry=jsync.Retry(delays=[1], attempts=1, dead_letter="dead.orders"),
    )
    handled = threading.Event()

    # Another consumer for each user, because the worker must create it.
    @app.handle("orders.>", consumer=f"handler{nc.client_id}")
    def handle(_: jsync.JetStreamMsg) -> None:
        handled.set()

    with app.start(nc) as running:
        while not handled.is_set():
            assert not running.wait(0.01)


CALLS: list[Callable[[Connection], None]] = [
    *(publish, pull, stream, stream_consumer, get_message, ordered, subscribe),
    *(kv_get, kv_put, kv_watch, kv_lock, object_get, object_put, object_list, worker),
]
INBOXES = ("_INBOX.>", "$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.ORDERS.*")
CASES: list[tuple[int, str | None]] = [(index, None) for index in range(len(CALLS))]
CASES += [(index, name) for index in range(len(CALLS)) for name in needed(index)]


def is_rejection(error: Exception, subject: str = "") -> bool:
    """Tell whether a permission is missing, for subjects like `subject`."""
    return isinstance(error, errors.PermissionsError) and (
        error.subject or ""
    ).startswith(subject.rstrip("*>"))


@pytest.fixture(scope="module")
def server() -> Iterator[LocalServer]:
    """A server with a user for each row, and a user that lacks each subject of a row."""
    permissions = {}
    for number, (index, missing) in enumerate(CASES):
        permissions[f"user{number}"] = Permissions(
            publish_allow=tuple(subjects_of(index)),
            publish_deny=() if missing is None else (missing,),
            subscribe_allow=INBOXES,
        )
    users = dict.fromkeys(["owner", *permissions], "x")
    config = password_config(users, **permissions)
    with LocalServer(jetstream=True, config=config) as server:
        with jsync.connect(server.url, user="owner", password="x") as nc:
            js = nc.jetstream()
            orders = js.create_stream(
                name="ORDERS",
                subjects=["orders.>"],
                allow_atomic=True,
                allow_batched=True,
                allow_direct=True,
            )
            js.create_stream(name="DEAD", subjects=["dead.>"])
            for number in range(100):
                js.publish("orders.new", b"%d" % number)
            orders.create_consumer(durable_name="worker")
            config_bucket = js.create_key_value(bucket="CONFIG", limit_marker_ttl=60)
            config_bucket.put("key", b"value")
            js.create_object_store(bucket="FILES").put("file", bytes(300_000))
        yield server


def test_the_table_has_a_row_for_each_call() -> None:
    assert len(ROWS) == len(CALLS)


@pytest.mark.parametrize(
    ("number", "missing"),
    [
        pytest.param(n, missing, id=f"{CALLS[index].__name__}-{missing}")
        for n, (index, missing) in enumerate(CASES)
    ],
)
def test_calls_need_the_permissions_of_the_table(
    server: LocalServer, number: int, missing: str | None
) -> None:
    call = CALLS[CASES[number][0]]
    reported: list[Exception] = []
    raised = None
    with jsync.connect(
        server.url, user=f"user{number}", password="x", on_error=reported.append
    ) as nc:
        try:
            call(nc)
            nc.flush()
        except errors.Error as error:
            raised = error
        if missing is not None:  # the report may come after what the call raised
            wait_for(lambda: any(is_rejection(error, missing) for error in reported))
    if missing is None:
        assert raised is None
        assert not any(is_rejection(error) for error in reported)
