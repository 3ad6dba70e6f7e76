"""Tests of infos that other clients wrote, and of messages that are no infos.

One of them never hides another, and each of them can be replaced and deleted.
"""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

import jsync
from jsync import errors
from jsync.jetstream.objects.engine import encode_name, tokens_of

from ....support.servers import RawClient, wait_for
from ....support.threads import LONG
from .support import chunks_of, noise

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jsync.server import LocalServer

MISSING = object()
VALUES: dict[str, Any] = {
    "missing": MISSING,
    "null": None,
    "number": 7,
    "negative": -1,
    "float": 1.5,
    "huge": 10**30,
    "text": "text",
    "empty": "",
    "long": "a" * 10_000,
    "controls": "\x1b[31m\x00\r\n",
    "true": True,
    "false": False,
    "list": ["a", 1, None],
    "object": {"a": {"b": [1, None]}},
}
FIELDS = [
    *("name", "bucket", "nuid", "size", "chunks", "digest", "deleted", "mtime"),
    *("description", "headers", "metadata", "options", "renamed_to", "more"),
    *("options.link", "options.max_chunk_size"),
]
SPECIAL: dict[str, dict[str, Any]] = {
    "wildcard": {"nuid": ">"},
    "star": {"nuid": "*"},
    "tokens": {"nuid": "a.b"},
    "space": {"nuid": "a b"},
    "link without bucket": {"options": {"link": {"name": "good"}}},
    "link to a wildcard": {"options": {"link": {"bucket": ">", "name": "good"}}},
    "link to a number": {"options": {"link": {"bucket": 7, "name": "good"}}},
    "link to a long name": {"options": {"link": {"bucket": "B", "name": "a" * 9999}}},
    "link to no store": {"options": {"link": {"bucket": "nobody", "name": "a"}}},
    "renamed to itself": {"renamed_to": "renamed to itself"},
    "renamed to another": {"renamed_to": "good"},
    "renamed to nothing": {"renamed_to": "a" * 9999},
}
RAW: dict[str, bytes] = {
    "nothing": b"",
    "no object": b"[]",
    "cut": b'{"name":"cut","nuid":"N"',
    "bytes": b"\xff\xfe\x00",
    "deep": b'{"name":"deep","nuid":"N","x":' + b"[" * 50_000 + b"]" * 50_000 + b"}",
    "deep notes": b'{"nuid":"N","metadata":' + b'{"a":' * 50_000 + b"1" + b"}" * 50_001,
    "surrogate": b'{"name":"a","nuid":"N","description":"\\ud800"}',
    "digits": b'{"nuid":"N","size":' + b"9" * 10_000 + b"}",
    "twice": b'{"nuid":"N","nuid":">","size":1,"chunks":1}',
}


def mutated(record: dict[str, Any]) -> Iterator[tuple[str, bytes]]:
    """Give the info of an object with one fault each, and a name for it."""
    for field in FIELDS:
        for word, value in VALUES.items():
            changed = json.loads(json.dumps(record))
            *outer, inner = field.split(".")
            part = changed.setdefault(outer[0], {}) if outer else changed
            if value is MISSING:
                part.pop(inner, None)
            else:
                part[inner] = value
            yield f"{field} is {word}", json.dumps(changed).encode()
    for word, fields in SPECIAL.items():
        yield word, json.dumps({**record, "name": word, **fields}).encode()
    yield from RAW.items()


class Store(NamedTuple):
    """A store, and direct access to its messages."""

    js: jsync.JetStream
    files: jsync.ObjectStore

    def info_of(self, name: str) -> dict[str, Any]:
        """Return the info of an object as the stream has it."""
        message = self.js.get_message(
            f"OBJ_{self.files.bucket}",
            last_by_subject=f"$O.{self.files.bucket}.M.{encode_name(name)}",
        )
        record: dict[str, Any] = json.loads(message.data)
        return record

    def write(self, name: str, data: bytes, token: str | None = None) -> None:
        """Store a message as the info of an object."""
        self.js.publish(
            f"$O.{self.files.bucket}.M.{token or encode_name(name)}",
            data,
            headers={"Nats-Rollup": "sub"},
        )


@pytest.fixture
def store(js: jsync.JetStream, files: jsync.ObjectStore) -> Store:
    return Store(js, files)


@pytest.mark.bulk
def test_no_record_hides_or_harms_another_one(store: Store) -> None:
    files, good = store.files, {f"good {n}": noise(2500, n) for n in range(3)}
    names = []
    for number, (name, data) in enumerate(mutated(_an_info(store))):
        if number % 100 == 0:
            put = f"good {number // 100}"
            if put in good:
                files.put(put, good[put], chunk_size=1000)
        store.write(name, data)
        names.append(name)
    assert len(names) > 200
    _all_are_there(files, good)
    found = files.check(older_than=0)
    assert not found.orphans
    assert set(found.unreadable) <= set(names)
    # Former names without chunks: only jsync writes these marks.
    assert all(name.startswith("renamed") for name in found.renamed)
    for name in set(names) - set(found.renamed):
        with contextlib.suppress(errors.JetStreamError):
            files.info(name)
        with contextlib.suppress(errors.JetStreamError):
            files.get(name)
        with contextlib.suppress(errors.JetStreamError):
            files.update_meta(name, description="words")
        if name.endswith(("number", "list", "space", "nothing")):
            files.put(name, name.encode())
            assert files.get(name) == name.encode()
        else:
            assert files.delete(name).deleted
            with pytest.raises(errors.ObjectDeletedError):
                files.info(name)
    _all_are_there(files, good)
    assert files.check(older_than=0).unreadable == []


def _an_info(store: Store) -> dict[str, Any]:
    """Return the info of an object that is gone, with all fields."""
    words: dict[str, Any] = {"headers": {"k": ["v"]}, "metadata": {"k": "v"}}
    store.files.put("base", noise(2500), chunk_size=1000, description="words", **words)
    record = store.info_of("base")
    store.js.stream(f"OBJ_{store.files.bucket}").purge()
    return record


def _all_are_there(files: jsync.ObjectStore, good: dict[str, bytes]) -> None:
    assert {info.name for info in files.list()} >= good.keys()
    assert {i.name for i in files.list(include_deleted=True)} >= good.keys()
    with files.watch(ignore_deletes=True) as watch:
        assert {info.name for info in watch.initial()} >= good.keys()
    for name, data in good.items():
        assert files.get(name) == data


@pytest.mark.parametrize("nuid", [">", "*", "a.b"])
@pytest.mark.parametrize("act", ["delete", "put"])
def test_an_id_with_wildcards_removes_no_chunks(
    store: Store, nuid: str, act: str
) -> None:
    files = store.files
    files.put("good", noise(2500), chunk_size=1000)
    record = {**store.info_of("good"), "name": "bad", "nuid": nuid}
    store.write("bad", json.dumps(record).encode())
    for call in (files.get, files.open, files.info):
        with pytest.raises(errors.InvalidObjectInfoError, match="nuid"):
            call("bad")
    if act == "delete":
        files.delete("bad")
    else:
        files.put("bad", b"1")
    files.check(older_than=0)
    assert files.get("good") == noise(2500)


def test_chunks_on_wildcard_subjects_stay(store: Store, server: LocalServer) -> None:
    files = store.files
    files.put("good", noise(2500), chunk_size=1000)
    # The server stores these, although it calls the subjects invalid.
    subjects = [f"$O.{files.bucket}.C.{token}" for token in ("*", ">", "a.*")]
    with RawClient(server.url) as client:
        assert client.connect() == "PONG"
        for subject in subjects:
            assert "stream" in client.request(subject)
    found = files.check(older_than=0)
    assert (found.orphans, sorted(found.unreadable)) == ({}, sorted(subjects))
    assert files.get("good") == noise(2500)


def test_a_bad_record_is_named_and_passed_over(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    files = store.files
    files.put("a", b"1")
    files.put("b", b"2")
    store.write("a", b"{")
    seen: list[Exception] = []
    with files.watch(on_error=seen.append) as watch:
        assert [info.name for info in watch.initial()] == ["b"]
        files.put("c", b"3")
        assert watch.next(LONG).name == "c"
    wait_for(lambda: len(seen) == 1)
    assert isinstance(seen[0], errors.InvalidObjectInfoError)
    assert (seen[0].name, seen[0].revision) == ("a", 5)
    assert [info.name for info in files.list()] == ["b", "c"]
    wait_for(lambda: "'a' at revision 5" in caplog.text)
    for call in (
        *(lambda: files.get("a"), lambda: files.info("a"), lambda: files.open("a")),
        lambda: files.update_meta("a", description="words"),
        lambda: files.update_meta("a", new_name="d"),
        lambda: files.add_link("link", "a"),
    ):
        with pytest.raises(errors.InvalidObjectInfoError, match="put the object again"):
            call()
    for call in (
        lambda: files.update_meta("b", new_name="a"),
        lambda: files.add_link("a", "b"),
    ):
        with pytest.raises(errors.ObjectExistsError):
            call()
    assert files.check().unreadable == ["a"]
    files.put("a", b"4")
    assert files.get("a") == b"4"
    assert files.check().unreadable == []


def test_a_message_no_name_leads_to_is_reported(store: Store) -> None:
    store.files.put("a", b"1")
    for token in ("YQ", "a.b", "YR=="):
        store.write("", json.dumps(store.info_of("a")).encode(), token)
    assert [info.name for info in store.files.list()] == ["a"]
    prefix = f"$O.{store.files.bucket}.M."
    assert sorted(store.files.check(older_than=0).unreadable) == [
        f"{prefix}YQ",
        f"{prefix}YR==",
        f"{prefix}a.b",
    ]
    assert store.files.get("a") == b"1"


def test_a_latin_1_subject_must_match_its_name(store: Store) -> None:
    files, token = store.files, tokens_of("ÿ")[-1]
    files.put("a", b"1")
    # nats.js has the bytes of Latin-1 in the subject of its object.
    store.write("", json.dumps(store.info_of("a")).encode(), token)
    found = files.check(older_than=0)
    assert (found.renamed, found.unreadable) == ([], ["ÿ"])
    assert ([info.name for info in files.list()], files.get("a")) == (["a"], b"1")
    files.put("ÿ", b"2")
    assert (files.get("ÿ"), files.info("ÿ").subject_token) == (b"2", token)
    files.delete("ÿ")
    assert files.get("a") == b"1"


def test_chunks_that_a_bad_record_mentions_stay(store: Store) -> None:
    files, js = store.files, store.js
    info = files.put("a", noise(2500), chunk_size=1000)
    record = {**store.info_of("a"), "size": "2500", "nuid": info.nuid}
    spelled = "".join(f"\\u{ord(letter):04x}" for letter in info.nuid)
    escaped = json.dumps(record).replace(info.nuid, spelled)
    for data in (json.dumps(record), escaped, json.dumps({"new shape": [record]})):
        store.write("a", data.encode())
        assert files.check(older_than=0).orphans == {}
    assert chunks_of(js, files) == {info.nuid: 3}
    files.put("a", b"1")
    assert files.check(older_than=0).orphans == {info.nuid: 3}


def test_an_object_with_jnats_subject_is_found(store: Store) -> None:
    files, (ours, plain) = store.files, tokens_of("*.>")
    files.put("*.>", b"1")
    record = store.info_of("*.>")
    store.js.stream(f"OBJ_{files.bucket}").purge(subject=f"$O.{files.bucket}.M.{ours}")
    store.write("*.>", json.dumps(record).encode(), plain)
    assert [info.name for info in files.list()] == ["*.>"]
    assert files.get("*.>") == b"1"
    assert files.update_meta("*.>", description="words").subject_token == plain
    files.put("*.>", b"2")
    assert files.get("*.>") == b"2"
    assert len(list(files.list())) == len(chunks_of(store.js, files)) == 1
    assert files.delete("*.>").subject_token == plain
    with pytest.raises(errors.ObjectDeletedError):
        files.get("*.>")
    assert chunks_of(store.js, files) == {}
    files.put("*.>", b"3")
    assert (files.get("*.>"), len(list(files.list()))) == (b"3", 1)
    files.update_meta("*.>", new_name="a")
    assert (files.get("a"), len(list(files.list()))) == (b"3", 1)


def test_an_unreadable_info_hides_no_object_of_jnats(store: Store) -> None:
    files, (ours, plain) = store.files, tokens_of("*.>")
    files.put("*.>", b"1")
    store.write("*.>", json.dumps(store.info_of("*.>")).encode(), plain)
    store.write("*.>", b"{", ours)
    assert (files.get("*.>"), files.info("*.>").subject_token) == (b"1", plain)
    assert files.update_meta("*.>", description="words").subject_token == plain
    files.put("*.>", b"2")
    assert (files.get("*.>"), len(list(files.list()))) == (b"2", 1)
    assert len(chunks_of(store.js, files)) == 1
    # A deleted one hides no unreadable one, which can be deleted too.
    assert files.delete("*.>").subject_token == plain
    with pytest.raises(errors.InvalidObjectInfoError):
        files.info("*.>")
    files.delete("*.>")
    with pytest.raises(errors.ObjectDeletedError):
        files.info("*.>")


def test_a_name_that_jnats_deleted_is_free(store: Store) -> None:
    files, (ours, plain) = store.files, tokens_of("*.>")
    files.put("*.>", b"1")
    store.write("*.>", json.dumps(store.info_of("*.>")).encode(), plain)
    store.js.stream(f"OBJ_{files.bucket}").purge(subject=f"$O.{files.bucket}.M.{ours}")
    assert files.delete("*.>").subject_token == plain
    files.put("a", b"2")
    files.update_meta("a", new_name="*.>", timeout=2)
    assert (files.get("*.>"), len(list(files.list()))) == (b"2", 1)


def test_links_lead_nowhere_by_an_error(store: Store) -> None:
    files, bucket = store.files, store.files.bucket
    files.put("a", b"1")
    links = {
        "to a": (bucket, "a"),
        "to a link": (bucket, "to a"),
        "itself": (bucket, "itself"),
        "one": (bucket, "other"),
        "other": (bucket, "one"),
        "wildcard": (">", "a"),
        "long": (bucket, "a" * 9999),
        "store": (bucket, None),
    }
    for name, (to, target) in links.items():
        link = {"bucket": to, **({"name": target} if target else {})}
        store.write(
            name, json.dumps({"name": name, "options": {"link": link}}).encode()
        )
    assert {info.name for info in files.list()} == {"a", *links}
    assert files.get("to a") == files.get("to a link") == b"1"
    broken = ("itself", "one", "other", "wildcard", "long", "store")
    for name in broken:
        with pytest.raises(errors.LinkError, match=name):
            files.get(name)
    for name in broken:
        files.update_meta(name, description="words")
        files.delete(name)
    assert files.get("to a link") == b"1"
    assert not files.check(older_than=0).orphans


FALSE: dict[str, dict[str, Any]] = {
    "smaller": {"size": 2400},
    "much smaller": {"size": 100},
    "a chunk less": {"size": 2000},
    "nothing": {"size": 0},
    "nothing at all": {"size": 0, "chunks": 0},
    "larger": {"size": 2501},
    "much larger": {"size": 10**15},
    "fewer chunks": {"chunks": 2},
    "one chunk": {"chunks": 1},
    "more chunks": {"chunks": 4},
    "many chunks": {"chunks": 10**15},
    "no chunks": {"chunks": 0},
}
DIGESTS = ["SHA-256=" + "A" * 43 + "=", "SHA-256=words", "SHA-256=" + "0" * 64]


@pytest.mark.parametrize(
    "fields",
    [
        *FALSE.values(),
        *({**fields, "digest": None} for fields in FALSE.values()),
        *({"digest": digest} for digest in DIGESTS),
    ],
    ids=[*FALSE, *(f"{word} without digest" for word in FALSE), *range(3)],
)
def test_a_false_info_raises_and_never_truncates(
    store: Store, fields: dict[str, Any]
) -> None:
    files = store.files
    files.put("a", noise(2500), chunk_size=1000)
    record = {**store.info_of("a"), **fields}
    for options in ({"max_chunk_size": 1000}, {"max_chunk_size": 7}, {}):
        store.write("a", json.dumps({**record, "options": options}).encode())
        with pytest.raises(errors.ObjectReadError, match="'a'"):
            files.get("a")
        with files.open("a") as file:
            with pytest.raises(errors.ObjectReadError, match="'a'"):
                list(iter(lambda: file.read(300), b""))
            with pytest.raises(errors.ObjectReadError, match="'a'"):
                file.read1()
            assert not file.is_verified
