"""Tests of `jsync object` against a real server."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from jsync.jetstream.objects.engine import encode_name

from ..server.jetstream.objects.support import noise
from ..support.threads import Thread

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from jsync import JetStream, ObjectStore

    from .support import Jsync

pytestmark = pytest.mark.server


@pytest.fixture
def files(js: JetStream, unique: str) -> Iterator[ObjectStore]:
    yield js.create_or_update_object_store(bucket=unique, storage="memory")
    if unique in js.object_store_names():
        js.delete_object_store(unique)


def test_a_store_is_created_shown_and_deleted(
    jsync: Jsync, js: JetStream, unique: str
) -> None:
    made = jsync(
        *("object", "add", unique, "--description", "words", "--ttl", "1h"),
        *("--max-bytes", "1MB", "--storage", "memory", "--metadata", "a=b", "--json"),
    )
    assert made.json["store"] == unique
    status = js.object_store(unique).status()
    assert (status.description, status.ttl, status.storage) == ("words", 3600, "memory")
    assert (status.config.max_bytes, status.metadata) == (1 << 20, {"a": "b"})
    assert [unique, "words", "0", "no"] in jsync("object", "ls").rows
    assert unique in jsync("obj", "ls", "-n").lines
    assert ["ttl", "3600.0"] in jsync("object", "info", unique).rows
    assert jsync("object", "rm", unique).code == 2
    assert jsync("object", "rm", unique, "--force").code == 0
    assert jsync("object", "info", unique).code == 3


def test_files_are_put_got_and_deleted(
    jsync: Jsync, files: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store = files.bucket
    (tmp_path / "in.bin").write_bytes(noise(500_000))
    put = jsync(
        *("object", "put", store, "in.bin", "--name", "dir/in.bin", "--json"),
        *("--header", "One:1", "--header", "One:2", "--metadata", "owner=me"),
        *("--description", "words", "--chunk-size", "64k"),
    )
    assert (put.json["size"], put.json["chunks"]) == (500_000, 8)
    info = files.info("dir/in.bin")
    assert info.headers.get_all("One") == ["1", "2"]
    assert (info.metadata, info.description) == ({"owner": "me"}, "words")
    assert jsync("object", "ls", store).rows[0][:2] == ["dir/in.bin", "500000"]
    assert jsync("object", "ls", store, "-n").lines == ["dir/in.bin"]
    shown = dict(jsync("object", "info", store, "dir/in.bin").rows)
    assert shown["size"] == "500000"
    assert jsync("object", "get", store, "dir/in.bin").code == 2  # in.bin exists
    got = jsync("object", "get", store, "dir/in.bin", "-O", "out.bin")
    assert "500,000 bytes" in got.output
    assert (tmp_path / "out.bin").read_bytes() == noise(500_000)
    assert jsync("object", "get", store, "dir/in.bin", "--force").code == 0
    assert jsync("object", "del", store, "dir/in.bin", "--force").code == 0
    assert jsync("object", "get", store, "dir/in.bin").code == 3
    assert jsync("object", "put", store, "nobody").code == 1


def test_objects_go_through_pipes(jsync: Jsync, files: ObjectStore) -> None:
    assert jsync("object", "put", files.bucket, "-", stdin=b"1").code == 2
    put = jsync("object", "put", files.bucket, "-", "--name", "a", stdin=b"words\n")
    assert put.code == 0, put.errors
    assert jsync("object", "get", files.bucket, "a", "-O", "-").output == "words\n"


def test_no_object_name_leads_out_of_the_directory(
    jsync: Jsync, files: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    monkeypatch.chdir(inner)
    files.put("../up", b"1")
    files.put("a/..", b"2")
    files.put("\x1b[31mred", b"3")
    assert jsync("object", "get", files.bucket, "../up").code == 0
    assert (inner / "up").read_bytes() == b"1"
    assert not (tmp_path / "up").exists()
    assert jsync("object", "get", files.bucket, "a/..").code == 2
    assert "\x1b" not in jsync("object", "ls", files.bucket).output


def test_changes_are_watched(jsync: Jsync, files: ObjectStore) -> None:
    files.put("a", b"12345")
    files.put("b", b"1")
    files.delete("b")
    seen = jsync("object", "watch", files.bucket, "--count", "2")
    assert [line.split("  ")[1:] for line in seen.lines] == [
        ["a", "5 bytes"],
        ["b", "deleted"],
    ]
    watching = Thread(
        jsync, "object", "watch", files.bucket, "--new", "--count", "1", "--json"
    )
    while not watching.ended:
        files.put("c", b"1")
    assert watching.result().documents[0]["name"] == "c"


def test_objects_with_unreadable_info_are_named_and_deleted(
    jsync: Jsync, js: JetStream, files: ObjectStore
) -> None:
    files.put("a", b"1")
    files.put("\x1b[31mb", b"2")
    js.publish(f"$O.{files.bucket}.M.{encode_name('bad')}", b'{"name":"\x1b[31m')
    listed = jsync("object", "ls", files.bucket, "--names")
    assert listed.lines == ["a", "\\u001b[31mb"]
    assert "'bad'" in listed.errors
    assert "\x1b[31m" not in listed.errors
    check = ("object", "check", files.bucket)
    assert jsync(*check, "--json").json["unreadable"] == ["bad"]
    assert ["unreadable infos", "bad"] in jsync(*check).rows
    assert jsync("object", "info", files.bucket, "bad").code == 1
    assert jsync("object", "rm", files.bucket, "bad", "-f").code == 0
    assert jsync(*check, "--json").json["unreadable"] == []
    assert files.get("a") == b"1"


def test_a_store_is_checked_and_sealed(
    jsync: Jsync, js: JetStream, files: ObjectStore
) -> None:
    files.put("a", b"1")
    js.publish(f"$O.{files.bucket}.C.LOST", b"chunk")
    young = jsync("object", "check", files.bucket, "--json").json
    assert (young["orphans"], young["uploads"]) == ({}, {"LOST": 1})
    old = ("object", "check", files.bucket, "--older-than", "0s")
    assert jsync(*old, "--dry-run", "--json").json["orphans"] == {"LOST": 1}
    assert jsync(*old).rows[0][0].startswith("former")
    assert jsync(*old, "--json").json["orphans"] == {}
    assert jsync("object", "seal", files.bucket).code == 2
    assert jsync("object", "seal", files.bucket, "-f", "--json").json["sealed"]
    assert files.status().is_sealed
