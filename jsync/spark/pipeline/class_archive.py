"""An archive of the classes of Spark's JVM, which makes its next start faster.

A JVM reads, checks and links about 20,000 classes before Spark runs the first job. Java can
keep them in an archive, as class data sharing (JEP 350), and map it into memory. The first run
that ends without an error writes one, while its JVM still runs. So no archive depends on who
ends first, Python or Java. It gets its name when it is complete, and its size is part of the
name, because Java crashes with an archive that was cut off.

An archive fits one Java and one Spark, which its name stands for. The JVM itself checks both
and every jar, and starts without an archive that does not fit.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import stat
import threading
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

MAX_WAIT: Final = 60.0
"""Seconds that the JVM may need to write an archive."""
STALE: Final = 3600.0
"""Seconds after which an incomplete archive is one of a run that was killed."""
_POLL: Final = 0.1
_PARTIAL: Final = ".partial"
_SUFFIX: Final = ".jsa"
_SILENT: Final = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off")
"""Options that hide which of the classes cannot be archived."""
_CLASS_PATHS: Final = (
    *("HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_CLASSPATH", "SPARK_DIST_CLASSPATH"),
)
"""Variables with which Spark adds more to its class path. Java archives no folder of it."""


def archive_of(
    spark_home: Path, version: str, env: Mapping[str, str], linked: Path | None = None
) -> Path | None:
    """Return the archive for the Java and the Spark that would start, without size and suffix.

    Args:
        spark_home: The folder of Spark.
        version: The version of Spark.
        env: The environment.
        linked: The folder that is in the class path instead, with links to Spark.

    Returns:
        The path. None if there is no Java, or no archive fits this environment.
    """
    java = _java(env)
    folder = cache_folder(env)
    if os.name != "posix" or java is None or folder is None:
        return None
    if any(env.get(name) for name in _CLASS_PATHS):
        return None
    settings = Path(env.get("SPARK_CONF_DIR") or spark_home / "conf")
    try:
        if settings.is_dir() and any(settings.iterdir()):
            return None  # the folder is in the class path
        release = (java.parent.parent / "release").read_text()
        jars = sorted(
            (jar.name, jar.stat().st_size, jar.stat().st_mtime_ns)
            for jar in (spark_home / "jars").iterdir()
        )
    except OSError:
        return None
    known = repr((str(java), release, str(linked or spark_home), jars))
    digest = hashlib.sha256(known.encode()).hexdigest()[:16]
    return folder / f"spark-{version}-{digest}"


def cache_folder(env: Mapping[str, str]) -> Path | None:
    """Return the folder of the archives, or None without a home."""
    given = env.get("XDG_CACHE_HOME") or ""
    if os.path.isabs(given):
        return Path(given, "jsync", "spark")
    home = env.get("HOME") or ""
    return Path(home, ".cache", "jsync", "spark") if os.path.isabs(home) else None


def _java(env: Mapping[str, str]) -> Path | None:
    """Return the Java that Spark starts."""
    home = env.get("JAVA_HOME")
    found = (
        Path(home, "bin", "java")
        if home
        else shutil.which("java", path=env.get("PATH"))
    )
    return Path(found).resolve() if found and Path(found).is_file() else None


def file_of(archive: Path) -> Path | None:
    """Return the file of an archive that is complete and that only this user could write.

    Java runs the code in an archive.
    """
    for file in _files(archive):
        with contextlib.suppress(OSError):
            if _is_whole(file) and all(map(is_own, (file, file.parent))):
                return file
    return None


def _files(archive: Path) -> list[Path]:
    return sorted(archive.parent.glob(f"{archive.name}-*{_SUFFIX}"))


def _is_whole(file: Path) -> bool:
    found, size = file.lstat(), file.stem.rpartition("-")[2]
    return stat.S_ISREG(found.st_mode) and str(found.st_size) == size


def is_own(path: Path) -> bool:
    """Return whether only this user can write a file or into a folder."""
    found = path.stat()
    others = stat.S_IWGRP | stat.S_IWOTH
    return found.st_uid == os.getuid() and not found.st_mode & others


def java_options(archive: Path) -> list[str]:
    """Return the options of a JVM that uses the archive, or that can write one."""
    if file := file_of(archive):
        return [f"-XX:SharedArchiveFile={file}", "-Xshare:auto", *_SILENT]
    return ["-XX:+RecordDynamicDumpInfo", *_SILENT]


def write_archive(
    gateway: Any, archive: Path, is_stopped: Callable[[], bool] = lambda: False
) -> bool:
    """Write the classes that a JVM has loaded now. Blocks for some seconds.

    The JVM must have been started with the `java_options` of a missing archive.

    Args:
        gateway: The gateway to the JVM.
        archive: The archive, as `archive_of` names it.
        is_stopped: If it returns true, this waits no longer.

    Returns:
        Whether it was written. Nothing depends on it.
    """
    try:
        archive.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        for partial in archive.parent.glob(f"*{_PARTIAL}"):
            _remove_if_stale(partial)
        for file in _files(archive):
            if not _is_whole(file):
                file.unlink(missing_ok=True)
    except OSError:
        return False
    partial = archive.with_name(f"{archive.name}.{uuid.uuid4().hex}{_PARTIAL}")
    failures: list[Exception] = []

    def dump() -> None:
        try:
            _dump(gateway, partial)
        except Exception as error:  # noqa: BLE001 (py4j raises what Java raises)
            failures.append(error)

    thread = threading.Thread(target=dump, name="write class archive", daemon=True)
    thread.start()
    until = time.monotonic() + MAX_WAIT
    while thread.is_alive():
        thread.join(_POLL)
        if thread.is_alive() and (is_stopped() or time.monotonic() >= until):
            return False  # a later run removes the rest
    with contextlib.suppress(OSError):
        size = partial.stat().st_size
        if not failures and size:
            partial.replace(archive.with_name(f"{archive.name}-{size}{_SUFFIX}"))
            return True
    with contextlib.suppress(OSError):
        partial.unlink(missing_ok=True)
    return False


def _remove_if_stale(partial: Path) -> None:
    """Remove an incomplete archive, unless its run may still be writing it.

    If the clock was changed meanwhile, a file that is being written may go. Its run then has
    no archive, as after any other failure to write one.
    """
    with contextlib.suppress(FileNotFoundError):  # another run has removed it
        if partial.stat().st_mtime < time.time() - STALE:
            partial.unlink()


def _dump(gateway: Any, partial: Path) -> None:
    """Run the diagnostic command `VM.cds dynamic_dump`, as `jcmd` of a JDK does."""
    jvm = gateway.jvm
    words = _array(gateway, jvm.String, "dynamic_dump", str(partial))
    signature = _array(gateway, jvm.String, "[Ljava.lang.String;")
    commands = jvm.javax.management.ObjectName(
        "com.sun.management:type=DiagnosticCommand"
    )
    server = jvm.java.lang.management.ManagementFactory.getPlatformMBeanServer()
    arguments = _array(gateway, jvm.Object, words)
    # py4j calls no method of a class that its module hides, so call that of the interface.
    methods = jvm.java.lang.Class.forName("javax.management.MBeanServer").getMethods()
    (invoke,) = (method for method in methods if method.getName() == "invoke")
    called = _array(gateway, jvm.Object, commands, "vmCds", arguments, signature)
    system = jvm.java.lang.System
    output, nowhere = system.out, jvm.java.io.OutputStream.nullOutputStream()
    # Java prints a line about it, and the standard output is for the summary of the run.
    system.setOut(jvm.java.io.PrintStream(nowhere))
    try:
        invoke.invoke(server, called)
    finally:
        system.setOut(output)


def _array(gateway: Any, kind: Any, *values: object) -> Any:
    """Return an array of Java."""
    array = gateway.new_array(kind, len(values))
    for index, value in enumerate(values):
        array[index] = value
    return array
