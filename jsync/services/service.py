"""`Service` and `Group`: endpoints, statistics, and the end of a service (ADR-32)."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import msgspec

from .. import errors
from .._fast import check_subscribe_subject, ends_by, enter_self
from ..core.resources import NotCopyable
from ..handlers.context import wrap_in_context
from ..validation import check_bool, check_count, check_optional_callable, check_seconds
from .bound_handler import bind_handler
from .engine import (
    DEFAULT_PREFIX,
    DEFAULT_QUEUE,
    check_description,
    check_metadata,
    check_name,
    check_prefix,
    check_version,
    endpoint_subject,
    group_prefix,
)
from .messages import EndpointInfo, ServiceInfo
from .runner import ServiceRunner

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager
    from typing import Any

    from ..core.session import HasSession
    from ..validation import Seconds
    from .engine import ServiceState
    from .messages import EndpointStats, ServiceStats
    from .request import Request

Handler = TypeVar("Handler", bound="Callable[..., Any]")


class Group(NotCopyable):
    """Endpoints with a common subject prefix. A `Service` is the group without a prefix.

    Example:
        ```python
        service = nc.service("prices", "1.0.0")
        europe = service.group("europe")

        @europe.endpoint("total")
        def total(request: jsync.Request) -> None:
            request.respond(b"42")

        print(nc.request("europe.total").data)
        service.stop()
        ```
    """

    def __init__(self, driver: ServiceRunner, prefix: str, queue: str | None) -> None:
        self._driver = driver
        self._prefix = prefix
        self._queue = queue

    @property
    def prefix(self) -> str:
        """The prefix of the subjects, without the dot. It is empty for a service."""
        return self._prefix

    def endpoint(
        self,
        name: str,
        *,
        subject: str | None = None,
        queue: str | msgspec.UnsetType | None = msgspec.UNSET,
        metadata: Mapping[str, str] | None = None,
        workers: int = 1,
        max_pending_messages: int | None = None,
        max_pending_bytes: int | None = None,
    ) -> Callable[[Handler], Handler]:
        """Decorate a function that answers requests: `@service.endpoint("total")`.

        Does not block. The function runs on threads of the endpoint.

        The function takes a `Request`, the payload, or both in any order. An annotated
        parameter is the payload: use `bytes`, or a type that msgspec reads from JSON. If
        the JSON does not fit the type, the endpoint answers with error 400, which names
        the field. A parameter without an annotation is the `Request`.

        The function returns the answer: bytes, or with an annotation any type that msgspec
        writes as JSON. A function that takes the `Request` can call `Request.respond` and
        `Request.error` instead, also later, and return None. If the function takes only
        the payload, None is an empty answer.

        If the function raises `ServiceError`, the answer has its code and description.
        After any other exception, the answer is error 500 with the name of the exception's
        class, and the connection's `on_error` gets the exception.

        Args:
            name: The name: letters, digits, `-` and `_`.
            subject: The subject below the prefix of the group. Wildcards are allowed.
                Default: `name`.
            queue: The queue group. None: every instance gets every request. Default: the
                queue group of the group.
            metadata: More about the endpoint, as strings. The JSON schemas of the types
                are added as `request_schema` and `response_schema`.
            workers: The number of threads that call the function.
            max_pending_messages: The number of requests that may wait for a thread.
                Further requests are rejected with error 503, and `on_error` gets one
                `SlowConsumerError` for each overload. Default: that of the connection.
            max_pending_bytes: The same limit in bytes.

        Returns:
            The decorator. It returns the function unchanged, so you can call it in tests.

        Raises:
            ConfigError: An argument or an annotation is not valid.
            InvalidSubjectError: The subject or the queue group is not valid.
            SubscriptionClosedError: The service was stopped.
            ConnectionClosedError: The connection is closed.

        Example:
            ```python
            with nc.service("prices", "1.0.0") as service:

                @service.endpoint("price")
                def price(request: jsync.Request) -> None:
                    request.respond(b"9.50")

                print(nc.request("price", b"book").data)
            ```
        """
        name = check_name(name, "the name of an endpoint")
        group = self._queue if queue is msgspec.UNSET else queue
        where = endpoint_subject(self._prefix, name, subject)
        check_subscribe_subject(where, group)
        more = check_metadata(metadata)
        workers = check_count(workers, "workers", 1, 10_000)
        options = self._driver.session.options
        limits = [
            default if limit is None else check_count(limit, what, 1)
            for what, limit, default in (
                (
                    "max_pending_messages",
                    max_pending_messages,
                    options.max_pending_messages,
                ),
                ("max_pending_bytes", max_pending_bytes, options.max_pending_bytes),
            )
        ]

        def add(handler: Handler) -> Handler:
            bound = bind_handler(handler)
            bound = bound._replace(
                call=wrap_in_context(self._driver.around, bound.call)
            )
            info = EndpointInfo(
                name=name,
                subject=where,
                queue_group=group or "",
                metadata={**bound.schemas, **more},
            )
            self._driver.add(info, bound, workers, *limits)
            return handler

        return add

    def group(
        self, name: str, *, queue: str | msgspec.UnsetType | None = msgspec.UNSET
    ) -> Group:
        """Create a group below this one. Does not block.

        The subjects of the endpoints begin with the prefix of this group and `name`.

        Args:
            name: A subject without `>`. Empty: the prefix stays the same.
            queue: The queue group of the endpoints. None: every instance gets every
                request. Default: the queue group of this group.

        Returns:
            The group.

        Raises:
            ConfigError: The name is not valid.
            InvalidSubjectError: The queue group is not valid.

        Example:
            ```python
            with nc.service("prices", "1.0.0") as service:
                europe = service.group("europe")

                @europe.endpoint("price")
                def price(request: jsync.Request) -> None:
                    request.respond(b"9.50")

                print(nc.request("europe.price", b"book").data)
            ```
        """
        own = self._queue if queue is msgspec.UNSET else queue
        if own is not None:
            check_subscribe_subject("q", own)
        return Group(self._driver, group_prefix(self._prefix, name), own)

    def __repr__(self) -> str:
        return f"<Group {self._prefix!r} of {self._driver!r}>"


class Service(Group):
    """An instance of a service. `Connection.service` returns it. Any thread may use it.

    Leaving the `with` block stops the service, and so does a drain of the connection.

    Example:
        ```python
        service = nc.service("prices", "1.0.0")

        @service.endpoint("total")
        def total(request: jsync.Request) -> None:
            request.respond(str(len(request.data)).encode())

        print(nc.request("total", b"abc").data)
        service.stop()
        ```
    """

    def __init__(
        self,
        owner: HasSession,
        name: str,
        version: str,
        *,
        description: str = "",
        metadata: Mapping[str, str] | None = None,
        queue: str | None = DEFAULT_QUEUE,
        stats_handler: Callable[[EndpointStats], object] | None = None,
        on_done: Callable[[Service], object] | None = None,
        expose_errors: bool = False,
        around: Callable[[Request], AbstractContextManager[Any]] | None = None,
        prefix: str = DEFAULT_PREFIX,
    ) -> None:
        session = owner._session
        session.check_open()
        check_optional_callable(stats_handler, "stats_handler")
        check_optional_callable(on_done, "on_done")
        check_optional_callable(around, "around")
        if queue is not None:
            check_subscribe_subject("q", queue)
        info = ServiceInfo(
            name=check_name(name, "the name of a service"),
            version=check_version(version),
            description=check_description(description),
            metadata=check_metadata(metadata),
        )
        self._owner = owner  # keeps the connection alive
        driver = ServiceRunner(
            session,
            info,
            check_prefix(prefix),
            stats_handler=stats_handler,
            on_done=lambda _: None if on_done is None else on_done(self),
            expose_errors=check_bool(expose_errors, "expose_errors"),
            around=around,
        )
        super().__init__(driver, "", queue)

    def _begin(self) -> None:
        driver = self._driver
        try:
            driver.start_control()
            driver.session.register_drainable(driver)
        except BaseException:  # Ctrl-C, after which the caller cannot stop the service
            driver.abort()
            raise

    @property
    def id(self) -> str:
        """The unique id of this instance."""
        return self._driver.id

    @property
    def state(self) -> ServiceState:
        """The state: `running`, `stopping` or `stopped`."""
        return self._driver.state

    @property
    def error(self) -> Exception | None:
        """The error that ended the service, or that you gave to `stop`."""
        return self._driver.error

    def info(self) -> ServiceInfo:
        """Return the configuration and the endpoints, as the answer to INFO. Does not block.

        Example:
            ```python
            with nc.service("prices", "1.0.0") as service:

                @service.endpoint("price")
                def price(request: jsync.Request) -> None:
                    request.respond(b"9.50")

                print(service.info().endpoints[0].subject)
            ```
        """
        return self._driver.info()

    def stats(self) -> ServiceStats:
        """Return the statistics of the endpoints, as the answer to STATS.

        Calls your `stats_handler` on this thread.

        Returns:
            The statistics since the start or the last `reset`.
        """
        self._driver.session.write_buffer.check_process()
        return self._driver.stats_now()

    def reset(self) -> None:
        """Set all statistics to zero, and the start time to now."""
        self._driver.session.write_buffer.check_process()
        self._driver.reset()

    def wait(self, timeout: Seconds | None = None) -> bool:
        """Block until the service has stopped. Ctrl-C ends the wait.

        Args:
            timeout: Seconds to wait. None: no limit.

        Returns:
            True if the service has stopped, False after `timeout`.

        Raises:
            PermissionsError: You may not subscribe to a subject of the service, so it was
                stopped.
            ConnectionClosedError: The connection was closed.
            BlockingCallError: A handler of the service, or `on_done`, called `wait`.
            Exception: The error that you gave to `stop`.

        Example:
            ```python
            import threading

            service = nc.service("prices", "1.0.0")
            threading.Timer(0.2, service.stop).start()  # a signal handler, for example
            service.wait(timeout=10)
            ```
        """
        return self._driver.wait(
            None if timeout is None else check_seconds(timeout, "timeout")
        )

    def stop(
        self, error: Exception | None = None, *, timeout: Seconds | None = None
    ) -> None:
        """Take no more requests, and finish those that have come.

        Blocks until all handlers have returned. You may call `stop` from any thread, from
        a signal handler, and twice. In a handler and in `on_done`, `stop` does not wait.

        Args:
            error: The reason, for `wait` and `error`.
            timeout: Seconds to wait. Default: `drain_timeout` of the connection.

        Raises:
            DrainTimeoutError: A handler has not returned in time. Waiting requests were
                rejected with error 503.

        Example:
            ```python
            service = nc.service("prices", "1.0.0")
            service.stop(timeout=10)  # lets running handlers finish
            ```
        """
        limit = self._driver.session.options.drain_timeout
        self._driver.stop(
            error, limit if timeout is None else check_seconds(timeout, "timeout")
        )

    __enter__ = enter_self

    @ends_by(lambda self: self._driver.stop_in_background(None))
    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if self._driver.session.forked:
            return  # the service belongs to the parent
        try:
            self.stop()
        except errors.TimeoutError as late:
            if error is None:
                raise
            error.add_note(str(late))

    def __repr__(self) -> str:
        info = self._driver.info()
        return (
            f"<Service {info.name} {info.version} {self.state.value}, "
            f"{len(info.endpoints)} endpoints>"
        )
