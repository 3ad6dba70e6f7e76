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
def files(js: jsync.JetStream, unique: str) -> Iterator[jsync.ObjectStore]:
    """A store for this test alone, in memory."""
    yield js.create_object_store(bucket=unique, storage="memory")
    with contextlib.suppress(errors.BucketNotFoundError):
        js.delete_object_store(unique)


@pytest.fixture
def far(proxy: FaultProxy) -> Iterator[jsync.Connection]:
    """A connection through the proxy that reconnects at once."""
    with connect(proxy.url, Events()) as connection:
        yield connection
        connection.close()  # no drain: the test may have cut it a moment ago


@pytest.fixture
def far_files(far: jsync.Connection, files: jsync.ObjectStore) -> jsync.ObjectStore:
    """The same store over that connection."""
    return far.jetstream().object_store(files.bucket)
