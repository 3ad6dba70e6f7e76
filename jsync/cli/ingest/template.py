"""Subjects and message ids from the columns of a row: `flights.{carrier}.{origin}`.

Pure: a template is parsed and checked once, and then filled for each row.
"""

from __future__ import annotations

from string import Formatter
from typing import TYPE_CHECKING, Any, Final

from jsync.errors import ConfigError

from .errors import BadValueError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_NO_TOKEN: Final = frozenset(". *>\t\r\n\f\v\0")
_REMEMBERED: Final = 50_000
"""The maximum number of values whose tokens are cached.

Each value of a column with few distinct values is checked only once.
"""


class ColumnTemplate:
    """A text with `{columns}` in it.

    `{{` and `}}` are braces. `{user.id}` is the field `id` of the object in `user`.
    """

    def __init__(self, text: str, what: str) -> None:
        self.text = text
        self.what = what
        """The name of the option, for errors."""
        parts: list[tuple[str, str | None]] = []
        try:
            for literal, column, spec, conversion in Formatter().parse(text):
                if spec or conversion or column == "":
                    raise ConfigError(
                        f"{what}: put only names of columns in braces, in {text!r}"
                    )
                parts.append((literal, column))
        except ValueError as error:
            raise ConfigError(f"{what}: {error}, in {text!r}") from None
        self._parts = parts
        self.columns: tuple[str, ...] = tuple(
            dict.fromkeys(column for _, column in parts if column is not None)
        )

    def check_columns(self, existing: Iterable[str]) -> None:
        """Raise `ConfigError` if `existing` lacks a column of the template."""
        names = list(existing)
        for column in self.columns:
            if column not in names and column.split(".")[0] not in names:
                raise ConfigError(
                    f"{self.what}: there is no column {column!r}; there are {', '.join(names)}"
                )

    def fill(self, fields: Mapping[str, Any]) -> str:
        """Return the text for one row.

        Raises `BadValueError` if the row lacks a value or has no single one.
        """
        return "".join(
            literal if column is None else literal + as_text(self.value(column, fields))
            for literal, column in self._parts
        )

    def value(self, column: str, fields: Mapping[str, Any]) -> Any:
        found: Any = fields.get(column)
        if found is None and column not in fields:
            found = fields
            for name in column.split("."):
                if not isinstance(found, dict) or name not in found:
                    raise BadValueError(
                        f"the row has no {column!r} for the {self.what}"
                    )
                found = found[name]
        if found is None or isinstance(found, dict | list):
            kind = "empty" if found is None else "no single value"
            raise BadValueError(f"{column!r} is {kind}: the {self.what} needs it")
        return found

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.text!r}>"


class SubjectTemplate(ColumnTemplate):
    """A subject with columns as its tokens, or as parts of them.

    A template that is one column and nothing else may hold whole subjects. In all
    others, a value with characters that a token cannot have is an error, and so is an
    empty value. With `replacement`, it takes the place of such characters, and of empty
    and null values.
    """

    def __init__(self, text: str, replacement: str | None = None) -> None:
        super().__init__(text, "subject")
        if replacement is not None and (
            not replacement or _NO_TOKEN & set(replacement)
        ):
            raise ConfigError(
                f"replacement: {replacement!r} cannot be part of a subject's token"
            )
        self._replacement = replacement
        self.is_column = len(self._parts) == 1 and self._parts[0][0] == ""
        self.filter = ">" if self.is_column else self._wildcards()
        """The filter that matches all subjects of the template."""
        self._known: dict[object, str] = {}

    def _wildcards(self) -> str:
        # `*`, which no literal may contain, stands for the columns.
        drawn = "".join(lit + ("" if col is None else "*") for lit, col in self._parts)
        for literal, _ in self._parts:
            if set(literal) & (_NO_TOKEN - {"."}):
                raise ConfigError(
                    f"subject: {self.text!r} has a wildcard or white space"
                )
        tokens = drawn.split(".")
        if not all(tokens):
            raise ConfigError(f"subject: {self.text!r} has an empty token")
        return ".".join("*" if "*" in token else token for token in tokens)

    def fill(self, fields: Mapping[str, Any]) -> str:
        if self.is_column:
            return self._whole(as_text(self.value(self.columns[0], fields)))
        known, parts = self._known, []
        for literal, column in self._parts:
            parts.append(literal)
            if column is not None:
                value = fields.get(column)
                token = known.get(value) if type(value) is str else None
                parts.append(self._token(column, fields) if token is None else token)
        return "".join(parts)

    def _token(self, column: str, fields: Mapping[str, Any]) -> str:
        if self._replacement is not None and fields.get(column, 0) is None:
            return self._replacement
        value = self.value(column, fields)
        token = text = as_text(value)
        wrong = _NO_TOKEN & set(text)
        if wrong and self._replacement is not None:
            token = "".join(self._replacement if c in wrong else c for c in text)
        elif wrong:
            raise BadValueError(
                f"{column!r} is {text!r}, which cannot be part of a subject's token: "
                "--replace-with TEXT replaces such characters"
            )
        if not token:
            if self._replacement is None:
                raise BadValueError(
                    f"{column!r} is empty, but the subject needs it: --replace-with TEXT fills it"
                )
            token = self._replacement
        if type(value) is str and len(self._known) < _REMEMBERED:
            self._known[value] = token
        return token

    def _whole(self, subject: str) -> str:
        if not all(subject.split(".")) or set(subject) & (_NO_TOKEN - {"."}):
            raise BadValueError(
                f"{self.columns[0]!r} is {subject!r}, which is not a subject"
            )
        return subject


def as_text(value: object) -> str:
    """Return a value as text for a subject or an id."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        raise BadValueError("binary values cannot be part of subjects or ids")
    return str(value)


def column_or_template(text: str) -> ColumnTemplate:
    """Return the template of ids in the text, or of the column that the text names."""
    if "{" in text or "}" in text:
        template = ColumnTemplate(text, "id")
        if not template.columns:
            raise ConfigError(
                f"id: {text!r} is the same for all rows: put a column in braces"
            )
        return template
    return ColumnTemplate("{" + text + "}", "id")
