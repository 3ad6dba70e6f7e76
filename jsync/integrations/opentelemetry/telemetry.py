"""The spans and the metrics of messages."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from contextvars import ContextVar
from time import perf_counter, time_ns
from typing import TYPE_CHECKING, Any

from opentelemetry import context as contexts, metrics, propagate, trace
from opentelemetry.propagators.textmap import Getter
from opentelemetry.trace import Link, SpanKind, StatusCode

import jsync

from . import conventions

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from opentelemetry.context import Context
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import Span, TracerProvider

    from .conventions import Attributes


class _Headers(Getter["Mapping[str, Any]"]):
    """Reads headers of NATS, whose names have the case that their sender chose."""

    def get(self, carrier: Mapping[str, Any], key: str) -> list[str] | None:
        headers = jsync.Headers(carrier)
        found = headers.get_all(key)
        if not found:  # as "Traceparent" of a Go program
            lowered = key.lower()
            found = [
                value for name, value in headers.pairs() if name.lower() == lowered
            ]
        return found or None

    def keys(self, carrier: Mapping[str, Any]) -> list[str]:
        return list(carrier)


_HEADERS = _Headers()


class _Processing:
    """The message that a handler of this context is handling."""

    __slots__ = ("error", "msg", "span")

    def __init__(self, msg: jsync.Msg, span: Span) -> None:
        self.msg = msg
        self.span = span
        self.error: BaseException | None = None


_processing: ContextVar[_Processing | None] = ContextVar("jsync_message", default=None)
_active: list[Telemetry] = []
"""The instance that is turned on, if any."""


class Telemetry:
    """Makes spans and counts messages, with the given providers."""

    def __init__(
        self,
        tracer_provider: TracerProvider | None,
        meter_provider: MeterProvider | None,
        templates: Iterable[str],
    ) -> None:
        about = "jsync", jsync.__version__
        self._tracer = trace.get_tracer(
            *about, tracer_provider, schema_url=conventions.SCHEMA
        )
        meter = metrics.get_meter(*about, meter_provider, schema_url=conventions.SCHEMA)
        self._templates = conventions.SubjectTemplates(templates)
        self._operations = meter.create_histogram(
            "messaging.client.operation.duration",
            unit="s",
            description="Duration of publishes, requests and receives.",
            explicit_bucket_boundaries_advisory=conventions.DURATIONS,
        )
        self._processes = meter.create_histogram(
            "messaging.process.duration",
            unit="s",
            description="Duration of the calls of handlers.",
            explicit_bucket_boundaries_advisory=conventions.DURATIONS,
        )
        self._sent = meter.create_counter(
            "messaging.client.sent.messages",
            unit="{message}",
            description="Messages that were published.",
        )
        self._consumed = meter.create_counter(
            "messaging.client.consumed.messages",
            unit="{message}",
            description="Messages that were received.",
        )

    def turn_on(self) -> None:
        """Make `process` use this instance."""
        _active[:] = [self]

    @staticmethod
    def turn_off() -> None:
        """Make `process` do nothing."""
        _active.clear()

    # Sending --------------------------------------------------------------------------

    @contextlib.contextmanager
    def sending(
        self,
        operation: str,
        subject: str | None,
        headers: Mapping[str, Any] | None = None,
        *,
        size: int | None = None,
        count: int = 1,
        batch: bool = False,
        links: Sequence[Link] = (),
    ) -> Iterator[Mapping[str, Any] | None]:
        """Make the span of a publish, and yield the headers that carry its context.

        Args:
            operation: The name of the operation.
            subject: The subject. None: there are several.
            headers: The headers of the user. A context in them stays as it is.
            size: The bytes of the payload.
            count: The number of messages.
            batch: Whether this is a batch.
            links: The contexts of its messages, if they have separate ones.
        """
        if not _are_valid("" if subject is None else subject, headers):
            yield headers  # the call says what is not valid
            return
        where: Attributes = {}
        if subject is not None:
            where = conventions.destination_attributes(
                subject, self._templates.of(subject)
            )
        attributes = conventions.base_attributes(operation, "send") | where
        if batch:
            attributes["messaging.batch.message_count"] = count
        elif size is not None:
            attributes["messaging.message.body.size"] = size
        own = conventions.has_trace_context(
            headers, propagate.get_global_textmap().fields
        )
        if own:
            links = self.links(headers)
        kind = SpanKind.CLIENT if links else SpanKind.PRODUCER
        measured = conventions.base_attributes(operation, "send")
        measured |= conventions.metric_attributes(where)
        started_at = perf_counter()
        try:
            with self._tracer.start_as_current_span(
                conventions.span_name(operation, where),
                kind=kind,
                attributes=attributes,
                links=links,
                record_exception=False,
                set_status_on_exception=False,
            ) as span:
                try:
                    yield headers if own or links else _injected(headers)
                except BaseException as error:
                    _fail(span, error)
                    raise
        except BaseException as error:
            measured["error.type"] = conventions.error_type(error)
            raise
        finally:
            self._operations.record(perf_counter() - started_at, measured)
            measured.pop("messaging.operation.type")
            self._sent.add(count, measured)

    def creating(
        self, subject: str, headers: Mapping[str, Any] | None
    ) -> tuple[Mapping[str, Any] | None, Sequence[Link]]:
        """Make the span of one message of a batch, and return its headers and its link."""
        if not _are_valid(subject, headers):
            return headers, []
        if conventions.has_trace_context(
            headers, propagate.get_global_textmap().fields
        ):
            return headers, self.links(headers)
        where = conventions.destination_attributes(subject, self._templates.of(subject))
        with self._tracer.start_as_current_span(
            conventions.span_name("create", where),
            kind=SpanKind.PRODUCER,
            attributes=conventions.base_attributes("create", "create") | where,
        ) as span:
            return _injected(headers), [Link(span.get_span_context())]

    # Receiving ------------------------------------------------------------------------

    def received(
        self,
        messages: Sequence[jsync.Msg],
        started_at: int,
        *,
        template: str | None = None,
        queue: str | None = None,
        batch: bool = False,
    ) -> None:
        """Make the span of messages that the user requested, which links to all of them.

        Args:
            messages: The messages, at least one.
            begun: When the user began to wait: nanoseconds since 1970.
            template: The subject of the subscription, if it has wildcards.
            queue: The queue group of the subscription.
            batch: Whether the user requested several.
        """
        ended = time_ns()
        first = messages[0]
        template = template or self._templates.of(first.subject)
        where = conventions.consumer_attributes(first, template, queue)
        attributes = conventions.base_attributes("receive", "receive") | where
        if batch:
            attributes["messaging.batch.message_count"] = len(messages)
            if len({msg.subject for msg in messages}) > 1:
                attributes.pop("messaging.destination_publish.name", None)
        else:
            attributes |= conventions.message_attributes(first)
        links = [link for msg in messages for link in self.links(msg.headers)]
        self._tracer.start_span(
            conventions.span_name("receive", where),
            kind=SpanKind.CLIENT,
            attributes=attributes,
            links=links,
            start_time=started_at,
        ).end(ended)
        measured = conventions.base_attributes("receive", "receive")
        measured |= conventions.metric_attributes(where)
        self._operations.record((ended - started_at) / 1e9, measured)
        measured.pop("messaging.operation.type")
        self._consumed.add(len(messages), measured)

    @contextlib.contextmanager
    def processing(
        self,
        msg: jsync.Msg,
        *,
        template: str | None = None,
        queue: str | None = None,
        pushed: bool = True,
    ) -> Iterator[Span]:
        """Make the span of a handler: a child of the message's context, with a link to it.

        If the handler of this message has a span already, that one gets the exception.

        Args:
            msg: The message.
            template: The subject of the subscription, if it has wildcards.
            queue: The queue group of the subscription.
            pushed: Whether the message has not been counted as received.
        """
        outer = _processing.get()
        if outer is not None and outer.msg is msg:
            try:
                yield outer.span
            except BaseException as error:
                outer.error = error
                _fail(outer.span, error)
                raise
            return
        template = template or self._templates.of(msg.subject)
        where = conventions.consumer_attributes(msg, template, queue)
        context = self.context(msg.headers)
        measured = conventions.base_attributes("process", "process")
        measured |= conventions.metric_attributes(where)
        measured.pop("messaging.operation.type")
        if pushed:
            self._consumed.add(1, measured)
        with self._tracer.start_as_current_span(
            conventions.span_name("process", where),
            context=context,
            kind=SpanKind.CONSUMER,
            attributes=conventions.base_attributes("process", "process")
            | where
            | conventions.message_attributes(msg),
            links=self.links(msg.headers),
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            inner = _Processing(msg, span)
            token = _processing.set(inner)
            # The baggage of the message is for the handler as well.
            attached = contexts.attach(trace.set_span_in_context(span, context))
            started_at = perf_counter()
            try:
                yield span
            except BaseException as error:
                if inner.error is not error:
                    inner.error = error
                    _fail(span, error)
                raise
            finally:
                contexts.detach(attached)
                _processing.reset(token)
                if inner.error is not None:
                    measured["error.type"] = conventions.error_type(inner.error)
                self._processes.record(perf_counter() - started_at, measured)

    # The context in headers -----------------------------------------------------------

    @staticmethod
    def context(headers: Mapping[str, Any] | None) -> Context:
        """Read the context that headers carry."""
        return propagate.extract(headers or {}, getter=_HEADERS)

    def links(self, headers: Mapping[str, Any] | None) -> list[Link]:
        """Return a link to the context that headers carry, if they carry one."""
        if not headers:
            return []
        # Start from an empty context: if the headers carry no span, the span of this
        # thread must not be used.
        context = propagate.extract(headers, contexts.Context(), getter=_HEADERS)
        found = trace.get_current_span(context).get_span_context()
        return [Link(found)] if found.is_valid else []


def _are_valid(subject: object, headers: object) -> bool:
    """Return whether an unchecked subject and headers have the right types for a span."""
    return isinstance(subject, str) and (
        headers is None
        or (
            isinstance(headers, Mapping)
            # Bytes count as several values, which are numbers.
            and not any(isinstance(value, bytes) for value in headers.values())
            and all(isinstance(name, str) for name in headers)
        )
    )


def _injected(headers: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    carrier: dict[str, Any] = {}
    propagate.inject(carrier)
    if not carrier:
        return headers
    return merged(headers or {}, carrier)


def merged(headers: Mapping[str, Any], others: Mapping[str, Any]) -> dict[str, Any]:
    """Return both headers with all values. A name in both has the values of `others`."""
    return {
        name: block.get_all(name) if isinstance(block, jsync.Headers) else block[name]
        for block in (headers, others)
        for name in block
    }


def _fail(span: Span, error: BaseException) -> None:
    span.record_exception(error)
    span.set_attribute("error.type", conventions.error_type(error))
    span.set_status(StatusCode.ERROR, str(error))


def process(msg: jsync.Msg) -> contextlib.AbstractContextManager[Span]:
    """Make the span of your own work on a message that you have received.

    Handlers of `consume`, of subscriptions, services and workers have such a span without
    your doing. Use this in a loop over messages:

        for msg in messages:
            with process(msg):
                ...

    The span is a child of the span that published the message. If the instrumentation is
    off, this does nothing.

    Args:
        msg: The message.

    Returns:
        A context manager, which yields the span.
    """
    if not _active:
        return contextlib.nullcontext(trace.INVALID_SPAN)
    return _active[0].processing(msg, pushed=False)
