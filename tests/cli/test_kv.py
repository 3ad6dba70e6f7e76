"""Tests of `jsync kv` against a real server."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from jsync import errors

from ..support.servers import wait_for
from ..support.threads import Thread
from .support import Jsync

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import jsync as package
    from jsync.server import LocalServer

    from ..conftest import StartServer

pytestmark = pytest.mark.server

BYTES = bytes(range(256))


@pytest.fixture
def kv(js: package.JetStream, unique: str) -> Iterator[package.KeyValue]:
    yield js.create_key_value(
        bucket=unique, history=5, storage="memory", limit_marker_ttl=60
    )
    with contextlib.suppress(errors.BucketNotFoundError):
        js.delete_key_value(unique)


# Buckets ------------------------------------------------------------------------------


def test_options_of_nats_kv_add_create_a_bucket(
    jsync: Jsync, js: package.JetStream, unique: str
) -> None:
    ended = jsync(
        *("kv", "new", unique, "--history", "7", "--ttl", "1h", "--marker-ttl", "30m"),
        *("--replicas", "1", "--max-value-size", "64k", "--max-bucket-size", "1MB"),
        *("--description", "words", "--storage", "m", "--compress"),
        *("--republish-source", ">", "--republish-destination", f"{unique}.copy.>"),
        *("--republish-headers", "--metadata", "team=a"),
    )
    assert ended.code == 0, ended.errors
    config = js.key_value(unique).status().config
    assert (config.history, config.ttl, config.limit_marker_ttl) == (7, 3600, 1800)
    assert (config.max_value_size, config.max_bytes) == (65536, 1 << 20)
    assert (config.description, config.storage) == ("words", "memory")
    assert (config.compression, config.metadata) == (True, {"team": "a"})
    assert config.republish is not None
    assert (config.republish.dest, config.republish.headers_only) == (
        f"{unique}.copy.>",
        True,
    )
    again = jsync("kv", "add", unique, "--history", "3")
    assert again.code == 1
    assert "exists" in again.errors or "in use" in again.errors
    js.delete_key_value(unique)


def test_mirrors_and_buckets_with_sources_are_created(
    jsync: Jsync, js: package.JetStream, kv: package.KeyValue
) -> None:
    name = kv.bucket
    kv.put("a", b"1")
    for option in ("--mirror", "--source"):
        other = f"{name}{option[2]}"
        created = jsync("kv", "add", other, option, name, "--storage", "memory")
        assert created.code == 0, created.errors
        wait_for(lambda other=other: list(js.key_value(other).keys()) == ["a"])  # type: ignore[misc]
    ended = jsync("kv", "put", f"{name}m", "a", "2")
    assert (ended.code, "is a mirror" in ended.errors) == (1, True), ended.errors
    promoted = jsync("kv", "edit", f"{name}m", "--no-mirror", "--force")
    assert promoted.code == 0, promoted.errors
    assert jsync("kv", "put", f"{name}m", "b", "2").code == 0
    for option in ("m", "s"):
        js.delete_key_value(f"{name}{option}")
    lone = jsync("kv", "add", "X", "--mirror-domain", "hub")
    assert (lone.code, "needs --mirror" in lone.errors) == (2, True), lone.errors


def test_buckets_are_listed_as_table_json_and_names(
    jsync: Jsync, kv: package.KeyValue
) -> None:
    kv.put("a", b"1")
    (row,) = [row for row in jsync("kv", "ls").rows if row[0] == kv.bucket]
    assert (row[2], row[4]) == ("1", "5")
    assert kv.bucket in jsync("kv", "list", "-n").lines
    assert kv.bucket in jsync("kv", "ls", "--names", "--json").json
    (found,) = [
        each for each in jsync("kv", "ls", "-j").json if each["bucket"] == kv.bucket
    ]
    assert (found["values"], found["keys"], found["config"]["history"]) == (1, 1, 5)


def test_a_bucket_is_created_from_info_of_another(
    jsync: Jsync, js: package.JetStream, kv: package.KeyValue, tmp_path: Path
) -> None:
    path, name = tmp_path / "config.json", f"{kv.bucket}C"
    path.write_text(jsync("kv", "info", kv.bucket, "--json").output)
    wrong = jsync("kv", "add", name, "--config", str(path))
    assert (wrong.code, "configures" in wrong.errors) == (2, True), wrong.errors
    document = json.loads(path.read_text())["config"]
    path.write_text(json.dumps({**document, "bucket": name}))
    created = jsync("kv", "add", "--config", str(path), "--history", "9")
    assert created.code == 0, created.errors
    config = js.key_value(name).status().config
    assert (config.history, config.limit_marker_ttl, config.storage) == (
        9,
        60,
        "memory",
    )
    js.delete_key_value(name)
    assert "give a BUCKET" in jsync("kv", "add").errors


def test_edit_changes_named_fields_and_shows_the_result(
    jsync: Jsync, js: package.JetStream, kv: package.KeyValue
) -> None:
    name = kv.bucket
    js.update_stream(name=f"KV_{name}", max_msgs=1000)  # not a setting of a bucket
    dry = jsync("kv", "edit", name, "--history", "9", "--dry-run", "--json")
    assert dry.json == {"history": {"from": 5, "to": 9}}
    unforced = jsync("kv", "edit", name, "--history", "9")
    assert (unforced.code, "--force" in unforced.errors) == (2, True)
    assert kv.status().history == 5
    done = jsync("kv", "edit", name, "--history", "9", "--metadata", "a=1", "-f")
    assert done.code == 0, done.errors
    assert "history: 5 -> 9" in done.errors
    config = kv.status().config
    assert (config.history, config.metadata) == (9, {"a": "1"})
    unset = jsync("kv", "edit", name, "--unset", "metadata", "-f")
    assert unset.code == 0, unset.errors
    status = kv.status()
    assert (status.metadata, status.history) == ({}, 9)
    assert status.stream_info.config.max_msgs == 1000


def test_a_bucket_is_shown_and_deleted(
    jsync: Jsync, js: package.JetStream, kv: package.KeyValue
) -> None:
    kv.put("a", b"1")
    kv.put("a", b"2")
    facts = dict(line.split("\t") for line in jsync("kv", "status", kv.bucket).lines)
    assert (facts["values"], facts["keys"], facts["last_revision"]) == ("2", "1", "2")
    assert (facts["limit_marker_ttl"], facts["history"]) == ("1m", "5")
    assert jsync("kv", "rm", kv.bucket).code == 2, "nobody was asked"
    assert jsync("kv", "rm", kv.bucket, "--force", "-j").json == {"deleted": kv.bucket}
    for command in (["info"], ["ls"], ["get"], ["watch"], ["rm", "--force"], ["put"]):
        key = ["a"] if command[0] in ("get", "put") else []
        ended = jsync("kv", *command, kv.bucket, *key)
        assert (ended.code, ended.output) == (3, "")
        assert "no such bucket" in ended.errors


# Values -------------------------------------------------------------------------------


def test_values_come_from_arguments_files_or_standard_input(
    jsync: Jsync, kv: package.KeyValue, tmp_path: Path
) -> None:
    path = tmp_path / "value"
    path.write_bytes(BYTES)
    name = kv.bucket
    assert jsync("kv", "put", name, "a", "grün").output == (
        f"put a in bucket {name}, revision 1\n"
    )
    assert jsync("kv", "put", name, "b", "--file", str(path), "-j").json == {
        "bucket": name,
        "key": "b",
        "revision": 2,
    }
    assert jsync("kv", "put", name, "c", stdin=b"x\n" * 3).code == 0
    assert kv.get("a").value == "grün".encode()
    assert kv.get("b").value == BYTES
    assert kv.get("c").value == b"x\nx\nx\n"
    both = jsync("kv", "put", name, "a", "x", "--file", str(path))
    assert (both.code, "exclude each other" in both.errors) == (2, True)
    none = jsync("kv", "put", name, "a", "--file", str(tmp_path / "none"))
    assert none.code == 2
    bad = jsync("kv", "put", name, "a b", "x")
    assert (bad.code, "not a key" in bad.errors) == (2, True)
    assert kv.get("a").revision == 1


def test_raw_values_are_piped_byte_for_byte(
    server: LocalServer, kv: package.KeyValue, tmp_path: Path
) -> None:
    kv.put("a", BYTES)
    copy = tmp_path / "copy"
    command = [sys.executable, "-m", "jsync", "--server", server.url, "kv"]
    with copy.open("wb") as file:
        subprocess.run(
            [*command, "get", kv.bucket, "a", "--raw"], check=True, stdout=file
        )
    assert copy.read_bytes() == BYTES


def test_a_value_is_shown_with_its_revision(jsync: Jsync, kv: package.KeyValue) -> None:
    kv.put("a", b"one")
    kv.put("a", BYTES)
    head, text = jsync("kv", "get", kv.bucket, "a", "--revision", "1").lines[:2]
    assert head.startswith("#1 a PUT 20")
    assert text == "one"
    assert "256 bytes, not text" in jsync("kv", "get", kv.bucket, "a").output
    document = jsync("kv", "get", kv.bucket, "a", "--json").documents[0]
    assert (document["key"], document["revision"]) == ("a", 2)
    assert (document["operation"], "value" in document) == ("PUT", False)
    assert document["value_base64"].startswith("AAECAw")
    clash = jsync("kv", "get", kv.bucket, "a", "--raw", "--json")
    assert (clash.code, "exclude each other" in clash.errors) == (2, True)


def test_a_key_without_a_value_is_three(jsync: Jsync, kv: package.KeyValue) -> None:
    kv.put("a", b"1")
    kv.delete("a")
    for key, words in (("a", "key was deleted"), ("b", "no such key")):
        ended = jsync("kv", "get", kv.bucket, key)
        assert (ended.code, ended.output) == (3, "")
        assert words in ended.errors
    assert jsync("kv", "history", kv.bucket, "b").code == 3


def test_keys_are_created_once_and_updated_by_revision(
    jsync: Jsync, kv: package.KeyValue
) -> None:
    name = kv.bucket
    assert jsync("kv", "create", name, "a", "1", "--ttl", "1h").code == 0
    again = jsync("kv", "create", name, "a", "2")
    assert (again.code, "at revision 1" in again.errors) == (1, True), again.errors
    assert jsync("kv", "update", name, "a", "2", "1").code == 0
    late = jsync("kv", "update", name, "a", "3", "1")
    assert (late.code, "is at revision 2" in late.errors) == (1, True), late.errors
    assert jsync("kv", "update", name, "a", "--last", "2", stdin="3").code == 0
    assert kv.get("a").value == b"3"
    for wrong in (["a", "4"], ["a", "4", "3", "--last", "3"]):
        ended = jsync("kv", "update", name, *wrong)
        assert (ended.code, "--last" in ended.errors) == (2, True), ended.errors
    half = jsync("kv", "create", name, "b", "1", "--ttl", "500ms")
    assert (half.code, "whole seconds" in half.errors) == (2, True), half.errors


def test_a_key_is_deleted_purged_and_put_back(
    jsync: Jsync, kv: package.KeyValue
) -> None:
    name = kv.bucket
    for number in range(3):
        kv.put("a", b"%d" % number)
    for command in (["del"], ["purge"], ["revert"]):
        more = ["1"] if command == ["revert"] else []
        asked = jsync("kv", *command, name, "a", *more)
        assert (asked.code, "--force" in asked.errors) == (2, True), asked.errors
    assert kv.get("a").revision == 3
    assert jsync("kv", "delete", name, "a", "--last", "2", "-f").code == 1
    assert jsync("kv", "del", name, "a", "--last", "3", "-f", "-j").json == {
        "bucket": name,
        "key": "a",
        "revision": 4,
    }
    assert jsync("kv", "revert", name, "a", "1", "--force").code == 0
    assert kv.get("a").value == b"0"
    table = jsync("kv", "history", name, "a")
    assert [row[1:3] for row in table.rows] == [
        ["1", "PUT"],
        ["2", "PUT"],
        ["3", "PUT"],
        ["4", "DEL"],
        ["5", "PUT"],
    ]
    documents = jsync("kv", "history", name, "a", "--json").json
    assert [each.get("value") for each in documents] == ["0", "1", "2", None, "0"]
    assert jsync("kv", "purge", name, "a", "--ttl", "1h", "--force").code == 0
    assert len(kv.history("a")) == 1
    compact = jsync("kv", "compact", name, "--older-than", "0", "-f", "--json")
    assert compact.json == {"removed": 1}
    assert kv.status().values == 0


# Keys and watches ---------------------------------------------------------------------


def test_keys_are_listed_by_pattern_and_with_values(
    jsync: Jsync, kv: package.KeyValue
) -> None:
    for key in ("db.host", "db.port", "user"):
        kv.put(key, key.encode())
    kv.put("gone")
    kv.delete("gone")
    name = kv.bucket
    assert sorted(jsync("kv", "ls", name).lines) == ["db.host", "db.port", "user"]
    assert sorted(jsync("kv", "ls", name, "db.*", "-j").json) == ["db.host", "db.port"]
    assert jsync("kv", "ls", name, "db.port", "user").lines == ["db.port", "user"]
    rows = jsync("kv", "ls", name, "-v").rows
    assert [row[:3] for row in rows] == [
        ["db.host", "1", "PUT"],
        ["db.port", "2", "PUT"],
        ["user", "3", "PUT"],
    ]
    shown = jsync("kv", "ls", name, "user", "-v", "--display-value").rows
    assert shown[0][4:] == ["4", "user"]
    assert "value" not in jsync("kv", "ls", name, "user", "-v", "-j").json[0]
    bad = jsync("kv", "ls", name, "a b")
    assert (bad.code, "not a key or a pattern" in bad.errors) == (2, True)


def test_a_watch_writes_present_values_then_each_change(
    jsync: Jsync, kv: package.KeyValue
) -> None:
    kv.put("a", b"1")
    kv.put("a", b"2")
    kv.put("b", b"3")
    kv.delete("b")
    name = kv.bucket

    def revisions(*options: str) -> list[int]:
        ended = jsync("kv", "watch", name, *options, "--json")
        assert ended.code == 0, ended.errors
        return [each["revision"] for each in ended.documents]

    assert revisions("-T") == [2, 4]
    assert revisions("-T", "--no-deletes") == [2]
    assert revisions("-T", "--history") == [1, 2, 3, 4]
    assert revisions("-T", "--history", "--count", "3") == [1, 2, 3]
    assert revisions("-T", "--revision", "3") == [3, 4]
    assert revisions("a", "-T") == [2]
    assert revisions("--count", "2") == [2, 4]
    assert revisions("--wait", "100ms") == [2, 4]
    assert jsync("kv", "watch", name, "-T", "--raw").output == "2\n"
    bare = jsync("kv", "watch", name, "a", "-T", "--no-values", "-j").documents
    assert "value" not in bare[0]
    text = jsync("kv", "watch", name, "-T").output
    assert "#2 a PUT 20" in text
    assert "#4 b DEL 20" in text
    following = Thread(
        jsync, "kv", "watch", name, "--updates", "--count", "1", "--json"
    )
    wait_for(lambda: kv.status().stream_info.state.consumer_count == 1)
    kv.put("c", b"4")
    (document,) = following.result().documents
    assert (document["key"], document["value"]) == ("c", "4")
    clash = jsync("kv", "watch", name, "--history", "--updates")
    assert (clash.code, "exclude each other" in clash.errors) == (2, True)


def test_the_domain_option_applies_to_the_bucket(
    own_server: StartServer,
) -> None:
    there = Jsync(own_server(config="jetstream: {domain: hub}"))
    for options in (["--domain", "hub"], ["--js-api-prefix", "$JS.hub.API"]):
        created = there("kv", "add", "B", *options)
        assert created.code == 0, created.errors
        put = there("kv", "put", "B", "a", "1", *options)
        assert put.code == 0, put.errors
        assert there("kv", "get", "B", "a", "--raw", *options).output == "1"
        assert there("kv", "rm", "B", "-f", *options).code == 0
