"""Tests of object stores on each release line."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest

import jsync
from jsync import errors

from ..server.jetstream.objects.support import chunks_of, noise
from ..support.threads import LONG

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def files(js: jsync.JetStream, unique: str) -> Iterator[jsync.ObjectStore]:
    yield js.create_object_store(bucket=unique, compression=True)
    with contextlib.suppress(errors.BucketNotFoundError):
        js.delete_object_store(unique)


@pytest.mark.parametrize("size", [0, 1, 500_000])
def test_objects_are_put_and_got(files: jsync.ObjectStore, size: int) -> None:
    data = noise(size)
    assert files.put("a", data, chunk_size=10_000).size == size
    assert files.get("a") == data


def test_objects_are_replaced_renamed_and_deleted(
    js: jsync.JetStream, files: jsync.ObjectStore
) -> None:
    files.put("a", noise(50_000), chunk_size=10_000)
    files.put("a", noise(30_000), chunk_size=10_000, metadata={"owner": "me"})
    files.update_meta("a", new_name="b", description="words")
    files.add_link("link", "b")
    assert files.get("link") == noise(30_000)
    assert sorted(info.name for info in files.list()) == ["b", "link"]
    info = files.info("b")
    assert (info.description, info.metadata) == ("words", {"owner": "me"})
    assert chunks_of(js, files) == {info.nuid: 3}
    files.delete("b")
    assert chunks_of(js, files) == {}
    found = files.check(older_than=0)
    assert not any((found.orphans, found.incomplete, found.renamed))


def test_an_object_is_a_file_to_seek_in(files: jsync.ObjectStore) -> None:
    data = noise(300_000)
    with files.open("a", "wb", chunk_size=1000) as file:
        file.write(data)
    with files.open("a") as source:
        for at in (299_000, 0, 150_500, 149_000):
            source.seek(at)
            assert source.read(2500) == data[at : at + 2500]


def test_chunks_among_those_of_others_are_found(
    js: jsync.JetStream, files: jsync.ObjectStore
) -> None:
    data = noise(100_000)
    with (
        files.open("a", "wb", chunk_size=1000) as one,
        files.open("b", "wb", chunk_size=700) as two,
    ):
        for at in range(0, 100_000, 2500):
            one.write(data[at : at + 2500])
            two.write(data[at : at + 2500])
    for name in ("a", "b"):
        with files.open(name) as file:
            for at in (99_000, 10, 50_500, 7000):
                file.seek(at)
                assert file.read(2500) == data[at : at + 2500]
        assert files.get(name) == data


def test_remains_of_a_crash_are_found_and_removed(
    js: jsync.JetStream, files: jsync.ObjectStore
) -> None:
    files.put("a", b"1")
    js.publish(f"$O.{files.bucket}.C.LOST", b"chunk")
    assert files.check().uploads == {"LOST": 1}
    assert files.check(older_than=0).orphans == {"LOST": 1}
    assert files.get("a") == b"1"


def test_stores_are_watched_and_sealed(files: jsync.ObjectStore) -> None:
    files.put("a", b"1")
    with files.watch() as watch:
        assert [info.name for info in watch.initial()] == ["a"]
        files.put("b", b"2")
        assert watch.next(LONG).name == "b"
    assert files.seal().is_sealed
    with pytest.raises(errors.StreamSealedError):
        files.put("c", b"3")
    assert files.get("b") == b"2"
