"""Shared parts of the tests of the models."""

from __future__ import annotations

from datetime import UTC, datetime

import jsync.models
from jsync.models import Model

MAX_DURATION_NS = (1 << 63) - 1
NOON = datetime(2026, 1, 2, 12, 0, 0, 250_000, tzinfo=UTC)
MODELS = [
    value
    for value in vars(jsync.models).values()
    if isinstance(value, type) and issubclass(value, Model) and value is not Model
]


class Dictable:
    def __init__(self, **wire: object) -> None:
        self.wire = wire

    def as_dict(self) -> dict[str, object]:
        return self.wire
