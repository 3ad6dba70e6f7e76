"""Code that type checkers must reject: each line is an error for mypy and for pyright.

If a line is no longer an error, its comment is unused, which is an error as well.
"""

from __future__ import annotations

import jsync
from jsync.testing import Ack


def connecting() -> None:
    jsync.connect(4222)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    jsync.connect("nats://a", "b")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    jsync.connect(passwort="x")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    jsync.connect(token=b"x")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    jsync.connect(connect_timeout="5")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    jsync.connect(on_error=lambda: None)  # type: ignore[arg-type,misc]  # pyright: ignore[reportArgumentType]


def core(nc: jsync.Connection, msg: jsync.Msg) -> None:
    nc.publish("a", "text")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    nc.publish(b"a")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    nc.publish("a", b"x", "reply")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    nc.publish("a", headers={"A": 1})  # type: ignore[dict-item]  # pyright: ignore[reportArgumentType]
    nc.request("a", b"x", 5)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    msg.data = b"x"  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]
    msg.ack()  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
    msg.headers["A"]  # type: ignore[index]  # pyright: ignore[reportOptionalSubscript]
    nc.stats().in_messages = 0  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]
    nc.state = "closed"  # type: ignore[assignment,misc]  # pyright: ignore[reportAttributeAccessIssue]


def jetstream(js: jsync.JetStream, worker: jsync.Consumer) -> None:
    js.publish("a", b"x", msgid="1")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    js.publish("a", b"x", expected_last_sequence="4")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    js.fast_ingest(gaps="never")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    worker.consume()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    worker.consume(lambda: None)  # type: ignore[arg-type,misc]  # pyright: ignore[reportArgumentType]
    Ack("acked")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    worker.fetch("100")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    jsync.PubAckFuture().set_result(None)  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
    for msg in worker:  # type: ignore[attr-defined]  # pyright: ignore[reportGeneralTypeIssues]
        _: jsync.JetStreamMsg = msg


def services(nc: jsync.Connection, service: jsync.Service) -> None:
    nc.service("orders")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    service.endpoint("total", 4)  # type: ignore[call-arg,arg-type]  # pyright: ignore[reportCallIssue]
    service.endpoint("total")("text")  # type: ignore[type-var]  # pyright: ignore[reportArgumentType]
    nc.services.ping(stall="1")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
