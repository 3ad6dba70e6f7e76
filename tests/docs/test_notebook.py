"""Tests that the notebook runs against a real server and gives the outputs in its file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from .notebook import NOTEBOOK, executed, stored, texts

if TYPE_CHECKING:
    from ..conftest import StartServer

pytestmark = pytest.mark.server


def test_the_notebook_runs_and_its_output_is_current(
    own_server: StartServer,
) -> None:
    shown = texts(stored())
    assert texts(executed(own_server().url)) == shown
    assert ["image/png"] in shown


def test_the_notebook_stays_small() -> None:
    assert NOTEBOOK.stat().st_size < 100_000
