"""What subjects with wildcards match of others. Pure."""

from __future__ import annotations


def covers(pattern: str, subject: str) -> bool:
    """Whether a subscription to `pattern` gets all of `subject`, which may have wildcards."""
    wanted, given = pattern.split("."), subject.split(".")
    for number, here in enumerate(wanted):
        if here == ">":
            return len(given) > number
        if number >= len(given) or given[number] == ">":
            return False
        if here not in ("*", given[number]):
            return False
    return len(wanted) == len(given)


def takes(patterns: list[str], subject: str) -> bool:
    """Whether one of the patterns covers it."""
    return any(covers(pattern, subject) for pattern in patterns)


def overlap(one: str, other: str) -> bool:
    """Whether some subject matches both: `a.*.c` and `a.b.*` have `a.b.c`."""
    left, right = one.split("."), other.split(".")
    for here, there in zip(left, right, strict=False):
        if ">" in (here, there):
            return True
        if here != there and "*" not in (here, there):
            return False
    return len(left) == len(right)
