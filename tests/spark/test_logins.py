"""Tests of secrets at their places, which the executors read. No JVM is needed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from jsync import errors
from jsync.spark.connection import ConnectionOptions, open_connection
from jsync.spark.options import Options

from ..support.connection_faults import FakeServer
from ..support.connections import works
from ..support.websocket_scripts import WebSocketPeer, websocket

if TYPE_CHECKING:
    from pathlib import Path

    from jsync.server import LocalServer

    from ..support.accounts import Account


def options(**given: object) -> ConnectionOptions:
    named = {f"nats.{name}": str(value) for name, value in given.items()}
    return ConnectionOptions.of(Options(named, "read"))


def test_a_jwt_and_its_seed_log_in(
    jwt_server: LocalServer,
    account: Account,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    user = account.user("ann")
    file = tmp_path / "jwt"
    file.write_text(f"{user.jwt}\n")
    monkeypatch.setenv("ANNS_SEED", user.key.seed)
    chosen = options(servers=jwt_server.url, jwtFile=file, nkeySeedEnv="ANNS_SEED")
    assert user.key.seed not in repr(chosen)
    with open_connection(chosen) as nc:
        assert works(nc)
    for alone in ({}, {"tokenEnv": "TOKEN"}):
        with pytest.raises(errors.ConfigError, match="jwtFile needs the seed of its"):
            options(servers=jwt_server.url, jwtFile=file, **alone)


def test_headers_of_a_websocket_come_from_a_file(tmp_path: Path) -> None:
    seen: list[WebSocketPeer] = []

    def script(peer: WebSocketPeer) -> None:
        seen.append(peer)
        peer.handshake()
        peer.serve()

    file = tmp_path / "headers"
    with FakeServer(websocket(script)) as fake:
        url = f"ws://127.0.0.1:{fake.port}"
        file.write_text(json.dumps({"Authorization": "Bearer s3cret"}))
        with open_connection(options(servers=url, wsHeadersFile=file)):
            pass
    assert seen[0].fields["Authorization"] == "Bearer s3cret"


@pytest.mark.parametrize("text", ["Authorization: s3cret", '["s3cret"]', '{"a": 1}'])
def test_headers_that_are_no_json_are_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "headers"
    file.write_text(text)
    chosen = options(servers="ws://127.0.0.1:1", wsHeadersFile=file)
    with pytest.raises(errors.ConfigError, match="JSON object of names") as caught:
        open_connection(chosen)
    assert "s3cret" not in str(caught.value)
