"""Tests that the objects of a connection cannot be copied, because a copy would end them."""

from __future__ import annotations

import copy
import pickle
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    import jsync

MAKERS: dict[str, Callable[[jsync.Connection, jsync.Stream, str], object]] = {
    "Subscription": lambda nc, _, name: nc.subscribe(name),
    "BatchAdvisories": lambda nc, _, __: nc.jetstream().batch_advisories(),
    "Batch": lambda _, stream, __: stream.consumer("worker").fetch_nowait(5),
    "MessagesContext": lambda _, stream, __: stream.consumer("worker").messages(),
    "ConsumeContext": lambda _, stream, __: stream.consumer("worker").consume(print),
    "OrderedBatch": lambda _, stream, __: stream.ordered_consumer().fetch(5, timeout=5),
    "ArrowBatches": lambda _, stream, __: stream.consumer("worker").arrow_batches(),
    "Publisher": lambda nc, _, __: nc.jetstream().publisher(),
    "AtomicBatch": lambda nc, _, __: nc.jetstream().atomic_batch(),
    "FastIngest": lambda nc, _, __: nc.jetstream().fast_ingest(),
    "PushSubscription": lambda nc, _, name: nc.jetstream().subscribe(f"{name}.push"),
    "PullSubscription": lambda nc, _, name: nc.jetstream().pull_subscribe(
        f"{name}.pull", "puller"
    ),
}


@pytest.mark.parametrize("kind", MAKERS)
def test_live_objects_can_be_neither_copied_nor_pickled(
    nc: jsync.Connection, stream: jsync.Stream, unique: str, kind: str
) -> None:
    stream.create_consumer(durable_name="worker")
    one = MAKERS[kind](nc, stream, unique)
    assert type(one).__name__ == kind
    for duplicate in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match=f"cannot copy or pickle a {kind}"):
            duplicate(one)
