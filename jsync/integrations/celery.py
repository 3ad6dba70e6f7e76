"""Results of Celery in a key-value bucket: `result_backend = "jetstream://host/name"`.

The extra `celery` installs what this needs. Celery finds the backend by its URL.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from uuid import uuid4

from celery import states
from celery._state import get_current_worker_task
from celery.backends.base import KeyValueStoreBackend
from celery.exceptions import BackendStoreError, TimeoutError as CeleryTimeoutError
from celery.result import ResultSet

from jsync import errors

from .kombu import broker as brokers
from .kombu.names import encode_token
from .kombu.options import check_options, mask_password, parse_urls

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    import jsync

    T = TypeVar("T")

log = logging.getLogger("jsync.celery")

OUTAGE_SECONDS = 20.0
"""The longest outage that a call survives."""
WORKER_OUTAGE_SECONDS = 600.0
"""The longest outage that a call within a task survives, as its result would be lost."""
PAUSE_SECONDS = 0.5
LAST_IDS = "Jsync-Additions"
"""The header of a counter with the ids of its last additions."""
MAX_LAST_IDS = 50
MAX_TEXT = 1000
"""The most characters of an error, and of its traceback, if they are too large to store."""
COUNTED = b"counted"
CHORD_PART = "chord_part"
"""The field in the result of a part of a chord."""


class LastRevision(NamedTuple):
    """The last revision of a key. 0: there is none."""

    revision: int
    value: bytes | None
    additions: list[str]


class JetStreamBackend(KeyValueStoreBackend):  # type: ignore[misc]
    """Results in the bucket `<name>-results`, `kombu-results` by default.

    The first result makes the bucket. Its `ttl` is `result_expires`. If the bucket exists,
    its own `ttl` holds. `result_backend_transport_options` may have the options of the
    broker: see `jsync.integrations.kombu.Transport`. A broker with the same servers and the
    same `connect` shares the connection.

    Any thread may use it. A forked child connects again.
    """

    persistent = True
    supports_autoexpire = True
    supports_native_join = True
    implements_incr = True

    def __init__(self, app: Any, url: str | None = None, **options: Any) -> None:
        super().__init__(app, **options)
        self.url = url or "jetstream://"
        given = dict(app.conf.get("result_backend_transport_options") or {})
        given.pop("global_keyprefix", None)
        given.pop("retry_policy", None)
        self._settings = brokers.BrokerSettings(
            parse_urls(self.url), check_options(given), {}
        )
        self._parts = threading.local()
        """The part of a chord that the current thread is counting."""
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._shared: brokers.Broker | None = None
        self._bucket: jsync.KeyValue | None = None

    @property
    def bucket(self) -> jsync.KeyValue:
        """The bucket with the results. The first use connects."""
        return self._connected()[1]

    def _connected(self) -> tuple[brokers.Broker, jsync.KeyValue]:
        # A forked child needs a new lock: another thread may have held it at the fork.
        if self._process != os.getpid():
            self._lock = threading.Lock()
            self._shared = self._bucket = None
            self._process = os.getpid()
        # Connect and open without the lock: other threads must not wait one for another.
        with self._lock:
            shared, bucket = self._shared, self._bucket
        if shared is None or shared.nc.is_closed:
            shared, bucket = self._use(brokers.acquire(self._settings)), None
        if bucket is None:
            bucket = self._open(shared)
            with self._lock:
                if self._shared is shared:
                    self._bucket = bucket
        return shared, bucket

    def _use(self, new: brokers.Broker) -> brokers.Broker:
        """Use a new connection, unless another thread has connected in the meantime."""
        with self._lock:
            used = self._shared
            if used is None or used.nc.is_closed:
                old, used, self._shared, self._bucket = used, new, new, None
            else:
                old = new
        if old is not None:
            brokers.release(old)
        return used

    def _stream(self) -> jsync.Stream:
        """Return the stream of the bucket, for requests to its leader."""
        shared, bucket = self._connected()
        return shared.js.bind_stream(f"KV_{bucket.bucket}")

    def _try(self, call: Callable[[], T]) -> T:
        """Retry a call while the server is unavailable, or has no leader."""
        within_task = get_current_worker_task() is not None
        seconds = WORKER_OUTAGE_SECONDS if within_task else OUTAGE_SECONDS
        deadline = monotonic() + seconds
        warned = False
        while True:
            try:
                return call()
            except errors.AuthenticationError:
                raise
            except brokers.TRANSIENT as error:
                if monotonic() + PAUSE_SECONDS > deadline:
                    raise
                self._report(error, warned=warned)
                warned = True
                sleep(PAUSE_SECONDS)

    def _report(self, error: Exception, *, warned: bool) -> None:
        if isinstance(
            error, (errors.NoStreamResponseError, errors.BucketNotFoundError)
        ):
            with self._lock:
                self._bucket = None  # it may have been deleted, so create it again
        if not warned:
            log.warning("results: %s; trying again", error)

    def _open(self, shared: brokers.Broker) -> jsync.KeyValue:
        place, options, _ = self._settings
        name = f"{place.name}-results"
        try:
            return shared.js.key_value(name)
        except errors.BucketNotFoundError:
            pass
        try:
            return shared.js.create_key_value(
                bucket=name,
                description="results of Celery",
                ttl=self.expires or None,
                replicas=options.replicas,
                max_bytes=options.max_bytes,
                storage=options.storage,
            )
        except errors.AlreadyExistsError:
            return shared.js.key_value(name)  # another process was faster

    def close(self) -> None:
        """Release the connection. Its last user closes it."""
        with self._lock:
            shared, self._shared, self._bucket = self._shared, None, None
        if shared is not None:
            brokers.release(shared)

    # Keys and values ------------------------------------------------------------------

    def get(self, key: bytes | str) -> bytes | None:
        """Return the value of a key, or None."""
        return self._try(lambda: self._get(_key(key)))

    def _get(self, name: str) -> bytes | None:
        try:
            return self.bucket.get(name).value
        except errors.KeyDeletedError:
            return None
        except errors.KeyNotFoundError:
            if (self._settings.options.replicas or 1) == 1:
                return None
        return self._last_revision(
            name
        ).value  # a replica that is behind may have answered

    def _last_revision(self, name: str) -> LastRevision:
        """Get the last revision of a key from the leader."""
        subject = f"$KV.{self.bucket.bucket}.{name}"
        try:
            found = self._stream().get_message(last_by_subject=subject, direct=False)
        except errors.MessageNotFoundError:
            return LastRevision(0, None, [])
        headers: Mapping[str, str] = found.headers or {}
        gone = "KV-Operation" in headers or "Nats-Marker-Reason" in headers
        ids = headers.get(LAST_IDS) or ""
        return LastRevision(found.sequence, None if gone else found.data, ids.split())

    def mget(self, keys: Iterable[bytes | str]) -> list[bytes | None]:
        """Return the values of keys, in their order."""
        names = [_key(key) for key in keys]
        try:
            found = self._try(lambda: self.bucket.get_many(names))
        except errors.UnsupportedFeatureError:
            return self._try(lambda: [self._get(name) for name in names])
        return [found[name].value if name in found else None for name in names]

    def set(self, key: bytes | str, value: bytes | str) -> None:
        """Store a value. Blocks until it is stored."""
        data = value.encode() if isinstance(value, str) else value
        self._try(lambda: self.bucket.put(_key(key), data))

    def delete(self, key: bytes | str) -> None:
        """Delete a value. It need not exist."""
        self._try(lambda: self.bucket.purge(_key(key)))

    def incr(self, key: bytes | str) -> int:
        """Add one to a counter, and return the new value. Blocks.

        If the answer to an addition is lost, one is not added twice.
        """
        part = getattr(self._parts, "request", None)
        if part is not None:
            return self._count(_key(key), part)
        return self._incr(_key(key))

    def _incr(self, name: str) -> int:
        """Add one exactly once, since a header has the ids of the last additions."""
        mine, number = uuid4().hex, 0
        while True:
            last = self._try(lambda: self._last_revision(name))
            if mine in last.additions:
                return number  # the answer to the addition was lost
            number = 1 + int(last.value or 0)
            ids = [*last.additions, mine][-MAX_LAST_IDS:]
            try:
                self._put(name, str(number).encode(), last.revision, ids)
            except errors.WrongLastSequenceError:
                continue  # another process was faster, or an earlier attempt was stored
            except brokers.TRANSIENT as error:
                log.warning("results: %s; looking whether one was added", error)
            else:
                return number

    def _put(self, name: str, value: bytes, last: int, ids: list[str]) -> None:
        shared, bucket = self._connected()
        shared.js.publish(
            f"$KV.{bucket.bucket}.{name}",
            value,
            headers={LAST_IDS: " ".join(ids)},
            expected_last_subject_sequence=last,
        )

    # Chords ---------------------------------------------------------------------------

    def _apply_chord_incr(
        self, header_result_args: tuple[Any, ...], body: Any, **kwargs: Any
    ) -> None:
        key = _key(self.get_key_for_chord(header_result_args[0]))
        self._try(lambda: self._forget_chord(key))  # a chord may be applied again
        super()._apply_chord_incr(header_result_args, body, **kwargs)

    def _forget_chord(self, key: str, *parts: str) -> None:
        stream = self._stream()
        for part in parts or (f"{key}", f"{key}.>"):
            stream.purge(subject=f"$KV.{self.bucket.bucket}.{part}")

    def set_chord_size(self, group_id: str, chord_size: int) -> None:
        """Store the number of parts. Celery calls this before it sends the last part."""
        key = _key(self.get_key_for_chord(group_id))
        self._try(lambda: self.bucket.put(f"{key}.size", str(chord_size).encode()))

    def on_chord_part_return(
        self, request: Any, state: str, result: Any, **kwargs: Any
    ) -> None:
        """Count a part of a chord, and call the body after the last part.

        A part may run again after its worker was killed, but is counted once. Only one part
        calls the body, and the same part calls it again if its worker was killed before.
        """
        if not request.group:
            return
        key = _key(self.get_key_for_chord(request.group))
        caller = self._try(lambda: self._get(f"{key}.body"))
        if caller is not None and (
            caller != request.id.encode()
            or self.restore_group(request.group, cache=False) is None
        ):
            return  # the body was called
        self._parts.request, self._parts.calls = request, False
        try:
            super().on_chord_part_return(request, state, result, **kwargs)
        finally:
            self._parts.request = None
        if self._parts.calls:
            ended = f"{key}.part.*", f"{key}.size"
            self._try(lambda: self._forget_chord(key, *ended))

    def _count(self, key: str, request: Any) -> int:
        """Count a part. Return the number of parts if the body must be called, else 0."""
        # The counter may reach the size too early, because parts may have run twice. In
        # that case the keys of the parts decide.
        part = f"{key}.part.{encode_token(request.id)}"
        self._try(lambda: self.bucket.put(part, b""))
        number = self._incr(key)
        self._try(lambda: self.bucket.put(part, COUNTED))
        size = self._try(lambda: self._get(f"{key}.size"))
        if size is None:
            return 0  # the last part is not sent yet
        if number < int(size) or self._try(lambda: self._parts_of(key)) < int(size):
            return 0
        if not self._try(lambda: self._claim(key, request.id.encode())):
            return 0
        self._parts.calls = True
        seen: int | None = request.chord.get("chord_size")
        return len(self.restore_group(request.group) or ()) if seen is None else seen

    def _parts_of(self, key: str) -> int:
        name = f"$KV.{self.bucket.bucket}.{key}.part.*"
        return len(self._stream().info(subjects_filter=name).state.subjects or ())

    def _claim(self, key: str, part: bytes) -> bool:
        """Return whether this part is the one that calls the body."""
        try:
            self.bucket.create(f"{key}.body", part)
        except errors.KeyExistsError:
            return self._last_revision(f"{key}.body").value == part
        return True

    def _store_result(
        self,
        task_id: str,
        result: Any,
        state: str,
        traceback: str | None = None,
        request: Any = None,
        **options: Any,
    ) -> Any:
        """Store the result of a task, and shorten an error that is too large.

        Celery stores an error instead of a result that is too large. For an error that is
        too large it stores nothing, so that a caller would wait for the result forever.
        """
        store = super()._store_result
        try:
            return store(task_id, result, state, traceback, request, **options)
        except (errors.MaxPayloadError, errors.MessageTooLargeError) as error:
            if state not in states.EXCEPTION_STATES:
                raise
            failure = BackendStoreError(f"{str(result)[:MAX_TEXT]}... ({error})")
            where = None if traceback is None else str(traceback)[:MAX_TEXT]
            cut = self.prepare_exception(failure)
            return store(task_id, cut, state, where, request, **options)

    def _get_result_meta(
        self, result: Any, state: str, traceback: Any, request: Any, **options: Any
    ) -> dict[str, Any]:
        meta: dict[str, Any] = super()._get_result_meta(
            result, state, traceback, request, **options
        )
        if state == states.SUCCESS and getattr(request, "chord", None):
            meta[CHORD_PART] = True
        return meta

    def _get_task_meta_for(self, task_id: str) -> dict[str, Any]:
        """Return the state of a task. A part of a chord has succeeded once it is counted.

        After a process of the pool was killed, Celery reads this, and does not run a
        successful task again. The body would then wait forever for an uncounted part.
        """
        meta: dict[str, Any] = super()._get_task_meta_for(task_id)
        group = meta.get("group_id")
        if meta.get(CHORD_PART) and group and not self._is_counted(task_id, group):
            return {"status": states.PENDING, "result": None}
        return meta

    def _is_counted(self, task_id: str, group: str) -> bool:
        """Return whether a part is counted, and the body was called if it was the last."""
        key = _key(self.get_key_for_chord(group))
        caller = self._try(lambda: self._get(f"{key}.body"))
        if caller is not None:
            called = self.restore_group(group, cache=False) is None
            return called or caller != task_id.encode()
        if (
            self._try(lambda: self._get(f"{key}.part.{encode_token(task_id)}"))
            != COUNTED
        ):
            return False
        size = self._try(lambda: self._get(f"{key}.size"))
        return size is None or self._try(lambda: self._parts_of(key)) < int(size)

    # Waiting --------------------------------------------------------------------------

    def wait_for(
        self,
        task_id: str,
        timeout: float | None = None,
        interval: float = 0.5,
        no_ack: bool = True,
        on_interval: Callable[[], object] | None = None,
    ) -> dict[str, Any]:
        """Wait for the result of a task, by a watch of its key.

        The wait continues while the server is unavailable.

        Raises:
            celery.exceptions.TimeoutError: The task has no result in time.
        """
        self._ensure_not_eager()
        deadline = None if timeout is None else monotonic() + timeout
        name = _key(self.get_key_for_task(task_id))
        with contextlib.ExitStack() as watching:
            changes: jsync.Watch[bytes] | None = None
            warned = False
            while True:
                seconds = _next_wait(deadline, interval)
                try:
                    if changes is None:
                        changes = watching.enter_context(self.bucket.watch(name))
                    meta = self._meta(changes, seconds)
                except brokers.TRANSIENT as error:
                    self._report(error, warned=warned)
                    warned, changes, meta = True, None, None
                    sleep(seconds)
                if meta is not None and meta["status"] in states.READY_STATES:
                    return meta
                if on_interval:
                    on_interval()
                if deadline is not None and monotonic() >= deadline:
                    raise CeleryTimeoutError(
                        f"no result of {task_id} within {timeout:g} s"
                    )

    def iter_native(
        self, result: ResultSet, timeout: float | None = None, **options: Any
    ) -> Iterable[tuple[str, Any]]:
        """Iterate over the results of a group, with the timeout for inner groups as well.

        The method of Celery has no timeout for them.
        """
        deadline = None if timeout is None else monotonic() + timeout
        for inner in result.results:
            if isinstance(inner, ResultSet):
                left = None if deadline is None else max(0.0, deadline - monotonic())
                for _ in self.iter_native(inner, left):
                    pass
        yield from super().iter_native(result, timeout=timeout, **options)

    def _meta(
        self, changes: jsync.Watch[bytes], seconds: float
    ) -> dict[str, Any] | None:
        try:
            entry = changes.next(timeout=seconds)
        except errors.ConnectionError:
            raise
        except errors.TimeoutError:
            return None
        if entry.operation != "PUT":
            return None
        meta: dict[str, Any] = self.decode_result(entry.value)
        return meta

    def exception_safe_to_retry(self, exc: BaseException) -> bool:
        """Return whether Celery may retry, with `result_backend_always_retry`."""
        return isinstance(exc, brokers.TRANSIENT)

    def as_uri(self, include_password: bool = False) -> str:
        """Return the URL, without its password unless `include_password`."""
        return self.url if include_password else mask_password(self.url)

    def __reduce__(
        self, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return super().__reduce__(args, {**(kwargs or {}), "url": self.url})


def _next_wait(deadline: float | None, interval: float) -> float:
    if deadline is None:
        return interval
    return max(0.0, min(interval, deadline - monotonic()))


def _key(key: bytes | str) -> str:
    return encode_token(key.decode() if isinstance(key, bytes) else key)
