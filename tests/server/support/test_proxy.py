"""Tests of the fault proxy with a real server."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from ...support.servers import RawClient

if TYPE_CHECKING:
    from jsync.server import LocalServer

    from ...support.proxy import FaultProxy

pytestmark = pytest.mark.server


def test_a_client_speaks_through_the_proxy(
    proxy: FaultProxy, server: LocalServer, unique: str
) -> None:
    with RawClient(proxy.url) as client:
        assert client.connect() == "PONG"
        config = {"name": unique, "subjects": [unique]}
        reply = client.request(f"$JS.API.STREAM.CREATE.{unique}", config)
        assert reply["config"]["name"] == unique
    assert proxy.connections == 1


def test_injected_lines_never_split_a_message(proxy: FaultProxy, unique: str) -> None:
    count, payload = 2000, b"-ERR 'not a line'"
    with RawClient(proxy.url) as client:
        client.connect(protocol=0)
        client.send(f"SUB {unique} 7\r\n".encode())
        message = b"PUB %s %d\r\n%s\r\n" % (unique.encode(), len(payload), payload)
        sender = threading.Thread(target=client.send, args=(message * count,))
        sender.start()
        for _ in range(20):
            proxy.inject(b"+OK\r\n")
        sender.join()
        injected = received = 0
        while injected < 20 or received < count:
            line = client.read_line()
            if line == "+OK":
                injected += 1
            else:
                assert line == f"MSG {unique} 7 {len(payload)}"
                assert client.read_line() == payload.decode()
                received += 1
