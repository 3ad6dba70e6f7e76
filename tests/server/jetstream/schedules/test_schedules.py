"""Tests of schedules (ADR-51): put, list, cancel, and publishing by the server."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from jsync import errors

from ....support.servers import wait_for
from ....support.windows import WINDOWS

if TYPE_CHECKING:
    import jsync

ZONE = "UTC" if WINDOWS else "Europe/Prague"
"""A nats-server for Windows finds no other zones there."""
LATER = datetime(2099, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.fixture
def schedules(js: jsync.JetStream, unique: str) -> jsync.Schedules:
    js.create_stream(
        name=unique,
        subjects=[f"{unique}.>"],
        allow_msg_schedules=True,
        allow_msg_ttl=True,
        allow_direct=True,
    )
    return js.schedules(unique)


def published(js: jsync.JetStream, name: str, subject: str) -> list[bytes]:
    found = js.stream(name).get_messages(subject=subject)
    return [bytes(message.data) for message in found]


def test_a_schedule_publishes_once_and_is_gone(
    js: jsync.JetStream, schedules: jsync.Schedules, unique: str
) -> None:
    subject, target = f"{unique}.once", f"{unique}.out"
    at = datetime.now(UTC) + timedelta(milliseconds=200)
    schedules.put(
        subject, b"hi", schedule=at, target=target, target_ttl=60, headers={"A": "b"}
    )
    wait_for(lambda: published(js, unique, target) == [b"hi"])
    message = js.get_message(unique, last_by_subject=target)
    assert message.headers is not None
    assert (message.headers["A"], message.headers["Nats-TTL"]) == ("b", "60s")
    assert message.headers["Nats-Scheduler"] == subject
    with pytest.raises(errors.ScheduleNotFoundError, match="has published already"):
        schedules.get(subject)
    assert list(schedules.list()) == []


def test_an_interval_publishes_until_it_is_cancelled(
    js: jsync.JetStream, schedules: jsync.Schedules, unique: str
) -> None:
    subject, target = f"{unique}.tick", f"{unique}.out"
    schedules.put(subject, b"t", schedule=timedelta(seconds=1), target=target)
    wait_for(lambda: len(published(js, unique, target)) >= 2)
    assert schedules.cancel(subject).pattern == "@every 1s"
    with pytest.raises(errors.ScheduleNotFoundError):
        schedules.cancel(subject)
    assert not js.stream(unique).info(subjects_filter=subject).state.subjects


def test_a_message_published_once_cancels_a_schedule(
    js: jsync.JetStream, schedules: jsync.Schedules, unique: str
) -> None:
    subject, target = f"{unique}.mail", f"{unique}.out"
    schedules.put(subject, b"later", schedule=LATER, target=target)
    ack = schedules.cancel_and_publish(subject, target, b"now", headers={"A": "b"})
    assert published(js, unique, target) == [b"now"]
    message = js.get_message(unique, ack.seq)
    assert message.headers is not None
    assert message.headers["A"] == "b"
    assert list(schedules.list()) == []
    with pytest.raises(errors.ScheduleNotFoundError):
        schedules.cancel_and_publish(subject, target, b"again")
    assert published(js, unique, target) == [b"now"]
    with pytest.raises(errors.ConfigError, match="cannot be the subject"):
        schedules.cancel_and_publish(subject, subject)


def test_a_schedule_that_was_replaced_meanwhile_stays(
    js: jsync.JetStream,
    schedules: jsync.Schedules,
    unique: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    subject, target = f"{unique}.mail", f"{unique}.out"
    schedules.put(subject, b"first", schedule=LATER, target=target)
    get = schedules.get

    def replaced(subject: str, **options: Any) -> jsync.Schedule:
        found = get(subject, **options)
        schedules.put(subject, b"second", schedule=LATER, target=target)
        return found

    monkeypatch.setattr(schedules, "get", replaced)
    with pytest.raises(errors.ScheduleNotFoundError):
        schedules.cancel_and_publish(subject, target, b"now")
    assert published(js, unique, target) == []
    assert get(subject).data == b"second"


def test_a_source_is_sampled(
    js: jsync.JetStream, schedules: jsync.Schedules, unique: str
) -> None:
    js.publish(f"{unique}.sensor", b"21.5")
    schedules.put(
        f"{unique}.sample",
        schedule="@every 1s",
        source=f"{unique}.sensor",
        target=f"{unique}.sampled",
        rollup=True,
    )
    wait_for(lambda: published(js, unique, f"{unique}.sampled") == [b"21.5"])
    js.publish(f"{unique}.sensor", b"22")
    wait_for(lambda: published(js, unique, f"{unique}.sampled") == [b"22"])


def test_schedules_are_listed_as_they_were_put(
    js: jsync.JetStream, schedules: jsync.Schedules, unique: str
) -> None:
    target = f"{unique}.out"
    js.publish(target, b"no schedule")
    schedules.put(f"{unique}.s.at", b"1", schedule=LATER, target=target, ttl=90)
    schedules.put(
        f"{unique}.s.cron",
        b"2",
        schedule="0 0 5 * * *",
        time_zone=ZONE,
        target=target,
        target_ttl="never",
        headers={"A": ["b", "c"]},
    )
    at, cron = schedules.list()
    assert (at.subject, at.data, at.target) == (f"{unique}.s.at", b"1", target)
    assert (at.at, at.repeats, at.ttl, at.headers) == (LATER, False, "90s", None)
    assert (cron.pattern, cron.at, cron.repeats) == ("0 0 5 * * *", None, True)
    assert (cron.time_zone, cron.target_ttl) == (ZONE, "never")
    assert cron.headers is not None
    assert cron.headers.get_all("A") == ["b", "c"]
    assert schedules.get(f"{unique}.s.cron") == cron
    far = "@at 9999-12-31T23:59:59-14:00"  # the year 10000 in UTC
    schedules.put(f"{unique}.s.far", schedule=far, target=target)
    assert [each.at for each in schedules.list()] == [LATER, None, None]
    schedules.cancel(f"{unique}.s.far")
    ack = schedules.put(f"{unique}.s.at", b"3", schedule="@daily", target=target)
    assert schedules.get(f"{unique}.s.at").sequence == ack.seq
    assert [each.data for each in schedules.list(f"{unique}.s.*")] == [b"2", b"3"]
    with pytest.raises(errors.ScheduleNotFoundError):
        schedules.cancel(target)
    assert published(js, unique, target) == [b"no schedule"]


def test_the_servers_rejection_has_its_own_error_type(
    js: jsync.JetStream, schedules: jsync.Schedules, unique: str
) -> None:
    subject, target = f"{unique}.s", f"{unique}.out"
    for schedule, to, source, zone, words in (
        ("0 5 * * *", target, None, None, r"0 5 \* \* \*; write six fields of cron"),
        ("@every 1s", "else.where", None, None, r"else\.where; choose another subject"),
        ("@daily", target, "else.where", None, r"else\.where; choose a subject of"),
        ("0 0 5 * * *", target, None, "Mars/Olympus", "Mars/Olympus; choose a name"),
    ):
        with pytest.raises(errors.MessageScheduleInvalidError, match=words) as raised:
            schedules.put(
                subject, schedule=schedule, target=to, source=source, time_zone=zone
            )
        assert raised.value.err_code
    with pytest.raises(errors.ConfigError, match="a datetime with a time zone"):
        schedules.put(subject, schedule=LATER.replace(tzinfo=None), target=target)
    with pytest.raises(errors.ConfigError, match="cannot be the subject"):
        schedules.put(subject, schedule=LATER, target=subject)
    with pytest.raises(errors.ScheduleNotFoundError):
        schedules.get(subject)
    js.create_stream(name=f"{unique}x", subjects=[f"{unique}x.>"])
    with pytest.raises(errors.SchedulesNotEnabledError, match="update_stream"):
        js.schedules(f"{unique}x")
    with pytest.raises(errors.StreamMismatchError):
        schedules.put(f"{unique}x.s", schedule=LATER, target=f"{unique}x.out")
