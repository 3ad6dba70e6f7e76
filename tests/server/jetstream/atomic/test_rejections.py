"""Tests of the reasons for which servers reject an atomic batch."""

from __future__ import annotations

import contextlib
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

import jsync
from jsync import BatchState, errors

from ....support.accounts import Permissions, password_config
from ....support.servers import wait_for
from ....support.stream_verifier import contents
from .test_batch import fill, stream as stream

if TYPE_CHECKING:
    from ....conftest import StartServer

pytestmark = pytest.mark.server


def test_a_stream_without_batches_is_named_before_sending(
    nc: jsync.Connection, js: jsync.JetStream, unique: str
) -> None:
    stream = js.create_stream(name=unique, subjects=[unique], storage="memory")
    with pytest.raises(errors.AtomicPublishDisabledError):
        js.publish_batch([(unique, b"")] * 3)
    batch = js.atomic_batch()
    with pytest.raises(errors.AtomicPublishDisabledError):
        fill(batch, unique, unique)
    assert batch.state is BatchState.FAILED
    assert contents(stream) == []
    js.delete_stream(unique)


def test_a_missing_stream_raises_after_two_more_tries(
    js: jsync.JetStream, unique: str
) -> None:
    with pytest.raises(errors.NoStreamResponseError):
        js.publish_batch([(unique, b"")] * 3)
    with pytest.raises(errors.NoStreamResponseError):
        js.atomic_batch().commit(unique)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"expected_last_sequence": 7}, errors.WrongLastSequenceError),
        ({"expected_last_subject_sequence": 7}, errors.WrongLastSequenceError),
        ({"expected_stream": "OTHER"}, errors.StreamMismatchError),
        ({"msg_id": "stored"}, errors.AtomicPublishDuplicateMessageError),
        ({"incr": 1}, errors.FeatureDisabledError),
        (
            {"headers": {"Nats-Required-Api-Level": "99"}},
            errors.RequiredAPILevelError,
        ),
    ],
)
def test_a_check_failing_at_commit_refuses_the_batch(
    js: jsync.JetStream,
    stream: jsync.Stream,
    options: dict[str, Any],
    error: type[errors.APIError],
) -> None:
    js.publish(f"{stream.name}.0", b"before", msg_id="stored")
    batch = js.atomic_batch()
    with pytest.raises(error):
        fill(batch, *(f"{stream.name}.{n}" for n in (1, 2, 3)), **options)
    assert batch.state is BatchState.FAILED
    assert batch.resolve() is None
    assert contents(stream) == [("0", b"before")]


def test_refused_messages_fail_the_commit_or_their_ack(
    js: jsync.JetStream, unique: str
) -> None:
    stream = js.create_stream(
        name=unique,
        subjects=[f"{unique}.>"],
        allow_atomic=True,
        max_msg_size=500,
        storage="memory",
    )
    with pytest.raises(errors.AtomicPublishIncompleteBatchError):
        js.publish_batch([(f"{unique}.1", bytes(n)) for n in (1, 1000, 1)])
    batch = js.atomic_batch()
    with pytest.raises(errors.MessageTooLargeError):
        batch.add(f"{unique}.1", bytes(1000), ack=True)
    assert contents(stream) == []
    js.delete_stream(unique)


def test_an_add_that_failed_cannot_be_overlooked(
    js: jsync.JetStream, unique: str
) -> None:
    js.create_stream(name=unique, subjects=[unique], storage="memory")
    batch = js.atomic_batch()

    def overlook() -> None:
        with contextlib.suppress(errors.APIError):
            batch.add(unique, ack=True)

    with pytest.raises(errors.AtomicBatchError, match="not committed") as caught:
        fill(batch, then=overlook)
    assert isinstance(caught.value.__cause__, errors.AtomicPublishDisabledError)
    js.delete_stream(unique)


def test_a_stream_deleted_midway_fails_the_commit(
    js: jsync.JetStream, stream: jsync.Stream
) -> None:
    batch = js.atomic_batch()
    with pytest.raises(errors.NoStreamResponseError):
        fill(batch, f"{stream.name}.1", f"{stream.name}.2", then=stream.delete)
    assert batch.state is BatchState.FAILED


def test_batches_switched_off_midway_fail_the_commit(
    js: jsync.JetStream, nc: jsync.Connection, stream: jsync.Stream
) -> None:
    with pytest.raises(errors.AtomicPublishDisabledError):
        fill(
            js.atomic_batch(),
            f"{stream.name}.1",
            f"{stream.name}.2",
            then=lambda: switch_off(nc, stream),
        )
    assert contents(stream) == []


def switch_off(nc: jsync.Connection, stream: jsync.Stream) -> None:
    api = nc.jetstream()._api
    config = {**stream.info().config.to_wire(), "allow_atomic": False}
    api.request(f"STREAM.UPDATE.{stream.name}", config)


def test_a_known_stream_may_stop_taking_batches(
    js: jsync.JetStream, nc: jsync.Connection, stream: jsync.Stream
) -> None:
    rows = [(f"{stream.name}.1", b"")] * 3
    js.publish_batch(rows)
    switch_off(nc, stream)
    with pytest.raises(errors.AtomicPublishDisabledError):
        js.publish_batch(rows)
    before = nc.stats().out_messages
    with pytest.raises(errors.AtomicPublishDisabledError):
        js.publish_batch(rows)
    assert nc.stats().out_messages == before + 2, (
        "the API was asked, and nothing else sent"
    )
    assert len(contents(stream)) == 3


def test_a_stream_without_acks_is_refused_before_sending(
    js: jsync.JetStream, unique: str
) -> None:
    stream = js.create_stream(
        name=unique, subjects=[unique], allow_atomic=True, no_ack=True, storage="memory"
    )
    with pytest.raises(errors.ConfigError, match="no_ack"):
        js.publish_batch([(unique, b"")] * 2)
    with pytest.raises(errors.TimeoutError):
        fill(js.atomic_batch(timeout=0.3), unique, unique)
    assert contents(stream) == []
    js.delete_stream(unique)


def test_fifty_one_batches_are_one_too_many(
    js: jsync.JetStream, stream: jsync.Stream
) -> None:
    batches = [js.atomic_batch() for _ in range(51)]
    for batch in batches[:50]:
        batch.add(f"{stream.name}.1", b"first", ack=True)
    for publish in (
        lambda: batches[50].add(f"{stream.name}.1", ack=True),
        lambda: js.publish_batch([(f"{stream.name}.1", b"")] * 5),
    ):
        with pytest.raises(errors.AtomicPublishTooManyInflightError):
            publish()
    assert contents(stream) == []
    for batch in batches[:50]:
        batch.commit(f"{stream.name}.2", b"second")
    assert contents(stream) == [("1", b"first"), ("2", b"second")] * 50


def test_counters_are_right_where_the_server_is(
    js: jsync.JetStream, unique: str
) -> None:
    js.create_stream(
        name=unique,
        subjects=[f"{unique}.>"],
        allow_atomic=True,
        allow_msg_counter=True,
        storage="memory",
    )
    with js.atomic_batch() as batch:
        batch.add(f"{unique}.1", incr=1)
        batch.add(f"{unique}.1", incr=2)
    assert js.publish(f"{unique}.1", incr=3).value == 6
    js.delete_stream(unique)


def test_nothing_is_left_waiting_for_answers(
    nc: jsync.Connection, js: jsync.JetStream, stream: jsync.Stream
) -> None:
    one = [(f"{stream.name}.1", b"")]
    for _ in range(20):
        fill(js.atomic_batch(ack_first=False), *[f"{stream.name}.1"] * 3)
        js.publish_batch(one * 3)
        batch = js.atomic_batch(ack_first=False)
        batch.add(*one[0])
        batch.add(*one[0])
        batch.discard()
        with pytest.raises(errors.AtomicPublishTooLargeBatchError):
            js.publish_batch(one * 1001, max_messages=None)
    assert len(nc._session.reply_mux) == 0


def test_a_dropped_batch_makes_room_for_another(
    js: jsync.JetStream, stream: jsync.Stream, unique: str
) -> None:
    for number in range(60):
        # The batches are abandoned in the background, so the server may learn of it a little
        # later.
        wait_for(partial(begins, js, f"{unique}.{number}"))
    assert contents(stream) == []


def begins(js: jsync.JetStream, subject: str) -> bool:
    try:
        js.atomic_batch().add(subject, ack=True)
    except errors.AtomicPublishTooManyInflightError:
        return False
    return True


@pytest.mark.parametrize("most", ["9", 1.5, float("nan"), 0, True])
def test_a_limit_that_is_no_count_is_refused(js: jsync.JetStream, most: Any) -> None:
    with pytest.raises(errors.ConfigError, match="max_messages"):
        js.atomic_batch(max_messages=most)


@pytest.mark.parametrize("denied", [1, 2, 3])
def test_a_missing_permission_is_the_reason(
    own_server: StartServer, denied: int
) -> None:
    server = own_server(
        config=password_config(
            {"owner": "x", "writer": "x"},
            writer=Permissions(publish_deny=(f"S.{denied}",)),
        )
    )
    with jsync.connect(server.url, user="owner", password="x") as nc:
        stream = nc.jetstream().create_stream(
            name="S", subjects=["S.*"], allow_atomic=True
        )
        with jsync.connect(
            server.url, user="writer", password="x", on_error=str
        ) as limited:
            js = limited.jetstream()
            messages = [(f"S.{number}", b"") for number in (1, 2, 3)]
            # The client knows the stream from the second batch on.
            for _ in range(3):
                with pytest.raises(errors.PermissionsError) as refused:
                    js.publish_batch(messages)
                assert refused.value.subject == f"S.{denied}"
            batch = js.atomic_batch()
            for subject, data in messages[: denied - 1]:
                batch.add(subject, data)
            with pytest.raises(errors.PermissionsError):
                batch.commit(f"S.{denied}")
            assert batch.state is BatchState.FAILED
        assert contents(stream) == []
