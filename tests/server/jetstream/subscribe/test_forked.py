"""Tests that a forked child cannot subscribe, read, or end a subscription of its parent."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ....support.processes import run_child
from ...core.test_fork import FORK

if TYPE_CHECKING:
    from jsync.server import LocalServer

pytestmark = pytest.mark.server


def test_every_workflow_call_in_a_forked_child_raises(
    server: LocalServer, unique: str
) -> None:
    script = (
        FORK
        + """
    js = nc.jetstream()
    stream = js.create_stream(name=subject, subjects=["js." + subject])
    js.publish("js." + subject, b"1")
    pushed = js.subscribe("js." + subject, durable="pushed", keep=False)
    pulled = js.pull_subscribe("js." + subject, "pulled", keep=False)
    while not pushed.pending:
        time.sleep(0.001)
    calls = {
        "subscribe": lambda: js.subscribe("js." + subject),
        "subscribe to a stream": lambda: js.subscribe(stream=subject),
        "ordered": lambda: js.subscribe("js." + subject, ordered=True),
        "subscribe_bind": lambda: js.subscribe_bind(subject, consumer="pushed"),
        "pull_subscribe": lambda: js.pull_subscribe("js." + subject),
        "pull_subscribe_bind": lambda: js.pull_subscribe_bind("pulled", subject),
        "next": pushed.next,
        "iteration": lambda: next(iter(pushed)),
        "fetch": pulled.fetch,
        "fetch of several": lambda: pulled.fetch(5),
        "consumer_info": pulled.consumer_info,
        "unsubscribe": pulled.unsubscribe,
        "drain": pulled.drain,
        "push unsubscribe": pushed.unsubscribe,
        "push drain": pushed.drain,
    }
    for name, call in calls.items():
        if (result := in_child(call)) != "ForkedProcessError":
            print(name, result)
    check_parent()
    assert pushed.next().data == pulled.fetch()[0].data == b"1"
    assert sorted(stream.consumer_names()) == ["pulled", "pushed"]
    stream.delete()
    nc.close()
"""
    )
    assert run_child(script, server.url, unique) == ""
