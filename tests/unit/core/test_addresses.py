"""Tests of the order in which the addresses of a name are tried."""

from __future__ import annotations

import random
import socket

from jsync.core.addresses import Address, in_order

V4, V6 = int(socket.AF_INET), int(socket.AF_INET6)


def address(family: int, host: str) -> Address:
    place = (host, 4222) if family == V4 else (host, 4222, 0, 0)
    return family, int(socket.SOCK_STREAM), 6, "", place


def hosts(found: list[Address]) -> list[str]:
    return [each[4][0] for each in found]


def test_families_alternate_from_the_first_of_the_system() -> None:
    v6 = [address(V6, f"::{n}") for n in (1, 2, 3)]
    v4 = [address(V4, f"10.0.0.{n}") for n in (1, 2)]
    expected = ["::1", "10.0.0.1", "::2", "10.0.0.2", "::3"]
    assert hosts(in_order(v6 + v4, None)) == expected
    expected = ["10.0.0.1", "::1", "10.0.0.2", "::2", "::3"]
    assert hosts(in_order(v4 + v6, None)) == expected


def test_the_addresses_of_a_family_are_shuffled() -> None:
    v6 = [address(V6, f"::{n}") for n in range(4)]
    v4 = [address(V4, f"10.0.0.{n}") for n in range(4)]
    seen = set()
    for seed in range(50):
        order = in_order(v6 + v4, random.Random(seed).shuffle)
        assert sorted(order) == sorted(v6 + v4)
        assert [each[0] for each in order] == [V6, V4] * 4
        seen.add(tuple(hosts(order)))
    assert len(seen) > 40
    assert {order[0] for order in seen} == {"::0", "::1", "::2", "::3"}


def test_an_address_found_twice_is_tried_once() -> None:
    one = address(V4, "10.0.0.1")
    assert in_order([one, one], None) == [one]
    assert in_order([], None) == []
