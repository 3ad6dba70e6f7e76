"""Tests of the remains of crashes in a store, and of `check`, which finds them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from jsync import errors

from ...servers import wait_for
from .support import chunks_of, noise

if TYPE_CHECKING:
    import jsync


def test_a_store_without_faults_stays_as_it_is(
    js: jsync.JetStream, files: jsync.ObjectStore
) -> None:
    files.put("a", noise(5000), chunk_size=1000)
    files.put("empty", b"")
    files.add_link("link", "a")
    files.put("b", b"1")
    files.delete("b")
    stream = js.stream(f"OBJ_{files.bucket}")
    before = stream.info().state.replace(consumer_count=0)
    found = files.check(older_than=0)
    assert not any((found.orphans, found.uploads, found.incomplete, found.renamed))
    # The consumers of a check are deleted without waiting for it.
    wait_for(lambda: stream.info().state == before)


def test_chunks_of_a_put_that_was_cut_short_are_removed_once_they_are_old(
    js: jsync.JetStream, files: jsync.ObjectStore
) -> None:
    files.put("a", b"1")
    for _ in range(3):
        js.publish(f"$O.{files.bucket}.C.LOST", b"chunk")
    young = files.check()
    assert (young.orphans, young.uploads) == ({}, {"LOST": 3})
    assert files.check(older_than=0, remove=False).orphans == {"LOST": 3}
    assert len(chunks_of(js, files)) == 2
    assert files.check(older_than=0).orphans == {"LOST": 3}
    assert chunks_of(js, files) == {files.info("a").nuid: 1}
    assert files.get("a") == b"1"


def test_chunks_of_a_deleted_object_are_removed_at_any_age(
    js: jsync.JetStream, files: jsync.ObjectStore
) -> None:
    nuid = files.put("a", b"1").nuid
    files.delete("a")
    js.publish(f"$O.{files.bucket}.C.{nuid}", b"1")  # as if these chunks still existed
    assert files.check().orphans == {nuid: 1}
    assert chunks_of(js, files) == {}


def test_the_former_name_of_a_rename_that_was_cut_short_is_removed(
    js: jsync.JetStream, files: jsync.ObjectStore
) -> None:
    former = files.put("a", b"1")
    stream = f"OBJ_{files.bucket}"
    meta = js.get_message(stream, former.revision)
    files.update_meta("a", new_name="b")
    renamed = js.get_message(stream, files.info("b").revision)
    # as if the rename had ended between the two messages
    for message in (meta, renamed):
        js.publish(message.subject, message.data, headers={"Nats-Rollup": "sub"})
    assert sorted(info.name for info in files.list()) == ["a", "b"]
    assert files.check().renamed == ["a"]
    assert [info.name for info in files.list()] == ["b"]
    assert files.get("b") == b"1"


def test_an_incomplete_object_is_named_and_kept(
    js: jsync.JetStream, files: jsync.ObjectStore
) -> None:
    info = files.put("a", noise(5000), chunk_size=1000)
    js.stream(f"OBJ_{files.bucket}").delete_message(info.revision - 2)
    assert files.check(older_than=0).incomplete == ["a"]
    assert chunks_of(js, files) == {info.nuid: 4}


def test_a_put_on_its_way_is_left_alone(
    js: jsync.JetStream, files: jsync.ObjectStore
) -> None:
    with files.open("a", "wb", chunk_size=1000) as file:
        file.write(noise(5000))
        # The acks may still be on their way. A second connection does not keep their order.
        while sum(chunks_of(js, files).values()) < 5:
            pass
        assert files.check().orphans == {}
    assert files.get("a") == noise(5000)


@pytest.mark.parametrize("age", [-1, 1e10])
def test_an_invalid_age_is_rejected(files: jsync.ObjectStore, age: float) -> None:
    with pytest.raises(errors.ConfigError):
        files.check(older_than=age)


def marked(
    js: jsync.JetStream, files: jsync.ObjectStore, name: str, wanted: str
) -> None:
    """Make an object look as if a rename had stopped after its first step."""
    message = js.get_message(f"OBJ_{files.bucket}", files.info(name).revision)
    data = message.data[:-1] + b',"renamed_to":"%s"}' % wanted.encode()
    js.publish(message.subject, data, headers={"Nats-Rollup": "sub"})


@pytest.mark.parametrize("act", ["delete", "put"])
def test_a_rename_that_was_cut_short_harms_neither_name(
    js: jsync.JetStream, files: jsync.ObjectStore, act: str
) -> None:
    data = noise(5000)
    info = files.put("a", data, chunk_size=1000)
    marked(js, files, "a", "b")
    assert files.get("a") == data  # the rename has changed nothing yet
    message = js.get_message(f"OBJ_{files.bucket}", files.info("a").revision)
    renamed = message.data.replace(b'"a"', b'"b"')
    subject = f"$O.{files.bucket}.M.Yg=="
    js.publish(subject, renamed, headers={"Nats-Rollup": "sub"})
    if act == "delete":
        files.delete("a")
    else:
        files.put("a", b"other")
    assert files.get("b") == data
    assert files.check(older_than=0).incomplete == []
    assert files.get("b") == data
    assert chunks_of(js, files)[info.nuid] == 5
    files.update_meta("b", new_name="c")
    files.delete("c")
    for left in list(files.list()):
        files.delete(left.name)
    files.check(older_than=0)
    assert chunks_of(js, files) == {}


def test_a_former_name_without_chunks_is_removed(
    js: jsync.JetStream, files: jsync.ObjectStore
) -> None:
    info = files.put("a", b"1")
    marked(js, files, "a", "b")
    js.stream(f"OBJ_{files.bucket}").purge(subject=f"$O.{files.bucket}.C.{info.nuid}")
    assert files.check().renamed == ["a"]
    assert not list(files.list())
