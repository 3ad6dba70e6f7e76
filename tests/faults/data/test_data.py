"""Campaigns of exports, ingests, backups and restores that are interrupted anywhere.

Commands are killed, interrupted, cut off, or find the disk or the stream full. Two operators run
at once, and a second writer publishes beside them. The judge compares what is left with what was
acknowledged: nothing is destroyed, doubled or missing without an error.
"""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from typing import TYPE_CHECKING

import jsync
from jsync import errors
from jsync.jetstream.backups.engine import UNFINISHED

from .world import (
    CUTS,
    DELAY,
    DISK,
    KILLS,
    NONE,
    Operator,
    Writer,
    messages_of,
    pause,
    run,
)

if TYPE_CHECKING:
    from pathlib import Path
    from random import Random

    from jsync.server import LocalServer

    from ...conftest import StartServer
    from ...support.campaign import Campaign


MAX_LARGE = 250
"""Messages of 16 KB. A server creates a restored stream with the first megabyte of an archive."""
FILES = {"backup.json", "stream.arc.s2"}


# Exports --------------------------------------------------------------------------------


def lines_of(path: Path) -> list[bytes]:
    """Return the complete lines of a file, or nothing if there is none."""
    with contextlib.suppress(FileNotFoundError):
        return path.read_bytes().split(b"\n")[:-1]
    return []


class Export:
    """One file that operators write, by export and by continued exports."""

    def __init__(
        self, server: LocalServer, stream: jsync.Stream, path: Path, rng: Random
    ) -> None:
        self._server, self._rng = server, rng
        self._stream, self._path = stream, path
        self._part = path.with_name(f"{path.name}.partial")
        self.command = ("export", stream.name, "-o", str(path), "--no-progress")
        self._size = 4 * stream.info().state.bytes

    def run(self, *more: str, operators: int = 1, faults: tuple[str, ...]) -> bool:
        """Run it once, and return whether it has succeeded. No file may have got shorter."""
        whole, part = self._bytes(self._path), lines_of(self._part)
        commands = [(*self.command, *more)] * operators
        ended = run(self._server, self._rng, faults, self._size, *commands)
        succeeded = [code for code, _ in ended].count(0)
        assert succeeded <= 1, ended
        if whole is not None:
            assert (self._bytes(self._path), succeeded) == (whole, 0)
        elif succeeded and operators == 1:
            assert not self._part.exists()
        # An operator who comes second may leave a part of its own.
        left = [lines_of(self._part)[: len(part)], lines_of(self._path)[: len(part)]]
        assert part in left
        return self._path.exists()

    def _bytes(self, path: Path) -> bytes | None:
        return path.read_bytes() if path.exists() else None

    def careless(self) -> None:
        """Write the rest to the same file, by its sequence."""
        if self._part.exists():
            last = len(lines_of(self._part))
            assert not self.run("--from", str(last + 1), faults=NONE)

    @property
    def more(self) -> tuple[str, ...]:
        return ("--resume",) if self._part.exists() else ()


def test_an_export_loses_and_repeats_no_message(
    own_server: StartServer, tmp_path: Path, campaign: Campaign
) -> None:
    server, rng = own_server(), campaign.random()
    with jsync.connect(server.url) as nc:
        js = nc.jetstream()
        for number in campaign.rounds():
            name, path = f"E{number}", tmp_path / f"{number}.ndjson"
            stream = js.create_stream(name=name, subjects=[f"{name}.>"])
            with js.publisher() as publisher:
                for _ in range(rng.randrange(1, 600)):
                    publisher.publish(f"{name}.x", rng.randbytes(500).hex().encode())
            with Writer(js, f"{name}.writer") as writer:
                export = Export(server, stream, path, rng)
                for _ in range(rng.randrange(1, 4)):
                    if export.run(
                        *export.more, operators=rng.randrange(1, 3), faults=DISK
                    ):
                        break
                    export.careless()
                kept = writer.kept()
                if path.exists():
                    kept = {}  # the export that succeeded may be older
                else:
                    assert export.run(*export.more, faults=NONE)
                assert export.run(faults=NONE)  # refused: the file stays
            rows = [json.loads(line) for line in lines_of(path)]
            sequences = [row["sequence"] for row in rows]
            assert sequences == sorted(set(sequences))
            held = {msg.metadata.stream_sequence: msg for msg in messages_of(stream)}
            written = {row["sequence"]: row["data"].encode() for row in rows}
            for sequence, msg in held.items():
                if sequence <= sequences[-1]:
                    assert written[sequence] == msg.data
            assert kept.items() <= written.items()
            stream.delete()


# Ingests --------------------------------------------------------------------------------


def refuse_some(stream: jsync.Stream, rng: Random, size: int, run: Operator) -> None:
    """Have the stream refuse long rows for a moment, and take short ones."""
    run.wait_for_bytes(rng.randrange(1, size))
    stream.update(max_bytes=stream.info().state.bytes + rng.randrange(1, 3000))
    pause()
    stream.update(max_bytes=-1)


def test_an_ingest_stores_each_row_once(
    own_server: StartServer, tmp_path: Path, campaign: Campaign
) -> None:
    server, rng = own_server(), campaign.random()
    with jsync.connect(server.url) as nc:
        js = nc.jetstream()
        for number in campaign.rounds():
            name, path = f"I{number}", tmp_path / f"{number}.ndjson"
            operators = rng.randrange(1, 3)
            faults = rng.choice((KILLS, CUTS))
            # The stream forgets ids at once, where no message can be sent twice.
            forgets = operators == 1 and faults is KILLS
            stream = js.create_stream(
                name=name,
                subjects=[f"{name}.>"],
                discard="new",
                allow_batched=True,
                duplicate_window=0.1 if forgets else 120,
            )
            rows = [
                b'{"n":%d,"x":"%s"}' % (n, b"x" * rng.choice((1, 2000)))
                for n in range(rng.randrange(1, 3000))
            ]
            path.write_bytes(b"".join(row + b"\n" for row in rows))
            size = 2 * path.stat().st_size
            how = rng.choice(("async", "async", "ingest"))
            ids = rng.choice(((), ("--id", "row-{n}")))
            command = ("ingest", str(path), "--subject", f"{name}.{{n}}", *ids)
            command = (*command, "--publisher", how, "--no-progress")
            with Writer(js, f"{name}.{rng.choice(('writer', '1'))}") as writer:
                more: tuple[str, ...] = ()
                for _ in range(rng.randrange(1, 4)):
                    refuses = rng.random() < 0.5

                    def beside(
                        run: Operator,
                        refuses: bool = refuses,
                        stream: jsync.Stream = stream,
                        size: int = size,
                    ) -> None:
                        if refuses:
                            refuse_some(stream, rng, size, run)

                    commands = [(*command, *more)] * operators
                    run(server, rng, faults, size, *commands, beside=beside)
                    pause()
                    more = ("--resume",)
                ((code, words),) = run(server, rng, NONE, size, (*command, *more))
                if code == 2 and "which no row has" in words:
                    # No row was stored yet: the command says so.
                    ((code, words),) = run(server, rng, NONE, size, command)
                assert code == 0, words
            held = {msg.metadata.stream_sequence: msg for msg in messages_of(stream)}
            kept = writer.kept()
            assert {each: held[each].data for each in kept} == kept
            found = Counter(
                msg.data for msg in held.values() if msg.data.startswith(b"{")
            )
            assert found == Counter(rows)
            stream.delete()


# Backups --------------------------------------------------------------------------------


def contents(stream: jsync.Stream) -> dict[int, bytes]:
    return {msg.metadata.stream_sequence: msg.data for msg in messages_of(stream)}


class Backup:
    """A stream that operators back up, each time to another directory, until one succeeds."""

    def __init__(self, stream: jsync.Stream, writer: Writer) -> None:
        self._writer = writer
        self.name = stream.name
        self.size = stream.info().state.bytes
        self.filled = contents(stream)
        self.kept: dict[int, bytes] = {}
        """What the backup has for sure."""

    def make(
        self,
        server: LocalServer,
        rng: Random,
        where: Path,
        faults: tuple[str, ...],
        operators: int = 1,
    ) -> bool:
        """Run it, and return whether the directory has the backup."""
        self.kept = self.filled | self._writer.kept()
        command = ("stream", "backup", self.name, str(where))
        ended = run(server, rng, faults, self.size, *[command] * operators)
        codes = [code for code, _ in ended]
        assert codes.count(0) <= 1, ended
        if 0 in codes:
            assert {path.name for path in where.iterdir()} == FILES, ended
        elif where.exists() and min(codes) >= 0:
            assert list(where.iterdir()) == []  # only a killed backup leaves files
        return 0 in codes

    def judge(self, found: dict[int, bytes]) -> None:
        """Compare what was restored with what was acknowledged."""
        assert self.kept.items() <= found.items()
        assert found.items() <= (self.filled | self._writer.acked).items()


class Target:
    """A name that operators restore a backup to, while somebody may create the stream."""

    def __init__(self, js: jsync.JetStream, name: str, backup: Backup) -> None:
        self._js, self._name, self._backup = js, name, backup
        self._is_live = False

    def create(self, size: int, operator: Operator) -> None:
        """Create the stream as somebody else, once some bytes of the backup have passed."""
        operator.wait_for_bytes(size)
        with contextlib.suppress(errors.APIError):
            self._js.create_stream(
                name=self._name, subjects=[f"{self._name}.>"], description="live"
            )
            self._js.publish(f"{self._name}.x", b"live")
            self._is_live = True

    def judge(self, ended: list[tuple[int, str]]) -> bool:
        """Return whether the stream is there. It is complete, or somebody else's."""
        succeeded = [code for code, _ in ended].count(0)
        assert succeeded <= 1, ended
        try:
            stream = self._js.stream(self._name)
        except errors.StreamNotFoundError:
            assert not succeeded, ended
            assert not self._is_live, ended
            return False
        if self._is_live:
            assert not succeeded, ended
            assert contents(stream) == {1: b"live"}
        elif UNFINISHED in (stream.cached_info.config.metadata or {}):
            # A part tells that it is one, and only a restore that could not look leaves it.
            assert not succeeded, ended
            assert any(code < 0 or "a part of stream" in said for code, said in ended)
            stream.delete()
            return False
        else:
            self._backup.judge(contents(stream))
        return True


def test_backups_come_back_whole_or_not_at_all(
    own_server: StartServer, tmp_path: Path, campaign: Campaign
) -> None:
    server, rng = own_server(), campaign.random()
    with jsync.connect(server.url) as nc:
        js = nc.jetstream()
        for number in campaign.rounds():
            name, target = f"B{number}", f"C{number}"
            stream = js.create_stream(name=name, subjects=[f"{name}.>"])
            with js.publisher() as publisher:
                for _ in range(rng.randrange(1, MAX_LARGE)):
                    publisher.publish(f"{name}.x", rng.randbytes(16_384))
            with Writer(js, f"{name}.writer") as writer:
                backup = Backup(stream, writer)
                for attempt in range(3):
                    where = tmp_path / f"{name}-{attempt}"
                    if backup.make(server, rng, where, DISK, rng.randrange(1, 3)):
                        break
                else:
                    where = tmp_path / name
                    assert backup.make(server, rng, where, NONE)
            command = ("stream", "restore", str(where), "--name", target)
            renamed = (*command, "--subjects", f"{target}.>")
            made, there = Target(js, target, backup), False
            for _ in range(rng.randrange(1, 4)):
                at = rng.randrange(1, backup.size) if rng.random() < 0.4 else None

                def create(
                    run: Operator, at: int | None = at, made: Target = made
                ) -> None:
                    if at is not None:
                        made.create(at, run)

                ended = run(
                    *(server, rng, CUTS, backup.size),
                    *[renamed] * rng.randrange(1, 3),
                    beside=create,
                    delay=DELAY,
                )
                there = made.judge(ended)
                if there:
                    break
            ended = run(server, rng, NONE, 2, renamed)
            assert (ended[0][0] == 0) is not there, ended
            assert made.judge(ended)
            js.delete_stream(target)
            stream.delete()


class Account:
    """An account whose streams operators restore, each until all of them are there."""

    def __init__(self, js: jsync.JetStream, rng: Random) -> None:
        self._js, self._rng = js, rng
        self.held: dict[str, dict[int, bytes]] = {}
        for number in range(2):
            name = f"A{number}"
            stream = js.create_stream(name=name, subjects=[f"{name}.>"])
            with js.publisher() as publisher:
                for _ in range(rng.randrange(1, MAX_LARGE)):
                    publisher.publish(f"{name}.x", rng.randbytes(16_384))
            self.held[name] = contents(stream)
        self.size = sum(stream.cached_info.state.bytes for stream in js.streams())
        self.live: str | None = None
        """A stream that somebody else has created."""

    def delete(self) -> None:
        for name in self.held:
            self._js.delete_stream(name)

    def create(self, name: str) -> None:
        """Create one of the streams as somebody else."""
        with contextlib.suppress(errors.APIError):
            self._js.create_stream(
                name=name, subjects=[f"{name}.>"], description="live"
            )
            self._js.publish(f"{name}.x", b"live")
            self.live = name

    def judge(self, *, succeeded: bool) -> None:
        """Each stream is whole, somebody else's, missing, or says that it is a part."""
        missing = set(self.held)
        for stream in list(self._js.streams()):
            config = stream.cached_info.config
            if UNFINISHED in (config.metadata or {}):
                assert not succeeded
                if self._rng.random() < 0.5:
                    stream.delete()  # as the command advises
                continue
            held = {1: b"live"} if stream.name == self.live else self.held[stream.name]
            assert contents(stream) == held, stream.name
            missing.remove(stream.name)
        assert not (succeeded and missing), missing
        if self.live is not None:
            assert self.live not in missing


def test_an_account_comes_back_whole_or_says_so(
    own_server: StartServer, tmp_path: Path, campaign: Campaign
) -> None:
    """Two operators restore all streams, are killed, and continue."""
    server, rng = own_server(), campaign.random()
    with jsync.connect(server.url) as nc:
        js = nc.jetstream()
        for number in campaign.rounds():
            account, where = Account(js, rng), tmp_path / f"{number}"
            backup = ("account", "backup", str(where))
            ((code, said),) = run(server, rng, NONE, 2, backup)
            assert code == 0, said
            account.delete()
            command = ("account", "restore", str(where), "--skip-existing")
            for _ in range(rng.randrange(1, 5)):
                name = rng.choice([*account.held]) if rng.random() < 0.3 else None

                def create(
                    run: Operator, name: str | None = name, account: Account = account
                ) -> None:
                    if name is not None and account.live is None:
                        run.wait_for_bytes(rng.randrange(1, account.size))
                        account.create(name)

                ended = run(
                    *(server, rng, ("kill", "kill", *CUTS), account.size),
                    *[command] * rng.randrange(1, 3),
                    beside=create,
                    delay=DELAY,
                )
                succeeded = 0 in [code for code, _ in ended]
                account.judge(succeeded=succeeded)
                if succeeded:
                    break
            code = 1
            while code:  # while a part is left
                ((code, said),) = run(server, rng, NONE, 2, command)
                account.judge(succeeded=not code)
                assert not code or "a part" in said
            account.delete()
