"""Tests of `jsync group`: create, ls, info, members, lag, add, drop, map, step-down and rm."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from ..support.servers import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    import jsync as package

    from .support import Jsync

pytestmark = pytest.mark.server


@pytest.fixture
def orders(nc: package.Connection, unique: str) -> Iterator[str]:
    js = nc.jetstream()
    js.create_stream(name=unique, subjects=[f"{unique}.*"], storage="memory")
    yield unique
    for group in list(js.consumer_groups(unique)):
        js.delete_consumer_group(unique, group.name)
    js.delete_stream(unique)


def test_a_group_is_created_listed_shown_and_deleted(jsync: Jsync, orders: str) -> None:
    made = jsync(
        *("group", "create", orders, "g", "6", "--filter", f"{orders}.*:1"),
        *("--member", "b", "--member", "a", "--max-messages", "1000"),
    )
    assert made.lines == [
        f"stream\t{orders}",
        "group\tg",
        "kind\telastic",
        "partitions\t6",
        f"filters\t{orders}.*:1",
        "max messages\t1000",
        "format\t0.2",
        "member a\t0,1,2",
        "member b\t3,4,5",
    ]
    assert jsync("group", "ls", orders).rows == [[orders, "g", "elastic", "6", "a, b"]]
    assert orders in [row[0] for row in jsync("group", "ls").rows]
    told = jsync("group", "info", orders, "g", "--json").json
    assert (told["partitions"], told["filters"]) == (6, {f"{orders}.*": [1]})
    assert jsync("group", "ls", orders, "--json").json == [told]
    refused = jsync("group", "rm", orders, "g")
    assert (refused.code, "--force" in refused.errors) == (2, True)
    jsync("group", "rm", orders, "g", "--force")
    assert jsync("group", "ls", orders).rows == []
    gone = jsync("group", "info", orders, "g")
    assert (gone.code, "no consumer group 'g'" in gone.errors) == (3, True)


def test_members_are_added_dropped_and_mapped(jsync: Jsync, orders: str) -> None:
    jsync("group", "create", orders, "g", "4")
    added = jsync("group", "add", orders, "g", "a", "b", "--json").json
    assert added["members"] == ["a", "b"]
    for change in (("drop", "a"), ("map", "x=0,1,2,3"), ("unmap",)):
        verb, *words = change
        asked = jsync("group", verb, orders, "g", *words)
        assert (asked.code, "pass --force" in asked.errors) == (2, True)
    assert jsync("group", "info", orders, "g", "--json").json["members"] == ["a", "b"]
    mistyped = jsync("group", "drop", orders, "g", "a", "x", "-f")
    assert mistyped.code == 3
    assert "no member x; its members are a, b" in mistyped.errors
    dropped = jsync("group", "drop", orders, "g", "a", "-f", "--json").json
    assert dropped["members"] == ["b"]
    of = (orders, "g", "x=0,3", "y=1,2", "--force")
    mapped = jsync("group", "map", *of, "--json").json
    assert mapped["mappings"] == {"x": [0, 3], "y": [1, 2]}
    assert jsync("group", "members", orders, "g").rows == [
        ["x", "0,3", "no", "0", "0", "0"],
        ["y", "1,2", "no", "0", "0", "0"],
    ]
    unmapped = jsync("group", "unmap", orders, "g", "--force", "--json").json
    assert unmapped["mappings"] == {}
    for wrong in ("x", "x=a"):
        refused = jsync("group", "map", orders, "g", wrong)
        assert (refused.code, f"{wrong!r}: write" in refused.errors) == (2, True)


def test_lag_shows_pending_messages_and_members_active_ones(
    jsync: Jsync, nc: package.Connection, orders: str
) -> None:
    js = nc.jetstream()
    jsync("group", "create", orders, "g", "2", "--member", "a")
    for number in range(20):
        js.publish(f"{orders}.{number}")
    group = js.consumer_group(orders, "g")
    wait_for(lambda: sum(group.lag().values()) == 20)
    shown = jsync("group", "lag", orders, "g").rows
    assert [row[:2] for row in shown] == [["0", "a"], ["1", "a"]]
    assert sum(int(row[2]) for row in shown) == 20
    told = jsync("group", "lag", orders, "g", "--json").json
    assert told["uncopied"] == 0
    assert sum(row["messages"] for row in told["partitions"]) == 20
    with group.join("a") as member:
        for msg in itertools.islice(member, 5):
            msg.ack()
        (row,) = jsync("group", "members", orders, "g").rows
        assert row[:3] == ["a", "0,1", "yes"]
        jsync("group", "step-down", orders, "g", "a")
        (info,) = jsync("group", "members", orders, "g", "--json").json
        assert not info["pinned"]
    absent = jsync("group", "step-down", orders, "g", "z")
    assert (absent.code, "consumer not found" in absent.errors) == (3, True)
