"""What a stream holds, read back message by message, and held against what was reported."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from typing import TYPE_CHECKING, Literal, TypeAlias

from jsync import errors

from .servers import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable

    import jsync

Verdict: TypeAlias = Literal["stored", "nothing", "unknown"]


def stored(stream: jsync.Stream) -> list[jsync.JetStreamMsg]:
    """Every message of the stream, in its order."""
    messages: list[jsync.JetStreamMsg] = []

    def read() -> bool:
        count = stream.info().state.messages
        if count:
            consumer = stream.create_consumer(ack_policy="none", inactive_threshold=30)
            # In a cluster a new consumer has no leader for a moment.
            with contextlib.suppress(errors.NoRespondersError):
                with consumer.fetch(count, timeout=20) as batch:
                    messages[:] = batch
        return len(messages) == count

    wait_for(read, 30)
    return messages


def contents(stream: jsync.Stream) -> list[tuple[str, bytes]]:
    """Subject, behind the stream's name, and payload of every message."""
    return [
        (msg.subject.removeprefix(f"{stream.name}."), msg.data)
        for msg in stored(stream)
    ]


class Ledger:
    """Atomic batches, and what jsync has reported of each."""

    def __init__(self, subject: str) -> None:
        self._subject = subject
        self._batches: dict[int, tuple[int, Verdict]] = {}
        self.reasons: list[str] = []
        """Why something cannot be known."""

    def __len__(self) -> int:
        return len(self._batches)

    @property
    def verdicts(self) -> Counter[Verdict]:
        """How often each was reported."""
        return Counter(verdict for _, verdict in list(self._batches.values()))

    def publish(
        self, js: jsync.JetStream, count: int = 5, timeout: float = 5, **options: bool
    ) -> Verdict:
        """Publish one batch, all at once or with these options of `atomic_batch`."""
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
        deadline = time.monotonic() + 30
        try:
            publish()
        except errors.UnclearCommitError as unclear:
            while True:
                try:
                    return "stored" if unclear.resolve(timeout=5) else "nothing"
                except errors.UnclearCommitError as error:
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
        """Each batch is in the stream whole and in a row, or not at all, as reported."""
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
