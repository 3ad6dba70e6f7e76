"""The way of a message through servers and accounts. `Connection.trace` returns it."""

from .engine import (
    Egress,
    Ingress,
    ServiceImport,
    StreamExport,
    StreamIngress,
    SubjectMapping,
    Trace,
    TraceEvent,
    TraceHop,
    UnknownEvent,
)

__all__ = [
    "Egress",
    "Ingress",
    "ServiceImport",
    "StreamExport",
    "StreamIngress",
    "SubjectMapping",
    "Trace",
    "TraceEvent",
    "TraceHop",
    "UnknownEvent",
]
