"""Read the messages of a stream back, and compare them with the reported outcomes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Literal, TypeAlias

import nats
from nats.js.api import AckPolicy, ConsumerConfig

from jsync import errors

from .servers import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import jsync

logger = logging.getLogger("jsync.tests.stored")

Verdict: TypeAlias = Literal["stored", "nothing", "unknown"]

PATIENCE = 180.0
"""The seconds that a cluster on a busy machine may take to finish its work."""

NOT_STORED = (errors.APIError, errors.NoStreamResponseError)
"""The errors of a publisher which mean that the message is not stored."""


def stored(stream: jsync.Stream) -> list[jsync.JetStreamMsg]:
    """Return every message of the stream, in order."""
    messages: list[jsync.JetStreamMsg] = []

    def read() -> bool:
        count = stream.info().state.messages
        if count:
            consumer = stream.create_consumer(ack_policy="none", inactive_threshold=30)
            # In a cluster a new consumer has no leader for a moment.
            with contextlib.suppress(errors.NoRespondersError):
                with consumer.fetch(count, timeout=60) as batch:
                    messages[:] = batch
        return len(messages) == count

    wait_for(read, PATIENCE)
    return messages


def contents(stream: jsync.Stream) -> list[tuple[str, bytes]]:
    """Return the subject, without the name of the stream, and the payload of every message."""
    return [
        (msg.subject.removeprefix(f"{stream.name}."), msg.data)
        for msg in stored(stream)
    ]


def read_back(url: str, stream: str) -> list[bytes]:
    """Return every payload of the stream in order, read by another client (nats-py)."""

    async def read_once() -> list[bytes]:
        nc = await nats.connect(url, allow_reconnect=False, connect_timeout=30)
        try:
            js = nc.jetstream(timeout=30)
            count = (await js.stream_info(stream)).state.messages
            config = ConsumerConfig(ack_policy=AckPolicy.NONE, inactive_threshold=60)
            consumer = await js.add_consumer(stream, config)
            subscription = await js.pull_subscribe_bind(consumer.name, stream)
            found: list[bytes] = []
            while len(found) < count:
                found += [m.data for m in await subscription.fetch(1000, timeout=30)]
            return found
        finally:
            await nc.close()

    async def read() -> list[bytes]:
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                return await read_once()
            except nats.errors.Error:
                # In a cluster a new consumer has no leader for a moment.
                if time.monotonic() > deadline:
                    raise
                await asyncio.sleep(0.1)

    return asyncio.run(read())


class Published:
    """A publisher of numbers that runs until it is stopped, and records each outcome."""

    def __init__(self, publisher: jsync.Publisher, subject: str) -> None:
        self._publisher, self._subject = publisher, subject
        self.futures: list[jsync.PubAckFuture] = []
        self.stopped = threading.Event()
        self._done = 0

    def run(self) -> None:
        """Publish until `stopped` is set, then wait for every outcome."""
        while not self.stopped.is_set():
            data = b"%d" % len(self.futures)
            try:
                future = self._publisher.publish(
                    self._subject, data, msg_id=data.decode()
                )
            except errors.StallTimeoutError:  # nothing was sent
                continue
            self.futures.append(future)
        with contextlib.suppress(errors.PublisherError):
            self._publisher.close()

    @property
    def done(self) -> int:
        """Return the number of messages with an outcome, up to the first without one."""
        futures = self.futures
        while self._done < len(futures) and futures[self._done].done():
            self._done += 1
        return self._done

    @property
    def highest(self) -> int:
        """Return the highest sequence that an ack has told."""
        acks = [f.result() for f in self.futures if f.done() and not f.exception()]
        return max((ack.seq for ack in acks), default=0)

    def check(self, found: Iterable[bytes]) -> Counter[type[Exception]]:
        """Compare the outcomes with the messages of the stream, and return the failures by type."""
        stored = Counter(found)
        outcomes = [future.exception(PATIENCE) for future in self.futures]
        acked = {b"%d" % n for n, error in enumerate(outcomes) if error is None}
        failures = Counter(type(error) for error in outcomes if error is not None)
        known = {b"%d" % n for n in range(len(outcomes))}
        twice = sum(times > 1 for times in stored.values())
        for text in sorted({str(error) for error in outcomes if error is not None})[:9]:
            logger.warning("failed: %s", text)
        logger.info(
            "published %d, acked %d, failed %s, lost %d, twice %d",
            *(len(outcomes), len(acked), dict(failures)),
            *(len(acked - set(stored)), twice),
        )
        assert acked <= set(stored), "acked messages are lost"
        assert set(stored) <= known, "the stream has messages that nobody published"
        assert not twice, "messages are stored twice"
        absent = {
            b"%d" % number
            for number, error in enumerate(outcomes)
            if isinstance(error, NOT_STORED)
        }
        assert not absent & set(stored), "messages are stored that were said not to be"
        return failures


class Received:
    """A handler that acks, and records the numbers that have arrived."""

    def __init__(self) -> None:
        self.times: Counter[int] = Counter()

    def __call__(self, msg: jsync.JetStreamMsg) -> None:
        self.times[msg.metadata.stream_sequence] += 1
        # Without a connection the ack fails, and the server delivers the message again.
        with contextlib.suppress(errors.ConnectionError):
            msg.ack()

    def check(self, consumer: jsync.Consumer, least: int = 0) -> None:
        """Wait until every message of the stream is delivered and acknowledged.

        A server that was cut off may not know yet how long the stream is. The sequence
        `least` is known to be stored.
        """
        last = 0

        def is_settled() -> bool:
            nonlocal last
            with contextlib.suppress(errors.Error):
                info = consumer.info()
                last = info.delivered.stream_seq
                return info.num_pending == info.num_ack_pending == 0 and last >= least
            return False

        wait_for(is_settled, PATIENCE)
        missing = set(range(1, last + 1)) - set(self.times)
        again = sum(times - 1 for times in self.times.values())
        logger.info(
            "received %d, missing %d, again %d", len(self.times), len(missing), again
        )
        assert not missing, "messages are lost"


class Ledger:
    """Atomic batches, and the reported result of each."""

    def __init__(self, subject: str) -> None:
        self._subject = subject
        self._batches: dict[int, tuple[int, Verdict]] = {}
        self.reasons: list[str] = []
        """The reasons of unknown results."""

    def __len__(self) -> int:
        return len(self._batches)

    @property
    def verdicts(self) -> Counter[Verdict]:
        """Return how often each result was reported."""
        return Counter(verdict for _, verdict in list(self._batches.values()))

    def publish(
        self, js: jsync.JetStream, count: int = 5, timeout: float = 5, **options: bool
    ) -> Verdict:
        """Publish one batch, at once or with these options of `atomic_batch`."""
        number = len(self._batches)
        rows = [(self._subject, b"%d.%d" % (number, i)) for i in range(count)]

        def publish() -> object:
            if not options:
                return js.publish_batch(rows, timeout=timeout)
            with js.atomic_batch(timeout=timeout, **options) as batch:
                for row in rows:
                    batch.add(*row)
            return batch.pub_ack

        self._batches[number] = count, "unknown"
        verdict = self._judge(publish)
        self._batches[number] = count, verdict
        return verdict

    def _judge(self, publish: Callable[[], object]) -> Verdict:
        deadline = time.monotonic() + PATIENCE
        try:
            publish()
        except errors.AmbiguousCommitError as unclear:
            while True:
                try:
                    return "stored" if unclear.resolve(timeout=5) else "nothing"
                except errors.AmbiguousCommitError as error:
                    self.reasons.append(str(error))
                    return "unknown"
                except (errors.TimeoutError, errors.ConnectionError, errors.APIError):
                    if time.monotonic() > deadline:
                        raise
                    time.sleep(0.05)
        except (
            errors.AtomicBatchError,
            errors.APIError,
            errors.ConnectionError,
            errors.TimeoutError,
            errors.NoStreamResponseError,
        ):
            return "nothing"
        return "stored"

    def check(self, stream: jsync.Stream) -> None:
        """Check that each batch is in the stream whole and in a row, or not at all, as reported."""
        found: dict[int, list[tuple[int, int]]] = {}
        for msg in stored(stream):
            name, _, index = msg.data.partition(b".")
            place = msg.metadata.stream_sequence, int(index)
            found.setdefault(int(name), []).append(place)
        assert found.keys() <= self._batches.keys()
        for number, (count, verdict) in self._batches.items():
            places = found.get(number, [])
            if places:
                first = places[0][0]
                assert places == [(first + i, i) for i in range(count)], number
            if verdict != "unknown":
                assert verdict == ("stored" if places else "nothing"), number
