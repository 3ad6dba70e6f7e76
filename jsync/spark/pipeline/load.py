"""Read a pipeline's file: TOML into the Structs of `config`, with every error's line."""

from __future__ import annotations

import os
import re
import tomllib
from datetime import date, datetime
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args, get_origin

import msgspec

from ..options import NATS, SINK, SOURCE
from .config import (
    ConsoleSink,
    FileSink,
    FileSource,
    FormatSink,
    FormatSource,
    JetStreamSink,
    JetStreamSource,
    Pipeline,
    Spark,
    Streaming,
    ViewStep,
    Watermark,
)
from .diagnostics import Diagnostics, file_error, nearest
from .formats import PACKAGES, is_format
from .toml_lines import Key, KeyLines

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

T = TypeVar("T", bound=msgspec.Struct)
U = TypeVar("U", bound=msgspec.Struct)

_TABLES = ("name", "spark", "nats", "streaming", "sources", "steps", "sinks")
_FILES = ("parquet", "csv", "ndjson", "json", "orc")
_SOURCES: dict[str, type[JetStreamSource | FileSource]] = {
    "jetstream": JetStreamSource,
    **dict.fromkeys(_FILES, FileSource),
}
_SINKS: dict[str, type[JetStreamSink | FileSink | ConsoleSink]] = {
    "jetstream": JetStreamSink,
    **dict.fromkeys(_FILES, FileSink),
    "console": ConsoleSink,
}
_OPTIONS: dict[type[msgspec.Struct], tuple[str, ...]] = {
    JetStreamSource: (*SOURCE, *NATS),
    JetStreamSink: (*SINK, *NATS),
}
_VARIABLE = re.compile(r"\$(?:(\$)|\{(\w+)\})")


def load(
    path: Path, environment: Mapping[str, str] = os.environ
) -> tuple[Pipeline | None, Diagnostics]:
    """Read the file. If it has problems, the pipeline is None.

    `${NAME}` in a value other than SQL is replaced by the environment variable NAME. Raises
    `PipelineFileError` if the file cannot be read or is not TOML.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise file_error(path, [(1, f"cannot be read: {reason}")]) from error
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        message, line = _toml_error(str(error), text)
        raise file_error(path, [(line, message)]) from None
    problems = Diagnostics(path, KeyLines(text))
    reader = _FileReader(problems, environment)
    pipeline = reader.pipeline(document, path.stem)
    return (None if problems else pipeline), problems


def _toml_error(message: str, text: str) -> tuple[str, int]:
    place = re.search(r" \(at (?:line (\d+), column \d+|end of document)\)$", message)
    if place is None:
        return f"this is not TOML: {message}", 1
    line = int(place[1]) if place[1] else text.rstrip("\n").count("\n") + 1
    return f"this is not TOML: {message[: place.start()]}", line


class _FileReader:
    def __init__(self, problems: Diagnostics, environment: Mapping[str, str]) -> None:
        self._problems = problems
        self._environment = environment

    def pipeline(self, document: dict[str, Any], name: str) -> Pipeline:
        for unknown in document.keys() - set(_TABLES):
            self._unknown((unknown,), _TABLES)
        for missing in {"sources", "sinks"} - document.keys():
            self._problems.add(
                (), f"there is no [{missing}.NAME]: a pipeline has one at least"
            )
        sources = {
            source: self._by_format(table, ("sources", source), _SOURCES, FormatSource)
            for source, table in self._table(document, "sources").items()
        }
        steps = {
            step: self._step(value, ("steps", step))
            for step, value in self._table(document, "steps").items()
        }
        sinks = {
            sink: self._by_format(table, ("sinks", sink), _SINKS, FormatSink)
            for sink, table in self._table(document, "sinks").items()
        }
        spark = self._struct(Spark, document.get("spark", {}), ("spark",))
        streaming = (
            self._struct(Streaming, document["streaming"], ("streaming",))
            if "streaming" in document
            else None
        )
        return Pipeline(
            name=self._value(str, document.get("name", name), ("name",)) or name,
            spark=spark or Spark(),
            nats=self._options(document.get("nats", {}), ("nats",)),
            streaming=streaming,
            sources={name: source for name, source in sources.items() if source},
            steps={name: step for name, step in steps.items() if step},
            sinks={name: sink for name, sink in sinks.items() if sink},
        )

    def _table(self, document: dict[str, Any], name: str) -> dict[str, Any]:
        table = document.get(name, {})
        if isinstance(table, dict):
            return table
        self._problems.add((name,), f"has to be a table: [{name}.NAME]")
        return {}

    def _by_format(
        self, table: object, key: Key, formats: Mapping[str, type[T]], other: type[U]
    ) -> T | U | None:
        """Read a table as its format requires. Spark may know more than these formats."""
        if not isinstance(table, dict):
            self._problems.add(key, f"has to be a table: [{'.'.join(key)}]")
            return None
        if "format" not in table:
            self._problems.add(key, f"'format' is missing: {', '.join(formats)}")
            return None
        given = table["format"]
        kind = formats.get(given) if isinstance(given, str) else None
        if kind is not None:
            return self._struct(kind, table, key)
        if isinstance(given, str) and is_format(given, formats):
            return self._struct(other, table, key)
        hint = nearest(str(given), [*formats, *PACKAGES])
        self._problems.add((*key, "format"), f"there is no format {given!r}{hint}")
        return None

    def _step(self, value: object, key: Key) -> ViewStep | None:
        if isinstance(value, str):
            return ViewStep(sql=value)
        return self._struct(ViewStep, value, key)

    def _struct(self, kind: type[T], table: object, key: Key) -> T | None:
        if not isinstance(table, dict):
            self._problems.add(key, "has to be a table")
            return None
        fields = {field.encode_name: field for field in msgspec.structs.fields(kind)}
        for unknown in table.keys() - fields.keys():
            if unknown in _OPTIONS.get(kind, ()):
                message = f"is an option: write options = {{ {unknown} = ... }}"
                self._problems.add((*key, unknown), message)
            else:
                self._unknown((*key, unknown), fields)
        values: dict[str, Any] = {}
        complete = True
        for name, field in fields.items():
            if name in table:
                value = self._value(field.type, table[name], (*key, name))
                complete = complete and value is not None
                values[field.name] = value
            elif field.required:
                self._problems.add(key, f"{name!r} is missing")
                complete = False
        return kind(**values) if complete else None

    def _value(self, kind: Any, value: object, key: Key) -> Any:
        """Return `value` as `kind`, or None after a problem."""
        if kind == dict[str, str]:
            return self._options(value, key)
        if Watermark in get_args(kind):
            return self._struct(Watermark, value, key)
        if get_origin(kind) is Literal and value not in get_args(kind):
            hint = nearest(str(value), get_args(kind))
            self._problems.add(key, f"cannot be {value!r}{hint}")
            return None
        if isinstance(value, str) and key[0] != "steps":
            value = self._expand(value, key)
            if value is None:
                return None
        try:
            return msgspec.convert(value, kind)
        except msgspec.ValidationError as error:
            # TOML has no null: an optional key is one that may be None.
            message = str(error).replace("`", "").replace(" | null", "")
            self._problems.add(key, message)
            return None

    def _options(self, table: object, key: Key) -> dict[str, str]:
        if not isinstance(table, dict):
            self._problems.add(key, "has to be a table of options")
            return {}
        options = {}
        for name, value in table.items():
            text = self._option(value, (*key, name))
            if text is not None:
                options[name] = text
        return options

    def _option(self, value: object, key: Key) -> str | None:
        """Return an option as text, which Spark requires, or None after a problem."""
        match value:
            case str():
                return self._expand(value, key)
            case bool():
                return "true" if value else "false"
            case int() | float():
                return str(value)
            case datetime() | date():
                return value.isoformat()
            case list() if all(isinstance(part, str) for part in value):
                parts = [self._expand(part, key) for part in value]
                return ",".join(part for part in parts if part is not None)
            case _:
                self._problems.add(
                    key, "has to be a text, a number, a time, true or false"
                )
                return None

    def _expand(self, text: str, key: Key) -> str | None:
        missing = [
            name
            for dollar, name in _VARIABLE.findall(text)
            if not dollar and name not in self._environment
        ]
        for name in missing:
            self._problems.add(key, f"the environment variable {name} is not set")
        if missing:
            return None
        return _VARIABLE.sub(lambda m: m[1] or self._environment[m[2]], text)

    def _unknown(self, key: Key, known: Any) -> None:
        self._problems.add(key, f"there is no such key{nearest(key[-1], known)}")
