"""Tests of `jsync export` against a real server."""

from __future__ import annotations

import json
import time
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet
import pytest

from jsync.cli import export

from ..servers import wait_for
from .processes import Process
from .test_ingest import FLIGHTS, ROWS, held

if TYPE_CHECKING:
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


def test_a_payload_that_is_no_text_is_base64(
    jsync: Jsync, server: LocalServer, js: JetStream, stream: Stream
) -> None:
    js.publish(f"{stream.name}.x", b"\xff\x00")
    (found,) = jsync("export", stream.name).documents
    assert "data" not in found
    assert found["data_base64"] == "/wA="
    with Process(server, "export", stream.name, "--raw") as process:
        assert process.finish_raw() == b"\xff\x00\n"


def test_a_part_is_written_by_subject_sequence_and_time(
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


def test_a_file_is_not_replaced_unless_that_is_wanted(
    jsync: Jsync, flights: Stream, tmp_path: Path
) -> None:
    path = tmp_path / "there.ndjson"
    path.write_text("mine")
    refused = jsync("export", flights.name, "-o", str(path))
    assert (refused.code, path.read_text()) == (2, "mine")
    assert jsync("export", flights.name, "-o", str(path), "--force").code == 0
    assert path.read_text().startswith("{")


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


def test_ctrl_c_does_not_wait_for_a_reader_that_has_stopped(
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


def test_after_ctrl_c_the_file_is_a_part_and_is_called_one(
    jsync: Jsync,
    half_a_megabyte: Stream,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = tmp_path / "x.ndjson"
    line = export._document

    def interrupted(msg: JetStreamMsg, sequence: int) -> bytes:
        if sequence == 100:
            raise KeyboardInterrupt
        return line(msg, sequence)

    monkeypatch.setattr(export, "_document", interrupted)
    ended = jsync("export", half_a_megabyte.name, "-o", str(path))
    assert ended.code == 130
    assert "interrupted: 99 messages, up to sequence 99, are in" in ended.errors
    assert "continue with --from 100" in ended.errors
    assert not path.exists()
    assert len(Path(f"{path}.partial").read_text().splitlines()) == 99


def test_a_closed_pipe_ends_the_export_quietly(
    server: LocalServer, half_a_megabyte: Stream
) -> None:
    with Process(server, "export", half_a_megabyte.name) as process:
        assert process.line().startswith('{"subject"')
        process.leave()
        code, _, errors = process.finish()
    assert code != 0
    assert errors == ""
