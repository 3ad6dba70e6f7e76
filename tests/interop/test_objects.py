"""Tests that jsync, nats-py and nats.go share object stores."""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import subprocess
from typing import TYPE_CHECKING, Any

import nats
import pytest

import jsync
from jsync import errors

from .go_program import GoClient, nats_command
from .test_key_value import theirs

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from jsync.server import LocalServer

    from ..conftest import StartServer

pytestmark = pytest.mark.server

NAMES = ["a", "a/b c.txt", "ä€", "*.>", "x" * 300]
SIZES = [0, 1, 128 << 10, (128 << 10) + 1, 700_000]

CONFIGS: dict[str, dict[str, Any]] = {
    "bare": {},
    "description": {"description": "of the tests"},
    "ttl": {"ttl": 3600},
    "max bytes": {"max_bytes": 1 << 20},
    "no limits": {"max_bytes": -1},
    "memory": {"storage": "memory"},
    "file": {"storage": "file"},
    "replicas": {"replicas": 3},
    "placement": {"placement": {"cluster": "clstr", "tags": ["a", "b"]}},
    "compression": {"compression": True},
    "metadata": {"metadata": {"owner": "infra"}},
}


def noise(size: int) -> bytes:
    return random.Random(size).randbytes(size)


@pytest.fixture(scope="module")
def go(server: LocalServer) -> Iterator[GoClient]:
    with GoClient(server.url) as client:
        yield client


@pytest.fixture
def files(nc: jsync.Connection, unique: str) -> Iterator[jsync.ObjectStore]:
    js = nc.jetstream()
    yield js.create_object_store(bucket=unique, storage="memory")
    js.delete_object_store(unique)


def as_go_has_it(fields: dict[str, Any]) -> dict[str, Any]:
    names = {"replicas": "num_replicas", "ttl": "max_age"}
    return {
        names.get(name, name): int(value * 1e9) if name == "ttl" else value
        for name, value in fields.items()
    }


def as_go_says_it(info: jsync.ObjectInfo) -> dict[str, Any]:
    """Return an object info in the form in which the Go program reports its own."""
    return {
        "name": info.name,
        "bucket": info.bucket,
        "nuid": info.nuid,
        "size": info.size,
        "chunks": info.chunks,
        "digest": info.digest or "",
        "deleted": info.deleted,
        "description": info.description or "",
        "headers": {name: info.headers.get_all(name) for name in info.headers} or None,
        "metadata": info.metadata or None,
        "chunk_size": info.chunk_size or 0,
        "link_bucket": info.link.bucket if info.link else "",
        "link_name": (info.link.name or "") if info.link else "",
        "modified": round(info.modified.timestamp() * 1e6),
    }


@pytest.mark.parametrize("name", CONFIGS)
def test_stores_are_the_same_streams_in_nats_go(
    own_server: StartServer, name: str
) -> None:
    server, fields = own_server(), {"bucket": "B", **CONFIGS[name]}
    with jsync.connect(server.url) as nc, GoClient(server.url) as go:
        asked = nc.subscribe("$JS.API.STREAM.CREATE.*")
        nc.flush()
        go.ask("create_store", store=as_go_has_it(fields))
        go_asked = json.loads(asked.next().data)
        # The server may reject the request. The test compares only the request.
        with contextlib.suppress(errors.BucketNotFoundError):
            nc.jetstream().delete_object_store("B")
        with contextlib.suppress(errors.APIError):
            nc.jetstream().create_object_store(**fields)
        assert json.loads(asked.next().data) == go_asked


def test_nats_go_reads_our_objects(go: GoClient, files: jsync.ObjectStore) -> None:
    for name, size in zip(NAMES, SIZES, strict=True):
        files.put(
            name,
            noise(size),
            description="words",
            headers={"One": "1", "Two": ["2", "3"]},
            metadata={"owner": "me"},
        )
        got = go.ask("get_object", bucket=files.bucket, key=name)
        assert "error" not in got, got["error"]
        assert got["value"] == noise(size)
        assert got["objects"] == [as_go_says_it(files.info(name))]
    files.put("chunks", noise(12_345), chunk_size=100)
    assert go.ask("get_object", bucket=files.bucket, key="chunks")["value"] == noise(
        12_345
    )
    files.add_link("link", "a/b c.txt")
    assert go.ask("get_object", bucket=files.bucket, key="link")["value"] == noise(1)
    files.add_bucket_link("store", files)
    files.delete("ä€")
    files.update_meta("*.>", new_name="renamed", description=None)
    listed = go.ask("objects", bucket=files.bucket)["objects"]
    assert listed == [as_go_says_it(i) for i in files.list(include_deleted=True)]
    assert "renamed" in [info["name"] for info in listed]
    assert "not found" in go.ask("get_object", bucket=files.bucket, key="ä€")["error"]


def test_we_read_objects_of_nats_go(
    nc: jsync.Connection, go: GoClient, unique: str
) -> None:
    js = nc.jetstream()
    assert "error" not in go.ask(
        "create_store", store={"bucket": unique, "storage": "memory"}
    )
    files = js.object_store(unique)
    # the same configuration changes nothing
    js.create_object_store(bucket=unique, storage="memory")
    words = {
        "description": "words",
        "headers": {"One": ["1"], "Two": ["2", "3"]},
        "metadata": {"owner": "me"},
    }
    for name, size in zip(NAMES, SIZES, strict=True):
        made = {"name": name, "chunk_size": 1000, **words}
        put = go.ask("put_object", bucket=unique, object=made, value=noise(size))
        assert "error" not in put, put["error"]
        assert files.get(name) == noise(size)
        info = files.info(name)
        assert {**as_go_says_it(info), "modified": 0} == {
            **put["objects"][0],
            "modified": 0,
        }
        with files.open(name) as file:
            file.seek(size // 2)
            assert file.read() == noise(size)[size // 2 :]
    go.ask("link_object", bucket=unique, key="a/b c.txt", object={"name": "link"})
    assert files.get("link") == noise(1)
    go.ask("link_store", bucket=unique, object={"name": "store"})
    assert files.info("store").link == jsync.ObjectLink(bucket=unique)
    go.ask("rename_object", bucket=unique, key="*.>", object={"name": "renamed"})
    assert files.get("renamed") == noise(SIZES[3])
    go.ask("delete_object", bucket=unique, key="ä€")
    with pytest.raises(errors.ObjectDeletedError):
        files.get("ä€")
    listed = go.ask("objects", bucket=unique)["objects"]
    assert listed == [as_go_says_it(i) for i in files.list(include_deleted=True)]
    found = files.check(older_than=0)
    assert not any((found.orphans, found.incomplete, found.renamed))
    go.ask("seal_store", bucket=unique)
    assert files.status().is_sealed
    js.delete_object_store(unique)


def test_each_puts_over_the_objects_of_the_other(
    nc: jsync.Connection, go: GoClient, files: jsync.ObjectStore
) -> None:
    for turn in range(4):
        data = noise(5000 + turn)
        if turn % 2:
            go.ask("put_object", bucket=files.bucket, object={"name": "a"}, value=data)
        else:
            files.put("a", data)
        assert files.get("a") == data
        assert go.ask("get_object", bucket=files.bucket, key="a")["value"] == data
    found = files.check(older_than=0)
    assert (found.orphans, found.incomplete) == ({}, [])
    files.delete("a")
    go.ask("put_object", bucket=files.bucket, object={"name": "a"}, value=b"again")
    assert files.get("a") == b"again"


def test_nats_py_reads_our_objects(
    server: LocalServer, files: jsync.ObjectStore
) -> None:
    for name, size in zip(NAMES, SIZES, strict=True):
        files.put(name, noise(size), headers={"One": "1"}, description="words")
    files.add_link("link", "a/b c.txt")
    files.put("gone", b"1")
    files.delete("gone")

    async def read(js: Any) -> Any:
        store = await js.object_store(files.bucket)
        got = {name: await store.get(name) for name in [*NAMES, "link"]}
        return got, await store.list()

    got, listed = theirs(server, read)
    for name, size in zip(NAMES, SIZES, strict=True):
        assert (got[name].data or b"") == noise(size)
        assert got[name].info.digest == files.info(name).digest
    assert got["link"].data == noise(1)
    # This option of nats-py lists deleted objects, too.
    every = files.list(include_deleted=True)
    assert {info.name for info in listed} == {info.name for info in every}


def test_we_read_objects_of_nats_py(
    server: LocalServer, nc: jsync.Connection, unique: str
) -> None:
    async def write(js: Any) -> None:
        store = await js.create_object_store(bucket=unique)
        for name, size in zip(NAMES, SIZES, strict=True):
            meta = nats.js.api.ObjectMeta(description="words", headers={"One": ["1"]})
            await store.put(name, io.BytesIO(noise(size)), meta=meta)
        await store.put("gone", b"1")
        await store.delete("gone")
        await store.put("former", b"12345")
        # nats-py rejects every rename, so this is an update with the same name.
        meta = nats.js.api.ObjectMeta(name="former", description="other")
        await store.update_meta("former", meta)

    theirs(server, write)
    files = nc.jetstream().object_store(unique)
    for name, size in zip(NAMES, SIZES, strict=True):
        assert files.get(name) == noise(size)
        assert files.info(name).description == "words"
        with files.open(name) as file:
            file.seek(size // 2)
            assert file.read() == noise(size)[size // 2 :]
    assert files.get("former") == b"12345"
    assert files.info("former").description == "other"
    with pytest.raises(errors.ObjectDeletedError):
        files.get("gone")
    found = files.check(older_than=0)
    assert (found.orphans, found.incomplete) == ({}, [])
    nc.jetstream().delete_object_store(unique)


def test_nats_py_configuration_is_taken_as_it_is(
    nc: jsync.Connection, unique: str
) -> None:
    config = nats.js.api.ObjectStoreConfig(bucket=unique, description="words", ttl=60)
    status = nc.jetstream().create_object_store(config).status()
    assert (status.description, status.ttl) == ("words", 60)
    nc.jetstream().delete_object_store(unique)


def nats_command_says(server: LocalServer, *words: str) -> str:
    """Return the output of `nats object ...`."""
    ran = subprocess.run(
        [nats_command(), "--server", server.url, "object", *words],
        env={**os.environ, "HOME": str(nats_command().parent)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


@pytest.mark.bulk
def test_the_nats_command_reads_our_objects(
    server: LocalServer, files: jsync.ObjectStore, tmp_path: Path
) -> None:
    files.put("dir/a.bin", noise(700_000), description="words", headers={"One": "1"})
    target = tmp_path / "out"
    name = files.bucket
    nats_command_says(
        *(server, "get", name, "dir/a.bin", "--output", str(target), "--force"),
        "--no-progress",
    )
    assert target.read_bytes() == noise(700_000)
    assert "dir/a.bin" in nats_command_says(server, "ls", name)
    assert "words" in nats_command_says(server, "info", name, "dir/a.bin")
    nats_command_says(server, "del", name, "dir/a.bin", "--force")
    with pytest.raises(errors.ObjectDeletedError):
        files.get("dir/a.bin")


@pytest.mark.bulk
def test_we_read_objects_of_the_nats_command(
    server: LocalServer, nc: jsync.Connection, unique: str, tmp_path: Path
) -> None:
    source = tmp_path / "in"
    source.write_bytes(noise(700_000))
    nats_command_says(server, "add", unique, "--storage", "memory")
    nats_command_says(
        *(server, "put", unique, str(source), "--name", "a/b", "--no-progress"),
        *("--description", "words", "--force"),
    )
    files = nc.jetstream().object_store(unique)
    assert files.get("a/b") == noise(700_000)
    assert files.info("a/b").description == "words"
    with files.open("a/b") as file:
        file.seek(650_000)
        assert file.read() == noise(700_000)[650_000:]
    files.put("ours", b"1")
    nats_command_says(server, "seal", unique, "--force")
    assert files.status().is_sealed
    nc.jetstream().delete_object_store(unique)
