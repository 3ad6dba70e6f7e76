"""Tests of `jsync export` against a real server."""

from __future__ import annotations

import io
import json
import os
import resource
import signal
import time
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet
import pytest

from jsync import errors
from jsync.cli.commands import export
from jsync.cli.ui.partial_file import PartialFile

from ..support.servers import wait_for
from .processes import Process
from .test_ingest import FLIGHTS, ROWS, held

if TYPE_CHECKING:
    from collections.abc import Callable

    from jsync import JetStream, JetStreamMsg, Stream
    from jsync.server import LocalServer

    from .support import Jsync

pytestmark = pytest.mark.server


@pytest.fixture
def flights(jsync: Jsync, stream: Stream) -> Stream:
    """Two hundred flights, by carrier."""
    subject = f"{stream.name}.{{carrier}}"
    ended = jsync("ingest", str(FLIGHTS), "--subject", subject, "--id", "tailnum")
    assert ended.code == 0
    assert stream.purge(sequence=5) == 4
    return stream


def test_a_message_is_an_object_on_a_line(jsync: Jsync, flights: Stream) -> None:
    found = jsync("export", flights.name).documents
    state = flights.info().state
    assert len(found) == state.messages
    first, stored = found[0], flights.get_message(5)
    assert datetime.fromisoformat(first.pop("timestamp")) == stored.timestamp
    assert first == {
        "subject": stored.subject,
        "sequence": 5,
        "headers": {"Nats-Msg-Id": [ROWS[4]["tailnum"]]},
        "data": stored.data.decode(),
    }
    assert [row["sequence"] for row in found] == list(range(5, state.last_seq + 1))


def test_a_stream_created_again_is_not_exported(
    js: JetStream, stream: Stream, unique: str
) -> None:
    """The range is of the former stream, so the messages would be others."""
    js.publish(f"{unique}.a", b"former")
    stream.leader_info()
    columns = stream.read_arrow(1, 1)
    js.delete_stream(unique)
    js.create_stream(name=unique, subjects=[f"{unique}.>"], storage="memory")
    js.publish(f"{unique}.a", b"present")
    file = io.BytesIO()
    with pytest.raises(errors.StreamNotFoundError, match="another one created"):
        export.LineWriter(file, raw=True).run(stream, [], 1, 1)
    assert file.getvalue() == b""
    with pytest.raises(errors.StreamNotFoundError, match="another one created"):
        list(columns)


def test_a_payload_that_is_no_text_is_base64(
    jsync: Jsync, server: LocalServer, js: JetStream, stream: Stream
) -> None:
    js.publish(f"{stream.name}.x", b"\xff\x00")
    (found,) = jsync("export", stream.name).documents
    assert "data" not in found
    assert found["data_base64"] == "/wA="
    with Process(server, "export", stream.name, "--raw") as process:
        assert process.finish_raw() == b"\xff\x00\n"


def test_exports_are_limited_by_subject_sequence_and_time(
    jsync: Jsync, js: JetStream, flights: Stream
) -> None:
    subject = f"{flights.name}.UA"
    found = jsync("export", flights.name, "--subject", subject, "--to", "100").documents
    assert {row["subject"] for row in found} == {subject}
    assert found[-1]["sequence"] <= 100
    part = jsync("export", flights.name, "--from", "10", "--to", "12", "--raw")
    assert [json.loads(line) for line in part.lines] == [
        json.loads(flights.get_message(sequence).data) for sequence in (10, 11, 12)
    ]
    since = flights.get_message(100).timestamp.isoformat()
    assert jsync("export", flights.name, "--since", since).documents[0][
        "sequence"
    ] in range(5, 101)
    last = js.publish(subject, b"{}").seq
    assert (
        jsync("export", flights.name, "--since", "1h").documents[-1]["sequence"] == last
    )
    assert jsync("export", flights.name, "--from", str(last + 1)).output == ""


def test_parquet_has_the_columns_of_arrow(
    jsync: Jsync, flights: Stream, tmp_path: Path
) -> None:
    path = tmp_path / "flights.parquet"
    told = jsync("export", flights.name, "-o", str(path), "--json").json
    messages = flights.info().state.messages
    assert (told["messages"], told["bytes"]) == (messages, path.stat().st_size)
    table = pyarrow.parquet.read_table(path)
    assert table.column_names == ["subject", "data", "sequence", "timestamp", "headers"]
    assert table.num_rows == messages
    assert json.loads(table["data"][0].as_py()) == ROWS[4]
    assert list(tmp_path.glob("*.partial")) == []


def test_exported_messages_can_be_ingested(
    jsync: Jsync, flights: Stream, tmp_path: Path
) -> None:
    path = tmp_path / "flights.ndjson"
    assert jsync("export", flights.name, "-o", str(path)).code == 0
    before = held(flights)
    flights.purge()
    ended = jsync(
        *("ingest", str(path), "--subject", "{subject}", "--data", "data"),
        *("--stream", flights.name, "--id", "again-{sequence}"),
    )
    assert ended.code == 0
    assert held(flights) == before


def test_a_file_is_replaced_only_on_request(
    jsync: Jsync, flights: Stream, tmp_path: Path
) -> None:
    path = tmp_path / "there.ndjson"
    path.write_text("mine")
    refused = jsync("export", flights.name, "-o", str(path))
    assert (refused.code, path.read_text()) == (2, "mine")
    assert jsync("export", flights.name, "-o", str(path), "--force").code == 0
    assert path.read_text().startswith("{")


def test_an_export_replaces_no_symbolic_link(
    jsync: Jsync, flights: Stream, tmp_path: Path
) -> None:
    real, link = tmp_path / "real.ndjson", tmp_path / "link.ndjson"
    link.symlink_to(real)
    assert jsync("export", flights.name, "-o", str(link)).code == 0
    assert jsync("export", flights.name, "-o", str(link)).code == 2
    assert jsync("export", flights.name, "-o", str(link), "--force").code == 0
    assert link.is_symlink()
    assert real.read_text().startswith("{")
    assert sorted(os.listdir(tmp_path)) == ["link.ndjson", "real.ndjson"]


def test_an_export_replaces_no_pipe_or_directory(
    jsync: Jsync, flights: Stream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    os.mkdir("directory")
    for name in ("pipe", "directory"):
        refused = jsync("export", flights.name, "-o", name, "--force")
        assert (refused.code, "not a file" in refused.errors) == (2, True)
    assert jsync("export", flights.name, "-o", "-").output.startswith("{")
    assert sorted(os.listdir()) == ["directory", "pipe"]


def test_an_invalid_export_is_rejected_in_one_line(jsync: Jsync, unique: str) -> None:
    assert jsync("export", unique).code == 3
    for arguments in (
        ["--format", "parquet"],
        ["--raw", "--format", "ndjson"],
        ["--from", "1", "--since", "1h"],
    ):
        assert jsync("export", unique, *arguments).code == 2


@pytest.fixture
def half_a_megabyte(js: JetStream, stream: Stream) -> Stream:
    """A stream with more data than a pipe holds."""
    with js.publisher() as publisher:
        for _ in range(500):
            publisher.publish(f"{stream.name}.x", b"x" * 1000)
    return stream


def test_ctrl_c_waits_for_no_stopped_reader(
    server: LocalServer, half_a_megabyte: Stream
) -> None:
    with Process(server, "export", half_a_megabyte.name) as process:

        def is_stuck() -> bool:
            before = process.unread
            time.sleep(0.1)
            return 30_000 < before == process.unread

        wait_for(is_stuck)
        process.interrupt()
        assert process.wait() == 130


class Interrupt:
    """Ctrl-C before the message with a sequence, if it is armed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, sequence: int) -> None:
        self.is_armed = True
        self._sequence = sequence
        for name in ("_document", "_payload"):
            self._wrap(monkeypatch, name)

    def _wrap(self, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
        line: Callable[[JetStreamMsg, int], bytes] = getattr(export, name)

        def interrupted(msg: JetStreamMsg, sequence: int) -> bytes:
            if sequence == self._sequence and self.is_armed:
                raise KeyboardInterrupt
            return line(msg, sequence)

        monkeypatch.setattr(export, name, interrupted)


@pytest.mark.parametrize("rest", ["", '{"subject":"x","seq'])
def test_an_interrupted_export_continues_after_its_last_message(
    jsync: Jsync,
    half_a_megabyte: Stream,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    rest: str,
) -> None:
    path, part = tmp_path / "x.ndjson", tmp_path / "x.ndjson.partial"
    whole = jsync("export", half_a_megabyte.name).output
    command = ("export", half_a_megabyte.name, "-o", str(path))
    interrupt = Interrupt(monkeypatch, 100)
    ended = jsync(*command)
    assert ended.code == 130
    assert "interrupted: 99 messages, up to sequence 99, are in" in ended.errors
    assert "continue with --resume" in ended.errors
    assert not path.exists()
    assert len(part.read_text().splitlines()) == 99
    with part.open("a") as file:  # a process that is killed leaves a part of a line
        file.write(rest)
    again = jsync(*command)
    assert again.code == 2
    assert f"{part} exists: " in again.errors
    assert jsync(*command, "--resume").code == 130  # Ctrl-C once more, at once
    assert len(part.read_text().splitlines()) == 99
    interrupt.is_armed = False
    told = jsync(*command, "--resume", "--json").json
    assert (told["messages"], told["last_sequence"]) == (401, 500)
    assert path.read_text() == whole
    assert list(tmp_path.iterdir()) == [path]


def test_an_export_continues_within_its_first_line(
    jsync: Jsync, half_a_megabyte: Stream, tmp_path: Path
) -> None:
    path, part = tmp_path / "x.ndjson", tmp_path / "x.ndjson.partial"
    whole = jsync("export", half_a_megabyte.name).output
    part.write_text(whole[:348])  # of a process that was killed during its first write
    command = ("export", half_a_megabyte.name, "-o", str(path), "--resume")
    assert jsync(*command).code == 0
    assert path.read_text() == whole


def test_an_export_continues_only_files_of_its_stream(
    jsync: Jsync,
    js: JetStream,
    half_a_megabyte: Stream,
    tmp_path: Path,
) -> None:
    name, part = half_a_megabyte.name, tmp_path / "x.ndjson.partial"
    command = ("export", name, "-o", str(tmp_path / "x.ndjson"), "--resume")
    line = jsync("export", name, "--from", "500").output
    document = json.loads(line)
    for field, value, words in (
        ("sequence", 501, "has message 501, and the stream not yet"),
        ("sequence", 1, "message 1 is another one"),
        ("subject", "other", "message 500 is another one"),
        ("timestamp", 5, "is not an export"),
    ):
        part.write_text(json.dumps({**document, field: value}) + "\n")
        ended = jsync(*command)
        assert (ended.code, words in ended.errors) == (2, True), ended.errors
        assert part.read_text().endswith("\n")
    part.write_text(line)
    half_a_megabyte.delete_message(500)
    js.publish(f"{name}.x", b"last")
    assert jsync(*command).output.startswith("1 more messages of")
    assert len((tmp_path / "x.ndjson").read_text().splitlines()) == 2
    for more in (["--force"], ["--raw"], ["--format", "parquet"]):
        assert jsync(*command, *more).code == 2
    assert jsync("export", name, "--resume").code == 2


@pytest.mark.parametrize("form", ["raw", "parquet"])
def test_a_part_that_cannot_be_continued_is_kept(
    jsync: Jsync,
    half_a_megabyte: Stream,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    form: str,
) -> None:
    path, part = tmp_path / "x", tmp_path / "x.partial"
    command = ("export", half_a_megabyte.name, "-o", str(path), "--format", form)
    if form == "raw":
        interrupt = Interrupt(monkeypatch, 100)
        ended = jsync(*command)
        interrupt.is_armed = False
        assert "write the rest to another file with --from 100" in ended.errors
    else:
        part.write_bytes(b"a part")
    before = part.read_bytes()
    for more in ((), ("--from", "100")):
        assert jsync(*command, *more).code == 2
        assert part.read_bytes() == before
    assert jsync(*command, "--force", "--from", "100").code == 0
    assert not part.exists()


def test_two_exports_do_not_write_to_one_file(
    jsync: Jsync, half_a_megabyte: Stream, tmp_path: Path
) -> None:
    path = tmp_path / "x.ndjson"
    command = ("export", half_a_megabyte.name, "-o", str(path))
    with PartialFile(str(path), force=False).open(resume=False) as file:
        file.write(b"mine\n")
        file.flush()
        for more in ((), ("--resume",), ("--force",)):
            assert jsync(*command, *more).code == 2
        ended = jsync(*command, "--resume")
        assert "another process is writing it" in ended.errors
    assert (tmp_path / "x.ndjson.partial").read_text() == "mine\n"


def test_a_file_another_process_creates_meanwhile_is_kept(
    jsync: Jsync,
    half_a_megabyte: Stream,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path, line = tmp_path / "x.ndjson", export._document

    def written(msg: JetStreamMsg, sequence: int) -> bytes:
        path.write_text("mine")
        return line(msg, sequence)

    monkeypatch.setattr(export, "_document", written)
    ended = jsync("export", half_a_megabyte.name, "-o", str(path))
    assert (ended.code, path.read_text()) == (2, "mine")
    assert len(Path(f"{path}.partial").read_text().splitlines()) == 500


def test_a_full_disk_ends_exports_naming_the_file(
    jsync: Jsync, half_a_megabyte: Stream, tmp_path: Path
) -> None:
    path = tmp_path / "x.ndjson"
    command = ("export", half_a_megabyte.name, "-o", str(path))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    try:
        ended = jsync(*command)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert ended.code == 1
    assert f"a part is in {path}.partial; continue with --resume" in ended.errors
    assert f"{path}.partial: File too large" in ended.errors
    assert jsync(*command, "--resume").code == 0
    assert path.read_text() == jsync("export", half_a_megabyte.name).output


def test_a_closed_pipe_ends_the_export_quietly(
    server: LocalServer, half_a_megabyte: Stream
) -> None:
    with Process(server, "export", half_a_megabyte.name) as process:
        assert process.line().startswith('{"subject"')
        process.leave()
        code, _, errors = process.finish()
    assert code != 0
    assert errors == ""
