"""Tests of ADR-15, Heartbeats: silence raises an alarm, and any message postpones it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import jsync
from jsync import errors
from jsync.jetstream.pulls import consumer_check
from jsync.jetstream.push import driver

from ....support.connection_faults import Events, connect
from ....support.push_traffic import IDLE, say
from ....support.servers import wait_for
from ....support.threads import LONG, Recorder

if TYPE_CHECKING:
    from ....support.proxy import FaultProxy


def watch_of(sub: jsync.PushSubscription) -> str:
    return repr(sub._delivery._heartbeats)


def test_silence_raises_repeated_alarms_and_ends_nothing(
    js: jsync.JetStream, proxy: FaultProxy, subject: str
) -> None:
    problems = Recorder()
    with jsync.connect(proxy.url) as far:
        sub = far.jetstream().subscribe(subject, idle_heartbeat=0.2, on_error=problems)
        proxy.deaf("server")
        for _ in range(2):
            alarm = problems.get()
            assert isinstance(alarm, errors.MissedHeartbeatError)
            assert "for 0.6 s" in str(alarm)  # three times the interval
        proxy.hear("server")
        js.publish(subject, b"still there")
        assert sub.next(LONG).data == b"still there"
        sub.unsubscribe()


def test_an_iterator_waits_on_through_an_alarm(
    js: jsync.JetStream, proxy: FaultProxy, subject: str
) -> None:
    def publish_then(_: Exception) -> None:
        proxy.hear("server")
        js.publish(subject, b"after the alarm")

    with (
        jsync.connect(proxy.url) as far,
        far.jetstream().subscribe(
            subject, idle_heartbeat=0.2, on_error=publish_then
        ) as sub,
    ):
        proxy.deaf("server")
        for msg in sub:
            assert msg.data == b"after the alarm"
            break


def test_how_long_silence_may_last_can_be_set(
    proxy: FaultProxy, subject: str, stream: jsync.Stream
) -> None:
    problems = Recorder()
    with (
        jsync.connect(proxy.url) as far,
        far.jetstream().subscribe(
            subject, idle_heartbeat=0.2, heartbeat_timeout=0.3, on_error=problems
        ),
    ):
        proxy.deaf("server")
        assert "for 0.3 s" in str(problems.get())
        proxy.hear("server")


def test_a_heartbeat_or_any_status_postpones_the_alarm(
    nc: jsync.Connection, js: jsync.JetStream, subject: str
) -> None:
    with js.subscribe(subject, idle_heartbeat=0.2, heartbeat_timeout=LONG) as sub:
        before = sub._mailbox.last_arrival
        wait_for(lambda: sub._mailbox.last_arrival > before)
        assert sub.delivered == 0
    with js.subscribe(subject, idle_heartbeat=LONG) as sub:
        for status, text in ((100, IDLE), (404, ""), (408, "")):
            before = sub._mailbox.last_arrival
            say(nc, sub.subject, status, text)
            wait_for(lambda: sub._mailbox.last_arrival > before)  # noqa: B023


def test_heartbeat_alarms_stop_while_disconnected_and_continue_after(
    proxy: FaultProxy, subject: str, stream: jsync.Stream
) -> None:
    events, problems = Events(), Recorder()
    with connect(proxy.url, events) as far:
        sub = far.jetstream().subscribe(
            subject, idle_heartbeat=0.2, inactive_threshold=60, on_error=problems
        )
        assert "paused" not in watch_of(sub)
        proxy.refuse()
        proxy.cut()
        events.wait("disconnect")
        wait_for(lambda: "paused" in watch_of(sub))
        proxy.accept()
        events.wait("reconnect")
        wait_for(lambda: "paused" not in watch_of(sub))
        before = sub._mailbox.last_arrival
        wait_for(lambda: sub._mailbox.last_arrival > before)  # heartbeats arrive again
        proxy.deaf("server")
        assert isinstance(problems.get(), errors.MissedHeartbeatError)
        proxy.hear("server")


def test_without_an_interval_no_heartbeat_is_expected(
    js: jsync.JetStream, subject: str
) -> None:
    with js.subscribe(subject) as sub:
        assert watch_of(sub) == "None"


@pytest.mark.parametrize("heartbeat", [0.2, None])
def test_a_deleted_consumer_is_noticed_by_its_silence(
    js: jsync.JetStream,
    stream: jsync.Stream,
    subject: str,
    monkeypatch: pytest.MonkeyPatch,
    heartbeat: float | None,
) -> None:
    monkeypatch.setattr(consumer_check, "CONFIRM_SECONDS", 0.1)
    monkeypatch.setattr(driver, "SILENCE_SECONDS", 0.2)
    problems = Recorder()
    sub = js.subscribe(subject, idle_heartbeat=heartbeat, on_error=problems)
    stream.delete_consumer(sub.consumer_name)
    if heartbeat is not None:
        assert isinstance(problems.get(), errors.MissedHeartbeatError)
    with pytest.raises(errors.ConsumerDeletedError):
        sub.next(LONG)
    sub.unsubscribe()  # the consumer is gone already, which is not an error


@pytest.mark.parametrize("how", ["another subject", "another group", "pull"])
@pytest.mark.parametrize("heartbeat", [0.2, None])
def test_a_replaced_consumer_ends_its_former_readers(
    js: jsync.JetStream,
    stream: jsync.Stream,
    unique: str,
    monkeypatch: pytest.MonkeyPatch,
    heartbeat: float | None,
    how: str,
) -> None:
    """A consumer of the same name exists, but sends nothing to those who read the former one."""
    monkeypatch.setattr(consumer_check, "CONFIRM_SECONDS", 0.1)
    monkeypatch.setattr(driver, "SILENCE_SECONDS", 0.2)
    former = stream.create_push_consumer(
        durable_name="pushed", deliver_subject=f"to.{unique}", idle_heartbeat=heartbeat
    )
    running = former.consume(Recorder())
    former.delete()
    if how == "pull":
        stream.create_consumer(durable_name="pushed")
    elif how == "another subject":
        stream.create_push_consumer(
            durable_name="pushed", deliver_subject=f"elsewhere.{unique}"
        )
    else:
        stream.create_push_consumer(
            durable_name="pushed", deliver_subject=f"to.{unique}", deliver_group="g"
        )
    with pytest.raises(errors.ConsumerDeletedError, match=" now"):
        running.wait(LONG)


def test_a_consumer_created_again_alike_is_read_on(
    js: jsync.JetStream,
    stream: jsync.Stream,
    unique: str,
    subject: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(consumer_check, "CONFIRM_SECONDS", 0.1)
    options: dict[str, Any] = {
        "durable_name": "pushed",
        "deliver_subject": f"to.{unique}",
    }
    handler = Recorder()
    problems = Recorder()
    former = stream.create_push_consumer(**options)
    js.publish(subject, b"1")
    with former.consume(handler, on_error=problems):
        assert handler.get().data == b"1"
        former.delete()
        stream.create_push_consumer(**options)
        assert handler.get().data == b"1"
        js.publish(subject, b"2")
        assert handler.get().data == b"2"
        assert problems.waiting == 0


def test_a_consumer_deleted_while_disconnected_ends_a_push(
    proxy: FaultProxy,
    stream: jsync.Stream,
    unique: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(consumer_check, "CONFIRM_SECONDS", 0.1)
    pushed = stream.create_push_consumer(
        durable_name="pushed", deliver_subject=f"to.{unique}"
    )
    events = Events()
    with connect(proxy.url, events) as far:
        js = far.jetstream()
        running = js.stream(stream.name).push_consumer("pushed").consume(Recorder())
        proxy.refuse()
        proxy.cut()
        events.wait("disconnect")
        pushed.delete()
        proxy.accept()
        with pytest.raises(errors.ConsumerDeletedError):
            running.wait(LONG)


def test_a_streams_push_consumer_is_watched_too(
    proxy: FaultProxy, subject: str, stream: jsync.Stream, unique: str
) -> None:
    problems = Recorder()
    stream.create_push_consumer(
        durable_name="watched", deliver_subject=f"to.{unique}", idle_heartbeat=0.2
    )
    with (
        jsync.connect(proxy.url) as far,
        far.jetstream()
        .stream(stream.name)
        .push_consumer("watched")
        .consume(Recorder(), on_error=problems),
    ):
        proxy.deaf("server")
        assert "for 0.6 s" in str(problems.get())
        proxy.hear("server")
