"""Tests of building a configuration, and of the fields that are rejected before it is sent."""

from __future__ import annotations

from datetime import timedelta
from enum import IntEnum, StrEnum
from fractions import Fraction
from typing import Any

import nats.js.api as nats_py
import numpy
import pytest

from jsync import KeyValueConfig, ObjectStoreConfig
from jsync.errors import ConfigError
from jsync.models import (
    ConsumerConfig,
    ConsumerLimits,
    External,
    Model,
    Placement,
    StreamConfig,
    StreamSource,
    check_name,
)
from jsync.models.codec import Codec, DurationCodec, NumberCodec, StringListCodec
from jsync.models.model import fields_of

from ...support.models import NOON, Dictable


class Words(StrEnum):
    MEMORY = "memory"


def test_a_configuration_comes_from_a_mapping_or_object() -> None:
    wanted = StreamConfig(
        name="A",
        subjects=["a.>", "b"],
        max_age=60.0,
        storage="memory",
        placement=Placement(tags=["x"]),
        sources=[StreamSource(name="B", external=External(api="$JS.far.API"))],
    )
    keywords = {
        "name": "A",
        "subjects": ("a.>", "b"),
        "max_age": 60,
        "storage": Words.MEMORY,
        "placement": {"tags": ["x"]},
        "sources": ({"name": "B", "external": Dictable(api="$JS.far.API")},),
        "max_bytes": None,
    }
    for made in (
        StreamConfig.from_any(None, keywords),
        StreamConfig.from_any(keywords, {}),
        StreamConfig.from_any(wanted, {}),
        StreamConfig.from_any(wanted.replace(max_age=60, subjects=("a.>", "b")), {}),
        StreamConfig.from_any(Dictable(**wanted.to_wire()), {}),
    ):
        assert made == wanted
        assert type(made.max_age) is float
        assert type(made.subjects) is list
        assert type(made.storage) is str


def test_a_configuration_shares_no_list_with_its_maker() -> None:
    subjects = ["a"]
    config = StreamConfig.from_any(None, {"name": "A", "subjects": subjects})
    subjects.append("b")
    assert config.subjects == ["a"]


class Level(IntEnum):
    HIGH = 7


NUMBERS = [Level.HIGH, numpy.int64(7), numpy.uint8(7)]
DURATIONS = [
    *(90, 90.0, numpy.int64(90), numpy.float32(90), Fraction(90)),
    timedelta(minutes=1, seconds=30),
]


def fields_with(codec: type[Codec]) -> list[tuple[type[Model], str]]:
    """Return the fields of configurations that this codec checks."""
    kinds = (StreamConfig, ConsumerConfig, ConsumerLimits, Placement)
    return [
        (kind, name)
        for kind in kinds
        for name, field in fields_of(kind).items()
        if type(field.codec) is codec
    ]


def checked(kind: type[Model], name: str, value: object) -> object:
    needed: dict[str, Any] = {"name": "A"} if "name" in kind.__struct_fields__ else {}
    return getattr(kind.from_any(None, {**needed, name: value}), name)


@pytest.mark.parametrize("value", DURATIONS, ids=repr)
@pytest.mark.parametrize(("kind", "name"), fields_with(DurationCodec))
def test_a_duration_is_seconds_or_a_timedelta(
    kind: type[Model], name: str, value: object
) -> None:
    duration = checked(kind, name, value)
    assert duration == 90.0
    assert type(duration) is float


@pytest.mark.parametrize("sign", [1, -1])
def test_the_longest_duration_fits_into_64_bits(sign: int) -> None:
    """As a float it is 193 ns too long, which is nothing beside 292 years."""
    longest = sign * (2**63 - 1) / 1e9
    config = StreamConfig(name="A", max_age=longest)
    assert config.to_wire()["max_age"] == sign * (2**63 - 1)


def test_durations_in_a_list_may_be_timedeltas() -> None:
    backoff = [timedelta(milliseconds=1500), 60]
    config = ConsumerConfig.from_any(None, {"backoff": backoff})
    assert config.backoff == [1.5, 60.0]
    assert config.to_wire()["backoff"] == [1_500_000_000, 60_000_000_000]


@pytest.mark.parametrize("value", NUMBERS, ids=repr)
@pytest.mark.parametrize(("kind", "name"), fields_with(NumberCodec))
def test_a_number_may_be_any_integer(
    kind: type[Model], name: str, value: object
) -> None:
    number = checked(kind, name, value)
    assert number == 7
    assert type(number) is int


@pytest.mark.parametrize("value", ["g", ["g"], ("g",)], ids=repr)
@pytest.mark.parametrize(("kind", "name"), fields_with(StringListCodec))
def test_one_string_stands_for_a_list_of_one(
    kind: type[Model], name: str, value: object
) -> None:
    assert checked(kind, name, value) == ["g"]
    if value == "g":  # as in a configuration that was not checked
        fields: dict[str, Any] = {name: value}
        assert kind(**fields).to_wire()[name] == ["g"]


def test_a_field_unknown_to_jsync_can_be_sent() -> None:
    config = StreamConfig.from_any(None, {"name": "A", "extra": {"new": 1}})
    assert config.to_wire() == {"name": "A", "new": 1}


def test_configurations_of_nats_py_are_understood() -> None:
    stream = nats_py.StreamConfig(
        name="A",
        retention=nats_py.RetentionPolicy.WORK_QUEUE,
        max_age=90.5,
        duplicate_window=1.5,
        placement=nats_py.Placement(cluster="C"),
        sources=[nats_py.StreamSource(name="B", opt_start_time=NOON)],
        consumer_limits=nats_py.StreamConsumerLimits(inactive_threshold=2),
    )
    config = StreamConfig.from_any(stream, {})
    assert config.max_age == 90.5
    assert config.retention == "workqueue"
    assert type(config.retention) is str
    assert config.placement == Placement(cluster="C")
    assert config.sources == [StreamSource(name="B", opt_start_time=NOON)]
    assert config.consumer_limits == ConsumerLimits(inactive_threshold=2)
    consumer = nats_py.ConsumerConfig(
        durable_name="d",
        ack_wait=2.5,
        backoff=[0.5],
        pause_until="2026-01-02T12:00:00.25Z",
    )
    read = ConsumerConfig.from_any(consumer, {})
    assert (read.ack_wait, read.backoff, read.pause_until) == (2.5, [0.5], NOON)
    assert read.ack_policy == "explicit"
    with pytest.raises(ConfigError, match="max_msgs: Expected int, got str"):
        StreamConfig.from_any(nats_py.StreamConfig(name="A", max_msgs="7"), {})  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="placement: tags: Expected list, got str"):
        StreamConfig.from_any(
            nats_py.StreamConfig(name="A", placement=nats_py.Placement(tags="x")),  # type: ignore[arg-type]
            {},
        )


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, "name: missing"),
        ({"nam": "A"}, "StreamConfig has no field 'nam'; did you mean name?"),
        ({"max_message": 1}, "no field 'max_message'; did you mean .*max_msgs"),
        ({"zzz": 1}, "StreamConfig has no field 'zzz'$"),
        ({"_read": {}}, "no field '_read'"),
        ({"name": 1}, "name: Expected str, got int"),
        ({"name": "a b"}, "name: 'a b' may not contain ' '"),
        ({"subjects": "a b"}, "subjects: subject 'a b'"),
        ({"subjects": b"a"}, "subjects: Expected list, got bytes"),
        ({"max_msgs": 1 << 64}, "max_msgs: 18446744073709551616 does not fit"),
        ({"subjects": ["a", b"b"]}, "subjects: Expected str, got bytes"),
        ({"subjects": ["a b"]}, "subjects: subject 'a b'"),
        ({"subjects": [""]}, "subjects: "),
        ({"subjects": ["a..b"]}, "subjects: "),
        ({"subjects": ["a.>.b"]}, "subjects: "),
        ({"max_msgs": "1"}, "max_msgs: Expected int, got str"),
        ({"max_msgs": 1.5}, "max_msgs: Expected int, got float"),
        ({"max_msgs": True}, "max_msgs: Expected int, got bool"),
        ({"sealed": 1}, "sealed: Expected bool, got int"),
        ({"max_age": -1}, "max_age: Expected float >= 0"),
        (
            {"max_age": True},
            "max_age: a duration has to be a number of seconds, not True",
        ),
        ({"max_age": timedelta(-1)}, "max_age: Expected float >= 0"),
        (
            {"max_age": "60"},
            "max_age: a duration has to be a number of seconds, not '60'",
        ),
        ({"max_age": 10**10}, "max_age: .*nanoseconds"),
        ({"duplicate_window": -0.1}, "duplicate_window: "),
        ({"subject_delete_marker_ttl": -1}, "subject_delete_marker_ttl: "),
        ({"first_seq": -1}, "first_seq: Expected int >= 0"),
        ({"retention": "limit"}, "retention: 'limit' is not one of 'limits', "),
        ({"retention": None, "storage": 1}, "storage: 1 is not one of"),
        ({"metadata": {"a": 1}}, "metadata: Expected str, got int"),
        ({"mirror": {"nme": "B"}}, "mirror: StreamSource has no field 'nme'; did you"),
        ({"mirror": {}}, "mirror: name: missing"),
        (
            {"mirror": "B"},
            "mirror: expected a configuration, not 'B': .* as in name='B'",
        ),
        ({"mirror": StreamSource}, r"mirror: .*, not <class .*: pass StreamSource\("),
        ({"mirror": Placement()}, r"mirror: .*, not Placement\(\): pass StreamS"),
        ({"mirror": StreamSource(name="a.b")}, "mirror: name: 'a.b' may not contain"),
        ({"sources": [{"name": "B", "filter_subject": "a b"}]}, "sources: filter_subj"),
        ({"sources": {"name": "B"}}, "sources: a list, not dict"),
        ({"sources": [{"name": "B", "external": {}}]}, "sources: external: api: miss"),
        (
            {"sources": [{"name": "B", "external": {"api": "a.>"}}]},
            "sources: external: api: subject 'a.>'",
        ),
        ({"republish": {"src": "a"}}, "republish: dest: missing"),
        ({"republish": {"src": "a..", "dest": "b"}}, "republish: src: "),
        ({"subject_transform": {"src": "a"}}, "subject_transform: dest: missing"),
        ({"consumer_limits": {"max_ack_pending": ""}}, "consumer_limits: max_ack_pen"),
        ({"extra": []}, "extra: a dict, not list"),
    ],
)
def test_an_invalid_stream_is_rejected(fields: dict[str, Any], words: str) -> None:
    if fields and "name" not in fields:
        fields = {"name": "A", **fields}
    with pytest.raises(ConfigError, match=words):
        StreamConfig.from_any(None, fields)
    with pytest.raises(ConfigError, match=words):
        StreamConfig.from_any(fields, {})


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"durable_name": "a>"}, "durable_name: 'a>' may not contain '>'"),
        ({"durable_name": ""}, "durable_name: empty"),
        ({"name": "a", "durable_name": "b"}, "name 'a' is not durable_name 'b'"),
        ({"name": "a/b"}, "name: 'a/b' may not contain '/'"),
        ({"durable": "a"}, "no field 'durable'; did you mean durable_name?"),
        ({"filter_subject": "a b"}, "filter_subject: "),
        ({"filter_subjects": ["a", ""]}, "filter_subjects: "),
        ({"filter_subjects": "a b"}, "filter_subjects: subject 'a b'"),
        ({"deliver_subject": "a.*"}, "deliver_subject: "),
        ({"ack_wait": -1}, "ack_wait: Expected float >= 0"),
        ({"backoff": [1, -1]}, "backoff: Expected float >= 0"),
        ({"backoff": 1}, "backoff: a list, not int"),
        ({"max_expires": -1}, "max_expires: "),
        ({"ack_policy": "Explicit"}, "ack_policy: 'Explicit' is not one of"),
        ({"opt_start_seq": -1}, "opt_start_seq: Expected int >= 0"),
        ({"opt_start_time": "2026-01-01T00:00:00Z"}, "opt_start_time: a datetime, not"),
        ({"priority_groups": 1}, "priority_groups: Expected list"),
        ({"sample_freq": 30}, "sample_freq: Expected str, got int"),
    ],
)
def test_an_invalid_consumer_is_rejected(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        ConsumerConfig.from_any(None, fields)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (
            StreamConfig(name="A"),
            "a configuration and keywords too .max_age.: give one",
        ),
        ({"name": "A"}, "a configuration and keywords too"),
    ],
)
def test_a_configuration_and_keywords_exclude_each_other(
    config: object, words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        StreamConfig.from_any(config, {"max_age": 1})


@pytest.mark.parametrize("fields", [{}, {"metadata": {"a": "b"}}])
@pytest.mark.parametrize(
    ("kind", "keyword"),
    [
        (StreamConfig, "name"),
        (ConsumerConfig, "durable_name"),
        (KeyValueConfig, "bucket"),
        (ObjectStoreConfig, "bucket"),
    ],
)
def test_an_error_about_bare_names_suggests_keywords(
    kind: type[Model], keyword: str, fields: dict[str, Any]
) -> None:
    with pytest.raises(ConfigError, match=f"not 'A': .* as in {keyword}='A'"):
        kind.from_any("A", fields)


@pytest.mark.parametrize("config", [1, ConsumerConfig(), nats_py.StreamConfig])
def test_an_object_that_is_no_configuration_is_rejected(config: object) -> None:
    with pytest.raises(ConfigError, match=r"not .*: pass StreamConfig\(\.\.\.\)"):
        StreamConfig.from_any(config, {})


def test_a_configuration_from_a_server_passes_the_checks() -> None:
    wire = {"name": "A", "retention": "later", "new": 1, "storage": None}
    config = StreamConfig.from_wire(wire).replace(max_age=1)
    assert StreamConfig.from_any(config, {}).to_wire() == {
        **wire,
        "max_age": 1_000_000_000,
    }
    with pytest.raises(ConfigError, match="retention: 'sooner'"):
        StreamConfig.from_any(config.replace(retention="sooner"), {})


@pytest.mark.parametrize(
    "name", ["A", "a-b_c", "ä", "日本", "$KV", "A" * 255, "ä" * 127]
)
def test_a_name_that_can_be(name: str) -> None:
    check_name(name)
    assert StreamConfig.from_any(None, {"name": name}).name == name


@pytest.mark.parametrize(
    "name",
    [
        *("", "a.b", "a*", ">", "a/b", "a\\b", "a b", "a\tb", "a\n", "a\u00a0b"),
        *("a\u2028", "a\x00", "a\x7f", "\u200b", "\ud800", "A" * 256, "ä" * 128, None),
    ],
)
def test_a_name_that_cannot_be(name: Any) -> None:
    with pytest.raises(ConfigError, match=r"^stream: "):
        check_name(name, "stream")


def test_changes_leave_the_rest_as_it_is() -> None:
    config = StreamConfig.from_wire(
        {"name": "S", "max_msgs": 9, "description": "words", "of_tomorrow": 1}
    )
    changed = config.updated({"max_msgs": 7, "description": None})
    assert changed.to_wire() == {"name": "S", "max_msgs": 7, "of_tomorrow": 1}
    with pytest.raises(ConfigError, match="did you mean max_msgs"):
        config.updated({"max_msg": 7})
    with pytest.raises(ConfigError, match="max_age"):
        config.updated({"max_age": -1})


def test_unsetting_a_field_restores_its_default() -> None:
    config = ConsumerConfig(name="c", ack_policy="all", ack_wait=5)
    changed = config.updated({"ack_policy": None, "ack_wait": None})
    assert (changed.ack_policy, changed.ack_wait) == ("explicit", None)


@pytest.mark.parametrize(
    ("current", "changes", "window"),
    [
        ({"duplicate_window": 120.0}, {"max_age": 60}, None),
        ({"duplicate_window": 60.0, "max_age": 60.0}, {"max_age": 30}, None),
        ({"duplicate_window": 90.0}, {"max_age": 60}, 90.0),
        ({"duplicate_window": 120.0}, {"max_age": 60, "duplicate_window": 5}, 5.0),
        ({"duplicate_window": 120.0}, {"max_msgs": 60}, 120.0),
    ],
    ids=str,
)
def test_the_server_default_window_follows_max_age(
    current: dict[str, Any], changes: dict[str, Any], window: float | None
) -> None:
    config = StreamConfig(name="S", **current)
    assert config.updated(changes).duplicate_window == window


@pytest.mark.parametrize(
    ("changes", "one", "many"),
    [
        ({"filter_subject": "b"}, "b", None),
        ({"filter_subjects": ["b", "c"]}, None, ["b", "c"]),
        ({"filter_subject": None}, None, None),
        ({"description": "words"}, "a", None),
    ],
    ids=str,
)
def test_one_kind_of_filter_replaces_the_other(
    changes: dict[str, Any], one: str | None, many: list[str] | None
) -> None:
    changed = ConsumerConfig(name="c", filter_subject="a").updated(changes)
    assert (changed.filter_subject, changed.filter_subjects) == (one, many)
    back = ConsumerConfig(name="c", filter_subjects=["a"]).updated(
        {"filter_subject": "b"}
    )
    assert (back.filter_subject, back.filter_subjects) == ("b", None)
