"""Tests of `jsync dead`: list, show, replay and drop dead letters."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ..support.servers import wait_for
from ..support.threads import SOON, Recorder
from .support import Jsync
from .terminal import Terminal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jsync.server import LocalServer

import jsync as library
from jsync import errors


@pytest.fixture
def jsync(server: LocalServer) -> Jsync:
    return Jsync(server)


@pytest.fixture
def dead(
    js: library.JetStream, stream: library.Stream, unique: str
) -> Iterator[library.Stream]:
    """Two dead letters with another message between them."""
    subject = f"dead.{unique}"
    made = js.create_stream(name=f"{unique}DEAD", subjects=[subject], storage="memory")
    worker = stream.create_consumer(durable_name="w")
    told = Recorder()

    def fail(msg: library.JetStreamMsg) -> None:
        raise LookupError(f"no customer\n{msg.data.decode()}\x1b")

    retry = library.Retry(attempts=1, dead_letter=subject)
    with worker.consume(fail, retry=retry, on_error=told):
        for number in (1, 2):
            headers, msg_id = {"Trace": str(number)}, f"id-{number}"
            body = b"bill %d" % number
            js.publish(f"{unique}.a", body, headers=headers, msg_id=msg_id)
            while not isinstance(told.get(), errors.RetriesExhaustedError):
                pass
            if number == 1:
                js.publish(subject, b"by hand")
    yield made
    made.delete()


def test_dead_letters_are_listed(
    jsync: Jsync, dead: library.Stream, unique: str
) -> None:
    ended = jsync("dead", "ls", dead.name)
    assert ended.code == 0
    assert [(row[0], *row[2:]) for row in ended.rows] == [
        (
            *(number, f"{unique} {sequence} for w", "1", f"{unique}.a"),
            rf"LookupError: no customer bill {sequence}\u001b",
        )
        for number, sequence in (("1", "1"), ("3", "2"))
    ]
    documents = jsync("dead", "ls", dead.name, "--json").json
    assert [each["dead_letter"]["sequence"] for each in documents] == ["1", "2"]


def test_one_is_shown_with_its_traceback(jsync: Jsync, dead: library.Stream) -> None:
    ended = jsync("dead", "show", dead.name, "1")
    assert ended.code == 0
    assert "builtins.LookupError" in ended.output
    assert "raise LookupError" in ended.output
    assert "\x1b" not in ended.output
    assert ended.lines[-1] == "bill 1"
    assert jsync("dead", "show", dead.name, "2").code == 2
    assert jsync("dead", "show", dead.name, "99").code == 3


def test_dead_letters_are_replayed_and_deleted(
    jsync: Jsync, js: library.JetStream, dead: library.Stream, unique: str
) -> None:
    before = js.stream(unique).info().state.last_seq
    assert jsync("dead", "replay", dead.name, "3").code == 2, "nobody to ask"
    assert js.stream(unique).info().state.last_seq == before
    ended = jsync("dead", "replay", dead.name, "3", "--force")
    assert (ended.code, ended.lines) == (0, [f"3: stored in {unique} as {before + 1}"])
    again = js.get_message(unique, before + 1)
    assert (again.subject, again.data) == (f"{unique}.a", b"bill 2")
    headers = dict(again.headers or {})
    assert headers.pop("Nats-Msg-Id").startswith("replay:")
    assert headers == {"Trace": "2"}
    assert dead.info().state.messages == 2


def test_all_of_them_are_replayed_elsewhere(
    jsync: Jsync, nc: library.Connection, dead: library.Stream, unique: str
) -> None:
    with nc.subscribe(f"{unique}.again") as again:
        assert jsync("dead", "replay", dead.name, "--all").code == 2, "nobody to ask"
        ended = jsync(
            *("dead", "replay", dead.name, "--all", "--force"),
            *("--subject", f"{unique}.again"),
        )
        assert ended.code == 0
        assert [again.next(SOON).data for _ in range(2)] == [b"bill 1", b"bill 2"]
    assert dead.get_message(2).data == b"by hand"
    wait_for(lambda: dead.info().state.messages == 1)


def test_a_letter_that_no_stream_takes_is_kept(
    jsync: Jsync, dead: library.Stream
) -> None:
    ended = jsync(
        *("dead", "replay", dead.name, "1", "--force"),
        *("--subject", "nobody.takes.this"),
    )
    assert ended.code == 3
    assert dead.info().state.messages == 3


@pytest.mark.parametrize("reserved", [True, False])
def test_a_replay_obeys_no_request_in_a_letter(
    jsync: Jsync,
    js: library.JetStream,
    nc: library.Connection,
    dead: library.Stream,
    unique: str,
    reserved: bool,
) -> None:
    """Any program may publish to the stream of dead letters."""
    subject = f"$JS.API.STREAM.DELETE.{unique}" if reserved else f"service.{unique}"
    about = {"Stream": unique, "Subject": subject, "Sequence": "1", "Consumer": "w"}
    headers = {f"Dead-Letter-{name}": value for name, value in about.items()}
    forged = js.publish(f"dead.{unique}", headers=headers).seq
    with nc.subscribe(subject) as requests:
        ended = jsync("dead", "replay", dead.name, str(forged), "--force")
        assert ended.code == (2 if reserved else 3)
        assert requests.pending == 0
    assert js.stream(unique).info().state.messages == 2
    assert dead.get_message(forged).subject == f"dead.{unique}"


def test_a_failed_replay_does_not_stop_the_others(
    jsync: Jsync, js: library.JetStream, dead: library.Stream, unique: str
) -> None:
    subject = f"dead.{unique}"
    about = {"Stream": unique, "Sequence": "1", "Consumer": "w"}
    for name in ("missing", f"{unique}.a"):
        headers = {f"Dead-Letter-{each}": value for each, value in about.items()}
        js.publish(subject, b"x", headers={**headers, "Dead-Letter-Subject": name})
    ended = jsync("dead", "replay", dead.name, "--all", "--force")
    assert ended.code == 3
    assert [line.partition(":")[0] for line in ended.lines] == ["1", "3", "5"]
    assert "dead letter 4: " in ended.errors
    assert [dead.get_message(each).sequence for each in (2, 4)] == [2, 4]
    assert dead.info().state.messages == 2


def test_a_replay_writes_into_no_bucket(
    jsync: Jsync, js: library.JetStream, dead: library.Stream, unique: str
) -> None:
    """An old value, or one that anybody wrote into a letter, would replace the present one."""
    kv = js.create_key_value(bucket=unique, storage="memory")
    kv.put("k", b"new")
    about = {
        "Stream": f"KV_{unique}",
        "Subject": f"$KV.{unique}.k",
        "Sequence": "1",
        "Consumer": "w",
    }
    headers = {f"Dead-Letter-{name}": value for name, value in about.items()}
    forged = js.publish(f"dead.{unique}", b"old", headers=headers).seq
    ended = jsync("dead", "replay", dead.name, str(forged), "--force")
    assert ended.code == 2
    assert kv.get("k").value == b"new"
    chosen = jsync(
        *("dead", "replay", dead.name, str(forged), "--force"),
        *("--subject", f"$KV.{unique}.k"),
    )
    assert chosen.code == 0
    assert kv.get("k").value == b"old"
    js.delete_key_value(unique)


def test_a_removed_letter_does_not_stop_a_drop(
    jsync: Jsync, dead: library.Stream
) -> None:
    """The second look for a letter finds it removed, as by another program."""
    ended = jsync("dead", "drop", dead.name, "1", "1", "3", "--force")
    assert ended.code == 0
    assert dead.info().state.messages == 1


@pytest.mark.parametrize("command", ["drop", "replay"])
def test_letters_of_another_stream_are_kept(
    server: LocalServer, js: library.JetStream, dead: library.Stream, command: str
) -> None:
    """The stream is created again while the command waits for the answer."""
    with Terminal(NATS_URL=server.url) as terminal:
        terminal.run("jsync", "dead", command, dead.name, "1")
        terminal.await_screen("1 dead letter of")
        [subject] = dead.cached_info.config.subjects or []
        dead.delete()
        js.create_stream(name=dead.name, subjects=[subject], storage="memory")
        js.publish(subject, b"new")
        terminal.type("y")
        terminal.press("Enter")
        terminal.await_screen("exit 0")
    assert dead.get_message(1).data == b"new"


def test_a_missing_dead_letter_shows_the_list_command(
    jsync: Jsync, dead: library.Stream
) -> None:
    ended = jsync("dead", "replay", dead.name, "99", "--force")
    assert ended.code == 3
    assert f"`jsync dead ls {dead.name}`" in ended.errors


def test_dead_letters_are_dropped(jsync: Jsync, dead: library.Stream) -> None:
    assert jsync("dead", "drop", dead.name, "1").code == 2, "nobody to ask"
    assert jsync("dead", "drop", dead.name, "1", "--force").code == 0
    assert jsync("dead", "drop", dead.name, "--force").code == 2
    assert jsync("dead", "drop", dead.name, "2", "--force").code == 2, (
        "not a dead letter"
    )
    assert jsync("dead", "drop", dead.name, "--all", "--force").code == 0
    assert dead.info().state.messages == 1
