"""Tests of consumer groups: create, change and delete them, and add and drop members."""

from __future__ import annotations

import contextlib
import gc
import itertools
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

import jsync
from jsync import MemberState, Retry, errors
from jsync.jetstream import management
from jsync.jetstream.groups import member_loop

from ....support.accounts import MAX_BYTES_REQUIRED
from ....support.servers import wait_for
from ....support.threads import LONG, SOON, Recorder, Thread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from jsync.server import LocalServer

    from ....conftest import StartServer

KEYS = [f"k{number}" for number in range(24)]
DEEP = b'{"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
"""JSON that is nested too deeply to be read."""


@pytest.fixture
def orders(js: jsync.JetStream, unique: str) -> Iterator[str]:
    """A stream of keys. Deleting it deletes its groups."""
    js.create_stream(name=unique, subjects=[f"{unique}.*"], storage="memory")
    yield unique
    for group in list(js.consumer_groups(unique)):
        js.delete_consumer_group(unique, group.name, kind=group.kind)
    with contextlib.suppress(errors.StreamNotFoundError):
        js.delete_stream(unique)


@pytest.fixture
def group(js: jsync.JetStream, orders: str) -> jsync.ConsumerGroup:
    """An elastic group with 6 partitions and no members."""
    return js.create_consumer_group(
        orders, "g", partitions=6, filters={f"{orders}.*": [1]}
    )


def publish(js: jsync.JetStream, stream: str, numbers: range) -> None:
    with js.publisher() as publisher:
        for number, key in itertools.product(numbers, KEYS):
            publisher.publish(f"{stream}.{key}", b"%d" % number)


class Log:
    """The handled messages, as subject and number in order, and their members."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.numbers: dict[str, list[int]] = {}
        self.of: dict[str, set[str]] = {}
        self.busy: set[str] = set()
        self.overlaps: list[str] = []

    def handler(self, name: str) -> Callable[[jsync.JetStreamMsg], None]:
        def handle(msg: jsync.JetStreamMsg) -> None:
            subject = msg.subject
            with self.lock:
                if subject in self.busy:
                    self.overlaps.append(subject)
                self.busy.add(subject)
            time.sleep(0.001)
            with self.lock:
                self.busy.discard(subject)
                self.numbers.setdefault(subject, []).append(int(msg.data))
                self.of.setdefault(name, set()).add(subject)
            msg.ack()

        return handle

    def await_numbers(self, stream: str, count: int) -> None:
        """Block until each key has its messages: each once, in order, one at a time."""
        wait_for(
            lambda: sum(map(len, self.numbers.copy().values())) >= count * len(KEYS),
            LONG,
        )
        expected = {f"{stream}.{key}": list(range(count)) for key in KEYS}
        assert self.numbers == expected
        assert self.overlaps == []


def partitions_read(*members: jsync.GroupMember) -> list[int]:
    return sorted(number for member in members for number in member.partitions)


def acknowledge(member: jsync.GroupMember) -> None:
    for msg in member:
        msg.ack()


def refuse_consumers(js: jsync.JetStream, stream: str) -> None:
    """Have the server refuse the consumers of members, which live longer than this."""
    js.stream(stream).update(consumer_limits={"inactive_threshold": 0.1})


def refill(group: jsync.ConsumerGroup, name: str) -> None:
    group.set_mappings({})
    group.add_members(name)


# Groups -------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["", "Elastic", 1, []])
def test_a_group_of_an_unknown_kind_is_rejected(
    js: jsync.JetStream, orders: str, kind: Any
) -> None:
    for call in (js.consumer_group, js.delete_consumer_group):
        with pytest.raises(errors.ConfigError, match="kind is elastic or static"):
            call(orders, "g", kind=kind)


@pytest.mark.parametrize("kind", ["elastic", "static"])
def test_a_group_exists_where_streams_need_limits(
    own_server: StartServer, kind: Any
) -> None:
    server = own_server(config=MAX_BYTES_REQUIRED)
    with jsync.connect(server.url) as nc:
        js = nc.jetstream()
        js.create_stream(name="S", subjects=["s.*"], max_bytes=1000)
        options: dict[str, Any] = {"partitions": 2, "members": ["a"], "kind": kind}
        if kind == "elastic":
            with pytest.raises(errors.ConfigError, match="give max_buffered_bytes"):
                js.create_consumer_group("S", "g", **options)
            with pytest.raises(errors.ConsumerGroupNotFoundError):
                js.consumer_group("S", "g")
            options["max_buffered_bytes"] = 1000
        group = js.create_consumer_group("S", "g", **options)
        assert [made.name for made in js.consumer_groups()] == [group.name]


def test_a_group_is_created_found_listed_and_deleted(
    js: jsync.JetStream, orders: str
) -> None:
    made = js.create_consumer_group(
        orders,
        "g",
        partitions=4,
        filters={f"{orders}.*": [1]},
        members=["a", "b"],
        max_buffered_messages=1000,
    )
    assert (made.name, made.stream_name, made.kind) == ("g", orders, "elastic")
    again = js.create_consumer_group(
        orders,
        "g",
        partitions=4,
        filters={f"{orders}.*": [1]},
        max_buffered_messages=1000,
    )
    assert again.info().members == ("a", "b")
    with pytest.raises(errors.ConsumerGroupExistsError, match=f"{orders}.g"):
        js.create_consumer_group(orders, "g", partitions=5)
    found = js.consumer_group(orders, "g")
    assert found.config == made.config
    assert [each.name for each in js.consumer_groups(orders)] == ["g"]
    assert (orders, "g") in [(g.stream_name, g.name) for g in js.consumer_groups()]
    own = js.stream(f"{orders}-g").config
    assert (own.retention, own.discard, own.max_msgs) == ("workqueue", "new", 1000)
    js.delete_consumer_group(orders, "g")
    assert list(js.consumer_groups(orders)) == []
    for call in (js.consumer_group, js.delete_consumer_group):
        with pytest.raises(errors.ConsumerGroupNotFoundError, match="'g'"):
            call(orders, "g")
    with pytest.raises(errors.ConsumerGroupNotFoundError):
        found.info()
    with pytest.raises(errors.StreamNotFoundError):
        js.stream(f"{orders}-g")
    with pytest.raises(errors.StreamNotFoundError):
        js.create_consumer_group("NONE", "g", partitions=1)


def test_a_group_without_its_stream_is_not_created(
    js: jsync.JetStream, orders: str
) -> None:
    js.create_stream(name=f"{orders}-g", subjects=[f"other.{orders}"], storage="memory")
    with pytest.raises(errors.StreamNameInUseError):
        js.create_consumer_group(orders, "g", partitions=2)
    assert list(js.consumer_groups(orders)) == []
    js.delete_stream(f"{orders}-g")


def test_members_are_added_dropped_and_mapped(group: jsync.ConsumerGroup) -> None:
    assert group.add_members("b", "a") == ("b", "a")
    assert group.add_members("a") == ("b", "a")
    assert [m.partitions for m in group.members()] == [(0, 1, 2), (3, 4, 5)]
    assert group.delete_members("b", "z") == ("a",)
    assert group.config.partitions_of("a") == (0, 1, 2, 3, 4, 5)
    group.set_mappings({"x": [0, 5], "y": [1, 2, 3, 4]})
    assert group.info().mappings == {"x": (0, 5), "y": (1, 2, 3, 4)}
    for change in (group.add_members, group.delete_members):
        with pytest.raises(errors.ConfigError, match="mappings"):
            change("a")
    with pytest.raises(errors.ConfigError, match="without a member"):
        group.set_mappings({"x": [0]})
    group.set_mappings({})
    assert group.add_members("a") == ("a",)


def test_changes_by_many_at_once_are_all_done(
    js: jsync.JetStream, group: jsync.ConsumerGroup
) -> None:
    names = [f"m{number}" for number in range(6)]
    groups = [js.consumer_group(group.stream_name, "g") for _ in names]
    adding = [
        Thread(g.add_members, name) for g, name in zip(groups, names, strict=True)
    ]
    for each in adding:
        each.result()
    assert sorted(group.info().members) == names


def test_lag_counts_unacknowledged_messages_by_partition(
    js: jsync.JetStream, group: jsync.ConsumerGroup, orders: str
) -> None:
    publish(js, orders, range(3))
    wait_for(lambda: sum(group.lag().values()) == 3 * len(KEYS))
    assert group.source_lag() == 0
    lag = group.lag()
    assert list(lag) == [0, 1, 2, 3, 4, 5]
    group.add_members("a")
    with group.join("a") as member:
        for msg in itertools.islice(member, 9):
            msg.ack()
    wait_for(lambda: sum(group.lag().values()) == 3 * len(KEYS) - 9)


# Members ------------------------------------------------------------------------------


def test_members_share_messages_and_keep_keys_in_order(
    js: jsync.JetStream, group: jsync.ConsumerGroup, orders: str
) -> None:
    log = Log()
    group.add_members("a", "b")
    with group.join("a") as a, group.join("b") as b:
        with a.consume(log.handler("a")), b.consume(log.handler("b")):
            publish(js, orders, range(20))
            log.await_numbers(orders, 20)
            assert (a.partitions, b.partitions) == ((0, 1, 2), (3, 4, 5))
            assert log.of["a"] | log.of["b"] == {f"{orders}.{key}" for key in KEYS}
            assert not log.of["a"] & log.of["b"]


@pytest.mark.quick
def test_joins_and_leaves_keep_keys_ordered_and_exclusive(
    js: jsync.JetStream, group: jsync.ConsumerGroup, orders: str
) -> None:
    log, names = Log(), ["a", "b", "c", "d"]
    group.add_members("a")
    with contextlib.ExitStack() as stack:
        members = [stack.enter_context(group.join(name)) for name in names]
        for member in members:
            stack.enter_context(member.consume(log.handler(member.name)))
        published = 0

        def step(change: Callable[[], object], active: int) -> None:
            nonlocal published
            publish(js, orders, range(published, published + 10))
            change()
            publish(js, orders, range(published + 10, published + 20))
            published += 20
            wait_for(lambda: partitions_read(*members) == [0, 1, 2, 3, 4, 5], LONG)
            log.await_numbers(orders, published)
            assert sum(bool(member.partitions) for member in members) == active

        step(lambda: group.add_members("b"), 2)
        step(lambda: group.add_members("c", "d"), 4)
        step(lambda: group.delete_members("a", "b"), 2)
        step(lambda: group.set_mappings({"a": [5, 0], "d": [1, 2, 3, 4]}), 2)
        step(lambda: refill(group, "b"), 1)
        assert log.overlaps == []


def test_a_partition_stays_while_its_message_is_handled(
    js: jsync.JetStream, group: jsync.ConsumerGroup, orders: str
) -> None:
    """The handler takes longer than `ack_wait`, and its consumer must not expire."""
    group.add_members("a")
    subject = f"{orders}.{KEYS[0]}"
    js.publish(subject, b"1")
    with group.join("a", ack_wait=1) as a, group.join("b", ack_wait=1) as b:
        (first,) = itertools.islice(a, 1)
        group.set_mappings({"b": range(6)})
        with pytest.raises(errors.TimeoutError):
            b.next(6.0)
        first.ack()
        js.publish(subject, b"2")
        taken = Thread(lambda: a.next(0.1))
        assert b.next(LONG).data == b"2"
        assert isinstance(taken.error(), errors.TimeoutError)
        assert first.metadata.num_delivered == 1


def test_a_member_waits_until_it_is_added(
    js: jsync.JetStream, group: jsync.ConsumerGroup, orders: str
) -> None:
    js.publish(f"{orders}.k", b"1")
    with group.join("a") as member:
        waiting = Thread(member.next, LONG)
        wait_for(lambda: member.state is MemberState.IDLE)
        group.add_members("a")
        msg = waiting.result()
        assert (msg.subject, msg.data) == (f"{orders}.k", b"1")
        assert msg.metadata.stream == f"{orders}-g"
        msg.ack()
        with pytest.raises(errors.TimeoutError, match="'a'"):
            member.next(0)
    assert member.closed
    assert list(member) == []
    with pytest.raises(errors.SubscriptionClosedError):
        member.next(0)


def test_unacknowledged_messages_precede_later_ones_of_their_key(
    js: jsync.JetStream, group: jsync.ConsumerGroup, orders: str
) -> None:
    group.add_members("a")
    for number in (b"1", b"2"):
        js.publish(f"{orders}.k", number)
    with group.join("a", ack_wait=1) as member:
        assert member.next(LONG).data == b"1"
        again = member.next(LONG)
        assert (again.data, again.metadata.num_delivered) == (b"1", 2)
        again.nak()
        again = member.next(LONG)
        assert (again.data, again.metadata.num_delivered) == (b"1", 3)
        again.ack()
        member.next(LONG).ack()


def test_retries_keep_order_and_end_in_dead_letters(
    js: jsync.JetStream, group: jsync.ConsumerGroup, orders: str
) -> None:
    js.create_stream(name=f"{orders}D", subjects=[f"dead.{orders}"], storage="memory")
    group.add_members("a")
    handled: list[bytes] = []

    def handle(msg: jsync.JetStreamMsg) -> None:
        handled.append(msg.data)
        if msg.data == b"bad":
            raise ValueError("no")
        msg.ack()

    policy = Retry(delays=[0.01], attempts=2, dead_letter=f"dead.{orders}")
    ended = Recorder()
    for data in (b"bad", b"good"):
        js.publish(f"{orders}.k", data)
    with group.join("a", on_error=ended) as member:
        with member.consume(handle, retry=policy):
            wait_for(lambda: handled == [b"bad", b"bad", b"good"], LONG)
    letter = js.stream(f"{orders}D").get_message(1)
    assert letter.data == b"bad"
    js.delete_stream(f"{orders}D")


def test_standbys_replace_instances_that_leave_or_step_down(
    js: jsync.JetStream, group: jsync.ConsumerGroup, orders: str
) -> None:
    group.add_members("a")
    log = Log()
    with contextlib.ExitStack() as stack:
        running = {}
        for name in ("one", "two", "three"):
            # No pin expires during the test.
            member = stack.enter_context(group.join("a", ack_wait=120))
            running[name] = member.consume(log.handler(name))
            stack.callback(running[name].stop)
            wait_for(lambda m=member: m.state is MemberState.ACTIVE)  # type: ignore[misc]
        publish(js, orders, range(2))
        log.await_numbers(orders, 2)
        (first,) = log.of
        (info,) = group.members()
        assert (info.active, info.pinned, info.waiting) == (True, True, 3)
        running.pop(first).stop()
        publish(js, orders, range(2, 4))
        log.await_numbers(orders, 4)
        (second,) = log.of.keys() - {first}
        group.step_down("a")
        publish(js, orders, range(4, 6))
        log.await_numbers(orders, 6)
        assert second in running
    with pytest.raises(errors.ConsumerNotFoundError):
        group.step_down("z")


def test_a_member_ends_with_its_group_or_connection(
    server: LocalServer, js: jsync.JetStream, group: jsync.ConsumerGroup, orders: str
) -> None:
    with group.join("a") as member:
        waiting = Thread(lambda: list(member))
        waiting.wait_until_blocked()
        with pytest.raises(errors.ConcurrentUseError, match="'a'"):
            member.next(0)
        js.delete_consumer_group(orders, "g")
        assert waiting.result() == []
    with jsync.connect(server.url) as nc:
        js = nc.jetstream()
        group = js.create_consumer_group(orders, "g", partitions=2, members=["a"])
        member = group.join("a")
        waiting = Thread(lambda: list(member))
        waiting.wait_until_blocked()
        nc.close()
        assert isinstance(waiting.error(), errors.ConnectionClosedError)


def test_a_member_continues_after_its_consumer_was_deleted(
    js: jsync.JetStream, group: jsync.ConsumerGroup, orders: str
) -> None:
    log = Log()
    group.add_members("a")
    with group.join("a") as member, member.consume(log.handler("a")):
        for number in range(5):
            wait_for(lambda: member.state is MemberState.ACTIVE)
            js.delete_consumer(f"{orders}-g", "a")
            publish(js, orders, range(number, number + 1))
            log.await_numbers(orders, number + 1)
            # A deleted consumer takes no ack, and its message is delivered again.
            wait_for(lambda: not js.stream(f"{orders}-g").info().state.messages)


def test_a_connection_drain_finishes_the_message_and_leaves(
    server: LocalServer, js: jsync.JetStream, group: jsync.ConsumerGroup, orders: str
) -> None:
    group.add_members("a")
    publish(js, orders, range(1))
    handled: list[str] = []

    def handle(msg: jsync.JetStreamMsg) -> None:
        time.sleep(0.01)
        msg.ack()
        handled.append(msg.subject)

    with jsync.connect(server.url) as nc:
        member = nc.jetstream().consumer_group(orders, "g").join("a")
        running = member.consume(handle)
        wait_for(lambda: len(handled) >= 5)
    at_the_end = list(handled)
    assert running.wait(0)
    assert member.state is MemberState.ENDED
    # The next instance need not wait for the ack_wait of the first one.
    with group.join("a") as again, again.consume(handle):
        wait_for(lambda: len(handled) == len(KEYS))
    assert handled[: len(at_the_end)] == at_the_end
    assert sorted(handled) == sorted(f"{orders}.{key}" for key in KEYS)


def test_a_connection_drain_makes_an_iterated_member_leave(
    server: LocalServer, js: jsync.JetStream, orders: str, group: jsync.ConsumerGroup
) -> None:
    group.add_members("a")
    with jsync.connect(server.url) as nc:
        member = nc.jetstream().consumer_group(orders, "g").join("a")
        reading: Thread[list[jsync.JetStreamMsg]] = Thread(list, member)
        wait_for(lambda: bool(member.partitions))
        reading.wait_until_blocked()
    assert reading.result() == []
    assert member.closed
    # Its consumer is gone, so the next instance need not wait.
    assert list(js.consumer_names(f"{orders}-g")) == []


@pytest.mark.parametrize("acked", [True, False])
def test_a_member_that_nobody_holds_leaves_the_group(
    js: jsync.JetStream, orders: str, group: jsync.ConsumerGroup, acked: bool
) -> None:
    group.add_members("a")
    publish(js, orders, range(1))
    before = threading.active_count()
    member = group.join("a", ack_wait=1)
    msg = member.next(SOON)
    assert threading.active_count() > before
    if acked:
        msg.ack_sync()
    del member
    wait_for(lambda: threading.active_count() == before)
    with group.join("a") as again:
        sequence = again.next(SOON).metadata.stream_sequence
        # A message without an ack comes again.
        assert (sequence == msg.metadata.stream_sequence) is not acked


def test_a_handler_keeps_its_member(
    js: jsync.JetStream, orders: str, group: jsync.ConsumerGroup
) -> None:
    group.add_members("a")
    log = Log()
    with group.join("a").consume(log.handler("a")):
        gc.collect()
        publish(js, orders, range(3))
        log.await_numbers(orders, 3)


def test_members_of_a_deleted_group_end_without_error(
    js: jsync.JetStream, orders: str
) -> None:
    for number in range(10):
        group = js.create_consumer_group(orders, "g", partitions=2, members=["a", "b"])
        with group.join("a") as a, group.join("b") as b:
            running = [each.consume(lambda msg: msg.ack()) for each in (a, b)]
            wait_for(lambda m=(a, b): partitions_read(*m) == [0, 1])  # type: ignore[misc]
            publish(js, orders, range(number, number + 1))
            js.delete_consumer_group(orders, "g")
            assert [each.wait(LONG) for each in running] == [True, True]


def test_a_group_without_its_stream_ends_its_members(
    js: jsync.JetStream,
    group: jsync.ConsumerGroup,
    orders: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(member_loop, "CONFIRM_SECONDS", 0.1)
    group.add_members("a")
    with group.join("a") as member:
        waiting = Thread(lambda: list(member))
        wait_for(lambda: member.state is MemberState.ACTIVE)
        js.delete_stream(f"{orders}-g")
        assert isinstance(waiting.error(), errors.StreamNotFoundError)


def test_a_member_continues_after_its_stream_is_restored(
    js: jsync.JetStream,
    group: jsync.ConsumerGroup,
    orders: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The servers of a cluster also deny streams right after their start."""
    missing = threading.Event()

    def upsert_consumer(*args: Any) -> jsync.ConsumerInfo:
        try:
            return management.upsert_consumer(*args)
        except errors.StreamNotFoundError:
            missing.set()
            raise

    monkeypatch.setattr(member_loop, "upsert_consumer", upsert_consumer)
    group.add_members("a")
    with group.join("a") as member:
        waiting = Thread(member.next, LONG)
        wait_for(lambda: member.state is MemberState.ACTIVE)
        js.delete_stream(f"{orders}-g")
        assert missing.wait(LONG)
        js.create_consumer_group(
            orders, "g", partitions=6, filters={f"{orders}.*": [1]}
        )
        js.publish(f"{orders}.k", b"1")
        assert waiting.result().data == b"1"


def test_a_refused_member_asks_less_and_less(
    js: jsync.JetStream, group: jsync.ConsumerGroup, orders: str
) -> None:
    """The pauses between its requests grow, and a change of the group ends them."""
    refuse_consumers(js, f"{orders}-g")
    group.add_members("a")
    asked: list[float] = []
    with group.join("a", on_error=lambda _: asked.append(time.monotonic())) as member:
        waiting = Thread(lambda: list(member))
        wait_for(lambda: len(asked) >= 6)
        assert asked[5] - asked[0] > (1 + 2 + 4 + 8) * member_loop.INITIAL_BACKOFF
        member.stop()
        waiting.result()


def test_a_refused_member_hears_of_changes_at_once(
    js: jsync.JetStream,
    group: jsync.ConsumerGroup,
    orders: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for pause in ("INITIAL_BACKOFF", "MAX_BACKOFF"):
        monkeypatch.setattr(member_loop, pause, 3600.0)
    refuse_consumers(js, f"{orders}-g")
    group.add_members("a")
    told = Recorder()
    with group.join("a", on_error=told) as member:
        waiting = Thread(lambda: list(member))
        assert isinstance(told.get(), errors.APIError)
        group.delete_members("a")
        wait_for(lambda: member.state is MemberState.IDLE)
        group.add_members("a")
        assert isinstance(told.get(), errors.APIError)
        member.stop()
        waiting.result()


def test_changes_other_than_membership_end_members_with_errors(
    js: jsync.JetStream, group: jsync.ConsumerGroup, orders: str
) -> None:
    bucket = js.key_value("elastic-consumer-groups")
    stored = bucket.get(f"{orders}.g").value
    for bad, error in (
        (stored.replace(b":6", b":7"), errors.ConsumerGroupChangedError),
        (b"no json", errors.InvalidConsumerGroupError),
        (DEEP, errors.InvalidConsumerGroupError),
    ):
        bucket.put(f"{orders}.g", stored)
        with group.join("a") as member:
            waiting = Thread(lambda m=member: list(m))
            waiting.wait_until_blocked()
            bucket.put(f"{orders}.g", bad)
            assert type(waiting.error()) is error
            with pytest.raises(error):
                member.next(0)
    bucket.put(f"{orders}.g", stored)


@pytest.mark.parametrize("bad", [b"no json", DEEP], ids=["no json", "too deep"])
def test_a_group_with_bad_configuration_is_left_out(
    js: jsync.JetStream, group: jsync.ConsumerGroup, orders: str, bad: bytes
) -> None:
    js.key_value("elastic-consumer-groups").put(f"{orders}.bad", bad)
    assert [each.name for each in js.consumer_groups(orders)] == ["g"]
    with pytest.raises(errors.InvalidConsumerGroupError, match="bad"):
        js.consumer_group(orders, "bad")
    js.delete_consumer_group(orders, "bad")


def test_the_whole_subject_is_the_key_without_wildcards(
    js: jsync.JetStream, orders: str
) -> None:
    log = Log()
    group = js.create_consumer_group(orders, "g", partitions=6, members=["a", "b"])
    with group.join("a") as a, group.join("b") as b:
        with a.consume(log.handler("a")), b.consume(log.handler("b")):
            publish(js, orders, range(5))
            log.await_numbers(orders, 5)
            assert log.of.keys() == {"a", "b"}


# Static groups ------------------------------------------------------------------------


@pytest.fixture
def numbered(js: jsync.JetStream, unique: str) -> Iterator[str]:
    """A stream whose subjects begin with one of 6 partitions."""
    js.create_stream(
        name=unique,
        subjects=[f"{unique}.*"],
        subject_transform={
            "src": f"{unique}.*",
            "dest": f"{{{{Partition(6,1)}}}}.{unique}.{{{{Wildcard(1)}}}}",
        },
        storage="memory",
    )
    yield unique
    for group in list(js.consumer_groups(unique)):
        js.delete_consumer_group(unique, group.name, kind=group.kind)
    js.delete_stream(unique)


@pytest.mark.parametrize(
    "share", [{"members": ["a", "b"]}, {"mappings": {"a": [0, 5], "b": [1, 2, 3, 4]}}]
)
def test_a_static_group_reads_the_stream_itself(
    js: jsync.JetStream,
    numbered: str,
    share: Mapping[str, Sequence[str]],
) -> None:
    group = js.create_consumer_group(
        numbered,
        "g",
        kind="static",
        partitions=6,
        **share,  # type: ignore[arg-type]
    )
    assert js.consumer_group(numbered, "g").config == group.config
    log = Log()
    publish(js, numbered, range(5))
    assert sum(group.lag().values()) == 5 * len(KEYS)
    with pytest.raises(errors.NotInConsumerGroupError, match="'z'"):
        group.join("z")
    for change in (group.add_members, group.delete_members):
        with pytest.raises(errors.ConfigError, match="static"):
            change("a")
    with group.join("a") as a, group.join("b") as b:
        with a.consume(log.handler("a")), b.consume(log.handler("b")):
            log.await_numbers(numbered, 5)
            wait_for(lambda: sum(group.lag().values()) == 0)
    # The consumers keep their positions while no member is there.
    publish(js, numbered, range(5, 8))
    with group.join("a") as a, group.join("b") as b:
        with a.consume(log.handler("a")), b.consume(log.handler("b")):
            log.await_numbers(numbered, 8)
    assert sorted(js.consumer_names(numbered)) == ["g-a", "g-b"]


def test_any_change_of_a_static_group_ends_members(
    js: jsync.JetStream, numbered: str
) -> None:
    group = js.create_consumer_group(
        numbered, "g", kind="static", partitions=6, members=["a"]
    )
    other = js.create_consumer_group(
        numbered, "g-x", kind="static", partitions=6, members=["a"]
    )
    bucket = js.key_value("static-consumer-groups")
    with group.join("a") as member, other.join("a") as beside:
        publish(js, numbered, range(1))
        # Only the first message tells a member that the server has chosen it.
        for each in (beside, member):
            next(iter(each)).ack()
        waiting = Thread(acknowledge, member)
        wait_for(lambda: member.state is MemberState.ACTIVE)
        stored = bucket.get(f"{numbered}.g").value
        bucket.put(f"{numbered}.g", stored.replace(b'"a"', b'"b"'))
        assert isinstance(waiting.error(), errors.ConsumerGroupChangedError)
        # Deleting a group keeps the consumers of another group whose name begins the same.
        js.delete_consumer_group(numbered, "g")
        assert list(js.consumer_names(numbered)) == ["g-x-a"]
    with pytest.raises(errors.ConfigError, match="at least 1 second"):
        other.join("a", ack_wait=0.5)


def test_one_member_too_many_changes_nothing(group: jsync.ConsumerGroup) -> None:
    """The names are sorted, so it would take the partitions of another member."""
    names = [f"m{number}" for number in range(6)]
    group.add_members(*names)
    with pytest.raises(errors.ConfigError, match="more members than its 6 partitions"):
        group.add_members("a")
    assert [*group.info().members] == names
    assert group.add_members("m1") == (*names,)


def test_an_ended_threads_message_goes_to_a_standby(
    js: jsync.JetStream, group: jsync.ConsumerGroup, orders: str
) -> None:
    group.add_members("a")
    js.publish(f"{orders}.k", b"1")
    with group.join("a", ack_wait=1) as first, group.join("a", ack_wait=1) as standby:
        assert Thread(first.next, SOON).result().data == b"1"
        Thread(first.stop).result()
        assert first.state is MemberState.ENDED
        again = standby.next(SOON)
        assert (again.data, again.metadata.num_delivered) == (b"1", 2)
        again.ack()


@pytest.mark.parametrize("kind", ["elastic", "static"])
def test_a_half_failed_deletion_can_be_repeated(
    js: jsync.JetStream, numbered: str, monkeypatch: pytest.MonkeyPatch, kind: Any
) -> None:
    group = js.create_consumer_group(
        numbered, "g", kind=kind, partitions=6, members=["a"]
    )
    with group.join("a", ack_wait=1) as member:
        wait_for(lambda: member.state is MemberState.JOINING)
        publish(js, numbered, range(1))
        member.next(SOON).ack()

    def fail(*_: object) -> None:
        raise errors.TimeoutError("no answer")

    with monkeypatch.context() as patch:
        for call in ("delete_stream", "delete_consumer"):
            patch.setattr(management, call, fail)
        with pytest.raises(errors.TimeoutError):
            js.delete_consumer_group(numbered, "g")
    with pytest.raises(errors.ConsumerGroupNotFoundError):
        js.consumer_group(numbered, "g")
    js.delete_consumer_group(numbered, "g")
    assert [name for name in js.stream_names() if name.startswith(numbered)] == [
        numbered
    ]
    assert list(js.consumer_names(numbered)) == []
    with pytest.raises(errors.ConsumerGroupNotFoundError):
        js.delete_consumer_group(numbered, "g")


def test_a_deletion_leaves_what_belongs_to_others(
    js: jsync.JetStream, group: jsync.ConsumerGroup, orders: str
) -> None:
    js.delete_stream(f"{orders}-g")
    js.create_stream(name=f"{orders}-g", subjects=[f"other.{orders}"], storage="memory")
    for _ in range(2):
        with contextlib.suppress(errors.ConsumerGroupNotFoundError):
            js.delete_consumer_group(orders, "g")
    assert js.stream(f"{orders}-g").info().config.subjects == [f"other.{orders}"]
    js.delete_stream(f"{orders}-g")


def test_an_existing_group_is_returned_as_stored(
    js: jsync.JetStream, group: jsync.ConsumerGroup, orders: str
) -> None:
    group.add_members("a")
    again = js.create_consumer_group(
        orders, "g", partitions=6, filters={f"{orders}.*": [1]}, members=["b"]
    )
    assert again.config.members == ("a",)
