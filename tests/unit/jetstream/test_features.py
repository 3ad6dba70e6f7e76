"""Tests of the features that a server lacks, by versions, configurations and options."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from jsync.core.protocol import ServerInfo
from jsync.jetstream.features import (
    missing_features,
    unsupported,
    version_of_api_level,
    version_of_config,
    version_of_server,
)
from jsync.jetstream.publishing.options import required_features
from jsync.models import ConsumerConfig, Placement, StreamConfig, StreamSource, publish
from jsync.models.publish import PublishOptions
from jsync.models.server_version import (
    MIN_VERSION,
    ServerVersion,
    SinceVersion,
    parse_version,
)

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("info", "line"),
    [
        (ServerInfo(version="2.10.26"), (2, 10)),
        (ServerInfo(version="2.11.11"), (2, 11)),
        (ServerInfo(version="2.12.0-RC.1", api_lvl=2), (2, 12)),
        (ServerInfo(version="2.12.8", api_lvl=3), (2, 12)),
        (ServerInfo(version="2.14.6", api_lvl=4), (2, 14)),
        (ServerInfo(version="2.15.0-dev", api_lvl=5), (2, 15)),
        (ServerInfo(version="2.9.25"), (2, 9)),
        # If the version of a server is unknown, jsync rejects nothing.
        (ServerInfo(version="3.0.0", api_lvl=17), (2, 15)),
        (ServerInfo(version="main"), (2, 15)),
        (ServerInfo(version=""), (2, 15)),
        (ServerInfo(version="7"), (2, 15)),
        (ServerInfo(version="x.y"), (2, 15)),
    ],
)
def test_a_server_tells_its_line_in_its_info(
    info: ServerInfo, line: ServerVersion
) -> None:
    assert version_of_server(info) == line


def test_an_api_level_is_of_a_line() -> None:
    lines = [version_of_api_level(level) for level in range(7)]
    assert lines == [(2, 10), (2, 11), (2, 12), (2, 12), (2, 14), (2, 15), (2, 15)]
    assert version_of_api_level(-1) == (2, 15)


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({}, (MIN_VERSION, "")),
        ({"metadata": None}, (MIN_VERSION, "")),
        ({"metadata": {"mine": "1"}}, (MIN_VERSION, "")),
        (
            {"metadata": {"_nats.level": "1", "_nats.ver": "2.11.11"}},
            ((2, 11), "2.11.11"),
        ),
        (
            {"metadata": {"_nats.level": "4", "_nats.ver": "2.14.6"}},
            ((2, 14), "2.14.6"),
        ),
        ({"metadata": {"_nats.level": "x"}}, (MIN_VERSION, "")),
    ],
)
def test_a_configuration_shows_the_client_that_wrote_it(
    config: dict[str, Any], said: tuple[ServerVersion, str]
) -> None:
    assert version_of_config(config) == said


def test_the_error_names_every_missing_feature() -> None:
    needs = {
        "allow_atomic": (2, 12),
        "allow_batched": (2, 14),
        "allow_msg_ttl": (2, 11),
    }
    missing = missing_features(needs, (2, 11))
    assert missing == {"allow_atomic": (2, 12), "allow_batched": (2, 14)}
    assert missing_features(needs, (2, 14)) == {}
    error = unsupported(missing, "2.11.11")
    assert str(error) == (
        "nats-server 2.11.11 does not support allow_atomic (since 2.12) and allow_batched "
        "(since 2.14): nothing was sent"
    )
    assert error.feature == "allow_atomic, allow_batched"
    assert (error.since, error.server_version) == ("2.14", "2.11.11")


@pytest.mark.parametrize(
    ("config", "newer"),
    [
        (StreamConfig(name="A", max_msgs=1, compression="s2", metadata={"a": "b"}), {}),
        (StreamConfig(name="A", allow_msg_ttl=True), {"allow_msg_ttl": (2, 11)}),
        # A server that does not know these fields behaves like this anyway.
        (StreamConfig(name="A", allow_msg_ttl=False, persist_mode="default"), {}),
        (ConsumerConfig(priority_policy="none", priority_groups=[]), {}),
        (StreamConfig(name="A", persist_mode="async"), {"persist_mode": (2, 12)}),
        (
            StreamConfig(name="A", placement=Placement(preferred="a")),
            {"placement.preferred": (2, 11)},
        ),
        (
            StreamConfig.from_any(
                None,
                {
                    "name": "A",
                    "sources": [
                        {"name": "B"},
                        {"name": "C", "consumer": {"name": "d"}},
                    ],
                },
            ),
            {"sources.consumer": (2, 14)},
        ),
        (
            StreamConfig(name="A", mirror=StreamSource.from_any(None, {"name": "B"})),
            {},
        ),
        (ConsumerConfig(ack_policy="explicit"), {}),
        (
            ConsumerConfig(ack_policy="flow_control"),
            {"ack_policy='flow_control'": (2, 14)},
        ),
        (
            ConsumerConfig(priority_policy="overflow", priority_groups=["g"]),
            {"priority_policy": (2, 11), "priority_groups": (2, 11)},
        ),
        (
            ConsumerConfig(priority_policy="prioritized"),
            {"priority_policy='prioritized'": (2, 12)},
        ),
        (ConsumerConfig(pause_until=NOON), {"pause_until": (2, 11)}),
    ],
)
def test_a_configuration_lists_its_newer_fields(
    config: StreamConfig | ConsumerConfig, newer: dict[str, ServerVersion]
) -> None:
    assert config.required_versions() == newer


def test_a_field_may_be_older_than_its_values() -> None:
    since = SinceVersion("2.11", prioritized="2.12", none="2.10")
    assert since.for_value("overflow") == since.for_value(["overflow"]) == (2, 11)
    assert since.for_value("prioritized") == (2, 12)
    assert since.for_value("none") == SinceVersion().for_value(None) == MIN_VERSION


@pytest.mark.parametrize(
    ("options", "newer"),
    [
        ({"msg_id": "1", "expected_last_sequence": 1, "headers": {"a": "b"}}, {}),
        ({"ttl": None, "incr": None}, {}),
        ({"ttl": 5}, {"ttl": (2, 11)}),
        ({"incr": 0}, {"incr": (2, 12)}),
        ({"schedule": NOON}, {"schedule": (2, 12)}),
        ({"schedule": "@at 2026-01-01T12:00:00Z"}, {"schedule": (2, 12)}),
        (
            {"schedule": timedelta(seconds=5)},
            {"schedule": (2, 12), "schedule that repeats": (2, 14)},
        ),
        (
            {"schedule": "@hourly"},
            {"schedule": (2, 12), "schedule that repeats": (2, 14)},
        ),
    ],
)
def test_options_list_the_newer_ones(
    options: PublishOptions, newer: dict[str, ServerVersion]
) -> None:
    assert required_features(options) == newer


def test_options_need_the_version_that_their_docstring_names() -> None:
    path = Path(publish.__file__)
    declared = re.findall(
        r'^    (\w+): [^\n]+ \| None\n    """(.+?)"""',
        path.read_text(),
        re.MULTILINE | re.DOTALL,
    )
    assert {name for name, _ in declared} == set(PublishOptions.__annotations__)
    said: dict[str, ServerVersion] = {}
    for name, words in declared:
        if found := re.search(r"Since\s+nats-server\s+(2\.\d+)", words):
            said[name] = parse_version(found[1])
    values: Any = dict.fromkeys(said, NOON)
    assert required_features(values) == said
