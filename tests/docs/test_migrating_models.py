"""Tests of the page on js.api and micro of nats-py: its tables are complete and right."""

from __future__ import annotations

import dataclasses
import inspect
import re
from pathlib import Path
from typing import Any

import nats.js.api
import nats.micro
import nats.micro.request
import nats.micro.service
import pytest

import jsync

PAGE = (Path(__file__).parents[2] / "docs/migrating-models.md").read_text()
ROW = re.compile(r"^\| `(.*?)` \| `(.*?)` \| (.*?) ?\|$", re.MULTILINE)


def rows(title: str) -> dict[str, tuple[str, str]]:
    """Return the rows of a table: the name in nats-py, the name in jsync, and the note."""
    _, _, text = PAGE.partition(f"### {title}\n")
    text = re.split(r"^##", text, maxsplit=1, flags=re.MULTILINE)[0]
    found = {theirs: (ours, note) for theirs, ours, note in ROW.findall(text)}
    assert len(found) == text.count("\n| `")
    return found


MODELS = rows("nats.js.api")
MICRO = rows("nats.micro")


def defined(module: Any) -> dict[str, Any]:
    return {
        name: thing
        for name, thing in vars(module).items()
        if getattr(thing, "__module__", None) == module.__name__
        and not name.startswith("_")
    }


def test_the_page_has_every_class_of_js_api() -> None:
    assert MODELS.keys() == {
        name for name, thing in defined(nats.js.api).items() if inspect.isclass(thing)
    }


def test_the_page_has_every_name_of_micro() -> None:
    names: dict[str, Any] = {}
    for module in (nats.micro, nats.micro.request, nats.micro.service):
        names |= defined(module)
    wanted = {*names}
    for name in ("Service", "Request", "Group", "EndpointManager", "GroupManager"):
        wanted |= {f"{name}.{key}" for key in vars(names[name]) if key[0] != "_"}
    assert MICRO.keys() == wanted


@pytest.mark.parametrize("table", [MODELS, MICRO])
def test_each_name_of_jsync_exists(table: dict[str, tuple[str, str]]) -> None:
    for ours, _ in table.values():
        thing: Any = jsync
        for part in ours.split("."):
            assert hasattr(thing, part), ours
            thing = getattr(thing, part)


def test_each_field_with_another_name_is_noted() -> None:
    for name, (ours, note) in MODELS.items():
        theirs = getattr(nats.js.api, name)
        model = getattr(jsync, ours, None) or getattr(
            jsync.models, ours.removeprefix("models."), None
        )
        if not dataclasses.is_dataclass(theirs) or not inspect.isclass(model):
            continue
        for field in dataclasses.fields(theirs):
            assert hasattr(model, field.name) or f"`{field.name}`" in note, (
                f"{name}.{field.name}"
            )
