"""Bindings of exchanges to queues, in a bucket: every process sees those of the others."""

from __future__ import annotations

import hashlib
import threading
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from jsync.errors import ConfigError, KeyNotFoundError

from .names import matches, token

if TYPE_CHECKING:
    import jsync

    from .options import Options


class Binding(NamedTuple):
    """A queue gets the messages of an exchange whose routing key the pattern matches."""

    exchange: str
    kind: str
    """`direct`, `topic` or `fanout`."""
    pattern: str
    queue: str

    @property
    def key(self) -> str:
        """Its key in the bucket."""
        text = f"{self.pattern}\0{self.queue}".encode("utf-8", "surrogatepass")
        return f"{token(self.exchange)}.{hashlib.sha256(text).hexdigest()[:32]}"


class Bindings:
    """The bindings of queues that streams hold. Any thread may use it."""

    def __init__(self, js: jsync.JetStream, prefix: str, options: Options) -> None:
        self._js = js
        self._bucket_name = f"{prefix}-bindings"
        self._options = options
        self._lock = threading.Lock()
        self._bucket: jsync.KeyValue | None = None
        self._view: jsync.Live[bytes] | None = None
        self._read_at = -1
        self._table: dict[str, list[Binding]] = {}

    def _opened(self) -> tuple[jsync.KeyValue, jsync.Live[bytes]]:
        with self._lock:
            if self._bucket is None or self._view is None:
                bucket = self._js.create_or_update_key_value(
                    bucket=self._bucket_name,
                    description="kombu bindings",
                    replicas=self._options.replicas,
                    storage=self._options.storage,
                )
                self._view = bucket.live()
                self._bucket = bucket
            return self._bucket, self._view

    def add(self, binding: Binding) -> None:
        """Store a binding. It counts for this process at once."""
        if binding.kind not in {"direct", "topic", "fanout"}:
            raise ConfigError(
                f"exchange {binding.exchange!r} has the type {binding.kind!r}; there are "
                "direct, topic and fanout"
            )
        bucket, view = self._opened()
        if view.get(binding.key) is None:
            revision = bucket.put(binding.key, msgspec.json.encode(binding))
            view.wait_for(revision, self._options.timeout)

    def remove(self, binding: Binding) -> None:
        """Remove a binding. It need not exist."""
        bucket, view = self._opened()
        try:
            view.wait_for(bucket.delete(binding.key), self._options.timeout)
        except KeyNotFoundError:
            return

    def remove_queue(self, queue: str) -> None:
        """Remove all bindings of a queue."""
        for binding in self.all():
            if binding.queue == queue:
                self.remove(binding)

    def all(self) -> list[Binding]:
        """Every binding."""
        return [binding for found in self._tables().values() for binding in found]

    def queues(self, exchange: str, routing_key: str) -> list[str]:
        """The queues that get a message, each once."""
        found = {
            binding.queue: None
            for binding in self._tables().get(exchange, ())
            if matches(binding.kind, binding.pattern, routing_key)
        }
        return list(found)

    def _tables(self) -> dict[str, list[Binding]]:
        _, view = self._opened()
        revision = view.revision
        with self._lock:
            if revision != self._read_at:
                self._table = {}
                for value in list(view.values()):
                    binding = msgspec.json.decode(value, type=Binding)
                    self._table.setdefault(binding.exchange, []).append(binding)
                self._read_at = revision
            return self._table

    def close(self) -> None:
        """Stop following the bindings of others."""
        with self._lock:
            view, self._view, self._bucket = self._view, None, None
        if view is not None:
            view.stop()
