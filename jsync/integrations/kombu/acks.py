"""The messages that a process is handling, and the acks of handled messages.

If the connection breaks right after an ack was sent, the ack may not have arrived, and the
server would deliver the message again after `ack_wait`. Acks are therefore sent again after
a reconnect, unless a round trip has shown that they arrived. If a message is redelivered
while this process is handling it, or soon after, it is not handled twice.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from time import monotonic
from typing import NamedTuple

import jsync
from jsync import errors
from jsync.errors import ConnectionClosedError, Error

log = logging.getLogger("jsync.kombu")

TICK_SECONDS = 1.0
RESEND_AFTER = 5.0
"""Seconds for which an ack is sent again after a reconnect even if a server has read it,
because that server may not have passed it on to the leader of the consumer."""
MEMORY_SECONDS = 120.0
MAX_REMEMBERED = 20_000
"""The most acks that are remembered after they have arrived."""


class Key(NamedTuple):
    """The key of a stored message. A recreated stream has other timestamps."""

    stream: str
    sequence: int
    timestamp_ns: int


class SentAck(NamedTuple):
    """The ack of a message, which may need to be sent again."""

    number: int
    sent_at: float
    reply: str
    payload: bytes


def key_of(msg: jsync.JetStreamMsg) -> Key:
    """Return the key of a message, which all of its deliveries share."""
    meta = msg.metadata
    return Key(meta.stream, meta.stream_sequence, meta.timestamp_ns)


class DeliveryTracker:
    """The messages of streams that this process is handling, and their acks.

    Any thread may use it. Messages without a stream have no acks, and are ignored.
    """

    def __init__(self, nc: jsync.Connection) -> None:
        self._nc = nc
        self._lock = threading.Lock()
        self._unacked: dict[Key, jsync.JetStreamMsg] = {}
        self._sent_acks: OrderedDict[Key, SentAck] = OrderedDict()
        self._number = 0
        self._sending: set[int] = set()
        """The numbers of the acks that are being sent."""
        self._confirmed = 0
        """The number of the last ack that the server has read."""
        self._reconnects = 0
        """The number of reconnects when acks were last sent again."""
        self._failed = False
        """True if an ack could not be sent."""

    def begin(self, msg: jsync.JetStreamMsg) -> bool:
        """Record a message. Return False if this process had the message before.

        If the message was acknowledged, its ack is sent again.
        """
        key = key_of(msg)
        with self._lock:
            if key in self._unacked:
                return False
            sent = self._sent_acks.get(key)
            if sent is None:
                self._unacked[key] = msg
                return True
        if msg.reply:
            self._nc.publish(msg.reply, sent.payload)
        return False

    def ack(self, msg: jsync.Msg) -> None:
        """Acknowledge a message, without waiting for the server."""
        if isinstance(msg, jsync.JetStreamMsg):
            self._send_ack(msg, b"+ACK")

    def term(self, msg: jsync.Msg) -> None:
        """Drop a message, without waiting for the server."""
        if isinstance(msg, jsync.JetStreamMsg):
            self._send_ack(msg, b"+TERM")

    def _send_ack(self, msg: jsync.JetStreamMsg, payload: bytes) -> None:
        key = key_of(msg)
        with self._lock:
            self._unacked.pop(key, None)
            self._number = number = self._number + 1
            now = monotonic()
            self._sent_acks[key] = SentAck(number, now, msg.reply or "", payload)
            self._sending.add(number)
            self._forget(now)
        try:
            if payload == b"+ACK":
                msg.ack()
            else:
                msg.term()
        except ConnectionClosedError:
            raise
        except (errors.ConnectionError, TimeoutError) as error:
            self._failed = True  # the extender sends it again
            log.info("an ack has to be sent later: %s", error)
        finally:
            with self._lock:
                self._sending.discard(number)

    def nak(self, msg: jsync.Msg) -> None:
        """Return a message to the server, which delivers it again to any worker.

        If the connection is broken or closed, this happens only after `ack_wait`.
        """
        if not isinstance(msg, jsync.JetStreamMsg):
            return
        with self._lock:
            self._unacked.pop(key_of(msg), None)
        try:
            msg.nak()
        except (errors.ConnectionError, TimeoutError) as error:
            log.info("a message comes again after ack_wait only: %s", error)

    def _forget(self, now: float) -> None:
        while self._sent_acks:
            key, oldest = next(iter(self._sent_acks.items()))
            if oldest.number > self._confirmed or (
                len(self._sent_acks) <= MAX_REMEMBERED
                and now - oldest.sent_at < MEMORY_SECONDS
            ):
                return
            del self._sent_acks[key]

    # The extender ---------------------------------------------------------------------

    def extend(self) -> None:
        """Request more time from the server for all messages that are being handled."""
        with self._lock:
            here = list(self._unacked.values())
        for msg in here:
            msg.in_progress()

    def resend_acks(self) -> None:
        """Send acks that may be lost again, after a reconnect or a failed ack."""
        reconnects = self._nc.stats().reconnects
        if reconnects == self._reconnects and not self._failed:
            return
        doubtful = monotonic() - RESEND_AFTER
        with self._lock:
            lost = [
                sent
                for sent in self._sent_acks.values()
                if sent.number > self._confirmed or sent.sent_at > doubtful
            ]
        self._failed = False
        try:
            for sent in lost:
                self._nc.publish(sent.reply, sent.payload)
        except BaseException:
            self._failed = True
            raise
        self._reconnects = reconnects

    def confirm(self, timeout: float) -> None:
        """Block until the server has read all acks.

        Raises:
            TimeoutError: The server has not answered in time.
            ConnectionError: The connection was lost.
        """
        with self._lock:
            # The flush does not show the arrival of an ack that is sent after it.
            number = min(self._sending, default=self._number + 1) - 1
        if number == self._confirmed and not self._failed:
            return
        self.resend_acks()
        self._nc.flush(timeout)
        if self._nc.stats().reconnects == self._reconnects and not self._failed:
            self._confirmed = number


class AckExtender(threading.Thread):
    """A thread that regularly requests more time from the server for the messages in hand."""

    def __init__(
        self, nc: jsync.Connection, tracker: DeliveryTracker, timeout: float
    ) -> None:
        super().__init__(name="jsync-kombu-acks", daemon=True)
        self._nc = nc
        self._tracker = tracker
        self._timeout = timeout
        self._events = nc.events()
        self._lock = threading.Lock()
        self._seconds = 10.0
        self._serving = False

    def serve(self, ack_wait: float) -> None:
        """Extend often enough for this `ack_wait`. The first call starts the thread."""
        with self._lock:
            self._seconds = min(self._seconds, ack_wait / 3)
            first, self._serving = not self._serving, True
        if first:
            self.start()

    def run(self) -> None:
        """Run until `stop`, or until the connection is closed."""
        due = monotonic()
        while True:
            try:
                event = self._events.next(min(TICK_SECONDS, self._seconds))
                if isinstance(event, jsync.Reconnected):
                    due = monotonic()
            except TimeoutError:
                pass
            except Error:  # the connection or the events are closed
                return
            if not self._nc.is_connected:
                continue  # no server can be reached
            try:
                self._tracker.resend_acks()
                if monotonic() >= due:
                    self._tracker.extend()
                    due = monotonic() + self._seconds
                self._tracker.confirm(min(self._timeout, self._seconds))
            except ConnectionClosedError:
                return
            except Error as error:
                log.info("cannot extend the time of messages: %s", error)

    def stop(self) -> None:
        """End the thread."""
        self._events.close()
        if self._serving:
            self.join(5)
