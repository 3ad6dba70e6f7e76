"""Tests of the errors that tell users of nats-py the right name."""

from __future__ import annotations

import ast
import inspect
import re
from typing import TYPE_CHECKING, Any

import nats.errors
import nats.js.errors
import pytest
from nats.aio.client import Client
from nats.js import JetStreamContext
from nats.js.kv import KeyValue
from nats.js.object_store import ObjectStore

import jsync
from jsync import errors
from jsync.hints import _ATTRIBUTES, _ERRORS, _EXAMPLES, _KEYWORDS, _explained

if TYPE_CHECKING:
    from collections.abc import Callable

CLASSES: list[tuple[type, type]] = [
    (JetStreamContext, jsync.JetStream),
    (KeyValue, jsync.KeyValue),
    (KeyValue.KeyWatcher, jsync.Watch),
    (ObjectStore, jsync.ObjectStore),
    (ObjectStore.ObjectWatcher, jsync.ObjectWatch),
]
CALLS: list[tuple[Callable[..., object], Callable[..., object]]] = [
    (Client.connect, jsync.connect),
    (Client.request, jsync.Connection.request),
    (Client.subscribe, jsync.Connection.subscribe),
    (JetStreamContext.publish, jsync.JetStream.publish),
    *[
        (getattr(KeyValue, name), getattr(jsync.KeyValue, name))
        for name in ("get", "put", "create", "update", "delete", "purge")
    ],
    (KeyValue.purge_deletes, jsync.KeyValue.purge_deletes),
    (KeyValue.watch, jsync.KeyValue.watch),
    *[
        (getattr(ObjectStore, name), getattr(jsync.ObjectStore, name))
        for name in ("get", "list", "put", "update_meta", "watch")
    ],
]
FIELDS: dict[str, dict[str, Any]] = {
    "fields": {
        **jsync.StreamConfig.__annotations__,
        **jsync.ConsumerConfig.__annotations__,
        **jsync.KeyValueConfig.__annotations__,
        **jsync.ObjectStoreConfig.__annotations__,
    },
    "options": {
        **jsync.PublishOptions.__annotations__,
        **jsync.OrderedOptions.__annotations__,
    },
}
"""The names that calls with fields or options take."""
UNKNOWN = {"ServerNotInPoolError", "MsgAlreadyAckdError", "NoKeysError"}
"""The errors of nats-py for conditions that are no error in jsync."""


def blank(kind: type) -> Any:
    """Return an object without a connection, of which only the names count."""
    return object.__new__(kind)


@pytest.mark.parametrize(("theirs", "ours"), CLASSES)
def test_names_of_nats_py_tell_the_right_name(theirs: type, ours: type) -> None:
    missing = [
        name for name in dir(theirs) if name[0] != "_" and not hasattr(ours, name)
    ]
    assert missing
    thing = blank(ours)
    for name in missing:
        with pytest.raises(AttributeError, match=f"{ours.__name__} has no '{name}': "):
            getattr(thing, name)


@pytest.mark.parametrize(
    ("theirs", "ours"), CALLS, ids=[ours.__qualname__ for _, ours in CALLS]
)
def test_keywords_of_nats_py_tell_the_right_one(
    theirs: Callable[..., object], ours: Callable[..., object]
) -> None:
    known = {*inspect.signature(ours).parameters, *jsync.PublishOptions.__annotations__}
    for name in inspect.signature(theirs).parameters:
        if name not in known and name not in {"self", "options"}:
            with pytest.raises(TypeError, match=rf"has no argument '{name}': "):
                ours(**{name: None})


@pytest.mark.parametrize("name", ["host", "port", "url", "server", "username"])
def test_connect_names_the_argument_for_common_words(name: str) -> None:
    with pytest.raises(TypeError, match=rf"has no argument '{name}': use "):
        jsync.connect(**{name: "localhost"})  # type: ignore[arg-type]


def explained(place: str) -> Callable[..., Any]:
    """Return the call of a name of the table of examples."""
    cls, _, name = place.rpartition(".")
    cls = {"KeyValueManager": "JetStream", "ObjectStoreManager": "JetStream"}.get(
        cls, cls
    )
    call: Callable[..., Any] = getattr(getattr(jsync, cls) if cls else jsync, name)
    return call


@pytest.mark.parametrize("place", _EXAMPLES)
def test_arguments_without_a_name_get_an_example(place: str) -> None:
    call = explained(place)
    with pytest.raises(TypeError, match="give each by its name, as in ") as caught:
        call(*["X"] * 5)
    name = place.rpartition(".")[2]
    assert str(caught.value).startswith(f"{name}() got too many arguments")
    assert str(caught.value).endswith(f", as in {_EXAMPLES[place]}")


@pytest.mark.parametrize("place", _EXAMPLES)
def test_the_examples_of_errors_fit(place: str) -> None:
    name, call = place.rpartition(".")[2], explained(place)
    (node,) = ast.parse(_EXAMPLES[place]).body
    assert isinstance(node, ast.Expr)
    assert isinstance(node.value, ast.Call)
    assert ast.unparse(node.value.func) == name
    signature = inspect.signature(call)
    of_an_object = "self" in signature.parameters
    given = {word.arg: None for word in node.value.keywords if word.arg is not None}
    bound = signature.bind(*[None] * (len(node.value.args) + of_an_object), **given)
    for fields, model in FIELDS.items():
        if fields in bound.arguments:
            assert bound.arguments[fields].keys() <= model.keys()


@pytest.mark.parametrize(
    ("place", "given"),
    [
        ("JetStream.consumer", ["ORDERS"]),
        ("KeyValue.update", ["key", b""]),
        ("ObjectStore.get_file", ["a.txt"]),
        ("Connection.service", ["prices"]),
    ],
)
def test_a_missing_argument_gets_an_example(place: str, given: list[object]) -> None:
    with pytest.raises(TypeError, match=r"^\w+\(\) missing 1 .*, as in \w+\('"):
        explained(place)(None, *given)


def test_type_errors_within_a_call_stay() -> None:
    def handle(text: str) -> int:
        return int(text) + text  # type: ignore[operator]

    call: Callable[..., object] = _explained(handle, "Retry", "handle")
    with pytest.raises(TypeError, match="unsupported operand"):
        call("1")
    with pytest.raises(
        TypeError, match=r"handle\(\) got an unexpected .*, as in Retry"
    ):
        call(nonsense="1")


def test_refused_options_of_nats_py_get_hints() -> None:
    def publish(subject: str, **options: object) -> None:
        raise TypeError(f"{subject} has no such option")

    call: Callable[..., object] = _explained(publish, "JetStream.publish", "publish")
    with pytest.raises(TypeError, match="no argument 'payload': use data"):
        call("orders.new", payload=b"")


def test_both_subscribe_calls_hint_at_max_msgs() -> None:
    calls: list[Callable[..., object]] = [
        jsync.Connection.subscribe,
        jsync.JetStream.subscribe,
    ]
    for call in calls:
        assert "callback" in inspect.signature(call).parameters
        with pytest.raises(TypeError, match="'max_msgs': use unsubscribe"):
            call(None, "orders", max_msgs=1)


def test_errors_of_nats_py_tell_the_right_class() -> None:
    for module in (nats.errors, nats.js.errors):
        for name, kind in vars(module).items():
            ours = inspect.isclass(kind) and kind.__module__ == module.__name__
            if ours and not hasattr(errors, name) and name not in UNKNOWN:
                with pytest.raises(AttributeError, match=f"no '{name}': use "):
                    getattr(errors, name)
    for text in _ERRORS.values():
        for name in re.findall(r"\w+Error", text):
            assert hasattr(errors, name)


def test_imports_of_foreign_errors_tell_the_right_class() -> None:
    with pytest.raises(ImportError, match="no 'BadSubjectError': use InvalidSubject"):
        exec("from jsync.errors import BadSubjectError")
    with pytest.raises(ImportError, match="cannot import name 'Nonsense'"):
        exec("from jsync.errors import Nonsense")


def test_attributes_that_nobody_has_get_the_usual_error() -> None:
    for _, kind in CLASSES:
        with pytest.raises(AttributeError, match="object has no attribute 'nonsense'"):
            blank(kind).nonsense  # noqa: B018
    assert not hasattr(errors, "Nonsense")


def test_hints_name_only_what_jsync_lacks() -> None:
    for cls, names in _ATTRIBUTES.items():
        kind = getattr(jsync, cls)
        for name, hint in names.items():
            assert not hasattr(kind, name)
            assert name not in dir(kind)
            for call in re.findall(r"use (\w+)", hint):
                assert call == "jsync" or hasattr(kind, call), hint
    assert not [name for name in _ERRORS if name in dir(errors)]


def test_keyword_hints_name_existing_arguments() -> None:
    for place, names in _KEYWORDS.items():
        cls, _, name = place.rpartition(".")
        cls = {"SubscribeManager": "JetStream"}.get(cls, cls)
        call = getattr(getattr(jsync, cls) if cls else jsync, name)
        known = {
            name
            for name, each in inspect.signature(call).parameters.items()
            if each.kind is not each.VAR_POSITIONAL
        }
        if "options" in known:
            known |= {*jsync.PublishOptions.__annotations__}
        for hint in names.values():
            if word := re.fullmatch(r"use (\w+)", hint):
                assert word[1] in known, (place, hint)
        assert not known & names.keys()


def test_a_misspelled_keyword_gets_the_nearest() -> None:
    connect: Any = jsync.connect
    with pytest.raises(TypeError, match=r"\(did you mean 'on_disconnect'\?\), as in"):
        connect(on_disconnected=print)
    with pytest.raises(TypeError, match="unexpected keyword argument 'zzz', as in"):
        connect(zzz=1)
