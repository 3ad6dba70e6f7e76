"""Tests of stores as a file system, with fsspec and with libraries that read Parquet by it."""

from __future__ import annotations

import contextlib
import multiprocessing
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

import jsync
from jsync import errors
from jsync.integrations.fsspec import JetStreamFileSystem

from ....support.connections import refusing_url
from ....support.servers import wait_for
from ....support.threads import LONG
from .support import chunks_of, noise

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from jsync.server import LocalServer

    from ....conftest import StartServer
    from ....support.proxy import FaultProxy


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


def test_a_closed_file_system_connects_again(
    own_server: StartServer,
) -> None:
    server = own_server()
    fs = fsspec.filesystem(
        "jetstream",
        servers=server.url,
        max_reconnects=1,
        reconnect_wait=0.01,
        skip_instance_cache=True,
    )
    fs.jetstream.create_object_store(bucket="o").put("a", b"1")
    lost = fs.connection
    server.kill()
    wait_for(lambda: lost.is_closed)
    server.start()
    assert fs.cat("o/a") == b"1"
    fs.close()


def test_closing_an_unused_file_system_connects_nowhere() -> None:
    fs = fsspec.filesystem(
        "jetstream", servers=refusing_url(), skip_instance_cache=True
    )
    fs.close()


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


def test_a_second_writer_is_not_overwritten(
    fs: JetStreamFileSystem, files: jsync.ObjectStore, tmp_path: Path
) -> None:
    path, local = f"{files.bucket}/a", tmp_path / "local"
    local.write_bytes(b"new")
    file = fs.open(path, "xb")
    file.write(b"new")
    files.put("a", b"other")
    with pytest.raises(FileExistsError):
        file.close()
    calls: list[Callable[[], object]] = [
        lambda: fs.pipe_file(path, b"new", mode="create"),
        lambda: fs.put_file(local, path, mode="create"),
    ]
    for call in calls:
        with pytest.raises(FileExistsError):
            call()
    fs.touch(path, truncate=False)
    assert files.get("a") == b"other"
    fs.put_file(local, f"{files.bucket}/b", mode="create")
    assert files.get("b") == b"new"


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


def test_a_move_replaces_another_object_never_deleting_it(
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


def test_moving_a_link_onto_its_object_keeps_bytes(
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
    fs.get(f"{files.bucket}/all/", f"{tmp_path}/again/", recursive=True)
    for number in range(3):
        for target in ("out", "again"):
            path = tmp_path / target / f"{number}"
            assert path.read_bytes() == noise(200_000, number)


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


@pytest.mark.parametrize("look", [1, 2])
def test_no_late_object_is_deleted_with_its_store(
    fs: JetStreamFileSystem,
    files: jsync.ObjectStore,
    monkeypatch: pytest.MonkeyPatch,
    look: int,
) -> None:
    root, listed = files.bucket, files.list
    outcomes: list[object] = []

    def list_then_put(self: jsync.ObjectStore) -> Iterator[jsync.ObjectInfo]:
        """Let another client put an object after a look has found nothing."""
        yield from listed()
        outcomes.append(None)
        if len(outcomes) == look:
            try:
                files.put("late", b"1")
            except errors.Error as error:
                outcomes[-1] = type(error)

    monkeypatch.setattr(jsync.ObjectStore, "list", list_then_put)
    if look == 1:
        with pytest.raises(OSError, match="not empty"):
            fs.rmdir(root)
        assert files.get("late") == b"1"
        files.put("later", b"1")
    else:
        fs.rmdir(root)
        assert outcomes == [None, errors.StreamStoreError]


def test_a_link_has_the_size_of_its_object(
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


# Names that are no paths --------------------------------------------------------------

NAMES = [
    *("a", "a/b", "dir/x y.csv", "dir/ünï.csv", "dir/a#1", "dir/q?x", "dir/p%20q"),
    *("dir/a[1].csv", "dir/a1.csv", "dir//double", "dir/trail/", "/lead", "//two"),
    *("dir/star*", "dir/col:on", "dir/back\\slash", "dir/new\nline", "..", "dir/../up"),
    *("dir/.hidden", "deep/er/x", "deep/er//x", "deep/er/./x", "../../out"),
]


@pytest.fixture
def named(files: jsync.ObjectStore) -> jsync.ObjectStore:
    """A store with objects of many names. The bytes of each are its name."""
    for name in NAMES:
        files.put(name, name.encode())
    return files


def test_no_name_is_left_out_of_a_listing(
    fs: JetStreamFileSystem, named: jsync.ObjectStore
) -> None:
    root = named.bucket
    paths = sorted(f"{root}/{name}" for name in NAMES)
    assert fs.find(root) == paths
    assert fs.du(root) == sum(len(name.encode()) for name in NAMES)
    assert fs.du(root, total=False)[f"{root}//lead"] == 5
    walked = [f"{top}/{name}" for top, _, inner in fs.walk(root) for name in inner]
    assert sorted(walked) == paths
    assert fs.find(f"{root}/dir", maxdepth=1) == [
        path for path in paths if path.startswith(f"{root}/dir/") and "/../" not in path
    ]
    names = ["..", "..", "//two", "/lead", "a", "a", "deep", "dir"]
    assert fs.ls(root, detail=False) == sorted(f"{root}/{name}" for name in names)
    for path in paths:
        assert fs.cat_file(path) == path.removeprefix(f"{root}/").encode()
        assert fs.isfile(path)
        assert fs.exists(path)


def test_a_removed_directory_leaves_nothing(
    fs: JetStreamFileSystem, js: jsync.JetStream, named: jsync.ObjectStore
) -> None:
    root = named.bucket
    fs.rm(f"{root}/dir", recursive=True)
    left = [name for name in NAMES if not name.startswith("dir/")]
    assert sorted(info.name for info in named.list()) == sorted(left)
    fs.rm(root, recursive=True)
    assert not list(named.list())
    assert chunks_of(js, named) == {}
    assert fs.exists(root)


def test_a_name_with_wildcards_finds_exactly_its_object(
    fs: JetStreamFileSystem, named: jsync.ObjectStore, tmp_path: Path
) -> None:
    path = f"{named.bucket}/dir/a[1].csv"
    fs.get(path, str(tmp_path / "out.csv"))
    assert (tmp_path / "out.csv").read_bytes() == b"dir/a[1].csv"
    fs.cp(path, f"{named.bucket}/copy")
    assert named.get("copy") == b"dir/a[1].csv"
    fs.rm(path)
    fs.rm(f"{named.bucket}/dir/star*")
    left = {info.name for info in named.list()}
    assert set(NAMES) - left == {"dir/a[1].csv", "dir/star*"}
    fs.rm(f"{named.bucket}/dir/a?.csv")
    assert "dir/a1.csv" not in {info.name for info in named.list()}


def test_an_object_never_becomes_a_file_elsewhere(
    fs: JetStreamFileSystem, named: jsync.ObjectStore, tmp_path: Path
) -> None:
    target = tmp_path / "one" / "two"
    target.mkdir(parents=True)
    (target / "dir").mkdir()
    with pytest.raises(ValueError, match="not written") as raised:
        fs.get(named.bucket, f"{target}/", recursive=True)
    assert "/../../out'" in str(raised.value)
    written = {
        str(path.relative_to(tmp_path)): path.read_text()
        for path in tmp_path.rglob("*")
        if path.is_file()
    }
    odd = ("//", "./", "..", "trail/", "/lead", "/two")
    good = [name for name in NAMES if not any(part in name for part in odd)]
    # A file cannot have the name of a directory.
    assert written == {f"one/two/{name}": name for name in good if name != "a/b"}


def test_all_stores_at_once_are_not_removed(
    fs: JetStreamFileSystem, named: jsync.ObjectStore
) -> None:
    for path in ("", "jetstream://", [""], ["/"]):
        with pytest.raises(ValueError, match="all stores"):
            fs.rm(path, recursive=True)
    assert len(list(named.list())) == len(NAMES)


def test_a_walk_leaves_out_pruned_directories(
    fs: JetStreamFileSystem, named: jsync.ObjectStore
) -> None:
    seen = []
    for top, directories, _ in fs.walk(named.bucket):
        seen.append(top)
        directories[:] = [name for name in directories if name != "dir"]
    assert f"{named.bucket}/deep/er" in seen
    assert not [top for top in seen if "dir" in top]
    tops = [top for top, _, _ in fs.walk(named.bucket, topdown=False)]
    assert tops[-1] == named.bucket
    assert [top for top, _, _ in fs.walk(named.bucket, maxdepth=1)] == [named.bucket]


@pytest.mark.parametrize(
    "act",
    [
        lambda fs, root: fs.find(root),
        lambda fs, root: fs.du(root),
        lambda fs, root: list(fs.walk(root)),
        lambda fs, root: fs.glob(f"{root}/**"),
        lambda fs, root: fs.expand_path(root, recursive=True),
    ],
    ids=["find", "du", "walk", "glob", "expand"],
)
def test_many_directories_are_listed_at_once(
    fs: JetStreamFileSystem,
    nc: jsync.Connection,
    files: jsync.ObjectStore,
    act: Callable[[JetStreamFileSystem, str], object],
) -> None:
    for number in range(30):
        files.put(f"{number}/{number}/file", b"1")
    fs.find(files.bucket)
    with nc.subscribe(f"$JS.API.CONSUMER.CREATE.OBJ_{files.bucket}.>") as asked:
        nc.flush()
        act(fs, files.bucket)
        nc.flush()
        asked.drain()
        assert 1 <= len(list(asked)) <= 2


# Beside others ------------------------------------------------------------------------


def test_a_forked_child_has_its_own_connection(
    fs: JetStreamFileSystem, files: jsync.ObjectStore
) -> None:
    files.put("a", noise(300_000))
    path = f"{files.bucket}/a"
    assert fs.cat_file(path) == noise(300_000)
    context = multiprocessing.get_context("fork")
    with jsync.shared._lock:  # as if another thread were about to connect
        pool = context.Pool(2)
    try:
        assert pool.map(fs.cat_file, [path] * 4) == [noise(300_000)] * 4
        assert pool.apply(_in_a_grandchild, (fs, path)) == noise(300_000)
    finally:
        pool.close()
        pool.join()
    assert fs.cat_file(path) == noise(300_000)


def _in_a_grandchild(fs: JetStreamFileSystem, path: str) -> bytes:
    fs.cat_file(path)
    multiprocessing.current_process()._config["daemon"] = False  # type: ignore[attr-defined]
    with multiprocessing.get_context("fork").Pool(1) as pool:
        found: bytes = pool.apply(fs.cat_file, (path,))
    return found


def test_an_object_replaced_during_its_move_is_kept(
    fs: JetStreamFileSystem,
    files: jsync.ObjectStore,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    files.put("a", b"old")
    files.put("b", b"there")
    copy = JetStreamFileSystem._copy
    late = [b"new"]

    def copied(self: JetStreamFileSystem, *args: Any) -> Any:
        info = copy(self, *args)
        if late:
            files.put("a", late.pop())
        return info

    monkeypatch.setattr(JetStreamFileSystem, "_copy", copied)
    fs.mv(f"{files.bucket}/a", f"{files.bucket}/b")
    assert files.get("b") == b"new"
    assert fs.find(files.bucket) == [f"{files.bucket}/b"]


def test_an_object_put_into_a_moved_directory_stays(
    fs: JetStreamFileSystem,
    files: jsync.ObjectStore,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    root = files.bucket
    files.put("dir/a", b"1")
    move = JetStreamFileSystem._move

    def moved(self: JetStreamFileSystem, *args: Any) -> None:
        move(self, *args)
        files.put("dir/late", b"2")

    monkeypatch.setattr(JetStreamFileSystem, "_move", moved)
    fs.mv(f"{root}/dir", f"{root}/other", recursive=True)
    assert fs.find(root) == [f"{root}/dir/late", f"{root}/other/a"]
    with pytest.raises(IsADirectoryError):
        fs.mv(f"{root}/dir", f"{root}/new")


def test_a_silent_server_makes_no_object_missing(
    proxy: FaultProxy, files: jsync.ObjectStore
) -> None:
    fs = fsspec.filesystem(
        "jetstream", servers=proxy.url, timeout=0.2, skip_instance_cache=True
    )
    files.put("a", b"1")
    with contextlib.closing(fs):
        assert fs.exists(f"{files.bucket}/a")
        proxy.deaf()
        for call in (fs.exists, fs.isfile, fs.isdir, fs.find, fs.touch):
            with pytest.raises(errors.TimeoutError):
                call(f"{files.bucket}/a")
        with pytest.raises(errors.TimeoutError):
            fs.open(f"{files.bucket}/a", "xb")
        proxy.hear()


def test_a_store_that_another_created_exists(
    fs: JetStreamFileSystem,
    js: jsync.JetStream,
    unique: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def names(
        _js: jsync.JetStream,
    ) -> list[str]:  # another client creates it after this look
        js.create_object_store(bucket=unique, ttl=60)
        return []

    monkeypatch.setattr(jsync.JetStream, "object_store_names", names)
    fs.makedirs(unique, exist_ok=True)
    with pytest.raises(FileExistsError):
        fs.mkdir(unique)
    monkeypatch.undo()
    assert js.object_store(unique).status().ttl == 60
    js.delete_object_store(unique)


def test_uploads_and_bad_records_make_a_store_nonempty(
    fs: JetStreamFileSystem, js: jsync.JetStream, files: jsync.ObjectStore
) -> None:
    root = files.bucket
    js.publish(f"$O.{root}.M.YQ==", b"{")
    with pytest.raises(OSError, match="not empty"):
        fs.rmdir(root)
    assert fs.exists(f"{root}/a")
    with pytest.raises(errors.InvalidObjectInfoError):
        fs.open(f"{root}/a")
    fs.rm(f"{root}/a", recursive=True)
    assert not fs.exists(f"{root}/a")
    js.publish(f"$O.{root}.C.UPLOAD", b"chunk")
    with pytest.raises(OSError, match="not empty"):
        fs.rmdir(root)
    files.check(older_than=0)
    fs.rmdir(root)
    assert root not in js.object_store_names()


def test_links_count_as_files_even_without_an_object(
    fs: JetStreamFileSystem, files: jsync.ObjectStore
) -> None:
    root = files.bucket
    files.put("a", b"12345")
    files.add_link("one", "a")
    files.put("gone", b"1")
    files.add_link("nowhere", "gone")
    files.delete("gone")
    files.add_bucket_link("store", files)
    sizes = fs.du(root, total=False)
    assert [sizes[f"{root}/{name}"] for name in ("a", "one", "nowhere")] == [5, 5, 0]
    assert fs.info(f"{root}/one")["size"] == 5
    assert (fs.exists(f"{root}/nowhere"), fs.lexists(f"{root}/nowhere")) == (
        False,
        True,
    )
    with pytest.raises(FileNotFoundError):
        fs.open(f"{root}/nowhere")
    with pytest.raises(OSError, match="link to the store"):
        fs.open(f"{root}/store")
    fs.rm(root, recursive=True)
    assert fs.find(root) == []
