"""Buckets as streams (ADR-8): names, subjects, entries, and what a message means.

Pure: no socket, thread or clock.
"""

from __future__ import annotations

import copy
import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, TypeAlias, cast

import msgspec

from ...errors import (
    CodecError,
    InvalidBucketNameError,
    InvalidKeyError,
    KeyDeletedError,
    KeyNotFoundError,
)
from .codecs import Value

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..._fast import JetStreamMsg, Metadata
    from ...core.requests import Data
    from ...models import StoredMessage, StreamConfig
    from .codecs import Coded, KeyCodec, ValueCodec

Operation: TypeAlias = Literal["PUT", "DEL", "PURGE"]

STREAM_PREFIX: Final = "KV_"
OPERATION: Final = "KV-Operation"
MARKER_REASON: Final = "Nats-Marker-Reason"
DELETE_HEADERS: Final[Mapping[str, str]] = {OPERATION: "DEL"}
PURGE_HEADERS: Final[Mapping[str, str]] = {OPERATION: "PURGE", "Nats-Rollup": "sub"}

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_DEFAULT_API: Final = "$JS.API"
_BUCKET: Final = re.compile(r"[a-zA-Z0-9_-]+")
_KEY: Final = re.compile(r"[-/_=a-zA-Z0-9]+(?:\.[-/_=a-zA-Z0-9]+)*")
_FILTER: Final = re.compile(r"(?:(?:[-/_=a-zA-Z0-9]+|\*)\.)*(?:[-/_=a-zA-Z0-9]+|\*|>)")
_BY_WORD: Final[Mapping[str, Operation]] = {"DEL": "DEL", "PURGE": "PURGE"}
_BY_REASON: Final[Mapping[str, Operation]] = {
    "MaxAge": "PURGE",
    "Purge": "PURGE",
    "Remove": "DEL",
}


class Entry(msgspec.Struct, Generic[Value], frozen=True, kw_only=True, gc=False):
    """One revision of a key."""

    bucket: str
    key: str
    value: Value
    """If `operation` is not `PUT`, or a watch leaves values out: empty, None with a codec."""
    revision: int
    """The number of this change in its bucket; a later change has a higher one."""
    timestamp_us: int
    """When the bucket stored it, in microseconds since 1970."""
    delta: int = 0
    """How many entries the watch or the history had behind this one; 0 from a get."""
    operation: Operation = "PUT"
    """`PUT`; `DEL` for a delete, `PURGE` for a purge or an expired value."""

    @property
    def created(self) -> datetime:
        """When the bucket stored it: aware, UTC."""
        return _EPOCH + timedelta(microseconds=self.timestamp_us)


def check_bucket(bucket: object) -> str:
    """The name of a bucket; raises `InvalidBucketNameError`."""
    if isinstance(bucket, str) and _BUCKET.fullmatch(bucket):
        return bucket
    raise InvalidBucketNameError(
        f"not the name of a bucket: {bucket!r}; use letters, digits, - and _"
    )


def check_key(key: object) -> str:
    """A key, without wildcards; raises `InvalidKeyError`."""
    if isinstance(key, str) and _KEY.fullmatch(key):
        return key
    raise InvalidKeyError(
        f"not a key: {key!r}; use letters, digits and -/_=, and single dots between them"
    )


def check_filter(keys: object) -> str:
    """A key or a pattern of keys; raises `InvalidKeyError`."""
    if isinstance(keys, str) and _FILTER.fullmatch(keys):
        return keys
    raise InvalidKeyError(
        f"not a key or a pattern: {keys!r}; * stands for one word between dots, "
        "a last > for all that follow"
    )


def operation_of(headers: Mapping[str, str] | None) -> Operation:
    """The operation that a message of a bucket stands for (ADR-8, ADR-48)."""
    if not headers:
        return "PUT"
    if OPERATION in headers:
        # Any other word is a value for the other clients, too.
        return _BY_WORD.get(headers[OPERATION], "PUT")
    if MARKER_REASON in headers:
        return _BY_REASON.get(headers[MARKER_REASON], "PUT")
    return "PUT"


class Layout(Generic[Value]):
    """Where a bucket is: its stream, and the subjects of its keys."""

    __slots__ = (
        "_keys",
        "_values",
        "bucket",
        "origin",
        "read",
        "replicated",
        "stream",
        "write",
    )

    def __init__(self, config: StreamConfig, api_prefix: str) -> None:
        self.stream = config.name or ""
        self.bucket = self.stream.removeprefix(STREAM_PREFIX)
        self.replicated = (config.num_replicas or 1) > 1
        """Whether servers other than the leader have it too, which may be behind."""
        self.origin: str | None = None
        """The bucket that this one is a mirror of."""
        self.read = f"$KV.{self.bucket}."
        """What the subjects begin with, as the stream has them."""
        self.write = self.read
        """What subjects to publish to begin with: servers map those below a prefix."""
        if config.mirror is not None:
            self.origin = (config.mirror.name or "").removeprefix(STREAM_PREFIX)
            self.read = _mirrored(config, self.origin)
        self._values: ValueCodec[Value] | None = None
        self._keys: KeyCodec | None = None
        if api_prefix != _DEFAULT_API:
            self.write = f"{api_prefix}.{self.read}"

    def filters(self, keys: tuple[str, ...]) -> list[str]:
        """The subjects of keys or patterns, of all keys when there are none."""
        if self._keys is not None:
            keys = tuple(self._keys.encode_filter(key) for key in keys)
        return [self.read + check_filter(key) for key in keys] or [self.read + ">"]

    def coded(
        self, values: ValueCodec[Coded] | None, keys: KeyCodec | None
    ) -> Layout[Coded]:
        """The same bucket with keys and values in another form."""
        layout = cast("Layout[Coded]", copy.copy(self))
        layout._values, layout._keys = values, keys
        return layout

    def key(self, key: str) -> str:
        """The key that the bucket has."""
        return check_key(key if self._keys is None else self._keys.encode(key))

    def data(self, value: Value | Data) -> Data:
        """The bytes that the bucket has."""
        if self._values is None:
            return cast("Data", value)
        return self._values.encode(cast("Value", value))

    def entry(self, message: StoredMessage) -> Entry[Value]:
        """The entry that a stored message is; raises `CodecError`."""
        operation = operation_of(message.headers)
        return Entry(
            bucket=self.bucket,
            key=self._key_of(message.subject, message.sequence),
            value=self._value_of(
                message.subject, message.data, operation, message.sequence
            ),
            revision=message.sequence,
            timestamp_us=(message.timestamp - _EPOCH) // _MICROSECOND,
            operation=operation,
        )

    def change(
        self, msg: JetStreamMsg, metadata: Metadata, *, bare: bool
    ) -> Entry[Value]:
        """The entry that a message of a consumer is, `bare` if it has no value.

        Raises `CodecError`.
        """
        subject, revision = msg.subject, metadata.stream_sequence
        operation = operation_of(msg.headers)
        return Entry(
            bucket=self.bucket,
            key=self._key_of(subject, revision),
            value=self._value_of(
                subject, msg.data, "DEL" if bare else operation, revision
            ),
            revision=revision,
            timestamp_us=metadata.timestamp_ns // 1000,
            delta=metadata.num_pending,
            operation=operation,
        )

    def _key_of(self, subject: str, revision: int) -> str:
        key = subject[len(self.read) :]
        if self._keys is None:
            return key
        try:
            return self._keys.decode(key)
        except ValueError as error:
            raise self._not_decoded("key", key, revision, error) from error

    def _value_of(
        self, subject: str, data: bytes, operation: Operation, revision: int
    ) -> Value:
        if self._values is None:
            return cast("Value", data)
        if operation != "PUT":
            return cast("Value", None)
        try:
            return self._values.decode(data)
        except (ValueError, msgspec.MsgspecError) as error:
            key = self._key_of(subject, revision)
            raise self._not_decoded("value of key", key, revision, error) from error

    def _not_decoded(
        self, what: str, key: str, revision: int, error: Exception
    ) -> CodecError:
        return CodecError(
            f"{what} {key!r} in bucket {self.bucket!r} at revision {revision} cannot be "
            f"decoded: {error}; read it without the codec",
            key=key,
            revision=revision,
        )

    def value(self, entry: Entry[Value]) -> Entry[Value]:
        """The entry if it is a value; raises `KeyDeletedError` if it is a marker."""
        if entry.operation == "PUT":
            return entry
        word = "deleted" if entry.operation == "DEL" else "purged, or has expired"
        raise KeyDeletedError(
            f"key was {word}: {entry.key!r} in bucket {self.bucket!r}",
            revision=entry.revision,
            operation=entry.operation,
        )

    def missing(self, key: str, revision: int | None = None) -> KeyNotFoundError:
        """The error for a key, or a revision of it, that the bucket does not have."""
        which = "" if revision is None else f" at revision {revision}"
        return KeyNotFoundError(
            f"no such key: {key!r}{which} in bucket {self.bucket!r}", code=404
        )

    def __repr__(self) -> str:
        return f"<Layout of {self.bucket!r}>"


def _mirrored(config: StreamConfig, origin: str) -> str:
    """What the subjects in a mirror begin with: its origin's, unless it moves them."""
    mirror: Any = config.mirror
    for transform in mirror.subject_transforms or ():
        words = (transform.dest or "").split(".")
        if words[0] == "$KV" and len(words) > 2:
            return f"$KV.{words[1]}."
    return f"$KV.{origin}."


class Initial:
    """Where a watch is among the entries that were in the bucket when it began.

    The server says how many there were. An entry may be replaced or deleted before it is
    sent. So the end is an entry with none behind it. Or, once as many have come, what the
    bucket ends at by then: whatever has replaced one of them is not behind that.

    The server may be a replica that is behind the leader, which has had `least` by then.
    So the end does not come before that revision.
    """

    def __init__(self, expected: int, least: int = 0) -> None:
        self._missing = expected
        self._least = least
        self._last: int | None = None
        self.done = not expected and not least
        """Whether all of them have come."""

    def came(self, revision: int, delta: int) -> bool:
        """An entry has come, with `delta` behind it.

        Returns:
            Whether to ask for the last revision of the bucket, and tell `ends_at`.
        """
        self._missing -= 1
        if delta == 0:
            self.done = revision >= self._least
        elif self._last is not None:
            self.done = revision >= self._last
        return self._missing <= 0 and not self.done and self._last is None

    def ends_at(self, last: int, revision: int) -> None:
        """The bucket's last revision, and that of the entry that came last."""
        self._last = last
        self.done = self.done or revision >= last

    def all_came(self) -> None:
        """The server has nothing left to send."""
        self.done = True

    def __repr__(self) -> str:
        return f"<Initial {'done' if self.done else f'{self._missing} missing'}>"


def revision_in(description: str) -> int | None:
    """The revision that a server names when it refuses another one."""
    _, _, number = description.rpartition("wrong last sequence: ")
    return int(number) if number.isdecimal() else None
