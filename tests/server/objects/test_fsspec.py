"""Tests of stores as a file system, with fsspec and with libraries that read Parquet by it."""

from __future__ import annotations

import contextlib
import pickle
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import duckdb
import fsspec
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from jsync.integrations.fsspec import JetStreamFileSystem

from ..support import LONG
from .support import chunks_of, noise

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import jsync
    from jsync.server import LocalServer


@pytest.fixture
def fs(server: LocalServer) -> Iterator[JetStreamFileSystem]:
    fs = fsspec.filesystem("jetstream", servers=server.url, skip_instance_cache=True)
    yield fs
    fs.close()


@pytest.fixture
def storage(server: LocalServer) -> Iterator[dict[str, str]]:
    """Options for other libraries to reach the server."""
    options = {"servers": server.url}
    yield options
    fsspec.filesystem("jetstream", **options).close()
    JetStreamFileSystem.clear_instance_cache()


def test_fsspec_finds_the_protocol(fs: JetStreamFileSystem) -> None:
    assert isinstance(fs, JetStreamFileSystem)
    assert fsspec.get_filesystem_class("jetstream") is JetStreamFileSystem


def test_files_are_written_read_and_found(
    fs: JetStreamFileSystem, files: jsync.ObjectStore, storage: dict[str, str]
) -> None:
    root = files.bucket
    with fs.open(f"jetstream://{root}/dir/a.txt", "w") as file:
        file.write("words\n")
    with fs.open(f"{root}/dir/a.txt") as file:
        assert file.read() == b"words\n"
    url = f"jetstream://{root}/dir/b.gz"
    with fsspec.open(url, "wb", compression="gzip", **storage) as file:
        file.write(b"packed")
    with fsspec.open(url, compression="gzip", **storage) as file:
        assert file.read() == b"packed"
    fs.pipe_file(f"{root}/c", b"0123456789")
    assert fs.cat_file(f"{root}/c", start=2, end=-2) == b"234567"
    assert fs.cat([f"{root}/c", f"{root}/dir/a.txt"]) == {
        f"{root}/c": b"0123456789",
        f"{root}/dir/a.txt": b"words\n",
    }
    assert fs.ls(root, detail=False) == [f"{root}/c", f"{root}/dir"]
    assert fs.find(root) == [f"{root}/c", f"{root}/dir/a.txt", f"{root}/dir/b.gz"]
    assert fs.glob(f"{root}/**/*.txt") == [f"{root}/dir/a.txt"]
    assert fs.size(f"{root}/c") == 10
    assert (fs.isfile(f"{root}/c"), fs.isdir(f"{root}/dir")) == (True, True)
    assert fs.isdir(root)
    assert not fs.exists(f"{root}/nobody")
    assert f"{root}" in fs.ls("", detail=False)
    assert fs.du(root) == sum(info.size for info in files.list())
    assert datetime.now(UTC) - fs.modified(f"{root}/c") < timedelta(minutes=5)
    assert fs.ukey(f"{root}/c") == files.info("c").nuid


def test_a_missing_path_is_not_found(
    fs: JetStreamFileSystem, files: jsync.ObjectStore
) -> None:
    root = files.bucket
    calls: list[Callable[[], object]] = [
        *(lambda: fs.open(f"{root}/a"), lambda: fs.info(f"{root}/a")),
        *(lambda: fs.ls(f"{root}/a"), lambda: fs.rm_file(f"{root}/a")),
        *(lambda: fs.cat_file(f"{root}/a"), lambda: fs.open("no.store/a")),
        *(lambda: fs.ls("nobody"), lambda: fs.pipe_file("nobody/a", b"")),
    ]
    for call in calls:
        with pytest.raises(FileNotFoundError):
            call()
    with pytest.raises(IsADirectoryError):
        fs.open(root)
    with pytest.raises(NotImplementedError, match="mode"):
        fs.open(f"{root}/a", "ab")
    with pytest.raises(NotImplementedError, match="transactions"):
        with fs.transaction:
            fs.open(f"{root}/a", "wb")
    files.put("a", b"1")
    with pytest.raises(FileExistsError):
        fs.open(f"{root}/a", "xb")


def test_files_are_copied_moved_and_removed(
    fs: JetStreamFileSystem, js: jsync.JetStream, files: jsync.ObjectStore
) -> None:
    root = files.bucket
    files.put("a", noise(300_000), metadata={"owner": "me"})
    fs.cp_file(f"{root}/a", f"{root}/b")
    assert files.info("b").metadata == {"owner": "me"}
    nuid = files.info("b").nuid
    fs.mv(f"{root}/b", f"{root}/c")
    assert (files.info("c").nuid, files.get("c")) == (nuid, noise(300_000))
    fs.mkdirs(f"{root}/x/y", exist_ok=True)
    fs.cp_file(f"{root}/c", f"{root}/x/y/z")
    fs.rm(f"{root}/x", recursive=True)
    fs.rm(f"{root}/c")
    assert fs.find(root) == [f"{root}/a"]
    fs.touch(f"{root}/empty")
    assert fs.size(f"{root}/empty") == 0
    assert len(chunks_of(js, files)) == 1


def test_a_move_onto_another_object_replaces_it_and_never_deletes_it(
    fs: JetStreamFileSystem, js: jsync.JetStream, files: jsync.ObjectStore
) -> None:
    root = files.bucket
    files.put("a", noise(300_000), metadata={"owner": "me"})
    files.put("b", b"former")
    with files.watch(updates_only=True) as changes:
        fs.mv(f"{root}/a", f"{root}/b")
        seen = [changes.next(LONG) for _ in range(2)]
    assert [(info.name, info.deleted) for info in seen] == [("b", False), ("a", True)]
    assert files.get("b") == noise(300_000)
    assert files.info("b").metadata == {"owner": "me"}
    assert fs.find(root) == [f"{root}/b"]
    assert len(chunks_of(js, files)) == 1


def test_a_move_of_a_link_onto_its_object_keeps_the_bytes(
    fs: JetStreamFileSystem, files: jsync.ObjectStore
) -> None:
    root = files.bucket
    files.put("a", b"precious")
    files.add_link("link", files.info("a"))
    fs.mv(f"{root}/link", f"{root}/a")
    assert fs.find(root) == [f"{root}/a"]
    assert files.get("a") == b"precious"


def test_files_go_to_and_from_this_machine(
    fs: JetStreamFileSystem, files: jsync.ObjectStore, tmp_path: Path
) -> None:
    source = tmp_path / "in"
    source.mkdir()
    for number in range(3):
        (source / f"{number}").write_bytes(noise(200_000, number))
    fs.put(str(source), f"{files.bucket}/all", recursive=True)
    fs.get(f"{files.bucket}/all", str(tmp_path / "out"), recursive=True)
    for number in range(3):
        assert (tmp_path / "out" / f"{number}").read_bytes() == noise(200_000, number)


def test_stores_are_made_and_removed(
    fs: JetStreamFileSystem, js: jsync.JetStream, unique: str
) -> None:
    fs.mkdir(unique, storage="memory")
    with pytest.raises(FileExistsError):
        fs.mkdir(unique)
    fs.makedirs(unique, exist_ok=True)
    fs.pipe_file(f"{unique}/a", b"1")
    with pytest.raises(OSError, match="not empty"):
        fs.rmdir(unique)
    fs.rm_file(f"{unique}/a")
    fs.rmdir(unique)
    assert unique not in js.object_store_names()


def test_a_link_is_a_file_as_large_as_its_object(
    fs: JetStreamFileSystem, files: jsync.ObjectStore
) -> None:
    files.put("a", b"12345")
    files.add_link("link", "a")
    assert fs.info(f"{files.bucket}/link")["size"] == 5
    assert fs.cat_file(f"{files.bucket}/link") == b"12345"


def test_an_unpickled_file_system_connects_again(
    fs: JetStreamFileSystem, files: jsync.ObjectStore
) -> None:
    files.put("a", b"1")
    assert fs.cat_file(f"{files.bucket}/a") == b"1"
    with contextlib.closing(pickle.loads(pickle.dumps(fs))) as copy:
        assert copy.cat_file(f"{files.bucket}/a") == b"1"


# Parquet ------------------------------------------------------------------------------

ROWS = 20_000


def table() -> Any:
    return pa.table({"n": range(ROWS), "text": [f"{n}" for n in range(ROWS)]})


def test_pandas_reads_and_writes_parquet(
    files: jsync.ObjectStore, storage: dict[str, str]
) -> None:
    frame = table().to_pandas()
    url = f"jetstream://{files.bucket}/pandas.parquet"
    frame.to_parquet(url, storage_options=storage)
    read = pd.read_parquet(url, storage_options=storage, columns=["n"])
    assert read["n"].sum() == frame["n"].sum()
    url = f"jetstream://{files.bucket}/pandas.csv"
    frame.to_csv(url, storage_options=storage, index=False)
    assert len(pd.read_csv(url, storage_options=storage)) == ROWS


def test_polars_reads_and_writes_parquet(
    fs: JetStreamFileSystem, files: jsync.ObjectStore
) -> None:
    frame = pl.DataFrame({"n": range(ROWS), "text": [f"{n}" for n in range(ROWS)]})
    path = f"{files.bucket}/polars.parquet"
    with fs.open(path, "wb") as file:
        frame.write_parquet(file)
    with fs.open(path) as source:
        assert pl.read_parquet(source).equals(frame)
    read = pl.scan_pyarrow_dataset(ds.dataset(path, filesystem=fs))
    assert read.filter(pl.col("n") == 77).collect()["text"].to_list() == ["77"]


def test_pyarrow_reads_and_writes_parquet(
    fs: JetStreamFileSystem, files: jsync.ObjectStore
) -> None:
    path = f"{files.bucket}/arrow.parquet"
    pq.write_table(table(), path, filesystem=fs, row_group_size=1000)
    assert pq.read_table(path, filesystem=fs) == table()
    found = pq.read_table(path, filesystem=fs, filters=[("n", ">=", ROWS - 10)])
    assert found.num_rows == 10
    ds.write_dataset(table(), f"{files.bucket}/set", filesystem=fs, format="parquet")
    assert ds.dataset(f"{files.bucket}/set", filesystem=fs).count_rows() == ROWS


def test_duckdb_reads_and_writes_parquet(
    fs: JetStreamFileSystem, files: jsync.ObjectStore
) -> None:
    url = f"jetstream://{files.bucket}/duck.parquet"
    with duckdb.connect() as db:
        db.register_filesystem(fs)
        db.execute(f"copy (select range as n from range({ROWS})) to '{url}'")
        found = db.execute(f"select sum(n) from '{url}' where n < 100").fetchone()
    assert found == (4950,)
    with fs.open(f"{files.bucket}/duck.parquet") as source:
        assert pq.read_table(source).num_rows == ROWS
