"""Tests of `jsync demo`, `bench` and `pipeline`, and of the progress bar on a terminal."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from .processes import LONG
from .support import Jsync
from .test_ingest import FLIGHTS

if TYPE_CHECKING:
    from pathlib import Path

    from jsync import JetStream, Stream
    from jsync.server import LocalServer

pytestmark = pytest.mark.server


def on_terminal(*arguments: str) -> tuple[int, str]:
    """Run the command with a terminal for its output, and return the exit code and the output."""
    ours, its = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "jsync", *arguments],
        stdout=its,
        stderr=its,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "100"},
    ) as process:
        os.close(its)
        shown = b""
        while True:
            try:
                part = os.read(ours, 1 << 16)
            except OSError:  # the other side has closed
                break
            if not part:
                break
            shown += part
        os.close(ours)
        code = process.wait(LONG)
    return code, re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown.decode())


def test_the_demo_stores_consumes_reads_and_looks_up() -> None:
    told = Jsync()("demo", "--json").json
    stored, consumed, read, found = told["steps"]
    assert stored["messages"] == consumed["messages"] == read["messages"] > 20_000
    assert found["messages"] == 3
    assert told["found"][0] == "unicode.Ll.03BB λ GREEK SMALL LETTER LAMDA"
    assert sum(told["categories"].values()) == stored["messages"]


def test_bench_measures_on_a_stream_of_its_own(jsync: Jsync, js: JetStream) -> None:
    told = jsync("bench", "-n", "300", "--seconds", "0.2s", "--json").json
    assert told["server"].startswith("2.15")
    assert [figure["what"] for figure in told["figures"]] == [
        "request, one at a time",
        "publish, one at a time",
        "core publish",
        "publisher",
        "fast ingest",
        "ordered read",
        "consume with acks",
    ]
    assert all(figure["messages"] > 0 for figure in told["figures"])
    assert [figure["messages"] for figure in told["figures"][3:5]] == [300, 300]
    assert not [name for name in js.stream_names() if name.startswith("JSYNC_BENCH")]
    assert jsync("bench", "--size", "2MB").code == 2
    assert jsync("bench", "--seconds", "0").code == 2


def test_bench_draws_a_chart_on_a_terminal(server: LocalServer) -> None:
    code, shown = on_terminal(
        *("--server", server.url, "bench", "-n", "300", "--seconds", "0.2s")
    )
    assert code == 0
    assert f"at {server.url}: payloads of 128 bytes, a stream in memory" in shown
    assert "█" in shown
    assert re.search(r"fast ingest +[\d,]+ ", shown)


def test_an_ingest_shows_a_bar_only_on_terminals(
    server: LocalServer, stream: Stream
) -> None:
    command = ("--server", server.url, "ingest", str(FLIGHTS), "--subject")
    subject = f"{stream.name}.{{carrier}}"
    code, shown = on_terminal(*command, subject)
    assert code == 0
    assert "200 stored" in shown
    assert "━" in shown
    _, shown = on_terminal(*command, subject, "--no-progress")
    assert "━" not in shown
    assert (
        Jsync(server)("ingest", str(FLIGHTS), "--subject", subject).errors.count("\n")
        == 1
    )


def test_a_check_of_a_pipeline_names_each_mistake(jsync: Jsync, tmp_path: Path) -> None:
    path = tmp_path / "pipeline.toml"
    path.write_text('name = "x"\nnonsense = 1\n')
    here = Jsync()
    ended = here("pipeline", "check", str(path), "--offline")
    assert ended.code == 2
    assert "nonsense" in ended.errors
    missing = here("pipeline", "run", str(tmp_path / "none.toml"))
    assert missing.code == 2
    refused = jsync("pipeline", "check", str(path))
    assert refused.code == 2
    assert (
        "--server: not for pipelines, whose file says where to connect"
        in refused.errors
    )
    assert here("pipeline", "run", str(path), "--conf", "x").code == 2
