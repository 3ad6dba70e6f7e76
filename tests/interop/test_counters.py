"""Tests that jsync and orbit.go share counters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import jsync

from ..support.servers import wait_for
from .go_program import GoClient

if TYPE_CHECKING:
    from jsync.server import LocalServer

pytestmark = pytest.mark.server

LARGE = 10**60 + 3


def told(go: GoClient, op: str, **counter: Any) -> Any:
    answer = go.ask(f"counter_{op}", counter=counter)
    assert not answer.get("error"), answer["error"]
    return answer["told"]


def test_both_add_to_the_same_counters(server: LocalServer, unique: str) -> None:
    with jsync.connect(server.url) as nc, GoClient(server.url) as go:
        js = nc.jetstream()
        fields: dict[str, Any] = {"allow_msg_counter": True, "allow_direct": True}
        js.create_stream(name=unique, subjects=[f"{unique}.a"], **fields)
        js.create_stream(
            name=f"{unique}sum",
            sources=[
                {
                    "name": unique,
                    "subject_transforms": [
                        {"src": f"{unique}.a", "dest": f"{unique}.sum"}
                    ],
                }
            ],
            **fields,
        )
        counters = js.counters(unique)
        where = {"stream": unique, "subject": f"{unique}.a"}
        assert counters.add(f"{unique}.a", LARGE) == LARGE
        assert told(go, "add", **where, amount=str(LARGE)) == str(2 * LARGE)
        assert counters.add(f"{unique}.a", -1) == 2 * LARGE - 1
        assert counters.load(f"{unique}.a") == 2 * LARGE - 1
        assert told(go, "get", **where)["value"] == str(2 * LARGE - 1)
        total = js.counters(f"{unique}sum")

        def summed() -> bool:
            return [each.value for each in total.get_many()] == [2 * LARGE - 1]

        wait_for(summed)
        ours = total.get(f"{unique}.sum").sources
        theirs = told(go, "get", stream=f"{unique}sum", subject=f"{unique}.sum")
        assert theirs["sources"] == {
            stream: {subject: str(value) for subject, value in values.items()}
            for stream, values in ours.items()
        }
        assert ours == {unique: {f"{unique}.a": 2 * LARGE - 1}}
