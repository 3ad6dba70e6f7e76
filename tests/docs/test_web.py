"""Tests of the page on web frameworks: its files form a project that real frameworks run."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import pytest

import jsync

from ..support.servers import wait_for
from .markdown import ROOT, blocks
from .running import SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from jsync.server import LocalServer

    from ..conftest import StartServer

pytestmark = pytest.mark.server

PAGE = list(blocks(ROOT / "docs/guides/web.md"))

AROUND = {
    "settings.py": """
SECRET_KEY = "of a test"
INSTALLED_APPS = ["shop"]
ROOT_URLCONF = "shop.urls"
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "db.sqlite3"}}
USE_TZ = True
ALLOWED_HOSTS = ["testserver"]
""",
    "shop/__init__.py": "",
    "shop/management/__init__.py": "",
    "shop/management/commands/__init__.py": "",
    "celeryconfig.py": """
broker_url = "filesystem://"
broker_transport_options = {
    "data_folder_in": "queue", "data_folder_out": "queue", "polling_interval": 0.05
}
""",
}
"""The files of a project that are not on the page."""


class Project:
    """A directory with the files of the page, on a server with the stream `ORDERS`."""

    def __init__(self, directory: Path, server: LocalServer) -> None:
        self.directory = directory
        self.ends = contextlib.ExitStack()
        """Kills the processes that have not ended by themselves."""
        self.environment = os.environ | {
            "NATS_URL": server.url,
            "DJANGO_SETTINGS_MODULE": "settings",
            "PYTHONUNBUFFERED": "1",
        }

    def start(self, *command: str, apart: bool = False) -> subprocess.Popen[str]:
        """Start a Python process. With `apart` it leads a new process group."""
        process = subprocess.Popen(
            [sys.executable, *command],
            start_new_session=apart,
            cwd=self.directory,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        watchdog = threading.Timer(SECONDS, process.kill)
        watchdog.daemon = True
        watchdog.start()
        self.ends.callback(watchdog.cancel)
        self.ends.callback(process.kill)
        return process

    def run(self, script: str) -> str:
        process = self.start("-c", script)
        output, errors = process.communicate(timeout=SECONDS)
        assert process.returncode == 0, errors
        return output


@pytest.fixture
def project(tmp_path: Path, own_server: StartServer) -> Iterator[Project]:
    server = own_server()
    files = {block.title: block.text for block in PAGE if block.title} | AROUND
    assert len(files) == len(AROUND) + 9
    for name, text in files.items():
        path = tmp_path / str(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "queue").mkdir()
    with jsync.connect(server.url) as nc:
        nc.jetstream().create_stream(name="ORDERS", subjects=["orders.>"])
    project = Project(tmp_path, server)
    with project.ends:
        yield project


@pytest.fixture
def stream(project: Project) -> Iterator[jsync.Stream]:
    with jsync.connect(project.environment["NATS_URL"]) as nc:
        yield nc.jetstream().stream("ORDERS")


def test_requests_to_a_silent_server_share_one_connection(project: Project) -> None:
    """Each would wait for the attempts of all others before its own."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"nats://127.0.0.1:{silent.getsockname()[1]}"
        project.environment["NATS_URL"] = url
        output = project.run(
            "import events\n"
            "from concurrent.futures import ThreadPoolExecutor\n"
            "with ThreadPoolExecutor(6) as pool:\n"
            "    found = [pool.submit(events.connection) for _ in range(6)]\n"
            "print(len({id(each.result()) for each in found}))\n"
            "events.connection().close()\n"
        )
    assert output == "1\n"


def test_flask_and_its_forks_publish_each_order_once(
    project: Project, stream: jsync.Stream
) -> None:
    output = project.run("""
import os
from app import app

client = app.test_client()
print(client.post("/orders", json={"id": 1}).get_json())
print(client.post("/orders", json={"id": 1}).get_json(), flush=True)
if not os.fork():  # as gunicorn does with --preload
    print(client.post("/orders", json={"id": 2}).get_json(), flush=True)
    os._exit(0)
assert os.wait()[1] == 0
print(client.post("/orders", json={"id": 3}).get_json())
""")
    assert output.splitlines() == [
        "{'known': False, 'sequence': 1}",
        "{'known': True, 'sequence': 1}",
        "{'known': False, 'sequence': 2}",
        "{'known': False, 'sequence': 3}",
    ]
    assert stream.info().state.messages == 3


def test_django_publishes_and_its_command_awaits_a_signal(
    project: Project, stream: jsync.Stream
) -> None:
    output = project.run("""
import django
django.setup()
from django.test import Client

for order in (7, 8):
    response = Client().post("/orders", {"id": order}, content_type="application/json")
    print(response.status_code, response.json())
""")
    assert output.splitlines() == ["202 {'id': 7}", "202 {'id': 8}"]
    worker = project.start("-m", "django", "work")
    assert worker.stdout is not None
    assert [worker.stdout.readline() for _ in range(2)] == [
        '{"id": 7}\n',
        '{"id": 8}\n',
    ]
    worker.send_signal(signal.SIGTERM)
    rest, errors = worker.communicate(timeout=SECONDS)
    assert (worker.returncode, rest, errors) == (0, "drained\n", "")
    assert stream.consumer("shop").info().num_ack_pending == 0


def test_a_worker_handles_orders_with_django(
    project: Project, stream: jsync.Stream
) -> None:
    with jsync.connect(project.environment["NATS_URL"]) as nc:
        js = nc.jetstream()
        dead = js.create_stream(name="DEAD", subjects=["dead.>"])
        js.publish("orders.new", b'{"id": 7}')
        js.publish("orders.new", b"nonsense")
        worker = project.start("-m", "jsync", "worker", "shop.worker:app")
        assert worker.stdout is not None
        assert worker.stdout.readline() == "mail order 7\n"
        wait_for(lambda: dead.info().state.messages == 1)
        consumer = stream.consumer("mails")
        wait_for(lambda: consumer.info().ack_floor.stream_seq == 2)
        worker.send_signal(signal.SIGTERM)
        rest, _ = worker.communicate(timeout=SECONDS)
    assert (worker.returncode, rest) == (0, "")


def test_a_view_calls_a_django_commands_service(project: Project) -> None:
    ask = """
from prices import app

client = app.test_client()
for order in ({"item": "pen", "quantity": 3}, {"item": "pen", "quantity": "3"}):
    answer = client.post("/price", json=order)
    print(answer.status_code, answer.get_json())
"""
    assert "503 {'error': 'no prices at the moment'}" in project.run(ask)
    service = project.start("-m", "django", "serve")
    assert service.stdout is not None
    assert service.stdout.readline() == "serving\n"
    assert project.run(ask).splitlines() == [
        "200 {'cents': 750}",
        "400 {'error': 'the payload is not a valid Order: Expected `int`, got `str` - at `$.quantity`'}",
    ]
    service.send_signal(signal.SIGTERM)
    rest, errors = service.communicate(timeout=SECONDS)
    assert (service.returncode, rest, errors) == (0, "stopped\n", "")


def test_celery_publishes_from_the_processes_of_its_pool(
    project: Project, stream: jsync.Stream
) -> None:
    shell = [block.text for block in PAGE if block.language == "sh"]
    (command,) = (text.split() for text in shell if text.startswith("celery"))
    project.run("import tasks\nfor order in range(4): tasks.ship.delay(order)")
    # Without these options the worker waits for other workers.
    alone = ["--without-mingle", "--without-gossip", "--without-heartbeat"]
    worker = project.start("-m", *command, *alone, apart=True)
    try:
        wait_for(
            lambda: worker.poll() is not None or stream.info().state.messages == 4,
            SECONDS,
        )
    finally:
        with contextlib.suppress(ProcessLookupError):
            # a graceful end would take five seconds
            os.killpg(worker.pid, signal.SIGKILL)
        _, errors = worker.communicate(timeout=SECONDS)
    assert stream.info().state.messages == 4, errors
    assert {message.data for message in map(stream.get_message, range(1, 5))} == {
        b"0",
        b"1",
        b"2",
        b"3",
    }
