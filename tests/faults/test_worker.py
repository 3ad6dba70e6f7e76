"""A campaign against `jsync worker`: slow handlers, children, kills, freezes, outages, and an operator
who deletes and changes consumers.

The judge compares the calls of all handlers, which they write to a file, with the messages: each one
was handled to its end or is a dead letter, no dead letter is there too early, and the answers over
HTTP were true.
"""

from __future__ import annotations

import collections
import contextlib
import os
import signal
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.error import HTTPError, URLError

import jsync
from jsync import errors

from ..support.servers import free_port, wait_for

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    import pytest

    from jsync.server import LocalServer

    from ..conftest import StartServer
    from ..support.campaign import Campaign

BATCH = 30
"""Messages between two faults."""
ATTEMPTS = 3
HEARTBEAT_TIMEOUT = 4
"""The seconds without a sign of life after which the supervisor replaces a process."""
PATIENT = 180.0

APP = f"""
import os, signal, subprocess, time, jsync

app = jsync.Worker(stream="JOBS")
retry = jsync.Retry(
    delays=[0.05], attempts={ATTEMPTS}, deliveries=10_000, dead_letter="dead.jobs"
)

def note(word, data, number):
    with open("calls", "ab", buffering=0) as calls:
        calls.write(b"%s %s %d\\n" % (word, data, number))

@app.on_start
def begin(js):
    if os.path.exists("hang"):
        time.sleep(3600)

def work(data, msg):
    what, number = data.split()[0], msg.metadata.num_delivered
    note(b"begin", data, number)
    if what == b"fail":
        # The first one is also what a payload that cannot be decoded raises.
        raise (jsync.errors.CodecError(str(data)), LookupError(data))[number % 2]
    if what == b"slow":
        time.sleep(1.5)
    if what in (b"kill", b"child") and not os.path.exists(data.decode()):
        open(data, "w").close()
        if what == b"child":
            subprocess.Popen(["sleep", "60"], close_fds=False)
        os.kill(os.getpid(), signal.SIGKILL)
    note(b"end", data, number)

@app.handle("jobs.a", consumer="w", workers=2, ack_wait=1, retry=retry)
def handle(data: bytes, msg: jsync.JetStreamMsg) -> None:
    work(data, msg)

@app.handle("jobs.b", consumer="p", max_messages=8, ack_wait=1, retry=retry)
def handle_ahead(data: bytes, msg: jsync.JetStreamMsg) -> None:
    work(data, msg)
"""


class Call(NamedTuple):
    """The begin or the end of a call of a handler."""

    word: str
    what: str
    number: int
    delivered: int


def calls() -> list[Call]:
    path = Path("calls")
    found = []
    for line in path.read_text().splitlines() if path.exists() else []:
        word, what, number, delivered = line.split()
        found.append(Call(word, what, int(number), int(delivered)))
    return found


class World:
    """A server, a worker of two processes, a publisher that retries, and a poller of its health."""

    def __init__(self, server: LocalServer, js: jsync.JetStream, rng: Random) -> None:
        self.server, self.js, self.rng = server, js, rng
        self.sent: list[tuple[str, str, int]] = []
        """The subject, the kind and the number of each stored message."""
        self.deaths = 0
        """The processes and servers that were killed, which may take deliveries along."""
        self.short: set[int] = set()
        """The numbers of failing messages with fewer attempts, as an operator wanted it."""
        self.away = True
        """Whether the next consumer is deleted while the worker is away."""
        self.port = free_port()
        self.not_alive: list[int] = []
        self.over = threading.Event()
        self.start()
        self.poller = threading.Thread(target=self._poll)
        self.poller.start()

    # The worker -----------------------------------------------------------------------

    def start(self) -> None:
        # Log to a file, because a full pipe without a reader would stop the worker.
        with open("log", "ab") as log:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "jsync", "--server", self.server.url),
                    *("worker", "an_app:app", "-n", "2", "--grace", "1s"),
                    *("--http", f"127.0.0.1:{self.port}", "--logs", "text"),
                    *("--heartbeat-timeout", f"{HEARTBEAT_TIMEOUT}s"),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def end(self) -> None:
        self.over.set()
        self.poller.join()
        self.process.kill()
        self.process.wait()
        log = Path("log").read_text()
        print(log[-4000:])  # noqa: T201 (pytest shows it if the test fails)

    def get(self, path: str) -> int:
        """Return the status of a page, or 0 if no supervisor answers."""
        try:
            url = f"http://127.0.0.1:{self.port}{path}"
            with urllib.request.urlopen(url, timeout=10) as found:
                return int(found.status)
        except HTTPError as error:
            return error.code
        except (URLError, OSError):
            return 0

    def start_after_crash_loop(self) -> None:
        """Start it again, as systemd does, if messages have killed one process after another."""
        if (
            self.process.poll() is not None
            and "a crash loop" in Path("log").read_text()
        ):
            self.start()

    def is_ready(self) -> bool:
        self.start_after_crash_loop()
        return self.get("/readyz") == 200

    def _poll(self) -> None:
        """Liveness depends on no server, so it is never lost."""
        while not self.over.wait(0.5):
            if (status := self.get("/livez")) not in (0, 200):
                self.not_alive.append(status)

    def children(self) -> list[int]:
        with open(
            f"/proc/{self.process.pid}/task/{self.process.pid}/children"
        ) as found:
            return [int(pid) for pid in found.read().split()]

    # The messages ---------------------------------------------------------------------

    def check_changed(self) -> None:
        """An operator leaves less time and fewer deliveries than the worker began with."""
        log, limit = Path("log"), f"max_deliver={ATTEMPTS - 1}"
        for name in "pw":
            self.js.update_consumer(
                "JOBS", durable_name=name, ack_wait=1, max_deliver=ATTEMPTS - 1
            )
        # Each process reports that it will make fewer attempts, for each consumer.
        with contextlib.suppress(TimeoutError):
            wait_for(lambda: log.read_text().count(limit) >= 4, 30)
        slow = {self.publish_one(subject, "slow") for subject in "ab"}
        self.short |= {self.publish_one("a", "fail") for _ in range(3)}
        wait_for(self.is_settled, PATIENT)
        begun = [call.number for call in calls() if call.word == "begin"]
        assert sorted(number for number in begun if number in slow) == sorted(slow)
        for name in "pw":
            self.js.update_consumer("JOBS", durable_name=name, max_deliver=-1)
        self.reload()

    def check_calm(self) -> None:
        """Without a fault each message is delivered once, also behind a slow handler."""
        numbers = {
            self.publish_one(subject, "slow" if number == 0 else "ok")
            for number in range(8)
            for subject in "ab"
        }
        wait_for(
            lambda: numbers <= {c.number for c in calls() if c.word == "end"}, PATIENT
        )
        wait_for(self.is_settled)
        again = [c for c in calls() if c.number in numbers and c.delivered > 1]
        assert again == []

    def publish_one(self, subject: str, what: str) -> int:
        """Store a message, and return its number."""
        number = len(self.sent)
        while True:
            with contextlib.suppress(errors.Error):
                self.js.publish(
                    f"jobs.{subject}",
                    f"{what} {number}".encode(),
                    msg_id=str(number),
                    timeout=2,
                )
                break
        self.sent.append((subject, what, number))
        return number

    def publish(self) -> None:
        # One of each kind at least.
        each = ["slow", "fail", "kill", "child", *[""] * (BATCH - 4)]
        self.rng.shuffle(each)
        for wanted in each:
            subject = "a" if wanted else self.rng.choice("aab")
            # A killed process takes along deliveries of messages that wait, which count.
            kinds = ["ok"] * 12 + ["slow"]
            if subject == "a":
                kinds += ["fail", "fail", "kill", "child"]
            what = wanted or self.rng.choice(kinds)
            self.deaths += what in ("kill", "child")
            self.publish_one(subject, what)

    def is_settled(self) -> bool:
        self.start_after_crash_loop()
        try:
            infos = [self.js.consumer("JOBS", name).info(timeout=2) for name in "wp"]
        except errors.Error:
            return False
        return all(info.num_pending == info.num_ack_pending == 0 for info in infos)

    # The faults -----------------------------------------------------------------------

    def kill_server(self) -> None:
        self.deaths += 1
        self.server.kill()
        wait_for(lambda: not self.is_ready())
        self.server.start()

    def freeze_server(self) -> None:
        """The connection does not notice it."""
        self.server.pause()
        try:
            wait_for(lambda: not self.is_ready())
        finally:
            self.server.resume()

    def kill_supervisor(self) -> None:
        self.deaths += 2
        self.process.kill()
        self.process.wait()
        self.start()

    def kill_process(self) -> None:
        wait_for(self.is_ready)
        for pid in self.children()[:1]:
            self.deaths += 1
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def freeze_process(self) -> None:
        """The supervisor replaces it, and another one gets its messages."""
        wait_for(self.is_ready, PATIENT)
        pid = self.children()[0]
        self.deaths += 1
        os.kill(pid, signal.SIGSTOP)
        wait_for(lambda: pid not in self.children(), PATIENT)

    def reload(self) -> None:
        before = {*self.children()}
        self.process.send_signal(signal.SIGHUP)
        wait_for(lambda: not before & {*self.children()}, PATIENT)

    def hang_in_a_reload(self) -> None:
        wait_for(self.is_ready, PATIENT)
        Path("hang").touch()
        self.process.send_signal(signal.SIGHUP)
        wait_for(lambda: len(self.children()) > 2, PATIENT)
        Path("hang").unlink()
        self.reload()

    def delete_consumer(self) -> None:
        """While the server is away from the worker, or under its eyes."""
        wait_for(self.is_ready, PATIENT)
        self.deaths += 2
        away, self.away = self.away, self.rng.random() < 0.7
        pids = self.children() if away else []
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
        try:
            if pids:
                self.server.kill()
                self.server.start()
            wait_for(lambda: self.is_deleted(self.rng.choice("wp")), PATIENT)
        finally:
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)

    def is_deleted(self, name: str) -> bool:
        with contextlib.suppress(errors.Error):
            self.js.delete_consumer("JOBS", name)
            return True
        return False

    # The judge ------------------------------------------------------------------------

    def check(self) -> None:
        wait_for(self.is_settled, PATIENT)
        wait_for(self.is_ready, PATIENT)
        ended = {call.number for call in calls() if call.word == "end"}
        begun = collections.Counter(
            call.number for call in calls() if call.word == "begin"
        )
        dead: dict[int, int] = {}
        for msg in self.js.stream("DEAD").ordered_consumer().messages(until_end=True):
            kind, _, text = msg.data.decode().partition(" ")
            assert kind == "fail", f"a dead letter of {kind}, which never fails"
            assert int(text) not in dead, "two dead letters of one message"
            headers = msg.headers or jsync.Headers()
            dead[int(text)] = int(headers["Dead-Letter-Attempts"])
        for _, what, number in self.sent:
            if what != "fail":
                assert number in ended, f"{what} {number} was not handled"
                continue
            assert number in dead, f"{what} {number} is no dead letter"
            if number not in self.short:
                assert dead[number] >= ATTEMPTS, f"{number} is dead too early"
            # A delivery to a process that is killed at this moment has no handler.
            lost = dead[number] - begun[number]
            assert lost <= min(self.deaths, 1), (
                f"{number}: {lost} deliveries without call"
            )
        assert not self.not_alive


def test_no_message_is_lost_stuck_or_prematurely_dead(
    own_server: StartServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    campaign: Campaign,
) -> None:
    (tmp_path / "an_app.py").write_text(APP)
    monkeypatch.chdir(tmp_path)
    server, rng = own_server(store_dir=tmp_path / "store"), campaign.random()
    with jsync.connect(server.url, reconnect_wait=0.1) as nc:
        js = nc.jetstream()
        js.create_stream(name="JOBS", subjects=["jobs.*"], duplicate_window=3600)
        js.create_stream(name="DEAD", subjects=["dead.*"], duplicate_window=3600)
        for name, subject in (("w", "jobs.a"), ("p", "jobs.b")):
            js.create_consumer(
                "JOBS", durable_name=name, filter_subject=subject, ack_wait=10
            )
        world = World(server, js, rng)
        faults: list[Callable[[], None]] = [
            *(world.kill_server, world.freeze_server, world.kill_supervisor),
            *(world.kill_process, world.reload, world.hang_in_a_reload),
            *(world.delete_consumer, world.freeze_process),
        ]
        rng.shuffle(faults)
        # Few rounds fit into a short campaign.
        first = [world.delete_consumer, world.freeze_process, world.freeze_server]
        faults = first + [fault for fault in faults if fault not in first]
        try:
            wait_for(world.is_ready, PATIENT)
            world.check_changed()
            world.check_calm()
            for number in campaign.rounds():
                world.publish()
                fault = faults[number % len(faults)]
                print(fault.__name__)  # noqa: T201 (pytest shows it if the test fails)
                fault()
            world.publish()
            world.check()
            os.kill(world.process.pid, signal.SIGTERM)
            assert world.process.wait() == 0
        finally:
            world.end()
