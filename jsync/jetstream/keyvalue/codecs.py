"""Codecs: keys and values have another form in the bucket than in the program (ADR-54).

Pure: no socket, thread or clock.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, cast

import msgspec

from ...errors import ConfigError, InvalidKeyError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from typing_extensions import TypeVar

    Value = TypeVar("Value", default=bytes)
    Coded = TypeVar("Coded")
else:
    from typing import TypeVar

    Value = TypeVar("Value")
    Coded = TypeVar("Coded")

_ROOT: Final = "_root_"
_WILDCARDS: Final = ("*", ">")


class ValueCodec(Protocol[Value]):
    """The methods of a codec of values.

    Example:
        ```python
        class Number:
            def encode(self, value: int, /) -> bytes:
                return str(value).encode()

            def decode(self, data: bytes, /) -> int:
                return int(data)

        numbers = kv.with_codec(Number())
        numbers.put("limit", 100)
        print(numbers.get("limit").value + 1)
        ```
    """

    def encode(self, value: Value, /) -> bytes:
        """Encode a value.

        Args:
            value: The value.

        Returns:
            The bytes to store.
        """

    def decode(self, data: bytes, /) -> Value:
        """Decode a value.

        Args:
            data: The stored bytes.

        Returns:
            The value.

        Raises:
            ValueError: The bytes are not an encoded value.
        """


class KeyCodec(Protocol):
    """The methods of a codec of keys.

    Example:
        ```python
        class Upper:
            def encode(self, key: str, /) -> str:
                return key.upper()

            def decode(self, key: str, /) -> str:
                return key.lower()

            def encode_filter(self, key: str, /) -> str:
                return key.upper()

        upper = kv.with_codec(keys=Upper())
        upper.put("limit", b"100")
        ```
    """

    def encode(self, key: str, /) -> str:
        """Encode a key of yours.

        Args:
            key: Your key.

        Returns:
            The key that the bucket stores.

        Raises:
            InvalidKeyError: The key cannot be encoded.
        """

    def decode(self, key: str, /) -> str:
        """Decode a stored key.

        Args:
            key: The key that the bucket stores.

        Returns:
            Your key.

        Raises:
            ValueError: The key is not an encoded key.
        """

    def encode_filter(self, keys: str, /) -> str:
        """Encode a filter, so that it matches the stored keys as `keys` matches yours.

        Args:
            keys: A filter of your keys.

        Returns:
            The filter of stored keys.

        Raises:
            InvalidKeyError: The filter cannot be encoded.
        """


class ValueCipher(Protocol):
    """A codec of values that binds each value to its place.

    The place is the subject of the key, `$KV.<bucket>.<key>`. A mirror of a bucket has
    the same places.

    Example:
        ```python
        class Reversed:
            def encrypt(self, data: bytes, place: bytes, /) -> bytes:
                return data[::-1]

            def decrypt(self, data: bytes, place: bytes, /) -> bytes:
                return data[::-1]

        hidden = kv.with_codec(Reversed())  # an example only: use AESGCM for secrets
        hidden.put("a", b"text")
        ```
    """

    def encrypt(self, data: bytes, place: str, /) -> bytes:
        """Encrypt a value.

        Args:
            data: The value.
            place: The subject of the key.

        Returns:
            The bytes to store.
        """

    def decrypt(self, data: bytes, place: str, /) -> bytes:
        """Decrypt a value.

        Args:
            data: The stored bytes.
            place: The subject of the key.

        Returns:
            The value.

        Raises:
            ValueError: The bytes were not encrypted for that place.
        """


class ValueChain(Generic[Value]):
    """Codecs of values that encode in their order, and decode in reverse."""

    def __init__(
        self, codecs: tuple[ValueCodec[Value] | ValueCodec[bytes] | ValueCipher, ...]
    ) -> None:
        steps = [*map(_step, codecs)]
        self._encoders = [encode for encode, _ in steps]
        self._back = [decode for _, decode in reversed(steps)]

    def encode(self, value: Value, place: str) -> bytes:
        """Encode a value as the bytes that the bucket stores at that place."""
        data: Any = value
        for encode in self._encoders:
            data = encode(data, place)
        return cast("bytes", data)

    def decode(self, data: bytes, place: str) -> Value:
        """Decode the bytes stored at that place. Raises `ValueError` if they are not valid."""
        value: Any = data
        for decode in self._back:
            value = decode(value, place)
        return cast("Value", value)


def _step(codec: Any) -> tuple[Callable[[Any, str], Any], Callable[[Any, str], Any]]:
    if hasattr(codec, "encrypt") and hasattr(codec, "decrypt"):
        return codec.encrypt, codec.decrypt
    if hasattr(codec, "encode") and hasattr(codec, "decode"):
        return (
            lambda value, _: codec.encode(value),
            lambda data, _: codec.decode(data),
        )
    raise ConfigError(f"not a codec of values: {codec!r}; it needs encode and decode")


def check_key_codec(codec: object) -> None:
    """Raise `ConfigError` unless `codec` is a codec of keys."""
    methods = ("encode", "decode", "encode_filter")
    if not all(hasattr(codec, name) for name in methods):
        raise ConfigError(
            f"not a codec of keys: {codec!r}; it needs encode, decode and encode_filter"
        )


class KeyChain:
    """Codecs of keys that encode in their order, and decode in reverse."""

    def __init__(self, codecs: Sequence[KeyCodec]) -> None:
        self._codecs = tuple(codecs)
        for codec in self._codecs:
            check_key_codec(codec)

    def encode(self, key: str, /) -> str:
        """Encode a key in the form of the bucket."""
        for codec in self._codecs:
            key = codec.encode(key)
        return key

    def decode(self, key: str, /) -> str:
        """Decode a key that the bucket stores."""
        for codec in reversed(self._codecs):
            key = codec.decode(key)
        return key

    def encode_filter(self, keys: str, /) -> str:
        """Encode a filter for the keys that the bucket stores."""
        for codec in self._codecs:
            keys = codec.encode_filter(keys)
        return keys


class JSON(Generic[Value]):
    """Values of a type as JSON: a msgspec Struct, a dataclass, a dict, a list, a number.

    Example:
        ```python
        prices = kv.with_codec(jsync.JSON(dict[str, float]))
        prices.put("apple", {"EUR": 0.3})
        print(prices.get("apple").value)
        ```
    """

    def __init__(self, kind: type[Value]) -> None:
        self._encode = msgspec.json.Encoder().encode
        self._decode = msgspec.json.Decoder(kind).decode

    def encode(self, value: Value, /) -> bytes:
        """Encode a value as JSON.

        Args:
            value: The value.

        Returns:
            The bytes to store.
        """
        return _encoded(self._encode, value)

    def decode(self, data: bytes, /) -> Value:
        """Decode a value from JSON, and check its type.

        Args:
            data: The stored bytes.

        Returns:
            The value.
        """
        return self._decode(data)


class MsgPack(Generic[Value]):
    """Values of a type as MessagePack, which is smaller than JSON.

    Example:
        ```python
        prices = kv.with_codec(jsync.MsgPack(list[int]))
        prices.put("apple", [1, 2, 3])
        print(prices.get("apple").value)
        ```
    """

    def __init__(self, kind: type[Value]) -> None:
        self._encode = msgspec.msgpack.Encoder().encode
        self._decode = msgspec.msgpack.Decoder(kind).decode

    def encode(self, value: Value, /) -> bytes:
        """Encode a value as MessagePack.

        Args:
            value: The value.

        Returns:
            The bytes to store.
        """
        return _encoded(self._encode, value)

    def decode(self, data: bytes, /) -> Value:
        """Decode a value from MessagePack, and check its type.

        Args:
            data: The stored bytes.

        Returns:
            The value.
        """
        return self._decode(data)


class Base64:
    """Values as URL-safe base64 without padding, as orbit.go and natsio store them.

    Example:
        ```python
        encoded = kv.with_codec(jsync.Base64())
        encoded.put("blob", bytes(4))
        print(encoded.get("blob").value)
        ```
    """

    def encode(self, value: bytes, /) -> bytes:
        """Encode a value as base64.

        Args:
            value: The value.

        Returns:
            The bytes to store.
        """
        return _encoded(base64.urlsafe_b64encode, value).rstrip(b"=")

    def decode(self, data: bytes, /) -> bytes:
        """Decode a value from base64, with or without padding.

        Args:
            data: The stored bytes.

        Returns:
            The value.
        """
        return _unpadded(data.rstrip(b"="))


class PathKeys:
    """Keys as paths: `/etc/hosts` is `_root_.etc.hosts` in the bucket, and `/` is `_root_`.

    They are the keys of orbit.go and natsio. A trailing separator is left out. A filter is
    a path with `*` and `>` for words.

    Args:
        separator: The character between the words of your keys. Default: a slash.

    Example:
        ```python
        files = kv.with_codec(keys=jsync.PathKeys())
        files.put("/etc/hosts", b"localhost")
        print(list(files.keys()))
        ```
    """

    def __init__(self, separator: str = "/") -> None:
        self._separator = _one_character(separator)

    def encode(self, key: str, /) -> str:
        """Encode a path as a key.

        Args:
            key: The path.

        Returns:
            The key.

        Raises:
            InvalidKeyError: The path has a dot, an empty word, or `_root_` as its first
                word, so that no key is decoded to it.
        """
        mark = self._separator
        if "." in _text(key).replace(mark, ""):
            raise InvalidKeyError(
                f"not a path that can be a key: {key!r}; use one without dots"
            )
        rooted = key.startswith(mark)
        path = key.removeprefix(mark)
        words = path.removesuffix(mark).split(mark) if path else []
        if not all(words) or not (rooted or words):
            raise InvalidKeyError(
                f"not a path that can be a key: {key!r}; use one without empty words"
            )
        if not rooted and words[0] == _ROOT:
            raise InvalidKeyError(
                f"not a path that can be a key: {key!r}; {_ROOT} as the first word stands "
                f"for a leading {mark!r}"
            )
        return ".".join([_ROOT, *words] if rooted else words)

    def decode(self, key: str, /) -> str:
        """Decode a key to a path.

        Args:
            key: The key.

        Returns:
            The path.

        Raises:
            ValueError: No path is encoded to this key.
        """
        mark = self._separator
        first, *words = key.split(".")
        path = mark.join(["", *words] if first == _ROOT else [first, *words]) or mark
        try:
            exact = self.encode(path) == key
        except InvalidKeyError:
            exact = False
        if not exact:
            raise ValueError(f"no path is encoded to {key!r}")
        return path

    encode_filter = encode


class Base64Keys:
    """Keys of any words, each as URL-safe base64 without padding.

    Words have single dots between them: `Acme Inc.contact` is `QWNtZSBJbmM.Y29udGFjdA`,
    as in orbit.go and natsio. A filter may have `*` and `>` for words.

    Example:
        ```python
        names = kv.with_codec(keys=jsync.Base64Keys())
        names.put("a name with blanks", b"1")
        print(list(names.keys()))
        ```
    """

    def encode(self, key: str, /) -> str:
        """Encode a text as a key.

        Args:
            key: The text.

        Returns:
            The key.

        Raises:
            InvalidKeyError: The text has an empty word between dots, or half a surrogate
                pair.
        """
        return ".".join(map(self._encode_word, _text(key).split(".")))

    def decode(self, key: str, /) -> str:
        """Decode a key to a text.

        Args:
            key: The key.

        Returns:
            The text.

        Raises:
            ValueError: No text is encoded to this key.
        """
        text = ".".join(_unpadded(word.encode()).decode() for word in key.split("."))
        try:
            exact = self.encode(text) == key
        except InvalidKeyError:
            exact = False
        if not exact:
            raise ValueError(f"no text is encoded to {key!r}")
        return text

    def encode_filter(self, keys: str, /) -> str:
        """Encode a filter word by word, and leave the wildcards as they are.

        Args:
            keys: The filter.

        Returns:
            The filter of encoded keys.

        Raises:
            InvalidKeyError: The filter has an empty word between dots, or half a surrogate
                pair.
        """
        words = _text(keys).split(".")
        return ".".join(
            word if word in _WILDCARDS else self._encode_word(word) for word in words
        )

    def _encode_word(self, word: str) -> str:
        try:
            data = word.encode()
        except UnicodeEncodeError as error:
            raise InvalidKeyError(
                f"not a key for base64: {word!r} is no valid Unicode"
            ) from error
        if not data:
            raise InvalidKeyError(
                "not a key for base64: an empty word; use single dots between words"
            )
        return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _unpadded(data: bytes) -> bytes:
    """Decode URL-safe base64 without padding. Raises `ValueError` if it is not valid."""
    if b"+" in data or b"/" in data:
        raise ValueError("it is not URL-safe base64")
    return base64.b64decode(data + b"=" * (-len(data) % 4), b"-_", validate=True)


def _one_character(separator: object) -> str:
    if isinstance(separator, str) and len(separator) == 1 and separator not in "*>":
        return separator
    raise ConfigError(f"separator: one character, not {separator!r}")


def _text(key: object) -> str:
    if isinstance(key, str) and key:
        return key
    raise InvalidKeyError(f"not a key: {key!r}; it has to be a text")


def _encoded(encode: Callable[[Coded], bytes], value: Coded) -> bytes:
    try:
        return encode(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise ConfigError(f"value that cannot be encoded: {error}") from error
