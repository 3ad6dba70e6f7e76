"""`jsync schedule` against a real server."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ..support.servers import wait_for
from .test_untrusted_text import EVIL, harmless, run_on_terminal

if TYPE_CHECKING:
    from pathlib import Path

    import jsync as package
    from jsync.server import LocalServer

    from .support import Jsync

pytestmark = pytest.mark.server


@pytest.fixture
def jobs(js: package.JetStream, unique: str) -> package.Schedules:
    js.create_stream(
        name=unique,
        subjects=[f"{unique}.>"],
        allow_msg_schedules=True,
        allow_msg_ttl=True,
        allow_direct=True,
        storage="memory",
    )
    return js.schedules(unique)


def test_a_schedule_is_stored_shown_and_cancelled(
    jsync: Jsync, jobs: package.Schedules, unique: str, tmp_path: Path
) -> None:
    subject, target = f"{unique}.s.report", f"{unique}.out"
    ended = jsync(
        *("schedule", "add", unique, subject, "weekly", "--dest", target),
        *("--cron", "0 0 5 * * mon", "--time-zone", "Europe/Prague", "--rollup"),
        *("--target-ttl", "1h", "--ttl", "30d", "-H", "Team:a", "-H", "Team:b"),
    )
    assert (ended.code, f"to {target}" in ended.output) == (0, True), ended.errors
    found = jobs.get(subject)
    assert (found.pattern, found.time_zone) == ("0 0 5 * * mon", "Europe/Prague")
    assert (found.data, found.rollup, found.target_ttl) == (b"weekly", True, "3600s")
    assert found.headers is not None
    assert found.headers.get_all("Team") == ["a", "b"]
    shown = jsync("schedule", "info", unique, subject, "--json").json
    assert (shown["schedule"], shown["target"]) == ("0 0 5 * * mon", target)
    assert (shown["data"], shown["headers"]) == ("weekly", {"Team": ["a", "b"]})
    assert "data\tweekly" in jsync("schedule", "get", unique, subject).lines
    assert jsync("schedule", "info", unique, subject, "--raw").output == "weekly"
    asked = jsync("schedule", "rm", unique, subject)
    assert (asked.code, "pass --force" in asked.errors) == (2, True)
    assert jsync("schedule", "cancel", unique, subject, "--force").code == 0
    for command in (("rm", unique, subject, "-f"), ("info", unique, subject)):
        assert jsync("schedule", *command).code == 3


def test_schedules_are_listed(
    jsync: Jsync, jobs: package.Schedules, unique: str, tmp_path: Path
) -> None:
    file = tmp_path / "payload"
    file.write_bytes(bytes(range(256)))
    to = ("--target", f"{unique}.out")
    add = ("schedule", "add", unique)
    once = jsync(*add, f"{unique}.s.a", *to, "--after", "1h", "--file", str(file))
    assert once.code == 0, once.errors
    again = jsync(
        *(*add, f"{unique}.s.b", *to, "--every", "90s", "--source", f"{unique}.x")
    )
    assert again.code == 0, again.errors
    rows = jsync("schedule", "ls", unique).rows
    assert [row[0] for row in rows] == [f"{unique}.s.a", f"{unique}.s.b"]
    assert rows[0][1].startswith("@at ")
    assert (rows[1][1], rows[1][4]) == ("@every 90s", f"{unique}.x")
    (found,) = jsync("schedule", "ls", unique, f"{unique}.s.b", "--json").json
    assert found["schedule"] == "@every 90s"
    assert jobs.get(f"{unique}.s.a").data == bytes(range(256))


def test_a_schedule_from_the_command_publishes(
    jsync: Jsync, js: package.JetStream, jobs: package.Schedules, unique: str
) -> None:
    to = ("--target", f"{unique}.out", "--at", "0s")
    ended = jsync("schedule", "add", unique, f"{unique}.s", *to, stdin=b"\x00now")
    assert ended.code == 0, ended.errors
    published = js.stream(unique).get_messages
    wait_for(lambda: [m.data for m in published(subject=f"{unique}.out")] == [b"\0now"])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ((), "give one of --at, --every and --cron"),
        (("--at", "1h", "--every", "5s"), "--at and --every exclude each other"),
        (("--every", "1h", "--file", __file__), "BODY and --file exclude each other"),
    ],
)
def test_options_that_do_not_fit_are_rejected(
    jsync: Jsync, unique: str, options: tuple[str, ...], words: str
) -> None:
    ended = jsync("schedule", "add", unique, "s", "body", "--target", "t", *options)
    assert (ended.code, words in ended.errors) == (2, True), ended.errors


def test_a_payload_reaches_a_terminal_without_escape_sequences(
    server: LocalServer,
    jobs: package.Schedules,
    unique: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    subject, target = f"{unique}.s", f"{unique}.out"
    jobs.put(subject, EVIL.encode(), schedule="@daily", target=target)
    monkeypatch.setenv("NATS_URL", server.url)
    for option in ((), ("--raw",), ("--json",)):
        _, written = run_on_terminal(
            monkeypatch, "schedule", "info", unique, subject, *option
        )
        harmless(written)
