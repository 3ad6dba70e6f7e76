"""Tests that the command escapes untrusted text, so a terminal does not obey it."""

from __future__ import annotations

import ast
import base64
import io
import json
import os
import re
import socket
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest
from rich.text import Text

import jsync as package
from jsync.cli import main
from jsync.cli.ui.console import console
from jsync.cli.ui.errors import print_error
from jsync.cli.ui.progress import Bar, ProgressState

from ..support.connection_faults import FakeServer
from ..support.fake_jetstream import FakeReply, answer_requests
from .tree import COMMANDS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jsync import JetStream, Stream
    from jsync.server import LocalServer

    from .support import Jsync

pytestmark = pytest.mark.server

EVIL = "\x1b]0;PWNED\x07\x1b[2J\x1b[38;5;199m\x9b5n\u202e\u2066\x7f\x08\u200b"
"""Sets the title, clears the screen, colors, asks for the cursor and reverses the text."""
EVIL_TOKEN = EVIL.encode() + b"\xff\x9b"
"""The same as a token of a subject. Its end is not UTF-8."""

OURS = re.compile(
    # bold, and the colors of click and rich
    rb"\x1b\[(?:[0-9]|[0-9][0-9])?(?:;[0-9]{1,2})?m"
    rb"|\x1b\[\?25[hl]|\x1b\[[0-9]?[AK]|\r"  # the cursor movements of a progress bar
)
CONTROLS = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b\u200e\u200f\u202a-\u202e\u2066-\u2069\udc80-\udcff]"
)


def harmless(written: bytes) -> None:
    """Check that the output has no control sequences except those of jsync itself."""
    left = OURS.sub(b"", written).decode(errors="surrogateescape")
    assert not CONTROLS.findall(left), written
    assert b"Traceback" not in written, written


class Screen:
    """A pseudo-terminal, and all output that was written to it."""

    def __init__(self) -> None:
        self._ours, theirs = os.openpty()
        self.file = io.TextIOWrapper(
            io.FileIO(theirs, "w"), "utf-8", write_through=True
        )
        self._parts: list[bytes] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        while True:
            try:
                part = os.read(self._ours, 65536)
            except OSError:  # the other end is closed
                return
            self._parts.append(part)

    def close(self) -> bytes:
        self.file.close()
        self._reader.join()
        os.close(self._ours)
        return b"".join(self._parts)


def run_on_terminal(
    monkeypatch: pytest.MonkeyPatch, *arguments: str
) -> tuple[int, bytes]:
    """Run a command on a terminal. Return its exit code, and all output to the terminal."""
    screen = Screen()
    with monkeypatch.context() as patch:
        patch.setattr("sys.stdout", screen.file)
        patch.setattr("sys.stderr", screen.file)
        patch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"")))
        code = main(arguments)
    return code, screen.close()


# A stream that anybody could write to --------------------------------------------------

FORMS = [
    *([], ["--json"], ["--raw"], ["--headers-only"], ["--subjects-only"]),
    ["--json", "--subjects-only"],
]


def send(url: str, subject: bytes, reply: bytes = b"") -> None:
    """Send a message with hostile words in every part, by a client that checks nothing."""
    block = b"NATS/1.0\r\nColour: " + EVIL_TOKEN + b"\r\n\r\n"
    with socket.create_connection(("127.0.0.1", urlsplit(url).port or 0)) as peer:
        assert peer.recv(65536).startswith(b"INFO")
        peer.sendall(b'CONNECT {"verbose":false,"headers":true}\r\n')
        for headers, data in (
            (block, EVIL.encode()),
            (b"NATS/1.0\r\n\r\n", EVIL_TOKEN),
        ):
            sizes = b"%d %d" % (len(headers), len(headers) + len(data))
            words = b" ".join([subject, *([reply] if reply else []), sizes])
            peer.sendall(b"HPUB %s\r\n%s%s\r\n" % (words, headers, data))
        peer.sendall(b"PING\r\n")
        answer = b""
        while b"PONG" not in answer:
            answer += peer.recv(65536)


@contextmanager
def sending(url: str, subject: bytes, reply: bytes = b"") -> Iterator[None]:
    """Send hostile messages until the end of the block."""
    over = threading.Event()

    def run() -> None:
        while not over.wait(0.05):
            send(url, subject, reply)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@pytest.fixture
def hostile(
    server: LocalServer, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> str:
    """The name of a stream with hostile words in every part."""
    monkeypatch.setenv("NATS_URL", server.url)
    send(server.url, f"{stream.name}.".encode() + EVIL_TOKEN)
    stream.update(description=EVIL, metadata={EVIL: EVIL})
    stream.create_consumer(durable_name="worker", description=EVIL)
    return stream.name


@pytest.mark.parametrize("form", FORMS, ids=" ".join)
def test_messages_cannot_command_a_terminal(
    hostile: str, monkeypatch: pytest.MonkeyPatch, form: list[str]
) -> None:
    for command in (
        ["consume", hostile, "-T"],
        ["consume", hostile, "worker", "--count", "2", "--nak"],
        ["fetch", hostile, "worker", "--count", "1", "--nak"],
        ["next", hostile, "worker", "--nak"],
        ["stream", "get", hostile, "1"],
        ["stream", "view", hostile, "5"],
    ):
        code, written = run_on_terminal(monkeypatch, *command, *form)
        assert code == 0, written
        assert b"u001b" in written
        harmless(written)


@pytest.mark.parametrize("form", FORMS, ids=" ".join)
def test_messages_that_arrive_live_cannot_command_a_terminal(
    server: LocalServer,
    unique: str,
    monkeypatch: pytest.MonkeyPatch,
    form: list[str],
) -> None:
    monkeypatch.setenv("NATS_URL", server.url)
    subject = f"{unique}.".encode() + EVIL_TOKEN
    with sending(server.url, subject, subject):
        for command in (
            ["sub", f"{unique}.>", "--count", "2"],
            ["sub", f"{unique}.>", "also", "--count", "2"],
            ["reply", f"{unique}.>", "--echo", "--count", "2"],
        ):
            code, written = run_on_terminal(monkeypatch, *command, *form)
            assert code == 0, written
            assert b"u001b" in written
            harmless(written)


@pytest.fixture
def hostile_bucket(
    server: LocalServer, js: JetStream, unique: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    """The name of a bucket with hostile words in every part."""
    monkeypatch.setenv("NATS_URL", server.url)
    kv = js.create_key_value(
        bucket=unique, history=5, description=EVIL, metadata={EVIL: EVIL}
    )
    kv.put("k", EVIL.encode())
    kv.put("k", EVIL_TOKEN)
    kv.put("k", EVIL.encode())
    # A filter of nats-server does not match a subject that contains DEL.
    key = EVIL_TOKEN.replace(b"\x7f", b"")
    send(server.url, f"$KV.{unique}.".encode() + key)
    yield unique
    js.delete_key_value(unique)


@pytest.mark.parametrize("form", [[], ["--json"], ["--raw"]], ids=" ".join)
def test_values_cannot_command_a_terminal(
    hostile_bucket: str, monkeypatch: pytest.MonkeyPatch, form: list[str]
) -> None:
    for command in (
        ["kv", "get", hostile_bucket, "k"],
        ["kv", "watch", hostile_bucket, "-T", "--history"],
    ):
        code, written = run_on_terminal(monkeypatch, *command, *form)
        assert code == 0, written
        assert b"u001b" in written
        harmless(written)


@pytest.mark.parametrize("form", [[], ["--json"]], ids=" ".join)
def test_keys_and_buckets_cannot_command_a_terminal(
    hostile_bucket: str, monkeypatch: pytest.MonkeyPatch, form: list[str]
) -> None:
    for command in (
        ["kv", "ls"],
        ["kv", "ls", hostile_bucket],
        ["kv", "ls", hostile_bucket, "-v", "--display-value"],
        ["kv", "watch", hostile_bucket, "-T", "--no-values"],
        ["kv", "history", hostile_bucket, "k"],
        ["kv", "info", hostile_bucket],
    ):
        code, written = run_on_terminal(monkeypatch, *command, *form)
        assert code == 0, written
        assert b"u001b" in written
        harmless(written)


@pytest.mark.parametrize("form", ["ndjson", "raw"])
def test_an_export_to_a_terminal_cannot_command_it(
    hostile: str, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    code, written = run_on_terminal(monkeypatch, "export", hostile, "--format", form)
    assert code == 0, written
    assert b"u001b" in written
    harmless(written)


def test_a_non_utf_8_subject_passes_pipes_unchanged(
    jsync: Jsync, hostile: str, server: LocalServer
) -> None:
    documents = jsync("consume", hostile, "-T", "--json").documents
    subject = documents[0]["subject"].encode(errors="surrogateescape")
    assert subject == f"{hostile}.".encode() + EVIL_TOKEN
    assert documents[0]["data"] == EVIL
    assert base64.b64decode(documents[1]["data_base64"]) == EVIL_TOKEN
    raw = jsync("stream", "get", hostile, "1", "--raw")
    assert raw.output == EVIL + "\n"


def test_live_screens_cannot_command_a_terminal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    screen = Screen()
    monkeypatch.setattr("sys.stderr", screen.file)
    with Bar(lambda: ProgressState(f"file{EVIL}", 1, 2, 1), "stored") as bar:
        bar.refresh()
        print_error(EVIL)
    console(err=True).print(Text(EVIL))
    written = screen.close()
    assert b"file" in written
    harmless(written)


# A hostile server -----------------------------------------------------------------------

NOW = "2026-01-01T00:00:00Z"
STREAM_INFO: dict[str, Any] = {
    "config": {
        "name": EVIL,
        "subjects": [EVIL, "s"],
        "description": EVIL,
        "retention": EVIL,
        "storage": EVIL,
        "discard": EVIL,
        "max_age": 10**9,
        "max_msgs_per_subject": 5,
        "metadata": {EVIL: EVIL},
        "placement": {"cluster": EVIL},
        "sources": [{"name": EVIL}],
        EVIL: EVIL,
    },
    "created": NOW,
    "state": {
        "messages": 2,
        "bytes": 9,
        "first_seq": 1,
        "last_seq": 2,
        "consumer_count": 1,
        "first_ts": NOW,
        "last_ts": NOW,
        "num_subjects": 1,
        "subjects": {EVIL: 2},
    },
    "cluster": {"leader": EVIL, "name": EVIL},
}
BUCKET_INFO: dict[str, Any] = {
    **STREAM_INFO,
    "config": {**STREAM_INFO["config"], "name": f"KV_{EVIL}"},
}
CONSUMER_INFO: dict[str, Any] = {
    "name": EVIL,
    "stream_name": EVIL,
    "created": NOW,
    "config": {
        "name": EVIL,
        "description": EVIL,
        "ack_policy": EVIL,
        "deliver_policy": EVIL,
        "metadata": {EVIL: EVIL},
        "filter_subject": EVIL,
        EVIL: EVIL,
    },
    "delivered": {"consumer_seq": 1, "stream_seq": 1},
    "ack_floor": {"consumer_seq": 0, "stream_seq": 0},
    "num_pending": 1,
    "num_ack_pending": 1,
    "cluster": {"leader": EVIL},
}
MESSAGE = FakeReply(
    EVIL.encode(),
    b"NATS/1.0\r\nColour: " + EVIL_TOKEN + b"\r\n\r\n",
    b"s." + EVIL_TOKEN,
    b"$JS.ACK."
    + EVIL.encode()
    + b"."
    + EVIL.encode()
    + b".1.1.1.1700000000000000000.0",
)


SERVICE: dict[str, Any] = {
    "type": EVIL,
    "name": EVIL,
    "id": EVIL,
    "version": EVIL,
    "description": EVIL,
    "metadata": {EVIL: EVIL},
    "started": EVIL,
    "endpoints": [
        {
            "name": EVIL,
            "subject": EVIL,
            "queue_group": EVIL,
            "metadata": {EVIL: EVIL},
            "num_requests": 1,
            "last_error": EVIL,
            "data": EVIL,
            "average_processing_time": 10**18,
        }
    ],
}


SYSTEM_SERVER: dict[str, Any] = {
    "id": "N",
    "name": EVIL,
    "host": EVIL,
    "cluster": EVIL,
    "domain": EVIL,
    "ver": EVIL,
    "tags": [EVIL],
    "metadata": {EVIL: EVIL},
    EVIL: EVIL,
}


def saved_stream(directory: Path) -> Path:
    """An untrusted backup."""
    directory.mkdir(parents=True)
    config = {"name": EVIL, "subjects": [EVIL], "description": EVIL, EVIL: EVIL}
    document = {"config": config, "state": {EVIL: EVIL}}
    (directory / "backup.json").write_text(json.dumps(document))
    for name in ("stream.arc.s2", "stream.tar.s2"):
        (directory / name).write_bytes(EVIL_TOKEN)
    return directory


def infos(subject: str, payload: bytes) -> list[FakeReply]:
    """Return replies with hostile words wherever a server can send words."""
    verb = ".".join(subject.removeprefix("$JS.API.").split(".")[:3])
    page = {"total": 1, "offset": 0, "limit": 256, "missing": [EVIL]}
    document: dict[str, Any] = {"success": True, "purged": 1, "paused": True}
    match verb.split("."):
        case ["CONSUMER", "MSG", "NEXT"]:
            status = b"NATS/1.0 409 Consumer Deleted " + EVIL_TOKEN + b"\r\n\r\n"
            return [MESSAGE, FakeReply(b"", status)]
        case ["DIRECT", *_]:
            return [MESSAGE]
        case ["STREAM", "MSG", "GET"]:
            text = base64.b64encode(EVIL_TOKEN).decode()
            header = base64.b64encode(MESSAGE.headers).decode()
            document = {
                "message": {
                    "subject": EVIL,
                    "seq": 1,
                    "time": NOW,
                    "data": text,
                    "hdrs": header,
                }
            }
        case ["STREAM", "NAMES", *_]:
            document = {**page, "streams": [EVIL, f"KV_{EVIL}"]}
        case ["STREAM", "LIST", *_]:
            document = {**page, "streams": [STREAM_INFO, BUCKET_INFO]}
        case ["CONSUMER", "NAMES", *_]:
            document = {**page, "consumers": [EVIL]}
        case ["CONSUMER", "LIST", *_]:
            document = {**page, "consumers": [CONSUMER_INFO]}
        case ["STREAM", "INFO" | "CREATE" | "UPDATE", *_]:
            document = STREAM_INFO
        case ["CONSUMER", "PAUSE", *_]:
            document = {"paused": True, "pause_until": "2030-01-01T00:00:00Z"}
        case ["CONSUMER", "INFO" | "CREATE", *_]:
            document = CONSUMER_INFO
        case ["INFO", *_]:
            document = {"api": {"level": 4}, "domain": EVIL}
        case [*_] if subject == "$SYS.REQ.USER.INFO":
            rules = {"publish": {"allow": [EVIL]}}
            document = {"data": {"user": EVIL, "account": EVIL, "permissions": rules}}
        case [*_] if subject.startswith("$SYS.REQ."):
            document = {
                "server": SYSTEM_SERVER,
                "data": {"server_name": EVIL, "x": EVIL},
            }
        case [*_] if subject.startswith("$SRV."):
            document = SERVICE
        case _ if not subject.startswith("$"):
            document = {"stream": EVIL, "seq": 1, "domain": EVIL}
    return [FakeReply(json.dumps(document).encode())]


def rejections(subject: str, payload: bytes) -> list[FakeReply]:
    """Return only errors, with hostile words."""
    error = {"code": 400, "err_code": 10000, "description": EVIL}
    return [FakeReply(json.dumps({"error": error}).encode())]


def statuses(subject: str, payload: bytes) -> list[FakeReply]:
    return [FakeReply(b"", b"NATS/1.0 409 " + EVIL_TOKEN + b"\r\n\r\n")]


def nonsense(subject: str, payload: bytes) -> list[FakeReply]:
    return [FakeReply(EVIL_TOKEN)]


ARGUMENTS: dict[str, list[list[str]]] = {
    "pub": [["s", "x", "-J"], ["s", "x", "-J", "--count", "2"], ["s", "x"]],
    "sub": [["s", "--wait", "0.1"]],
    "request": [["s", "x"], ["s", "x", "--replies", "0"]],
    "reply": [["s", "x", "--count", "1"]],
    "service info": [[], ["S", "ID"]],
    "service ls": [[], ["S"]],
    "service ping": [[], ["S", "ID"]],
    "service serve": [["S"]],
    "service stats": [[], ["S", "ID"]],
    "stream create": [["S", "--subjects", "s"]],
    "stream edit": [["S", "--max-age", "1d", "--force"], ["S", "--dry-run"]],
    "stream get": [["S", "1"], ["S", "--last-for", "s"]],
    "stream info": [["S"]],
    "stream ls": [[], ["--names"]],
    "stream purge": [["S", "--force"]],
    "stream rm": [["S", "--force"]],
    "stream rmm": [["S", "1", "--force"]],
    "stream subjects": [["S"]],
    "consumer create": [["S", "C"]],
    "consumer edit": [["S", "C", "--max-deliver", "3", "--force"]],
    "consumer info": [["S", "C"]],
    "consumer ls": [["S"], ["S", "--names"]],
    "consumer next": [["S", "C"]],
    "consumer pause": [["S", "C", "1h"]],
    "consumer resume": [["S", "C"]],
    "consumer rm": [["S", "C", "--force"]],
    "consumer unpin": [["S", "C", "group"]],
    "kv add": [["B"], ["B", "--mirror", "S"]],
    "kv compact": [["B", "--force"]],
    "kv create": [["B", "k", "x"]],
    "kv del": [["B", "k", "--force"]],
    "kv edit": [["B", "--history", "3", "--force"], ["B", "--ttl", "5", "--dry-run"]],
    "kv get": [["B", "k"], ["B", "k", "--revision", "1"]],
    "kv history": [["B", "k"]],
    "kv info": [["B"]],
    "kv ls": [[], ["--names"], ["B"], ["B", "-v", "--display-value"]],
    "kv purge": [["B", "k", "--force"]],
    "kv put": [["B", "k", "x"]],
    "kv revert": [["B", "k", "1", "--force"]],
    "kv rm": [["B", "--force"]],
    "kv update": [["B", "k", "x", "1"]],
    "kv watch": [["B", "-T"], ["B", "--count", "1", "--wait", "0.1"]],
    "object check": [["S"]],
    "object create": [["S"]],
    "object get": [["S", "n", "-O", "EVIL"]],
    "object info": [["S"], ["S", "n"]],
    "object ls": [[], ["S"]],
    "object put": [["S", "EVIL"]],
    "object rm": [["S", "--force"], ["S", "n", "--force"]],
    "object seal": [["S", "--force"]],
    "object watch": [["S", "--count", "1"]],
    "dead drop": [["S", "1", "--force"], ["S", "--all", "--force"]],
    "dead ls": [["S"]],
    "dead replay": [["S", "1", "--force"], ["S", "--all", "--force"]],
    "dead show": [["S", "1"]],
    "next": [["S", "C"]],
    "fetch": [["S", "C", "--count", "2"]],
    "consume": [["S", "C", "--wait", "0.3"], ["S", "-T", "--wait", "0.3"]],
    "account backup": [["BACKUP"]],
    "account info": [[]],
    "account restore": [["SAVED_ALL"]],
    "counter decrement": [["s"], ["s", "2", "--stream", "S"]],
    "counter get": [["s"], ["s", "--stream", "S"]],
    "counter increment": [["s"], ["s", "2", "--stream", "S"]],
    "counter ls": [["s.*"], ["--stream", "S"]],
    "counter view": [["s"], ["s", "--stream", "S"]],
    "schedule add": [["S", "s", "x", "--target", "t", "--every", "1s"]],
    "schedule info": [["S", "s"], ["S", "s", "--raw"]],
    "schedule ls": [["S"]],
    "schedule rm": [["S", "s", "--force"]],
    "context add": [["new"], ["EVIL"]],
    "context edit": [["none", "--description", "x"]],
    "context ls": [[]],
    "context rm": [["none", "--force"]],
    "context select": [["none"]],
    "context show": [["none"]],
    "context unselect": [[]],
    "events": [["--count", "1", "--wait", "0.1"]],
    "rtt": [["1"]],
    "stream report": [[], ["--leaders"]],
    "stream view": [["S"]],
    "stream backup": [["S", "BACKUP"]],
    "stream restore": [["SAVED"]],
    "stream step-down": [["S"]],
    "stream peer-remove": [["S", "N", "--force"]],
    "consumer reset": [["S", "C", "1", "--force"]],
    "consumer step-down": [["S", "C"]],
    "server info": [["N"]],
    "server kick": [["N", "5"]],
    "server ls": [[]],
    "server peer-remove": [["N", "--force"]],
    "server profile": [["N", "heap", "NEW"]],
    "server reload": [["N"]],
    "server request": [["varz"], ["connz", "N"], ["jsz"]],
    "server step-down": [[]],
    "trace": [["s", "x"]],
    "consumer report": [["S"], ["S", "--leaders"]],
    "top": [["--interval", "0.1"], ["--consumers", "--interval", "0.1"]],
    "ingest": [["EVIL", "--subject", "s", "--format", "lines"]],
    "export": [["S"], ["S", "--raw"]],
    "pipeline check": [["PIPELINE"]],
    "pipeline run": [["PIPELINE"]],
    "pipeline status": [[]],
    "pipeline infer": [["S"]],
    "pipeline replay": [["PIPELINE", "x"]],
    "group create": [["S", "G", "2", "--member", "M"]],
    "group ls": [[], ["S"]],
    "group info": [["S", "G"]],
    "group members": [["S", "G"]],
    "group lag": [["S", "G"]],
    "group add": [["S", "G", "M"]],
    "group drop": [["S", "G", "M"]],
    "group map": [["S", "G", "M=0-1"]],
    "group unmap": [["S", "G"]],
    "group step-down": [["S", "G", "M"]],
    "group rm": [["S", "G", "--force"]],
    "doctor": [["server", "tls", "jetstream", "permissions"]],
    "bench": [["--seconds", "0.05", "--messages", "1"]],
    "options": [[]],
    "completion": [["bash"], ["zsh"], ["fish"]],
}
OWN_SERVER = {"demo", "server run"}
"""These commands connect to a server of their own only."""
ENDLESS = {"reply", "service serve"}
"""These commands wait for messages that this server does not send. A test above covers `reply`."""


OWN_HANDLERS = {"worker"}
"""This command runs handlers until a signal. Its output is logs."""


def test_every_command_is_run_against_a_hostile_server() -> None:
    assert set(ARGUMENTS) | OWN_SERVER | OWN_HANDLERS == set(COMMANDS)


@pytest.mark.parametrize("logs", ["json", "text"])
def test_worker_logs_cannot_command_a_terminal(
    logs: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "bad_worker.py").write_text(
        f"import logging\nlogging.getLogger('x').error({EVIL!r})\napp = None\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    _, written = run_on_terminal(
        monkeypatch, "worker", "bad_worker:app", "--logs", logs
    )
    harmless(written)


@pytest.mark.parametrize(
    "answer",
    [
        infos,
        rejections,
        # Their words reach a terminal by the same error as those of `rejections`.
        *(pytest.param(each, marks=pytest.mark.bulk) for each in (statuses, nonsense)),
    ],
)
@pytest.mark.parametrize("command", sorted(ARGUMENTS.keys() - ENDLESS))
def test_a_server_cannot_command_a_terminal(
    command: str, answer: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / ("x\x1b[38;5;199m\u202e\x9b.txt")
    file.write_bytes(b"one\n" + EVIL_TOKEN + b"\n")
    pipeline = tmp_path / ("p\x1b[38;5;199m.toml")
    pipeline.write_text(f"# {EVIL}\n[sources.x]\nformat = 'no{EVIL[-3:-2]}'\n")
    monkeypatch.setenv("NATS_TIMEOUT", "1s")
    monkeypatch.setitem(package.Stream.backup.__kwdefaults__ or {}, "timeout", 0.5)
    words = {
        "EVIL": str(file),
        "PIPELINE": str(pipeline),
        "BACKUP": str(tmp_path / "new"),
        "NEW": str(tmp_path / f"new{EVIL[:8]}"),
        "SAVED": str(saved_stream(tmp_path / f"saved{EVIL[:8]}")),
        "SAVED_ALL": str(saved_stream(tmp_path / "all" / f"saved{EVIL[:8]}").parent),
    }
    hello = {"version": f"2.15.1{EVIL}\n✓ forged", "cluster": EVIL, "domain": EVIL}
    for arguments in ARGUMENTS[command]:
        given = [*command.split(), *(words.get(word, word) for word in arguments)]
        for more in ([], ["--json"]):
            with FakeServer(answer_requests(answer, **hello)) as fake:
                monkeypatch.setenv("NATS_URL", fake.url)
                _, written = run_on_terminal(monkeypatch, *given, *more)
            harmless(written)
            if command == "doctor":
                assert b"\n\xe2\x9c\x93 forged" not in written


def test_the_text_of_a_refusing_server_is_harmless(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(peer: Any) -> None:
        peer.greet(auth_required=True)
        peer.frame()
        peer.send(b"-ERR 'Authorization Violation " + EVIL_TOKEN + b"'\r\n")
        peer.frame()

    with FakeServer(refuse) as fake:
        monkeypatch.setenv("NATS_URL", fake.url)
        for command in (["stream", "ls"], ["doctor", "server"]):
            code, written = run_on_terminal(monkeypatch, *command)
            assert code == 1
            harmless(written)


def test_files_and_contexts_cannot_command_a_terminal(
    monkeypatch: pytest.MonkeyPatch, config_home: Path, tmp_path: Path
) -> None:
    contexts = config_home / "nats" / "context"
    contexts.mkdir(parents=True)
    for name, text in {
        "url": json.dumps({"url": f"nats://{EVIL}:1"}),
        "creds": json.dumps({"creds": f"/tmp/{EVIL}"}),
        "env": json.dumps({"token": f"env://{EVIL}"}),
        "nsc": json.dumps({"nsc": EVIL}),
        f"name{EVIL}": "nonsense",
    }.items():
        (contexts / f"{name}.json").write_text(text)
    for name in ("url", "creds", "env", "nsc", f"name{EVIL}", f"none{EVIL}"):
        code, written = run_on_terminal(
            monkeypatch, "--context", name, "--timeout", "1s", "stream", "ls"
        )
        assert code in (1, 2), written
        harmless(written)
    rows = tmp_path / f"rows{EVIL}.csv"
    rows.write_text(f"a{EVIL},b{EVIL}\n1,2\n")
    code, written = run_on_terminal(
        monkeypatch, "ingest", str(rows), "--subject", "{c}"
    )
    assert code == 2
    assert b"u001b" in written
    harmless(written)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_names_a_shell_would_run_are_not_completed(
    shell: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    names = ["good", "grün", EVIL, "$(reboot)", "a;b", "a\nfile,b", "`x`", "a b"]

    def offer(subject: str, payload: bytes) -> list[FakeReply]:
        page = {"total": len(names), "offset": 0, "limit": 256, "streams": names}
        return [FakeReply(json.dumps(page).encode())]

    monkeypatch.setenv("_JSYNC_COMPLETE", f"{shell}_complete")
    monkeypatch.setenv("COMP_WORDS", "jsync stream info ")
    monkeypatch.setenv("COMP_CWORD", "" if shell == "fish" else "3")
    with FakeServer(answer_requests(offer)) as fake:
        monkeypatch.setenv("NATS_URL", fake.url)
        assert main([]) == 0
    offered = capfd.readouterr().out
    assert "good" in offered
    assert "grün" in offered
    assert not re.search("[\x1b$;`\u202e]|file,b|a b", offered)


# A single way to write ------------------------------------------------------------------

DOORS = {"ui/output.py", "ui/console.py", "__init__.py"}
"""The modules that may write. `__init__` prints one sentence, on systems without click."""
WRITES = {
    "echo",
    "echo_via_pager",
    "secho",
    "style",
    "confirm",
    "prompt",
    "progressbar",
}
LOOKS = {"isatty", "flush", "fileno"}


def writes(tree: ast.AST) -> Iterator[str]:
    """Yield the ways in which a module writes to the terminal directly."""
    looked_at = set()
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Attribute() as stream, attr=name):
                if name in LOOKS:
                    looked_at.add(id(stream))
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id="print" | "input" as name)):
                yield name
            case ast.Attribute(value=ast.Name(id="click"), attr=name) if name in WRITES:
                yield f"click.{name}"
            case ast.Attribute(
                value=ast.Name(id="sys"), attr="stdout" | "stderr" as name
            ) if id(node) not in looked_at:
                yield f"sys.{name}"
            case ast.ImportFrom(module="rich.console", names=names):
                if any(one.name == "Console" for one in names):
                    yield "Console"
            case ast.ImportFrom(module="click" | "sys" as module, names=names):
                for one in names:
                    if one.name in {*WRITES, "stdout", "stderr"}:
                        yield f"{module}.{one.name}"


ROOT = Path(package.__file__).parent
COMMAND_FILES = sorted((ROOT / "cli").rglob("*.py"))
PIPELINE_FILES = sorted((ROOT / "spark").rglob("*.py"))


def test_a_module_writes_through_the_one_that_escapes() -> None:
    doors = {
        *(ROOT / "cli" / door for door in DOORS),
        ROOT / "spark/pipeline/console.py",
    }
    for path in (*COMMAND_FILES, *PIPELINE_FILES):
        found = list(writes(ast.parse(path.read_text())))
        assert path in doors or not found, f"{path} writes by {found}"
