"""Tests of stores and their objects against a real server."""

from __future__ import annotations

import hashlib
import io
import os
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

import jsync
from jsync import errors
from jsync.jetstream.objects.engine import digest_text
from jsync.jetstream.objects.repository import ObjectRepository

from ....support.proxy import FaultProxy
from ....support.servers import wait_for
from ....support.threads import LONG, Thread
from .support import chunks_of, noise, replace_chunk

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from jsync.server import LocalServer

    from ....conftest import StartServer
    from ....support.proxy import Side

pytestmark = pytest.mark.server

MIB = 1 << 20


# Stores -------------------------------------------------------------------------------


def test_keywords_or_a_configuration_create_a_store(
    js: jsync.JetStream, unique: str
) -> None:
    config = jsync.ObjectStoreConfig(
        bucket=unique, description="words", storage="memory", metadata={"a": "b"}
    )
    status = js.create_object_store(config).status()
    assert (status.bucket, status.description) == (unique, "words")
    assert status.metadata == {"a": "b"}
    again = js.create_object_store(
        bucket=unique, description="words", storage="memory", metadata={"a": "b"}
    )
    assert again.bucket == unique
    js.delete_object_store(unique)


def test_a_store_that_exists_otherwise_is_not_changed(
    js: jsync.JetStream, files: jsync.ObjectStore
) -> None:
    with pytest.raises(errors.BucketExistsError, match="update_object_store"):
        js.create_object_store(bucket=files.bucket, ttl=60, storage="memory")
    assert files.status().ttl is None


def test_keywords_update_one_field_and_configurations_all_fields(
    js: jsync.JetStream, files: jsync.ObjectStore
) -> None:
    name = files.bucket
    js.update_object_store(bucket=name, ttl=60, description="words")
    status = js.update_object_store(bucket=name, description=None).status()
    assert (status.ttl, status.description) == (60, None)
    config = jsync.ObjectStoreConfig(bucket=name, max_bytes=MIB, storage="memory")
    status = js.update_object_store(config).status()
    assert (status.ttl, status.config.max_bytes) == (None, MIB)


def test_a_store_is_created_or_updated(js: jsync.JetStream, unique: str) -> None:
    for ttl in (60, 90):
        store = js.create_or_update_object_store(
            bucket=unique, ttl=ttl, storage="memory"
        )
        assert store.status().ttl == ttl
    js.delete_object_store(unique)


@pytest.mark.parametrize(
    "call",
    [
        lambda js, name: js.object_store(name),
        lambda js, name: js.delete_object_store(name),
        lambda js, name: js.update_object_store(bucket=name, ttl=1),
    ],
    ids=["bind", "delete", "update"],
)
def test_a_store_that_does_not_exist_is_named(
    js: jsync.JetStream, unique: str, call: Callable[[jsync.JetStream, str], object]
) -> None:
    with pytest.raises(errors.BucketNotFoundError, match=unique):
        call(js, unique)


@pytest.mark.parametrize("name", ["", "a.b", "a b", "a/b", "ä", "*", None, 7])
def test_a_store_cannot_have_such_a_name(js: jsync.JetStream, name: Any) -> None:
    for call in (js.object_store, js.delete_object_store):
        with pytest.raises(errors.InvalidBucketNameError):
            call(name)
    with pytest.raises(errors.ConfigError):
        js.create_object_store(bucket=name)


def test_stores_are_listed_by_name_and_by_status(
    js: jsync.JetStream, files: jsync.ObjectStore
) -> None:
    assert files.bucket in list(js.object_store_names())
    assert files.bucket in [status.bucket for status in js.object_store_statuses()]


def test_every_call_names_a_store_that_was_deleted(
    js: jsync.JetStream, files: jsync.ObjectStore
) -> None:
    js.delete_object_store(files.bucket)
    calls: list[Callable[[], object]] = [
        lambda: files.info("a"),
        lambda: files.get("a"),
        lambda: files.delete("a"),
        lambda: list(files.list()),
        files.watch,
        files.status,
        files.seal,
        files.check,
    ]
    for call in calls:
        with pytest.raises(errors.BucketNotFoundError):
            call()


def test_a_sealed_store_is_read_and_not_changed(
    js: jsync.JetStream, files: jsync.ObjectStore
) -> None:
    files.put("a", b"1")
    assert not files.status().is_sealed
    assert files.seal().is_sealed
    assert files.get("a") == b"1"
    with pytest.raises(errors.StreamSealedError):
        files.put("b", b"2")
    with pytest.raises(errors.StreamSealedError):
        files.delete("a")
    assert [info.name for info in files.list()] == ["a"]


@pytest.mark.parametrize("name", ["plain", "transformed"])
def test_a_mirror_is_read_and_refuses_writes(
    js: jsync.JetStream, files: jsync.ObjectStore, name: str
) -> None:
    files.put("a", noise(300_000))
    files.add_link("link", "a")
    copy = f"{files.bucket}-{name}"
    mirror: dict[str, Any] = {"name": f"OBJ_{files.bucket}"}
    if name == "transformed":
        source, target = f"$O.{files.bucket}.>", f"$O.{copy}.>"
        mirror |= {"subject_transforms": [{"src": source, "dest": target}]}
    stream = js.create_stream(name=f"OBJ_{copy}", mirror=mirror, storage="memory")
    try:
        wait_for(lambda: stream.info().state.messages == files_messages(js, files))
        store = js.object_store(copy)
        assert sorted(info.name for info in store.list()) == ["a", "link"]
        assert store.get("a") == files.get("a")
        writes: list[Callable[[], object]] = [
            lambda: store.put("b", b"1"),
            lambda: store.delete("a"),
            lambda: store.update_meta("a", description="new"),
            lambda: store.add_bucket_link("other", files.bucket),
        ]
        for write in writes:
            with pytest.raises(errors.ReadOnlyBucketError, match=files.bucket):
                write()
        assert sorted(info.name for info in files.list()) == ["a", "link"]
    finally:
        stream.delete()


def files_messages(js: jsync.JetStream, files: jsync.ObjectStore) -> int:
    return js.stream(f"OBJ_{files.bucket}").info().state.messages


def test_two_clients_may_seal_one_store(
    server: LocalServer, files: jsync.ObjectStore
) -> None:
    def seal(data: bytes, to: Side) -> bytes:
        if to == "server" and b"STREAM.UPDATE.OBJ_" in data:
            assert files.seal().is_sealed
        return data

    with FaultProxy("127.0.0.1", server.port) as proxy:
        with jsync.connect(proxy.url) as nc:
            own = nc.jetstream().object_store(files.bucket)
            proxy.rewrite(seal)
            assert own.seal().is_sealed


# Putting and getting ------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, 999, 1000, 1001, 2000, 100_000])
def test_bytes_come_back_as_they_were_put(
    js: jsync.JetStream, files: jsync.ObjectStore, size: int
) -> None:
    data = noise(size)
    info = files.put("a", data, chunk_size=1000)
    chunks = -(-size // 1000)
    assert (info.size, info.chunks, info.chunk_size) == (size, chunks, 1000)
    assert info.digest == digest_text(hashlib.sha256(data).digest())
    assert files.get("a") == data
    assert chunks_of(js, files) == ({info.nuid: chunks} if size else {})


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview, io.BytesIO])
def test_bytes_and_files_are_put(
    files: jsync.ObjectStore, kind: Callable[[bytes], Any]
) -> None:
    data = noise(300_000)
    assert files.put("a", kind(data)).size == 300_000
    assert files.get("a") == data


def test_an_iterable_of_bytes_is_put(files: jsync.ObjectStore) -> None:
    parts = [noise(size, size) for size in (0, 1, 99, 100, 101, 12_345, 7)]
    info = files.put("a", (part for part in parts), chunk_size=100)
    assert info.chunks == -(-info.size // 100)
    assert files.get("a") == b"".join(parts)


def test_a_buffer_changed_during_put_is_stored_unchanged(
    files: jsync.ObjectStore,
) -> None:
    block = bytearray(b"a" * 1000)

    def blocks() -> Any:
        yield block
        block[:] = b"b" * 1000
        yield block

    files.put("a", blocks(), chunk_size=500)
    assert files.get("a") == b"a" * 1000 + b"b" * 1000


@pytest.mark.parametrize(
    "data",
    ["text", 7, None, {b"a": 1}, ["text"], io.StringIO("t")],
    ids=["text", "number", "none", "mapping", "texts", "text file"],
)
def test_text_and_other_types_are_rejected(files: jsync.ObjectStore, data: Any) -> None:
    with pytest.raises(errors.ConfigError, match="bytes"):
        files.put("a", data)
    assert not list(files.list())


@pytest.mark.parametrize(
    "name", ["", None, 7, "a" * 2501, "\ud800", b"a"], ids=range(6)
)
def test_an_object_cannot_have_such_a_name(files: jsync.ObjectStore, name: Any) -> None:
    for call in (
        lambda: files.put(name, b""),
        lambda: files.get(name),
        lambda: files.info(name),
        lambda: files.delete(name),
        lambda: files.open(name, "wb"),
        lambda: files.add_link(name, "a"),
        lambda: files.get_file(name, "/nowhere/at/all"),
    ):
        with pytest.raises(errors.InvalidObjectNameError):
            call()


@pytest.mark.parametrize(
    "name",
    ["a b", "a/b/c.txt", "ä\n\x00€", "*", ">", "a.b", "\N{PILE OF POO}", "a" * 2500],
)
def test_any_other_name_is_a_name(files: jsync.ObjectStore, name: str) -> None:
    files.put(name, b"1")
    assert files.get(name) == b"1"
    assert [info.name for info in files.list()] == [name]
    files.delete(name)


@pytest.mark.parametrize(
    "options",
    [
        {"chunk_size": 0},
        {"chunk_size": 1.5},
        {"chunk_size": MIB + 1},
        {"description": 7},
        {"metadata": {"a": 1}},
        {"metadata": "words"},
        {"headers": "words"},
        {"headers": {"a": 1}},
        {"progress": 7},
        {"timeout": "soon"},
    ],
)
def test_bad_arguments_are_refused_before_anything_is_sent(
    files: jsync.ObjectStore, options: dict[str, Any]
) -> None:
    kinds = (
        errors.ConfigError,
        errors.InvalidHeaderError,
        errors.MaxPayloadError,
        TypeError,
    )
    with pytest.raises(kinds):
        files.put("a", b"1", **options)
    assert not list(files.list())


def test_a_too_large_info_is_refused_before_upload(files: jsync.ObjectStore) -> None:
    files.put("a", b"1", metadata={"notes": "x" * (MIB - 1000)})
    blocks = iter([b"2"])
    with pytest.raises(errors.MaxPayloadError, match="less metadata"):
        files.put("a", blocks, metadata={"notes": "x" * MIB})
    assert list(blocks) == [b"2"]
    assert files.get("a") == b"1"


def test_an_object_keeps_its_description_headers_and_metadata(
    files: jsync.ObjectStore,
) -> None:
    put = files.put(
        "a",
        b"1",
        description="words",
        headers={"One": "1", "Two": ["2", "3"]},
        metadata={"owner": "me"},
    )
    info = files.info("a")
    assert (info.description, info.metadata) == ("words", {"owner": "me"})
    assert info.headers.get_all("Two") == ["2", "3"]
    assert (info.revision, info.nuid, info.digest) == (
        put.revision,
        put.nuid,
        put.digest,
    )
    assert abs(info.modified - datetime.now(UTC)) < timedelta(minutes=5)


def test_another_put_replaces_the_object_and_its_chunks(
    js: jsync.JetStream, files: jsync.ObjectStore
) -> None:
    first = files.put("a", noise(5000), chunk_size=1000)
    second = files.put("a", noise(3000, 2), chunk_size=1000)
    assert files.get("a") == noise(3000, 2)
    assert first.nuid != second.nuid
    assert chunks_of(js, files) == {second.nuid: 3}


@pytest.mark.parametrize("known", [True, False])
def test_a_put_after_outdated_answers_replaces_the_newest(
    js: jsync.JetStream,
    files: jsync.ObjectStore,
    monkeypatch: pytest.MonkeyPatch,
    known: bool,
) -> None:
    old = files.put("a", b"first")
    files.put("a", b"second")
    answers = [old if known else None]
    monkeypatch.setattr(
        ObjectRepository, "last_from_any_replica", lambda *_: answers.pop()
    )
    newest = files.put("a", b"third")
    assert not answers
    assert files.get("a") == b"third"
    assert chunks_of(js, files) == {newest.nuid: 1}


def test_simultaneous_puts_of_one_name_leave_one_object(
    js: jsync.JetStream, files: jsync.ObjectStore
) -> None:
    threads = [Thread(files.put, "a", noise(20_000, seed)) for seed in range(8)]
    nuids = {thread.result().nuid for thread in threads}
    info = files.info("a")
    assert info.nuid in nuids
    assert files.get("a") in [noise(20_000, seed) for seed in range(8)]
    assert chunks_of(js, files) == {info.nuid: 1}


def test_simultaneous_puts_of_many_names_do_not_mix(
    js: jsync.JetStream, files: jsync.ObjectStore
) -> None:
    threads = [
        Thread(
            lambda seed=seed: files.put(
                f"{seed}", noise(200_000, seed), chunk_size=1000
            )
        )
        for seed in range(6)
    ]
    for thread in threads:
        thread.result()
    for seed in range(6):
        assert files.get(f"{seed}") == noise(200_000, seed)
        with files.open(f"{seed}") as file:
            for at in (150_001, 3, 199_999, 77_777):
                file.seek(at)
                assert file.read(5000) == noise(200_000, seed)[at : at + 5000]


def test_a_failed_put_leaves_only_the_former_object(
    js: jsync.JetStream, files: jsync.ObjectStore
) -> None:
    info = files.put("a", b"former")

    def blocks() -> Any:
        for _ in range(100):
            yield noise(1000)
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="gone"):
        files.put("a", blocks(), chunk_size=1000)
    assert files.get("a") == b"former"
    assert chunks_of(js, files) == {info.nuid: 1}


def test_ctrl_c_during_a_put_leaves_no_chunks(
    js: jsync.JetStream, files: jsync.ObjectStore
) -> None:
    def progress(done: int, total: int | None) -> None:
        if done > 50_000:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        files.put("a", noise(100_000), chunk_size=1000, progress=progress)
    assert chunks_of(js, files) == {}
    with pytest.raises(errors.ObjectNotFoundError):
        files.info("a")


def test_progress_is_reported_for_puts_and_gets(files: jsync.ObjectStore) -> None:
    told: list[tuple[int, int | None]] = []
    data = noise(2500)
    files.put("a", data, chunk_size=1000, progress=lambda *now: told.append(now))
    assert told == [(1000, 2500), (2000, 2500), (2500, 2500)]
    told.clear()
    files.put(
        "a", iter([data]), chunk_size=1000, progress=lambda *now: told.append(now)
    )
    assert told[-1] == (2500, None)
    told.clear()
    files.get("a", progress=lambda *now: told.append(now))
    assert told == [(1000, 2500), (2000, 2500), (2500, 2500)]


def test_only_the_expected_revision_is_deleted(files: jsync.ObjectStore) -> None:
    old = files.put("a", b"1")
    new = files.put("a", b"2")
    with pytest.raises(errors.WrongRevisionError) as raised:
        files.delete("a", last=old.revision)
    assert raised.value.revision == new.revision
    assert files.get("a") == b"2"
    with pytest.raises(errors.ConfigError):
        files.delete("a", last=0)
    assert files.delete("a", last=new.revision).deleted


def test_an_object_that_is_not_there_is_named(files: jsync.ObjectStore) -> None:
    for call in (
        lambda: files.get("nobody"),
        lambda: files.info("nobody"),
        lambda: files.delete("nobody"),
        lambda: files.open("nobody"),
        lambda: files.update_meta("nobody", description="words"),
        lambda: files.add_link("link", "nobody"),
    ):
        with pytest.raises(errors.ObjectNotFoundError, match="nobody"):
            call()


# Files --------------------------------------------------------------------------------


def test_files_go_in_and_out(files: jsync.ObjectStore, tmp_path: Path) -> None:
    source, target = tmp_path / "in.bin", tmp_path / "out.bin"
    source.write_bytes(noise(700_000))
    target.write_bytes(b"former")
    info = files.put_file(source)
    assert (info.name, info.size) == ("in.bin", 700_000)
    assert files.put_file(source, "other/name").name == "other/name"
    assert files.get_file("in.bin", target).nuid == info.nuid
    assert target.read_bytes() == source.read_bytes()
    assert sorted(os.listdir(tmp_path)) == ["in.bin", "out.bin"]
    assert target.stat().st_mode == source.stat().st_mode


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o755])
def test_a_replaced_file_keeps_its_permissions(
    files: jsync.ObjectStore, tmp_path: Path, mode: int
) -> None:
    files.put("a", noise(300_000))
    target = tmp_path / "out.bin"
    target.write_bytes(b"former")
    target.chmod(mode)
    modes: list[int] = []

    def progress(done: int, total: int | None) -> None:
        modes.extend(path.stat().st_mode & 0o777 for path in tmp_path.iterdir())

    files.get_file("a", target, progress=progress)
    assert target.read_bytes() == noise(300_000)
    assert target.stat().st_mode & 0o777 == mode
    assert set(modes) == {mode}  # nor was the hidden file wider


def test_a_got_file_replaces_no_symbolic_link(
    files: jsync.ObjectStore, tmp_path: Path
) -> None:
    files.put("a", b"new")
    (tmp_path / "real").mkdir()
    real, link = tmp_path / "real" / "out.bin", tmp_path / "link"
    link.symlink_to(real)
    for former in (None, b"former"):
        if former is not None:
            real.write_bytes(former)
        files.get_file("a", link)
        assert link.is_symlink()
        assert real.read_bytes() == b"new"
    assert os.listdir(tmp_path / "real") == ["out.bin"]


def test_an_incomplete_get_leaves_no_file(
    js: jsync.JetStream, files: jsync.ObjectStore, tmp_path: Path
) -> None:
    files.put("a", noise(5000), chunk_size=1000)
    replace_chunk(js, files, "a", b"x" * 1000)
    target = tmp_path / "out.bin"
    target.write_bytes(b"former")
    with pytest.raises(errors.ObjectReadError):
        files.get_file("a", target)
    assert os.listdir(tmp_path) == ["out.bin"]
    assert target.read_bytes() == b"former"
    with pytest.raises(IsADirectoryError):
        files.get_file("a", tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(FileExistsError, match="not a file"):
        files.get_file("a", tmp_path / "pipe")
    with pytest.raises(FileNotFoundError):
        files.put_file(tmp_path / "nobody")


# Errors -------------------------------------------------------------------------------


def test_other_bytes_have_another_digest(
    js: jsync.JetStream, files: jsync.ObjectStore
) -> None:
    info = files.put("a", noise(5000), chunk_size=1000)
    replace_chunk(js, files, "a", b"x" * 1000)
    with pytest.raises(errors.DigestMismatchError, match="'a'") as caught:
        files.get("a")
    assert caught.value.expected == info.digest
    assert caught.value.actual.startswith("SHA-256=")
    with files.open("a") as file:
        for _ in range(2):
            file.seek(0)
            with pytest.raises(errors.DigestMismatchError):
                file.read()
        assert not file.is_verified


def test_replaced_bytes_are_withheld_by_the_digest_check(
    js: jsync.JetStream, files: jsync.ObjectStore
) -> None:
    files.put("a", noise(5000), chunk_size=1000)
    replace_chunk(js, files, "a", b"x" * 1000)
    with files.open("a") as file:
        assert file.read(4000) == noise(5000)[:4000]
        with pytest.raises(errors.DigestMismatchError):
            file.read(1)


@pytest.mark.parametrize("which", [0, 2, 4])
def test_a_missing_chunk_is_noticed_wherever_one_reads(
    js: jsync.JetStream, files: jsync.ObjectStore, which: int
) -> None:
    info = files.put("a", noise(5000), chunk_size=1000)
    first = info.revision - info.chunks
    js.stream(f"OBJ_{files.bucket}").delete_message(first + which)
    with pytest.raises(errors.ObjectIncompleteError, match="'a'"):
        files.get("a")
    for at in (0, 1500, 4999):
        with files.open("a") as file:
            file.seek(at)
            with pytest.raises(errors.ObjectIncompleteError):
                file.read()
    assert files.check().incomplete == ["a"]


def test_objects_of_an_unknown_digest_are_read_unverified(
    js: jsync.JetStream, files: jsync.ObjectStore
) -> None:
    info = files.put("a", b"12345")
    meta = js.get_message(f"OBJ_{files.bucket}", info.revision)
    other = meta.data.replace(b"SHA-256=", b"MD5=")
    js.publish(meta.subject, other, headers={"Nats-Rollup": "sub"})
    with files.open("a") as file:
        assert file.read() == b"12345"
        assert not file.is_verified


@pytest.mark.parametrize(
    "data", [b"", b"{}", b"7", b'{"name":"a"}', b'{"name":"a","nuid":"n","size":-1}']
)
def test_the_error_names_an_invalid_object_info(
    js: jsync.JetStream, files: jsync.ObjectStore, data: bytes
) -> None:
    files.put("a", b"1")
    files.put("b", b"2")
    meta = js.get_message(f"OBJ_{files.bucket}", files.info("a").revision)
    js.publish(meta.subject, data, headers={"Nats-Rollup": "sub"})
    for call in (lambda: files.get("a"), lambda: files.info("a")):
        with pytest.raises(errors.InvalidObjectInfoError):
            call()
    assert [info.name for info in files.list()] == ["b"]
    assert files.check().unreadable == ["a"]
    assert files.get("b") == b"2"


def test_a_full_store_takes_nothing_and_keeps_everything(
    js: jsync.JetStream, unique: str
) -> None:
    files = js.create_object_store(bucket=unique, max_bytes=MIB, storage="memory")
    files.put("a", noise(200_000))
    with pytest.raises(errors.StreamStoreError):
        files.put("b", noise(2 * MIB))
    with pytest.raises(errors.StreamStoreError):
        files.put("a", noise(2 * MIB))
    assert files.get("a") == noise(200_000)
    assert len(chunks_of(js, files)) == 1
    files.put("b", noise(200_000, 2))
    js.delete_object_store(unique)


def test_a_server_without_room_takes_no_more(own_server: StartServer) -> None:
    config = "jetstream { max_memory_store: 1MB, max_file_store: 1MB }"
    with jsync.connect(own_server(config=config).url) as nc:
        js = nc.jetstream()
        files = js.create_object_store(bucket="FILES")
        with pytest.raises(errors.InsufficientResourcesError):
            files.put("a", noise(2 * MIB))
        assert chunks_of(js, files) == {}
        files.put("a", noise(100_000))


# Infos --------------------------------------------------------------------------------


def test_an_object_replaced_meanwhile_is_listed_once(files: jsync.ObjectStore) -> None:
    # More than a listing prefetches, with the last ones of the listing replaced.
    names = [f"{number:04}" for number in range(1500)]
    for name in names:
        files.put(name, b"")
    listing = files.list()
    found = [next(listing).name]
    for name in (names[0], *names[-20:], "new"):
        files.put(name, b"1")
    found += [info.name for info in listing]
    assert sorted(name for name in found if name != "new") == names


def test_an_object_put_again_meanwhile_is_listed(files: jsync.ObjectStore) -> None:
    # A server that lags sends the deletion first, and then the info of the new object.
    names = [f"{number:04}" for number in range(1500)]
    files.put("again", b"")
    files.delete("again")
    for name in names:
        files.put(name, b"")
    listing = files.list()
    found = [next(listing).name]
    for name in ("again", *names[-20:]):  # the listing ends behind the last of them
        files.put(name, b"1")
    found += [info.name for info in listing]
    assert sorted(found) == [*names, "again"]


def test_objects_are_listed_with_deleted_ones_on_request(
    files: jsync.ObjectStore,
) -> None:
    for name in ("c", "a", "b"):
        files.put(name, name.encode())
    files.delete("a")
    assert [info.name for info in files.list()] == ["c", "b"]
    every = list(files.list(include_deleted=True))
    assert [(info.name, info.deleted) for info in every] == [
        ("c", False),
        ("b", False),
        ("a", True),
    ]


def test_a_deleted_object_is_gone_with_its_chunks(
    js: jsync.JetStream, files: jsync.ObjectStore
) -> None:
    files.put("a", b"1")
    gone = files.delete("a")
    assert (gone.deleted, gone.size, gone.chunks, gone.digest) == (True, 0, 0, None)
    assert chunks_of(js, files) == {}
    for call in (
        lambda: files.get("a"),
        lambda: files.info("a"),
        lambda: files.open("a"),
        lambda: files.update_meta("a", description="words"),
    ):
        with pytest.raises(errors.ObjectDeletedError):
            call()
    assert files.info("a", include_deleted=True).deleted
    assert files.delete("a").revision == gone.revision  # nothing was changed
    assert files.put("a", b"2").nuid != gone.nuid
    assert files.get("a") == b"2"


def test_description_headers_and_metadata_change_one_by_one(
    files: jsync.ObjectStore,
) -> None:
    put = files.put("a", b"1", description="words", metadata={"a": "1"})
    files.update_meta("a", headers={"One": "1"})
    info = files.update_meta("a", description=None)
    assert (info.description, info.metadata) == (None, {"a": "1"})
    assert files.info("a").headers == {"One": "1"}
    assert (info.nuid, info.digest, info.chunk_size) == (
        put.nuid,
        put.digest,
        put.chunk_size,
    )
    assert files.get("a") == b"1"


def test_an_object_is_renamed_and_keeps_its_bytes(
    js: jsync.JetStream, files: jsync.ObjectStore
) -> None:
    data = noise(5000)
    put = files.put("a", data, chunk_size=1000)
    files.put("b", b"2")
    with pytest.raises(errors.ObjectExistsError):
        files.update_meta("a", new_name="b")
    files.delete("b")
    files.update_meta("a", new_name="b")
    assert [info.name for info in files.list(include_deleted=True)] == ["b"]
    assert files.get("b") == data
    assert chunks_of(js, files) == {put.nuid: 5}
    with files.open("b") as file:
        file.seek(3500)
        assert file.read() == data[3500:]
    files.delete("b")
    assert chunks_of(js, files) == {}


# Links --------------------------------------------------------------------------------


def test_a_link_leads_to_objects_of_any_store(
    js: jsync.JetStream, files: jsync.ObjectStore, unique: str
) -> None:
    other = js.create_object_store(bucket=f"{unique}x", storage="memory")
    files.put("a", b"1")
    link = files.add_link("link", "a")
    assert link.link == jsync.ObjectLink(bucket=files.bucket, name="a")
    other.add_link("there", files.info("a"))
    assert files.get("link") == other.get("there") == b"1"
    with other.open("there") as file:
        assert (file.read(), file.info.bucket) == (b"1", files.bucket)
    assert files.info("link").is_link
    files.put("a", b"2")
    assert files.get("link") == b"2"
    assert files.delete("link").deleted
    assert files.get("a") == b"2"
    js.delete_object_store(other.bucket)


def test_a_link_leads_to_a_store(js: jsync.JetStream, files: jsync.ObjectStore) -> None:
    link = files.add_bucket_link("link", files)
    assert link.link == jsync.ObjectLink(bucket=files.bucket)
    with pytest.raises(errors.LinkError, match="object_store"):
        files.get("link")
    with pytest.raises(errors.BucketNotFoundError):
        files.add_bucket_link("other", "nobody")


def test_links_to_links_or_deleted_objects_are_rejected(
    files: jsync.ObjectStore,
) -> None:
    files.put("a", b"1")
    files.put("b", b"2")
    gone = files.delete("b")
    link = files.add_link("link", "a")
    for target in (link, gone):
        with pytest.raises(errors.LinkError):
            files.add_link("other", target)
    with pytest.raises(errors.ObjectExistsError):
        files.add_link("a", "a")
    with pytest.raises(errors.ObjectExistsError):
        files.add_bucket_link("a", files)
    files.add_link("b", "a")  # the name of the deleted object
    files.add_bucket_link("link", files)  # a link that replaces a link
    assert files.get("b") == b"1"
    for bad in (7, None):
        with pytest.raises(errors.ConfigError):
            files.add_link("c", bad)  # type: ignore[arg-type]


def test_links_in_a_circle_lead_nowhere(files: jsync.ObjectStore) -> None:
    files.put("a", b"1")
    files.add_link("link", "a")
    files.delete("a")
    other = files.put("b", b"1")
    files.add_link("a", other)
    files.delete("b")
    info = files.info("link")
    files.add_link(
        "b",
        jsync.ObjectInfo(
            name="a", bucket=files.bucket, nuid="n", modified=info.modified
        ),
    )
    with pytest.raises(errors.LinkError, match="no object"):
        files.get("link")


def test_a_put_over_a_link_replaces_the_link(
    js: jsync.JetStream, files: jsync.ObjectStore
) -> None:
    files.put("a", b"1")
    files.add_link("link", "a")
    files.put("link", b"2")
    assert (files.get("link"), files.get("a")) == (b"2", b"1")
    assert len(chunks_of(js, files)) == 2


# Watching -----------------------------------------------------------------------------


def test_a_watch_gives_existing_objects_then_each_change(
    files: jsync.ObjectStore,
) -> None:
    files.put("a", b"1")
    files.put("b", b"2")
    with files.watch() as watch:
        assert [info.name for info in watch.initial()] == ["a", "b"]
        files.put("c", b"3", description="words")
        files.delete("a")
        third, gone = watch.next(LONG), watch.next(LONG)
    assert (third.name, third.size, third.description) == ("c", 1, "words")
    assert (gone.name, gone.deleted) == ("a", True)
    assert watch.closed


def test_leaving_the_connection_block_handles_all_received_objects(
    server: LocalServer, files: jsync.ObjectStore
) -> None:
    names = [f"o{number}" for number in range(20)]
    for name in names:
        files.put(name, b"1")
    handled: list[str] = []

    def callback(info: jsync.ObjectInfo) -> None:
        time.sleep(0.005)
        handled.append(info.name)

    with jsync.connect(server.url) as other:
        watch = other.jetstream().object_store(files.bucket).watch(callback=callback)
        wait_for(lambda: len(handled) + len(watch._changes._mailbox) >= 19)
    assert handled == names
    assert watch.wait(0)


def test_a_callback_watch_can_omit_the_initial_objects(
    files: jsync.ObjectStore,
) -> None:
    files.put("a", b"1")
    seen: list[str] = []
    with files.watch(
        updates_only=True, ignore_deletes=True, callback=lambda i: seen.append(i.name)
    ) as watch:
        files.delete("a")
        files.put("b", b"2")
        with files.watch() as other:
            list(other.initial())
        while "b" not in seen:
            assert not watch.wait(0.01)
    assert seen == ["b"]
