"""Shared parts of the tests of services."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import msgspec

from ...support.threads import SOON

if TYPE_CHECKING:
    import jsync


DEEP = b'{"name":"a","id":"b","x":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
"""JSON that is nested too deeply to be read."""


class Order(msgspec.Struct):
    item: str
    quantity: int


class Total(msgspec.Struct):
    cents: int


class Slow:
    """A handler that signals its begin, and returns when the test releases it."""

    def __init__(self) -> None:
        self.begun = threading.Semaphore(0)
        self.go = threading.Event()

    def __call__(self, request: jsync.Request) -> bytes:
        self.begun.release()
        assert self.go.wait(60)
        return request.data

    def wait_begun(self, count: int = 1) -> None:
        for _ in range(count):
            assert self.begun.acquire(timeout=SOON)
