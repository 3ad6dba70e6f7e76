"""Tests of `nc.trace()`, which reports the path of a message (ADR-41)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import jsync
from jsync import errors
from jsync.tracing import Egress, Ingress, ServiceImport, SubjectMapping

if TYPE_CHECKING:
    from ...conftest import StartServer


def test_a_trace_names_clients_and_streams_without_delivering(
    nc: jsync.Connection, js: jsync.JetStream, unique: str
) -> None:
    js.create_stream(name=unique, subjects=[unique])
    with nc.subscribe(unique, queue="workers") as sub:
        found = nc.trace(unique, b"x", timeout=60)
        assert found.complete
        (hop,) = found.hops
        assert hop.server.id == nc.server_info.server_id
        ingress = hop.events[0]
        assert isinstance(ingress, Ingress)
        assert (ingress.cid, ingress.subject) == (nc.client_id, unique)
        assert (ingress.connection, ingress.account) == ("client", "$G")
        assert ingress.ts is not None
        assert [each.stream for each in found.streams] == [unique]
        (client,) = found.clients
        assert (client.subscription, client.queue) == (unique, "workers")
        assert found.errors == []
        nc.flush()
        assert (sub.pending, js.stream(unique).info().state.messages) == (0, 0)
        found = nc.trace(unique, b"y", deliver=True, headers={"A": "b"}, timeout=60)
        msg = sub.next(60)
        assert (msg.data, msg.headers and msg.headers["A"]) == (b"y", "b")
        assert js.stream(unique).info().state.messages == 1


def test_a_message_without_subscribers_has_no_destination(
    nc: jsync.Connection, unique: str
) -> None:
    found = nc.trace(unique, timeout=60)
    assert (found.clients, found.streams, found.complete) == ([], [], True)


def test_mappings_imports_and_rejections_are_reported(own_server: StartServer) -> None:
    server = own_server(
        config="""
        accounts {
          A {
            users: [{user: a, password: x,
                     permissions: {publish: {deny: "denied"}}}]
            imports: [{service: {account: B, subject: "add"}}]
            mappings: {"old.*": "new.$1"}
          }
          B {
            users: [{user: b, password: x}]
            exports: [{service: "add", allow_trace: true}]
          }
        }"""
    )
    with (
        jsync.connect(server.url, user="a", password="x") as a,
        jsync.connect(server.url, user="b", password="x") as b,
        b.subscribe("add"),
        a.subscribe("new.>"),
    ):
        b.flush()
        a.flush()
        events = a.trace("add", timeout=60).hops[0].events
        (imported,) = [each for each in events if isinstance(each, ServiceImport)]
        assert (imported.source, imported.to) == ("add", "add")
        (egress,) = [each for each in events if isinstance(each, Egress)]
        assert (egress.account, egress.cid) == ("B", b.client_id)
        events = a.trace("old.7", timeout=60).hops[0].events
        (mapped,) = [each for each in events if isinstance(each, SubjectMapping)]
        assert mapped.to == "new.7"
        (refused,) = a.trace("denied", timeout=60).errors
        assert "Permissions Violation" in refused


def test_headers_of_the_trace_itself_are_refused(nc: jsync.Connection) -> None:
    with pytest.raises(errors.ConfigError, match="Nats-Trace-Dest"):
        nc.trace("x", headers={"Nats-Trace-Dest": "y"})


@pytest.mark.parametrize("deliver", ["no", 1, None])
def test_a_trace_delivers_on_true_alone(
    nc: jsync.Connection, deliver: Any, unique: str
) -> None:
    with nc.subscribe(unique) as sub:
        with pytest.raises(errors.ConfigError, match="deliver has to be"):
            nc.trace(unique, deliver=deliver)
        nc.flush()
        assert sub.pending == 0
