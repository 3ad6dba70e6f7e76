"""Tests of escaping untrusted text for a terminal."""

from __future__ import annotations

import json
import pickle
import sys
import unicodedata

import pytest

from jsync import errors
from jsync.terminal import printable


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("a line\nand\ta tab\r\n", "a line\nand\ta tab\r\n"),
        ("\x1b]0;title\x07", r"\u001b]0;title\u0007"),
        ("over\rwritten", r"over\u000dwritten"),
        ("\x9b2J\x7f\x00", r"\u009b2J\u007f\u0000"),
        ("\u202egnp.exe\u2069\u200f", r"\u202egnp.exe\u2069\u200f"),
        ("a\u200bb\ufeff\u2028", r"a\u200bb\ufeff\u2028"),
        (b"\xff.a\x9b".decode(errors="surrogateescape"), r"\udcff.a\udc9b"),
        ("\U000e0041", r"\udb40\udc41"),
        ("grün 日本 \u3000 👩‍🚀 می‌خواهم", "grün 日本 \u3000 👩‍🚀 می‌خواهم"),
    ],
)
def test_a_terminal_gets_nothing_that_it_obeys(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_every_control_and_bidirectional_character_is_escaped() -> None:
    for code in range(sys.maxunicode + 1):
        char = chr(code)
        bidi = unicodedata.bidirectional(char) in {
            *("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")
        }
        dangerous = bidi or unicodedata.category(char) in {"Cc", "Cs", "Zl", "Zp"}
        if dangerous and char not in "\n\t":
            assert printable(char).isascii(), f"U+{code:04X}"
            assert printable(char).isprintable(), f"U+{code:04X}"


def test_a_flag_stays_and_tags_elsewhere_are_escaped() -> None:
    tags = "".join(chr(0xE0000 + ord(letter)) for letter in "gbsct\x7f")
    flag = f"\U0001f3f4{tags}"
    assert printable(f"{flag} {flag}") == f"{flag} {flag}"
    assert printable(f"a{tags}").isascii()
    assert printable(f"\U0001f3f4 {tags}\x1b").endswith("\\u001b")
    assert tags not in printable(f"\U0001f3f4 {tags}")


def test_json_that_is_escaped_has_the_same_value() -> None:
    value = {"\x9b": ["\u202e\x7f\U000e0041", "\udcff", "\x1b\r", "ü"]}
    document = json.dumps(value, ensure_ascii=False)
    assert json.loads(printable(document)) == value


def test_an_error_prints_safely_and_keeps_its_text() -> None:
    error = errors.APIError("no \x1b[2J", description="\x1b[2J")
    for one in (error, pickle.loads(pickle.dumps(error))):
        assert str(one) == r"no \u001b[2J"
        assert (one.args, one.description) == (("no \x1b[2J",), "\x1b[2J")
    assert str(errors.TimeoutError("\x9b")) == str(errors.ConnectionError("\x9b"))
    assert str(errors.TimeoutError("\x9b")) == r"\u009b"
