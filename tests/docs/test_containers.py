"""Tests of examples/container: its commands work together, without a container around them."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
import yaml  # type: ignore[import-untyped]

import jsync
from jsync.server import LocalServer

from ..support.servers import free_port, wait_for
from .markdown import ROOT, blocks
from .running import SECONDS

if TYPE_CHECKING:
    from pathlib import Path

FOLDER = ROOT / "examples/container"
COMPOSE: dict[str, Any] = yaml.safe_load((FOLDER / "compose.yaml").read_text())
SERVICES: dict[str, Any] = COMPOSE["services"]


@pytest.mark.server
def test_the_services_of_compose_work_together(tmp_path: Path) -> None:
    nats, worker = SERVICES["nats"]["command"], SERVICES["worker"]
    port = str(free_port())
    data = [{"/data": str(tmp_path), "8222": "-1"}.get(word, word) for word in nats]
    with LocalServer(args=data) as server, jsync.connect(server.url) as nc:
        environ = os.environ | {"NATS_URL": server.url}
        named = re.findall(r"image: (\S+)", (FOLDER / "compose.yaml").read_text())
        assert named == ["billing", "docker.io/library/nats:alpine"]
        for name in worker["depends_on"]:
            run("-m", "jsync", *SERVICES[name]["command"], environ=environ)
        command = [word.replace("8080", port) for word in worker["command"]]
        with subprocess.Popen(
            [sys.executable, "-m", "jsync", *command],
            cwd=FOLDER,
            env=environ,
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            check = worker["healthcheck"]["test"]
            assert check[:3] == ["CMD", "python", "-c"]
            code = check[3].replace("8080", port)
            wait_for(lambda: alive(code.replace("livez", "readyz")))
            assert alive(code)
            js = nc.jetstream()
            js.publish("orders.paid", b'{"id": 42}')
            js.publish("orders.paid", b"nonsense")
            wait_for(lambda: js.stream("DEAD").info().state.messages == 1)
            process.send_signal(signal.SIGTERM)
            output, _ = process.communicate(timeout=SECONDS)
        assert (process.returncode, output) == (0, "bill order 42\n")


def run(*arguments: str, environ: dict[str, str]) -> None:
    subprocess.run(
        [sys.executable, *arguments], env=environ, check=True, capture_output=True
    )


def alive(code: str) -> bool:
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, check=False
    )
    return ended.returncode == 0


def test_the_image_copies_only_existing_files() -> None:
    text = (FOLDER / "Dockerfile").read_text()
    copied = re.findall(r"^COPY (?!--from)(\S+)", text, re.MULTILINE)
    assert copied == [".", "examples/container/billing.py"]
    build = SERVICES["worker"]["build"]
    root = (FOLDER / build["context"]).resolve()
    assert root == ROOT
    assert all((root / name).exists() for name in [*copied, build["dockerfile"]])


def test_the_page_shows_the_deployment() -> None:
    page = blocks(ROOT / "docs/guides/containers.md")
    (shown,) = [block.text for block in page if block.title == "kubernetes.yaml"]
    assert shown == (FOLDER / "kubernetes.yaml").read_text()


def test_platforms_wait_longer_than_the_grace_period() -> None:
    deployment = yaml.safe_load((FOLDER / "kubernetes.yaml").read_text())
    pod = deployment["spec"]["template"]["spec"]
    worker = SERVICES["worker"]
    for command, waits in (
        (pod["containers"][0]["args"], pod["terminationGracePeriodSeconds"]),
        (worker["command"], int(worker["stop_grace_period"].removesuffix("s"))),
    ):
        grace = int(command[command.index("--grace") + 1].removesuffix("s"))
        assert waits > grace + 5
