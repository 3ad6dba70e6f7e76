"""Tests of `jsync worker`, which starts, watches, replaces and ends processes."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from typing import TYPE_CHECKING
from urllib.error import HTTPError, URLError

import pytest

import jsync
from jsync.server import LocalServer

from ..support.servers import free_port, wait_for
from .processes import Process
from .support import Jsync

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ..conftest import StartServer


APP = """
import os, time, msgspec, jsync

class Order(msgspec.Struct):
    id: int
    kill: bool = False

app = jsync.Worker(stream="{stream}")
retry = jsync.Retry(delays=[0.05], attempts=2, dead_letter="dead.{stream}")

@app.handle("{stream}.a", consumer="w", ack_wait=0.5, retry=retry, max_messages=1)
def handle(order: Order) -> None:
    if order.kill:
        os._exit(9)
    with open("done", "a") as done:
        done.write(f"{{order.id}} {{os.getpid()}}\\n")
"""


class Running:
    """A running supervisor in a directory, and its HTTP answers."""

    def __init__(
        self,
        process: Process | subprocess.Popen[bytes],
        port: int,
        directory: Path,
        host: str = "127.0.0.1",
    ) -> None:
        self.process = process
        self._url = f"http://{host}:{port}"
        self._directory = directory

    def get(self, path: str) -> tuple[int, str]:
        """Return the status and the body, or 0 if no process answers."""
        try:
            with urllib.request.urlopen(f"{self._url}{path}") as found:
                return found.status, found.read().decode()
        except HTTPError as error:
            return error.code, error.read().decode()
        except (URLError, ConnectionError):
            return 0, ""

    def metric(self, name: str) -> float:
        lines = self.get("/metrics")[1].splitlines()
        values = [line for line in lines if line.startswith(f"jsync_worker_{name}")]
        return float(values[0].rpartition(" ")[2]) if values else -1

    def is_ready(self) -> bool:
        return self.get("/readyz")[0] == 200

    @property
    def done(self) -> list[tuple[int, int]]:
        """Return the handled numbers, each with the pid that handled it."""
        path = self._directory / "done"
        lines = path.read_text().splitlines() if path.exists() else []
        return [(int(line.split()[0]), int(line.split()[1])) for line in lines]

    def children(self) -> set[int]:
        task = f"/proc/{self.process.pid}/task/{self.process.pid}/children"
        with open(task) as found:
            return {int(pid) for pid in found.read().split()}


@pytest.fixture
def dead(js: jsync.JetStream, stream: jsync.Stream) -> Iterator[jsync.Stream]:
    """The stream of the dead letters."""
    made = js.create_stream(name=f"{stream.name}DEAD", subjects=[f"dead.{stream.name}"])
    yield made
    made.delete()


@pytest.fixture
def running(
    server: LocalServer,
    stream: jsync.Stream,
    dead: jsync.Stream,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Running]:
    """A worker with two processes that are ready."""
    (tmp_path / "an_app.py").write_text(APP.format(stream=stream.name))
    monkeypatch.chdir(tmp_path)
    port = free_port()
    with Process(
        server,
        *("worker", "an_app:app", "--processes", "2", "--grace", "10"),
        *("--http", f"127.0.0.1:{port}"),
    ) as process:
        found = Running(process, port, tmp_path)
        wait_for(found.is_ready)
        yield found


def publish(js: jsync.JetStream, stream: jsync.Stream, *bodies: str) -> None:
    for body in bodies:
        js.publish(f"{stream.name}.a", body.encode())


def settled(js: jsync.JetStream, stream: jsync.Stream) -> bool:
    info = js.consumer(stream.name, "w").info()
    return info.num_pending == info.num_ack_pending == 0


def test_processes_share_the_messages_and_sigterm_ends_them(
    running: Running, js: jsync.JetStream, stream: jsync.Stream
) -> None:
    assert running.get("/livez") == (200, "ok\n")
    assert running.get("/other")[0] == 404
    publish(js, stream, *(f'{{"id": {number}}}' for number in range(40)))
    wait_for(lambda: len(running.done) == 40)
    assert sorted(number for number, _ in running.done) == [*range(40)]
    wait_for(lambda: running.metric("handler_seconds_count") == 40)
    os.kill(running.process.pid, signal.SIGTERM)
    assert running.process.wait() == 0
    assert settled(js, stream)


def test_messages_that_kill_their_process_become_dead_letters(
    running: Running, js: jsync.JetStream, stream: jsync.Stream, dead: jsync.Stream
) -> None:
    before = running.children()
    publish(js, stream, '{"id": 1, "kill": true}', '{"id": 2}')
    wait_for(lambda: dead.info().state.messages == 1)
    wait_for(lambda: settled(js, stream))
    wait_for(running.is_ready)
    assert running.children() != before
    assert 2 in [number for number, _ in running.done]
    wait_for(lambda: running.metric("dead_letters_total") == 1)
    assert running.metric("restarts_total") >= 4


def test_a_killed_process_is_begun_again(running: Running) -> None:
    killed = min(running.children())
    os.kill(killed, signal.SIGKILL)
    wait_for(lambda: killed not in running.children())
    wait_for(lambda: len(running.children()) == 2 and running.is_ready())


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits another process")
def test_a_shortage_of_descriptors_ends_no_process(running: Running) -> None:
    import resource  # noqa: PLC0415 (Windows has none)

    assert isinstance(running.process, Process)
    pid = running.process.pid
    killed, other = sorted(running.children())
    limits = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (3, limits[1]))
    os.kill(killed, signal.SIGKILL)
    for _ in range(6):  # more often than a crash loop lasts
        running.process.await_words("a process cannot be started")
    resource.prlimit(pid, resource.RLIMIT_NOFILE, limits)
    wait_for(lambda: len(running.children()) == 2 and running.is_ready())
    assert other in running.children()


CHILD_APP = """
import os, signal, subprocess, jsync

app = jsync.Worker(stream="{stream}")

@app.handle("{stream}.a", consumer="w", ack_wait=0.5)
def handle(msg: jsync.JetStreamMsg) -> None:
    if msg.is_redelivered:
        subprocess.run(["cat"], check=True)  # ends at once: the input is empty
        return
    with open("child", "w") as file:
        file.write(str(subprocess.Popen(["sleep", "300"], close_fds=False).pid))
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_process_is_replaced_despite_living_children(
    server: LocalServer,
    js: jsync.JetStream,
    stream: jsync.Stream,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "an_app.py").write_text(CHILD_APP.format(stream=stream.name))
    monkeypatch.chdir(tmp_path)
    js.publish(f"{stream.name}.a")
    with Process(server, "worker", "an_app:app") as process:
        process.await_words("has ended: SIGKILL")
        child = int((tmp_path / "child").read_text())
        try:
            wait_for(lambda: settled(js, stream))
            os.kill(process.pid, signal.SIGTERM)
            assert process.wait() == 0
            os.kill(child, 0)  # it is still there
        finally:
            os.kill(child, signal.SIGKILL)


def test_a_killed_supervisor_takes_its_processes_along(
    running: Running, js: jsync.JetStream, stream: jsync.Stream
) -> None:
    children = running.children()
    assert len(children) == 2
    running.process.kill()
    wait_for(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in children))


def test_sighup_replaces_each_process(
    running: Running, js: jsync.JetStream, stream: jsync.Stream
) -> None:
    before = running.children()
    os.kill(running.process.pid, signal.SIGHUP)
    wait_for(lambda: len(running.children()) == 2 and not running.children() & before)
    wait_for(running.is_ready)
    publish(js, stream, '{"id": 1}')
    wait_for(lambda: len(running.done) == 1)


@pytest.mark.parametrize(
    ("target", "words"),
    [("nothing_there:app", "there is no module"), ("os:path", "not a jsync.Worker")],
)
def test_a_missing_worker_is_reported_at_once(
    server: LocalServer, target: str, words: str
) -> None:
    with Process(server, "worker", target) as process:
        code, _, errors = process.finish()
    assert code == 1
    assert words in errors
    assert "rejected its configuration" in errors


def test_a_crash_loop_is_an_error(
    server: LocalServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken.py").write_text("raise OSError('no such disk')")
    monkeypatch.chdir(tmp_path)
    with Process(server, "worker", "broken:app") as process:
        code, _, errors = process.finish()
    assert code == 1
    assert errors.count("no such disk") == 5
    assert "a crash loop" in errors


def test_an_invalid_address_is_a_usage_error(server: LocalServer) -> None:
    ended = Jsync(server)("worker", "a:b", "--http", "8080")
    assert ended.code == 2
    assert "HOST:PORT" in ended.errors


def test_health_is_served_on_ipv6(
    server: LocalServer,
    stream: jsync.Stream,
    dead: jsync.Stream,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "an_app.py").write_text(APP.format(stream=stream.name))
    monkeypatch.chdir(tmp_path)
    port = free_port()
    with Process(server, "worker", "an_app:app", "--http", f"[::1]:{port}") as process:
        running = Running(process, port, tmp_path, host="[::1]")
        wait_for(running.is_ready)
        assert running.get("/livez") == (200, "ok\n")


LONE_APP = """
import os, time, jsync

app = jsync.Worker(stream="JOBS")
retry = jsync.Retry(delays=[0.05], attempts=2)

@app.on_start
def create(js):
    js.create_stream(name="JOBS", subjects=["jobs.*"])

@app.on_stop
def stop():
    time.sleep(3600 if os.path.exists("stuck") else 0)

@app.handle("jobs.*", consumer="w", retry=retry)
def handle(data: bytes) -> None:
    with open("begun", "w") as begun:
        begun.write(str(os.getpid()))
    if data == b"fail":
        raise LookupError("no such job")
    if data == b"stay":
        time.sleep(3600)
"""


@pytest.fixture
def lone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with a worker that makes its own stream."""
    (tmp_path / "lone.py").write_text(LONE_APP)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_worker_awaits_its_server_initially_and_later(
    lone: Path, tmp_path: Path
) -> None:
    server, port = LocalServer(port=free_port(), store_dir=lone / "store"), free_port()
    with (
        server,
        Process(
            server, "worker", "lone:app", "-n", "2", "--http", f"127.0.0.1:{port}"
        ) as process,
    ):
        running = Running(process, port, tmp_path)
        server.kill()
        process.await_words("retrying in 4 s")
        assert running.get("/livez")[0] == 200
        assert running.get("/readyz")[0] == 503
        server.start()
        wait_for(running.is_ready)
        server.kill()
        wait_for(lambda: running.get("/readyz")[0] == 503)
        assert running.get("/livez")[0] == 200
        server.start()
        process.await_words("connected again")
        wait_for(running.is_ready)
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait() == 0


def test_a_worker_awaiting_its_server_can_be_ended(
    lone: Path, server: LocalServer
) -> None:
    nowhere = f"nats://127.0.0.1:{free_port()}"
    with Process(server, "worker", "lone:app", "--server", nowhere) as process:
        process.await_words("cannot start")
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait() == 0


LATE_END = """

import atexit

@atexit.register
def end():
    open("ended", "w").close()
    time.sleep(3600)
"""


def test_a_second_signal_to_a_process_is_harmless(
    lone: Path, own_server: StartServer
) -> None:
    """As a terminal, systemd and `timeout` send it to all processes."""
    (lone / "lone.py").write_text(LONE_APP + LATE_END)
    with Process(own_server(), "worker", "lone:app") as process:
        process.await_words("handle handles")
        task = f"/proc/{process.pid}/task/{process.pid}/children"
        with open(task) as found:
            (child,) = map(int, found.read().split())
        os.kill(child, signal.SIGTERM)
        wait_for(
            (lone / "ended").exists
        )  # it has drained, and no longer handles signals
        os.kill(process.pid, signal.SIGTERM)
        code, _, errors = process.finish()
    assert code == 0
    lines = [json.loads(line) for line in errors.splitlines()]
    assert lines[-1]["text"] == f"process {child} has ended: SIGTERM"
    assert lines[-1]["level"] == "INFO"


@pytest.mark.parametrize("servers", [1, 2])
def test_wrong_credentials_are_not_retried_for_ever(
    lone: Path, own_server: StartServer, servers: int
) -> None:
    config = 'authorization { token: "right" }'
    first, *others = [own_server(config=config) for _ in range(servers)]
    urls = ",".join(server.url for server in (first, *others))
    with Process(first, "worker", "lone:app", "--server", urls) as process:
        code, _, errors = process.finish()
    assert code == 1
    assert "a crash loop" in errors


def test_a_handler_exceeding_the_grace_loses_its_message(
    lone: Path, own_server: StartServer
) -> None:
    with (
        jsync.connect((server := own_server()).url) as nc,
        Process(server, "worker", "lone:app", "--grace", "0") as process,
    ):
        js = nc.jetstream()
        process.await_words("handle handles jobs.*: consumer w of JOBS, threads: 1")
        js.publish("jobs.a", b"stay")
        wait_for((lone / "begun").exists)
        os.kill(process.pid, signal.SIGTERM)
        process.await_words("handlers have not returned within")
        assert process.wait() == 0
        assert js.consumer("JOBS", "w").info().num_ack_pending == 1


def test_a_process_that_does_not_end_is_killed(
    lone: Path, own_server: StartServer
) -> None:
    with Process(own_server(), "worker", "lone:app", "--grace", "0") as process:
        process.await_words("handle handles")
        (lone / "stuck").touch()
        os.kill(process.pid, signal.SIGTERM)
        process.await_words("killing process")
        process.await_words("has ended: SIGKILL")
        assert process.wait() == 0


STUCK = """
import sys
from jsync.worker import supervisor
supervisor.ALIVE_SECONDS = 3.0
sys.argv[0] = "jsync"
from jsync.cli import main
main()
"""


def test_a_frozen_process_is_replaced(
    lone: Path, own_server: StartServer, tmp_path: Path
) -> None:
    """A handler that takes longer than the timeout is left alone."""
    port, server = free_port(), own_server()
    options = ["-n", "2", "--grace", "0", "--heartbeat-timeout", "3s"]
    with (
        Process(
            server, "worker", "lone:app", *options, "--http", f"127.0.0.1:{port}"
        ) as process,
        jsync.connect(server.url) as nc,
    ):
        running = Running(process, port, tmp_path)
        wait_for(running.is_ready)
        nc.jetstream().publish("jobs.a", b"stay")
        wait_for((lone / "begun").exists)
        wait_for(lambda: (lone / "begun").read_text() != "")
        busy = int((lone / "begun").read_text())
        (idle,) = running.children() - {busy}
        os.kill(idle, signal.SIGSTOP)
        process.await_words(f"process {idle} has ended: SIGKILL")
        wait_for(running.is_ready)
        assert busy in running.children()


def test_a_stuck_process_shows_in_livez(
    lone: Path, own_server: StartServer, tmp_path: Path
) -> None:
    port, server = free_port(), own_server()
    words = ["--server", server.url, "worker", "lone:app"]
    with subprocess.Popen(
        [sys.executable, "-c", STUCK, *words, "--http", f"127.0.0.1:{port}"],
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            running = Running(process, port, tmp_path)
            wait_for(running.is_ready)
            (child,) = running.children()
            os.kill(child, signal.SIGSTOP)
            wait_for(lambda: running.get("/livez")[0] == 503)
            os.kill(child, signal.SIGCONT)
            wait_for(lambda: running.get("/livez")[0] == 200)
        finally:
            process.terminate()


def test_logs_are_json_and_name_the_message(
    lone: Path, own_server: StartServer
) -> None:
    with (
        jsync.connect((server := own_server()).url) as nc,
        Process(server, "worker", "lone:app") as process,
    ):
        process.await_words("handle handles jobs.*")
        nc.jetstream().publish("jobs.a", b"fail")
        js = nc.jetstream()
        wait_for(lambda: js.consumer("JOBS", "w").info().ack_floor.stream_seq == 1)
        os.kill(process.pid, signal.SIGTERM)
        _, _, errors = process.finish()
    lines = [json.loads(line) for line in errors.splitlines()]
    about = {"stream": "JOBS", "consumer": "w", "subject": "jobs.a", "sequence": 1}
    told = [line for line in lines if line.items() >= about.items()]
    assert [(line["level"], line["attempt"]) for line in told] == [
        *(("WARNING", 1), ("ERROR", 2), ("WARNING", 2)),
    ]
    assert told[0]["text"] == (
        "handle failed at attempt 1 of 2: LookupError: no such job; the next one follows in "
        "0.05 s"
    )
    assert "exception" not in told[0]
    assert "raise LookupError" in told[1]["exception"]
    assert "jsync/worker" not in told[1]["exception"]
    assert "was terminated after attempt 2" in told[2]["text"]
    assert all(re.match(r"\d{4}-\d\d-\d\dT", line["time"]) for line in lines)


GROUP_APP = """
import os, jsync

app = jsync.Worker(stream="{stream}")

@app.handle("{stream}.*", group="g", ack_wait=1)
def handle(data: bytes, msg: jsync.JetStreamMsg) -> None:
    with open("done", "a") as done:
        done.write(f"{{data.decode()}} {{os.getpid()}}\\n")
"""


def test_a_killed_member_process_comes_back_as_itself(
    server: LocalServer,
    js: jsync.JetStream,
    stream: jsync.Stream,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "an_app.py").write_text(GROUP_APP.format(stream=stream.name))
    monkeypatch.chdir(tmp_path)
    group = js.create_consumer_group(
        stream.name, "g", partitions=8, filters={f"{stream.name}.*": [1]}
    )
    port = free_port()
    with Process(
        server,
        *("worker", "an_app:app", "-n", "2", "--http", f"127.0.0.1:{port}"),
    ) as process:
        running = Running(process, port, tmp_path)
        wait_for(running.is_ready)
        assert len(group.info().members) == 2
        for number in range(40):
            js.publish(f"{stream.name}.{number}", str(number).encode())
        wait_for(lambda: len(running.done) == 40)
        assert {pid for _, pid in running.done} == running.children()
        os.kill(min(running.children()), signal.SIGKILL)
        for number in range(40):
            js.publish(f"{stream.name}.{number}", str(number).encode())
        wait_for(lambda: sum(group.lag().values()) + group.source_lag() == 0)
        assert {number for number, _ in running.done[40:]} == {*range(40)}
        assert len(group.info().members) == 2
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait() == 0
    js.delete_consumer_group(stream.name, "g")
