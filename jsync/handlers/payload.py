"""Payloads of messages, decoded to the types that handlers take. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, get_origin

import msgspec
from msgspec.inspect import CustomType, type_info

from ..errors import CodecError, ConfigError, InvalidPayloadError
from .signature import EMPTY

if TYPE_CHECKING:
    from collections.abc import Callable


def payload_decoder(kind: Any, name: str) -> Callable[[bytes], Any]:
    """Return the decoder of the payloads of a type.

    Args:
        kind: `bytes` or no annotation for the payload as it is, a codec with `encode` and
            `decode`, or a type that msgspec reads from JSON.
        name: The handler, for errors.

    Returns:
        The decoder. It raises `InvalidPayloadError`.

    Raises:
        ConfigError: No payload can be decoded to the type.
    """
    if kind is bytes or kind is EMPTY:
        return bytes
    if isinstance(kind, str):
        raise unknown_type(kind, name)
    decode: Callable[[bytes], Any]
    if is_codec(kind):
        decode = kind.decode
    else:
        try:
            decode = msgspec.json.Decoder(kind).decode
            if isinstance(type_info(kind), CustomType):
                raise TypeError("msgspec does not know the type")
        except TypeError as error:
            raise ConfigError(
                f"{name} has the payload {kind!r}, which cannot be read from JSON: {error}"
            ) from error
    return _raising(decode, _name(kind))


def text_decoder() -> Callable[[bytes], str]:
    """Return the decoder of payloads that are text in UTF-8."""
    return _raising(bytes.decode, "str")


def unknown_type(annotation: str, name: str) -> ConfigError:
    """Return the error for an annotation whose names cannot be found at run time."""
    return ConfigError(
        f"{annotation!r}, an annotation of {name}, cannot be found at run time: define it at "
        "the top of a module, and import it outside of TYPE_CHECKING"
    )


def is_codec(kind: Any) -> bool:
    """Tell whether a payload is described by a codec, as in key-value."""
    return hasattr(kind, "encode") and hasattr(kind, "decode")


def _raising(decode: Callable[[bytes], Any], name: str) -> Callable[[bytes], Any]:
    def decode_or_raise(data: bytes) -> Any:
        try:
            return decode(data)
        except (ValueError, RecursionError, CodecError) as error:
            raise InvalidPayloadError(
                f"the payload is not a valid {name}: {error}"
            ) from error

    return decode_or_raise


def _name(kind: Any) -> str:
    if get_origin(kind) is Annotated:
        kind = kind.__origin__
    return str(getattr(kind, "__name__", type(kind).__name__))
