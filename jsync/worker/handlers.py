"""The arguments of a handler, and its settings. Pure."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, get_type_hints

import msgspec

from .._fast import JetStreamMsg, Msg
from ..core.around import inside
from ..errors import CodecError, ConfigError
from ..jetstream.retries.engine import Retry
from ..models import check_filter, check_name
from ..validation import check_callable, check_count, check_positive_seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from ..validation import Seconds

_MESSAGES: Final = {"JetStreamMsg", "Msg"}


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


def route(
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
    wanted = (subjects,) if isinstance(subjects, str) else tuple(subjects)
    for subject in wanted:
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
        call=inside(around, adapted(function, payload)),
        subjects=wanted,
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


def adapted(
    function: Callable[..., Any], payload: Any = None
) -> Callable[[JetStreamMsg], object]:
    """Return the handler as a function of a message, which decodes the payload."""
    check_callable(function, "a handler")
    kinds = _annotations(function)
    if len(kinds) not in (1, 2):
        raise ConfigError(
            f"{function!r} takes {len(kinds)} arguments; a handler takes the payload, the "
            "message, or the payload and the message"
        )
    alone = len(kinds) == 1
    if payload is None:
        if alone and _is_message(kinds[0]):
            return function
        payload = kinds[0]
    decode = _decoder(payload, function)
    if alone:
        return lambda msg: function(decode(msg))
    return lambda msg: function(decode(msg), msg)


def _annotations(function: Callable[..., Any]) -> list[Any]:
    """Return the annotations of the required arguments, in order."""
    positional = (
        inspect.Parameter.POSITIONAL_ONLY,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
    )
    return [
        _evaluated(parameter.annotation, function)
        for parameter in inspect.signature(function).parameters.values()
        if parameter.kind in positional and parameter.default is parameter.empty
    ]


def _evaluated(annotation: Any, function: Callable[..., Any]) -> Any:
    """Return an annotation, as a string if only type checkers can import its name."""
    if not isinstance(annotation, str):
        return annotation
    of = SimpleNamespace(__annotations__={"it": annotation})
    within = getattr(inspect.unwrap(function), "__globals__", {})
    try:
        return get_type_hints(of, within)["it"]
    except (NameError, TypeError, AttributeError, SyntaxError):
        return annotation


def _is_message(kind: Any) -> bool:
    if isinstance(kind, str):
        return kind.rpartition(".")[2] in _MESSAGES
    return kind in (inspect.Parameter.empty, JetStreamMsg, Msg)


def _decoder(kind: Any, function: Any) -> Callable[[JetStreamMsg], Any]:
    decode: Callable[[bytes], Any]
    if kind in (bytes, inspect.Parameter.empty, Any):
        return lambda msg: msg.data
    if isinstance(kind, str):
        raise ConfigError(
            f"{kind!r}, the annotation of {function!r}, cannot be found at run time; "
            "import it outside of TYPE_CHECKING, or pass payload="
        )
    if kind is str:
        decode = bytes.decode
    elif hasattr(kind, "encode") and hasattr(kind, "decode"):
        decode = kind.decode  # a codec, as in key-value
    else:
        try:
            decode = msgspec.json.Decoder(kind).decode
        except TypeError as error:
            raise ConfigError(f"payload: {kind!r}: {error}") from error

    def read(msg: JetStreamMsg) -> Any:
        try:
            return decode(msg.data)
        except (ValueError, RecursionError) as error:
            raise CodecError(f"no {_name(kind)}: {error}") from error

    return read


def _name(kind: Any) -> str:
    return str(getattr(kind, "__name__", type(kind).__name__))
