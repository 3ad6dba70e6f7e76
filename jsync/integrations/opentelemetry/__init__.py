"""Traces and metrics by OpenTelemetry: `JsyncInstrumentor().instrument()`.

The extra `otel` installs the API that this needs. The command `opentelemetry-instrument`
finds the instrumentor automatically.
"""

from .instrumentor import JsyncInstrumentor
from .telemetry import process

__all__ = ["JsyncInstrumentor", "process"]
