"""Tests of the Makefile, of the run of the tests, and of the list of unsteady tests."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ..mutation.__main__ import read_breaks

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
PARTS = [
    *("core", "errors", "models", "services", "worker", "spark", "integrations"),
    *("system", "tracing", "handlers", "cli/ingest", "cli/commands"),
]
"""The parts of the package outside jetstream that mutation breaks."""


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
    parts = re.findall(r"^run ([a-z ]+?) (?:>|\|\|)", ci, re.MULTILINE)
    workflows = "".join(
        path.read_text() for path in (ROOT / ".github/workflows").glob("*.yml")
    )
    rows = re.findall(r"^ +what: \[(.*)\]$", workflows, re.MULTILINE)
    assert len(rows) == 2, "every test, and the nightly workflow"
    assert {"test", "pythons", "fault"} <= set(" ".join(parts).split()) <= rules
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


@pytest.fixture
def unsteady_file(tmp_path: Path) -> Path:
    """A file with a test that fails in its first run alone, and one that always passes."""
    (tmp_path / "test_second.py").write_text(
        "from pathlib import Path\n"
        f"RUNS = Path({str(tmp_path / 'runs')!r})\n"
        "def test_second_run_passes():\n"
        "    with RUNS.open('a') as file:\n"
        "        file.write('x')\n"
        "    assert len(RUNS.read_text()) == 2, 'the reason'\n"
        "def test_other_passes():\n"
        "    pass\n"
    )
    return tmp_path / "test_second.py"


def run_tests(file: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run `scripts/run-tests` on one file. Its report is beside the file."""
    name = f"suite-{file.parent.name}"
    report = str(file.with_name("report"))
    ended = subprocess.run(
        [ROOT / "scripts/run-tests", name, sys.prefix, "-c", "/dev/null", file],
        env={
            "PATH": "/usr/bin:/bin",
            "HOME": str(file.parent),
            "REPORT": report,
            **environment,
        },
        check=False,
        capture_output=True,
        text=True,
    )
    shutil.rmtree(Path(sys.prefix) / f"cache-{name}", ignore_errors=True)
    return ended


def test_a_failed_test_is_not_retried(unsteady_file: Path) -> None:
    ended = run_tests(unsteady_file)
    assert ended.returncode == 1
    assert unsteady_file.with_name("runs").read_text() == "x"
    assert re.search(
        r"1 failed\nFAILED: .*test_second_run_passes\n  .*the reason", ended.stdout
    )
    assert unsteady_file.with_name("report").read_text() in ended.stdout


def test_ci_names_tests_that_pass_when_retried(unsteady_file: Path) -> None:
    ended = run_tests(unsteady_file, MAX_RETRIES="1")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert unsteady_file.with_name("runs").read_text() == "xx"
    report = unsteady_file.with_name("report").read_text().splitlines()
    assert report[0].endswith(": 1 failed")
    assert re.fullmatch(r"FAILED: .*::test_second_run_passes", report[1])
    assert "the reason" in report[2]
    assert report[3].endswith("alone: 1 failed by chance, passed on the second try")
    assert report[4:] == [report[1].replace("FAILED", "BY CHANCE")]


def test_a_failed_set_up_counts_once(unsteady_file: Path) -> None:
    unsteady_file.write_text(
        "from pathlib import Path\n"
        "import pytest\n"
        f"RUNS = Path({str(unsteady_file.with_name('runs'))!r})\n"
        "@pytest.fixture(scope='module')\n"
        "def shared():\n"
        "    with RUNS.open('a') as file:\n"
        "        file.write('x')\n"
        "    assert len(RUNS.read_text()) == 2, 'the reason'\n"
        "def test_one(shared):\n"
        "    pass\n"
        "def test_two(shared):\n"
        "    pass\n"
    )
    ended = run_tests(unsteady_file, MAX_RETRIES="1")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert unsteady_file.with_name("runs").read_text() == "xx"
    assert ended.stdout.count("BY CHANCE: ") == 2


def test_ci_fails_when_a_retried_test_fails(unsteady_file: Path) -> None:
    unsteady_file.write_text(unsteady_file.read_text().replace("== 2", "== 3"))
    ended = run_tests(unsteady_file, MAX_RETRIES="1")
    assert ended.returncode == 1
    assert unsteady_file.with_name("runs").read_text() == "xx"
    report = unsteady_file.with_name("report").read_text()
    assert report.count("FAILED: ") == 2
    assert "alone: 0 failed by chance" in report


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


def test_no_conftest_adds_markers_that_find_files() -> None:
    """scripts/marked-files finds the files by the text of the tests."""
    scripts = [ROOT / "Makefile", *(ROOT / "scripts").glob("test-*")]
    used = {
        marker
        for script in scripts
        for markers in re.findall(r"marked-files '?([a-z|]+)", script.read_text())
        for marker in markers.split("|")
    }
    assert {"bulk", "quick", "slow", "sparks"} == used
    for path in (ROOT / "tests").rglob("conftest.py"):
        named = re.findall(r"mark\.(\w+)|add_marker\(\"(\w+)", path.read_text())
        assert not used & {name for names in named for name in names}, path


# The bounds of campaigns -----------------------------------------------------------------


def test_ci_bounds_the_seconds_of_campaigns() -> None:
    ci = (ROOT / ".ci/run").read_text()
    assert re.search(r"^export JSYNC_FAULT_SECONDS=\d+$", ci, re.MULTILINE)
    for path in sorted((ROOT / "tests").rglob("*.py")):
        if path in (Path(__file__), ROOT / "tests/support/campaign.py"):
            continue
        if "JSYNC_FAULT_SECONDS" in path.read_text():  # only these are parsed
            assert "JSYNC_FAULT_SECONDS" not in code_of(path), path


def test_each_campaign_takes_its_bounds() -> None:
    unbounded = set[str]()
    for path in (ROOT / "tests/faults").rglob("test_*.py"):
        takes = {
            node.name: {argument.arg for argument in node.args.args}
            for node in ast.parse(path.read_text()).body
            if isinstance(node, ast.FunctionDef)
        }
        bounded = {name for name, taken in takes.items() if "campaign" in taken}
        unbounded |= {
            f"{path.name}: {name}"
            for name, taken in takes.items()
            if name.startswith("test_") and not ({name} | taken) & bounded
        }
    assert unbounded == set()


def test_random_choices_of_campaigns_take_the_seed() -> None:
    unseeded = {
        f"{path.relative_to(ROOT)}:{node.lineno}: {ast.unparse(node)}"
        for path in (ROOT / "tests").rglob("*.py")
        if "mark.fault" in path.read_text() or "faults" in path.parts
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and re.match(r"random\.|os\.urandom|secrets\.token", ast.unparse(node))
        and not re.search(r"seed|content", ast.unparse(node))
    }
    assert unseeded == set()


def test_seeds_are_the_date_and_can_be_repeated() -> None:
    program = "from tests.support.campaign import seeded; print(seeded('a').random())"

    def choices(**seed: str) -> list[str]:
        return subprocess.run(
            [sys.executable, "-c", program],
            cwd=ROOT,
            env={**os.environ, **seed},
            check=True,
            capture_output=True,
            text=True,
        ).stdout.splitlines()

    named = choices(JSYNC_FAULT_SEED="20260131")
    assert named[0] == "JSYNC_FAULT_SEED=20260131"
    assert choices(JSYNC_FAULT_SEED="20260131") == named
    assert choices(JSYNC_FAULT_SEED="20260201")[1] != named[1]
    assert re.fullmatch(r"JSYNC_FAULT_SEED=20\d{6}", choices()[0])


def test_the_nightly_workflow_prints_its_seed() -> None:
    nightly = (ROOT / ".github/workflows/nightly.yml").read_text()
    (script,) = re.findall(r"- run: \|\n((?: {10}.*\n)+)", nightly)
    before, _, after = script.partition('make "$WHAT"')
    assert "export JSYNC_FAULT_SEED=$(date --utc +%Y%m%d)" in before
    assert 'echo "JSYNC_FAULT_SEED=$JSYNC_FAULT_SEED"' in before
    assert "tee found.txt" in after


def code_of(path: Path) -> str:
    """Return a file without its docstrings and comments."""
    return ast.unparse(
        ast.fix_missing_locations(WithoutStrings().visit(ast.parse(path.read_text())))
    )


class WithoutStrings(ast.NodeTransformer):
    """Remove strings that stand alone, such as docstrings."""

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        alone = isinstance(node.value, ast.Constant) and isinstance(
            node.value.value, str
        )
        return ast.Pass() if alone else node


# Mutation --------------------------------------------------------------------------------


def test_mutation_breaks_each_part_and_tests_find_it() -> None:
    breaks = read_breaks()
    assert len(breaks) >= 60
    assert len({one.name for one in breaks}) == len(breaks)
    broken = {Path(one.file).parent for one in breaks}
    parts = {path.parent for path in (ROOT / "jsync/jetstream").glob("*/engine.py")}
    parts |= {ROOT / "jsync" / name for name in PARTS}
    assert {path.relative_to(ROOT) for path in parts} - broken == set()
    assert [one.name for one in breaks if not one.found_by] == []


def test_each_break_still_fits_the_package() -> None:
    for one in read_breaks():
        assert (ROOT / one.file).read_text().count(one.before) == 1, one.name
        for test in one.found_by:
            assert (ROOT / test.partition("::")[0]).exists(), test
