"""The columns of a frame, as parts of a message. Pure."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ...errors import ConfigError
from ..server_columns import GIVEN

if TYPE_CHECKING:
    from collections.abc import Sequence

_WHOLE: Final = ("tinyint", "smallint", "int", "bigint")
_TEXT: Final = ("string",)

KINDS: Final[dict[str, tuple[str, ...]]] = {
    "subject": _TEXT,
    "data": ("binary", "string"),
    "headers": ("map<string,string>", "map<string,array<string>>"),
    "msg_id": _TEXT,
    "ttl": (*_WHOLE, "string"),
    "expected_stream": _TEXT,
    "expected_last_sequence": _WHOLE,
    "expected_last_subject_sequence": _WHOLE,
    "expected_last_msg_id": _TEXT,
}
"""The columns of the sink, and the types that Spark may have for each."""

OPTIONS: Final = tuple(name for name in KINDS if name not in ("subject", "data"))
"""Columns with options of a message, named as the arguments of `publish_arrow`."""

_ELSEWHERE: Final = {"key": "subject", "topic": "subject", "value": "data"}


@dataclass(frozen=True)
class ColumnPlan:
    """The columns of one write, in their order."""

    names: tuple[str, ...]
    subject: str | None = None
    """The subject of all rows, if there is no such column."""

    @classmethod
    def of(
        cls, fields: Sequence[tuple[str, str]], subject: str | None = None
    ) -> ColumnPlan:
        """Read the names and Spark's types of columns. Raises `ConfigError` for invalid ones."""
        _check_given([name for name, _ in fields if name.lower() in GIVEN])
        for name, kind in fields:
            _check(name, kind)
        names = tuple(name.lower() for name, _ in fields)
        for name in names:
            if names.count(name) > 1:
                raise ConfigError(
                    f"two columns have the name {name}: rename or drop one"
                )
        if "data" not in names:
            raise ConfigError(
                "there is no column data, the payload: make one, for example with "
                'to_json(struct("*")).alias("data")'
            )
        if subject is None and "subject" not in names:
            raise ConfigError(
                "no subject to publish to: give the option subject, or a column subject"
            )
        if subject is not None and "subject" in names:
            raise ConfigError(
                "subject is given as option and as column: drop one of them"
            )
        return cls(names, subject)

    def has(self, name: str) -> bool:
        return name in self.names

    @property
    def expectations(self) -> tuple[str, ...]:
        """The columns by which a stream may refuse a message that it has already."""
        return tuple(name for name in self.names if name.startswith("expected_last"))


def _check_given(names: Sequence[str]) -> None:
    if not names:
        return
    which = (
        f"column {names[0]}: drop it"
        if len(names) == 1
        else f"columns {', '.join(names)}: drop them"
    )
    raise ConfigError(
        f"the server gives the {which}. In SQL, create a table, and "
        "insert into t (subject, data); or a view of the columns that you write, as in "
        "create temporary view v (subject string, data string) using jetstream ..."
    )


def _check(name: str, kind: str) -> None:
    kinds = KINDS.get(name.lower())
    if kinds is None:
        near = difflib.get_close_matches(name.lower(), KINDS, n=1)
        known = _ELSEWHERE.get(name.lower()) or (near[0] if near else None)
        hint = (
            f"is it {known}? Rename it, or drop it"
            if known
            else f"drop it; there are {', '.join(KINDS)}"
        )
        raise ConfigError(f"a message has no {name}: {hint}")
    if kind.split(" collate")[0] not in kinds:
        raise ConfigError(
            f"the column {name} is {kind}, and has to be {' or '.join(kinds)}: cast it"
        )
