"""The messages that a process works on, and the acks of those that it is done with.

An ack that was sent right before the connection broke may not have arrived, and the server
would deliver the message again after `ack_wait`. Acks are therefore sent once more after a
reconnect, unless a round trip showed that they had arrived. A message that comes again while
this process works on it, or right after, is not worked on twice.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from time import monotonic
from typing import NamedTuple

import jsync
from jsync.errors import (
    ConnectionClosedError,
    ConnectionError as LostError,
    Error,
)

log = logging.getLogger("jsync.kombu")

TICK_SECONDS = 1.0
DOUBT_SECONDS = 5.0
"""An ack that is younger is sent again after a reconnect even if a server had read it: that
server may not have passed it on to the leader of the consumer."""
MEMORY_SECONDS = 120.0
MAX_REMEMBERED = 20_000
"""Messages that were settled and whose acks have arrived."""


class Key(NamedTuple):
    """One stored message. A stream that was made again has other timestamps."""

    stream: str
    sequence: int
    timestamp_ns: int


class Settled(NamedTuple):
    """The end of a message."""

    number: int
    when: float
    reply: str
    payload: bytes


def key_of(msg: jsync.JetStreamMsg) -> Key:
    """Return what a delivery has in common with other deliveries of the message."""
    meta = msg.metadata
    return Key(meta.stream, meta.stream_sequence, meta.timestamp_ns)


class DeliveryTracker:
    """The messages of streams that this process works on, and their acks.

    Any thread may use it. Messages that are not of a stream have no acks, and are ignored.
    """

    def __init__(self, nc: jsync.Connection) -> None:
        self._nc = nc
        self._lock = threading.Lock()
        self._open: dict[Key, jsync.JetStreamMsg] = {}
        self._settled: OrderedDict[Key, Settled] = OrderedDict()
        self._number = 0
        self._arrived = 0
        """The server has read the acks up to this number."""
        self._reconnects = 0
        """The number of reconnects when acks were last sent again."""
        self._failed = False
        """Whether an ack could not be sent."""

    def begin(self, msg: jsync.JetStreamMsg) -> bool:
        """Note that the process has a message. False: it had the message before.

        A message that was settled before is settled again.
        """
        key = key_of(msg)
        with self._lock:
            if key in self._open:
                return False
            settled = self._settled.get(key)
            if settled is None:
                self._open[key] = msg
                return True
        if msg.reply:
            self._nc.publish(msg.reply, settled.payload)
        return False

    def ack(self, msg: jsync.Msg) -> None:
        """Acknowledge a message. Does not wait for the server."""
        if isinstance(msg, jsync.JetStreamMsg):
            self._settle(msg, b"+ACK")

    def term(self, msg: jsync.Msg) -> None:
        """Drop a message. Does not wait for the server."""
        if isinstance(msg, jsync.JetStreamMsg):
            self._settle(msg, b"+TERM")

    def _settle(self, msg: jsync.JetStreamMsg, payload: bytes) -> None:
        key = key_of(msg)
        with self._lock:
            self._open.pop(key, None)
            self._number += 1
            now = monotonic()
            self._settled[key] = Settled(self._number, now, msg.reply or "", payload)
            self._forget(now)
        try:
            if payload == b"+ACK":
                msg.ack()
            else:
                msg.term()
        except ConnectionClosedError:
            raise
        except (LostError, TimeoutError) as error:
            self._failed = True  # the extender sends it again
            log.info("an ack has to be sent later: %s", error)

    def give_back(self, msg: jsync.Msg) -> None:
        """Have the server deliver a message again, to any consumer.

        If the connection is broken or closed, the server does so after `ack_wait`.
        """
        if not isinstance(msg, jsync.JetStreamMsg):
            return
        with self._lock:
            self._open.pop(key_of(msg), None)
        try:
            msg.nak()
        except (LostError, TimeoutError) as error:
            log.info("a message comes again after ack_wait only: %s", error)

    def _forget(self, now: float) -> None:
        while self._settled:
            key, oldest = next(iter(self._settled.items()))
            if oldest.number > self._arrived or (
                len(self._settled) <= MAX_REMEMBERED
                and now - oldest.when < MEMORY_SECONDS
            ):
                return
            del self._settled[key]

    # The extender ---------------------------------------------------------------------

    def extend(self) -> None:
        """Tell the server that the messages are worked on."""
        with self._lock:
            here = list(self._open.values())
        for msg in here:
            msg.in_progress()

    def send_again(self) -> None:
        """Send the acks again that may have been lost, if there was a reconnect."""
        reconnects = self._nc.stats().reconnects
        if reconnects == self._reconnects and not self._failed:
            return
        doubtful = monotonic() - DOUBT_SECONDS
        with self._lock:
            lost = [
                settled
                for settled in self._settled.values()
                if settled.number > self._arrived or settled.when > doubtful
            ]
        self._failed = False
        for settled in lost:
            self._nc.publish(settled.reply, settled.payload)
        self._reconnects = reconnects

    def confirm(self, timeout: float) -> None:
        """Wait until the server has read all acks. Blocks.

        Raises:
            TimeoutError: The server has not answered in time.
            ConnectionError: The connection was lost.
        """
        with self._lock:
            number = self._number
        if number == self._arrived and not self._failed:
            return
        self.send_again()
        self._nc.flush(timeout)
        if self._nc.stats().reconnects == self._reconnects and not self._failed:
            self._arrived = number


class AckExtender(threading.Thread):
    """Tells the server regularly that the messages of this process are worked on."""

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
        self._begun = False

    def serve(self, ack_wait: float) -> None:
        """Be often enough for a consumer with this `ack_wait`. The first call starts."""
        with self._lock:
            self._seconds = min(self._seconds, ack_wait / 3)
            first, self._begun = not self._begun, True
        if first:
            self.start()

    def run(self) -> None:
        """Until `stop`, or until the connection is closed."""
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
                continue  # there is nobody to tell
            try:
                self._tracker.send_again()
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
        if self._begun:
            self.join(5)
