"""Tests of the page on natsio, nats-core and nats-jetstream: its tables are complete and right."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import jsync

DOCS = Path(__file__).parents[2] / "docs"
PAGES = ("migrating-other-clients.md", "migrating-natsio.md")
TABLES = "".join((DOCS / page).read_text() for page in PAGES)
NAMES: dict[str, list[str]] = json.loads(
    Path(__file__).with_name("other_clients.json").read_text()
)
"""The names in the packages, which tests/interop/test_documented_names.py compares."""
ROW = re.compile(r"^\| `(.*?)` \| (?:`(.*?)`|\N{EN DASH}) \| ?(.*?) ?\|$", re.MULTILINE)


def rows(title: str) -> list[tuple[str, str, str]]:
    """Return the rows of a table: the name there, the name in jsync, and the note."""
    _, _, text = TABLES.partition(f"## {title}\n")
    text = re.split(r"^##", text, maxsplit=1, flags=re.MULTILINE)[0]
    found: list[tuple[str, str, str]] = ROW.findall(text)
    assert len(found) == text.count("\n| `")
    return found


@pytest.mark.parametrize("title", NAMES)
def test_each_table_has_every_name_once(title: str) -> None:
    assert sorted(name for name, _, _ in rows(title)) == sorted(NAMES[title])


@pytest.mark.parametrize("title", NAMES)
def test_each_name_of_jsync_in_the_tables_exists(title: str) -> None:
    for _, ours, _ in rows(title):
        thing: Any = jsync
        for part in filter(None, ours.split(".")):
            assert hasattr(thing, part), ours
            thing = getattr(thing, part)
