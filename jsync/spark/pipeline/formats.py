"""Formats that packages bring to Spark, and the settings that they need. Pure."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from .config import Pipeline

PACKAGES: Final = {
    "delta": "io.delta:delta-spark_{spark}_2.13",
    "iceberg": "org.apache.iceberg:iceberg-spark-runtime-{spark}_2.13",
    "hudi": "org.apache.hudi:hudi-spark{spark}-bundle_2.13",
    "kafka": "org.apache.spark:spark-sql-kafka-0-10_2.13:{version}",
    "avro": "org.apache.spark:spark-avro_2.13:{version}",
}
"""The Maven packages of formats, by the version of Spark."""
FORMATS: Final = ("jdbc", "text", "xml", "binaryFile", "rate", "memory", "noop")
"""Other formats that Spark has without a package."""
BATCH_ONLY: Final = ("jdbc",)
"""Formats into which Spark writes no stream."""
MERGED: Final = ("delta",)
"""Formats in which the rows of a path can be updated by their keys."""

_SETTINGS: Final[dict[str, dict[str, str]]] = {
    "delta": {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": (
            "org.apache.spark.sql.delta.catalog.DeltaCatalog"
        ),
    },
    "iceberg": {
        "spark.sql.extensions": (
            "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
        )
    },
}


def is_format(name: str, others: Iterable[str]) -> bool:
    """Return whether Spark may know a format, and the name is no slip of a known one.

    Args:
        name: The name, or the name of a class with a dot in it.
        others: Names of formats that are read or written in other ways.
    """
    known = [part.lower() for part in (*others, *PACKAGES, *FORMATS)]
    given = name.lower()
    if given in others:  # a sink's name as a source, or in other case
        return False
    is_known = given in known or "." in given
    return is_known or (
        bool(given) and not difflib.get_close_matches(given, known, n=1)
    )


def settings_of_formats(pipeline: Pipeline) -> dict[str, str]:
    """Return the settings of Spark that the formats of a pipeline need."""
    found: dict[str, str] = {}
    for part in (*pipeline.sources.values(), *pipeline.sinks.values()):
        for name, value in _SETTINGS.get(part.format.lower(), {}).items():
            given = found.get(name)
            if given is None:
                found[name] = value
            elif name == "spark.sql.extensions" and value not in given:
                found[name] = f"{given},{value}"
    return found


def missing_format(name: str, version: str) -> str:
    """Describe a format that Spark does not have, and what to do.

    Args:
        name: The format.
        version: The version of Spark.
    """
    package = PACKAGES.get(name.lower())
    if package is None:
        return (
            f"Spark has no format {name!r}: check the name, or add the package that has "
            "it to spark.jars.packages in [spark.conf]"
        )
    line = ".".join(version.split(".")[:2])
    coordinates = package.format(spark=line, version=version)
    if coordinates.count(":") == 1:
        coordinates += ":VERSION"
    return (
        f"Spark has no format {name!r}: add its package to spark.jars.packages in "
        f"[spark.conf], for Spark {line} {coordinates!r} if Maven Central has it, or run with "
        "a version of Spark that the package supports"
    )


def missing_driver(options: Mapping[str, str]) -> str:
    """Describe the missing driver of a database, and what to do."""
    driver = next(
        (value for name, value in options.items() if name.lower() == "driver"), None
    )
    if driver is None:
        return (
            "there is no JDBC driver for this url: add its package to "
            "spark.jars.packages in [spark.conf], and give its class as the option driver"
        )
    return (
        f"the JDBC driver {driver} is not there: add its package to spark.jars.packages "
        "in [spark.conf]"
    )
