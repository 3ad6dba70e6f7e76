"""Tests that links of README and docs are valid, and the reference lists every public name."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import griffe
import pytest

import jsync
from jsync.spark.options import NATS, SINK, SOURCE

from .markdown import PAGES, ROOT, name_of

if TYPE_CHECKING:
    from pathlib import Path

LINK = re.compile(r"\]\((?!https?://)([^)#\s]*)(#[^)\s]*)?\)")
CODE = re.compile(r"^( *)```.*?^\1```$", re.MULTILINE | re.DOTALL)
MEASURED = re.compile(
    r"(?:messages|thousand) a second|messages/s|\d[\d.]* ?µs|of CPU\b|bytes of memory|% (?:less|more)"
)
"""Words that come with figures that somebody has measured."""


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_page_link_leads_to_a_file(page: Path) -> None:
    paths = {path for path, _ in LINK.findall(page.read_text()) if path}
    assert [path for path in paths if not (page.parent / path).exists()] == []


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CHANGELOG.md"], ids=name_of)
def test_pages_link_measured_figures_to_their_results(page: Path) -> None:
    prose = CODE.sub("", page.read_text())
    figures = MEASURED.findall(prose)
    assert not figures or re.search(r"\]\([^)]*benchmarks/", prose)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_make_target_of_a_page_exists(page: Path) -> None:
    makefile = (ROOT / "Makefile").read_text()
    named = re.findall(r"(?:^|`)make ([a-z]+)", page.read_text(), re.MULTILINE)
    assert [name for name in named if f"\n{name}:" not in makefile] == []


def test_the_guide_of_spark_names_every_option() -> None:
    pages = sorted((ROOT / "docs/guides").glob("spark*.md"))
    guide = "".join(page.read_text() for page in pages)
    secrets = ("nats.token", "nats.nkeySeed", "nats.credentials", "nats.password")
    plain = [name for name in (*SOURCE, *SINK, *NATS) if not name.startswith(secrets)]
    assert [name for name in plain if f"`{name}`" not in guide] == []


def test_the_readme_has_the_two_commands() -> None:
    lines = (ROOT / "README.md").read_text().splitlines()
    assert {"make demo", "make test"} <= {
        line.partition(" #")[0].strip() for line in lines
    }


def test_every_public_name_is_in_the_reference() -> None:
    reference = "".join(
        page.read_text() for page in (ROOT / "docs/reference").glob("*.md")
    )
    shown = set(re.findall(r"^::: jsync\.(\w+)$", reference, re.MULTILINE))
    assert set(jsync.__all__) - shown <= {"__version__"}


def test_every_page_is_in_the_navigation_once() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text()
    pages = {str(page.relative_to(ROOT / "docs")) for page in PAGES[1:]}
    assert {page for page in pages if navigation.count(f" {page}\n") != 1} == set()


def test_every_public_call_and_property_has_a_docstring() -> None:
    package = griffe.load("jsync", search_paths=[ROOT], allow_inspection=False)
    within = re.compile(r"^(_|session$|adopt$|updated$|differences$)")
    silent = []
    for name in set(jsync.__all__) - {"__version__"}:
        thing = package[name].final_target
        own = thing.members if thing.is_class else {}
        inherited = thing.inherited_members if thing.is_class else {}
        members = [
            *((key, of) for key, of in own.items() if not of.is_alias),
            *((key, of.final_target) for key, of in inherited.items()),
        ]
        told = [(name, thing), *((f"{name}.{key}", of) for key, of in members)]
        silent += [
            path
            for path, of in told
            if not within.match(path.rpartition(".")[2])
            if (of.is_function or of.is_class or "property" in of.labels)
            if not of.docstring
        ]
    assert sorted(silent) == []
