"""OpenTelemetry: spans, context in headers and metrics, by the real SDK."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import nats
import pytest
from opentelemetry import baggage, context as contexts, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

import jsync
from jsync.integrations.opentelemetry import JsyncInstrumentor, process

from ..support.servers import wait_for
from ..support.threads import Thread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from jsync.server import LocalServer

pytestmark = pytest.mark.server

SOON = 20


class Seen:
    """The spans and metrics of a test."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.tracers = TracerProvider()
        self.tracers.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.reader = InMemoryMetricReader()
        self.meters = MeterProvider([self.reader])
        self.tracer = self.tracers.get_tracer("test")

    def spans(self, name: str, count: int = 1) -> list[ReadableSpan]:
        """The spans of a name, once there are so many."""

        def found() -> list[ReadableSpan]:
            return [s for s in self.exporter.get_finished_spans() if s.name == name]

        try:
            wait_for(lambda: len(found()) >= count, SOON)
        except AssertionError:
            names = [span.name for span in self.exporter.get_finished_spans()]
            raise AssertionError(f"no {count} spans {name!r} among {names}") from None
        assert len(found()) == count
        return found()

    def span(self, name: str) -> ReadableSpan:
        return self.spans(name)[0]

    def points(self, metric: str) -> list[Any]:
        data = self.reader.get_metrics_data()
        if data is None:
            return []
        return [
            point
            for of_resource in data.resource_metrics
            for scope in of_resource.scope_metrics
            for each in scope.metrics
            if each.name == metric
            for point in each.data.data_points
        ]


@pytest.fixture
def seen() -> Iterator[Seen]:
    seen = Seen()
    instrumentor = JsyncInstrumentor()
    instrumentor.instrument(
        tracer_provider=seen.tracers,
        meter_provider=seen.meters,
        templates=["*.items.>"],
    )
    yield seen
    instrumentor.uninstrument()
    seen.meters.shutdown()
    seen.tracers.shutdown()


@pytest.fixture
def nc(seen: Seen, server: LocalServer) -> Iterator[jsync.Connection]:
    with jsync.connect(server.url) as nc:
        yield nc


@pytest.fixture
def js(nc: jsync.Connection) -> jsync.JetStream:
    return nc.jetstream()


@pytest.fixture
def stream(js: jsync.JetStream, unique: str) -> Iterator[jsync.Stream]:
    stream = js.create_stream(
        name=unique, subjects=[f"{unique}.>"], storage="memory", allow_atomic=True
    )
    yield stream
    stream.delete()


def is_child(inner: ReadableSpan, outer: ReadableSpan) -> bool:
    assert inner.parent is not None
    return (inner.parent.trace_id, inner.parent.span_id) == key(outer)


def key(span: ReadableSpan) -> tuple[int, int]:
    found = span.get_span_context()
    assert found is not None
    return found.trace_id, found.span_id


def linked(span: ReadableSpan) -> list[tuple[int, int]]:
    return [(link.context.trace_id, link.context.span_id) for link in span.links]


def test_a_callback_continues_the_trace_of_the_publish(
    nc: jsync.Connection, seen: Seen, unique: str
) -> None:
    called = threading.Event()
    inside: list[Any] = []

    def callback(msg: jsync.Msg) -> None:
        inside.append(baggage.get_baggage("tenant"))
        with seen.tracer.start_as_current_span("work"):
            called.set()

    with nc.subscribe(f"{unique}.*", callback=callback):
        token = contexts.attach(baggage.set_baggage("tenant", "acme"))
        with seen.tracer.start_as_current_span("outer"):
            nc.publish(f"{unique}.a", b"12345", headers={"X": ["1", "2"]})
        contexts.detach(token)
        assert called.wait(SOON)
        outer, sent = seen.span("outer"), seen.span(f"publish {unique}.a")
        handled, work = seen.span(f"process {unique}.*"), seen.span("work")
    assert is_child(sent, outer)
    assert is_child(handled, sent)
    assert is_child(work, handled)
    assert linked(handled) == [key(sent)]
    assert (sent.kind, handled.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
    assert inside == ["acme"]
    assert dict(sent.attributes or {}) == {
        "messaging.system": "nats",
        "messaging.operation.name": "publish",
        "messaging.operation.type": "send",
        "messaging.destination.name": f"{unique}.a",
        "messaging.message.body.size": 5,
    }
    assert dict(handled.attributes or {}) == {
        "messaging.system": "nats",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": f"{unique}.a",
        "messaging.destination.template": f"{unique}.*",
        "messaging.message.body.size": 5,
    }


def test_user_headers_stay_and_get_a_traceparent(
    nc: jsync.Connection, seen: Seen, unique: str
) -> None:
    """The API reads it anywhere, from the plain text of the header."""
    with nc.subscribe(unique) as sub:
        nc.publish(unique, headers={"X": ["1", "2"]})
        msg = sub.next()
    assert msg.headers is not None
    assert msg.headers.get_all("X") == ["1", "2"]
    carrier = {"traceparent": msg.headers["traceparent"]}
    found = trace.get_current_span(TraceContextTextMapPropagator().extract(carrier))
    context = found.get_span_context()
    sent, received = seen.span(f"publish {unique}"), seen.span(f"receive {unique}")
    assert (context.trace_id, context.span_id) == key(sent)
    assert received.kind is SpanKind.CLIENT
    assert linked(received) == [key(sent)]


def test_a_context_sent_by_the_user_is_kept(
    nc: jsync.Connection, seen: Seen, unique: str
) -> None:
    own = f"00-{7:032x}-{9:016x}-01"
    with nc.subscribe(unique) as sub:
        nc.publish(unique, headers={"Traceparent": own})
        headers = sub.next().headers
    assert headers == {"Traceparent": own}
    sent, received = seen.span(f"publish {unique}"), seen.span(f"receive {unique}")
    assert sent.kind is SpanKind.CLIENT
    assert linked(sent) == linked(received) == [(7, 9)]


def test_a_message_of_another_client_continues_its_trace(
    nc: jsync.Connection, server: LocalServer, seen: Seen, unique: str
) -> None:
    async def publish() -> None:
        other = await nats.connect(server.url)
        headers = {"Traceparent": f"00-{7:032x}-{9:016x}-01", "tracestate": "a=b"}
        await other.publish(unique, b"", headers=headers)
        await other.drain()

    with nc.subscribe(unique, callback=lambda msg: None):
        nc.flush()
        asyncio.run(publish())
        handled = seen.span(f"process {unique}")
    assert handled.parent is not None
    assert (handled.parent.trace_id, handled.parent.span_id) == (7, 9)
    assert dict(handled.parent.trace_state) == {"a": "b"}


def test_a_service_continues_the_trace_of_its_request(
    nc: jsync.Connection, seen: Seen, unique: str
) -> None:
    def refuse(data: bytes) -> bytes:
        raise jsync.errors.ServiceError(404, "no such customer")

    with nc.service(unique, "1.0.0") as service:
        service.endpoint("total", subject=f"{unique}.total")(lambda request: b"42")
        service.endpoint("refused", subject=f"{unique}.refused")(refuse)
        assert nc.request(f"{unique}.total").data == b"42"
        with pytest.raises(jsync.errors.ServiceError, match="customer"):
            nc.services.call(f"{unique}.refused", {"id": 7})
        asked, done = (
            seen.span(f"request {unique}.total"),
            seen.span(f"process {unique}.total"),
        )
        refused = seen.span(f"process {unique}.refused")
        failed = seen.span(f"request {unique}.refused")
    assert is_child(done, asked)
    assert is_child(refused, failed)
    assert refused.status.status_code is failed.status.status_code is StatusCode.ERROR
    assert (refused.attributes or {})["error.type"] == "jsync.errors.ServiceError"
    assert [event.name for event in refused.events] == ["exception"]


def test_one_span_links_the_messages_of_a_fetch(
    js: jsync.JetStream, stream: jsync.Stream, seen: Seen
) -> None:
    consumer = stream.create_consumer(durable_name="c")
    for number in range(3):
        js.publish(f"{stream.name}.a", msg_id=str(number))
    for msg in consumer.fetch(3):
        msg.ack()
    sent = seen.spans(f"publish {stream.name}.a", 3)
    received = seen.span(f"receive {stream.name}")
    assert linked(received) == [key(each) for each in sent]
    assert dict(received.attributes or {}) == {
        "messaging.system": "nats",
        "messaging.operation.name": "receive",
        "messaging.operation.type": "receive",
        "messaging.destination.name": stream.name,
        "messaging.destination_publish.name": f"{stream.name}.a",
        "messaging.destination.subscription.name": "c",
        "messaging.batch.message_count": 3,
    }


def test_an_atomic_batch_links_to_its_messages(
    js: jsync.JetStream, stream: jsync.Stream, seen: Seen
) -> None:
    with js.atomic_batch() as batch:
        batch.add(f"{stream.name}.a")
        batch.add(f"{stream.name}.b")
    made = [seen.span(f"create {stream.name}.{each}") for each in "ab"]
    sent = seen.span("publish")
    assert linked(sent) == [key(each) for each in made]
    assert sent.kind is SpanKind.CLIENT
    read = [
        trace.get_current_span(
            TraceContextTextMapPropagator().extract({**(msg.headers or {})})
        ).get_span_context()
        for msg in stream.ordered_consumer().messages(until_end=True)
    ]
    assert [(each.trace_id, each.span_id) for each in read] == [key(e) for e in made]


def test_messages_published_together_carry_their_spans_context(
    js: jsync.JetStream, stream: jsync.Stream, seen: Seen
) -> None:
    subject = f"{stream.name}.a"
    js.publish_batch([(subject, b"1"), (subject, b"2", {"headers": {"X": "y"}})])
    with js.publisher() as publisher:
        publisher.publish_many(subject, [b"3", b"4"])
    batch, many = seen.spans(f"publish {subject}", 2)
    handled: list[jsync.JetStreamMsg] = []
    consumer = stream.create_consumer(durable_name="c")
    with consumer.consume(handled.append):
        spans = seen.spans(f"process {stream.name}", 4)
    assert [is_child(span, batch) for span in spans] == [True, True, False, False]
    assert [is_child(span, many) for span in spans] == [False, False, True, True]
    assert dict(handled[1].headers or {})["X"] == "y"
    assert (many.attributes or {})["messaging.batch.message_count"] == 2


def test_headers_keep_all_values_in_every_publish(
    js: jsync.JetStream, stream: jsync.Stream, seen: Seen
) -> None:
    subject = f"{stream.name}.a"
    for headers in ({"X": ["1", "2"]}, jsync.Headers({"X": ["1", "2"]})):
        js.publish(subject, headers=headers)
        js.publish_batch([(subject, b"", {"headers": headers})])
        with js.atomic_batch() as batch:
            batch.add(subject, headers=headers)
            batch.commit(subject, headers=headers)
        with js.publisher() as publisher:
            publisher.publish(subject, headers=headers)
            publisher.publish_many(subject, [b""], headers=headers)
    stored = list(stream.ordered_consumer().messages(until_end=True))
    assert len(stored) == 12
    for msg in stored:
        assert msg.headers is not None
        assert msg.headers.get_all("X") == ["1", "2"]
        assert len(msg.headers.get_all("traceparent")) == 1


def test_a_publish_without_a_context_is_as_before(
    js: jsync.JetStream, stream: jsync.Stream, seen: Seen
) -> None:
    subject = f"{stream.name}.a"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TraceContextTextMapPropagator, "inject", lambda *_, **__: None)
        js.publish_batch([(subject, b""), (subject, b"", {"headers": {"X": "y"}})])
    assert stream.info().state.messages == 2


@pytest.mark.parametrize(
    "headers",
    ["text", [("a", "b")], {1: "a"}, {"a": 1}, {"traceparent": b"a"}, {"a": b"a"}],
)
def test_wrong_arguments_raise_what_they_raise_without_it(
    server: LocalServer, stream: jsync.Stream, seen: Seen, headers: Any
) -> None:
    subject = f"{stream.name}.a"

    def raised(js: jsync.JetStream, nc: jsync.Connection) -> list[tuple[type, str]]:
        calls: list[Callable[[], object]] = [
            lambda: nc.publish(subject, headers=headers),
            lambda: nc.publish(1),  # type: ignore[arg-type]
            lambda: nc.request(subject, headers=headers),
            lambda: js.publish(subject, headers=headers),
            lambda: js.publish(None),  # type: ignore[arg-type]
            lambda: js.publish_batch([(subject, b"", {"headers": headers})]),
            lambda: js.publish_batch([()]),  # type: ignore[list-item]
            lambda: js.publish_batch([([], b"")]),  # type: ignore[list-item]
            lambda: js.publish_batch([[subject, b""]]),  # type: ignore[list-item]
            lambda: js.publish_batch(None),  # type: ignore[arg-type]
            lambda: js.atomic_batch().add(subject, headers=headers),
            lambda: js.publisher().publish(subject, headers=headers),
            lambda: js.publisher().publish_many(subject, [b""], headers=headers),
        ]
        found = []
        for call in calls:
            with pytest.raises(Exception) as caught:  # noqa: PT011 (of any type)
                call()
            found.append((caught.type, str(caught.value)))
        return found

    with jsync.connect(server.url) as nc:
        on = raised(nc.jetstream(), nc)
        JsyncInstrumentor().uninstrument()
        assert on == raised(nc.jetstream(), nc)
    assert stream.info().state.messages == 0


async def _coroutine(*_: object) -> None: ...


_later: Any = _coroutine
WITH_CALLBACK: dict[str, Callable[[jsync.Connection, jsync.Stream], object]] = {
    "subscribe": lambda nc, _: nc.subscribe("a", callback=_later),
    "push subscribe": lambda nc, stream: nc.jetstream().subscribe(
        f"{stream.name}.a", cb=_later
    ),
    "consume": lambda _, stream: stream.create_consumer(durable_name="c").consume(
        _later
    ),
    "ordered consume": lambda _, stream: stream.ordered_consumer().consume(_later),
    "service": lambda nc, _: nc.service("a", "1.0.0", around=_later),
    "worker": lambda *_: jsync.Worker(around=_later),
}


@pytest.mark.parametrize("name", WITH_CALLBACK)
def test_coroutine_functions_are_rejected_as_without_it(
    server: LocalServer, stream: jsync.Stream, seen: Seen, name: str
) -> None:
    with jsync.connect(server.url) as nc:
        with pytest.raises(jsync.errors.ConfigError, match="is a coroutine function"):
            WITH_CALLBACK[name](nc, stream)
        assert nc.stats().subscriptions == 0


def test_an_iteration_continues_after_an_error(
    nc: jsync.Connection, unique: str, seen: Seen
) -> None:
    with nc.subscribe(unique) as sub:
        messages = iter(sub)
        other = Thread(sub.next, 60)
        other.wait_until_blocked()
        with pytest.raises(jsync.errors.ConcurrentUseError):
            next(messages)
        nc.publish(unique, b"1")
        nc.publish(unique, b"2")
        assert (other.result().data, next(messages).data) == (b"1", b"2")
    assert list(messages) == []


def test_every_way_to_read_a_consumer_makes_spans(
    js: jsync.JetStream, stream: jsync.Stream, seen: Seen
) -> None:
    consumer = stream.create_consumer(durable_name="c")

    def published() -> ReadableSpan:
        seen.exporter.clear()
        js.publish(f"{stream.name}.a")
        return seen.span(f"publish {stream.name}.a")

    def received(by: ReadableSpan) -> bool:
        return linked(seen.span(f"receive {stream.name}")) == [key(by)]

    sent = published()
    consumer.next().ack()
    assert received(sent)
    with consumer.messages() as messages:
        sent = published()
        messages.next().ack()
        assert received(sent)
        sent = published()
        for msg in messages:
            with process(msg), seen.tracer.start_as_current_span("work"):
                msg.ack()
            break
        assert received(sent)
        handled = seen.span(f"process {stream.name}")
        assert is_child(handled, sent)
        assert is_child(seen.span("work"), handled)
    sub = js.subscribe(f"{stream.name}.new")
    seen.exporter.clear()
    js.publish(f"{stream.name}.new")
    sub.next()
    assert received(seen.span(f"publish {stream.name}.new"))
    sub.unsubscribe()
    done: list[jsync.Msg] = []
    for named in (True, False):
        if named:
            pushed = js.subscribe(f"{stream.name}.b", cb=done.append)
        else:
            pushed = js.subscribe(f"{stream.name}.b", None, done.append)
        seen.exporter.clear()
        js.publish(f"{stream.name}.b")
        handled = seen.span(f"process {stream.name}")
        assert is_child(handled, seen.span(f"publish {stream.name}.b"))
        pushed.unsubscribe()
        stream.purge()


def test_a_message_within_another_has_its_own_span(
    nc: jsync.Connection, seen: Seen, unique: str
) -> None:
    with nc.subscribe(unique) as sub:
        nc.publish(unique, b"outer")
        nc.publish(unique, b"inner")
        outer, inner = sub.next(timeout=SOON), sub.next(timeout=SOON)
    with process(outer) as span, process(outer) as again:
        assert again is span
        with process(inner) as other:
            assert other is not span
    assert len(seen.spans(f"process {unique}", 2)) == 2


def test_each_worker_call_is_one_span_naming_failures(
    nc: jsync.Connection, js: jsync.JetStream, stream: jsync.Stream, seen: Seen
) -> None:
    retry = jsync.Retry(delays=[0.01], attempts=2)
    app = jsync.Worker(stream=stream.name, retry=retry)

    @app.handle(f"{stream.name}.>", consumer="w")
    def handle(data: bytes) -> None:
        if data == b"bad":
            raise LookupError("no such customer")

    with app.start(nc):
        js.publish(f"{stream.name}.a", b"good")
        js.publish(f"{stream.name}.a", b"bad")
        good, *bad = seen.spans(f"process {stream.name}", 3)
    first, second = seen.spans(f"publish {stream.name}.a", 2)
    assert is_child(good, first)
    assert is_child(bad[0], second)
    assert is_child(bad[1], second)
    assert good.status.status_code is StatusCode.UNSET
    for each in bad:
        assert each.status.status_code is StatusCode.ERROR
        assert (each.attributes or {})["error.type"] == "LookupError"
    points = seen.points("messaging.process.duration")
    assert {p.attributes.get("error.type"): p.count for p in points} == {
        None: 1,
        "LookupError": 2,
    }


def test_metrics_count_messages_by_template_and_by_stream(
    nc: jsync.Connection, js: jsync.JetStream, stream: jsync.Stream, seen: Seen
) -> None:
    js.publish(f"{stream.name}.items.1")
    js.publish(f"{stream.name}.items.2")
    js.publish(f"{stream.name}.other")
    with pytest.raises(jsync.errors.NoRespondersError):
        nc.request(f"{stream.name}-nobody")
    consumer = stream.create_consumer(durable_name="c")
    list(consumer.fetch(3))
    sent = {
        (
            point.attributes["messaging.operation.name"],
            point.attributes.get("messaging.destination.template"),
            point.attributes.get("error.type"),
        ): point.value
        for point in seen.points("messaging.client.sent.messages")
    }
    assert sent == {
        ("publish", "*.items.>", None): 2,
        ("publish", None, None): 1,
        ("request", None, "jsync.errors.NoRespondersError"): 1,
    }
    (consumed,) = seen.points("messaging.client.consumed.messages")
    assert consumed.value == 3
    assert dict(consumed.attributes) == {
        "messaging.system": "nats",
        "messaging.operation.name": "receive",
        "messaging.destination.name": stream.name,
        "messaging.destination.subscription.name": "c",
    }
    durations = seen.points("messaging.client.operation.duration")
    assert sum(point.count for point in durations) == 5
    seen.spans("publish *.items.>", 2)


def test_it_is_gone_when_it_is_turned_off(server: LocalServer, unique: str) -> None:
    # The names of jsync are loaded at their first use.
    public = [getattr(jsync, name) for name in jsync.__all__]
    kinds = [kind for kind in public if isinstance(kind, type)]
    before = [dict(vars(kind)) for kind in kinds]
    seen, instrumentor = Seen(), JsyncInstrumentor()
    instrumentor.instrument(tracer_provider=seen.tracers)
    instrumentor.instrument(tracer_provider=seen.tracers)
    changed = [
        kind for kind, of in zip(kinds, before, strict=True) if dict(vars(kind)) != of
    ]
    assert jsync.Connection in changed
    assert jsync.Consumer in changed
    instrumentor.uninstrument()
    # The very same methods as before: nothing is left that could cost time.
    assert [dict(vars(kind)) for kind in kinds] == before
    with jsync.connect(server.url) as nc, nc.subscribe(unique) as sub:
        nc.publish(unique)
        msg = sub.next()
        with process(msg) as span:
            assert not span.is_recording()
    assert msg.headers is None
    assert not seen.exporter.get_finished_spans()


PROGRAM = """
import sys, jsync
with jsync.connect(sys.argv[1]) as nc, nc.subscribe("a") as sub:
    nc.publish("a")
    sub.next()
"""

COMMAND = "from opentelemetry.instrumentation.auto_instrumentation import run; run()"
"""`opentelemetry-instrument`, wherever it is installed."""


def test_opentelemetry_instrument_turns_it_on(
    server: LocalServer, tmp_path: Path
) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    done = subprocess.run(
        [
            *(sys.executable, "-c", COMMAND),
            *("--traces_exporter", "console", "--metrics_exporter", "none"),
            *("--logs_exporter", "none", sys.executable, "program.py", server.url),
        ],
        cwd=tmp_path,
        env=os.environ | {"OTEL_PYTHON_TRACER_PROVIDER": "sdk_tracer_provider"},
        stdout=subprocess.PIPE,
        check=True,
        timeout=60,
    )
    decoder, text, names = json.JSONDecoder(), done.stdout.decode().strip(), []
    while text:
        span, end = decoder.raw_decode(text)
        names.append(span["name"])
        text = text[end:].strip()
    assert names == ["publish a", "receive a"]
