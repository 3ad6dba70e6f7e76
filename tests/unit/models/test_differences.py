"""Tests of the differences between two configurations that matter to a server."""

from __future__ import annotations

from typing import Any

import pytest

from jsync.models import (
    ConsumerConfig,
    ConsumerLimits,
    External,
    Placement,
    Republish,
    StreamConfig,
    StreamSource,
)


@pytest.mark.parametrize(
    ("mine", "theirs", "differ"),
    [
        ({}, {}, ""),
        ({}, {"max_msgs": -1, "max_bytes": 0, "storage": "file", "sealed": False}, ""),
        ({}, {"subjects": ["A"], "duplicate_window": 120, "num_replicas": 1}, ""),
        ({}, {"subjects": ["B"]}, "subjects"),
        ({"max_age": 60}, {"max_age": 60, "duplicate_window": 60}, ""),
        ({"max_age": 60}, {"duplicate_window": 60}, "max_age"),
        ({}, {"duplicate_window": 60}, "duplicate_window"),
        ({"max_msgs": 1}, {}, "max_msgs"),
        ({}, {"max_msgs": 1}, "max_msgs"),
        ({"subjects": ["a", "b"]}, {"subjects": ["b", "a"]}, "subjects"),
        ({"metadata": {"a": "b"}}, {"metadata": {"a": "b", "_nats.ver": "2"}}, ""),
        ({}, {"metadata": {"_nats.ver": "2"}}, ""),
        ({"metadata": {"_nats.ver": "1"}}, {"metadata": {"_nats.ver": "2"}}, ""),
        ({"metadata": {"a": "b"}}, {}, "metadata"),
        ({"placement": Placement()}, {}, ""),
        ({"placement": Placement(tags=["a"])}, {}, "placement"),
        ({"consumer_limits": ConsumerLimits()}, {}, ""),
        (
            {"sources": [StreamSource(name="B", external=External(api="c"))]},
            {
                "sources": [
                    StreamSource(name="B", external=External(api="c", deliver=""))
                ],
                "duplicate_window": 120,
            },
            "",
        ),
        (
            {"sources": [StreamSource(name="B")]},
            {"sources": [StreamSource(name="C")]},
            "sources",
        ),
        ({"mirror": StreamSource(name="B")}, {}, "mirror subjects"),
        (
            {"subject_delete_marker_ttl": 1, "deny_purge": True},
            {
                "subject_delete_marker_ttl": 1,
                "allow_msg_ttl": True,
                "allow_rollup_hdrs": True,
            },
            "",
        ),
        (
            {"republish": Republish(dest="a.>")},
            {"republish": Republish(src=">", dest="a.>")},
            "",
        ),
        ({}, {"extra": {"new": 1}}, ""),
        ({"extra": {"new": 1}}, {"extra": {"new": 1}}, ""),
        ({"extra": {"new": 1}}, {}, "new"),
    ],
)
def test_streams_differ_where_a_server_sees_a_difference(
    mine: dict[str, Any], theirs: dict[str, Any], differ: str
) -> None:
    one, two = StreamConfig(name="A", **mine), StreamConfig(name="A", **theirs)
    found = one.differences(two)
    assert set(found) == set(differ.split())
    assert one.matches(two) is not bool(differ)
    for name, (here, there) in found.items():
        assert here == mine.get(name, one.extra.get(name))
        assert there == theirs.get(name)


@pytest.mark.parametrize(
    ("mine", "theirs", "differ"),
    [
        ({"durable_name": "d"}, {"durable_name": "d", "name": "d"}, ""),
        ({}, {"name": "made up", "inactive_threshold": 5.0}, ""),
        ({"name": "a"}, {"name": "b"}, "name"),
        ({"durable_name": "d"}, {"durable_name": "d", "inactive_threshold": 5.0}, "inactive_threshold"),
        ({}, {"ack_wait": 30, "max_deliver": -1, "max_waiting": 512, "max_ack_pending": 1000}, ""),
        ({"max_deliver": -7, "max_waiting": -1}, {"max_deliver": 0}, ""),
        ({}, {"max_ack_pending": -1}, "max_ack_pending"),
        ({}, {"ack_policy": "none"}, "ack_policy ack_wait max_ack_pending"),
        ({"backoff": [1, 2]}, {"backoff": [1, 2], "ack_wait": 1}, ""),
        ({"deliver_subject": "a"}, {"deliver_subject": "a"}, ""),
        ({"filter_subject": ""}, {}, ""),
        ({"filter_subject": "a"}, {"filter_subjects": ["a"]}, "filter_subject filter_subjects"),
        (
            {"priority_policy": "pinned_client", "priority_groups": ["g"]},
            {"priority_policy": "pinned_client", "priority_groups": ["g"], "priority_timeout": 120},
            "",
        ),
    ],
)  # fmt: skip
def test_consumers_differ_where_a_server_sees_a_difference(
    mine: dict[str, Any], theirs: dict[str, Any], differ: str
) -> None:
    one, two = ConsumerConfig(**mine), ConsumerConfig(**theirs)
    assert set(one.differences(two)) == set(differ.split())
    assert set(two.differences(one)) == set(differ.split())
