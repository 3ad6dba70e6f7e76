"""Tests of `jsync stream` against a real server."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

import jsync as package

from ..support.servers import free_port, wait_for
from .support import Jsync

if TYPE_CHECKING:
    from pathlib import Path

    from jsync import JetStream, Stream

    from ..conftest import StartServer

pytestmark = pytest.mark.server


def test_streams_are_listed_as_table_json_and_names(
    jsync: Jsync, stream: Stream
) -> None:
    subject = f"{stream.name}.>"
    table = jsync("stream", "ls", "--subject", subject)
    assert table.rows == [[stream.name, subject, "0", "0", "0"]]
    assert jsync("s", "list", "-n", "--subject", subject).lines == [stream.name]
    (found,) = jsync("stream", "ls", "--subject", subject, "--json").json
    assert found["config"]["subjects"] == [subject]


def test_options_of_nats_stream_add_create_a_stream(
    jsync: Jsync, js: JetStream, unique: str
) -> None:
    ended = jsync(
        *(
            "stream",
            "add",
            unique,
            "--subjects",
            f"{unique}.a,{unique}.b",
            "--defaults",
        ),
        *("--storage", "memory", "--retention", "work", "--discard", "new"),
        *("--max-age", "1h30m", "--max-bytes", "1MB", "--max-msgs", "1000"),
        *("--max-msgs-per-subject", "10", "--max-msg-size", "64k", "--no-ack"),
        *("--dupe-window", "1m", "--allow-direct", "--deny-delete", "--replicas", "1"),
        *("--allow-msg-ttl", "--allow-batch", "--allow-fast", "--metadata", "team=a"),
        *("--republish-source", f"{unique}.a", "--republish-destination", "copy.a"),
        *("--limit-consumer-inactive", "1h", "--first-sequence", "7"),
    )
    assert ended.code == 0, ended.errors
    config = js.stream(unique).config
    assert config.subjects == [f"{unique}.a", f"{unique}.b"]
    assert (config.storage, config.retention, config.discard) == (
        "memory",
        "workqueue",
        "new",
    )
    assert (config.max_age, config.max_bytes, config.max_msgs) == (5400, 1 << 20, 1000)
    assert (config.max_msgs_per_subject, config.max_msg_size) == (10, 65536)
    assert (config.no_ack, config.duplicate_window, config.allow_direct) == (
        True,
        60,
        True,
    )
    assert config.deny_delete
    assert config.allow_msg_ttl
    assert config.allow_atomic
    assert config.allow_batched
    assert (config.metadata or {})["team"] == "a"
    assert config.republish is not None
    assert (config.republish.src, config.republish.dest) == (f"{unique}.a", "copy.a")
    assert config.consumer_limits is not None
    assert config.consumer_limits.inactive_threshold == 3600
    assert config.first_seq == 7
    js.delete_stream(unique)


def test_a_stream_is_created_from_info_of_another(
    jsync: Jsync, js: JetStream, stream: Stream, unique: str, tmp_path: Path
) -> None:
    path = tmp_path / "config.json"
    path.write_text(jsync("stream", "info", stream.name, "--json").output)
    other = jsync("stream", "create", "OTHER", "--config", str(path))
    assert other.code == 2
    assert f"configures {stream.name!r}, not 'OTHER'" in other.errors
    document = json.loads(path.read_text())["config"]
    document.update(name=f"{unique}C", subjects=[f"{unique}C"])
    path.write_text(json.dumps(document))
    created = jsync("stream", "create", "--config", str(path), "--max-age", "1h")
    assert created.code == 0, created.errors
    config = js.stream(f"{unique}C").config
    assert (config.subjects, config.max_age) == ([f"{unique}C"], 3600)
    piped = jsync("stream", "create", "--config", "-", stdin=created_as(jsync, unique))
    assert piped.code == 0, piped.errors
    js.delete_stream(f"{unique}C")


def created_as(jsync: Jsync, unique: str) -> str:
    """Return the output of `info --json`, to create a stream like it."""
    return jsync("stream", "info", f"{unique}C", "--json").output


def test_a_senseless_configuration_is_refused_before_sending_anything(
    jsync: Jsync, tmp_path: Path
) -> None:
    path = tmp_path / "config.json"
    for text, word in (
        ("{", "not JSON"),
        ("[]", "no configuration"),
        ('{"name": "A", "max_age": "soon"}', "max_age"),
        ('{"name": "A", "storage": "tape"}', "storage"),
        ("{}", "name: missing"),
    ):
        path.write_text(text)
        ended = jsync("stream", "create", "--config", str(path))
        assert (ended.code, word in ended.errors) == (2, True), ended.errors
    assert "give a STREAM" in jsync("stream", "create").errors
    for options, word in (
        (["--transform-source", "a"], "needs --transform-destination"),
        (["--republish-headers"], "needs --republish-destination"),
        (["--max-age", "soon"], "not a duration"),
        (["--max-bytes", "much"], "not a size"),
        (["--metadata", "x"], "not a name and a value"),
    ):
        ended = jsync("stream", "create", "A", *options)
        assert (ended.code, word in ended.errors) == (2, True), ended.errors


def test_edit_changes_named_fields_and_shows_the_result(
    jsync: Jsync, stream: Stream
) -> None:
    name = stream.name
    dry = jsync("stream", "edit", name, "--max-age", "1d", "--dry-run", "--json")
    assert dry.json == {"max_age": {"from": 0, "to": 86_400_000_000_000}}
    assert "max_age: 0s -> 1d" in dry.errors
    assert stream.info().config.max_age == 0

    unforced = jsync("stream", "edit", name, "--max-age", "1d")
    assert (unforced.code, "--force" in unforced.errors) == (2, True)
    assert stream.info().config.max_age == 0

    done = jsync("stream", "update", name, "--max-age", "1d", "--metadata", "a=1", "-f")
    assert done.code == 0, done.errors
    again = jsync("stream", "edit", name, "--metadata", "b=2", "--max-age", "1d", "-f")
    assert "max_age" not in again.errors
    config = stream.info().config
    assert config.max_age == 86400
    assert {"a": "1", "b": "2"}.items() <= (config.metadata or {}).items()
    unset = jsync("stream", "edit", name, "--unset", "max-age", "-f")
    assert "max_age: 1d -> 0s" in unset.errors or "max_age: 1d -> unset" in unset.errors
    assert stream.info().config.max_age == 0
    wrong = jsync("stream", "edit", name, "--unset", "max-agee", "-f")
    assert (wrong.code, "max_age" in wrong.errors) == (2, True)
    assert "nothing changes" in jsync("stream", "edit", name, "--max-age", "0").errors


def test_edit_keeps_changes_of_another_operator(
    jsync: Jsync,
    js: JetStream,
    stream: Stream,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def late_change(question: str, *, force: bool) -> None:
        """Change the stream while the operator reads the question."""
        js.update_stream(name=stream.name, max_msgs=77)

    monkeypatch.setattr("jsync.cli.commands.stream.confirm", late_change)
    assert jsync("stream", "edit", stream.name, "--max-age", "1d").code == 0
    config = stream.info().config
    assert (config.max_msgs, config.max_age) == (77, 86400)


def test_edit_with_a_file_replaces_the_whole_configuration(
    jsync: Jsync, stream: Stream, tmp_path: Path
) -> None:
    stream.update(description="to go", max_msgs=5)
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"name": stream.name, "storage": "memory"}))
    subjects = ("--subjects", f"{stream.name}.>")
    ended = jsync("stream", "edit", stream.name, "--config", str(path), *subjects, "-f")
    assert ended.code == 0, ended.errors
    config = stream.info().config
    assert (config.description, config.max_msgs) == (None, -1)


def test_streams_are_shown_purged_and_deleted_with_messages(
    jsync: Jsync, js: JetStream, stream: Stream
) -> None:
    name = stream.name
    for number in range(5):
        js.publish(f"{name}.{number % 2}", b"%d" % number)
    facts = dict(line.split("\t") for line in jsync("stream", "info", name).lines)
    assert (facts["messages"], facts["storage"], facts["last_seq"]) == (
        "5",
        "memory",
        "5",
    )
    assert jsync("stream", "subjects", name).rows == [
        [f"{name}.0", "3"],
        [f"{name}.1", "2"],
    ]
    assert jsync("stream", "subjects", name, f"{name}.1", "-j").json == {f"{name}.1": 2}

    assert jsync("stream", "purge", name, "--subject", f"{name}.1").code == 2
    purge = jsync("stream", "purge", name, "--subject", f"{name}.1", "-f", "--json")
    assert purge.json == {"purged": 2}
    assert (
        jsync("stream", "purge", name, "--seq", "3", "-f").output
        == "purged 1 messages\n"
    )
    assert jsync("stream", "rmm", name, "3", "-f").output == "deleted message 3\n"
    assert jsync("stream", "purge", name, "--keep", "0", "-f", "-j").json == {
        "purged": 1
    }

    assert jsync("stream", "rm", name).code == 2
    assert (
        jsync("stream", "delete", name, "--force").output == f"deleted stream {name}\n"
    )
    gone = jsync("stream", "info", name)
    assert (gone.code, gone.output) == (3, "")
    assert gone.errors == (
        f"jsync: stream not found (err_code 10059, asked STREAM.INFO.{name}): "
        "create it, or check its name, the account and the domain\n"
        "Try: jsync stream ls, which lists the streams\n"
    )


def test_get_finds_a_message_by_sequence_or_subject(
    jsync: Jsync, js: JetStream, stream: Stream
) -> None:
    name = stream.name
    js.publish(f"{name}.a", b"one", headers={"Colour": ["red", "blue"]})
    js.publish(f"{name}.a", b"\xff\x00")
    document = jsync("stream", "get", name, "1", "--json").json
    assert document.pop("timestamp").endswith("+00:00")
    assert document == {
        "subject": f"{name}.a",
        "stream": name,
        "sequence": 1,
        "headers": {"Colour": ["red", "blue"]},
        "data": "one",
    }
    last = jsync("stream", "get", name, "--last-for", f"{name}.a", "--json").json
    assert (last["sequence"], last["data_base64"]) == (2, "/wA=")
    text = jsync("stream", "get", name, "1")
    assert text.lines[0].startswith(f"#1 {name}.a 20")
    assert text.lines[1:] == ["Colour: red", "Colour: blue", "", "one", ""]
    assert jsync("stream", "get", name, "1", "--raw").output == "one\n"
    assert jsync("stream", "get", name, "1", "--subjects-only").output == f"{name}.a\n"
    assert "one" not in jsync("stream", "get", name, "1", "--headers-only").output
    assert "2 bytes, not text" in jsync("stream", "get", name, "2").output
    assert jsync("stream", "get", name, "9").code == 3
    assert jsync("stream", "get", name).code == 2
    assert jsync("stream", "get", name, "1", "--raw", "--json").code == 2


def test_streams_of_a_domain_are_copied(own_server: StartServer) -> None:
    port = free_port()
    hub = own_server(
        config=f'jetstream {{ domain: hub }}\nleafnodes {{ listen: "127.0.0.1:{port}" }}'
    )
    remotes = f'remotes: [{{ url: "nats-leaf://127.0.0.1:{port}" }}]'
    edge = own_server(
        config=f"jetstream {{ domain: shop7 }}\nleafnodes {{ {remotes} }}"
    )
    jsync = Jsync(hub)
    with package.connect(edge.url) as till, package.connect(hub.url) as nc:
        sales = till.jetstream()
        sales.create_stream(name="SALES", subjects=["sales.>"])
        sales.publish("sales.1", b"one")
        js = nc.jetstream()
        for option, name in (("--source", "SHOPS"), ("--mirror", "SHOP7")):
            copy = ("stream", "create", name, option, "SALES")
            config = jsync(*copy, "--source-domain", "shop7", "-j").json["config"]
            found = config.get("mirror") or config["sources"][0]
            assert found["external"]["api"] == "$JS.shop7.API"
            stream = js.stream(name)
            wait_for(lambda stream=stream: stream.info().state.messages == 1)  # type: ignore[misc]


def test_a_domain_without_a_source_is_refused(jsync: Jsync, unique: str) -> None:
    lone = jsync("stream", "create", unique, "--source-domain", "hub")
    assert (lone.code, "needs --source or --mirror" in lone.errors) == (2, True)
    for name in ("a.b", "*", "", "a b"):
        wrong = jsync(
            *("stream", "create", unique, "--source", "S", "--source-domain", name)
        )
        assert (wrong.code, "is not a JetStream domain" in wrong.errors) == (2, True)
