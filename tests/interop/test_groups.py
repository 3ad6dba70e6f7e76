"""Tests of consumer groups with members of jsync and of orbit.go.

The Go program uses version 0.1 of the `pcgroups` of orbit.go. The unit tests cover the format of
version 0.2.
"""

from __future__ import annotations

import itertools
import threading
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

import jsync
from jsync import ConsumerGroupConfig, errors
from jsync.jetstream.groups.engine import subjects_of

from ..support.servers import wait_for
from .go_program import GoClient

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jsync.server import LocalServer

pytestmark = pytest.mark.server

LONG = 60.0
KEYS = [f"k{number}" for number in range(24)]


class Handled(NamedTuple):
    """A message, and the time when it was handled, by the clock that both programs share."""

    begun: int
    ended: int
    subject: str
    number: int
    by: str


class Log:
    """The messages that members of both languages have handled."""

    def __init__(self, go: GoClient) -> None:
        self._go = go
        self._lock = threading.Lock()
        self._all: list[Handled] = []

    def handler(self, name: str) -> Any:
        def handle(msg: jsync.JetStreamMsg) -> None:
            begun = time.time_ns()
            time.sleep(0.001)
            msg.ack()
            with self._lock:
                self._all.append(
                    Handled(begun, time.time_ns(), msg.subject, int(msg.data), name)
                )

        return handle

    def all(self) -> list[Handled]:
        told = ask(self._go, "seen") or []
        with self._lock:
            self._all += [
                Handled(m["begun"], m["ended"], m["subject"], int(m["data"]), "go")
                for m in told
            ]
            return list(self._all)

    def by(self, name: str) -> set[str]:
        return {one.subject for one in self.all() if one.by == name}

    def numbers(self, subject: str) -> list[int]:
        """Return the messages of a key, in the order in which they were first handled."""
        own = sorted(one for one in self.all() if one.subject == subject)
        return list(dict.fromkeys(one.number for one in own))

    def await_numbers(self, stream: str, count: int) -> None:
        """Block until each key has all its messages, in order."""
        expected = list(range(count))
        for key in KEYS:
            wait_for(lambda k=key: len(self.numbers(f"{stream}.{k}")) >= count, LONG)  # type: ignore[misc]
            assert self.numbers(f"{stream}.{key}") == expected


def ask(go: GoClient, op: str, **group: Any) -> Any:
    """Run an operation of the Go program, and return its result. An error fails the test."""
    answer = go.ask(f"group_{op}", group=group)
    assert "error" not in answer, answer
    return answer.get("told")


@pytest.fixture
def js(server: LocalServer) -> Iterator[jsync.JetStream]:
    with jsync.connect(server.url) as nc:
        yield nc.jetstream()


@pytest.fixture
def go(server: LocalServer) -> Iterator[GoClient]:
    with GoClient(server.url) as client:
        yield client


@pytest.fixture
def orders(js: jsync.JetStream, unique: str) -> Iterator[str]:
    """A stream of keys. Its group is deleted at the end, so that its bucket is clean."""
    js.create_stream(name=unique, subjects=[f"{unique}.*"], storage="memory")
    yield unique
    for group in list(js.consumer_groups(unique)):
        js.delete_consumer_group(unique, group.name)
    js.delete_stream(unique)


def publish(js: jsync.JetStream, stream: str, numbers: range) -> None:
    with js.publisher() as publisher:
        for number, key in itertools.product(numbers, KEYS):
            publisher.publish(f"{stream}.{key}", b"%d" % number)


def test_members_get_the_partitions_orbit_go_gives_them(go: GoClient) -> None:
    for partitions, names in itertools.product(
        (1, 2, 3, 7, 10, 16), ("a", "ba", "cab", "hgfedcba", "aab")
    ):
        group = ConsumerGroupConfig(
            kind="elastic",
            partitions=partitions,
            members=tuple(names),
            filters={"o.*": (1,)},
        )
        for name in {*names, "z"}:
            told = ask(go, "filters", member=name, members=[*names], count=partitions)
            assert subjects_of(group, name) == [
                each.replace(">", "o.*") for each in told or []
            ]
    mapped = ConsumerGroupConfig(
        kind="static", partitions=3, mappings={"a": (2, 0), "b": (1,)}
    )
    mappings = [
        {"member": "a", "partitions": [2, 0]},
        {"member": "b", "partitions": [1]},
    ]
    told = ask(go, "filters", member="a", mappings=mappings, count=3)
    assert subjects_of(mapped, "a") == told == ["2.>", "0.>"]


def test_an_orbit_go_group_has_members_of_both(
    js: jsync.JetStream, go: GoClient, orders: str
) -> None:
    where = {"stream": orders, "name": "g"}
    ask(go, "create_elastic", **where, count=6, filter=f"{orders}.*", indexes=[1])
    group = js.consumer_group(orders, "g")
    assert (group.config.format, group.config.filters) == ("0.1", {f"{orders}.*": (1,)})
    log = Log(go)
    ask(go, "join_elastic", **where, member="go", sleep=1)
    with (
        group.join("py") as member,
        member.consume(log.handler("py")),
    ):
        ask(go, "add", **where, members=["py", "go"])
        publish(js, orders, range(10))
        log.await_numbers(orders, 10)
        assert log.by("py") | log.by("go") == {f"{orders}.{key}" for key in KEYS}
        assert log.by("py")
        assert log.by("go")
        # jsync changes the members, and the Go member follows.
        assert group.delete_members("py") == ("go",)
        publish(js, orders, range(10, 20))
        log.await_numbers(orders, 20)
        assert member.partitions == ()
        # The Go program changes the members, and the jsync member follows.
        ask(go, "drop", **where, members=["go"])
        ask(go, "add", **where, members=["py"])
        publish(js, orders, range(20, 30))
        log.await_numbers(orders, 30)
        ask(go, "map", **where, mappings=_mappings({"py": [0, 1, 2], "go": [3, 4, 5]}))
        wait_for(lambda: member.partitions == (0, 1, 2), LONG)
        ask(go, "stop", member="go")


def _mappings(of: dict[str, list[int]]) -> list[dict[str, Any]]:
    return [{"member": name, "partitions": numbers} for name, numbers in of.items()]


def test_a_group_of_jsync_has_members_of_both(
    js: jsync.JetStream, go: GoClient, orders: str
) -> None:
    where = {"stream": orders, "name": "g"}
    group = js.create_consumer_group(
        orders,
        "g",
        partitions=6,
        filters={f"{orders}.*": [1]},
        members=["go", "py"],
        format="0.1",
    )
    assert ask(go, "list", **where) == ["g"]
    told = ask(go, "elastic_config", **where)
    assert (told["max_members"], told["members"]) == (6, ["go", "py"])
    ask(go, "create_elastic", **where, count=6, filter=f"{orders}.*", indexes=[1])
    log = Log(go)
    ask(go, "join_elastic", **where, member="go", sleep=1)
    with (
        group.join("py") as member,
        member.consume(log.handler("py")) as running,
    ):
        publish(js, orders, range(10))
        log.await_numbers(orders, 10)
        assert sorted(ask(go, "active", **where)) == ["go", "py"]
        js.delete_consumer_group(orders, "g")
        assert ask(go, "done", member="go") == "stopped"
        assert running.wait(LONG)


def test_a_deletion_by_orbit_go_ends_our_members(
    js: jsync.JetStream, go: GoClient, orders: str
) -> None:
    where = {"stream": orders, "name": "g"}
    group = js.create_consumer_group(
        orders,
        "g",
        partitions=2,
        filters={f"{orders}.*": [1]},
        members=["py"],
        format="0.1",
    )
    with group.join("py") as member:
        with member.consume(lambda msg: msg.ack()) as running:
            wait_for(lambda: member.partitions == (0, 1), LONG)
            ask(go, "delete_elastic", **where)
            assert running.wait(LONG)
    with pytest.raises(errors.ConsumerGroupNotFoundError):
        js.consumer_group(orders, "g")


def test_a_jsync_instance_takes_over_from_orbit_go(
    server: LocalServer, js: jsync.JetStream, orders: str
) -> None:
    group = js.create_consumer_group(
        orders,
        "g",
        partitions=6,
        filters={f"{orders}.*": [1]},
        members=["m"],
        format="0.1",
    )
    where = {"stream": orders, "name": "g", "member": "m"}
    # Version 0.1 has a minimum ack wait of 6 seconds.
    with GoClient(server.url) as go, group.join("m", ack_wait=6) as member:
        log = Log(go)
        ask(go, "join_elastic", **where, sleep=1)
        publish(js, orders, range(5))
        wait_for(lambda: len(log.all()) == 5 * len(KEYS), LONG)
        assert log.by("go") == {f"{orders}.{key}" for key in KEYS}
        with member.consume(log.handler("py")):
            publish(js, orders, range(5, 10))
            log.await_numbers(orders, 10)
            assert not log.by("py")
            ask(go, "step_down", **where)
            wait_for(lambda: stepped(js, orders, log), LONG)


def stepped(js: jsync.JetStream, stream: str, log: Log) -> bool:
    """Publish a message, and return whether the jsync member has received messages."""
    js.publish(f"{stream}.{KEYS[0]}", b"99")
    return bool(log.by("py"))


@pytest.mark.parametrize("creator", ["go", "jsync"])
def test_a_static_group_has_members_of_both(
    server: LocalServer, js: jsync.JetStream, go: GoClient, unique: str, creator: str
) -> None:
    js.create_stream(
        name=unique,
        subjects=[f"{unique}.*"],
        subject_transform={
            "src": f"{unique}.*",
            "dest": f"{{{{Partition(6,1)}}}}.{unique}.{{{{Wildcard(1)}}}}",
        },
        storage="memory",
    )
    where = {"stream": unique, "name": "g"}
    if creator == "go":
        ask(go, "create_static", **where, count=6, members=["go", "py"])
        group = js.consumer_group(unique, "g")
    else:
        group = js.create_consumer_group(
            unique, "g", kind="static", partitions=6, members=["go", "py"]
        )
        assert ask(go, "static_config", **where)["members"] == ["go", "py"]
    log = Log(go)
    ask(go, "join_static", **where, member="go", sleep=1)
    with (
        group.join("py") as member,
        member.consume(log.handler("py")) as running,
    ):
        publish(js, unique, range(10))
        log.await_numbers(unique, 10)
        assert len(log.all()) == 10 * len(KEYS)
        assert log.by("py")
        assert log.by("go")
        wait_for(lambda: sum(group.lag().values()) == 0, LONG)
        if creator == "go":
            js.delete_consumer_group(unique, "g")
            assert ask(go, "done", member="go") == "stopped"
        else:
            ask(go, "delete_static", **where)
        assert running.wait(LONG)
    js.delete_stream(unique)
