"""The replies of JetStream, decoded from JSON into objects and errors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, get_origin

import msgspec

from ..errors import APIError, JetStreamError, OperationFailedError, StreamSealedError
from ..models import ApiErrorReply

_decode = msgspec.json.Decoder(dict[str, Any]).decode
_DEEPEST = 100
"""The deepest nesting of a reply. Replies of nats-server have about ten levels."""

ONE_REPLY = (
    "the account that exports the JetStream API has to export it with "
    "response_type: stream"
)
"""The advice for an account that gets only one reply for each request."""

_Kind = TypeVar("_Kind")


def api_error(error: object, subject: str = "") -> APIError:
    """Make an exception from the `error` of a reply, of the class for its code.

    The text includes `asked`, the subject of the request, because the server names neither
    stream nor consumer. Invalid fields of the error count as missing.
    """
    reply = ApiErrorReply.from_wire(error if isinstance(error, Mapping) else {})
    kind = APIError.by_err_code.get(reply.err_code, APIError)
    if kind is OperationFailedError and reply.description == "sealed stream":
        kind = StreamSealedError  # the stream was sealed while the server purged it
    about = f", asked {subject}" if subject else ""
    words = reply.description or "JetStream API error"
    advice = f": {kind.advice}" if kind.advice else ""
    return kind(
        f"{words} (err_code {reply.err_code}{about}){advice}",
        code=reply.code,
        err_code=reply.err_code,
        description=reply.description,
    )


def parse_object(data: bytes) -> dict[str, Any]:
    """Decode a JSON object. Raises `JetStreamError` for anything else."""
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


def parse_reply(data: bytes, subject: str = "") -> dict[str, Any]:
    """Decode a reply. Raises its `APIError`, or `JetStreamError` if it is invalid."""
    reply = parse_object(data)
    if reply.get("error"):
        raise api_error(reply["error"], subject)
    return reply


def get_field(reply: Mapping[str, Any], name: str, missing: _Kind, kind: Any) -> _Kind:
    """Return a part of a reply, or `missing`. Raises `JetStreamError` for a wrong type."""
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
    """Return the items of a list in a reply, with None for each item of a wrong type."""
    shape = get_origin(kind) or kind
    items = get_field(reply, name, list[Any](), list[Any])
    return [item if isinstance(item, shape) else None for item in items]
