"""Results of Celery in a key-value bucket: `result_backend = "jetstream://host/name"`.

The extra `celery` installs what this needs. Celery finds the backend by its URL.
"""

from __future__ import annotations

import contextlib
import os
import threading
from time import monotonic
from typing import TYPE_CHECKING, Any

from celery import states
from celery.backends.base import KeyValueStoreBackend
from celery.exceptions import TimeoutError as CeleryTimeoutError
from celery.result import ResultSet

from jsync import errors

from .kombu import shared as sharing
from .kombu.names import token
from .kombu.options import masked, options_of, place_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import jsync

MOST_TRIES = 1000
"""Attempts to add one to a counter that other processes change at the same time."""


class JetStreamBackend(KeyValueStoreBackend):  # type: ignore[misc]
    """Results in the bucket `<name>-results`, `kombu-results` by default.

    The first result makes the bucket. Its `ttl` is `result_expires`. If the bucket exists,
    its own `ttl` holds. `result_backend_transport_options` may have the options of the
    broker: see `jsync.integrations.kombu.Transport`. A broker with the same servers and the
    same `connect` shares the connection.

    Any thread may use it. A forked child connects anew.
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
        self._settings = sharing.Settings(place_of(self.url), options_of(given), {})
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._shared: sharing.Shared | None = None
        self._bucket: jsync.KeyValue | None = None

    @property
    def bucket(self) -> jsync.KeyValue:
        """The bucket with the results. The first use connects."""
        # Another thread may have held the lock at the fork.
        if self._process != os.getpid():
            self._lock = threading.Lock()
            self._shared = self._bucket = None
            self._process = os.getpid()
        with self._lock:
            if self._shared is None or self._shared.nc.is_closed:
                self._shared, self._bucket = sharing.acquire(self._settings), None
            if self._bucket is None:
                self._bucket = self._open(self._shared)
            return self._bucket

    def _open(self, shared: sharing.Shared) -> jsync.KeyValue:
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
                storage=options.storage,
            )
        except errors.AlreadyExistsError:
            return shared.js.key_value(name)  # another process was faster

    def close(self) -> None:
        """Give the connection back. Its last user closes it."""
        with self._lock:
            shared, self._shared, self._bucket = self._shared, None, None
        if shared is not None:
            sharing.release(shared)

    # What Celery asks for -------------------------------------------------------------

    def get(self, key: bytes | str) -> bytes | None:
        """The value of a key, None if there is none."""
        try:
            return self.bucket.get(_key(key)).value
        except errors.KeyNotFoundError:
            return None

    def mget(self, keys: Iterable[bytes | str]) -> list[bytes | None]:
        """The values of keys."""
        names = [_key(key) for key in keys]
        try:
            found = self.bucket.get_many(names)
        except errors.UnsupportedFeatureError:
            return [self.get(name) for name in keys]
        return [found[name].value if name in found else None for name in names]

    def set(self, key: bytes | str, value: bytes | str) -> None:
        """Store a value. Blocks until it is stored."""
        data = value.encode() if isinstance(value, str) else value
        self.bucket.put(_key(key), data)

    def delete(self, key: bytes | str) -> None:
        """Delete a value. It need not exist."""
        self.bucket.purge(_key(key))

    def incr(self, key: bytes | str) -> int:
        """Add one to a number, and get the new one. Blocks."""
        name = _key(key)
        for _ in range(MOST_TRIES):
            try:
                entry = self.bucket.get(name)
            except errors.KeyNotFoundError:
                with contextlib.suppress(errors.KeyExistsError):
                    self.bucket.create(name, b"1")
                    return 1
                continue
            number = int(entry.value) + 1
            with contextlib.suppress(errors.WrongRevisionError):
                self.bucket.update(name, str(number).encode(), last=entry.revision)
                return number
        raise errors.TimeoutError(
            f"the counter {name} changed at each of {MOST_TRIES} attempts to add one"
        )

    def wait_for(
        self,
        task_id: str,
        timeout: float | None = None,
        interval: float = 0.5,
        no_ack: bool = True,
        on_interval: Callable[[], object] | None = None,
    ) -> dict[str, Any]:
        """Wait for the result of a task. The server tells when it is there.

        Raises:
            celery.exceptions.TimeoutError: The task has no result in time.
        """
        self._ensure_not_eager()
        deadline = None if timeout is None else monotonic() + timeout
        with self.bucket.watch(_key(self.get_key_for_task(task_id))) as changes:
            while True:
                meta = self._meta(changes, _next_wait(deadline, interval))
                if meta is not None and meta["status"] in states.READY_STATES:
                    return meta
                if on_interval:
                    on_interval()
                if deadline is not None and monotonic() >= deadline:
                    raise CeleryTimeoutError(
                        f"no result of {task_id} within {timeout} s"
                    )

    def iter_native(
        self, result: ResultSet, timeout: float | None = None, **options: Any
    ) -> Iterable[tuple[str, Any]]:
        """The results of a group, as Celery's own, which has no timeout for inner groups.

        A chord whose header has a group within a chain is complete too early for Celery.
        It then waits for a task that may be behind it in the queue of the same worker.
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
        except errors.TimeoutError:
            return None
        if entry.operation != "PUT":
            return None
        meta: dict[str, Any] = self.decode_result(entry.value)
        return meta

    def exception_safe_to_retry(self, exc: BaseException) -> bool:
        """With `result_backend_always_retry`: whether Celery may try again."""
        return isinstance(exc, (errors.ConnectionError, errors.TimeoutError))

    def as_uri(self, include_password: bool = False) -> str:
        """The URL as it may be shown."""
        return self.url if include_password else masked(self.url)

    def __reduce__(
        self, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return super().__reduce__(args, {**(kwargs or {}), "url": self.url})


def _next_wait(deadline: float | None, interval: float) -> float:
    if deadline is None:
        return interval
    return max(0.0, min(interval, deadline - monotonic()))


def _key(key: bytes | str) -> str:
    return token(key.decode() if isinstance(key, bytes) else key)
