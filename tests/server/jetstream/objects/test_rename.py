"""Tests of renames that are cut short, and beside other changes of the object."""

from __future__ import annotations

import contextlib
import random
from typing import TYPE_CHECKING, Any

import pytest

from jsync import errors
from jsync.jetstream.objects import rename_marks
from jsync.jetstream.objects.repository import ObjectRepository

from ....support.threads import Thread
from .support import chunks_of, noise

if TYPE_CHECKING:
    from collections.abc import Callable

    import jsync

DATA = noise(2500)


@pytest.fixture
def acts(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], object] | None]:
    """What happens before each info that the test's thread stores, one by one."""
    before: list[Callable[[], object] | None] = []
    put = ObjectRepository.put_info

    def put_info(self: ObjectRepository, *args: Any) -> int:
        act = before.pop(0) if before else None
        if act is not None:
            act()
        return put(self, *args)

    monkeypatch.setattr(ObjectRepository, "put_info", put_info)
    return before


class CutShortError(Exception):
    """Stands for the end of the process."""


def cut_short() -> None:
    """End the change here, as a kill of the process would."""
    raise CutShortError


def begin(
    files: jsync.ObjectStore, acts: list[Callable[[], object] | None], *, steps: int
) -> None:
    """Put `a`, and rename it to `b` up to a step."""
    files.put("a", DATA, chunk_size=1000)
    acts += [None] * steps + [cut_short]
    with pytest.raises(CutShortError):
        files.update_meta("a", new_name="b")


def names(files: jsync.ObjectStore) -> list[str]:
    return sorted(info.name for info in files.list())


@pytest.mark.parametrize("other", [False, True], ids=["same name", "another name"])
def test_an_interrupted_rename_can_be_repeated(
    js: jsync.JetStream,
    files: jsync.ObjectStore,
    acts: list[Callable[[], object] | None],
    monkeypatch: pytest.MonkeyPatch,
    other: bool,
) -> None:
    monkeypatch.setattr(rename_marks, "ABANDONED_AFTER", 0.2)
    begin(files, acts, steps=2)
    assert (names(files), files.get("a")) == (["a"], DATA)
    wanted = "c" if other else "b"
    assert files.update_meta("a", new_name=wanted, description="words").chunks == 3
    assert (names(files), files.get(wanted)) == ([wanted], DATA)
    assert files.info(wanted).description == "words"
    assert files.info(wanted).renamed_to is None
    files.delete(wanted)
    assert chunks_of(js, files) == {}


def test_a_rename_lacking_its_last_step_is_completed(
    files: jsync.ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    files.put("a", DATA, chunk_size=1000)
    with monkeypatch.context() as patch:
        patch.setattr(ObjectRepository, "remove_info", lambda *_: cut_short())
        with pytest.raises(CutShortError):
            files.update_meta("a", new_name="b")
    assert names(files) == ["a", "b"]
    info = files.update_meta("a", new_name="b", description="words")
    assert (info.name, info.description) == ("b", "words")
    assert names(files) == ["b"]
    assert files.get("b") == DATA


def test_a_former_name_is_no_object_to_rename(
    files: jsync.ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    files.put("a", DATA)
    with monkeypatch.context() as patch:
        patch.setattr(ObjectRepository, "remove_info", lambda *_: cut_short())
        with pytest.raises(CutShortError):
            files.update_meta("a", new_name="b")
    with pytest.raises(errors.ObjectNotFoundError):
        files.update_meta("a", new_name="c")
    assert (names(files), files.get("b")) == (["b"], DATA)


@pytest.mark.parametrize("step", [1, 2, 3])
@pytest.mark.parametrize("act", ["put", "delete", "update", "rename", "check"])
def test_a_change_during_a_rename_loses_no_bytes(
    files: jsync.ObjectStore,
    acts: list[Callable[[], object] | None],
    monkeypatch: pytest.MonkeyPatch,
    act: str,
    step: int,
) -> None:
    monkeypatch.setattr(rename_marks, "ABANDONED_AFTER", 0.2)
    files.put("a", DATA, chunk_size=1000)
    changes: dict[str, Callable[[], object]] = {
        "put": lambda: files.put("a", b"other"),
        "delete": lambda: files.delete("a"),
        "update": lambda: files.update_meta("a", description="words"),
        "rename": lambda: files.update_meta("a", new_name="c"),
        "check": lambda: files.check(older_than=0),
    }
    acts += [None] * (step - 1) + [changes[act]]
    failure = None
    try:
        files.update_meta("a", new_name="b")
    except errors.ObjectNotFoundError as error:
        failure = error
    files.check(older_than=0)
    found = {info.name: files.get(info.name) for info in files.list()}
    match act:
        case "put":
            assert found in ({"b": b"other"}, {"a": b"other", "b": DATA})
        case "delete":
            # The delete came after the rename had looked at the object.
            assert found == ({} if failure else {"b": DATA})
        case "rename":
            assert found == ({"c": DATA} if failure else {"b": DATA})
        case _:
            assert found == {"b": DATA}
    if act == "update":
        assert files.info("b").description == "words"
    assert files.check(older_than=0).incomplete == []


def test_a_rename_stops_at_an_existing_new_name(
    files: jsync.ObjectStore, acts: list[Callable[[], object] | None]
) -> None:
    files.put("a", DATA)
    acts += [None, None, lambda: files.put("b", b"other")]
    with pytest.raises(errors.ObjectExistsError):
        files.update_meta("a", new_name="b")
    assert (files.get("a"), files.get("b")) == (DATA, b"other")
    assert files.info("a").renamed_to is None


@pytest.mark.parametrize("act", ["put", "delete", "update", "rename"])
def test_a_blocked_rename_stays_blocked(
    js: jsync.JetStream,
    files: jsync.ObjectStore,
    acts: list[Callable[[], object] | None],
    monkeypatch: pytest.MonkeyPatch,
    act: str,
) -> None:
    """The new name belongs to another object for a while, so that it has no info again."""
    monkeypatch.setattr(rename_marks, "ABANDONED_AFTER", 0.2)
    files.put("a", DATA, chunk_size=1000)

    def change() -> None:
        files.put("b", b"other")
        match act:
            case "put":
                files.put("a", b"new")
            case "delete":
                files.delete("a")
            case "update":
                files.update_meta("a", description="words")
            case _:
                files.update_meta("a", new_name="d")
        files.update_meta("b", new_name="c")

    acts += [None, None, change]
    with contextlib.suppress(errors.ObjectNotFoundError):
        files.update_meta("a", new_name="b")
    found = {info.name: files.get(info.name) for info in files.list()}
    assert found.pop("c") == b"other"
    match act:
        case "put":
            assert found == {"b": b"new"}
        case "delete":
            assert found == {}
        case "update":
            assert found == {"b": DATA}
            assert files.info("b").description == "words"
        case _:
            assert found == {"d": DATA}
    for name in names(files):
        files.delete(name)
    assert chunks_of(js, files) == {}


@pytest.mark.parametrize("targets", ["same", "different"])
def test_an_object_that_many_rename_has_one_name(
    js: jsync.JetStream, files: jsync.ObjectStore, targets: str
) -> None:
    for turn in range(5):
        data = noise(2500, turn)
        files.put("a", data, chunk_size=1000)
        wanted = ["b"] * 4 if targets == "same" else list("bcde")

        def move(name: str) -> str | None:
            with contextlib.suppress(
                errors.ObjectNotFoundError, errors.ObjectExistsError
            ):
                return files.update_meta("a", new_name=name).name
            return None

        threads = [Thread(move, name) for name in wanted]
        done = {thread.result() for thread in threads} - {None}
        left = names(files)
        assert len(left) == 1
        assert done == set(left)
        assert files.get(left[0]) == data
        files.delete(left[0])
        assert not chunks_of(js, files)


def test_random_renames_keep_every_object(
    js: jsync.JetStream, files: jsync.ObjectStore
) -> None:
    for number in range(6):
        files.put(f"{number}", noise(1500, number), chunk_size=1000)

    def move(seed: int) -> None:
        choose = random.Random(seed)
        for _ in range(15):
            old, new = choose.sample(range(9), 2)
            with contextlib.suppress(
                errors.ObjectNotFoundError, errors.ObjectExistsError
            ):
                files.update_meta(f"{old}", new_name=f"{new}")

    for thread in [Thread(move, seed) for seed in range(4)]:
        thread.result()
    found = sorted(files.get(info.name) for info in files.list())
    assert found == sorted(noise(1500, number) for number in range(6))
    again = files.check(older_than=0)
    assert (again.orphans, again.renamed, again.incomplete) == ({}, [], [])
    for info in list(files.list()):
        files.delete(info.name)
    assert chunks_of(js, files) == {}


def test_an_early_rename_back_loses_nothing(
    files: jsync.ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    files.put("a", DATA, chunk_size=1000)
    remove = ObjectRepository.remove_info
    back = [lambda: files.update_meta("b", new_name="a")]

    def remove_info(self: ObjectRepository, *args: Any) -> int:
        if back:
            back.pop()()
        return remove(self, *args)

    monkeypatch.setattr(ObjectRepository, "remove_info", remove_info)
    files.update_meta("a", new_name="b")
    assert not back
    assert (names(files), files.get("a")) == (["a"], DATA)


@pytest.mark.parametrize("last", ["d", "a", "b"])
def test_successive_interrupted_renames_lose_nothing(
    js: jsync.JetStream,
    files: jsync.ObjectStore,
    monkeypatch: pytest.MonkeyPatch,
    last: str,
) -> None:
    files.put("a", DATA, chunk_size=1000)
    with monkeypatch.context() as patch:
        patch.setattr(ObjectRepository, "remove_info", lambda *_: cut_short())
        for old, new in [("a", "b"), ("b", "c"), ("c", last)]:
            with pytest.raises(CutShortError):
                files.update_meta(old, new_name=new)
    monkeypatch.setattr(rename_marks, "ABANDONED_AFTER", 0.1)
    assert files.get(last) == DATA
    files.update_meta(last, new_name="end")
    files.check(older_than=0)
    assert (names(files), files.get("end")) == (["end"], DATA)
    files.delete("end")
    assert chunks_of(js, files) == {}


@pytest.mark.parametrize("act", ["put", "delete", "update", "rename"])
def test_a_former_name_harms_no_other_one(
    js: jsync.JetStream,
    files: jsync.ObjectStore,
    monkeypatch: pytest.MonkeyPatch,
    act: str,
) -> None:
    files.put("a", DATA, chunk_size=1000)
    with monkeypatch.context() as patch:
        patch.setattr(ObjectRepository, "remove_info", lambda *_: cut_short())
        with pytest.raises(CutShortError):
            files.update_meta("a", new_name="b")
    match act:
        case "put":
            files.put("a", b"other")
            assert files.get("a") == b"other"
        case "delete":
            assert files.delete("a").deleted
        case "update":
            with pytest.raises(errors.ObjectNotFoundError):
                files.update_meta("a", description="words")
        case _:
            with pytest.raises(errors.ObjectNotFoundError):
                files.update_meta("a", new_name="c")
    assert files.get("b") == DATA
    files.delete("b")
    assert sum(chunks_of(js, files).values()) == (1 if act == "put" else 0)


def test_the_first_of_three_names_has_no_object(
    files: jsync.ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rename_marks, "ABANDONED_AFTER", 0.1)
    for end in ("c", "b"):
        files.put("a", DATA, chunk_size=1000)
        with monkeypatch.context() as patch:
            patch.setattr(ObjectRepository, "remove_info", lambda *_: cut_short())
            with pytest.raises(CutShortError):
                files.update_meta("a", new_name="b")
        if end == "c":
            files.update_meta("b", new_name="c")
            files.put("a", b"other")
        else:
            files.check(older_than=0)
            assert files.info("b").renamed_from == "a"
        assert (files.get(end), names(files)[-1]) == (DATA, end)
        for name in names(files):
            files.delete(name)
