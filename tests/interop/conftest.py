"""Fixtures of the tests with other clients."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import jsync

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jsync.server import LocalServer


@pytest.fixture
def nc(server: LocalServer) -> Iterator[jsync.Connection]:
    with jsync.connect(server.url) as connection:
        yield connection
