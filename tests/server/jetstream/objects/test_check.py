"""Tests of the remains of crashes in a store, and of `check`, which finds them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from jsync import errors
from jsync.jetstream.objects import upload
from jsync.jetstream.objects.repository import ObjectRepository

from ....support.servers import wait_for
from ....support.threads import Thread
from .support import chunks_of, noise

if TYPE_CHECKING:
    from collections.abc import Callable

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


def test_old_chunks_of_an_interrupted_put_are_removed(
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


def test_a_deleted_objects_chunks_are_always_removed(
    js: jsync.JetStream, files: jsync.ObjectStore
) -> None:
    nuid = files.put("a", b"1").nuid
    files.delete("a")
    js.publish(f"$O.{files.bucket}.C.{nuid}", b"1")  # as if these chunks still existed
    assert files.check().orphans == {nuid: 1}
    assert chunks_of(js, files) == {}


def test_an_interrupted_renames_former_name_is_removed(
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
def test_an_interrupted_rename_harms_neither_name(
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


# Beside others ------------------------------------------------------------------------


def listings(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], object]]:
    """Return a list of what happens before the listings of a check, one by one."""
    before: list[Callable[[], object]] = []
    listed = ObjectRepository.infos

    def infos(self: ObjectRepository, *args: Any, **options: Any) -> Any:
        if before:
            before.pop(0)()
        return listed(self, *args, **options)

    monkeypatch.setattr(ObjectRepository, "infos", infos)
    return before


def nothing() -> None:
    """Let a listing be as it is."""


def test_chunks_that_a_second_listing_knows_stay(
    js: jsync.JetStream, files: jsync.ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = files.put("a", noise(2500), chunk_size=1000)
    message = js.get_message(f"OBJ_{files.bucket}", info.revision)

    def take_away() -> None:
        js.stream(f"OBJ_{files.bucket}").purge(subject=message.subject)

    def put_back() -> None:  # as a rename of async-nats does
        js.publish(message.subject, message.data)

    before = listings(monkeypatch)
    before += [take_away, put_back]
    assert files.check(older_than=0).orphans == {}
    assert files.get("a") == noise(2500)


def test_a_second_listing_comes_a_while_later(
    js: jsync.JetStream, files: jsync.ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    times: list[float] = []
    js.publish(f"$O.{files.bucket}.C.LOST", b"chunk")
    time.sleep(0.3)
    before = listings(monkeypatch)
    before += [lambda: times.append(time.monotonic())] * 2
    assert files.check(older_than=0.2).orphans == {"LOST": 1}
    assert times[1] - times[0] >= 0.2


def test_a_put_continuing_during_a_check_keeps_chunks(
    js: jsync.JetStream, files: jsync.ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = files.open("a", "wb", chunk_size=1000)
    file.write(noise(3500))
    wait_for(lambda: sum(chunks_of(js, files).values()) == 3)
    before = listings(monkeypatch)
    before += [nothing, lambda: file.write(noise(2500, 2))]
    found = files.check(older_than=0)
    assert found.orphans == {}
    assert len(found.uploads) == 1
    file.close()
    assert files.get("a") == noise(3500) + noise(2500, 2)


def test_chunks_that_come_after_the_last_look_stay(
    js: jsync.JetStream, files: jsync.ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    subject = f"$O.{files.bucket}.C.LOST"
    js.publish(subject, b"chunk")
    remove = ObjectRepository.remove_old

    def remove_old(self: ObjectRepository, *args: Any) -> int:
        js.publish(subject, b"late")
        return remove(self, *args)

    monkeypatch.setattr(ObjectRepository, "remove_old", remove_old)
    files.check(older_than=0)
    assert chunks_of(js, files) == {"LOST": 1}


@pytest.mark.parametrize("former", [None, b"", b"former"], ids=str)
def test_a_put_losing_chunks_fails_and_changes_nothing(
    js: jsync.JetStream,
    files: jsync.ObjectStore,
    monkeypatch: pytest.MonkeyPatch,
    former: bytes | None,
) -> None:
    monkeypatch.setattr(upload, "VERIFY_AFTER", 0.0)
    if former is not None:
        files.put("a", former)
    file = files.open("a", "wb", chunk_size=1000)
    file.write(noise(3500))
    wait_for(lambda: sum(chunks_of(js, files).values()) >= 3)
    files.check(older_than=0)  # an age that is shorter than the pause of the put
    with pytest.raises(errors.ObjectIncompleteError, match="older_than"):
        file.close()
    if former is None:
        with pytest.raises(errors.ObjectNotFoundError):
            files.get("a")
    else:
        assert files.get("a") == former
    assert sum(chunks_of(js, files).values()) == (1 if former else 0)
    assert files.check(older_than=0).incomplete == []


def test_a_former_name_that_is_used_again_stays(
    js: jsync.JetStream, files: jsync.ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    files.put("a", b"1")
    marked(js, files, "a", "b")
    message = js.get_message(f"OBJ_{files.bucket}", files.info("a").revision)
    renamed = message.data.replace(b'"a"', b'"b"')
    js.publish(f"$O.{files.bucket}.M.Yg==", renamed)
    before = listings(monkeypatch)
    before += [nothing, lambda: files.put("a", b"2")]
    assert files.check().renamed == []
    assert (files.get("a"), files.get("b")) == (b"2", b"1")


def test_three_names_of_one_id_all_stay(
    js: jsync.JetStream, files: jsync.ObjectStore
) -> None:
    info = files.put("a", b"1")
    message = js.get_message(f"OBJ_{files.bucket}", info.revision)
    for token in ("Yg==", "Yw=="):
        js.publish(f"$O.{files.bucket}.M.{token}", message.data)
    found = files.check(older_than=0)
    assert (found.renamed, found.orphans) == ([], {})
    assert [files.get(name) for name in "abc"] == [b"1"] * 3


def test_two_checks_at_once_remove_only_remains(
    js: jsync.JetStream, files: jsync.ObjectStore
) -> None:
    files.put("a", noise(2500), chunk_size=1000)
    for number in range(20):
        js.publish(f"$O.{files.bucket}.C.LOST{number}", b"chunk")
    threads = [Thread(lambda: files.check(older_than=0)) for _ in range(4)]
    for thread in threads:
        thread.result()
    assert chunks_of(js, files) == {files.info("a").nuid: 3}
    assert files.get("a") == noise(2500)
