"""The arguments and answers of handlers, derived from their annotations.

Pure: no socket, thread or clock.
"""

from __future__ import annotations

import inspect
import typing
from collections import ChainMap
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from ..errors import ConfigError, ServiceError
from ..validation import check_callable
from .request import Request

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

RAW: Final = (bytes, bytearray, memoryview)
"""Payloads that are sent unchanged."""

_NOTHING: Final = inspect.Parameter.empty

_FOR_CHECKERS: Final[dict[str, Any]] = {
    "Request": Request,
    "jsync": SimpleNamespace(Request=Request),
}
"""Names that a handler's module may import only for its type checker."""


class Bound(NamedTuple):
    """A handler, ready to be called with requests."""

    call: Callable[[Request], bytes | None]
    """Returns the answer, or None if there is none yet."""
    schemas: dict[str, str]
    """JSON schemas for the metadata of the endpoint."""


def bind(handler: Callable[..., object]) -> Bound:
    """Read the annotations of a handler.

    Raises:
        ConfigError: The handler takes parameters other than a payload and a `Request`, or
            an annotation cannot be used.
    """
    check_callable(handler, "the handler")
    name = getattr(handler, "__qualname__", repr(handler))
    parameters, hints = _signature(handler, name)
    takes_request, payload, places = False, _NOTHING, ""
    for parameter in parameters:
        kind = hints.get(parameter, Request)
        if kind is Request and not takes_request:
            takes_request = True
            places += "r"
        elif kind is not Request and payload is _NOTHING:
            payload = kind
            places += "p"
        else:
            raise ConfigError(
                f"{name} has a parameter too many, {parameter!r}: a handler takes a "
                "Request, a payload with the annotation of its type, or both"
            )
    if not places:
        raise ConfigError(f"{name} has to take a Request, or a payload with its type")
    reply = hints.get("return", _NOTHING)
    schemas = {}
    if payload not in (_NOTHING, bytes):
        schemas["request_schema"] = _schema(payload, name)
    if reply not in (_NOTHING, None, type(None), bytes):
        schemas["response_schema"] = _schema(reply, name)
    called = _called(handler, places, payload)
    encoded = "response_schema" in schemas
    return Bound(_answering(called, name, encoded, takes_request), schemas)


def _signature(
    handler: Callable[..., object], name: str
) -> tuple[list[str], Mapping[str, Any]]:
    """Return the names of the parameters, and the types of the annotated ones."""
    try:
        signature = inspect.signature(handler)
        function = inspect.unwrap(getattr(handler, "func", handler))
        if not inspect.isroutine(function):
            function = type(function).__call__
        known = ChainMap(getattr(function, "__globals__", {}), _FOR_CHECKERS)
        hints = typing.get_type_hints(function, None, known, include_extras=True)
    except (TypeError, ValueError, NameError) as error:
        raise ConfigError(
            f"the annotations of {name} cannot be read: {error}; define their types at the "
            "top of a module"
        ) from error
    found = []
    for parameter in signature.parameters.values():
        if parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
            continue
        if parameter.kind is parameter.KEYWORD_ONLY:
            if parameter.default is _NOTHING:
                raise ConfigError(
                    f"{name} needs the keyword {parameter.name!r}, which jsync does not pass: give it a default"
                )
            continue
        if parameter.default is _NOTHING:
            found.append(parameter.name)
    return found, hints


def _schema(kind: Any, name: str) -> str:
    try:
        return msgspec.json.encode(msgspec.json.schema(kind)).decode()
    except (TypeError, ValueError, RuntimeError) as error:
        raise ConfigError(
            f"{name} has the annotation {kind!r}, which cannot be read from JSON: {error}"
        ) from error


def _called(
    handler: Callable[..., Any], places: str, payload: Any
) -> Callable[[Request], Any]:
    """Return the handler as a function of only the request."""
    if places == "r":
        return handler
    if payload is bytes:
        read: Callable[[Request], Any] = _data
    else:
        read = _decoding(payload)
    if places == "p":
        return lambda request: handler(read(request))
    if places == "rp":
        return lambda request: handler(request, read(request))
    return lambda request: handler(read(request), request)


def _data(request: Request) -> bytes:
    return request.data


def _decoding(payload: Any) -> Callable[[Request], Any]:
    decode = msgspec.json.Decoder(payload).decode

    def read(request: Request) -> Any:
        try:
            return decode(request.data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise BadPayloadError(error) from error

    return read


class BadPayloadError(ServiceError):
    """The payload is not of the type that the handler takes."""

    def __init__(self, error: Exception) -> None:
        super().__init__(400, str(error))


def _answering(
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
