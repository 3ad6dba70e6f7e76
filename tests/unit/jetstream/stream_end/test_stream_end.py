"""Tests of what a leader says of the end of its stream, and of which answers count."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from jsync import errors
from jsync.jetstream.steps import send_next
from jsync.jetstream.stream_end.engine import (
    MAX_SILENCE,
    end_in,
    end_steps,
    pending_steps,
)
from jsync.models import StreamInfo

if TYPE_CHECKING:
    from jsync.jetstream.steps import Steps

CREATED = datetime(2026, 1, 1, tzinfo=UTC).isoformat()
NANOSECONDS = 1_000_000_000


def peer(active: float, **fields: Any) -> dict[str, Any]:
    return {"name": "n", "current": True, "active": int(active * NANOSECONDS), **fields}


def info(
    *peers: dict[str, Any], last: int = 10, first: int = 1, **cluster: Any
) -> dict[str, Any]:
    """Return the reply of a leader of nats-server 2.15, which lists the other servers."""
    return {
        "config": {"name": "S", "num_replicas": len(peers) + 1},
        "created": CREATED,
        "state": {"messages": 1, "first_seq": first, "last_seq": last},
        "cluster": {
            "leader": "a",
            **(
                {
                    "raft_group": "g",
                    "leader_since": CREATED,
                    "traffic_account": "$SYS",
                }
                if peers
                else {}
            ),
            "replicas": list(peers),
            **cluster,
        },
    }


def message(sequence: int) -> dict[str, Any]:
    return {"message": {"subject": "s", "seq": sequence, "time": CREATED}}


NOT_FOUND = errors.MessageNotFoundError("none", code=404, err_code=10037)
NOT_ALLOWED = errors.PermissionsError("no")


def made(steps: Steps[Any], *answers: dict[str, Any] | Exception) -> Any:
    """Return what the steps make of the answers, all of which they have to ask for."""
    send_next(steps, None)
    for number, answer in enumerate(answers):
        try:
            send_next(steps, answer)
        except StopIteration as done:
            assert number == len(answers) - 1
            return done.value
    raise AssertionError("the steps ask for more")


def test_the_only_server_is_the_leader() -> None:
    without_peers = info(last=7)
    without_peers["cluster"]["replicas"] = None
    for reply in (info(last=7), without_peers):
        end = made(end_steps("S"), reply)
        assert (end.sequence, end.silence, end.is_replicated) == (7, 0.0, False)
    alone = info()
    del alone["cluster"]
    assert made(end_steps("S"), alone).silence == 0.0


def test_a_leader_is_as_current_as_its_majority() -> None:
    assert made(end_steps("S"), info(peer(0.5), peer(60))).silence == 0.5
    assert made(end_steps("S"), info(peer(2), peer(1), peer(3), peer(9))).silence == 2


@pytest.mark.parametrize(
    ("peers", "silence"), [([2], 2), ([2, 1, 9], 2), ([3, 1, 2, 9, 9], 3)]
)
def test_half_of_the_servers_is_no_majority(peers: list[float], silence: float) -> None:
    reply = info(*[peer(active / 10) for active in peers])
    assert made(end_steps("S"), reply).silence == silence / 10


def test_an_old_leader_is_known_by_its_name() -> None:
    old: dict[str, Any] = {"leader_since": None, "traffic_account": None}
    end = made(end_steps("S"), info(peer(0.5), peer(1), **old))
    assert (end.sequence, end.silence) == (10, 0.5)
    for replica, leader in ((peer(0.5, name="a"), "a"), (peer(0.5), None)):
        reply = info(replica, peer(1), **old, leader=leader)
        with pytest.raises(errors.JetStreamUnavailableError, match="no leader"):
            made(end_steps("S"), reply)


def test_a_leader_that_heard_nobody_is_old() -> None:
    reply = info(peer(0, current=False), peer(0, current=False))
    now = datetime.fromisoformat(CREATED) + timedelta(seconds=MAX_SILENCE - 1)
    assert made(end_steps("S"), {**reply, "ts": now.isoformat()}).silence == 2.5
    reply["ts"] = (now + timedelta(seconds=2)).isoformat()
    with pytest.raises(errors.JetStreamUnavailableError, match="do not answer"):
        made(end_steps("S"), reply)


@pytest.mark.parametrize(
    "old",
    [
        info(peer(0), peer(0), leader=None),
        info(peer(0), peer(0), leader_since=None),
        info(peer(MAX_SILENCE + 0.1), peer(60)),
        info(peer(0, offline=True), peer(0, offline=True)),
        info(peer(0), peer(9), peer(9), peer(9)),
    ],
    ids=["no leader", "a follower", "cut off", "never heard", "a minority"],
)
def test_an_answer_without_a_majority_does_not_count(old: dict[str, Any]) -> None:
    with pytest.raises(errors.JetStreamUnavailableError, match="S"):
        made(end_steps("S"), old)


def test_a_server_that_never_joined_is_not_counted() -> None:
    end = end_in(StreamInfo.from_wire(info(peer(1), peer(1), peer(9, pending=True))))
    assert end.silence == 1


def test_nothing_is_left_beyond_an_end_or_purge() -> None:
    assert made(pending_steps("S", None, 10), info(last=10)).first is None
    assert made(pending_steps("S", None, 4, 8), info(first=11, last=10)).first is None
    assert made(pending_steps("S", ["a"], 12), info(last=10)).first is None


def test_the_last_message_alone_is_the_rest() -> None:
    pending = made(pending_steps("S", None, 9), info(last=10), message(10))
    assert pending.first == 10


def test_the_rest_starts_at_the_first_filter_match() -> None:
    rest = made(
        *(pending_steps("S", ["a", "b", "c"], 4, 8), info(last=10)),
        *(message(8), NOT_FOUND, message(6)),
    )
    assert rest.first == 6
    later = made(pending_steps("S", ["a"], 4, 8), info(last=10), message(9))
    assert later.first is None
    newer = made(pending_steps("S", ["a"], 4), info(last=10), message(11))
    assert newer.first == 11, "all up to 10 was replaced between the two answers"


def test_a_server_behind_tells_no_rest() -> None:
    """A former leader that was frozen answers until it learns of its successor."""
    leader = info(peer(0), peer(0), last=10)
    steps = pending_steps("S", ["a"], 4, 8)
    send_next(steps, None)
    send_next(steps, leader)
    ask = send_next(steps, NOT_FOUND)
    assert ask.payload == {"seq": 10, "next_by_subj": ">"}
    has_it = made(pending_steps("S", ["a"], 4), leader, NOT_FOUND, message(10))
    assert has_it.first is None
    last_deleted = (NOT_FOUND, NOT_FOUND, leader)
    assert made(pending_steps("S", ["a"], 4), leader, *last_deleted).first is None
    with pytest.raises(errors.JetStreamUnavailableError, match="behind the leader"):
        made(
            *(pending_steps("S", ["a"], 4), leader, NOT_FOUND, NOT_FOUND),
            info(peer(0), peer(0), last=11),
        )


def test_the_leader_is_asked_behind_what_was_read() -> None:
    steps = pending_steps("S", ["a.>"], 4, 8)
    assert send_next(steps, None).subject == "STREAM.INFO.S"
    ask = send_next(steps, info(last=10, first=2))
    assert ask.subject == "STREAM.MSG.GET.S"
    assert ask.payload == {"seq": 5, "next_by_subj": "a.>"}
    steps = pending_steps("S", None, 0, start_time="then")
    send_next(steps, None)
    assert send_next(steps, info()).payload == {
        "start_time": "then",
        "next_by_subj": ">",
    }


def test_asking_needs_permission_only_for_replicated_streams() -> None:
    assert made(pending_steps("S", ["a"], 4), info(last=10), NOT_ALLOWED).first is None
    with pytest.raises(errors.PermissionsError):
        made(pending_steps("S", ["a"], 4), info(peer(0), peer(0), last=10), NOT_ALLOWED)
