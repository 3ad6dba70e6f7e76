"""The schema of JSON payloads, from samples, in Spark's DDL. Pure."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LONG_LIMIT: Final = 2**63


@dataclass
class InferredType:
    """The type of a value, as far as samples show it."""

    name: str = "null"
    """`null`, `boolean`, `bigint`, `double`, `string`, `array`, `struct` or `decimal`."""
    items: InferredType | None = None
    """The type of the items of an array."""
    fields: dict[str, InferredType] = field(default_factory=dict)
    """The fields of a struct, in the order in which they first appeared."""
    present: int = 0
    """The number of samples that have the value."""

    def ddl(self) -> str:
        """Return the type in Spark's DDL."""
        if self.name == "array":
            return f"array<{(self.items or InferredType()).ddl()}>"
        if self.name == "struct" and self.fields:
            inner = (f"{quoted(n)}: {kind.ddl()}" for n, kind in self.fields.items())
            return f"struct<{', '.join(inner)}>"
        if self.name == "decimal":
            return "decimal(38,0)"
        return "string" if self.name in ("null", "struct") else self.name

    def add(self, value: Any) -> None:
        """Take in one more value."""
        self.present += 1
        name = _name(value)
        if name == "null":
            return
        if self.name == "null":
            self.name = name
        elif self.name != name:
            self.name = _wider(self.name, name)
        if self.name == "array" and isinstance(value, list):
            self.items = self.items or InferredType()
            for item in value:
                self.items.add(item)
        if self.name == "struct" and isinstance(value, dict):
            for key, item in value.items():
                self.fields.setdefault(key, InferredType()).add(item)


def quoted(name: str) -> str:
    """Return the name of a column, in backticks if it needs them."""
    return name if _PLAIN.fullmatch(name) else f"`{name.replace('`', '``')}`"


def _name(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "bigint" if -_LONG_LIMIT <= value < _LONG_LIMIT else "decimal"
        case float():
            return "double"
        case list():
            return "array"
        case dict():
            return "struct"
        case _:
            return "string"


def _wider(one: str, other: str) -> str:
    numbers = {"bigint": 0, "decimal": 1, "double": 2}
    if one in numbers and other in numbers:
        return max(one, other, key=lambda name: numbers[name])
    return "string"  # for other values, Spark returns the JSON text


@dataclass
class Inference:
    """The schema of payloads, as samples show it."""

    samples: int = 0
    malformed: int = 0
    """Samples that are not a JSON object."""
    payload: InferredType = field(default_factory=lambda: InferredType("struct"))

    @property
    def schema(self) -> str:
        """The columns in Spark's DDL: the option `json` of a source."""
        fields = self.payload.fields.items()
        return ", ".join(f"{quoted(name)} {kind.ddl()}" for name, kind in fields)

    @classmethod
    def of(cls, payloads: Iterable[bytes]) -> Inference:
        """Look at samples."""
        found = cls()
        for payload in payloads:
            found.samples += 1
            try:
                value = json.loads(payload)
            except (ValueError, RecursionError):
                value = None
            if isinstance(value, dict):
                found.payload.add(value)
            else:
                found.malformed += 1
        return found
