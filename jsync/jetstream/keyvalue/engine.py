"""Buckets as streams (ADR-8): names, subjects, entries, and the meaning of messages.

Pure: no socket, thread or clock.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, Generic, Literal, TypeAlias, cast

import msgspec

from ..._fast import is_key, read_entries
from ...errors import (
    BucketNotFoundError,
    CodecError,
    ConfigError,
    InvalidKeyError,
    KeyDeletedError,
    KeyNotFoundError,
)
from ...models.name import check_literal
from ..buckets.engine import bucket_in_subjects, bucket_not_found, origin_of
from ..retries.engine import format_error
from ..stored.engine import LastPerSubjectReader
from .codecs import KeyChain, Value, ValueChain, check_key_codec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from ..._fast import DirectGetReply, Mailbox, Msg
    from ...core.requests import Data
    from ...models import StoredMessage, StreamConfig
    from .codecs import Coded, KeyCodec, ValueCipher, ValueCodec

Operation: TypeAlias = Literal["PUT", "DEL", "PURGE"]

STREAM_PREFIX: Final = "KV_"
OPERATION: Final = "KV-Operation"
MARKER_REASON: Final = "Nats-Marker-Reason"
DELETE_HEADERS: Final[Mapping[str, str]] = {OPERATION: "DEL"}
PURGE_HEADERS: Final[Mapping[str, str]] = {OPERATION: "PURGE", "Nats-Rollup": "sub"}

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_DEFAULT_API: Final = "$JS.API"
_FILTER: Final = re.compile(r"(?:(?:[-/_=a-zA-Z0-9]+|\*)\.)*(?:[-/_=a-zA-Z0-9]+|\*|>)")
_BY_WORD: Final[Mapping[str, Operation]] = {"DEL": "DEL", "PURGE": "PURGE"}
_BY_REASON: Final[Mapping[str, Operation]] = {
    "MaxAge": "PURGE",
    "Purge": "PURGE",
    "Remove": "DEL",
}


class Entry(msgspec.Struct, Generic[Value], frozen=True, kw_only=True, gc=False):
    """One revision of a key.

    Example:
        ```python
        kv.put("limit", b"100")
        entry = kv.get("limit")
        print(entry.key, entry.value, entry.revision)
        ```
    """

    bucket: str
    key: str
    value: Value
    """The value. Empty, or None with a codec, if the entry has none."""
    revision: int
    """The number of this change in the bucket. Later changes have higher numbers."""
    timestamp_us: int
    """When the bucket stored the entry, in microseconds since 1970."""
    delta: int = 0
    """The number of entries that follow in the watch or the history. 0 from a get."""
    operation: Operation = "PUT"
    """`PUT`, `DEL` for a delete, or `PURGE` for a purge or an expired value."""

    @property
    def created(self) -> datetime:
        """When the bucket stored the entry: aware, UTC."""
        return _EPOCH + timedelta(microseconds=self.timestamp_us)


def check_key(key: object) -> str:
    """Return a valid key, without wildcards. Raises `InvalidKeyError` otherwise."""
    if is_key(key):
        return cast("str", key)
    raise InvalidKeyError(
        f"not a key: {key!r}; use letters, digits and -/_=, and single dots between them"
    )


def is_readable(key: object, prefix: str) -> bool:
    """Return whether a message can have that key after the prefix, even if it is not valid."""
    if not isinstance(key, str):
        return False
    try:
        check_literal(prefix + key, "key")
    except ConfigError:
        return False
    return True


def check_filter(keys: object) -> str:
    """Return a valid key or pattern of keys. Raises `InvalidKeyError` otherwise."""
    if isinstance(keys, str) and _FILTER.fullmatch(keys):
        return keys
    raise InvalidKeyError(
        f"not a key or a pattern: {keys!r}; * stands for one word between dots, "
        "a last > for all that follow"
    )


def operation_of(headers: Mapping[str, str] | None) -> Operation:
    """Read the operation of a message of a bucket from its headers (ADR-8, ADR-48)."""
    if not headers:
        return "PUT"
    if OPERATION in headers:
        # Like the other clients, take any unknown operation for a put.
        return _BY_WORD.get(headers[OPERATION], "PUT")
    if MARKER_REASON in headers:
        return _BY_REASON.get(headers[MARKER_REASON], "PUT")
    return "PUT"


class BucketLayout(Generic[Value]):
    """The stream of a bucket, and the subjects of its keys."""

    __slots__ = (
        "_keys",
        "_values",
        "bucket",
        "history",
        "max_ttl",
        "min_ttl",
        "origin",
        "read",
        "stream",
        "write",
    )

    make = Entry

    def __init__(self, config: StreamConfig, api_prefix: str) -> None:
        self.stream = config.name or ""
        self.bucket = self.stream.removeprefix(STREAM_PREFIX)
        self.history = config.max_msgs_per_subject or 1
        """The number of revisions that are kept for each key."""
        self.min_ttl = config.subject_delete_marker_ttl if self.history != 1 else None
        """Seconds to which the server raises a shorter `ttl` of a value."""
        self.max_ttl = config.max_age or None
        """Seconds after which a value expires, even if its `ttl` is longer."""
        self.origin = origin_of(config, STREAM_PREFIX)
        """The bucket that this one is a mirror of."""
        self.read = f"$KV.{bucket_in_subjects(config, STREAM_PREFIX, '$KV')}."
        """The prefix of subjects in the stream."""
        self.write = self.read
        """The prefix of subjects to publish to. Servers map those below an API prefix."""
        self._values: ValueChain[Value] | None = None
        self._keys: KeyCodec | None = None
        if api_prefix != _DEFAULT_API:
            self.write = f"{api_prefix}.{self.read}"

    @property
    def prefix(self) -> str:
        """The prefix of the subjects of entries."""
        return self.read

    def filters(self, keys: tuple[str, ...]) -> list[str]:
        """Return the subjects of keys or patterns, or of all keys if none are given."""
        if self._keys is not None:
            keys = tuple(self._keys.encode_filter(key) for key in keys)
        return [self.read + check_filter(key) for key in keys] or [self.read + ">"]

    def with_codecs(
        self,
        values: tuple[ValueCodec[Coded] | ValueCodec[bytes] | ValueCipher, ...] = (),
        keys: KeyCodec | Sequence[KeyCodec] | None = None,
    ) -> BucketLayout[Coded]:
        """Make a layout of this bucket with codecs for its values and keys."""
        layout = cast("BucketLayout[Coded]", copy.copy(self))
        layout._values = ValueChain(values) if values else None
        if keys is not None and not isinstance(keys, Sequence):
            check_key_codec(keys)
        layout._keys = KeyChain(keys) if isinstance(keys, Sequence) else keys
        return layout

    def key(self, key: str) -> str:
        """Encode a key, and check it. Raises `InvalidKeyError` if it is not valid."""
        stored = key if self._keys is None else self._keys.encode(key)
        return stored if is_key(stored) else check_key(stored)

    def stored(self, key: str) -> str:
        """Encode a key in the form of the bucket."""
        return key if self._keys is None else self._keys.encode(key)

    def subjects(self, keys: Iterable[str]) -> list[str]:
        """Return the subjects of keys in the stream, each once."""
        some, prefix = list(keys), self.read
        if self._keys is not None:
            some = [self.key(key) for key in some]
        elif not all(map(is_key, some)):
            for key in some:
                # `keys` also returns keys of other clients, which are readable.
                if not is_readable(key, prefix):
                    check_key(key)
        return list(dict.fromkeys([prefix + key for key in some]))

    def encode(self, key: str, value: Value | Data) -> Data:
        """Encode a value as the bytes that the bucket stores for that key."""
        if self._values is None:
            return cast("Data", value)
        return self._values.encode(cast("Value", value), self.read + self.key(key))

    def check_ttl(self, ttl: object) -> None:
        """Raise `ConfigError` for a time to live that the server would change."""
        if isinstance(ttl, bool) or not isinstance(ttl, int | float) or ttl < 1:
            return  # whether it is a ttl at all is checked with the other options
        if self.min_ttl and ttl < self.min_ttl:
            raise ConfigError(
                f"ttl: bucket {self.bucket!r} keeps {self.history} revisions of a key, so "
                f"the server raises a ttl of {ttl:g} s to its limit_marker_ttl of "
                f"{self.min_ttl:g} s; give {self.min_ttl:g} s or more, or use a bucket "
                "with history=1"
            )
        if self.max_ttl and ttl > self.max_ttl:
            raise ConfigError(
                f"ttl: values of bucket {self.bucket!r} expire after {self.max_ttl:g} s, "
                f"so {ttl:g} s cannot be; give {self.max_ttl:g} s or less, or use a "
                "bucket without a ttl"
            )

    def entry(self, message: StoredMessage) -> Entry[Value]:
        """Read a stored message as an entry. Raises `CodecError` if it cannot be decoded."""
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

    def decode_direct(self, msg: Msg, answer: DirectGetReply) -> Entry[Value]:
        """Read one message of a batched direct get as an entry.

        Raises `CodecError` if it cannot be decoded.
        """
        subject, revision, operation = answer.subject, answer.sequence, answer.operation
        return Entry(
            bucket=self.bucket,
            key=self._key_of(subject, revision),
            value=self._value_of(subject, msg.data, operation, revision),
            revision=revision,
            timestamp_us=answer.timestamp_us,
            operation=operation,
        )

    def decoder(
        self, *, bare: bool, ignore_deletes: bool = False
    ) -> Callable[[Entry], Entry[Value] | None] | None:
        """Make the function that decodes an entry, which has no value if `bare`.

        Returns None if there are no codecs. The decoder returns None for a key that the codec
        of keys has not written, because such a key is not visible through the codec. It raises
        `CodecError` for a value that cannot be decoded, and if a codec is broken.
        """
        if self._keys is None and self._values is None:
            return None

        def decoded(entry: Entry) -> Entry[Value] | None:
            subject, revision = self.read + entry.key, entry.revision
            operation: Operation = "DEL" if bare else entry.operation
            try:
                key = self._key_of(subject, revision)
            except CodecError as error:
                if isinstance(error.__cause__, ValueError):
                    return None
                raise
            return Entry(
                bucket=entry.bucket,
                key=key,
                value=self._value_of(subject, entry.value, operation, revision),
                revision=revision,
                timestamp_us=entry.timestamp_us,
                delta=entry.delta,
                operation=entry.operation,
            )

        return decoded

    def decode(self, entries: Iterable[Entry]) -> list[Entry[Value]]:
        """Decode entries of the bucket.

        Raises `CodecError` for the first value that cannot be decoded. The error has the
        entries that could be decoded.
        """
        decoder = self.decoder(bare=False)
        if decoder is None:
            return cast("list[Entry[Value]]", list(entries))
        decoded: list[Entry[Value]] = []
        failure: CodecError | None = None
        for entry in entries:
            try:
                one = decoder(entry)
            except CodecError as error:
                failure = failure or error
            else:
                decoded += [] if one is None else [one]
        if failure is not None:
            failure.entries = tuple(decoded)
            raise failure
        return decoded

    def label(self, entry: Entry[Value]) -> str:
        """Return the name of an entry for an error."""
        return entry.key

    def not_found_error(self) -> BucketNotFoundError:
        """Make the error for a bucket that does not exist."""
        return bucket_not_found(self.bucket)

    def _key_of(self, subject: str, revision: int) -> str:
        key = subject[len(self.read) :]
        if self._keys is None:
            return key
        try:
            return self._keys.decode(key)
        except Exception as error:
            raise self._not_decoded("key", key, revision, error) from error

    def _value_of(
        self, subject: str, data: bytes, operation: Operation, revision: int
    ) -> Value:
        if self._values is None:
            return cast("Value", data)
        if operation != "PUT":
            return cast("Value", None)
        try:
            return self._values.decode(data, subject)
        except Exception as error:
            key = self._key_of(subject, revision)
            raise self._not_decoded("value of key", key, revision, error) from error

    def _not_decoded(
        self, what: str, key: str, revision: int, error: Exception
    ) -> CodecError:
        return CodecError(
            f"{what} {key!r} in bucket {self.bucket!r} at revision {revision} cannot be "
            f"decoded: {format_error(error)}; read it without the codec",
            key=key,
            revision=revision,
        )

    def value(self, entry: Entry[Value]) -> Entry[Value]:
        """Return the entry if it has a value. Raises `KeyDeletedError` for a marker."""
        if entry.operation == "PUT":
            return entry
        word = "deleted" if entry.operation == "DEL" else "purged, or has expired"
        raise KeyDeletedError(
            f"key was {word}: {entry.key!r} in bucket {self.bucket!r}",
            revision=entry.revision,
            operation=entry.operation,
        )

    def key_not_found_error(
        self, key: str, revision: int | None = None
    ) -> KeyNotFoundError:
        """Make the error for a key, or for its revision, that the bucket does not have."""
        which = "" if revision is None else f" at revision {revision}"
        return KeyNotFoundError(
            f"no such key: {key!r}{which} in bucket {self.bucket!r}", code=404
        )

    def __repr__(self) -> str:
        return f"<BucketLayout of {self.bucket!r}>"


class LastEntries(LastPerSubjectReader["Entry"]):
    """The last entry of each key, read by batched direct gets, in the form of the bucket."""

    def __init__(self, layout: BucketLayout[bytes], subjects: list[str]) -> None:
        super().__init__(subjects, layout.decode_direct)
        self._layout = layout

    def take_ready(self, mailbox: Mailbox) -> list[Entry]:
        """Return the buffered entries, after a first one has shown which stream answers."""
        if self.whole and not self._previous:
            return []
        layout, given = self._layout, self._given
        stored: list[Entry]
        stored, last, pending = read_entries(
            mailbox, self._previous, Entry, layout.bucket, layout.read
        )
        if stored:
            self._reached(last, pending, len(stored))
        if given:
            stored = [entry for entry in stored if layout.read + entry.key not in given]
        given.update([layout.read + entry.key for entry in stored])
        return stored


def revision_in(description: str) -> int | None:
    """Read the actual revision from the error of a server that refuses another one."""
    _, _, number = description.rpartition("wrong last sequence: ")
    return int(number) if number.isdecimal() else None
