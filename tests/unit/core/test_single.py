"""Tests of the active objects of a connection when Ctrl-C comes while one is being made."""

from __future__ import annotations

import gc
import inspect
import sys
from typing import TYPE_CHECKING, Any

import pytest

import jsync
from jsync.core.resources import NotCopyable
from jsync.jetstream.pulls.pull import Pull

if TYPE_CHECKING:
    from collections.abc import Iterator


def below(kind: type[Any]) -> Iterator[type[Any]]:
    for one in kind.__subclasses__():
        if not inspect.isabstract(one):
            yield one
        yield from below(one)


def test_every_class_with_one_reader_is_listed() -> None:
    assert {jsync.Batch, jsync.OrderedBatch, jsync.Publisher} <= set(below(NotCopyable))


# The public names are lazy. Without this, other tests would decide which classes there are.
for _name in jsync.__all__:
    getattr(jsync, _name)


@pytest.mark.parametrize("kind", [*below(NotCopyable), Pull, *below(Pull)])
def test_a_half_made_object_is_collected_without_errors(
    kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", told.append)
    kind.__new__(kind)
    gc.collect()
    assert not told
