"""The use of JetStream by an account, and its limits."""

from .model import Model


class AccountLimits(Model, kw_only=True, frozen=True):
    """The limits of an account. -1: no limit."""

    max_memory: int = 0
    """The most bytes in memory."""
    max_storage: int = 0
    """The most bytes in files."""
    max_streams: int = 0
    max_consumers: int = 0
    max_ack_pending: int = 0
    """The most unacknowledged messages of one consumer. Since nats-server 2.8."""
    memory_max_stream_bytes: int = 0
    """The most bytes of one stream in memory. Since nats-server 2.8."""
    storage_max_stream_bytes: int = 0
    """The most bytes of one stream in files. Since nats-server 2.8."""
    max_bytes_required: bool = False
    """True if every stream needs `max_bytes`. Since nats-server 2.7."""


class Tier(Model, kw_only=True, frozen=True):
    """The use of one tier, `R1` or `R3`, by an account."""

    memory: int = 0
    """Bytes in memory."""
    storage: int = 0
    """Bytes in files."""
    reserved_memory: int = 0
    """Bytes in memory promised to streams by `max_bytes`. Since nats-server 2.10.8."""
    reserved_storage: int = 0
    """Bytes in files promised to streams by `max_bytes`. Since nats-server 2.10.8."""
    streams: int = 0
    consumers: int = 0
    limits: AccountLimits = AccountLimits()


class APIStats(Model, kw_only=True, frozen=True):
    """The account's requests to the JetStream API."""

    level: int = 0
    """The API level: 1 is nats-server 2.11, 2 and 3 are 2.12, 4 is 2.14, 5 is 2.15."""
    total: int = 0
    """The number of requests."""
    errors: int = 0
    """The number of requests that failed."""
    inflight: int = 0
    """The number of requests in progress. Since nats-server 2.7."""


class AccountInfo(Tier, kw_only=True, frozen=True):
    """The use and the limits of an account, as the sum of its tiers."""

    domain: str | None = None
    """The JetStream domain."""
    api: APIStats = APIStats()
    tiers: dict[str, Tier] | None = None
    """The tiers by name, `R1` and `R3`, with their limits. Since nats-server 2.8."""
