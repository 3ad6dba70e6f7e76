"""Tests of the stream of a bucket: messages, consumers and sources (ADR-8, ADR-48, ADR-57)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import jsync
from jsync import errors

from ....support.servers import wait_for
from ....support.threads import LONG
from .support import consumers

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.server


@pytest.fixture
def expiring(js: jsync.JetStream, unique: str) -> Iterator[jsync.KeyValue]:
    yield js.create_key_value(
        bucket=f"E{unique}", history=5, limit_marker_ttl=60, storage="memory"
    )
    js.delete_key_value(f"E{unique}")


def test_values_and_markers_are_messages_with_these_headers(
    js: jsync.JetStream, expiring: jsync.KeyValue
) -> None:
    expiring.put("a.b", b"1")
    expiring.delete("a.b")
    expiring.create("c", b"2", ttl=3600)
    expiring.put("d", b"3")
    expiring.purge("d")
    expiring.purge("e", ttl=3600)
    stored: dict[int, Any] = {}
    stream = js.stream(f"KV_{expiring.bucket}")
    for sequence in (1, 2, 3, 5, 6):
        msg = stream.get_message(sequence)
        assert msg.subject.startswith(f"$KV.{expiring.bucket}.")
        stored[sequence] = (dict(msg.headers or {}), msg.data)
    assert stored == {
        1: ({}, b"1"),
        2: ({"KV-Operation": "DEL"}, b""),
        3: ({"Nats-Expected-Last-Subject-Sequence": "0", "Nats-TTL": "3600s"}, b"2"),
        5: ({"KV-Operation": "PURGE", "Nats-Rollup": "sub"}, b""),
        6: (
            {"KV-Operation": "PURGE", "Nats-Rollup": "sub", "Nats-TTL": "3600s"},
            b"",
        ),
    }
    with pytest.raises(errors.MessageNotFoundError):
        stream.get_message(4)  # the rollup has removed this message


def test_watches_history_and_keys_use_suitable_ordered_consumers(
    js: jsync.JetStream, bucket: jsync.KeyValue
) -> None:
    bucket.put("a.b", b"1")
    kinds: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({}, {"deliver_policy": "last_per_subject", "headers_only": None}),
        ({"headers_only": True}, {"headers_only": True}),
        ({"include_history": True}, {"deliver_policy": "all"}),
        ({"updates_only": True}, {"deliver_policy": "new"}),
        (
            {"revision": 1},
            {"deliver_policy": "by_start_sequence", "opt_start_seq": 1},
        ),
    ]
    for options, wanted in kinds:
        with bucket.watch("a.*", "c", **options):
            (name,) = consumers(js, bucket)
            config = js.consumer(f"KV_{bucket.bucket}", name).info().config
            assert {field: getattr(config, field) or None for field in wanted} == wanted
            assert (config.ack_policy, config.mem_storage) == ("none", True)
            assert config.filter_subjects == [
                f"$KV.{bucket.bucket}.a.*",
                f"$KV.{bucket.bucket}.c",
            ]
        wait_for(lambda: not consumers(js, bucket), LONG)
    keys = bucket.keys("a.*")
    assert next(keys) == "a.b"
    keys.close()  # type: ignore[attr-defined]


def test_buckets_without_direct_gets_are_read_from_leaders(
    js: jsync.JetStream, bucket: jsync.KeyValue
) -> None:
    js.update_stream(name=f"KV_{bucket.bucket}", allow_direct=False)
    legacy = js.key_value(bucket.bucket)
    revision = legacy.put("a", b"1")
    assert legacy.get("a").value == b"1"
    assert legacy.get("a", revision=revision).revision == revision
    legacy.delete("a")
    with pytest.raises(errors.KeyDeletedError):
        legacy.get("a")
    with pytest.raises(errors.KeyNotFoundError):
        legacy.get("b")


def test_limit_markers_can_be_enabled_but_not_disabled(
    js: jsync.JetStream, bucket: jsync.KeyValue
) -> None:
    assert bucket.status().limit_marker_ttl is None
    status = js.update_key_value(bucket=bucket.bucket, limit_marker_ttl=30).status()
    assert status.limit_marker_ttl == 30
    bucket.create("a", ttl=3600)
    with pytest.raises(errors.APIError, match="can not be disabled"):
        js.update_key_value(bucket=bucket.bucket, limit_marker_ttl=None)
    assert bucket.status().limit_marker_ttl == 30


def test_a_status_shows_every_field_of_its_bucket(
    js: jsync.JetStream, unique: str
) -> None:
    fields: dict[str, Any] = {
        "bucket": f"A{unique}",
        "history": 3,
        "ttl": 3600.0,
        "limit_marker_ttl": 60.0,
        "compression": True,
        "metadata": {"team": "a"},
        "description": "words",
        "storage": "file",
    }
    kv = js.create_key_value(**fields)
    for _ in range(2):
        kv.put("a", b"x")
    status = kv.status()
    assert (status.bucket, status.values, status.history) == (kv.bucket, 2, 3)
    assert (status.ttl, status.limit_marker_ttl) == (3600, 60)
    assert (status.is_compressed, status.backing_store) == (True, "JetStream")
    assert (status.metadata, status.bytes > 0) == ({"team": "a"}, True)
    for name, value in fields.items():
        assert getattr(status.config, name) == value
    js.delete_key_value(kv.bucket)


@pytest.mark.parametrize(
    ("src", "dest", "copied"),
    [
        ("$KV.{0}.NEW.>", "$KV.{1}.>", {"1": b"new", "deep.2": b"deep"}),
        ("$KV.{0}.NEW.>", "$KV.{1}.x.>", {"x.1": b"new", "x.deep.2": b"deep"}),
        (
            "$KV.{0}.warehouse.*.product.>",
            "$KV.{1}.{{{{wildcard(1)}}}}.>",
            {"nyc.item123": b"item"},
        ),
    ],
    ids=["a filter", "a prefix", "words moved"],
)
def test_a_source_maps_keys_by_its_transform(
    js: jsync.JetStream,
    bucket: jsync.KeyValue,
    unique: str,
    src: str,
    dest: str,
    copied: dict[str, bytes],
) -> None:
    bucket.put("NEW.1", b"new")
    bucket.put("NEW.deep.2", b"deep")
    bucket.put("OLD.1", b"old")
    bucket.put("warehouse.nyc.product.item123", b"item")
    name = f"T{unique}"
    transform = {
        "src": src.format(unique, name),
        "dest": dest.format(unique, name),
    }
    copy = js.create_key_value(
        bucket=name,
        storage="memory",
        sources=[{"name": f"KV_{unique}", "subject_transforms": [transform]}],
    )
    with copy.live() as view:
        wait_for(lambda: len(view) == len(copied), LONG)
        assert dict(view) == copied
    js.delete_key_value(name)


def test_a_mirror_may_hold_some_of_the_keys(
    js: jsync.JetStream, bucket: jsync.KeyValue, unique: str
) -> None:
    bucket.put("a.1", b"1")
    bucket.put("b.1", b"2")
    name = f"M{unique}"
    mirror = js.create_key_value(
        bucket=name,
        storage="memory",
        mirror={"name": unique, "filter_subject": f"$KV.{unique}.a.>"},
    )
    with mirror.live() as view:
        view.wait_for(bucket.put("a.2", b"3"), LONG)
        assert dict(view) == {"a.1": b"1", "a.2": b"3"}
    with pytest.raises(errors.KeyNotFoundError):
        mirror.get("b.1")
    js.delete_key_value(name)
