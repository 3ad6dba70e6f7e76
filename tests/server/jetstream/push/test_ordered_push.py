"""Tests of ADR-15, Ordered Consumers: exact order without duplicates or gaps, despite all faults."""

from __future__ import annotations

import queue
from typing import TYPE_CHECKING, Any

import pytest

import jsync
from jsync import errors

from ....support.connection_faults import Events, connect
from ....support.push_traffic import IDLE, Traffic, publish, say, sequences, take
from ....support.servers import wait_for
from ....support.threads import LONG, SOON, Recorder, Thread

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jsync.server import LocalServer

    from ....support.proxy import FaultProxy

QUICK: dict[str, Any] = {"idle_heartbeat": 0.3}
"""A short heartbeat interval, so that losses are noticed soon."""


@pytest.fixture
def traffic(proxy: FaultProxy) -> Traffic:
    return Traffic(proxy)


@pytest.fixture
def problems() -> Recorder:
    return Recorder()


@pytest.fixture
def distant(traffic: Traffic, proxy: FaultProxy) -> Iterator[jsync.JetStream]:
    with connect(proxy.url, Events()) as connection:
        yield connection.jetstream()


def test_an_ordered_subscriptions_consumer_has_its_configuration(
    js: jsync.JetStream, stream: jsync.Stream, subject: str
) -> None:
    with js.subscribe(subject, ordered=True) as sub:
        config = sub.consumer_info().config
        assert config.ack_policy == "none"
        assert (config.max_deliver, config.num_replicas) == (1, 1)
        assert config.mem_storage
        assert config.flow_control
        assert config.idle_heartbeat == 5
        assert config.deliver_subject == sub.subject
        assert config.filter_subject == subject
        assert config.durable_name is None
    assert list(stream.consumer_names()) == []


def test_an_ordered_subscription_reads_every_message_in_order(
    nc: jsync.Connection, js: jsync.JetStream, subject: str
) -> None:
    publish(nc, subject, 500)
    with js.subscribe(subject, ordered_consumer=True) as sub:
        assert sequences(take(sub, 500)) == list(range(1, 501))
        publish(nc, subject, 10)
        assert sequences(take(sub, 10)) == list(range(501, 511))


def test_more_than_one_window_of_flow_control(
    nc: jsync.Connection, js: jsync.JetStream, subject: str
) -> None:
    publish(nc, subject, 1000, 8192)
    with js.subscribe(subject, ordered=True, **QUICK) as sub:
        assert sequences(take(sub, 1000)) == list(range(1, 1001))
        assert sub.dropped == 0


def test_another_consumer_on_another_subject_fills_a_gap(
    nc: jsync.Connection,
    traffic: Traffic,
    distant: jsync.JetStream,
    problems: Recorder,
    stream: jsync.Stream,
    subject: str,
) -> None:
    traffic.lose(b".20.20.", "client")
    publish(nc, subject, 50)
    with distant.subscribe(
        subject, ordered=True, on_error=problems, inactive_threshold=60
    ) as sub:
        seen = sequences(take(sub, 50))
        assert seen == list(range(1, 51))
        reset = problems.get()
        assert isinstance(reset, errors.OrderedConsumerResetError)
        assert "after stream sequence 19" in str(reset)
        # The consumer can push messages before the reply to its creation.
        wait_for(lambda: sub.consumer_name.endswith("_2"))
        info = sub.consumer_info()
        assert info.config.opt_start_seq == 20
        assert info.config.deliver_subject == sub.subject
        wait_for(lambda: list(stream.consumer_names()) == [info.name])
    assert list(stream.consumer_names()) == []


def test_a_heartbeat_reveals_a_final_gap(
    nc: jsync.Connection,
    traffic: Traffic,
    distant: jsync.JetStream,
    problems: Recorder,
    subject: str,
) -> None:
    traffic.lose(b".5.5.", "client")
    publish(nc, subject, 5)
    with distant.subscribe(
        subject, ordered=True, on_error=problems, heartbeat_timeout=LONG, **QUICK
    ) as sub:
        assert sequences(take(sub, 5)) == [1, 2, 3, 4, 5]
    assert isinstance(problems.get(), errors.OrderedConsumerResetError)


@pytest.mark.parametrize("lost", [[b".1.1."], [b".3.3.", b".3.1."]], ids=str)
def test_a_lost_first_message_is_made_up_for(
    nc: jsync.Connection,
    traffic: Traffic,
    distant: jsync.JetStream,
    subject: str,
    lost: list[bytes],
) -> None:
    for words in lost:
        traffic.lose(words, "client")
    publish(nc, subject, 5)
    # A message after the lost one may come before the reply to the creation. No heartbeat reports
    # the loss in time.
    with distant.subscribe(subject, ordered=True, idle_heartbeat=2 * LONG) as sub:
        assert sequences(take(sub, 5)) == [1, 2, 3, 4, 5]
    assert traffic.has_lost


def test_an_ordered_push_consumer_survives_repeated_losses(
    nc: jsync.Connection, traffic: Traffic, distant: jsync.JetStream, subject: str
) -> None:
    publish(nc, subject, 300, 4096)
    for lost in range(30, 300, 70):
        traffic.lose(b".%d." % lost, "client")
    traffic.lose(b"FlowControl Request", "client")
    traffic.lose(b"PUB $JS.FC.", "server")
    with distant.subscribe(subject, ordered=True, **QUICK) as sub:
        assert sequences(take(sub, 300)) == list(range(1, 301))


def test_a_deleted_consumer_is_replaced(
    nc: jsync.Connection,
    js: jsync.JetStream,
    stream: jsync.Stream,
    problems: Recorder,
    subject: str,
) -> None:
    publish(nc, subject, 10)
    with js.subscribe(subject, ordered=True, on_error=problems, **QUICK) as sub:
        assert sequences(take(sub, 10)) == list(range(1, 11))
        for count in (11, 12):
            name = sub.consumer_name
            stream.delete_consumer(name)
            publish(nc, subject, 1)
            assert sequences(take(sub, 1)) == [count]
            wait_for(lambda: sub.consumer_name != name)  # noqa: B023
            assert isinstance(problems.get(), errors.OrderedConsumerResetError)


@pytest.mark.parametrize(
    ("status", "text"), [(409, "Consumer Deleted"), (503, "No Responders")]
)
def test_the_servers_word_of_its_end_is_believed(
    nc: jsync.Connection,
    js: jsync.JetStream,
    problems: Recorder,
    subject: str,
    status: int,
    text: str,
) -> None:
    with js.subscribe(subject, ordered=True, on_error=problems) as sub:
        publish(nc, subject, 1)
        assert sequences(take(sub, 1)) == [1]
        interests = len(nc._session.interests)
        say(nc, sub.subject, status, text)
        assert isinstance(problems.get(), errors.OrderedConsumerResetError)
        publish(nc, subject, 1)
        assert sequences(take(sub, 1)) == [2]
        assert len(nc._session.interests) == interests


def test_a_word_that_comes_twice_ends_one_consumer(
    nc: jsync.Connection, js: jsync.JetStream, problems: Recorder, subject: str
) -> None:
    with js.subscribe(subject, ordered=True, on_error=problems) as sub:
        say(nc, sub.subject, 409, "Consumer Deleted", times=5)
        assert isinstance(problems.get(), errors.OrderedConsumerResetError)
        publish(nc, subject, 1)
        assert sequences(take(sub, 1)) == [1]
        nc._session.callbacks.submit(problems, None)
        assert problems.get() is None


def test_silence_is_made_up_for(
    nc: jsync.Connection, proxy: FaultProxy, problems: Recorder, subject: str
) -> None:
    with (
        jsync.connect(proxy.url) as far,
        far.jetstream().subscribe(
            subject, ordered=True, on_error=problems, **QUICK
        ) as sub,
    ):
        publish(nc, subject, 1)
        assert sequences(take(sub, 1)) == [1]
        proxy.deaf("server")
        reset = problems.get()
        assert isinstance(reset, errors.OrderedConsumerResetError)
        assert isinstance(reset.__cause__, errors.MissedHeartbeatError)
        proxy.hear("server")
        publish(nc, subject, 2)
        assert sequences(take(sub, 2)) == [2, 3]


def test_a_reconnect_loses_nothing_and_doubles_nothing(
    nc: jsync.Connection, proxy: FaultProxy, problems: Recorder, subject: str
) -> None:
    events = Events()
    with connect(proxy.url, events) as far:
        sub = far.jetstream().subscribe(
            subject, ordered=True, on_error=problems, **QUICK
        )
        seen: list[int] = []
        for count in range(1, 4):
            publish(nc, subject, 50)
            seen += sequences(take(sub, 10))
            proxy.cut()
            publish(nc, subject, 50)
            events.wait("reconnect", count)
        seen += sequences(take(sub, 300 - len(seen)))
        assert seen == list(range(1, 301))
        assert isinstance(problems.get(), errors.OrderedConsumerResetError)
        sub.unsubscribe()


def test_a_connection_may_end_within_a_message(
    nc: jsync.Connection, proxy: FaultProxy, subject: str
) -> None:
    publish(nc, subject, 200, 2048)
    with connect(proxy.url, Events()) as far:
        proxy.cut_after(100_000, "client")
        with far.jetstream().subscribe(subject, ordered=True, **QUICK) as sub:
            assert sequences(take(sub, 200)) == list(range(1, 201))


def test_a_lost_creation_answer_doubles_and_loses_nothing(
    nc: jsync.Connection,
    traffic: Traffic,
    proxy: FaultProxy,
    distant: jsync.JetStream,
    subject: str,
) -> None:
    publish(nc, subject, 20)
    traffic.lose(b"consumer_create_response", "client")
    subscribing = Thread(
        lambda: distant.subscribe(subject, ordered=True, timeout=LONG, **QUICK)
    )
    wait_for(lambda: traffic.has_lost)
    proxy.cut()  # messages pushed so far may have arrived or not
    with subscribing.result() as sub:
        publish(nc, subject, 20)
        assert sequences(take(sub, 40)) == list(range(1, 41))


def test_a_callback_gets_them_in_order_too(
    nc: jsync.Connection,
    traffic: Traffic,
    distant: jsync.JetStream,
    subject: str,
) -> None:
    traffic.lose(b".30.30.", "client")
    got: queue.SimpleQueue[int] = queue.SimpleQueue()
    publish(nc, subject, 100)
    with distant.subscribe(
        subject,
        ordered=True,
        callback=lambda msg: got.put(msg.metadata.stream_sequence),
    ):
        assert [got.get(timeout=LONG) for _ in range(100)] == list(range(1, 101))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"deliver_policy": "new"}, [7, 8]),
        ({"deliver_policy": "last"}, [6, 7, 8]),
        ({"deliver_policy": "by_start_sequence", "opt_start_seq": 5}, [5, 6, 7, 8]),
        ({"deliver_policy": "last_per_subject"}, [4, 5, 6, 7, 8]),
    ],
    ids=str,
)
def test_an_ordered_subscriptions_start_policy_survives_a_reset(
    nc: jsync.Connection,
    js: jsync.JetStream,
    stream: jsync.Stream,
    options: dict[str, Any],
    expected: list[int],
) -> None:
    for _ in range(2):
        for name in ("a", "b", "c"):
            publish(nc, f"{stream.name}.{name}", 1)
    with js.subscribe(f"{stream.name}.*", ordered=True, **options) as sub:
        # A message that has not arrived before the reset is replaced by a newer one on its
        # subject.
        wait_for(lambda: sub.delivered == len(expected) - 2)
        say(nc, sub.subject, 409, "Consumer Deleted")
        publish(nc, f"{stream.name}.a", 2)
        assert sequences(take(sub, len(expected))) == expected


def test_purging_the_last_of_each_subject_ends_nothing(
    nc: jsync.Connection, js: jsync.JetStream, stream: jsync.Stream, problems: Recorder
) -> None:
    for number in range(2000):
        nc.publish(f"{stream.name}.{number}", bytes(8192))
    nc.flush()
    wait_for(lambda: stream.info().state.last_seq == 2000)
    with js.subscribe(
        f"{stream.name}.*",
        ordered=True,
        deliver_policy="last_per_subject",
        on_error=problems,
        **QUICK,
    ) as sub:
        # No thread reads, so flow control stops the server.
        wait_for(lambda: bool(sub.delivered and sub.consumer_info().num_pending))
        stream.purge()
        publish(nc, f"{stream.name}.new", 3)
        got = sequences(take(sub, 1))
        while got[-1] != 2003:
            got += sequences(take(sub, 1))
    assert got[-3:] == [2001, 2002, 2003]
    assert got[:-3] == list(range(1, len(got) - 2))
    assert len(got) < 2003


def test_a_stream_that_is_deleted_ends_it(
    nc: jsync.Connection, js: jsync.JetStream, stream: jsync.Stream, subject: str
) -> None:
    problems = Recorder()
    publish(nc, subject, 2)
    sub = js.subscribe(subject, ordered=True, on_error=problems, **QUICK)
    wait_for(lambda: sub.pending == 2)
    stream.delete()
    messages = iter(sub)
    assert [next(messages).metadata.stream_sequence for _ in range(2)] == [1, 2]
    with pytest.raises(errors.StreamNotFoundError):
        next(messages)
    sub.unsubscribe()


def test_a_failed_start_raises_and_leaves_no_consumer(
    nc: jsync.Connection, js: jsync.JetStream, stream: jsync.Stream, subject: str
) -> None:
    before = set(nc._session.interests)
    with pytest.raises(errors.APIError):
        js.subscribe(subject, stream="nobody", ordered=True)
    assert set(nc._session.interests) == before


def test_an_unknown_status_is_raised_and_reading_continues(
    nc: jsync.Connection, js: jsync.JetStream, subject: str
) -> None:
    with js.subscribe(subject, ordered=True) as sub:
        say(nc, sub.subject, 777, "Never Heard Of")
        with pytest.raises(errors.PushError):
            sub.next(SOON)
        publish(nc, subject, 1)
        assert sequences(take(sub, 1)) == [1]


def test_an_abandoned_consumers_heartbeat_is_not_believed(
    nc: jsync.Connection, js: jsync.JetStream, problems: Recorder, subject: str
) -> None:
    with js.subscribe(subject, ordered=True, on_error=problems) as sub:
        first = sub.subject
        say(nc, first, 409, "Consumer Deleted")
        assert isinstance(problems.get(), errors.OrderedConsumerResetError)
        wait_for(lambda: sub.subject != first)
        say(nc, first, 100, IDLE, "Nats-Last-Consumer: 99", "Nats-Last-Stream: 99")
        nc.publish(first, b"", reply="not.the.next")
        publish(nc, subject, 1)
        assert sequences(take(sub, 1)) == [1]
        nc._session.callbacks.submit(problems, None)
        assert problems.get() is None


def test_draining_reads_received_messages_and_deletes_the_consumer(
    nc: jsync.Connection, js: jsync.JetStream, stream: jsync.Stream, subject: str
) -> None:
    publish(nc, subject, 5)
    sub = js.subscribe(subject, ordered=True)
    wait_for(lambda: sub.pending == 5)
    sub.drain()
    assert sequences(list(sub)) == [1, 2, 3, 4, 5]
    assert list(stream.consumer_names()) == []


def test_unsubscribe_wakes_an_ordered_subscriptions_waiting_reader(
    js: jsync.JetStream, stream: jsync.Stream, subject: str
) -> None:
    sub = js.subscribe(subject, ordered=True)
    waiting = Thread(sub.next, LONG)
    waiting.wait_until_blocked()
    sub.unsubscribe()
    assert isinstance(waiting.error(), errors.SubscriptionClosedError)
    assert list(stream.consumer_names()) == []


def test_a_forgotten_one_is_ended(
    nc: jsync.Connection, js: jsync.JetStream, stream: jsync.Stream, subject: str
) -> None:
    before = set(nc._session.interests)
    sub = js.subscribe(subject, ordered=True, inactive_threshold=60)
    assert set(nc._session.interests) != before
    del sub
    wait_for(lambda: set(nc._session.interests) == before)
    wait_for(lambda: list(stream.consumer_names()) == [])


def test_a_restarted_server_loses_no_message(own_server: Any, tmp_path: Any) -> None:
    server: LocalServer = own_server(store_dir=tmp_path)
    with connect(server.url, Events()) as nc:
        js = nc.jetstream()
        js.create_stream(name="S", subjects=["s"])
        publish(nc, "s", 20)
        with js.subscribe("s", ordered=True, **QUICK) as sub:
            assert sequences(take(sub, 10)) == list(range(1, 11))
            server.restart()
            js.publish("s", b"after it")
            assert sequences(take(sub, 11)) == list(range(11, 22))
