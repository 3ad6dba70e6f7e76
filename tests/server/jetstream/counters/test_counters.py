"""Tests of counters (ADR-49): the server adds, and jsync reads one or many at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from jsync import errors

from ....support.servers import wait_for
from ....support.threads import Thread

if TYPE_CHECKING:
    import jsync


def counting(js: jsync.JetStream, name: str, **fields: Any) -> jsync.Counters:
    if not fields:
        fields = {"subjects": [f"{name}.>"]}
    js.create_stream(name=name, allow_msg_counter=True, allow_direct=True, **fields)
    return js.counters(name)


def test_a_counter_begins_at_0_and_adds_up(js: jsync.JetStream, unique: str) -> None:
    counters = counting(js, unique)
    with pytest.raises(errors.CounterNotFoundError, match="add to it first"):
        counters.load(f"{unique}.clicks")
    assert counters.add(f"{unique}.clicks") == 1
    assert counters.add(f"{unique}.clicks", 41) == 42
    assert counters.add(f"{unique}.clicks", -50) == -8
    assert counters.add(f"{unique}.clicks", 0) == -8
    assert counters.load(f"{unique}.clicks") == -8
    entry = counters.get(f"{unique}.clicks")
    assert (entry.value, entry.increment, entry.sources) == (-8, 0, {})
    assert entry.sequence == 4


def test_numbers_have_no_limit(js: jsync.JetStream, unique: str) -> None:
    counters = counting(js, unique)
    large = 10**3000 + 7
    assert counters.add(f"{unique}.large", large) == large
    assert counters.add(f"{unique}.large", large) == 2 * large
    assert counters.load(f"{unique}.large") == 2 * large
    assert counters.add(f"{unique}.large", -3 * large) == -large


def test_an_unreadable_counter_hides_no_other(
    nc: jsync.Connection, js: jsync.JetStream, unique: str
) -> None:
    counters = counting(js, unique)
    counters.add(f"{unique}.a", 1)
    # Another client has counters of any length.
    nc.request(f"{unique}.b", headers={"Nats-Incr": "1" + "0" * 5000})
    counters.add(f"{unique}.c", 3)
    found: list[int] = []
    with pytest.raises(errors.JetStreamError, match=rf"{unique}\.b' .*not a counter"):
        found.extend(entry.value for entry in counters.get_many())
    assert found == [1, 3]


def test_many_counters_come_in_one_request(js: jsync.JetStream, unique: str) -> None:
    counters = counting(js, unique)
    for number in range(20):
        counters.add(f"{unique}.a.{number}", number)
    counters.add(f"{unique}.b", 7)
    found = {each.subject: each.value for each in counters.get_many(f"{unique}.a.*")}
    assert found == {f"{unique}.a.{number}": number for number in range(20)}
    assert len(list(counters.get_many())) == 21
    both = counters.get_many([f"{unique}.b", f"{unique}.a.3"])
    assert [each.value for each in both] == [3, 7]


def test_threads_that_add_lose_nothing(js: jsync.JetStream, unique: str) -> None:
    counters = counting(js, unique)

    def add() -> None:
        for _ in range(50):
            counters.add(f"{unique}.clicks")

    for thread in [Thread(add) for _ in range(8)]:
        thread.result()
    assert counters.load(f"{unique}.clicks") == 400


def test_an_id_makes_it_safe_to_add_again(js: jsync.JetStream, unique: str) -> None:
    counters = counting(js, unique)
    assert counters.add(f"{unique}.clicks", 5, msg_id="order-1") == 5
    assert counters.add(f"{unique}.clicks", 5, msg_id="order-1") == 5
    assert counters.load(f"{unique}.clicks") == 5


def test_sources_show_the_contribution_of_each(
    js: jsync.JetStream, unique: str
) -> None:
    es = counting(js, f"{unique}es", subjects=[f"{unique}.es.hits"])
    pt = counting(js, f"{unique}pt", subjects=[f"{unique}.pt.hits"])
    total = counting(
        js,
        unique,
        sources=[
            {
                "name": f"{unique}{where}",
                "subject_transforms": [
                    {"src": f"{unique}.{where}.hits", "dest": f"{unique}.hits"}
                ],
            }
            for where in ("es", "pt")
        ],
    )
    es.add(f"{unique}.es.hits", 30)
    es.add(f"{unique}.es.hits", 10)
    pt.add(f"{unique}.pt.hits", 2)

    def summed() -> bool:
        try:
            return total.load(f"{unique}.hits") == 42
        except errors.CounterNotFoundError:
            return False

    wait_for(summed)
    assert total.get(f"{unique}.hits").sources == {
        f"{unique}es": {f"{unique}.es.hits": 40},
        f"{unique}pt": {f"{unique}.pt.hits": 2},
    }


def test_a_value_that_cannot_be_counted_is_rejected(
    js: jsync.JetStream, unique: str
) -> None:
    counters = counting(js, unique)
    for amount in (1.5, True, "1", None):
        with pytest.raises(errors.ConfigError, match="amount: an int"):
            counters.add(f"{unique}.x", amount)  # type: ignore[arg-type]
    with pytest.raises(errors.ConfigError, match="too large"):
        counters.add(f"{unique}.x", 10**5000)
    with pytest.raises(errors.InvalidSubjectError):
        counters.add(f"{unique}.*")
    with pytest.raises(errors.NoStreamResponseError):
        counters.add(f"{unique}x.y")
    js.create_stream(name=f"{unique}x", subjects=[f"{unique}x.>"])
    with pytest.raises(errors.CountersNotEnabledError, match="no allow_msg_counter"):
        js.counters(f"{unique}x")
    with pytest.raises(errors.StreamNotFoundError):
        js.counters(f"{unique}y")
    with pytest.raises(errors.MessageIncrDisabledError):
        counters.add(f"{unique}x.y")
    counting(js, f"{unique}z")
    with pytest.raises(errors.JetStreamError, match=f"of stream {unique}z"):
        counters.add(f"{unique}z.y")
