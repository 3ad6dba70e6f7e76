"""The lease of a lock: when it ends for its owner, and when to renew it.

Pure: no socket, thread or clock. The caller passes each time, in seconds of one clock.
"""

from __future__ import annotations

from typing import Final

from ...errors import ConfigError

MIN_TTL: Final = 2
_MARGIN: Final = 0.1
"""The last part of a lease, in which its owner already regards it as lost. It covers clocks
that do not run at quite the same rate, and gives the owner time to stop."""
_RENEWALS: Final = 3
_RETRY: Final = 0.05


def check_ttl(ttl: object) -> int:
    """Return valid whole seconds of a lease. Raises `ConfigError` otherwise."""
    if isinstance(ttl, bool) or not isinstance(ttl, int | float) or ttl != ttl // 1:
        raise ConfigError(f"ttl of a lock: whole seconds, not {ttl!r}")
    if not MIN_TTL <= ttl < 1 << 31:
        raise ConfigError(f"ttl of a lock: at least {MIN_TTL} seconds, not {ttl!r}")
    return int(ttl)


class Lease:
    """A lease, renewed again and again until it is lost or released.

    The server counts from the moment when it stores a renewal, and the owner from before the
    renewal is sent. So the lease ends for the owner first, if both clocks run at the same
    rate.
    """

    def __init__(self, ttl: int, token: int, sent: float) -> None:
        self.ttl = ttl
        self.token = token
        """The revision with which the lock was acquired."""
        self.revision = token
        """The revision of the last renewal."""
        self.ends = sent + ttl * (1 - _MARGIN)
        """The time from which the owner regards the lease as lost."""
        self.renew_at = sent + ttl / _RENEWALS
        """The time of the next renewal."""
        self.lost = False

    def renewed(self, revision: int, sent: float, now: float) -> None:
        """Extend the lease, because a renewal that was sent at `sent` was stored."""
        self.revision = revision
        if self.is_held(now):
            self.ends = sent + self.ttl * (1 - _MARGIN)
            self.renew_at = sent + self.ttl / _RENEWALS

    def failed(self, now: float) -> None:
        """Retry a renewal soon, because it was refused for the moment or had no answer."""
        self.renew_at = now + self.ttl * _RETRY

    def is_held(self, now: float) -> bool:
        """Return whether the owner may rely on the lease. A lost lease stays lost."""
        if now >= self.ends:
            self.lost = True
        return not self.lost

    def __repr__(self) -> str:
        return f"<Lease {'lost' if self.lost else f'until {self.ends:.1f}'}>"
