"""Shared parts of the tests of the engine.

Texts in quotes are from ADR-37, revision 2.
"""

from __future__ import annotations

from typing import Any

from jsync.jetstream.pulls.engine import (
    PullEngine,
    PullRequest,
    consume_limits,
)

NO_LEFT = None


SECOND = 1_000_000_000


def engine(**options: Any) -> PullEngine:
    return PullEngine(consume_limits(**options))


def asked(pull: PullEngine) -> PullRequest:
    request = pull.next_request()
    assert request is not None
    return request


def pending(pull: PullEngine) -> tuple[int, int]:
    return pull.pending_messages, pull.pending_bytes
