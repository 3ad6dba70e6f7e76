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
