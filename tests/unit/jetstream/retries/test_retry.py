"""Tests of the delays of retries, and of the headers of dead letters."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, strategies as st

import jsync
from jsync import Retry, errors
from jsync._fast import encode_headers, parse_headers
from jsync.jetstream.retries.engine import (
    MessageOrigin,
    as_text,
    dead_letter_headers,
    format_error,
    one_line,
    original_headers,
)

WHEN = datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=UTC)
ORIGIN = MessageOrigin("ORDERS", "billing", 17, WHEN, 5, "orders.paid")


def test_delays_come_in_turn_and_the_last_stays() -> None:
    retry = Retry(delays=[1, timedelta(seconds=5), 30], attempts=6)
    found = [retry.delay_after(attempt, OSError()) for attempt in range(1, 8)]
    assert found == [1, 5, 30, 30, 30, None, None]


def test_a_factor_grows_later_delays_to_the_longest() -> None:
    retry = Retry(delays=[1, 10], factor=2, max_delay=60, attempts=None)
    assert [retry.delay(attempt) for attempt in range(1, 8)] == [
        *(1, 10, 20, 40, 60, 60, 60),
    ]
    assert retry.delay(10**9) == 60


def test_the_longest_shortens_no_delay_that_was_given() -> None:
    assert Retry(delays=[7200], max_delay=60).delay(9) == 7200


def test_jitter_only_shortens() -> None:
    retry = Retry(delays=[10], jitter=0.5)
    found = [retry.delay_after(1, OSError(), chance) for chance in (0, 0.5, 1)]
    assert found == [10, 7.5, 5]


def test_exceptions_say_whether_another_attempt_is_worth_it() -> None:
    retry = Retry(retry_on=OSError, give_up_on=FileNotFoundError)
    assert retry.delay_after(1, ConnectionResetError()) == 1
    assert retry.delay_after(1, FileNotFoundError()) is None
    assert retry.delay_after(1, ValueError()) is None
    # A handler that calls sys.exit has failed like any other.
    assert Retry().delay_after(1, SystemExit()) == 1


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ({"delays": []}, "delays"),
        ({"delays": 5}, "delays"),
        ({"delays": "135"}, "delays"),
        ({"delays": [-1]}, "delays"),
        ({"delays": [2e9]}, "delays"),
        ({"attempts": 0}, "attempts"),
        ({"attempts": True}, "attempts"),
        ({"factor": 0.5}, "factor"),
        ({"factor": float("nan")}, "factor"),
        ({"jitter": 2}, "jitter"),
        ({"max_delay": -1}, "max_delay"),
        ({"retry_on": [OSError]}, "retry_on"),
        ({"give_up_on": "ValueError"}, "give_up_on"),
        ({"dead_letter": "dead.*"}, "dead_letter"),
        ({"dead_letter": ""}, "dead_letter"),
        ({"deliveries": 4}, "deliveries"),
        ({"traceback_size": -1}, "traceback_size"),
    ],
)
def test_an_invalid_policy_is_rejected(bad: Any, words: str) -> None:
    with pytest.raises(errors.ConfigError, match=words):
        Retry(**bad)


@pytest.mark.parametrize(
    ("config", "most"),
    [
        (None, 10),
        (jsync.ConsumerConfig(), 10),
        (jsync.ConsumerConfig(max_deliver=-1), 10),
        (jsync.ConsumerConfig(max_deliver=100), 10),
        (jsync.ConsumerConfig(max_deliver=8), 7),
        (jsync.ConsumerConfig(max_deliver=6), 5),
    ],
)
def test_a_message_ends_before_the_server_strands_it(
    config: jsync.ConsumerConfig | None, most: int
) -> None:
    assert Retry(attempts=5).max_deliver(config) == most


@pytest.mark.parametrize(
    "config",
    [
        jsync.ConsumerConfig(max_deliver=5),
        jsync.ConsumerConfig(ack_policy="none"),
        jsync.ConsumerConfig(ack_policy="all"),
    ],
)
def test_a_consumer_that_does_not_fit_is_rejected(config: jsync.ConsumerConfig) -> None:
    with pytest.raises(errors.ConfigError, match=r"max_deliver|ack_policy"):
        Retry(attempts=5).max_deliver(config)


def test_for_ever_fits_no_consumer_with_a_limit() -> None:
    with pytest.raises(errors.ConfigError, match="attempts=None"):
        Retry(attempts=None).max_deliver(jsync.ConsumerConfig(max_deliver=50))


# Dead letters -------------------------------------------------------------------------


def raised() -> ValueError:
    try:
        raise ValueError("two\nlines")
    except ValueError as error:
        return error


def letter(headers: Any = None, size: int = 4096) -> dict[str, list[str]]:
    found = dead_letter_headers(ORIGIN, headers, "why", raised(), WHEN, size)
    return dict(found)


def test_a_dead_letter_names_origin_and_reason() -> None:
    found = {name: values[0] for name, values in letter().items()}
    text = as_text(found.pop("Dead-Letter-Traceback"))
    assert text.startswith("Traceback")
    assert text.endswith("ValueError: two\nlines")
    assert found == {
        "Dead-Letter-Reason": "why",
        "Dead-Letter-Subject": "orders.paid",
        "Dead-Letter-Stream": "ORDERS",
        "Dead-Letter-Consumer": "billing",
        "Dead-Letter-Sequence": "17",
        "Dead-Letter-Attempts": "5",
        "Dead-Letter-Stored": "2026-01-02T03:04:05.000678+00:00",
        "Dead-Letter-Time": "2026-01-02T03:04:05.000678+00:00",
        "Dead-Letter-Exception": "builtins.ValueError",
        "Nats-Msg-Id": "dead:ORDERS:billing:17:1767323045000678",
    }


def test_message_headers_are_kept_but_give_no_orders() -> None:
    headers = {"Trace": ["a", "b"], "Nats-Msg-Id": "7", "Nats-TTL": "1"}
    found = letter(headers)
    assert found["Trace"] == ["a", "b"]
    assert found["Dead-Letter-Original-Nats-Msg-Id"] == ["7"]
    assert "Nats-TTL" not in found
    assert original_headers(found) == {
        "Trace": ["a", "b"],
        "Nats-Msg-Id": ["7"],
        "Nats-TTL": ["1"],
    }


def test_a_dead_letter_describes_only_its_last_failure() -> None:
    found = letter(letter({"Nats-Msg-Id": "7"}))
    assert found["Dead-Letter-Reason"] == ["why"]
    assert all(len(values) == 1 for values in found.values())


def test_a_message_keeps_its_id_within_its_stream() -> None:
    assert ORIGIN.msg_id == ORIGIN._replace(attempts=9).msg_id
    later = WHEN + timedelta(microseconds=1)
    assert ORIGIN.msg_id != ORIGIN._replace(timestamp=later).msg_id
    assert ORIGIN.msg_id != ORIGIN._replace(consumer="other").msg_id


def test_the_end_of_a_long_traceback_is_kept() -> None:
    (text,) = letter(size=40)["Dead-Letter-Traceback"]
    assert text.startswith("...")
    assert text.endswith(r"ValueError: two\nlines")
    assert len(text) <= 43
    assert "Dead-Letter-Traceback" not in letter(size=0)


@given(st.text(st.characters(exclude_categories=())))
def test_any_text_can_be_sent(text: str) -> None:
    value = one_line(text)
    block = encode_headers({"A": value})
    assert (parse_headers(block)[2] or jsync.Headers()).get("A", "") == value


@given(st.text(st.sampled_from('\\"\nan\t ')))
def test_text_comes_back_from_a_header(text: str) -> None:
    assert as_text(one_line(text)) == text.strip(" ")


def test_an_exception_that_cannot_be_described_is_described() -> None:
    class BadError(Exception):
        def __str__(self) -> str:
            raise OSError

    assert format_error(BadError()) == "BadError: its text raised OSError"
    assert dead_letter_headers(ORIGIN, None, "why", BadError(), WHEN, 100)
    assert format_error(KeyError()) == "KeyError"
