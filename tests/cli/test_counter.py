"""`jsync counter` against a real server."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ..support.servers import wait_for

if TYPE_CHECKING:
    import jsync as package

    from .support import Jsync

pytestmark = pytest.mark.server


@pytest.fixture
def hits(js: package.JetStream, unique: str) -> str:
    """The subject of a counter, which nothing was added to yet."""
    js.create_stream(
        name=unique,
        subjects=[f"{unique}.>"],
        allow_msg_counter=True,
        allow_direct=True,
        storage="memory",
    )
    return f"{unique}.hits"


def test_a_counter_is_added_to_and_read(jsync: Jsync, hits: str) -> None:
    assert jsync("counter", "get", hits).code == 3
    assert jsync("counter", "increment", hits).output == "1\n"
    assert jsync("ctr", "incr", hits, "41").output == "42\n"
    assert jsync("counter", "dec", hits, "2").output == "40\n"
    assert jsync("counter", "decrement", hits).output == "39\n"
    large = 10**40
    ended = jsync("counter", "inc", hits, str(large), "--json")
    assert ended.json == {"subject": hits, "value": large + 39}
    assert jsync("counter", "get", hits).output == f"{large + 39}\n"
    wrong = jsync("counter", "increment", hits, "many")
    assert (wrong.code, "many" in wrong.errors) == (2, True)


def test_an_id_adds_once(jsync: Jsync, hits: str) -> None:
    for _ in range(2):
        assert jsync("counter", "increment", hits, "5", "--msg-id", "a").output == "5\n"


def test_counters_are_listed_with_their_values(
    jsync: Jsync, hits: str, unique: str
) -> None:
    jsync("counter", "increment", f"{unique}.b", "2")
    jsync("counter", "increment", f"{unique}.a", "1")
    rows = [[f"{unique}.a", "1"], [f"{unique}.b", "2"]]
    assert jsync("counter", "ls", f"{unique}.*").rows == rows
    assert jsync("counter", "list", "--stream", unique).rows == rows
    found = jsync("counter", "ls", f"{unique}.b", "--json").json
    assert [(each["subject"], each["value"]) for each in found] == [(f"{unique}.b", 2)]
    ended = jsync("counter", "ls")
    assert (ended.code, "give a FILTER" in ended.errors) == (2, True)


def test_a_view_shows_the_parts_of_sources(
    jsync: Jsync, js: package.JetStream, hits: str, unique: str
) -> None:
    transform = {"src": hits, "dest": f"{unique}sum"}
    js.create_stream(
        name=f"{unique}SUM",
        sources=[{"name": unique, "subject_transforms": [transform]}],
        allow_msg_counter=True,
        allow_direct=True,
        storage="memory",
    )
    jsync("counter", "increment", hits, "3")
    of = ("counter", "view", f"{unique}sum", "--stream", f"{unique}SUM")
    wait_for(lambda: jsync(*of).code == 0)
    found = jsync(*of, "--json").json
    assert found["sources"] == {unique: {hits: 3}}
    assert f"sources\t{unique} {hits} 3" in jsync(*of).lines
    js.delete_stream(f"{unique}SUM")


def test_a_stream_without_counters_is_named(
    jsync: Jsync, stream: package.Stream
) -> None:
    ended = jsync("counter", "get", f"{stream.name}.a")
    assert (ended.code, "allow_msg_counter=True" in ended.errors) == (1, True)


def test_the_list_names_an_unreadable_counter(
    jsync: Jsync, nc: package.Connection, hits: str, unique: str
) -> None:
    jsync("counter", "increment", f"{unique}.a", "1")
    nc.request(hits, headers={"Nats-Incr": "1" + "0" * 5000})
    ended = jsync("counter", "ls", "--stream", unique)
    assert (ended.code, ended.rows) == (1, [[f"{unique}.a", "1"]])
    assert f"{hits!r} of {unique} is not a counter" in ended.errors
