"""Errors as one line on the standard error and an exit code, without a traceback."""

from __future__ import annotations

import enum
import os
import sys
from typing import TYPE_CHECKING, Final

import click

from jsync import errors

from .output import echo

if TYPE_CHECKING:
    from collections.abc import Callable


class ExitCode(enum.IntEnum):
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


_CODES: tuple[tuple[type[BaseException], ExitCode], ...] = (
    (errors.NotFoundError, ExitCode.NOT_FOUND),
    (errors.ConsumerGroupNotFoundError, ExitCode.NOT_FOUND),
    (errors.NoRespondersError, ExitCode.NOT_FOUND),
    (errors.ServerNotFoundError, ExitCode.NOT_FOUND),
    (errors.CounterNotFoundError, ExitCode.NOT_FOUND),
    (errors.ScheduleNotFoundError, ExitCode.NOT_FOUND),
    (errors.NoStreamResponseError, ExitCode.NOT_FOUND),
    (errors.AuthenticationError, ExitCode.FAILED),
    (TimeoutError, ExitCode.TIMEOUT),
    (errors.ConfigError, ExitCode.USAGE),
    (errors.InvalidSubjectError, ExitCode.USAGE),
    (errors.InvalidHeaderError, ExitCode.USAGE),
    (errors.Error, ExitCode.FAILED),
    (OSError, ExitCode.FAILED),
)

_ADVICE: Final[dict[type[BaseException], str]] = {
    errors.StreamNotFoundError: "jsync stream ls, which lists the streams",
    errors.NoStreamResponseError: "jsync stream ls, which lists the streams",
    errors.ConsumerNotFoundError: "jsync consumer ls STREAM, which lists its consumers",
    errors.StreamNameInUseError: "jsync stream edit, which changes a stream",
    errors.ConsumerExistsError: "jsync consumer edit, which changes a consumer",
}
"""The next command after an error of exactly this type."""


def code_of(error: BaseException) -> ExitCode:
    """Return the exit code for an error."""
    for kind, code in _CODES:
        if isinstance(error, kind):
            return code
    return ExitCode.FAILED


def print_error(line: str) -> None:
    """Write a line for people to the standard error."""
    echo(f"jsync: {line}", err=True)


def run_with_exit_code(command: Callable[[], ExitCode | None]) -> int:
    """Run a command, report its error, and return the exit code.

    A command may return its code, for example after Ctrl-C has ended it in good order.
    """
    try:
        code = command()
        sys.stdout.flush()
    except click.Abort:  # Ctrl-C or the end of the input at a prompt
        echo("", err=True)
        return ExitCode.INTERRUPTED
    except click.exceptions.Exit as end:
        return end.exit_code
    except click.ClickException as error:
        return _explain(error)
    except KeyboardInterrupt as interrupt:
        for note in _notes(interrupt):
            print_error(note)
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        # The interpreter would fail again when it flushes the buffer at its exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.BROKEN_PIPE
    except Exception as error:  # noqa: BLE001 - a traceback helps nobody at a prompt
        print_error(format_error(error))
        if advice := _ADVICE.get(type(error)):
            echo(f"Try: {advice}", err=True)
        return code_of(error)
    return ExitCode.DONE if code is None else code


def format_error(error: BaseException) -> str:
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
    print_error(" ".join(error.format_message().split()))
    if isinstance(error, click.UsageError) and error.ctx is not None:
        echo(f"Try: {error.ctx.command_path} --help", err=True)
    return error.exit_code
