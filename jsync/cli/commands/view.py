"""`jsync stream view`: the messages of a stream, page by page."""

from __future__ import annotations

import sys
from contextlib import contextmanager, suppress
from time import monotonic
from typing import TYPE_CHECKING, Any

import click

from jsync import errors

from ..groups import ExampleCommand
from ..params.completion import STREAM
from ..params.values import PAST_TIME, Number
from ..ui.errors import print_error
from ..ui.messages import form_options, message_format
from ..ui.output import echo, is_terminal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    import jsync

    from ..params.settings import Settings
    from ..ui.messages import MessageFormat

_MAX_PAGE = 1000
"""The maximum number of messages on one page."""


@click.command(cls=ExampleCommand, example="jsync stream view ORDERS 20")
@click.argument("stream", type=STREAM)
@click.argument("size", type=Number(1, _MAX_PAGE), default=10)
@click.option(
    "--id", "sequence", type=Number(1), help="Start at this sequence of the stream."
)
@click.option("--since", type=PAST_TIME, help="Start at a time, or a duration ago.")
@click.option("--subject", metavar="SUBJECT", help="Only messages of this subject.")
@form_options
@click.pass_obj
def view(
    settings: Settings,
    stream: str,
    size: int,
    sequence: int | None,
    since: datetime | None,
    subject: str | None,
    raw: bool,
    headers_only: bool,
    subjects_only: bool,
) -> None:
    """Page through the messages of a stream.

    SIZE is the number of messages on a page, by default 10. On a terminal, Enter shows
    the next page, b the one before, and q ends. In a pipe the command writes one page.
    It changes nothing on the server.
    """
    if sequence is not None and since is not None:
        raise click.UsageError("--id and --since exclude each other")
    form = message_format(settings, raw, headers_only, subjects_only)
    asks = is_terminal() and sys.stdin.isatty() and not settings.json
    asks = asks and sys.platform != "win32"  # `ui.keyboard` lacks its terminals
    with settings.connect() as nc, _keys(asks) as keys:
        js = settings.jetstream(nc)
        js.stream(stream)  # raises immediately if the stream does not exist
        starts: list[dict[str, Any]] = [_start(sequence, since)]
        while True:
            last, left = _write_page(
                js, stream, subject, starts[-1], size, form, settings.timeout
            )
            if not asks:
                return
            if left == 0:
                print_error("this was the last message")
            answer = _await_key(keys, more=left > 0, before=len(starts) > 1, left=left)
            if answer == "next" and last is not None:
                starts.append(_start(last + 1, None))
            elif answer == "before":
                starts.pop()
            else:
                return


def _start(sequence: int | None, since: datetime | None) -> dict[str, Any]:
    if sequence is not None:
        return {"deliver_policy": "by_start_sequence", "opt_start_seq": sequence}
    if since is not None:
        return {"deliver_policy": "by_start_time", "opt_start_time": since}
    return {}


def _write_page(
    js: jsync.JetStream,
    stream: str,
    subject: str | None,
    start: dict[str, Any],
    size: int,
    form: MessageFormat,
    timeout: float,
) -> tuple[int | None, int]:
    """Write a page.

    Returns the sequence of its last message, and the number of messages after it.
    Raises `TimeoutError` if the server sends none for `timeout` seconds.
    """
    last, left, count = None, 0, 0
    limits: dict[str, Any] = {
        "max_messages": size,
        "stop_after": size,
        "idle_timeout": timeout,
    }
    started_at = monotonic()
    filters = [] if subject is None else [subject]
    log = js.ordered_consumer(stream, filter_subjects=filters, **start)
    with log.messages(until_end=True, **limits) as messages:
        for msg in messages:
            form.write(msg)
            count += 1
            last, left = msg.metadata.stream_sequence, msg.metadata.num_pending
    late = left > 0 if count else monotonic() - started_at >= timeout
    if count < size and late:
        raise errors.TimeoutError(f"{count} of {size} messages came in time")
    return last, left


@contextmanager
def _keys(asks: bool) -> Iterator[Iterator[str]]:
    """Give the pressed keys, including those pressed while a page is written."""
    if not asks:
        yield iter(())
        return
    from ..ui.keyboard import Keyboard

    with Keyboard() as keyboard:
        yield keyboard.keys()


def _await_key(keys: Iterator[str], *, more: bool, before: bool, left: int) -> str:
    """Wait for a key that means `next`, `before` or `end`, and return that word."""
    if not more and not before:
        return "end"
    choices = [f"Enter next page ({left:,} more)"] if more else []
    choices += ["b page before"] if before else []
    echo(f"{', '.join(choices)}, q end", err=True)
    with suppress(EOFError):
        for key in keys:
            if more and key in ("enter", " ", "n", "page_down", "down"):
                return "next"
            if before and key in ("b", "page_up", "up"):
                return "before"
            if key in ("q", "Q", "escape", "\x04"):
                return "end"
    return "end"
