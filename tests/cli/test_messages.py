"""Tests of `jsync pub`, `sub`, `request` and `reply` against a real server."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from jsync.cli.ui.messages import pairs

from ..support.accounts import Permissions, password_config
from ..support.servers import monitor, publish_block, wait_for
from ..support.threads import Recorder, Thread
from .support import Ended, Jsync

if TYPE_CHECKING:
    from pathlib import Path

    import jsync as package
    from jsync import JetStream, Stream
    from jsync.server import LocalServer

    from ..conftest import StartServer

pytestmark = pytest.mark.server


def begun(
    jsync: Jsync, server: LocalServer, *arguments: str, subjects: tuple[str, ...]
) -> Thread[Ended]:
    """Start a command that subscribes, on another thread, and wait until it has subscribed."""
    thread = Thread(lambda: jsync(*arguments))
    for subject in subjects:
        page = f"subsz?subs=1&test={subject}"
        wait_for(lambda page=page: bool(heard(server, page)) or thread.ended)  # type: ignore[misc]
    return thread


def heard(server: LocalServer, page: str) -> list[object]:
    listed: list[object] = monitor(server, page).get("subscriptions_list", [])
    return listed


def test_a_message_is_published_with_headers_and_reply(
    jsync: Jsync, nc: package.Connection, unique: str
) -> None:
    with nc.subscribe(unique) as sub:
        nc.flush()
        headers = ("-H", "Colour: red", "-H", "Colour:blue", "--header", "Size:1:2")
        ended = jsync("pub", unique, "hello", "--reply", "here", *headers)
        assert ended == (0, f"published 1 on {unique}\n", "")
        msg = sub.next()
        assert (msg.data, msg.reply) == (b"hello", "here")
        assert msg.headers is not None
        assert msg.headers.get_all("Colour") == ["red", "blue"]
        assert msg.headers["Size"] == "1:2"


def test_piped_input_is_published_whole_or_by_line(
    jsync: Jsync, nc: package.Connection, unique: str
) -> None:
    with nc.subscribe(unique) as sub:
        nc.flush()
        whole = jsync("publish", unique, "--json", stdin=b"a\n\xff\n")
        assert whole.json == {"subject": unique, "published": 1}
        assert sub.next().data == b"a\n\xff\n"
        lines = jsync("pub", unique, "--send-on", "newline", stdin="a\n\nb")
        assert lines.output == f"published 3 on {unique}\n"
        assert [sub.next().data for _ in range(3)] == [b"a", b"", b"b"]
        jsync("pub", unique, "x", "--count", "2", "--sleep", "1ms", "-q")
        assert [sub.next().data for _ in range(2)] == [b"x", b"x"]


def test_jetstream_messages_are_stored_when_the_command_ends(
    jsync: Jsync, stream: Stream
) -> None:
    subject = f"{stream.name}.a"
    stored = jsync("pub", subject, "one", "--jetstream", "--msg-id", "1")
    assert stored.output == f"stored 1 in {stream.name}, sequence 1\n"
    again = jsync("pub", subject, "one", "-J", "--msg-id", "1", "--json").json
    assert (again["seq"], again["duplicates"]) == (1, 1)
    lines = "".join(f"{number}\n" for number in range(5000))
    many = jsync("pub", subject, "-J", "--send-on", "newline", "--json", stdin=lines)
    assert many.json == {
        "subject": subject,
        "published": 5000,
        "stream": stream.name,
        "seq": 5001,
        "duplicates": 0,
    }
    assert stream.info().state.messages == 5001
    none = jsync("pub", subject, "-J", "--send-on", "newline", "-j", stdin="")
    assert none.json == {"subject": subject, "published": 0}


def test_an_expiring_message_has_a_time_to_live(
    jsync: Jsync, js: JetStream, unique: str
) -> None:
    with_ttl = js.create_stream(name=unique, storage="memory", allow_msg_ttl=True)
    assert jsync("pub", unique, "x", "-J", "--ttl", "1h").code == 0
    assert pairs(with_ttl.get_message(1).headers) == [("Nats-TTL", "3600s")]
    with_ttl.delete()


def test_a_failed_publish_has_an_exit_code(
    jsync: Jsync, own_server: StartServer, unique: str
) -> None:
    assert jsync("pub", "two words", "x").code == 2
    assert jsync("pub", unique, "x", "--msg-id", "1").code == 2
    assert jsync("pub", unique, "x", "-J", "--reply", "here").code == 2
    assert jsync("pub", unique, "x", "-H", "no colon").code == 2
    nobody = jsync("pub", unique, "x", "-J")
    assert (nobody.code, "no stream" in nobody.errors) == (3, True)
    users = {"ann": "secret"}
    denied = Permissions(publish_deny=("no.>",), subscribe_deny=("no.>",))
    ann = ("--user", "ann", "--password", "secret")
    walled = Jsync(own_server(config=password_config(users, ann=denied)))
    for command in (["pub", "no.way", "x"], ["sub", "no.way"], ["sub", "no.a", "no.b"]):
        refused = walled(*command, *ann)
        assert (refused.code, refused.output) == (1, "")
        assert "jsync: " in refused.errors
        assert "no." in refused.errors


def test_acks_that_never_come_end_by_the_timeout(
    jsync: Jsync, nc: package.Connection, unique: str
) -> None:
    with nc.subscribe(unique):  # takes the messages, and stores none
        nc.flush()
        many = jsync("pub", unique, "x", "-J", "--count", "2", "--timeout", "300ms")
    assert (many.code, "0.3 s" in many.errors) == (1, True), many.errors


def test_sub_writes_messages_until_there_are_so_many(
    jsync: Jsync, server: LocalServer, nc: package.Connection, unique: str
) -> None:
    command = ("sub", f"{unique}.*", "--count", "2")
    text = begun(jsync, server, *command, subjects=(f"{unique}.a",))
    nc.publish(f"{unique}.a", b"one", reply="here", headers={"Colour": "red"})
    nc.publish(f"{unique}.b", b"\x1b[31mtwo")
    ended = text.result()
    assert ended.output == (
        f"#1 {unique}.a (reply to here)\nColour: red\n\none\n\n"
        f"#2 {unique}.b\n\\u001b[31mtwo\n\n"
    )
    assert ended.errors == f"jsync: subscribed to {unique}.*\n"


def test_sub_writes_json_for_programs(
    jsync: Jsync, server: LocalServer, nc: package.Connection, unique: str
) -> None:
    flow = begun(
        jsync, server, "sub", unique, "--count", "2", "--json", subjects=(unique,)
    )
    nc.publish(unique, "grün".encode(), headers={"Bytes": "\udcff"})
    nc.publish(unique, b"\xff", reply="here")
    assert flow.result().documents == [
        {"subject": unique, "headers": {"Bytes": ["\udcff"]}, "data": "grün"},
        {"subject": unique, "reply": "here", "data_base64": "/w=="},
    ]


def test_messages_with_unreadable_headers_are_shown(
    jsync: Jsync, server: LocalServer, js: JetStream, stream: Stream, tmp_path: Path
) -> None:
    subject = f"{stream.name}.a"
    stream.create_consumer(durable_name="c")
    js.publish(subject, b"one")
    publish_block(server.url, subject, b"FOO\r\nA: 1\r\n\r\n", b"two")
    publish_block(server.url, subject, b"NATS/1.0\r\nA: 1\r\nB\r\n\r\n", b"three")
    js.publish(subject, b"four")
    foreign = "the header block does not begin with NATS/1.0"
    half = "a line of the header block has no name and colon"
    for command in (
        ("consume", stream.name, "c", "--wait", "1"),
        ("consume", stream.name, "--terminate-at-end"),
        ("stream", "view", stream.name),
    ):
        ended = jsync(*command)
        assert ended.code == 0, ended.errors
        assert [line for line in ended.lines if line and line[0] != "#"] == [
            *("one", f"(unreadable headers: {foreign})", "two"),
            *("A: 1", f"(unreadable headers: {half})", "three", "four"),
        ]
    shown = jsync("stream", "get", stream.name, "2", "--json").json
    assert (shown["data"], shown["headers_error"]) == ("two", foreign)
    assert "headers" not in shown
    for form in ("ndjson", "raw", "parquet"):
        path = str(tmp_path / f"all.{form}")
        ended = jsync("export", stream.name, "--format", form, "-o", path)
        assert ended.code == 0, ended.errors
        assert "jsync: messages with unreadable headers: 2\n" in ended.errors
    assert jsync("dead", "ls", stream.name).rows == []
    letter = b"NATS/1.0\r\nDead-Letter-Stream: S\r\nB\r\n\r\n"
    publish_block(server.url, subject, letter, b"letter")
    [found] = jsync("dead", "ls", stream.name, "--json").json
    assert (found["data"], found["headers_error"]) == ("letter", half)
    flow = begun(jsync, server, "sub", subject, "--count", "1", subjects=(subject,))
    publish_block(server.url, subject, b"FOO\r\n\r\n", b"five")
    lines = flow.result().lines
    assert lines[1:] == [f"(unreadable headers: {foreign})", "", "five", ""]


def test_sub_takes_several_subjects_and_a_queue_group(
    jsync: Jsync, server: LocalServer, nc: package.Connection, unique: str
) -> None:
    subjects = (f"{unique}.a", f"{unique}.b")
    options = ("--count", "40", "--raw", "--queue", "workers")
    several = begun(jsync, server, "sub", *subjects, *options, subjects=subjects)
    for number in range(20):
        for subject in subjects:
            nc.publish(subject, b"%d" % number)
    nc.flush()
    lines = several.result().lines
    assert sorted(map(int, lines)) == sorted([*range(20), *range(20)])


def test_sub_ends_when_nothing_comes(jsync: Jsync, unique: str) -> None:
    assert jsync("sub", unique, "--wait", "20ms")[:2] == (0, "")
    assert jsync("sub", f"{unique}.a", f"{unique}.b", "--wait", "20ms")[:2] == (0, "")


def test_requests_print_the_reply_or_why_none_came(
    jsync: Jsync, nc: package.Connection, unique: str
) -> None:
    heard = Recorder()

    def answer(msg: package.Msg) -> None:
        heard(msg)
        msg.respond(msg.data.upper(), headers={"Colour": "red"})

    with nc.subscribe(unique, callback=answer):
        nc.flush()
        text = jsync("request", unique, "hi", "-H", "A:b")
        assert text == (0, "Colour: red\n\nHI\n", "")
        assert heard.get().headers["A"] == "b"
        assert jsync("req", unique, "--raw", stdin="piped").output == "PIPED\n"
        (document,) = jsync("request", unique, "hi", "--json").documents
        assert (document["data"], document["headers"]) == ("HI", {"Colour": ["red"]})
    nobody = jsync("request", f"{unique}.nobody", "hi")
    assert (nobody.code, nobody.output) == (3, "")
    with nc.subscribe(f"{unique}.silent"):
        nc.flush()
        late = jsync("request", f"{unique}.silent", "hi", "--timeout", "50ms")
        assert (late.code, late.output) == (4, "")


def test_several_replies_are_waited_for(
    jsync: Jsync, nc: package.Connection, unique: str
) -> None:
    def answer(msg: package.Msg) -> None:
        msg.respond(b"one")
        msg.respond(b"two")

    with nc.subscribe(unique, callback=answer):
        nc.flush()
        two = jsync(
            "request", unique, "", "--replies", "2", "--raw", "--reply-timeout", "30s"
        )
        assert two == (0, "one\ntwo\n", "")
        all_of_them = jsync("request", unique, "", "--replies", "0", "--timeout", "30s")
        assert all_of_them.code == 0
        few = jsync("request", unique, "", "--replies", "3", "--timeout", "30s")
        assert (few.code, "of 3 replies" in few.errors) == (4, True)


def test_reply_answers_requests(
    jsync: Jsync, server: LocalServer, nc: package.Connection, unique: str
) -> None:
    echo = begun(
        jsync, server, "reply", unique, "--echo", "--count", "1", subjects=(unique,)
    )
    assert nc.request(unique, b"hi").data == b"hi"
    assert echo.result().lines[1] == "hi"
    command = ("reply", unique, "no", "--count", "1", "-H", "A:b", "--json")
    fixed = begun(jsync, server, *command, subjects=(unique,))
    reply = nc.request(unique, b"hi")
    assert (reply.data, pairs(reply.headers)) == (b"no", [("A", "b")])
    assert fixed.result().documents[0]["data"] == "hi"
    assert jsync("reply", unique).code == 2
    assert jsync("reply", unique, "no", "--echo").code == 2
