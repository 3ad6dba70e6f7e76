"""Tests of fast ingest (since 2.14): older servers treat its messages as plain publishes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import jsync
from jsync import errors
from jsync.server import LocalServer

from ..server.jetstream.ingest.test_ingest import held, is_alone, numbers, stored
from ..server.jetstream.ingest.test_rejections import end
from ..support.threads import Recorder
from .leaf import leaf_before
from .lines import binary_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jsync import FastIngest, JetStream
    from jsync.models.server_version import ServerVersion

NEW = (2, 14)


def make_stream(js: JetStream, name: str, **fields: Any) -> None:
    config = {"name": name, "subjects": [f"{name}.>"], **fields}
    js._api.request(f"STREAM.CREATE.{name}", config)


@pytest.mark.parametrize("gaps", ["fail", "ok"])
@pytest.mark.parametrize("how", ["add", "add_many", "commit"])
def test_a_server_stores_all_or_is_sent_nothing(
    js: JetStream, line: ServerVersion, unique: str, gaps: Any, how: str
) -> None:
    payloads = numbers(1 if how == "commit" else 2000)
    if line >= NEW:
        make_stream(js, unique, allow_batched=True)
        ingest = js.fast_ingest(gaps=gaps)
        add(ingest, f"{unique}.a", payloads, how)
        assert ingest.close().count == len(payloads)
        assert stored(js, unique) == payloads
        return
    make_stream(js, unique)
    ingest = js.fast_ingest(gaps=gaps)
    for _ in range(2):
        with pytest.raises(errors.UnsupportedFeatureError, match="nothing was sent"):
            add(ingest, f"{unique}.a", payloads, how)
    ingest.abandon()
    assert stored(js, unique) == []


@pytest.mark.parametrize("gaps", ["fail", "ok"])
@pytest.mark.parametrize("how", ["add", "add_many", "commit"])
def test_the_first_answer_reveals_a_hidden_old_server(
    old_behind_new: JetStream, unique: str, gaps: Any, how: str
) -> None:
    js = old_behind_new
    make_stream(js, unique)
    payloads = numbers(1 if how == "commit" else 2000)
    ingest = js.fast_ingest(gaps=gaps)
    with pytest.raises(errors.IngestUnsupportedError) as caught:
        add(ingest, f"{unique}.a", payloads, how)
    ack = caught.value.stored
    assert isinstance(ack, jsync.PubAck)
    assert (ack.stream, ack.seq) == (unique, 1)
    with pytest.raises(errors.IngestUnsupportedError):
        ingest.add(f"{unique}.a")
    ingest.abandon()
    assert js.stream(unique).info().state.messages == 1


@pytest.fixture(scope="module")
def old_behind_new() -> Iterator[JetStream]:
    with leaf_before("2.15", "2.12") as js:
        yield js


def add(ingest: FastIngest, subject: str, payloads: list[bytes], how: str) -> None:
    match how:
        case "add":
            for payload in payloads:
                ingest.add(subject, payload)
        case "add_many":
            ingest.add_many(subject, payloads)
        case "commit":
            ingest.commit(subject, payloads[0])


def test_probing_a_silent_stream_stores_nothing(
    js: JetStream, line: ServerVersion, unique: str
) -> None:
    """With `no_ack` the stream does not reply to the start."""
    allowed = {"allow_batched": True} if line >= NEW else {}
    make_stream(js, unique, no_ack=True, **allowed)
    ingest = js.fast_ingest(ack_timeout=1.0)
    if line >= NEW:
        with ingest:
            ingest.add_many(f"{unique}.a", numbers(2000))
        assert held(js, unique) == 2000
    else:
        with pytest.raises(errors.UnsupportedFeatureError):
            ingest.add(f"{unique}.a", b"0")
        ingest.abandon()
        assert held(js, unique) == 0


def test_no_stream_is_no_stream_on_any_server(
    js: JetStream, old_behind_new: JetStream, line: ServerVersion, unique: str
) -> None:
    for there in [js, old_behind_new] if line >= NEW else [old_behind_new]:
        with pytest.raises(errors.NoStreamResponseError):
            there.fast_ingest().add(f"{unique}.a")


# 2.14.0 to 2.14.2 do not always report the end of a batch, and then keep the batch forever.


@pytest.fixture(params=["2.14.0", "2.14", "2.15"])
def hazardous(request: pytest.FixtureRequest) -> Iterator[JetStream]:
    with LocalServer(binary=binary_of(request.param)) as server:
        with jsync.connect(server.url) as nc:
            yield nc.jetstream()


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("gaps", ["fail", "ok"])
@pytest.mark.parametrize("fault", ["expectation", "duplicate"])
def test_a_batch_end_neither_hangs_nor_stays_open(
    hazardous: JetStream, unique: str, gaps: Any, fault: str, first: bool, commit: bool
) -> None:
    js = hazardous
    make_stream(js, unique, allow_batched=True)
    js.publish(f"{unique}.a", b"old", msg_id="old")
    last: dict[str, Any] = {"data": b"last"}
    last |= {"msg_id": "old"} if fault == "duplicate" else {"expected_last_sequence": 9}
    ingest = js.fast_ingest(gaps=gaps, ack_timeout=2.0, on_error=Recorder())
    before = [b"old"] if first else [b"old", b"0"]
    if not first:
        ingest.add(f"{unique}.a", b"0")
    if fault == "duplicate" or gaps == "ok":
        end(ingest, f"{unique}.a", last, commit=commit)
        assert ingest.pub_ack.count == len(before)
        assert [lost[:2] for lost in ingest.lost] == (
            [] if fault == "duplicate" else [(len(before), len(before))]
        )
    else:
        refused = errors.WrongLastSequenceError if first else errors.IngestError
        with pytest.raises(refused):
            end(ingest, f"{unique}.a", last, commit=commit)
    assert stored(js, unique) == before
    assert is_alone(js, unique)
