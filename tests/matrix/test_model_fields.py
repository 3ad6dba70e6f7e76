"""Tests of every field of every configuration, against a server of each line.

If the server is too old for a field, jsync rejects the field before it sends anything. The tests
then send the field anyway. The server must reject or ignore it, which shows that jsync knows the
right version.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

import jsync
from jsync import errors
from jsync.jetstream.features import format_version, missing_features
from jsync.models import (
    ConsumerConfig,
    ConsumerInfo,
    External,
    Model,
    Republish,
    StreamConfig,
    StreamInfo,
    StreamSource,
    SubjectTransform,
)
from jsync.server import LocalServer

from ..support.raw_api import (
    ask,
    assert_nothing_is_lost,
    create_consumer,
    create_stream,
    named,
)
from .lines import LINES, binary_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from jsync.models.server_version import ServerVersion

pytestmark = pytest.mark.bulk

LONG_AGO = datetime(2020, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
FAR_AWAY = datetime(2120, 1, 1, tzinfo=UTC)


STREAMS: dict[str, dict[str, Any]] = {
    "name": {},
    "description": {"description": "wörds"},
    "subjects": {"subjects": ["%.a", "%.b.*", "%.c.>"]},
    "retention": {"retention": "interest"},
    "retention workqueue": {"retention": "workqueue"},
    "max_consumers": {"max_consumers": 3},
    "max_msgs": {"max_msgs": 1 << 40},
    "no max_msgs": {"max_msgs": 0},
    "max_bytes": {"max_bytes": 1 << 20},
    "max_age": {"max_age": 0.3},
    "no max_age": {"max_age": 0},
    "a long max_age": {"max_age": 365.25 * 86400},
    "max_msgs_per_subject": {"max_msgs_per_subject": 5},
    "max_msg_size": {"max_msg_size": 100},
    "discard": {"discard": "new"},
    "discard_new_per_subject": {
        "discard": "new",
        "max_msgs_per_subject": 1,
        "discard_new_per_subject": True,
    },
    "storage": {"storage": "memory"},
    "num_replicas": {"num_replicas": 1},
    "no_ack": {"no_ack": True},
    "duplicate_window": {"duplicate_window": 1.5},
    "placement": {"placement": {"cluster": "", "tags": ["ssd"]}},
    "placement anywhere": {"placement": {}},
    "mirror": {"mirror": {"name": "%-origin"}},
    "a mirror's opt_start_seq": {
        "mirror": StreamSource(name="%-origin", opt_start_seq=7, filter_subject="%.>")
    },
    "a mirror's opt_start_time": {
        "mirror": StreamSource(name="%-origin", opt_start_time=LONG_AGO)
    },
    "an external mirror": {
        "mirror": StreamSource(
            name="%-origin", external=External(api="$JS.far.API", deliver="%.d")
        )
    },
    "mirror_direct": {"mirror": {"name": "%-origin"}, "mirror_direct": True},
    "sources": {
        "sources": [
            {"name": "%-1", "filter_subject": "%.a"},
            StreamSource(name="%-2", opt_start_time=LONG_AGO),
            StreamSource(name="%-3", external=External(api="$JS.far.API")),
        ]
    },
    "sources and subjects": {"subjects": ["%.a"], "sources": [{"name": "%-1"}]},
    "a source's subject_transforms": {
        "sources": [
            StreamSource(
                name="%-1",
                subject_transforms=[
                    SubjectTransform(src="%.a.*", dest="%.b.{{wildcard(1)}}")
                ],
            )
        ]
    },
    "a source's consumer": {
        "sources": [
            {
                "name": "%-1",
                "consumer": {"name": "reader", "deliver_subject": "%.deliver"},
            }
        ]
    },
    "deny_delete": {"deny_delete": True},
    "deny_purge": {"deny_purge": True},
    "allow_rollup_hdrs": {"allow_rollup_hdrs": True},
    "republish": {
        "subjects": ["%.*"],
        "republish": Republish(
            src="%.*", dest="%-again.{{wildcard(1)}}", headers_only=True
        ),
    },
    "republish all": {"republish": {"dest": "%-again.>"}},
    "allow_direct": {"allow_direct": True},
    "compression": {"compression": "s2"},
    "first_seq": {"first_seq": (1 << 63) + 1},
    "subject_transform": {
        "subjects": ["%.a.*"],
        "subject_transform": {"src": "%.a.*", "dest": "%.b.{{wildcard(1)}}"},
    },
    "transform all": {"subject_transform": {"src": "", "dest": "%-all.>"}},
    "consumer_limits": {
        "consumer_limits": {"inactive_threshold": 60, "max_ack_pending": 50}
    },
    "metadata": {"metadata": {"a": "b", "ä": ""}},
    "allow_msg_ttl": {"allow_msg_ttl": True},
    "subject_delete_marker_ttl": {"subject_delete_marker_ttl": 1.5},
    "subject_delete_marker_ttl and deny_purge": {
        "subject_delete_marker_ttl": 1.5,
        "deny_purge": True,
    },
    "allow_msg_counter": {"allow_msg_counter": True},
    "allow_atomic": {"allow_atomic": True},
    "allow_msg_schedules": {"allow_msg_schedules": True},
    "persist_mode": {"persist_mode": "async"},
    "allow_batched": {"allow_batched": True},
}
"""A stream for each field. `%` at the start of a string stands for a unique name of the test."""

CONSUMERS: dict[str, dict[str, Any]] = {
    "a name of the server's": {"name": None},
    "durable_name": {"durable_name": "d", "name": None},
    "name": {"name": "d"},
    "name and durable_name": {"name": "d", "durable_name": "d"},
    "description": {"description": "wörds"},
    "deliver_policy last": {"deliver_policy": "last"},
    "deliver_policy new": {"deliver_policy": "new"},
    "opt_start_seq": {"deliver_policy": "by_start_sequence", "opt_start_seq": 7},
    "opt_start_time": {"deliver_policy": "by_start_time", "opt_start_time": LONG_AGO},
    "deliver_policy last_per_subject": {
        "deliver_policy": "last_per_subject",
        "filter_subject": "%.>",
    },
    "ack_policy none": {"ack_policy": "none"},
    "ack_policy all": {"ack_policy": "all"},
    "ack_policy flow_control": {
        "ack_policy": "flow_control",
        "deliver_subject": "%-deliver",
        "flow_control": True,
        "idle_heartbeat": 1,
        "max_ack_pending": 100,
        "durable_name": "d",
    },
    "ack_wait": {"ack_wait": 0.25},
    "max_deliver": {"max_deliver": 4},
    "backoff": {"backoff": [0.1, 1, 60.5], "max_deliver": 5},
    "filter_subject": {"filter_subject": "%.a.*"},
    "filter_subjects": {"filter_subjects": ["%.a.*", "%.b"]},
    "one of filter_subjects": {"filter_subjects": ["%.a.*"]},
    "replay_policy": {"replay_policy": "original"},
    "rate_limit_bps": {"rate_limit_bps": 1_000_000, "deliver_subject": "%-deliver"},
    "sample_freq": {"sample_freq": "30%"},
    "max_waiting": {"max_waiting": 10},
    "max_ack_pending": {"max_ack_pending": 10},
    "max_ack_pending without limit": {"max_ack_pending": -1},
    "flow_control": {
        "flow_control": True,
        "idle_heartbeat": 5,
        "deliver_subject": "%-deliver",
        "deliver_group": "g",
    },
    "headers_only": {"headers_only": True},
    "max_batch": {"max_batch": 10, "max_expires": 30, "max_bytes": 1000},
    "inactive_threshold": {"inactive_threshold": 30},
    "a durable one's inactive_threshold": {
        "inactive_threshold": 30,
        "durable_name": "d",
    },
    "num_replicas": {"num_replicas": 1},
    "mem_storage": {"mem_storage": True},
    "direct": {"direct": True, "deliver_subject": "%-d", "ack_policy": "none"},
    "sourcing": {"sourcing": True},
    "metadata": {"metadata": {"a": "b"}},
    "pause_until": {"pause_until": FAR_AWAY},
    "overflow": {"priority_groups": ["g"], "priority_policy": "overflow"},
    "pinned_client": {"priority_groups": ["g"], "priority_policy": "pinned_client"},
    "priority_timeout": {
        "priority_groups": ["g"],
        "priority_policy": "pinned_client",
        "priority_timeout": 10,
    },
    "prioritized": {"priority_groups": ["g"], "priority_policy": "prioritized"},
}


def refused_or_ignored(create: Callable[[], dict[str, Any]], config: Model) -> bool:
    """Return whether a server rejects or ignores `config`.

    Servers reject unknown fields since 2.12, and unknown words always.
    """
    try:
        reply = create()
    except errors.InvalidJSONError:
        return True
    return bool(config.differences(type(config).from_wire(reply["config"])))


@pytest.mark.parametrize("fields", STREAMS.values(), ids=STREAMS)
def test_a_stream_is_as_it_was_configured(
    nc: jsync.Connection,
    js: jsync.JetStream,
    line: ServerVersion,
    unique: str,
    fields: dict[str, Any],
) -> None:
    config = StreamConfig.from_any(None, {"name": unique, **named(fields, unique)})
    if newer := missing_features(config.required_versions(), line):
        with pytest.raises(errors.UnsupportedFeatureError) as caught:
            js.create_stream(config)
        assert caught.value.feature == ", ".join(newer)
        assert caught.value.since == format_version(max(newer.values()))
        assert caught.value.server_version == nc.server_info.version
        with pytest.raises(errors.StreamNotFoundError):
            js.stream(unique)
        assert refused_or_ignored(lambda: create_stream(nc, config), config)
        return
    reply = create_stream(nc, config)
    assert_nothing_is_lost(StreamInfo, reply)
    info = StreamInfo.from_wire(reply)
    assert config.differences(info.config) == {}
    assert info.config.differences(config) == {}

    # The reply can be sent back: creating and updating with it changes nothing.
    assert create_stream(nc, info.config)["config"] == reply["config"]
    assert js.create_stream(info.config).config == info.config
    updated = ask(nc, f"STREAM.UPDATE.{unique}", info.config.to_wire())
    assert updated["config"] == reply["config"]
    assert_nothing_is_lost(StreamInfo, updated)
    assert_nothing_is_lost(StreamInfo, ask(nc, f"STREAM.INFO.{unique}"))


@pytest.mark.parametrize("fields", CONSUMERS.values(), ids=CONSUMERS)
def test_a_consumer_is_as_it_was_configured(
    nc: jsync.Connection,
    js: jsync.JetStream,
    line: ServerVersion,
    unique: str,
    fields: dict[str, Any],
) -> None:
    create_stream(nc, StreamConfig(name=unique, subjects=[f"{unique}.>"]))
    config = ConsumerConfig.from_any(None, {"name": "d", **named(fields, unique)})
    if newer := missing_features(config.required_versions(), line):
        with pytest.raises(errors.UnsupportedFeatureError) as caught:
            js.create_consumer(unique, config)
        assert caught.value.feature == ", ".join(newer)
        assert caught.value.since == format_version(max(newer.values()))
        with pytest.raises(errors.ConsumerNotFoundError):
            js.stream(unique).consumer("d")
        assert refused_or_ignored(lambda: create_consumer(nc, unique, config), config)
        return
    reply = create_consumer(nc, unique, config)
    assert_nothing_is_lost(ConsumerInfo, reply)
    info = ConsumerInfo.from_wire(reply)
    assert config.differences(info.config) == {}
    assert info.config.differences(config) == {}
    assert_nothing_is_lost(ConsumerInfo, ask(nc, f"CONSUMER.INFO.{unique}.{info.name}"))
    if info.config.name is None:
        # The server has named this consumer, so creating it again would make another
        # one.
        return
    again = create_consumer(nc, unique, info.config)
    assert again["config"] == reply["config"]
    assert_nothing_is_lost(ConsumerInfo, again)


@pytest.fixture(scope="module")
def newest() -> Iterator[jsync.JetStream]:
    with LocalServer(binary=binary_of(LINES[-1])) as server:
        with jsync.connect(server.url) as nc:
            yield nc.jetstream()


@pytest.mark.parametrize("upwards", [True, False])
def test_one_servers_configuration_is_accepted_by_another(
    js: jsync.JetStream, newest: jsync.JetStream, unique: str, *, upwards: bool
) -> None:
    here, there = (js, newest) if upwards else (newest, js)
    stream = here.create_stream(
        name=unique, subjects=[f"{unique}.>"], metadata={"a": "b"}
    )
    consumer = stream.create_consumer(durable_name="d")
    copy = there.create_stream(stream.config)
    assert stream.config.differences(copy.config) == {}
    assert (
        consumer.config.differences(copy.create_consumer(consumer.config).config) == {}
    )
    assert copy.update(copy.config.replace(max_msgs=7)).config.max_msgs == 7


@pytest.mark.parametrize(
    ("kind", "cases", "elsewhere"),
    [(StreamConfig, STREAMS, {"sealed"}), (ConsumerConfig, CONSUMERS, set())],
)
def test_every_field_has_its_case(
    kind: type[Model], cases: dict[str, dict[str, Any]], elsewhere: set[str]
) -> None:
    covered = {name for case in cases.values() for name in case}
    fields = set(kind.__struct_fields__) - {"extra", "_read"}
    assert fields - covered <= elsewhere | {"name", "ack_policy"}


def test_the_info_shows_that_a_stream_is_sealed(
    nc: jsync.Connection, unique: str
) -> None:
    created = StreamInfo.from_wire(create_stream(nc, StreamConfig(name=unique)))
    sealed = created.config.replace(sealed=True)
    reply = ask(nc, f"STREAM.UPDATE.{unique}", sealed.to_wire())
    assert_nothing_is_lost(StreamInfo, reply)
    info = StreamInfo.from_wire(reply)
    assert info.config.sealed
    # Sealing a stream changes these fields, too.
    assert sealed.differences(info.config).keys() <= {
        *("deny_delete", "deny_purge", "discard", "allow_rollup_hdrs"),
    }


def test_an_update_leaves_the_nanoseconds_of_others_alone(
    nc: jsync.Connection, unique: str
) -> None:
    # The server rejects another opt_start_time, even if it differs by a nanosecond.
    create_stream(nc, StreamConfig(name=unique))
    wire = {
        "name": "d",
        "ack_policy": "explicit",
        "deliver_policy": "by_start_time",
        "opt_start_time": "2020-01-02T03:04:05.678901234Z",
        "ack_wait": 30_000_000_001,
    }
    body = {"stream_name": unique, "config": wire, "action": "create"}
    info = ConsumerInfo.from_wire(ask(nc, f"CONSUMER.CREATE.{unique}.d", body))
    changed = ConsumerConfig.from_any(info.config.replace(max_ack_pending=7), {})
    body = {"stream_name": unique, "config": changed.to_wire(), "action": "update"}
    after = ask(nc, f"CONSUMER.CREATE.{unique}.d", body)["config"]
    assert after["max_ack_pending"] == 7
    assert after["ack_wait"] == 30_000_000_001
    assert after["opt_start_time"] == "2020-01-02T03:04:05.678901234Z"
