"""Tests that a forked child cannot end the watches of its parent, and gets its own errors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ....support.processes import run_child
from ...core.test_fork import FORK

if TYPE_CHECKING:
    from jsync.server import LocalServer

pytestmark = pytest.mark.server


def test_a_blocks_error_passes_though_its_end_fails(
    server: LocalServer, unique: str
) -> None:
    script = (
        FORK
        + """
    bucket = nc.jetstream().create_key_value(bucket=subject, limit_marker_ttl=60)
    opened = {
        "live": bucket.live(),
        "election": bucket.elect("a", ttl=30),
    }

    def raising(of):
        with of:
            raise KeyError

    def leaving(of):
        with of:
            pass

    for name, one in opened.items():
        if (result := in_child(lambda: raising(one))) != "KeyError":
            print(name, "raising", result)
        if (result := in_child(lambda: leaving(one))) != "ForkedProcessError":
            print(name, "leaving", result)
    check_parent()
    nc.close()
"""
    )
    assert run_child(script, server.url, unique) == ""


def test_a_forked_child_holds_leads_and_follows_nothing(
    server: LocalServer, unique: str
) -> None:
    """The parent may release the lock at any time, and the child would not notice."""
    script = (
        FORK
        + """
    bucket = nc.jetstream().create_key_value(bucket=subject, limit_marker_ttl=60)
    lock = bucket.lock("a", ttl=30)
    leads = threading.Event()
    election = bucket.elect("b", ttl=30, on_elected=lambda token: leads.set())
    leads.wait()
    live = bucket.live()
    with lock:
        facts = {
            "held": lambda: lock.held,
            "is_leader": lambda: election.is_leader,
            "is_current": lambda: live.is_current,
            "is_connected": lambda: nc.is_connected,
        }
        for name, fact in facts.items():
            if (result := (fact(), in_child(fact))) != (True, "False"):
                print(name, result)
        if (result := in_child(lambda: lock.remaining)) != "0.0":
            print("remaining", result)
        if (result := in_child(lock.acquire)) != "ForkedProcessError":
            print("acquire", result)
        for name, one in {"lock": lock, "election": election}.items():
            if (result := in_child(lambda: one.token)) != "ForkedProcessError":
                print(name, "token", result)
        assert lock.held and lock.token and election.token
    election.stop()
    check_parent()
    nc.close()
"""
    )
    assert run_child(script, server.url, unique) == ""
