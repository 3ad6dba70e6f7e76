"""The handlers of a worker, and their settings. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .._fast import JetStreamMsg, Msg
from ..errors import ConfigError
from ..handlers.context import wrap_in_context
from ..handlers.payload import payload_decoder, text_decoder
from ..handlers.signature import call_with_payload, read_signature
from ..jetstream.retries.engine import Retry
from ..models import check_filter, check_name
from ..validation import check_count, check_positive_seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from ..validation import Seconds


@dataclass(frozen=True, kw_only=True, slots=True)
class Route:
    """A handler, and the consumer whose messages it gets."""

    name: str
    call: Callable[[JetStreamMsg], object]
    subjects: tuple[str, ...]
    stream: str
    consumer: str
    """The consumer, or the group."""
    group: str | None
    member: str | None
    workers: int
    retry: Retry
    time_limit: float | None
    max_messages: int
    """The most messages of a process: handled by its threads, and waiting."""
    ack_wait: float | None


def make_route(
    function: Callable[..., object],
    subjects: str | Sequence[str],
    *,
    around: Callable[[JetStreamMsg], AbstractContextManager[Any]] | None,
    stream: str | None,
    consumer: str | None,
    group: str | None,
    member: str | None,
    workers: int,
    payload: Any,
    retry: Retry,
    time_limit: Seconds | None,
    max_messages: int | None,
    ack_wait: Seconds | None,
) -> Route:
    """Check the arguments of `Worker.handle`.

    Raises:
        ConfigError: An argument is not valid.
    """
    if stream is None:
        raise ConfigError("stream: give it to Worker, or to handle")
    check_name(stream, "stream")
    name = consumer if group is None else group
    if name is None or None not in (consumer, group):
        raise ConfigError("give a handler a consumer or a group")
    if group is None and member is not None:
        raise ConfigError("member: it needs a group")
    if group is not None and (workers != 1 or max_messages is not None):
        raise ConfigError(
            "a member of a group handles one message at a time: leave out workers and "
            "max_messages, and run more processes"
        )
    check_name(name, "consumer" if group is None else "group")
    if member is not None:
        check_name(member, "member")
    patterns = (subjects,) if isinstance(subjects, str) else tuple(subjects)
    for subject in patterns:
        check_filter(subject, "subject")
    if not isinstance(retry, Retry):
        raise ConfigError(f"retry has to be a jsync.Retry, not {retry!r}")
    threads = check_count(workers, "workers", 1)
    held = (
        threads
        if max_messages is None
        else check_count(max_messages, "max_messages", 1)
    )
    if held < threads:
        raise ConfigError(
            f"max_messages has to be at least workers={threads}, not {held}: each thread "
            "has one message at a time"
        )
    return Route(
        name=getattr(function, "__qualname__", repr(function)),
        call=wrap_in_context(around, adapt_handler(function, payload)),
        subjects=patterns,
        stream=stream,
        consumer=name,
        group=group,
        member=member,
        workers=threads,
        retry=retry,
        time_limit=None
        if time_limit is None
        else check_positive_seconds(time_limit, "time_limit"),
        max_messages=held,
        ack_wait=None
        if ack_wait is None
        else check_positive_seconds(ack_wait, "ack_wait"),
    )


def adapt_handler(
    function: Callable[..., Any], payload: Any = None
) -> Callable[[JetStreamMsg], object]:
    """Return the handler as a function of a message, which decodes the payload.

    Raises:
        ConfigError: The signature, or the type of the payload, is not valid.
    """
    signature = read_signature(
        function, "message", (JetStreamMsg, Msg), has_payload=payload is not None
    )
    if not signature.takes_payload:
        if payload is not None:
            raise ConfigError(f"{signature.name} takes no payload: leave out payload")
        return function
    kind = signature.payload if payload is None else payload
    # A worker reads what any client has published, and text is rarely published as JSON.
    decode = text_decoder() if kind is str else payload_decoder(kind, signature.name)
    return call_with_payload(function, signature.parameters, decode)
