"""Tests of the management of streams, messages and consumers on each release line."""

from __future__ import annotations

import json
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

import jsync
from jsync import errors
from jsync.server import LocalServer

from ..support.threads import LONG
from .lines import LINES, binary_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from jsync.models.server_version import ServerVersion


@contextmanager
def needing(since: ServerVersion, line: ServerVersion, feature: str) -> Iterator[None]:
    """Expect the block to work from `since` on, and to fail on older servers because they lack it."""
    if line >= since:
        yield
        return
    with pytest.raises(errors.UnsupportedFeatureError, match=feature) as caught:
        yield
    assert caught.value.since == f"{since[0]}.{since[1]}"


@pytest.fixture
def stream(js: jsync.JetStream, unique: str) -> jsync.Stream:
    """A stream of ten messages on three subjects."""
    stream = js.create_stream(
        name=unique, subjects=[f"{unique}.>"], allow_direct=True, storage="memory"
    )
    with js.publisher() as publisher:
        for number in range(10):
            publisher.publish(
                f"{unique}.{number % 3}", b"%d" % number, headers={"N": "x"}
            )
    return stream


def test_creating_a_bare_stream_again_keeps_its_configuration(
    nc: jsync.Connection, js: jsync.JetStream, unique: str
) -> None:
    """Create a stream with the fewest fields that a server accepts, then again with jsync."""
    bare = json.dumps({"name": unique, "subjects": [f"{unique}.>"]}).encode()
    nc.request(f"$JS.API.STREAM.CREATE.{unique}", bare, timeout=LONG)
    created = js.stream(unique)
    js.publish(f"{unique}.a", b"1")
    again = js.create_stream(name=unique, subjects=[f"{unique}.>"])
    assert again.config == created.config
    assert again.cached_info.state.messages == 1
    again = js.create_or_update_stream(name=unique, subjects=[f"{unique}.>"])
    assert again.config == created.config
    again.delete()


def test_streams_come_and_go(js: jsync.JetStream, unique: str) -> None:
    names = [f"{unique}-{number}" for number in range(3)]
    for name in names:
        created = js.create_stream(name=name, subjects=[f"{name}.>"])
        assert js.create_or_update_stream(created.config).config == created.config
        assert js.stream(name).config == created.config
        assert js.stream_name_by_subject(f"{name}.a") == name
    assert set(names) <= set(js.stream_names())
    assert [s.name for s in js.streams(subject=f"{names[1]}.>")] == [names[1]]
    updated = js.update_stream(js.stream(names[0]).config.replace(max_msgs=7))
    assert updated.config.max_msgs == 7
    assert updated.update(max_msgs=8).config.max_msgs == 8
    for name in names:
        js.delete_stream(name)
        with pytest.raises(errors.StreamNotFoundError):
            js.stream(name)
    with pytest.raises(errors.StreamNotFoundError):
        js.update_stream(updated.config)


def test_updating_a_field_unknown_to_the_server_fails(
    js: jsync.JetStream, line: ServerVersion, unique: str
) -> None:
    stream = js.create_stream(name=unique)
    with needing((2, 14), line, "allow_batched"):
        assert stream.update(allow_batched=True).config.allow_batched
    with needing((2, 12), line, "allow_atomic"):
        assert stream.update(allow_atomic=True).config.allow_atomic
    with needing((2, 11), line, "allow_msg_ttl"):
        assert stream.update(allow_msg_ttl=True).config.allow_msg_ttl
    consumer = stream.create_consumer(durable_name="d")
    with needing((2, 11), line, "pause_until"):
        js.create_consumer(
            unique, name="p", pause_until=datetime(2120, 1, 1, tzinfo=UTC)
        )
    with needing((2, 11), line, "priority_groups"):
        js.create_or_update_consumer(
            unique, name="g", priority_groups=["g"], priority_policy="overflow"
        )
    assert consumer.update(max_ack_pending=7).config.max_ack_pending == 7


def test_an_account_lists_its_limits_and_usage(
    js: jsync.JetStream, line: ServerVersion
) -> None:
    account = js.account_info()
    assert account.limits.max_streams == -1
    levels = {(2, 10): 0, (2, 11): 1, (2, 12): 3, (2, 14): 4, (2, 15): 5}
    assert account.api.level == levels[line]


def test_stream_info_follows_deletes_and_purges(stream: jsync.Stream) -> None:
    name = stream.name
    stream.delete_message(2)
    stream.secure_delete_message(3)
    info = stream.info(deleted_details=True, subjects_filter=">")
    assert info.state.deleted == [2, 3]
    assert info.state.subjects == {f"{name}.0": 4, f"{name}.1": 2, f"{name}.2": 2}
    assert stream.purge(subject=f"{name}.0", keep=1) == 3
    assert stream.purge(sequence=9) == 3
    assert stream.purge() == 2
    assert stream.info().state.messages == 0


@pytest.mark.parametrize("direct", [True, False])
def test_one_message_is_got(
    stream: jsync.Stream, line: ServerVersion, direct: bool
) -> None:
    name = stream.name
    fifth = stream.get_message(5, direct=direct)
    assert (fifth.subject, fifth.data, fifth.sequence) == (f"{name}.1", b"4", 5)
    assert fifth.headers == {"N": "x"}
    assert stream.get_message(last_by_subject=f"{name}.0", direct=direct).data == b"9"
    following = stream.get_message(5, next_by_subject=f"{name}.0", direct=direct)
    assert following.data == b"6"
    with needing((2, 11), line, "time"):
        found = stream.get_message(
            next_by_subject=f"{name}.>", start_time=fifth.timestamp, direct=direct
        )
        assert found.timestamp == fifth.timestamp
    with pytest.raises(errors.MessageNotFoundError):
        stream.get_message(77, direct=direct)


def test_many_messages_are_got(stream: jsync.Stream, line: ServerVersion) -> None:
    with needing((2, 11), line, "batched direct get"):
        found = list(stream.get_messages(f"{stream.name}.1", batch=2))
        assert [message.data for message in found] == [b"1", b"4", b"7"]
    with needing((2, 11), line, "batched direct get"):
        found = list(stream.get_last_messages(f"{stream.name}.>"))
        assert [message.data for message in found] == [b"7", b"8", b"9"]


def test_consumers_come_and_go(js: jsync.JetStream, stream: jsync.Stream) -> None:
    for name in ("one", "two"):
        created = stream.create_consumer(durable_name=name)
        assert stream.create_or_update_consumer(created.config).name == name
        assert stream.consumer(name).config == created.config
        assert js.consumer(stream.name, name).info().config == created.config
    assert set(stream.consumer_names()) == {"one", "two"}
    assert {consumer.name for consumer in js.consumers(stream.name)} == {"one", "two"}
    with pytest.raises(errors.ConsumerNotFoundError):
        stream.update_consumer(durable_name="three")
    with pytest.raises(errors.ConsumerExistsError):
        stream.create_consumer(durable_name="one", max_deliver=3)
    stream.delete_consumer("one")
    js.delete_consumer(stream.name, "two")
    assert list(stream.consumer_names()) == []


def test_a_consumer_is_paused_and_continues(
    stream: jsync.Stream, line: ServerVersion
) -> None:
    consumer = stream.create_consumer(name="d")
    with needing((2, 11), line, "pausing of consumers"):
        until = datetime.now(UTC) + timedelta(hours=1)
        assert consumer.pause(until).pause_until == until
        assert consumer.info().paused
    with needing((2, 11), line, "pausing of consumers"):
        assert not consumer.resume().paused
    assert consumer.next(LONG).data == b"0"
    consumer.delete()
    with needing((2, 11), line, "pausing of consumers"):
        with pytest.raises(errors.ConsumerNotFoundError):
            consumer.pause(60)


def test_a_consumer_is_reset(stream: jsync.Stream, line: ServerVersion) -> None:
    consumer = stream.create_consumer(durable_name="d")
    with consumer.fetch(5, timeout=LONG) as batch:
        for msg in batch:
            msg.ack_sync()
    with needing((2, 14), line, "resetting of consumers"):
        assert consumer.reset(3).reset_seq == 3
        assert consumer.next(LONG).data == b"2"
    gone = stream.create_consumer(name="gone")
    gone.delete()
    with needing((2, 14), line, "resetting of consumers"):
        with pytest.raises(errors.ConsumerNotFoundError):
            gone.reset()


def test_a_pinned_client_is_unpinned(
    js: jsync.JetStream, stream: jsync.Stream, line: ServerVersion
) -> None:
    consumer = js.consumer(stream.name, "p")
    if line >= (2, 11):
        stream.create_consumer(
            name="p", priority_groups=["g"], priority_policy="pinned_client"
        )
        assert consumer.next(LONG, group="g").data == b"0"
        assert pinned(consumer)
    with needing((2, 11), line, "unpinning of priority groups"):
        consumer.unpin("g")
        assert pinned(consumer) == ""
    if line >= (2, 11):
        with pytest.raises(errors.PriorityGroupError):
            consumer.unpin("other")


def pinned(consumer: jsync.Consumer) -> str:
    """Return the id of the client that the only priority group serves."""
    (group,) = consumer.info().priority_groups or []
    return group.pinned_client_id or ""


def test_memory_streams_are_backed_up_or_reported_omitted(
    js: jsync.JetStream, stream: jsync.Stream, line: ServerVersion, tmp_path: Path
) -> None:
    with needing((2, 15), line, "backups of streams in memory"):
        assert stream.backup(tmp_path / "one").state.messages == 10
    made = js.backup_streams(tmp_path / "all")
    names = {each.stream for each in made.streams}
    assert stream.name in (names if line >= (2, 15) else made.skipped)


def test_a_restore_renames_streams_where_the_server_can(
    js: jsync.JetStream, unique: str, line: ServerVersion, tmp_path: Path
) -> None:
    stream = js.create_stream(name=unique, subjects=[f"{unique}.>"])
    js.publish(f"{unique}.a", b"1")
    stream.backup(tmp_path)
    stream.delete()
    name = "stream.arc.s2" if line >= (2, 15) else "stream.tar.s2"
    assert (tmp_path / name).exists()
    if line >= (2, 15):
        assert js.restore_stream(tmp_path, name=f"{unique}B").name == f"{unique}B"
        return
    # In a cluster of several versions, jsync once gave the archive the newer name.
    (tmp_path / name).rename(tmp_path / "stream.arc.s2")
    with pytest.raises(errors.ConfigError, match=r"before 2\.15.*keeps its name"):
        js.restore_stream(tmp_path, name=f"{unique}B")
    assert js.restore_stream(tmp_path).info().state.messages == 1


def test_older_servers_refuse_newer_archives(
    js: jsync.JetStream, unique: str, line: ServerVersion, tmp_path: Path
) -> None:
    with (
        LocalServer(binary=binary_of(LINES[-1])) as newer,
        jsync.connect(newer.url) as nc,
    ):
        newest = nc.jetstream().create_stream(name=unique, subjects=[unique])
        nc.jetstream().publish(unique, b"1")
        newest.backup(tmp_path)
    with needing((2, 15), line, "backups made by nats-server 2.15"):
        assert js.restore_stream(tmp_path).info().state.messages == 1
    assert (unique in js.stream_names()) is (line >= (2, 15))
