"""The creation of the consumers that an ordered consumer reads one after the other."""

from __future__ import annotations

import contextlib
import math
from time import monotonic
from typing import TYPE_CHECKING

from ... import errors
from ..._fast import Mailbox, SequenceChecker, encode_publish, safe_finalizer
from ...errors import (
    Error,
    JetStreamUnavailableError,
    OrderedConsumerResetError,
    PermissionsError,
)
from ...models import ConsumerInfo, StreamInfo
from ...models.consumer import consumer_request
from ..api import answered
from ..pulls.inbox import PullTarget
from ..pulls.priority import NO_PRIORITY
from ..steps import APIRequest
from ..stream_end.driver import until_answered
from ..stream_end.engine import end_in
from .engine import NextAction, is_permanent

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..api import API
    from ..steps import Steps
    from ..stream_end.engine import StreamEnd
    from .engine import Cursor


class ConsumerFactory:
    """A stream, and the position and the consumers of an ordered consumer in it."""

    def __init__(self, api: API, stream: str, cursor: Cursor) -> None:
        self.api = api
        self.stream = stream
        self.cursor = cursor
        self.needs_end = False
        """True if the leader must report the stream's end before a consumer is made."""
        self.end: StreamEnd | None = None
        """The end of the stream before the consumer was made, or None if it is unknown."""
        self.deliver_subject: str | None = None
        """The subject that the next consumer sends to, or None for a pull consumer."""
        self.used_at = monotonic()
        """The time at which the consumer was last made or pulled from."""
        self.last_pull_empty = False
        """True if the consumer apparently had too few messages for the last pull."""
        # Commands that delete our consumers, which may exist on the server.
        self._deletions: list[bytes] = []

    def pull_target(self) -> PullTarget:
        """Return the consumer that continues from here."""
        name = self.cursor.name or self.cursor.prefix
        return PullTarget(self.api, f"{self.stream}.{name}", False, NO_PRIORITY, None)

    def create_steps(self) -> Steps[ConsumerInfo]:
        """Yield the requests that make the next consumer, and return it. See `send_next`.

        The caller reports the new consumer to the cursor with `Cursor.on_created`.
        """
        self.schedule_delete()
        self.end = None
        retention: str | None = "limits"
        try:
            reply = yield APIRequest(f"STREAM.INFO.{self.stream}")
        except PermissionsError:
            # An account without permission for the stream's info may still read the
            # stream.
            if self.cursor.needs_snapshot:
                raise
        else:
            info = StreamInfo.from_wire(reply)
            self.cursor.check_stream(info)
            retention = info.config.retention
            try:
                self.end = end_in(info)
            except JetStreamUnavailableError:
                if self.needs_end or self.cursor.needs_snapshot:
                    raise
            else:
                self.cursor.check_end(self.end)
        session = self.api.session
        config = self.cursor.next_config()
        if retention != "limits":
            # Servers refuse a consumer of fewer replicas than such a stream has.
            config = config.replace(num_replicas=None)
        if self.deliver_subject is not None:
            config = config.replace(deliver_subject=self.deliver_subject)
        elif config.inactive_threshold is None:
            config = config.replace(inactive_threshold=self.cursor.inactive_threshold)
        deletion = self._deletion(config.name or "")
        session.add_close_command(deletion)
        self._deletions.append(deletion)
        payload = {
            "stream_name": self.stream,
            "config": consumer_request(config),
            "action": "create",
        }
        subject = f"CONSUMER.CREATE.{self.stream}.{config.name}"
        reply = yield APIRequest(subject, payload, config.required_versions())
        return ConsumerInfo.from_wire(reply)

    def create(self, deadline: float) -> None:
        """Create the next consumer. Blocks. Raises the server's errors."""
        try:
            self.cursor.on_created(self.create_unbound(deadline))
            self.used_at = monotonic()
        except BaseException:
            self.schedule_delete()  # the server may have created it
            raise

    def create_unbound(self, deadline: float) -> ConsumerInfo:
        """Create the next consumer, without reporting it to the cursor. Blocks.

        If the stream's end must be known, waits until the stream has a leader.
        """
        return until_answered(self.api, self.create_steps, deadline)

    def delete_if_stalled(self, deadline: float) -> None:
        """Delete the consumer if it withholds messages. Blocks for a request."""
        cursor, name = self.cursor, self.cursor.name
        if name is None or not (self.last_pull_empty and cursor.may_stall(0)):
            return
        with contextlib.suppress(Error):  # the pull then reports the fault
            info = answered(self.api, self.consumer_info(), deadline)
            step = cursor.on_info(info, cursor.consumer_sequence, monotonic(), math.inf)
            if step is not NextAction.WAIT:
                self.schedule_delete()

    def create_with_retry(
        self, deadline: float, report: Callable[[Exception], object]
    ) -> None:
        """Retry `create` until `deadline`, and raise `TimeoutError` after that.

        An error that lasts, such as `StreamNotFoundError`, is raised immediately.
        """
        self.schedule_delete()
        while True:
            try:
                self.create(deadline)
                return
            except Error as error:
                if is_permanent(error):
                    raise
                if monotonic() >= deadline:  # the connection may only be down
                    raise errors.TimeoutError(
                        f"no consumer in time: {error}"
                    ) from error
                pause = self.cursor.on_request_failed(error)
                report(error)
                self._wait(min(pause, deadline - monotonic()))

    def consumer_info(self) -> Steps[ConsumerInfo]:
        """Yield the request for the info of the consumer, and return the info."""
        reply = yield APIRequest(f"CONSUMER.INFO.{self.stream}.{self.cursor.name}")
        return ConsumerInfo.from_wire(reply)

    def _wait(self, seconds: float) -> None:
        """Wait, but not after the connection is lost or closed."""
        session = self.api.session
        nothing = Mailbox(session.write_buffer, 0)
        token = session.reply_mux.add(nothing)
        try:
            nothing.get(max(0.0, seconds))
        finally:
            session.reply_mux.discard(token)

    def sequence_checker(self) -> SequenceChecker:
        """Return the order in which the consumer's messages must arrive."""
        cursor = self.cursor
        return SequenceChecker(
            cursor.position,
            last=cursor.last(),
            to_end=cursor.until is not None,
            consumer_sequence=cursor.consumer_sequence,
        )

    def record_arrival(self, at: float) -> None:
        """Note when the last message of a pull arrived.

        The server counts inactivity from the pull, not from its messages. A pull that
        waits for longer than `inactive_threshold` keeps the consumer until it ends.
        """
        if at - self.used_at >= self.cursor.inactive_threshold:
            self.used_at = at

    @property
    def is_expired(self) -> bool:
        """True if the server may have deleted the consumer, because it was not used."""
        return monotonic() - self.used_at >= self.cursor.inactive_threshold

    def reset_error(self, reason: Exception) -> OrderedConsumerResetError:
        """Return the warning that the consumer is lost and another one is being made."""
        error = OrderedConsumerResetError(
            f"lost the ordered consumer of {self.stream} after stream sequence "
            f"{self.cursor.position}: {reason}; creating another one"
        )
        error.__cause__ = reason
        return error

    def schedule_delete(self) -> None:
        """Delete the consumer, and earlier ones that may still exist.

        Does not wait, so finalisers may call it on any thread.
        """
        self.cursor.name = None
        close_commands = self.api.session.close_commands
        for deletion in list(self._deletions):
            # Deletions that are no longer among these commands have been written.
            if deletion not in close_commands or self._write(deletion):
                self._forget(deletion)

    def delete_nowait(self, name: str) -> None:
        """Delete one consumer without waiting for the reply."""
        self._write(self._deletion(name))

    def _deletion(self, name: str) -> bytes:
        return encode_publish(f"{self.api.prefix}.CONSUMER.DELETE.{self.stream}.{name}")

    def _write(self, deletion: bytes) -> bool:
        """Send a deletion. Returns False if it was not written, as when disconnected."""
        with contextlib.suppress(Error):
            return self.api.session.write_buffer.command(deletion)
        return False

    def _forget(self, deletion: bytes) -> None:
        self.api.session.close_commands.discard(deletion)
        with contextlib.suppress(ValueError):  # another thread was faster
            self._deletions.remove(deletion)

    @safe_finalizer
    def __del__(self) -> None:
        # No reader is left. Without a connection we cannot delete the consumer, so the
        # server removes it after its inactive_threshold.
        if getattr(self, "_deletions", None):  # None if Ctrl-C interrupted __init__
            self.schedule_delete()
            for deletion in list(self._deletions):
                self._forget(deletion)

    def __repr__(self) -> str:
        return f"<ConsumerFactory of {self.stream}, {self.cursor!r}>"
