"""Tests of the pull requests of messages and consume, as a real server receives them.

Texts in quotes are from ADR-37, revision 2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from jsync import errors

from ....support.servers import wait_for
from ....support.threads import Recorder
from .support import CALM, QUICK, Handler, Pulls, at_work, both_faces, fill, take

if TYPE_CHECKING:
    import jsync

pytestmark = pytest.mark.server

SECOND = 1_000_000_000


@both_faces
@pytest.mark.parametrize(
    ("options", "request_"),
    [
        # "expires - default 30s", "idle_heartbeat - default 1/2 of expires", and
        # "Consume() should always utilize idle heartbeats."
        ({}, {"batch": 500, "expires": 30 * SECOND, "idle_heartbeat": 15 * SECOND}),
        (
            {"max_messages": 7, "expires": 4.0},
            {"batch": 7, "expires": 4 * SECOND, "idle_heartbeat": 2 * SECOND},
        ),
        # "capping at 30s"
        (
            {"expires": 100.0},
            {"batch": 500, "expires": 100 * SECOND, "idle_heartbeat": 30 * SECOND},
        ),
        # "if max_bytes is set, client should set batch_size in requests to a large number"
        (
            {"max_bytes": 4096, "expires": 2.0, "idle_heartbeat": 0.5},
            {
                "batch": 1_000_000,
                "max_bytes": 4096,
                "expires": 2 * SECOND,
                "idle_heartbeat": SECOND // 2,
            },
        ),
    ],
    ids=str,
)
def test_the_first_pull_has_given_arguments_and_defaults(
    far_worker: jsync.Consumer,
    pulls: Pulls,
    face: str,
    options: dict[str, Any],
    request_: dict[str, Any],
) -> None:
    with at_work(face, far_worker, print, **options):
        wait_for(lambda: pulls.count == 1)
        assert pulls.requests == [request_]


def test_an_expired_pulls_rest_is_requested_again(
    nc: jsync.Connection,
    stream: jsync.Stream,
    far_worker: jsync.Consumer,
    pulls: Pulls,
) -> None:
    # 408 Request Timeout: "subtract the value of Nats-Pending-Messages header from pending
    # messages count". Three messages are in the buffer.
    fill(nc, stream, 3)
    told = Recorder()
    options: dict[str, Any] = {"max_messages": 10, "threshold_messages": 5}
    with far_worker.messages(**options, **CALM, on_error=told) as messages:
        wait_for(lambda: pulls.batches == [10, 7])
        assert pulls.statuses == ["408 Request Timeout"]
        assert messages.pending == 3
        assert take(messages, 3) == [0, 1, 2]
    assert told.waiting == 0


def test_an_expired_pulls_remaining_bytes_are_requested_again(
    nc: jsync.Connection,
    stream: jsync.Stream,
    far_worker: jsync.Consumer,
    pulls: Pulls,
) -> None:
    # "subtract the value of Nats-Pending-Bytes from pending bytes count", counted "as the
    # server does it": subject, reply, headers, payload.
    fill(nc, stream, 3)
    with far_worker.messages(max_bytes=3000, **QUICK) as messages:
        wait_for(lambda: messages.pending == 3)
        size = messages._pull.mailbox.bytes
        wait_for(lambda: pulls.count == 2)
        assert [pull["max_bytes"] for pull in pulls.requests] == [3000, 3000 - size]


@both_faces
def test_consuming_with_max_messages_1_never_gets_stuck(
    nc: jsync.Connection,
    stream: jsync.Stream,
    far_worker: jsync.Consumer,
    pulls: Pulls,
    face: str,
) -> None:
    # "works properly when max_messages is set to 1"
    fill(nc, stream, 50)
    handler = Handler()
    with at_work(face, far_worker, handler, max_messages=1):
        wait_for(lambda: handler.numbers == list(range(50)))
        wait_for(lambda: pulls.count == 51)
        assert set(pulls.batches) == {1}


@both_faces
@pytest.mark.parametrize(
    "options",
    [
        # "User cannot set both constraints for a single Consume() execution."
        {"max_messages": 1, "max_bytes": 1},
        # "The value of threshold cannot be higher than the corresponding constraint's"
        {"max_messages": 10, "threshold_messages": 11},
        {"max_bytes": 10, "threshold_bytes": 11},
        {"max_messages": 10, "threshold_bytes": 5},
        # "expires - default 30s, minimum 1s"
        {"expires": 0.5},
        # "idle_heartbeat - ... minimum 500ms, maximum 30s"
        {"idle_heartbeat": 0.4},
        {"expires": 100, "idle_heartbeat": 31},
        {"stop_after": 0},
        {"on_error": "print"},
    ],
    ids=str,
)
def test_impossible_pull_options_are_rejected_before_sending(
    far: jsync.Connection,
    far_worker: jsync.Consumer,
    pulls: Pulls,
    face: str,
    options: dict[str, Any],
) -> None:
    before = len(far._session.interests)
    call: Any = far_worker.messages
    if face == "consume":
        call = lambda **options: far_worker.consume(print, **options)  # noqa: E731
    with pytest.raises(errors.ConfigError):
        call(**options)
    far.flush()
    assert pulls.count == 0
    assert len(far._session.interests) == before
