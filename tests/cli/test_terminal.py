"""Tests of the output and the questions that people see at a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from jsync import errors

from .terminal import Terminal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jsync import Connection, JetStream, Stream
    from jsync.server import LocalServer

pytestmark = pytest.mark.server


@pytest.fixture
def terminal(server: LocalServer) -> Iterator[Terminal]:
    with Terminal(NATS_URL=server.url) as terminal:
        yield terminal


def test_a_change_that_cannot_be_undone_needs_confirmation(
    terminal: Terminal, js: JetStream, stream: Stream
) -> None:
    name = stream.name
    js.publish(f"{name}.a", b"x")
    terminal.run("jsync", "stream", "edit", name, "--max-age", "1d")
    shown = terminal.await_screen("[y/N]:")
    assert "max_age: 0s -> 1d" in shown
    terminal.type("y")
    terminal.press("Enter")
    terminal.await_screen("exit 0")
    assert stream.info().config.max_age == 86400

    terminal.run("jsync", "stream", "purge", name)
    terminal.await_screen(f"Purge stream {name}? [y/N]:")
    terminal.press("Enter")
    assert "nothing was done" in terminal.await_screen("exit 1")
    assert stream.info().state.messages == 1

    terminal.run("jsync", "stream", "rm", name)
    terminal.await_screen(f"Delete stream {name} and its 1 messages? [y/N]:")
    terminal.press("C-c")
    shown = terminal.await_screen("exit 130")
    assert "Traceback" not in shown
    assert stream.info().state.messages == 1

    terminal.run("jsync", "stream", "rm", name)
    terminal.await_screen("[y/N]:")
    terminal.type("y")
    terminal.press("Enter")
    terminal.await_screen("exit 0")
    with pytest.raises(errors.StreamNotFoundError):
        stream.info()


def test_tables_are_drawn_and_messages_shown_on_arrival(
    terminal: Terminal, nc: Connection, stream: Stream
) -> None:
    name = stream.name
    subject = f"{name}.>"
    terminal.run("jsync", "stream", "ls", "--subject", subject)
    table = terminal.await_screen("exit 0")
    assert "─────" in table
    assert f"{name}" in table

    terminal.run("jsync", "pub", f"{name}.a")  # no prompt waits for input here
    terminal.await_screen("exit 0")
    assert stream.info().state.messages == 1

    terminal.run("jsync", "sub", subject)
    terminal.await_screen(f"subscribed to {subject}")
    nc.publish(f"{name}.a", "grün \x1b[2J".encode())
    shown = terminal.await_screen("grün")
    assert f"#1 {name}.a" in shown
    assert f"subscribed to {subject}" in shown, "a message cannot clear the screen"
    terminal.press("C-c")
    shown = terminal.await_screen("exit 130")
    assert "Traceback" not in shown


def test_tab_completes_in_bash(terminal: Terminal, stream: Stream) -> None:
    terminal.type('eval "$(jsync completion bash)" && echo ready')
    terminal.press("Enter")
    terminal.await_screen("\nready")
    terminal.clear()
    terminal.type("jsync stream inf")
    terminal.press("Tab")
    terminal.await_screen("$ jsync stream info")
    terminal.type(stream.name[:-3])
    terminal.press("Tab")
    terminal.await_screen(f"info {stream.name}")
    terminal.press("Enter")
    terminal.await_screen("Active Consumers")
