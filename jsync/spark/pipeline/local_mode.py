"""The settings that jsync chooses for Spark in local mode. Pure.

Each was measured on a pipeline of 336,776 messages. A setting of the file or of the command line
always wins, and an option of Java from the environment, too.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from .config import JetStreamSource

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from .config import Pipeline

JAVA_OPTIONS: Final = "spark.driver.defaultJavaOptions"
"""The setting for options of Java, which Spark puts before `spark.driver.extraJavaOptions`."""
SERIAL_CORES: Final = 2
"""The most cores with which the serial collector is chosen."""
MIN_PARTITION_ROWS: Final = 10_000
"""The fewest messages of a partition, so that a small micro-batch has only one."""

_LOCAL: Final = re.compile(r"local(?:\[(?P<cores>\d+|\*)(?:,\s*\d+)?\])?")
_COLLECTOR: Final = re.compile(r"-XX:\+Use\w+GC\b")
_SHARING: Final = re.compile(
    r"-Xshare:|SharedArchiveFile|ArchiveClassesAtExit|DynamicDumpInfo|SharedArchive\b"
)
_JAVA_VARIABLES: Final = (
    *("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS"),
    *("SPARK_SUBMIT_OPTS", "PYSPARK_SUBMIT_ARGS"),
)
_REASONS: Final = {
    "minPartitions": "a partition for each core",
    "minRecordsPerPartition": "one partition for a small micro-batch",
}
_PARTITIONS: Final = ("minpartitions", "maxpartitions", "maxrecordsperpartition")


class Choice(NamedTuple):
    """A setting, or an option of Java or of a source."""

    name: str
    value: str
    reason: str


def cores_of(master: str, available: int) -> int | None:
    """Return the cores of a local master, or None for a cluster."""
    found = _LOCAL.fullmatch(master.strip())
    if found is None:
        return None
    cores = found["cores"]
    if cores is None:
        return 1
    return available if cores == "*" else max(1, int(cores))


def collector(cores: int, given: Iterable[str]) -> Choice | None:
    """Return the garbage collector to choose, or None if Java chooses.

    Args:
        cores: The cores of the master.
        given: Texts in which options of Java may be.
    """
    if cores > SERIAL_CORES or any(map(_COLLECTOR.search, given)):
        return None
    return Choice(
        JAVA_OPTIONS,
        "-XX:+UseSerialGC",
        f"the serial collector, since there are {cores} cores",
    )


def shares_classes(given: Iterable[str]) -> bool:
    """Return whether these texts leave the class archive to jsync."""
    return not any(map(_SHARING.search, given))


def java_texts(settings: Mapping[str, str], env: Mapping[str, str]) -> Sequence[str]:
    """Return the texts in which the user may have given options of Java."""
    names = ("spark.driver.extraJavaOptions", "spark.driver.extraClassPath")
    found = [settings.get(name, "") for name in names]
    return [*found, *(env.get(name, "") for name in _JAVA_VARIABLES)]


def source_choices(pipeline: Pipeline, cores: int) -> list[Choice]:
    """Return the choices for the sources of a pipeline."""
    return [
        Choice(f"sources.{name}: {option}", value, _REASONS[option])
        for name, source in pipeline.sources.items()
        if isinstance(source, JetStreamSource)
        for option, value in partitions(cores, source.options).items()
    ]


def partitions(cores: int, options: Mapping[str, str]) -> dict[str, str]:
    """Return the options for a partition of each core, or {} if the source has its own.

    Args:
        cores: The cores of the master.
        options: The options of the source.
    """
    if any(name.lower() in _PARTITIONS for name in options):
        return {}
    given = {name.lower() for name in options}
    if "minrecordsperpartition" in given or cores < 2:
        return {}
    if "objectstore" in given:  # its partitions are by bytes alone
        return {"minPartitions": str(cores)}
    return {
        "minPartitions": str(cores),
        "minRecordsPerPartition": str(MIN_PARTITION_ROWS),
    }
