"""Tests that run each block of the page on TLS and authentication against a suitable server."""

from __future__ import annotations

import shutil
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

import jsync
from jsync.server import LocalServer

from .markdown import ROOT, blocks
from .running import run

if TYPE_CHECKING:
    from pathlib import Path

    from ..support.accounts import Account
    from ..support.certificates import Certificates

pytestmark = pytest.mark.server

LIMITED = """
accounts { APP {
    jetstream: enabled
    users: [
        { user: admin, password: admin }
        { user: app, password: app, permissions: {
            publish: ["orders.>", "$JS.API.STREAM.INFO.ORDERS",
                "$JS.API.CONSUMER.INFO.ORDERS.worker",
                "$JS.API.CONSUMER.MSG.NEXT.ORDERS.worker", "$JS.ACK.ORDERS.worker.>"]
            subscribe: ["_INBOX_app.>"]
        } }
    ]
} }
"""
"""The only permissions that an application needs, according to the page."""


def test_the_examples_of_the_page_work(
    tls_server: LocalServer,
    mutual_tls_server: LocalServer,
    account: Account,
    certificates: Certificates,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, file in [
        ("ca.pem", certificates.ca.cert),
        ("client.pem", certificates.client.cert),
        ("client-key.pem", certificates.client.key),
    ]:
        shutil.copy(file, name)
    account.user("app").write_creds(tmp_path / "app.creds")
    with ExitStack() as running:
        users = running.enter_context(
            LocalServer(config='authorization { user: app, password: "s3cret" }')
        )
        limited = running.enter_context(LocalServer(config=LIMITED))
        with jsync.connect(limited.url, user="admin", password="admin") as nc:
            stream = nc.jetstream().create_stream(name="ORDERS", subjects=["orders.>"])
            stream.create_consumer(durable_name="worker")
            nc.jetstream().publish("orders.new", b"{}")
        # This server is not shared, because the page counts the streams of the account.
        jwt = running.enter_context(LocalServer(config=account.operator.config))
        urls = {
            "tls://nats.example.com:4222": tls_server.url,
            "tls://mutual.example.com:4222": mutual_tls_server.url,
            "nats://jwt.example.com:4222": jwt.url,
            "nats://users.example.com:4222": users.url,
            "limited.example.com:4222": limited.url.removeprefix("nats://"),
        }
        for block in blocks(ROOT / "docs/guides/tls-auth.md"):
            if block.language == "python":
                assert run(block, urls) == (block.output or "")
