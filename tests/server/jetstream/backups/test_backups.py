"""Tests of backups of streams: written, restored, interrupted and damaged."""

from __future__ import annotations

import contextlib
import json
import random
import resource
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

import jsync
from jsync import errors
from jsync.jetstream.backups.engine import CHUNK

from ....support.connection_faults import FakeServer
from ....support.fake_jetstream import FakeReply, answer_requests
from ....support.proxy import FaultProxy, Side, frame_changer, frame_filter
from ....support.servers import wait_for
from ....support.threads import SOON

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from jsync.server import LocalServer

    from ....conftest import StartServer


def payload(number: int) -> bytes:
    """Return bytes that no server can compress."""
    return random.Random(number).randbytes(16_384)


def gone(js: jsync.JetStream, name: str) -> bool:
    try:
        js.stream(name)
    except errors.StreamNotFoundError:
        return True
    return False


def filled(js: jsync.JetStream, name: str, messages: int = 200) -> jsync.Stream:
    stream = js.create_stream(name=name, subjects=[f"{name}.>"])
    with js.publisher() as publisher:
        for number in range(messages):
            publisher.publish(f"{name}.{number}", payload(number))
    return stream


def held(stream: jsync.Stream, messages: int = 200) -> bool:
    """Return whether the stream has every message that `filled` published."""
    with stream.ordered_consumer() as consumer:
        found = [bytes(msg.data) for msg in consumer.fetch(messages, timeout=60)]
    return found == [payload(number) for number in range(messages)]


def test_a_stream_and_its_consumers_return_from_files(
    js: jsync.JetStream, unique: str, tmp_path: Path
) -> None:
    stream = filled(js, unique)
    consumer = stream.create_consumer(durable_name="billing")
    for msg in consumer.fetch(50, timeout=60):
        msg.ack_sync()
    seen: list[tuple[int, int]] = []
    made = stream.backup(
        tmp_path / "b", on_progress=lambda done, total: seen.append((done, total))
    )
    assert (made.stream, made.state.messages) == (unique, 200)
    assert seen[-1] == (made.size, made.state.bytes)
    assert sorted(path.name for path in (tmp_path / "b").iterdir()) == [
        "backup.json",
        "stream.arc.s2",
    ]
    with pytest.raises(errors.APIError):
        js.restore_stream(tmp_path / "b")
    stream.delete()
    seen.clear()
    restored = js.restore_stream(
        tmp_path / "b", on_progress=lambda done, total: seen.append((done, total))
    )
    assert seen[-1] == (made.size, made.size)
    assert restored.name == unique
    assert held(restored)
    assert restored.consumer("billing").info().ack_floor.stream_seq == 50
    restored.delete()
    again = js.restore_stream(tmp_path / "b", config=lambda c: {**c, "max_age": 10**15})
    assert again.config.max_age == 10**6
    again.delete()


def test_consumers_stay_out_of_a_backup_on_request(
    js: jsync.JetStream, unique: str, tmp_path: Path
) -> None:
    stream = filled(js, unique, 1)
    stream.create_consumer(durable_name="billing")
    stream.backup(tmp_path, consumers=False, check=True)
    stream.delete()
    assert list(js.restore_stream(tmp_path).consumer_names()) == []
    js.delete_stream(unique)


def test_an_interrupted_backup_leaves_no_files(
    js: jsync.JetStream, unique: str, tmp_path: Path
) -> None:
    stream = filled(js, unique)

    def interrupt(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stream.backup(tmp_path, on_progress=interrupt)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(errors.ConfigError, match=r"no whole backup.*backup\.json"):
        js.restore_stream(tmp_path)
    stream.backup(tmp_path)
    with pytest.raises(errors.ConfigError, match="already holds a backup"):
        stream.backup(tmp_path)


@pytest.mark.parametrize("share", [0, 0.5, 0.9, 1])
def test_an_interrupted_restore_leaves_no_stream(
    js: jsync.JetStream, unique: str, tmp_path: Path, share: float
) -> None:
    stream = filled(js, unique)
    stream.backup(tmp_path)
    stream.delete()

    def interrupt(done: int, total: int) -> None:
        if done >= share * total:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        js.restore_stream(tmp_path, on_progress=interrupt)
    assert gone(js, unique)
    assert js.restore_stream(tmp_path).name == unique
    assert held(js.stream(unique))


def test_a_lost_connection_leaves_no_interrupted_restore(
    js: jsync.JetStream, proxy: FaultProxy, unique: str, tmp_path: Path
) -> None:
    stream = filled(js, unique)
    stream.backup(tmp_path)
    stream.delete()
    lookup = f"STREAM.INFO.{unique}".encode()

    def cut(frame: bytes, to: Side) -> bytes:
        """Cut the connection at the first request of the clean-up."""
        if interrupted and lookup in frame:
            proxy.rewrite(None)
            proxy.cut()
        return frame

    interrupted = False

    def interrupt(done: int, total: int) -> None:
        nonlocal interrupted
        if done >= total / 2:
            interrupted = True
            raise KeyboardInterrupt

    with jsync.connect(proxy.url) as nc:
        proxy.rewrite(frame_changer(cut))
        with pytest.raises(KeyboardInterrupt):
            nc.jetstream().restore_stream(tmp_path, on_progress=interrupt)
    assert gone(js, unique)
    assert proxy.connections > 1


def test_a_failed_restore_leaves_the_streams_of_others(
    js: jsync.JetStream, unique: str, tmp_path: Path
) -> None:
    stream = filled(js, unique)
    stream.backup(tmp_path)
    stream.delete()

    def create(done: int, total: int) -> None:
        if gone(js, unique):
            js.create_stream(name=unique, subjects=[f"{unique}.>"])
            js.publish(f"{unique}.live", b"live")

    with pytest.raises(errors.APIError, match="already in use"):
        js.restore_stream(tmp_path, on_progress=create)
    assert js.stream(unique).get_message(1).data == b"live"


def test_nobody_publishes_into_a_stream_being_restored(
    js: jsync.JetStream, unique: str, tmp_path: Path
) -> None:
    stream = filled(js, unique)
    stream.create_consumer(durable_name="billing", filter_subject=f"{unique}.1")
    config = stream.info().config
    stream.backup(tmp_path)
    stream.delete()
    refused: list[type[Exception]] = []

    def intrude(done: int, total: int) -> None:
        for call in (
            lambda: js.publish(f"{unique}.1", b"live"),
            lambda: js.create_stream(config),
            lambda: js.restore_stream(tmp_path),
        ):
            if done > total / 2 and len(refused) < 3:
                with pytest.raises(errors.Error) as raised:
                    call()
                refused.append(raised.type)

    restored = js.restore_stream(tmp_path, on_progress=intrude)
    assert set(refused) == {
        errors.NoStreamResponseError,
        errors.StreamNameInUseError,
        errors.BackupError,
    }
    assert restored.info().config == config
    assert js.publish(f"{unique}.1", b"live").seq == 201
    assert held(restored)


def test_a_restore_without_server_names_what_it_leaves(
    server: LocalServer, js: jsync.JetStream, unique: str, tmp_path: Path
) -> None:
    stream = filled(js, unique)
    backup = stream.backup(tmp_path / unique).directory
    stream.delete()
    with jsync.connect(server.url) as operator:

        def leave(done: int, total: int) -> None:
            if done > total / 2:
                operator.close()

        with pytest.raises(errors.ConnectionClosedError) as raised:
            operator.jetstream().restore_stream(backup, on_progress=leave)
    assert f"a part of stream {unique} may be left" in raised.value.__notes__[0]
    with pytest.raises(
        errors.BackupError, match=f"{unique} is a part .* delete the str"
    ):
        js.restore_stream(backup)
    with pytest.raises(errors.ConfigError, match="exist already"):
        js.restore_streams(tmp_path)
    with pytest.raises(errors.BackupError, match=f"{unique} is a part"):
        js.restore_streams(tmp_path, skip_existing=True)
    assert js.stream(unique).info().config.subjects != [f"{unique}.>"]
    js.delete_stream(unique)
    assert held(js.restore_stream(backup))


def test_a_restore_ends_when_its_server_is_silent(
    own_server: StartServer, tmp_path: Path
) -> None:
    server = own_server()
    with jsync.connect(server.url) as nc:
        js = nc.jetstream()
        stream = filled(js, "S", 20)
        stream.backup(tmp_path)
        stream.delete()

        def freeze(done: int, total: int) -> None:
            if done == total:
                server.pause()

        def restore() -> None:
            with pytest.raises(errors.TimeoutError, match="restores stream S") as got:
                js.restore_stream(tmp_path, on_progress=freeze, timeout=0.5)
            assert "a part of stream S may be left" in got.value.__notes__[0]

        with ThreadPoolExecutor() as pool:
            ended = pool.submit(restore)
            try:
                ended.result(SOON)
            finally:
                server.resume()


@pytest.mark.parametrize(
    "options",
    [
        {"subjects": None},
        {"sealed": True},
        {"storage": "memory"},
        {"retention": "workqueue"},
        {"retention": "interest"},
        {"sources": [{"name": "ORIGIN"}]},
        {"subjects": None, "sources": [{"name": "ORIGIN"}]},
        {"subjects": None, "mirror": {"name": "ORIGIN"}},
        {"republish": {"src": ">", "dest": "copies.>"}},
        {"subject_transform": {"src": "S.*", "dest": "t.{{wildcard(1)}}"}},
        {"allow_msg_ttl": True, "subject_delete_marker_ttl": 9},
        {"metadata": {"owner": "me"}, "max_msgs_per_subject": 1},
    ],
    ids=str,
)
def test_streams_of_every_kind_get_their_configuration_back(
    own_server: StartServer, tmp_path: Path, options: dict[str, Any]
) -> None:
    with jsync.connect(own_server().url) as nc:
        js = nc.jetstream()
        js.create_stream(name="ORIGIN", subjects=["origin"])
        js.publish("origin", b"1")
        sealed = options.get("sealed")
        config = {"name": "S", "subjects": ["S.*"], **options, "sealed": None}
        stream = js.create_stream(jsync.StreamConfig(**config))
        stream.create_consumer(durable_name="billing")
        copied = int("sources" in options or "mirror" in options)
        subjects = stream.info().config.subjects or []
        for subject in subjects:
            js.publish(subject.replace("*", "1"))
        wait_for(lambda: stream.info().state.messages == copied + len(subjects))
        if sealed:
            stream.update(sealed=True)
        before = stream.info()
        stream.backup(tmp_path)
        stream.delete()
        after = js.restore_stream(tmp_path).info()
        assert after.config == before.config
        assert after.state.messages == before.state.messages
        js.publish("origin", b"2")
        wait_for(
            lambda: (
                js.stream("S").info().state.messages == before.state.messages + copied
            )
        )


def test_a_backup_raises_when_its_server_dies(
    own_server: StartServer, unique: str, tmp_path: Path
) -> None:
    server = own_server()
    with (
        FaultProxy("127.0.0.1", server.port) as proxy,
        jsync.connect(proxy.url) as nc,
    ):
        stream = filled(nc.jetstream(), unique)
        # Without this limit the whole backup may have left the server by then.
        proxy.cut_after(4 * CHUNK, "client", "fin")
        with pytest.raises(errors.Error):
            stream.backup(tmp_path, on_progress=lambda *_: server.kill(), timeout=1)
        assert not server.is_running
        nc.close()
    assert list(tmp_path.iterdir()) == []


def test_a_copy_beside_its_original_needs_other_subjects(
    js: jsync.JetStream, unique: str, tmp_path: Path
) -> None:
    stream = filled(js, unique, 1)
    stream.backup(tmp_path)
    overlap = f"{unique}.> with {unique}"
    with pytest.raises(errors.SubjectOverlapError, match=overlap):
        js.restore_stream(tmp_path, name=f"{unique}B")
    with pytest.raises(errors.SubjectOverlapError, match=overlap):
        js.create_stream(name=f"{unique}B", subjects=[f"{unique}.>"])
    other = js.create_stream(name=f"{unique}B", subjects=[f"{unique}B"])
    with pytest.raises(errors.SubjectOverlapError, match=f"{unique}.1 with {unique}"):
        other.update(subjects=[f"{unique}B", f"{unique}.1"])

    def create(done: int, total: int) -> None:
        js.create_stream(name=f"{unique}D", subjects=[f"{unique}C.*"])

    with pytest.raises(errors.SubjectOverlapError, match=f"{unique}C.> with {unique}D"):
        js.restore_stream(
            tmp_path,
            name=f"{unique}C",
            config=lambda c: {**c, "subjects": [f"{unique}C.>"]},
            on_progress=create,
        )
    assert gone(js, f"{unique}C")


def test_a_stream_is_restored_under_another_name(
    js: jsync.JetStream, unique: str, tmp_path: Path
) -> None:
    stream = filled(js, unique)
    stream.create_consumer(durable_name="billing")
    stream.backup(tmp_path)

    def moved(config: dict[str, Any]) -> dict[str, Any]:
        assert config["name"] == f"{unique}B"
        return {**config, "subjects": [f"{unique}B.>"]}

    copy = js.restore_stream(tmp_path, name=f"{unique}B", config=moved)
    assert copy.name == f"{unique}B"
    assert held(copy)
    assert held(stream)
    assert copy.consumer("billing").name == "billing"
    for wrong in ("a.b", ""):
        with pytest.raises(errors.ConfigError, match="stream: "):
            js.restore_stream(tmp_path, name=wrong)


def test_an_unanswered_restore_says_what_remains(
    server: LocalServer, js: jsync.JetStream, unique: str, tmp_path: Path
) -> None:
    stream = filled(js, unique, 1)
    stream.backup(tmp_path / unique)
    stream.delete()
    asked = False

    def drop_replies(data: bytes, to: Side) -> bytes:
        nonlocal asked
        asked = asked or (to == "server" and b"STREAM.RESTORE" in data)
        return b"" if asked and to == "client" else data

    with (
        FaultProxy("127.0.0.1", server.port) as proxy,
        jsync.connect(proxy.url) as nc,
    ):
        proxy.rewrite(drop_replies)
        context = nc.jetstream(timeout=0.3)
        with pytest.raises(errors.TimeoutError) as late:
            context.restore_stream(tmp_path / unique, timeout=0.3)
        asked = False
        with pytest.raises(errors.BackupError, match=r", and a part of stream .* left"):
            context.restore_streams(tmp_path, timeout=0.3)
        proxy.rewrite(None)
    assert "may be left on the server" in late.value.__notes__[0]


def test_the_checks_before_a_restore_count_too(
    backed_up: str, server: LocalServer, tmp_path: Path
) -> None:
    def slow(frame: bytes, to: Side) -> bytes:
        if to == "server" and b"STREAM.NAMES" in frame:
            return b""
        if to == "server" and b"STREAM.RESTORE" in frame:
            time.sleep(0.7)
        return frame

    with (
        restoring_through(server, slow) as js,
        pytest.raises(errors.TimeoutError, match=r"STREAM\.RESTORE"),
    ):
        js.restore_stream(tmp_path, timeout=1)


def test_a_slow_cleanup_ends_within_the_timeout(
    backed_up: str, server: LocalServer, tmp_path: Path
) -> None:
    looks = 0

    def slow(frame: bytes, to: Side) -> bytes:
        nonlocal looks
        if to == "server" and b"STREAM.RESTORE" in frame:
            return b""
        if to == "server" and b"STREAM.INFO" in frame:
            looks += 1
            time.sleep(0.7)
        return frame

    with (
        restoring_through(server, slow) as js,
        pytest.raises(errors.TimeoutError) as late,
    ):
        js.restore_stream(tmp_path, timeout=1)
    assert f"a part of stream {backed_up} may be left" in late.value.__notes__[0]
    assert looks <= 2


def test_slow_looks_prolong_no_silent_restore(
    backed_up: str, server: LocalServer, tmp_path: Path
) -> None:
    looks = 0
    complete = False

    def slow(frame: bytes, to: Side) -> bytes:
        nonlocal looks
        if to == "server" and b"STREAM.INFO" in frame:
            looks += 1
            time.sleep(0.9)
        return (
            b"" if complete and to == "server" and b"PUB $JS.SNAP" in frame else frame
        )

    def end(done: int, total: int) -> None:
        nonlocal complete
        complete = done == total

    with (
        restoring_through(server, slow) as js,
        pytest.raises(errors.TimeoutError, match="that restores stream"),
    ):
        js.restore_stream(tmp_path, on_progress=end, timeout=1)
    assert looks <= 2  # one for the restore, one for its cleanup


@pytest.fixture
def backed_up(js: jsync.JetStream, unique: str, tmp_path: Path) -> str:
    """Return the name of a stream that is a backup in `tmp_path` and no longer exists."""
    stream = filled(js, unique, 1)
    stream.backup(tmp_path)
    stream.delete()
    return unique


@contextlib.contextmanager
def restoring_through(
    server: LocalServer, change: Callable[[bytes, Side], bytes]
) -> Iterator[jsync.JetStream]:
    with (
        FaultProxy("127.0.0.1", server.port) as proxy,
        jsync.connect(proxy.url) as nc,
    ):
        proxy.rewrite(frame_changer(change))
        yield nc.jetstream()


# Accounts -----------------------------------------------------------------------------


def test_all_streams_of_an_account_come_back(
    own_server: StartServer, tmp_path: Path
) -> None:
    seen: list[str] = []

    def look(stream: str, done: int, total: int) -> None:
        assert done > 0
        assert total > 0
        seen.append(stream)

    with jsync.connect(own_server().url) as nc:
        js = nc.jetstream()
        with pytest.raises(errors.ConfigError, match="no streams"):
            js.backup_streams(tmp_path / "none")
        filled(js, "ONE")
        filled(js, "TWO", 3).create_consumer(durable_name="billing")
        js.create_stream(name="MEMORY", subjects=["memory"], storage="memory")
        js.publish("memory", b"kept")
        js.create_key_value(bucket="CONFIG").put("host", b"10.0.0.1")
        made = js.backup_streams(tmp_path / "b", on_progress=look)
        names = ["KV_CONFIG", "MEMORY", "ONE", "TWO"]
        assert [each.stream for each in made.streams] == names
        assert made.skipped == []
        assert sorted(path.name for path in made.directory.iterdir()) == names
        assert sorted(set(seen)) == names

        with pytest.raises(errors.ConfigError, match="exist already: KV_CONFIG, MEMO"):
            js.restore_streams(tmp_path / "b")
        for name in names:
            js.delete_stream(name)
        seen.clear()
        restored = js.restore_streams(tmp_path / "b", on_progress=look)
        assert [stream.name for stream in restored] == names
        assert sorted(set(seen)) == names
        assert held(js.stream("ONE"))
        assert held(js.stream("TWO"), 3)
        assert js.stream("TWO").consumer("billing").name == "billing"
        assert js.get_message("MEMORY", 1).data == b"kept"
        assert js.key_value("CONFIG").get("host").value == b"10.0.0.1"


def test_one_failing_stream_does_not_stop_the_others(
    own_server: StartServer, tmp_path: Path
) -> None:
    with jsync.connect(own_server().url) as nc:
        js = nc.jetstream()
        for name in ("ONE", "TWO"):
            filled(js, name, 3)

        def lose(stream: str, done: int, total: int) -> None:
            if stream == "ONE":
                raise errors.BackupError("lost")

        with pytest.raises(errors.BackupError, match=r"1 others.*ONE: lost"):
            js.backup_streams(tmp_path / "b", on_progress=lose)
        assert [path.name for path in (tmp_path / "b").iterdir()] == ["TWO"]
        js.backup_streams(tmp_path / "c")
        for name in ("ONE", "TWO"):
            js.delete_stream(name)
        archive = tmp_path / "c" / "ONE" / "stream.arc.s2"
        archive.write_bytes(archive.read_bytes()[:-1])
        with pytest.raises(errors.BackupError, match=r"not restored.*ONE: .*damaged"):
            js.restore_streams(tmp_path / "c")
        assert list(js.stream_names()) == ["TWO"]


def test_an_interrupted_account_restore_can_be_continued(
    own_server: StartServer, tmp_path: Path
) -> None:
    with jsync.connect(own_server().url) as nc:
        js = nc.jetstream()
        for name in ("ONE", "TWO"):
            filled(js, name, 3)
        js.backup_streams(tmp_path)
        for name in ("ONE", "TWO"):
            js.delete_stream(name)

        def interrupt(stream: str, done: int, total: int) -> None:
            if stream == "TWO":
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            js.restore_streams(tmp_path, on_progress=interrupt)
        js.publish("ONE.live", b"live")
        with pytest.raises(errors.ConfigError, match=r"exist already: ONE.*skip_exist"):
            js.restore_streams(tmp_path)
        restored = js.restore_streams(tmp_path, skip_existing=True)
        assert [stream.name for stream in restored] == ["TWO"]
        assert js.stream("ONE").get_message(4).data == b"live"
        assert held(js.stream("TWO"), 3)


def test_a_path_as_a_name_writes_nothing_outside(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    state = {"messages": 0}
    names = [str(outside), "../outside", "..", ".", "", "GOOD"]

    def answer(subject: str, payload: bytes) -> list[FakeReply]:
        if subject == "$JS.API.STREAM.LIST":
            infos = [{"config": {"name": name}, "state": state} for name in names]
            reply = {"total": len(infos), "streams": infos}
            return [FakeReply(json.dumps(reply).encode())]
        name = subject.removeprefix("$JS.API.STREAM.SNAPSHOT.")
        return [FakeReply(json.dumps({"config": {"name": f"{name}X"}}).encode())]

    with FakeServer(answer_requests(answer)) as fake, jsync.connect(fake.url) as nc:
        with pytest.raises(errors.BackupError, match="not backed up") as raised:
            nc.jetstream().backup_streams(tmp_path / "b")
        assert "another stream than GOOD" in str(raised.value)
    assert sorted(tmp_path.rglob("*")) == [tmp_path / "b", outside]


@pytest.mark.parametrize("name", ["a.b", "*", ">", "../x", "a b", 7, None])
def test_a_backup_with_an_invalid_name_is_rejected(
    nc: jsync.Connection, tmp_path: Path, name: object
) -> None:
    meta = {"config": {"name": name}, "state": {}}
    (tmp_path / "backup.json").write_text(json.dumps(meta))
    (tmp_path / "stream.arc.s2").write_bytes(b"")
    sent = nc.stats().out_messages
    with pytest.raises(errors.ConfigError):
        nc.jetstream().restore_stream(tmp_path)
    assert nc.stats().out_messages == sent


def test_two_backups_do_not_write_to_one_directory(
    js: jsync.JetStream, unique: str, tmp_path: Path
) -> None:
    stream = filled(js, unique)

    def second(done: int, total: int) -> None:
        with pytest.raises(errors.ConfigError, match="another backup is writing"):
            stream.backup(tmp_path)

    stream.backup(tmp_path, on_progress=second)
    stream.delete()
    assert held(js.restore_stream(tmp_path))


@pytest.mark.parametrize("name", ["backup.json", "stream.arc.s2", "stream.tar.s2"])
def test_a_backup_replaces_no_file(
    js: jsync.JetStream, unique: str, tmp_path: Path, name: str
) -> None:
    stream = filled(js, unique, 1)
    (tmp_path / name).write_text("mine")
    with pytest.raises(errors.ConfigError, match="already holds"):
        stream.backup(tmp_path)

    def write(done: int, total: int) -> None:
        (tmp_path / "b" / name).write_text("mine")

    with pytest.raises(errors.ConfigError, match="already holds"):
        stream.backup(tmp_path / "b", on_progress=write)
    for where in (tmp_path, tmp_path / "b"):
        assert (where / name).read_text() == "mine"


def test_a_lost_chunk_ends_a_backup(
    js: jsync.JetStream, proxy: FaultProxy, unique: str, tmp_path: Path
) -> None:
    filled(js, unique)
    chunks: list[bytes] = []

    def keeps(frame: bytes, to: Side) -> bool:
        if to == "client" and b"$JS.SNAPSHOT.ACK." in frame.partition(b"\r\n")[0]:
            chunks.append(frame)
            return len(chunks) != 2
        return True

    with jsync.connect(proxy.url) as nc:
        stream = nc.jetstream().stream(unique)
        proxy.rewrite(frame_filter(keeps))
        with pytest.raises(
            errors.BackupError, match="chunk 2 of the backup is missing"
        ):
            stream.backup(tmp_path, timeout=SOON)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("again", [False, True], ids=["gone", "created again"])
def test_a_deleted_stream_ends_its_backup(
    js: jsync.JetStream, proxy: FaultProxy, unique: str, tmp_path: Path, again: bool
) -> None:
    """The server sends nothing more, and `timeout` may be long."""
    filled(js, unique)
    chunks: list[bytes] = []
    deleted: list[str] = []

    def keeps(frame: bytes, to: Side) -> bool:
        subject = frame.split(b" ", 2)[1:2]
        if to == "client" and subject and subject[0].count(b".") == 1:  # a chunk
            chunks.append(frame)
            return len(chunks) == 1
        return True

    def delete(done: int, total: int) -> None:
        if not deleted:
            deleted.append(unique)
            js.delete_stream(unique)
            if again:
                js.create_stream(name=unique, subjects=[unique])

    with jsync.connect(proxy.url) as nc:
        stream = nc.jetstream().stream(unique)
        proxy.rewrite(frame_filter(keeps))
        with pytest.raises(errors.BackupError, match="was deleted during the backup"):
            stream.backup(tmp_path, on_progress=delete, timeout=10 * SOON)
    assert list(tmp_path.iterdir()) == []


def test_a_lost_connection_ends_a_backup(
    server: LocalServer, js: jsync.JetStream, unique: str, tmp_path: Path
) -> None:
    stream = filled(js, unique)
    with jsync.connect(server.url) as nc:

        def cut(done: int, total: int) -> None:
            nc.force_reconnect()
            nc.flush()

        with pytest.raises(errors.Error, match="begin again"):
            nc.jetstream().stream(unique).backup(tmp_path, on_progress=cut, timeout=2)
    assert list(tmp_path.iterdir()) == []
    assert held(stream)


def test_a_full_disk_error_names_the_backup_file(
    js: jsync.JetStream, unique: str, tmp_path: Path
) -> None:
    stream = filled(js, unique)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, before[1]))
    try:
        with pytest.raises(OSError, match=r"stream\.arc\.s2\.partial"):
            stream.backup(tmp_path / "one")
        with pytest.raises(errors.BackupError, match=rf"{unique}: .*s2\.partial"):
            js.backup_streams(tmp_path / "all")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert list((tmp_path / "one").iterdir()) == []
    assert not (tmp_path / "all" / unique).exists()


def test_an_account_backup_has_to_be_whole(
    js: jsync.JetStream, unique: str, tmp_path: Path
) -> None:
    with pytest.raises(errors.ConfigError, match="not a directory"):
        js.restore_streams(tmp_path / "none")
    with pytest.raises(errors.ConfigError, match="holds no backups"):
        js.restore_streams(tmp_path)
    stream = filled(js, unique, 1)
    stream.backup(tmp_path / unique)
    stream.delete()
    (tmp_path / "half").mkdir()
    with pytest.raises(errors.ConfigError, match=r"half holds no whole backup"):
        js.restore_streams(tmp_path)
    with pytest.raises(errors.ConfigError, match="use restore_stream"):
        js.restore_streams(tmp_path / unique)
    assert gone(js, unique)
    with pytest.raises(errors.ConfigError, match="is not empty"):
        js.backup_streams(tmp_path)


@pytest.mark.parametrize(
    "damage", ["flip", "cut", "flip without a digest", "cut without a digest"]
)
def test_a_damaged_backup_is_refused(
    js: jsync.JetStream, unique: str, tmp_path: Path, damage: str
) -> None:
    stream = filled(js, unique)
    stream.backup(tmp_path)
    stream.delete()
    archive, meta = tmp_path / "stream.arc.s2", tmp_path / "backup.json"
    data = bytearray(archive.read_bytes())
    if damage.startswith("cut"):
        del data[len(data) // 2 :]
    else:
        data[len(data) // 2] ^= 0xFF
    archive.write_bytes(data)
    kind: type[errors.Error] = errors.BackupError
    if damage.endswith("without a digest"):
        # The nats command writes no digest, so only the server can notice this damage.
        told = json.loads(meta.read_text())
        del told["archive"]
        meta.write_text(json.dumps(told))
        if damage.startswith("flip"):
            kind = errors.APIError
    with pytest.raises(kind):
        js.restore_stream(tmp_path)
    assert gone(js, unique)
    meta.write_text("{}")
    with pytest.raises(errors.ConfigError, match="not the description of a backup"):
        js.restore_stream(tmp_path)
