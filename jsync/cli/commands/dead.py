"""`jsync dead`: list, show, replay and drop the dead letters of workers."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Final

import click

from jsync import StoredMessage, errors
from jsync.worker.dead_letters import DeadLetter

from ..decorators import with_options
from ..groups import CommandGroup
from ..params.completion import STREAM
from ..params.values import Number
from ..ui.errors import ExitCode, code_of, format_error, print_error
from ..ui.messages import body_text, document_of
from ..ui.output import echo, write_json, write_key_values, write_table
from ..ui.prompts import confirm, force_option

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import jsync

    from ..params.settings import Settings

_STREAM = click.argument("stream", type=STREAM)
_COLUMNS = ("letter", "time", "message", "attempts", "subject", "reason")
_FIELDS = (
    *("Reason", "Subject", "Stream", "Sequence", "Consumer", "Attempts"),
    *("Stored", "Time", "Exception", "Traceback"),
)


@click.group(cls=CommandGroup)
def dead() -> None:
    """List, show, replay and drop the dead letters of workers."""


_chosen: Final = with_options(
    _STREAM,
    click.argument("letters", type=Number(1), nargs=-1, metavar="[LETTER]..."),
    click.option(
        "--all", "every", is_flag=True, help="Choose all dead letters of the stream."
    ),
)


@dead.command("ls", example="jsync dead ls DEAD")
@_STREAM
@click.pass_obj
def list_(settings: Settings, stream: str) -> None:
    """List the dead letters in a stream, oldest first."""
    with settings.connect() as nc:
        found = list(_all(settings.jetstream(nc).stream(stream)))
    if settings.json:
        write_json([_document(letter) for letter in found])
    else:
        write_table(_COLUMNS, [_row(letter) for letter in found])


@dead.command(example="jsync dead show DEAD 1")
@_STREAM
@click.argument("letter", type=Number(1))
@click.pass_obj
def show(settings: Settings, stream: str, letter: int) -> None:
    """Show the reason and the payload of a dead letter."""
    with settings.connect() as nc:
        found = _one(settings.jetstream(nc).stream(stream), letter)
    if settings.json:
        write_json(_document(found))
        return
    details = {name.lower(): found.detail(name) or None for name in _FIELDS}
    write_key_values(f"Dead letter {letter} of {stream}", details)
    echo("")
    echo(body_text(found.message.data))


@dead.command(example="jsync dead replay DEAD --all --force")
@_chosen
@click.option(
    "--subject",
    metavar="SUBJECT",
    help="Publish all messages to this subject, not to their former ones.",
)
@force_option
@click.pass_obj
def replay(
    settings: Settings,
    stream: str,
    letters: tuple[int, ...],
    every: bool,
    subject: str | None,
    force: bool,
) -> ExitCode | None:
    """Publish the messages of dead letters again, and delete the letters.

    Each message goes to its own subject, or to --subject. Without --subject, a stream must
    take the message's own subject. The command deletes a letter when its message is stored.
    It fails if a message could not be stored, once it has replayed the others.
    """
    with settings.connect() as nc:
        js = settings.jetstream(nc)
        bound = js.stream(stream)
        chosen = _selected(bound, letters, every)
        confirm(f"Replay {_count(chosen)} of {stream}?", force=force)
        failed: ExitCode | None = None
        for letter in chosen:
            sequence = letter.message.sequence
            try:
                ack = letter.replay(js, subject)
                _delete(bound, letter)
            except errors.ConnectionError:
                raise
            except errors.Error as error:
                print_error(f"dead letter {sequence}: {format_error(error)}")
                failed = failed or code_of(error)
            else:
                echo(f"{sequence}: stored in {ack.stream} as {ack.seq}")
    return failed


@dead.command(example="jsync dead drop DEAD 1 --force")
@_chosen
@force_option
@click.pass_obj
def drop(
    settings: Settings, stream: str, letters: tuple[int, ...], every: bool, force: bool
) -> None:
    """Delete dead letters."""
    with settings.connect() as nc:
        bound = settings.jetstream(nc).stream(stream)
        chosen = _selected(bound, letters, every)
        confirm(f"Delete {_count(chosen)} of {stream}?", force=force)
        for letter in chosen:
            _delete(bound, letter)


def _count(letters: Sequence[DeadLetter]) -> str:
    return "1 dead letter" if len(letters) == 1 else f"{len(letters)} dead letters"


def _delete(stream: jsync.Stream, letter: DeadLetter) -> None:
    """Delete a dead letter. It is no error that another program has removed it.

    If the stream was deleted and created again, another message may have the number.
    """
    sequence = letter.message.sequence
    with contextlib.suppress(errors.MessageNotFoundError):
        found = stream.get_message(sequence, direct=False)
        if found.timestamp == letter.message.timestamp:
            stream.delete_message(sequence)


def _selected(
    stream: jsync.Stream, letters: tuple[int, ...], every: bool
) -> list[DeadLetter]:
    if every == bool(letters):
        raise click.UsageError("give the numbers of dead letters, or --all")
    return list(_all(stream)) if every else [_one(stream, letter) for letter in letters]


def _all(stream: jsync.Stream) -> Iterator[DeadLetter]:
    """Yield the dead letters in a stream, which may hold other messages as well."""
    with stream.ordered_consumer().messages(until_end=True) as messages:
        for msg in messages:
            about = msg.metadata
            letter = DeadLetter(
                StoredMessage(
                    subject=msg.subject,
                    sequence=about.stream_sequence,
                    data=msg.data,
                    headers=msg.headers,
                    headers_error=msg.headers_error,
                    raw_headers=msg.raw_headers,
                    timestamp=about.timestamp,
                    stream=stream.name,
                )
            )
            if letter.is_one:
                yield letter


def _one(stream: jsync.Stream, letter: int) -> DeadLetter:
    try:
        found = DeadLetter(stream.get_message(letter))
    except errors.MessageNotFoundError as error:
        error.add_note(f"`jsync dead ls {stream.name}` lists the dead letters")
        raise
    if not found.is_one:
        raise click.UsageError(
            f"message {letter} of {stream.name} is not a dead letter"
        )
    return found


def _row(letter: DeadLetter) -> list[object]:
    about = [letter.detail(name) for name in ("Attempts", "Subject", "Reason")]
    return [letter.message.sequence, letter.detail("Time"), letter.origin, *about]


def _document(letter: DeadLetter) -> dict[str, Any]:
    why = {name.lower(): letter.detail(name) for name in _FIELDS}
    return {**document_of(letter.message), "dead_letter": why}
