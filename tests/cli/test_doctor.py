"""Tests of `jsync doctor`: its findings, and those that make it fail."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from jsync.cli.commands.doctor import _Rules
from jsync.cli.diagnosis import is_away
from jsync.models import PeerInfo

from ..matrix.lines import binary_of
from ..support.connections import refusing_url
from .support import Ended, Jsync

if TYPE_CHECKING:
    from pathlib import Path

    from jsync.server import LocalServer

    from ..conftest import StartServer
    from ..support.certificates import Certificates

pytestmark = pytest.mark.server

REMOTE = ("server", "tls", "jetstream", "permissions")


def found(ended: Ended) -> dict[str, list[str]]:
    """Return the state, words and advice of each part."""
    return {part: [state, *rest] for state, part, *rest in map(split, ended.lines)}


def split(line: str) -> list[str]:
    return line.split("\t")


def test_a_server_without_limits_is_fine(jsync: Jsync, server: LocalServer) -> None:
    ended = jsync("doctor")
    assert (ended.code, ended.errors) == (0, "")
    told = found(ended)
    assert [told[part][0] for part in ("python", *REMOTE, "own-server", "parquet")] == [
        "ok"
    ] * 7
    assert "nats-server 2.15" in told["server"][1]
    assert server.url in told["server"][1]
    assert "does not leave this machine" in told["tls"][1]
    assert told["permissions"][1] == "nobody in account $G, without limits"


def test_named_parts_are_checked_and_written_as_json(jsync: Jsync) -> None:
    told = jsync("doctor", "python", "jetstream", "--json").json
    assert told["ok"] is True
    assert [check["part"] for check in told["checks"]] == ["python", "jetstream"]
    assert "API level 5" in told["checks"][1]["says"]
    assert jsync("doctor", "liver").code == 2


def test_a_missing_server_fails_only_if_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here = refusing_url()
    named = Jsync()("--server", here, "doctor")
    assert named.code == 1
    assert found(named)["server"][0] == "broken"
    assert "start one here with `jsync server`" in found(named)["server"][2]
    assert Jsync()("--server", here, "doctor", "python", "own-server").code == 0
    monkeypatch.setenv("NATS_URL", here)
    assert Jsync()("doctor", "tls").code == 1


def test_the_doctor_reports_missing_jetstream_and_old_servers(
    own_server: StartServer,
) -> None:
    without = Jsync(own_server(jetstream=False))("doctor", *REMOTE)
    assert without.code == 1
    assert found(without)["jetstream"][0] == "broken"
    assert found(without)["jetstream"][2] == "nats-server -js has it on"
    old = Jsync(own_server(binary=binary_of("2.11")))("doctor", *REMOTE)
    assert old.code == 0
    state, words, advice = found(old)["jetstream"]
    assert state == "note"
    assert words.endswith("no atomic batches and no fast ingest")
    assert "2.14" in advice


def test_missing_permissions_are_reported(own_server: StartServer) -> None:
    server = own_server(
        config="""authorization { users: [
            { user: reader, password: word, permissions: {
                publish: ["$JS.API.>", "$SYS.REQ.USER.INFO"], subscribe: ["_INBOX.>"] } }
            { user: nobody, password: word, permissions: { publish: ["x"] } }
        ] }"""
    )
    run = Jsync(server)
    reader = run("--user", "reader", "--password", "word", "doctor", *REMOTE)
    assert found(reader)["permissions"][:2] == [
        "note",
        "reader in account $G may not publish $JS.ACK.> (acknowledging), at least in part",
    ]
    nobody = run("--user", "nobody", "--password", "word", "doctor", *REMOTE)
    assert nobody.code == 1
    assert found(nobody)["jetstream"][2] == "allow $JS.API.>"
    assert found(nobody)["permissions"][0] == "note"
    rejected = run("--user", "nobody", "--password", "wrong", "doctor", *REMOTE)
    assert rejected.code == 1
    assert "--creds FILE" in found(rejected)["server"][2]
    assert "wrong" not in rejected.output + rejected.errors


def test_the_doctor_tells_whether_tls_works(
    tls_server: LocalServer, certificates: Certificates
) -> None:
    trusted = Jsync(tls_server)("--tlsca", str(certificates.ca.cert), "doctor", *REMOTE)
    assert found(trusted)["tls"] == ["ok", "encrypted by TLS", ""]
    refused = Jsync(tls_server)("doctor", *REMOTE)
    assert refused.code == 1
    assert "--tlsca FILE" in found(refused)["server"][2]


def test_the_doctor_reports_a_missing_or_wrong_java(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert found(Jsync()("doctor", "java"))["java"][:2] == [
        "broken",
        "no Java, which Spark needs",
    ]
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    for version, code in (("11.0.2", 1), ("17.0.1", 0), ("21", 0), ("25.0.1", 1)):
        java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
        java.chmod(0o755)
        assert Jsync()("doctor", "java").code == code
    java.write_text("#!/bin/sh\nexit 1\n")
    assert "does not run" in found(Jsync()("doctor", "java"))["java"][1]


@pytest.mark.parametrize(
    ("allow", "deny", "may"),
    [
        (None, None, True),
        (["$JS.>"], None, True),
        (["$JS.API.INFO"], None, False),
        (None, ["$JS.API.STREAM.DELETE.*"], False),
        (None, ["other.>"], True),
        ([">"], [">"], False),
    ],
)
def test_permissions_are_read_as_the_server_does(
    allow: list[str] | None, deny: list[str] | None, *, may: bool
) -> None:
    assert _Rules(allow, deny).allows("$JS.API.>") is may


@pytest.mark.parametrize(
    ("current", "active", "led", "away"),
    [
        (True, 0.0, 60.0, False),
        (False, 0.0, 1.0, False),
        (False, 0.0, 60.0, True),
        (False, 1.0, 60.0, False),
        (False, 6.0, 60.0, True),
    ],
)
def test_a_server_its_leader_never_heard_is_away(
    current: bool, active: float, led: float, away: bool
) -> None:
    peer = PeerInfo(current=current, active=active)
    assert is_away(peer, led) is away
    assert not is_away(PeerInfo(current=current, active=active, pending=True), led)
    assert is_away(PeerInfo(offline=True), led)
