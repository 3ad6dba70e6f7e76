"""Templates in subjects, payloads and headers, such as `{{Count}}` of the nats tool."""

from __future__ import annotations

import random
import re
import string
from datetime import datetime
from typing import TYPE_CHECKING, Final, NamedTuple

import click

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_ACTION: Final = re.compile(r"\{\{\s*\.?(.*?)\s*\}\}", re.DOTALL)
_LETTERS: Final = string.ascii_letters
_ID_LETTERS: Final = string.digits + _LETTERS
_ID_LENGTH: Final = 22
"""The length of an id. It has the entropy of a UUID and the length of a NUID."""
_MAX_RANDOM: Final = 64 << 20
"""The longest random string, because nats-server allows no larger payload."""


class TemplateContext(NamedTuple):
    """The facts that templates may insert into a message."""

    number: int
    """The number of the message, from 1."""
    now: datetime
    """The present time, with a time zone."""
    request: str = ""
    """The payload of the request, if the message is a reply."""


def _timestamp(moment: TemplateContext) -> str:
    return moment.now.isoformat(timespec="seconds").replace("+00:00", "Z")


def _kitchen(moment: TemplateContext) -> str:
    return f"{moment.now.hour % 12 or 12}:{moment.now:%M%p}"


def _unix_nano(moment: TemplateContext) -> str:
    whole = int(moment.now.timestamp())
    return str(whole * 10**9 + moment.now.microsecond * 1000)


def _id(moment: TemplateContext) -> str:
    return "".join(random.SystemRandom().choices(_ID_LETTERS, k=_ID_LENGTH))


_PLAIN: Final[dict[str, Callable[[TemplateContext], str]]] = {
    "Count": lambda moment: str(moment.number),
    "Cnt": lambda moment: str(moment.number),
    "TimeStamp": _timestamp,
    "Unix": lambda moment: str(int(moment.now.timestamp())),
    "UnixNano": _unix_nano,
    "Time": _kitchen,
    "ID": _id,
}
_LISTED: Final = "Count, TimeStamp, Unix, UnixNano, Time, ID, Random MIN MAX"

templates_option = click.option(
    "--templates/--no-templates",
    default=True,
    help="Fill templates such as {{Count}}, or publish them unchanged.",
)


class Template:
    """A text in which `{{Name}}` stands for a value of each message.

    Raises `click.UsageError` for an unknown name.
    """

    def __init__(self, text: str, *, answers: bool = False) -> None:
        self._answers = answers
        self._parts: list[str | Callable[[TemplateContext], str]] = []
        at = 0
        for action in _ACTION.finditer(text):
            self._parts += [text[at : action.start()], self._function(action)]
            at = action.end()
        if "{{" in text[at:]:
            raise click.UsageError(
                f"a template has no end: {text[at:]!r:.60}; "
                "write }} after it, or pass --no-templates"
            )
        self._parts.append(text[at:])

    def fill(self, moment: TemplateContext) -> str:
        """Return the text for one message."""
        return "".join(
            part if isinstance(part, str) else part(moment) for part in self._parts
        )

    def _function(self, action: re.Match[str]) -> Callable[[TemplateContext], str]:
        name, *arguments = action[1].split() or [""]
        if name == "Random":
            return _random_text(action[0], arguments)
        if name == "Request" and self._answers and not arguments:
            return lambda moment: moment.request
        if name in _PLAIN and not arguments:
            return _PLAIN[name]
        known = f"{_LISTED}, Request" if self._answers else _LISTED
        raise click.UsageError(
            f"unknown template: {action[0]}; jsync knows {known}. "
            "--no-templates publishes the text unchanged"
        )


def _random_text(action: str, arguments: list[str]) -> Callable[[TemplateContext], str]:
    if len(arguments) != 2 or not all(word.isdecimal() for word in arguments):
        raise click.UsageError(
            f"{action} is not complete: Random takes the least and the most letters, "
            "{{Random 10 20}}"
        )
    try:
        shortest, longest = sorted(map(int, arguments))
    except ValueError:  # Python refuses to read a number of thousands of digits
        shortest, longest = 0, _MAX_RANDOM + 1
    if longest > _MAX_RANDOM:
        raise click.UsageError(
            f"{action:.60} is too long: the limit is {_MAX_RANDOM} letters"
        )

    def text(moment: TemplateContext) -> str:
        return "".join(random.choices(_LETTERS, k=random.randint(shortest, longest)))

    return text


class RenderedMessage(NamedTuple):
    """A message to publish."""

    subject: str
    data: bytes
    headers: dict[str, list[str]] | None


class MessageTemplate:
    """The subject, the payload and the headers of messages, with templates in them."""

    def __init__(
        self,
        subject: str,
        body: str | None,
        headers: Iterable[tuple[str, str]],
        *,
        templates: bool,
        answers: bool = False,
    ) -> None:
        def read(text: str) -> Template | str:
            if templates and "{{" in text:
                return Template(text, answers=answers)
            return text

        self._subject = read(subject)
        self._body = None if body is None else read(body)
        self._headers = [(name, read(value)) for name, value in headers]
        texts = [self._subject, self._body, *(value for _, value in self._headers)]
        self._same = None
        if not any(isinstance(text, Template) for text in texts):
            self._same = self._filled(
                TemplateContext(0, datetime.now().astimezone()), b""
            )

    def fill(
        self, number: int, given: bytes = b"", request: bytes = b""
    ) -> RenderedMessage:
        """Return message `number`. Its payload is `given` if there is no body."""
        if self._same is not None:
            if self._body is not None:
                return self._same
            return self._same._replace(data=given)
        now = datetime.now().astimezone()
        text = request.decode(errors="surrogateescape")
        return self._filled(TemplateContext(number, now, text), given)

    def _filled(self, moment: TemplateContext, given: bytes) -> RenderedMessage:
        headers: dict[str, list[str]] = {}
        for name, value in self._headers:
            headers.setdefault(name, []).append(_filled(value, moment))
        if self._body is not None:
            given = _filled(self._body, moment).encode(errors="surrogateescape")
        return RenderedMessage(_filled(self._subject, moment), given, headers or None)


def _filled(text: Template | str, moment: TemplateContext) -> str:
    return text if isinstance(text, str) else text.fill(moment)
