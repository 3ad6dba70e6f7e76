"""Tests of reading a push subscription: by iterator, `next` or callback."""

from __future__ import annotations

import gc
import queue
import threading
import weakref
from typing import TYPE_CHECKING

import pytest

import jsync
from jsync import errors
from jsync.jetstream.subscribe.subscription import (
    bind,
    close_unbound,
    open_subscription,
    rebind,
)

from ....support.connection_faults import Events, connect
from ....support.processes import Child
from ....support.push_traffic import publish, sequences, take
from ....support.servers import wait_for
from ....support.threads import LONG, SOON, Recorder, Thread

if TYPE_CHECKING:
    from jsync.server import LocalServer

    from ....support.proxy import FaultProxy


def test_a_subscription_can_be_iterated(
    nc: jsync.Connection, js: jsync.JetStream, subject: str
) -> None:
    publish(nc, subject, 100)
    seen = []
    with js.subscribe(subject) as sub:
        for msg in sub:
            msg.ack()
            seen.append(msg)
            if len(seen) == 100:
                break
        assert sequences(seen) == list(range(1, 101))
        publish(nc, subject, 1)
        assert next(sub.messages).metadata.stream_sequence == 101


def test_next_returns_a_message_or_raises_without_one(
    nc: jsync.Connection, js: jsync.JetStream, subject: str
) -> None:
    with js.subscribe(subject) as sub:
        for give in (sub.next, sub.next_msg):
            with pytest.raises(TimeoutError):
                give(0.01)
            publish(nc, subject, 1)
            assert isinstance(give(SOON), jsync.JetStreamMsg)
        publish(nc, subject, 1)
        assert sub.next(None).metadata.stream_sequence == 3


def test_callbacks_get_messages_in_turn_on_one_thread(
    nc: jsync.Connection, js: jsync.JetStream, subject: str
) -> None:
    handler = Recorder()
    with js.subscribe(subject, callback=handler) as sub:
        publish(nc, subject, 20)
        calls = [handler.calls.get(timeout=SOON) for _ in range(20)]
        with pytest.raises(errors.ConfigError):
            iter(sub)
        with pytest.raises(errors.ConfigError):
            sub.next(0)
    assert sequences([args[0] for args, _ in calls]) == list(range(1, 21))
    (thread,) = {thread for _, thread in calls}
    assert thread is not threading.current_thread()
    wait_for(lambda: not thread.is_alive())


def test_a_callback_without_a_message_has_no_thread(
    nc: jsync.Connection, js: jsync.JetStream, subject: str
) -> None:
    def threads() -> int:
        begin = f"{nc._session.name}-pool-"
        return sum(t.name.startswith(begin) for t in threading.enumerate())

    handler = Recorder()
    with js.subscribe(subject, callback=handler):
        assert threads() == 0
        publish(nc, subject, 1)
        handler.get()
        assert threads() == 1


def test_a_callback_raising_system_exit_gets_further_messages(
    nc: jsync.Connection, js: jsync.JetStream, subject: str
) -> None:
    problems, handled = Recorder(), Recorder()

    def handle(msg: jsync.JetStreamMsg) -> None:
        if msg.metadata.stream_sequence == 1:
            raise SystemExit
        handled(msg)

    with js.subscribe(subject, callback=handle, on_error=problems):
        publish(nc, subject, 2)
        assert handled.get().metadata.stream_sequence == 2
    assert isinstance(problems.get(), errors.CallbackError)


def test_messages_before_the_bind_are_delivered_after_it(
    nc: jsync.Connection, js: jsync.JetStream, stream: jsync.Stream, subject: str
) -> None:
    publish(nc, subject, 3)
    inbox = f"_INBOX.{stream.name}"
    handler = Recorder()
    for callback in (None, handler):
        sub = open_subscription(js._api, inbox, callback=callback)
        made = stream.create_push_consumer(deliver_subject=inbox, ack_policy="none")
        wait_for(lambda: sub.pending == 3)  # noqa: B023
        assert not handler.waiting
        bind(sub, made.cached_info, created=True)
        given = [handler.get() for _ in range(3)] if callback else take(sub, 3)
        assert sequences(given) == [1, 2, 3]
        given[0].ack()
        # jsync learned late that the consumer uses no acks
        assert not given[0].is_acked
        sub.unsubscribe()


def test_a_subscription_may_change_subject_before_the_bind(
    nc: jsync.Connection, js: jsync.JetStream, stream: jsync.Stream, subject: str
) -> None:
    publish(nc, subject, 2)
    sub = open_subscription(js._api, f"a.{stream.name}")
    nc.publish(f"a.{stream.name}", b"of another consumer")
    wait_for(lambda: sub.pending == 1)
    rebind(sub, f"b.{stream.name}")
    made = stream.create_push_consumer(deliver_subject=f"b.{stream.name}")
    nc.publish(f"a.{stream.name}", b"of another consumer")
    nc.flush()
    bind(sub, made.cached_info, created=True)
    assert sub.subject == f"b.{stream.name}"
    publish(nc, subject, 1)
    assert sequences(take(sub, 3)) == [1, 2, 3]
    sub.unsubscribe()


def test_an_abandoned_subscription_leaves_nothing_on_the_server(
    nc: jsync.Connection, js: jsync.JetStream, stream: jsync.Stream
) -> None:
    before = set(nc._session.interests)
    for callback in (None, Recorder()):
        sub = open_subscription(js._api, f"a.{stream.name}", callback=callback)
        close_unbound(sub)
        close_unbound(sub)
        assert not sub.is_active
    assert set(nc._session.interests) == before


def test_the_backlog_has_limits_and_drops_are_reported(
    server: LocalServer, nc: jsync.Connection, subject: str
) -> None:
    for messages, size in ((7, 1 << 20), (1000, 1000)):
        slow = Recorder()
        publish(nc, subject, 20, 100)
        with (
            jsync.connect(server.url, on_error=slow) as other,
            other.jetstream().subscribe(
                subject,
                pending_msgs_limit=messages,
                pending_bytes_limit=size,
                ack_policy="none",
            ) as sub,
        ):
            wait_for(lambda: sub.delivered >= 20)
            error = slow.get()
            assert isinstance(error, errors.SlowConsumerError)
            assert error.subject == sub.subject
            info = sub.consumer_info()
            assert f"the consumer {info.stream_name}.{info.name} is" in str(error)
            assert sub.dropped == sub.delivered - sub.pending
            assert 0 < sub.pending <= min(messages, 10)
            assert sub.pending_bytes <= size


def test_a_second_reading_thread_gets_an_error(
    js: jsync.JetStream, subject: str
) -> None:
    sub = js.subscribe(subject)
    waiting = Thread(sub.next, LONG)
    waiting.wait_until_blocked()
    with pytest.raises(errors.ConcurrentUseError):
        sub.next(LONG)
    sub.unsubscribe()
    assert isinstance(waiting.error(), errors.SubscriptionClosedError)


@pytest.mark.parametrize("ordered", [False, True], ids=["plain", "ordered"])
def test_closing_the_connection_wakes_waiting_threads(
    server: LocalServer, subject: str, ordered: bool
) -> None:
    with jsync.connect(server.url) as other:
        sub = other.jetstream().subscribe(subject, ordered=ordered)
        waiting = Thread(lambda: list(sub))
        waiting.wait_until_blocked()
        other.close()
        assert isinstance(waiting.error(), errors.ConnectionClosedError)
        assert not sub.is_active


def test_closing_the_connection_ends_the_callback_thread(
    server: LocalServer, nc: jsync.Connection, subject: str
) -> None:
    handler, problems = Recorder(), Recorder()
    with jsync.connect(server.url) as other:
        other.jetstream().subscribe(subject, callback=handler, on_error=problems)
        publish(nc, subject, 1)
        thread = handler.thread()
        other.close()
    wait_for(lambda: not thread.is_alive())
    assert not problems.waiting


def test_a_subscription_is_restored_after_a_reconnect(
    nc: jsync.Connection, proxy: FaultProxy, subject: str, stream: jsync.Stream
) -> None:
    events = Events()
    with connect(proxy.url, events) as far:
        sub = far.jetstream().subscribe(subject, durable="lasting", ack_wait=0.5)
        publish(nc, subject, 1)
        assert sequences(take(sub, 1)) == [1]
        for count in (1, 2):
            proxy.cut()
            events.wait("reconnect", count)
            publish(nc, subject, 1)
            seen = set()
            while count + 1 not in seen:
                msg = sub.next(LONG)
                seen.add(msg.metadata.stream_sequence)
                msg.ack()


def test_ctrl_c_during_a_wait_leaves_it_usable(
    server: LocalServer, subject: str
) -> None:
    script = """
        import os, signal, sys, threading, time
        import jsync
        from tests.support.threads import wait_until_blocked

        def interrupt_when_blocked():
            wait_until_blocked(threading.main_thread())
            os.kill(os.getpid(), signal.SIGINT)

        with jsync.connect(sys.argv[1]) as nc:
            sub = nc.jetstream().subscribe(sys.argv[2])
            try:
                threading.Thread(target=interrupt_when_blocked, daemon=True).start()
                sub.next(30)
            except KeyboardInterrupt:
                nc.publish(sys.argv[2], b"after it")
                print(sub.next(10).data.decode(), flush=True)
            sub.unsubscribe()
        """
    with Child(script, server.url, subject) as child:
        code, output, errors_ = child.finish()
    assert (code, errors_) == (0, "")
    assert output.strip() == "after it"


def test_a_forked_child_gets_an_error(server: LocalServer, subject: str) -> None:
    script = """
        import os, sys
        import jsync
        from jsync import errors
        with jsync.connect(sys.argv[1]) as nc:
            sub = nc.jetstream().subscribe(sys.argv[2])
            pid = os.fork()
            if not pid:
                calls = [lambda: sub.next(5), sub.unsubscribe, sub.drain,
                         lambda: sub.unsubscribe(3), sub.consumer_info]
                good = 0
                for call in calls:
                    try:
                        call()
                    except errors.ForkedProcessError:
                        good += 1
                os._exit(0 if good == len(calls) else 1)
            assert os.waitpid(pid, 0)[1] == 0
            nc.publish(sys.argv[2], b"for the parent")
            print(sub.next(10).data.decode(), flush=True)
            sub.unsubscribe()
        """
    with Child(script, server.url, subject, options=("-W", "ignore")) as child:
        code, output, errors_ = child.finish()
    assert (code, errors_) == (0, "")
    assert output.strip() == "for the parent"


def test_a_callback_that_forks_ends_in_the_child(
    server: LocalServer, subject: str
) -> None:
    script = """
        import os, sys, threading
        import jsync
        codes, done = [], threading.Event()

        def handle(msg):
            pid = os.fork()
            if pid == 0:
                return  # into the pool, which belongs to the parent
            codes.append(os.waitpid(pid, 0)[1])
            if len(codes) == 3:
                done.set()

        with jsync.connect(sys.argv[1]) as nc:
            sub = nc.jetstream().subscribe(sys.argv[2], callback=handle)
            for _ in range(3):
                nc.publish(sys.argv[2])
            done.wait()
            sub.unsubscribe()
        print(codes)
        """
    with Child(script, server.url, subject, options=("-W", "ignore")) as child:
        code, output, _ = child.finish()
    assert (code, output.strip()) == (0, "[0, 0, 0]")


def test_a_subscription_tells_its_names_and_counts(
    nc: jsync.Connection, js: jsync.JetStream, stream: jsync.Stream, subject: str
) -> None:
    with js.subscribe(subject, "group", durable="shared") as sub:
        publish(nc, subject, 2)
        wait_for(lambda: sub.pending == 2)
        assert (sub.stream_name, sub.consumer_name) == (stream.name, "shared")
        assert sub.queue == "group"
        assert sub.consumer_info().config.deliver_group == "group"
        assert (sub.pending_msgs, sub.delivered, sub.dropped) == (2, 2, 0)
        assert sub.pending_bytes > 0
        for words in (f"{stream.name}.shared", "queue='group'", "active, 2 pending"):
            assert words in repr(sub)
    assert "ended, 0 pending" in repr(sub)


def test_subscriptions_do_not_keep_a_closed_connection_alive(
    server: LocalServer, nc: jsync.Connection, subject: str
) -> None:
    gc.collect()
    gc.disable()  # only reference counts free objects in this test
    try:
        other = jsync.connect(server.url)
        with other.jetstream().subscribe(subject) as sub:
            publish(nc, subject, 1)
            take(sub, 1)
        other.close()
        known = weakref.ref(other)
        del sub, other
        wait_for(lambda: known() is None)
    finally:
        gc.enable()


def test_many_readers_of_many_subscriptions(
    nc: jsync.Connection, js: jsync.JetStream, subject: str
) -> None:
    got: queue.SimpleQueue[int] = queue.SimpleQueue()
    subs = [
        js.subscribe(
            subject,
            callback=lambda msg: got.put(msg.metadata.stream_sequence),
            ack_policy="none",
        )
        for _ in range(10)
    ]
    publish(nc, subject, 100)
    seen = [got.get(timeout=SOON) for _ in range(1000)]
    assert sorted(seen) == sorted(list(range(1, 101)) * 10)
    for sub in subs:
        sub.drain()
