"""The tests of this directory need the group `docs`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest


def pytest_itemcollected(item: pytest.Item) -> None:
    item.add_marker("docs")
