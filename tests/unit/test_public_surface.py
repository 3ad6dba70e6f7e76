"""Tests that programs written for the first release of jsync still run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ..support.public_api import surface

FIRST = json.loads(Path(__file__).with_name("public_api.json").read_text())

# The changes since then, with the reasons. Additions need no entry.
CHANGED = {
    "jsync.BatchState: pickled as": "jsync.jetstream.atomic has it now",
    "jsync.Connection: adopt": "the session keeps what a drain has to wait for",
    "jsync.AtomicBatch: publish_all": "only `JetStream.publish_batch` calls it",
    "jsync.Batch: waited": "only the extension calls it",
    "jsync.Connection: session": "only jsync itself uses it",
    "jsync.MessagesContext: waited": "only the extension calls it",
    **{
        f"jsync.{name}: {member}": "a part of a drain, which only the connection calls"
        for name in (
            "PullSubscription",
            "PushSubscription",
            "Subscription",
        )
        for member in ("silence", "finish", "wait_finished")
    },
    **{
        f"jsync.PushSubscription: {member}": "`JetStream.subscribe` alone needs it"
        for member in ("open", "open_ordered", "bind", "rebind", "abandon")
    },
    **{
        f"jsync.{name}: consume": "workers is None by default: the callback pool"
        for name in ("Consumer", "PushConsumer")
    },
    "jsync.JetStream: publisher": "window_bytes is 8 MiB by default, not 64",
    "jsync.Statistics: pickled as": "jsync.connection has it now",
    "jsync.connect: ()": "max_reconnects is -1 by default: a client never gives up",
    "jsync.errors.IngestConnectionError: ()": "unconfirmed is ranges, none by default",
    "jsync.errors.IngestError: ()": "unconfirmed is ranges, none by default",
    "jsync.errors.IngestTimeoutError: ()": "unconfirmed is ranges, none by default",
    **{
        f"jsync.errors.BadRequestError: {member}": "it caught less than that of nats-py"
        for member in ("()", "by_err_code", "caught as", "pickled as")
    },
    "jsync.errors.InvalidJSONError: caught as": "BadRequestError is InvalidRequestError",
    "jsync.errors.PedanticError: caught as": "BadRequestError is InvalidRequestError",
    "jsync.errors.MaxPayloadError: ()": "it has the subject of a buffered message",
    "jsync.server.LocalServer: start": "it waits 30 seconds: a busy machine takes long",
    "jsync.models.SubjectTransform: ()": "src is always sent, as the schema requires",
}


def test_every_public_name_remains_callable_as_before() -> None:
    now = surface()
    changed = {
        f"{name}: {member}"
        for name, members in FIRST.items()
        for member, was in members.items()
        if not still(was, now.get(name, {}).get(member))
    }
    assert changed == set(CHANGED)


def still(was: str, now: str | None) -> bool:
    """Return whether a call written for `was` still works. New keywords may follow at the end."""
    if now is None:
        return False
    if was.startswith("(") and now.startswith("("):
        before, after = _parameters(was), _parameters(now)
        positional = before[: before.index("*")] if "*" in before else before
        if after[: len(positional)] != positional:
            return False
        kept = [parameter for parameter in after if parameter in before]
        added = [parameter for parameter in after if parameter not in before]
        return kept == before and all("=" in parameter for parameter in added)
    return was == now


@pytest.mark.parametrize(
    ("was", "now", "works"),
    [
        ("(a, b=1)", "(a, b=1, new=0)", True),
        ("(a, b=1)", "(a, new=0, b=1)", False),
        ("(a, *, b=1)", "(a, *, new=0, b=1)", True),
        ("(a, *, b=1)", "(a, new=0, *, b=1)", True),
        ("(a, *, b=1)", "(new=0, a, *, b=1)", False),
        ("(a)", "(a, new)", False),
    ],
)
def test_a_new_parameter_follows_the_positional_ones(
    was: str, now: str, works: bool
) -> None:
    assert still(was, now) is works


def _parameters(signature: str) -> list[str]:
    depth, found = 0, [""]
    for letter in signature[1:-1]:
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and depth == 0:
            found.append("")
        else:
            found[-1] += letter
    return [parameter.strip() for parameter in found]
