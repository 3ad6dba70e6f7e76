"""Shared parts of the tests of stores."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import jsync


def noise(size: int, seed: int = 1) -> bytes:
    """Return bytes without repetition."""
    return random.Random(seed).randbytes(size)


def chunks_of(js: jsync.JetStream, files: jsync.ObjectStore) -> dict[str, int]:
    """Return the number of chunks in the store for each id."""
    prefix = f"$O.{files.bucket}.C."
    info = js.stream(f"OBJ_{files.bucket}").info(subjects_filter=f"{prefix}>")
    return {
        name.removeprefix(prefix): count
        for name, count in (info.state.subjects or {}).items()
    }


def replace_chunk(
    js: jsync.JetStream, files: jsync.ObjectStore, name: str, data: bytes
) -> None:
    """Replace the last chunk of an object by other bytes."""
    info = files.info(name)
    stream, subject = f"OBJ_{files.bucket}", f"$O.{files.bucket}.C.{info.nuid}"
    last = js.get_message(stream, last_by_subject=subject)
    js.stream(stream).delete_message(last.sequence)
    js.publish(subject, data)
