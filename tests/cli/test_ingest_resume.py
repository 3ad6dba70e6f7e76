"""Tests of a resumed ingest against a model: streams that reject rows, and others who publish."""

from __future__ import annotations

import contextlib
import random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from jsync.cli.ingest import resume as resuming, stored, target
from jsync.cli.ingest.resume import ResumeAfterIds, ResumeAfterPositions, RowToSend
from jsync.cli.ingest.rows import Row
from jsync.cli.ingest.stored import BackwardReader, StoredRow, stored_ids, stored_rows
from jsync.cli.ingest.target import _after_rows
from jsync.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jsync.cli.ingest.resume import Resume

WINDOW = 8
AHEAD = 5
"""The rows that are sent ahead of the acks."""
FILE: Any = SimpleNamespace(identity="f", name="f", unit="line")


class Model:
    """A stream that keeps some messages of each subject, or all."""

    def __init__(self, per_subject: int) -> None:
        self.per_subject = per_subject
        self.held: list[StoredRow] = []
        self.stored: list[str] = []
        """The ids of all messages that were ever stored."""

    def store(self, subject: str, msg_id: str) -> None:
        self.held.append(StoredRow(len(self.stored) + 1, subject, msg_id))
        self.stored.append(msg_id)
        same = [each for each in self.held if each.subject == subject]
        if self.per_subject and len(same) > self.per_subject:
            self.held.remove(same[0])


class Reading(BackwardReader):
    """Reads the model as `BackwardReader` reads a stream."""

    def __init__(self, model: Model) -> None:
        self._model = model
        info: Any = SimpleNamespace(
            state=SimpleNamespace(
                messages=len(model.held),
                first_seq=model.held[0].sequence if model.held else 1,
                last_seq=len(model.stored),
            ),
            config=SimpleNamespace(
                **dict.fromkeys(("max_age", "max_msgs", "max_bytes")),
                max_msgs_per_subject=model.per_subject,
                discard="old",
            ),
        )
        super().__init__(SimpleNamespace(leader_info=lambda: info), ">")  # type: ignore[arg-type]

    def _read(self, start: int, end: int) -> Iterator[StoredRow]:
        yield from (each for each in self._model.held if start <= each.sequence <= end)


def resume_of(model: Model, rows: list[RowToSend], how: str) -> Resume | None:
    backwards = Reading(model)
    if how == "places":
        return ResumeAfterPositions(backwards, stored_rows(backwards, {"f": 1}))
    ids = stored_ids(backwards)
    if not ids.ids:
        return None
    if how == "pipe":
        return ResumeAfterIds(backwards, ids)
    numbered = [("f", row.row.number, row.msg_id or "") for row in rows]
    try:
        return _after_rows(backwards, ids, numbered)
    except ConfigError:
        assert not {each.msg_id for each in model.held} & {row.msg_id for row in rows}
        return None


def chosen(rows: list[RowToSend], resume: Resume | None) -> Iterator[RowToSend | None]:
    if resume is None:
        yield from rows
        return
    for row in rows:
        yield from resume.choose(row)
    resume.end_file(FILE)
    resume.end()


class Ingest:
    """One run of the command, which a rejected row ends, and which may be killed."""

    def __init__(self, model: Model, rng: random.Random, *, others: bool) -> None:
        self._model, self._rng, self._others = model, rng, others
        self._passed = 0  # the answers before that of the first pending row

    def run(
        self,
        rows: list[RowToSend],
        resume: Resume | None,
        rejected: set[int],
        kill_at: int | None,
    ) -> bool:
        """Whether it ended with all rows stored."""
        pending: list[RowToSend] = []
        failed = False
        for sent, row in enumerate(chosen(rows, resume)):
            if sent == kill_at:
                return False
            if row is not None:
                pending.append(row)
            room = 0 if row is None else self._rng.randrange(AHEAD)
            while len(pending) > room:
                failed |= self._answer(pending, rejected)
            if failed:
                break
        while pending:
            failed |= self._answer(pending, rejected)
        return not failed

    def _answer(self, pending: list[RowToSend], rejected: set[int]) -> bool:
        """Store a row, or reject it."""
        if self._others and self._rng.random() < 0.2:
            subject = self._rng.choice("abc")
            self._model.store(subject, self._rng.choice(["", "other", "g:1:00000000"]))
        # Without limits the order does not matter: a new leader may change it.
        at = 0
        if not self._model.per_subject and self._passed < 3:
            at = self._rng.randrange(min(3, len(pending)))
        self._passed = self._passed + 1 if at else 0
        _, row, subject, msg_id = pending.pop(at)
        if row.number in rejected:
            return True
        self._model.store(subject, msg_id or "")
        return False


@pytest.mark.parametrize(
    ("how", "per_subject"),
    [
        *(("places", 0), ("places", 1), ("places", 2)),
        *(("file", 0), ("file", 1), ("file", 2)),
        ("pipe", 0),
    ],
)
def test_resumed_ingests_store_every_row_once(
    monkeypatch: pytest.MonkeyPatch, how: str, per_subject: int
) -> None:
    for module in (stored, resuming, target):
        monkeypatch.setattr(module, "WINDOW", WINDOW)
    monkeypatch.setattr(stored, "_FIRST_READ", 6)
    for seed in range(60):
        with noted(seed):
            check_resumed_ingests(seed, how, per_subject)


@contextlib.contextmanager
def noted(seed: int) -> Iterator[None]:
    """Add the seed to the error of the block."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"with the seed {seed}")
        raise


def check_resumed_ingests(seed: int, how: str, per_subject: int) -> None:
    rng = random.Random(seed)
    others = seed % 2 == 1
    model = Model(per_subject)
    rows = [
        RowToSend(FILE, Row(n, {}, b""), rng.choice("abcdefgh"), f"f:{n}:00000000")
        for n in range(1, rng.randrange(2, 70))
    ]
    ids = [row.msg_id or "" for row in rows]
    ingest = Ingest(model, rng, others=others)
    resume: Resume | None = None
    for _ in range(rng.randrange(1, 6)):
        rejected = {rng.randrange(1, 70) for _ in range(rng.randrange(4))}
        kill_at = rng.randrange(70) if rng.random() < 0.5 else None
        with contextlib.suppress(ConfigError):
            ingest.run(rows, resume, rejected, kill_at)
        resume = resume_of(model, rows, how)
        if not set(model.stored) & set(ids):
            resume = None  # the command says so, and nothing is there to resume
    assert ingest.run(rows, resume, set(), None)
    found = [each for each in model.stored if each in ids]
    if per_subject == 0:
        assert sorted(found) == sorted(ids)
        return
    for subject in "abcdefgh":
        wanted = [row.msg_id for row in rows if row.subject == subject]
        kept = [each.msg_id for each in model.held if each.subject == subject]
        if subject in "abc" and others:
            # A row that others replaced may be stored again, or not.
            assert set(wanted[-1:]) <= set(kept) or set(kept) - set(ids)
        else:
            assert set(kept) <= set(wanted)
            assert len(kept) == min(per_subject, len(wanted))
            assert set(wanted[-1:]) <= set(kept)
