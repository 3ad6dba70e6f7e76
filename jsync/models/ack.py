"""The ack of a publish. The ack and a possible error are read in one pass."""

from typing import Any, Final

import msgspec

from ..errors import JetStreamError
from .model import Model


class ApiErrorReply(Model, kw_only=True, frozen=True):
    """An error as it stands in replies."""

    code: int = 0
    """HTTP-like: 400, 404, 503."""
    err_code: int = 0
    """The server's number of the error, such as 10003. Since nats-server 2.3."""
    description: str = ""
    """The server's description of the error."""


class PubAck(msgspec.Struct, frozen=True, gc=False):
    """The ack of a stream that has stored a message or a batch.

    Example:
        ```python
        ack = js.publish("orders.new", b"{}", msg_id="order-1")
        print(ack.stream, ack.seq, ack.duplicate)
        ```
    """

    stream: str = ""
    """The name of the stream."""
    seq: int = 0
    """The sequence of the message, or of the last message of a batch."""
    duplicate: bool = False
    """True if the stream already had the `msg_id`. `seq` is then that of the first
    message."""
    domain: str | None = None
    """The JetStream domain, if there is one. Since nats-server 2.4."""
    batch: str | None = None
    """The id of the batch. Since nats-server 2.12."""
    count: int | None = None
    """The number of messages of the batch. Since nats-server 2.12."""
    val: str | None = None
    """The new value of the counter, as text. Since nats-server 2.12."""
    error: dict[str, Any] | None = None
    """Always None. Only for `decode_pub_ack`, which returns an error instead of an ack."""

    @property
    def value(self) -> int | None:
        """The new value of the counter, on a stream with `allow_msg_counter`."""
        return None if self.val is None else int(self.val)

    def __repr__(self) -> str:
        shown = [f"stream={self.stream!r}", f"seq={self.seq}"]
        shown += [
            f"{name}={value!r}"
            for name in ("duplicate", "domain", "batch", "count", "value")
            if (value := getattr(self, name)) not in (None, False)
        ]
        return f"PubAck({', '.join(shown)})"


_decode: Final = msgspec.json.Decoder(PubAck).decode
_MAX_SEQUENCE: Final = (1 << 64) - 1


def decode_pub_ack(data: bytes) -> PubAck | dict[str, Any]:
    """Return the `PubAck` of a reply, or its error as a dict: code, err_code, description.

    Raises `JetStreamError` if it is neither, for example the reply of another responder.
    """
    try:
        ack = _decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise JetStreamError(f"not a publish ack: {data[:100]!r}") from error
    if ack.error is not None and type(ack.error.get("err_code")) is int:
        return ack.error
    if (
        ack.error is None
        and ack.stream
        and 0 <= ack.seq <= _MAX_SEQUENCE
        and (ack.val is None or _is_number(ack.val))
    ):
        return ack
    raise JetStreamError(f"not a publish ack: {data[:100]!r}")


def _is_number(text: str) -> bool:
    """Return whether `text` is the value of a counter."""
    try:
        int(text)
    except ValueError:  # also raised for more digits than Python converts
        return False
    return True
