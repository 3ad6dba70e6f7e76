"""The Spark session of a pipeline that runs as a separate program."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from ...errors import PipelineError
from .redaction import REDACTED, REDACTION, redaction, secret_variables

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from .config import Pipeline

_DEFAULTS = {
    # Days and hours must not depend on the time zone of the driver.
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
}
_QUIET = Path(__file__).with_name("log4j2.properties")

# Settings that a JVM needs at its start. The others are set inside it: every user of
# the machine can see a command line, and a setting can be a secret.
_AT_LAUNCH = ("spark.driver.", "spark.jars", "spark.submit.", "spark.local.")


@contextmanager
def session(
    pipeline: Pipeline,
    *,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
) -> Iterator[SparkSession]:
    """Start Spark and stop it at the end. Blocks for some seconds.

    `master` and `conf` override the file, which overrides spark-submit and
    spark-defaults.conf. Without any of them, Spark runs in this process's JVM, with a thread
    for each core. That JVM is in a separate process session, so that Ctrl-C in the terminal
    reaches only this process, which ends the queries in order.
    """
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    chosen = master or pipeline.spark.master
    if chosen is None and not submitted:
        chosen = "local[*]"
    settings = dict(_DEFAULTS)
    if chosen is not None:
        settings["spark.master"] = chosen
        if chosen.startswith("local"):
            settings.update(_local())
    settings["spark.app.name"] = pipeline.name
    settings.update(pipeline.spark.conf)
    settings.update(conf or {})
    launch = SparkConf(loadDefaults=False)
    for name, value in settings.items():
        if name.startswith(_AT_LAUNCH):
            launch.set(name, value)
    inner = SparkConf(loadDefaults=False)
    inner.setAll(list(settings.items()))
    gateway = _gateway(launch)
    if secrets := secret_variables(pipeline):
        said = settings.get(REDACTION) or gateway.jvm.System.getProperty(REDACTION)
        inner.set(REDACTION, redaction(secrets, said or REDACTED))
    context = SparkContext(conf=inner, gateway=gateway)
    try:
        yield SparkSession.builder.getOrCreate()
    finally:
        context.stop()


_launched: list[Any] = []


def _gateway(conf: SparkConf) -> Any:
    """Return the gateway to this process's only JVM, which ends with the process."""
    if not _launched:
        own = {"start_new_session": True}
        try:
            _launched.append(launch_gateway(conf, popen_kwargs=own))  # type: ignore[no-untyped-call]
        except (PySparkRuntimeError, OSError) as error:
            raise PipelineError(
                "Spark did not start: it needs Java 17 or 21, found by $JAVA_HOME or "
                "$PATH; its output is above"
            ) from error
    return _launched[0]


def _local() -> dict[str, str]:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    return {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={_QUIET}",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": str(os.cpu_count() or 1),
    }
