"""Test of the page on leaf nodes: the configurations of the page, with a line that fails."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import jsync
from jsync.server import LocalServer

from ..support.servers import free_port, wait_for
from .markdown import ROOT, blocks

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.server

PAGE = list(blocks(ROOT / "docs/guides/edge.md"))


@pytest.mark.slow
def test_sales_reach_the_hub_after_an_outage(tmp_path: Path) -> None:
    port = free_port()
    configs = {}
    for name in ("hub.conf", "edge.conf"):
        (text,) = [block.text for block in PAGE if block.title == name]
        text = text.replace("0.0.0.0:7422", f"127.0.0.1:{port}")
        text = text.replace("hub.example.com:7422", f"127.0.0.1:{port}")
        text = text.replace("/var/lib/nats", str(tmp_path / name.partition(".")[0]))
        configs[name] = tmp_path / name
        configs[name].write_text(text)
    (create,) = [block.text for block in PAGE if block.text.startswith("js = nc.")]
    with (
        LocalServer(config=configs["hub.conf"]) as hub,
        LocalServer(config=configs["edge.conf"]) as edge,
        jsync.connect(edge.url) as till,
        jsync.connect(hub.url) as nc,
    ):
        sales = till.jetstream()
        sales.create_stream(name="SALES", subjects=["sales.>"])
        exec(create, {"nc": nc})
        shops = nc.jetstream().stream("SHOPS")
        sales.publish("sales.new", b"0")
        wait_for(lambda: shops.info().state.messages == 1)
        hub.kill()
        for number in range(1, 10):  # the line is down
            sales.publish("sales.new", b"%d" % number)
        hub.restart()
        wait_for(lambda: shops.info(timeout=10).state.messages == 10, 60)
        reader = shops.ordered_consumer()
        read = [msg.data for msg in reader.fetch(10, timeout=10)]
        assert read == [b"%d" % number for number in range(10)]
        assert nc.jetstream(domain="shop7").stream("SALES").info().state.messages == 10
