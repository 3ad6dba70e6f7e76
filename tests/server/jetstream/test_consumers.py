"""Tests of consumers: create, update, info, pause and reset, also of other accounts."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

import jsync
from jsync import errors
from jsync.models import ConsumerConfig, ConsumerInfo, ConsumerPause, ConsumerReset

from ...support.proxy import FaultProxy
from ...support.servers import wait_for
from ...support.threads import SOON

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jsync.server import LocalServer

    from ...support.proxy import Side

pytestmark = [pytest.mark.server, pytest.mark.quick]


@pytest.fixture
def worker(stream: jsync.Stream) -> jsync.Consumer:
    return stream.create_consumer(durable_name="worker")


def fill(js: jsync.JetStream, stream: jsync.Stream, *tokens: str) -> None:
    for token in tokens:
        js.publish(f"{stream.name}.{token}", token.encode())


# Creating and changing ----------------------------------------------------------------


def test_an_existing_consumers_error_names_each_differing_field(
    stream: jsync.Stream,
) -> None:
    one = f"{stream.name}.one"
    stream.create_consumer(durable_name="d", filter_subject=one)
    with pytest.raises(errors.ConsumerExistsError) as told:
        stream.create_consumer(durable_name="d", max_deliver=3, ack_wait=timedelta(30))
    assert told.value.differences == {
        "filter_subject": (None, one),
        "max_deliver": (3, -1),
        "ack_wait": (2592000.0, 30.0),
    }
    words = str(told.value)
    assert f"filter_subject is {one!r} instead of its default" in words
    assert "max_deliver is -1 instead of 3" in words
    call = f"JetStream.update_consumer({stream.name!r}, durable_name='d', "
    assert f"call {call}" in words
    assert (told.value.err_code, told.value.code) == (10148, 400)
    changes = {name: mine for name, (mine, _) in told.value.differences.items()}
    stream.update_consumer(durable_name="d", **changes)
    stream.create_consumer(durable_name="d", max_deliver=3, ack_wait=timedelta(30))


@pytest.mark.parametrize(
    "fields",
    [
        {"deliver_policy": "new"},
        {"deliver_policy": "by_start_sequence", "opt_start_seq": 3},
        {"ack_policy": "all"},
        {"replay_policy": "original"},
        {"max_waiting": 7},
    ],
    ids=str,
)
def test_the_error_says_fixed_fields_need_another_consumer(
    js: jsync.JetStream, stream: jsync.Stream, fields: dict[str, Any]
) -> None:
    stream.create_consumer(durable_name="d", max_deliver=5)
    with pytest.raises(errors.ConsumerExistsError) as told:
        stream.create_consumer(durable_name="d", **fields)
    remedy = " cannot be changed: delete and recreate it, or choose another name"
    assert " and ".join(fields) + remedy in str(told.value)
    assert "update_consumer" not in str(told.value)
    # The server rejects the same update.
    with pytest.raises(errors.ConsumerCreateError, match="can not be updated"):
        js.update_consumer(stream.name, durable_name="d", **fields)


def test_an_existing_push_consumers_error_names_its_update(
    js: jsync.JetStream, stream: jsync.Stream
) -> None:
    given: dict[str, Any] = {
        "durable_name": "p",
        "deliver_subject": f"to.{stream.name}",
    }
    stream.create_push_consumer(**given, ack_wait=5)
    with pytest.raises(errors.ConsumerExistsError) as told:
        stream.create_push_consumer(**given, ack_wait=7)
    call = f"update_push_consumer({stream.name!r}, durable_name='p', ack_wait=7.0)"
    assert f"call JetStream.{call} to change it" in str(told.value)
    js.update_push_consumer(stream.name, durable_name="p", ack_wait=7.0)
    stream.create_push_consumer(**given, ack_wait=7)
    with pytest.raises(errors.ConsumerExistsError) as another:
        stream.create_consumer(durable_name="p", ack_wait=7)
    assert "deliver_subject cannot be changed: delete" in str(another.value)


def test_the_error_names_the_inactive_threshold_to_give(
    stream: jsync.Stream,
) -> None:
    stream.create_consumer(name="n")
    with pytest.raises(
        errors.ConsumerExistsError, match=r"give inactive_threshold=5\.0"
    ):
        stream.create_consumer(name="n")
    stream.create_consumer(name="n", inactive_threshold=5.0)


def test_one_string_stands_for_a_list_of_subjects(stream: jsync.Stream) -> None:
    subject = f"{stream.name}.a"
    consumer = stream.create_consumer(durable_name="d", filter_subjects=subject)
    assert consumer.config.filter_subjects == [subject]
    assert stream.update(subjects=subject).config.subjects == [subject]
    assert consumer.update(filter_subjects=subject).config.filter_subjects == [subject]


def test_an_update_of_a_missing_consumer_raises(
    js: jsync.JetStream, stream: jsync.Stream
) -> None:
    with pytest.raises(errors.ConsumerDoesNotExistError) as whole:
        stream.update_consumer(ConsumerConfig(durable_name="none"))
    with pytest.raises(errors.ConsumerDoesNotExistError, match="create it") as one:
        stream.update_consumer(durable_name="none", ack_wait=5)
    for name in ("code", "err_code", "description"):
        assert getattr(one.value, name) == getattr(whole.value, name)
    gone = stream.create_consumer(durable_name="gone")
    gone.delete()
    with pytest.raises(errors.ConsumerDoesNotExistError):
        gone.update(ack_wait=5)
    with pytest.raises(errors.StreamNotFoundError):
        js.update_consumer("NONE", durable_name="worker", ack_wait=5)


def test_a_second_create_is_refused_when_it_differs(
    stream: jsync.Stream, worker: jsync.Consumer
) -> None:
    again = stream.create_consumer(durable_name="worker")
    assert again.cached_info.created == worker.cached_info.created
    with pytest.raises(errors.ConsumerExistsError):
        stream.create_consumer(durable_name="worker", ack_wait=5)


def test_keywords_of_an_update_change_nothing_else(
    js: jsync.JetStream, stream: jsync.Stream, worker: jsync.Consumer
) -> None:
    worker.update(description="words", max_deliver=3)
    updated = js.update_consumer(stream.name, name="worker", ack_wait=5)
    assert updated.config.ack_wait == 5
    assert (updated.config.description, updated.config.max_deliver) == ("words", 3)
    info = worker.update(description=None)
    assert (info.config.description, info.config.max_deliver) == (None, 3)
    assert worker.cached_info is info


def test_a_configuration_in_an_update_replaces_all(
    stream: jsync.Stream, worker: jsync.Consumer
) -> None:
    worker.update(description="words")
    config = ConsumerConfig(durable_name="worker", ack_wait=5)
    assert stream.update_consumer(config).config.matches(config)
    assert worker.info().config.description is None


def test_one_filter_replaces_many_in_an_update(
    stream: jsync.Stream, worker: jsync.Consumer
) -> None:
    one, two = f"{stream.name}.1", f"{stream.name}.2"
    assert worker.update(filter_subject=one).config.filter_subject == one
    both = worker.update(filter_subjects=[one, two]).config
    assert (both.filter_subject, both.filter_subjects) == (None, [one, two])
    only = worker.update(filter_subject=two).config
    assert (only.filter_subject, only.filter_subjects) == (two, None)


def test_the_server_refuses_changing_a_consumers_fixed_field(
    worker: jsync.Consumer,
) -> None:
    with pytest.raises(errors.APIError, match="ack policy"):
        worker.update(ack_policy="all")


def test_a_consumer_cannot_be_renamed(worker: jsync.Consumer) -> None:
    with pytest.raises(errors.ConfigError, match="cannot be renamed"):
        worker.update(durable_name="other")
    with pytest.raises(errors.ConfigError, match="cannot be renamed"):
        worker.update(name="other")
    with pytest.raises(errors.ConfigError, match="cannot be renamed"):
        worker.update(ConsumerConfig(durable_name="other"))


def test_create_or_update_creates_and_then_updates(
    js: jsync.JetStream, stream: jsync.Stream
) -> None:
    first = stream.create_or_update_consumer(durable_name="worker", ack_wait=5)
    again = js.create_or_update_consumer(stream.name, durable_name="worker")
    assert (first.config.ack_wait, again.config.ack_wait) == (5, 30)
    assert first.info().created == again.info().created


def test_an_update_has_to_say_of_which_consumer(
    nc: jsync.Connection, js: jsync.JetStream, stream: jsync.Stream
) -> None:
    sent = nc.stats().out_messages
    for call in (stream.update_consumer, stream.create_or_update_consumer):
        with pytest.raises(errors.ConfigError, match="the consumer to update"):
            call(ack_wait=5)
        with pytest.raises(errors.ConfigError, match="the consumer to update"):
            call(ConsumerConfig())
    assert nc.stats().out_messages == sent


def test_a_consumer_is_asked_for_and_deleted(
    js: jsync.JetStream, stream: jsync.Stream, worker: jsync.Consumer
) -> None:
    assert stream.consumer("worker").cached_info.name == "worker"
    stream.delete_consumer("worker")
    with pytest.raises(errors.ConsumerNotFoundError):
        stream.consumer("worker")
    with pytest.raises(errors.ConsumerNotFoundError):
        worker.delete()
    with pytest.raises(errors.ConsumerNotFoundError):
        stream.delete_consumer("worker")
    with pytest.raises(errors.ConsumerNotFoundError):
        js.delete_consumer(stream.name, "worker")


# Pausing ------------------------------------------------------------------------------


def test_a_paused_consumer_sends_nothing_until_resumed(
    js: jsync.JetStream, stream: jsync.Stream, worker: jsync.Consumer
) -> None:
    fill(js, stream, "a")
    until = datetime.now(UTC) + timedelta(hours=1)
    paused = worker.pause(until)
    assert isinstance(paused, ConsumerPause)
    assert paused.paused
    assert paused.pause_until == until
    assert paused.pause_remaining is not None
    assert 3500 < paused.pause_remaining <= 3600
    info = worker.info()
    assert info.paused
    assert info.config.pause_until == until
    with pytest.raises(TimeoutError):
        worker.next(timeout=0.1)
    resumed = worker.resume()
    assert (resumed.paused, resumed.pause_until) == (False, None)
    assert worker.next(timeout=SOON).data == b"a"
    assert not worker.resume().paused


def test_a_pause_of_some_seconds_ends_by_itself(
    js: jsync.JetStream, stream: jsync.Stream, worker: jsync.Consumer
) -> None:
    fill(js, stream, "a")
    paused = worker.pause(0.5)
    assert paused.pause_remaining is not None
    assert 0 < paused.pause_remaining <= 0.5
    assert worker.next(timeout=SOON).data == b"a"
    assert not worker.info().paused


@pytest.mark.parametrize(
    "until",
    [0, -1, math.nan, math.inf, True, "soon", None, 1e300, datetime(2030, 1, 1)],  # noqa: DTZ001
    ids=repr,
)
def test_an_invalid_pause_is_rejected_before_sending(
    nc: jsync.Connection, worker: jsync.Consumer, until: Any
) -> None:
    sent = nc.stats().out_messages
    with pytest.raises(errors.ConfigError, match="until"):
        worker.pause(until)
    assert nc.stats().out_messages == sent


# Resetting ----------------------------------------------------------------------------


def test_a_reset_has_messages_delivered_again(
    js: jsync.JetStream, stream: jsync.Stream, worker: jsync.Consumer
) -> None:
    fill(js, stream, *"abcd")
    for _ in range(2):
        worker.next().ack_sync()
    worker.next()
    reset = worker.reset()
    assert isinstance(reset, ConsumerReset)
    assert isinstance(reset, ConsumerInfo)
    assert (reset.reset_seq, reset.num_ack_pending, reset.num_pending) == (3, 0, 2)
    again = worker.next()
    assert (again.data, again.metadata.num_delivered) == (b"c", 1)
    assert worker.reset(0).reset_seq == 3  # the server treats 0 like no sequence
    assert worker.reset(2).reset_seq == 2
    assert worker.next().data == b"b"
    assert worker.cached_info.num_pending == 3


def test_a_reset_to_before_its_start_is_refused(
    js: jsync.JetStream, stream: jsync.Stream
) -> None:
    fill(js, stream, *"abcd")
    late = stream.create_consumer(
        durable_name="late", deliver_policy="by_start_sequence", opt_start_seq=3
    )
    with pytest.raises(errors.InvalidResetError):
        late.reset(2)
    assert late.reset(3).reset_seq == 3
    new = stream.create_consumer(durable_name="new", deliver_policy="new")
    with pytest.raises(errors.InvalidResetError):
        new.reset(2)
    assert new.reset().reset_seq == 5


@pytest.mark.parametrize("gone", ["consumer", "stream"])
def test_a_reset_of_a_deleted_consumer_names_it(
    server: LocalServer, stream: jsync.Stream, worker: jsync.Consumer, gone: str
) -> None:
    """It is deleted between the look-up and the reset, which the server does not answer."""

    def delete(data: bytes, to: Side) -> bytes:
        if to == "server" and b"$JS.API.CONSUMER.RESET." in data:
            if gone == "consumer":
                worker.delete()
            else:
                stream.delete()
        return data

    with FaultProxy("127.0.0.1", server.port) as proxy:
        with jsync.connect(proxy.url) as nc:
            own = nc.jetstream(timeout=1.0).consumer(stream.name, worker.name)
            proxy.rewrite(delete)
            with pytest.raises(errors.NotFoundError) as told:
                own.reset(1)
    expected = {
        "consumer": errors.ConsumerNotFoundError,
        "stream": errors.StreamNotFoundError,
    }
    assert type(told.value) is expected[gone]


def test_an_invalid_reset_is_rejected_before_sending(
    nc: jsync.Connection, worker: jsync.Consumer
) -> None:
    sent = nc.stats().out_messages
    for sequence in (-1, True, 1 << 64):
        with pytest.raises(errors.ConfigError, match="sequence"):
            worker.reset(sequence)
    assert nc.stats().out_messages == sent


# Groups -------------------------------------------------------------------------------


def test_unpinning_lets_another_client_be_pinned(
    js: jsync.JetStream, stream: jsync.Stream
) -> None:
    consumer = stream.create_consumer(
        durable_name="pinned", priority_groups=["g"], priority_policy="pinned_client"
    )
    consumer.unpin("g")
    with pytest.raises(errors.PriorityGroupError):
        consumer.unpin("other")
    with pytest.raises(errors.ConfigError, match="group"):
        consumer.unpin("")


@pytest.mark.parametrize(
    "call", ["info", "pause", "resume", "unpin", "reset", "delete"]
)
def test_a_deleted_consumer_raises_not_found(
    stream: jsync.Stream, worker: jsync.Consumer, call: str
) -> None:
    stream.delete_consumer("worker")
    arguments: dict[str, tuple[Any, ...]] = {"pause": (60,), "unpin": ("g",)}
    with pytest.raises(errors.ConsumerNotFoundError):
        getattr(worker, call)(*arguments.get(call, ()))


# Bound without asking -----------------------------------------------------------------


def test_binding_sends_no_request(
    nc: jsync.Connection,
    js: jsync.JetStream,
    stream: jsync.Stream,
    worker: jsync.Consumer,
) -> None:
    fill(js, stream, "a")
    sent = nc.stats().out_messages
    bound = js.consumer(stream.name, "worker")
    assert (bound.name, bound.stream_name) == ("worker", stream.name)
    assert repr(bound) == repr(worker)
    with pytest.raises(errors.NoCachedInfoError, match=r"call info\(\)"):
        bound.cached_info  # noqa: B018 (the property raises)
    with pytest.raises(errors.NoCachedInfoError):
        bound.config  # noqa: B018 (the property raises)
    assert nc.stats().out_messages == sent
    assert bound.next().data == b"a"
    info = bound.info()
    assert bound.cached_info is info
    assert bound.config.durable_name == "worker"


def test_a_missing_bound_consumer_raises_at_first_use(
    js: jsync.JetStream, stream: jsync.Stream
) -> None:
    bound = js.consumer(stream.name, "none")
    with pytest.raises(errors.ConsumerNotFoundError):
        bound.info()
    with pytest.raises(errors.NoRespondersError):
        bound.next(timeout=SOON)


# Of another account -------------------------------------------------------------------

ACCOUNTS = """
    jetstream: enabled
    accounts {
      HOME: {
        jetstream: enabled
        users: [{user: home, password: p}]
        exports: [
          {service: "$JS.API.CONSUMER.MSG.NEXT.S.worker", response_type: stream}
          {service: "$JS.API.CONSUMER.RESET.S.worker"}
          {service: "$JS.ACK.S.worker.>"}
        ]
      }
      AWAY: {
        users: [{user: away, password: p}]
        imports: [
          {
            service: {account: HOME, subject: "$JS.API.CONSUMER.MSG.NEXT.S.worker"}
            to: "home.CONSUMER.MSG.NEXT.S.worker"
          }
          {
            service: {account: HOME, subject: "$JS.API.CONSUMER.RESET.S.worker"}
            to: "home.CONSUMER.RESET.S.worker"
          }
          {service: {account: HOME, subject: "$JS.ACK.S.worker.>"}}
        ]
      }
    }
"""


@pytest.fixture(scope="module")
def accounts() -> Iterator[LocalServer]:
    """Two accounts. One may pull from a consumer of the other, ack and reset, but nothing else."""
    from jsync.server import LocalServer  # noqa: PLC0415

    with LocalServer(config=ACCOUNTS) as server:
        yield server


class Exported:
    """A consumer as seen by its owner and by the other account."""

    def __init__(self, home: jsync.JetStream, away: jsync.JetStream) -> None:
        self.js = home
        self.stream = home.create_stream(name="S", subjects=["s.*"], storage="memory")
        self.owners = self.stream.create_consumer(durable_name="worker", ack_wait=600)
        self.imported = away.consumer("S", "worker")

    def fill(self, count: int) -> list[bytes]:
        payloads = [str(number).encode() for number in range(count)]
        for payload in payloads:
            self.js.publish("s.a", payload)
        return payloads

    def wait_until_acked(self, count: int) -> None:
        wait_for(lambda: self.owners.info().ack_floor.stream_seq == count)
        assert self.owners.info().num_ack_pending == 0


@pytest.fixture
def exported(accounts: LocalServer) -> Iterator[Exported]:
    with (
        jsync.connect(accounts.url, user="home", password="p") as home,
        jsync.connect(accounts.url, user="away", password="p") as away,
    ):
        exported = Exported(home.jetstream(), away.jetstream(prefix="home"))
        yield exported
        exported.stream.delete()


def test_next_pulls_from_another_account(exported: Exported) -> None:
    payloads = exported.fill(3)
    for payload in payloads:
        msg = exported.imported.next()
        assert msg.data == payload
        assert msg.subject == "s.a"
        assert msg.metadata.stream == "S"
        msg.ack()
    exported.wait_until_acked(3)
    with pytest.raises(TimeoutError):
        exported.imported.next(timeout=0.2)


def test_an_ack_of_another_account_can_be_awaited(exported: Exported) -> None:
    exported.fill(1)
    exported.imported.next().ack_sync()
    assert exported.owners.info().num_ack_pending == 0


def test_fetch_pulls_from_another_account(exported: Exported) -> None:
    payloads = exported.fill(100)
    with exported.imported.fetch(100) as batch:
        got = []
        for msg in batch:
            got.append(msg.data)
            msg.ack()
    assert got == payloads
    exported.wait_until_acked(100)


def test_an_abandoned_batch_of_another_account_is_returned(
    exported: Exported,
) -> None:
    exported.fill(10)
    with exported.imported.fetch(10) as batch:
        next(iter(batch)).ack()
    got = set()
    with exported.imported.fetch(9, timeout=SOON) as batch:
        for msg in batch:
            got.add(msg.metadata.stream_sequence)
            msg.ack()
    assert got == set(range(2, 11))


def test_messages_pulls_from_another_account(exported: Exported) -> None:
    payloads = exported.fill(2000)
    got = []
    with exported.imported.messages(max_messages=100, stop_after=2000) as messages:
        for msg in messages:
            got.append(msg.data)
            msg.ack()
    assert got == payloads
    exported.wait_until_acked(2000)


def test_consume_pulls_from_another_account(exported: Exported) -> None:
    payloads = exported.fill(500)
    got = []

    def handle(msg: jsync.JetStreamMsg) -> None:
        got.append(msg.data)
        msg.ack()

    with exported.imported.consume(handle, stop_after=500) as running:
        assert running.wait(SOON)
    assert got == payloads
    exported.wait_until_acked(500)


def test_a_reset_needs_no_info_to_be_exported(exported: Exported) -> None:
    payloads = exported.fill(3)
    exported.imported.next().ack_sync()
    assert exported.imported.reset(1).reset_seq == 1
    assert exported.imported.next().data == payloads[0]


def test_a_call_not_exported_by_the_account_raises(exported: Exported) -> None:
    for call in (
        exported.imported.info,
        exported.imported.delete,
        exported.imported.resume,
    ):
        with pytest.raises(errors.JetStreamNotEnabledError, match="prefix is wrong"):
            call()


@pytest.mark.parametrize("subject", ["a", "*", ">"])
def test_a_consumer_filters_subjects_with_or_without_wildcards(
    stream: jsync.Stream, subject: str
) -> None:
    wanted = f"{stream.name}.{subject}"
    consumer = stream.create_consumer(filter_subject=wanted)
    assert consumer.info().config.filter_subject == wanted
