"""Stores created, changed, found and deleted: the calls of `JetStream` for them (ADR-20)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...errors import (
    BucketExistsError,
    StreamNameInUseError,
    StreamNotFoundError,
)
from .. import management
from ..keyvalue.engine import check_bucket, no_bucket
from .config import ObjectStoreConfig
from .driver import Objects, open_objects
from .engine import STREAM_PREFIX, Layout
from .status import ObjectStoreStatus
from .store import ObjectStore

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...checks import Seconds
    from ...models import StreamInfo
    from ..api import API

_ALL = "$O.*.C.>"


class ObjectStoreManager:
    """The part of `JetStream` that has object stores."""

    _api: API

    def create_object_store(
        self,
        config: ObjectStoreConfig | object | None = None,
        /,
        *,
        timeout: Seconds | None = None,
        **fields: Any,
    ) -> ObjectStore:
        """Create a store. Blocks until the server has answered.

        If the store exists with the same configuration, nothing is changed.

        Args:
            config: An `ObjectStoreConfig`, a mapping, or a configuration of nats-py.
            timeout: Seconds to wait. Default: the context's.
            **fields: The fields of `ObjectStoreConfig` as keywords, instead of `config`.

        Returns:
            The store.

        Raises:
            BucketExistsError: The store exists with another configuration.
            ConfigError: A field has a value that is not allowed. Nothing is sent.
            InvalidBucketNameError: No store may have that name. Nothing is sent.
            APIError: The server rejects the configuration.
        """
        wanted = ObjectStoreConfig.of(config, fields)
        try:
            info = management.create_stream(self._api, wanted.stream(), {}, timeout)
        except StreamNameInUseError as error:
            raise BucketExistsError(
                f"store exists with another configuration: {wanted.bucket!r}; bind to it "
                "with object_store, or change it with update_object_store",
                code=error.code,
                err_code=error.err_code,
                description=error.description,
                differences=error.differences,
            ) from error
        return self._opened(info)

    def update_object_store(
        self,
        config: ObjectStoreConfig | object | None = None,
        /,
        *,
        timeout: Seconds | None = None,
        **fields: Any,
    ) -> ObjectStore:
        """Change the configuration of a store. Blocks until the server has answered.

        Args:
            config: A whole configuration. Fields that are not set get their default.
            timeout: Seconds to wait. Default: the context's.
            **fields: The name of the store as `bucket`, and the fields to change. All
                other fields stay as they are. None resets a field to its default.

        Returns:
            The store.

        Raises:
            BucketNotFoundError: There is no store of that name.
            ConfigError: A field has a value that is not allowed. Nothing is sent.
            APIError: The server rejects the change, of the storage for instance.
        """
        wanted = ObjectStoreConfig.of(config, fields)
        stream = wanted.stream()
        try:
            if config is None:
                info = management.stream_info(
                    self._api, stream.name or "", timeout=timeout
                )
                before = ObjectStoreConfig.of_stream(info.config)
                after = before.changed(fields).stream()
                changes = after.changes_from(before.stream())
                info = management.update_stream(
                    self._api, None, {"name": stream.name, **changes}, timeout
                )
            else:
                info = management.update_stream(self._api, stream, {}, timeout)
        except StreamNotFoundError as error:
            raise no_bucket(wanted.bucket or "") from error
        return self._opened(info)

    def create_or_update_object_store(
        self,
        config: ObjectStoreConfig | object | None = None,
        /,
        *,
        timeout: Seconds | None = None,
        **fields: Any,
    ) -> ObjectStore:
        """Create a store, or give an existing store this configuration. Blocks.

        Args:
            config: An `ObjectStoreConfig`, a mapping, or a configuration of nats-py.
            timeout: Seconds to wait. Default: the context's.
            **fields: The fields of `ObjectStoreConfig` as keywords, instead of `config`.
                They are a whole configuration: other fields get their default.

        Returns:
            The store.

        Raises:
            ConfigError: A field has a value that is not allowed. Nothing is sent.
            APIError: The server rejects the change, of the storage for instance.
        """
        wanted = ObjectStoreConfig.of(config, fields).stream()
        return self._opened(
            management.create_or_update_stream(self._api, wanted, {}, timeout)
        )

    def object_store(
        self, bucket: str, *, timeout: Seconds | None = None
    ) -> ObjectStore:
        """Get an existing store. Blocks, and creates nothing.

        Args:
            bucket: The name of the store.
            timeout: Seconds to wait. Default: the context's.

        Returns:
            The store.

        Raises:
            BucketNotFoundError: There is no store of that name.
            InvalidBucketNameError: No store may have that name. Nothing is sent.
        """
        seconds = self._api.seconds(timeout)
        return ObjectStore(open_objects(self._api, bucket, seconds))

    def delete_object_store(
        self, bucket: str, *, timeout: Seconds | None = None
    ) -> None:
        """Delete a store with all its objects. Blocks until the server has answered.

        Args:
            bucket: The name of the store.
            timeout: Seconds to wait. Default: the context's.

        Raises:
            BucketNotFoundError: There is no store of that name.
            InvalidBucketNameError: No store may have that name. Nothing is sent.
        """
        stream = STREAM_PREFIX + check_bucket(bucket)
        try:
            management.delete_stream(self._api, stream, timeout)
        except StreamNotFoundError as error:
            raise no_bucket(bucket) from error

    def object_store_names(self, *, timeout: Seconds | None = None) -> Iterator[str]:
        """Iterate over the names of the stores.

        Iterating blocks for each page of 1024 names.

        Args:
            timeout: Seconds to wait for each page. Default: the context's.

        Returns:
            An iterator over the names.
        """
        for name in management.stream_names(self._api, _ALL, timeout):
            if name.startswith(STREAM_PREFIX):
                yield name.removeprefix(STREAM_PREFIX)

    def object_store_statuses(
        self, *, timeout: Seconds | None = None
    ) -> Iterator[ObjectStoreStatus]:
        """Iterate over the stores: their sizes and their configuration.

        Iterating blocks for each page of 256 stores.

        Args:
            timeout: Seconds to wait for each page. Default: the context's.

        Returns:
            An iterator over the statuses.

        Raises:
            IncompleteListError: Raised at the end, if some stores did not answer. The
                error names them.
        """
        for info in management.streams(self._api, _ALL, timeout):
            if (info.config.name or "").startswith(STREAM_PREFIX):
                yield ObjectStoreStatus(info)

    def _opened(self, info: StreamInfo) -> ObjectStore:
        return ObjectStore(Objects(self._api, Layout(info.config)))
