"""Advisories: what the server tells of by itself."""

from datetime import datetime

from .model import Model


class BatchAbandoned(Model, kw_only=True, frozen=True):
    """A stream has given up an atomic batch; nothing of it is stored. Since nats-server 2.12."""

    type: str = ""
    """`io.nats.jetstream.advisory.v1.stream_batch_abandoned`."""
    id: str = ""
    """Of the advisory itself."""
    timestamp: datetime | None = None
    """When."""
    stream: str = ""
    domain: str | None = None
    """The JetStream domain."""
    account: str | None = None
    batch: str = ""
    """The id of the batch: `AtomicBatch.id`."""
    reason: str = ""
    """`timeout`: no message came for too long; `incomplete`: one did not come, or the
    batch was discarded; `large`: too many messages; `unsupported`: one asked for a higher
    API level, since nats-server 2.14."""
