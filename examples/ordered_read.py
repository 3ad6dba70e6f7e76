"""Read a stream like a log: in order, each message once, and later from where you stopped.

    python examples/ordered_read.py

The program publishes readings, prints their means, and then reads only the new message. An
ordered consumer needs no acks and no name. It survives lost connections and server restarts.
Your program keeps the sequence to resume from.
"""

from __future__ import annotations

import os
from collections import defaultdict

import jsync

URL = os.environ.get("NATS_URL", "nats://127.0.0.1:4222")


def read(stream: jsync.Stream, place: int) -> tuple[dict[str, list[float]], int]:
    """Read from sequence `place` to the current end.

    Returns:
        The values by subject, and the sequence to resume from.
    """
    values: dict[str, list[float]] = defaultdict(list)
    log = stream.ordered_consumer(opt_start_seq=place, filter_subjects="readings.*")
    with log.messages(until_end=True) as messages:
        for msg in messages:
            values[msg.subject].append(float(msg.data))
            place = msg.metadata.stream_sequence + 1
    return values, place


def main() -> None:
    with jsync.connect(URL) as nc:
        js = nc.jetstream()
        stream = js.create_stream(name="READINGS", subjects=["readings.*"])
        with js.publisher() as publisher:
            for number in range(1000):
                publisher.publish(f"readings.{number % 3}", b"%d" % number)

        values, place = read(stream, 1)
        for subject, numbers in sorted(values.items()):
            mean = sum(numbers) / len(numbers)
            print(f"{subject}: {len(numbers)} readings, {mean:.1f} on average")

        js.publish("readings.0", b"42")
        values, place = read(stream, place)
        print(f"later: {dict(values)}, go on from {place}")


if __name__ == "__main__":
    main()
