"""Tests of the keys that are found in a configuration of nats-server."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from jsync._server_config import entries_of

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("", set()),
        ("port: 4222", {"port"}),
        ("port 4222", {"port"}),
        ("port=4222 # the port: here\nhost: a", {"port", "host"}),
        ('"port": 4222; \'Host\' = "a # b"\n', {"port", "host"}),
        ("# port: 1\n// host: 2\nlisten: 127.0.0.1:4222", {"listen"}),
        ("{port: 1, host: a}", {"port", "host"}),
        ('{"listen": "a:1",\n "jetstream": {"max_mem": 1}}', None),
        ("jetstream: enabled\nport: -1", {"jetstream", "port"}),
        ("routes = [nats://a:1, nats://b:2]\nport: 1", {"routes", "port"}),
        ("routes: [\n nats://a:1 // b ]\n]\nport: 1", {"routes", "port"}),
        ("a: (\n{ not: a key\n)\nport: 1", {"a", "port"}),
        ('a: "x \\" { y: 1"\nport: 1', {"a", "port"}),
        (
            "jetstream {\n store_dir: /x # y: 1\n}\n",
            {"jetstream", "jetstream.store_dir"},
        ),
        ("a { b { c: 1 }, d: [{e: 1}] }", {"a", "a.b", "a.b.c", "a.d"}),
        ("a: {", {"a"}),
        ("a", {"a"}),
        ("include: 7", {"include"}),
    ],
)
def test_keys_are_found_as_the_server_reads_them(
    tmp_path: Path, text: str, keys: set[str] | None
) -> None:
    if keys is None:
        keys = {"listen", "jetstream", "jetstream.max_mem"}
    assert entries_of(text, tmp_path).keys() == keys


def test_included_files_are_read(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a.conf").write_text("include './b.conf'\nhost: a\n")
    (tmp_path / "sub" / "b.conf").write_text("port: 1\ninclude ../loop.conf\n")
    (tmp_path / "loop.conf").write_text("include loop.conf\nx: 1")
    (tmp_path / "js.conf").write_text("store_dir: y")
    text = 'include "sub/a.conf"\njetstream { include js.conf }\ninclude none.conf'
    assert entries_of(text, tmp_path).keys() == {
        *("host", "port", "x", "jetstream", "jetstream.store_dir"),
    }
