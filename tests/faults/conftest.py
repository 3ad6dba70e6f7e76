"""Fixtures of the fault campaigns."""

from __future__ import annotations

import pytest

from ..support.campaign import Campaign


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark a test in this folder as a fault campaign."""
    item.add_marker(pytest.mark.fault)


@pytest.fixture
def campaign(request: pytest.FixtureRequest) -> Campaign:
    """The bounds of this test. pytest shows the seed if the test fails."""
    bounds = Campaign(request.node.name)
    print(bounds)  # noqa: T201 (pytest shows it if the test fails)
    return bounds
