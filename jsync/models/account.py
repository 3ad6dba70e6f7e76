"""What an account has of JetStream, and may have."""

from .model import Model


class AccountLimits(Model, kw_only=True, frozen=True):
    """What the account may have; -1 is no limit."""

    max_memory: int = 0
    """Bytes in memory."""
    max_storage: int = 0
    """Bytes in files."""
    max_streams: int = 0
    max_consumers: int = 0
    max_ack_pending: int = 0
    """Messages that one consumer may leave without an ack. Since nats-server 2.8."""
    memory_max_stream_bytes: int = 0
    """Bytes of one stream in memory. Since nats-server 2.8."""
    storage_max_stream_bytes: int = 0
    """Bytes of one stream in files. Since nats-server 2.8."""
    max_bytes_required: bool = False
    """Whether every stream has to have `max_bytes`. Since nats-server 2.7."""


class Tier(Model, kw_only=True, frozen=True):
    """What the account has of one tier, `R1` or `R3`."""

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
    """Requests."""
    errors: int = 0
    """Those that were answered with an error."""
    inflight: int = 0
    """Those that are being answered. Since nats-server 2.7."""


class AccountInfo(Tier, kw_only=True, frozen=True):
    """The account's JetStream, as `$JS.API.INFO` gives it; the sum of its tiers, if any."""

    domain: str | None = None
    """The JetStream domain."""
    api: APIStats = APIStats()
    tiers: dict[str, Tier] | None = None
    """By name, `R1` and `R3`; the limits are here then. Since nats-server 2.8."""
