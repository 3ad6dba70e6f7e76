"""Backups: `backup` and `restore` of `jsync stream` and `jsync account`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ..groups import ExampleCommand
from ..params.completion import DIRECTORY, STREAM
from ..params.values import Number
from ..ui.output import echo, write_result
from ..ui.progress import Bar, ProgressState

if TYPE_CHECKING:
    from ..params.settings import Settings

_DIRECTORY = click.argument("directory", type=DIRECTORY)
_NO_CONSUMERS = click.option(
    "--no-consumers", is_flag=True, help="Leave out the consumers."
)
_CHECK = click.option(
    "--check", is_flag=True, help="Have the server check the stored data first."
)


@click.command(
    "backup", cls=ExampleCommand, example="jsync stream backup ORDERS backup/today"
)
@click.argument("stream", type=STREAM)
@_DIRECTORY
@_NO_CONSUMERS
@_CHECK
@click.pass_obj
def stream_backup(
    settings: Settings, stream: str, directory: str, no_consumers: bool, check: bool
) -> None:
    """Write a stream with its messages to files.

    `jsync stream restore` and `nats stream restore` read them. An interrupted backup
    leaves no files.
    """
    moved = _Moved()
    with settings.connect() as nc, moved.bar(settings):
        found = settings.jetstream(nc).bind_stream(stream)
        made = found.backup(
            directory,
            consumers=not no_consumers,
            check=check,
            on_progress=lambda done, total: moved("", done, total),
        )
    write_result(
        settings,
        f"backed up stream {stream}: {made.state.messages:,} messages, {made.size:,} bytes",
        {"stream": stream, "messages": made.state.messages, "bytes": made.size},
    )


@click.command(
    "restore",
    cls=ExampleCommand,
    example=(
        "jsync stream restore backup/today\n"
        "jsync stream restore backup/today --name COPY --subjects 'copy.>'"
    ),
)
@_DIRECTORY
@click.option("--name", metavar="STREAM", help="Another name for the stream (2.15).")
@click.option(
    "--subjects",
    multiple=True,
    metavar="SUBJECTS",
    help="Other subjects for the stream, with commas between them.",
)
@click.option(
    "--replicas",
    type=Number(1),
    help="The number of replicas. Default: as in the backup.",
)
@click.pass_obj
def stream_restore(
    settings: Settings,
    directory: str,
    name: str | None,
    subjects: tuple[str, ...],
    replicas: int | None,
) -> None:
    """Create a stream from a backup, with its messages.

    The backup is one of `jsync stream backup` or `nats stream backup`. A copy beside the
    original stream needs --name and --subjects. The stream gets its subjects when it is
    complete, and an interrupted restore deletes it again.
    """
    moved = _Moved()
    fields: dict[str, Any] = {}
    if subjects:
        fields["subjects"] = [part for text in subjects for part in text.split(",")]
    if replicas is not None:
        fields["num_replicas"] = replicas
    with settings.connect() as nc, moved.bar(settings):
        made = settings.jetstream(nc).restore_stream(
            directory,
            name=name,
            config=lambda config: {**config, **fields},
            on_progress=lambda done, total: moved("", done, total),
        )
    state = made.cached_info.state
    write_result(
        settings,
        f"restored stream {made.name}: {state.messages:,} messages",
        {"stream": made.name, "messages": state.messages},
    )


@click.command("backup", cls=ExampleCommand, example="jsync account backup backup/all")
@_DIRECTORY
@_NO_CONSUMERS
@_CHECK
# Accepted because scripts for the nats command pass it.
@click.option("--force", "-f", is_flag=True, hidden=True)
@click.pass_obj
def account_backup(
    settings: Settings, directory: str, no_consumers: bool, check: bool, force: bool
) -> None:
    """Write all streams of the account, with their messages, to files.

    `jsync account restore` and `nats account restore` read them. Buckets and object stores
    are streams, too. The exit code is 1 if a stream could not be backed up.
    """
    moved = _Moved()
    with settings.connect() as nc, moved.bar(settings):
        made = settings.jetstream(nc).backup_streams(
            directory, consumers=not no_consumers, check=check, on_progress=moved
        )
    if made.skipped:
        names = ", ".join(made.skipped)
        echo(f"not backed up, because they are in memory: {names}", err=True)
    write_result(
        settings,
        f"backed up {len(made.streams)} streams: "
        f"{sum(stream.state.messages for stream in made.streams):,} messages, "
        f"{sum(stream.size for stream in made.streams):,} bytes",
        {
            "streams": [
                {
                    "stream": stream.stream,
                    "messages": stream.state.messages,
                    "bytes": stream.size,
                }
                for stream in made.streams
            ],
            "skipped": made.skipped,
        },
    )


@click.command(
    "restore",
    cls=ExampleCommand,
    example="jsync account restore backup/all --skip-existing",
)
@_DIRECTORY
@click.option(
    "--skip-existing",
    is_flag=True,
    help="Leave existing streams as they are, and restore the others.",
)
@click.pass_obj
def account_restore(settings: Settings, directory: str, skip_existing: bool) -> None:
    """Create all streams of a backup of an account, with their messages.

    The backup is one of `jsync account backup` or `nats account backup`. If one of the
    streams exists already, the command restores none. After an interruption, continue with
    --skip-existing.
    """
    moved = _Moved()
    with settings.connect() as nc, moved.bar(settings):
        made = settings.jetstream(nc).restore_streams(
            directory, skip_existing=skip_existing, on_progress=moved
        )
    told = [
        {"stream": stream.name, "messages": stream.cached_info.state.messages}
        for stream in made
    ]
    names = ", ".join(stream.name for stream in made)
    write_result(settings, f"restored {len(made)} streams: {names}", {"streams": told})


class _Moved:
    """The progress of a backup: a callback for the backup, and a bar for people."""

    def __init__(self) -> None:
        self._stream, self._done, self._total = "", 0, 0

    def __call__(self, stream: str, done: int, total: int) -> None:
        self._stream, self._done, self._total = stream, done, total

    def bar(self, settings: Settings) -> Bar:
        return Bar(self._progress, "bytes", shown=not settings.json)

    def _progress(self) -> ProgressState:
        return ProgressState(self._stream, self._done, self._total or None, self._done)
