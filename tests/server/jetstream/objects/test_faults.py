"""Tests of stores with killed servers and clients, and with slow readers."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import textwrap
import threading
from typing import TYPE_CHECKING

import pytest

import jsync
from jsync import errors

from ....support.campaign import SEED, seeded
from ....support.connection_faults import Events, connect
from ....support.proxy import frame_filter
from ....support.servers import wait_for
from ....support.threads import Thread
from ....support.windows import needs_signals
from .support import chunks_of, noise

if TYPE_CHECKING:
    from pathlib import Path

    from ....conftest import StartServer
    from ....support.proxy import FaultProxy, Side

MIB = 1 << 20
LONG = 120.0

few_and_many = pytest.mark.parametrize(
    "rounds", [3, pytest.param(40, marks=pytest.mark.fault)], ids=["few", "many"]
)


def wait_until_back(nc: jsync.Connection) -> None:
    wait_for(lambda: nc.state is jsync.ConnectionState.CONNECTED, LONG)


def nothing_is_left(js: jsync.JetStream, files: jsync.ObjectStore) -> None:
    """Check that every object is complete, and that a check leaves nothing else."""
    for info in files.list():
        assert len(files.get(info.name)) == info.size
    assert files.check(older_than=0).incomplete == []
    again = files.check(older_than=0)
    assert not any((again.orphans, again.uploads, again.incomplete, again.renamed))
    assert chunks_of(js, files) == {i.nuid: i.chunks for i in files.list() if i.chunks}


@needs_signals
def test_a_frozen_server_loses_no_removal_of_chunks(own_server: StartServer) -> None:
    """It raises without a second wait for the server, which removes them later."""
    server = own_server()
    with connect(server.url, Events()) as nc:
        js = nc.jetstream(timeout=1)
        files = js.create_object_store(bucket="FILES")
        files.put("a", noise(1000))
        server.pause()
        try:
            with pytest.raises(errors.TimeoutError) as raised:
                files.put("a", noise(MIB))
        finally:
            server.resume()
        assert "once the server answers" in raised.value.__notes__[0]
        former = files.info("a")
        wait_for(lambda: chunks_of(js, files) == {former.nuid: 1})
        assert files.get("a") == noise(1000)
        nothing_is_left(js, files)


def test_a_put_requests_nothing_behind_many_chunks(
    far_files: jsync.ObjectStore, proxy: FaultProxy
) -> None:
    """A slow line carries them for longer than the timeout of a request."""
    frames: list[str] = []

    def record(frame: bytes, to: Side) -> bool:
        if to == "client":
            frames.append("ack" if b'"seq"' in frame else "other")
        elif b".DIRECT.GET." in frame.partition(b"\r\n")[0]:
            frames.append("request")
        return True

    proxy.rewrite(frame_filter(record))
    far_files.put("a", noise(100_000), chunk_size=1000)
    assert frames[: frames.index("request")].count("ack") >= 99


@pytest.mark.parametrize("at", [1, 40, 79])
def test_server_kills_leave_the_former_or_new_object(
    own_server: StartServer, at: int
) -> None:
    server = own_server()
    with connect(server.url, Events()) as nc:
        js = nc.jetstream()
        files = js.create_object_store(bucket="FILES")
        files.put("a", noise(5 * MIB))

        def progress(done: int, total: int | None) -> None:
            if done == at * 100_000:
                server.kill()
                server.start()

        expected = noise(5 * MIB)
        # The upload continues if the server had stored every chunk that was sent before.
        with contextlib.suppress(errors.Error):
            files.put("a", noise(8 * MIB, 2), chunk_size=100_000, progress=progress)
            expected = noise(8 * MIB, 2)
        wait_until_back(nc)
        assert files.get("a") == expected
        nothing_is_left(js, files)
        files.put("a", noise(MIB, 3))
        assert files.get("a") == noise(MIB, 3)


def test_a_get_continues_after_its_server_was_killed(own_server: StartServer) -> None:
    server = own_server()
    with connect(server.url, Events()) as nc:
        files = nc.jetstream(timeout=LONG).create_object_store(bucket="FILES")
        data = noise(30 * MIB)
        files.put("a", data)
        killed: list[int] = []

        def progress(done: int, total: int | None) -> None:
            if done > MIB and not killed:
                killed.append(done)
                server.kill()
                server.start()

        assert files.get("a", progress=progress) == data
        assert killed


def test_a_get_continues_over_repeated_connection_losses(
    proxy: FaultProxy, far: jsync.Connection, files: jsync.ObjectStore
) -> None:
    data = noise(20 * MIB)
    files.put("a", data)
    far_files = far.jetstream(timeout=LONG).object_store(files.bucket)
    cuts = iter([1 * MIB, 5 * MIB, 11 * MIB])
    due = [next(cuts)]

    def progress(done: int, total: int | None) -> None:
        if done > due[0]:
            due[0] = next(cuts, 1 << 60)
            proxy.cut()

    assert far_files.get("a", progress=progress) == data
    assert due == [1 << 60]


@few_and_many
def test_objects_are_whole_whenever_the_server_is_killed(
    own_server: StartServer, rounds: int
) -> None:
    server, choose = own_server(), seeded(rounds)
    with connect(server.url, Events()) as nc:
        js = nc.jetstream()
        files = js.create_object_store(bucket="FILES")
        stop = threading.Event()
        writers = [Thread(_write, files, seed, stop) for seed in range(2)]
        reader = Thread(_read, files, stop)
        for _ in range(rounds):
            stop.wait(choose.uniform(0.05, 0.5))
            server.kill()
            server.start()
            wait_until_back(nc)
        stop.set()
        wait_for(lambda: all(w.ended for w in writers) and reader.ended, LONG)
        assert sum(writer.result() for writer in writers) > 0
        reader.result()
        nothing_is_left(js, files)


def _write(files: jsync.ObjectStore, seed: int, stop: threading.Event) -> int:
    """Put, overwrite, rename and delete objects, and return the number of successes."""
    choose, done = seeded(seed), 0
    while not (stop.is_set() and done):
        name = f"{choose.randrange(4)}"
        with contextlib.suppress(errors.Error):
            match choose.randrange(5):
                case 0:
                    files.delete(name, timeout=2)
                case 1:
                    files.update_meta(name, new_name=f"{seed} {name}", timeout=2)
                case _:
                    size = choose.randrange(3 * MIB)
                    files.put(name, noise(size, size), timeout=2)
            done += 1
    return done


def _read(files: jsync.ObjectStore, stop: threading.Event) -> None:
    """Check that a read only ever returns the bytes of a single put."""
    while not stop.is_set():
        for number in range(4):
            with contextlib.suppress(errors.Error):
                data = files.get(f"{number}", timeout=2)
                assert data == noise(len(data), len(data))


@few_and_many
def test_remains_of_killed_clients_are_found_and_removed(
    own_server: StartServer, rounds: int
) -> None:
    server, choose = own_server(), seeded(rounds)
    script = """
        import random, sys, jsync
        from jsync import errors
        choose = random.Random(sys.argv[2])
        with jsync.connect(sys.argv[1]) as nc:
            files = nc.jetstream().object_store("FILES")
            print("ready", flush=True)
            while True:
                name = f"{choose.randrange(3)}"
                try:
                    match choose.randrange(5):
                        case 0:
                            files.delete(name)
                        case 1:
                            files.update_meta(name, new_name=name + "x")
                        case _:
                            size = choose.randrange(3 << 20)
                            files.put(name, random.Random(size).randbytes(size))
                except (errors.ObjectNotFoundError, errors.ObjectExistsError):
                    pass
    """
    with jsync.connect(server.url) as nc:
        js = nc.jetstream()
        files = js.create_object_store(bucket="FILES")
        for turn in range(rounds):
            child = subprocess.Popen(
                [
                    sys.executable,
                    "-c",
                    textwrap.dedent(script),
                    server.url,
                    f"{SEED} {turn}",
                ],
                stdout=subprocess.PIPE,
            )
            assert child.stdout is not None
            assert child.stdout.readline() == b"ready\n"
            threading.Event().wait(choose.uniform(0.05, 0.6))
            child.kill()
            child.communicate()
            wait_for(lambda: _is_quiet(js, files))
            for info in files.list():
                data = files.get(info.name)
                assert data == noise(info.size, info.size)
            nothing_is_left(js, files)


def _is_quiet(js: jsync.JetStream, files: jsync.ObjectStore) -> bool:
    """Return whether the server has processed all messages of the client."""
    stream = js.bind_stream(f"OBJ_{files.bucket}")
    before = stream.info().state
    threading.Event().wait(0.2)
    return stream.info().state == before


def test_an_info_with_lost_ack_is_stored_once(
    proxy: FaultProxy, far_files: jsync.ObjectStore, files: jsync.ObjectStore
) -> None:
    lost: list[bytes] = []

    def keeps(frame: bytes, to: str) -> bool:
        is_ack = to == "client" and b'"stream":"OBJ_' in frame and b"error" not in frame
        if is_ack and len(lost) < 1:
            lost.append(frame)
            return False
        return True

    proxy.rewrite(frame_filter(keeps))
    info = far_files.put("a", b"")
    assert lost
    assert files.info("a").revision == info.revision
    proxy.rewrite(None)


def test_a_put_of_unknown_outcome_keeps_its_chunks(
    js: jsync.JetStream,
    proxy: FaultProxy,
    far_files: jsync.ObjectStore,
    files: jsync.ObjectStore,
) -> None:
    told: list[bytes] = []

    def keeps(frame: bytes, to: str) -> bool:
        if to == "server" and frame.startswith(b"HPUB $O.") and b".M." in frame:
            told.append(frame)
        return to == "server" or not told

    proxy.rewrite(frame_filter(keeps))
    with pytest.raises(errors.AmbiguousPutError, match="'a'"):
        far_files.put("a", noise(5000), chunk_size=1000, timeout=3)
    proxy.rewrite(None)
    assert files.get("a") == noise(5000)
    nothing_is_left(js, files)


@pytest.mark.parametrize("mode", ["whole", "open"])
def test_the_first_byte_comes_after_two_round_trips(
    js: jsync.JetStream, nc: jsync.Connection, files: jsync.ObjectStore, mode: str
) -> None:
    files.put("a", noise(20 * MIB))
    files.put("small", b"1")
    with nc.subscribe("$JS.API.>") as asked:
        nc.flush()
        if mode == "open":
            with files.open("a") as file:
                assert file.read(1) == noise(20 * MIB)[:1]
        else:
            assert files.get("small") == b"1"
        nc.flush()
        asked.drain()
        assert len(list(asked)) == 2


def test_a_slow_reader_loses_nothing(
    js: jsync.JetStream, files: jsync.ObjectStore
) -> None:
    data = noise(20 * MIB)
    files.put("a", data)
    with files.open("a") as file:
        assert file.read(MIB) == data[:MIB]
        for number in range(30):  # other messages arrive in the meantime
            files.put("b", noise(MIB, number))
            assert files.get("b") == noise(MIB, number)
        assert file.read() == data[MIB:]
        assert file.is_verified


@pytest.mark.parametrize(
    "mebibytes",
    [100, pytest.param(400, marks=pytest.mark.fault)],
    ids=["some", "many"],
)
def test_large_files_are_transferred_in_little_memory(
    own_server: StartServer, tmp_path: Path, mebibytes: int
) -> None:
    server = own_server()
    script = """
        import resource, sys, jsync
        def peak():
            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
        with jsync.connect(sys.argv[1]) as nc:
            files = nc.jetstream().create_object_store(bucket="FILES")
            files.put("warm", bytes(1 << 17))
            files.get("warm")
            before = peak()
            files.put_file(sys.argv[2], "a")
            files.get_file("a", sys.argv[3])
            with files.open("a") as source, files.open("b", "wb") as target:
                while block := source.read(1 << 16):
                    target.write(block)
            print(peak() - before)
    """
    source, target = tmp_path / "in", tmp_path / "out"
    with source.open("wb") as file:
        for number in range(mebibytes):
            file.write(noise(MIB, number))
    ran = subprocess.run(
        [
            *(sys.executable, "-c", textwrap.dedent(script), server.url),
            *(str(source), str(target)),
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(ran.stdout) < 32 * MIB
    compared = subprocess.run(["cmp", source, target], check=False)
    assert compared.returncode == 0
