"""Turns the instrumentation on and off: it replaces methods of jsync's classes."""

from __future__ import annotations

import contextlib
import functools
import inspect
import threading
import weakref
from collections.abc import Iterable, Mapping
from time import time_ns
from typing import TYPE_CHECKING, Any

import jsync
from jsync.subjects import has_wildcard

from .telemetry import Telemetry, merged

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import Link, TracerProvider

    Function = Callable[..., Any]
    Replacing = Iterator[tuple[type, str, Function]]
    """A class, the names of its methods, and a function that gets the original first."""


class JsyncInstrumentor:
    """Makes spans and metrics of all connections of this process.

    Call `instrument` before you create workers and services. `opentelemetry-instrument`
    calls it for you. While it is off, it costs nothing: the methods of jsync are replaced
    only while it is on.
    """

    _lock = threading.Lock()
    _replaced: list[tuple[type, str, Any]] = []  # noqa: RUF012 (of the process)

    def instrument(
        self,
        *,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        templates: Iterable[str] = (),
        **_: Any,
    ) -> None:
        """Turn it on. A second call does nothing.

        Args:
            tracer_provider: Where the spans go. Default: the global provider.
            meter_provider: Where the metrics go. Default: the global provider.
            templates: Patterns such as `orders.*.paid`. A subject that matches one is
                shown as this pattern in names of spans and in metrics. Without a pattern,
                metrics do not have the subjects of publishes, because there may be many.
        """
        with self._lock:
            if self._replaced:
                return
            telemetry = Telemetry(tracer_provider, meter_provider, templates)
            for kind, name, replacement in _patches(telemetry):
                # Keep only a method of the class itself. To restore an inherited method,
                # the replacement is removed.
                self._replaced.append((kind, name, vars(kind).get(name)))
                setattr(kind, name, replacement)
            telemetry.turn_on()

    def uninstrument(self, **_: Any) -> None:
        """Turn it off. Handlers that run already keep their spans."""
        with self._lock:
            Telemetry.turn_off()
            while self._replaced:
                kind, name, own = self._replaced.pop()
                if own is None:
                    delattr(kind, name)
                else:
                    setattr(kind, name, own)


def _patches(telemetry: Telemetry) -> Iterator[tuple[type, str, Any]]:
    for part in (_publishing, _batching, _receiving, _iterating, _handling):
        for kind, names, function in part(telemetry):
            for name in names.split():
                yield kind, name, _method(function, getattr(kind, name))


def _method(function: Function, original: Function) -> Function:
    @functools.wraps(original)
    def method(self: Any, *arguments: Any, **options: Any) -> Any:
        return function(original, self, *arguments, **options)

    return method


def _size(data: object) -> int | None:
    return len(data) if isinstance(data, bytes | bytearray) else None


def _publishing(telemetry: Telemetry) -> Replacing:
    def publish(
        call: Function, self: Any, subject: str, data: Any = b"", **options: Any
    ) -> Any:
        given = options.pop("headers", None)
        with telemetry.sending("publish", subject, given, size=_size(data)) as headers:
            return call(self, subject, data, headers=headers, **options)

    def request(
        call: Function, self: Any, subject: str, data: Any = b"", **options: Any
    ) -> Any:
        given = options.pop("headers", None)
        with telemetry.sending("request", subject, given, size=_size(data)) as headers:
            return call(self, subject, data, headers=headers, **options)

    yield jsync.Connection, "publish", publish
    yield jsync.Connection, "request request_many", request
    yield jsync.Services, "call", request
    yield jsync.JetStream, "publish", publish
    yield jsync.Publisher, "publish", publish
    yield jsync.FastIngest, "add", publish


def _batching(telemetry: Telemetry) -> Replacing:
    links: weakref.WeakKeyDictionary[jsync.AtomicBatch, list[Link]]
    links = weakref.WeakKeyDictionary()

    def publish_many(
        call: Function, self: Any, subjects: Any, payloads: Any, **options: Any
    ) -> Any:
        given = options.pop("headers", None)
        subject = subjects if isinstance(subjects, str) else None
        count = len(payloads) if hasattr(payloads, "__len__") else 0
        with telemetry.sending(
            "publish", subject, given, count=count, batch=True
        ) as headers:
            return call(self, subjects, payloads, headers=headers, **options)

    def publish_batch(call: Function, self: Any, messages: Any, **options: Any) -> Any:
        if not isinstance(messages, Iterable):
            return call(self, messages, **options)
        messages = list(messages)
        with telemetry.sending(
            "publish", _same(messages), count=len(messages), batch=True
        ) as headers:
            with_context = [_with_context(message, headers) for message in messages]
            return call(self, with_context, **options)

    def create(self: Any, subject: str, options: dict[str, Any]) -> Sequence[Link]:
        headers, found = telemetry.creating(subject, options.get("headers"))
        if headers is not None:
            options["headers"] = headers
        return found

    def add(
        call: Function, self: Any, subject: str, data: Any = b"", **options: Any
    ) -> Any:
        found = create(self, subject, options)
        call(self, subject, data, **options)
        links.setdefault(self, []).extend(found)

    def commit(
        call: Function, self: Any, subject: Any = None, data: Any = b"", **options: Any
    ) -> Any:
        last = [] if subject is None else create(self, subject, options)
        of_all = [*links.pop(self, ()), *last]
        count = len(self) + (subject is not None)
        with telemetry.sending("publish", None, count=count, batch=True, links=of_all):
            return call(self, subject, data, **options)

    yield jsync.Publisher, "publish_many", publish_many
    yield jsync.JetStream, "publish_batch", publish_batch
    yield jsync.AtomicBatch, "add", add
    yield jsync.AtomicBatch, "commit", commit


def _same(messages: list[Any]) -> str | None:
    """Return the subject of all messages of a batch, or None if there are several."""
    subjects = [
        message[0] for message in messages if isinstance(message, tuple) and message
    ]
    return subjects[0] if subjects[1:] == subjects[:-1] and subjects else None


def _with_context(message: Any, headers: Any) -> Any:
    """Return a message of `publish_batch` with the headers of its batch."""
    match message:
        case (subject, data) if headers and isinstance(message, tuple):
            return subject, data, {"headers": headers}
        case (subject, data, dict(options)) if headers and isinstance(message, tuple):
            own = options.get("headers") or {}
            if isinstance(own, Mapping):
                return subject, data, {**options, "headers": merged(headers, own)}
    return message  # as it is, or `publish_batch` says that it is not valid


def _receiving(telemetry: Telemetry) -> Replacing:
    def receive(call: Function, self: Any, *arguments: Any, **options: Any) -> Any:
        started_at = time_ns()
        msg = call(self, *arguments, **options)
        telemetry.received([msg], started_at)
        return msg

    def receive_of(
        call: Function, self: jsync.Subscription, *arguments: Any, **options: Any
    ) -> Any:
        started_at = time_ns()
        msg = call(self, *arguments, **options)
        telemetry.received(
            [msg], started_at, template=_template(self), queue=self.queue
        )
        return msg

    yield jsync.Subscription, "next", receive_of
    yield jsync.PushSubscription, "next", receive
    yield jsync.Consumer, "next", receive
    yield jsync.OrderedConsumer, "next", receive
    yield jsync.MessagesContext, "next", receive
    yield jsync.GroupMember, "next", receive
    yield jsync.OrderedBatch, "__next__", receive


def _iterating(telemetry: Telemetry) -> Replacing:
    def each(call: Function, self: Any) -> Iterator[Any]:
        return InstrumentedIterator(iter(call(self)), telemetry.received)

    def each_of(call: Function, self: jsync.Subscription) -> Iterator[Any]:
        record = functools.partial(
            telemetry.received, template=_template(self), queue=self.queue
        )
        return InstrumentedIterator(iter(call(self)), record)

    def batch(call: Function, self: Any) -> Iterator[Any]:
        return _batch(iter(call(self)), telemetry)

    yield jsync.Subscription, "__iter__", each_of
    yield jsync.PushSubscription, "__iter__", each
    yield jsync.MessagesContext, "__iter__", each
    yield jsync.GroupMember, "__iter__", each
    yield jsync.Batch, "__iter__", batch


class InstrumentedIterator:
    """An iterator that makes a span for each message.

    A generator would end with the first exception, and the iterators of jsync do not.
    """

    def __init__(self, messages: Iterator[Any], record: Function) -> None:
        self._messages, self._record = messages, record

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        started_at = time_ns()
        msg = next(self._messages)
        self._record([msg], started_at)
        return msg


def _batch(messages: Iterator[Any], telemetry: Telemetry) -> Iterator[Any]:
    """Make one span for all messages of a fetch, since one call requested them."""
    started_at = time_ns()
    taken = []
    try:
        for msg in messages:
            taken.append(msg)
            yield msg
    finally:
        if taken:
            telemetry.received(taken, started_at, batch=True)


def _template(subscription: jsync.Subscription) -> str | None:
    subject = subscription.subject
    return subject if has_wildcard(subject) else None


def _handling(telemetry: Telemetry) -> Replacing:
    def traced(handler: Any, **about: Any) -> Any:
        if not _can_be_called(handler):
            return handler  # None, or the method says that it is not valid

        @functools.wraps(handler, updated=())
        def handle(msg: Any) -> Any:
            with telemetry.processing(msg, **about):
                return handler(msg)

        return handle

    def subscribe(call: Function, self: Any, subject: str, **options: Any) -> Any:
        if "callback" in options:
            template = subject if has_wildcard(str(subject)) else None
            options["callback"] = traced(
                options["callback"], template=template, queue=options.get("queue")
            )
        return call(self, subject, **options)

    def subscribe_stream(
        call: Function, self: Any, *arguments: Any, **options: Any
    ) -> Any:
        given = [
            traced(argument) if position == _CB else argument
            for position, argument in enumerate(arguments)
        ]
        for name in ("cb", "callback"):
            if name in options:
                options[name] = traced(options[name])
        return call(self, *given, **options)

    def consume(call: Function, self: Any, handler: Any, **options: Any) -> Any:
        return call(self, traced(handler), **options)

    def service(call: Function, self: Any, *arguments: Any, **options: Any) -> Any:
        def request(request: jsync.Request) -> Any:
            return telemetry.processing(request.msg)

        options["around"] = _nested(request, options.get("around"))
        return call(self, *arguments, **options)

    def worker(call: Function, self: Any, **options: Any) -> None:
        options["around"] = _nested(telemetry.processing, options.get("around"))
        call(self, **options)

    yield jsync.Connection, "subscribe", subscribe
    yield jsync.JetStream, "subscribe", subscribe_stream
    yield jsync.Consumer, "consume", consume
    yield jsync.OrderedConsumer, "consume", consume
    yield jsync.PushConsumer, "consume", consume
    yield jsync.GroupMember, "consume", consume
    yield jsync.Connection, "service", service
    yield jsync.Worker, "__init__", worker


def _can_be_called(handler: Any) -> bool:
    """Return whether jsync accepts a handler. It rejects coroutine and generator functions."""
    functions = (handler, getattr(handler, "__call__", None))  # noqa: B004 (as jsync does)
    return callable(handler) and not any(
        kind(function)
        for function in functions
        for kind in (
            inspect.iscoroutinefunction,
            inspect.isgeneratorfunction,
            inspect.isasyncgenfunction,
        )
    )


_CB = 2
"""The place of `cb` among the arguments of `JetStream.subscribe`."""


def _nested(outer: Function, inner: Any) -> Any:
    """Return one context manager for two.

    If `inner` is not valid, return it, so that the original method rejects it.
    """
    if inner is None:
        return outer
    if not _can_be_called(inner):
        return inner

    @contextlib.contextmanager
    def both(taken: Any) -> Iterator[None]:
        with outer(taken), inner(taken):
            yield

    return both
