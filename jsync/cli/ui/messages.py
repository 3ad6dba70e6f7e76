"""Messages in the forms for people, pipes and programs."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from jsync import JetStreamMsg, StoredMessage

from ..decorators import with_options
from .output import OutputSettings, Styled, write_bytes, write_line, write_text

if TYPE_CHECKING:
    from jsync import Headers, Msg


class MessageFormat(NamedTuple):
    """The parts of each message to write, and their form."""

    json: bool
    raw: bool
    """Write only payloads, each with a line break. A terminal gets them escaped."""
    headers_only: bool = False
    subjects_only: bool = False

    def write(self, msg: Msg | StoredMessage, number: int = 1) -> None:
        """Write one message immediately.

        `number` stands in the heading of a message without a sequence. 0 leaves the
        heading out.
        """
        if self.json:
            document = document_of(msg)
            if self.headers_only or self.subjects_only:
                document.pop("data", None)
                document.pop("data_base64", None)
            write_line(document)
        elif self.subjects_only:
            write_bytes(msg.subject.encode(errors="surrogateescape") + b"\n")
        elif self.raw:
            write_bytes(msg.data + b"\n")
        else:
            head = Styled(f"{heading(msg, number)}\n" if number else "", bold=True)
            write_text(head, self._text(msg), "\n\n" if number else "\n")

    def _text(self, msg: Msg | StoredMessage) -> str:
        headers = pairs(msg.headers)
        lines = [f"{name}: {value}" for name, value in headers]
        if msg.headers_error is not None:
            lines.append(f"(unreadable headers: {msg.headers_error})")
        if not self.headers_only:
            if lines:
                lines.append("")
            lines += [body_text(msg.data)]
        return "\n".join(lines)


form_options: Final = with_options(
    click.option("--raw", "-r", is_flag=True, help="Write only the payloads."),
    click.option("--headers-only", is_flag=True, help="Leave out the payloads."),
    click.option("--subjects-only", is_flag=True, help="Write only the subjects."),
)
"""The options of a command that writes messages, for `message_format`."""


def message_format(
    settings: OutputSettings, raw: bool, headers_only: bool, subjects_only: bool
) -> MessageFormat:
    """Return the form that the options select.

    Raises `click.UsageError` if the options are mutually exclusive.
    """
    requested = {
        "--json": settings.json,
        "--raw": raw,
        "--headers-only": headers_only,
        "--subjects-only": subjects_only,
    }
    given = [name for name, on in requested.items() if on]
    if (raw and len(given) > 1) or (headers_only and subjects_only):
        raise click.UsageError(f"{' and '.join(given)} exclude each other")
    return MessageFormat(settings.json, raw, headers_only, subjects_only)


def pairs(headers: Headers | None) -> list[tuple[str, str]]:
    return list(headers.pairs()) if headers else []


def heading(msg: Msg | StoredMessage, number: int) -> str:
    """Return the line above a message."""
    if isinstance(msg, StoredMessage):
        return f"#{msg.sequence} {msg.subject} {msg.timestamp:%FT%T.%fZ}"
    if not isinstance(msg, JetStreamMsg):
        reply = f" (reply to {msg.reply})" if msg.reply else ""
        return f"#{number} {msg.subject}{reply}"
    about = msg.metadata
    again = f", delivery {about.num_delivered}" if about.num_delivered > 1 else ""
    return (
        f"#{about.stream_sequence} {msg.subject} {about.timestamp:%FT%T.%fZ}"
        f" ({about.num_pending} pending{again})"
    )


def document_of(msg: Msg | StoredMessage) -> dict[str, Any]:
    """Return a message as JSON: `data` if the payload is text, else `data_base64`."""
    document: dict[str, Any] = {"subject": msg.subject}
    if isinstance(msg, StoredMessage):
        document["stream"] = msg.stream
        document["sequence"] = msg.sequence
        document["timestamp"] = msg.timestamp.isoformat()
    elif isinstance(msg, JetStreamMsg):
        about = msg.metadata
        document["stream"] = about.stream
        document["consumer"] = about.consumer
        document["sequence"] = about.stream_sequence
        document["delivered"] = about.num_delivered
        document["pending"] = about.num_pending
        document["timestamp"] = about.timestamp.isoformat()
    elif msg.reply:
        document["reply"] = msg.reply
    if msg.headers:
        document["headers"] = {name: msg.headers.get_all(name) for name in msg.headers}
    if msg.headers_error is not None:
        document["headers_error"] = msg.headers_error
    return document | body_document("data", msg.data)


def body_document(name: str, data: bytes) -> dict[str, str]:
    """Return bytes as JSON: under `name` if they are text, else in base64."""
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode()}


def body_text(data: bytes) -> str:
    """Return bytes as text for people, or their number if they are not text."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return f"({len(data)} bytes, not text: --raw writes them)"
