"""Tests of models with anything that a server sends or a user configures, by hypothesis."""

from __future__ import annotations

import string
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import assume, example, given, strategies as st

import jsync.models
from jsync.errors import ConfigError
from jsync.models import (
    ConsumerConfig,
    ConsumerLimits,
    External,
    Model,
    StreamConfig,
    StreamSource,
    SubjectTransform,
    check_name,
)

from ...support.models import MAX_DURATION_NS, MODELS, Dictable

nanoseconds = st.integers(-MAX_DURATION_NS, MAX_DURATION_NS)
rfc3339 = st.builds(
    lambda time, digits, offset: f"{time:%Y-%m-%dT%H:%M:%S}{digits}{offset}",
    st.datetimes(datetime(1000, 1, 1)),  # noqa: DTZ001
    st.just("") | st.text(string.digits, min_size=1, max_size=9).map(".{}".format),
    st.just("Z") | st.sampled_from(["+00:00", "-11:30", "+14:00"]),
)
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(max_size=5)
    | rfc3339,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["name", "config", "sources", "max_age", "created"])
            | st.text(max_size=5),
            inner,
            max_size=3,
        )
    ),
    max_leaves=8,
)


def objects(kind: type[Model]) -> st.SearchStrategy[dict[str, Any]]:
    names = [name for name in kind.__struct_fields__ if name not in ("extra", "_read")]
    return st.dictionaries(
        st.sampled_from(names) | st.text(max_size=3),
        json_values | nanoseconds | rfc3339,
        max_size=8,
    )


@given(
    st.sampled_from(MODELS).flatmap(
        lambda kind: st.tuples(st.just(kind), objects(kind))
    )
)
@example((StreamConfig, {"max_age": -MAX_DURATION_NS - 1}))
@example((ConsumerConfig, {"opt_start_time": "9999-12-31T23:59:59-23:59"}))
def test_any_server_reply_is_read_and_written_unchanged(
    sent: tuple[type[Model], dict[str, Any]],
) -> None:
    kind, wire = sent
    model = kind.from_wire(wire)
    assert model.to_wire() == {**kind().to_wire(), **wire}
    assert kind.from_wire(model.to_wire()) == model
    repr(model)


@given(st.floats(0, MAX_DURATION_NS / 1e9))
@example(2592000.001)
@example(0.1 + 0.2)
def test_seconds_come_back_to_the_nanosecond(seconds: float) -> None:
    wire = StreamConfig(max_age=seconds).to_wire()
    assert type(wire["max_age"]) is int
    back = StreamConfig.from_wire(wire).max_age
    assert back == pytest.approx(seconds, rel=1e-15, abs=0.6e-9)
    # Whole seconds come back exactly.
    assert StreamConfig(max_age=back).to_wire() == wire or seconds > 1e6


@given(st.integers(0, 9_000_000_000_000))
def test_milliseconds_are_exact(milliseconds: int) -> None:
    wire = StreamConfig(max_age=milliseconds / 1000).to_wire()
    assert wire["max_age"] == milliseconds * 1_000_000


seconds = st.floats(0, 1e6).map(lambda value: round(value, 6))
times = st.datetimes(
    datetime(2, 1, 1),  # noqa: DTZ001
    datetime(9998, 1, 1),  # noqa: DTZ001
    timezones=st.timezones() | st.just(UTC),
)
names = st.text("ABCabc-_", min_size=1, max_size=8)
sources = st.builds(
    StreamSource,
    name=names,
    opt_start_seq=st.none() | st.integers(0, (1 << 64) - 1),
    opt_start_time=st.none() | times,
    external=st.none() | st.builds(External, api=names),
    subject_transforms=st.none()
    | st.lists(st.builds(SubjectTransform, src=names, dest=names), max_size=2),
)
streams = st.builds(
    StreamConfig,
    name=names,
    subjects=st.none() | st.lists(names, max_size=2),
    retention=st.sampled_from([None, "limits", "interest", "workqueue"]),
    max_age=st.none() | seconds,
    max_bytes=st.none() | st.integers(-1, MAX_DURATION_NS),
    sealed=st.none() | st.booleans(),
    mirror=st.none() | sources,
    sources=st.none() | st.lists(sources, max_size=2),
    consumer_limits=st.none() | st.builds(ConsumerLimits, inactive_threshold=seconds),
    metadata=st.none() | st.dictionaries(names, names, max_size=2),
)


@given(streams)
def test_a_configuration_survives_the_server_round_trip(
    config: StreamConfig,
) -> None:
    checked = StreamConfig.from_any(config, {})
    wire = config.to_wire()
    assert checked.to_wire() == wire
    back = StreamConfig.from_wire(wire)
    assert back == checked
    assert back.to_wire() == wire
    assert back.matches(checked)
    assert StreamConfig.from_any(Dictable(**wire), {}) == checked


@given(st.text(max_size=20))
def test_a_name_fits_its_subject_or_is_refused(name: str) -> None:
    try:
        check_name(name)
    except ConfigError:
        return
    assume(name)
    assert len(f"$JS.API.STREAM.INFO.{name}".split(".")) == 5
    jsync.models.check_filter(f"$JS.API.STREAM.INFO.{name}", "subject")
