"""Tests of replicated stores while replicas are behind, leaders change and servers die."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING

import pytest

import jsync
from jsync import errors

from ..server.jetstream.objects.support import chunks_of, noise
from ..support.connection_faults import Events, connect
from ..support.servers import wait_for
from ..support.threads import Thread

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..support.servers import Cluster

pytestmark = pytest.mark.cluster

LONG = 120.0
MIB = 1 << 20


@pytest.fixture
def js(whole: Cluster) -> Iterator[jsync.JetStream]:
    with connect(whole.urls, Events()) as nc:
        yield nc.jetstream(timeout=10.0)


@pytest.fixture
def files(js: jsync.JetStream, unique: str) -> Iterator[jsync.ObjectStore]:
    yield js.create_object_store(bucket=unique, replicas=3)
    with contextlib.suppress(errors.Error):
        js.delete_object_store(unique)


def read(files: jsync.ObjectStore, name: str) -> bytes:
    """Return the object, once a replica that is behind also has it."""
    found: list[bytes] = []

    def is_there() -> bool:
        with contextlib.suppress(errors.ObjectNotFoundError):
            found.append(files.get(name))
        return bool(found)

    wait_for(is_there)
    return found[0]


def test_a_new_object_is_whole_on_any_replica(
    files: jsync.ObjectStore,
) -> None:
    for number in range(30):
        files.put(f"{number}", noise(300_000, number), chunk_size=10_000)
        assert read(files, f"{number}") == noise(300_000, number)
        with files.open(f"{number}") as file:
            for at in (290_000, 5, 150_000):
                file.seek(at)
                assert file.read(9000) == noise(300_000, number)[at : at + 9000]


def test_interleaved_chunks_are_found_in_a_replicated_store(
    files: jsync.ObjectStore,
) -> None:
    threads = [
        Thread(
            lambda seed=seed: files.put(
                f"{seed}", noise(200_000, seed), chunk_size=2000
            )
        )
        for seed in range(4)
    ]
    for thread in threads:
        thread.result()
    for seed in range(4):
        assert read(files, f"{seed}") == noise(200_000, seed)
        with files.open(f"{seed}") as file:
            for at in (190_000, 5, 100_000, 99_000):
                file.seek(at)
                assert file.read(5000) == noise(200_000, seed)[at : at + 5000]


@pytest.mark.slow
def test_objects_are_whole_or_absent_while_leaders_die(
    whole: Cluster, js: jsync.JetStream, files: jsync.ObjectStore
) -> None:
    stop = threading.Event()
    put: dict[str, int] = {}

    def write() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            with contextlib.suppress(errors.Error):
                files.put(f"{number % 5}", noise(MIB, number % 7), timeout=3)
                put[f"{number % 5}"] = number % 7

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(2):
            wait_for(lambda: len(put) == 5, LONG)
            whole.stream_leader(f"OBJ_{files.bucket}").kill()
            put.clear()
            wait_for(lambda: len(put) == 5, LONG)
            whole.start()
    finally:
        stop.set()
        writer.join()
    wait_for(lambda: _settled(files), LONG)
    for info in list(files.list()):
        assert files.get(info.name) in [noise(MIB, seed) for seed in range(7)]
    assert files.check(older_than=0).incomplete == []
    kept = {info.nuid: info.chunks for info in files.list()}
    assert chunks_of(js, files) == kept


def _settled(files: jsync.ObjectStore) -> bool:
    with contextlib.suppress(errors.Error):
        return all(files.get(info.name, timeout=3) is not None for info in files.list())
    return False
