"""Tests of the Spark home with links: its name, its links, and its protection."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from jsync.spark.pipeline.spark_home import linked_home, make_links

MODULE = "place = __file__"


def module_of(archive: str) -> str:
    return archive.partition(".")[0].partition("-")[0]


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """The folder of an installed PySpark beside py4j."""
    for name in ("pyspark", "py4j"):
        (tmp_path / "site" / name).mkdir(parents=True)
        (tmp_path / "site" / name / "__init__.py").write_text(MODULE)
    package = tmp_path / "site" / "pyspark"
    library = package / "python" / "lib"
    library.mkdir(parents=True)
    for name in ("pyspark.zip", "py4j-0.10.9.9-src.zip"):
        with zipfile.ZipFile(library / name, "w") as archive:
            archive.writestr(f"{module_of(name)}/__init__.py", MODULE)
    (package / "jars").mkdir()
    (package / "jars" / "spark.jar").touch()
    return package


@pytest.fixture
def home(installed: Path, tmp_path: Path) -> Path:
    found = linked_home(installed, "4.3.0", {"HOME": str(tmp_path / "home")})
    assert found is not None
    return found


def test_a_home_belongs_to_one_installed_spark(
    installed: Path, home: Path, tmp_path: Path
) -> None:
    env = {"HOME": str(tmp_path / "home")}
    assert home.parent == tmp_path / "home" / ".cache" / "jsync" / "spark"
    assert linked_home(installed, "4.3.0", env) == home
    assert linked_home(installed, "4.2.0", env) != home
    assert linked_home(tmp_path, "4.3.0", env) is None
    assert linked_home(installed, "4.3.0", {}) is None
    assert linked_home(installed, "4.3.0", {**env, "SPARK_HOME": "/opt"}) is None
    assert not home.parent.exists()


def test_python_finds_packages_in_the_home(installed: Path, home: Path) -> None:
    assert make_links(home, installed, installed.parent / "py4j")
    assert (home / "jars" / "spark.jar").is_file()
    library = installed / "python" / "lib"
    for archive in library.iterdir():
        name = module_of(archive.name)
        found = subprocess.run(
            [sys.executable, "-S", "-c", f"import {name}; print({name}.place)"],
            env={"PYTHONPATH": str(home / "python" / "lib" / archive.name)},
            capture_output=True,
            text=True,
            check=True,
        )
        place = Path(found.stdout.strip())
        assert place.is_relative_to(home)
        assert place.resolve() == installed.parent / name / "__init__.py"


def test_missing_links_of_a_home_are_made(installed: Path, home: Path) -> None:
    py4j = installed.parent / "py4j"
    assert make_links(home, installed, py4j)
    (home / "jars").unlink()
    assert make_links(home, installed, py4j)
    assert (home / "jars").resolve() == installed / "jars"


def test_only_a_protected_home_is_used(installed: Path, home: Path) -> None:
    py4j = installed.parent / "py4j"
    before = os.umask(0)
    try:
        assert make_links(home, installed, py4j)
    finally:
        os.umask(before)
    for path in (home, home.parent):
        path.chmod(0o777)
        assert not make_links(home, installed, py4j)
        path.chmod(0o700)
    assert make_links(home, installed, py4j)


def test_a_home_that_fails_is_not_used(installed: Path, home: Path) -> None:
    home.parent.parent.mkdir(parents=True)
    home.parent.touch()
    assert not make_links(home, installed, installed.parent / "py4j")
