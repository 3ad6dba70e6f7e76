"""Tests that the last messages of a stream decide whether a broken ingest may continue."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

import jsync
from jsync import errors
from jsync.jetstream.ingest import recovery as ingest_recovery
from jsync.jetstream.ingest.engine import RecoveryPoint
from jsync.jetstream.ingest.recovery import find_ambiguity

from ....support.threads import LONG, Recorder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jsync import JetStream
    from jsync.connection import Connection
    from jsync.server import LocalServer

    from ....conftest import StartServer

pytestmark = pytest.mark.server


@pytest.fixture
def nc(server: LocalServer) -> Iterator[Connection]:
    with jsync.connect(server.url) as nc:
        yield nc


@pytest.fixture
def js(nc: Connection, unique: str) -> Iterator[JetStream]:
    """A context with a stream that holds three messages."""
    js = nc.jetstream()
    js.create_stream(name=unique, subjects=[f"{unique}.>"])
    for data in (b"one", b"two", b"three"):
        js.publish(f"{unique}.a", data)
    yield js
    js.delete_stream(unique)


def doubt(
    js: JetStream,
    tail: RecoveryPoint,
    data: bytes | None = b"next",
    seconds: float = LONG,
) -> str | None:
    return find_ambiguity(js._api, tail, data, time.monotonic() + seconds)


@pytest.mark.parametrize(("sequence", "behind"), [(3, 0), (1, 2)])
@pytest.mark.parametrize("data", [b"three", None])
def test_streams_ending_with_the_ingest_leave_no_doubt(
    js: JetStream, unique: str, sequence: int, behind: int, data: bytes | None
) -> None:
    assert doubt(js, RecoveryPoint(unique, sequence, behind, final=False), data) is None


def test_a_final_answer_without_other_leaders_is_trusted(
    js: JetStream, unique: str
) -> None:
    assert doubt(js, RecoveryPoint(unique, 1, 0, final=True), b"two") is None


@pytest.mark.parametrize("behind", [0, None, 1])
def test_messages_of_others_are_recognised_by_their_payloads(
    js: JetStream, unique: str, behind: int | None
) -> None:
    tail = RecoveryPoint(unique, 1, behind, final=False)
    assert doubt(js, tail) is None
    found = doubt(js, tail, b"three")
    assert found == f"message 3 of stream {unique!r} may belong to the ingest"
    assert "may belong to the ingest" in (doubt(js, tail, None) or "")


def test_a_removed_message_may_belong_to_the_ingest(js: JetStream, unique: str) -> None:
    js.stream(unique).delete_message(2)
    found = doubt(js, RecoveryPoint(unique, 1, 0, final=False))
    assert (
        found
        == f"message 2 of stream {unique!r} is gone, and may have belonged to the ingest"
    )


def test_a_recreated_stream_cannot_tell_what_was_stored(
    js: JetStream, unique: str
) -> None:
    assert "created again" in (
        doubt(js, RecoveryPoint(unique, 4, 0, final=False)) or ""
    )


def test_the_search_for_missing_messages_is_bounded(
    js: JetStream, unique: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tail = RecoveryPoint(unique, 1, 0, final=False)
    monkeypatch.setattr(ingest_recovery, "MAX_MESSAGES", 2)
    assert doubt(js, tail) is None
    monkeypatch.setattr(ingest_recovery, "MAX_MESSAGES", 1)
    assert "may belong to the ingest" in (doubt(js, tail) or "")


def test_a_counter_payload_does_not_show_its_sender(js: JetStream, unique: str) -> None:
    name = f"{unique}C"
    js.create_stream(name=name, subjects=[f"{name}.>"], allow_msg_counter=True)
    for _ in range(2):
        js.publish(f"{name}.hits", incr=1)
    assert doubt(js, RecoveryPoint(name, 2, 0, final=False), b"") is None
    assert "which stores counters" in (
        doubt(js, RecoveryPoint(name, 1, 0, final=False), b"") or ""
    )
    js.delete_stream(name)


def test_a_stream_that_is_gone_is_a_doubt(js: JetStream, unique: str) -> None:
    assert "not found" in (
        doubt(js, RecoveryPoint(f"{unique}X", 1, 0, final=True)) or ""
    )


def test_asking_without_permission_is_an_error(
    own_server: StartServer, unique: str
) -> None:
    server = own_server(
        config="""
        accounts { A { jetstream: enabled, users: [
            { user: some, password: p, permissions: {
                publish: { deny: ["$JS.API.STREAM.INFO.>"] } } } ] } }
        """
    )
    options: dict[str, Any] = {"user": "some", "password": "p", "on_error": Recorder()}
    with jsync.connect(server.url, **options) as nc:
        found = doubt(nc.jetstream(), RecoveryPoint(unique, 1, 0, final=True))
    assert "ermission" in (found or "")


def test_a_lost_connection_is_no_doubt_and_raised(
    server: LocalServer, unique: str
) -> None:
    with jsync.connect(server.url) as nc:
        js = nc.jetstream()
    with pytest.raises(errors.ConnectionClosedError):
        doubt(js, RecoveryPoint(unique, 1, 0, final=True))


def test_the_search_ends_at_its_timeout(js: JetStream, unique: str) -> None:
    assert doubt(js, RecoveryPoint(unique, 1, 0, final=False), seconds=-1) is not None
