"""The methods of `JetStream` that create, change, find and delete buckets (ADR-8)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...errors import InvalidBucketError
from ...hints import explain_arguments
from ..buckets import driver as buckets
from .bucket import KeyValue
from .config import KeyValueConfig
from .engine import STREAM_PREFIX, BucketLayout
from .status import KeyValueStatus

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...models import StreamInfo
    from ...validation import Seconds
    from ..api import API

_ALL = "$KV.*.>"


class KeyValueManager:
    """The part of `JetStream` that has key-value buckets."""

    _api: API

    @explain_arguments
    def create_key_value(
        self,
        config: KeyValueConfig | object | None = None,
        /,
        *,
        timeout: Seconds | None = None,
        **fields: Any,
    ) -> KeyValue:
        """Create a bucket. Blocks until the server has answered.

        If the bucket exists with the same configuration, nothing is changed.

        Args:
            config: A `KeyValueConfig`, a mapping, or a configuration of nats-py.
            timeout: Seconds to wait. Default: the context's.
            **fields: The fields of `KeyValueConfig` as keywords, instead of `config`.

        Returns:
            The bucket.

        Raises:
            BucketExistsError: The bucket exists with another configuration.
            ConfigError: A field has a value that is not allowed. Nothing is sent.
            InvalidBucketNameError: No bucket may have that name. Nothing is sent.
            UnsupportedFeatureError: The server is too old for a field. Nothing is sent.
            APIError: The server rejects the configuration.

        Example:
            ```python
            settings = js.create_key_value(bucket="settings", history=5)
            settings.put("limit", b"100")
            ```
        """
        requested = KeyValueConfig.from_any(config, fields)
        return self._bound(
            buckets.create(self._api, requested, "bucket", "key_value", timeout)
        )

    def update_key_value(
        self,
        config: KeyValueConfig | object | None = None,
        /,
        *,
        timeout: Seconds | None = None,
        **fields: Any,
    ) -> KeyValue:
        """Change the configuration of a bucket. Blocks until the server has answered.

        Args:
            config: A whole configuration. Fields that are not set get their default.
            timeout: Seconds to wait. Default: the context's.
            **fields: The name of the bucket as `bucket`, and the fields to change. All
                other fields stay as they are. None resets a field to its default.

        Returns:
            The bucket.

        Raises:
            BucketNotFoundError: There is no bucket of that name.
            ConfigError: A field has a value that is not allowed. Nothing is sent.
            UnsupportedFeatureError: The server is too old for a field. Nothing is sent.
            APIError: The server rejects the change, for example of the storage.
        """
        requested = KeyValueConfig.from_any(config, fields)
        partly = fields if config is None else None
        return self._bound(buckets.update(self._api, requested, partly, timeout))

    @explain_arguments
    def create_or_update_key_value(
        self,
        config: KeyValueConfig | object | None = None,
        /,
        *,
        timeout: Seconds | None = None,
        **fields: Any,
    ) -> KeyValue:
        """Create a bucket, or give an existing bucket this configuration. Blocks.

        Args:
            config: A `KeyValueConfig`, a mapping, or a configuration of nats-py.
            timeout: Seconds to wait. Default: the context's.
            **fields: The fields of `KeyValueConfig` as keywords, instead of `config`.
                They are a whole configuration: other fields get their default.

        Returns:
            The bucket.

        Raises:
            ConfigError: A field has a value that is not allowed. Nothing is sent.
            UnsupportedFeatureError: The server is too old for a field. Nothing is sent.
            APIError: The server rejects the change, for example of the storage.
        """
        requested = KeyValueConfig.from_any(config, fields)
        return self._bound(buckets.create_or_update(self._api, requested, timeout))

    @explain_arguments
    def key_value(self, bucket: str, *, timeout: Seconds | None = None) -> KeyValue:
        """Get an existing bucket. Blocks, and creates nothing.

        Args:
            bucket: The name of the bucket.
            timeout: Seconds to wait. Default: the context's.

        Returns:
            The bucket.

        Raises:
            BucketNotFoundError: There is no bucket of that name.
            InvalidBucketError: The stream of that name is no bucket.
            InvalidBucketNameError: No bucket may have that name. Nothing is sent.

        Example:
            ```python
            js.create_key_value(bucket="settings")
            settings = js.key_value("settings")
            print(settings.put("limit", b"100"))
            ```
        """
        info = buckets.find(self._api, STREAM_PREFIX, bucket, timeout)
        if (info.config.max_msgs_per_subject or 0) < 1:
            raise InvalidBucketError(
                f"stream {STREAM_PREFIX + bucket!r} is no bucket: it has no "
                "max_msgs_per_subject; read it as a stream"
            )
        return self._bound(info)

    def delete_key_value(self, bucket: str, *, timeout: Seconds | None = None) -> None:
        """Delete a bucket with all its keys. Blocks.

        Args:
            bucket: The name of the bucket.
            timeout: Seconds to wait. Default: the context's.

        Raises:
            BucketNotFoundError: There is no bucket of that name.
            InvalidBucketNameError: No bucket may have that name. Nothing is sent.
        """
        buckets.delete(self._api, STREAM_PREFIX, bucket, timeout)

    def key_value_names(self, *, timeout: Seconds | None = None) -> Iterator[str]:
        """Iterate over the names of the buckets.

        Mirrors are left out, because the server cannot find them by a subject.
        Iterating blocks for each page of 1024 names.

        Args:
            timeout: Seconds to wait for each page. Default: the context's.

        Returns:
            An iterator over the names.
        """
        return buckets.names(self._api, STREAM_PREFIX, _ALL, timeout)

    def key_value_statuses(
        self, *, timeout: Seconds | None = None
    ) -> Iterator[KeyValueStatus]:
        """Iterate over the buckets: their contents and their configuration.

        Mirrors are left out, because the server cannot find them by a subject.
        Iterating blocks for each page of 256 buckets.

        Args:
            timeout: Seconds to wait for each page. Default: the context's.

        Returns:
            An iterator over the statuses.

        Raises:
            IncompleteListError: Raised at the end, if some buckets did not answer. The
                error names them.
        """
        return map(
            KeyValueStatus, buckets.infos(self._api, STREAM_PREFIX, _ALL, timeout)
        )

    def _bound(self, info: StreamInfo) -> KeyValue:
        layout = BucketLayout(info.config, self._api.prefix)
        return KeyValue(self._api, layout, direct=bool(info.config.allow_direct))
