"""Rows of files in NDJSON, CSV, Parquet or lines.

A reader yields rows lazily, in their order. For a row that it cannot read, it yields a
`BadRowError` with the position, and continues with the next row.
"""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass, field
from math import isfinite, isinf
from typing import IO, TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from jsync.errors import ConfigError

from .errors import BadRowError, BadValueError
from .files import DECOMPRESSION_ERRORS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import Self

    from .files import Source

_INDEX: Final = "index"
"""The name for a first column without one."""
_MAX_FIELD: Final = 64 << 20
_ENCODE: Final = msgspec.json.Encoder(enc_hook=str).encode


class Row(NamedTuple):
    """A row of a file."""

    number: int
    """The line in which it begins, from 1. In Parquet, the number of the row."""
    fields: Mapping[str, Any]
    """The columns, empty for a format without names."""
    data: bytes
    """The payload of the message."""


@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """The options for reading files."""

    delimiter: str | None = None
    """The character between the columns of CSV. Default: a comma, a tab for TSV."""
    header: tuple[str, ...] = ()
    """The columns of CSV without a header."""
    infer: bool = False
    """True to convert texts of CSV that look exactly like a number or truth value."""
    types: Mapping[str, str] = field(default_factory=dict)
    """The types of columns of CSV: `text`, `int`, `float` or `bool`."""
    nulls: frozenset[str] = field(default_factory=frozenset)
    """The texts of CSV that mean a missing value."""
    data: str | None = None
    """The column with the payload. Default: all columns, as a JSON object."""

    def __post_init__(self) -> None:
        if self.delimiter is not None and len(self.delimiter) != 1:
            raise ConfigError(f"delimiter: one character, not {self.delimiter!r}")
        if len(set(self.header)) < len(self.header) or "" in self.header:
            raise ConfigError("header: each column needs a name of its own")
        for column, kind in self.types.items():
            if kind not in TYPES:
                raise ConfigError(
                    f"types: {column}={kind}: the types are {', '.join(TYPES)}"
                )


class Rows:
    """The rows of one source, as an iterable."""

    def __init__(
        self,
        source: Source,
        columns: tuple[str, ...] | None,
        rows: Iterator[Row | BadRowError],
        total: int | None = None,
    ) -> None:
        self.source = source
        self.columns = columns
        """The names of the columns, or None if they differ from row to row."""
        self.total = total
        """The number of rows, if it is known."""
        self._rows = rows

    def __iter__(self) -> Iterator[Row | BadRowError]:
        """Iterate over the rows.

        Raises `BadRowError` if the file is damaged or was cut off.
        """
        try:
            yield from self._rows
        except DECOMPRESSION_ERRORS as error:
            raise _damaged(self.source, error) from error


def _damaged(source: Source, error: Exception) -> BadRowError:
    return BadRowError(f"{source.name} is damaged: {error}")


def open_rows(source: Source, reading: ReadOptions) -> Rows:
    """Start to read a source, up to the names of its columns."""
    if reading.data is not None and source.format == "lines":
        raise ConfigError("data: the format lines has no columns")
    try:
        rows = _READERS[source.format](source, reading)
    except DECOMPRESSION_ERRORS as error:
        raise _damaged(source, error) from error
    if (
        reading.data is not None
        and rows.columns is not None
        and reading.data not in rows.columns
    ):
        raise ConfigError(
            f"data: {source.name} has no column {reading.data!r}; it has "
            f"{', '.join(rows.columns)}"
        )
    return rows


def payload(fields: Mapping[str, Any], column: str | None) -> bytes:
    """Return the payload of a row: one column unchanged, or all of them as JSON."""
    if column is None:
        return _ENCODE(fields)
    if column not in fields:
        raise BadValueError(f"the row has no {column!r} for the message")
    value = fields[column]
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytes):
        return value
    return _ENCODE(value)


# Lines --------------------------------------------------------------------------------


def _lines(source: Source, reading: ReadOptions) -> Rows:
    def rows() -> Iterator[Row | BadRowError]:
        for number, line in enumerate(source.file, 1):
            yield Row(number, {}, line.rstrip(b"\r\n"))

    return Rows(source, (), rows())


def _ndjson(source: Source, reading: ReadOptions) -> Rows:
    decode = msgspec.json.Decoder().decode
    data = reading.data

    def rows() -> Iterator[Row | BadRowError]:
        for number, line in enumerate(source.file, 1):
            text = line.strip()
            if number == 1:
                text = text.removeprefix(b"\xef\xbb\xbf")
            if not text:
                continue
            try:
                value = decode(text)
                fields = value if isinstance(value, dict) else {}
                yield Row(
                    number, fields, text if data is None else payload(fields, data)
                )
            except (
                msgspec.DecodeError,
                UnicodeDecodeError,
                RecursionError,
                BadValueError,
            ) as error:
                yield source.bad_row(number, str(error))

    return Rows(source, None, rows())


# CSV ----------------------------------------------------------------------------------


def _csv(source: Source, reading: ReadOptions) -> Rows:
    csv.field_size_limit(_MAX_FIELD)
    delimiter = reading.delimiter or ("\t" if source.format == "tsv" else ",")
    lines = _Text(source)
    try:
        table = csv.reader(lines, delimiter=delimiter, strict=True)
        header = list(reading.header) or next(table, [])
    except (csv.Error, UnicodeDecodeError) as error:
        raise ConfigError(f"{source.name}: {error}") from error
    if not header:
        raise ConfigError(f"{source.name} is empty: CSV begins with a header")
    if header[0] == "" and _INDEX not in header:
        header[0] = _INDEX  # pandas and R write the index without a name
    if len(set(header)) < len(header) or "" in header:
        raise ConfigError(
            f"{source.name}: each column needs a name of its own, not {header}: if "
            "the first line is not a header, give the names with --header"
        )
    if missing := [column for column in reading.types if column not in header]:
        raise ConfigError(
            f"types: {source.name} has no column {missing[0]!r}; it has {', '.join(header)}"
        )
    return Rows(source, tuple(header), _csv_rows(source, reading, lines, table, header))


def _csv_rows(
    source: Source, reading: ReadOptions, lines: _Text, table: Any, header: list[str]
) -> Iterator[Row | BadRowError]:
    width, data = len(header), reading.data
    converters = [_converter(reading, column) for column in header]
    converts = any(converters)
    while True:
        number = lines.number + 1
        try:
            values = next(table)
        except StopIteration:
            return
        except (csv.Error, UnicodeDecodeError) as error:
            # A quote that is never closed spans all lines after it.
            end = f" (up to line {lines.number})" if lines.number > number else ""
            yield source.bad_row(number, f"{error}{end}")
            continue
        if not values:
            continue
        if len(values) != width:
            what = f"{len(values)} columns, but the header has {width}"
            yield source.bad_row(number, what)
            continue
        fields = dict(zip(header, values, strict=True))
        if converts:
            try:
                for column, convert in zip(header, converters, strict=True):
                    if convert is not None:
                        fields[column] = convert(fields[column])
            except BadValueError as error:
                yield source.bad_row(number, str(error))
                continue
        yield Row(number, fields, payload(fields, data))


class _Text:
    """Lines of UTF-8. Iteration can continue after a line that raised an error."""

    def __init__(self, source: Source) -> None:
        self._lines = iter(source.file)
        self.number = 0
        """The number of lines so far, including those that are not UTF-8."""

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> str:
        line = next(self._lines)
        self.number += 1
        return line.decode("utf-8-sig" if self.number == 1 else "utf-8")


def _converter(reading: ReadOptions, column: str) -> Callable[[str], Any] | None:
    """Return the function that converts the texts of a column, or None to keep them."""
    nulls = reading.nulls
    if (kind := reading.types.get(column)) is not None:
        read = TYPES[kind]
        # An empty text is not a number, so it means a missing value.
        none = nulls if kind == "text" else nulls | {""}
    elif reading.infer and not nulls:
        return _infer  # which raises no error, and is called for every value
    elif reading.infer:
        read, none = _infer, nulls
    elif nulls:
        read, none = str, nulls
    else:
        return None

    def convert(text: str) -> Any:
        try:
            return None if text in none else read(text)
        except BadValueError as error:
            raise BadValueError(f"{column!r} is {error}") from None

    return convert


def _int(text: str) -> int:
    try:
        return int(_digits(text))
    except ValueError:
        raise BadValueError(f"{text!r}, not a whole number") from None


def _float(text: str) -> float:
    try:
        number = float(_digits(text))
    except ValueError:
        raise BadValueError(f"{text!r}, not a number") from None
    if not isfinite(number):
        raise BadValueError(f"{text!r}, which JSON cannot hold")
    return number


def _digits(text: str) -> str:
    """Return the text.

    Raises `ValueError` for a number that only Python reads, such as `1_000`.
    """
    if "_" in text or not text.isascii():
        raise ValueError(text)
    return text


def _bool(text: str) -> bool:
    try:
        return _TRUTH[text.lower()]
    except KeyError:
        raise BadValueError(f"{text!r}, not true or false") from None


TYPES: Final[dict[str, Callable[[str], Any]]] = {
    "text": str,
    "int": _int,
    "float": _float,
    "bool": _bool,
}


def _infer(text: str) -> Any:
    """Return the number or truth value that has exactly this text, or else the text."""
    if text in _TRUTH:
        return _TRUTH[text]
    first = text[:1]
    if not (first.isdigit() or first == "-") or not text.isascii():
        return text
    digits = text.removeprefix("-")
    if digits.isdigit():
        # A number with a leading zero is an id or a postcode, so keep it as text.
        exact = (digits[0] != "0" or text == "0") and len(digits) < 19
        return int(text) if exact else text
    try:
        number = float(text)
    except ValueError:
        return text
    return number if repr(number) == text else text


_TRUTH: Final = {"true": True, "false": False}


# Parquet ------------------------------------------------------------------------------


def _parquet(source: Source, reading: ReadOptions) -> Rows:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise ConfigError(
            f"{source.name}: Parquet needs pyarrow: pip install pyarrow"
        ) from None
    try:
        file = pyarrow.parquet.ParquetFile(_seekable(source))
    except pyarrow.ArrowException as error:
        raise ConfigError(f"{source.name} is not Parquet: {error}") from error

    names = tuple(file.schema_arrow.names)
    if len(set(names)) < len(names):
        raise ConfigError(
            f"{source.name}: each column needs a name of its own, not {list(names)}"
        )
    floats = [
        column.name
        for column in file.schema_arrow
        if (pyarrow.types.is_floating(column.type) or column.type.num_fields)
        and reading.data in (None, column.name)
    ]

    def rows() -> Iterator[Row | BadRowError]:
        number = 0
        batches = file.iter_batches(batch_size=5000)
        while True:
            try:
                batch = next(batches, None)
            except pyarrow.ArrowException as error:
                raise _damaged(source, error) from error
            if batch is None:
                break
            for fields in batch.to_pylist():
                number += 1
                try:
                    _check_finite(fields, floats)
                    yield Row(number, fields, payload(fields, reading.data))
                except (BadValueError, msgspec.MsgspecError) as error:
                    yield source.bad_row(number, str(error))

    return Rows(source, names, rows(), file.metadata.num_rows)


def _check_finite(fields: Mapping[str, Any], floats: list[str]) -> None:
    """Check that JSON can hold the floats.

    Raises `BadValueError` for an infinite value. NaN is allowed, because it stands for
    a missing value.
    """
    for column in floats:
        value = fields[column]
        if (found := _infinite(value)) is not None:
            verb = "is" if found is value else "has"
            raise BadValueError(f"{column!r} {verb} {found}, which JSON cannot hold")


def _infinite(value: Any) -> float | None:
    """Return the first infinite number in a value of Parquet, or None."""
    if isinstance(value, float):
        return value if isinf(value) else None
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, list | tuple):  # a map is a list of pairs
        return None
    found = map(_infinite, value)
    return next((number for number in found if number is not None), None)


def _seekable(source: Source) -> IO[bytes]:
    if source.file.seekable():
        return source.file
    # A Parquet file has its schema at the end, so read the whole pipe.
    return io.BytesIO(source.file.read())


_READERS: Final[dict[str, Callable[[Source, ReadOptions], Rows]]] = {
    "ndjson": _ndjson,
    "csv": _csv,
    "tsv": _csv,
    "parquet": _parquet,
    "lines": _lines,
}
