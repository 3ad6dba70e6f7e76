"""Tests of turning publish options into headers."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, cast

import pytest

from jsync._fast import encode_headers
from jsync.errors import ConfigError, InvalidHeaderError
from jsync.headers import Headers
from jsync.jetstream.publishing.options import publish_headers

if TYPE_CHECKING:
    from jsync.models.publish import PublishOptions

AT = datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)


def headers(data: object = b"", **options: Any) -> Any:
    return publish_headers("a.b", data, cast("PublishOptions", options))


def scheduled(**options: Any) -> Any:
    return headers(**{"schedule": AT, "schedule_target": "c", **options})


@pytest.mark.parametrize(
    ("options", "header", "value"),
    [
        ({"msg_id": "žluť 1"}, "Nats-Msg-Id", "žluť 1"),
        ({"expected_stream": "S"}, "Nats-Expected-Stream", "S"),
        ({"expected_last_sequence": 0}, "Nats-Expected-Last-Sequence", "0"),
        (
            {"expected_last_subject_sequence": (1 << 64) - 1},
            "Nats-Expected-Last-Subject-Sequence",
            "18446744073709551615",
        ),
        (
            {"expected_last_subject_sequence": 4, "expected_last_subject": "a.*"},
            "Nats-Expected-Last-Subject-Sequence-Subject",
            "a.*",
        ),
        ({"expected_last_msg_id": "x"}, "Nats-Expected-Last-Msg-Id", "x"),
        ({"ttl": 1}, "Nats-TTL", "1s"),
        ({"ttl": 3600.0}, "Nats-TTL", "3600s"),
        ({"ttl": "never"}, "Nats-TTL", "never"),
        ({"incr": 5}, "Nats-Incr", "+5"),
        ({"incr": 0}, "Nats-Incr", "+0"),
        ({"incr": -(10**40)}, "Nats-Incr", f"-{10**40}"),
    ],
)
def test_an_option_is_a_header(
    options: dict[str, Any], header: str, value: str
) -> None:
    assert headers(**options)[header] == value


@pytest.mark.parametrize(
    ("schedule", "pattern"),
    [
        (AT, "@at 2030-01-02T03:04:05Z"),
        (
            datetime(2030, 1, 2, 3, 4, 5, 600, timezone(timedelta(hours=2))),
            "@at 2030-01-02T01:04:05.000600Z",
        ),
        (timedelta(seconds=1), "@every 1s"),
        (timedelta(days=1, milliseconds=1500), "@every 86401s500000us"),
        ("@hourly", "@hourly"),
        ("@every 1h30m", "@every 1h30m"),
        ("0 30 14 * * *", "0 30 14 * * *"),
    ],
)
def test_schedules_are_times_intervals_or_patterns(
    schedule: object, pattern: str
) -> None:
    assert scheduled(schedule=schedule) == {
        "Nats-Schedule": pattern,
        "Nats-Schedule-Target": "c",
    }


def test_a_schedule_has_its_own_options() -> None:
    assert scheduled(
        schedule="@daily",
        schedule_source="d",
        schedule_ttl="never",
        schedule_time_zone="Europe/Prague",
        schedule_rollup=True,
    ) == {
        "Nats-Schedule": "@daily",
        "Nats-Schedule-Target": "c",
        "Nats-Schedule-Source": "d",
        "Nats-Schedule-TTL": "never",
        "Nats-Schedule-Time-Zone": "Europe/Prague",
        "Nats-Schedule-Rollup": "sub",
    }
    assert "Nats-Schedule-Rollup" not in scheduled(schedule_rollup=False)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"msg_id": ""}, "msg_id: empty"),
        ({"msg_id": " x"}, "msg_id: empty, or with blanks"),
        ({"msg_id": 7}, "msg_id: a str, not int"),
        ({"msg_id": "x\r\nNats-TTL: 1s"}, "msg_id: .* control character"),
        ({"msg_id": "x\ty"}, "msg_id: .* control character"),
        ({"expected_stream": b"S"}, "expected_stream: a str, not bytes"),
        ({"expected_last_msg_id": "x\n"}, "expected_last_msg_id"),
        (
            {"expected_last_sequence": -1},
            "expected_last_sequence: -1 is not a sequence",
        ),
        ({"expected_last_sequence": 1 << 64}, "is not a sequence"),
        ({"expected_last_sequence": True}, "an int, not bool"),
        ({"expected_last_subject_sequence": "4"}, "an int, not str"),
        ({"expected_last_subject": "a"}, "needs expected_last_subject_sequence"),
        (
            {"expected_last_subject": "a b", "expected_last_subject_sequence": 1},
            "expected_last_subject: .* white space",
        ),
        ({"ttl": 0}, "ttl: whole seconds from 1"),
        ({"ttl": 1.5}, "ttl: whole seconds from 1"),
        ({"ttl": float("nan")}, "ttl: whole seconds from 1"),
        ({"ttl": float("inf")}, "ttl: whole seconds from 1"),
        ({"ttl": 10**10}, "ttl: whole seconds from 1"),
        ({"ttl": "1h"}, "or \"never\"; it cannot be '1h'"),
        ({"ttl": True}, "ttl: whole seconds"),
        ({"schedule": "@daily"}, "schedule needs a schedule_target"),
        ({"schedule_target": "c"}, "schedule_target needs a schedule"),
        ({"schedule_ttl": 5}, "schedule_ttl needs a schedule"),
        ({"incr": 1.0}, "incr: an int, not float"),
        ({"incr": 1, "data": b"x"}, "incr: .* no payload"),
    ],
)
def test_invalid_publish_options_raise_a_clear_error(
    options: dict[str, Any], words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        headers(**options)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"schedule": datetime(2030, 1, 1)}, "with a time zone"),  # noqa: DTZ001
        ({"schedule": timedelta(milliseconds=999)}, "at least a second"),
        ({"schedule": timedelta.max}, "at most 292 years"),
        ({"schedule": 60.0}, "a timedelta to publish at an interval"),
        ({"schedule": "@daily\r\nX: y"}, "schedule: .* control character"),
        ({"schedule_target": "c.>"}, "schedule_target: .* wildcard"),
        ({"schedule_target": "a.b"}, "the subject of the schedule itself"),
        ({"schedule_source": "c"}, "has to differ from the subject"),
        ({"schedule_source": "a.b"}, "has to differ from the subject"),
        ({"schedule_source": "d e"}, "schedule_source: .* white space"),
        ({"schedule_ttl": 0.5}, "schedule_ttl: whole seconds"),
        ({"schedule_time_zone": "Europe/Prague"}, "for cron patterns only"),
        (
            {"schedule": "@every 5s", "schedule_time_zone": "UTC"},
            "for cron patterns only",
        ),
        ({"schedule_rollup": "sub"}, "True or False, not 'sub'"),
    ],
)
def test_an_invalid_schedule_is_rejected(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        scheduled(**options)


def test_an_unknown_option_is_rejected_with_a_suggestion() -> None:
    with pytest.raises(
        TypeError, match=r"'msgid' is not an option.*did you mean msg_id"
    ):
        headers(msgid="1")


def test_a_header_that_has_an_option_is_rejected() -> None:
    with pytest.raises(ConfigError, match="use msg_id= instead of Nats-Msg-Id"):
        headers(headers={"Nats-Msg-Id": "1"})
    with pytest.raises(
        ConfigError, match=r"use js.atomic_batch\(\) instead of Nats-Batch-Id"
    ):
        headers(headers={"Nats-Batch-Id": "1"})


def test_an_unsupported_option_raises_the_reason() -> None:
    why = {"expected_last_msg_id": "a batch has no last message yet"}
    with pytest.raises(ConfigError, match="a batch has no last message yet"):
        publish_headers("a", b"", {"expected_last_msg_id": "x"}, why)
    assert publish_headers("a", b"", {"expected_last_msg_id": None}, why) is None


def test_your_own_headers_are_sent_unchanged() -> None:
    own = Headers({"A": ["1", "2"], "B": "3"})
    assert headers(headers=own) is own
    assert headers(headers=own, msg_id="x") == {
        "A": ["1", "2"],
        "B": ["3"],
        "Nats-Msg-Id": "x",
    }
    assert headers(headers={"A": "1"}, ttl=1) == {"A": "1", "Nats-TTL": "1s"}


def test_without_options_there_is_no_header() -> None:
    assert headers() is None
    assert headers(msg_id=None, headers=None, ttl=None) is None
    assert headers(headers={}) is None


@pytest.mark.parametrize("bad", ["A", 5, [("A", "1")], {"A": None}, {1: 2}], ids=repr)
@pytest.mark.parametrize("more", [{}, {"msg_id": "1"}], ids=["alone", "with an option"])
def test_invalid_headers_fail_with_and_without_other_options(
    bad: Any, more: dict[str, Any]
) -> None:
    with pytest.raises(InvalidHeaderError):
        encode_headers(headers(headers=bad, **more))
