"""Tests that the example in the docstring of every public class, function and method runs."""

from __future__ import annotations

import inspect
import re
import textwrap
from typing import TYPE_CHECKING, Any

import pytest

import jsync
from jsync.server import LocalServer

from .calls import named_methods

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.server

EXAMPLE = re.compile(
    r"^Example:\n    ```python\n(.*?)^    ```", re.DOTALL | re.MULTILINE
)


def public() -> Iterator[tuple[str, object]]:
    """Yield the public names with their objects, and the methods of the classes."""
    for name in jsync.__all__:
        yield name, (one := getattr(jsync, name))
        for owner in one.__mro__ if inspect.isclass(one) else ():
            if owner.__module__.startswith("jsync"):
                for member, method in vars(owner).items():
                    if inspect.isroutine(method):
                        yield f"{owner.__name__}.{member}", method


def example(one: object) -> str | None:
    """Return the code of the example in a docstring."""
    docstring = inspect.cleandoc(getattr(one, "__doc__", None) or "")
    found = EXAMPLE.search(docstring)
    return found and textwrap.dedent(found[1])


EXAMPLES = {name: code for name, one in public() if (code := example(one)) is not None}


@pytest.fixture(scope="module")
def only_server() -> Iterator[LocalServer]:
    with LocalServer() as server:
        yield server


@pytest.fixture
def names(only_server: LocalServer) -> Iterator[dict[str, Any]]:
    """The names that an example may use, as the page of the connection says."""
    with jsync.connect(only_server.url) as nc:
        js = nc.jetstream()
        stream = js.create_stream(
            name="ORDERS",
            subjects=["orders.>"],
            allow_direct=True,
            allow_atomic=True,
            allow_batched=True,
        )
        for number in range(1, 4):
            js.publish("orders.new", b'{"id": %d}' % number)
        yield {
            "jsync": jsync,
            "nc": nc,
            "js": js,
            "stream": stream,
            "kv": js.create_key_value(bucket="config"),
            "store": js.create_object_store(bucket="files"),
        }
        for name in list(js.stream_names()):
            js.delete_stream(name)


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_example_of_a_docstring_runs(
    name: str, only_server: LocalServer, names: dict[str, Any]
) -> None:
    code = EXAMPLES[name].replace("nats://127.0.0.1:4222", only_server.url)
    given = names["nc"]
    exec(compile(code, f"the example of {name}", "exec"), names)
    if names["nc"] is not given:  # the example made another connection
        names["nc"].close()


def test_each_method_on_a_page_has_an_example() -> None:
    methods = named_methods()
    assert len(methods) > 100
    assert [name for name, one in methods.items() if example(one) is None] == []
