"""Tests that every code block in README and docs runs and prints the output on the page."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from .markdown import OUTPUT, PAGES, ROOT, Block, blocks, name_of
from .running import run

if TYPE_CHECKING:
    from pathlib import Path

    from ..conftest import StartServer

pytestmark = pytest.mark.server

BLOCKS = {name_of(page): list(blocks(page)) for page in PAGES}

ELSEWHERE = {
    "docs/first-worker.md": "docs",
    "docs/migrating-programs.md": "docs",
    "docs/guides/tls-auth.md": "docs",
    "docs/guides/celery.md": "docs",
    "docs/guides/web.md": "docs",
    "docs/guides/worker.md": "docs",
    "docs/guides/spark.md": "spark",
    "docs/guides/spark-read.md": "spark",
    "docs/guides/spark-write.md": "spark",
    "docs/guides/spark-exactly-once.md": "spark",
    "docs/guides/spark-pipelines.md": "spark",
    "docs/guides/spark-operate.md": "spark",
    "docs/cli.md": "cli",
}
"""Pages whose code needs more than a server, and the tests that run it."""

NOT_RUN = {"text", "json", "yaml"}
"""Blocks that are not code: pictures, output, and the files of other programs."""


def runs(block: Block) -> bool:
    return block.language in ("python", "sh")


@pytest.mark.parametrize(
    "page",
    [page for page in BLOCKS if page not in ELSEWHERE and any(map(runs, BLOCKS[page]))],
)
def test_the_examples_of_each_page_work(
    page: str,
    own_server: StartServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    urls = {"nats://127.0.0.1:4222": own_server().url}
    monkeypatch.setenv("NATS_URL", urls["nats://127.0.0.1:4222"])
    for block in filter(runs, BLOCKS[page]):
        output = run(block, urls)
        assert block.output in (None, output), f"{block} prints {output}"


def test_there_is_no_block_of_another_kind() -> None:
    kinds = Counter(
        block.info
        for name, page in BLOCKS.items()
        for block in page
        if ELSEWHERE.get(name, "docs") == "docs"
        if not runs(block) and block.language not in NOT_RUN
    )
    assert not kinds


def test_each_output_follows_the_block_that_prints_it() -> None:
    for page in BLOCKS.values():
        printed = [block.output for block in page if block.output is not None]
        assert len(printed) == sum(block.info == OUTPUT for block in page)
        assert all(runs(block) for block in page if block.output is not None)


@pytest.mark.parametrize("page", [page for page in BLOCKS if page in ELSEWHERE])
def test_pages_run_elsewhere_are_named_by_tests_there(page: str) -> None:
    tests = (ROOT / "tests" / ELSEWHERE[page]).rglob("*.py")
    named = page.removeprefix("docs/")
    assert any(
        named in test.read_text() for test in tests if test.name != "test_blocks.py"
    )
