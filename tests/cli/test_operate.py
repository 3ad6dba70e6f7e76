"""Tests of reports, pages, account, events, round trips and contexts, with a real server."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from jsync import connect

from ..matrix.lines import binary_of
from ..support.accounts import Permissions, password_config
from ..support.connection_faults import FakeServer
from ..support.connections import refusing_url
from ..support.fake_jetstream import FakeReply, answer_requests
from ..support.servers import wait_for
from .processes import Process
from .support import Jsync
from .terminal import Terminal
from .test_contexts import store
from .test_untrusted_text import EVIL, harmless, run_on_terminal, send

if TYPE_CHECKING:
    from pathlib import Path

    from jsync import JetStream, Stream
    from jsync.server import LocalServer

    from ..conftest import StartServer
    from ..support.servers import Cluster

pytestmark = pytest.mark.server

SYSTEM = """
accounts: {
  SYS: {users: [{user: sys, password: sys}]}
  APP: {jetstream: enabled, users: [{user: app, password: app}]}
}
system_account: SYS
"""


# Reports ------------------------------------------------------------------------------


def test_streams_are_compared_with_the_largest_last(
    jsync: Jsync, js: JetStream, unique: str
) -> None:
    for name, count in (("B", 5), ("A", 9), ("C", 1)):
        js.create_stream(
            name=f"{unique}{name}", subjects=[f"{unique}.{name}"], storage="memory"
        )
        for _ in range(count):
            js.publish(f"{unique}.{name}", b"x")
    js.create_consumer(f"{unique}C", durable_name="c")
    of = ("stream", "report", "--subject", f"{unique}.>")
    ended = jsync(*of)
    assert ended.lines[0].split("\t") == [
        *("stream", "storage", "placement", "consumers", "messages", "bytes"),
        *("lost", "deleted", "api level", "replicas"),
    ]
    assert [row[0][-1] for row in ended.rows] == ["C", "B", "A"]
    assert ended.rows[2][4] == "9"
    assert [row[0][-1] for row in jsync(*of, "--name").rows] == ["A", "B", "C"]
    assert jsync(*of, "-o").rows[2][0][-1] == "C"
    documents = jsync(*of, "-m", "--json").json
    assert [each["messages"] for each in documents] == [1, 5, 9]
    assert [each["consumers"] for each in documents] == [1, 0, 0]


def test_a_table_shows_lag_of_mirrors_and_sources(
    jsync: Jsync, js: JetStream, stream: Stream, unique: str
) -> None:
    copy = f"{unique}M"
    js.create_stream(name=copy, mirror={"name": stream.name}, storage="memory")
    ended = jsync("stream", "report")
    (row,) = [line for line in ended.lines if line.startswith(f"{copy}\tmirror\t")]
    assert row.split("\t")[2] == stream.name
    (found,) = [d for d in jsync("stream", "report", "-j").json if d["name"] == copy]
    assert found["mirror"]["name"] == stream.name
    shown = jsync("stream", "info", copy, "--json").json
    assert shown["mirror"]["name"] == stream.name
    js.delete_stream(copy)


def test_consumers_are_compared(jsync: Jsync, js: JetStream, stream: Stream) -> None:
    for number in range(4):
        js.publish(f"{stream.name}.a", b"%d" % number)
    stream.create_consumer(durable_name="behind", ack_wait=30)
    held = list(stream.create_consumer(durable_name="busy", ack_wait=30).fetch(3))
    assert len(held) == 3
    ended = jsync("consumer", "report", stream.name)
    behind, busy = ended.rows
    assert behind[:7] == ["behind", "pull", "explicit", "30", "0", "0", "4"]
    assert (busy[4], busy[6]) == ("3", "1")
    found = jsync("consumer", "report", stream.name, "--json").json
    assert [each["unprocessed"] for each in found] == [4, 1]
    assert jsync("consumer", "report", "no-such").code == 3


def test_messages_that_reached_max_deliver_are_reported(
    own_server: StartServer,
) -> None:
    server = own_server()
    run = Jsync(server)
    with connect(server.url) as nc:
        js = nc.jetstream()
        stream = js.create_stream(name="ORDERS", subjects=["orders"])
        consumer = stream.create_consumer(
            durable_name="billing", max_deliver=2, ack_wait=0.1
        )
        for _ in range(4):
            js.publish("orders")
        assert "streams\t1 streams" in run("doctor", "streams").output

        def report() -> tuple[int, int]:
            (found,) = run("consumer", "report", "ORDERS", "--json").json
            return found["stranded"], found["ack_pending"]

        def delivered() -> int:
            """Deliver messages, and acknowledge the fourth one alone."""
            messages = list(consumer.fetch(10, timeout=0.3))
            for msg in messages:
                if msg.metadata.stream_sequence == 4:
                    msg.ack_sync()
            return len(messages)

        wait_for(lambda: delivered() == 0)
        wait_for(lambda: report() == (3, 0))
    assert run("consumer", "report", "ORDERS").rows[0][-1] == "3"
    assert "Stranded" not in run("stream", "info", "ORDERS").output
    ended = run("doctor", "streams")
    assert ended.code == 0
    assert (
        "note\tstreams\tmessages that reached max_deliver: 3 of consumer billing"
        in (ended.output)
    )


def test_deleted_messages_are_not_reported_as_stranded(
    own_server: StartServer,
) -> None:
    server = own_server(binary=binary_of("2.12"))
    run = Jsync(server)

    def report() -> tuple[int, int]:
        (found,) = run("consumer", "report", "W", "--json").json
        return found["stranded"], found["redelivered"]

    with connect(server.url) as nc:
        js = nc.jetstream()
        stream = js.create_stream(name="W", subjects=["w"], retention="workqueue")
        consumer = stream.create_consumer(
            durable_name="c", max_deliver=2, ack_wait=0.05
        )
        for _ in range(2):
            js.publish("w")
        wait_for(lambda: not list(consumer.fetch(2, timeout=0.2)))
        wait_for(lambda: report() == (2, 2))
        doctor = run("doctor", "streams").output
        assert "reached max_deliver: perhaps 2 of consumer c of W" in doctor
        stream.delete_message(1)
        assert report() == (1, 2), "this server still counts it"
        stream.delete_message(2)
        assert report()[0] == 0
        assert "ok\tstreams" in run("doctor", "streams").output


def test_servers_and_leaders_of_a_cluster_are_shown(
    cluster: Cluster, unique: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    jsync = Jsync(cluster.servers[0])
    assert jsync("stream", "create", unique, "--replicas", "3").code == 0
    try:
        of = ("stream", "report", "--subject", unique)
        (row,) = jsync(*of).rows
        replicas = row[-1].split(", ")
        assert len(replicas) == 3
        assert sum(name.endswith("*") for name in replicas) == 1
        leaders = jsync(*of, "--leaders").lines
        assert leaders[-2:][0] == "leader\tstreams"
        assert leaders[-1].endswith("\t1")
        monkeypatch.setenv("NATS_URL", cluster.servers[0].url)
        _, written = run_on_terminal(monkeypatch, "stream", "info", unique)
        assert b"Cluster:" in written
        assert written.count(b"seen ") == 2
    finally:
        assert jsync("stream", "rm", unique, "--force").code == 0


# Infos --------------------------------------------------------------------------------


def test_a_terminal_gets_groups_with_sizes_and_durations(
    server: LocalServer,
    js: JetStream,
    stream: Stream,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NATS_URL", server.url)
    stream.update(max_bytes=3 << 20, max_age=86400.0 * 7, metadata={"team": "billing"})
    js.publish(f"{stream.name}.a", b"x")
    stream.create_consumer(durable_name="c", ack_wait=90, max_ack_pending=77)
    code, written = run_on_terminal(monkeypatch, "stream", "info", stream.name)
    text = re.sub(r"\x1b\[[0-9;]*m", "", written.decode()).replace("\r", "")
    assert code == 0
    for line in (
        r"Stream \w+, created \d{4}-\d\d-\d\d [\d:]+Z, .* ago",
        r"Limits:",
        r" +Maximum Bytes  3\.0 MiB",
        r" +Maximum Age  7d",
        r" +Maximum Messages  unlimited",
        r" +Entries  team=billing",
        r" +First Sequence  1 @ \d{4}-.* ago",
        r" +Active Consumers  1",
    ):
        assert re.search(f"^{line}$", text, re.MULTILINE), (line, text)
    _, written = run_on_terminal(monkeypatch, "consumer", "info", stream.name, "c")
    text = re.sub(r"\x1b\[[0-9;]*m", "", written.decode()).replace("\r", "")
    for line in (r" +Ack Wait  1m30s", r" +Outstanding Acks  0 of 77", r" +Mode  pull"):
        assert re.search(f"^{line}$", text, re.MULTILINE), (line, text)


# Pages --------------------------------------------------------------------------------


def test_a_terminal_pages_forth_and_back(
    server: LocalServer, js: JetStream, stream: Stream
) -> None:
    for number in range(1, 6):
        js.publish(f"{stream.name}.a", b"payload %d" % number)
    send(server.url, f"{stream.name}.".encode() + EVIL.replace(" ", "").encode())
    with Terminal(NATS_URL=server.url) as terminal:
        terminal.run("jsync", "stream", "view", stream.name, "2")
        shown = terminal.await_screen("Enter next page")
        assert "payload 2" in shown
        assert "payload 3" not in shown
        terminal.press("Enter")
        terminal.await_screen("b page before")
        terminal.type("b")
        shown = terminal.await_match(r"(?s)payload 4.*payload 1.*payload 2.*Enter")
        assert "payload 5" not in shown
        terminal.press("Enter", "Enter")
        terminal.await_screen("this was the last message")
        terminal.type("q")
        terminal.await_screen("exit 0")


def test_a_pipe_gets_one_page(jsync: Jsync, js: JetStream, stream: Stream) -> None:
    for number in range(1, 31):
        js.publish(f"{stream.name}.{'ab'[number % 2]}", b"%d" % number)
    view = ("stream", "view", stream.name)
    assert jsync(*view, "--raw").lines == [str(number) for number in range(1, 11)]
    assert jsync(*view, "3", "--id", "9", "--raw").lines == ["9", "10", "11"]
    only = jsync(*view, "2", "--subject", f"{stream.name}.a", "--json").documents
    assert [each["data"] for each in only] == ["2", "4"]
    assert len(jsync(*view, "50", "--since", "1h", "--raw").lines) == 30
    assert jsync(*view, "50", "--id", "999", "--raw").output == ""
    assert jsync(*view, "--id", "1", "--since", "1h").code == 2
    assert jsync("stream", "view", "no-such").code == 3
    assert stream.info().state.consumer_count == 0, "nothing is left behind"


# The account and the round trip -------------------------------------------------------


def test_the_account_shows_its_user(own_server: StartServer) -> None:
    own = own_server(config=SYSTEM)
    app = own.url.replace("//", "//app:app@")
    jsync = Jsync()
    found = jsync("account", "info", "--server", app, "--json").json
    assert (found["connection"]["user"], found["connection"]["account"]) == (
        "app",
        "APP",
    )
    assert found["connection"]["url"] == own.url, "without the password"
    assert found["jetstream"]["streams"] == 0
    facts = dict(
        line.split("\t") for line in jsync("account", "info", "--server", app).lines
    )
    assert (facts["jetstream"], facts["max_streams"]) == ("yes", "-1")
    system = own.url.replace("//", "//sys:sys@")
    assert jsync("account", "info", "-s", system, "--json").json["jetstream"] is None


def test_the_account_is_shown_grouped_with_its_permissions(
    own_server: StartServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    allowed = Permissions(publish_deny=("secret.>",))
    own = own_server(config=password_config({"me": "word"}, me=allowed))
    monkeypatch.setenv("NATS_URL", own.url.replace("//", "//me:word@"))
    code, written = run_on_terminal(monkeypatch, "account", "info")
    assert code == 0, written
    assert b"deny secret.>" in written
    assert b"1.0 MiB" in written
    assert b"word" not in written


def test_unreadable_user_information_counts_as_not_given() -> None:
    def answer(subject: str, _: bytes) -> list[FakeReply]:
        deep = b"[" * 100_000 + b"]" * 100_000
        return [
            FakeReply(deep if "USER.INFO" in subject else b'{"type":"account_info"}')
        ]

    with FakeServer(answer_requests(answer)) as fake:
        found = Jsync()("account", "info", "--server", fake.url, "--json").json
    assert found["connection"]["user"] is None
    assert found["connection"]["url"] == fake.url


def test_the_round_trip_to_each_server_is_measured(
    own_server: StartServer, server: LocalServer
) -> None:
    jsync = Jsync()
    both = f"{server.url},{own_server().url}"
    ended = jsync("rtt", "3", "--server", both)
    assert [row[:2] for row in ended.rows] == [[url, "3"] for url in both.split(",")]
    (one,) = jsync("rtt", "--server", server.url, "--json").json
    assert len(one["times"]) == 5
    assert 0 < one["least"] <= one["average"] <= one["most"]
    half = jsync("rtt", "--server", f"{refusing_url()},{server.url}")
    assert half.code == 1
    assert len(half.rows) == 1, "the other is still measured"
    assert "Connection refused" in half.errors


# Events -------------------------------------------------------------------------------


def test_advisories_are_written_as_they_come(
    server: LocalServer, js: JetStream, unique: str
) -> None:
    of = ("--stream", unique, "--count", "3")
    with Process(server, "events", "--js-advisory", *of) as process:
        process.await_words("events of $JS.EVENT.ADVISORY.>")
        js.create_stream(name=unique, storage="memory").create_consumer(
            durable_name="c"
        )
        js.delete_stream(unique)
        code, output, _ = process.finish()
    assert code == 0
    assert re.search(rf"stream_action  stream={unique}  action=create\n", output)
    assert re.search(rf"consumer_action  stream={unique}  consumer=c  ", output)


def test_events_of_servers_go_to_the_system_account(own_server: StartServer) -> None:
    own = own_server(config=SYSTEM)
    system, app = (own.url.replace("//", f"//{who}:{who}@") for who in ("sys", "app"))
    # The server can also report the connection of the command itself.
    more = ("--srv-advisory", "--filter", '"user":"app"', "--count", "1", "--json")
    with Process(own, "events", "--server", system, *more) as process:
        process.await_words("events of $SYS.ACCOUNT.*.CONNECT")
        assert Jsync()("stream", "ls", "--server", app).code == 0
        code, output, _ = process.finish()
    assert code == 0
    event = json.loads(output)
    assert event["type"] == "io.nats.server.advisory.v1.client_connect"
    assert event["client"]["user"] == "app"


def test_events_end_when_the_server_refuses_the_user(own_server: StartServer) -> None:
    own = own_server(config=password_config({"me": "word"}))
    url = own.url.replace("//", "//me:word@")
    with Process(own, "events", "--js-advisory", "--server", url) as process:
        process.await_words("events of $JS.EVENT.ADVISORY.>")
        own.reload(password_config({"other": "word"}))
        code, _, said = process.finish()
    assert code == 1
    assert "Authorization Violation" in said


def test_events_without_permission_are_reported(
    own_server: StartServer,
) -> None:
    denied = Permissions(subscribe_deny=("$SYS.>", "$JS.EVENT.METRIC.>"))
    own = own_server(config=password_config({"me": "word"}, me=denied))
    url = own.url.replace("//", "//me:word@")
    some = Jsync()("events", "--server", url, "--wait", "0.1")
    assert some.code == 0
    assert some.errors.count("Permissions Violation") == 4
    assert some.errors.endswith("events of $JS.EVENT.ADVISORY.>\n")
    none = Jsync()("events", "--js-metric", "--server", url, "--wait", "0.1")
    assert none.code == 1
    assert "Permissions Violation" in none.errors
    assert Jsync()("events", "--filter", "(").code == 2


# Contexts -----------------------------------------------------------------------------


def test_contexts_are_listed_selected_and_used(
    config_home: Path, server: LocalServer
) -> None:
    jsync = Jsync()
    assert jsync("context", "ls").rows == []
    store(config_home, "lab", url=server.url, description="The lab")
    store(config_home, "prod", url="nats://u:secret@prod:4222", token="geheim")
    (config_home / "nats" / "context" / "broken.json").write_text("{")
    broken, lab, prod = jsync("context", "ls").rows
    assert lab == ["lab", "", "The lab", server.url]
    assert prod[3] == "nats://(hidden)@prod:4222"
    assert "is not JSON" in broken[3]
    assert jsync("context", "list", "--names").lines == ["broken", "lab", "prod"]
    assert jsync("context", "show").code == 2
    assert jsync("context", "select", "lab").output == "selected context lab\n"
    assert jsync("stream", "ls").code == 0
    assert jsync("ctx", "ls").rows[1][1] == "*"
    assert jsync("context", "show", "--json").json["name"] == "lab"
    assert jsync("context", "select", "prod").code == 0
    before = config_home / "nats" / "previous-context.txt"
    assert before.read_text().strip() == "lab", "as `nats context previous` reads it"
    assert jsync("context", "unselect").code == 0
    assert jsync("context", "select", "none").code == 2
    path = str(config_home / "nats" / "context" / "lab.json")
    assert jsync("context", "select", path).code == 2
    assert "*" not in [row[1] for row in jsync("context", "ls").rows]


SECRET = "SUAKYRHVIOREXV7EUZTBHUHL7NUMHPMAS7QMDU3GTIUWEI5LDNOXD43IZY"


@pytest.mark.parametrize(
    "fields",
    [
        {"password": "geheim", "user": "me"},
        {"token": "geheim"},
        {"user_seed": "geheim", "user_jwt": "geheim"},
        {"creds": "data:;base64,geheim"},
        {"nkey": SECRET},
        {"url": "nats://me:geheim@h:4222, geheim@two"},
        {"url": "geheim@h"},
        {"socks_proxy": "socks5://me:geheim@h"},
        {"a_field_to_come": "geheim", "another": {"x": "geheim"}, "third": 4},
    ],
    ids=["password", "token", "jwt", "creds", "nkey", "urls", "url", "proxy", "other"],
)
def test_a_secret_of_a_context_is_never_shown(
    config_home: Path, fields: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    store(config_home, "lab", **fields)
    for command in (["show", "lab"], ["show", "lab", "--json"], ["ls"], ["ls", "-j"]):
        ended = Jsync()("context", *command)
        assert ended.code == 0, ended.errors
        assert "geheim" not in ended.output + ended.errors
        assert SECRET not in ended.output
        assert "(hidden)" in ended.output or command[0] == "ls"
    _, written = run_on_terminal(monkeypatch, "context", "show", "lab")
    assert b"geheim" not in written


def test_references_to_secrets_are_shown(config_home: Path) -> None:
    store(config_home, "lab", token="env://TOKEN", creds="/home/me/my.creds")
    found = Jsync()("context", "show", "lab", "-j").json
    assert (found["token"], found["creds"]) == ("env://TOKEN", "/home/me/my.creds")


def test_names_and_texts_of_contexts_are_escaped(
    config_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store(config_home, f"bad{EVIL}", description=EVIL, url=f"nats://{EVIL}", user=EVIL)
    for command in (["ls"], ["show", f"bad{EVIL}"], ["select", f"bad{EVIL}"]):
        code, written = run_on_terminal(monkeypatch, "context", *command)
        assert code == 0, written
        assert b"u001b" in written
        harmless(written)


def test_missing_jetstream_is_an_error_before_the_screen(
    own_server: StartServer,
) -> None:
    own = own_server(jetstream=False)
    with Terminal(NATS_URL=own.url) as terminal:
        terminal.run("jsync", "top")
        assert "JetStream" in terminal.await_screen("exit 1")
