"""What JetStream answers: JSON into objects, and into errors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, get_origin

import msgspec

from ..errors import APIError, JetStreamError
from ..models import ApiErrorReply

_decode = msgspec.json.Decoder(dict[str, Any]).decode
_DEEPEST = 100
"""How deep a reply may be; those of nats-server are about ten deep."""

ONE_REPLY = (
    "the account that exports the JetStream API has to export it with "
    "response_type: stream"
)
"""What to do where each request has one reply, whatever its answer is made of."""

_Kind = TypeVar("_Kind")


def api_error(error: object, asked: str = "") -> APIError:
    """The error behind the `error` of a reply, of the class registered for its code.

    It says what was `asked`, since the server names neither stream nor consumer. A part
    of it that makes no sense counts as missing.
    """
    told = ApiErrorReply.from_wire(error if isinstance(error, Mapping) else {})
    kind = APIError.by_err_code.get(told.err_code, APIError)
    about = f", asked {asked}" if asked else ""
    words = told.description or "JetStream API error"
    advice = f": {kind.advice}" if kind.advice else ""
    return kind(
        f"{words} (err_code {told.err_code}{about}){advice}",
        code=told.code,
        err_code=told.err_code,
        description=told.description,
    )


def decoded(data: bytes) -> dict[str, Any]:
    """The JSON object that a server sent; raises `JetStreamError` for anything else."""
    try:
        reply = _decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise JetStreamError(f"not a reply of JetStream: {data[:100]!r}") from error
    # A reply is kept in `extra` of a model, where pickle and repr recurse into it.
    if data.count(b"{") + data.count(b"[") > _DEEPEST and _is_deep(reply):
        raise JetStreamError(f"not a reply of JetStream, too deep: {data[:100]!r}")
    return reply


def _is_deep(reply: Any) -> bool:
    level = [reply]
    for _ in range(_DEEPEST):
        level = [
            inner
            for outer in level
            if isinstance(outer, dict | list)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
        if not level:
            return False
    return True


def read_reply(data: bytes, asked: str = "") -> dict[str, Any]:
    """The reply to a request; raises `APIError` for an error, and as `decoded` does."""
    reply = decoded(data)
    if reply.get("error"):
        raise api_error(reply["error"], asked)
    return reply


def part_of(reply: Mapping[str, Any], name: str, missing: _Kind, kind: Any) -> _Kind:
    """A part of a reply, or `missing`; raises `JetStreamError` for one of another kind."""
    found = reply.get(name)
    if found is None:
        return missing
    try:
        part: _Kind = msgspec.convert(found, kind)
    except (msgspec.ValidationError, RecursionError) as error:
        raise JetStreamError(f"not a reply of JetStream: {name}: {error}") from error
    return part


def items_of(
    reply: Mapping[str, Any], name: str, kind: type[_Kind]
) -> list[_Kind | None]:
    """The items of a list in a reply, None for each that is of another kind."""
    shape = get_origin(kind) or kind
    items = part_of(reply, name, list[Any](), list[Any])
    return [item if isinstance(item, shape) else None for item in items]
