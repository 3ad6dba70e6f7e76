"""NATS message headers (ADR-4): case-sensitive names, each with one or more values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeAlias

from .errors import InvalidHeaderError

HeadersLike: TypeAlias = Mapping[str, str | Iterable[str]]
"""The headers that publishing calls accept: one value or several for each name."""


class Headers(Mapping[str, str]):
    """The headers of a message, read-only.

    As a mapping, it has the first value of each name. `get_all` returns all values of a
    name. Names are case-sensitive, and keep the spelling of the sender. Bytes that are
    not UTF-8 appear as lone surrogates (`surrogateescape`) and survive a resend.
    (ADR-4)

    Raises:
        InvalidHeaderError: The argument is not a mapping of names to values.

    Example:
        ```python
        headers = jsync.Headers({"Trace": "4711", "Tag": ["a", "b"]})
        print(headers["Tag"], headers.get_all("Tag"))
        ```
    """

    __slots__ = ("_values",)

    def __init__(self, values: HeadersLike = {}, /) -> None:  # noqa: B006 (never changed)
        if isinstance(values, Headers):
            self._values: dict[str, list[str]] = values._values
        else:
            items = getattr(values, "items", None)
            if items is None:
                raise InvalidHeaderError(
                    "headers are a mapping of names to values, not "
                    f"{type(values).__name__}"
                )
            lists = ((name, _values_of(name, value)) for name, value in items())
            self._values = {name: values for name, values in lists if values}

    def __getitem__(self, name: str) -> str:
        return self._values[name][0]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, name: object) -> bool:
        # The method of `Mapping` raises and catches, which takes ten times as long.
        return name in self._values

    def get_all(self, name: str) -> list[str]:
        """Get all values of a header, in the order in which they were sent.

        Args:
            name: The name of the header, case-sensitive.

        Returns:
            The values. An empty list if there are none.
        """
        return list(self._values.get(name, ()))

    def pairs(self) -> Iterator[tuple[str, str]]:
        """Iterate over all names and values, repeated names included."""
        for name, values in self._values.items():
            for value in values:
                yield name, value

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Headers):
            return self._values == other._values
        if isinstance(other, Mapping):
            try:
                return self._values == Headers(other)._values
            except InvalidHeaderError:
                return False
        return NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        shown = {n: v[0] if len(v) == 1 else v for n, v in self._values.items()}
        return f"Headers({shown!r})"


def _values_of(name: object, value: object) -> list[str]:
    """Return the values of a header. The encoder of messages checks that each is a str."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, Iterable):
        return list(value)
    raise InvalidHeaderError(
        f"header {name!r} has a value of type {type(value).__name__}: "
        "values are str, or several of them"
    )
