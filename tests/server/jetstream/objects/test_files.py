"""Tests of objects as binary files that are read, sought and written, also by other libraries."""

from __future__ import annotations

import contextlib
import csv
import gc
import io
import pickle
import random
import tarfile
import zipfile
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

import jsync
from jsync import errors

from ....support.servers import wait_for
from ....support.threads import LONG, Thread
from .support import chunks_of, noise

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SIZE = 100_000
DATA = noise(SIZE)


@pytest.fixture
def reader(files: jsync.ObjectStore) -> jsync.ObjectReader:
    files.put("a", DATA, chunk_size=1000)
    return files.open("a")


# Reading ------------------------------------------------------------------------------


def test_a_reader_behaves_like_a_binary_file(
    reader: jsync.ObjectReader,
) -> None:
    assert (reader.name, reader.mode, reader.info.size) == ("a", "rb", SIZE)
    assert reader.readable()
    assert reader.seekable()
    assert not reader.writable()
    assert not reader.closed
    with pytest.raises(io.UnsupportedOperation):
        reader.write(b"")
    with pytest.raises(io.UnsupportedOperation):
        reader.fileno()


@pytest.mark.parametrize("size", [1, 7, 999, 1000, 1001, 3500, SIZE, SIZE + 1])
def test_parts_of_any_size_are_read_and_verified(
    reader: jsync.ObjectReader, size: int
) -> None:
    parts = list(iter(lambda: reader.read(size), b""))
    assert all(len(part) == size for part in parts[:-1])
    assert b"".join(parts) == DATA
    assert reader.is_verified
    assert reader.tell() == SIZE
    assert reader.read() == reader.read(7) == reader.read1() == b""


def test_all_the_ways_to_read_give_the_same(reader: jsync.ObjectReader) -> None:
    buffer = bytearray(2500)
    assert reader.read(0) == reader.read1(0) == b""
    assert reader.readinto(buffer) == 2500
    assert buffer == DATA[:2500]
    assert reader.peek(1)[:10] == DATA[2500:2510]
    assert reader.tell() == 2500
    some = reader.read1(SIZE)
    assert 0 < len(some) <= 1000
    at = reader.tell()
    assert some == DATA[2500:at]
    got = reader.readinto1(memoryview(buffer))
    assert buffer[:got] == DATA[at : at + got]
    assert reader.read() == DATA[at + got :]
    assert reader.readinto(buffer) == reader.readinto1(buffer) == 0
    assert reader.peek() == b""
    assert reader.is_verified


def test_a_reader_seeks_to_any_position(reader: jsync.ObjectReader) -> None:
    python = io.BytesIO(DATA)
    moves = [
        *((5000, 0), (-1, 2), (0, 0), (99_999, 0), (-1500, 2), (10, 1), (-20, 1)),
        *((SIZE, 0), (SIZE + 7, 0), (-7, 1), (1, 0), (50_500, 0), (49_499, 0)),
    ]
    for offset, whence in moves:
        assert reader.seek(offset, whence) == python.seek(offset, whence)
        assert reader.tell() == python.tell()
        assert reader.read(1500) == python.read(1500)
    for offset, whence in [(-1, 0), (-SIZE - 1, 2), (0, 3)]:
        with pytest.raises(ValueError, match="to"):
            reader.seek(offset, whence)


def test_an_unchecked_digest_is_not_reported_as_verified(
    reader: jsync.ObjectReader,
) -> None:
    reader.seek(2000)
    assert reader.read() == DATA[2000:]
    assert not reader.is_verified
    reader.seek(0)
    reader.read()
    assert reader.is_verified


def test_lines_are_read(files: jsync.ObjectStore) -> None:
    lines = [b"line %d\n" % n for n in range(3000)]
    files.put("a", iter(lines), chunk_size=100)
    with files.open("a") as file:
        assert list(file) == lines
    with files.open("a") as file, io.TextIOWrapper(file, encoding="ascii") as text:
        assert next(csv.reader(text)) == ["line 0"]


def test_a_closed_file_is_not_read(reader: jsync.ObjectReader) -> None:
    reader.close()
    reader.close()
    calls: list[Callable[[], object]] = [
        *(reader.read, reader.tell, reader.peek, reader.readable, reader.seekable),
        *(lambda: reader.seek(0), lambda: reader.readinto(bytearray(1))),
    ]
    for call in calls:
        with pytest.raises(ValueError, match="closed"):
            call()


def test_many_threads_share_a_reader(reader: jsync.ObjectReader) -> None:
    with ThreadPoolExecutor(4) as pool:
        parts = list(pool.map(lambda _: reader.read(500), range(SIZE // 500)))
    assert sorted(parts) == sorted(DATA[at : at + 500] for at in range(0, SIZE, 500))


def test_a_replaced_objects_reader_raises_its_error(
    js: jsync.JetStream, files: jsync.ObjectStore
) -> None:
    # These are more bytes than one request reads ahead.
    data = noise(3 << 20)
    files.put("a", data)
    with files.open("a") as file:
        assert file.read(1000) == data[:1000]
        files.put("a", b"other")
        with pytest.raises(errors.ObjectChangedError, match="open it again"):
            file.read()
    with files.open("a") as file:
        assert file.read() == b"other"


def test_get_reads_the_object_replacing_the_first(
    files: jsync.ObjectStore,
) -> None:
    files.put("a", noise(20 << 20))

    def progress(done: int, total: int | None) -> None:
        if done < 1 << 20:
            files.put("a", b"other")

    assert files.get("a", progress=progress) == b"other"


def test_reading_leaves_no_consumer_on_the_server(
    js: jsync.JetStream, files: jsync.ObjectStore, reader: jsync.ObjectReader
) -> None:
    reader.read(1)
    files.get("a")
    assert list(js.consumer_names(f"OBJ_{files.bucket}")) == []


def test_stores_without_direct_gets_use_a_consumer(
    js: jsync.JetStream, files: jsync.ObjectStore, reader: jsync.ObjectReader
) -> None:
    js.update_stream(name=f"OBJ_{files.bucket}", allow_direct=False)
    for store in (files, js.object_store(files.bucket)):
        assert store.get("a") == DATA
        with store.open("a") as file:
            file.seek(-1500, io.SEEK_END)
            assert file.read() == DATA[-1500:]
            file.seek(500)
            assert file.read(1000) == DATA[500:1500]
    wait_for(lambda: not list(js.consumer_names(f"OBJ_{files.bucket}")))


@contextlib.contextmanager
def lagging_mirror(
    js: jsync.JetStream, files: jsync.ObjectStore, messages: int
) -> Iterator[None]:
    """A mirror that answers direct gets, too, and cannot store more than some messages.

    So it shows for long what a mirror that lags shows for a moment.
    """
    store = js.stream(f"OBJ_{files.bucket}")
    last = store.info().state.last_seq
    mirror = js.create_stream(
        name=f"{files.bucket}FAR",
        mirror={"name": store.name},
        max_msgs=messages,
        discard="new",
        allow_direct=True,
        mirror_direct=True,
    )
    try:
        # A mirror answers once it has caught up.
        wait_for(lambda: store.get_message(last).stream == mirror.name)
        yield
    finally:
        mirror.delete()


def test_a_mirror_that_lags_shifts_no_bytes(
    js: jsync.JetStream, files: jsync.ObjectStore
) -> None:
    gaps, parts = random.Random(1), [noise(100, number) for number in range(40)]
    files.put("first", b"")
    with (
        lagging_mirror(js, files, 100),
        files.open("other", "wb", chunk_size=100) as other,
        files.open("a", "wb", chunk_size=100) as file,
    ):
        for part in parts:
            other.write(bytes(100) * gaps.randrange(6))
            file.write(part)
        file.close()
        for number in [*range(40)] * 5:
            with files.open("a") as reader:
                reader.seek(number * 100)
                assert reader.read(100) == parts[number]


def test_a_mirror_that_lags_deletes_no_object(
    js: jsync.JetStream, files: jsync.ObjectStore
) -> None:
    files.put("a", b"")
    files.delete("a")
    with lagging_mirror(js, files, 1):
        files.put("a", b"new")
        assert [files.get("a") for _ in range(20)] == [b"new"] * 20


def test_chunks_of_any_sizes_are_read_and_sought(
    js: jsync.JetStream, files: jsync.ObjectStore
) -> None:
    # A client can write these sizes if it states no size, or a wrong one.
    sizes = [100, 1, 999, 500, 7]
    data = noise(sum(sizes))
    info = files.put("a", data, chunk_size=1000)
    stream, prefix = f"OBJ_{files.bucket}", f"$O.{files.bucket}."
    js.stream(stream).purge(subject=f"{prefix}C.{info.nuid}")
    at = 0
    for size in sizes:
        js.publish(f"{prefix}C.{info.nuid}", data[at : at + size])
        at += size
    meta = js.get_message(stream, info.revision)
    options = [
        b'"options":{"max_chunk_size":1000}',
        b'"options":{"max_chunk_size":400}',
    ]
    for other in (b'"options":{}', options[1]):
        text = meta.data.replace(options[0], other).replace(
            b'"chunks":2', b'"chunks":5'
        )
        js.publish(meta.subject, text, headers={"Nats-Rollup": "sub"})
        assert files.get("a") == data
        with files.open("a") as file:
            for start in (1200, 100, 0, 1600, 99, 101):
                file.seek(start)
                assert file.read(300) == data[start : start + 300]


# Writing ------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 333, 1000, 2500, SIZE])
def test_written_bytes_become_the_object_at_the_close(
    js: jsync.JetStream, files: jsync.ObjectStore, size: int
) -> None:
    with files.open("a", "wb", chunk_size=1000, description="words") as file:
        assert (file.name, file.mode, file.info) == ("a", "wb", None)
        assert file.writable()
        for at in range(0, SIZE, size):
            part = DATA[at : at + size]
            assert file.write(part) == len(part)
            assert file.tell() == at + len(part)
        with pytest.raises(errors.ObjectNotFoundError):
            files.info("a")
    info = files.info("a")
    assert file.info is not None
    assert file.info.nuid == info.nuid
    assert (info.chunks, info.size, info.description) == (100, SIZE, "words")
    assert files.get("a") == DATA
    with pytest.raises(ValueError, match="closed"):
        file.write(b"")


def test_an_empty_file_is_an_object(files: jsync.ObjectStore) -> None:
    with files.open("a", "wb"):
        pass
    assert (files.info("a").size, files.get("a")) == (0, b"")


def test_a_write_block_that_raises_leaves_no_chunks(
    js: jsync.JetStream, files: jsync.ObjectStore
) -> None:
    file = files.open("a", "wb", chunk_size=1000)

    def write() -> None:
        with file:
            file.write(DATA)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write()
    assert file.closed
    assert chunks_of(js, files) == {}
    with pytest.raises(errors.ObjectNotFoundError):
        files.info("a")


def test_a_discarded_file_leaves_no_chunks(
    js: jsync.JetStream, files: jsync.ObjectStore
) -> None:
    file = files.open("a", "wb", chunk_size=1000)
    file.write(DATA)
    file.discard()
    file.discard()
    file.close()
    assert chunks_of(js, files) == {}
    assert not list(files.list())


def test_a_forgotten_file_leaves_no_chunks(
    js: jsync.JetStream, files: jsync.ObjectStore
) -> None:
    file = files.open("a", "wb", chunk_size=1000)
    file.write(DATA)
    del file
    gc.collect()
    wait_for(lambda: chunks_of(js, files) == {}, LONG)
    assert not list(files.list())


def test_options_of_writing_are_for_writing(files: jsync.ObjectStore) -> None:
    files.put("a", b"1")
    with pytest.raises(errors.ConfigError, match="wb"):
        files.open("a", "rb", description="words")  # type: ignore[call-overload]
    for mode in ("r", "w", "ab", "rb+", "", None):
        with pytest.raises(errors.ConfigError, match="mode"):
            files.open("a", mode)  # type: ignore[call-overload]


def test_files_are_neither_copied_nor_pickled(reader: jsync.ObjectReader) -> None:
    with pytest.raises(TypeError):
        pickle.dumps(reader)


# Other libraries ----------------------------------------------------------------------


def test_pythons_buffered_reader_works_over_a_reader(
    reader: jsync.ObjectReader,
) -> None:
    with io.BufferedReader(reader, 4096) as buffered:
        assert buffered.peek(1)[:1] == DATA[:1]
        assert buffered.read(12_345) == DATA[:12_345]
        buffered.seek(-10, io.SEEK_END)
        assert buffered.read() == DATA[-10:]


def test_archives_are_written_and_read(files: jsync.ObjectStore) -> None:
    with files.open("a.zip", "wb") as file, zipfile.ZipFile(file, "w") as archive:
        for number in range(20):
            archive.writestr(f"{number}", noise(5000, number))
    with files.open("a.zip") as source, zipfile.ZipFile(source) as archive:
        assert archive.testzip() is None
        assert archive.read("17") == noise(5000, 17)
    with (
        files.open("a.tar", "wb") as file,
        tarfile.open(fileobj=file, mode="w|") as tar,
    ):
        member = tarfile.TarInfo("one")
        member.size = SIZE
        tar.addfile(member, io.BytesIO(DATA))
    with files.open("a.tar") as source, tarfile.open(fileobj=source) as tar:
        inner: Any = tar.extractfile("one")
        assert inner.read() == DATA


def test_parquet_is_written_and_read(files: jsync.ObjectStore) -> None:
    table = pa.table(
        {"n": list(range(50_000)), "text": [f"{n}" for n in range(50_000)]}
    )
    with files.open("a.parquet", "wb") as file:
        pq.write_table(table, file, row_group_size=10_000)
    with files.open("a.parquet") as source:
        assert pq.read_table(source) == table
    with files.open("a.parquet") as source:
        parquet = pq.ParquetFile(source, pre_buffer=True)
        assert parquet.read_row_group(3, ["n"])["n"][0].as_py() == 30_000
    with files.open("a.parquet") as source:
        assert polars.read_parquet(source).to_arrow().num_rows == 50_000


def test_pictures_are_written_and_read(files: jsync.ObjectStore) -> None:
    picture = Image.frombytes("RGB", (200, 100), noise(60_000))
    with files.open("a.png", "wb") as file:
        picture.save(file, "PNG")
    with files.open("a.png") as source, Image.open(source) as read:
        assert read.tobytes() == picture.tobytes()


# Other threads ------------------------------------------------------------------------


def test_a_reader_ends_when_the_connection_is_closed(
    far: jsync.Connection, far_files: jsync.ObjectStore
) -> None:
    far_files.put("a", noise(3 << 20))
    file = far_files.open("a")
    file.read(1)
    thread = Thread(far.close)
    thread.result()
    with pytest.raises(errors.ConnectionClosedError):
        file.read()
    file.close()


def test_only_one_of_two_exclusive_writers_succeeds(files: jsync.ObjectStore) -> None:
    late, early = files.open("a", "xb"), files.open("a", "xb")
    assert late.mode == "xb"
    late.write(noise(300_000))
    early.write(b"first")
    early.close()
    with pytest.raises(errors.ObjectExistsError) as caught:
        late.close()
    assert isinstance(caught.value, FileExistsError)
    assert files.get("a") == b"first"
    assert not files.check(older_than=0).orphans
    with pytest.raises(errors.ObjectExistsError):
        files.open("a", "xb")
    files.delete("a")
    with files.open("a", "xb") as file:
        files.put("a", b"second")
        files.delete("a")
        file.write(b"third")
    assert files.get("a") == b"third"
    files.update_meta("a", new_name="b")
    with files.open("a", "xb") as file:
        file.write(b"fourth")
    assert (files.get("a"), files.get("b")) == (b"fourth", b"third")


def test_a_fresh_deletion_lets_an_exclusive_writer_pass(
    files: jsync.ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that is behind still has the object."""
    files.put("a", b"1")
    stale = files._objects.last_from_any_replica("a", 5.0)
    files.delete("a")
    monkeypatch.setattr(
        files._objects, "last_from_any_replica", lambda name, timeout: stale
    )
    with files.open("a", "xb") as file:
        file.write(b"2")
    assert files.get("a") == b"2"
