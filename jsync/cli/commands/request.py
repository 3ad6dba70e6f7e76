"""`jsync request` and `jsync reply`."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import click

from jsync import errors

from ..groups import ExampleCommand
from ..params.payloads import headers_option, read_payloads
from ..params.settings import flush
from ..params.templates import MessageTemplate, templates_option
from ..params.values import DURATION, Number
from ..ui.errors import format_error, print_error
from ..ui.messages import form_options, message_format

if TYPE_CHECKING:
    import jsync

    from ..params.settings import Settings
    from ..params.templates import RenderedMessage
    from ..ui.messages import MessageFormat


@click.command(cls=ExampleCommand, example="jsync request hello.echo 'good morning'")
@click.argument("subject")
@click.argument("body", required=False)
@headers_option
@click.option(
    "--replies",
    type=Number(0),
    default=1,
    help="The number of replies, or 0 to wait until no more arrive.",
)
@click.option(
    "--reply-timeout",
    type=DURATION,
    default=0.3,
    help="Time to wait for each further reply.",
)
@click.option(
    "--count", type=Number(1), default=1, help="Send the request this many times."
)
@templates_option
@form_options
@click.pass_obj
def request(
    settings: Settings,
    subject: str,
    body: str | None,
    headers: tuple[tuple[str, str], ...],
    replies: int,
    reply_timeout: float,
    count: int,
    templates: bool,
    raw: bool,
    headers_only: bool,
    subjects_only: bool,
) -> None:
    """Send a request and write the replies.

    BODY is the payload. Without BODY the payload is read from the standard input,
    unless that is a terminal. The first reply may take --timeout, each further one
    --reply-timeout. With --count each request waits for the replies to the one before.
    SUBJECT, BODY and headers may hold the templates of `jsync pub`.
    """
    form = message_format(settings, raw, headers_only, subjects_only)
    draft = MessageTemplate(subject, body, headers, templates=templates)
    (payload,) = read_payloads(body, "eof")
    written = 0
    with settings.connect() as nc:
        for number in range(1, count + 1):
            message = draft.fill(number, payload)
            if replies == 1:
                reply = nc.request(
                    message.subject,
                    message.data,
                    timeout=settings.timeout,
                    headers=message.headers,
                )
                form.write(reply, number=0 if count == 1 else number)
            else:
                many = _ReplyLimits(replies, settings.timeout, reply_timeout)
                written += _request_many(nc, message, many, form, written)


class _ReplyLimits(NamedTuple):
    """The number of replies to wait for, or 0 for any number, and the timeouts."""

    replies: int
    timeout: float
    stall: float


def _request_many(
    nc: jsync.Connection,
    message: RenderedMessage,
    many: _ReplyLimits,
    form: MessageFormat,
    before: int,
) -> int:
    """Write the replies to one request, and return their number.

    Raises `TimeoutError` if there are fewer than requested, or none.
    """
    number = 0
    for number, msg in enumerate(
        nc.request_many(
            message.subject,
            message.data,
            timeout=many.timeout,
            stall=many.stall,
            max_messages=many.replies or None,
            headers=message.headers,
        ),
        1,
    ):
        form.write(msg, before + number)
    if number < many.replies or number == 0:
        raise errors.TimeoutError(
            f"{number} of {many.replies or 'any'} replies came in time"
        )
    return number


@click.command(cls=ExampleCommand, example="jsync reply greetings 'hello, {{Request}}'")
@click.argument("subject")
@click.argument("body", required=False)
@headers_option
@click.option("--echo", is_flag=True, help="Reply with the payload of the request.")
@click.option(
    "--queue",
    "-q",
    default="NATS-RPLY-22",
    help="The queue group to share requests with.",
)
@click.option("--count", type=Number(1), help="End after this number of requests.")
@templates_option
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
    templates: bool,
    raw: bool,
    headers_only: bool,
    subjects_only: bool,
) -> None:
    """Answer requests.

    The reply is BODY, or with --echo the payload of the request. Ends with Ctrl-C, or
    as --count says. Several running commands share the requests, as members of one
    queue group. BODY and headers may hold the templates of `jsync pub`, and
    {{Request}}: the payload of the request.
    """
    if echo == (body is not None):
        raise click.UsageError("give a BODY, or --echo")
    form = message_format(settings, raw, headers_only, subjects_only)
    draft = MessageTemplate("", body, headers, templates=templates, answers=True)
    with settings.connect(flow=True) as nc, nc.subscribe(subject, queue=queue) as sub:
        flush(nc, settings.timeout)
        print_error(f"answering on {subject}")
        for number, msg in enumerate(sub, 1):
            form.write(msg, number)
            if msg.reply:
                answer = draft.fill(number, msg.data, request=msg.data)
                try:
                    msg.respond(answer.data, headers=answer.headers)
                except (errors.InvalidSubjectError, errors.MaxPayloadError) as error:
                    # A failure to answer one request must not end the command.
                    print_error(f"not answered: {format_error(error)}")
            if number == count:
                break
