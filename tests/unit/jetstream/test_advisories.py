"""Tests of the types of server advisories."""

from __future__ import annotations

import json

import msgspec
import pytest

from jsync import errors, models
from jsync.jetstream.advisory import read_advisory
from jsync.models.advisory import KINDS

# The schemas of jsm.go (schema_source/jetstream/advisory/v1), and their fields.
SCHEMAS = {
    "api_audit": "server subject response request client",
    "api_limit_reached": "server domain dropped",
    "consumer_action": "action stream consumer",
    "consumer_group_pinned": "account stream consumer domain group pinned_id",
    "consumer_group_unpinned": "account stream consumer domain group reason",
    "consumer_leader_elected": "stream consumer leader replicas",
    "consumer_pause": "stream consumer paused pause_until domain",
    "consumer_quorum_lost": "stream consumer replicas",
    "domain_leader_elected": "leader replicas cluster domain",
    "max_deliver": "stream consumer stream_seq deliveries",
    "nak": "stream consumer consumer_seq stream_seq deliveries domain",
    "restore_complete": "stream start end bytes client",
    "restore_create": "stream client",
    "server_out_of_space": "stream server server_id cluster",
    "server_removed": "server server_id cluster domain",
    "snapshot_complete": "stream start end client",
    "snapshot_create": "stream blocks block_size client",
    "stream_action": "action stream",
    "stream_batch_abandoned": "reason stream batch account domain",
    "stream_leader_elected": "stream leader replicas",
    "stream_quorum_lost": "stream replicas",
    "terminated": "stream consumer stream_seq consumer_seq deliveries domain reason",
}


def test_every_server_advisory_has_a_type_with_fields() -> None:
    assert set(KINDS) == set(SCHEMAS)
    for event, fields in SCHEMAS.items():
        assert set(fields.split()) <= set(KINDS[event].__struct_fields__), event


@pytest.mark.parametrize("kind", KINDS.values())
def test_an_advisory_is_read_and_written_unchanged(
    kind: type[models.advisory.Advisory],
) -> None:
    wire = {
        "type": f"io.nats.jetstream.advisory.v1.{kind.event}",
        "id": "x",
        "timestamp": "2026-01-02T03:04:05.123456789Z",
        "new_field": {"a": 1},
    }
    found = read_advisory(json.dumps(wire).encode())
    assert type(found) is kind
    assert found.extra == {"new_field": {"a": 1}}
    assert found.to_wire() == wire


def test_an_unknown_advisory_is_plain_data() -> None:
    found = read_advisory(b'{"type": "io.nats.other.v1.new_thing", "stream": "S"}')
    assert type(found) is models.Advisory
    assert (found.type, found.extra) == ("io.nats.other.v1.new_thing", {"stream": "S"})


@pytest.mark.parametrize("data", [b"", b"[]", b"nonsense", b'"a"'])
def test_a_payload_without_an_advisory_is_an_error(data: bytes) -> None:
    with pytest.raises(errors.JetStreamError, match="not an advisory"):
        read_advisory(data)


@pytest.mark.parametrize(
    "data", [b'{"type": 7}', b'{"type": "a.max_deliver", "stream": 3}']
)
def test_fields_that_make_no_sense_count_as_missing(data: bytes) -> None:
    assert read_advisory(data).to_wire() == msgspec.json.decode(data)
