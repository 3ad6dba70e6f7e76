"""`jsync kv`: create buckets of keys, and read and change them."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from jsync import KeyValueConfig, errors

from ..groups import CommandGroup
from ..params.completion import BUCKET, KEY
from ..params.config_file import (
    base_config,
    changed_fields,
    config_option,
    merge_config,
    print_changes,
    unset_option,
    write_dry_run,
)
from ..params.kv_options import bucket_fields, bucket_options, new_bucket_options
from ..params.payloads import read_payloads
from ..params.values import DURATION, Number
from ..ui.entries import EntryFormat, entry_format, write_entries
from ..ui.info_sections import format_config
from ..ui.lists import write_infos, write_names
from ..ui.output import write_json, write_key_values, write_result
from ..ui.prompts import confirm, force_option

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import jsync
    from jsync import KeyValueStatus

    from ..params.settings import Settings

_COLUMNS = ("bucket", "description", "values", "bytes", "history", "last_update")
_BUCKET = click.argument("bucket", type=BUCKET)
_KEY = click.argument("key", type=KEY)
_KEYS = click.argument("keys", type=KEY, nargs=-1, metavar="[KEY]...")
_VALUE = click.argument("value", required=False)
_FILE = click.option(
    "--file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A file with the value.",
)
_LAST = click.option("--last", type=Number(0), help="Require this revision of the key.")


class _KeyValueGroup(CommandGroup):
    # In this group of commands, `create`, `update` and `del` are for keys.
    other_names: Mapping[str, str] = {
        "delete": "del",
        "list": "ls",
        "new": "add",
        "status": "info",
        "view": "info",
    }


@click.group(cls=_KeyValueGroup)
def kv() -> None:
    """Create buckets of keys, and read and change them."""


# Buckets ------------------------------------------------------------------------------


@kv.command("ls", example=("jsync kv ls\njsync kv ls CONFIG 'db.*' --display-value"))
@click.argument("bucket", type=BUCKET, required=False)
@_KEYS
@click.option(
    "--names", "-n", is_flag=True, help="Write only the names of the buckets."
)
@click.option("--verbose", "-v", is_flag=True, help="Show more than the names of keys.")
@click.option("--display-value", is_flag=True, help="Also show the values. Needs -v.")
@click.pass_obj
def list_(
    settings: Settings,
    bucket: str | None,
    keys: tuple[str, ...],
    names: bool,
    verbose: bool,
    display_value: bool,
) -> None:
    """List the buckets, or the keys of one.

    Without BUCKET the command lists the buckets, except mirrors. With BUCKET it lists the
    keys that have a value: all keys, or those that match a KEY. A KEY may have wildcards:
    `db.*`, `db.>`.
    """
    with settings.connect() as nc:
        js = settings.jetstream(nc)
        if bucket is not None:
            _list_keys(js.key_value(bucket), keys, settings, verbose, display_value)
        elif names:
            write_names(js.key_value_names(), settings)
        else:
            write_infos(js.key_value_statuses(), settings, _COLUMNS, _row, _document)


def _list_keys(
    bucket: jsync.KeyValue,
    keys: tuple[str, ...],
    settings: Settings,
    verbose: bool,
    values: bool,
) -> None:
    if not verbose:
        write_names(bucket.keys(*keys), settings)
        return
    with bucket.watch(*keys, headers_only=not values, ignore_deletes=True) as watch:
        write_entries(watch.initial(), settings, values=values)


def _row(status: KeyValueStatus) -> list[object]:
    state = status.stream_info.state
    about = [status.config.description, status.values, status.bytes, status.history]
    return [status.bucket, *about, state.last_ts if status.values else None]


def _document(status: KeyValueStatus) -> dict[str, Any]:
    state = status.stream_info.state
    return {
        "bucket": status.bucket,
        "config": status.config.to_wire(),
        "values": status.values,
        "keys": state.num_subjects,
        "bytes": status.bytes,
        "last_revision": state.last_seq,
    }


@kv.command(example="jsync kv info CONFIG")
@_BUCKET
@click.pass_obj
def info(settings: Settings, bucket: str) -> None:
    """Show the configuration and the state of a bucket."""
    with settings.connect() as nc:
        status = settings.jetstream(nc).key_value(bucket).status()
    _write(status, settings)


@kv.command(example="jsync kv add SETTINGS --history 5 --marker-ttl 1h")
@click.argument("bucket", type=BUCKET, required=False)
@config_option
@new_bucket_options
@click.pass_obj
def add(
    settings: Settings, /, bucket: str | None, config: Path | None, **options: Any
) -> None:
    """Create a bucket.

    Give options, a file with --config, or both. Options override the file.
    """
    if bucket is None and config is None:
        raise click.UsageError("give a BUCKET, or a --config that names one")
    start = base_config(config, KeyValueConfig())
    merged = merge_config(config, start, bucket_fields(options, start), bucket=bucket)
    with settings.connect() as nc:
        status = settings.jetstream(nc).create_key_value(merged).status()
    _write(status, settings)


@kv.command(example="jsync kv edit CONFIG --history 10 --dry-run")
@_BUCKET
@config_option
@bucket_options
@click.option("--no-mirror", is_flag=True, help="Stop mirroring, and allow writes.")
@unset_option
@click.option("--dry-run", is_flag=True, help="Show the changes without making them.")
@force_option
@click.pass_obj
def edit(
    settings: Settings,
    /,
    bucket: str,
    config: Path | None,
    no_mirror: bool,
    unset: list[str],
    dry_run: bool,
    force: bool,
    **options: Any,
) -> None:
    """Change a bucket.

    Options change only the fields that they name. --config replaces the whole
    configuration. The command shows the changes and requires confirmation.
    """
    cleared = dict.fromkeys([*unset, "mirror"] if no_mirror else unset)
    with settings.connect() as nc:
        js = settings.jetstream(nc)
        status = js.key_value(bucket).status()
        before = status.config
        start = base_config(config, before)
        changes = bucket_fields(options, start) | cleared
        merged = merge_config(config, start, changes, bucket=bucket)
        if print_changes(before, merged) and not dry_run:
            confirm(f"Change bucket {bucket}?", force=force)
            # Change single fields, so that the stream keeps its other settings.
            fields = changed_fields(before, merged)
            status = js.update_key_value(bucket=bucket, **fields).status()
    if dry_run:
        write_dry_run(before, merged, settings)
    else:
        _write(status, settings)


@kv.command(example="jsync kv rm CONFIG --force")
@_BUCKET
@force_option
@click.pass_obj
def rm(settings: Settings, bucket: str, force: bool) -> None:
    """Delete a bucket, with all its keys.

    To delete one key, use `jsync kv del`.
    """
    with settings.connect() as nc:
        js = settings.jetstream(nc)
        count = js.key_value(bucket).status().values
        confirm(f"Delete bucket {bucket} and its {count:,} values?", force=force)
        js.delete_key_value(bucket)
    write_result(settings, f"deleted bucket {bucket}", {"deleted": bucket})


@kv.command(example="jsync kv compact CONFIG --force")
@_BUCKET
@click.option(
    "--older-than",
    type=DURATION,
    default=1800.0,
    help="The minimum age of markers to remove. Default: 30m.",
)
@force_option
@click.pass_obj
def compact(settings: Settings, bucket: str, older_than: float, force: bool) -> None:
    """Remove delete markers, and the history of deleted keys.

    Younger markers stay, so that watches see them, but their history goes.
    """
    with settings.connect() as nc:
        found = settings.jetstream(nc).key_value(bucket)
        confirm(f"Remove the delete markers of bucket {bucket}?", force=force)
        count = found.purge_deletes(older_than=older_than)
    write_result(settings, f"removed {count} markers", {"removed": count})


# Keys ---------------------------------------------------------------------------------


@kv.command(example="jsync kv put CONFIG db.host 10.0.0.1")
@_BUCKET
@_KEY
@_VALUE
@_FILE
@click.pass_obj
def put(
    settings: Settings, bucket: str, key: str, value: str | None, file: Path | None
) -> None:
    """Store a value, whatever the present value of the key.

    Without VALUE and --file the command reads the value from the standard input. If that is
    a terminal, the value is empty.
    """
    data = _value_of(value, file)
    _change(settings, "put", bucket, key, lambda kv: kv.put(key, data))


@kv.command(example="jsync kv create CONFIG lock.nightly me --ttl 1h")
@_BUCKET
@_KEY
@_VALUE
@_FILE
@click.option(
    "--ttl",
    type=DURATION,
    help="Time until the value expires, in whole seconds (2.11).",
)
@click.pass_obj
def create(
    settings: Settings,
    bucket: str,
    key: str,
    value: str | None,
    file: Path | None,
    ttl: float | None,
) -> None:
    """Store a value if the key has none.

    Without VALUE and --file the command reads the value from the standard input. If that is
    a terminal, the value is empty.
    """
    data = _value_of(value, file)
    _change(settings, "created", bucket, key, lambda kv: kv.create(key, data, ttl=ttl))


@kv.command(example="jsync kv update CONFIG db.host 10.0.0.2 1")
@_BUCKET
@_KEY
@_VALUE
@click.argument("revision", type=Number(0), required=False)
@_FILE
@_LAST
@click.pass_obj
def update(
    settings: Settings,
    bucket: str,
    key: str,
    value: str | None,
    revision: int | None,
    file: Path | None,
    last: int | None,
) -> None:
    """Store a value if the key is still at a revision.

    Give REVISION after VALUE. If the value comes from --file or the standard input, give
    the revision with --last.
    """
    if (revision is None) == (last is None):
        raise click.UsageError("give a VALUE and a REVISION, or --last REVISION")
    at = revision if last is None else last
    assert at is not None
    data = _value_of(value, file)
    _change(settings, "updated", bucket, key, lambda kv: kv.update(key, data, last=at))


@kv.command("del", example="jsync kv del CONFIG db.host --force")
@_BUCKET
@_KEY
@_LAST
@force_option
@click.pass_obj
def del_(
    settings: Settings, bucket: str, key: str, last: int | None, force: bool
) -> None:
    """Delete a key, and keep its history."""

    def delete(kv: jsync.KeyValue) -> int:
        confirm(f"Delete key {key} of bucket {bucket}?", force=force)
        return kv.delete(key, last=last)

    _change(settings, "deleted", bucket, key, delete)


@kv.command(example="jsync kv purge CONFIG db.host --ttl 1h --force")
@_BUCKET
@_KEY
@_LAST
@click.option(
    "--ttl",
    type=DURATION,
    help="Time until the marker expires, in whole seconds (2.11).",
)
@force_option
@click.pass_obj
def purge(
    settings: Settings,
    bucket: str,
    key: str,
    last: int | None,
    ttl: float | None,
    force: bool,
) -> None:
    """Delete a key with its history. Only a marker remains."""

    def remove(kv: jsync.KeyValue) -> int:
        confirm(f"Purge key {key} of bucket {bucket}?", force=force)
        return kv.purge(key, last=last, ttl=ttl)

    _change(settings, "purged", bucket, key, remove)


@kv.command(example="jsync kv revert CONFIG db.host 1 --force")
@_BUCKET
@_KEY
@click.argument("revision", type=Number(1))
@force_option
@click.pass_obj
def revert(
    settings: Settings, bucket: str, key: str, revision: int, force: bool
) -> None:
    """Store the value of an old revision again.

    If the key changes at the same time, the command fails and stores nothing.
    """

    def again(kv: jsync.KeyValue) -> int:
        last = kv.history(key)[-1].revision
        old = kv.get(key, revision=revision)
        confirm(f"Put key {key} of bucket {bucket} back to {revision}?", force=force)
        return kv.update(key, old.value, last=last)

    _change(settings, "reverted", bucket, key, again)


@kv.command(example="jsync kv get CONFIG db.host --raw")
@_BUCKET
@_KEY
@click.option(
    "--revision", type=Number(1), help="An older revision, if the bucket keeps it."
)
@click.option("--raw", "-r", is_flag=True, help="Write only the value, unchanged.")
@click.pass_obj
def get(
    settings: Settings, bucket: str, key: str, revision: int | None, raw: bool
) -> None:
    """Write the value of a key.

    The exit code is 3 if the key has no value.
    """
    form = entry_format(settings, raw=raw)
    with settings.connect() as nc:
        found = settings.jetstream(nc).key_value(bucket)
        form.write(found.get(key, revision=revision), b"")


@kv.command(example="jsync kv history CONFIG db.host")
@_BUCKET
@_KEY
@click.pass_obj
def history(settings: Settings, bucket: str, key: str) -> None:
    """Show all revisions of a key that the bucket keeps."""
    with settings.connect() as nc:
        entries = settings.jetstream(nc).key_value(bucket).history(key)
    write_entries(entries, settings, values=True)


@kv.command(example="jsync kv watch CONFIG 'db.>' --terminate-at-end")
@_BUCKET
@_KEYS
@click.option("--history", is_flag=True, help="Begin with all stored revisions.")
@click.option("--updates", is_flag=True, help="Begin with the next change.")
@click.option("--revision", type=Number(1), help="The revision to begin with.")
@click.option(
    "--deletes/--no-deletes",
    default=True,
    help="Also write delete markers. Default: yes.",
)
@click.option("--no-values", is_flag=True, help="Do not write the values.")
@click.option("--count", type=Number(1), help="End after this number of entries.")
@click.option("--wait", type=DURATION, help="End after this time without a message.")
@click.option(
    "--terminate-at-end", "-T", is_flag=True, help="End after the last existing entry."
)
@click.option("--raw", "-r", is_flag=True, help="Write only the values, one per line.")
@click.pass_obj
def watch(
    settings: Settings,
    bucket: str,
    keys: tuple[str, ...],
    history: bool,
    updates: bool,
    revision: int | None,
    deletes: bool,
    no_values: bool,
    count: int | None,
    wait: float | None,
    terminate_at_end: bool,
    raw: bool,
) -> None:
    """Write the values of keys, and each change as it comes.

    The command runs until Ctrl-C, or until --count, --wait or --terminate-at-end ends it.
    It writes all keys, or those that match a KEY. A KEY may have wildcards: `db.*`, `db.>`.
    """
    form = entry_format(settings, raw=raw, values=not no_values)
    starts = {"--history": history, "--updates": updates, "--revision": revision}
    given = [name for name, value in starts.items() if value]
    if len(given) > 1:
        raise click.UsageError(f"{' and '.join(given)} exclude each other")
    with settings.connect(flow=True) as nc:
        found = settings.jetstream(nc).key_value(bucket)
        with found.watch(
            *keys,
            include_history=history,
            updates_only=updates,
            revision=revision,
            headers_only=no_values,
            ignore_deletes=not deletes,
        ) as changes:
            if terminate_at_end:
                for number, entry in enumerate(changes.initial(), 1):
                    form.write(entry)
                    if number == count:
                        break
            else:
                _follow(changes, form, count, wait)


def _follow(
    changes: jsync.Watch, form: EntryFormat, count: int | None, wait: float | None
) -> None:
    """Write `count` entries, or fewer if none arrives for `wait` seconds."""
    written = 0
    with suppress(errors.TimeoutError):
        while count is None or written < count:
            form.write(changes.next(wait))
            written += 1


def _value_of(value: str | None, file: Path | None) -> bytes:
    if file is None:
        return next(read_payloads(value, "eof"))
    if value is not None:
        raise click.UsageError("VALUE and --file exclude each other")
    return file.read_bytes()


def _change(
    settings: Settings,
    done: str,
    bucket: str,
    key: str,
    change: Callable[[jsync.KeyValue], int],
) -> None:
    """Change a key, and write its new revision."""
    with settings.connect() as nc:
        revision = change(settings.jetstream(nc).key_value(bucket))
    write_result(
        settings,
        f"{done} {key} in bucket {bucket}, revision {revision}",
        {"bucket": bucket, "key": key, "revision": revision},
    )


def _write(status: KeyValueStatus, settings: Settings) -> None:
    if settings.json:
        write_json(_document(status))
        return
    state, config = status.stream_info.state, status.config
    write_key_values(
        f"Bucket {status.bucket}",
        {
            "bucket": status.bucket,
            **format_config(config, "bucket"),
            "stream": status.stream_info.config.name,
            "created": status.stream_info.created,
            "values": status.values,
            "keys": state.num_subjects,
            "bytes": status.bytes,
            "last_revision": state.last_seq,
            "last_update": state.last_ts,
        },
    )
