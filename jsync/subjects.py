"""Subjects and their wildcards: the subjects that a pattern matches. Pure.

A pattern is a subject in which `*` stands for one token and a `>` at the end for one or more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def has_wildcard(subject: str) -> bool:
    """Return whether a token of the subject is a wildcard."""
    return not {"*", ">"}.isdisjoint(subject.split("."))


def covers(pattern: str, subject: str) -> bool:
    """Return whether `pattern` matches every subject that `subject` matches.

    Both may have wildcards.
    """
    pattern_tokens, subject_tokens = pattern.split("."), subject.split(".")
    for index, word in enumerate(pattern_tokens):
        if word == ">":
            return len(subject_tokens) > index
        if index >= len(subject_tokens) or subject_tokens[index] == ">":
            return False
        if word not in ("*", subject_tokens[index]):
            return False
    return len(pattern_tokens) == len(subject_tokens)


def any_covers(patterns: Iterable[str], subject: str) -> bool:
    """Return whether one of the patterns covers the subject."""
    return any(covers(pattern, subject) for pattern in patterns)


def intersection(one: str, other: str) -> str | None:
    """Return the pattern of the subjects that match both patterns, or None.

    For example, `a.*.c` and `a.b.*` have `a.b.c` in common.
    """
    left, right = one.split("."), other.split(".")
    tokens: list[str] = []
    for index in range(max(len(left), len(right))):
        if index >= len(left) or index >= len(right):
            return None
        a, b = left[index], right[index]
        if a == ">":
            return ".".join(tokens + right[index:])
        if b == ">":
            return ".".join(tokens + left[index:])
        if a != b and "*" not in (a, b):
            return None
        tokens.append(b if a == "*" else a)
    return ".".join(tokens)


def intersections(some: Iterable[str], others: Sequence[str]) -> tuple[str, ...]:
    """Return the patterns of the subjects that match a pattern of both collections.

    Each pattern is returned once.
    """
    found = (intersection(one, other) for one in some for other in others)
    return tuple(dict.fromkeys(pattern for pattern in found if pattern is not None))
