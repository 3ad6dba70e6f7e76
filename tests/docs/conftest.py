"""The tests of this directory need the group `docs`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def config_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commands of pages neither read nor change the contexts of this machine."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


def pytest_itemcollected(item: pytest.Item) -> None:
    item.add_marker("docs")
