"""Tests of the ids of a task's rows."""

from __future__ import annotations

import pyarrow as pa
import pytest

from jsync.errors import ConfigError
from jsync.spark.sink import message_ids
from jsync.spark.sink.message_ids import MessageIds


def test_different_ids_and_nulls_are_accepted() -> None:
    ids = MessageIds()
    ids.add(pa.array(["a", None, "b", None]))
    ids.add(pa.array([None, "c"], pa.large_string()).cast(pa.string()))
    ids.add(pa.array([], pa.string()))
    ids.check()


def test_an_id_repeated_in_a_batch_is_named() -> None:
    with pytest.raises(ConfigError, match="2 rows of a task repeat a msg_id: 'a'"):
        MessageIds().add(pa.array(["a", "b", "a"]))


def test_ids_repeated_in_other_batches_are_named() -> None:
    ids = MessageIds()
    for _ in range(2):
        ids.add(pa.array(["a", "b\n", "c", "d", "e"]))
    with pytest.raises(ConfigError) as caught:
        ids.check()
    assert "10 rows" in str(caught.value)
    assert "and 2 others" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_ids_above_the_limit_are_compared_and_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(message_ids, "MAX_BYTES", 40)
    ids = MessageIds()
    ids.add(pa.array(["a" * 20]))
    with pytest.raises(ConfigError, match="repeat a msg_id"):
        ids.add(pa.array(["a" * 20]))
    ids = MessageIds()
    for number in range(10):
        ids.add(pa.array([f"{number:>30}"]))
    assert sum(kept.nbytes for kept in ids._seen) <= 80
    ids.check()
