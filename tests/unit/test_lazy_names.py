"""Tests of the names that `jsync` imports on first use, and of the imports of Spark's processes."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import jsync

SOURCE = Path(jsync.__file__)
FOUND_BY_NAME = "import pyspark_jetstream"
PLANS = "import jsync.spark.source_stream, jsync.spark.source, jsync.spark.sink.writer"

# They take longer than all that a planning process needs.
NEVER = ("jsync.cli", "sqlglot", "click", "rich", "pyarrow", "numpy", "pandas")
UNUSED = (
    "jsync.worker",
    "jsync.integrations",
    "jsync.server",
    "jsync.spark.pipeline",
    "jsync.spark.monitoring",
    "asyncio",
    *NEVER,
)


def imported(statement: str, before: str = "sys") -> set[str]:
    """Return the modules that `statement` imports in a new Python that has those `before`."""
    code = (
        f"import sys, {before}\n"
        "before = set(sys.modules)\n"
        f"{statement}\n"
        "print(*sorted(set(sys.modules) - before))"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    )
    return set(run.stdout.split())


def imported_by_spark(statement: str) -> set[str]:
    """Return the modules that `statement` imports in a Python process of Spark."""
    pytest.importorskip("pyspark", reason="needs pyspark")
    return imported(statement, "pyspark.sql.datasource, pyspark.sql.types")


def below(modules: set[str], names: tuple[str, ...]) -> set[str]:
    """Return the modules that are one of `names`, or in one of these packages."""
    return {
        each for each in modules if f"{each}.".startswith(tuple(f"{n}." for n in names))
    }


def test_each_public_name_is_there() -> None:
    for name in jsync.__all__:
        assert getattr(jsync, name) is not None
        assert name in dir(jsync)


def test_table_agrees_with_checked_imports() -> None:
    checked = {}
    for node in ast.parse(SOURCE.read_text()).body:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            for each in node.body:
                if isinstance(each, ast.ImportFrom):
                    checked.update({name.name: each.module for name in each.names})
    assert checked == jsync._NAMES


def test_unknown_name_is_attribute_error() -> None:
    with pytest.raises(AttributeError, match="'jsync' has no attribute 'Conection'"):
        _ = jsync.Conection  # type: ignore[attr-defined]


def test_import_of_jsync_loads_little() -> None:
    assert not below(imported("import jsync"), ("jsync.connection", "jsync.jetstream"))


def test_finding_the_source_loads_no_client() -> None:
    loaded = imported_by_spark(FOUND_BY_NAME)
    assert not below(
        loaded, ("jsync.connection", "jsync.jetstream", "jsync.core", *UNUSED)
    )


def test_planning_loads_no_unused_package() -> None:
    assert not below(imported_by_spark(PLANS), UNUSED)
