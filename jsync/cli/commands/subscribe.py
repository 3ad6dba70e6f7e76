"""`jsync sub`: published messages, as they arrive."""

from __future__ import annotations

import queue
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Final

import click

from jsync import errors

from ..groups import ExampleCommand
from ..params.settings import flush
from ..params.values import DURATION, Number
from ..ui.errors import print_error
from ..ui.messages import form_options, message_format

if TYPE_CHECKING:
    from collections.abc import Generator

    import jsync

    from ..params.settings import Settings

_MAX_QUEUED: Final = 1000
"""The number of messages of several subscriptions that are buffered for writing."""
_POLL_INTERVAL: Final = 0.5
"""The seconds between two checks whether more messages can arrive."""


@click.command(cls=ExampleCommand, example="jsync sub 'orders.>' --count 10")
@click.argument("subjects", nargs=-1, required=True, metavar="SUBJECT...")
@click.option(
    "--queue", metavar="GROUP", help="The queue group to share messages with."
)
@click.option("--count", type=Number(1), help="End after this number of messages.")
@click.option("--wait", type=DURATION, help="End after this time without a message.")
@form_options
@click.pass_obj
def sub(
    settings: Settings,
    subjects: tuple[str, ...],
    queue: str | None,
    count: int | None,
    wait: float | None,
    raw: bool,
    headers_only: bool,
    subjects_only: bool,
) -> None:
    """Write the messages of subjects as they arrive.

    Ends with Ctrl-C, or as --count and --wait say. Subjects may have wildcards:
    `orders.*`, `orders.>`. To read stored messages of a stream, use `jsync consume`.
    """
    form = message_format(settings, raw, headers_only, subjects_only)
    with settings.connect(flow=True) as nc:
        if len(subjects) == 1:
            messages = _one(nc, subjects[0], queue, wait)
        else:
            messages = _several(nc, subjects, queue, wait)
        with closing(messages):
            flush(nc, settings.timeout)
            print_error(f"subscribed to {', '.join(subjects)}")
            for number, msg in enumerate(messages, 1):
                form.write(msg, number)
                if number == count:
                    break


def _one(
    nc: jsync.Connection, subject: str, group: str | None, wait: float | None
) -> Generator[jsync.Msg]:
    subscription = nc.subscribe(subject, queue=group)

    def messages() -> Generator[jsync.Msg]:
        with subscription:
            while True:
                try:
                    msg = subscription.next(wait)
                except TimeoutError:
                    return
                yield msg

    return messages()


def _several(
    nc: jsync.Connection,
    subjects: tuple[str, ...],
    group: str | None,
    wait: float | None,
) -> Generator[jsync.Msg]:
    """Yield the messages of several subscriptions.

    Each subscription has a thread, which waits while the buffer is full.
    """
    waiting: queue.Queue[jsync.Msg] = queue.Queue(_MAX_QUEUED)
    over = False

    def put(msg: jsync.Msg) -> None:
        while not over:
            with suppress(queue.Full):
                waiting.put(msg, timeout=_POLL_INTERVAL)
                break

    for subject in subjects:
        nc.subscribe(subject, queue=group, callback=put)

    def messages() -> Generator[jsync.Msg]:
        nonlocal over
        try:
            while True:
                poll_seconds = _POLL_INTERVAL if wait is None else wait
                try:
                    msg = waiting.get(timeout=poll_seconds)
                except queue.Empty:
                    if wait is not None:
                        return
                    if nc.is_closed:
                        raise nc.last_error or errors.ConnectionClosedError(
                            "the connection is closed"
                        ) from None
                    continue
                yield msg
        finally:
            over = True

    return messages()
