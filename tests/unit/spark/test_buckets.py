"""Tests of the messages of a bucket: they mean the same as to `KeyValue`."""

from __future__ import annotations

import pytest

from jsync.errors import InvalidBucketError
from jsync.jetstream.keyvalue import engine
from jsync.models import StreamConfig, StreamSource, SubjectTransform
from jsync.spark.buckets import bucket_prefix, operation_of


@pytest.mark.parametrize(
    ("headers", "operation"),
    [
        (None, "PUT"),
        ({}, "PUT"),
        ({"KV-Operation": "DEL"}, "DEL"),
        ({"KV-Operation": "PURGE", "Nats-Rollup": "sub"}, "PURGE"),
        ({"KV-Operation": "other"}, "PUT"),
        ({"Nats-Marker-Reason": "MaxAge"}, "PURGE"),
        ({"Nats-Marker-Reason": "Remove"}, "DEL"),
        ({"Nats-Marker-Reason": "other"}, "PUT"),
        ({"Trace": "1"}, "PUT"),
    ],
)
def test_headers_name_the_operation(
    headers: dict[str, str] | None, operation: str
) -> None:
    assert operation_of(headers) == operation == engine.operation_of(headers)


@pytest.mark.parametrize(
    ("mirror", "prefix"),
    [
        (None, "$KV.b."),
        (StreamSource(name="KV_a"), "$KV.a."),
        (
            StreamSource(
                name="KV_a",
                subject_transforms=[SubjectTransform(src="$KV.a.>", dest="$KV.b.>")],
            ),
            "$KV.b.",
        ),
    ],
)
def test_a_mirror_has_the_subjects_of_its_origin(
    mirror: StreamSource | None, prefix: str
) -> None:
    config = StreamConfig(name="KV_b", max_msgs_per_subject=1, mirror=mirror)
    assert bucket_prefix(config) == prefix
    assert engine.BucketLayout[bytes](config, "$JS.API").read == prefix


def test_a_stream_without_revisions_is_no_bucket() -> None:
    with pytest.raises(InvalidBucketError, match="read it with option stream"):
        bucket_prefix(StreamConfig(name="KV_b"))
