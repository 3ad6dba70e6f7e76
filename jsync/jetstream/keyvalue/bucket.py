"""A key-value bucket: what `JetStream.key_value` returns (ADR-8)."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Any, Generic, overload

from ...core.clock import deadline_after
from ...errors import (
    ConfigError,
    Error,
    JetStreamError,
    KeyExistsError,
    MessageNotFoundError,
    NoRespondersError,
    StreamNotFoundError,
    UnsupportedFeatureError,
    WrongLastSequenceError,
    WrongRevisionError,
)
from ...hints import explain_arguments, explain_attributes
from ...validation import check_int, check_optional_callable, check_seconds
from ..buckets.engine import bucket_not_found, read_only
from ..management import stream_info
from ..publishing.options import publish_headers, required_features
from ..publishing.publish import publish
from ..stored.engine import MAX_SUBJECTS
from ..stored.get import direct_get_of_subject, get_message, get_messages
from ..watching.driver import open_watch
from .codecs import Coded, KeyCodec, Value, ValueCipher, ValueCodec
from .election import Election
from .engine import DELETE_HEADERS, PURGE_HEADERS, LastEntries, revision_in
from .lease import check_ttl
from .live_view import LiveView
from .lock import Lock
from .purge_deletes import MARKER_RETENTION, purge_markers
from .status import KeyValueStatus
from .watch import Watch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ...core.requests import Data
    from ...errors import LockLostError
    from ...models.publish import TTL, PublishOptions
    from ...validation import Seconds
    from ..api import API
    from ..watching.driver import WatchReader
    from .engine import BucketLayout, Entry


@explain_attributes
class KeyValue(Generic[Value]):
    """A bucket of keys and their values. Any thread may use it.

    A call that sends a request blocks for at most `timeout` seconds, by default the timeout
    of the context. Besides the errors that each call names, it raises the errors of `JetStream`.

    Example:
        ```python
        kv = js.create_key_value(bucket="settings", history=5)
        revision = kv.put("limit", b"100")
        kv.update("limit", b"200", last=revision)  # fails if another program was faster
        print(kv.get("limit").value)
        ```
    """

    def __init__(self, api: API, layout: BucketLayout[Value], *, direct: bool) -> None:
        self._api = api
        self._layout = layout
        self._direct = direct

    @property
    def bucket(self) -> str:
        """The name of the bucket."""
        return self._layout.bucket

    @property
    def is_read_only(self) -> bool:
        """True if the bucket is a mirror of another bucket."""
        return self._layout.origin is not None

    @overload
    def with_codec(
        self, *values: ValueCipher, keys: KeyCodec | Sequence[KeyCodec] | None = None
    ) -> KeyValue[bytes]: ...

    @overload
    def with_codec(
        self,
        first: ValueCodec[Coded],
        /,
        *values: ValueCodec[bytes] | ValueCipher,
        keys: KeyCodec | Sequence[KeyCodec] | None = None,
    ) -> KeyValue[Coded]: ...

    def with_codec(
        self,
        *values: ValueCodec[Any] | ValueCipher,
        keys: KeyCodec | Sequence[KeyCodec] | None = None,
    ) -> KeyValue[Any]:
        """Get the same bucket with values or keys in another form than it stores.

        All calls take and return the form of the codecs, filters and watches included.
        Locks and elections take keys as the bucket stores them. A watch continues after
        a value that cannot be decoded.

        Args:
            *values: Codecs of values: `JSON(User)`, `MsgPack(User)`, `AESGCM(key)`, or
                your own with `encode(value)` and `decode(data)`. Several of them are
                applied one after the other, and undone in reverse. Default: bytes as
                they are.
            keys: A codec of keys: `PathKeys()`, `Base64Keys()`, or your own, or a list
                of them. Default: keys as they are.

        Returns:
            The bucket with these codecs.

        Raises:
            CodecError: Raised by reading: a value cannot be decoded.
            ConfigError: An object is no codec.

        Example:
            ```python
            orders = kv.with_codec(jsync.JSON(dict))
            orders.put("order.7", {"total": 9.5})
            print(orders.get("order.7").value)
            ```
        """
        layout: BucketLayout[Any] = self._layout.with_codecs(values, keys)
        return KeyValue(self._api, layout, direct=self._direct)

    def _from_leader(self) -> KeyValue[Value]:
        """Return the same bucket, all of whose gets are answered by its leader.

        It is for decisions such as a deletion, because another server may be behind.
        """
        return KeyValue(self._api, self._layout, direct=False)

    # Writing --------------------------------------------------------------------------

    @explain_arguments
    def put(
        self, key: str, value: Value | Data = b"", *, timeout: Seconds | None = None
    ) -> int:
        """Store a value, whatever the present value of the key.

        Args:
            key: The key.
            value: The value.
            timeout: Seconds to wait.

        Returns:
            The revision.

        Raises:
            InvalidKeyError: The key is not allowed. Nothing is sent.
            ReadOnlyBucketError: The bucket is a mirror. Nothing is sent.
            TimeoutError: No answer came. The value may have been stored.
            ConnectionLostError: The same.

        Example:
            ```python
            revision = kv.put("db.host", b"10.0.0.1")
            print(revision)
            ```
        """
        seconds = self._api.seconds(timeout)
        subject = self._subject(key)
        data = self._layout.encode(key, value)
        return publish(self._api.session, subject, data, None, seconds).seq

    @explain_arguments
    def create(
        self,
        key: str,
        value: Value | Data = b"",
        *,
        ttl: TTL | None = None,
        timeout: Seconds | None = None,
    ) -> int:
        """Store a value if the key has none, or was deleted or purged.

        Args:
            key: The key.
            value: The value.
            ttl: Whole seconds after which the value expires, or `"never"`. The bucket
                needs a `limit_marker_ttl`. Since nats-server 2.11.
            timeout: Seconds to wait.

        Returns:
            The revision.

        Raises:
            KeyExistsError: The key has a value. The error has its `revision`.
            ConfigError: The server would change the `ttl`: it is longer than that of the
                bucket, or shorter than its `limit_marker_ttl` while its `history` is
                above 1. Nothing is sent.
            InvalidKeyError: The key is not allowed. Nothing is sent.
            ReadOnlyBucketError: The bucket is a mirror. Nothing is sent.
            UnsupportedFeatureError: The server, or the leader of the bucket in a cluster of
                several versions, is too old for a `ttl`, so the value would stay. It is not
                stored, or it is deleted again.
            MessageTTLDisabledError: The bucket has no `limit_marker_ttl`.
            JetStreamError: The key exists, but its stream stores it under another subject.

        Example:
            ```python
            revision = kv.create("job.7", b"queued")  # KeyExistsError if it has a value
            print(revision)
            ```
        """
        deadline = deadline_after(self._api.seconds(timeout))
        self._layout.check_ttl(ttl)
        last = 0
        while True:
            options: PublishOptions = {
                "expected_last_subject_sequence": last,
                "ttl": ttl,
            }
            data = self._layout.encode(key, value)
            try:
                if ttl is None:
                    return self._publish(key, data, options, deadline - monotonic())
                return self._publish_expiring(key, data, options, deadline)
            except WrongLastSequenceError as error:
                entry = self._newest(key, deadline)
                if entry is not None and entry.operation == "PUT":
                    raise KeyExistsError(
                        f"key exists: {key!r} in bucket {self.bucket!r} at revision "
                        f"{entry.revision}; update it, or delete it first",
                        code=error.code,
                        err_code=error.err_code,
                        description=error.description,
                        revision=entry.revision,
                    ) from error
                if entry is None:
                    self._check_subject(key, revision_in(error.description), deadline)
                last = 0 if entry is None else entry.revision

    @explain_arguments
    def update(
        self,
        key: str,
        value: Value | Data = b"",
        *,
        last: int,
        timeout: Seconds | None = None,
    ) -> int:
        """Store a value if the key has not changed since revision `last`.

        Args:
            key: The key.
            value: The value.
            last: The expected revision of the key. 0: the key has none.
            timeout: Seconds to wait.

        Returns:
            The revision.

        Raises:
            WrongRevisionError: The key is at another revision. The error names it.
            ConfigError: `last` is no revision, for example None. Nothing is sent.
            InvalidKeyError: The key is not allowed. Nothing is sent.
            ReadOnlyBucketError: The bucket is a mirror. Nothing is sent.

        Example:
            ```python
            revision = kv.put("stock", b"5")
            kv.update("stock", b"4", last=revision)  # WrongRevisionError if it changed
            ```
        """
        # An option of None counts as left out: the value would be stored in any case.
        options: PublishOptions = {
            "expected_last_subject_sequence": check_int(last, "last", 0)
        }
        return self._write(key, self._layout.encode(key, value), options, timeout)

    @explain_arguments
    def delete(
        self, key: str, *, last: int | None = None, timeout: Seconds | None = None
    ) -> int:
        """Delete a key and keep its history. It need not have a value.

        Args:
            key: The key.
            last: The expected revision of the key. Default: any.
            timeout: Seconds to wait.

        Returns:
            The revision of the delete marker.

        Raises:
            WrongRevisionError: The key is at another revision. The error names it.
            InvalidKeyError: The key is not allowed. Nothing is sent.
            ReadOnlyBucketError: The bucket is a mirror. Nothing is sent.

        Example:
            ```python
            kv.put("job.7", b"queued")
            kv.delete("job.7")
            print("job.7" in list(kv.keys()))
            ```
        """
        options: PublishOptions = {
            "headers": DELETE_HEADERS,
            "expected_last_subject_sequence": last,
        }
        return self._write(key, b"", options, timeout)

    @explain_arguments
    def purge(
        self,
        key: str,
        *,
        ttl: TTL | None = None,
        last: int | None = None,
        timeout: Seconds | None = None,
    ) -> int:
        """Delete a key and its history, so that a marker alone is left.

        Args:
            key: The key.
            ttl: Whole seconds after which the marker goes, too. The bucket needs a
                `limit_marker_ttl`, which is the least time if the `history` of the bucket
                is above 1. Since nats-server 2.11. Default: it stays.
            last: The expected revision of the key. Default: any.
            timeout: Seconds to wait.

        Returns:
            The revision of the marker.

        Raises:
            WrongRevisionError: The key is at another revision. The error names it.
            InvalidKeyError: The key is not allowed. Nothing is sent.
            ReadOnlyBucketError: The bucket is a mirror. Nothing is sent.
            UnsupportedFeatureError: The server, or the leader of the bucket in a cluster of
                several versions, is too old for a `ttl`. Nothing is changed.
            MessageTTLDisabledError: The bucket has no `limit_marker_ttl`.
        """
        options: PublishOptions = {
            "headers": PURGE_HEADERS,
            "ttl": ttl,
            "expected_last_subject_sequence": last,
        }
        if ttl is None:
            return self._write(key, b"", options, timeout)
        deadline = deadline_after(self._api.seconds(timeout))
        self._check_expiring(key, b"", options, deadline)
        return self._write(key, b"", options, max(0.0, deadline - monotonic()))

    @explain_arguments
    def purge_deletes(
        self, *, older_than: float = MARKER_RETENTION, timeout: Seconds | None = None
    ) -> int:
        """Remove delete markers, and the remaining history of their keys.

        A value that is put at the same time stays, and so do markers of other clients on keys with
        wildcards, such as `a.*`, or with characters that no subject of jsync may have.

        Args:
            older_than: Seconds. Younger markers stay, so that watches see them, but their
                history is removed. Default: half an hour.
            timeout: Seconds to wait for each answer at most.

        Returns:
            How many markers were removed.
        """
        self._check_writable()
        # Compare keys as they are in the bucket, before the codecs decode them.
        plain = self.with_codec()._layout
        return purge_markers(self._api, plain, older_than, timeout)

    def _write(
        self, key: str, value: Data, options: PublishOptions, timeout: Seconds | None
    ) -> int:
        seconds = self._api.seconds(timeout)
        deadline = deadline_after(seconds)
        try:
            return self._publish(key, value, options, seconds)
        except WrongLastSequenceError as error:
            revision = revision_in(error.description)
            if revision is None:
                newest = self._newest(key, deadline)
                revision = 0 if newest is None else newest.revision
            expected = options.get("expected_last_subject_sequence")
            raise WrongRevisionError(
                f"key {key!r} in bucket {self.bucket!r} is at revision {revision}, not "
                f"{expected}; get it again",
                code=error.code,
                err_code=error.err_code,
                description=error.description,
                revision=revision,
            ) from error

    def _publish(
        self, key: str, value: Data, options: PublishOptions, seconds: float
    ) -> int:
        subject = self._subject(key)
        headers = publish_headers(subject, value, options)
        self._api.require(required_features(options))
        return publish(self._api.session, subject, value, headers, seconds).seq

    def _publish_expiring(
        self, key: str, value: Data, options: PublishOptions, deadline: float
    ) -> int:
        """Publish with a `ttl`. Raises `UnsupportedFeatureError` if the leader ignores it."""
        self._check_expiring(key, value, options, deadline)
        revision = self._publish(key, value, options, deadline - monotonic())
        try:
            # Another server may lead since, if the ack took long.
            self._check_leader(deadline)
        except UnsupportedFeatureError:
            with suppress(Error):
                self.delete(key, last=revision)
            raise
        return revision

    def _check_expiring(
        self, key: str, value: Data, options: PublishOptions, deadline: float
    ) -> None:
        """Raise the errors of a message with a `ttl` that show before it is sent."""
        publish_headers(self._subject(key), value, options)
        self._api.require(required_features(options))
        self._check_leader(deadline)

    def _check_leader(self, deadline: float) -> None:
        """Raise `UnsupportedFeatureError` if the leader of the bucket ignores a `ttl`."""
        needs = required_features({"ttl": 1})
        try:
            self._api.require_of_leader(
                self._layout.stream, needs, deadline - monotonic()
            )
        except StreamNotFoundError as error:
            raise bucket_not_found(self.bucket) from error

    def _subject(self, key: str) -> str:
        if self._layout.origin is not None:
            self._check_writable()
        return self._layout.write + self._layout.key(key)

    def _check_writable(self) -> None:
        if self._layout.origin is not None:
            raise read_only("bucket", self.bucket, self._layout.origin)

    # Reading --------------------------------------------------------------------------

    @explain_arguments
    def get(
        self, key: str, *, revision: int | None = None, timeout: Seconds | None = None
    ) -> Entry[Value]:
        """Get the value of a key, from any server that has it.

        In a cluster it may be a moment behind your own put.

        Args:
            key: The key.
            revision: Get this revision of it, if it is kept. Default: the last one.
            timeout: Seconds to wait.

        Raises:
            KeyNotFoundError: The key has no value, or not that revision.
            KeyDeletedError: The key was deleted or purged, or its value has expired. It is
                a `KeyNotFoundError`, too.
            BucketNotFoundError: The bucket was deleted.
            InvalidKeyError: The key is not allowed. Nothing is sent.

        Example:
            ```python
            kv.put("db.host", b"10.0.0.1")
            entry = kv.get("db.host")
            print(entry.value, entry.revision)
            ```
        """
        layout = self._layout
        stored = layout.key(key)
        deadline = monotonic() + self._api.seconds(timeout)
        entry: Entry[Value] | None = None
        if revision is None and self._direct:
            entry = self._get_direct(layout.read + stored, deadline)
        if entry is None:
            direct = self._direct and revision is not None
            left = deadline - monotonic()
            entry = self._get(key, revision, left, direct=direct)
        if entry is None:
            raise layout.key_not_found_error(key, revision)
        return entry if entry.operation == "PUT" else layout.value(entry)

    @explain_arguments
    def get_many(
        self, keys: Iterable[str], *, timeout: Seconds | None = None
    ) -> dict[str, Entry[Value]]:
        """Get the values of many keys, by one request for up to 1024 of them.

        If the bucket does not allow direct gets, as nats-py creates it, each key is a request
        to its leader.

        Args:
            keys: The keys. Without a codec of keys, they may be keys that another client has
                stored and that `get` refuses, for example from `keys`.
            timeout: Seconds to wait for the next entry at most.

        Returns:
            The entries by key. Keys without a value are left out.

        Raises:
            ConfigError: `keys` is a single key, not a collection. Nothing is sent.
            InvalidKeyError: One of them cannot be a key. Nothing is sent.
            UnsupportedFeatureError: nats-server is older than 2.11. Nothing is sent.
            CodecError: A value cannot be decoded. The error has the other entries.
            DirectGetNotAllowedError: The bucket no longer allows direct gets. Open it
                again with `JetStream.key_value`.
            BucketNotFoundError: The bucket was deleted.

        Example:
            ```python
            kv.put("db.host", b"10.0.0.1")
            kv.put("db.port", b"5432")
            for key, entry in kv.get_many(["db.host", "db.port"]).items():
                print(key, entry.value)
            ```
        """
        if isinstance(keys, str) or not isinstance(keys, Iterable):
            raise ConfigError(f"keys: several keys, not {keys!r}; use get for one key")
        subjects = self._layout.subjects(keys)
        found: list[Entry[bytes]] = []
        for first in range(0, len(subjects), MAX_SUBJECTS):
            found += self._last_of(subjects[first : first + MAX_SUBJECTS], timeout)
        values = [entry for entry in found if entry.operation == "PUT"]
        return {entry.key: entry for entry in self._layout.decode(values)}

    def _last_of(
        self, subjects: list[str], timeout: Seconds | None
    ) -> Iterator[Entry[bytes]]:
        """Iterate over the last entry of each subject, in the form of the bucket.

        Reads from the leader if the bucket does not allow direct gets.
        """
        layout: BucketLayout[bytes] = self._layout.with_codecs()
        try:
            if self._direct:
                pages = LastEntries(layout, subjects)
                yield from get_messages(self._api, layout.stream, pages, timeout)
                return
            for subject in subjects:
                with suppress(MessageNotFoundError):
                    yield layout.entry(
                        get_message(
                            *(self._api, layout.stream),
                            last_by_subject=subject,
                            direct=False,
                            timeout=timeout,
                        )
                    )
        except StreamNotFoundError as error:
            raise layout.not_found_error() from error

    def history(
        self, key: str, *, timeout: Seconds | None = None
    ) -> list[Entry[Value]]:
        """Get all kept revisions of a key, delete markers included.

        Args:
            key: The key.
            timeout: Seconds to wait until the server has begun.

        Returns:
            The entries, the oldest first.

        Raises:
            KeyNotFoundError: The bucket has no revision of the key.
            CodecError: A value cannot be decoded. The error has the other entries.
            BucketNotFoundError: The bucket was deleted.
            InvalidKeyError: The key is not allowed. Nothing is sent.
            TimeoutError: The servers did not begin in time, or were then silent for a minute.
        """
        plain: BucketLayout[bytes] = self._layout.with_codecs()
        with open_watch(
            *(self._api, plain, (self._layout.key(key),), Watch),
            include_history=True,
            timeout=timeout,
        ) as watch:
            entries = list(watch.initial())
        if not entries:
            raise self._layout.key_not_found_error(key)
        return self._layout.decode(entries)

    @explain_arguments
    def keys(self, *filters: str, timeout: Seconds | None = None) -> Iterator[str]:
        """Iterate over the keys that have a value, each once. The server filters them.

        You get each key that has a value all the time while you iterate, whatever others
        put, and in a cluster whichever server answers. A key that was deleted a moment
        before may come, too, from a server that is behind. Keys come one by one: jsync
        keeps 16 to 32 bytes of each, so that none comes twice.

        Args:
            *filters: Keys or patterns, such as `db.>` or `*.port`. Default: all.
            timeout: Seconds to wait until the server has begun.

        Raises:
            ConfigError: An argument is not valid. Nothing is sent.
            InvalidKeyError: A filter is not allowed. Nothing is sent.
            BucketNotFoundError: The bucket was deleted.
            TimeoutError: The servers did not begin in time, or were then silent for a minute.

        Example:
            ```python
            kv.put("db.host", b"10.0.0.1")
            print(list(kv.keys("db.*")))
            ```
        """
        self._layout.filters(filters)
        return self._keys(filters, timeout)

    def _keys(self, filters: tuple[str, ...], timeout: Seconds | None) -> Iterator[str]:
        with open_watch(
            *(self._api, self._layout, filters, Watch),
            headers_only=True,
            ignore_deletes=True,
            timeout=timeout,
        ) as watch:
            yield from watch._initial_keys()

    @explain_arguments
    def watch(
        self,
        *filters: str,
        include_history: bool = False,
        updates_only: bool = False,
        headers_only: bool = False,
        ignore_deletes: bool = False,
        revision: int | None = None,
        callback: Callable[[Entry[Value]], object] | None = None,
        on_error: Callable[[Exception], object] | None = None,
        timeout: Seconds | None = None,
    ) -> Watch[Value]:
        """Watch keys: their present values, then each change, once and in order.

        Args:
            *filters: Keys or patterns, such as `db.>` or `*.port`. Default: all.
            include_history: Begin with all revisions that are kept, not with the last ones.
            updates_only: Begin with the next change.
            headers_only: Leave the values out.
            ignore_deletes: Leave delete markers out.
            revision: Begin with this revision, and give every one from there on. After an
                interruption, that is the last one that you have seen plus 1.
            callback: Called with each entry, one at a time, on a thread of the
                connection's callback pool: see `callback_threads` of `jsync.connect`. If
                it raises, `on_error` gets the error, and the watch continues. Default: you
                iterate.
            on_error: Called with each error that does not end the watch. Default: that of
                the connection, or the log.
            timeout: Seconds to wait until the server has begun.

        Raises:
            InvalidKeyError: A filter is not allowed. Nothing is sent.
            BucketNotFoundError: The bucket was deleted.
            WrongRevisionError: The bucket has not come to that revision. It was deleted and
                created again, or has lost changes.

        Example:
            ```python
            kv.put("db.host", b"10.0.0.1")
            with kv.watch("db.*") as changes:
                for entry in changes.initial():
                    print(entry.key, entry.value)
                kv.put("db.port", b"5432")
                print(changes.next(timeout=5).key)
            ```
        """
        check_optional_callable(callback, "callback")
        return open_watch(
            *(self._api, self._layout, filters),
            lambda changes: Watch(changes, callback),
            include_history=include_history,
            updates_only=updates_only,
            headers_only=headers_only,
            ignore_deletes=ignore_deletes,
            revision=revision,
            on_error=on_error,
            timeout=timeout,
        )

    def live(
        self,
        *filters: str,
        on_error: Callable[[Exception], object] | None = None,
        timeout: Seconds | None = None,
    ) -> LiveView[Value]:
        """Keep a copy of keys and values here, which a watch keeps current.

        Blocks until the copy is complete.

        Args:
            *filters: Keys or patterns, such as `db.>` or `*.port`. Default: all.
            on_error: Called with each error that does not end it. Default: that of the
                connection, or the log.
            timeout: Seconds to wait until it is complete at most.

        Raises:
            TimeoutError: The copy was not complete in time.
            InvalidKeyError: A filter is not allowed. Nothing is sent.
            BucketNotFoundError: The bucket was deleted.

        Example:
            ```python
            with kv.live("db.*") as view:
                view.wait_for(kv.put("db.host", b"10.0.0.1"))
                print(view["db.host"])
            ```
        """
        seconds = self._api.seconds(timeout)
        deadline = deadline_after(seconds)

        def view(changes: WatchReader[Entry[Value]]) -> LiveView[Value]:
            left = max(0.0, deadline - monotonic())
            return LiveView(changes, self.bucket, self._layout.stored, left)

        return open_watch(
            self._api, self._layout, filters, view, on_error=on_error, timeout=seconds
        )

    @explain_arguments
    def lock(
        self,
        key: str,
        *,
        ttl: float = 30,
        timeout: Seconds | None = None,
        on_lost: Callable[[LockLostError], object] | None = None,
    ) -> Lock:
        """Make a lock on a key, for one holder at a time. Sends nothing by itself.

        Needs a `limit_marker_ttl`, and nats-server 2.11.

        Args:
            key: The key. Do not use it for anything else.
            ttl: Whole seconds, from 2, until another holder can get the lock if this one
                goes without releasing it.
            timeout: Seconds that `with` waits for the lock at most. Default: no limit.
            on_lost: Called on a thread of the lock if the lock is lost. Default: the
                `on_error` of the connection, or the log.

        Raises:
            InvalidKeyError: The key is not allowed.
            ConfigError: The `ttl` is not allowed, or the server would change it: it is
                longer than that of the bucket, or shorter than its `limit_marker_ttl`
                while its `history` is above 1.
            ReadOnlyBucketError: The bucket is a mirror.

        Example:
            ```python
            locks = js.create_key_value(bucket="locks", limit_marker_ttl=60)
            with locks.lock("report", ttl=30):
                print("no other program makes the report now")
            ```
        """
        # The marker of a former holder, in an answer of a server that is behind, looks like a loss.
        plain = self.with_codec()._from_leader()
        plain._subject(key)
        seconds = check_ttl(ttl)
        # With another lifetime, two holders could have the lock, or none for a long time.
        self._layout.check_ttl(seconds)
        if timeout is not None:
            timeout = check_seconds(timeout, "timeout")
        check_optional_callable(on_lost, "on_lost")

        def renew(owner: bytes, last: int, timeout: float) -> int:
            options: PublishOptions = {
                "expected_last_subject_sequence": last,
                "ttl": seconds,
            }
            return plain._write(key, owner, options, timeout)

        session = self._api.session
        return Lock(plain, session, key, seconds, renew, timeout, on_lost)

    def elect(
        self,
        key: str,
        *,
        ttl: float = 30,
        on_elected: Callable[[int], object] | None = None,
        on_lost: Callable[[], object] | None = None,
    ) -> Election:
        """Be a candidate for the leadership that goes with a key. Blocks for one try.

        A candidate waits until it is stopped, also while the servers cannot answer: see
        `Lock.acquire`.

        Needs a `limit_marker_ttl`, and nats-server 2.11.

        Args:
            key: The key. Do not use it for anything else.
            ttl: Whole seconds, from 2, until another candidate can lead if this one goes
                without giving the leadership up.
            on_elected: Called with the token when this candidate begins to lead. Let it
                begin the work on another thread, and return.
            on_lost: Called when the leadership is lost or given up: stop the work.

        Raises:
            InvalidKeyError: The key is not allowed.
            ConfigError: The `ttl` is not allowed, or the server would change it: see
                `lock`.
            ReadOnlyBucketError: The bucket is a mirror.
            UnsupportedFeatureError: nats-server is older than 2.11, or the server that leads
                the bucket in a cluster of several versions. It would keep the lock of a dead
                holder forever. Nothing is stored.
            MessageTTLDisabledError: The bucket has no `limit_marker_ttl`.

        Example:
            ```python
            leases = js.create_key_value(bucket="leases", limit_marker_ttl=60)
            with leases.elect("scheduler", ttl=10) as election:
                print(election.is_leader)
            ```
        """
        check_optional_callable(on_elected, "on_elected")
        check_optional_callable(on_lost, "on_lost")

        def make(lost: Callable[[LockLostError], object]) -> Lock:
            return self.lock(key, ttl=ttl, on_lost=lost)

        return Election(self._api.session, make, on_elected, on_lost)

    def status(self, *, timeout: Seconds | None = None) -> KeyValueStatus:
        """Get the contents and the configuration of the bucket from the server. Blocks.

        Args:
            timeout: Seconds to wait.

        Returns:
            The status.

        Raises:
            BucketNotFoundError: The bucket was deleted.
        """
        try:
            info = stream_info(self._api, self._layout.stream, timeout=timeout)
        except StreamNotFoundError as error:
            raise bucket_not_found(self.bucket) from error
        return KeyValueStatus(info)

    def _newest(self, key: str, deadline: float) -> Entry[bytes] | None:
        """Get the last entry of a key in the form of the bucket, as the leader has it."""
        stored = self._layout.key(key)
        return self.with_codec()._get(
            stored, None, deadline - monotonic(), direct=False
        )

    def _check_subject(self, key: str, revision: int | None, deadline: float) -> None:
        """Raise `JetStreamError` if the revision of a key without a value has another subject.

        Without this check, `create` would try again until its timeout.
        """
        if not revision:
            return
        subject = self._layout.read + self._layout.key(key)
        try:
            message = get_message(
                *(self._api, self._layout.stream),
                sequence=revision,
                direct=False,
                timeout=deadline - monotonic(),
            )
        except MessageNotFoundError:
            return  # the key has just expired
        if message.subject != subject:
            raise JetStreamError(
                f"key exists, but cannot be read: {key!r} in bucket {self.bucket!r} is stored as "
                f"{message.subject!r} instead of {subject!r}: remove the subject_transform "
                f"of stream {self._layout.stream}, or the mapping of the account"
            )

    def _get_direct(self, subject: str, deadline: float) -> Entry[Value] | None:
        """Get the last entry of a subject from any server. None: the leader may have one."""
        layout = self._layout
        try:
            found = direct_get_of_subject(self._api, layout.stream, subject, deadline)
        except NoRespondersError:
            return None
        if found is None or found[1].subject != subject:
            return None
        return layout.decode_direct(*found)

    def _get(
        self, key: str, revision: int | None, timeout: float, *, direct: bool
    ) -> Entry[Value] | None:
        subject = self._layout.read + self._layout.key(key)
        if revision is not None:
            check_int(revision, "revision", 1)
        try:
            message = get_message(
                *(self._api, self._layout.stream),
                sequence=revision,
                last_by_subject=subject if revision is None else None,
                direct=direct,
                timeout=timeout,
            )
        except MessageNotFoundError:
            return None
        except StreamNotFoundError as error:
            raise bucket_not_found(self.bucket) from error
        return self._layout.entry(message) if message.subject == subject else None

    def __repr__(self) -> str:
        return f"<KeyValue {self.bucket!r}>"
