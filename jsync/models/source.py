"""Mirrors, sources, subject transforms and republishing of a stream."""

from datetime import datetime
from typing import Annotated, Any

from ..errors import ConfigError
from .codec import Count
from .model import Model
from .name import check_filter, check_literal, check_name
from .server_version import SinceVersion


class SubjectTransform(Model, kw_only=True, frozen=True):
    """A rule to store messages under another subject. Since nats-server 2.10.

    Example:
        ```python
        transform = jsync.SubjectTransform(src="in.*", dest="events.{{wildcard(1)}}")
        js.create_stream(name="EVENTS", subjects=["in.*"], subject_transform=transform)
        ```
    """

    src: str | None = ""
    """The subject to match, wildcards allowed. Default: all."""
    dest: str | None = None
    """The new subject. `{{wildcard(1)}}` stands for the text that a wildcard
    matched."""

    def to_wire(self) -> dict[str, Any]:
        """Return the JSON object, with both fields, which the API's schemas require."""
        return {"src": "", **Model.to_wire(self)}

    def _check(self) -> None:
        if self.src:
            check_filter(self.src, "src")
        if self.dest is None:
            raise ConfigError("dest: missing")


class Republish(Model, kw_only=True, frozen=True):
    """A rule to publish stored messages again. Since nats-server 2.8.3.

    Example:
        ```python
        republish = jsync.Republish(src="events.>", dest="live.events.>")
        js.create_stream(name="EVENTS", subjects=["events.>"], republish=republish)
        ```
    """

    src: str | None = None
    """The subjects to publish again, wildcards allowed. Default: all."""
    dest: str | None = None
    """The subject to publish to. It may have `{{wildcard(1)}}`."""
    headers_only: bool | None = None
    """Leave the payload out. Default: False."""

    def _check(self) -> None:
        if self.src:
            check_filter(self.src, "src")
        if not self.dest:
            raise ConfigError("dest: missing")


class External(Model, kw_only=True, frozen=True):
    """A stream in another account or domain. Since nats-server 2.2.

    Example:
        ```python
        hub = jsync.External(api="$JS.hub.API")
        source = jsync.StreamSource(name="ORDERS", external=hub)
        ```
    """

    api: str | None = None
    """The prefix of the other JetStream's API, such as `$JS.<domain>.API`."""
    deliver: str | None = None
    """The prefix of the subjects for delivery. Default: none."""

    def _check(self) -> None:
        if not self.api:
            raise ConfigError("api: missing")
        check_literal(self.api, "api")
        if self.deliver:
            check_literal(self.deliver, "deliver")


class SourceConsumer(Model, kw_only=True, frozen=True):
    """A durable consumer of yours to read a source with. Since nats-server 2.14.

    Example:
        ```python
        consumer = jsync.SourceConsumer(name="copies", deliver_subject="copies")
        source = jsync.StreamSource(name="ORDERS", consumer=consumer)
        ```
    """

    name: str | None = None
    """The name of the consumer, whose ack policy is `flow_control`."""
    deliver_subject: str | None = None
    """The subject that the consumer delivers to."""

    def _check(self) -> None:
        if self.name is not None:
            check_name(self.name, "name")
        if self.deliver_subject:
            check_literal(self.deliver_subject, "deliver_subject")


class StreamSource(Model, kw_only=True, frozen=True):
    """A stream to copy from, as a mirror or as a source. Since nats-server 2.2.

    Example:
        ```python
        js.create_stream(name="COPY", sources=[jsync.StreamSource(name="ORDERS")])
        ```
    """

    name: str | None = None
    """The name of the stream to copy."""
    opt_start_seq: Count | None = None
    """The sequence to start from. Default: the first."""
    opt_start_time: datetime | None = None
    """The time to start from. Default: the beginning."""
    filter_subject: str | None = None
    """Copy only these subjects, wildcards allowed. Default: all."""
    subject_transforms: list[SubjectTransform] | None = None
    """Rules: only matching messages are copied, under their new subjects.

    Since nats-server 2.10.
    """
    external: External | None = None
    """The account or domain of the stream. Default: this one."""
    consumer: Annotated[SourceConsumer | None, SinceVersion("2.14")] = None
    """Your consumer to copy with. Default: the server creates one.

    Since nats-server 2.14.
    """

    def _check(self) -> None:
        if self.name is None:
            raise ConfigError("name: missing")
        check_name(self.name, "name")
        if self.filter_subject:
            check_filter(self.filter_subject, "filter_subject")
