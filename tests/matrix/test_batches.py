"""Tests of batches (ADR-50) on all release lines: they work, or jsync reports an old server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from jsync import errors

from .test_management import needing

if TYPE_CHECKING:
    import jsync
    from jsync.models.publish import PublishOptions
    from jsync.models.server_version import ServerVersion


@pytest.fixture
def stream(js: jsync.JetStream, line: ServerVersion, unique: str) -> jsync.Stream:
    """A stream with the kinds of batches that its server supports."""
    fields: dict[str, Any] = {}
    if line >= (2, 12):
        fields["allow_atomic"] = True
    if line >= (2, 14):
        fields["allow_batched"] = True
    return js.create_stream(
        name=unique, subjects=[f"{unique}.>"], storage="memory", **fields
    )


def test_an_atomic_batch_stores_all_or_nothing(
    js: jsync.JetStream, line: ServerVersion, stream: jsync.Stream
) -> None:
    subject = f"{stream.name}.a"
    if line < (2, 12):
        with pytest.raises(errors.UnsupportedFeatureError) as caught:
            js.publish_batch([(subject, b"1"), (subject, b"2")])
        assert caught.value.since == "2.12"
        assert stream.info().state.messages == 0
        return
    with js.atomic_batch() as batch:
        for number in range(10):
            batch.add(subject, b"%d" % number)
    assert batch.pub_ack is not None
    assert (batch.pub_ack.count, batch.pub_ack.seq) == (10, 10)
    ack = js.publish_batch([(subject, b"10"), (subject, b"11", {"msg_id": "1"})])
    assert (ack.count, ack.seq) == (2, 12)
    wrong: PublishOptions = {"expected_last_sequence": 5}
    with pytest.raises(errors.WrongLastSequenceError):
        js.publish_batch([(subject, b"12", wrong), (subject, b"13")])
    assert stream.info().state.messages == 12


def test_no_batch_has_options_newer_than_the_server(
    js: jsync.JetStream, line: ServerVersion, stream: jsync.Stream
) -> None:
    batch = js.atomic_batch()
    with needing((2, 11), line, "ttl"):
        batch.add(f"{stream.name}.a", ttl=60)
        assert len(batch) == 1
    batch.discard()


def test_a_stream_disallowing_atomic_batches_stores_nothing(
    js: jsync.JetStream, line: ServerVersion, unique: str
) -> None:
    stream = js.create_stream(name=unique, subjects=[f"{unique}.>"])
    kind: type[errors.Error] = errors.UnsupportedFeatureError
    if line >= (2, 12):
        kind = errors.AtomicPublishDisabledError
    with pytest.raises(kind):
        js.publish_batch([(f"{unique}.a", b"1"), (f"{unique}.a", b"2")])
    assert stream.info().state.messages == 0


def test_a_fast_ingest_stores_everything(
    js: jsync.JetStream, line: ServerVersion, stream: jsync.Stream
) -> None:
    if line < (2, 14):
        with pytest.raises(errors.UnsupportedFeatureError) as caught:
            ingest(js, f"{stream.name}.a", 2000)
        assert caught.value.since == "2.14"
        assert stream.info().state.messages == 0
        return
    ingest(js, f"{stream.name}.a", 2000)
    assert stream.info().state.messages == 2000
    assert stream.get_message(2000).data == b"1999"


def test_a_stream_disallowing_fast_ingest_stores_nothing(
    js: jsync.JetStream, line: ServerVersion, unique: str
) -> None:
    stream = js.create_stream(name=unique, subjects=[f"{unique}.>"])
    kind: type[errors.Error] = errors.UnsupportedFeatureError
    if line >= (2, 14):
        kind = errors.BatchPublishDisabledError
    with pytest.raises(kind):
        ingest(js, f"{unique}.a", 10)
    assert stream.info().state.messages == 0


def ingest(js: jsync.JetStream, subject: str, count: int) -> None:
    with js.fast_ingest() as batch:
        for number in range(count):
            batch.add(subject, b"%d" % number)
