"""A key-value store on a stream: the last message of each subject is the value of a key.

    python examples/last_values.py

Shows put, get, compare-and-set, watch, history and delete. Needs nats-server 2.11.
"""

from __future__ import annotations

import os
import threading

import jsync
from jsync.errors import MessageNotFoundError, WrongLastSequenceError

URL = os.environ.get("NATS_URL", "nats://127.0.0.1:4222")


def get(stream: jsync.Stream, key: str) -> tuple[bytes | None, int]:
    """Return the value of a key and its revision, or None and 0 if the key does not exist."""
    try:
        found = stream.get_message(last_by_subject=f"lamp.{key}")
    except MessageNotFoundError:
        return None, 0
    return found.data, found.sequence


def put(
    js: jsync.JetStream, key: str, value: bytes, revision: int | None = None
) -> int:
    """Set the value of a key, and return its new revision.

    Args:
        revision: Set the value only if this is still the revision of the key.
    """
    ack = js.publish(f"lamp.{key}", value, expected_last_subject_sequence=revision)
    return ack.seq


def main() -> None:
    with jsync.connect(URL) as nc:
        js = nc.jetstream()
        stream = js.create_stream(
            name="LAMPS",
            subjects=["lamp.*"],
            max_msgs_per_subject=3,  # the stream keeps 3 values of each key
            allow_direct=True,
        )
        changes: list[str] = []
        seen = threading.Event()

        def changed(msg: jsync.JetStreamMsg) -> None:
            changes.append(f"{msg.subject}={msg.data.decode()}")
            if len(changes) == 3:
                seen.set()

        watcher = stream.ordered_consumer(deliver_policy="last_per_subject")
        with watcher.consume(changed):
            put(js, "kitchen", b"on")
            first = put(js, "hall", b"on")
            put(js, "hall", b"off", revision=first)
            try:
                put(js, "hall", b"dimmed", revision=first)
            except WrongLastSequenceError:
                print("another program was faster:", get(stream, "hall")[0])
            seen.wait(10)
        print("watched:", ", ".join(changes))
        print("all:", {m.subject: m.data for m in stream.get_last_messages("lamp.*")})
        print(
            "history of the hall:", [m.data for m in stream.get_messages("lamp.hall")]
        )
        stream.purge(subject="lamp.hall")
        print("deleted:", get(stream, "hall"))


if __name__ == "__main__":
    main()
