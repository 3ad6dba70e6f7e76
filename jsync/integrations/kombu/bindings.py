"""Exchanges and their bindings to queues, in a bucket that every process watches."""

from __future__ import annotations

import hashlib
import logging
import threading
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from jsync.errors import (
    AlreadyExistsError,
    BucketNotFoundError,
    ConfigError,
    KeyNotFoundError,
    MessageNotFoundError,
    StreamNotFoundError,
    SubscriptionClosedError,
)

from .names import BUILT_IN, KINDS, encode_token, matches

if TYPE_CHECKING:
    from datetime import datetime

    import jsync

    from .options import Options

log = logging.getLogger("jsync.kombu")


class Binding(NamedTuple):
    """A binding: the queue gets the messages of the exchange that match the pattern.

    The pattern is matched with the routing key. A binding without a queue only records
    that the exchange was declared.
    """

    exchange: str
    kind: str
    """`direct`, `topic` or `fanout`."""
    pattern: str
    queue: str

    @property
    def key(self) -> str:
        """The key in the bucket."""
        text = f"{self.pattern}\0{self.queue}".encode("utf-8", "surrogatepass")
        return f"{encode_token(self.exchange)}.{hashlib.sha256(text).hexdigest()[:32]}"


class Table(NamedTuple):
    """The contents of the bucket at one revision."""

    revision: int
    bindings: dict[str, list[Binding]]
    """The bindings of queues, by exchange."""
    kinds: dict[str, str]
    """The types of the exchanges."""


def kind_of(exchange: str, kind: str | None) -> str:
    """Check the type of an exchange.

    Raises:
        ConfigError: There is no such type.
    """
    kind = kind or "direct"
    if kind not in KINDS:
        raise ConfigError(
            f"exchange {exchange!r} has the type {kind!r}; there are direct, topic and "
            "fanout"
        )
    return kind


class Bindings:
    """The exchanges, and the bindings of queues with streams. Any thread may use it."""

    def __init__(
        self, nc: jsync.Connection, js: jsync.JetStream, prefix: str, options: Options
    ) -> None:
        self._nc = nc
        self._js = js
        self._bucket_name = f"{prefix}-bindings"
        self._options = options
        self._lock = threading.Lock()
        self._bucket: jsync.KeyValue | None = None
        self._view: jsync.LiveView[bytes] | None = None
        self._table = Table(-1, {}, {})
        self._declared: dict[str, str] = {}
        """The types of the exchanges that this process has declared."""
        self._bad: set[tuple[str, bytes]] = set()

    # The bucket -----------------------------------------------------------------------

    def _open_once(self) -> tuple[jsync.KeyValue, jsync.LiveView[bytes]]:
        with self._lock:
            if self._view is not None and _has_ended(self._view):
                self._view = None  # the bucket was deleted, so create it again
            if self._bucket is None or self._view is None:
                bucket = self._open()
                self._table = Table(-1, {}, {})
                self._view = bucket.live(timeout=self._options.timeout)
                self._bucket = bucket
            return self._bucket, self._view

    def _open(self) -> jsync.KeyValue:
        """Get the bucket, or create it. An existing bucket is not changed."""
        try:
            return self._js.key_value(self._bucket_name)
        except BucketNotFoundError:
            pass
        try:
            return self._js.create_key_value(
                bucket=self._bucket_name,
                description="kombu bindings",
                replicas=self._options.replicas,
                max_bytes=self._options.max_bytes,
                storage=self._options.storage,
            )
        except AlreadyExistsError:
            return self._js.key_value(self._bucket_name)  # another process was faster

    def _put(self, binding: Binding) -> None:
        """Store a binding, unless it is stored. Blocks until this process has seen it."""
        self._catch_up(binding.exchange)  # another client may just have changed it
        bucket, view = self._open_once()
        value = msgspec.json.encode(binding)
        stored = view.get(binding.key)
        if stored == value:
            return
        if stored is not None and (old := _read(stored)) and old.kind != binding.kind:
            log.warning(
                "exchange %r had the type %s, and is declared as %s now",
                *(binding.exchange, old.kind, binding.kind),
            )
        view.wait_for(bucket.put(binding.key, value), self._options.timeout)

    def _read_all(self) -> Table:
        _, view = self._open_once()
        revision = view.revision
        with self._lock:
            if revision != self._table.revision:
                bindings: dict[str, list[Binding]] = {}
                kinds: dict[str, str] = {}
                for key, value in list(view.items()):
                    binding = _read(value)
                    if binding is None:
                        self._report(key, value)
                    elif binding.queue:
                        bindings.setdefault(binding.exchange, []).append(binding)
                    else:
                        kinds[binding.exchange] = binding.kind
                self._table = Table(revision, bindings, kinds)
            return self._table

    def _catch_up(self, exchange: str | None = None) -> None:
        """Block until this process has seen all stored bindings, perhaps of one exchange.

        Does not wait while disconnected, because no publish into a stream succeeds then.
        """
        _, view = self._open_once()
        if not self._nc.is_connected:
            return
        stream = self._js.bind_stream(f"KV_{self._bucket_name}")
        place = "" if exchange is None else f"{encode_token(exchange)}."
        subject = f"$KV.{self._bucket_name}.{place}>"
        try:
            # Read from the leader, since a replica may be behind.
            last = stream.get_message(last_by_subject=subject, direct=False)
        except (MessageNotFoundError, StreamNotFoundError):
            return
        view.wait_for(last.sequence, self._options.timeout)

    def _report(self, key: str, value: bytes) -> None:
        if (key, value) not in self._bad:
            self._bad.add((key, value))
            log.warning(
                "bucket %s: key %r is no binding, and is passed over",
                *(self._bucket_name, key),
            )

    def close(self) -> None:
        """Stop watching the bucket."""
        with self._lock:
            view, self._view, self._bucket = self._view, None, None
        if view is not None:
            view.stop()

    # Exchanges ------------------------------------------------------------------------

    def declare(self, exchange: str, kind: str) -> None:
        """Store the type of an exchange. The last declaration counts."""
        if exchange in BUILT_IN:
            return
        self._declared[exchange] = kind
        self._put(Binding(exchange, kind, "", ""))

    def type_of(self, exchange: str) -> str | None:
        """Return the type of an exchange, or None if it was never declared. Blocks."""
        if exchange not in BUILT_IN:
            self._catch_up(exchange)
        return self.seen_type_of(exchange)

    def seen_type_of(self, exchange: str) -> str | None:
        """Return the type of an exchange by what this process has seen of the bucket.

        What another process has stored last counts more than a declaration of this one,
        which counts if nothing is stored, for example after the bucket was deleted.
        """
        table = self._read_all()
        known = BUILT_IN.get(exchange) or table.kinds.get(exchange)
        known = known or self._declared.get(exchange)
        if known is not None:
            return known
        # A binding may have been stored without a declaration of its exchange.
        bound = table.bindings.get(exchange)
        return bound[0].kind if bound else None

    def exists(self, exchange: str) -> bool:
        """Return whether an exchange is stored, or one of its bindings. Blocks.

        A declaration of this process does not count, since another process may have deleted
        the exchange.
        """
        if exchange in BUILT_IN:
            return True
        self._catch_up(exchange)
        table = self._read_all()
        return exchange in table.kinds or bool(table.bindings.get(exchange))

    def is_bound(self, exchange: str) -> bool:
        """Return whether an exchange has bindings. Blocks."""
        self._catch_up(exchange)
        return bool(self._read_all().bindings.get(exchange))

    def delete_unused_exchange(self, exchange: str) -> bool:
        """Remove an exchange that has no bindings. Return False if it has some.

        If another process stores a binding at the same time, the binding stays.
        """
        if self.is_bound(exchange):
            return False
        kind = self.seen_type_of(exchange)
        self.remove(Binding(exchange, "", "", ""))
        if kind is not None and self.is_bound(exchange):
            self.declare(exchange, kind)
            return False
        self._declared.pop(exchange, None)
        return True

    def delete_exchange(self, exchange: str) -> None:
        """Remove an exchange with its bindings. Its queues stay."""
        self._catch_up(exchange)
        for binding in self._read_all().bindings.get(exchange, []):
            self.remove(binding)
        self._declared.pop(exchange, None)
        self.remove(Binding(exchange, "", "", ""))

    # Bindings -------------------------------------------------------------------------

    def add(self, exchange: str, pattern: str, queue: str) -> Binding:
        """Store a binding. It applies to this process immediately."""
        kind = self.type_of(exchange) or "direct"
        binding = Binding(exchange, kind, pattern, queue)
        self._put(binding)
        return binding

    def remove(self, binding: Binding) -> None:
        """Remove a binding. It need not exist."""
        self._catch_up(binding.exchange)  # another client may just have stored it
        bucket, view = self._open_once()
        if view.get(binding.key) is None:
            return
        try:
            view.wait_for(bucket.delete(binding.key), self._options.timeout)
        except KeyNotFoundError:
            return

    def remove_queue(self, queue: str) -> None:
        """Remove all bindings of a queue."""
        for binding in self.all():
            if binding.queue == queue:
                self.remove(binding)

    def removed_at(self, exchange: str, pattern: str, queue: str) -> datetime | None:
        """Return when a binding was removed, by the server's clock. Blocks.

        None if it is stored, or if nothing is known of its removal.
        """
        key = Binding(exchange, "", pattern, queue).key
        stream = self._js.bind_stream(f"KV_{self._bucket_name}")
        subject = f"$KV.{self._bucket_name}.{key}"
        try:
            last = stream.get_message(last_by_subject=subject, direct=False)
        except (MessageNotFoundError, StreamNotFoundError):
            return None
        return None if last.data else last.timestamp  # a delete marker has no data

    def all(self) -> list[Binding]:
        """Return all bindings of queues. Blocks."""
        self._catch_up()
        found = self._read_all().bindings.values()
        return [binding for bindings in found for binding in bindings]

    def queues(self, exchange: str, routing_key: str) -> list[str]:
        """Return the queues that get a message, each once. Blocks for a request."""
        self._catch_up(exchange)
        kind = self.seen_type_of(exchange)
        found = {
            binding.queue: None
            for binding in self._read_all().bindings.get(exchange, ())
            if matches(kind or binding.kind, binding.pattern, routing_key)
        }
        return list(found)


def _read(value: bytes) -> Binding | None:
    """Read a binding. None if it is not valid, or if its exchange has an unknown type."""
    try:
        binding = msgspec.json.decode(value, type=Binding)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return binding if binding.kind in KINDS and binding.exchange else None


def _has_ended(view: jsync.LiveView[bytes]) -> bool:
    """Return whether a copy of the bucket is no longer updated."""
    try:
        view.wait_for(view.revision + 1, 0)
    except TimeoutError:
        return False
    except (SubscriptionClosedError, BucketNotFoundError):
        return True
    return False
