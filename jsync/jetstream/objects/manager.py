"""The methods of `JetStream` that create, change, find and delete stores (ADR-20)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...hints import explain_arguments
from ..buckets import driver as buckets
from .config import ObjectStoreConfig
from .engine import STREAM_PREFIX, StoreLayout
from .repository import ObjectRepository, open_repository
from .status import ObjectStoreStatus
from .store import ObjectStore

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...models import StreamInfo
    from ...validation import Seconds
    from ..api import API

_ALL = "$O.*.C.>"


class ObjectStoreManager:
    """The part of `JetStream` that has object stores."""

    _api: API

    @explain_arguments
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

        Example:
            ```python
            images = js.create_object_store(bucket="images")
            images.put("logo.svg", b"<svg/>")
            ```
        """
        requested = ObjectStoreConfig.from_any(config, fields)
        return self._to_store(
            buckets.create(self._api, requested, "store", "object_store", timeout)
        )

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
            APIError: The server rejects the change, for example of the storage.
        """
        requested = ObjectStoreConfig.from_any(config, fields)
        partly = fields if config is None else None
        return self._to_store(buckets.update(self._api, requested, partly, timeout))

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
            APIError: The server rejects the change, for example of the storage.
        """
        requested = ObjectStoreConfig.from_any(config, fields)
        return self._to_store(buckets.create_or_update(self._api, requested, timeout))

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

        Example:
            ```python
            js.create_object_store(bucket="images")
            images = js.object_store("images")
            print(images.put("logo.svg", b"<svg/>").size)
            ```
        """
        seconds = self._api.seconds(timeout)
        return ObjectStore(open_repository(self._api, bucket, seconds))

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
        buckets.delete(self._api, STREAM_PREFIX, bucket, timeout)

    def object_store_names(self, *, timeout: Seconds | None = None) -> Iterator[str]:
        """Iterate over the names of the stores.

        Iterating blocks for each page of 1024 names.

        Args:
            timeout: Seconds to wait for each page. Default: the context's.

        Returns:
            An iterator over the names.
        """
        return buckets.names(self._api, STREAM_PREFIX, _ALL, timeout)

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
        return map(
            ObjectStoreStatus, buckets.infos(self._api, STREAM_PREFIX, _ALL, timeout)
        )

    def _to_store(self, info: StreamInfo) -> ObjectStore:
        return ObjectStore(ObjectRepository(self._api, StoreLayout(info.config)))
