"""The pages of the documentation, and their blocks of code."""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

OUTPUT = 'text title="output"'
"""A block with this info is the whole output of the block before it."""

FENCE = re.compile(
    r"^(?P<indent> *)```(?P<info>.*)\n(?P<text>(?:.*\n)*?)(?P=indent)```$", re.MULTILINE
)
TITLE = re.compile(r'title="(?P<title>.*?)"')


@dataclass(frozen=True)
class Block:
    """The text between two fences."""

    page: Path
    line: int
    """The number of its first line, from 1."""
    info: str
    """The language, and the other words of the opening fence."""
    text: str
    output: str | None
    """The output that the page shows for this block, if any."""

    @property
    def language(self) -> str:
        return self.info.partition(" ")[0]

    @property
    def title(self) -> str | None:
        """The name of the file that the block shows, if any."""
        found = TITLE.search(self.info)
        return found and found["title"]

    @property
    def is_script(self) -> bool:
        """Whether the block must run as the main program of a process.

        In the process of the tests, `patch_all` would patch the tests that follow, too.
        """
        return any(
            text in self.text for text in ('__name__ == "__main__"', "patch_all()")
        )

    @property
    def is_tests(self) -> bool:
        """Whether the block is for pytest."""
        return "\ndef test_" in self.text

    def __str__(self) -> str:
        return f"{name_of(self.page)}:{self.line}"


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: Path) -> Iterator[Block]:
    text = page.read_text()
    found = list(FENCE.finditer(text))
    for match, after in zip_longest(found, found[1:]):
        output = None
        if after is not None and after["info"] == OUTPUT:
            between = text[match.end() : after.start()].strip()
            assert not between, f"{page}: what prints this? {after['text']}"
            output = after["text"]
        yield Block(
            page,
            text.count("\n", 0, match.start("text")) + 1,
            match["info"],
            textwrap.dedent(match["text"]),
            output and textwrap.dedent(output),
        )
