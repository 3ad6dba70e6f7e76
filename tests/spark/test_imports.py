"""Tests of what the Python processes that Spark starts for a source import."""

from __future__ import annotations

from ..support.imports import below, imported

FOUND_BY_NAME = "import pyspark_jetstream"
PLANS = "import jsync.spark.micro_batch, jsync.spark.source, jsync.spark.sink.writer"

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


def imported_by_spark(statement: str) -> set[str]:
    """Return the modules that `statement` imports in a Python process of Spark."""
    return imported(statement, "pyspark.sql.datasource, pyspark.sql.types")


def test_finding_the_source_loads_no_client() -> None:
    loaded = imported_by_spark(FOUND_BY_NAME)
    assert not below(
        loaded, ("jsync.connection", "jsync.jetstream", "jsync.core", *UNUSED)
    )


def test_planning_loads_no_unused_package() -> None:
    assert not below(imported_by_spark(PLANS), UNUSED)
