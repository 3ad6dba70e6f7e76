"""Tests of `jsync pipeline infer`, which prints the schema of a stream's payloads."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from .support import Jsync

if TYPE_CHECKING:
    import jsync as library
    from jsync.server import LocalServer


@pytest.fixture
def jsync(server: LocalServer) -> Jsync:
    return Jsync(server)


def test_schemas_come_from_samples_of_the_whole_stream(
    jsync: Jsync, js: library.JetStream, stream: library.Stream, unique: str
) -> None:
    for number in range(50):
        js.publish(f"{unique}.a", b'{"number": %d}' % number)
    js.publish(f"{unique}.b", b'{"number": 0.5, "last": "x"}')
    js.publish(f"{unique}.a", b"no JSON")
    ended = jsync("pipeline", "infer", stream.name)
    assert (ended.code, ended.lines) == (0, ["number double, last string"])
    assert "52 samples, 1 are no JSON object" in ended.errors
    few = jsync("pipeline", "infer", stream.name, "--samples", "10", "--json").json
    assert (few["samples"], few["schema"]) == (10, "number bigint")
    one = jsync("pipeline", "infer", stream.name, "--subject", f"{unique}.b", "--json")
    assert one.json["fields"] == [
        {"name": "number", "type": "double", "present": 1},
        {"name": "last", "type": "string", "present": 1},
    ]
    stream.purge()
    assert jsync("pipeline", "infer", stream.name).code == 1
    assert jsync("pipeline", "infer", "NONE").code == 3


def test_without_sqlglot_infer_names_the_extra(
    jsync: Jsync, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jsync.cli.commands.pipeline.find_spec", lambda _: None)
    ended = jsync("pipeline", "infer", "ORDERS")
    assert 'pip install "jsync[spark]"' in ended.errors
