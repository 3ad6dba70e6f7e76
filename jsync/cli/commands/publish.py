"""`jsync pub`: messages from the command line or the standard input."""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, Any, Final

import click

from ..groups import ExampleCommand
from ..params.payloads import headers_option, read_payloads
from ..params.settings import flush
from ..params.templates import MessageTemplate, templates_option
from ..params.values import DURATION, Number
from ..ui.output import echo, write_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import jsync

    from ..params.settings import Settings
    from ..params.templates import RenderedMessage

_WINDOW: Final = 4000


@click.command(
    cls=ExampleCommand,
    example=(
        "jsync pub orders.new '{\"id\": 42}' --jetstream\n"
        "seq 1 100 | jsync pub orders.count --jetstream --send-on newline"
    ),
)
@click.argument("subject")
@click.argument("body", required=False)
@headers_option
@click.option("--reply", metavar="SUBJECT", help="The subject for replies.")
@click.option(
    "--count", type=Number(1), default=1, help="Publish the message this many times."
)
@click.option("--sleep", type=DURATION, default=0.0, help="The pause between messages.")
@click.option(
    "--send-on",
    type=click.Choice(["eof", "newline"]),
    default="eof",
    help="Publish standard input as one message, or each line as one.",
)
@click.option(
    "--jetstream", "-J", is_flag=True, help="Wait until each message is stored."
)
@click.option(
    "--msg-id",
    metavar="ID",
    help="A message id, by which the stream drops duplicates. Needs -J.",
)
@click.option(
    "--ttl", type=DURATION, help="The time after which the message expires. Needs -J."
)
@templates_option
@click.option("--quiet", "-q", is_flag=True, help="Write nothing.")
@click.pass_obj
def pub(
    settings: Settings,
    subject: str,
    body: str | None,
    headers: tuple[tuple[str, str], ...],
    reply: str | None,
    count: int,
    sleep: float,
    send_on: str,
    jetstream: bool,
    msg_id: str | None,
    ttl: float | None,
    templates: bool,
    quiet: bool,
) -> None:
    """Publish messages.

    BODY is the payload. Without BODY the payload is read from the standard input,
    unless that is a terminal. With --jetstream every message is stored when the command
    succeeds.

    SUBJECT, BODY and the values of headers may hold templates. {{Count}} is the number
    of the message. {{TimeStamp}}, {{Time}}, {{Unix}} and {{UnixNano}} are the present
    time. {{ID}} is a unique id, and {{Random 10 20}} are 10 to 20 random letters.
    """
    if not jetstream and (msg_id is not None or ttl is not None):
        raise click.UsageError("--msg-id and --ttl need --jetstream")
    if jetstream and reply is not None:
        raise click.UsageError("--reply and --jetstream exclude each other")
    draft = MessageTemplate(subject, body, headers, templates=templates)
    payloads = (
        payload for payload in read_payloads(body, send_on) for _ in range(count)
    )
    with settings.connect() as nc:
        paced = enumerate(_paced(payloads, sleep), 1)
        messages = (draft.fill(number, payload) for number, payload in paced)
        if jetstream:
            options = {"msg_id": msg_id, "ttl": ttl}
            is_single = count == 1 and (body is not None or send_on == "eof")
            js = settings.jetstream(nc)
            timeout = settings.timeout
            done = _store(js, subject, messages, options, timeout, is_single=is_single)
        else:
            done = _publish(nc, subject, messages, reply)
            flush(nc, settings.timeout)
    if settings.json:
        write_json(done)
    elif not quiet:
        echo(_format_result(done))


def _format_result(done: dict[str, Any]) -> str:
    if "stream" not in done:
        return f"published {done['published']} on {done['subject']}"
    known = f", {done['duplicates']} duplicates" if done["duplicates"] else ""
    return (
        f"stored {done['published']}{known} in {done['stream']}, sequence {done['seq']}"
    )


def _paced(payloads: Iterable[bytes], sleep: float) -> Iterator[bytes]:
    for number, payload in enumerate(payloads):
        if number and sleep:
            time.sleep(sleep)
        yield payload


def _publish(
    nc: jsync.Connection,
    subject: str,
    messages: Iterable[RenderedMessage],
    reply: str | None,
) -> dict[str, Any]:
    published = 0
    for message in messages:
        nc.publish(message.subject, message.data, reply=reply, headers=message.headers)
        published += 1
    return {"subject": subject, "published": published}


def _store(
    js: jsync.JetStream,
    subject: str,
    messages: Iterator[RenderedMessage],
    options: Any,
    timeout: float,
    *,
    is_single: bool,
) -> dict[str, Any]:
    """Store messages, and return the counts as JSON.

    A lone message is published and awaited. Several are sent ahead of their acks.
    """
    published = duplicates = 0
    last: jsync.PubAck | None = None

    def count(ack: jsync.PubAck) -> None:
        nonlocal last, published, duplicates
        last = ack
        published += 1
        duplicates += ack.duplicate

    if is_single:
        (message,) = messages
        count(
            js.publish(
                message.subject, message.data, headers=message.headers, **options
            )
        )
    else:
        waiting: deque[jsync.PubAckFuture] = deque()
        with js.publisher(window=_WINDOW, ack_timeout=timeout) as publisher:
            for item in messages:
                waiting.append(
                    publisher.publish(
                        item.subject, item.data, headers=item.headers, **options
                    )
                )
                # Read acks here, because the next line of a pipe may come much later.
                while waiting and (waiting[0].done() or len(waiting) > _WINDOW):
                    count(waiting.popleft().result())
        for future in waiting:
            count(future.result())
    done: dict[str, Any] = {"subject": subject, "published": published}
    if last is not None:
        done |= {"stream": last.stream, "seq": last.seq, "duplicates": duplicates}
    return done
