"""Tests of the Makefile, of the run of the tests, and of the list of unsteady tests."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.tools

ROOT = Path(__file__).parents[2]
MAKEFILE = (ROOT / "Makefile").read_text()
CALLERS = [
    ROOT / ".ci/run",
    *sorted((ROOT / ".github").rglob("*.*")),
    *sorted(path for path in (ROOT / "scripts").iterdir() if path.is_file()),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted(ROOT.glob("*.md")),
    *sorted(
        path for top in ("tests", "benchmarks") for path in (ROOT / top).rglob("*.py")
    ),
    *sorted((ROOT / "tests").rglob("*.sh")),
]
"""The files that name commands of make."""


def words_of_make(text: str) -> set[str]:
    """Return the commands in text such as `make lint types`, in code and in lines of a shell."""
    called = re.findall(
        r"(?:`|run: |^ *)make ((?:[a-z][a-z-]*\b ?)+)", text, re.MULTILINE
    )
    return {word for words in called for word in words.split()}


def test_the_makefile_has_at_most_130_lines() -> None:
    assert len(MAKEFILE.splitlines()) <= 130


def test_make_help_lists_every_documented_command() -> None:
    ended = subprocess.run(
        ["make", "--no-print-directory", "help"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    listed = re.findall(r"^make ([a-z-]+) +\S.*$", ended.stdout, re.MULTILINE)
    (phony,) = re.findall(r"^\.PHONY: ((?:.*\\\n)*.*)$", MAKEFILE, re.MULTILINE)
    parts = {"help", "quick-tests", "jars", "clean"}
    assert sorted(listed) == sorted(set(phony.replace("\\", "").split()) - parts)
    assert max(map(len, ended.stdout.splitlines())) <= 100


def test_commands_of_make_in_files_exist() -> None:
    rules = set(re.findall(r"^([a-z-]+):", MAKEFILE, re.MULTILINE))
    unknown = {
        f"{path.relative_to(ROOT)}: make {word}"
        for path in CALLERS
        for word in words_of_make(path.read_text())
        if word not in rules
    }
    assert unknown == set()
    ci = (ROOT / ".ci/run").read_text()
    (parts,) = re.findall(r"^for part in (.*); do$", ci, re.MULTILINE)
    workflows = "".join(
        path.read_text() for path in (ROOT / ".github/workflows").glob("*.yml")
    )
    rows = re.findall(r"^ +what: \[(.*)\]$", workflows, re.MULTILINE)
    assert len(rows) == 2, "every test, and the nightly workflow"
    assert set(parts.split()) <= rules
    assert set(", ".join(rows).split(", ")) <= rules


def test_scripts_that_files_name_exist() -> None:
    named = {
        (path, script)
        for path in [*CALLERS, ROOT / "Makefile", ROOT / "pyproject.toml"]
        for script in re.findall(
            r"\bscripts/([a-z][\w-]*\w(?:\.py)?)(?![\w-])", path.read_text()
        )
    }
    assert named
    missing = {
        f"{path.relative_to(ROOT)}: scripts/{script}"
        for path, script in named
        if not (ROOT / "scripts" / script).exists()
    }
    assert missing == set()


def test_a_failed_test_is_not_retried(tmp_path: Path) -> None:
    (tmp_path / "test_second.py").write_text(
        "from pathlib import Path\n"
        f"RUNS = Path({str(tmp_path / 'runs')!r})\n"
        "def test_second_run_would_pass():\n"
        "    with RUNS.open('a') as file:\n"
        "        file.write('x')\n"
        "    assert len(RUNS.read_text()) == 2, 'the reason'\n"
    )
    report = tmp_path / "report"
    name = f"suite-{tmp_path.name}"
    ended = subprocess.run(
        [ROOT / "scripts/run-tests", name, sys.prefix, "-c", "/dev/null", tmp_path],
        env={"PATH": "/usr/bin:/bin", "REPORT": str(report), "HOME": str(tmp_path)},
        check=False,
        capture_output=True,
        text=True,
    )
    shutil.rmtree(Path(sys.prefix) / f"cache-{name}", ignore_errors=True)
    assert ended.returncode == 1
    assert (tmp_path / "runs").read_text() == "x"
    assert re.search(
        r"1 failed\nFAILED: .*test_second_run_would_pass\n  .*the reason", ended.stdout
    )
    assert report.read_text() in ended.stdout


def test_the_page_of_unsteady_tests_names_all_markers() -> None:
    page = (ROOT / "tests/UNSTEADY.md").read_text()
    listed = re.findall(r"^\| `(.+?)` \| .{100,} \|$", page, re.MULTILINE)
    assert len(listed) == len(re.findall(r"^\| `", page, re.MULTILINE))
    files = [
        path
        for path in (ROOT / "tests").rglob("test_*.py")
        if "mark.unsteady" in path.read_text() and path != Path(__file__)
    ]
    assert sorted(collected("-m", "unsteady", *files)) == sorted(listed)


def test_only_the_selection_of_unsteady_tests_runs_them() -> None:
    page = (ROOT / "tests/UNSTEADY.md").read_text()
    for test in re.findall(r"^\| `(.+?)` \|", page, re.MULTILINE):
        file = test.partition("::")[0]
        assert test not in collected(file)
        assert test not in collected("-m", "fault or not fault", file)


def collected(*arguments: str | Path) -> list[str]:
    """Return the tests that pytest would run."""
    ended = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "--collect-only", "-q"),
            *("-p", "no:cacheprovider", *arguments),
        ],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
    )
    assert ended.returncode in (0, 5), ended.stdout + ended.stderr
    return [line for line in ended.stdout.splitlines() if "::" in line]
