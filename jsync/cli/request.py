"""`jsync request` and `jsync reply`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from jsync import errors

from .failures import say, words_of
from .messages import form_of, form_options
from .publish import bodies, headers_of, headers_option
from .settings import flush
from .values import DURATION, Number

if TYPE_CHECKING:
    from .settings import Settings


@click.command()
@click.argument("subject")
@click.argument("body", required=False)
@headers_option
@click.option(
    "--replies",
    type=Number(0),
    default=1,
    help="Number of replies. 0: until no more come.",
)
@click.option(
    "--reply-timeout",
    type=DURATION,
    default=0.3,
    help="Time to wait for each further reply.",
)
@form_options
@click.pass_obj
def request(
    settings: Settings,
    subject: str,
    body: str | None,
    headers: tuple[tuple[str, str], ...],
    replies: int,
    reply_timeout: float,
    raw: bool,
    headers_only: bool,
    subjects_only: bool,
) -> None:
    """Send a request and write the replies.

    BODY is the payload. Without BODY the payload is read from the standard input,
    unless that is a terminal. The first reply may take --timeout, each further one
    --reply-timeout.
    """
    form = form_of(settings, raw, headers_only, subjects_only)
    (payload,) = bodies(body, "eof")
    with settings.connect() as nc:
        if replies == 1:
            form.write(
                nc.request(
                    subject,
                    payload,
                    timeout=settings.timeout,
                    headers=headers_of(headers),
                ),
                number=0,
            )
            return
        number = 0
        for number, msg in enumerate(
            nc.request_many(
                subject,
                payload,
                timeout=settings.timeout,
                stall=reply_timeout,
                max_messages=replies or None,
                headers=headers_of(headers),
            ),
            1,
        ):
            form.write(msg, number)
    if number < replies or number == 0:
        raise errors.TimeoutError(
            f"{number} of {replies or 'any'} replies came in time"
        )


@click.command()
@click.argument("subject")
@click.argument("body", required=False)
@headers_option
@click.option("--echo", is_flag=True, help="Reply with the payload of the request.")
@click.option("--queue", "-q", default="NATS-RPLY-22", help="The queue group.")
@click.option("--count", type=Number(1), help="End after this number of requests.")
@form_options
@click.pass_obj
def reply(
    settings: Settings,
    subject: str,
    body: str | None,
    headers: tuple[tuple[str, str], ...],
    echo: bool,
    queue: str,
    count: int | None,
    raw: bool,
    headers_only: bool,
    subjects_only: bool,
) -> None:
    """Answer requests.

    The reply is BODY, or with --echo the payload of the request. Ends with Ctrl-C, or
    as --count says. Several running commands share the requests, as members of one
    queue group.
    """
    if echo == (body is not None):
        raise click.UsageError("give a BODY, or --echo")
    form = form_of(settings, raw, headers_only, subjects_only)
    answer = None if body is None else body.encode(errors="surrogateescape")
    with settings.connect(flow=True) as nc, nc.subscribe(subject, queue=queue) as sub:
        flush(nc, settings.timeout)
        say(f"answering on {subject}")
        for number, msg in enumerate(sub, 1):
            form.write(msg, number)
            if msg.reply:
                data = msg.data if answer is None else answer
                try:
                    msg.respond(data, headers=headers_of(headers))
                except (errors.InvalidSubjectError, errors.MaxPayloadError) as error:
                    # One odd request does not end the answers to others.
                    say(f"not answered: {words_of(error)}")
            if number == count:
                break
