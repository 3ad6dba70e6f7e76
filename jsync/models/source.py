"""Where a stream gets messages from, beside its subjects, and where it passes them on."""

from datetime import datetime
from typing import Annotated, Any

from ..errors import ConfigError
from .codec import Count
from .model import Model
from .name import check_filter, check_literal, check_name
from .since import Since


class SubjectTransform(Model, kw_only=True, frozen=True):
    """Messages of one subject are stored under another. Since nats-server 2.10."""

    src: str | None = ""
    """The subject to match, wildcards allowed. Default: all."""
    dest: str | None = None
    """The new subject, where `{{wildcard(1)}}` stands for what a wildcard matched."""

    def to_wire(self) -> dict[str, Any]:
        # The schemas of the API require both fields.
        return {"src": "", **Model.to_wire(self)}

    def _check(self) -> None:
        if self.src:
            check_filter(self.src, "src")
        if self.dest is None:
            raise ConfigError("dest: missing")


class Republish(Model, kw_only=True, frozen=True):
    """Messages are published again once they are stored. Since nats-server 2.8.3."""

    src: str | None = None
    """The subjects to publish again, wildcards allowed. Default: all."""
    dest: str | None = None
    """The subject to publish to, where `{{wildcard(1)}}` may stand."""
    headers_only: bool | None = None
    """Leave the payload out. Default: False."""

    def _check(self) -> None:
        if self.src:
            check_filter(self.src, "src")
        if not self.dest:
            raise ConfigError("dest: missing")


class External(Model, kw_only=True, frozen=True):
    """A stream in another account or domain. Since nats-server 2.2."""

    api: str | None = None
    """The prefix of that JetStream's API, `$JS.<domain>.API` for instance."""
    deliver: str | None = None
    """The prefix of the subjects that it delivers to. Default: none."""

    def _check(self) -> None:
        if not self.api:
            raise ConfigError("api: missing")
        check_literal(self.api, "api")
        if self.deliver:
            check_literal(self.deliver, "deliver")


class SourceConsumer(Model, kw_only=True, frozen=True):
    """A durable consumer of yours to read a source with. Since nats-server 2.14."""

    name: str | None = None
    """The consumer; it has ack policy `flow_control`."""
    deliver_subject: str | None = None
    """Where it delivers to."""

    def _check(self) -> None:
        if self.name is not None:
            check_name(self.name, "name")
        if self.deliver_subject:
            check_literal(self.deliver_subject, "deliver_subject")


class StreamSource(Model, kw_only=True, frozen=True):
    """A stream to copy from, as a mirror or as a source. Since nats-server 2.2."""

    name: str | None = None
    """The stream to copy."""
    opt_start_seq: Count | None = None
    """The sequence to start from. Default: the first."""
    opt_start_time: datetime | None = None
    """The time to start from. Default: the beginning."""
    filter_subject: str | None = None
    """Copy only these subjects, wildcards allowed. Default: all."""
    subject_transforms: list[SubjectTransform] | None = None
    """Copy only what matches one of these, under its new subject.

    Since nats-server 2.10.
    """
    external: External | None = None
    """Where the stream is, when in another account or domain. Default: this one."""
    consumer: Annotated[SourceConsumer | None, Since("2.14")] = None
    """A consumer of yours to copy with. Default: the server makes one.

    Since nats-server 2.14.
    """

    def _check(self) -> None:
        if self.name is None:
            raise ConfigError("name: missing")
        check_name(self.name, "name")
        if self.filter_subject:
            check_filter(self.filter_subject, "filter_subject")
