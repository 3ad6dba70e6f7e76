"""A key-value bucket as ADR-8 lays it out on a stream, as far as the fence needs one."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ...errors import ConfigError, MessageNotFoundError, StreamNotFoundError
from ..bucket_limit import create_bucket

if TYPE_CHECKING:
    from ... import JetStream, Stream

_OPERATION = "KV-Operation"


class Value(NamedTuple):
    """The current value of a key."""

    data: bytes
    """Empty if the key was deleted."""
    revision: int
    time: float
    """The time of the put by the server's clock, in seconds since 1970."""


def open_bucket(js: JetStream, name: str, *, replicas: int = 1) -> Stream:
    """Return the stream of a bucket, and create it if it is missing. Blocks."""
    try:
        return js.stream(f"KV_{name}")
    except StreamNotFoundError:
        return create_bucket(
            js.create_stream,
            name=f"KV_{name}",
            description="what jsync.spark has written, by query and job",
            subjects=[f"$KV.{name}.>"],
            max_msgs_per_subject=1,
            discard="new",
            allow_rollup_hdrs=True,
            deny_delete=True,
            allow_direct=True,
            num_replicas=replicas,
        )


def check_kept(bucket: Stream) -> None:
    """Raise `ConfigError` if the entries of a fence expire."""
    if ttl := bucket.config.max_age:
        name = bucket.name.removeprefix("KV_")
        raise ConfigError(
            f"option fenceBucket: the bucket {name} has a ttl of {ttl:g} s, after which the "
            "fence would forget what is stored: give a bucket without ttl"
        )


class Bucket:
    """Gets and puts values by key. Each call blocks for a request to the leader."""

    def __init__(self, js: JetStream, name: str) -> None:
        self._js = js
        self._name = name
        self._stream = js.stream(f"KV_{name}")

    def now(self) -> float:
        """Return the time by the server's clock, in seconds since 1970."""
        ts = self._stream.info().ts
        assert ts is not None
        return ts.timestamp()

    def get(self, key: str) -> Value | None:
        try:
            message = self._stream.get_message(
                last_by_subject=f"$KV.{self._name}.{key}", direct=False
            )
        except MessageNotFoundError:
            return None
        gone = message.headers is not None and _OPERATION in message.headers
        return Value(
            b"" if gone else message.data,
            message.sequence,
            message.timestamp.timestamp(),
        )

    def put(self, key: str, data: bytes, *, revision: int | None = None) -> int:
        """Put a value, and return its revision.

        Raises `WrongLastSequenceError` unless the key has the given revision. Revision 0
        means that the key must not exist.
        """
        subject = f"$KV.{self._name}.{key}"
        ack = self._js.publish(subject, data, expected_last_subject_sequence=revision)
        return ack.seq

    def keys(self, keys: str) -> list[str]:
        """Return the keys that match, also deleted ones. `keys` may have wildcards."""
        start = f"$KV.{self._name}."
        state = self._stream.info(subjects_filter=f"{start}{keys}").state
        return [subject.removeprefix(start) for subject in state.subjects or ()]

    def forget(self, keys: str) -> None:
        """Purge all keys that match, wildcards allowed, without delete markers."""
        self._stream.purge(subject=f"$KV.{self._name}.{keys}")

    def __repr__(self) -> str:
        return f"<Bucket {self._name!r}>"
