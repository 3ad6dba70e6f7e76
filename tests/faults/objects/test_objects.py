"""Campaigns of object stores: many writers, renames, checks and listings beside each other."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

import jsync
from jsync import errors
from jsync.jetstream.objects import rename_marks
from jsync.jetstream.objects.engine import encode_name
from jsync.jetstream.objects.repository import ObjectRepository

from ...server.jetstream.objects.support import chunks_of
from ...support.connection_faults import Events, connect
from ...support.routed_cluster import RoutedCluster
from ...support.servers import wait_for
from ...support.threads import Thread
from .history import History, Step, bytes_of, content_of
from .writer import SHARED, choose_step, put_or_delete, rename_one

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator

    from ...conftest import StartServer
    from ...support.campaign import Campaign

AGE = 1.0
"""The age at which checks remove chunks. Some puts pause for longer."""
LONG = 120.0
STEADY = [f"steady {n}" for n in range(12)]
MOVING = [f"moving {n}" for n in range(3)]
FOREIGN = ["foreign 0"]
MIXED = [f"mixed {n}" for n in range(5)]
BAD = "bad"
ABSENT = (
    errors.ObjectReadError,
    errors.ObjectNotFoundError,
    errors.InvalidObjectInfoError,
)
"""What a read of an object that is always there never raises."""


class CutShortError(errors.Error):
    """The end of a rename whose program is no more."""


class World:
    """A store, and the actors that use it until the campaign is over.

    Steady objects are put once, and only their notes change. Moving objects are renamed. Foreign
    ones are renamed as other clients do it. The shared ones are put, replaced and deleted, also by
    processes that are killed, and by nats-py. All of this happens to the mixed ones.
    """

    def __init__(self, campaign: Campaign, urls: list[str], replicas: int) -> None:
        self.campaign = campaign
        self.urls = urls
        self.replicas = replicas
        self.stop = threading.Event()
        self.history = History()
        self.wrong: list[str] = []
        self.done: dict[str, int] = {}
        self._clients: list[jsync.Connection] = []
        self.js = self.client()
        self.files = self.js.create_object_store(bucket="FILES", replicas=replicas)
        for name in (*STEADY, *MOVING, *FOREIGN):
            self.files.put(name, bytes_of(name), chunk_size=20_000)
        self._moved: tuple[str, bytes] | None = None
        self.watched: dict[str, jsync.ObjectInfo] = {}

    def client(self) -> jsync.JetStream:
        """Connect once more."""
        nc = connect(self.urls, Events())
        self._clients.append(nc)
        return nc.jetstream(timeout=5.0)

    def close(self) -> None:
        self.stop.set()
        for nc in self._clients:
            nc.close()

    def run(self, faults: Callable[[random.Random], object] | None = None) -> None:
        """Have all actors act, and faults happen, until the campaign is over."""
        actors: list[
            tuple[str, Callable[[jsync.ObjectStore, random.Random], object]]
        ] = [
            *((f"writer {n}", self._write) for n in range(2)),
            *((f"renamer {n}", self._rename) for n in range(2)),
            *((f"checker {n}", self._check) for n in range(2)),
            *((f"mixer {n}", self._mix) for n in range(4)),
            ("vandal", self._spoil),
            ("notes", self._change_notes),
            ("moving notes", self._change_moving_notes),
            ("links", self._link),
            ("lister", self._list),
            *((f"own {n}", self._put_own) for n in range(2)),
            ("reader", self._read),
            ("shared reader", self._read_shared),
            ("slow", self._put_slowly),
        ]
        if faults is None:
            # A fault in the middle would be a pause that is longer than the age.
            actors.append(("foreign", self._rename_otherwise))
        threads = []
        for name, act in actors:
            files = self.client().object_store("FILES")
            choose = self.campaign.random(name)
            threads.append(Thread(self._repeat, name, act, files, choose))
        threads.append(Thread(self._kill_a_process))
        threads.append(Thread(self._keep_nats_py))
        with self.files.watch(callback=self._note):
            choose = self.campaign.random("faults")
            for _ in self.campaign.rounds():
                if self.wrong or any(thread.ended for thread in threads):
                    break
                if faults is None:
                    self.stop.wait(0.2)
                else:
                    faults(choose)
            self.stop.set()
            wait_for(lambda: all(thread.ended for thread in threads), LONG)
            for thread in threads:
                thread.result()
            self._settle()
            self._judge()

    def _repeat(
        self,
        name: str,
        act: Callable[[jsync.ObjectStore, random.Random], object],
        files: jsync.ObjectStore,
        choose: random.Random,
    ) -> None:
        while not self.stop.is_set() and not self.wrong:
            try:
                act(files, choose)
            except ABSENT as error:
                if self._is_expected(name, error):
                    continue
                self.wrong.append(f"{name}: {type(error).__name__}: {error}")
            except errors.Error:
                continue  # a fault of the world
            self.done[name] = self.done.get(name, 0) + 1

    def _is_expected(self, actor: str, error: errors.Error) -> bool:
        if isinstance(error, errors.ObjectReadError | errors.InvalidObjectInfoError):
            return False
        return not actor.startswith(("reader", "lister", "notes", "own"))

    # Actors ---------------------------------------------------------------------------

    def _write(self, files: jsync.ObjectStore, choose: random.Random) -> None:
        writer = threading.current_thread().name
        name, content = choose_step(choose, writer, time.monotonic_ns())
        start = time.monotonic()
        outcome = put_or_delete(files, name, content)
        if outcome == "done":
            self.history.add(Step(name, content, start, time.monotonic(), True))
        elif outcome == "unclear":
            self.history.add(Step(name, content, start, float("inf"), False))

    def _put_slowly(self, files: jsync.ObjectStore, choose: random.Random) -> None:
        """Put with a pause, which may be longer than the age at which chunks are removed."""
        name, content = f"slow {choose.randrange(2)}", f"slow {time.monotonic_ns()}"
        data = bytes_of(content)
        start = time.monotonic()
        try:
            with files.open(name, "wb", chunk_size=1000, timeout=3) as file:
                half = len(data) // 2
                file.write(data[:half])
                self.stop.wait(choose.uniform(0, 4 * AGE))
                file.write(data[half:])
        except errors.ObjectIncompleteError:
            return
        except errors.Error:
            self.history.add(Step(name, content, start, float("inf"), False))
            raise
        self.history.add(Step(name, content, start, time.monotonic(), True))
        with contextlib.suppress(errors.TimeoutError):
            found = content_of(files.get(name, timeout=3))
            # A server that was frozen may answer with what it had.
            is_now = (
                self.history.may_be
                if self.replicas == 1
                else self.history.may_have_been
            )
            if found not in is_now(name):
                self.wrong.append(f"{name} is {found}, not {content}")

    def _rename(self, files: jsync.ObjectStore, choose: random.Random) -> None:
        rename_one(files, choose)

    def _change_moving_notes(
        self, files: jsync.ObjectStore, choose: random.Random
    ) -> None:
        infos = [i for i in files.list(timeout=3) if i.name.startswith("moving")]
        name = choose.choice(infos).name
        notes = f"notes of {name.partition('/')[0]}"
        word, start = f"{choose.random()}", time.monotonic()
        try:
            files.update_meta(name, description=word, timeout=3)
        except errors.ObjectNotFoundError:
            return
        except errors.Error:
            self.history.add(Step(notes, word, start, float("inf"), False))
            raise
        self.history.add(Step(notes, word, start, time.monotonic(), True))

    def _rename_otherwise(
        self, files: jsync.ObjectStore, choose: random.Random
    ) -> None:
        """Rename as async-nats does: remove the former name before the new one is stored."""
        js, stream = self.js, "OBJ_FILES"
        checking: Thread[None] | None = None
        if self._moved is None:
            [info] = [i for i in files.list(timeout=3) if i.name.startswith("foreign")]
            message = js.get_message(stream, info.revision, timeout=3)
            name = f"foreign {choose.randrange(4)}"
            if name == info.name:
                return
            new = f"$O.FILES.M.{encode_name(name)}"
            document = {**json.loads(message.data), "name": name}
            js.bind_stream(stream).purge(subject=message.subject, timeout=3)
            self._moved = (new, json.dumps(document).encode())
            checking = Thread(self._check, files, choose)
            self.stop.wait(choose.uniform(0.2, 0.4))
        subject, data = self._moved
        js.publish(subject, data, headers={"Nats-Rollup": "sub"}, timeout=3)
        self._moved = None
        if checking is not None:
            wait_for(lambda: checking.ended, LONG)
            checking.result()
        self.stop.wait(2.5)  # the two listings of a check see one rename at most

    def _mix(self, files: jsync.ObjectStore, choose: random.Random) -> None:
        old, new = choose.choice(MIXED[:3]), choose.choice(MIXED[3:])
        content = f"mixed {time.monotonic_ns()}"
        match choose.randrange(8):
            case 0 | 1:
                files.put(old, bytes_of(content), chunk_size=20_000, timeout=3)
            case 2:
                files.delete(choose.choice((old, new, new)), timeout=3)
            case 3:
                files.update_meta(old, description=content, timeout=3)
            case 4 | 5:
                files.update_meta(new, new_name=old, timeout=4)
            case _:
                files.update_meta(old, new_name=new, timeout=4)

    def _change_notes(self, files: jsync.ObjectStore, choose: random.Random) -> None:
        word = f"{choose.random()}"
        files.update_meta(choose.choice(STEADY), description=word, timeout=3)

    def _link(self, files: jsync.ObjectStore, choose: random.Random) -> None:
        name = f"link {choose.randrange(3)}"
        if choose.random() < 0.3:
            files.delete(name, timeout=3)
        else:
            files.add_link(name, choose.choice(STEADY), timeout=3)

    def _spoil(self, files: jsync.ObjectStore, choose: random.Random) -> None:
        """Store what is no info, and then put or delete that object."""
        data = choose.choice([b"{", b"7", b'{"nuid":">","size":1,"chunks":1}'])
        subject = f"$O.FILES.M.{encode_name(BAD)}"
        self.js.publish(subject, data, headers={"Nats-Rollup": "sub"}, timeout=3)
        self.stop.wait(choose.uniform(0, 0.2))
        if choose.random() < 0.5:
            files.delete(BAD, timeout=3)
        else:
            files.put(BAD, bytes_of(BAD), timeout=3)

    def _check(self, files: jsync.ObjectStore, choose: random.Random) -> None:
        found = files.check(older_than=AGE, timeout=3)
        if found.incomplete or set(found.unreadable) - {BAD}:
            self.wrong.append(f"check: {found.incomplete}, {found.unreadable}")
        self.stop.wait(choose.uniform(0, 0.3))

    def _list(self, files: jsync.ObjectStore, choose: random.Random) -> None:
        names = {info.name for info in files.list(timeout=3)}
        missing = [name for name in STEADY if name not in names]
        if missing:
            self.wrong.append(f"list: {missing} missing of {len(names)}")

    def _put_own(self, files: jsync.ObjectStore, choose: random.Random) -> None:
        """Ask for an object that nobody else uses, as soon as it is put."""
        name = f"own {threading.current_thread().name} {choose.randrange(2)}"
        stored = files.put(name, b"1", timeout=3)
        asked = choose.choice(["info", "list"])
        if asked == "info":
            found = {files.info(name, timeout=3).name}
        else:
            found = {info.name for info in files.list(timeout=3)}
        if name not in found:
            self.wrong.append(f"{asked}: {name} at {stored.revision} missing")
        with contextlib.suppress(errors.Error):
            files.delete(name, timeout=3)

    def _read(self, files: jsync.ObjectStore, choose: random.Random) -> None:
        name = choose.choice(STEADY)
        if content_of(files.get(name, timeout=3)) != name:
            self.wrong.append(f"{name} has other bytes")

    def _read_shared(self, files: jsync.ObjectStore, choose: random.Random) -> None:
        content_of(files.get(choose.choice([*SHARED, *MIXED]), timeout=3))

    def _note(self, info: jsync.ObjectInfo) -> None:
        self.watched[info.name] = info

    # Other processes ------------------------------------------------------------------

    def _process(self, seed: str, client: str) -> subprocess.Popen[str]:
        module = "tests.faults.objects.writer"
        return subprocess.Popen(
            [sys.executable, "-m", module, self.urls[0], "FILES", seed, client],
            stdout=subprocess.PIPE,
            text=True,
        )

    def _kill_a_process(self) -> None:
        """Start a writer again and again, and kill it at any moment."""
        choose = self.campaign.random("killer")
        number = 0
        while not self.stop.is_set():
            number += 1
            process = self._process(f"{self.campaign.seed}-{number}", "jsync")
            lines: list[str] = []
            reader = Thread(self._take, process, lines)
            wait_for(lambda: bool(lines) or self.stop.is_set(), LONG)  # noqa: B023
            self.stop.wait(choose.uniform(0, 0.7))
            if choose.random() < 0.3:  # others take it for dead, and then it goes on
                process.send_signal(signal.SIGSTOP)
                self.stop.wait(choose.uniform(0, 2 * AGE))
                process.send_signal(signal.SIGCONT)
                self.stop.wait(choose.uniform(0, 0.1))
            process.kill()
            process.wait()
            reader.result()
            self.history.add_lines(lines)
            self.done["killed"] = number

    def _keep_nats_py(self) -> None:
        process = self._process(self.campaign.seed, "nats-py")
        lines: list[str] = []
        reader = Thread(self._take, process, lines)
        self.stop.wait()
        process.kill()
        process.wait()
        reader.result()
        self.history.add_lines(lines)
        self.done["nats-py"] = len(lines) // 2

    def _take(self, process: subprocess.Popen[str], lines: list[str]) -> None:
        assert process.stdout is not None
        with process.stdout:
            lines += (line.rstrip("\n") for line in process.stdout)

    # The end --------------------------------------------------------------------------

    def _settle(self) -> None:
        """Wait until the server has processed what killed clients had sent."""

        def is_quiet() -> bool:
            with contextlib.suppress(errors.Error):
                stream = self.js.bind_stream("OBJ_FILES")
                before = stream.info(timeout=3).state.replace(consumer_count=0)
                time.sleep(0.5)
                return stream.info().state.replace(consumer_count=0) == before
            return False

        wait_for(is_quiet, LONG)

    def _judge(self) -> None:
        """Compare what is in the store with what may be there."""
        assert not self.wrong
        files, js = self.files, self.js
        files.put(BAD, bytes_of(BAD))
        files.check(older_than=0)
        found = files.check(older_than=0)
        left = (found.orphans, found.uploads, found.renamed, found.unreadable)
        assert not any(left), left
        assert found.incomplete == []
        infos = {info.name: info for info in files.list()}
        objects = {name: i for name, i in infos.items() if not i.is_link}
        assert chunks_of(js, files) == {
            info.nuid: info.chunks for info in objects.values() if info.chunks
        }
        contents = {
            name: content_of(files.get(name))
            for name in objects
            if not name.startswith("own")
        }
        assert len({info.nuid for info in objects.values()}) == len(objects)
        for name in STEADY:
            assert contents.pop(name) == name
        foreign = [contents.pop(name) for name in list(contents) if "foreign" in name]
        assert foreign == FOREIGN
        moving = {
            name: contents.pop(name) for name in list(contents) if "moving" in name
        }
        assert sorted(moving.values()) == MOVING, moving
        for name in moving:
            origin = name.partition("/")[0]
            notes, allowed = (
                infos[name].description,
                self.history.may_be(f"notes of {origin}"),
            )
            assert notes in allowed, (name, notes, allowed)
        for name in (*MIXED, BAD):
            contents.pop(name, None)
        for name in (*SHARED, "slow 0", "slow 1"):
            content, allowed = contents.pop(name, None), self.history.may_be(name)
            assert content in allowed, (name, content, allowed)
        assert not contents
        for name in infos:
            if name.startswith("link"):
                assert content_of(files.get(name)) in STEADY
        wait_for(
            lambda: (
                {
                    n: i.revision for n, i in self.watched.items() if not i.deleted
                }.items()
                >= {name: info.revision for name, info in infos.items()}.items()
            )
        )


@pytest.fixture
def world(
    campaign: Campaign, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., World]]:
    # Clients take the mark of a rename for abandoned, while it is only slow, or is cut short.
    monkeypatch.setattr(rename_marks, "ABANDONED_AFTER", 0.05)
    choose, put = campaign.random("slow"), ObjectRepository.put_info

    def pause(probability: float) -> None:
        if choose.random() < probability:
            time.sleep(choose.uniform(0, 0.3))

    def put_info(self: ObjectRepository, info: jsync.ObjectInfo, *args: Any) -> int:
        is_step = info.renamed_from is not None  # the second one of a rename
        pause(0.5 if is_step else 0.05)
        if is_step and choose.random() < 0.15:
            raise CutShortError("before the new name was stored")
        revision = put(self, info, *args)
        if is_step and choose.random() < 0.15:
            raise CutShortError("before the former name was removed")
        pause(0.5 if is_step or info.renamed_to is not None else 0)
        return revision

    monkeypatch.setattr(ObjectRepository, "put_info", put_info)
    with contextlib.ExitStack() as running:

        def make(urls: list[str], replicas: int) -> World:
            world = World(campaign, urls, replicas)
            running.callback(world.close)
            return world

        yield make


@pytest.mark.timeout(600)
def test_stores_keep_their_objects_beside_writers_and_checks(
    own_server: StartServer, world: Callable[..., World]
) -> None:
    server = own_server()
    campaign = world([server.url], 1)
    campaign.run()
    _show(campaign)
    for actor in ("writer 0", "renamer 0", "checker 0", "notes", "lister", "killed"):
        assert campaign.done.get(actor), campaign.done


@pytest.mark.timeout(600)
def test_a_store_outlives_the_absence_of_servers(
    own_server: StartServer, world: Callable[..., World]
) -> None:
    server = own_server()
    campaign = world([server.url], 1)

    def fault(choose: random.Random) -> None:
        campaign.stop.wait(choose.uniform(0.3, 1.5))
        if choose.random() < 0.5:
            server.pause()
            campaign.stop.wait(choose.uniform(0, 2 * AGE))
            server.resume()
        else:
            # No kill: nats-server 2.15.1 then brings purged messages back, such as the former
            # name of an object, in a stream without replicas.
            server.restart()

    campaign.run(fault)
    _show(campaign)


@pytest.fixture
def routed() -> Iterator[RoutedCluster]:
    with RoutedCluster() as cluster:
        yield cluster


@pytest.mark.cluster
@pytest.mark.timeout(600)
def test_replicated_stores_keep_their_objects_while_servers_fail(
    routed: RoutedCluster, world: Callable[..., World]
) -> None:
    campaign = world(routed.urls, 3)

    def fault(choose: random.Random) -> None:
        campaign.stop.wait(choose.uniform(0.3, 1.5))
        server = choose.choice(routed.servers)
        match choose.randrange(6):
            case 0:
                server.pause()
                campaign.stop.wait(choose.uniform(0, 2 * AGE))
                server.resume()
            case 1:
                server.kill()
                campaign.stop.wait(choose.uniform(0, AGE))
                server.start()
            case 2 | 3:
                with contextlib.suppress(errors.Error, TimeoutError):
                    info = campaign.js.bind_stream("OBJ_FILES").info(timeout=3)
                    leader = routed.stream_leader("OBJ_FILES", timeout=5)
                    late = choose.choice([s for s in routed.servers if s is not leader])
                    group = (info.cluster and info.cluster.raft_group) or ""
                    with routed.behind(late, group):
                        campaign.stop.wait(choose.uniform(0.5, 2.5))
            case _:
                with contextlib.suppress(errors.Error):
                    campaign.js.bind_stream("OBJ_FILES").leader_step_down(timeout=3)

    try:
        campaign.run(fault)
    finally:
        routed.start()
        with contextlib.suppress(errors.Error):
            campaign.js.delete_object_store("FILES")
    _show(campaign)


def test_a_sealed_store_keeps_its_objects_whole(
    own_server: StartServer, campaign: Campaign
) -> None:
    """It is sealed at any step of puts, deletes and renames, which end with an error."""
    rng = campaign.random()
    with connect(own_server().url, Events()) as nc:
        js = nc.jetstream(timeout=5.0)
        for number in campaign.rounds():
            files = js.create_object_store(bucket=f"S{number}")
            for name in MOVING:
                files.put(name, bytes_of(name), chunk_size=20_000)
            history = History()

            def write(
                writer: str,
                choose: random.Random,
                files: jsync.ObjectStore = files,
                history: History = history,
            ) -> None:
                while True:
                    name, content = choose_step(choose, writer, time.monotonic_ns())
                    start = time.monotonic()
                    try:
                        if content is None:
                            files.delete(name)
                        else:
                            files.put(name, bytes_of(content), chunk_size=20_000)
                    except errors.StreamSealedError:
                        history.add(Step(name, content, start, float("inf"), False))
                        raise
                    except errors.Error:
                        continue
                    history.add(Step(name, content, start, time.monotonic(), True))

            def rename(choose: random.Random, files: jsync.ObjectStore = files) -> None:
                while True:
                    rename_one(files, choose)

            threads = [
                Thread(write, f"{number} {name}", campaign.random((number, name)))
                for name in "abc"
            ]
            threads.append(Thread(rename, campaign.random((number, "renamer"))))
            time.sleep(rng.uniform(0, 0.2))
            files.seal()
            for thread in threads:
                assert isinstance(thread.error(), errors.StreamSealedError)
            contents = {i.name: content_of(files.get(i.name)) for i in files.list()}
            for name in SHARED:
                assert contents.pop(name, None) in history.may_be(name)
            assert {*contents.values()} == {*MOVING}
            js.delete_object_store(f"S{number}")


def _show(campaign: World) -> None:
    print(campaign.done, campaign.history.count())  # noqa: T201 (pytest -s shows it)
