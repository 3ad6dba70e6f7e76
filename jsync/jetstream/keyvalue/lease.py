"""A lease that its owner believes in for a time: when it ends, when to renew it.

Pure: no socket, thread or clock; every time comes from outside, in seconds of one clock.
"""

from __future__ import annotations

from typing import Final

from ...errors import ConfigError

SHORTEST: Final = 2
_MARGIN: Final = 0.1
"""The part of a lease for which its owner does not believe in it any more. It covers clocks
that do not run at quite the same rate, and gives the owner time to stop."""
_RENEWALS: Final = 3
_RETRY: Final = 0.05


def check_ttl(ttl: object) -> int:
    """Whole seconds of a lease; raises `ConfigError`."""
    if isinstance(ttl, bool) or not isinstance(ttl, int | float) or ttl != ttl // 1:
        raise ConfigError(f"ttl of a lock: whole seconds, not {ttl!r}")
    if not SHORTEST <= ttl < 1 << 31:
        raise ConfigError(f"ttl of a lock: at least {SHORTEST} seconds, not {ttl!r}")
    return int(ttl)


class Lease:
    """From one renewal to the next.

    A server counts from when it has stored a renewal, its owner from before it was sent. So
    the owner's end comes first, if both clocks run at the same rate.
    """

    def __init__(self, ttl: int, token: int, sent: float) -> None:
        self.ttl = ttl
        self.token = token
        """The revision that it was got with."""
        self.revision = token
        """The revision of the last renewal."""
        self.ends = sent + ttl * (1 - _MARGIN)
        """When its owner stops to believe in it."""
        self.renew_at = sent + ttl / _RENEWALS
        """When to renew it."""
        self.lost = False

    def renewed(self, revision: int, sent: float, now: float) -> None:
        """A renewal that was sent at that time has been stored."""
        self.revision = revision
        if self.is_held(now):
            self.ends = sent + self.ttl * (1 - _MARGIN)
            self.renew_at = sent + self.ttl / _RENEWALS

    def failed(self, now: float) -> None:
        """A renewal was not answered, or refused for the moment: try again soon."""
        self.renew_at = now + self.ttl * _RETRY

    def is_held(self, now: float) -> bool:
        """Whether its owner may believe in it. Once lost, it is lost for good."""
        if now >= self.ends:
            self.lost = True
        return not self.lost

    def __repr__(self) -> str:
        return f"<Lease {'lost' if self.lost else f'until {self.ends:.1f}'}>"
