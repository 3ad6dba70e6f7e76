"""Tests of the command in a shell: pipes, signals and exit codes."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import jsync as package
from jsync.server import LocalServer

from ..support.accounts import password_config
from ..support.servers import free_port, wait_for
from .processes import LONG, Process

if TYPE_CHECKING:
    from jsync import Connection, JetStream, Stream

pytestmark = pytest.mark.server

SCRIPT = Path(sys.executable).with_name("jsync")


def shell(server: LocalServer, line: str) -> subprocess.CompletedProcess[bytes]:
    """Run a line in bash, where `jsync` is the installed command."""
    return subprocess.run(
        [
            "bash",
            "-c",
            f'set -o pipefail; jsync() {{ {shlex.quote(str(SCRIPT))} "$@"; }}; {line}',
        ],
        env=os.environ | {"NATS_URL": server.url},
        capture_output=True,
        check=False,
        timeout=LONG,
    )


def assert_gone(pid: int) -> None:
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_pub_reads_a_pipe_and_consume_writes_one(
    server: LocalServer, stream: Stream
) -> None:
    name = stream.name
    ended = shell(
        server,
        f"seq 1000 | jsync pub {name}.n -J --send-on newline -q && "
        f"jsync consume {name} -T --raw | tail -n 2",
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, b"999\n1000\n", b"")


def test_each_line_is_stored_as_it_comes(server: LocalServer, stream: Stream) -> None:
    stream.update(max_msgs=2, discard="new")
    subject = f"{stream.name}.a"
    with Process(server, "pub", subject, "-J", "--send-on", "newline") as process:
        process.feed(b"1\n")
        wait_for(lambda: stream.info().state.messages == 1)
        process.feed(b"2\n")

        def has_ended() -> bool:
            try:
                process.feed(b"refused\n")
            except BrokenPipeError:
                return True
            return False

        wait_for(has_ended)
        code, _, said = process.finish()
    assert (code, "maximum messages exceeded" in said) == (1, True)


def test_a_closed_standard_stream_causes_no_traceback(
    server: LocalServer, js: JetStream, stream: Stream
) -> None:
    name = stream.name
    ended = shell(server, f"jsync pub {name}.a word -J <&- 2>&-")
    assert (ended.returncode, ended.stderr) == (0, b"")
    ended = shell(server, f"jsync pub {name}.a -J <&-")
    assert (ended.returncode, ended.stderr) == (0, b"")
    assert stream.info().state.messages == 2
    stream.create_consumer(durable_name="worker")
    ended = shell(server, f"jsync next {name} worker >&-")
    assert (ended.returncode, ended.stderr) == (1, b"jsync: Bad file descriptor\n")
    assert js.consumer(name, "worker").info().ack_floor.stream_seq == 0


def test_a_reader_that_stops_ends_the_command_quietly(
    server: LocalServer, js: JetStream, stream: Stream
) -> None:
    with js.publisher() as publisher:
        for _ in range(5000):
            publisher.publish(f"{stream.name}.n", b"x" * 100)
    ended = shell(server, f"jsync consume {stream.name} -T --json | head -n 1")
    assert (ended.returncode, ended.stderr) == (141, b"")
    assert json.loads(ended.stdout)["sequence"] == 1


def test_messages_that_were_not_written_are_not_acknowledged(
    server: LocalServer, js: JetStream, stream: Stream
) -> None:
    consumer = stream.create_consumer(durable_name="worker")
    with js.publisher() as publisher:
        for _ in range(5000):
            publisher.publish(f"{stream.name}.n", b"x" * 100)
    ended = shell(server, f"jsync consume {stream.name} worker --raw | head -n 1")
    assert (ended.returncode, ended.stderr) == (141, b"")
    assert consumer.info().ack_floor.stream_seq < 5000


def test_ctrl_c_ends_an_endless_command(
    server: LocalServer, nc: Connection, js: JetStream, stream: Stream
) -> None:
    subject = f"{stream.name}.n"
    bucket = js.create_key_value(bucket=stream.name, storage="memory")
    with (
        Process(server, "sub", subject, "--raw") as sub,
        Process(server, "sub", subject, f"{subject}.b", "--raw") as several,
        Process(server, "consume", stream.name, "--raw") as consume,
        Process(server, "kv", "watch", bucket.bucket, "n", "--raw") as watch,
    ):
        sub.await_words("subscribed")
        several.await_words("subscribed")
        nc.publish(subject, b"one")
        bucket.put("n", b"one")
        for process in (sub, several, consume, watch):
            assert process.line() == "one\n"
            process.interrupt()
            code, output, errors = process.finish()
            assert (code, output) == (130, "")
            assert "Traceback" not in errors
            assert "lost" not in errors
    js.delete_key_value(bucket.bucket)


def test_an_abandoned_connection_is_reported_once(unique: str) -> None:
    with LocalServer(jetstream=False, config=password_config({"a": "old"})) as own:
        options = ("--user", "a", "--password", "old")
        with Process(own, *options, "sub", unique) as sub:
            sub.await_words("subscribed")
            own.reload(password_config({"a": "new"}))
            code, _, told = sub.finish()
    assert code == 1
    assert told.count("refused the same credentials twice") == 1


def test_a_flow_reports_each_change_of_the_connection(
    server: LocalServer, nc: Connection, unique: str
) -> None:
    with LocalServer(jetstream=False) as own:
        with Process(own, "sub", unique, "--raw") as sub:
            sub.await_words("subscribed")
            own.restart()
            sub.await_words("connection lost, reconnecting")
            sub.await_words("connected again")
            with package.connect(own.url) as again:
                again.publish(unique, b"after")
            assert sub.line() == "after\n"


def test_a_server_runs_until_a_signal(server: LocalServer, tmp_path: Path) -> None:
    config = tmp_path / "more.conf"
    config.write_text("max_payload: 4096\n")
    store = str(tmp_path / "store")
    options = ("--port", "0", "--store-dir", store, "--config", str(config), "--json")
    with Process(server, "server", *options) as process:
        ready = json.loads(process.line())
        with package.connect(ready["url"]) as nc:
            assert nc.max_payload == 4096
            nc.jetstream().create_stream(name="KEPT")
        process.interrupt()
        assert process.finish()[0] == 130
        assert_gone(ready["pid"])
    with Process(server, "server", *options, "--", "-n", "own-name") as process:
        ready = json.loads(process.line())
        with package.connect(ready["url"]) as nc:
            assert nc.server_info.server_name == "own-name"
            assert list(nc.jetstream().stream_names()) == ["KEPT"]
        os.kill(process.pid, 15)
        assert process.finish()[0] == 130
        assert_gone(ready["pid"])


def test_a_server_uses_its_configuration_as_it_is(
    server: LocalServer, tmp_path: Path
) -> None:
    store, port = tmp_path / "store", free_port()
    (tmp_path / "limits.conf").write_text("max_payload: 4096\n")
    config = tmp_path / "nats.conf"
    config.write_text(
        f"listen: 127.0.0.1:{port}\ninclude limits.conf\n"
        f"jetstream {{ store_dir: '{store}' }}\n"
    )
    with Process(server, "server", "--config", str(config), "--json") as process:
        assert json.loads(process.line())["url"] == f"nats://127.0.0.1:{port}"
        with package.connect(f"nats://127.0.0.1:{port}") as nc:
            assert nc.max_payload == 4096
            nc.jetstream().create_stream(name="KEPT")
        process.interrupt()
        assert process.finish()[0] == 130
    assert store.is_dir()
    options = ("--config", str(config), "--store-dir", str(tmp_path))
    with Process(server, "server", *options) as process:
        code, _, errors = process.finish()
    assert (code, "store_dir: the configuration has one" in errors) == (2, True)


def test_a_server_that_cannot_run_reports_the_reason(server: LocalServer) -> None:
    with Process(server, "server", "--port", str(server.port)) as process:
        code, output, errors = process.finish()
    assert (code, output) == (1, "")
    assert "address already in use" in errors
    assert "Traceback" not in errors
