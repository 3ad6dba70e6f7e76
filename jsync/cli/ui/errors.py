"""Errors as one line on the standard error and an exit code, without a traceback."""

from __future__ import annotations

import enum
import os
import sys
from typing import TYPE_CHECKING

import click

from jsync import errors

from .output import echo

if TYPE_CHECKING:
    from collections.abc import Callable


class Code(enum.IntEnum):
    """The exit codes."""

    DONE = 0
    FAILED = 1
    """The server or the system refused the request, or something broke."""
    USAGE = 2
    """The command line, or a value in it, is not valid."""
    NOT_FOUND = 3
    """The stream, bucket, message or key is missing, or there are no responders."""
    TIMEOUT = 4
    """The timeout passed before the command was done."""
    INTERRUPTED = 130
    """Ctrl-C, with the code that shells use."""
    BROKEN_PIPE = 141
    """The reader of the output has gone, with the code that shells use."""


_CODES: tuple[tuple[type[BaseException], Code], ...] = (
    (errors.NotFoundError, Code.NOT_FOUND),
    (errors.ConsumerGroupNotFoundError, Code.NOT_FOUND),
    (errors.NoRespondersError, Code.NOT_FOUND),
    (errors.ServerNotFoundError, Code.NOT_FOUND),
    (errors.CounterNotFoundError, Code.NOT_FOUND),
    (errors.ScheduleNotFoundError, Code.NOT_FOUND),
    (errors.NoStreamResponseError, Code.NOT_FOUND),
    (errors.AuthenticationError, Code.FAILED),
    (TimeoutError, Code.TIMEOUT),
    (errors.ConfigError, Code.USAGE),
    (errors.InvalidSubjectError, Code.USAGE),
    (errors.InvalidHeaderError, Code.USAGE),
    (errors.Error, Code.FAILED),
    (OSError, Code.FAILED),
)


def code_of(error: BaseException) -> Code:
    """Return the exit code for an error."""
    for kind, code in _CODES:
        if isinstance(error, kind):
            return code
    return Code.FAILED


def say(line: str) -> None:
    """Write a line for people to the standard error."""
    echo(f"jsync: {line}", err=True)


def guard(command: Callable[[], Code | None]) -> int:
    """Run a command, report its error, and return the exit code.

    A command may return its code, for example after Ctrl-C has ended it in good order.
    """
    try:
        code = command()
        sys.stdout.flush()
    except click.Abort:  # Ctrl-C or the end of the input at a prompt
        echo("", err=True)
        return Code.INTERRUPTED
    except click.exceptions.Exit as end:
        return end.exit_code
    except click.ClickException as error:
        return _explain(error)
    except KeyboardInterrupt as interrupt:
        for note in _notes(interrupt):
            say(note)
        return Code.INTERRUPTED
    except BrokenPipeError:
        # The interpreter would fail again when it flushes the buffer at its exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Code.BROKEN_PIPE
    except Exception as error:  # noqa: BLE001 - a traceback helps nobody at a prompt
        say(words_of(error))
        return code_of(error)
    return Code.DONE if code is None else code


def words_of(error: BaseException) -> str:
    """Return the text of an error for people, in one line."""
    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename}: " if error.filename else ""
        return " ".join(f"{where}{error.strerror}".split())
    if isinstance(error, errors.AlreadyExistsError) and error.differences:
        # The text of the error suggests a Python call, so write another one here.
        fields = ", ".join(error.differences)
        return f"{error.description}: {fields} (err_code {error.err_code})"
    words = " ".join("; ".join([str(error), *_notes(error)]).split())
    words = words or type(error).__name__
    if isinstance(error, errors.Error | OSError | click.ClickException):
        return words
    return f"{type(error).__name__}: {words}"


def _notes(error: BaseException) -> list[str]:
    """Return the notes of an error, such as the names of leftovers."""
    return list(getattr(error, "__notes__", ()))


def _explain(error: click.ClickException) -> int:
    say(" ".join(error.format_message().split()))
    if isinstance(error, click.UsageError) and error.ctx is not None:
        echo(f"Try: {error.ctx.command_path} --help", err=True)
    return error.exit_code
