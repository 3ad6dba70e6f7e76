"""Tests that every model is immutable, shows the fields that are set, and is documented."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest

import jsync.models
from jsync.models import (
    AccountInfo,
    AccountLimits,
    ConsumerConfig,
    ConsumerInfo,
    Model,
    Placement,
    PubAck,
    StreamConfig,
    StreamSourceInfo,
    StreamState,
)
from jsync.models.model import fields_of
from jsync.models.server_version import MIN_VERSION, parse_version
from jsync.services.messages import ServiceMessage

from ...support.models import MAX_DURATION_NS


def test_models_are_equal_by_their_fields() -> None:
    one = StreamConfig.from_wire({"max_age": MAX_DURATION_NS - 1, "new": 1})
    assert one == StreamConfig(max_age=one.max_age, extra={"new": 1})
    assert one != StreamConfig(max_age=one.max_age)
    assert one != one.replace(max_age=1)
    assert StreamConfig() != ConsumerConfig()
    assert StreamConfig() != 1
    with pytest.raises(TypeError, match="unhashable"):
        hash(one)


def test_models_do_not_change() -> None:
    config = StreamConfig(name="A")
    with pytest.raises(AttributeError, match="immutable"):
        config.name = "B"  # type: ignore[misc]
    assert config.replace(name="B", max_age=1) == StreamConfig(name="B", max_age=1)
    assert config == StreamConfig(name="A")
    assert not config != StreamConfig(name="A")  # noqa: SIM202 (`!=` is its own method)
    assert config != StreamConfig(name="B")
    assert config != ConsumerConfig(name="A")
    with pytest.raises(TypeError):
        config.replace(nam="B")
    positional: Any = ("A",)
    with pytest.raises(TypeError):
        StreamConfig(*positional)


# Representations --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "shown"),
    [
        (StreamConfig(), "StreamConfig()"),
        (
            StreamConfig(name="A", max_age=60, placement=Placement(tags=["x"])),
            "StreamConfig(name='A', max_age=60, placement=Placement(tags=['x']))",
        ),
        (StreamConfig(extra={"new": 1}), "StreamConfig(extra={'new': 1})"),
        (ConsumerConfig(), "ConsumerConfig(ack_policy='explicit')"),
        (StreamState.from_wire({"messages": 0, "bytes": 5}), "StreamState(bytes=5)"),
        (
            StreamSourceInfo.from_wire({"name": "A", "type": "io.nats"}),
            "StreamSourceInfo(name='A')",
        ),
        (AccountInfo(limits=AccountLimits()), "AccountInfo()"),
        (PubAck(stream="A", seq=1), "PubAck(stream='A', seq=1)"),
        (
            PubAck(stream="A", seq=2, duplicate=True, domain="d", batch="b", count=2),
            "PubAck(stream='A', seq=2, duplicate=True, domain='d', batch='b', count=2)",
        ),
        (PubAck(stream="A", seq=1, val="7"), "PubAck(stream='A', seq=1, value=7)"),
    ],
)
def test_repr_shows_the_set_fields(model: object, shown: str) -> None:
    assert repr(model) == shown


# Documentation ----------------------------------------------------------------------


def documented_fields(path: Path) -> dict[str, dict[str, str]]:
    """Return the docstrings of the fields of every class of a module."""
    found: dict[str, dict[str, str]] = {}
    for node in ast.parse(path.read_text()).body:
        if not isinstance(node, ast.ClassDef):
            continue
        docs = found.setdefault(node.name, {})
        for field, after in zip(node.body, [*node.body[1:], None], strict=True):
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                match after:
                    case ast.Expr(value=ast.Constant(value=str(words))):
                        docs[field.target.id] = words
                    case _:
                        docs[field.target.id] = ""
    return found


@pytest.mark.parametrize("module", ["stream", "consumer"])
def test_every_configuration_field_names_its_server_version(module: str) -> None:
    path = Path(jsync.models.__file__).with_name(f"{module}.py")
    fields = documented_fields(path)
    for name in ("StreamConfig", "ConsumerConfig"):
        for field, words in fields.get(name, {}).items():
            assert re.search(r"[Ss]ince nats-server 2\.\d+", words), field


@pytest.mark.parametrize("module", ["stream", "consumer", "source"])
def test_newer_fields_are_marked_in_docstring_and_annotation(
    module: str,
) -> None:
    path = Path(jsync.models.__file__).with_name(f"{module}.py")
    for name, fields in documented_fields(path).items():
        kind = getattr(jsync.models, name)
        for field, words in fields.items():
            said = {
                parse_version(version)
                for version in re.findall(
                    r"since (?:nats-server )?(2\.\d+)", words, re.IGNORECASE
                )
            }
            since = fields_of(kind)[field].since
            lines = {since.version, *since.words.values()}
            newer = {line for line in said if line > MIN_VERSION}
            assert newer == {line for line in lines if line > MIN_VERSION}, field


def test_every_model_is_public() -> None:
    ours: set[type[Model]] = {
        *(jsync.KeyValueConfig, jsync.ObjectStoreConfig),
        *ServiceMessage.__subclasses__(),
    }
    for kind in ours.union(Model.__subclasses__()) - {ServiceMessage}:
        home = jsync if kind in ours else jsync.models
        if kind.__module__.startswith("jsync.system."):
            home = jsync.system
        assert getattr(home, kind.__name__) is kind
        assert kind.__name__ in home.__all__
    assert ConsumerInfo.__name__ in jsync.models.__all__
