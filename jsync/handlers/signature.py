"""The parameters and the result of a handler, read from its annotations. Pure."""

from __future__ import annotations

import enum
import inspect
import typing
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeVar

from ..errors import ConfigError
from ..validation import check_callable

if TYPE_CHECKING:
    from collections.abc import Callable

EMPTY: Final = inspect.Parameter.empty
"""The annotation of a parameter or a result that has none."""


class Message(Protocol):
    """A message or a request: its payload is all that matters here."""

    @property
    def data(self) -> bytes:
        """The payload."""


MessageT = TypeVar("MessageT", bound=Message)


class Parameters(enum.Enum):
    """The required parameters of a handler, in their order."""

    MESSAGE = enum.auto()
    PAYLOAD = enum.auto()
    PAYLOAD_MESSAGE = enum.auto()
    MESSAGE_PAYLOAD = enum.auto()


class Signature(NamedTuple):
    """The parameters of a handler and the types of its annotations.

    A type whose name cannot be found at run time is a string.
    """

    name: str
    parameters: Parameters
    payload: Any
    """The type of the payload. `EMPTY`: the handler takes none, or it has no annotation."""
    result: Any

    @property
    def takes_message(self) -> bool:
        """True if the handler gets the message or the request."""
        return self.parameters is not Parameters.PAYLOAD

    @property
    def takes_payload(self) -> bool:
        """True if the handler gets the payload."""
        return self.parameters is not Parameters.MESSAGE


def read_signature(
    handler: Callable[..., object],
    noun: str,
    message_types: tuple[type, ...],
    *,
    has_payload: bool = False,
) -> Signature:
    """Read the parameters and the annotations of a handler.

    A parameter without an annotation is the message, unless another parameter has the type
    of a message. Of two parameters without annotations the second is the message.

    Args:
        handler: The handler.
        noun: The word for the message in errors: "message" or "request".
        message_types: The types of a parameter that gets the message.
        has_payload: Whether the type of the payload is known already, so that a single
            parameter gets the payload.

    Raises:
        ConfigError: The handler takes parameters other than a payload and a message.
    """
    check_callable(handler, "the handler")
    name = getattr(handler, "__qualname__", repr(handler))
    takes = f"a handler takes the payload, the {noun}, or both"
    required, result = _annotations(handler, name)
    if len(required) not in (1, 2):
        raise ConfigError(f"{name} takes {len(required)} arguments: {takes}")
    position = _position_of_message(list(required.values()), message_types, has_payload)
    if len(required) == 2 and position is None:
        raise ConfigError(
            f"{name} has a parameter too many, {list(required)[1]!r}: {takes}"
        )
    types = [kind for index, kind in enumerate(required.values()) if index != position]
    if len(required) == 1:
        alone = Parameters.PAYLOAD if types else Parameters.MESSAGE
        return Signature(name, alone, types[0] if types else EMPTY, result)
    both = (Parameters.MESSAGE_PAYLOAD, Parameters.PAYLOAD_MESSAGE)[position or 0]
    return Signature(name, both, types[0], result)


def call_with_payload(
    handler: Callable[..., Any],
    parameters: Parameters,
    decode: Callable[[bytes], object],
) -> Callable[[MessageT], Any]:
    """Return the handler as a function of a message or a request alone."""
    match parameters:
        case Parameters.MESSAGE:
            return handler
        case Parameters.PAYLOAD:
            return lambda msg: handler(decode(msg.data))
        case Parameters.PAYLOAD_MESSAGE:
            return lambda msg: handler(decode(msg.data), msg)
        case Parameters.MESSAGE_PAYLOAD:
            return lambda msg: handler(msg, decode(msg.data))


def _annotations(
    handler: Callable[..., object], name: str
) -> tuple[dict[str, Any], Any]:
    """Return the annotations of the required parameters, and that of the result."""
    try:
        signature = inspect.signature(handler)
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"the parameters of {name} cannot be read: {error}"
        ) from error
    function = inspect.unwrap(getattr(handler, "func", handler))
    if not inspect.isroutine(function):
        function = type(function).__call__
    names = getattr(function, "__globals__", {})
    required = {}
    for parameter in signature.parameters.values():
        if parameter.default is not EMPTY:
            continue
        if parameter.kind is parameter.KEYWORD_ONLY:
            raise ConfigError(
                f"{name} needs the keyword {parameter.name!r}, which jsync does not pass: "
                "give it a default"
            )
        if parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
            required[parameter.name] = _evaluate(parameter.annotation, names)
    return required, _evaluate(signature.return_annotation, names)


def _evaluate(annotation: Any, names: dict[str, Any]) -> Any:
    """Return an annotation, as a string if only type checkers can import its name."""
    if not isinstance(annotation, str):
        return annotation
    holder = SimpleNamespace(__annotations__={"it": annotation})
    try:
        return typing.get_type_hints(holder, names, include_extras=True)["it"]
    except (NameError, TypeError, AttributeError, SyntaxError):
        return annotation


def _position_of_message(
    annotations: list[Any], message_types: tuple[type, ...], has_payload: bool
) -> int | None:
    """Return which of one or two parameters gets the message."""
    names = {kind.__name__ for kind in message_types}

    def is_message(kind: Any) -> bool:
        if isinstance(kind, str):
            return kind.rpartition(".")[2] in names
        return kind in message_types

    found = [index for index, kind in enumerate(annotations) if is_message(kind)]
    if found:
        return found[0] if len(found) == 1 else None
    if len(annotations) == 1:
        return 0 if annotations[0] is EMPTY and not has_payload else None
    for accepts_message in (_is_empty, _is_any_object):
        found = [
            index for index, kind in enumerate(annotations) if accepts_message(kind)
        ]
        if found:
            return found[-1]
    return None


def _is_empty(kind: Any) -> bool:
    return kind is EMPTY


def _is_any_object(kind: Any) -> bool:
    return kind in (Any, object) or getattr(kind, "_is_protocol", False)
