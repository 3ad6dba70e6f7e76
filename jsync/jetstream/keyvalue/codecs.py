"""Keys and values in another form in the bucket than in your program (ADR-54).

Pure: no socket, thread or clock.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Final, Generic, Protocol

import msgspec

from ...errors import ConfigError, InvalidKeyError

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import TypeVar

    Value = TypeVar("Value", default=bytes)
    Coded = TypeVar("Coded")
else:
    from typing import TypeVar

    Value = TypeVar("Value")
    Coded = TypeVar("Coded")

_ROOT: Final = "_root_"


class ValueCodec(Protocol[Value]):
    """What a codec of values has."""

    def encode(self, value: Value, /) -> bytes:
        """The bytes that the bucket stores."""

    def decode(self, data: bytes, /) -> Value:
        """The value of such bytes; raises `ValueError` if there is none."""


class KeyCodec(Protocol):
    """What a codec of keys has."""

    def encode(self, key: str, /) -> str:
        """The key that the bucket has; raises `InvalidKeyError` if there can be none."""

    def decode(self, key: str, /) -> str:
        """The key of such a key; raises `ValueError` if there is none."""

    def encode_filter(self, keys: str, /) -> str:
        """The filter that matches the keys that the bucket has, as `keys` matches yours.

        Raises `InvalidKeyError` if there is none.
        """


class JSON(Generic[Value]):
    """Values of a type as JSON: a msgspec Struct, a dataclass, a dict, a list, a number."""

    def __init__(self, kind: type[Value]) -> None:
        self._encode = msgspec.json.Encoder().encode
        self._decode = msgspec.json.Decoder(kind).decode

    def encode(self, value: Value, /) -> bytes:
        """The value as JSON."""
        return _encoded(self._encode, value)

    def decode(self, data: bytes, /) -> Value:
        """The value of JSON, which has to fit the type."""
        return self._decode(data)


class MsgPack(Generic[Value]):
    """Values of a type as MessagePack, which is smaller than JSON."""

    def __init__(self, kind: type[Value]) -> None:
        self._encode = msgspec.msgpack.Encoder().encode
        self._decode = msgspec.msgpack.Decoder(kind).decode

    def encode(self, value: Value, /) -> bytes:
        """The value as MessagePack."""
        return _encoded(self._encode, value)

    def decode(self, data: bytes, /) -> Value:
        """The value of MessagePack, which has to fit the type."""
        return self._decode(data)


class PathKeys:
    """Keys as paths: `/etc/hosts` is `_root_.etc.hosts` in the bucket.

    A trailing slash is left out. A filter is a path with `*` and `>` for words.
    """

    def encode(self, key: str, /) -> str:
        """The key of a path."""
        if "." in _text(key):
            raise InvalidKeyError(
                f"not a path that can be a key: {key!r}; use one without dots"
            )
        words = key.removesuffix("/")
        return (_ROOT + words if words.startswith("/") else words).replace("/", ".")

    def decode(self, key: str, /) -> str:
        """The path of a key."""
        return key.replace(".", "/").removeprefix(_ROOT)

    encode_filter = encode


class Base64Keys:
    """Keys of any text, as URL-safe base64. A filter is a whole key, or `>` for all."""

    def encode(self, key: str, /) -> str:
        """The key of a text."""
        return base64.urlsafe_b64encode(_text(key).encode()).decode()

    def decode(self, key: str, /) -> str:
        """The text of a key."""
        return base64.b64decode(key, b"-_", validate=True).decode()

    def encode_filter(self, keys: str, /) -> str:
        """A whole key, or `>`: in base64 no pattern matches a part."""
        if keys == ">":
            return keys
        if {"*", ">"} & {*_text(keys).split(".")}:
            raise InvalidKeyError(
                f"no filter of base64 keys: {keys!r}; give a whole key, or > for all"
            )
        return self.encode(keys)


def _text(key: object) -> str:
    if isinstance(key, str) and key:
        return key
    raise InvalidKeyError(f"not a key: {key!r}; it has to be a text")


def _encoded(encode: Callable[[Value], bytes], value: Value) -> bytes:
    try:
        return encode(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise ConfigError(f"value that cannot be encoded: {error}") from error
