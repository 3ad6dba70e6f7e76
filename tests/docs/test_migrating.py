"""Tests of the page on moving from nats-py: its examples run, and its tables are complete."""

from __future__ import annotations

import inspect
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nats.errors
import nats.js.errors
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.js import JetStreamContext, JetStreamManager
from nats.js.kv import KeyValue
from nats.js.object_store import ObjectStore

import jsync
from jsync import errors
from jsync.core.protocol import ServerInfo

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..conftest import StartServer

pytestmark = pytest.mark.server

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "migrating-programs.md").read_text()
CALLS = (DOCS / "migrating-calls.md").read_text()


def sections(page: str) -> dict[str, str]:
    """Return the text below each heading."""
    pattern = r"^## (.*?)\n(.*?)(?=^##|\Z)"
    return dict(re.findall(pattern, page, re.DOTALL | re.MULTILINE))


TABLES = sections(CALLS)
PAIRS = {
    title: re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    for title, text in sections(PAGE).items()
}

SERVER_ERRORS: dict[str, tuple[int, str, str]] = json.loads(
    (Path(__file__).parents[1] / "unit/errors/server_errors.json").read_text()
)

THINGS: dict[str, Any] = {
    "jsync": jsync,
    "nc": jsync.Connection,
    "nc.server_info": ServerInfo,
    "js": jsync.JetStream,
    "js.stream": jsync.Stream,
    "js.consumer": jsync.Consumer,
    "kv": jsync.KeyValue,
    "watch": jsync.Watch,
    "store": jsync.ObjectStore,
    "publisher": jsync.Publisher,
    "msg": jsync.JetStreamMsg,
    "metadata": jsync.Metadata,
}
"""The objects behind the names on the page. `sub` is the subject of its section."""


def rows(title: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the rows of a table: the name in nats-py, and the code that replaces it."""
    for line in TABLES[title].splitlines():
        if line.startswith("| `"):
            theirs, ours, _ = line.strip("|").split("|")
            (name,) = re.findall(r"`(.*?)`", theirs)
            found = re.findall(r"`(.*?)`", ours)
            assert found or ours.strip() == "\N{EN DASH}", line
            yield name, found


def public(*kinds: type) -> set[str]:
    return {name for kind in kinds for name in dir(kind) if not name.startswith("_")}


@pytest.mark.parametrize("title", PAIRS)
def test_each_pair_of_examples_prints_the_same(
    own_server: StartServer, title: str
) -> None:
    runs = []
    for code in PAIRS[title]:
        url = own_server().url
        strict = [] if "asyncio" in code else ["-W", "error"]
        runs.append(
            subprocess.Popen(
                [
                    sys.executable,
                    *strict,
                    "-c",
                    code.replace("nats://127.0.0.1:4222", url),
                ],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
    outputs = [run.communicate(timeout=60) for run in runs]
    assert [run.returncode for run in runs] == [0, 0], outputs
    (theirs, _), (ours, said) = outputs
    assert ours == theirs
    assert ours
    assert said == ""


def test_every_example_is_one_of_a_pair() -> None:
    assert (
        sum(map(len, PAIRS.values()))
        == PAGE.count("```python")
        == PAGE.count("```") / 2
    )
    assert {len(pair) for pair in PAIRS.values()} == {2}


@pytest.mark.parametrize(
    ("title", "kinds"),
    [
        ("Connection", [Client]),
        ("Subscription", [Subscription]),
        ("JetStreamContext", [JetStreamContext, JetStreamManager]),
        ("KeyValue", [KeyValue]),
        ("KeyWatcher", [KeyValue.KeyWatcher]),
        ("ObjectStore", [ObjectStore]),
        ("PushSubscription", [JetStreamContext.PushSubscription]),
        ("PullSubscription", [JetStreamContext.PullSubscription]),
        ("Msg", [Msg]),
        ("Msg.Metadata", [Msg.Metadata]),
    ],
)
def test_the_tables_have_everything_that_nats_py_has(
    title: str, kinds: list[type]
) -> None:
    names = [re.split(r"[(.]", name)[1] for name, _ in rows(title)]
    theirs = public(*kinds)
    if title == "Msg.Metadata":
        theirs |= set(inspect.signature(Msg.Metadata).parameters)
    elif title == "Connection":
        theirs |= {"stats"}
    elif title == "Msg":
        theirs |= {"data", "headers", "reply", "subject"}
    assert set(names) == theirs


def test_tables_have_every_nats_py_option_and_error() -> None:
    options = {name for name, _ in rows("Options of nats.connect")}
    assert options == set(inspect.signature(Client.connect).parameters) - {"self"}
    listed = {name for name, _ in rows("Errors")}
    theirs = {
        f"{module.__name__}.{name}"
        for module in (nats.errors, nats.js.errors)
        for name, kind in vars(module).items()
        if inspect.isclass(kind) and kind.__module__ == module.__name__
    }
    assert listed == theirs


def test_errors_of_the_same_name_catch_as_much() -> None:
    for number, ours in errors.APIError.by_err_code.items():
        code, _, words = SERVER_ERRORS[str(number)]
        reply = {"code": code, "err_code": number, "description": words}
        with pytest.raises(nats.js.errors.APIError) as caught:
            nats.js.errors.APIError.from_error(reply)
        for theirs in caught.type.__mro__[:-3]:
            same = getattr(errors, theirs.__name__, ours)
            assert issubclass(ours, same), (number, theirs, ours)


def test_every_replacement_exists() -> None:
    for title in TABLES:
        for name, ours in rows(title):
            for code in ours:
                assert is_there(title, code), f"{title}: {name}: {code}"


def is_there(title: str, code: str) -> bool:
    if title == "Options of nats.connect":
        return code in inspect.signature(jsync.connect).parameters
    if title == "Errors":
        return hasattr(errors, code)
    path, *rest = re.sub(r"\(.*?\)", "", code).split(".")
    thing: Any = getattr(jsync, title) if path == "sub" else THINGS[path]
    for name in rest:
        if not hasattr(thing, name):
            return False
        path = f"{path}.{name}"
        thing = THINGS.get(path, getattr(thing, name))
    return True


def test_the_arguments_of_every_replacement_exist() -> None:
    for title in TABLES:
        for _, ours in rows(title):
            for code in ours:
                found = re.fullmatch(r"(js|nc|kv|store)\.(\w+)\((.*)\)", code)
                if found is not None and ")" not in found[3]:
                    method = getattr(THINGS[found[1]], found[2])
                    known = {*inspect.signature(method).parameters}
                    if "options" in known:
                        known |= set(jsync.PublishOptions.__annotations__)
                    assert set(re.findall(r"(\w+)=", found[3])) <= known | {"name"}, (
                        code
                    )
