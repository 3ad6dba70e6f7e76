"""Configurations from options and files, and what an edit changes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ..ui.errors import format_error
from ..ui.info_sections import format_value
from ..ui.output import echo, write_json
from ..ui.stdin import standard_input

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jsync import ConsumerConfig, KeyValueConfig, StreamConfig

    from .settings import Settings

Config = TypeVar("Config", "StreamConfig", "ConsumerConfig", "KeyValueConfig")

config_option = click.option(
    "--config",
    type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path),
    help="A whole configuration in JSON, as from `info --json`.",
)


unset_option = click.option(
    "--unset",
    multiple=True,
    metavar="FIELD",
    callback=lambda ctx, param, fields: [name.replace("-", "_") for name in fields],
    help="A field of the configuration to reset to the server's default. Can be repeated.",
)


def read_config(path: Path, kind: type[Config]) -> Config:
    """Read a configuration in the server's form, alone or as `config` of an info.

    Raises `click.UsageError` if the file cannot be read or has no configuration in
    JSON, and `ConfigError` for a bad value.
    """
    try:
        text = standard_input().read() if str(path) == "-" else path.read_bytes()
        found = json.loads(text)
    except OSError as error:
        raise click.UsageError(format_error(error)) from None
    except (ValueError, RecursionError) as error:
        raise click.UsageError(f"{path} is not JSON: {error}") from None
    if isinstance(found, dict) and isinstance(found.get("config"), dict):
        found = found["config"]
    if not isinstance(found, dict):
        raise click.UsageError(f"{path} has no configuration")
    return kind.parse(found, strict=True)


def base_config(path: Path | None, otherwise: Config) -> Config:
    """Return the configuration that options change: the file's, or `otherwise`."""
    return otherwise if path is None else read_config(path, type(otherwise))


def merge_config(
    path: Path | None, start: Config, changes: Mapping[str, Any], **names: str | None
) -> Config:
    """Return the configuration that results from `start` and the changes.

    `start` was read from the file at `path`, if there is one. `names` are fields from
    arguments of the command line. Raises `click.UsageError` if the file contradicts
    them, and `ConfigError` for a bad value.
    """
    fields = dict(changes)
    for field, name in names.items():
        in_file = getattr(start, field)
        if name and in_file and in_file != name:
            raise click.UsageError(f"{path} configures {in_file!r}, not {name!r}")
        fields[field] = name or in_file
    return start.updated(fields)


def changed_fields(old: Config, new: Config) -> dict[str, Any]:
    """Return the fields that an edit changes, with their new values.

    An update with only these fields keeps what another client changes meanwhile.
    """
    return {name: getattr(new, name) for name in new.differences(old)}


def print_changes(old: Config, new: Config) -> bool:
    """Write the changes of an edit to the standard error.

    Returns whether there are any.
    """
    changes = new.differences(old)
    for name, (after, before) in changes.items():
        words = f"{name}: {format_value(before)} -> {format_value(after)}"
        echo(f"  {words}", err=True)
    if not changes:
        echo("  nothing changes", err=True)
    return bool(changes)


def write_dry_run(old: Config, new: Config, settings: Settings) -> None:
    """Write the result of an edit as JSON, if `--json` is given.

    People have read the changes from `print_changes`.
    """
    if settings.json:
        was, will_be = old.to_wire(), new.to_wire()
        write_json(
            {
                name: {"from": was.get(name), "to": will_be.get(name)}
                for name in new.differences(old)
            }
        )
