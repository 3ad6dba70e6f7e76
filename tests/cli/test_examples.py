"""Tests of the examples in `--help`: each command has one, and its options exist.

An example that needs nothing but a server and the files below is also run.
"""

from __future__ import annotations

import re
import shlex
import shutil
from typing import TYPE_CHECKING, Final

import click
import pytest

import jsync as package
from jsync.cli.app import app
from jsync.cli.groups import ExampleCommand

from ..docs.markdown import ROOT
from .support import Jsync, run_line
from .test_contexts import store
from .tree import COMMANDS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from jsync.server import LocalServer

PARSED_ONLY: Final = {
    "completion": "a shell runs it",
    "consumer step-down": "needs a cluster",
    "consumer unpin": "needs a client that is pinned",
    "events": "waits for events",
    "group step-down": "needs a member that runs",
    "pipeline replay": "needs Spark",
    "pipeline run": "needs Spark",
    "reply": "waits for requests",
    "server info": "needs the system account",
    "server kick": "needs the system account",
    "server ls": "needs the system account",
    "server peer-remove": "needs a cluster",
    "server profile": "needs the system account",
    "server reload": "needs the system account",
    "server request": "needs the system account",
    "server run": "runs until Ctrl-C",
    "server step-down": "needs a cluster",
    "service serve": "runs until Ctrl-C",
    "stream peer-remove": "needs a cluster",
    "stream step-down": "needs a cluster",
    "sub": "waits for messages",
    "worker": "runs until SIGTERM",
}

ALONE: Final = re.compile(r"[A-Z]\S* .+\.")
"""A description that is a sentence."""

POINTING: Final = re.compile(
    r"^(?:Only )?(?:[Tt]hese|[Tt]hose|Its|The same|the names)\b"
)
"""Words that point to the description of another option."""

DELETED_FIRST: Final = {
    "account restore": ("ORDERS",),
    "stream create": ("ORDERS",),
    "stream restore": ("ORDERS",),
}
"""The streams that an example creates, which are there for all others."""


def lines(words: str) -> list[str]:
    """Return the command lines of the example of a command."""
    command = COMMANDS[words]
    assert isinstance(command, ExampleCommand)
    return command.example.replace("\\\n", "").splitlines()


@pytest.mark.parametrize("words", COMMANDS)
def test_each_command_shows_its_example(words: str) -> None:
    named = words.removeprefix("consumer ") if words == "consumer next" else words
    assert any(f"jsync {named}" in line for line in lines(words))
    shown = Jsync()(*words.split(), "--help").output
    _, _, example = shown.rpartition("\nExample:\n")
    assert [line.strip() for line in example.splitlines()] == lines(words)
    assert max(map(len, example.splitlines())) <= 80


@pytest.mark.parametrize("words", COMMANDS)
def test_each_option_is_described_alone(words: str) -> None:
    for param in COMMANDS[words].params:
        if isinstance(param, click.Option) and not param.hidden:
            text = param.help or ""
            assert ALONE.fullmatch(text), f"{param.opts}: {text}"
            assert not POINTING.search(text), f"{param.opts}: {text}"


@pytest.mark.parametrize("words", COMMANDS)
def test_each_example_has_options_that_exist(
    words: str, prepared: Path, config_home: Path
) -> None:
    for line in lines(words):
        for part in (line.removeprefix('eval "$(').removesuffix(')"')).split(" | "):
            name, *arguments = shlex.split(part)
            if name == "jsync":
                parse(app, arguments)


def parse(group: click.Group, arguments: list[str]) -> None:
    """Parse a command line without running it."""
    with click.Context(group) as ctx:
        name, *rest = arguments
        command = group.get_command(ctx, name)
        assert command is not None, name
        if isinstance(command, click.Group):
            parse(command, rest)
        else:
            with command.make_context(name, rest, parent=ctx):
                pass


@pytest.fixture(scope="module")
def example_server() -> Iterator[LocalServer]:
    with package.server.LocalServer() as server, package.connect(server.url) as nc:
        # The server removes the directory of an account when its last stream is deleted,
        # and could not create the next stream meanwhile.
        nc.jetstream().create_stream(name="KEPT")
        yield server


@pytest.fixture
def prepared(
    tmp_path: Path, config_home: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """The working directory, with the files that examples name."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "orders.json").write_text('{"id": 42}')
    (tmp_path / "prod.creds").write_text("")
    (tmp_path / "flights.csv").write_text("carrier,delay\nAA,12\nUA,-3\n")
    shutil.copy(ROOT / "examples/pipelines/flights.toml", tmp_path / "delays.toml")
    store(config_home, "lab", select=True)
    return tmp_path


@pytest.mark.server
@pytest.mark.parametrize("words", sorted(COMMANDS.keys() - PARSED_ONLY.keys()))
def test_each_example_runs_on_a_server(
    words: str,
    example_server: LocalServer,
    prepared: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NATS_URL", example_server.url)
    monkeypatch.setenv("OUT", str(prepared))
    with package.connect(example_server.url) as nc:
        js = nc.jetstream()
        for name in {*js.stream_names()} - {"KEPT"}:
            js.delete_stream(name)
        fill(js)
        (prepared / "backup").mkdir()
        if words == "stream restore":
            js.stream("ORDERS").backup(prepared / "backup/today")
        if words == "account restore":
            js.backup_streams(prepared / "backup/all")
        for name in DELETED_FIRST.get(words, ()):
            js.delete_stream(name)
        with nc.service("hello", "1.0.0") as service:
            service.endpoint("echo", subject="hello.echo")(echo)
            for line in lines(words):
                run_line(line)


def echo(request: package.Request) -> None:
    request.respond(request.data)


def fill(js: package.JetStream) -> None:
    """Create the streams, buckets and stores that examples name."""
    orders = js.create_stream(
        name="ORDERS", subjects=["orders.>"], allow_direct=True, max_age=86400 * 365
    )
    for number in range(3):
        js.publish("orders.new", b'{"id": %d}' % number)
    js.publish("orders.count", b"1")
    orders.create_consumer(durable_name="billing")
    config = js.create_key_value(bucket="CONFIG", history=5, limit_marker_ttl=3600)
    config.put("db.host", b"10.0.0.1")
    files = js.create_object_store(bucket="FILES")
    files.put("backup/orders.json", b'{"id": 42}')
    js.create_stream(
        name="COUNTS", subjects=["counts.>"], allow_msg_counter=True, allow_direct=True
    )
    js.counters("COUNTS").add("counts.clicks", 1)
    js.create_stream(
        name="JOBS",
        subjects=["jobs.>", "todo.>"],
        allow_msg_schedules=True,
        allow_msg_ttl=True,
        allow_direct=True,
    )
    js.schedules("JOBS").put(
        "jobs.mail", b"mail", target="todo.mail", schedule="@every 1h"
    )
    js.create_consumer_group(
        "ORDERS",
        "shipping",
        partitions=6,
        filters={"orders.*": [1]},
        members=["ann", "ben"],
    )
    js.create_stream(name="DEAD", subjects=["dead.>"], allow_direct=True)
    js.create_stream(name="FLIGHTS", subjects=["flights.*"])
    js.create_stream(name="DELAYS", subjects=["delays.>"], max_msgs_per_subject=1)
    letter = {"Dead-Letter-Stream": "ORDERS", "Dead-Letter-Subject": "orders.new"}
    js.publish("dead.orders", b'{"id": 42}', headers=letter)
