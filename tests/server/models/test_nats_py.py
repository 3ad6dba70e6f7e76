"""Tests that a configuration of nats-py makes the same stream and the same consumer."""

from __future__ import annotations

import dataclasses
import json
from datetime import UTC, datetime
from typing import Any

import nats.js.api as nats_py
import pytest

import jsync
from jsync.models import ConsumerConfig, StreamConfig

from ...support.raw_api import ask, create_consumer, create_stream, named

pytestmark = pytest.mark.server

LONG_AGO = datetime(2020, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)


@pytest.mark.parametrize(
    "config",
    [
        nats_py.StreamConfig(name="%"),
        nats_py.StreamConfig(
            name="%",
            subjects=["%.>"],
            retention=nats_py.RetentionPolicy.LIMITS,
            storage=nats_py.StorageType.MEMORY,
            discard=nats_py.DiscardPolicy.NEW,
            max_age=90.5,
            duplicate_window=1.5,
            placement=nats_py.Placement(),
            republish=nats_py.RePublish(src=">", dest="%-again.>"),
            consumer_limits=nats_py.StreamConsumerLimits(inactive_threshold=7.5),
            metadata={"a": "b"},
        ),
        nats_py.StreamConfig(
            name="%",
            compression=nats_py.StoreCompression.S2,
            sources=[
                nats_py.StreamSource(
                    name="A",
                    opt_start_time=LONG_AGO,
                    external=nats_py.ExternalStream(api="$JS.x.API", deliver="a.b"),
                )
            ],
        ),
    ],
)
def test_a_nats_py_stream_becomes_the_same_stream(
    nc: jsync.Connection, unique: str, config: Any
) -> None:
    wire = named(json.loads(json.dumps(config.as_dict())), unique)
    theirs = ask(nc, f"STREAM.CREATE.{unique}", wire)
    ask(nc, f"STREAM.DELETE.{unique}")
    ours = create_stream(nc, StreamConfig.from_any(_Renamed(config, unique), {}))
    assert ours["config"] == theirs["config"]


@pytest.mark.parametrize(
    "config",
    [
        nats_py.ConsumerConfig(durable_name="d"),
        nats_py.ConsumerConfig(
            name="d",
            deliver_policy=nats_py.DeliverPolicy.BY_START_TIME,
            opt_start_time=LONG_AGO,
            ack_policy=nats_py.AckPolicy.ALL,
            ack_wait=2.5,
            backoff=[0.5, 2],
            max_deliver=3,
            filter_subjects=["%.a", "%.b"],
            inactive_threshold=60,
            headers_only=True,
            metadata={"a": "b"},
        ),
        nats_py.ConsumerConfig(
            name="d", deliver_subject="%-d", flow_control=True, idle_heartbeat=0.5
        ),
    ],
)
def test_a_nats_py_consumer_becomes_the_same_consumer(
    nc: jsync.Connection, unique: str, config: Any
) -> None:
    create_stream(nc, StreamConfig(name=unique, subjects=[f"{unique}.>"]))
    wire = named(json.loads(json.dumps(config.as_dict())), unique)
    body = {"stream_name": unique, "config": wire}
    theirs = ask(nc, f"CONSUMER.CREATE.{unique}.d", body)
    ask(nc, f"CONSUMER.DELETE.{unique}.d")
    ours = create_consumer(
        nc, unique, ConsumerConfig.from_any(_Renamed(config, unique), {})
    )
    assert ours["config"] == theirs["config"]


class _Renamed:
    """A configuration of nats-py with a name in place of `%`."""

    def __init__(self, config: Any, name: str) -> None:
        self._config = config
        self._name = name

    def as_dict(self) -> Any:
        return named(self._config.as_dict(), self._name)


TEXTS: dict[str, dict[str, Any]] = {
    "KeyValueConfig": {
        "bucket": "B",
        "description": "words",
        "max_value_size": 100,
        "history": 3,
        "ttl": 60.5,
        "max_bytes": 1000,
        "storage": nats_py.StorageType.MEMORY,
        "replicas": 3,
        "placement": nats_py.Placement(cluster="c", tags=["a"]),
        "republish": nats_py.RePublish(src=">", dest="d.>", headers_only=True),
        "direct": True,
        "limit_marker_ttl": 5,
    },
    "ObjectStoreConfig": {
        "bucket": "B",
        "description": "words",
        "ttl": 60.5,
        "max_bytes": 1000,
        "storage": nats_py.StorageType.MEMORY,
        "replicas": 3,
        "placement": nats_py.Placement(cluster="c", tags=["a"]),
    },
}


@pytest.mark.parametrize("name", TEXTS)
def test_every_nats_py_bucket_field_is_read(name: str) -> None:
    kind, ours = getattr(nats_py, name), getattr(jsync, name)
    values = TEXTS[name]
    assert values.keys() == {field.name for field in dataclasses.fields(kind)}
    needed = {"bucket": "B"}
    for field, value in values.items():
        read = ours.from_any(kind(**{**needed, field: value}), {})
        if field == "direct":  # is always on in jsync
            continue
        theirs = value.as_dict() if hasattr(value, "as_dict") else value
        got = getattr(read, field)
        assert (got.to_wire() if hasattr(got, "to_wire") else got) == theirs


def test_a_markers_only_time_to_live_is_read() -> None:
    config = nats_py.KeyValueConfig(bucket="B", limit_marker_ttl=5)
    assert jsync.KeyValueConfig.from_any(config, {}).limit_marker_ttl == 5
