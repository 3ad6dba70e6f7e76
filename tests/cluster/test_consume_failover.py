"""Tests of consuming from a replicated stream while leaders change and servers die."""

from __future__ import annotations

import contextlib
import json
import logging
import threading
from time import monotonic
from typing import TYPE_CHECKING, Any

import pytest

from jsync import errors

from ..support.connection_faults import Events, connect
from ..support.servers import monitor, wait_for
from ..support.threads import Recorder, Thread

if TYPE_CHECKING:
    from typing import Self

    import jsync
    from jsync.server import LocalServer

    from ..support.servers import Cluster

pytestmark = pytest.mark.cluster

QUICK: dict[str, Any] = {"expires": 2.0, "idle_heartbeat": 0.5, "max_messages": 50}
LONG = 120.0
ALARM = 2 * QUICK["idle_heartbeat"]
ELECTION = 30.0
"""The seconds until the servers have a new leader, or have noticed that they lost one."""
SLACK = 30.0
FORGOTTEN = 30.0
"""The seconds before a redelivery in which the cluster can lose an ack.

A server that dies loses the acks of its last moments. Acks sent while there is no leader are lost,
too, and the redelivery comes after `ack_wait`.
"""

logger = logging.getLogger("jsync.tests.consume")

both_faces = pytest.mark.parametrize("face", ["messages", "consume"])


class Load:
    """A replicated stream with a publisher, and a consumer that reads it."""

    def __init__(self, cluster: Cluster, name: str, face: str) -> None:
        self.cluster = cluster
        self.name = name
        self.stored: list[int] = []
        self.seen: dict[int, int] = {}
        """The number of deliveries of each message."""
        self.again: list[tuple[float, float]] = []
        """The times of the ack and of the redelivery of each message redelivered after an ack."""
        self.troubles: list[float] = []
        """The times when servers were killed or a leader stepped down."""
        self.latency = 0.0
        """The longest time between storing a message and its delivery."""
        self._acked: dict[int, float] = {}
        self._stored_at: dict[int, float] = {}
        self.told = Recorder()
        self.events = Events()
        self._stop = threading.Event()
        self._running = contextlib.ExitStack()
        try:
            self._start(cluster, face)
        except BaseException:
            self._running.close()
            raise

    def _start(self, cluster: Cluster, face: str) -> None:
        name = self.name
        self.writer = self._running.enter_context(connect(cluster.urls, Events()))
        self.reader = self._running.enter_context(connect(cluster.urls, self.events))
        self._retry(self._create)
        # The consumer gets the replicas of the stream.
        self.consumer: jsync.Consumer = self._retry(
            lambda: self.reader.jetstream().create_consumer(
                name, durable_name="worker", ack_wait=3, max_ack_pending=1000
            )
        )
        self._running.callback(self._delete)
        if face == "consume":
            self.work: jsync.ConsumeContext | jsync.MessagesContext
            self.work = self.consumer.consume(self._handle, **QUICK, on_error=self.told)
            self._running.callback(self.work.stop)
        else:
            self.work = messages = self.consumer.messages(**QUICK, on_error=self.told)

            def read() -> None:
                for msg in messages:
                    self._handle(msg)

            reading = Thread(read)
            self._running.callback(reading.result)
            self._running.callback(messages.stop)
        self._publishing = Thread(self._publish)

    def _create(self) -> None:
        self.writer.jetstream().create_stream(
            name=self.name, subjects=[self.name], num_replicas=3
        )

    def _delete(self) -> None:
        self._retry(lambda: self.writer.jetstream().delete_stream(self.name))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        try:
            self._publishing.result()
        finally:
            self._running.close()

    def _retry(self, call: Any) -> Any:
        """Retry the call until the cluster can answer it."""
        result: list[Any] = []

        def works() -> bool:
            with contextlib.suppress(
                errors.APIError, errors.TimeoutError, errors.ConnectionError
            ):
                result.append(call())
            return bool(result)

        wait_for(works, LONG)
        return result[0]

    def _handle(self, msg: jsync.JetStreamMsg) -> None:
        number, now = int(msg.data), monotonic()
        if number in self._acked:
            self.again.append((self._acked[number], now))
        # otherwise the message came before the ack to its publisher
        elif number in self._stored_at:
            self.latency = max(self.latency, now - self._stored_at[number])
        self.seen[number] = self.seen.get(number, 0) + 1
        msg.ack()
        self._acked.setdefault(number, now)

    def _publish(self) -> None:
        js = self.writer.jetstream()
        number = 0
        while not self._stop.wait(0.0005):
            try:
                js.publish(self.name, b"%d" % number, msg_id=str(number), timeout=2)
            except (
                errors.NoStreamResponseError,
                errors.ConnectionError,
                errors.TimeoutError,
                errors.APIError,
            ):
                continue  # retry the same message, which is safe because of its id
            self._stored_at[number] = monotonic()
            self.stored.append(number)
            number += 1

    def goes_on(self, count: int = 100) -> None:
        """Block until `count` more messages have been stored and received."""
        stored = len(self.stored) + count
        wait_for(lambda: len(self.stored) >= stored, LONG)
        wait_for(lambda: self.stored[stored - 1] in self.seen, LONG)

    def settle(self) -> None:
        """Stop publishing, and block until all stored messages are received and acknowledged."""
        self._stop.set()
        self._publishing.result()
        wait_for(lambda: self.seen.keys() >= set(self.stored), LONG)

        def is_done() -> bool:
            info = self._retry(self.consumer.info)
            return bool(info.num_pending == info.num_ack_pending == 0)

        wait_for(is_done, LONG)
        assert not self.work.closed
        # The reported errors are those of ADR-37 and the newer statuses.
        while self.told.waiting:
            error = self.told.get()
            assert isinstance(
                error,
                (
                    errors.PullError,
                    errors.NoRespondersError,
                    errors.MissedHeartbeatError,
                ),
            ), error
        ages = [
            next((t for t in self.troubles if acked < t < came), came) - acked
            for acked, came in self.again
        ]
        oldest = max(ages, default=0.0)
        logger.info(
            "%d messages, %d troubles; %d came again after their ack, which was at most "
            "%.2f s before; the longest wait for one %.2f s",
            *(len(self.stored), len(self.troubles), len(ages), oldest, self.latency),
        )
        assert oldest <= FORGOTTEN
        assert self.latency <= ALARM + ELECTION + SLACK

    def leader(self) -> LocalServer:
        """The server that considers itself the leader of the consumer."""
        found: list[LocalServer] = []

        def is_found() -> bool:
            for number, server in enumerate(self.cluster.servers, 1):
                if server.is_running and self._leader_of(server) == f"node-{number}":
                    found.append(server)
            return bool(found)

        wait_for(is_found, LONG)
        return found[0]

    def _leader_of(self, server: LocalServer) -> str:
        jsz = monitor(server, "jsz?accounts=1&streams=1&consumers=1")
        for account in jsz.get("account_details", ()):
            for stream in account.get("stream_detail", ()):
                for consumer in stream.get("consumer_detail") or ():
                    if stream["name"] == self.name:
                        return str(consumer.get("cluster", {}).get("leader", ""))
        return ""

    def step_down(self) -> None:
        """Make another server the leader of the consumer."""
        before = self.leader()
        self.troubles.append(monotonic())
        subject = f"$JS.API.CONSUMER.LEADER.STEPDOWN.{self.name}.worker"

        def stepped_down() -> bool:
            with contextlib.suppress(errors.TimeoutError, errors.NoRespondersError):
                reply = json.loads(self.writer.request(subject, timeout=2).data)
                return bool(reply.get("success"))
            return False

        wait_for(stepped_down, LONG)
        wait_for(lambda: self.leader() is not before, LONG)

    def kill(self, server: LocalServer) -> None:
        self.troubles.append(monotonic())
        server.kill()


@both_faces
def test_every_message_is_seen_during_consumer_leader_changes(
    whole: Cluster, unique: str, face: str
) -> None:
    with Load(whole, unique, face) as load:
        load.goes_on()
        for _ in range(3):
            load.step_down()
            load.goes_on()
        load.settle()


@pytest.mark.parametrize(
    ("victim", "face"),
    [
        ("the consumer's leader", "consume"),
        ("the reader's server", "messages"),
        pytest.param("the consumer's leader", "messages", marks=pytest.mark.fault),
        pytest.param("the reader's server", "consume", marks=pytest.mark.fault),
    ],
)
def test_every_message_is_seen_despite_kills_under_load(
    whole: Cluster, unique: str, victim: str, face: str
) -> None:
    with Load(whole, unique, face) as load:
        load.goes_on()
        if victim == "the consumer's leader":
            killed = load.leader()
        else:
            killed = next(
                s for s in whole.servers if s.url == load.reader.connected_url
            )
        load.kill(killed)
        load.goes_on()
        killed.start()
        whole.wait_until_ready()
        load.goes_on()
        load.settle()


@pytest.mark.fault
@both_faces
def test_every_message_is_seen_despite_kills_in_turn(
    whole: Cluster, unique: str, face: str
) -> None:
    with Load(whole, unique, face) as load:
        for round_ in range(9):
            load.goes_on(500)
            if round_ % 3 == 0:
                load.step_down()
            killed = whole.servers[round_ % 3]
            load.kill(killed)
            load.goes_on(500)
            killed.start()
            whole.wait_until_ready()
        load.settle()
