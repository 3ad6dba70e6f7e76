"""Tests of backups of streams: written, restored, interrupted and damaged."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

import pytest

import jsync
from jsync import errors
from jsync.jetstream.backups.engine import CHUNK

from ..proxy import FaultProxy
from ..servers import wait_for

if TYPE_CHECKING:
    from pathlib import Path

    from ..conftest import StartServer


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


def test_a_stream_with_its_consumers_comes_back_from_files(
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


def test_an_interrupted_restore_leaves_no_stream(
    js: jsync.JetStream, unique: str, tmp_path: Path
) -> None:
    stream = filled(js, unique)
    stream.backup(tmp_path)
    stream.delete()

    def interrupt(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        js.restore_stream(tmp_path, on_progress=interrupt)
    wait_for(lambda: gone(js, unique))

    def restored() -> bool:
        """Restore again. The server drops the interrupted restore some seconds later."""
        try:
            return js.restore_stream(tmp_path).name == unique
        except errors.Error:
            return False

    wait_for(restored)
    assert held(js.stream(unique))


def test_a_server_that_dies_ends_a_backup_with_an_error(
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


def test_a_backup_by_an_older_server_keeps_its_name(
    js: jsync.JetStream, unique: str, tmp_path: Path
) -> None:
    stream = filled(js, unique, 1)
    stream.backup(tmp_path)
    (tmp_path / "stream.arc.s2").rename(tmp_path / "stream.tar.s2")
    with pytest.raises(errors.ConfigError, match=r"before 2\.15.*keeps its name"):
        js.restore_stream(tmp_path, name=f"{unique}B")


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


def test_one_stream_that_fails_does_not_keep_the_others(
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


def test_a_backup_of_an_account_has_to_be_whole(
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


@pytest.mark.parametrize("damage", ["flip", "cut", "both without a digest"])
def test_a_damaged_backup_is_refused(
    js: jsync.JetStream, unique: str, tmp_path: Path, damage: str
) -> None:
    stream = filled(js, unique)
    stream.backup(tmp_path)
    stream.delete()
    archive, meta = tmp_path / "stream.arc.s2", tmp_path / "backup.json"
    data = bytearray(archive.read_bytes())
    if damage == "cut":
        del data[len(data) // 2 :]
    else:
        data[len(data) // 2] ^= 0xFF
    archive.write_bytes(data)
    if damage == "both without a digest":
        # The nats command writes no digest, so only the server can notice the damage.
        told = json.loads(meta.read_text())
        del told["archive"]
        meta.write_text(json.dumps(told))
        kind: type[errors.Error] = errors.APIError
    else:
        kind = errors.BackupError
    with pytest.raises(kind):
        js.restore_stream(tmp_path)
    wait_for(lambda: gone(js, unique))
    meta.write_text("{}")
    with pytest.raises(errors.ConfigError, match="not the description of a backup"):
        js.restore_stream(tmp_path)
