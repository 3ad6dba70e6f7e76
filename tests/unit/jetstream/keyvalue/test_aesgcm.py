"""Tests of values encrypted by AES-GCM: each is bound to its place, and no secret shows."""

from __future__ import annotations

import copy
import pickle
import sys
import traceback
from typing import Any

import pytest
from cryptography.hazmat.primitives.ciphers import aead

import jsync
from jsync import errors

KEY, OLD = bytes(range(32)), bytes(range(32, 48))
PLACE = "$KV.B.a"


@pytest.mark.parametrize("size", [16, 24, 32])
@pytest.mark.parametrize("data", [b"", b"x", bytes(range(256)), b"x" * 100_000])
def test_a_value_comes_back_but_is_stored_unreadable(size: int, data: bytes) -> None:
    codec = jsync.AESGCM(KEY[:size], key_id="k")
    stored = codec.encrypt(data, PLACE)
    assert codec.decrypt(stored, PLACE) == data
    assert len(stored) == len(data) + 2 + len("k") + 12 + 16
    if len(data) > 16:
        assert data not in stored


def test_any_library_can_read_the_documented_form() -> None:
    stored = jsync.AESGCM(KEY, key_id="2026").encrypt(b"value", PLACE)
    head, nonce, body = stored[:6], stored[6:18], stored[18:]
    assert head == b"\x01\x042026"
    assert aead.AESGCM(KEY).decrypt(nonce, body, head + PLACE.encode()) == b"value"


def test_each_value_has_a_nonce_of_its_own() -> None:
    codec = jsync.AESGCM(KEY)
    assert len({codec.encrypt(b"same", PLACE)[2:14] for _ in range(1000)}) == 1000


def test_a_value_fits_only_its_key_and_bucket() -> None:
    codec = jsync.AESGCM(KEY)
    stored = codec.encrypt(b"value", PLACE)
    for place in ("$KV.B.b", "$KV.C.a", "$KV.B.a.b", ""):
        with pytest.raises(ValueError, match="for another place"):
            codec.decrypt(stored, place)


def test_a_change_of_any_byte_is_noticed() -> None:
    codec = jsync.AESGCM(KEY, key_id="k")
    stored = codec.encrypt(b"value", PLACE)
    for number in range(len(stored)):
        changed = bytearray(stored)
        changed[number] ^= 1
        with pytest.raises(ValueError, match=r"it (is|was) "):
            codec.decrypt(bytes(changed), PLACE)
    for end in range(len(stored)):
        with pytest.raises(ValueError, match=r"it (is|was) "):
            codec.decrypt(stored[:end], PLACE)
    with pytest.raises(ValueError, match="it was changed"):
        codec.decrypt(stored + b"x", PLACE)


def test_another_key_of_the_same_id_reads_nothing() -> None:
    stored = jsync.AESGCM(KEY).encrypt(b"value", PLACE)
    with pytest.raises(ValueError, match="encrypted with another key"):
        jsync.AESGCM(OLD).decrypt(stored, PLACE)


def test_values_of_replaced_keys_are_read_by_id() -> None:
    before = jsync.AESGCM(OLD, key_id="1").encrypt(b"old", PLACE)
    codec = jsync.AESGCM(KEY, key_id="2", old={"1": OLD})
    assert codec.decrypt(before, PLACE) == b"old"
    assert codec.encrypt(b"new", PLACE)[2:3] == b"2"
    with pytest.raises(ValueError, match="another key, of id '1'"):
        jsync.AESGCM(KEY, key_id="2").decrypt(before, PLACE)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"key": KEY[:5]}, "key: 16, 24 or 32 bytes, not 5"),
        ({"key": "k" * 32}, "key: bytes, not str"),
        ({"key": None}, "key: bytes, not NoneType"),
        ({"key": KEY, "key_id": 7}, "key_id: a str, not int"),
        ({"key": KEY, "key_id": "x" * 256}, "at most 255 bytes"),
        ({"key": KEY, "key_id": "a", "old": {"a": OLD}}, "'a' is also in old"),
        ({"key": KEY, "old": {"a": OLD[:3]}}, "key: 16, 24 or 32 bytes, not 3"),
    ],
)
def test_an_invalid_secret_is_rejected(given: dict[str, Any], words: str) -> None:
    with pytest.raises(errors.ConfigError, match=words):
        jsync.AESGCM(**given)


def test_only_bytes_are_encrypted() -> None:
    value: Any = "text"
    with pytest.raises(errors.ConfigError, match="not str; put a codec before"):
        jsync.AESGCM(KEY).encrypt(value, PLACE)


def test_the_secret_is_nowhere_to_be_seen() -> None:
    codec = jsync.AESGCM(KEY, key_id="2", old={"1": OLD})
    seen = [repr(codec), str(codec), repr(vars(codec))]
    stored = codec.encrypt(b"value", PLACE)
    with pytest.raises(ValueError, match="another place") as caught:
        codec.decrypt(stored, "elsewhere")
    seen += [*traceback.format_exception(caught.value), repr(caught.value.args)]
    for take in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="it holds secrets") as refused:
            take(codec)
        seen.append(str(refused.value))
    for size in (5, 33):
        with pytest.raises(errors.ConfigError) as wrong:
            jsync.AESGCM(b"\xa7" * size)
        seen.append(repr(wrong.value))
    for text in seen:
        for secret in (KEY, OLD, b"\xa7" * 5):
            assert secret.hex() not in text
            assert repr(secret)[2:-1] not in text


def test_without_the_extra_one_line_names_the_package(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = "cryptography.hazmat.primitives.ciphers"
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(errors.ConfigError, match=r'pip install "jsync\[encryption\]"'):
        jsync.AESGCM(KEY)
