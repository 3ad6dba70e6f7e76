"""The answers of a service to PING, INFO and STATS (ADR-32). Pure."""

from datetime import datetime
from typing import Any, Final

import msgspec

from ..models.codec import Seconds
from ..models.model import Model, fields_of

PING_TYPE: Final = "io.nats.micro.v1.ping_response"
INFO_TYPE: Final = "io.nats.micro.v1.info_response"
STATS_TYPE: Final = "io.nats.micro.v1.stats_response"


class ServiceMessage(Model, kw_only=True, frozen=True):
    """A part of an answer. Every field is sent, since other clients expect it."""

    def to_wire(self) -> dict[str, Any]:
        """Return the JSON object of ADR-32."""
        wire = dict(self.extra)
        for name, field in fields_of(type(self)).items():
            value = getattr(self, name)
            wire[name] = None if value is None else field.codec.write(value)
        return wire


class ServicePing(ServiceMessage, kw_only=True, frozen=True):
    """The answer of an instance of a service to PING.

    Example:
        ```python
        with nc.service("prices", "1.0.0"):
            for ping in nc.services.ping():
                print(ping.name, ping.id)
        ```
    """

    type: str = PING_TYPE
    name: str = ""
    """The name of the service."""
    id: str = ""
    """The id of the instance."""
    version: str = ""
    metadata: dict[str, str] = msgspec.field(default_factory=dict)
    rtt: Seconds | None = None
    """Seconds from the request to this answer. The requester measures them."""

    def to_wire(self) -> dict[str, Any]:
        """Return the JSON object of ADR-32, without `rtt`."""
        wire = super().to_wire()
        del wire["rtt"]
        return wire


class EndpointInfo(ServiceMessage, kw_only=True, frozen=True):
    """The configuration of an endpoint.

    Example:
        ```python
        with nc.service("prices", "1.0.0") as service:
            service.endpoint("total")(lambda request: request.respond(b"42"))
            for endpoint in service.info().endpoints:
                print(endpoint.name, endpoint.subject)
        ```
    """

    name: str = ""
    subject: str = ""
    """The subject that the endpoint listens on."""
    queue_group: str = ""
    """The queue group. It is empty if every instance gets every request."""
    metadata: dict[str, str] = msgspec.field(default_factory=dict)
    """More about the endpoint. For an endpoint with types, jsync adds the JSON schemas
    `request_schema` and `response_schema`."""


class ServiceInfo(ServiceMessage, kw_only=True, frozen=True):
    """The configuration of an instance of a service.

    Example:
        ```python
        with nc.service("prices", "1.0.0") as service:
            print(service.info().endpoints)
        ```
    """

    type: str = INFO_TYPE
    name: str = ""
    """The name of the service."""
    id: str = ""
    """The id of the instance."""
    version: str = ""
    metadata: dict[str, str] = msgspec.field(default_factory=dict)
    description: str = ""
    endpoints: list[EndpointInfo] = msgspec.field(default_factory=list)


class EndpointStats(ServiceMessage, kw_only=True, frozen=True):
    """The statistics of an endpoint since its start or the last reset.

    Example:
        ```python
        with nc.service("prices", "1.0.0") as service:
            service.endpoint("total")(lambda request: request.respond(b"42"))
            for endpoint in service.stats().endpoints:
                print(endpoint.name, endpoint.num_requests, endpoint.num_errors)
        ```
    """

    name: str = ""
    subject: str = ""
    """The subject that the endpoint listens on."""
    queue_group: str = ""
    """The queue group. It is empty if every instance gets every request."""
    num_requests: int = 0
    """Requests that a handler began, or that the endpoint rejected."""
    num_errors: int = 0
    """Requests that the endpoint answered with an error."""
    last_error: str = ""
    """The last of these errors, as `code:description`."""
    data: Any = None
    """The return value of the `stats_handler` of the service."""
    processing_time: Seconds = 0.0
    """Seconds that all calls of the handler took together."""
    average_processing_time: Seconds = 0.0
    """The `processing_time` divided by the number of requests, in seconds."""

    def to_wire(self) -> dict[str, Any]:
        """Return the JSON object of ADR-32. An unset `data` is left out."""
        wire = super().to_wire()
        if self.data is None:
            del wire["data"]
        return wire


class ServiceStats(ServiceMessage, kw_only=True, frozen=True):
    """The statistics of an instance of a service.

    Example:
        ```python
        with nc.service("prices", "1.0.0") as service:
            print(service.stats().started)
        ```
    """

    type: str = STATS_TYPE
    name: str = ""
    """The name of the service."""
    id: str = ""
    """The id of the instance."""
    version: str = ""
    metadata: dict[str, str] = msgspec.field(default_factory=dict)
    started: datetime | None = None
    """The time of the start or of the last reset, in UTC."""
    endpoints: list[EndpointStats] = msgspec.field(default_factory=list)
