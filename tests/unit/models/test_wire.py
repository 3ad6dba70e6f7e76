"""Tests of sending configurations, of reading replies, and of the fields that are kept."""

from __future__ import annotations

import copy
import pickle
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from jsync.errors import ConfigError
from jsync.models import (
    AccountInfo,
    ConsumerConfig,
    ConsumerLimits,
    Model,
    Placement,
    StreamConfig,
    StreamInfo,
    StreamSource,
    StreamState,
    SubjectTransform,
    Tier,
)

from ...support.models import MAX_DURATION_NS, MODELS, NOON

# Sending ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "wire"),
    [
        (StreamConfig(), {}),
        (StreamConfig(name="A"), {"name": "A"}),
        (StreamConfig(max_msgs=0, sealed=False), {"max_msgs": 0, "sealed": False}),
        (StreamConfig(subjects=[]), {"subjects": []}),
        (StreamConfig(max_age=60), {"max_age": 60_000_000_000}),
        (StreamConfig(max_age=0), {"max_age": 0}),
        (StreamConfig(max_age=0.3), {"max_age": 300_000_000}),
        (StreamConfig(max_age=1e-9), {"max_age": 1}),
        (StreamConfig(max_age=2592000.001), {"max_age": 2_592_000_001_000_000}),
        (StreamConfig(max_age=31536000.000001), {"max_age": 31_536_000_000_001_000}),
        (StreamConfig(max_age=MAX_DURATION_NS / 1e9), {"max_age": MAX_DURATION_NS}),
        (
            StreamConfig(
                placement=Placement(tags=["a"]), mirror=StreamSource(name="B")
            ),
            {"placement": {"tags": ["a"]}, "mirror": {"name": "B"}},
        ),
        (
            StreamConfig(consumer_limits=ConsumerLimits(inactive_threshold=0.5)),
            {"consumer_limits": {"inactive_threshold": 500_000_000}},
        ),
        (
            StreamConfig(sources=[StreamSource(name="B", opt_start_time=NOON)]),
            {"sources": [{"name": "B", "opt_start_time": "2026-01-02T12:00:00.25Z"}]},
        ),
        (StreamConfig(extra={"new": 1}), {"new": 1}),
        (ConsumerConfig(), {"ack_policy": "explicit"}),
        (
            ConsumerConfig(backoff=[0.1, 2], pause_until=NOON),
            {
                "ack_policy": "explicit",
                "backoff": [100_000_000, 2_000_000_000],
                "pause_until": "2026-01-02T12:00:00.25Z",
            },
        ),
        (
            ConsumerConfig(
                ack_policy="none",
                opt_start_time=datetime(
                    2026, 1, 1, 1, tzinfo=timezone(timedelta(hours=2))
                ),
            ),
            {"ack_policy": "none", "opt_start_time": "2025-12-31T23:00:00Z"},
        ),
        (StreamInfo(), {}),
        (StreamState(), {}),
        (StreamState(messages=1), {"messages": 1}),
    ],
)
def test_only_fields_that_are_set_are_sent(model: Model, wire: dict[str, Any]) -> None:
    assert model.to_wire() == wire
    assert type(model).from_wire(wire).to_wire() == wire


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (StreamConfig(max_age="60"), "max_age: .*seconds, not '60'"),  # type: ignore[arg-type]
        (StreamConfig(max_age=float("nan")), "max_age: .*NaN"),
        (StreamConfig(max_age=float("inf")), "max_age: inf"),
        (StreamConfig(max_age=3_600_000_000_000), "max_age: .*nanoseconds"),
        (ConsumerConfig(opt_start_time=datetime(2026, 1, 1)), "opt_start_time: .*zone"),  # noqa: DTZ001
        (ConsumerConfig(opt_start_time="now"), "opt_start_time: a datetime"),  # type: ignore[arg-type]
        (StreamConfig(mirror="A"), "mirror: .*'A'"),  # type: ignore[arg-type]
        (
            StreamConfig(sources=[StreamSource(opt_start_time=datetime(2026, 1, 1))]),  # noqa: DTZ001
            "sources: opt_start_time: .*zone",
        ),
        (
            ConsumerConfig(
                opt_start_time=datetime.min.replace(tzinfo=timezone(timedelta(hours=1)))
            ),
            "opt_start_time",
        ),
    ],
)
def test_values_that_the_wire_cannot_carry_are_rejected(
    model: Model, words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        model.to_wire()
    with pytest.raises(ConfigError, match=words):
        type(model).from_any(model.replace(**named(model)), {})


@pytest.mark.parametrize(
    ("microsecond", "written"),
    [(0, "00"), (250_000, "00.25"), (911_030, "00.91103"), (1, "00.000001")],
)
def test_times_are_written_as_go_writes_them(microsecond: int, written: str) -> None:
    config = ConsumerConfig(pause_until=NOON.replace(microsecond=microsecond))
    assert config.to_wire()["pause_until"] == f"2026-01-02T12:00:{written}Z"


def named(model: Model) -> dict[str, str]:
    return {"name": "A"} if isinstance(model, StreamConfig) else {}


# Reading ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wire", "time"),
    [
        ("2026-01-02T12:00:00.25Z", NOON),
        ("2026-01-02T12:00:00.250000999Z", NOON),
        ("2026-01-02T12:00:00.250Z", NOON),
        ("2026-01-02T14:00:00.25+02:00", NOON),
        ("2026-01-02T02:30:00.25-09:30", NOON),
        ("2026-01-02T12:00:00Z", NOON.replace(microsecond=0)),
        ("0001-01-01T00:00:00Z", None),
        ("0001-01-01T00:00:00.000000000Z", None),
        ("2026-01-02T12:00:00", None),
        ("2026-02-30T12:00:00Z", None),
        ("0001-01-01T00:00:00+01:00", None),
        ("soon", None),
        ("", None),
        (None, None),
        (7, None),
    ],
)
def test_times_are_read_and_written_unchanged(
    wire: object, time: datetime | None
) -> None:
    info = StreamInfo.from_wire({"created": wire})
    assert info.created == time
    assert info.to_wire() == {"created": wire}


@pytest.mark.parametrize(
    ("kind", "name", "wire", "value"),
    [
        (StreamConfig, "max_age", 1, 1e-9),
        (StreamConfig, "max_age", MAX_DURATION_NS, MAX_DURATION_NS / 1e9),
        (StreamConfig, "max_age", MAX_DURATION_NS - 1, (MAX_DURATION_NS - 1) / 1e9),
        (StreamConfig, "max_age", -1, -1e-9),
        (StreamConfig, "max_age", 10**400, None),
        (StreamConfig, "max_age", "1s", None),
        (StreamConfig, "max_msgs", "1", None),
        (StreamConfig, "subjects", None, None),
        (StreamConfig, "subjects", ["a", 1], None),
        (StreamConfig, "retention", "later", "later"),
        (StreamConfig, "retention", 1, None),
        (StreamConfig, "mirror", [], None),
        (StreamConfig, "mirror", {}, StreamSource()),
        (StreamConfig, "sources", [{}, None], None),
        (ConsumerConfig, "ack_policy", None, "explicit"),
        (ConsumerConfig, "backoff", [1, 2.5], None),
        (StreamState, "messages", 0, 0),
        (StreamState, "messages", None, 0),
        (StreamState, "subjects", {"a": 1}, {"a": 1}),
        (StreamInfo, "config", {}, StreamConfig()),
        (StreamInfo, "config", None, StreamConfig()),
        (AccountInfo, "tiers", {"R1": {"streams": 2}}, {"R1": Tier(streams=2)}),
        (AccountInfo, "tiers", {"R1": 1}, None),
    ],
)
def test_a_value_is_read_and_written_unchanged(
    kind: type[Model], name: str, wire: object, value: object
) -> None:
    model = kind.from_wire({name: wire})
    assert getattr(model, name) == value
    assert model.to_wire() == {**kind().to_wire(), name: wire}


def test_fields_of_newer_servers_survive_at_every_depth() -> None:
    wire = {
        "config": {
            "name": "A",
            "shiny": {"a": [1]},
            "sources": [{"name": "B", "polished": True}],
        },
        "state": {"messages": 1, "extra": 2},
        "type": "io.nats.jetstream.api.v1.stream_info_response",
    }
    info = StreamInfo.from_wire(wire)
    assert info.to_wire() == wire
    assert info.config.extra == {"shiny": {"a": [1]}}
    assert info.state.extra == {"extra": 2}
    assert info.config.replace(max_msgs=1).to_wire() == {
        **wire["config"],  # type: ignore[dict-item]
        "max_msgs": 1,
    }


def test_unknown_fields_last_until_a_configuration_changes() -> None:
    wire = {
        "ack_policy": "later",
        "ack_wait": MAX_DURATION_NS - 1,
        "opt_start_time": "2026-01-02T12:00:00.250000999Z",
    }
    config = ConsumerConfig.from_wire(wire)
    for same in (
        ConsumerConfig.from_any(config, {}),
        copy.deepcopy(config),
        pickle.loads(pickle.dumps(config)),
        config.replace(),
    ):
        assert same == config
        assert same.to_wire() == wire
    changed = config.replace(opt_start_time=NOON + timedelta(microseconds=1))
    assert changed.to_wire() == {
        **wire,
        "opt_start_time": "2026-01-02T12:00:00.250001Z",
    }
    assert config.replace(ack_wait=None, max_deliver=1).to_wire() == {
        "ack_policy": "later",
        "opt_start_time": "2026-01-02T12:00:00.250000999Z",
        "max_deliver": 1,
    }


def test_a_move_tells_when_it_was_recorded() -> None:
    wire = {"cluster": {"desired": {"created": "2026-01-02T12:00:00.25Z"}}}
    info = StreamInfo.from_wire(wire)
    assert info.cluster is not None
    assert info.cluster.desired is not None
    assert info.cluster.desired.created == NOON
    assert info.to_wire() == wire


@pytest.mark.parametrize("kind", MODELS, ids=lambda kind: kind.__name__)
def test_an_empty_object_is_a_valid_reply(kind: type[Model]) -> None:
    model = kind.from_wire({})
    assert model == kind()
    assert model == kind.from_wire({"name": None}).replace(extra={})
    always: dict[type[Model], dict[str, Any]] = {
        ConsumerConfig: {"ack_policy": "explicit"},
        SubjectTransform: {"src": ""},
    }
    assert model.to_wire() == always.get(kind, {})
