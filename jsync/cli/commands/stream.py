"""`jsync stream`: create, look at and change streams."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from jsync import StreamConfig

from ..groups import CommandGroup
from ..params.completion import STREAM
from ..params.config_file import (
    base_config,
    changed_fields,
    config_option,
    merge_config,
    print_changes,
    unset_option,
    write_dry_run,
)
from ..params.stream_options import new_stream_options, stream_fields, stream_options
from ..params.values import Number
from ..ui.info_sections import ago, format_config, stream_sections
from ..ui.lists import write_infos, write_names
from ..ui.messages import form_options, message_format
from ..ui.output import (
    is_terminal,
    write_json,
    write_key_values,
    write_result,
    write_sections,
    write_table,
)
from ..ui.prompts import confirm, force_option
from .backup import stream_backup, stream_restore
from .report import stream_report
from .view import view

if TYPE_CHECKING:
    from pathlib import Path

    from jsync import StreamInfo

    from ..params.settings import Settings

_COLUMNS = ("name", "subjects", "messages", "bytes", "consumers")
_STREAM = click.argument("stream", type=STREAM)


@click.group(cls=CommandGroup)
def stream() -> None:
    """Create, look at and change streams."""


stream.add_command(stream_report)
stream.add_command(view)
stream.add_command(stream_backup)
stream.add_command(stream_restore)


@stream.command("ls", example="jsync stream ls --subject 'orders.>'")
@click.option(
    "--subject", metavar="SUBJECT", help="Only streams that store this subject."
)
@click.option("--names", "-n", is_flag=True, help="Write only the names.")
@click.pass_obj
def list_(settings: Settings, subject: str | None, names: bool) -> None:
    """List the streams."""
    with settings.connect() as nc:
        js = settings.jetstream(nc)
        if names:
            write_names(js.stream_names(subject=subject), settings)
        else:
            found = (item.cached_info for item in js.streams(subject=subject))
            write_infos(found, settings, _COLUMNS, _row)


def _row(info: StreamInfo) -> list[object]:
    config, state = info.config, info.state
    subjects = config.subjects or []
    return [config.name, subjects, state.messages, state.bytes, state.consumer_count]


@stream.command(example="jsync stream info ORDERS --json")
@_STREAM
@click.pass_obj
def info(settings: Settings, stream: str) -> None:
    """Show the configuration and the state of a stream."""
    with settings.connect() as nc:
        found = settings.jetstream(nc).stream(stream).cached_info
    _write(found, settings)


@stream.command(example="jsync stream create ORDERS --subjects 'orders.>' --max-age 7d")
@click.argument("stream", type=STREAM, required=False)
@config_option
@new_stream_options
# Accepted because scripts for the nats command pass it.
@click.option("--defaults", is_flag=True, hidden=True)
@click.pass_obj
def create(
    settings: Settings,
    /,
    stream: str | None,
    config: Path | None,
    defaults: bool,
    **options: Any,
) -> None:
    """Create a stream.

    Give options, a file with --config, or both: the options then change the file.
    Options that you omit use the server's defaults.
    """
    if stream is None and config is None:
        raise click.UsageError("give a STREAM, or a --config that names one")
    start = base_config(config, StreamConfig())
    merged = merge_config(config, start, stream_fields(options, start), name=stream)
    with settings.connect() as nc:
        created = settings.jetstream(nc).create_stream(merged).cached_info
    _write(created, settings)


@stream.command(example="jsync stream edit ORDERS --max-age 30d --dry-run")
@_STREAM
@config_option
@stream_options
@unset_option
@click.option("--dry-run", is_flag=True, help="Show the changes without making them.")
@force_option
@click.pass_obj
def edit(
    settings: Settings,
    /,
    stream: str,
    config: Path | None,
    unset: list[str],
    dry_run: bool,
    force: bool,
    **options: Any,
) -> None:
    """Change a stream.

    Options change only the fields that they name. --config replaces the whole
    configuration. The command shows the changes and requires confirmation.
    """
    with settings.connect() as nc:
        js = settings.jetstream(nc)
        before = js.stream(stream).cached_info
        start = base_config(config, before.config)
        merged = merge_config(
            config,
            start,
            stream_fields(options, start) | dict.fromkeys(unset),
            name=stream,
        )
        if print_changes(before.config, merged) and not dry_run:
            confirm(f"Change stream {stream}?", force=force)
            if config is not None:
                before = js.update_stream(merged).cached_info
            else:
                fields = changed_fields(before.config, merged)
                before = js.update_stream(name=stream, **fields).cached_info
    if dry_run:
        write_dry_run(before.config, merged, settings)
    else:
        _write(before, settings)


@stream.command(example="jsync stream rm ORDERS --force")
@_STREAM
@force_option
@click.pass_obj
def rm(settings: Settings, stream: str, force: bool) -> None:
    """Delete a stream, with its messages and consumers."""
    with settings.connect() as nc:
        found = settings.jetstream(nc).stream(stream)
        count = found.cached_info.state.messages
        confirm(f"Delete stream {stream} and its {count:,} messages?", force=force)
        found.delete()
    write_result(settings, f"deleted stream {stream}", {"deleted": stream})


@stream.command(
    example="jsync stream purge ORDERS --subject orders.count --keep 10 --force"
)
@_STREAM
@click.option(
    "--subject",
    metavar="SUBJECT",
    help="Only messages of this subject, wildcards allowed.",
)
@click.option("--seq", type=Number(1), help="Only messages before this sequence.")
@click.option("--keep", type=Number(0), help="Keep this number of the last messages.")
@force_option
@click.pass_obj
def purge(
    settings: Settings,
    stream: str,
    subject: str | None,
    seq: int | None,
    keep: int | None,
    force: bool,
) -> None:
    """Delete messages of a stream.

    All of them, or those that the options name.
    """
    with settings.connect() as nc:
        found = settings.jetstream(nc).stream(stream)
        of = f" on {subject}" if subject else ""
        before = f" before sequence {seq}" if seq is not None else ""
        but = f", but for the last {keep}" if keep is not None else ""
        confirm(f"Purge stream {stream}{of}{before}{but}?", force=force)
        count = found.purge(subject=subject, sequence=seq, keep=keep)
    write_result(settings, f"purged {count} messages", {"purged": count})


@stream.command(example="jsync stream get ORDERS --last-for orders.new --raw")
@_STREAM
@click.argument("sequence", type=Number(1), required=False)
@click.option(
    "--last-for", "-S", metavar="SUBJECT", help="The last message of this subject."
)
@form_options
@click.pass_obj
def get(
    settings: Settings,
    stream: str,
    sequence: int | None,
    last_for: str | None,
    raw: bool,
    headers_only: bool,
    subjects_only: bool,
) -> None:
    """Write one message of a stream, without a consumer."""
    if (sequence is None) == (last_for is None):
        raise click.UsageError("give a SEQUENCE, or --last-for SUBJECT")
    form = message_format(settings, raw, headers_only, subjects_only)
    with settings.connect() as nc:
        found = settings.jetstream(nc).stream(stream)
        form.write(found.get_message(sequence, last_by_subject=last_for))


@stream.command(example="jsync stream rmm ORDERS 3 --force")
@_STREAM
@click.argument("sequence", type=Number(1))
@force_option
@click.pass_obj
def rmm(settings: Settings, stream: str, sequence: int, force: bool) -> None:
    """Delete one message of a stream, and overwrite it."""
    with settings.connect() as nc:
        found = settings.jetstream(nc).stream(stream)
        confirm(f"Delete message {sequence} of stream {stream}?", force=force)
        found.secure_delete_message(sequence)
    write_result(settings, f"deleted message {sequence}", {"deleted": sequence})


@stream.command(example="jsync stream subjects ORDERS 'orders.*'")
@_STREAM
@click.argument("filter_", metavar="[FILTER]", default=">")
@click.pass_obj
def subjects(settings: Settings, stream: str, filter_: str) -> None:
    """List the subjects of a stream, and their messages.

    All that it holds, or those that match FILTER, with how many messages each has.
    """
    with settings.connect() as nc:
        found = settings.jetstream(nc).stream(stream).info(subjects_filter=filter_)
    counts = found.state.subjects or {}
    if settings.json:
        write_json(counts)
    else:
        write_table(["subject", "messages"], sorted(counts.items()))


@stream.command("step-down", example="jsync stream step-down ORDERS --preferred nats-2")
@_STREAM
@click.option("--preferred", metavar="SERVER", help="The server to become the leader.")
@click.pass_obj
def step_down(settings: Settings, stream: str, preferred: str | None) -> None:
    """Have the leader of a stream step down."""
    with settings.connect() as nc:
        found = settings.jetstream(nc).bind_stream(stream)
        found.leader_step_down(preferred=preferred)
    write_result(
        settings, f"the leader of stream {stream} steps down", {"stepped_down": stream}
    )


@stream.command("peer-remove", example="jsync stream peer-remove ORDERS nats-3")
@_STREAM
@click.argument("peer", metavar="SERVER")
@force_option
@click.pass_obj
def peer_remove(settings: Settings, stream: str, peer: str, force: bool) -> None:
    """Move the replica of a stream away from a server."""
    confirm(f"Remove the replica of stream {stream} on {peer}?", force=force)
    with settings.connect() as nc:
        settings.jetstream(nc).bind_stream(stream).remove_peer(peer)
    write_result(settings, f"removed {peer} from stream {stream}", {"removed": peer})


def _write(info: StreamInfo, settings: Settings) -> None:
    if settings.json:
        write_json(info.to_wire())
        return
    config, state = info.config, info.state
    if is_terminal():
        created = ago(info.created, info.ts)
        write_sections(
            f"Stream {config.name}, created {created}", stream_sections(info)
        )
        return
    write_key_values(
        f"Stream {config.name}",
        {
            "name": config.name,
            **format_config(config, "name"),
            "created": info.created,
            "leader": info.cluster.leader if info.cluster else None,
            "messages": state.messages,
            "bytes": state.bytes,
            "first_seq": state.first_seq,
            "last_seq": state.last_seq,
            "last_ts": state.last_ts,
            "num_subjects": state.num_subjects,
            "num_deleted": state.num_deleted or None,
            "consumer_count": state.consumer_count,
        },
    )
