"""Names of queues, exchanges and routing keys as subjects and streams. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

END = "$"
"""The last token of the subject of an exchange. `a.#` matches `a`, but `a.>` does not."""

KINDS = ("direct", "topic", "fanout")
"""The types of exchanges."""

BUILT_IN = {f"amq.{kind}": kind for kind in KINDS}
"""Exchanges that every broker has. kombu does not declare them."""

_PLAIN = re.compile(r"[^A-Za-z0-9_-]")


def encode_token(name: str) -> str:
    """Return a name as one token for streams, consumers and keys. A dot becomes `=2E`."""
    return _PLAIN.sub(_escaped, name) or "="


def _escaped(found: re.Match[str]) -> str:
    return "".join(f"={byte:02X}" for byte in found[0].encode("utf-8", "surrogatepass"))


def stream_name(prefix: str, queue: str) -> str:
    """Return the name of the stream of a queue."""
    return f"{prefix}-{encode_token(queue)}"


def queue_subject(prefix: str, queue: str, level: int | str) -> str:
    """Return the subject for the messages of one priority of a queue."""
    return f"{prefix}.queue.{encode_token(queue)}.{level}"


def delayed_subject(prefix: str, queue: str, name: str) -> str:
    """Return the subject on which a message waits until the server publishes it."""
    return f"{prefix}.later.{encode_token(queue)}.{name}"


def exchange_subject(prefix: str, exchange: str, routing_key: str) -> str:
    """Return the subject for a message of an exchange to the queues without a stream."""
    return ".".join(
        [prefix, "exchange", encode_token(exchange), *_words(routing_key), END]
    )


def binding_subject(prefix: str, kind: str, exchange: str, routing_key: str) -> str:
    """Return a subject that matches at least the messages of a binding."""
    start = [prefix, "exchange", encode_token(exchange)]
    if kind == "fanout":
        return ".".join([*start, ">"])
    if kind == "direct":
        return ".".join([*start, *_words(routing_key), END])
    for word in routing_key.split("."):
        if word == "#":
            return ".".join([*start, ">"])
        start.append("*" if word == "*" else encode_token(word))
    return ".".join([*start, END])


def matches(kind: str, pattern: str, routing_key: str) -> bool:
    """Return whether a binding matches a routing key, by the rules of AMQP."""
    if kind == "fanout":
        return True
    if kind == "direct":
        return pattern == routing_key
    return _topic(pattern.split("."), routing_key.split("."))


def _topic(pattern: list[str], words: list[str]) -> bool:
    """Return whether words match a pattern: `*` is one word, `#` is any number of words."""
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
    """Return the index of the first `(kind, pattern)` that matches, or None."""
    for place, (kind, pattern) in enumerate(bindings):
        if matches(kind, pattern, routing_key):
            return place
    return None


def _words(routing_key: str) -> list[str]:
    return [encode_token(word) for word in routing_key.split(".")]
