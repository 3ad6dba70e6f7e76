"""Stores as streams (ADR-20): names, subjects, infos and digests.

Pure: no socket, thread or clock.
"""

from __future__ import annotations

import base64
import binascii
import copy
import re
import secrets
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import msgspec

from ..._fast import encode_headers
from ...errors import (
    BucketNotFoundError,
    ConfigError,
    InvalidObjectInfoError,
    InvalidObjectNameError,
    ObjectDeletedError,
    ObjectNotFoundError,
)
from ...headers import Headers, HeadersLike
from ..buckets.engine import bucket_in_subjects, bucket_not_found, origin_of
from ..keyvalue.engine import Entry

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...models import StoredMessage, StreamConfig

STREAM_PREFIX: Final = "OBJ_"
CHUNK_SIZE: Final = 128 << 10
MAX_NAME: Final = 2500
DIGEST_KIND: Final = "SHA-256="
MAX_NUMBER: Final = 2**63 - 1
"""The largest size and the largest number of chunks that an info may state."""
ROLLUP: Final[Mapping[str, str]] = {"Nats-Rollup": "sub"}
EXPECTED: Final = "Nats-Expected-Last-Subject-Sequence"

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_ID: Final = re.compile(r"[^\s.*>]{1,255}")
_HEX_DIGEST: Final = re.compile(r"[0-9a-fA-F]{64}")


class ObjectLink(msgspec.Struct, frozen=True, kw_only=True):
    """The target of a link: an object, or a whole store.

    Example:
        ```python
        store.put("today.csv", b"id,total")
        info = store.add_link("latest.csv", "today.csv")
        print(info.link)
        ```
    """

    bucket: str
    """The name of the store."""
    name: str | None = None
    """The name of the object. None: the link is to the store."""


class ObjectInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The entry of an object in its store: everything but its bytes.

    Example:
        ```python
        info = store.put("today.csv", b"id,total")
        print(info.name, info.size, info.digest)
        ```
    """

    name: str
    bucket: str
    """The store that it is in."""
    nuid: str
    """The id of these bytes. Another put of the same name has another id."""
    size: int = 0
    """Bytes."""
    chunks: int = 0
    """The number of messages that hold the bytes."""
    digest: str | None = None
    """The digest of the bytes, `SHA-256=...`. None: the client that put them gave none."""
    modified: datetime
    """The time when this info was stored: aware, in UTC."""
    description: str | None = None
    headers: Headers = msgspec.field(default_factory=Headers)
    """Headers that you gave to the object."""
    metadata: dict[str, str] = msgspec.field(default_factory=dict)
    """Your own notes on the object."""
    chunk_size: int | None = None
    """Bytes of each chunk but the last. None: the client that put it gave none."""
    link: ObjectLink | None = None
    """The target, if this is a link. None: it is an object."""
    deleted: bool = False
    """True if the object was deleted. Its info stays in the store."""
    renamed_to: str | None = None
    """The new name during a rename, or after a rename that was cut short. None: none."""
    renamed_from: str | None = None
    """The former name, after a rename. None: none, or another client has changed the info."""
    revision: int = 0
    """The number of this info in its store. A later change has a higher one."""
    subject_token: str | None = None
    """The last token of the subject of this info, if another client encoded the name in
    another way: jnats uses plain base64, and nats.js encodes Latin-1. None: it is the
    base64url of the name."""

    @property
    def is_link(self) -> bool:
        """True if this is a link."""
        return self.link is not None


class UnreadableInfo(ObjectInfo, frozen=True, kw_only=True):
    """A placeholder for a message that is not an info, to replace or to delete it."""


class _Link(msgspec.Struct, omit_defaults=True):
    bucket: str
    name: str = ""


class _StoredOptions(msgspec.Struct, omit_defaults=True):
    link: _Link | None = None
    max_chunk_size: int | None = None


class _Wire(msgspec.Struct, omit_defaults=True):
    """An info as the stream has it. `mtime` is never written (ADR-20)."""

    name: str
    bucket: str
    nuid: str
    # No defaults: the other clients always write these fields.
    size: int
    chunks: int
    description: str | None = None
    headers: dict[str, list[str]] | None = None
    metadata: dict[str, str] | None = None
    options: _StoredOptions | None = None
    digest: str | None = None
    deleted: bool = False
    # The other clients ignore these fields.
    renamed_to: str | None = None
    renamed_from: str | None = None


class _ReadLink(msgspec.Struct):
    bucket: str | None = None
    name: str | None = None


class _ReadOptions(msgspec.Struct):
    link: _ReadLink | None = None
    max_chunk_size: Any = None


class _Read(msgspec.Struct):
    """An info as any client may have stored it. `_fields` checks what has no type here."""

    name: str | None = None
    nuid: Any = None
    size: Any = None
    chunks: Any = None
    description: Any = None
    headers: Any = None
    metadata: Any = None
    options: _ReadOptions | None = None
    digest: Any = None
    deleted: bool | None = None
    renamed_to: Any = None
    renamed_from: Any = None


_NO_HEADERS: Final = Headers()
_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(_Read).decode


def new_nuid() -> str:
    """Make a random id for an object: 22 letters and digits."""
    return secrets.token_hex(11)


def check_object(name: object) -> str:
    """Return a valid name of an object. Raises `InvalidObjectNameError` otherwise."""
    if isinstance(name, str) and name:
        try:
            if len(name.encode()) <= MAX_NAME:
                return name
        except UnicodeEncodeError:
            pass
    raise InvalidObjectNameError(
        f"not the name of an object: {name!r:.100}; use a string of 1 to {MAX_NAME} "
        "bytes of UTF-8"
    )


def check_description(description: object) -> str | None:
    if description is None or isinstance(description, str):
        return description or None
    raise ConfigError(f"description has to be a str, not {description!r}")


def check_metadata(metadata: object) -> dict[str, str]:
    if metadata is None:
        return {}
    if not isinstance(metadata, Mapping) or not all(
        isinstance(word, str) for pair in metadata.items() for word in pair
    ):
        raise ConfigError(f"metadata has to be a dict of str, not {metadata!r}")
    return dict(metadata)


def check_headers(headers: HeadersLike | None) -> Headers:
    if headers is None:
        return _NO_HEADERS
    if not isinstance(headers, Mapping):
        raise ConfigError(f"headers has to be a mapping, not {headers!r}")
    checked = Headers(headers)
    for name, value in checked.pairs():
        if not all(isinstance(word, str) for word in (name, value)):
            raise ConfigError(f"headers: names and values are str, not {name, value!r}")
    return checked


def encode_name(name: str) -> str:
    """Encode a name as a token of a subject."""
    return base64.urlsafe_b64encode(name.encode()).decode()


def tokens_of(name: str) -> tuple[str, ...]:
    """Return each token that a client may have made from a name, first the one of jsync.

    jnats writes plain base64. nats.js encodes the bytes of Latin-1, and cannot encode other
    characters. Such a token is unambiguous if its bytes are not valid UTF-8.
    """
    token = encode_name(name)
    tokens = [token, token.replace("-", "+").replace("_", "/")]
    data = name.encode("latin-1", errors="ignore")
    if len(data) == len(name):
        try:
            data.decode()
        except UnicodeDecodeError:
            tokens.append(base64.urlsafe_b64encode(data).decode())
    return tuple(dict.fromkeys(tokens))


def decode_name(token: str) -> tuple[str | None, bool]:
    """Decode the name from a token of a subject.

    Returns:
        The name, None if no name has that token, and whether another client has encoded the
        name in another way than jsync.
    """
    try:
        data = base64.urlsafe_b64decode(token)
    except ValueError:
        return None, False
    try:
        name = data.decode()
    except UnicodeDecodeError:
        name = data.decode("latin-1")
    if token == encode_name(name):
        return name or None, False
    return (name, True) if token in tokens_of(name) else (None, False)


def _is_latin(token: str) -> bool:
    """Return whether the bytes of a name's token are Latin-1, because they are not UTF-8."""
    try:
        base64.urlsafe_b64decode(token).decode()
    except UnicodeDecodeError:
        return True
    return False


def is_id(nuid: object) -> bool:
    """Return whether an object may have that id, which must be one literal token."""
    return (
        isinstance(nuid, str) and nuid.isprintable() and _ID.fullmatch(nuid) is not None
    )


def digest_text(digest: bytes) -> str:
    """Format a SHA-256 digest for an info."""
    return DIGEST_KIND + base64.urlsafe_b64encode(digest).decode()


def known_digest(text: str | None) -> bytes | None:
    """Parse the SHA-256 digest of an info. None: it has no digest of that kind."""
    if not text or not text.upper().startswith(DIGEST_KIND):
        return None
    stated = text[len(DIGEST_KIND) :].rstrip("=").replace("+", "-").replace("/", "_")
    if _HEX_DIGEST.fullmatch(stated):  # older nats.js (base64 has 43 characters)
        return bytes.fromhex(stated)
    try:
        return base64.urlsafe_b64decode(stated + "=" * (-len(stated) % 4))
    except (binascii.Error, ValueError):
        return b""  # no data has this digest


def encode_info(info: ObjectInfo) -> bytes:
    """Encode an info as JSON for the stream."""
    link = info.link
    options = None
    if link is not None:
        options = _StoredOptions(link=_Link(bucket=link.bucket, name=link.name or ""))
    elif info.chunk_size:
        options = _StoredOptions(max_chunk_size=info.chunk_size)
    wire = _Wire(
        name=info.name,
        bucket=info.bucket,
        nuid=info.nuid,
        size=info.size,
        chunks=info.chunks,
        description=info.description,
        headers=None
        if not info.headers
        else {name: info.headers.get_all(name) for name in info.headers},
        metadata=info.metadata or None,
        options=options,
        digest=info.digest,
        deleted=info.deleted,
        renamed_to=info.renamed_to,
        renamed_from=info.renamed_from,
    )
    try:
        return _encode(wire)
    except UnicodeEncodeError as error:
        raise ConfigError(f"not valid Unicode: {error.object!r:.100}") from error


_ANY_DIGEST: Final = digest_text(bytes(32))
_LARGEST_HEADERS: Final = len(encode_headers({**ROLLUP, EXPECTED: str(MAX_NUMBER)}))


def largest_size(info: ObjectInfo) -> int:
    """Return the most bytes of headers and payload that a put needs to store this info."""
    largest = msgspec.structs.replace(
        info, size=MAX_NUMBER, chunks=MAX_NUMBER, digest=_ANY_DIGEST
    )
    return _LARGEST_HEADERS + len(encode_info(largest))


class StoreLayout:
    """The stream of a store, and the subjects in it."""

    __slots__ = (
        "bucket",
        "chunks",
        "direct",
        "infos",
        "on_bad",
        "origin",
        "replicated",
        "stream",
    )

    make = Entry

    def __init__(self, config: StreamConfig) -> None:
        self.stream = config.name or ""
        self.bucket = self.stream.removeprefix(STREAM_PREFIX)
        self.replicated = (config.num_replicas or 1) > 1
        """True if the stream has replicas, which may be behind the leader."""
        self.direct = bool(config.allow_direct)
        """True if any server that has the stream may answer a request for a message."""
        self.origin = origin_of(config, STREAM_PREFIX)
        """The store that this one is a mirror of."""
        named = bucket_in_subjects(config, STREAM_PREFIX, "$O")
        self.chunks = f"$O.{named}.C."
        """The prefix of the subjects of chunks."""
        self.infos = f"$O.{named}.M."
        """The prefix of the subjects of infos."""
        self.on_bad: Callable[[InvalidObjectInfoError, bytes], object] | None = None
        """Called by a decoder for a message that is no info, and that the watch skips."""

    def with_on_bad(
        self, on_bad: Callable[[InvalidObjectInfoError, bytes], object]
    ) -> StoreLayout:
        """Make a copy for a watch that passes messages that cannot be read to `on_bad`."""
        layout = copy.copy(self)
        layout.on_bad = on_bad
        return layout

    def chunk_subject(self, nuid: str) -> str:
        """Return the subject of the chunks of one id, which never contains wildcards.

        Raises:
            InvalidObjectInfoError: No object may have that id.
        """
        if not is_id(nuid):
            raise InvalidObjectInfoError(f"not the id of an object: {nuid!r:.100}")
        return self.chunks + nuid

    def info_subject(self, name: str) -> str:
        return self.infos + encode_name(name)

    def subject_of(self, info: ObjectInfo) -> str:
        """Return the subject on which the client of an info has stored it."""
        return self.infos + (info.subject_token or encode_name(info.name))

    def info(self, message: StoredMessage) -> ObjectInfo:
        """Read the info in a stored message. Raises `InvalidObjectInfoError` if it is none."""
        return self._read(
            message.data, message.subject, message.sequence, message.timestamp
        )

    def occupied(self, message: StoredMessage) -> ObjectInfo:
        """Read the info in a message that is to be replaced or deleted.

        For a message that is no info, return an `UnreadableInfo`. It refers to no chunks,
        because the id of its chunks is unknown.
        """
        try:
            return self.info(message)
        except InvalidObjectInfoError as error:
            if error.name is None:
                raise
            return UnreadableInfo(
                name=error.name,
                bucket=self.bucket,
                nuid=new_nuid(),
                modified=message.timestamp,
                revision=message.sequence,
                subject_token=error.key if decode_name(error.key)[1] else None,
            )

    # For a watch ----------------------------------------------------------------------

    def filters(self, keys: tuple[str, ...]) -> list[str]:
        """Return the subjects of the infos of some objects, or of all if none are named."""
        return [self.info_subject(name) for name in keys] or [self.infos + ">"]

    @property
    def prefix(self) -> str:
        return self.infos

    def decoder(
        self, *, bare: bool, ignore_deletes: bool
    ) -> Callable[[Entry], ObjectInfo | None]:
        """Make the function that reads the info in an entry.

        It passes the error for an entry that is no info to `on_bad`, and raises it if there is
        no such callback.
        """
        on_bad = self.on_bad

        def decoded(entry: Entry) -> ObjectInfo | None:
            stored = _EPOCH + timedelta(microseconds=entry.timestamp_us)
            subject = self.infos + entry.key
            try:
                info = self._read(entry.value, subject, entry.revision, stored)
            except InvalidObjectInfoError as error:
                if on_bad is None:
                    raise
                on_bad(error, entry.value)
                return None
            return None if ignore_deletes and info.deleted else info

        return decoded

    def label(self, info: ObjectInfo) -> str:
        return info.name

    def not_found_error(self) -> BucketNotFoundError:
        return bucket_not_found(self.bucket)

    # Infos ----------------------------------------------------------------------------

    def _read(
        self, data: bytes, subject: str, revision: int, stored: datetime
    ) -> ObjectInfo:
        """Read the info in a message of any client.

        The name comes from the subject, and the bucket from the store, not from the payload.
        Fields such as the description and the metadata, on which nothing depends, are
        read as far as possible and never raise for a wrong type.
        """
        token = subject[len(self.infos) :]
        name, is_unusual = decode_name(token)
        try:
            if name is None:
                raise ValueError("the subject is not the base64url of a name")
            record = _decode(data)
            if is_unusual and _is_latin(token) and record.name not in (None, "", name):
                # Bytes that are not UTF-8 may have any encoding, so the info must confirm it.
                raise ValueError(f"name is {record.name!r:.100}")
            fields = _fields(record, name)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            what = f"{name!r:.100}" if name is not None else f"subject {subject!r:.200}"
            advice = "put the object again, or delete it"
            if name is None:
                advice = "purge that subject of the stream"
            raise InvalidObjectInfoError(
                f"not the info of an object: {what} at revision {revision} of store "
                f"{self.bucket!r}: {error}; {advice}",
                key=token,
                revision=revision,
                name=name,
            ) from error
        return ObjectInfo(
            name=name,
            bucket=self.bucket,
            modified=stored,
            revision=revision,
            subject_token=token if is_unusual else None,
            **fields,
        )

    def object_not_found_error(
        self, name: str, *, deleted: bool
    ) -> ObjectNotFoundError:
        """Make the error for an object that the store does not have."""
        if deleted:
            return ObjectDeletedError(
                f"object was deleted: {name!r} in store {self.bucket!r}", code=404
            )
        return ObjectNotFoundError(
            f"no such object: {name!r} in store {self.bucket!r}", code=404
        )

    def __repr__(self) -> str:
        return f"<StoreLayout of {self.bucket!r}>"


# The fields of an info ----------------------------------------------------------------


def _fields(record: _Read, name: str) -> dict[str, Any]:
    """Read the fields of an info of that name. Raises `ValueError` for a bad one."""
    options = record.options or _ReadOptions()
    size, digest, link = options.max_chunk_size, record.digest, None
    if options.link is not None:
        if not options.link.bucket:
            raise ValueError("options.link has no bucket")
        link = ObjectLink(bucket=options.link.bucket, name=options.link.name or None)
    fields: dict[str, Any] = {
        "nuid": record.nuid if is_id(record.nuid) else "",
        "description": _as_text(record.description) or None,
        "headers": _headers(record.headers) if record.headers else _NO_HEADERS,
        "metadata": _metadata(record.metadata) if record.metadata else {},
        "chunk_size": size if type(size) is int and 0 < size <= MAX_NUMBER else None,
        "link": link,
        "digest": digest if isinstance(digest, str) and digest else None,
        "deleted": bool(record.deleted),
        "renamed_to": _other_name(record.renamed_to, name)
        if record.renamed_to
        else None,
        "renamed_from": _other_name(record.renamed_from, name)
        if record.renamed_from
        else None,
    }
    if record.deleted or link is not None:
        # Deletions and links have no bytes, so the other fields have no meaning.
        return fields
    if not fields["nuid"]:
        raise ValueError(f"nuid is {record.nuid!r:.100}")
    if not isinstance(digest, str | None):
        raise ValueError(f"digest is {digest!r:.100}")
    fields["size"] = _number(record.size, "size")
    fields["chunks"] = _number(record.chunks, "chunks")
    return fields


def _other_name(value: Any, name: str) -> str | None:
    """Read another name that a rename has stored. None: it is not a valid one."""
    try:
        return None if value == name else check_object(value)
    except InvalidObjectNameError:
        return None


def _number(value: Any, what: str) -> int:
    if value is None:
        return 0
    if type(value) is int and 0 <= value <= MAX_NUMBER:
        return value
    raise ValueError(f"{what} is {value!r:.100}")


def _as_text(value: Any) -> str:
    """Return a text of the user, or the JSON of a value that is not a string."""
    if value is None or isinstance(value, str):
        return value or ""
    return _encode(value).decode()


def _metadata(value: Any) -> dict[str, str]:
    """Read the notes of the user from a dict, or from a list as in the example of ADR-20."""
    parts = value if isinstance(value, list) else [value]
    return {
        key: _as_text(text)
        for part in parts
        if isinstance(part, dict)
        for key, text in part.items()
        if text is not None
    }


def _headers(value: Any) -> Headers:
    """Read headers, whose values are lists, or strings as nats-py and NATS.Net store them."""
    if not isinstance(value, dict):
        return _NO_HEADERS
    lists = {key: v if isinstance(v, list) else [v] for key, v in value.items()}
    return Headers(
        {
            key: [_as_text(text) for text in texts if text is not None]
            for key, texts in lists.items()
        }
    )


def is_former_name(info: ObjectInfo, other: ObjectInfo) -> bool:
    """Return whether `info` belongs to a former name of the object of `other`."""
    if info.deleted or other.deleted or not info.nuid:
        return False
    return info.nuid == other.nuid and info.revision < other.revision


def missing_info(
    bucket: str, name: str, existing: ObjectInfo | None = None
) -> ObjectInfo:
    """Make the info of a deleted object that is otherwise unknown, to replace `existing`."""
    return ObjectInfo(
        name=name,
        bucket=bucket,
        nuid=new_nuid(),
        modified=datetime.now(UTC),
        deleted=True,
        subject_token=None if existing is None else existing.subject_token,
    )


def deleted_info(info: ObjectInfo) -> ObjectInfo:
    """Make the info of a deleted object, with the fields that other clients expect."""
    return msgspec.structs.replace(
        info,
        size=0,
        chunks=0,
        digest=None,
        deleted=True,
        renamed_to=None,
        renamed_from=None,
    )
