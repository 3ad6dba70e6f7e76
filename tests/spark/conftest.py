"""A Spark session for all of these tests, beside the server."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
import pytest

import jsync
from jsync import errors
from jsync.spark.connection import close_connections

from .support import Batches, Reading

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from jsync.server import LocalServer

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
JARS = sorted(ROOT.glob(".cache/spark-*.jar"))
"""The jars that `make jars` has fetched."""


def pytest_itemcollected(item: pytest.Item) -> None:
    item.add_marker("spark")


def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    others = []
    for item in items:
        for mark in item.iter_markers("spark_version"):
            others += [item] * (not version("pyspark").startswith(mark.args[0]))
    items[:] = [item for item in items if item not in others]
    config.hook.pytest_deselected(items=others)


@pytest.fixture(scope="session")
def spark_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Spark without its archive of pyspark, from which each Python process would compile it."""
    home = tmp_path_factory.mktemp("spark")
    for name in ("bin", "jars", "sbin"):
        (home / name).symlink_to(Path(pyspark.__file__).parent / name)
    return home


@pytest.fixture(scope="session")
def spark_environment(spark_home: Path) -> Iterator[None]:
    """Set the environment of the Spark processes: Java, this Python, and the clone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_HOME", str(spark_home))
        if "JAVA_HOME" not in os.environ:
            need_java = [str(ROOT / "scripts" / "need-java")]
            found = subprocess.run(need_java, check=True, stdout=subprocess.PIPE)
            patch.setenv("JAVA_HOME", found.stdout.decode().strip())
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        patch.setenv("PYSPARK_DRIVER_PYTHON", sys.executable)
        patch.setenv("PYTHONPATH", str(ROOT))
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        # The tests are too short for Java's optimizing compiler to pay off.
        patch.setenv("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1")
        yield


@pytest.fixture(scope="session")
def spark(
    spark_environment: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SparkSession]:
    """Spark with two threads in the JVM of this process, for all tests. Leave it as it was."""
    from pyspark.sql import SparkSession  # noqa: PLC0415

    builder = SparkSession.builder.master("local[2]").appName("jsync's tests")
    for name, value in {
        "spark.driver.memory": "1g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.defaultJavaOptions": "-XX:+UseSerialGC",
        "spark.jars": ",".join(map(str, JARS)),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
    }.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")  # the tests read exceptions instead
    yield session
    gateway = session.sparkContext._gateway
    session.stop()
    gateway.shutdown()  # type: ignore[union-attr]


@pytest.fixture
def nc(server: LocalServer) -> Iterator[jsync.Connection]:
    with jsync.connect(server.url) as connection:
        yield connection


@pytest.fixture
def js(nc: jsync.Connection) -> jsync.JetStream:
    return nc.jetstream()


@pytest.fixture
def stream(js: jsync.JetStream, unique: str) -> Iterator[jsync.Stream]:
    """A stream in memory with direct gets and all subjects below the first token of this test."""
    stream = js.create_stream(
        name=unique, subjects=[f"{unique}.>"], storage="memory", allow_direct=True
    )
    yield stream
    with contextlib.suppress(errors.StreamNotFoundError):
        stream.delete()


@pytest.fixture
def reading(spark: SparkSession, server: LocalServer) -> Reading:
    return Reading(spark, server)


@pytest.fixture
def batches(tmp_path: Path) -> Batches:
    return Batches(tmp_path)


@pytest.fixture
def options(server: LocalServer, stream: jsync.Stream) -> Iterator[dict[str, str]]:
    """Options of the source, for readers that are called in this process."""
    yield {
        "nats.servers": server.url,
        "stream": stream.name,
        "startingOffsets": "earliest",
    }
    close_connections()
