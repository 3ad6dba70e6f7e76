"""Tests of ADR-15, from Creation to Creating the JS Consumer, sentence by sentence.

tests/unit/jetstream/subscribe/test_options.py also tests the errors that jsync raises before it sends
anything.
"""

from __future__ import annotations

import inspect
import queue
import threading
from typing import TYPE_CHECKING, Any

import pytest
from nats.js import JetStreamContext, api as nats_py

import jsync
from jsync import errors
from jsync.models import ConsumerConfig

from ....support.connections import connection_of
from ....support.servers import wait_for
from ....support.threads import SOON, Recorder

if TYPE_CHECKING:
    from jsync.server import LocalServer

    from ....conftest import StartServer
    from ....support.subscribe_requests import Wire

pytestmark = pytest.mark.server


def names(stream: jsync.Stream) -> list[str]:
    return list(stream.consumer_names())


def fill(js: jsync.JetStream, subject: str, count: int = 1) -> None:
    for number in range(count):
        js.publish(subject, b"%d" % number)


# Creation -----------------------------------------------------------------------------


def test_creation_gives_an_iterator_next_or_a_callback(
    js: jsync.JetStream, subject: str
) -> None:
    fill(js, subject, 3)
    with js.subscribe(subject) as sub:
        assert [sub.next(SOON).data, next(iter(sub)).data] == [b"0", b"1"]
    handled = Recorder()
    with js.subscribe(subject, callback=handled):
        assert [handled.get().data for _ in range(3)] == [b"0", b"1", b"2"]


def test_workers_of_a_subscription_call_it_at_once(
    js: jsync.JetStream, subject: str
) -> None:
    both = threading.Barrier(2)
    names: queue.SimpleQueue[str] = queue.SimpleQueue()

    def meet(_: jsync.JetStreamMsg) -> None:
        both.wait(SOON)
        names.put(threading.current_thread().name)

    fill(js, subject, 2)
    with js.subscribe(subject, callback=meet, workers=2):
        called = {names.get(timeout=SOON) for _ in range(2)}
    assert len(called) == 2
    assert not any("-pool-" in name for name in called)


def test_an_ordered_subscription_has_one_worker(
    js: jsync.JetStream, subject: str
) -> None:
    with pytest.raises(errors.ConfigError, match="ordered reads have one thread"):
        js.subscribe(subject, callback=print, ordered=True, workers=2)
    fill(js, subject, 3)
    handled = Recorder()
    with js.subscribe(subject, callback=handled, ordered=True, workers=1):
        assert [handled.get().data for _ in range(3)] == [b"0", b"1", b"2"]


# Configuration ------------------------------------------------------------------------


def test_invalid_configuration_is_rejected_before_anything_is_sent(
    far: jsync.JetStream, wire: Wire, subject: str
) -> None:
    calls: list[tuple[Any, dict[str, Any]]] = [
        (far.subscribe, {"queue": "q", "idle_heartbeat": 1.0}),
        (far.subscribe, {"queue": "q", "flow_control": True}),
        (far.subscribe, {"cb": print, "callback": print}),
        (far.subscribe, {"consumer": "c", "durable": "d"}),
        (far.subscribe, {"ordered": True, "durable": "d"}),
        (far.subscribe, {"pending_msgs_limit": 0}),
        (far.subscribe, {"config": {"max_waiting": 3}}),
        (far.subscribe, {"heartbeat_timeout": 0}),
        (far.pull_subscribe, {"config": {"ack_policy": "none"}}),
        (far.pull_subscribe, {"config": {"ack_policy": "all"}}),
        (far.pull_subscribe, {"inbox_prefix": b"_MINE"}),
        (far.pull_subscribe_bind, {"durable": "d"}),
    ]
    for call, options in calls:
        with pytest.raises(errors.ConfigError):
            call(subject, **options)
    for call in (far.subscribe, far.pull_subscribe):
        with pytest.raises(errors.ConfigError, match="neither subject nor stream"):
            call()
    assert wire.requests == []
    assert wire.subscribed == []


# Stream name --------------------------------------------------------------------------


def test_stream_name_is_looked_up_by_the_subject(
    far: jsync.JetStream, wire: Wire, stream: jsync.Stream, subject: str
) -> None:
    with far.subscribe(subject) as sub:
        assert sub.consumer_info().stream_name == stream.name
    assert wire.requests[0] == "STREAM.NAMES"
    assert wire.payload("STREAM.NAMES")["subject"] == subject


@pytest.mark.parametrize("call", ["subscribe", "pull_subscribe"])
def test_stream_name_not_found_is_an_error(
    js: jsync.JetStream, stream: jsync.Stream, unique: str, call: str
) -> None:
    with pytest.raises(errors.StreamNotFoundError, match="no stream takes"):
        getattr(js, call)(f"no.{unique}")
    other = js.create_stream(name=f"{unique}_2", subjects=[f"{unique}2.>"])
    try:
        with pytest.raises(errors.AmbiguousSubjectError) as caught:
            getattr(js, call)("*.new")
        assert {stream.name, other.name} <= set(caught.value.streams)
    finally:
        other.delete()


def test_stream_name_given_is_not_looked_up(
    far: jsync.JetStream, wire: Wire, stream: jsync.Stream, subject: str
) -> None:
    with far.subscribe(subject, stream=stream.name) as sub:
        assert sub.consumer_info().config.filter_subject == subject
    with far.subscribe(stream=stream.name) as sub:
        assert sub.consumer_info().config.filter_subject is None
    with far.pull_subscribe(subject, stream=stream.name) as pulled:
        assert pulled.consumer_info().config.filter_subject == subject
    assert "STREAM.NAMES" not in wire.requests
    with pytest.raises(errors.StreamNotFoundError):
        far.subscribe(subject, stream="NO_SUCH")


# Consumer name ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "named", [{"consumer": "worker"}, {"durable": "worker", "bind": True}]
)
def test_consumer_name_uses_the_existing_consumer(
    js: jsync.JetStream, stream: jsync.Stream, subject: str, named: dict[str, Any]
) -> None:
    created = stream.create_consumer(
        durable_name="worker", deliver_subject=f"to.{stream.name}"
    ).cached_info.created
    fill(js, subject)
    with js.subscribe(subject, **named) as sub:
        assert sub.next(SOON).data == b"0"
        assert sub.subject == f"to.{stream.name}"
        assert sub.consumer_info().created == created
    assert names(stream) == ["worker"]


@pytest.mark.parametrize(
    "named", [{"consumer": "none"}, {"durable": "none", "bind": True}]
)
def test_a_push_rejects_a_consumer_name_not_found(
    far: jsync.JetStream, wire: Wire, subject: str, named: dict[str, Any]
) -> None:
    with pytest.raises(errors.ConsumerNotFoundError):
        far.subscribe(subject, **named)
    assert not [request for request in wire.requests if "CREATE" in request]


def test_a_pull_accepts_a_consumer_name_not_found(
    js: jsync.JetStream, stream: jsync.Stream, subject: str
) -> None:
    fill(js, subject)
    sub = js.pull_subscribe(subject, consumer="later")
    assert names(stream) == []
    with pytest.raises(errors.ConsumerNotFoundError):
        sub.consumer_info()
    stream.create_consumer(durable_name="later")
    assert [msg.data for msg in sub.fetch()] == [b"0"]
    sub.unsubscribe()
    assert names(stream) == ["later"]


def test_a_pull_accepts_consumer_names_without_lookup_permission(
    own_server: StartServer,
) -> None:
    server = own_server(
        config="""
        accounts { A { jetstream: enabled, users: [
            { user: all, password: p }
            { user: reader, password: p, permissions: {
                publish: ["$JS.API.CONSUMER.MSG.NEXT.>", "$JS.ACK.>"] } } ] } }
        """
    )
    with (
        jsync.connect(server.url, user="all", password="p") as nc,
        jsync.connect(
            server.url, user="reader", password="p", on_error=Recorder()
        ) as reader,
    ):
        js = nc.jetstream()
        js.create_stream(name="S", subjects=["s"])
        js.create_consumer("S", durable_name="worker")
        fill(js, "s")
        sub = reader.jetstream().pull_subscribe_bind("worker", "S")
        (msg,) = sub.fetch(timeout=SOON)
        assert msg.data == b"0"
        msg.ack_sync(SOON)
        for call in (reader.jetstream().subscribe, reader.jetstream().pull_subscribe):
            with pytest.raises(errors.PermissionsError):
                call(stream="S", durable="worker")


# Queue name ---------------------------------------------------------------------------


def test_queue_name_names_the_shared_durable_consumer(
    js: jsync.JetStream, stream: jsync.Stream, subject: str
) -> None:
    with (
        js.subscribe(subject, "workers") as one,
        js.subscribe(subject, "workers") as two,
    ):
        assert names(stream) == ["workers"]
        config = one.consumer_info().config
        assert (config.durable_name, config.deliver_group) == ("workers", "workers")
        assert one.subject == two.subject
        fill(js, subject, 50)
        wait_for(lambda: one.delivered + two.delivered >= 50)
        assert one.delivered + two.delivered == 50
        assert min(one.delivered, two.delivered) > 0


def test_queue_name_may_differ_from_the_consumer_name(
    js: jsync.JetStream, stream: jsync.Stream, subject: str
) -> None:
    with js.subscribe(subject, "workers", durable="shared") as one:
        with js.subscribe(subject, queue="workers", consumer="shared") as two:
            assert (one.queue, two.queue) == ("workers", "workers")
            assert names(stream) == ["shared"]


# NATS subscription --------------------------------------------------------------------


def test_nats_subscription_is_made_before_the_consumer(
    far: jsync.JetStream, wire: Wire, subject: str
) -> None:
    with far.subscribe(subject, durable="d") as sub:
        created = wire.place("PUB", "$JS.API.CONSUMER.CREATE")
        assert wire.place("SUB", sub.subject) < created
        assert (
            wire.payload("CONSUMER.CREATE")["config"]["deliver_subject"] == sub.subject
        )


def test_nats_subscription_uses_an_inbox_or_deliver_subject(
    server: LocalServer, js: jsync.JetStream, unique: str, subject: str
) -> None:
    with js.subscribe(subject) as sub:
        assert sub.subject.startswith("_INBOX.")
    with jsync.connect(server.url, inbox_prefix=f"_{unique}") as nc:
        with nc.jetstream().subscribe(subject) as sub:
            assert sub.subject.startswith(f"_{unique}.")
    with js.subscribe(subject, config={"deliver_subject": f"to.{unique}"}) as sub:
        assert sub.subject == f"to.{unique}"
        fill(js, subject)
        assert sub.next(SOON).data == b"0"


# Creating the JS Consumer -------------------------------------------------------------


def test_creating_an_ephemeral_consumer_keeps_its_name(
    js: jsync.JetStream, stream: jsync.Stream, subject: str
) -> None:
    with js.subscribe(subject) as sub:
        (name,) = names(stream)
        info = sub.consumer_info()
        assert (info.name, info.config.durable_name) == (name, None)
    with js.pull_subscribe(subject) as pulled:
        (name,) = names(stream)
        assert pulled.consumer.name == name


def test_creating_makes_a_durable_consumer_that_was_missing(
    far: jsync.JetStream, wire: Wire, stream: jsync.Stream, subject: str
) -> None:
    with far.subscribe(subject, durable="pushed") as sub:
        assert sub.consumer_info().config.durable_name == "pushed"
    with far.pull_subscribe(subject, "pulled") as pulled:
        assert pulled.consumer_info().config.durable_name == "pulled"
        assert pulled.created
    looked = [request for request in wire.requests if "INFO" in request]
    assert looked[0] == f"CONSUMER.INFO.{stream.name}.pushed"


def test_creating_fills_in_arguments_and_subscription_needs(
    js: jsync.JetStream, stream: jsync.Stream, unique: str
) -> None:
    subject = f"{unique}.*"
    with js.subscribe(
        subject,
        queue="q",
        config=nats_py.ConsumerConfig(ack_wait=7, description="moved over"),
        deliver_policy="new",
        headers_only=True,
        inactive_threshold=60,
        max_ack_pending=77,
    ) as sub:
        config = sub.consumer_info().config
    assert (config.filter_subject, config.ack_policy) == (subject, "explicit")
    assert (config.deliver_group, config.deliver_subject) == ("q", sub.subject)
    assert (config.ack_wait, config.description) == (7, "moved over")
    assert (config.deliver_policy, config.headers_only) == ("new", True)
    assert (config.inactive_threshold, config.max_ack_pending) == (60, 77)
    with js.pull_subscribe(subject, config=ConsumerConfig(max_waiting=9)) as pulled:
        config = pulled.consumer_info().config
    assert (config.deliver_subject, config.filter_subject) == (None, subject)
    assert (config.ack_policy, config.max_waiting) == ("explicit", 9)


def test_creating_takes_several_filters_instead_of_the_subject(
    js: jsync.JetStream, unique: str, subject: str
) -> None:
    config = ConsumerConfig(filter_subjects=[f"{unique}.a", f"{unique}.b"])
    with js.subscribe(subject, config=config) as sub:
        assert sub.consumer_info().config.filter_subjects == config.filter_subjects


def test_creating_flow_control_takes_heartbeats_along(
    js: jsync.JetStream, subject: str
) -> None:
    with js.subscribe(subject, flow_control=True) as sub:
        config = sub.consumer_info().config
    assert (config.flow_control, config.idle_heartbeat) == (True, 5)


def test_creating_that_the_server_refuses_leaves_no_subscription(
    far: jsync.JetStream, wire: Wire, subject: str, nc: jsync.Connection
) -> None:
    with pytest.raises(errors.APIError):
        far.subscribe(subject, callback=print, num_replicas=5)
    inbox = wire.subscribed[-1]
    connection_of(
        far
    ).flush()  # the server has now received the end of the subscription
    with pytest.raises(errors.NoRespondersError):
        nc.request(inbox, timeout=SOON)


def test_a_created_consumer_is_deleted_at_the_end(
    js: jsync.JetStream, stream: jsync.Stream, subject: str
) -> None:
    calls: list[tuple[Any, dict[str, Any]]] = [
        (js.subscribe, {}),
        (js.subscribe, {"durable": "d"}),
        (js.subscribe, {"queue": "q"}),
        (js.pull_subscribe, {}),
        (js.pull_subscribe, {"durable": "p"}),
    ]
    for call, options in calls:
        sub = call(subject, **options)
        assert len(names(stream)) == 1
        sub.unsubscribe()
        assert names(stream) == []


def test_a_second_member_creates_and_deletes_no_consumer(
    js: jsync.JetStream, stream: jsync.Stream, subject: str
) -> None:
    first = js.subscribe(subject, "q")
    js.subscribe(subject, "q").unsubscribe()
    assert names(stream) == ["q"]
    first.unsubscribe()
    assert names(stream) == []


# The returned subscription ------------------------------------------------------------


def test_readers_get_the_given_patience_and_on_error(
    far: jsync.JetStream, wire: Wire, stream: jsync.Stream, subject: str
) -> None:
    stream.create_consumer(
        durable_name="there", deliver_subject=f"to.{stream.name}", idle_heartbeat=0.1
    )
    wire.drop(b"NATS/1.0 100 ")
    ways: list[dict[str, Any]] = [
        {"consumer": "there"},
        {"durable": "new", "idle_heartbeat": 0.1},
        {"ordered": True, "idle_heartbeat": 0.1},
    ]
    for options in ways:
        told = Recorder()
        with far.subscribe(subject, on_error=told, heartbeat_timeout=0.15, **options):
            assert "0.15 s" in str(told.get()), options


def test_a_reader_gets_the_limits_that_were_given(
    server: LocalServer, js: jsync.JetStream, subject: str
) -> None:
    told = Recorder()
    with jsync.connect(server.url, on_error=told) as nc:
        ways: list[dict[str, Any]] = [
            {"pending_msgs_limit": 2},
            {"pending_bytes_limit": 200},
        ]
        for options in ways:
            with nc.jetstream().subscribe(subject, **options) as sub:
                fill(js, subject, 5)
                assert isinstance(told.get(), errors.SlowConsumerError)
                assert 0 < sub.pending_msgs < 5
                assert sub.dropped > 0


# Names of nats-py ----------------------------------------------------------------------


def test_nats_py_callbacks_are_acked_unless_done_manually(
    js: jsync.JetStream, stream: jsync.Stream, subject: str
) -> None:
    fill(js, subject, 3)

    def pending(consumer: str) -> int:
        return stream.consumer(consumer).cached_info.num_ack_pending

    def floor(consumer: str) -> int:
        return stream.consumer(consumer).cached_info.ack_floor.stream_seq

    acked, not_acked = Recorder(), Recorder()
    with js.subscribe(subject, "", acked, "acked"):
        with js.subscribe(subject, cb=not_acked, durable="by-hand", manual_ack=True):
            for handled in (acked, not_acked):
                assert [handled.get().data for _ in range(3)] == [b"0", b"1", b"2"]
            wait_for(lambda: floor("acked") == 3)
            assert (floor("by-hand"), pending("by-hand")) == (0, 3)


def test_nats_py_subscribe_bind_takes_a_consumers_info(
    js: jsync.JetStream, stream: jsync.Stream, subject: str
) -> None:
    fill(js, subject)
    for name, group in (("alone", None), ("shared", "q")):
        info = stream.create_consumer(
            durable_name=name, deliver_subject=f"to.{name}", deliver_group=group
        ).cached_info
        with js.subscribe_bind(stream.name, info.config, info.name) as sub:
            assert (sub.next(SOON).data, sub.queue) == (b"0", group)
        assert name in names(stream)
    with pytest.raises(errors.ConsumerNotFoundError):
        js.subscribe_bind(stream.name, consumer="none")
    with pytest.raises(errors.ConfigError, match="bind: to which one"):
        js.subscribe_bind(stream.name)


def test_nats_py_pull_subscribe_bind_takes_consumer_keywords(
    js: jsync.JetStream, stream: jsync.Stream, subject: str
) -> None:
    stream.create_consumer(durable_name="worker")
    ways: list[dict[str, Any]] = [{"consumer": "worker"}, {"name": "worker"}]
    for named in [*ways, {"durable": "worker"}]:
        fill(js, subject)
        with js.pull_subscribe_bind(stream=stream.name, **named) as sub:
            (msg,) = sub.fetch(timeout=SOON)
            msg.ack_sync()
    assert names(stream) == ["worker"]
    with pytest.raises(errors.ConfigError, match="one name, not 2"):
        js.pull_subscribe_bind("a", stream.name, durable="b")
    with pytest.raises(errors.ConfigError, match="neither subject nor stream"):
        js.pull_subscribe_bind("a")


@pytest.mark.parametrize("word", ["ordered", "ordered_consumer"])
def test_nats_py_ordered_consumers_read_and_are_deleted(
    js: jsync.JetStream, stream: jsync.Stream, subject: str, word: str
) -> None:
    fill(js, subject, 3)
    options: dict[str, Any] = {word: True}
    with js.subscribe(subject, deliver_policy="all", **options) as sub:
        assert [sub.next(SOON).data for _ in range(3)] == [b"0", b"1", b"2"]
        config = sub.consumer_info().config
        assert (config.ack_policy, config.max_deliver) == ("none", 1)
        assert (config.flow_control, config.filter_subject) == (True, subject)
    wait_for(lambda: names(stream) == [])


def test_nats_py_order_of_arguments_is_the_same(
    js: jsync.JetStream, stream: jsync.Stream, subject: str
) -> None:
    """jsync accepts the arguments of nats-py by position."""
    handled = Recorder()
    config = nats_py.ConsumerConfig(ack_wait=9)
    fill(js, subject, 2)
    with js.subscribe(
        subject,
        None,
        handled,
        "durable",
        stream.name,
        config,
        True,
        False,
        0.5,
        True,
        100,
        1 << 20,
        nats_py.DeliverPolicy.LAST,
        True,
        77.0,
    ) as sub:
        assert handled.get().headers["Nats-Msg-Size"] == "1"
        made = sub.consumer_info()
    assert made.name == "durable"
    assert (made.config.ack_wait, made.config.deliver_policy) == (9, "last")
    assert (made.config.idle_heartbeat, made.config.flow_control) == (0.5, True)
    assert (made.config.headers_only, made.config.inactive_threshold) == (True, 77)
    with js.pull_subscribe(
        subject, "durable", stream.name, config, 100, 1 << 20
    ) as pull:
        assert pull.consumer_info().config.ack_wait == 9


@pytest.mark.parametrize(
    "call", ["subscribe", "subscribe_bind", "pull_subscribe", "pull_subscribe_bind"]
)
def test_nats_py_names_all_exist_in_their_order(call: str) -> None:
    theirs = list(inspect.signature(getattr(JetStreamContext, call)).parameters)
    ours = list(inspect.signature(getattr(jsync.JetStream, call)).parameters)
    assert ours[: len(theirs)] == theirs
