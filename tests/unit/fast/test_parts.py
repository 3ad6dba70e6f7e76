"""Tests of the order of the extension's parts: a part uses names of earlier parts only.

The `include`s of `_fast.pyx` state the order. Cython itself finds a name in any part.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import jsync

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

# An installed jsync does not contain the sources.
pytestmark = pytest.mark.tools

ROOT = Path(jsync.__file__).parent
INCLUDE = re.compile(r'^include "(_fast_parts/.+\.pxi)"$', re.MULTILINE)

DOCSTRING = re.compile(r'"""(?:[^"\\]|\\.|"(?!""))*"""')
STRING = re.compile(r"""(?<!\w)([a-zA-Z]*)("(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')""")
NAME = re.compile(r"(?<![\w.])[A-Za-z_]\w*")
DEFINITION = re.compile(
    r"(?:cdef |cpdef |ctypedef |packed )*(?:class|struct|enum|union|def) (\w+)"
)
FUNCTION = re.compile(r'[^(=]*?(\w+)(?: "")?\(')
ENUM = re.compile(r"(?:cdef |ctypedef )?enum\b")
CIMPORT = re.compile(r"from \S+ cimport\b")
VARIABLE = re.compile(r"(\w+)(?:: [^=]+)? = ")


def without_texts(source: str) -> str:
    """Return a source without comments and texts, but with the names in f-strings."""

    def emptied(match: re.Match[str]) -> str:
        if "f" not in match[1].lower():
            return '""'
        return f'"".format({", ".join(re.findall(r"{([^{}]+)}", match[2]))})'

    source = STRING.sub(emptied, DOCSTRING.sub('""', source))
    return re.sub(r" *#[^\n]*", "", source)


def lines(source: str) -> Iterator[tuple[int, str]]:
    """Yield the indent and the text of each line. Lines in parentheses are one."""
    joined = ""
    for line in without_texts(source).splitlines():
        joined = f"{joined} {line.strip()}" if joined else line
        if joined.count("(") <= joined.count(")"):
            if joined.strip():
                yield len(joined) - len(joined.lstrip()), joined.strip()
            joined = ""


def declared(text: str) -> set[str]:
    """Return the names that a line declares, at the top or in an `extern` block."""
    if CIMPORT.match(text):
        return set(NAME.findall(text.partition("cimport")[2]))
    if ENUM.match(text):
        return set(NAME.findall(text.partition("enum")[2]))
    found = DEFINITION.match(text) or VARIABLE.match(text) or FUNCTION.match(text)
    if found is not None:
        return {found[1]}
    pieces = re.sub(r'\(.*\)|\[.*?\]|""|:$', "", text).split(",")
    return {NAME.findall(piece.partition("=")[0])[-1] for piece in pieces}


def names(source: str) -> tuple[set[str], set[str]]:
    """Return the names that a part defines for others, and those for itself alone."""
    for_others: set[str] = set()
    own: set[str] = set()
    top = inner = ""  # the lines that the next ones are indented below
    for indent, text in lines(source):
        if indent == 0:
            top, inner = text, ""
            if re.match(r"(?:cdef|cpdef|ctypedef|def|class|from)\b", text) or (
                VARIABLE.match(text)
            ):
                for_others |= declared(text) if "extern" not in text else set()
        elif ENUM.match(top) or (ENUM.match(inner) and indent > 4):
            for_others |= set(NAME.findall(re.sub(r"=[^,]*", "", text)))
        elif top.startswith("cdef extern") and indent == 4:
            inner = text
            for_others |= declared(text) if text != '""' else set()
        else:
            method = re.match(r"(?:cdef|cpdef|def) [^(=]*?(\w+)\(", text)
            found = method or VARIABLE.match(text)
            own |= {found[1]} if found is not None else set()
    return for_others, own


def rises(parts: Mapping[str, str]) -> Iterator[str]:
    """Yield the uses of a name that only a later part defines. `parts` has their order."""
    first: dict[str, str] = {}
    own: dict[str, set[str]] = {}
    for part, source in parts.items():
        for_others, own[part] = names(source)
        for name in for_others:
            first.setdefault(name, part)
    order = list(parts)
    for part, source in parts.items():
        used = set(NAME.findall(without_texts(source)))
        for name in sorted(used & first.keys() - own[part]):
            if order.index(first[name]) > order.index(part):
                yield f"{part} uses {name} of {first[name]}, which is above it"


def parts_of_the_extension() -> dict[str, str]:
    """Return the sources of the parts in their order, the lowest first."""
    included = INCLUDE.findall((ROOT / "_fast.pyx").read_text())
    return {Path(path).stem: (ROOT / path).read_text() for path in included}


PARTS = parts_of_the_extension()


def test_each_part_uses_earlier_parts_only() -> None:
    assert not list(rises(PARTS))


# The following tests check that the rule finds violations.

LOWER = """
cdef extern from "pythread.h":
    ctypedef enum PyLockStatus:
        PY_LOCK_ACQUIRED
    int acquire "PyThread_acquire"(void*) nogil

cdef enum:
    MAX_LINE = 64
"""

HIGHER = """
from cpython.list cimport PyList_GET_SIZE

cdef extern from *:
    const bint PARALLEL "JSYNC_PARALLEL"
    int POLLIN, POLLOUT

cdef enum State:
    OPEN  # at first
    CLOSED = 7

cdef struct Frame:
    int size

cdef tuple NAMES = ("open", "closed")
cdef str PUT = "PUT", DEL = "DEL"
LIMIT = 5


cdef class Loop(Base):
    cdef int fd

    cdef int put(self) except -1:
        return 0


cdef inline const char* put_frame(
    char* out, Frame* frame
) noexcept nogil:
    return out


@cython.final
class Event(StrEnum):
    INFO = "INFO"


def parse(data: bytes) -> int:
    return 0
"""


@pytest.mark.parametrize(
    ("source", "used"),
    [
        ("cdef int wait(Loop loop):\n    pass\n", "Loop"),
        ("cdef class Reader(Loop):\n    pass\n", "Loop"),
        ("cdef struct Buffer:\n    Frame frame\n", "Frame"),
        ("cdef int f():\n    return put_frame(NULL, NULL)\n", "put_frame"),
        ("cdef int f():\n    return parse(b'')\n", "parse"),
        ("cdef int f():\n    return CLOSED\n", "CLOSED"),
        ("cdef State f():\n    pass\n", "State"),
        ("cdef int f():\n    return Event.INFO\n", "Event"),
        ("cdef int f():\n    return LIMIT + 1\n", "LIMIT"),
        ("cdef object f():\n    return NAMES[0]\n", "NAMES"),
        ("cdef object f():\n    return DEL\n", "DEL"),
        ("cdef object f():\n    return f'more than {LIMIT:d} bytes'\n", "LIMIT"),
        ("cdef int f():\n    return PARALLEL\n", "PARALLEL"),
        ("cdef int f():\n    return POLLOUT\n", "POLLOUT"),
        ("cdef int f():\n    return PyList_GET_SIZE([])\n", "PyList_GET_SIZE"),
    ],
)
def test_a_use_of_a_later_part_is_found(source: str, used: str) -> None:
    found = list(rises({"low": LOWER + source, "high": HIGHER}))
    assert found == [f"low uses {used} of high, which is above it"]
    assert not list(rises({"high": HIGHER, "low": LOWER + source}))


@pytest.mark.parametrize(
    "source",
    [
        "# see `Loop`\n",
        'cdef int f():\n    """Do what Loop does."""\n    return 0\n',
        "cdef object f():\n    return 'a Loop', b'Frame'\n",
        "cdef object f(low):\n    return low.LIMIT\n",
        "cdef class Queue:\n    def parse(self) -> None:\n        pass\n",
        "cdef class Word:\n    OPEN = 1\n",
        "cdef int f():\n    return PY_LOCK_ACQUIRED + acquire(NULL) + MAX_LINE\n",
    ],
)
def test_other_uses_of_a_name_are_accepted(source: str) -> None:
    assert not list(rises({"low": LOWER + source, "high": HIGHER}))


def test_the_order_has_each_part_once() -> None:
    paths = INCLUDE.findall((ROOT / "_fast.pyx").read_text())
    assert len(PARTS) == len(paths)
