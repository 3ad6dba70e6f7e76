"""Tests through a leaf node, with JetStream on an older or newer server."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

import jsync
from jsync import errors
from jsync.jetstream.features import PAUSE
from jsync.server import LocalServer

from ..support.servers import free_port, wait_for
from .leaf import answers, hub_of, leaf_before, leaf_of
from .lines import binary_of


def test_an_old_leaf_does_not_hinder_new_servers() -> None:
    with leaf_before("2.10", "2.15") as js:
        stream = js.create_stream(name="A", allow_atomic=True, allow_batched=True)
        assert stream.config.allow_atomic
        consumer = stream.create_consumer(
            name="c", priority_groups=["g"], priority_policy="prioritized"
        )
        assert consumer.cached_info.config.priority_policy == "prioritized"


def test_ignored_fields_reveal_old_servers_beyond_a_leaf() -> None:
    with leaf_before("2.15", "2.11") as js:
        with pytest.raises(
            errors.UnsupportedFeatureError,
            match=r"nats-server 2\.11\.\d+ does not support allow_atomic \(since 2\.12\): "
            r"it was left out",
        ):
            js.create_stream(name="A", allow_atomic=True)
        js.create_stream(name="B", allow_msg_ttl=True)


def test_refused_fields_reveal_old_servers_beyond_a_leaf() -> None:
    with leaf_before("2.15", "2.12") as js:
        with pytest.raises(
            errors.UnsupportedFeatureError,
            match=r"nats-server 2\.12 does not support allow_batched \(since 2\.14\): "
            r"the request was rejected",
        ) as caught:
            js.create_stream(name="A", allow_batched=True)
        assert isinstance(caught.value.__cause__, errors.InvalidJSONError)
        # Errors in JSON fields that every server knows are not due to the version of the server.
        with pytest.raises(errors.InvalidJSONError):
            js.create_stream(name="A", allow_atomic=True, extra={"new": True})


def test_missing_answers_reveal_old_servers_beyond_a_leaf() -> None:
    with leaf_before("2.15", "2.10") as js:
        with pytest.raises(
            errors.UnsupportedFeatureError,
            match=r"2\.10 does not support pausing .* not answered",
        ):
            js._api.request("CONSUMER.PAUSE.A.c", needs=PAUSE, timeout=0.5)


def test_users_without_info_permission_get_their_servers_version() -> None:
    users = """authorization { users: [
        { user: app, password: app, permissions: { publish: { deny: "$JS.API.INFO" } } }
    ] }"""
    with (
        LocalServer(binary=binary_of("2.11"), config=users) as server,
        jsync.connect(server.url, user="app", password="app") as nc,
    ):
        js = nc.jetstream()
        with pytest.raises(
            errors.UnsupportedFeatureError, match=r"nothing was sent"
        ) as caught:
            js.create_stream(name="A", allow_atomic=True)
        assert caught.value.server_version == nc.server_info.version
        assert js.create_stream(name="A", allow_msg_ttl=True).config.allow_msg_ttl


def test_another_connection_asks_for_the_version_again() -> None:
    address = f"127.0.0.1:{free_port()}"
    old, new = hub_of("2.11", address), hub_of("2.15", address)
    with ExitStack() as servers:
        servers.callback(new.stop)
        servers.enter_context(old)
        leaf = servers.enter_context(leaf_of("2.10", address))
        nc = servers.enter_context(jsync.connect(leaf.url, reconnect_wait=0.05))
        js = nc.jetstream(domain="hub")
        wait_for(lambda: answers(js))
        with pytest.raises(
            errors.UnsupportedFeatureError, match=r"2\.11 does not support"
        ):
            js.create_stream(name="A", allow_atomic=True)
        old.stop()
        new.start()
        leaf.restart()
        wait_for(lambda: nc.stats().reconnects >= 1)
        wait_for(lambda: answers(js))
        assert js.create_stream(name="A", allow_atomic=True).config.allow_atomic


def test_the_domain_of_an_ack_names_the_leader() -> None:
    address = f"127.0.0.1:{free_port()}"
    older = f"""jetstream {{ domain: leaf }}
        leafnodes {{ reconnect: 1, remotes: [{{ url: "nats-leaf://{address}" }}] }}"""
    with (
        hub_of("2.15", address) as hub,
        LocalServer(binary=binary_of("2.10"), config=older),
        jsync.connect(hub.url) as nc,
    ):
        here, there = nc.jetstream(domain="hub"), nc.jetstream(domain="leaf")
        wait_for(lambda: answers(there))
        here.create_stream(name="S", subjects=["here"], allow_msg_ttl=True)
        there.create_stream(name="S", subjects=["there"])
        there.create_stream(name="ALONE", subjects=["alone"])
        for js in (nc.jetstream(), here, there):
            assert js.publish("here", b"", ttl=60).domain == "hub"
            for subject in ("there", "alone"):
                with pytest.raises(errors.UnsupportedFeatureError, match=r"2\.10"):
                    js.publish(subject, b"", ttl=60)
