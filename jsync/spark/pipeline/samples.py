"""Samples of a stream, spread over all of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...errors import MessageNotFoundError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ... import Stream


def samples(stream: Stream, count: int, subject: str | None = None) -> Iterator[bytes]:
    """Yield the payloads of up to `count` messages. Blocks for each.

    Takes nothing from a work queue, and needs no consumer.

    Args:
        stream: The stream.
        count: The number of samples, spread evenly over the sequences.
        subject: A subject of the messages, wildcards allowed. None: all.
    """
    state = stream.info().state
    first, after = max(1, state.first_seq), state.last_seq + 1
    limit = min(count, after - first)
    done = first
    for number in range(limit):
        sequence = max(done, first + (after - first) * number // limit)
        try:
            message = stream.get_message(
                sequence=sequence, next_by_subject=subject or ">", direct=False
            )
        except MessageNotFoundError:
            return
        yield message.data
        done = message.sequence + 1
