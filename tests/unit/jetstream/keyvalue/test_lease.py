"""Tests of leases with a simulated clock: they end for the owner before they end on the server."""

from __future__ import annotations

from typing import Any

import pytest

from jsync import errors
from jsync.jetstream.keyvalue.lease import Lease, check_ttl


def test_an_owner_lets_go_before_the_server_does() -> None:
    lease = Lease(10, token=7, sent=100.0)
    assert lease.is_held(108.9)
    assert not lease.is_held(109.0)  # on the server, it ends at 110 at the earliest


def test_a_lease_runs_from_sending_the_renewal() -> None:
    lease = Lease(10, token=7, sent=100.0)
    assert lease.renew_at == pytest.approx(103.33, abs=0.01)
    lease.renewed(9, sent=103.4, now=106.0)
    assert (lease.token, lease.revision) == (7, 9)
    assert lease.is_held(112.3)
    assert not lease.is_held(112.4)


def test_a_late_renewal_does_not_revive_a_lease() -> None:
    lease = Lease(10, token=7, sent=100.0)
    lease.renewed(9, sent=108.0, now=109.5)
    assert not lease.is_held(109.5)
    assert lease.revision == 9  # the revision to release


def test_a_lost_lease_stays_lost_at_any_time() -> None:
    lease = Lease(10, token=7, sent=100.0)
    assert not lease.is_held(200.0)
    assert not lease.is_held(100.0)


def test_a_failed_renewal_is_retried_and_extends_nothing() -> None:
    lease = Lease(10, token=7, sent=100.0)
    lease.failed(104.0)
    assert lease.renew_at == pytest.approx(104.5)
    assert lease.ends == pytest.approx(109.0)


@pytest.mark.parametrize("ttl", [2, 30, 3600.0])
def test_a_ttl_is_whole_seconds(ttl: float) -> None:
    assert check_ttl(ttl) == ttl


@pytest.mark.parametrize("ttl", [0, 1, 2.5, -5, True, None, "30", float("nan"), 1e12])
def test_an_invalid_ttl_is_rejected(ttl: Any) -> None:
    with pytest.raises(errors.ConfigError, match="ttl of a lock"):
        check_ttl(ttl)
