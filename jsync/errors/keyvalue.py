"""Errors of key-value buckets (ADR-8)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .api import (
    MessageNotFoundError,
    StreamNameInUseError,
    StreamNotFoundError,
    WrongLastSequenceError,
)
from .client import ConfigError
from .jetstream import JetStreamError

if TYPE_CHECKING:
    from collections.abc import Sequence


class InvalidBucketNameError(ConfigError):
    """The name of a bucket or an object store is not valid.

    Use letters, digits, `-` and `_`.
    """


class InvalidKeyError(ConfigError):
    """A key or a filter is not valid. Nothing was sent.

    Use letters, digits and `-/_=.` in a key. A key cannot begin or end with a dot, or have two
    dots in a row. A filter may also have the wildcards `*` and `>`.
    """


class BucketNotFoundError(StreamNotFoundError):
    """There is no bucket, or no object store, of that name.

    Create it, or check the account and the domain.
    """


class BucketExistsError(StreamNameInUseError):
    """A bucket, or an object store, of that name exists with another configuration.

    Bind to it with `key_value` or `object_store`, or change it.
    """


class InvalidBucketError(JetStreamError):
    """The stream is no bucket: it keeps any number of values for each key.

    Set its `max_msgs_per_subject` to a number from 1 to 64, or read it as a stream.
    """


class ReadOnlyBucketError(JetStreamError):
    """The bucket is a mirror, so you can only read it. Write to its origin."""


class KeyNotFoundError(MessageNotFoundError, KeyError):
    """The bucket has no value for the key, or not that revision of it.

    Also a `KeyError`.
    """

    # Without this line the text would be in quotes, as `KeyError` prints itself.
    __str__ = Exception.__str__


class KeyDeletedError(KeyNotFoundError):
    """The last operation on the key deleted or purged it, or its value expired."""

    def __init__(
        self, message: str, *, revision: int = 0, operation: str = "DEL"
    ) -> None:
        super().__init__(message, code=404)
        self.revision = revision
        """The revision of the delete marker."""
        self.operation = operation
        """`DEL`, or `PURGE`."""


class WrongRevisionError(WrongLastSequenceError):
    """The key is not at the revision that you expected, so nothing was changed.

    Get the key again, and decide by its new value.
    """

    def __init__(
        self,
        message: str,
        *,
        code: int = 400,
        err_code: int = 10071,
        description: str = "",
        revision: int | None = None,
    ) -> None:
        super().__init__(message, code=code, err_code=err_code, description=description)
        self.revision = revision
        """The revision of the key, 0 if it has none, None if the server did not say."""


class KeyExistsError(WrongRevisionError):
    """The key has a value already, so it was not created."""


class CodecError(JetStreamError):
    """The codec of a bucket cannot decode a key or a value.

    Read the entry without the codec. A watch continues with the next entry.
    """

    def __init__(
        self,
        message: str,
        *,
        key: str = "",
        revision: int = 0,
        entries: Sequence[Any] = (),
    ) -> None:
        super().__init__(message)
        self.key = key
        """The key, as the bucket has it if that could not be decoded."""
        self.revision = revision
        """The revision of the entry."""
        self.entries = tuple(entries)
        """All other entries that `get_many` or `history` was to return, decoded."""


class LockLostError(JetStreamError):
    """The lock could not be renewed in time, so that another holder may get it soon.

    Stop the work that it guards.
    """


class LockNotHeldError(JetStreamError):
    """The lock was not acquired, or was released."""
