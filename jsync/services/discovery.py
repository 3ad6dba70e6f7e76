"""Find services of other programs, and call them (ADR-32)."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar, overload

import msgspec

from ..core.requests import request, request_many
from ..errors import ConfigError, Error, NoRespondersError, ServiceReplyError
from .bound_handler import RAW
from .engine import DEFAULT_PREFIX, check_prefix, control_subject, error_of
from .messages import ServiceInfo, ServicePing, ServiceStats

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .._fast import Msg
    from ..core.session import HasSession
    from ..headers import HeadersLike
    from .engine import Verb

Reply = TypeVar("Reply")
Answer = TypeVar("Answer", ServicePing, ServiceInfo, ServiceStats)


class Services:
    """Finds and calls services: `Connection.services`. Any thread may use it.

    Example:
        ```python
        with nc.service("prices", "1.0.0") as service:
            for info in nc.services.info("prices"):
                print(info.name, info.version)
        ```
    """

    def __init__(self, owner: HasSession) -> None:
        self._owner = owner

    def ping(
        self,
        name: str | None = None,
        instance_id: str | None = None,
        *,
        timeout: float = 2.0,
        stall: float = 0.3,
        prefix: str = DEFAULT_PREFIX,
    ) -> list[ServicePing]:
        """Find the running services, and measure how long each takes to answer.

        Blocks until no more answers come.

        Args:
            name: Only services of this name. Default: all.
            instance_id: Only this instance. It needs the name.
            timeout: Seconds to wait for all answers.
            stall: Seconds to wait for one more answer.
            prefix: The prefix of the control subjects. Services of another account may
                have one other than `$SRV`.

        Returns:
            One ping for each instance, in the order of the answers. The list is empty if
            no service answers.

        Raises:
            ConfigError: An argument is not valid. Nothing is sent.
            ConnectionLostError: The connection broke before the answers came.
            PermissionsError: You may not publish to the control subject.

        Example:
            ```python
            with nc.service("prices", "1.0.0") as service:

                @service.endpoint("price")
                def price(request: jsync.Request) -> None:
                    request.respond(b"9.50")

                for instance in nc.services.ping("prices"):
                    print(instance.name, instance.id)
            ```
        """
        sent_at = monotonic()
        return [
            ping.replace(rtt=received_at - sent_at)
            for ping, received_at in self._request(
                ServicePing, "PING", name, instance_id, timeout, stall, prefix
            )
        ]

    def info(
        self,
        name: str | None = None,
        instance_id: str | None = None,
        *,
        timeout: float = 2.0,
        stall: float = 0.3,
        prefix: str = DEFAULT_PREFIX,
    ) -> list[ServiceInfo]:
        """Get the configuration of services, and their endpoints.

        Blocks until no more answers come.

        Args:
            name: Only services of this name. Default: all.
            instance_id: Only this instance. It needs the name.
            timeout: Seconds to wait for all answers.
            stall: Seconds to wait for one more answer.
            prefix: The prefix of the control subjects. Services of another account may
                have one other than `$SRV`.

        Returns:
            One info for each instance, in the order of the answers. The list is empty if
            no service answers.

        Raises:
            ConfigError: An argument is not valid. Nothing is sent.
            ConnectionLostError: The connection broke before the answers came.
            PermissionsError: You may not publish to the control subject.

        Example:
            ```python
            with nc.service("prices", "1.0.0") as service:

                @service.endpoint("price")
                def price(request: jsync.Request) -> None:
                    request.respond(b"9.50")

                for info in nc.services.info("prices"):
                    print(info.name, info.version)
            ```
        """
        found = self._request(
            ServiceInfo, "INFO", name, instance_id, timeout, stall, prefix
        )
        return [info for info, _ in found]

    def stats(
        self,
        name: str | None = None,
        instance_id: str | None = None,
        *,
        timeout: float = 2.0,
        stall: float = 0.3,
        prefix: str = DEFAULT_PREFIX,
    ) -> list[ServiceStats]:
        """Get the statistics of services, endpoint by endpoint.

        Blocks until no more answers come.

        Args:
            name: Only services of this name. Default: all.
            instance_id: Only this instance. It needs the name.
            timeout: Seconds to wait for all answers.
            stall: Seconds to wait for one more answer.
            prefix: The prefix of the control subjects. Services of another account may
                have one other than `$SRV`.

        Returns:
            The statistics of each instance, in the order of the answers. The list is empty
            if no service answers.

        Raises:
            ConfigError: An argument is not valid. Nothing is sent.
            ConnectionLostError: The connection broke before the answers came.
            PermissionsError: You may not publish to the control subject.

        Example:
            ```python
            with nc.service("prices", "1.0.0") as service:

                @service.endpoint("price")
                def price(request: jsync.Request) -> None:
                    request.respond(b"9.50")

                for stats in nc.services.stats("prices"):
                    print(stats.endpoints[0].num_requests)
            ```
        """
        found = self._request(
            ServiceStats, "STATS", name, instance_id, timeout, stall, prefix
        )
        return [stats for stats, _ in found]

    def _request(
        self,
        kind: type[Answer],
        verb: Verb,
        name: str | None,
        instance_id: str | None,
        timeout: float,
        stall: float,
        prefix: str,
    ) -> Iterator[tuple[Answer, float]]:
        subject = control_subject(check_prefix(prefix), verb, name, instance_id)
        session = self._owner._session
        limit = None if instance_id is None else 1
        replies = request_many(session, subject, b"", timeout, stall, limit, None, None)
        try:
            for msg in replies:
                received_at = monotonic()
                try:
                    found = self._read(kind, msg)
                except Error as error:
                    # The error of one service must not hide the others.
                    session.callbacks.report(error)
                else:
                    yield found, received_at
        except NoRespondersError:
            return

    @staticmethod
    def _read(kind: type[Answer], msg: Msg) -> Answer:
        failure = error_of(msg)
        if failure is not None:
            raise failure
        try:
            wire = msgspec.json.decode(msg.data, type=dict[str, Any])
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ServiceReplyError(
                f"the answer of a service cannot be read: {error}"
            ) from error
        if not {"name", "id"} <= set(wire):
            raise ServiceReplyError("the answer of a service has no name and id")
        return kind.from_wire(wire)

    @overload
    def call(
        self,
        subject: str,
        data: object = b"",
        *,
        timeout: float = 5.0,
        headers: HeadersLike | None = None,
    ) -> Msg: ...
    @overload
    def call(
        self,
        subject: str,
        data: object = b"",
        *,
        reply_type: type[Reply],
        timeout: float = 5.0,
        headers: HeadersLike | None = None,
    ) -> Reply: ...
    def call(
        self,
        subject: str,
        data: object = b"",
        *,
        reply_type: type[Reply] | None = None,
        timeout: float = 5.0,
        headers: HeadersLike | None = None,
    ) -> Msg | Reply:
        """Send a request to a service, and block until the answer comes.

        Args:
            subject: The subject of the endpoint.
            data: The payload. Bytes are sent unchanged, and msgspec writes any other value
                as JSON.
            reply_type: The type of the answer. msgspec reads it from JSON. Default: return
                the message.
            timeout: Seconds to wait.
            headers: The headers of the request.

        Returns:
            The answer, as `reply_type` or as a message.

        Raises:
            ServiceError: The service answered with an error.
            ServiceReplyError: The answer is not of `reply_type`.
            NoRespondersError: No instance of the service is running.
            TimeoutError: No answer came in time. The service may still handle the request.
            ConnectionLostError: The connection broke before the answer came.
            ConfigError: `data` cannot be written as JSON. Nothing is sent.

        Example:
            ```python
            with nc.service("prices", "1.0.0") as service:

                @service.endpoint("price")
                def price(request: jsync.Request) -> None:
                    request.respond(b"9.50")

                print(nc.services.call("price", b"book").data)
            ```
        """
        if not isinstance(data, RAW):
            try:
                data = msgspec.json.encode(data)
            except (TypeError, ValueError, RecursionError) as error:
                raise ConfigError(
                    f"data cannot be written as JSON: {error}; pass bytes, or a type that "
                    "msgspec knows"
                ) from error
        msg = request(self._owner._session, subject, data, timeout, headers)
        failure = error_of(msg)
        if failure is not None:
            raise failure
        if reply_type is None:
            return msg
        try:
            return msgspec.json.decode(msg.data, type=reply_type)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ServiceReplyError(
                f"the reply of {subject!r} is no "
                f"{getattr(reply_type, '__name__', reply_type)}: {error}"
            ) from error
