"""Values encrypted by AES-GCM, each bound to its key and bucket."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Final, NoReturn

from ...errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cryptography.hazmat.primitives.ciphers import aead

_VERSION: Final = 1
_NONCE: Final = 12
_TAG: Final = 16
_KEY_SIZES: Final = (16, 24, 32)
_MAX_ID: Final = 255


class AESGCM:
    """A codec that encrypts values by AES-GCM. Needs `pip install "jsync[encryption]"`.

    The server sees keys, sizes and times, but no value. A value that was changed, or moved
    to another key or bucket, raises `CodecError`. A mirror of the bucket can be read.

    An old value of the same key can be put back by whoever may write to the bucket.

    Args:
        key: The secret: 16, 24 or 32 random bytes, such as `secrets.token_bytes(32)`.
            Replace it before it has encrypted 2**32 values.
        key_id: A name of it that is stored with each value, in clear. Default: none.
        old: The secrets that it has replaced, by their ids: values of theirs can be read.

    Raises:
        ConfigError: A secret or an id that cannot be, or cryptography is not installed.

    Example:
        ```python
        import os

        secret = js.create_key_value(bucket="secret").with_codec(jsync.AESGCM(os.urandom(32)))
        secret.put("password", b"hunter2")
        print(secret.get("password").value)
        ```
    """

    # The format of a stored value: 1, the length of the key's id, the id, a nonce, the
    # encrypted bytes.

    def __init__(
        self, key: bytes, *, key_id: str = "", old: Mapping[str, bytes] | None = None
    ) -> None:
        self._id = _checked_id(key_id)
        self._ciphers = {
            _checked_id(name): _cipher(it) for name, it in (old or {}).items()
        }
        if self._id in self._ciphers:
            raise ConfigError(
                f"key_id {key_id!r} is also in old; give each key an id of its own"
            )
        self._ciphers[self._id] = _cipher(key)

    def encrypt(self, data: bytes, place: str, /) -> bytes:
        """Encrypt a value.

        Args:
            data: The value.
            place: The subject of the key, to which the result is bound.

        Returns:
            The bytes to store.
        """
        head = bytes((_VERSION, len(self._id))) + self._id
        nonce = secrets.token_bytes(_NONCE)
        try:
            body = self._ciphers[self._id].encrypt(
                nonce, data, _associated_data(head, place)
            )
        except TypeError:
            raise ConfigError(
                f"value: bytes to encrypt, not {type(data).__name__}; put a codec before "
                "AESGCM"
            ) from None
        return head + nonce + body

    def decrypt(self, data: bytes, place: str, /) -> bytes:
        """Decrypt a value.

        Args:
            data: The stored bytes.
            place: The subject of the key.

        Returns:
            The value.

        Raises:
            ValueError: The bytes were not encrypted for that place, or were changed.
        """
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415 - of an extra

        if len(data) < 2 + _NONCE + _TAG or data[0] != _VERSION:
            raise ValueError("it is not encrypted by AES-GCM")
        end = 2 + data[1]
        head, nonce, body = data[:end], data[end : end + _NONCE], data[end + _NONCE :]
        cipher = self._ciphers.get(head[2:])
        if cipher is None:
            name = head[2:].decode(errors="backslashreplace")
            raise ValueError(f"it is encrypted with another key, of id {name!r}")
        try:
            return cipher.decrypt(nonce, body, _associated_data(head, place))
        except (InvalidTag, ValueError):
            raise ValueError(
                "it was changed, or encrypted with another key or for another place"
            ) from None

    def __reduce__(self) -> NoReturn:
        raise TypeError("AESGCM cannot be pickled or copied: it holds secrets")

    def __repr__(self) -> str:
        return f"<AESGCM with key {self._id.decode()!r}>"


def _associated_data(head: bytes, place: str) -> bytes:
    """Return the data that is not encrypted, but authenticated, so that it cannot change."""
    return head + place.encode(errors="surrogateescape")


def _checked_id(key_id: object) -> bytes:
    if not isinstance(key_id, str):
        raise ConfigError(f"key_id: a str, not {type(key_id).__name__}")
    data = key_id.encode(errors="surrogatepass")
    if len(data) > _MAX_ID:
        raise ConfigError(f"key_id: at most {_MAX_ID} bytes, not {len(data)}")
    return data


def _cipher(key: object) -> aead.AESGCM:
    if not isinstance(key, bytes):
        raise ConfigError(f"key: bytes, not {type(key).__name__}")
    if len(key) not in _KEY_SIZES:
        raise ConfigError(f"key: 16, 24 or 32 bytes, not {len(key)}")
    try:
        from cryptography.hazmat.primitives.ciphers import aead  # noqa: PLC0415
    except ImportError:
        raise ConfigError(
            'AESGCM needs cryptography: pip install "jsync[encryption]"'
        ) from None
    return aead.AESGCM(key)
