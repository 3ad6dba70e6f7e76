"""Buckets created, changed, found and deleted: the calls of `JetStream` for them (ADR-8)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...errors import (
    BadBucketError,
    BucketExistsError,
    StreamNameInUseError,
    StreamNotFoundError,
)
from ...models.model import fields_of
from .. import management
from .bucket import KeyValue
from .config import KeyValueConfig
from .driver import no_bucket
from .engine import STREAM_PREFIX, Layout, check_bucket
from .status import KeyValueStatus

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...models import StreamConfig, StreamInfo
    from ..api import API

_ALL = "$KV.*.>"


class KeyValueManager:
    """The part of `JetStream` that has key-value buckets."""

    _api: API

    def create_key_value(
        self,
        config: KeyValueConfig | object | None = None,
        /,
        *,
        timeout: float | None = None,
        **fields: Any,
    ) -> KeyValue:
        """Create a bucket from a `KeyValueConfig`, or from its fields as keywords.

        Blocks. If the bucket exists with the same configuration, nothing is changed.

        Raises:
            BucketExistsError: It exists with another configuration.
            ConfigError: A field that cannot be; nothing was sent.
            InvalidBucketNameError: A name that cannot be; nothing was sent.
            UnsupportedFeatureError: The server is too old for a field.
            APIError: The server refuses it.
        """
        wanted = KeyValueConfig.of(config, fields)
        try:
            info = management.create_stream(self._api, wanted.stream(), {}, timeout)
        except StreamNameInUseError as error:
            raise _exists(wanted, error) from error
        return self._bound(info)

    def update_key_value(
        self,
        config: KeyValueConfig | object | None = None,
        /,
        *,
        timeout: float | None = None,
        **fields: Any,
    ) -> KeyValue:
        """Give a bucket a whole configuration, or change the fields that keywords name.

        Blocks. `bucket` says which. A configuration replaces all, and an unset field gets
        its default. Keywords leave all other fields as they are; None unsets a field.

        Raises:
            BucketNotFoundError: There is no bucket of that name.
            ConfigError: A field that cannot be; nothing was sent.
            UnsupportedFeatureError: The server is too old for a field.
            APIError: The server refuses it, the storage of a bucket for instance.
        """
        wanted = KeyValueConfig.of(config, fields)
        try:
            if config is None:
                stream = f"{STREAM_PREFIX}{wanted.bucket}"
                info = management.stream_info(self._api, stream, timeout=timeout)
                changes = _changes(info.config, fields)
                info = management.update_stream(
                    self._api, None, {"name": stream, **changes}, timeout
                )
            else:
                info = management.update_stream(self._api, wanted.stream(), {}, timeout)
        except StreamNotFoundError as error:
            raise no_bucket(wanted.bucket or "") from error
        return self._bound(info)

    def create_or_update_key_value(
        self,
        config: KeyValueConfig | object | None = None,
        /,
        *,
        timeout: float | None = None,
        **fields: Any,
    ) -> KeyValue:
        """Create a bucket, or give the existing one this configuration; blocks.

        Keywords are a whole configuration, as with `create_key_value`.

        Raises:
            ConfigError: A field that cannot be; nothing was sent.
            UnsupportedFeatureError: The server is too old for a field.
            APIError: The server refuses it, the storage of a bucket for instance.
        """
        wanted = KeyValueConfig.of(config, fields).stream()
        return self._bound(
            management.create_or_update_stream(self._api, wanted, {}, timeout)
        )

    def key_value(self, bucket: str, *, timeout: float | None = None) -> KeyValue:
        """Bind to an existing bucket; blocks. Nothing is created.

        Raises:
            BucketNotFoundError: There is no bucket of that name.
            BadBucketError: Its stream is not one of a bucket.
            InvalidBucketNameError: A name that cannot be; nothing was sent.
        """
        stream = STREAM_PREFIX + check_bucket(bucket)
        try:
            info = management.stream_info(self._api, stream, timeout=timeout)
        except StreamNotFoundError as error:
            raise no_bucket(bucket) from error
        if (info.config.max_msgs_per_subject or 0) < 1:
            raise BadBucketError(
                f"stream {stream!r} is no bucket: it has no max_msgs_per_subject; read it "
                "as a stream"
            )
        return self._bound(info)

    def delete_key_value(self, bucket: str, *, timeout: float | None = None) -> None:
        """Delete a bucket with all its keys; blocks.

        Raises:
            BucketNotFoundError: There is no bucket of that name.
            InvalidBucketNameError: A name that cannot be; nothing was sent.
        """
        stream = STREAM_PREFIX + check_bucket(bucket)
        try:
            management.delete_stream(self._api, stream, timeout)
        except StreamNotFoundError as error:
            raise no_bucket(bucket) from error

    def key_value_names(self, *, timeout: float | None = None) -> Iterator[str]:
        """Iterate over the names of the buckets.

        Mirrors are left out: they have no subjects that the server could find them by.
        Iterating blocks, at most `timeout` seconds for each page of 1024.
        """
        for name in management.stream_names(self._api, _ALL, timeout):
            if name.startswith(STREAM_PREFIX):
                yield name.removeprefix(STREAM_PREFIX)

    def key_value_statuses(
        self, *, timeout: float | None = None
    ) -> Iterator[KeyValueStatus]:
        """Iterate over the buckets: what each holds and how it is set up.

        Mirrors are left out: they have no subjects that the server could find them by.
        Iterating blocks, at most `timeout` seconds for each page of 256. Buckets that do
        not answer are named at the end by an `IncompleteListError`.
        """
        for info in management.streams(self._api, _ALL, timeout):
            if (info.config.name or "").startswith(STREAM_PREFIX):
                yield KeyValueStatus(info)

    def _bound(self, info: StreamInfo) -> KeyValue:
        layout = Layout(info.config, self._api.prefix)
        return KeyValue(self._api, layout, direct=bool(info.config.allow_direct))


def _exists(wanted: KeyValueConfig, error: StreamNameInUseError) -> BucketExistsError:
    return BucketExistsError(
        f"bucket exists with another configuration: {wanted.bucket!r}; bind to it with "
        "key_value, or change it with update_key_value",
        code=error.code,
        err_code=error.err_code,
        description=error.description,
    )


def _changes(config: StreamConfig, fields: dict[str, Any]) -> dict[str, Any]:
    """The fields of its stream that change with those of a bucket."""
    current = KeyValueConfig.of_stream(config)
    before, after = current.stream(), current.changed(fields).stream()
    return {
        name: getattr(after, name)
        for name in fields_of(type(after))
        if getattr(before, name) != getattr(after, name)
    }
