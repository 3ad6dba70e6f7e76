"""Fixtures of the fault campaigns."""

from __future__ import annotations

from pathlib import Path

import pytest

from ..support.campaign import Campaign

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test in this folder as a fault campaign."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.fault)


@pytest.fixture
def campaign(request: pytest.FixtureRequest) -> Campaign:
    """The bounds of this test. pytest shows the seed if the test fails."""
    bounds = Campaign(request.node.name)
    print(bounds)  # noqa: T201 (pytest shows it if the test fails)
    return bounds
