"""The Spark session of a pipeline that runs as a separate program."""

from __future__ import annotations

import contextlib
import os
import sys
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import py4j
import pyspark
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from ...errors import PipelineError
from .class_archive import archive_of, file_of, java_options, write_archive
from .formats import settings_of_formats
from .local_mode import (
    JAVA_OPTIONS,
    Choice,
    collector,
    cores_of,
    java_texts,
    shares_classes,
    source_choices,
)
from .redaction import REDACTED, REDACTION, redaction, secret_variables
from .spark_home import linked_home, make_links

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from .config import Pipeline

_DEFAULTS = {
    # Days and hours must not depend on the time zone of the driver.
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
}
_QUIET = Path(__file__).with_name("log4j2.properties")

HOME: Final = "SPARK_HOME"
_PACKAGE: Final = Path(pyspark.__file__).parent
_REASON_FOR_HOME: Final = (
    "links to Spark, with which Python need not compile PySpark again"
)

# Settings that a JVM needs at its start. The others are set inside it: every user of
# the machine can see a command line, and a setting can be a secret.
_AT_LAUNCH = ("spark.driver.", "spark.jars", "spark.submit.", "spark.local.")


@dataclass(frozen=True)
class Settings:
    """The settings of a session."""

    master: str | None
    """None: the master of spark-submit."""
    values: dict[str, str]
    choices: Sequence[Choice] = ()
    """The choices of jsync in local mode that the user's settings leave in force."""
    archive: Path | None = None
    """The archive of classes that the JVM uses or can write."""
    home: Path | None = None
    """The Spark home with links. None: the home that Spark chooses."""


def settings_of(
    pipeline: Pipeline,
    *,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
) -> Settings:
    """Return the settings with which `session` starts Spark."""
    chosen = master or pipeline.spark.master
    if chosen is None and not _is_submitted():
        chosen = "local[*]"
    own = {**pipeline.spark.conf, **(conf or {})}
    values = {**_DEFAULTS, **settings_of_formats(pipeline)}
    choices: list[Choice] = []
    archive = home = None
    if chosen is not None:
        values["spark.master"] = chosen
        cores = cores_of(chosen, os.cpu_count() or 1)
        if cores is not None:
            if not _is_submitted():
                home = linked_home(_PACKAGE, pyspark.__version__, os.environ)
            choices, archive = _java_choices(cores, own, home)
            partitions = Choice(
                "spark.sql.shuffle.partitions", str(cores), "a partition for each core"
            )
            values |= {**_LOCAL, partitions.name: partitions.value}
            values[JAVA_OPTIONS] = _joined(choices)
            if partitions.name not in own:
                choices.insert(0, partitions)
            if home is not None:
                choices.insert(0, Choice(HOME, str(home), _REASON_FOR_HOME))
    values["spark.app.name"] = pipeline.name
    values.update(own)
    return Settings(chosen, values, choices, archive, home)


def _is_submitted() -> bool:
    return "PYSPARK_GATEWAY_PORT" in os.environ


def _java_choices(
    cores: int, own: Mapping[str, str], home: Path | None
) -> tuple[list[Choice], Path | None]:
    """Return the options of Java to choose, and the archive of classes."""
    if JAVA_OPTIONS in own or _is_submitted():
        return [], None
    texts = java_texts(own, os.environ)
    found = collector(cores, texts)
    choices = [] if found is None else [found]
    archive = None
    if shares_classes(texts) and "spark.driver.extraClassPath" not in own:
        archive = archive_of(_spark_home(), pyspark.__version__, os.environ, home)
    if archive is not None:
        reason = f"a faster next start: the end of the run writes {archive}"
        if file_of(archive):
            reason = "a faster start, with the classes that an earlier run has loaded"
        options = " ".join(map(_quoted, java_options(archive)))
        choices.append(Choice(JAVA_OPTIONS, options, reason))
    return choices, archive


def _spark_home() -> Path:
    if home := os.environ.get(HOME):
        return Path(home)
    return _PACKAGE


def _joined(choices: Sequence[Choice]) -> str:
    log = _quoted(f"-Dlog4j2.configurationFile={_QUIET}")
    return " ".join(
        [log, "-XX:+DisplayVMOutputToStderr", *(choice.value for choice in choices)]
    )


def _quoted(option: str) -> str:
    """Quote an option of Java for Spark, which splits options at spaces."""
    if not any(map(str.isspace, option)):
        return option
    escaped = option.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def explained(
    pipeline: Pipeline,
    *,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
) -> list[Choice]:
    """Return what `session` and the sources choose, without starting Spark."""
    settings = settings_of(pipeline, master=master, conf=conf)
    cores = cores_of(settings.master or "", os.cpu_count() or 1)
    return [*settings.choices, *(source_choices(pipeline, cores) if cores else ())]


@contextmanager
def session(
    pipeline: Pipeline,
    *,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    say: Callable[[str], object] = lambda _: None,
) -> Iterator[SparkSession]:
    """Start Spark and stop it at the end. Blocks for some seconds.

    `master` and `conf` override the file, which overrides spark-submit and
    spark-defaults.conf. Without any of them, Spark runs in this process's JVM, with a thread
    for each core. That JVM is in a separate process session, so that Ctrl-C in the terminal
    reaches only this process, which ends the queries in order.
    """
    settings = settings_of(pipeline, master=master, conf=conf)
    if settings.master is not None and settings.master.startswith("local"):
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    inner = SparkConf(loadDefaults=False)
    inner.setAll(list(settings.values.items()))
    gateway = _gateway(settings, say)
    if secrets := secret_variables(pipeline):
        pattern = settings.values.get(REDACTION) or gateway.jvm.System.getProperty(
            REDACTION
        )
        inner.set(REDACTION, redaction(secrets, pattern or REDACTED))
    context = SparkContext(conf=inner, gateway=gateway)
    try:
        yield SparkSession.builder.getOrCreate()
    finally:
        context.stop()


@dataclass
class _JVM:
    gateway: Any
    archive: Path | None
    """The archive of classes to write. None: there is one, or none fits."""


_launched: list[_JVM] = []


def save_classes(
    during: Callable[[str], AbstractContextManager[None]],
    is_stopped: Callable[[], bool],
) -> None:
    """Write the classes of this process's JVM for later runs, if it has no archive.

    Blocks for some seconds, and once for each process at most.

    Args:
        during: Shows a line while the archive is written.
        is_stopped: If it returns true, this waits no longer.
    """
    for jvm in _launched:
        archive, jvm.archive = jvm.archive, None
        if archive is not None and not file_of(archive):
            with during("keeping the classes of Spark for faster starts"):
                write_archive(jvm.gateway, archive, is_stopped)


def _gateway(settings: Settings, say: Callable[[str], object]) -> Any:
    """Return the gateway to this process's only JVM, which ends with the process.

    If Java does not start with the options that jsync chose, it starts without them.
    """
    if not _launched:
        java = [choice for choice in settings.choices if choice.name == JAVA_OPTIONS]
        archive = settings.archive
        file = None if archive is None else file_of(archive)
        home = settings.home
        written = None if file else archive
        if home and not make_links(home, _PACKAGE, Path(py4j.__file__).parent):
            home = written = None  # the archive is for the class path of the links
        attempts = [(java, home, written)]
        if archive is not None and java[:-1]:
            attempts.append((java[:-1], home, None))
        if java or home:
            attempts.append(([], None, None))
        for number, (choices, home, written) in enumerate(attempts):
            try:
                gateway = _launch(settings, choices, home)
            except (PySparkRuntimeError, OSError) as error:
                if number + 1 < len(attempts):
                    say("Java did not start: starting it with fewer options")
                    continue
                raise PipelineError(
                    "Spark did not start, for the reason in its output above. Without such "
                    "output, install Java 17 or 21, and set $JAVA_HOME or $PATH. With "
                    "spark.jars.packages, check that Maven Central has each package"
                ) from error
            if number == 1 and file is not None and java[:-1]:
                # Only the archive was left out, so Java cannot use it.
                with contextlib.suppress(OSError):
                    file.unlink(missing_ok=True)
            _launched.append(_JVM(gateway, written))
            break
    return _launched[0].gateway


def _launch(settings: Settings, choices: Sequence[Choice], home: Path | None) -> Any:
    launch = SparkConf(loadDefaults=False)
    for name, value in settings.values.items():
        if name.startswith(_AT_LAUNCH):
            launch.set(name, value)
    if any(choice.name == JAVA_OPTIONS for choice in settings.choices):
        launch.set(JAVA_OPTIONS, _joined(choices))
    own = {"start_new_session": True}
    if home is not None:  # so the variable is not set
        os.environ[HOME] = str(home)
    try:
        return launch_gateway(launch, popen_kwargs=own)  # type: ignore[no-untyped-call]
    finally:
        if home is not None:
            del os.environ[HOME]


_LOCAL = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
}
