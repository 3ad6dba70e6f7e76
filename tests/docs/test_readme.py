"""Tests of the README as PyPI shows it, of its worker, and of the address of the repository."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tomllib
from email import message_from_string
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import pytest
from markdown_it import MarkdownIt

import jsync

from ..cli.picture import FRAMES
from ..support.servers import wait_for
from .markdown import ROOT, blocks
from .running import SECONDS

if TYPE_CHECKING:
    from pathlib import Path

    from ..conftest import StartServer

URLS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]
REPOSITORY = URLS["Repository"]


def test_links_of_the_wheels_description_are_absolute(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "setup.py", "-q", "dist_info", "--output-dir", str(tmp_path)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (file,) = tmp_path.glob("*.dist-info/METADATA")
    metadata = message_from_string(file.read_text())
    assert metadata["Description-Content-Type"] == "text/markdown"
    html = MarkdownIt("gfm-like", {"linkify": False}).render(
        str(metadata.get_payload())
    )
    links = re.findall(r'(?:href|src|srcset)="([^"]*)"', html)
    assert [link for link in links if not link.startswith(("https://", "#"))] == []
    paths = [
        found[1]
        for link in links
        if (found := re.fullmatch(rf"{REPOSITORY}/(?:raw|blob)/main/(.*)", link))
    ]
    assert len(paths) > 30
    assert [
        path for path in paths if not (ROOT / path.partition("#")[0]).exists()
    ] == []


@pytest.mark.server
def test_the_worker_of_the_readme_runs(own_server: StartServer, tmp_path: Path) -> None:
    server = own_server()
    (billing,) = [
        block for block in blocks(ROOT / "README.md") if block.title == "billing.py"
    ]
    (tmp_path / "billing.py").write_text(billing.text)
    with jsync.connect(server.url) as nc:
        js = nc.jetstream()
        orders = js.create_stream(name="ORDERS", subjects=["orders.>"])
        dead = js.create_stream(name="DEAD", subjects=["dead.>"])
        js.publish("orders.paid", b'{"id": 42}')
        js.publish("orders.paid", b"nonsense")
        command = [*(sys.executable, "-u", "-m", "jsync"), "worker", "billing:app"]
        with subprocess.Popen(
            command,
            cwd=tmp_path,
            env=os.environ | {"NATS_URL": server.url, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            wait_for(lambda: dead.info().state.messages == 1)
            wait_for(lambda: orders.consumer("billing").info().num_ack_pending == 0)
            os.kill(process.pid, signal.SIGTERM)
            output, _ = process.communicate(timeout=SECONDS)
    assert (process.returncode, output) == (0, "bill order 42\n")


def test_one_command_moves_every_repository_address(tmp_path: Path) -> None:
    names = ["README.md", "pyproject.toml", "mkdocs.yml", "CITATION.cff"]
    names += ["CODE_OF_CONDUCT.md", "SECURITY.md"]
    for name in names:
        shutil.copy(ROOT / name, tmp_path)
    for folder in ("docs", "scripts", ".github"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    subprocess.run(
        [sys.executable, str(tmp_path / "scripts/set-repository"), "acme/queue"],
        check=True,
    )
    texts = {
        path.relative_to(tmp_path).as_posix(): path.read_text()
        for path in tmp_path.rglob("*")
        if path.suffix in {".md", ".toml", ".yml", ".cff"}
    }
    owner, _, name = REPOSITORY.removeprefix("https://github.com/").partition("/")
    old = (f"github.com/{owner}/{name}", f"{owner}.github.io/{name}")
    assert [name for name, text in texts.items() if any(at in text for at in old)] == []
    assert "https://github.com/acme/queue/issues" in texts["pyproject.toml"]
    assert "https://acme.github.io/queue/" in texts["mkdocs.yml"]
    # A second move finds the first one.
    subprocess.run(
        [sys.executable, str(tmp_path / "scripts/set-repository"), f"{owner}/{name}"],
        check=True,
    )
    assert (tmp_path / "README.md").read_text() == (ROOT / "README.md").read_text()


def test_the_picture_of_top_moves_and_loads_nothing() -> None:
    picture = ROOT / "docs/assets/top.svg"
    frames = ElementTree.parse(picture).findall(".//*[@class='frame']")
    assert len({ElementTree.tostring(frame) for frame in frames}) == FRAMES
    assert not re.search(r"(?:href|src|url)[=(]['\"]?http", picture.read_text())
