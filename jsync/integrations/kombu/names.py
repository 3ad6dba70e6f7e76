"""Names of queues, exchanges and routing keys as subjects and streams. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

END = "$"
"""The last token of the subject of an exchange: `a.#` matches `a`, and `a.>` does not."""

KINDS = ("direct", "topic", "fanout")
"""The types of exchanges."""

BUILT_IN = {f"amq.{kind}": kind for kind in KINDS}
"""Exchanges that every broker has. kombu does not declare them."""

_PLAIN = re.compile(r"[^A-Za-z0-9_-]")


def token(name: str) -> str:
    """A name as one token, fit for streams, consumers and keys: `=2E` for a dot."""
    return _PLAIN.sub(_escaped, name) or "="


def _escaped(found: re.Match[str]) -> str:
    return "".join(f"={byte:02X}" for byte in found[0].encode("utf-8", "surrogatepass"))


def stream_name(prefix: str, queue: str) -> str:
    """The stream that holds a queue."""
    return f"{prefix}-{token(queue)}"


def queue_subject(prefix: str, queue: str, level: int | str) -> str:
    """Where the messages of one priority of a queue are published."""
    return f"{prefix}.queue.{token(queue)}.{level}"


def later_subject(prefix: str, queue: str, name: str) -> str:
    """Where a message waits until the server publishes it to its queue."""
    return f"{prefix}.later.{token(queue)}.{name}"


def exchange_subject(prefix: str, exchange: str, routing_key: str) -> str:
    """Where a message of an exchange goes for the queues that no stream holds."""
    return ".".join([prefix, "exchange", token(exchange), *_words(routing_key), END])


def binding_subject(prefix: str, kind: str, exchange: str, routing_key: str) -> str:
    """The subject that brings at least what a binding matches."""
    start = [prefix, "exchange", token(exchange)]
    if kind == "fanout":
        return ".".join([*start, ">"])
    if kind == "direct":
        return ".".join([*start, *_words(routing_key), END])
    for word in routing_key.split("."):
        if word == "#":
            return ".".join([*start, ">"])
        start.append("*" if word == "*" else token(word))
    return ".".join([*start, END])


def matches(kind: str, pattern: str, routing_key: str) -> bool:
    """Whether a binding takes a message, as AMQP says."""
    if kind == "fanout":
        return True
    if kind == "direct":
        return pattern == routing_key
    return _topic(pattern.split("."), routing_key.split("."))


def _topic(pattern: list[str], words: list[str]) -> bool:
    """Whether the words fit: `*` is one word, `#` is any number of them."""
    reached = {0}
    for part in pattern:
        if part == "#":
            reached = set(range(min(reached), len(words) + 1))
        else:
            reached = {
                place + 1
                for place in reached
                if place < len(words) and part in ("*", words[place])
            }
        if not reached:
            return False
    return len(words) in reached


def first_match(bindings: Iterable[tuple[str, str]], routing_key: str) -> int | None:
    """The place of the first `(kind, pattern)` that takes a message."""
    for place, (kind, pattern) in enumerate(bindings):
        if matches(kind, pattern, routing_key):
            return place
    return None


def _words(routing_key: str) -> list[str]:
    return [token(word) for word in routing_key.split(".")]
