"""Tests of the pure parts of object stores: names, infos, digests and the places of chunks."""

from __future__ import annotations

import hashlib
import json
import threading
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, strategies as st

import jsync
from jsync import errors
from jsync.core.callbacks import ThreadFactory
from jsync.headers import Headers
from jsync.jetstream.objects.chunk_index import SCAN_LIMIT, ChunkIndex
from jsync.jetstream.objects.config import ObjectStoreConfig
from jsync.jetstream.objects.engine import (
    StoreLayout,
    check_object,
    decode_name,
    deleted_info,
    digest_text,
    encode_info,
    encode_name,
    known_digest,
    new_nuid,
    tokens_of,
)
from jsync.jetstream.objects.upload import Upload
from jsync.jetstream.objects.upload_digest import INLINE_CHUNKS, UploadDigest
from jsync.models import StoredMessage, StreamConfig

from ....support.servers import wait_for

NOW = datetime(2026, 1, 2, tzinfo=UTC)
LAYOUT = StoreLayout(ObjectStoreConfig(bucket="B").stream())


def stored(data: bytes, revision: int = 7) -> StoredMessage:
    return StoredMessage(
        subject="$O.B.M.YQ==",
        sequence=revision,
        data=data,
        timestamp=NOW,
        stream="OBJ_B",
    )


def an_info(**fields: Any) -> jsync.ObjectInfo:
    given_ = {"name": "a", "bucket": "B", "nuid": "N", "modified": NOW, "revision": 7}
    return jsync.ObjectInfo(**{**given_, **fields})


def test_subjects_are_those_of_the_other_clients() -> None:
    assert LAYOUT.stream == "OBJ_B"
    assert LAYOUT.chunk_subject("N") == "$O.B.C.N"
    assert LAYOUT.info_subject("a/b c?>") == "$O.B.M.YS9iIGM_Pg=="
    assert encode_name("ä") == "w6Q="


def test_ids_are_nuids_and_never_the_same() -> None:
    ids = {new_nuid() for _ in range(1000)}
    assert len(ids) == 1000
    assert all(len(nuid) == 22 and nuid.isascii() and nuid.isalnum() for nuid in ids)


@pytest.mark.parametrize(
    "info",
    [
        an_info(),
        an_info(size=344_000, chunks=42, digest="SHA-256=abc=", chunk_size=8196),
        an_info(description="words", metadata={"owner": "infra"}),
        an_info(headers=Headers({"key1": "foo", "key2": ["bar", "baz"]})),
        an_info(link=jsync.ObjectLink(bucket="C", name="b")),
        an_info(link=jsync.ObjectLink(bucket="C")),
        an_info(deleted=True),
    ],
    ids=range(7),
)
def test_an_info_is_read_as_it_was_written(info: jsync.ObjectInfo) -> None:
    assert LAYOUT.info(stored(encode_info(info))) == info


def test_an_info_has_the_documented_fields_without_time() -> None:
    info = an_info(
        name="object-name",
        description="object-desc",
        metadata={"owner": "infra"},
        headers=Headers({"key1": "foo", "key2": ["bar", "baz"]}),
        chunk_size=8196,
        size=344_000,
        chunks=42,
        digest="SHA-256=abc=",
        deleted=True,
    )
    assert json.loads(encode_info(info)) == {
        "name": "object-name",
        "description": "object-desc",
        "metadata": {"owner": "infra"},
        "headers": {"key1": ["foo"], "key2": ["bar", "baz"]},
        "options": {"max_chunk_size": 8196},
        "bucket": "B",
        "nuid": "N",
        "size": 344_000,
        "chunks": 42,
        "digest": "SHA-256=abc=",
        "deleted": True,
    }


def test_infos_of_other_clients_may_have_other_fields() -> None:
    info = LAYOUT.info(
        stored(
            b'{"name":"a","nuid":"N","mtime":"0001-01-01T00:00:00Z","headers":null,'
            b'"options":{"link":null},"more":[1],"deleted":null}'
        )
    )
    assert (info.bucket, info.size, info.modified, info.link) == ("B", 0, NOW, None)
    assert not info.deleted


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"\xff",
        b"{}",
        b'{"name":7,"nuid":"N"}',
        b'{"name":"a"}',
        b'{"name":"a","nuid":"N","size":-1}',
        b'{"name":"a","nuid":"N","chunks":1.5}',
        b'{"name":"a","nuid":"N","digest":7}',
        b'{"name":"a","nuid":"N","deleted":"yes"}',
        b'{"name":"a","nuid":"N","options":7}',
        b'{"name":"a","nuid":"N","options":{"link":{"name":"b"}}}',
        b'{"name":"a","nuid":">"}',
        b'{"name":"a","nuid":"a.b"}',
        b'{"name":"a","nuid":"N","size":9223372036854775808}',
        b'{"name":"a","nuid":"N","x":' + b"[" * 100_000,
    ],
    ids=range(16),
)
def test_an_invalid_info_error_names_its_revision(data: bytes) -> None:
    with pytest.raises(errors.InvalidObjectInfoError, match="revision 7") as caught:
        LAYOUT.info(stored(data))
    assert (caught.value.key, caught.value.revision) == ("YQ==", 7)
    assert caught.value.name == "a"
    former = LAYOUT.occupied(stored(data))
    assert (former.name, former.chunks, former.revision) == ("a", 0, 7)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"headers": {"k": "v"}}, {"headers": {"k": "v"}}),  # nats-py, NATS.Net
        ({"headers": {"k": ["v", "w"]}}, {"headers": {"k": ["v", "w"]}}),
        ({"headers": {"k": 1, "l": None, "m": [2]}}, {"headers": {"k": "1", "m": "2"}}),
        ({"headers": [["k", "v"]]}, {"headers": {}}),
        ({"metadata": {"n": 1, "o": None}}, {"metadata": {"n": "1"}}),
        (
            {"metadata": [{"owner": "infra"}]},
            {"metadata": {"owner": "infra"}},
        ),  # ADR-20
        ({"description": {"a": [1]}}, {"description": '{"a":[1]}'}),
        ({"options": {"max_chunk_size": "7"}}, {"chunk_size": None}),
        ({"bucket": "another", "name": "another"}, {"bucket": "B", "name": "a"}),
        ({"name": None, "mtime": 7, "digest": None}, {"name": "a", "digest": None}),
        ({"deleted": True, "nuid": ">", "size": "x"}, {"deleted": True, "nuid": ""}),
    ],
    ids=range(11),
)
def test_infos_of_other_clients_are_read(
    fields: dict[str, Any], expected: dict[str, Any]
) -> None:
    record = {"name": "a", "bucket": "B", "nuid": "N", "size": 1, "chunks": 1, **fields}
    info = LAYOUT.info(stored(json.dumps(record).encode()))
    assert {name: getattr(info, name) for name in expected} == expected


def test_a_link_of_nats_js_has_no_id() -> None:
    link = b'{"name":"a","bucket":"C","options":{"link":{"bucket":"C","name":"b"}}}'
    info = LAYOUT.info(stored(link))
    assert info.link == jsync.ObjectLink(bucket="C", name="b")
    assert (info.bucket, info.nuid) == ("B", "")


def test_a_name_with_two_encodings_has_two_subjects() -> None:
    assert tokens_of("a") == ("YQ==",)
    assert tokens_of("*.>") == ("Ki4-", "Ki4+")  # jnats writes the second one
    assert tokens_of("ä.txt") == ("w6QudHh0", "5C50eHQ=")  # and nats.js that one
    assert tokens_of("Ã¤") == ("w4PCpA==",)  # in Latin-1 it would be "ä"
    for name in ("*.>", "ä.txt", "Ã¤"):
        token, *others = tokens_of(name)
        assert decode_name(token) == (name, False)
        assert {decode_name(other) for other in others} <= {(name, True)}
    for token in ("", "YQ", "YQ=", "Y Q==", "YQ==.YQ==", ">", "/w==", "=="):
        assert decode_name(token) == (None, False)


@pytest.mark.parametrize("nuid", [">", "*", "a.b", "", "a b", "a*", "\x00", "a" * 256])
def test_no_id_becomes_the_subject_of_others(nuid: str) -> None:
    with pytest.raises(errors.InvalidObjectInfoError):
        LAYOUT.chunk_subject(nuid)


def test_deleting_leaves_the_same_info_as_other_clients() -> None:
    gone = deleted_info(an_info(size=1, chunks=1, digest="SHA-256=abc="))
    assert json.loads(encode_info(gone)) == {
        "name": "a",
        "bucket": "B",
        "nuid": "N",
        "size": 0,
        "chunks": 0,
        "deleted": True,
    }


def test_digests_are_compared_as_bytes_in_every_spelling() -> None:
    digest = hashlib.sha256(b"\x00" * 7 + b"3").digest()
    text = digest_text(digest)
    assert text.startswith("SHA-256=")
    spellings = [
        text,
        text.rstrip("="),
        text.replace("SHA-256", "sha-256"),
        text.replace("-", "+").replace("_", "/").replace("SHA+256", "SHA-256"),
        f"SHA-256={digest.hex()}",
    ]
    assert [known_digest(spelling) for spelling in spellings] == [digest] * 5
    assert known_digest(None) is known_digest("") is known_digest("MD5=abc") is None
    assert known_digest("SHA-256=a") == known_digest("SHA-256=ä") == b""


@pytest.mark.parametrize("name", ["a", " ", "a/b", "ä" * 1250, "\x00"], ids=range(5))
def test_nearly_everything_is_a_name(name: str) -> None:
    assert check_object(name) == name


def test_a_store_is_its_stream_and_back() -> None:
    config = ObjectStoreConfig(
        bucket="B",
        description="words",
        ttl=60,
        max_bytes=1024,
        storage="memory",
        replicas=3,
        compression=True,
        metadata={"a": "b"},
    )
    assert ObjectStoreConfig.from_stream_config(config.stream()) == config
    own = StreamConfig(name="OBJ_B", metadata={"_nats.level": "1"}, max_bytes=-1)
    assert ObjectStoreConfig.from_stream_config(own) == ObjectStoreConfig(
        bucket="B", compression=False
    )


# Puts ---------------------------------------------------------------------------------


class Acks:
    """Acks of chunks, with sequences that a server could assign."""

    def __init__(self, sequences: list[int]) -> None:
        self._sequences = iter(sequences)

    def publish(self, subject: str, data: bytes) -> Any:
        ack = SimpleNamespace(seq=next(self._sequences))
        return SimpleNamespace(done=lambda: True, result=lambda _: ack)


def upload(sequences: list[int]) -> Upload:
    session = SimpleNamespace(name="nc", thread_factory=ThreadFactory())
    objects: Any = SimpleNamespace(
        api=SimpleNamespace(session=session), publisher=Acks(sequences), layout=LAYOUT
    )
    return Upload(objects, an_info(chunk_size=len(b"chunk")), 1.0, None)


@pytest.mark.parametrize("sequences", [[2, 1], [5, 5], [1, 2, 4, 3]], ids=str)
def test_chunks_in_another_order_are_noticed(sequences: list[int]) -> None:
    put = upload(sequences)
    for _ in sequences[:-1]:
        put.write(b"chunk")
    with pytest.raises(errors.ChunkOrderError, match="put it again"):
        put.write(b"chunk")


@pytest.mark.parametrize("count", [0, 1, INLINE_CHUNKS, INLINE_CHUNKS + 1, 500])
def test_a_digest_is_the_same_on_every_thread(count: int) -> None:
    hashing = UploadDigest(ThreadFactory(), "digest")
    for number in range(count):
        hashing.update(b"%d" % number)
    data = b"".join(b"%d" % number for number in range(count))
    assert hashing.digest() == hashlib.sha256(data).digest()


def test_a_dropped_digest_leaves_no_thread() -> None:
    before = threading.active_count()
    hashing = UploadDigest(ThreadFactory(), "digest")
    for _ in range(100):
        hashing.update(b"1")
    del hashing
    wait_for(lambda: threading.active_count() <= before)


def test_a_digest_interrupted_by_ctrl_c_stays_silent() -> None:
    hashing = UploadDigest.__new__(UploadDigest)
    hashing.__del__()


# The places of chunks -------------------------------------------------------------------


class Chunks:
    """The sequences of the chunks of an object in a stream, and a server that knows them."""

    def __init__(self, sequences: list[int]) -> None:
        self.sequences = sequences
        self.questions = 0

    def at(self, asked: int) -> tuple[int, int] | None:
        """Return the first chunk at or after a sequence, and the number of chunks after it."""
        self.questions += 1
        for number, sequence in enumerate(self.sequences):
            if sequence >= asked:
                return sequence, len(self.sequences) - 1 - number
        return None

    def find(self, places: ChunkIndex, index: int) -> int | None:
        """Return the sequence of a chunk as a download finds it, or None if the chunk is missing."""
        places.start(index)
        while True:
            asked = places.next_probe(index)
            answer = self.at(asked)
            if answer is None:
                if places.observe_none(asked):
                    continue
                return None
            found = places.observe(asked, *answer, index)
            if found is None:
                return None
            if places.should_scan(found, index):
                sequence = answer[0]
                while found < index:
                    sequence, following = self.at(sequence + 1) or (0, 0)
                    if places.observe_next(sequence, following) is None:
                        return None
                    found += 1
                return sequence


@given(
    st.lists(st.integers(1, 50), min_size=1, max_size=60),
    st.lists(st.integers(0, 59), min_size=1, max_size=10),
    st.integers(1, 1000),
    st.booleans(),
)
def test_every_chunk_is_found_wherever_others_stand_between(
    gaps: list[int], wanted: list[int], behind: int, trusted: bool
) -> None:
    sequences = [sum(gaps[: n + 1]) for n in range(len(gaps))]
    chunks = Chunks(sequences)
    places = ChunkIndex(len(gaps), sequences[-1] + behind, trusted=trusted)
    for index in wanted:
        index %= len(gaps)
        assert chunks.find(places, index) == sequences[index]


@given(
    st.lists(st.tuples(st.integers(1, 9), st.booleans()), min_size=2, max_size=30),
    st.data(),
    st.booleans(),
)
def test_a_mirror_with_some_chunks_misplaces_none(
    chunks: list[tuple[int, bool]], data: st.DataObject, trusted: bool
) -> None:
    gaps = [gap for gap, _ in chunks]
    sequences = [sum(gaps[: n + 1]) for n in range(len(gaps))]
    mirrored = [each for each, (_, has) in zip(sequences, chunks, strict=True) if has]
    places = ChunkIndex(len(gaps), sequences[-1] + 1, trusted=trusted)
    for index in data.draw(st.lists(st.integers(0, len(gaps) - 1), max_size=5)):
        places.start(index)
        for _ in range(100):
            asked = places.next_probe(index)
            own = data.draw(st.booleans())
            answer = Chunks(sequences if own else mirrored).at(asked)
            if answer is None:
                break  # the leader has it, so the next server is asked
            found = places.observe(asked, *answer, index, own=own)
            if found is None:
                break
            assert sequences[found] == answer[0]
            if found == index:
                break


@pytest.mark.parametrize("trusted", [False, True])
def test_without_other_chunks_each_is_found_at_once(trusted: bool) -> None:
    sequences = list(range(1001, 9001))
    chunks = Chunks(sequences)
    places = ChunkIndex(8000, 9001, trusted=trusted)
    assert chunks.find(places, 7999) == 9000
    assert chunks.questions == 2  # the first chunk, and this one
    assert chunks.find(places, 17) == 1018
    assert chunks.questions == 3


def test_a_chunk_after_renaming_needs_few_requests() -> None:
    chunks = Chunks(list(range(1001, 9001)))
    places = ChunkIndex(8000, 10_000_000, trusted=True)
    assert chunks.find(places, 4000) == 5001
    assert chunks.questions <= 4


@given(st.integers(2, 50), st.integers(0, 49), st.lists(st.integers(0, 49), max_size=5))
def test_a_missing_chunk_is_never_replaced_by_another(
    count: int, missing: int, wanted: list[int]
) -> None:
    missing %= count
    sequences = [n + 1 for n in range(count) if n != missing]
    for trusted in (False, True):
        places = ChunkIndex(count, count + 1, trusted=trusted)
        for index in wanted:
            index %= count
            found = Chunks(sequences).find(places, index)
            assert found in (None, index + 1), (trusted, index)


def test_a_short_seek_reads_on_to_its_place() -> None:
    places = ChunkIndex(100, 10_000, trusted=True)
    places.start(SCAN_LIMIT)
    assert places.observe(places.next_probe(SCAN_LIMIT), 5, 99, SCAN_LIMIT) == 0
    assert places.should_scan(0, SCAN_LIMIT)
    assert not places.should_scan(0, SCAN_LIMIT + 1)
