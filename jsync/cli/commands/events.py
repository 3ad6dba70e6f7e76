"""`jsync events`: advisories of JetStream and events of servers, as they arrive."""

from __future__ import annotations

import json
import re
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Final

import click

from jsync import errors

from ..groups import ExampleCommand
from ..params.completion import STREAM
from ..params.values import DURATION, Number
from ..ui.errors import format_error, print_error
from ..ui.output import Styled, write_line, write_text

if TYPE_CHECKING:
    from collections.abc import Iterable

    import jsync
    from jsync import Msg

    from ..params.settings import Settings

_ADVISORIES: Final = ("$JS.EVENT.ADVISORY.>",)
_METRICS: Final = ("$JS.EVENT.METRIC.>",)
_SERVERS: Final = (
    "$SYS.ACCOUNT.*.CONNECT",
    "$SYS.ACCOUNT.*.DISCONNECT",
    "$SYS.SERVER.*.CLIENT.AUTH.ERR",
)
_TITLES: Final = frozenset(("type", "id", "timestamp", "schema"))
_NAMES: Final = ("name", "host", "user", "acc", "id")
"""The fields that identify a client best."""
_MAX_TEXT: Final = 60
_POLL_INTERVAL: Final = 0.5
"""The seconds between two checks whether more events can arrive."""


@click.command(cls=ExampleCommand, example="jsync events --js-advisory --stream ORDERS")
@click.option(
    "--js-advisory",
    is_flag=True,
    help="Show advisories of JetStream. Default: every kind of event.",
)
@click.option("--js-metric", is_flag=True, help="Show metrics of JetStream.")
@click.option(
    "--srv-advisory", is_flag=True, help="Show events of servers, such as connections."
)
@click.option(
    "--subjects", multiple=True, metavar="SUBJECT", help="Show events on this subject."
)
@click.option("--stream", type=STREAM, help="Only events of this stream.")
@click.option(
    "--filter", "pattern", metavar="REGEX", help="Only events whose text matches."
)
@click.option("--count", type=Number(1), help="End after this number of events.")
@click.option("--wait", type=DURATION, help="End after this time without an event.")
@click.pass_obj
def events(
    settings: Settings,
    js_advisory: bool,
    js_metric: bool,
    srv_advisory: bool,
    subjects: tuple[str, ...],
    stream: str | None,
    pattern: str | None,
    count: int | None,
    wait: float | None,
) -> None:
    """Write events of JetStream and servers as they arrive.

    You get the events that your account may see, from now on. Servers send the events
    of connections to the system account only. Ends with Ctrl-C, or as --count and
    --wait say. With --json the events are the server's, one to a line.
    """
    regex = _compile(pattern)
    kinds: list[str] = []
    for chosen, of in (
        (js_advisory, _ADVISORIES),
        (js_metric, _METRICS),
        (srv_advisory, _SERVERS),
    ):
        if chosen or not (js_advisory or js_metric or srv_advisory or subjects):
            kinds += of
    kinds += subjects
    come: SimpleQueue[Msg] = SimpleQueue()
    with settings.connect(flow=True, on_error=_write_error) as nc:
        _subscribe(nc, kinds, come, settings.timeout)
        written = 0
        while written != count:
            try:
                msg = come.get(timeout=_POLL_INTERVAL if wait is None else wait)
            except Empty:
                if nc.is_closed:
                    raise nc.last_error or errors.ConnectionClosedError(
                        "the connection is closed"
                    ) from None
                if wait is not None:
                    return
                continue
            written += _write(msg, stream, regex, settings)


def _subscribe(
    nc: jsync.Connection, kinds: list[str], come: SimpleQueue[Msg], timeout: float
) -> None:
    """Subscribe to the kinds of events that the account may see.

    Raises `PermissionsError` if it may see none.
    """
    allowed: list[str] = []
    for subject in kinds:
        before = nc.last_error
        sub = nc.subscribe(subject, callback=come.put)
        nc.flush(timeout)
        error = nc.last_error
        if error is before or not isinstance(error, errors.PermissionsError):
            allowed.append(subject)
            continue
        sub.unsubscribe()
        if subject == kinds[-1] and not allowed:
            raise error
        print_error(format_error(error))
    print_error(f"events of {', '.join(allowed)}")


def _write_error(error: Exception) -> None:
    if not isinstance(error, errors.PermissionsError):
        print_error(format_error(error))


def _compile(pattern: str | None) -> re.Pattern[str]:
    try:
        return re.compile(pattern or "", re.IGNORECASE)
    except re.error as error:
        raise click.UsageError(f"--filter is no regular expression: {error}") from None


def _write(
    msg: Msg, stream: str | None, regex: re.Pattern[str], settings: Settings
) -> bool:
    """Write an event if it matches the stream and the pattern.

    Returns whether it was written.
    """
    text = msg.data.decode(errors="replace")
    try:
        event = json.loads(text)
    except (ValueError, RecursionError):
        event = None
    if not isinstance(event, dict):
        event = {"subject": msg.subject, "data": text}
    if stream is not None and event.get("stream") != stream:
        return False
    if not regex.search(text):
        return False
    if settings.json:
        write_line(event)
    else:
        write_text(*_line(event), "\n")
    return True


def _line(event: dict[str, Any]) -> Iterable[str | Styled]:
    """Return the parts of a line `TIME TYPE name=value ...`."""
    time = str(event.get("timestamp") or "-")[:19].replace("T", " ")
    kind = str(event.get("type") or "-").rpartition(".")[2]
    yield f"{_one_line(time)}  "
    yield Styled(_one_line(kind), bold=True)
    for name, value in event.items():
        if name not in _TITLES:
            if name == "server" and isinstance(value, dict):
                value = value.get("name")
            words = _format_fields(value)
            if words:
                yield f"  {_one_line(name)}={_one_line(words)}"


def _format_fields(value: object) -> str:
    match value:
        case dict():
            known = [str(value[name]) for name in _NAMES if value.get(name)]
            return "/".join(known) or _short(json.dumps(value, ensure_ascii=False))
        case list():
            return ",".join(map(_format_fields, value))
        case None | "":
            return ""
        case bool():
            return "yes" if value else "no"
    return _short(str(value))


def _short(text: str) -> str:
    return text if len(text) <= _MAX_TEXT else f"{text[: _MAX_TEXT - 1]}…"


def _one_line(text: str) -> str:
    return " ".join(text.split())
