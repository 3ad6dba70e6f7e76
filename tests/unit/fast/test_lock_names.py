"""The names of the methods that need, take or release the mutex of the write buffer.

`..._locked` is called with the mutex and keeps it, `..._and_unlock` is called with it and
releases it, and `lock_...` takes it. The test follows every path through the sources of the
extension.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import jsync

if TYPE_CHECKING:
    from collections.abc import Iterator

PARTS = Path(jsync.__file__).parent / "_fast_parts"
FUNCTION = re.compile(r"c?p?def\b(?! class\b)[^(=]*?(\w+)\(.*:$")
EVENT = re.compile(
    r"\bpthread_mutex_(lock|unlock)\(&[\w.]+\.mutex\)"
    r"|\b(lock_\w+|\w+_locked|\w+_and_unlock)\("
)
RESERVED = re.compile(r"(\w+) = .*\.lock_\w+\(")
LEAVES = re.compile(r"return\b|raise\b|.*\brefuse_size\(")

_CLAUSES = {"if": ("elif", "else"), "try": ("except", "finally")}

Held = frozenset[bool]
"""Whether the mutex is held at a place, by all paths to it. Empty: no path."""
NO_PATH: Held = frozenset()
FREE: Held = frozenset({False})
HELD: Held = frozenset({True})


@dataclass
class Statement:
    """A line of a source without its comment, and its block."""

    text: str
    block: list[Statement] = field(default_factory=list)

    @property
    def word(self) -> str:
        return self.text.split(" ")[0].rstrip(":")


def statements(source: str) -> list[Statement]:
    source = re.sub(r'"""(?:[^"\\]|\\.|"(?!""))*"""', "...", source)
    source = re.sub(r'"(?:[^"\\\n]|\\.)*"', "TEXT", source)
    lines: list[str] = []
    for line in re.sub(r" *#[^\n]*", "", source).splitlines():
        if lines and lines[-1].count("(") > lines[-1].count(")"):
            lines[-1] += " " + line.strip()
        elif line.strip():
            lines.append(line)
    root = Statement("")
    parents = [(-1, root)]
    for line in lines:
        indent = len(line) - len(line.lstrip())
        while parents[-1][0] >= indent:
            parents.pop()
        statement = Statement(line.strip())
        parents[-1][1].block.append(statement)
        parents.append((indent, statement))
    return root.block


def functions(block: list[Statement]) -> Iterator[tuple[str, list[Statement]]]:
    for statement in block:
        match = FUNCTION.match(statement.text)
        if match is not None:
            yield match[1], statement.block
        else:
            yield from functions(statement.block)


class Paths:
    """All paths through a function, and what is wrong with them."""

    def __init__(self, name: str, block: list[Statement]) -> None:
        self._name = name
        self._reserved = "NOTHING"
        self._breaks: list[Held] = []
        self.faults: list[str] = []
        begin = HELD if name.endswith(("_locked", "_and_unlock")) else FREE
        self._leave("its end", self._follow(block, begin))

    def _fault(self, what: str) -> None:
        self.faults.append(f"{self._name}: {what}")

    def _leave(self, where: str, held: Held) -> None:
        if self._name.startswith("lock_"):
            return
        if (not self._name.endswith("_locked")) in held:
            kept = "releases" if self._name.endswith("_locked") else "keeps"
            self._fault(f"{kept} the mutex at {where}")

    def _step(self, text: str, held: Held) -> Held:
        """Follow the calls of a line."""
        for match in EVENT.finditer(text) if held else ():
            called = match[1] or match[2]
            takes = called.startswith("lock")
            if takes in held:
                self._fault(f"{called} with{'' if takes else 'out'} the mutex")
            held = FREE if called.endswith("unlock") else HELD
        reserved = RESERVED.search(text)
        if reserved is not None:
            self._reserved = reserved[1]
        return held

    def _follow(self, block: list[Statement], held: Held) -> Held:
        rest = list(block)
        while rest:
            statement = rest.pop(0)
            text, word = statement.text, statement.word
            clauses = _CLAUSES.get(word, ())
            count = next(
                (at for at, other in enumerate(rest) if other.word not in clauses),
                len(rest),
            )
            more = rest[:count]
            del rest[:count]
            if word == "if":
                held = self._choice([statement, *more], held)
            elif word == "try":
                end = self._follow(statement.block, held)
                for other in more:
                    if other.word == "except":
                        end |= self._follow(other.block, held)
                    else:
                        end = self._follow(other.block, end)
                held = end
            elif word in ("for", "while"):
                held = self._loop(statement, held)
            elif word in ("break", "continue"):
                self._breaks[-1] |= held
                held = NO_PATH
            else:
                held = self._step(text, held)
                if LEAVES.match(text):
                    self._leave(text, held)
                    held = NO_PATH
                held = self._follow(statement.block, held)
        return held

    def _choice(self, branches: list[Statement], held: Held) -> Held:
        end = NO_PATH
        for branch in branches:
            held = taken = self._step(branch.text, held)
            if f"{self._reserved} == NULL:" in branch.text:
                taken, held = FREE, held - FREE
            end |= self._follow(branch.block, taken)
        return end if branches[-1].word == "else" else end | held

    def _loop(self, loop: Statement, held: Held) -> Held:
        held = self._step(loop.text, held)
        self._breaks.append(NO_PATH)
        end = self._follow(loop.block, held)
        if end - held:
            self._fault(f"another round of {loop.text}")
        ends = self._breaks.pop()
        return ends if loop.text == "while True:" else ends | held


def faults(source: str) -> list[str]:
    found: list[str] = []
    for name, block in functions(statements(source)):
        found += Paths(name, block).faults
    return found


@pytest.mark.parametrize(
    "part", sorted(PARTS.rglob("*.pxi")), ids=lambda part: part.stem
)
def test_names_say_who_holds_the_mutex(part: Path) -> None:
    assert faults(part.read_text()) == []


LOCK, UNLOCK = "pthread_mutex_lock(&self.mutex)", "pthread_mutex_unlock(&self.mutex)"


@pytest.mark.parametrize(
    ("name", "lines", "fault"),
    [
        ("count", ["self.swap_locked()"], "swap_locked without the mutex"),
        ("count", ["self.send_and_unlock()"], "send_and_unlock without the mutex"),
        ("count", [LOCK], "keeps the mutex at its end"),
        ("count", [LOCK, "if self.fd:", "    return 1", UNLOCK], "at return 1"),
        ("count", [LOCK, LOCK, UNLOCK], "lock with the mutex"),
        ("count", [UNLOCK], "unlock without the mutex"),
        ("swap_locked", [UNLOCK], "releases the mutex at its end"),
        ("send_and_unlock", ["return 0"], "keeps the mutex at return 0"),
        ("swap_locked", ["self.lock_settled()"], "lock_settled with the mutex"),
        ("count", ["while True:", "    " + LOCK], "another round of while True:"),
        (
            "count",
            [
                "out = self.lock_and_reserve(1)",
                "if out == NULL:",
                "    self.swap_locked()",
            ],
            "swap_locked without the mutex",
        ),
    ],
)
@pytest.mark.parametrize("cls", ["Buffer", "Buffer(Handle)"])
def test_a_wrong_call_is_refused(
    cls: str, name: str, lines: list[str], fault: str
) -> None:
    body = "".join(f"        {line}\n" for line in lines)
    found = faults(f"cdef class {cls}:\n    cdef int {name}(self) except -1:\n{body}")
    assert any(fault in text for text in found), found


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("count", [LOCK, "self.swap_locked()", UNLOCK]),
        ("count", [LOCK, "self.send_and_unlock()"]),
        (
            "send_and_unlock",
            ["if self.fd:", "    return self.batch_and_unlock()", UNLOCK],
        ),
        (
            "count",
            [
                "out = self.lock_and_reserve(1)",
                "if out == NULL:",
                "    return 0",
                UNLOCK,
            ],
        ),
    ],
)
def test_a_right_call_is_accepted(name: str, lines: list[str]) -> None:
    body = "".join(f"        {line}\n" for line in lines)
    assert faults(f"cdef class Buffer:\n    cdef int {name}(self):\n{body}") == []
