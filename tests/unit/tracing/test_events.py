"""Tests of the events in the report of a server about a traced message."""

from __future__ import annotations

import pytest

from jsync.tracing.engine import Ingress


@pytest.mark.parametrize(
    ("kind", "connection"),
    [(0, "client"), (4, "leafnode"), (6, "account"), (7, "7"), (-1, "-1")],
)
def test_an_unknown_kind_of_connection_is_its_number(
    kind: int, connection: str
) -> None:
    assert Ingress(kind=kind).connection == connection
