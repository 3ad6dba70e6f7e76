"""Tests of the pure part of consumer groups: configurations, partitions, consumers, states."""

from __future__ import annotations

import contextlib
import itertools
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given, strategies as st

import jsync
from jsync import ConsumerGroupConfig, MemberState, errors, testing
from jsync._fast import take_partition
from jsync.jetstream.groups.engine import (
    TRANSITIONS,
    HandoverAction,
    decide_handover,
    group_config,
    group_stream,
    is_stale,
    member_consumer,
    pull_seconds,
    read_config,
    subjects_of,
    validate,
    with_mappings,
    with_members,
    write_config,
)
from jsync.models import ConsumerInfo, StreamConfig
from jsync.models.info import PriorityGroupState


def config(**fields: Any) -> ConsumerGroupConfig:
    return ConsumerGroupConfig(**{"kind": "elastic", "partitions": 6, **fields})


def made(**fields: Any) -> ConsumerGroupConfig:
    """Return a configuration that has passed the checks of `create_consumer_group`."""
    given: dict[str, Any] = {
        "kind": "elastic",
        "partitions": 6,
        "filters": None,
        "members": (),
        "mappings": None,
        "max_buffered_messages": None,
        "max_buffered_bytes": None,
        "format_": "0.2",
    }
    return group_config(**given | fields)


# Partitions ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("partitions", "members", "shares"),
    [
        (6, "a", {"a": (0, 1, 2, 3, 4, 5)}),
        (6, "ba", {"a": (0, 1, 2), "b": (3, 4, 5)}),
        # The remaining partitions go to the members in order, from the first one.
        (7, "abc", {"a": (0, 1, 6), "b": (2, 3), "c": (4, 5)}),
        (5, "abc", {"a": (0, 3), "b": (1, 4), "c": (2,)}),
        # With more members than partitions, the last members get none.
        (2, "cab", {"a": (0,), "b": (1,), "c": ()}),
        (3, "aab", {"a": (0, 2), "b": (1,)}),
    ],
)
def test_members_share_partitions_as_in_orbit_go(
    partitions: int, members: str, shares: dict[str, tuple[int, ...]]
) -> None:
    group = config(partitions=partitions, members=tuple(members))
    assert {name: group.partitions_of(name) for name in shares} == shares
    assert group.partitions_of("z") == ()


@given(st.integers(1, 40), st.lists(st.sampled_from("abcdefgh"), min_size=1))
def test_every_partition_has_one_member(partitions: int, members: list[str]) -> None:
    group = config(partitions=partitions, members=tuple(members))
    dealt = [p for name in group.member_names for p in group.partitions_of(name)]
    assert sorted(dealt) == list(range(partitions))
    owners = group.assignment()
    assert all(p in group.partitions_of(owner) for p, owner in owners.items())


def test_mappings_say_the_partitions_of_each_member() -> None:
    group = config(partitions=3, mappings={"b": (2, 0), "a": (1,)})
    assert group.member_names == ("b", "a")
    assert (group.partitions_of("b"), group.assignment()[1]) == ((2, 0), "a")
    assert config().assignment() == {}


# Invalid groups -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"kind": "other"}, "elastic or static"),
        ({"format_": "0.3"}, "0.2 or 0.1"),
        ({"partitions": 0}, "partitions"),
        ({"filters": {"o.x": [1]}}, "no wildcard"),
        ({"filters": {"o.*": [2]}}, "wildcards 1 to 1"),
        ({"filters": {"o.*.*": [1, 1]}}, "twice"),
        ({"filters": "o..*"}, "filters"),
        ({"filters": {"o.*": 1}}, r"'o\.\*': the numbers .* a list, not 1"),
        ({"filters": {"o.*": "1"}}, "a list, not '1'"),
        ({"filters": 1}, "filters: subjects"),
        ({"members": "abc"}, "a list of names"),
        ({"members": 1}, "a list of names"),
        ({"mappings": {"a": 0}}, "the partitions of 'a' have to be a list, not 0"),
        ({"mappings": [("a", [0])]}, "a mapping of members"),
        ({"members": ["a.b"]}, "member"),
        ({"members": ["a"], "mappings": {"a": range(6)}}, "give one of them"),
        ({"mappings": {"a": [0, 1]}}, "without a member"),
        ({"mappings": {"a": range(6), "b": [0]}}, "two members"),
        ({"mappings": {"a": range(7)}}, "from 0 to 5"),
        (
            {"partitions": 1, "mappings": {"a": [0], "b": []}},
            "more members than the 1",
        ),
        ({"max_buffered_messages": 0}, "max_buffered_messages"),
        ({"kind": "static"}, "needs its members"),
        ({"kind": "static", "members": ["a"], "filters": {"o.*": [1]}}, "static"),
        ({"kind": "static", "members": ["a"], "max_buffered_bytes": 9}, "elastic"),
        ({"format_": "0.1", "filters": {"a.*": [1], "b.*": [1]}}, "exactly one"),
        ({"format_": "0.1", "filters": "a.*"}, "needs the wildcards"),
        (
            {"kind": "static", "members": "a", "format_": "0.1", "filters": "a.*"},
            "members",
        ),
    ],
)
def test_an_invalid_configuration_is_rejected(
    fields: dict[str, Any], says: str
) -> None:
    with pytest.raises(errors.ConfigError, match=says):
        made(**fields)


def test_filters_are_one_word_several_or_key_wildcards() -> None:
    assert made(filters="o.>").filters == {"o.>": ()}
    assert made(filters=["a.*", "b.>"]).filters == {"a.*": (), "b.>": ()}
    assert made(filters={"o.*.*": [2, 1]}).filters == {"o.*.*": (2, 1)}
    assert made().filters == {}


# The bucket ---------------------------------------------------------------------------

ORBIT_0_2 = (
    b'{"max_members":4,"partitioning_filters":[{"filter":"o.*.*",'
    b'"partitioning_wildcards":[2]},{"filter":"p.\\u003e","partitioning_wildcards":null}],'
    b'"max_buffered_msg":9,"members":["b","a"]}'
)
ORBIT_0_1 = (
    b'{"max_members":4,"filter":"o.*.*","partitioning_wildcards":[2],"max_buffered_bytes":8,'
    b'"member_mappings":[{"member":"a","partitions":[0,1,2,3]}]}'
)


def test_orbit_go_records_are_read_in_both_versions() -> None:
    assert read_config("elastic", ORBIT_0_2, "O.g") == config(
        partitions=4,
        filters={"o.*.*": (2,), "p.>": ()},
        members=("b", "a"),
        max_buffered_messages=9,
    )
    assert read_config("elastic", ORBIT_0_1, "O.g") == config(
        partitions=4,
        filters={"o.*.*": (2,)},
        mappings={"a": (0, 1, 2, 3)},
        max_buffered_bytes=8,
        format="0.1",
    )
    static = b'{"max_members":2,"filters":["o.\\u003e"],"members":["a"]}'
    assert read_config("static", static, "O.g") == config(
        kind="static", partitions=2, filters={"o.>": ()}, members=("a",)
    )
    old = read_config("static", b'{"max_members":2,"filter":"","members":["a"]}', "O")
    assert (old.filters, old.format) == ({}, "0.1")
    everything = b'{"max_members":2,"partitioning_filters":null}'
    assert read_config("elastic", everything, "O.g").filters == {}


@pytest.mark.parametrize(
    "stored",
    [
        b"no json",
        b"\xff",
        b'{"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"max_members":"4"}',
        b'{"max_members":0}',
        b'{"max_members":-1}',
        b'{"max_members":1000000000,"members":["a"]}',
        b'{"max_members":2,"partitioning_filters":[{"filter":"o.x"}]}',
        b'{"max_members":2,"members":["a"],"member_mappings":[{"member":"a","partitions":[0,1]}]}',
        b'{"max_members":2,"member_mappings":[{"member":"a","partitions":[0,1]},'
        b'{"member":"a","partitions":[0,1]}]}',
    ],
)
def test_an_invalid_stored_configuration_is_one_error(stored: bytes) -> None:
    with pytest.raises(errors.InvalidConsumerGroupError, match=r"O\.g"):
        read_config("elastic", stored, "O.g")


@given(st.binary())
def test_nothing_that_is_stored_raises_another_error(stored: bytes) -> None:
    with contextlib.suppress(errors.InvalidConsumerGroupError):
        read_config("elastic", stored, "O.g")


@pytest.mark.parametrize(
    "group",
    [
        config(filters={"o.*": (1,)}, members=("a", "b"), max_buffered_messages=5),
        config(filters={}, mappings={"a": (0, 1, 2, 3, 4, 5)}, max_buffered_bytes=9),
        config(filters={"o.*": (1,)}, format="0.1"),
        config(kind="static", members=("a",), filters={"o.*": ()}),
        config(kind="static", members=("a",), format="0.1"),
    ],
)
def test_written_records_are_read_again(group: ConsumerGroupConfig) -> None:
    assert validate(group) is None
    assert read_config(group.kind, write_config(group), "O.g") == group


def test_changing_members_keeps_all_other_stored_fields() -> None:
    """Members of orbit.go end if an empty list becomes null, or the reverse."""
    before = (
        b'{"max_members":2,"partitioning_filters":[],"later":{"x":1},"members":["a"]}'
    )
    group = read_config("elastic", before, "O.g")
    stored = msgspec.json.decode(write_config(with_members(group, ["a", "b"]), before))
    assert stored == msgspec.json.decode(before) | {"members": ["a", "b"]}
    mapped = with_mappings(group, {"a": [0], "b": [1]})
    stored = msgspec.json.decode(write_config(mapped, before))
    assert "members" not in stored
    assert stored["member_mappings"] == [
        {"member": "a", "partitions": [0]},
        {"member": "b", "partitions": [1]},
    ]
    with pytest.raises(errors.ConfigError, match="without a member"):
        with_mappings(group, {"a": [0]})
    with pytest.raises(errors.ConfigError, match="member"):
        with_members(group, ["a b"])


def test_running_members_follow_changes_of_members_alone() -> None:
    group = config(filters={"o.*": (1,)}, members=("a",))
    assert group.is_compatible(with_members(group, ["b"]))
    assert group.is_compatible(with_mappings(group, {"b": range(6)}))
    assert not group.is_compatible(config(filters={"o.*": ()}, members=("a",)))
    assert not group.is_compatible(config(partitions=7, filters={"o.*": (1,)}))
    static = config(kind="static", members=("a",))
    assert static.is_compatible(config(kind="static", members=("a",)))
    assert not static.is_compatible(config(kind="static", members=("b",)))


# Streams and consumers ----------------------------------------------------------------


def test_a_group_stream_puts_partitions_before_each_subject() -> None:
    group = config(partitions=4, filters={"o.*.x.*": (2, 1), "p.>": ()})
    stream = group_stream(group, StreamConfig(name="O", num_replicas=3), "g")
    assert (stream.name, stream.retention, stream.num_replicas) == (
        "O-g",
        "workqueue",
        3,
    )
    assert stream.sources is not None
    transforms = stream.sources[0].subject_transforms or ()
    assert {each.src: each.dest for each in transforms} == {
        "o.*.x.*": "{{Partition(4,2,1)}}.o.{{Wildcard(1)}}.x.{{Wildcard(2)}}",
        "p.>": "{{Partition(4)}}.p.>",
    }
    whole = group_stream(config(), StreamConfig(name="O"), "g")
    assert whole.sources is not None
    transforms = whole.sources[0].subject_transforms or ()
    assert [(each.src, each.dest) for each in transforms] == [
        (">", "{{Partition(6)}}.>")
    ]


def test_a_member_has_the_consumer_orbit_go_makes() -> None:
    group = config(partitions=2, filters={"o.*": (1,)}, members=("a",))
    consumer = member_consumer(group, "g", "a", 5.0, 1)
    assert consumer.to_wire() == {
        "name": "a",
        "filter_subjects": ["0.o.*", "1.o.*"],
        "ack_policy": "explicit",
        "ack_wait": 5_000_000_000,
        "max_ack_pending": 1,
        "inactive_threshold": 5_000_000_000,
        "priority_groups": ["PCG"],
        "priority_policy": "pinned_client",
        "priority_timeout": 5_000_000_000,
    }
    lasting = config(kind="static", partitions=2, members=("a",))
    static = member_consumer(lasting, "g", "a", 5.0, 1)
    assert (static.durable_name, static.name, static.inactive_threshold) == (
        *("g-a", None),
        None,
    )
    assert (pull_seconds(5.0), pull_seconds(1.0)) == (2.5, 0.5)


def test_mappings_and_format_0_1_read_whole_partitions() -> None:
    two = {"o.*": (1,), "p.*": (1,)}
    assert subjects_of(config(partitions=1, filters=two, members=("a",)), "a") == [
        "0.o.*",
        "0.p.*",
    ]
    mapped = config(partitions=1, filters=two, mappings={"a": (0,)})
    assert subjects_of(mapped, "a") == ["0.>"]
    old = config(partitions=1, filters={"o.*": (1,)}, members=("a",), format="0.1")
    assert subjects_of(old, "a") == ["0.>"]
    assert member_consumer(old, "g", "a", 6.0, 1).priority_groups == ["a"]


def test_the_partition_is_taken_off_the_subject() -> None:
    msg = testing.message("17.orders.42", b"data", stream="O-g")
    assert msg.subject == "17.orders.42"
    take_partition(msg)
    assert (msg.subject, msg.data, msg.metadata.stream) == ("orders.42", b"data", "O-g")
    msg.ack()
    assert [ack.kind for ack in msg.acks] == ["ack"]
    long = testing.message("3." + "x" * 300)
    take_partition(long)
    assert (long.subject, long.metadata.stream) == ("x" * 300, "TEST")
    single = testing.message("orders")
    take_partition(single)
    assert single.subject == "orders"


# A member -----------------------------------------------------------------------------


def consumer_info(pin: str | None = None, **fields: Any) -> ConsumerInfo:
    groups = [PriorityGroupState(group="PCG", pinned_client_id=pin)]
    return ConsumerInfo(priority_groups=groups, **fields)


def aged(seconds: float) -> dict[str, Any]:
    created = datetime(2026, 1, 1, tzinfo=UTC)
    return {"created": created, "ts": created + timedelta(seconds=seconds)}


@pytest.mark.parametrize(
    ("info", "mine", "waited", "decision"),
    [
        (consumer_info("me"), True, 0.0, HandoverAction.DELETE),
        (consumer_info("me", num_ack_pending=1), True, 0.0, HandoverAction.WAIT),
        # A message that was returned with a delay stays pending.
        (consumer_info("me", num_ack_pending=1), True, 1.0, HandoverAction.DELETE),
        (consumer_info("other"), True, 9.0, HandoverAction.LEAVE),
        (consumer_info(None), True, 0.0, HandoverAction.DELETE),
        (consumer_info(None), False, 0.0, HandoverAction.DELETE),
        (consumer_info(None, num_waiting=1), True, 9.0, HandoverAction.LEAVE),
        # Another instance handles the message, so no other member may get it.
        (consumer_info(None, num_ack_pending=1), False, 9.0, HandoverAction.LEAVE),
        # Another instance has a message for longer than its pin lasts.
        (consumer_info(None, num_ack_pending=1), True, 0.0, HandoverAction.WAIT),
        (consumer_info(None, num_ack_pending=1), True, 9.0, HandoverAction.LEAVE),
        # Another instance has just created it, and is about to pull.
        (consumer_info(None, **aged(0.9)), False, 0.0, HandoverAction.LEAVE),
        (consumer_info(None, **aged(0.9)), True, 9.0, HandoverAction.LEAVE),
        (consumer_info("me", **aged(0.9)), True, 0.0, HandoverAction.DELETE),
        (consumer_info(None, **aged(1.1)), False, 0.0, HandoverAction.DELETE),
    ],
)
def test_a_consumer_is_deleted_once_nothing_is_pending(
    info: ConsumerInfo, mine: bool, waited: float, decision: HandoverAction
) -> None:
    assert decide_handover(info, "me", has_received=mine, waited=waited) is decision


def test_a_message_that_may_be_redelivered_is_stale() -> None:
    assert not is_stale(100.0, 104.9, 5.0)
    assert is_stale(100.0, 105.0, 5.0)
    assert not is_stale(100.0, 100.0 + 1.5 * pull_seconds(1.0), 1.0)


def test_a_member_that_has_ended_stays_so() -> None:
    allowed = {
        (a.value, b.value)
        for a, b in itertools.product(MemberState, MemberState)
        if b in TRANSITIONS[a]
    }
    away = {("joining", to) for to in ("idle", "waiting", "active", "ended")}
    back = {
        (of, to) for of in ("idle", "waiting", "active") for to in ("joining", "ended")
    }
    assert allowed == away | back


def test_the_nouns_are_public() -> None:
    assert {"ConsumerGroup", "GroupMember"} <= {*jsync.__all__}
