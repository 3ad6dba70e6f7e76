from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest

from jsync import errors

from ....support.connection_faults import Events, connect

if TYPE_CHECKING:
    from collections.abc import Iterator

    import jsync

    from ....support.proxy import FaultProxy


@pytest.fixture
def bucket(js: jsync.JetStream, unique: str) -> Iterator[jsync.KeyValue]:
    """A bucket for this test alone, in memory, which keeps 5 revisions of a key."""
    yield js.create_key_value(bucket=unique, history=5, storage="memory")
    with contextlib.suppress(errors.BucketNotFoundError):
        js.delete_key_value(unique)


@pytest.fixture
def far(proxy: FaultProxy) -> Iterator[jsync.Connection]:
    """A connection through the proxy that reconnects at once."""
    with connect(proxy.url, Events()) as connection:
        yield connection
        connection.close()  # no drain: the test may have cut it a moment ago


@pytest.fixture
def far_bucket(far: jsync.Connection, bucket: jsync.KeyValue) -> jsync.KeyValue:
    """The same bucket over that connection."""
    return far.jetstream().key_value(bucket.bucket)
