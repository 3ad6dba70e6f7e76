"""Tests of the pure parts of key-value: names, subjects, messages and configurations."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, strategies as st

import jsync
from jsync import errors
from jsync._fast import is_key
from jsync.headers import Headers
from jsync.jetstream.buckets.engine import check_bucket
from jsync.jetstream.keyvalue.config import KeyValueConfig
from jsync.jetstream.keyvalue.engine import (
    BucketLayout,
    check_filter,
    check_key,
    operation_of,
    revision_in,
)
from jsync.models import StoredMessage, StreamConfig, StreamSource

if TYPE_CHECKING:
    from collections.abc import Callable

KEYS = ["a", "a.b", "A-1_2/3=4", "9.8.7", "=", "-", "/etc/hosts", "a" * 200]
BAD_KEYS: list[Any] = [
    *("", ".", ".a", "a.", "a..b", "a b", "a\n", "ä", "a*", "*", ">", "a.>", "a.*.b"),
    *("a\x00", "$a", "a:b", "a\r\nPUB x 0", None, 7, b"a"),
]


@pytest.mark.parametrize("key", KEYS)
def test_a_key_is_a_key_and_a_filter(key: str) -> None:
    assert check_key(key) == check_filter(key) == key


@pytest.mark.parametrize("key", BAD_KEYS)
def test_an_invalid_key_is_rejected(key: Any) -> None:
    with pytest.raises(errors.InvalidKeyError, match="not a key"):
        check_key(key)


@pytest.mark.parametrize("pattern", ["*", ">", "a.>", "a.*", "*.b", "a.*.>", "a.b"])
def test_a_filter_may_have_wildcards(pattern: str) -> None:
    assert check_filter(pattern) == pattern


@pytest.mark.parametrize(
    "pattern", ["", ">.a", "a.>.b", "a*", "*a", "a.", ".>", "a..>", "a b", None, b">"]
)
def test_an_invalid_filter_is_rejected(pattern: Any) -> None:
    with pytest.raises(errors.InvalidKeyError, match="not a key or a pattern"):
        check_filter(pattern)


@pytest.mark.parametrize("bucket", ["", "a.b", "a b", "a/b", "ä", "*", "a\n", None, 1])
def test_an_invalid_bucket_name_is_rejected(bucket: Any) -> None:
    with pytest.raises(errors.InvalidBucketNameError):
        check_bucket(bucket)
    with pytest.raises(errors.ConfigError):
        KeyValueConfig.from_any(None, {"bucket": bucket})


@pytest.mark.parametrize(
    ("headers", "operation"),
    [
        (None, "PUT"),
        ({}, "PUT"),
        ({"Other": "DEL"}, "PUT"),
        ({"KV-Operation": "PUT"}, "PUT"),
        ({"KV-Operation": "DEL"}, "DEL"),
        ({"KV-Operation": "PURGE"}, "PURGE"),
        ({"KV-Operation": "UNHEARD-OF"}, "PUT"),
        ({"Nats-Marker-Reason": "MaxAge"}, "PURGE"),
        ({"Nats-Marker-Reason": "Purge"}, "PURGE"),
        ({"Nats-Marker-Reason": "Remove"}, "DEL"),
        ({"Nats-Marker-Reason": "Unheard-of"}, "PUT"),
        ({"KV-Operation": "DEL", "Nats-Marker-Reason": "MaxAge"}, "DEL"),
    ],
)
def test_headers_give_the_operation_of_a_key(
    headers: dict[str, str] | None, operation: str
) -> None:
    assert operation_of(None if headers is None else Headers(headers)) == operation


@pytest.mark.parametrize(
    ("prefix", "read", "write"),
    [
        ("$JS.API", "$KV.B.", "$KV.B."),
        ("$JS.hub.API", "$KV.B.", "$JS.hub.API.$KV.B."),
        ("imported", "$KV.B.", "imported.$KV.B."),
    ],
)
def test_only_subjects_of_writes_get_a_prefix(
    prefix: str, read: str, write: str
) -> None:
    layout = BucketLayout(StreamConfig(name="KV_B"), prefix)
    assert (layout.bucket, layout.read, layout.write) == ("B", read, write)
    assert layout.filters(()) == [read + ">"]
    assert layout.filters(("a", "b.*")) == [read + "a", read + "b.*"]


@pytest.mark.parametrize(
    ("mirror", "origin", "read"),
    [
        ({"name": "KV_A"}, "A", "$KV.A."),
        ({"name": "KV_A", "filter_subject": "$KV.A.x.>"}, "A", "$KV.A."),
        (
            {
                "name": "KV_A",
                "subject_transforms": [{"src": "$KV.A.>", "dest": "$KV.B.>"}],
            },
            "A",
            "$KV.B.",
        ),
    ],
)
def test_mirrors_keep_origin_subjects_unless_they_move_them(
    mirror: dict[str, Any], origin: str, read: str
) -> None:
    source = StreamSource.from_any(mirror, {})
    layout = BucketLayout(StreamConfig(name="KV_B", mirror=source), "$JS.API")
    assert (layout.bucket, layout.origin, layout.read) == ("B", origin, read)


def test_a_marker_is_a_deleted_key_with_revision() -> None:
    layout = BucketLayout(StreamConfig(name="KV_B"), "$JS.API")
    message = StoredMessage(
        subject="$KV.B.a.b",
        sequence=7,
        headers=Headers({"KV-Operation": "DEL"}),
        timestamp=datetime(2026, 1, 1, tzinfo=UTC),
        stream="KV_B",
    )
    entry = layout.entry(message)
    assert (entry.key, entry.revision, entry.operation) == ("a.b", 7, "DEL")
    with pytest.raises(errors.KeyNotFoundError) as caught:
        layout.value(entry)
    assert isinstance(caught.value, errors.KeyDeletedError)
    assert (caught.value.revision, caught.value.operation) == (7, "DEL")
    assert str(caught.value) == "key was deleted: 'a.b' in bucket 'B'"


@given(st.one_of(st.text(alphabet="aZ09-/_=.,:*> @[`{^\u0130", max_size=6), st.text()))
def test_a_key_follows_the_rule_of_adr_8(key: str) -> None:
    rule = r"[-/_=a-zA-Z0-9]+(?:\.[-/_=a-zA-Z0-9]+)*"
    assert is_key(key) == bool(re.fullmatch(rule, key))


@pytest.mark.parametrize(
    ("words", "revision"),
    [("wrong last sequence: 12", 12), ("wrong last sequence", None), ("", None)],
)
def test_the_revision_is_read_from_a_rejection(
    words: str, revision: int | None
) -> None:
    assert revision_in(words) == revision


@pytest.mark.parametrize(
    "fields",
    [
        {"history": 0},
        {"history": 65},
        {"history": "5"},
        {"ttl": -1},
        {"limit_marker_ttl": 0.5},
        {"storage": "paper"},
        {"mirror": {"name": "A"}, "sources": [{"name": "C"}]},
        {"mirror": {}},
        {"histroy": 5},
    ],
)
def test_an_invalid_configuration_is_rejected(fields: dict[str, Any]) -> None:
    with pytest.raises(errors.ConfigError):
        KeyValueConfig.from_any(None, {"bucket": "B", **fields})


@pytest.mark.parametrize(
    "make",
    [
        lambda: KeyValueConfig.from_any("B", {}),
        lambda: KeyValueConfig.from_any(KeyValueConfig(bucket="B"), {"history": 2}),
        lambda: KeyValueConfig.from_any(None, {}),
    ],
    ids=["a name alone", "twice", "not at all"],
)
def test_a_configuration_is_given_once_and_by_name(make: Callable[[], object]) -> None:
    with pytest.raises(errors.ConfigError):
        make()


def test_a_configuration_comes_back_from_its_stream() -> None:
    fields: dict[str, Any] = {
        "bucket": "B",
        "description": "words",
        "max_value_size": 100,
        "history": 9,
        "ttl": 30.0,
        "max_bytes": 1000,
        "storage": "memory",
        "replicas": 3,
        "compression": True,
        "limit_marker_ttl": 5.0,
        "metadata": {"a": "b"},
    }
    config = KeyValueConfig.from_any(None, fields)
    stream = config.stream()
    server = {**(stream.metadata or {}), "_nats.level": "3"}
    assert KeyValueConfig.from_stream_config(stream.replace(metadata=server)) == config


# Codecs -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "key"),
    [
        ("a", "a"),
        ("a/b/c", "a.b.c"),
        ("/etc/hosts", "_root_.etc.hosts"),
    ],
)
def test_a_path_is_a_key_and_comes_back(path: str, key: str) -> None:
    codec = jsync.PathKeys()
    assert codec.encode(path) == check_key(key)
    assert codec.decode(key) == path.removesuffix("/")


def test_trailing_slashes_are_removed_but_wildcards_stay() -> None:
    codec = jsync.PathKeys()
    assert codec.encode("a/b/") == "a.b"
    assert codec.encode_filter("/a/*/>") == "_root_.a.*.>"
    with pytest.raises(errors.InvalidKeyError, match="without dots"):
        codec.encode("etc/x.conf")


@pytest.mark.parametrize("path", ["", "a//b", "//", "//a", "_root_", "_root_/x"])
def test_paths_that_no_key_decodes_to_are_refused(path: str) -> None:
    with pytest.raises(errors.InvalidKeyError, match="not a"):
        jsync.PathKeys().encode(path)


@pytest.mark.parametrize("text", ["Acme Inc.contact", "ä", "a b", "*", "x" * 200, "ÿ>"])
def test_any_text_comes_back_from_its_base64_key(text: str) -> None:
    codec = jsync.Base64Keys()
    assert codec.decode(check_key(codec.encode(text))) == text


def test_base64_keys_are_those_of_orbit_go() -> None:
    codec = jsync.Base64Keys()
    assert codec.encode("Acme Inc.contact") == "QWNtZSBJbmM.Y29udGFjdA"
    for pattern, encoded in {
        ">": ">",
        "a.b": "YQ.Yg",
        "a.*.>": "YQ.*.>",
        "*.a": "*.YQ",
    }.items():
        assert codec.encode_filter(pattern) == encoded


@pytest.mark.parametrize("text", ["", ".", "a..b", "a.", "\ud800", "a.\udcff"])
def test_a_text_that_base64_cannot_write_is_refused(text: str) -> None:
    for encode in (jsync.Base64Keys().encode, jsync.Base64Keys().encode_filter):
        with pytest.raises(errors.InvalidKeyError, match="not a key"):
            encode(text)


@given(
    st.text(st.sampled_from("ab_/.ü") | st.characters(), max_size=12)
    | st.lists(st.sampled_from(["_root_", "a", "/", ".", "_root_a"])).map("".join)
)
def test_every_key_comes_back_unchanged_or_is_refused(key: str) -> None:
    for codec in (jsync.PathKeys(), jsync.PathKeys("_"), jsync.Base64Keys()):
        separator = getattr(codec, "_separator", None)
        try:
            encoded = check_key(codec.encode(key))
        except errors.InvalidKeyError:
            continue
        if separator and key != separator:
            key = key.removesuffix(separator)
        assert codec.decode(encoded) == key


@given(
    st.text("ab_-=/.", min_size=1, max_size=8)
    | st.lists(st.sampled_from(["_root_", "YQ", "YR", "a", "/", "."])).map("".join)
)
def test_two_stored_keys_are_never_decoded_to_one(stored: str) -> None:
    for codec in (jsync.PathKeys(), jsync.PathKeys("-"), jsync.Base64Keys()):
        try:
            key = codec.decode(stored)
        except ValueError:
            continue
        assert codec.encode(key) == stored


def test_a_value_that_has_no_form_is_refused() -> None:
    for codec in (jsync.JSON(object), jsync.MsgPack(object)):
        with pytest.raises(errors.ConfigError, match="cannot be encoded"):
            codec.encode(object())


@pytest.mark.parametrize(
    ("separator", "path", "key"),
    [(":", "a:b:c", "a.b.c"), (":", ":a:", "_root_.a"), (".", "a.b", "a.b")],
)
def test_the_separator_of_paths_may_be_another_one(
    separator: str, path: str, key: str
) -> None:
    codec = jsync.PathKeys(separator)
    assert codec.encode(path) == check_key(key)
    assert codec.decode(key) == path.removesuffix(":")


@pytest.mark.parametrize("separator", ["", "ab", "*", ">", None, 7])
def test_a_separator_is_one_character(separator: Any) -> None:
    with pytest.raises(errors.ConfigError, match="separator: one character"):
        jsync.PathKeys(separator)


def test_values_in_base64_come_back() -> None:
    codec = jsync.Base64()
    assert codec.encode(b"\xfb\xff") == b"-_8"
    assert codec.decode(b"-_8") == codec.decode(b"-_8=") == b"\xfb\xff"
    for bad in (b"+/8", b"//8", b"-", b"a b"):
        with pytest.raises(ValueError, match=r"base64|Incorrect padding|multiple of 4"):
            codec.decode(bad)
    text: Any = "text"
    with pytest.raises(errors.ConfigError, match="cannot be encoded"):
        codec.encode(text)
