"""Tests that a program moved from nats-py to jsync does the same."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import jsync

if TYPE_CHECKING:
    from jsync.server import LocalServer

    from ..conftest import StartServer

pytestmark = pytest.mark.server

HERE = Path(__file__).parent
DAYS = ("monday", "tuesday")


def run(program: str, server: LocalServer, day: str) -> str:
    """Run a program, check that it succeeds, and return the report that it prints."""
    process = subprocess.run(
        [sys.executable, str(HERE / f"{program}.py"), server.url, day],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert process.returncode == 0, process.stderr
    assert "ERROR" not in process.stderr
    return process.stdout


def stored(server: LocalServer) -> list[tuple[str, str, float]]:
    """Return the messages of the shop, by subject, day and total.

    The workers decide which order gets the last pieces of an item.
    """
    with jsync.connect(server.url) as nc:
        stream = nc.jetstream().stream("SHOP")
        with stream.ordered_consumer(filter_subjects="*.*") as reader:
            found = list(reader.fetch_nowait(1000))
    return sorted(
        (msg.subject, (msg.headers or {"Day": ""})["Day"], total_of(msg.data))
        for msg in found
    )


def total_of(data: bytes) -> float:
    with contextlib.suppress(ValueError):
        return float(json.loads(data).get("total", 0))
    return -1  # the broken order


@pytest.mark.parametrize(
    "programs",
    [("after", "after"), ("before", "after")],
    ids=["moved at once", "moved after a day"],
)
def test_the_moved_program_reports_and_stores_the_same(
    own_server: StartServer, programs: tuple[str, str]
) -> None:
    theirs, ours = own_server(), own_server()
    for program, day in zip(programs, DAYS, strict=True):
        assert run(program, ours, day) == run("before", theirs, day)
    assert stored(ours) == stored(theirs)


def test_moved_programs_need_neither_asyncio_nor_nats_py() -> None:
    code = (HERE / "after.py").read_text()
    assert [word for word in ("asyncio", "await", "nats.") if word in code] == []
