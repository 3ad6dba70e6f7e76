"""Tests of streams: create, update, info, list, purge and delete."""

from __future__ import annotations

import contextlib
import json
from datetime import UTC, datetime, timedelta
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

import jsync
from jsync import errors
from jsync.models import AccountInfo, StreamConfig

from ...support.proxy import FaultProxy, frame_changer
from ...support.servers import RawClient, free_port, wait_for
from ...support.threads import SOON

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from jsync.server import LocalServer

    from ...conftest import StartServer
    from ...support.proxy import Side

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def quiet_server() -> Iterator[LocalServer]:
    """A server for this module alone, without streams of other tests."""
    from jsync.server import LocalServer  # noqa: PLC0415

    with LocalServer() as server:
        yield server


def fill(js: jsync.JetStream, stream: jsync.Stream, *tokens: str) -> None:
    for token in tokens:
        js.publish(f"{stream.name}.{token}", token.encode())


# Creating and changing ----------------------------------------------------------------


def test_a_stream_without_directory_is_created_again(
    own_server: StartServer, tmp_path: Path
) -> None:
    server = own_server(store_dir=tmp_path)
    streams = tmp_path / "jetstream" / "$G" / "streams"
    streams.parent.mkdir(parents=True, exist_ok=True)
    streams.touch()  # a file where the server needs a directory
    rejections = 0

    def hold(frame: bytes, to: Side) -> bytes:
        nonlocal rejections
        if to == "client" and b'"err_code":10049' in frame:
            rejections += 1
            wait_for(lambda: not streams.exists())  # the server removes what it finds
        return frame

    with FaultProxy("127.0.0.1", server.port) as proxy:
        proxy.rewrite(frame_changer(hold))
        with jsync.connect(proxy.url) as nc:
            assert nc.jetstream().create_stream(name="A").info().state.messages == 0
    assert rejections == 1


def test_an_impossible_directory_is_an_error(
    own_server: StartServer, tmp_path: Path
) -> None:
    store = tmp_path
    while len(str(store)) < 3700:
        store = store / ("d" * 200)  # Linux takes no path above 4096 bytes
    server = own_server(store_dir=store)
    with (
        jsync.connect(server.url) as nc,
        pytest.raises(errors.StreamCreateError, match="error creating store"),
    ):
        nc.jetstream().create_stream(name="A" * 250)


@pytest.mark.parametrize(
    "change",
    [
        lambda js, name: js.update_stream(name=name, max_msgs=7),
        lambda js, name: js.create_or_update_stream(name=f"{name}-new"),
        lambda js, name: js.update_consumer(name, name="c", max_ack_pending=7),
    ],
    ids=["stream", "either", "consumer"],
)
def test_requests_of_one_call_share_its_timeout(
    server: LocalServer,
    js: jsync.JetStream,
    unique: str,
    change: Callable[[jsync.JetStream, str], object],
) -> None:
    js.create_stream(name=unique).create_consumer(durable_name="c")
    with (
        FaultProxy("127.0.0.1", server.port) as proxy,
        jsync.connect(proxy.url) as nc,
    ):
        slow = nc.jetstream(timeout=1)
        proxy.delay(0.6, to="client")
        with pytest.raises(errors.TimeoutError):
            change(slow, unique)
        proxy.delay(0, to="client")


def test_an_existing_streams_error_names_each_differing_field(
    js: jsync.JetStream, unique: str
) -> None:
    js.create_stream(
        name=unique, subjects=unique, max_age=timedelta(minutes=1), metadata={"a": "b"}
    )
    # The server has added limits, a duplicate window and metadata.
    js.create_stream(name=unique, subjects=[unique], max_age=60, metadata={"a": "b"})
    with pytest.raises(errors.StreamNameInUseError) as told:
        js.create_stream(name=unique, max_msgs=7, metadata={"a": "b"})
    assert told.value.differences == {"max_msgs": (7, -1), "max_age": (None, 60.0)}
    words = str(told.value)
    assert f"with a different configuration: stream {unique!r}: " in words
    assert "max_msgs is -1 instead of 7" in words
    assert "max_age is 60.0 instead of its default" in words
    call = f"JetStream.update_stream(name={unique!r}, max_msgs=7, max_age=None)"
    assert f"call {call} to change it" in words
    assert (told.value.err_code, told.value.code) == (10058, 400)
    # The call in the message makes the change.
    js.update_stream(name=unique, max_msgs=7, max_age=None)
    js.create_stream(name=unique, max_msgs=7, metadata={"a": "b"})
    js.delete_stream(unique)


@pytest.mark.parametrize(
    ("existing", "wanted"),
    [
        ({"storage": "memory"}, {}),
        ({"retention": "workqueue"}, {}),
        ({}, {"retention": "workqueue"}),
        ({"deny_delete": True}, {}),
        ({"deny_purge": True}, {}),
    ],
    ids=str,
)
def test_the_error_says_fixed_fields_need_another_stream(
    js: jsync.JetStream,
    unique: str,
    existing: dict[str, Any],
    wanted: dict[str, Any],
) -> None:
    js.create_stream(name=unique, max_msgs=5, **existing)
    (field,) = existing or wanted
    with pytest.raises(errors.StreamNameInUseError) as told:
        js.create_stream(name=unique, **wanted)
    remedy = (
        f"{field} cannot be changed: delete and recreate it, or choose another name"
    )
    assert remedy in str(told.value)
    assert "update_stream" not in str(told.value)
    # The server rejects the same configuration.
    with pytest.raises(errors.InvalidStreamConfigError):
        js.update_stream(name=unique, **{field: wanted.get(field)})
    js.delete_stream(unique)


@pytest.mark.parametrize("field", ["retention", "deny_delete", "allow_msg_ttl"])
def test_the_error_names_update_for_one_way_changes(
    js: jsync.JetStream, unique: str, field: str
) -> None:
    js.create_stream(name=unique)
    wanted: dict[str, Any] = {field: "interest" if field == "retention" else True}
    with pytest.raises(errors.StreamNameInUseError, match=r"call JetStream\.update"):
        js.create_stream(name=unique, **wanted)
    js.update_stream(name=unique, **wanted)
    js.create_stream(name=unique, **wanted)
    js.delete_stream(unique)


def test_metadata_of_the_server_is_in_no_difference(
    js: jsync.JetStream, unique: str
) -> None:
    js.create_stream(name=unique, metadata={"team": "x"})
    with pytest.raises(errors.StreamNameInUseError) as told:
        js.create_stream(name=unique, metadata={"team": "y"})
    assert told.value.differences == {"metadata": ({"team": "y"}, {"team": "x"})}
    assert "_nats." not in str(told.value)
    js.delete_stream(unique)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"max_age": 30},
        {"max_age": 3600, "duplicate_window": 60},
        {"discard": "new", "max_msgs": 5, "max_bytes": 1 << 20},
        {"retention": "workqueue", "allow_direct": True, "compression": "s2"},
        {"retention": "interest", "storage": "memory", "deny_delete": True},
        {"subject_delete_marker_ttl": 5},
        {"allow_msg_schedules": True, "allow_atomic": True, "allow_batched": True},
        {"allow_msg_counter": True},
        {"republish": {"dest": "copy.>"}, "placement": {}},
        {"subject_transform": {"dest": "%s.>"}},
        {"sources": [{"name": "ELSEWHERE"}], "consumer_limits": {"max_ack_pending": 5}},
        {"first_seq": 100, "description": "words", "num_replicas": 1},
    ],
    ids=lambda fields: "-".join(fields) or "none",
)
def test_the_error_names_only_the_differing_field(
    js: jsync.JetStream, unique: str, fields: dict[str, Any]
) -> None:
    """Servers normalise configurations. Normalised fields do not count as differences."""
    if "subject_transform" in fields:
        fields = {"subject_transform": {"dest": f"{unique}.>"}}
    config = {"name": unique, "subjects": f"{unique}.>", **fields}
    js.create_stream(**config)
    with pytest.raises(errors.StreamNameInUseError) as told:
        js.create_stream(**config, max_consumers=3)
    js.delete_stream(unique)
    assert told.value.differences == {"max_consumers": (3, -1)}


# Bound without asking -----------------------------------------------------------------


def test_a_stream_is_bound_without_a_request(
    nc: jsync.Connection, js: jsync.JetStream, stream: jsync.Stream
) -> None:
    fill(js, stream, "a")
    sent = nc.stats().out_messages
    bound = js.bind_stream(stream.name)
    assert bound.name == stream.name
    for ask in ("cached_info", "config"):
        with pytest.raises(errors.NoCachedInfoError, match="bound without asking"):
            getattr(bound, ask)
    assert nc.stats().out_messages == sent
    assert bound.get_message(1).data == b"a"
    assert nc.stats().out_messages == sent + 1
    assert bound.create_consumer().next().data == b"a"
    assert bound.info().config == stream.config == bound.config


def test_a_stream_that_was_bound_need_not_exist(js: jsync.JetStream) -> None:
    with pytest.raises(errors.StreamNotFoundError):
        js.bind_stream("NONE").info()
    with pytest.raises(errors.ConfigError, match="stream"):
        js.bind_stream("a.b")


def test_getting_a_message_requests_no_stream_info(
    nc: jsync.Connection, js: jsync.JetStream, stream: jsync.Stream
) -> None:
    fill(js, stream, "a", "b", "a")
    sent = nc.stats().out_messages
    subject = f"{stream.name}.a"
    assert js.get_message(stream.name, 2).data == b"b"
    assert js.get_message(stream.name, last_by_subject=subject).sequence == 3
    assert js.get_message(stream.name, 2, next_by_subject=subject).sequence == 3
    assert nc.stats().out_messages == sent + 3
    # Without `allow_direct` no server answers a direct get, so jsync asks the leader.
    assert js.get_message(stream.name, 2, direct=True).data == b"b"
    stream.update(allow_direct=True)
    assert js.get_message(stream.name, 2, direct=True).data == b"b"
    with pytest.raises(errors.MessageNotFoundError):
        js.get_message(stream.name, 9)
    with pytest.raises(errors.StreamNotFoundError):
        js.get_message("NONE", 1)
    with pytest.raises(errors.ConfigError, match="which message"):
        js.get_message(stream.name)


def test_every_timeout_may_be_a_timedelta(
    nc: jsync.Connection, stream: jsync.Stream
) -> None:
    soon = timedelta(seconds=SOON)
    js = nc.jetstream(timeout=soon)
    subject = f"{stream.name}.a"
    js.publish(subject, b"1", timeout=soon)
    assert js.stream(stream.name, timeout=soon).info(timeout=soon).state.messages == 1
    assert js.get_message(stream.name, 1, timeout=soon).data == b"1"
    worker = stream.create_consumer(durable_name="d", ack_wait=soon, timeout=soon)
    assert worker.config.ack_wait == SOON
    msg = worker.next(soon, idle_heartbeat=timedelta(seconds=1))
    msg.nak(timedelta(0))
    [again] = worker.fetch(1, timeout=soon)
    again.ack_sync(soon)
    assert worker.pause(timedelta(hours=1), timeout=soon).paused
    worker.resume(timeout=soon)
    with worker.messages(expires=timedelta(seconds=30), idle_timeout=soon) as messages:
        js.publish(subject, b"2")
        next(iter(messages)).ack()
    assert nc.request("$JS.API.INFO", timeout=soon).data
    with js.publisher(
        ack_timeout=soon, stall_timeout=soon, retry_wait=soon
    ) as publisher:
        assert publisher.publish(subject, b"3").result(soon).seq == 3
        publisher.flush(soon)
    assert stream.purge(timeout=soon) == 3


def test_every_connection_duration_may_be_a_timedelta(server: LocalServer) -> None:
    soon = timedelta(seconds=SOON)
    with jsync.connect(
        server.url,
        connect_timeout=soon,
        reconnect_wait=soon,
        reconnect_jitter=soon,
        reconnect_jitter_tls=soon,
        ping_interval=soon,
        write_timeout=soon,
        drain_timeout=soon,
    ) as nc:
        nc.flush(soon)
        assert nc.rtt(soon) < SOON
        nc.drain(soon)


@pytest.mark.parametrize("face", ["subscription", "messages", "watch", "live"])
def test_a_timeout_names_its_seconds(
    nc: jsync.Connection, stream: jsync.Stream, unique: str, face: str
) -> None:
    brief, js = timedelta(milliseconds=20), nc.jetstream()
    with contextlib.ExitStack() as stack:
        wait: Callable[[], object]
        if face == "subscription":
            wait = partial(nc.subscribe(unique).next, brief)
        elif face == "messages":
            messages = stack.enter_context(stream.create_consumer().messages())
            wait = partial(messages.next, brief)
        else:
            bucket = js.create_key_value(bucket=f"{unique}_kv")
            stack.callback(js.delete_key_value, bucket.bucket)
            if face == "watch":
                wait = partial(stack.enter_context(bucket.watch()).next, brief)
            else:
                live = stack.enter_context(bucket.live())
                wait = partial(live.wait_for, 9, brief)
        with pytest.raises(errors.TimeoutError, match=r"within 0\.02 s"):
            wait()


def test_keywords_of_an_update_change_nothing_else(
    js: jsync.JetStream, stream: jsync.Stream
) -> None:
    before = stream.update(max_msgs=9, description="words").config
    updated = js.update_stream(name=stream.name, max_age=60)
    assert updated.config.max_age == 60
    assert updated.config.subjects == [f"{stream.name}.>"]
    assert (updated.config.max_msgs, updated.config.description) == (9, "words")
    assert before.differences(updated.config).keys() == {"max_age", "duplicate_window"}


def test_none_unsets_a_field_in_an_update(stream: jsync.Stream) -> None:
    stream.update(description="words", max_msgs=9)
    info = stream.update(description=None, max_msgs=None)
    assert (info.config.description, info.config.max_msgs) == (None, -1)


def test_a_configuration_in_an_update_replaces_all(
    js: jsync.JetStream, stream: jsync.Stream
) -> None:
    stream.update(description="words", max_msgs=9)
    name = stream.name
    config = StreamConfig(name=name, subjects=[f"{name}.a"], storage="memory")
    assert js.update_stream(config).config.matches(config)
    assert stream.info().config.description is None
    with_age = config.replace(max_age=5)
    assert stream.update(with_age) is stream.cached_info
    assert stream.config.max_age == 5


def test_an_update_of_a_missing_consumer_raises(
    js: jsync.JetStream, unique: str
) -> None:
    with pytest.raises(errors.StreamNotFoundError):
        js.update_stream(StreamConfig(name=unique))
    with pytest.raises(errors.StreamNotFoundError):
        js.update_stream(name=unique, max_age=60)


def test_the_server_refuses_to_change_a_fixed_field(stream: jsync.Stream) -> None:
    with pytest.raises(errors.APIError, match="storage"):
        stream.update(storage="file")


def test_an_invalid_update_is_rejected_before_sending(
    nc: jsync.Connection, js: jsync.JetStream, stream: jsync.Stream
) -> None:
    consumer = js.consumer(stream.name, "worker")
    sent = nc.stats().out_messages
    with pytest.raises(errors.ConfigError, match="did you mean max_age"):
        stream.update(max_agee=60)
    with pytest.raises(errors.ConfigError, match="retention"):
        js.update_stream(name=stream.name, retention="for ever")
    with pytest.raises(errors.ConfigError, match="name: missing"):
        js.update_stream(max_age=60)
    with pytest.raises(errors.ConfigError, match="and keywords too"):
        stream.update(stream.config, max_age=60)
    with pytest.raises(errors.ConfigError, match="did you mean ack_wait"):
        consumer.update(ack_wai=60)
    with pytest.raises(errors.ConfigError, match="ack_wait"):
        stream.update_consumer(name="worker", ack_wait=-1)
    assert nc.stats().out_messages == sent


def test_a_stream_cannot_be_renamed(stream: jsync.Stream) -> None:
    with pytest.raises(errors.ConfigError, match="cannot be renamed"):
        stream.update(name="OTHER")
    with pytest.raises(errors.ConfigError, match="cannot be renamed"):
        stream.update(StreamConfig(name="OTHER"))


def test_create_or_update_creates_and_then_updates(
    js: jsync.JetStream, unique: str
) -> None:
    first = js.create_or_update_stream(name=unique, subjects=[unique], max_msgs=5)
    js.publish(unique, b"1")
    again = js.create_or_update_stream(name=unique, subjects=[unique])
    assert (first.config.max_msgs, again.config.max_msgs) == (5, -1)
    assert again.info().state.messages == 1
    again.delete()


def test_objects_with_as_dict_are_accepted_as_configuration(
    js: jsync.JetStream, unique: str
) -> None:
    class Theirs:
        """A configuration in the form of the wire, like those of nats-py."""

        def __init__(self, **fields: Any) -> None:
            self.fields = fields

        def as_dict(self) -> dict[str, Any]:
            return {"name": unique, **self.fields}

    js.create_stream(Theirs(max_age=60_000_000_000))
    assert js.update_stream(Theirs(max_age=30_000_000_000)).config.max_age == 30
    stream = js.create_or_update_stream(Theirs())
    assert stream.config.max_age == 0
    assert stream.update(Theirs(max_msgs=7)).config.max_msgs == 7
    consumer = {"durable_name": "worker", "ack_wait": 5_000_000_000}
    theirs = SimpleNamespace(as_dict=lambda: consumer)
    assert stream.create_consumer(theirs).config.ack_wait == 5
    assert js.create_or_update_consumer(unique, theirs).config.ack_wait == 5
    assert stream.update_consumer(theirs).config.ack_wait == 5
    stream.delete()


# Names --------------------------------------------------------------------------------

BAD_NAMES = ["", "a.b", "a b", "*", ">", "a/b", "a\\b", "a\r\nb", "x" * 256]

CALLS: dict[str, Callable[[jsync.JetStream, str], object]] = {
    "create_stream": lambda js, name: js.create_stream(name=name),
    "update_stream": lambda js, name: js.update_stream(name=name, max_age=1),
    "update_stream config": lambda js, name: js.update_stream(StreamConfig(name=name)),
    "create_or_update_stream": lambda js, name: js.create_or_update_stream(name=name),
    "stream": lambda js, name: js.stream(name),
    "delete_stream": lambda js, name: js.delete_stream(name),
    "create_consumer": lambda js, name: js.create_consumer(name),
    "create_consumer's own": lambda js, name: js.create_consumer("S", name=name),
    "update_consumer": lambda js, name: js.update_consumer(name, name="c"),
    "update_consumer's own": lambda js, name: js.update_consumer("S", name=name),
    "create_or_update_consumer": lambda js, name: js.create_or_update_consumer(
        name, name="c"
    ),
    "consumer": lambda js, name: js.consumer(name, "c"),
    "consumer's own": lambda js, name: js.consumer("S", name),
    "delete_consumer": lambda js, name: js.delete_consumer(name, "c"),
    "delete_consumer's own": lambda js, name: js.delete_consumer("S", name),
    "consumers": lambda js, name: js.consumers(name),
    "consumer_names": lambda js, name: js.consumer_names(name),
}


@pytest.mark.parametrize("name", BAD_NAMES)
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_an_invalid_name_is_rejected_before_sending(
    nc: jsync.Connection,
    js: jsync.JetStream,
    call: Callable[[jsync.JetStream, str], object],
    name: str,
) -> None:
    sent = nc.stats().out_messages
    with pytest.raises(errors.ConfigError):
        call(js, name)
    assert nc.stats().out_messages == sent


def test_text_other_than_unicode_is_refused_before_sending(
    nc: jsync.Connection, js: jsync.JetStream, unique: str
) -> None:
    sent = nc.stats().out_messages
    with pytest.raises(errors.ConfigError, match="not valid Unicode"):
        js.create_stream(name=unique, description="\ud800")
    assert nc.stats().out_messages == sent


# Finding ------------------------------------------------------------------------------


def create_many(server: LocalServer, kind: str, count: int) -> None:
    """Create streams or consumers on one connection without waiting for each."""
    with RawClient(server.url) as client:
        client.settimeout(SOON * 3)
        assert client.connect() == "PONG"
        client.send(b"SUB _INBOX.made 1\r\n")
        for number in range(count):
            name = f"{number:05}"
            if kind == "streams":
                subject = f"$JS.API.STREAM.CREATE.{name}"
                wanted: dict[str, Any] = {"name": name, "storage": "memory"}
            else:
                subject = f"$JS.API.CONSUMER.CREATE.MANY.{name}"
                config = {"name": name, "durable_name": name, "mem_storage": True}
                wanted = {"stream_name": "MANY", "config": config}
            data = json.dumps(wanted).encode()
            client.send(
                b"PUB %s _INBOX.made %d\r\n%s\r\n" % (subject.encode(), len(data), data)
            )
        made = 0
        while made < count:
            if client.read_line().startswith("MSG "):
                made += 1
                reply = client.read_line()
                assert "error" not in reply, reply


def test_lists_of_streams_have_all_their_pages(
    own_server: StartServer,
) -> None:
    server = own_server()
    create_many(server, "streams", 1100)
    names = [f"{number:05}" for number in range(1100)]
    with jsync.connect(server.url) as nc:
        js = nc.jetstream()
        sent = nc.stats().out_messages
        streams = js.streams()
        assert nc.stats().out_messages == sent  # no request yet
        assert next(streams).name == "00000"
        assert nc.stats().out_messages == sent + 1  # only the first page
        assert [stream.name for stream in js.streams()] == names
        assert nc.stats().out_messages == sent + 1 + 5  # of 256
        assert list(js.stream_names()) == names
        assert nc.stats().out_messages == sent + 1 + 5 + 2  # of 1024


def test_lists_of_consumers_have_all_their_pages(
    own_server: StartServer,
) -> None:
    server = own_server()
    with jsync.connect(server.url) as nc:
        js = nc.jetstream(timeout=SOON)
        stream = js.create_stream(name="MANY", storage="memory", max_consumers=2000)
        create_many(server, "consumers", 1100)
        names = [f"{number:05}" for number in range(1100)]
        sent = nc.stats().out_messages
        assert [consumer.name for consumer in stream.consumers()] == names
        assert nc.stats().out_messages == sent + 5
        assert list(stream.consumer_names()) == names
        assert nc.stats().out_messages == sent + 5 + 2
        assert list(js.consumer_names("MANY")) == names
        first = next(js.consumers("MANY"))
        assert first.cached_info.stream_name == "MANY"
        assert first.config.durable_name == "00000"


def test_a_loop_deleting_what_it_lists_deletes_all(
    own_server: StartServer,
) -> None:
    server = own_server()
    with jsync.connect(server.url) as nc:
        js = nc.jetstream(timeout=SOON)
        create_many(server, "streams", 600)
        for found in js.streams():
            found.delete()
        assert js.account_info().streams == 0
        create_many(server, "streams", 1100)
        for name in js.stream_names():
            js.delete_stream(name)
        assert js.account_info().streams == 0
        stream = js.create_stream(name="MANY", storage="memory", max_consumers=2000)
        create_many(server, "consumers", 600)
        for consumer in stream.consumers():
            stream.delete_consumer(consumer.name)
        assert list(stream.consumer_names()) == []
        create_many(server, "consumers", 1100)
        for name in stream.consumer_names():
            stream.delete_consumer(name)
        assert list(stream.consumers()) == []


def test_buckets_and_stores_are_deleted_while_being_listed(
    own_server: StartServer,
) -> None:
    with jsync.connect(own_server().url) as nc:
        js = nc.jetstream(timeout=SOON)
        for number in range(260):
            js.create_key_value(bucket=f"B{number:03}", storage="memory")
            js.create_object_store(bucket=f"O{number:03}", storage="memory")
        for status in js.key_value_statuses():
            js.delete_key_value(status.bucket)
        assert list(js.key_value_names()) == []
        for store in js.object_store_statuses():
            js.delete_object_store(store.bucket)
        assert js.account_info().streams == 0


def test_a_list_of_nothing_is_empty(quiet_server: LocalServer) -> None:
    with jsync.connect(quiet_server.url) as nc:
        js = nc.jetstream()
        assert list(js.streams()) == []
        assert list(js.stream_names()) == []
        stream = js.create_stream(name="EMPTY")
        assert list(stream.consumers()) == []
        assert list(stream.consumer_names()) == []
        stream.delete()
        with pytest.raises(errors.StreamNotFoundError):
            next(js.consumers("EMPTY"))


def test_streams_are_found_by_their_subjects(
    js: jsync.JetStream, stream: jsync.Stream
) -> None:
    other = js.create_stream(name=f"{stream.name}2", subjects=[f"{stream.name}2"])
    subject = f"{stream.name}.a.b"
    assert [found.name for found in js.streams(subject=subject)] == [stream.name]
    assert list(js.stream_names(subject=subject)) == [stream.name]
    assert js.stream_name_by_subject(subject) == stream.name
    assert js.stream_name_by_subject(f"{stream.name}.*.>") == stream.name
    with pytest.raises(errors.StreamNotFoundError, match="no stream takes 'nowhere'"):
        js.stream_name_by_subject("nowhere")
    with pytest.raises(errors.AmbiguousSubjectError) as raised:
        js.stream_name_by_subject(">")
    assert {stream.name, other.name} <= set(raised.value.streams)
    other.delete()


@pytest.mark.parametrize("subject", ["", "a b", "a..b", "a.>.b"])
def test_an_invalid_subject_is_rejected_before_sending(
    nc: jsync.Connection, js: jsync.JetStream, stream: jsync.Stream, subject: str
) -> None:
    sent = nc.stats().out_messages
    for call in (
        lambda: js.streams(subject=subject),
        lambda: js.stream_names(subject=subject),
        lambda: js.stream_name_by_subject(subject),
        lambda: stream.info(subjects_filter=subject),
        lambda: stream.purge(subject=subject),
    ):
        with pytest.raises(errors.ConfigError):
            call()
    assert nc.stats().out_messages == sent


# Asking -------------------------------------------------------------------------------


def test_info_lists_the_deleted_messages_on_request(
    js: jsync.JetStream, stream: jsync.Stream
) -> None:
    fill(js, stream, *"abcde")
    stream.delete_message(2)
    stream.delete_message(4)
    assert stream.info().state.deleted is None
    state = stream.info(deleted_details=True).state
    assert (state.deleted, state.num_deleted) == ([2, 4], 2)
    assert stream.cached_info.state == state


def test_info_counts_subjects_when_asked(
    js: jsync.JetStream, stream: jsync.Stream
) -> None:
    fill(js, stream, "a", "a", "b.c")
    name = stream.name
    assert stream.info().state.subjects is None
    state = stream.info(subjects_filter=">").state
    assert state.subjects == {f"{name}.a": 2, f"{name}.b.c": 1}
    both = stream.info(subjects_filter=f"{name}.*", deleted_details=True).state
    assert both.subjects == {f"{name}.a": 2}
    assert stream.info(subjects_filter=f"{name}.none").state.subjects == {}


def test_info_puts_pages_of_100_000_subjects_together(
    own_server: StartServer,
) -> None:
    with jsync.connect(own_server().url) as nc:
        js = nc.jetstream(timeout=SOON)
        stream = js.create_stream(name="WIDE", subjects=["w.*"], storage="memory")
        count = 100_005
        with js.publisher() as publisher:
            for number in range(count):
                publisher.publish(f"w.{number}")
        sent = nc.stats().out_messages
        info = stream.info(subjects_filter="w.*")
        assert nc.stats().out_messages == sent + 2
        assert info.state.subjects is not None
        assert info.state.subjects.keys() == {f"w.{number}" for number in range(count)}
        assert info.total == count


def test_the_account_shows_its_limits_and_usage(quiet_server: LocalServer) -> None:
    with jsync.connect(quiet_server.url) as nc:
        js = nc.jetstream()
        before = js.account_info()
        stream = js.create_stream(name="COUNTED")
        stream.create_consumer(durable_name="worker")
        after = js.account_info()
        assert isinstance(after, AccountInfo)
        assert (before.consumers, after.consumers) == (0, 1)
        assert (before.streams, after.streams) == (0, 1)
        assert after.api.total > before.api.total
        stream.delete()


# Purging ------------------------------------------------------------------------------


def test_a_purge_returns_the_number_of_purged_messages(
    js: jsync.JetStream, stream: jsync.Stream
) -> None:
    fill(js, stream, *"aabbc")
    assert stream.purge() == 5
    assert stream.purge() == 0
    assert stream.info().state.messages == 0


def test_a_purge_removes_only_matching_messages(
    js: jsync.JetStream, stream: jsync.Stream
) -> None:
    name = stream.name

    def left() -> list[int]:
        return [message.sequence for message in stream.get_messages()]

    stream.update(allow_direct=True)
    fill(js, stream, *"ababababab")
    assert stream.purge(sequence=1) == 0
    assert stream.purge(sequence=3) == 2
    assert stream.purge(subject=f"{name}.a", sequence=6) == 2
    assert left() == [4, 6, 7, 8, 9, 10]
    assert stream.purge(subject=f"{name}.b", keep=1) == 3
    assert left() == [7, 9, 10]
    assert stream.purge(keep=2) == 1
    assert stream.purge(subject="other") == 0
    assert stream.purge(subject=f"{name}.*") == 2


def test_an_invalid_purge_is_rejected_before_sending(
    nc: jsync.Connection, stream: jsync.Stream
) -> None:
    sent = nc.stats().out_messages
    with pytest.raises(errors.ConfigError, match="exclude each other"):
        stream.purge(sequence=2, keep=2)
    # The server treats 0 as no limit, and would delete everything.
    with pytest.raises(errors.ConfigError, match="sequence has to be at least 1"):
        stream.purge(sequence=0)
    with pytest.raises(errors.ConfigError, match="keep has to be at least 0"):
        stream.purge(keep=-1)
    with pytest.raises(errors.ConfigError, match="keep has to be a whole number"):
        stream.purge(keep=True)
    assert nc.stats().out_messages == sent


def test_a_stream_that_denies_purges_raises(js: jsync.JetStream, unique: str) -> None:
    stream = js.create_stream(name=unique, deny_purge=True)
    with pytest.raises(errors.StreamPurgeError):
        stream.purge()
    stream.update(sealed=True)
    with pytest.raises(errors.StreamSealedError):
        stream.purge()
    stream.delete()


# Other domains and accounts -----------------------------------------------------------


def test_every_operation_goes_to_the_chosen_domain(
    own_server: StartServer,
) -> None:
    port = free_port()
    own_server(
        config=f"jetstream {{ domain: hub }}\nleafnodes {{ listen: 127.0.0.1:{port} }}"
    )
    leaf = own_server(
        config=f"""
            jetstream {{ domain: leaf }}
            leafnodes {{ remotes: [{{ url: "nats://127.0.0.1:{port}" }}] }}
        """
    )
    with jsync.connect(leaf.url) as nc:
        far = nc.jetstream(domain="hub")
        # Subscriptions of the hub reach the leaf node some time after the connection.
        wait_for(lambda: is_there(far))
        use_everything(far)
        assert far.account_info().domain == "hub"
        near = nc.jetstream().account_info()
        assert (near.domain, near.api.total) == ("leaf", 0)


def is_there(js: jsync.JetStream) -> bool:
    try:
        js.account_info()
    except errors.JetStreamNotEnabledError:
        return False
    return True


def test_every_operation_goes_to_the_chosen_prefix(
    own_server: StartServer,
) -> None:
    config = """
        jetstream: enabled
        accounts {
          HOME: {
            jetstream: enabled, users: [{user: home, password: p}]
            exports: [{service: "$JS.API.>", response_type: stream}]
          }
          AWAY: {
            users: [{user: away, password: p}]
            imports: [{service: {account: HOME, subject: "$JS.API.>"}, to: "home.js.>"}]
          }
        }
    """
    server = own_server(config=config)
    with (
        jsync.connect(server.url, user="home", password="p") as home,
        jsync.connect(server.url, user="away", password="p") as nc,
    ):
        use_everything(nc.jetstream(prefix="home.js"), publisher=home.jetstream())


def use_everything(
    js: jsync.JetStream, publisher: jsync.JetStream | None = None
) -> None:
    publisher = publisher or js
    stream = js.create_stream(name="S", subjects=["s.*"], allow_direct=True)
    js.create_or_update_stream(name="S", subjects=["s.*"], allow_direct=True)
    for number in range(4):
        publisher.publish(f"s.{number}", b"")
    stream.update(max_age=60)
    assert stream.info(deleted_details=True).state.messages == 4
    assert stream.get_message(1).sequence == 1
    assert stream.get_message(1, direct=False).sequence == 1
    assert stream.get_message(last_by_subject="s.2").sequence == 3
    assert len(list(stream.get_messages(batch=3))) == 4
    assert len(list(stream.get_last_messages(["s.1", "s.2"]))) == 2
    stream.delete_message(1)
    stream.secure_delete_message(2)
    assert stream.purge(keep=1) == 1
    assert [found.name for found in js.streams()] == list(js.stream_names()) == ["S"]
    assert js.stream_name_by_subject("s.*") == "S"
    consumer = stream.create_consumer(
        durable_name="c", priority_groups=["g"], priority_policy="pinned_client"
    )
    assert js.stream("S").consumer("c").name == js.consumer("S", "c").name
    assert [found.name for found in stream.consumers()] == ["c"]
    assert list(stream.consumer_names()) == ["c"]
    assert consumer.info().num_pending == 1
    assert consumer.update(description="words").config.description == "words"
    assert consumer.pause(60).paused
    assert not consumer.resume().paused
    consumer.unpin("g")
    assert consumer.reset().reset_seq == 4
    consumer.delete()
    assert js.account_info().streams == 1
    stream.delete()


def test_dates_are_aware(stream: jsync.Stream) -> None:
    created = stream.info().created
    assert created is not None
    assert created.tzinfo is UTC
    assert created <= datetime.now(UTC)


def test_the_server_rejects_adjustments_in_a_pedantic_context(
    nc: jsync.Connection, unique: str
) -> None:
    strict = nc.jetstream(pedantic=True)
    with pytest.raises(errors.PedanticError, match="max_msgs must be set to -1"):
        strict.create_stream(name=unique, max_msgs=-5)
    with pytest.raises(errors.PedanticError, match="duplicate window"):
        strict.create_stream(name=unique, max_age=60)
    fields = {"name": unique, "max_age": 60, "duplicate_window": 60}
    assert strict.create_stream(fields).config.max_age == 60
    limits = {"inactive_threshold": 10}
    strict.update_stream(name=unique, consumer_limits=limits)
    consumer = {"durable_name": "strict", "ack_policy": "explicit"}
    with pytest.raises(errors.PedanticError):
        strict.create_consumer(unique, consumer)
    lenient = nc.jetstream().create_consumer(unique, consumer)
    assert lenient.config.inactive_threshold == 10
