"""Tests of buckets with codecs, which change keys and values in every call."""

from __future__ import annotations

import pickle
import zlib
from typing import Any

import msgspec
import pytest

import jsync
from jsync import errors

from ....support.servers import wait_for
from ....support.threads import LONG, SOON, Recorder
from .support import consumers

pytestmark = pytest.mark.server


class User(msgspec.Struct):
    name: str
    age: int = 0


ALICE, BOB = User("alice", 30), User("bob")


@pytest.mark.parametrize(
    "codec", [jsync.JSON(User), jsync.MsgPack(User)], ids=["json", "msgpack"]
)
def test_values_of_a_type_go_through_every_call(
    bucket: jsync.KeyValue, codec: jsync.ValueCodec[User]
) -> None:
    users = bucket.with_codec(codec)
    with users.live() as view, users.watch() as watch:
        first = users.create("a", ALICE)
        second = users.update("a", BOB, last=first)
        users.put("b", ALICE)
        users.delete("b")
        view.wait_for(users.put("c", BOB))
        assert users.get("a").value == BOB
        assert users.get("a", revision=first).value == ALICE
        assert {k: e.value for k, e in users.get_many(["a", "c"]).items()} == {
            "a": BOB,
            "c": BOB,
        }
        assert [entry.value for entry in users.history("a")] == [ALICE, BOB]
        assert dict(view) == {"a": BOB, "c": BOB}
        values = [watch.next().value for _ in range(5)]
        assert values == [ALICE, BOB, ALICE, None, BOB]
    assert sorted(users.keys()) == ["a", "c"]
    assert users.purge_deletes(older_than=0) == 1
    assert codec.decode(bucket.get("a").value) == BOB
    assert second == bucket.get("a").revision


@pytest.mark.parametrize(
    ("codec", "keys", "pattern", "matching"),
    [
        (jsync.PathKeys(), ["/etc/hosts", "/etc/ssh/port", "home"], "/etc/>", 2),
        (jsync.Base64Keys(), ["Acme Inc.a", "Acme Inc.b", "*"], "Acme Inc.*", 2),
    ],
    ids=["paths", "base64"],
)
def test_keys_in_another_form_go_through_every_call(
    bucket: jsync.KeyValue,
    codec: jsync.KeyCodec,
    keys: list[str],
    pattern: str,
    matching: int,
) -> None:
    kv = bucket.with_codec(keys=codec)
    for key in keys:
        kv.put(key, key.encode())
    assert sorted(kv.keys()) == sorted(keys)
    assert len(list(kv.keys(pattern))) == matching
    assert set(kv.get_many(keys)) == set(keys)
    assert [entry.key for entry in kv.history(keys[0])] == [keys[0]]
    with kv.watch(pattern) as watch:
        assert len(list(watch.initial())) == matching
    with kv.live() as view:
        assert dict(view) == {key: key.encode() for key in keys}
    kv.delete(keys[0])
    with pytest.raises(errors.KeyDeletedError):
        kv.get(keys[0])
    assert kv.create(keys[0], b"again") == 5
    kv.purge(keys[1])
    assert kv.purge_deletes(older_than=0) == 1
    assert sorted(bucket.keys()) == sorted(codec.encode(k) for k in (keys[0], keys[2]))


def test_a_watch_reports_undecodable_values_and_continues(
    bucket: jsync.KeyValue,
) -> None:
    users, told = bucket.with_codec(jsync.JSON(User)), Recorder()
    users.put("a", ALICE)
    with (
        users.live(on_error=told) as view,
        users.watch(updates_only=True) as watch,
    ):
        bad = bucket.put("a", b"no JSON")
        with pytest.raises(errors.CodecError, match="cannot be decoded") as caught:
            users.get("a")
        assert (caught.value.key, caught.value.revision) == ("a", bad)
        with pytest.raises(errors.CodecError):
            watch.next(SOON)
        view.wait_for(bad)
        assert "a" not in view
        assert isinstance(told.get(), errors.CodecError)
        view.wait_for(users.put("a", BOB), LONG)
        assert watch.next(SOON).value == BOB
        assert view["a"] == BOB


class Zipped:
    """A codec whose `decode` raises an exception that is no `ValueError`."""

    def encode(self, value: bytes, /) -> bytes:
        return zlib.compress(value)

    def decode(self, data: bytes, /) -> bytes:
        return zlib.decompress(data)


class TextlessError(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


class Strict(Zipped):
    """A codec whose exceptions have no text."""

    def decode(self, data: bytes, /) -> bytes:
        try:
            return super().decode(data)
        except zlib.error as error:
            raise TextlessError from error


DEEP = 100_000


@pytest.mark.parametrize(
    ("codec", "bad", "cause"),
    [
        (jsync.JSON(object), b"[" * DEEP + b"]" * DEEP, RecursionError),
        (jsync.MsgPack(object), b"\x91" * DEEP + b"\x01", RecursionError),
        (Zipped(), b"not compressed", zlib.error),
        (Strict(), b"not compressed", TextlessError),
    ],
    ids=["deep JSON", "deep MessagePack", "own codec", "error without text"],
)
def test_a_watch_reports_any_codec_error_and_continues(
    bucket: jsync.KeyValue,
    codec: jsync.ValueCodec[Any],
    bad: bytes,
    cause: type[Exception],
) -> None:
    coded, got, told = bucket.with_codec(codec), Recorder(), Recorder()
    good = codec.decode(codec.encode(b"" if isinstance(codec, Zipped) else [1]))
    with (
        coded.live(on_error=told) as view,
        coded.watch(callback=got, updates_only=True, on_error=told) as watch,
    ):
        revision = bucket.put("a", bad)
        with pytest.raises(errors.CodecError, match="cannot be decoded") as caught:
            coded.get("a")
        assert isinstance(caught.value.__cause__, cause)
        assert caught.value.revision == revision
        view.wait_for(coded.put("b", good), LONG)
        assert dict(view) == {"b": good}
        assert got.get().key == "b"
        assert {type(told.get()) for _ in range(2)} == {errors.CodecError}
        assert not watch.closed


def test_live_copies_report_key_codec_errors_and_continue(
    bucket: jsync.KeyValue,
) -> None:
    class Numbered(jsync.PathKeys):
        def decode(self, key: str, /) -> str:
            return {"1": "one", "2": "two"}[key]

    told = Recorder()
    with bucket.with_codec(keys=Numbered()).live(on_error=told) as view:
        revisions = [bucket.put(key, b"x") for key in ("1", "3", "2")]
        view.wait_for(revisions[-1], LONG)
        assert sorted(view) == ["one", "two"]
        error = told.get()
    assert isinstance(error, errors.CodecError)
    assert isinstance(error.__cause__, KeyError)


FOREIGN: dict[str, tuple[jsync.KeyCodec, list[str], list[str]]] = {
    "paths": (jsync.PathKeys(), ["/", "a/b", "/a"], ["a/b", "_root_a/b"]),
    "base64": (jsync.Base64Keys(), ["ä b", "a.b"], ["plain", "QQ==", "YR", "a.b", "8"]),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_a_key_of_another_form_ends_no_reading(
    bucket: jsync.KeyValue, name: str
) -> None:
    codec, keys, foreign = FOREIGN[name]
    kv, got = bucket.with_codec(keys=codec), Recorder()
    for key in foreign[:1]:
        bucket.put(key)
    with (
        kv.live(on_error=got) as view,
        kv.watch() as watch,
        kv.watch(callback=got, on_error=got),
    ):
        last = 0
        for key in keys:
            for other in foreign:
                bucket.put(other)
            kv.put(key, b"1")
            last = kv.put(key, b"2")
            bucket.put(foreign[0])
        assert [watch.next(LONG).key for _ in range(2 * len(keys))] == [
            key for key in keys for _ in range(2)
        ]
        view.wait_for(last, LONG)
        assert dict(view) == dict.fromkeys(keys, b"2")
        assert {got.get().key for _ in range(2 * len(keys))} == set(keys)
    assert sorted(kv.keys()) == sorted(keys)
    with kv.watch() as watch:
        assert sorted(entry.key for entry in watch.initial()) == sorted(keys)
    assert set(kv.get_many(keys)) == set(keys)
    for key in keys:
        assert [entry.value for entry in kv.history(key)] == [b"1", b"2"]
        kv.delete(key)
    assert list(kv.keys()) == []
    assert sorted(bucket.keys()) == sorted(foreign)


def test_errors_ending_a_watch_thread_reach_all_waiters(
    js: jsync.JetStream, bucket: jsync.KeyValue
) -> None:
    class Panic(BaseException):
        """An exception like those of extensions in Rust, which no `Exception` covers."""

    class Panics(Zipped):
        def decode(self, data: bytes, /) -> bytes:
            raise Panic(data)

    coded, told = bucket.with_codec(Panics()), Recorder()
    view = coded.live(on_error=told)
    watch = coded.watch(callback=Recorder(), on_error=told)
    revision = bucket.put("a", b"x")
    for _ in range(2):
        error = told.get()
        assert isinstance(error, errors.CallbackError)
        assert isinstance(error.__cause__, Panic)
    with pytest.raises(errors.CallbackError, match="Panic"):
        view.wait_for(revision, LONG)
    with pytest.raises(errors.CallbackError, match="Panic"):
        watch.wait(SOON)
    assert watch.closed
    assert not view.is_current
    wait_for(lambda: not consumers(js, bucket))
    for each in (view, watch):
        each.stop()


def test_the_last_initial_value_may_be_undecodable(
    bucket: jsync.KeyValue,
) -> None:
    bucket.put("a", b"no JSON")
    told: Any = Recorder()
    with bucket.with_codec(jsync.JSON(User)).live(on_error=told) as view:
        assert dict(view) == {}


def test_a_codec_of_ones_own_is_two_methods(bucket: jsync.KeyValue) -> None:
    class Text:
        def encode(self, value: str, /) -> bytes:
            return value.encode()

        def decode(self, data: bytes, /) -> str:
            return data.decode()

    texts = bucket.with_codec(Text())
    texts.put("a", "grün")
    assert texts.get("a").value == "grün"


def test_a_lock_is_the_same_with_codecs(js: jsync.JetStream, unique: str) -> None:
    kv = js.create_key_value(bucket=unique, limit_marker_ttl=60, storage="memory")
    coded = kv.with_codec(jsync.JSON(User), keys=jsync.PathKeys())
    with coded.lock("a", ttl=30):
        assert not kv.lock("a", ttl=30).acquire(0)
    js.delete_key_value(unique)


# Several codecs, and a cipher ---------------------------------------------------------

SECRET = bytes(range(32))


def test_codecs_apply_in_sequence_and_decode_in_reverse(
    bucket: jsync.KeyValue,
) -> None:
    class Reversed:
        def encode(self, value: bytes, /) -> bytes:
            return value[::-1]

        decode = encode

    class Marked:
        def encode(self, value: bytes, /) -> bytes:
            return b"mark" + value

        def decode(self, data: bytes, /) -> bytes:
            return data.removeprefix(b"mark")

    users = bucket.with_codec(
        *(jsync.JSON(User), Reversed(), Marked()),
        keys=[jsync.PathKeys(), jsync.Base64Keys()],
    )
    users.put("/staff/alice", ALICE)
    (key,) = bucket.keys()
    assert key == jsync.Base64Keys().encode("_root_.staff.alice")
    assert bucket.get(key).value == b"mark" + msgspec.json.encode(ALICE)[::-1]
    assert users.get("/staff/alice").value == ALICE
    assert list(users.keys("/staff/alice")) == ["/staff/alice"]
    with users.live() as view:
        assert dict(view) == {"/staff/alice": ALICE}


@pytest.mark.parametrize("codec", [object(), "json", None, jsync.PathKeys])
def test_an_object_that_is_no_codec_is_rejected(
    bucket: jsync.KeyValue, codec: Any
) -> None:
    if codec is jsync.PathKeys:
        codec = type("Half", (), {"encode": None})()
    with pytest.raises(errors.ConfigError, match="not a codec of values"):
        bucket.with_codec(codec)


class Half:
    def encode(self, key: str) -> str:
        return key


@pytest.mark.parametrize(
    "codec", [5, "json", [None], Half(), [Half()], jsync.JSON(dict)]
)
def test_objects_that_are_no_key_codec_are_rejected(
    bucket: jsync.KeyValue, codec: Any
) -> None:
    with pytest.raises(errors.ConfigError, match="not a codec of keys"):
        bucket.with_codec(keys=codec)


def test_no_call_sends_encrypted_values_in_plain_text(
    bucket: jsync.KeyValue,
) -> None:
    users = bucket.with_codec(jsync.JSON(User), jsync.AESGCM(SECRET))
    with users.live() as view, users.watch() as watch:
        first = users.create("a", ALICE)
        users.update("a", BOB, last=first)
        users.delete("b")
        view.wait_for(users.create("b", ALICE))
        assert users.get("a").value == BOB
        assert users.get("a", revision=first).value == ALICE
        assert users.get_many(["a", "b"])["b"].value == ALICE
        assert [entry.value for entry in users.history("a")] == [ALICE, BOB]
        assert dict(view) == {"a": BOB, "b": ALICE}
        assert [watch.next(LONG).value for _ in range(4)] == [ALICE, BOB, None, ALICE]
    with users.watch(headers_only=True) as bare:
        assert [entry.value for entry in bare.initial()] == [None, None]
    assert sorted(users.keys()) == ["a", "b"]
    for revision in (1, 2, 4):
        key = "b" if revision == 4 else "a"
        assert b"alice" not in bucket.get(key, revision=revision).value


def test_moved_changed_or_otherwise_encrypted_values_raise_errors(
    js: jsync.JetStream, bucket: jsync.KeyValue, unique: str
) -> None:
    secret = bucket.with_codec(jsync.AESGCM(SECRET))
    secret.put("a", b"value")
    stored = bucket.get("a").value
    elsewhere = js.create_key_value(bucket=f"X{unique}", storage="memory")
    elsewhere.put("a", stored)
    bucket.put("moved", stored)
    bucket.put("changed", stored[:-1] + bytes([stored[-1] ^ 1]))
    bucket.put("plain", b"never encrypted, and long enough to be a value")
    bucket.with_codec(jsync.AESGCM(SECRET[::-1])).put("other", b"value")
    readers = [(secret, key) for key in ("moved", "changed", "plain", "other")]
    readers.append((elsewhere.with_codec(jsync.AESGCM(SECRET)), "a"))
    for kv, key in readers:
        with pytest.raises(errors.CodecError) as caught:
            kv.get(key)
        assert caught.value.key == key
        assert repr(SECRET)[2:-1] not in repr(caught.value.__cause__)
        assert b"value" not in pickle.dumps(caught.value).replace(b"value of key", b"")
    with secret.live(on_error=Recorder()) as view:
        assert dict(view) == {"a": b"value"}
    js.delete_key_value(f"X{unique}")


def test_a_mirror_of_encrypted_values_can_be_read(
    js: jsync.JetStream, bucket: jsync.KeyValue, unique: str
) -> None:
    revision = bucket.with_codec(jsync.AESGCM(SECRET)).put("a", b"value")
    name = f"M{unique}"
    mirror = js.create_key_value(bucket=name, mirror={"name": unique}, storage="memory")
    with mirror.with_codec(jsync.AESGCM(SECRET)).live(timeout=LONG) as view:
        view.wait_for(revision, LONG)
        assert dict(view) == {"a": b"value"}
    js.delete_key_value(name)


def test_create_reports_keys_with_undecodable_values(
    bucket: jsync.KeyValue,
) -> None:
    revision = bucket.put("k", b"not json")
    for users in (
        bucket.with_codec(jsync.JSON(User)),
        bucket.with_codec(jsync.JSON(User), keys=jsync.PathKeys()),
    ):
        with pytest.raises(errors.KeyExistsError) as raised:
            users.create("k", BOB)
        assert raised.value.revision == revision
