"""`jsync next`, `jsync fetch` and `jsync consume`: messages of consumers and streams."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from ..decorators import with_options
from ..groups import ExampleCommand
from ..params.completion import CONSUMER, STREAM
from ..params.values import DURATION, PAST_TIME, SIZE, Number
from ..ui.messages import MessageFormat, form_options, message_format

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    import jsync

    from ..params.settings import Settings


_ack_options: Final = with_options(
    click.option(
        "--ack",
        "reply",
        flag_value="ack",
        default="ack",
        help="Acknowledge messages once they are written. The default.",
    ),
    click.option(
        "--no-ack",
        "reply",
        flag_value="",
        help="Do not acknowledge messages, which are redelivered after the ack wait.",
    ),
    click.option(
        "--nak",
        "reply",
        flag_value="nak",
        help="Negatively acknowledge messages, which are redelivered.",
    ),
    click.option(
        "--term",
        "reply",
        flag_value="term",
        help="Terminate messages, which are never redelivered.",
    ),
)


def _write_all(
    messages: Iterable[jsync.JetStreamMsg], form: MessageFormat, reply: str
) -> None:
    """Write messages, and send the reply of each once it is written."""
    for msg in messages:
        form.write(msg)
        if reply:
            getattr(msg, reply)()


def _bind(js: jsync.JetStream, stream: str, consumer: str) -> jsync.Consumer:
    """Return the consumer, after a request that checks that it exists.

    Raises `click.UsageError` if it is a push consumer.
    """
    found = js.consumer(stream, consumer)
    subject = found.info().config.deliver_subject
    if subject:
        raise click.UsageError(
            f"{consumer} is a push consumer: `jsync sub {subject}` reads it"
        )
    return found


def _reply_to(consumer: jsync.Consumer, reply: str) -> str:
    return "" if consumer.config.ack_policy == "none" else reply


@click.command(cls=ExampleCommand, example="jsync next ORDERS billing")
@click.argument("stream", type=STREAM)
@click.argument("consumer", type=CONSUMER)
@click.option(
    "--count", type=Number(1), default=1, help="The number of messages to write."
)
@click.option(
    "--wait", type=DURATION, help="Time to wait for each message. Default: 5s."
)
@_ack_options
@form_options
@click.pass_obj
def next_(
    settings: Settings,
    stream: str,
    consumer: str,
    count: int,
    wait: float | None,
    reply: str,
    raw: bool,
    headers_only: bool,
    subjects_only: bool,
) -> None:
    """Write a consumer's next message, and acknowledge it.

    When none comes in time the exit code is 4.
    """
    form = message_format(settings, raw, headers_only, subjects_only)
    with settings.connect() as nc:
        worker = _bind(settings.jetstream(nc), stream, consumer)
        answer = _reply_to(worker, reply)
        for _ in range(count):
            msg = worker.next(timeout=settings.timeout if wait is None else wait)
            _write_all([msg], form, answer)


@click.command(
    cls=ExampleCommand, example="jsync fetch ORDERS billing --count 10 --no-wait"
)
@click.argument("stream", type=STREAM)
@click.argument("consumer", type=CONSUMER)
@click.option(
    "--count", type=Number(1), help="The maximum number of messages. Default: 100."
)
@click.option(
    "--max-bytes", type=SIZE, help="The maximum number of bytes, instead of --count."
)
@click.option(
    "--wait", type=DURATION, help="Time to wait for all messages. Default: 5s."
)
@click.option("--no-wait", is_flag=True, help="Only messages that exist now.")
@_ack_options
@form_options
@click.pass_obj
def fetch(
    settings: Settings,
    stream: str,
    consumer: str,
    count: int | None,
    max_bytes: int | None,
    wait: float | None,
    no_wait: bool,
    reply: str,
    raw: bool,
    headers_only: bool,
    subjects_only: bool,
) -> None:
    """Write a batch of a consumer's messages, and acknowledge them.

    The command ends with --count messages, or after --wait. An empty batch is no error.
    """
    if max_bytes is not None and count is not None:
        raise click.UsageError("--count and --max-bytes exclude each other")
    if no_wait and wait is not None:
        raise click.UsageError("--wait and --no-wait exclude each other")
    form = message_format(settings, raw, headers_only, subjects_only)
    limit = 100 if count is None and max_bytes is None else count
    with settings.connect() as nc:
        worker = _bind(settings.jetstream(nc), stream, consumer)
        if no_wait:
            batch = worker.fetch_nowait(limit, max_bytes=max_bytes)
        else:
            seconds = settings.timeout if wait is None else wait
            batch = worker.fetch(limit, max_bytes=max_bytes, timeout=seconds)
        with batch:
            _write_all(batch, form, _reply_to(worker, reply))


@click.command(
    cls=ExampleCommand,
    example="jsync consume ORDERS --filter orders.new --raw --terminate-at-end",
)
@click.argument("stream", type=STREAM)
@click.argument("consumer", type=CONSUMER, required=False)
@click.option("--count", type=Number(1), help="End after this number of messages.")
@click.option("--wait", type=DURATION, help="End after this time without a message.")
@click.option(
    "--terminate-at-end", "-T", is_flag=True, help="End after the last stored message."
)
@click.option(
    "--filter",
    "filters",
    multiple=True,
    metavar="SUBJECT",
    help="Only messages of this subject, wildcards allowed.",
)
@click.option(
    "--new", "start", flag_value="new", help="Only messages that arrive from now on."
)
@click.option(
    "--last",
    "start",
    flag_value="last",
    help="Start at the last message of the stream.",
)
@click.option(
    "--last-per-subject",
    "start",
    flag_value="last_per_subject",
    help="Start at the last message of each subject.",
)
@click.option(
    "--start-sequence", type=Number(1), help="Start at this sequence of the stream."
)
@click.option("--since", type=PAST_TIME, help="Start at a time, or a duration ago.")
@click.option(
    "--max-messages", type=Number(1), help="The maximum number of messages to prefetch."
)
@_ack_options
@form_options
@click.pass_obj
def consume(
    settings: Settings,
    stream: str,
    consumer: str | None,
    count: int | None,
    wait: float | None,
    terminate_at_end: bool,
    filters: tuple[str, ...],
    start: str | None,
    start_sequence: int | None,
    since: datetime | None,
    max_messages: int | None,
    reply: str,
    raw: bool,
    headers_only: bool,
    subjects_only: bool,
) -> None:
    """Write the messages of a consumer or a stream as they arrive.

    Until Ctrl-C, or as --count, --wait and --terminate-at-end say. With CONSUMER they come
    from that consumer, and are acknowledged once they are written. Without one the stream
    is read in order, from its first message if nothing else is said, and nothing is left
    behind on the server.
    """
    form = message_format(settings, raw, headers_only, subjects_only)
    place = _start_options(start, start_sequence, since)
    with settings.connect(flow=True) as nc:
        js = settings.jetstream(nc)
        limits: dict[str, Any] = {
            "max_messages": max_messages,
            "stop_after": count,
            "idle_timeout": wait,
        }
        if consumer is None:
            log = js.ordered_consumer(stream, filter_subjects=[*filters], **place)
            with log.messages(until_end=terminate_at_end, **limits) as messages:
                _write_all(messages, form, "")
            return
        if place or filters or terminate_at_end:
            raise click.UsageError(
                "a CONSUMER keeps its own position and filters: leave these options out "
                "(`jsync consumer info` shows them)"
            )
        worker = _bind(js, stream, consumer)
        with worker.messages(**limits) as messages:
            _write_all(messages, form, _reply_to(worker, reply))


def _start_options(
    start: str | None, sequence: int | None, since: datetime | None
) -> dict[str, Any]:
    """Return the arguments of an ordered consumer for the first message to read.

    Raises `click.UsageError` if more than one place is given.
    """
    if sum(value is not None for value in (start, sequence, since)) > 1:
        raise click.UsageError("several options say where to start: give one")
    if sequence is not None:
        return {"deliver_policy": "by_start_sequence", "opt_start_seq": sequence}
    if since is not None:
        return {"deliver_policy": "by_start_time", "opt_start_time": since}
    return {} if start is None else {"deliver_policy": start}
