"""One connection for each process and set of options, for programs that fork."""

from __future__ import annotations

import copy
import os
import warnings
from typing import TYPE_CHECKING, Any, Final, ParamSpec

from .connection import DEFAULT_SERVER, connect
from .core.monkey import lock_for_waits
from .core.sync import ForkSafeRLock

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .connection import Connection

Options = ParamSpec("Options")

MAX_USUAL: Final = 20
"""The number of connections above which the options are probably new in each call."""


class _SharedConnection:
    """The connection with one set of options, and the attempt to make it."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.options = options
        self._lock = lock_for_waits()
        self._connection: Connection | None = None
        self._attempts = 0
        self._error: Exception | None = None

    def get(self) -> Connection:
        """Return the open connection. The first thread makes it, and the others wait."""
        attempts = self._attempts
        if (connection := self._open_connection()) is not None:
            return connection
        with self._lock:
            if (connection := self._open_connection()) is not None:
                return connection
            if self._error is not None and attempts != self._attempts:
                # It failed while this thread waited. If each thread made another attempt,
                # the last one would wait for all the others.
                raise copy.copy(self._error) from self._error
            return self._connect()

    def _connect(self) -> Connection:
        self._error = None
        try:
            connection = connect(**self.options)
        except Exception as error:
            self._error = error
            raise
        finally:
            self._attempts += 1
        # A signal handler on this thread may have connected in the meantime.
        if (other := self._open_connection()) is not None:
            connection.close()
            return other
        self._connection = connection
        return connection

    def _open_connection(self) -> Connection | None:
        connection = self._connection
        return None if connection is None or connection.is_closed else connection


_lock: ForkSafeRLock
_shared: list[_SharedConnection]


def _forget() -> None:
    """Forget the connections in a forked child, since they belong to the parent."""
    global _lock, _shared
    _lock, _shared = ForkSafeRLock(), []


_forget()
if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_forget)


def _with_options_of(
    _: Callable[Options, Connection],
) -> Callable[[Callable[..., Connection]], Callable[Options, Connection]]:
    """Give a function the signature of `connect`, for type checkers."""
    return lambda function: function


@_with_options_of(connect)
def shared_connection(
    servers: str | Sequence[str] = DEFAULT_SERVER, **options: Any
) -> Connection:
    """Return the connection of this process with these options.

    The first call makes the connection, and blocks like `connect`. All later calls with the same
    options return it, on any thread. Threads that call at the same time wait for one attempt,
    and get its error if it fails. The next call tries again.

    A forked child gets a connection of its own, so that you can use this function in programs
    whose server forks its workers, such as gunicorn, uWSGI and Celery. A connection that was
    closed is replaced by the next call. jsync closes the connection when the process exits.

    Do not use it in a `with` statement, because that would close it for all threads.

    Args:
        servers: The servers, as in `connect`.
        **options: The other options of `connect`. Calls with equal options share a connection, so a
            callable such as `on_error` must be the same object in each call.

    Returns:
        The connection. Call it again instead of keeping it: after a fork, or after `close`, you
        get another one.

    Raises:
        ConnectionError: The server cannot be reached, or another error of `connect`.

    Example:
        ```python
        import jsync

        def publish_order(data: bytes) -> int:
            nc = jsync.shared_connection("nats://127.0.0.1:4222", connect_timeout=2)
            return nc.jetstream().publish("orders.new", data).seq
        ```
    """
    options["servers"] = servers
    with _lock:
        for shared in _shared:
            if shared.options == options:
                break
        else:
            shared = _SharedConnection(options)
            _shared.append(shared)
            if len(_shared) == MAX_USUAL:
                warnings.warn(
                    f"shared_connection was called with {MAX_USUAL} sets of options, and made "
                    "a connection for each: define callables such as on_error once, outside "
                    "of the function that calls it",
                    RuntimeWarning,
                    stacklevel=2,
                )
    return shared.get()
