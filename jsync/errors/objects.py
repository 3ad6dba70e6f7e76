"""Errors of object stores (ADR-20)."""

from __future__ import annotations

from .api import MessageNotFoundError
from .client import ConfigError
from .jetstream import JetStreamError
from .keyvalue import CodecError


class InvalidObjectNameError(ConfigError):
    """An object cannot have that name. Use a string of 1 to 2500 bytes of UTF-8."""


class ObjectNotFoundError(MessageNotFoundError):
    """The store has no object of that name."""


class ObjectDeletedError(ObjectNotFoundError):
    """The object was deleted."""


class ObjectExistsError(JetStreamError, FileExistsError):
    """An object of that name exists. Nothing was renamed, linked or replaced.

    It is a `FileExistsError`, too.

    Delete it first, or choose another name.
    """


class LinkError(JetStreamError):
    """The link cannot be followed, or cannot be made. The message says why."""


class ObjectReadError(JetStreamError):
    """The object could not be read whole. Do not use the bytes that came before."""


class DigestMismatchError(ObjectReadError):
    """The bytes of the object are not those that were put. Their digest is another one."""

    def __init__(self, message: str, *, expected: str = "", actual: str = "") -> None:
        super().__init__(message)
        self.expected = expected
        """The digest that the store has."""
        self.actual = actual
        """The digest of the bytes that came."""


class ObjectIncompleteError(ObjectReadError):
    """Chunks of the object are missing in the store. Put the object again.

    `ObjectStore.check` lists all objects that are incomplete.
    """


class ObjectChangedError(ObjectReadError):
    """Another client replaced or deleted the object while you read it. Open it again."""


class AmbiguousPutError(JetStreamError):
    """No answer came to the last message of a put or a change. It may be stored.

    Read the info of the object. If the put was not stored, `ObjectStore.check` removes
    its chunks.
    """


class ChunkOrderError(JetStreamError):
    """The server stored the chunks of a put in another order. The put was undone.

    This may happen if the stream changes its leader, or is too busy. Put the object again.
    """


class InvalidObjectInfoError(CodecError):
    """A message of the store is not a valid info. Another program may have stored it.

    Put the object again, or delete it. Lists and watches pass over such a message, and
    report it to `on_error`. `ObjectStore.check` lists all of them.
    """

    def __init__(
        self, message: str, *, key: str = "", revision: int = 0, name: str | None = None
    ) -> None:
        super().__init__(message, key=key, revision=revision)
        self.name = name
        """The name of the object. None: no name leads to that message."""
