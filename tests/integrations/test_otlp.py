"""OpenTelemetry over OTLP: what two processes send is one trace where it arrives."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span

import jsync

from .test_opentelemetry import COMMAND

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from jsync.server import LocalServer

pytestmark = pytest.mark.server

SENDER = """
import sys, jsync
with jsync.connect(sys.argv[1]) as nc:
    nc.jetstream().publish(f"{sys.argv[2]}.a", b"12345")
"""

WORKER = """
import sys, threading, jsync
done = threading.Event()
app = jsync.Worker(stream=sys.argv[2])

@app.handle(f"{sys.argv[2]}.>", consumer="w")
def handle(data: bytes) -> None:
    done.set()

with jsync.connect(sys.argv[1]) as nc, app.start(nc):
    assert done.wait(60)
"""


class Receiver(ThreadingHTTPServer):
    """Takes spans and metrics as a collector does: OTLP over HTTP, in protobuf."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Taking)
        self.spans: dict[str, list[Span]] = {}
        """By the name of the service that sent them."""
        self.metrics: set[tuple[str, str]] = set()

    def take(self, path: str, body: bytes) -> bytes:
        if path == "/v1/traces":
            for of in ExportTraceServiceRequest.FromString(body).resource_spans:
                spans = [span for scope in of.scope_spans for span in scope.spans]
                self.spans.setdefault(service_of(of), []).extend(spans)
            return bytes(ExportTraceServiceResponse().SerializeToString())
        assert path == "/v1/metrics"
        for each in ExportMetricsServiceRequest.FromString(body).resource_metrics:
            names = (m.name for scope in each.scope_metrics for m in scope.metrics)
            self.metrics.update((service_of(each), name) for name in names)
        return bytes(ExportMetricsServiceResponse().SerializeToString())


class Taking(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        assert isinstance(self.server, Receiver)
        body = self.rfile.read(int(self.headers["Content-Length"]))
        answer = self.server.take(self.path, body)
        self.send_response(200)
        self.send_header("Content-Type", "application/x-protobuf")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Say nothing."""


def service_of(of: Any) -> str:
    values = {pair.key: pair.value.string_value for pair in of.resource.attributes}
    return str(values["service.name"])


def attributes(span: Span) -> dict[str, str]:
    return {pair.key: pair.value.string_value for pair in span.attributes}


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as receiver:
        thread = threading.Thread(target=receiver.serve_forever, daemon=True)
        thread.start()
        yield receiver
        receiver.shutdown()
        thread.join()


def test_one_trace_joins_publish_and_handler_across_processes(
    server: LocalServer, unique: str, receiver: Receiver, tmp_path: Path
) -> None:
    with jsync.connect(server.url) as nc:
        nc.jetstream().create_stream(name=unique, subjects=[f"{unique}.>"])
    for name, program in ("sender", SENDER), ("worker", WORKER):
        (tmp_path / "program.py").write_text(program)
        subprocess.run(
            [
                *(sys.executable, "-c", COMMAND),
                *(sys.executable, "program.py", server.url, unique),
            ],
            cwd=tmp_path,
            env=os.environ
            | {
                "OTEL_SERVICE_NAME": name,
                "OTEL_TRACES_EXPORTER": "otlp",
                "OTEL_METRICS_EXPORTER": "otlp",
                "OTEL_LOGS_EXPORTER": "none",
                "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
                "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{receiver.server_port}",
                "OTEL_PYTHON_TRACER_PROVIDER": "sdk_tracer_provider",
            },
            check=True,
            timeout=120,
        )
    (sent,), (handled,) = receiver.spans["sender"], receiver.spans["worker"]
    assert (sent.name, sent.kind) == (
        f"publish {unique}.a",
        Span.SPAN_KIND_PRODUCER,
    )
    assert handled.name == f"process {unique}"
    assert handled.kind == Span.SPAN_KIND_CONSUMER
    assert handled.trace_id == sent.trace_id
    assert handled.parent_span_id == sent.span_id
    assert [link.span_id for link in handled.links] == [sent.span_id]
    assert attributes(handled)["messaging.system"] == "nats"
    assert attributes(handled)["messaging.destination_publish.name"] == f"{unique}.a"
    assert {
        ("sender", "messaging.client.sent.messages"),
        ("worker", "messaging.process.duration"),
        ("worker", "messaging.client.consumed.messages"),
    } <= receiver.metrics
