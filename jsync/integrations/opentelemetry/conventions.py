"""The semantic conventions of messaging, for messages of NATS. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import jsync
from jsync.subjects import covers

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

SCHEMA: Final = "https://opentelemetry.io/schemas/1.37.0"
"""The version of the conventions. The conventions of messaging are not stable yet."""
SYSTEM: Final = "nats"
INBOXES: Final = ("_INBOX.",)
"""The prefixes of reply subjects, which are temporary and different each time."""

DURATIONS: Final = (
    *(0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5),
    *(0.75, 1.0, 2.5, 5.0, 7.5, 10.0),
)
"""The bounds that the conventions advise for histograms of seconds."""

Attributes = dict[str, "str | int | bool"]


def base_attributes(operation: str, kind: str) -> Attributes:
    """Return the attributes of all spans and metrics: the operation and its type."""
    return {
        "messaging.system": SYSTEM,
        "messaging.operation.name": operation,
        "messaging.operation.type": kind,
    }


def destination_attributes(subject: str, template: str | None = None) -> Attributes:
    """Return the attributes of a subject of core NATS, or of any publish."""
    found: Attributes = {"messaging.destination.name": subject}
    if template is not None:
        found["messaging.destination.template"] = template
    elif subject.startswith(INBOXES):
        found["messaging.destination.temporary"] = True
    return found


def consumer_attributes(
    msg: jsync.Msg, template: str | None = None, queue: str | None = None
) -> Attributes:
    """Return the attributes of the source of a received message.

    For a message of JetStream, the stream is the source, and the subject is added.
    """
    if isinstance(msg, jsync.JetStreamMsg):
        metadata = msg.metadata
        return {
            "messaging.destination.name": metadata.stream,
            "messaging.destination_publish.name": msg.subject,
            "messaging.destination.subscription.name": metadata.consumer,
        }
    found = destination_attributes(msg.subject, template)
    if queue is not None:
        found["messaging.consumer.group.name"] = queue
    return found


def message_attributes(msg: jsync.Msg) -> Attributes:
    """Return the attributes of the message itself."""
    found: Attributes = {"messaging.message.body.size": len(msg.data)}
    headers = msg.headers
    if headers is not None and "Nats-Msg-Id" in headers:
        found["messaging.message.id"] = headers["Nats-Msg-Id"]
    return found


def span_name(operation: str, where: Attributes) -> str:
    """Return the operation and its destination, unless the destination is temporary."""
    template = where.get("messaging.destination.template")
    if template is None and "messaging.destination.temporary" not in where:
        template = where.get("messaging.destination.name")
    return operation if template is None else f"{operation} {template}"


def metric_attributes(where: Attributes) -> Attributes:
    """Return the attributes of a destination for metrics, without plain subjects.

    A metric needs attributes with few values, and there may be many subjects.
    """
    stream = "messaging.destination.subscription.name" in where
    return {
        name: value
        for name, value in where.items()
        if name != "messaging.destination_publish.name"
        and (name != "messaging.destination.name" or stream)
    }


def error_type(error: BaseException) -> str:
    """Return the value of `error.type`: the class of an exception, with its module."""
    kind = type(error)
    module = kind.__module__
    return (
        kind.__qualname__ if module == "builtins" else f"{module}.{kind.__qualname__}"
    )


class SubjectTemplates:
    """Patterns with the wildcards of NATS, which replace subjects with few messages."""

    def __init__(self, patterns: Iterable[str] = ()) -> None:
        self._patterns = [*patterns]

    def of(self, subject: str) -> str | None:
        """Return the first pattern that matches a subject."""
        return next((one for one in self._patterns if covers(one, subject)), None)


def has_trace_context(
    headers: Mapping[str, object] | None, fields: Iterable[str]
) -> bool:
    """Return whether the user has already put a context into headers."""
    if not headers:
        return False
    names = {field.lower() for field in fields}
    return any(name.lower() in names for name in headers)
