"""Tests of `jsync server`, the commands for users of the system account."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from jsync import Disconnected, JetStream, connect

from ..server.system.test_system import ACCOUNTS
from ..support.servers import free_port
from .support import Jsync

if TYPE_CHECKING:
    from ..conftest import StartServer

pytestmark = pytest.mark.server

ADMIN = ("--user", "admin", "--password", "x")


def test_servers_are_listed_asked_and_reloaded(own_server: StartServer) -> None:
    server = own_server(config=ACCOUNTS % 100)
    run = Jsync(server)
    (listed,) = run(*ADMIN, "server", "ls", "--json").json
    name = listed["server"]["name"]
    assert listed["data"]["active_servers"] == 1
    assert run(*ADMIN, "server", "ls").rows[0][0] == name
    assert run(*ADMIN, "server", "info", name, "--json").json["max_connections"] == 100
    assert "health ok" in " ".join(run(*ADMIN, "server", "info", name).output.split())
    asked = run(*ADMIN, "server", "request", "healthz").json
    assert asked[0]["data"]["status"] == "ok"
    asked = run(*ADMIN, "server", "request", "statsz", name).json
    assert asked["server"]["id"] == listed["server"]["id"]
    for endpoint in ("accstatz", "raftz", "ipqueuesz", "expvarz"):
        (asked,) = run(*ADMIN, "server", "request", endpoint).json
        assert asked["server"]["id"] == listed["server"]["id"]
    path = Path(str(server._directory)) / "nats.conf"
    path.write_text(path.read_text().replace("connections: 100", "connections: 7"))
    assert run(*ADMIN, "server", "reload", name).code == 0
    assert run(*ADMIN, "server", "info", name, "--json").json["max_connections"] == 7
    ended = run(*ADMIN, "server", "info", "nowhere")
    assert (ended.code, f"known: {name}" in ended.errors) == (3, True)
    ended = run("--user", "app", "--password", "x", "server", "ls")
    assert (ended.code, "user of the system account" in ended.errors) == (1, True)


def test_a_server_without_a_meta_leader_is_unavailable(
    own_server: StartServer,
) -> None:
    routes = f"""
        server_name: alone
        jetstream: enabled
        cluster {{ name: c, port: -1, routes: ["nats://127.0.0.1:{free_port()}"] }}
    """
    server = own_server(config=ACCOUNTS % 100 + routes)
    run = Jsync(server)
    assert run(*ADMIN, "server", "ls").rows[0][-1] == "unavailable"
    (listed,) = run(*ADMIN, "server", "ls", "--json").json
    assert listed["health"] == "unavailable"


def test_a_profile_goes_to_a_file(own_server: StartServer, tmp_path: Path) -> None:
    server = own_server(config=ACCOUNTS % 100)
    run, file = Jsync(server), tmp_path / "heap.pprof"
    (row,) = run(*ADMIN, "server", "ls").rows
    told = run(*(*ADMIN, "server", "profile", row[0], "heap", str(file), "--json")).json
    assert told["bytes"] == len(file.read_bytes()) > 0
    wrong = run(*ADMIN, "server", "profile", row[0], "cpu", str(tmp_path / "cpu"))
    assert (wrong.code, "Duration 0s should be" in wrong.errors) == (1, True)
    assert not (tmp_path / "cpu").exists()


def test_a_client_is_kicked(own_server: StartServer) -> None:
    server = own_server(config=ACCOUNTS % 100)
    with (
        connect(server.url, user="app", password="x") as nc,
        nc.events() as events,
    ):
        name = nc.server_info.server_name
        kick = (*ADMIN, "server", "kick", name, str(nc.client_id))
        ended = Jsync(server)(*kick)
        assert (ended.code, "pass --force" in ended.errors) == (2, True)
        assert nc.rtt() > 0
        ended = Jsync(server)(*kick, "--force")
        assert ended.code == 0, ended.errors
        assert isinstance(events.next(60), Disconnected)


def test_a_removal_asks_first(own_server: StartServer) -> None:
    run = Jsync(own_server(config=ACCOUNTS % 100))
    for words in (("peer-remove", "node-9"), ("step-down",)):
        ended = run(*ADMIN, "server", *words)
        assert (ended.code, "pass --force" in ended.errors) == (2, True)


def test_a_stream_is_backed_up_and_restored(
    jsync: Jsync, js: JetStream, unique: str, tmp_path: Path
) -> None:
    js.create_stream(name=unique, subjects=[unique])
    js.publish(unique, b"hello")
    told = jsync("stream", "backup", unique, str(tmp_path / "b"), "--json").json
    assert (told["stream"], told["messages"]) == (unique, 1)
    assert jsync("stream", "rm", unique, "--force").code == 0
    told = jsync("stream", "restore", str(tmp_path / "b"), "--json").json
    assert told == {"stream": unique, "messages": 1}
    assert js.get_message(unique, 1).data == b"hello"
    assert jsync("stream", "backup", unique, str(tmp_path / "b")).code == 2
    told = jsync("stream", "restore", str(tmp_path / "b"), "--name", f"{unique}B")
    assert told.code == 1
    assert f"overlap with an existing stream: {unique} with {unique}." in told.errors
    of = ("stream", "restore", str(tmp_path / "b"), "--name", f"{unique}B")
    copied = jsync(
        *of, "--subjects", f"{unique}B,{unique}C", "--replicas", "1", "--json"
    )
    assert copied.json == {"stream": f"{unique}B", "messages": 1}
    config = js.stream(f"{unique}B").cached_info.config
    assert config.subjects == [f"{unique}B", f"{unique}C"]
    js.delete_stream(f"{unique}B")
    assert jsync("stream", "restore", str(tmp_path / "none")).code == 2


def test_the_way_of_a_message_is_shown(
    jsync: Jsync, js: JetStream, unique: str
) -> None:
    js.create_stream(name=unique, subjects=[unique])
    ended = jsync("trace", unique, "hello", "--header", "A:b")
    assert ended.code == 0, ended.errors
    assert f"to stream {unique}, subject {unique}" in ended.output
    told = jsync("trace", unique, "--json").json
    assert told["complete"] is True
    assert told["hops"][0]["events"][0]["type"] == "in"
    assert js.stream(unique).info().state.messages == 0
    assert jsync("trace", unique, "hello", "--deliver").code == 0
    assert js.stream(unique).info().state.messages == 1


def test_an_account_is_backed_up_and_restored(
    own_server: StartServer, tmp_path: Path
) -> None:
    server = own_server()
    run, where = Jsync(server), str(tmp_path / "b")
    with connect(server.url) as nc:
        js = nc.jetstream()
        for name in ("ONE", "TWO"):
            js.create_stream(name=name, subjects=[name])
            js.publish(name, b"hello")
        told = run("account", "backup", where, "--force", "--json").json
        assert [each["stream"] for each in told["streams"]] == ["ONE", "TWO"]
        assert told["skipped"] == []
        ended = run("account", "restore", where)
        assert (ended.code, "exist already: ONE, TWO" in ended.errors) == (2, True)
        js.delete_stream("TWO")
        ended = run("account", "restore", where, "--skip-existing")
        assert (ended.code, ended.output) == (0, "restored 1 streams: TWO\n")
        for name in ("ONE", "TWO"):
            js.delete_stream(name)
        ended = run("account", "restore", where)
        assert (ended.code, ended.output) == (0, "restored 2 streams: ONE, TWO\n")
        assert js.get_message("TWO", 1).data == b"hello"
