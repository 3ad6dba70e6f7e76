"""Stores as streams (ADR-20): names, subjects, infos and digests.

Pure: no socket, thread or clock.
"""

from __future__ import annotations

import base64
import binascii
import secrets
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

import msgspec

from ...errors import (
    BadObjectInfoError,
    BucketNotFoundError,
    ConfigError,
    InvalidObjectNameError,
    ObjectDeletedError,
    ObjectNotFoundError,
)
from ...headers import Headers, HeadersLike
from ..buckets.engine import no_bucket
from ..keyvalue.engine import Entry

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...models import StoredMessage, StreamConfig

STREAM_PREFIX: Final = "OBJ_"
CHUNK_SIZE: Final = 128 << 10
LONGEST_NAME: Final = 2500
DIGEST_KIND: Final = "SHA-256="
ROLLUP: Final[Mapping[str, str]] = {"Nats-Rollup": "sub"}

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class ObjectLink(msgspec.Struct, frozen=True, kw_only=True):
    """The target of a link: an object, or a whole store."""

    bucket: str
    """The name of the store."""
    name: str | None = None
    """The name of the object. None: the link is to the store."""


class ObjectInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The entry of an object in its store: everything but its bytes."""

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
    """Whether the object was deleted. Its info stays in the store."""
    renamed_to: str | None = None
    """The new name during a rename, or after a rename that was cut short. None: none."""
    revision: int = 0
    """The number of this info in its store. A later change has a higher one."""

    @property
    def is_link(self) -> bool:
        """Whether it is a link."""
        return self.link is not None


class _Link(msgspec.Struct, omit_defaults=True):
    bucket: str
    name: str = ""


class _Options(msgspec.Struct, omit_defaults=True):
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
    options: _Options | None = None
    digest: str | None = None
    deleted: bool = False
    # The other clients ignore this field.
    renamed_to: str | None = None


class _Read(_Wire):
    """The same of any client, which may leave some of it out."""

    bucket: str = ""
    nuid: str = ""
    size: int = 0
    chunks: int = 0
    deleted: bool | None = None  # type: ignore[assignment]


_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(_Read).decode


def new_nuid() -> str:
    """The id of an object: 22 letters and digits."""
    return secrets.token_hex(11)


def check_object(name: object) -> str:
    """The name of an object; raises `InvalidObjectNameError`."""
    if isinstance(name, str) and name:
        try:
            if len(name.encode()) <= LONGEST_NAME:
                return name
        except UnicodeEncodeError:
            pass
    raise InvalidObjectNameError(
        f"not the name of an object: {name!r:.100}; use a string of 1 to {LONGEST_NAME} "
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
        return Headers()
    if not isinstance(headers, Mapping):
        raise ConfigError(f"headers has to be a mapping, not {headers!r}")
    checked = Headers(headers)
    for name, value in checked.pairs():
        if not all(isinstance(word, str) for word in (name, value)):
            raise ConfigError(f"headers: names and values are str, not {name, value!r}")
    return checked


def encode_name(name: str) -> str:
    """The name as its subject has it."""
    return base64.urlsafe_b64encode(name.encode()).decode()


def digest_text(digest: bytes) -> str:
    """A SHA-256 digest as infos have it."""
    return DIGEST_KIND + base64.urlsafe_b64encode(digest).decode()


def known_digest(text: str | None) -> bytes | None:
    """The SHA-256 digest in an info; None if there is none of that kind."""
    if not text or not text.upper().startswith(DIGEST_KIND):
        return None
    stated = text[len(DIGEST_KIND) :].rstrip("=").replace("+", "-").replace("/", "_")
    try:
        return base64.urlsafe_b64decode(stated + "=" * (-len(stated) % 4))
    except (binascii.Error, ValueError):
        return b""  # no data has this digest


def encode_info(info: ObjectInfo) -> bytes:
    """An info as the stream has it."""
    link = info.link
    options = None
    if link is not None:
        options = _Options(link=_Link(bucket=link.bucket, name=link.name or ""))
    elif info.chunk_size:
        options = _Options(max_chunk_size=info.chunk_size)
    wire = _Wire(
        name=info.name,
        bucket=info.bucket,
        nuid=info.nuid,
        size=info.size,
        chunks=info.chunks,
        description=info.description,
        headers={name: info.headers.get_all(name) for name in info.headers} or None,
        metadata=info.metadata or None,
        options=options,
        digest=info.digest,
        deleted=info.deleted,
        renamed_to=info.renamed_to,
    )
    try:
        return _encode(wire)
    except UnicodeEncodeError as error:
        raise ConfigError(f"not valid Unicode: {error.object!r:.100}") from error


class Layout:
    """Where a store is: its stream, and the subjects in it."""

    __slots__ = (
        "bucket",
        "chunks",
        "direct",
        "infos",
        "replicated",
        "stream",
    )

    make = Entry

    def __init__(self, config: StreamConfig) -> None:
        self.stream = config.name or ""
        self.bucket = self.stream.removeprefix(STREAM_PREFIX)
        self.replicated = (config.num_replicas or 1) > 1
        """Whether servers other than the leader have it too, which may be behind."""
        self.direct = bool(config.allow_direct)
        """Whether any server that has it may be asked for a message."""
        self.chunks = f"$O.{self.bucket}.C."
        """What the subjects of chunks begin with."""
        self.infos = f"$O.{self.bucket}.M."
        """What the subjects of infos begin with."""

    def chunk_subject(self, nuid: str) -> str:
        return self.chunks + nuid

    def info_subject(self, name: str) -> str:
        return self.infos + encode_name(name)

    def info(self, message: StoredMessage) -> ObjectInfo:
        """The info that a stored message is; raises `BadObjectInfoError`."""
        return self._read(
            message.data, message.subject, message.sequence, message.timestamp
        )

    # What a watch asks ----------------------------------------------------------------

    def filters(self, keys: tuple[str, ...]) -> list[str]:
        """The subjects of the infos of some objects, of all when none are named."""
        return [self.info_subject(name) for name in keys] or [self.infos + ">"]

    @property
    def prefix(self) -> str:
        return self.infos

    def decoder(
        self, *, bare: bool, ignore_deletes: bool
    ) -> Callable[[Entry], ObjectInfo | None]:
        """Reads the info in an entry; raises `BadObjectInfoError`."""

        def decoded(entry: Entry) -> ObjectInfo | None:
            stored = _EPOCH + timedelta(microseconds=entry.timestamp_us)
            subject = self.infos + entry.key
            info = self._read(entry.value, subject, entry.revision, stored)
            return None if ignore_deletes and info.deleted else info

        return decoded

    def label(self, info: ObjectInfo) -> str:
        return info.name

    def gone(self) -> BucketNotFoundError:
        return no_bucket(self.bucket)

    # Infos ----------------------------------------------------------------------------

    def _read(
        self, data: bytes, subject: str, revision: int, stored: datetime
    ) -> ObjectInfo:
        try:
            wire = _decode(data)
            options = wire.options or _Options()
            link = None
            if options.link is not None:
                link = ObjectLink(
                    bucket=options.link.bucket, name=options.link.name or None
                )
            if min(wire.size, wire.chunks, options.max_chunk_size or 0) < 0:
                raise ValueError("a negative size")
            if not wire.nuid and not wire.deleted:
                raise ValueError("no nuid")
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise BadObjectInfoError(
                f"not the info of an object: revision {revision} of store "
                f"{self.bucket!r}: {error}",
                key=subject[len(self.infos) :],
                revision=revision,
            ) from error
        return ObjectInfo(
            name=wire.name,
            bucket=wire.bucket or self.bucket,
            nuid=wire.nuid,
            size=wire.size,
            chunks=wire.chunks,
            digest=wire.digest or None,
            modified=stored,
            description=wire.description or None,
            headers=Headers(wire.headers or {}),
            metadata=wire.metadata or {},
            chunk_size=options.max_chunk_size or None,
            link=link,
            deleted=bool(wire.deleted),
            renamed_to=wire.renamed_to or None,
            revision=revision,
        )

    def missing(self, name: str, *, deleted: bool) -> ObjectNotFoundError:
        """The error for an object that the store does not have."""
        if deleted:
            return ObjectDeletedError(
                f"object was deleted: {name!r} in store {self.bucket!r}", code=404
            )
        return ObjectNotFoundError(
            f"no such object: {name!r} in store {self.bucket!r}", code=404
        )

    def __repr__(self) -> str:
        return f"<Layout of {self.bucket!r}>"


def deleted_info(info: ObjectInfo) -> ObjectInfo:
    """What is left of an object: peers know it by these fields."""
    return msgspec.structs.replace(info, size=0, chunks=0, digest=None, deleted=True)
