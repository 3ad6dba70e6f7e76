"""Tests of the release, and that its version and names agree everywhere."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path

import pytest

import jsync

pytestmark = pytest.mark.tools

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))


def test_promised_pythons_have_a_wheel_and_ci_row() -> None:
    promised = {
        found.group(1)
        for line in PROJECT["project"]["classifiers"]
        if (found := re.fullmatch(r"Programming Language :: Python :: 3\.(\d+)", line))
    }
    build = PROJECT["tool"]["cibuildwheel"]["build"]
    built = re.findall(r"cp31\{([\dt,]+)\}", build)
    assert len(built) == 3, "Linux, macOS and Windows"
    for versions in built:
        with_gil = {f"1{one}" for one in versions.split(",") if one.isdigit()}
        assert with_gil == promised
    rows = re.findall(
        r'^ +python: \[("3\.\d+"(?:, "3\.\d+")+)\]',
        (ROOT / ".github/workflows/ci.yml").read_text(),
        re.MULTILINE,
    )
    assert len(rows) == 3, "the tests, those on Windows, and those of server versions"
    for row in rows:
        assert set(re.findall(r"3\.(\d+)", row)) == promised


def test_free_threaded_wheels_have_a_required_ci_row() -> None:
    declared = "\n# cython: freethreading_compatible = True\n"
    assert declared in (ROOT / "jsync/_fast.pyx").read_text()
    build = PROJECT["tool"]["cibuildwheel"]["build"]
    wheels = {
        f"3.1{one}"
        for versions in re.findall(r"cp31\{([\dt,]+)\}", build)
        for one in versions.split(",")
        if one.endswith("t")
    }
    workflow = (ROOT / ".github/workflows/ci.yml").read_text()
    (row,) = re.findall(r"^  free-threaded:\n((?: {4}.*\n)+)", workflow, re.MULTILINE)
    assert set(re.findall(r'"(3\.\d+t)"', row)) == wheels != set()
    assert "continue-on-error" not in row
    classifiers = PROJECT["project"]["classifiers"]
    assert [line for line in classifiers if ":: Free Threading ::" in line]


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_actions_are_pinned_to_commits_with_their_release(
    workflow: Path,
) -> None:
    uses = re.findall(r"uses: (.*)", workflow.read_text())
    assert uses
    for action in uses:
        if not action.startswith("./"):
            assert re.fullmatch(r"[\w/-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", action)


def test_the_changelog_has_a_next_version_section() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()
    sections = re.findall(r"^## \[(.+?)\](?: - \d{4}-\d\d-\d\d)?$", text, re.MULTILINE)
    assert sections[0] == "Unreleased"
    kinds = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
    assert set(re.findall(r"^### (.+)$", text, re.MULTILINE)) <= kinds


def test_the_sdist_has_everything_for_wheels_and_tests(
    tmp_path: Path,
) -> None:
    subprocess.run(
        [
            *(sys.executable, "setup.py", "-q"),
            *("egg_info", "--egg-base", str(tmp_path)),
            *("sdist", "--dist-dir", str(tmp_path)),
        ],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    with tarfile.open(tmp_path / f"jsync-{jsync.__version__}.tar.gz") as sdist:
        packed = {name.partition("/")[2] for name in sdist.getnames()}
    needed = {
        path.relative_to(ROOT).as_posix()
        for top, kinds in {
            "jsync": (".py", ".pyi", ".pyx", ".pxi", ".typed"),
            "kombu_jetstream": (".py",),
            "pyspark_jetstream": (".py",),
            "pytest_jsync": (".py",),
            "tests": (".py", ".json", ".sh", ".dict", ".md"),
            "docs": (".md",),
            "examples": (".py",),
        }.items()
        for path in (ROOT / top).rglob("*")
        if path.suffix in kinds or path.name in kinds or path.name == "py.typed"
    }
    needed |= {
        *("pyproject.toml", "setup.py", "README.md", "LICENSE", "MANIFEST.in"),
        *("CHANGELOG.md", "CONTRIBUTING.md", "Makefile"),
    }
    assert needed <= packed, sorted(needed - packed)
    assert not [name for name in packed if name.endswith(("_fast.c", ".so"))]


def test_importing_a_source_folder_names_the_compile_command(
    tmp_path: Path,
) -> None:
    shutil.copytree(
        ROOT / "jsync",
        tmp_path / "jsync",
        ignore=shutil.ignore_patterns("*.so", "*.pyd", "__pycache__"),
    )
    ended = subprocess.run(
        [sys.executable, "-S", "-c", "import jsync"],  # -S: no jsync is installed
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 1
    last = ended.stderr.splitlines()[-1]
    assert last == (
        f"ImportError: jsync is not compiled in {tmp_path}: run `pip install --editable .` "
        "there, or start Python in another folder to import the jsync that you installed"
    )
