"""The answers and schemas of handlers, derived from their annotations. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from ..errors import ConfigError
from ..handlers.payload import payload_decoder, unknown_type
from ..handlers.signature import EMPTY, call_with_payload, read_signature
from .request import Request

if TYPE_CHECKING:
    from collections.abc import Callable

RAW: Final = (bytes, bytearray, memoryview)
"""Payloads that are sent unchanged."""


class BoundHandler(NamedTuple):
    """A handler, ready to be called with requests."""

    call: Callable[[Request], bytes | None]
    """Returns the answer, or None if there is none yet. It raises `InvalidPayloadError`."""
    schemas: dict[str, str]
    """JSON schemas for the metadata of the endpoint."""


def bind_handler(handler: Callable[..., object]) -> BoundHandler:
    """Read the annotations of a handler.

    Raises:
        ConfigError: The handler takes parameters other than a payload and a `Request`, or
            an annotation cannot be used.
    """
    signature = read_signature(handler, "request", (Request,))
    name, payload, result = signature.name, signature.payload, signature.result
    schemas = {}
    if signature.takes_payload and payload not in (EMPTY, bytes):
        schemas["request_schema"] = _schema(payload, name)
    if result not in (EMPTY, None, type(None), bytes):
        schemas["response_schema"] = _schema(result, name)
    decode = payload_decoder(payload, name)
    call: Callable[[Request], Any] = call_with_payload(
        handler, signature.parameters, decode
    )
    encoded = "response_schema" in schemas
    return BoundHandler(
        _returning_bytes(call, name, encoded, signature.takes_message), schemas
    )


def _schema(kind: Any, name: str) -> str:
    if isinstance(kind, str):
        raise unknown_type(kind, name)
    try:
        return msgspec.json.encode(msgspec.json.schema(kind)).decode()
    except (TypeError, ValueError, RuntimeError) as error:
        raise ConfigError(
            f"{name} has the annotation {kind!r}, which cannot be read from JSON: {error}"
        ) from error


def _returning_bytes(
    called: Callable[[Request], Any], name: str, encoded: bool, takes_request: bool
) -> Callable[[Request], bytes | None]:
    """Return the handler as a function that returns bytes."""

    def encode(answer: Any) -> bytes | None:
        # A handler that takes the request may have answered already, or may answer
        # later.
        if answer is None and takes_request:
            return None
        return msgspec.json.encode(answer)

    def check(answer: Any) -> Any:
        if answer is None:
            return None if takes_request else b""
        if isinstance(answer, RAW):
            return bytes(answer)
        raise TypeError(
            f"{name} returned a {type(answer).__name__}: return bytes, or annotate the "
            "type that it returns to have that sent as JSON"
        )

    if encoded:
        return lambda request: encode(called(request))

    def raw(request: Request) -> Any:
        answer = called(request)
        return answer if type(answer) is bytes else check(answer)

    return raw
