"""A Spark cluster of separate processes: a master and two workers of one core each."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Self

import pyspark
import pytest

from ...support.servers import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

BIN = Path(pyspark.__file__).parent / "bin"
SPARK_CLASS, SPARK_SUBMIT = str(BIN / "spark-class"), str(BIN / "spark-submit")
ROOT = Path(__file__).parents[3]
STARTED = 300
"""The seconds in which the processes of a cluster must start, even on a slow machine."""


def kill_session(session: int) -> None:
    """Kill all processes of a session, such as those of a container whose runtime has ended."""
    for directory in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            fields = (directory / "stat").read_text().rpartition(")")[2].split()
            if int(fields[3]) == session:
                os.kill(int(directory.name), signal.SIGKILL)


class SparkCluster:
    """A cluster that runs during a `with` block, on loopback. Each process logs to `directory`."""

    def __init__(
        self,
        directory: Path,
        environment: dict[str, str],
        spark_class: Callable[[str], list[str]] = lambda _: [SPARK_CLASS],
    ) -> None:
        """`spark_class` returns the command that runs a class of Spark as a named process."""
        self.directory = directory
        self._environment = environment
        self._spark_class = spark_class
        self._processes: list[subprocess.Popen[bytes]] = []
        self.url = ""

    def __enter__(self) -> Self:
        try:
            self._start("master", "deploy.master.Master", "--port", "0")
            self.url = self._said("master", r"Starting Spark master at (\S+)")
            for worker in ("one", "two"):
                where = ("-c", "1", "-m", "1g", "-d", str(self.directory / worker))
                self._start(worker, "deploy.worker.Worker", *where, self.url)
            for worker in ("one", "two"):
                self._said(worker, r"(Successfully registered with master)")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for process in reversed(self._processes):
            process.terminate()
        for process in self._processes:
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            kill_session(process.pid)

    def executors(self) -> list[int]:
        """Return the processes that the workers have started for an application."""
        found = []
        for directory in Path("/proc").iterdir():
            if not directory.name.isdigit():
                continue
            try:
                command = (directory / "cmdline").read_bytes()
                parent = int(
                    (directory / "stat").read_text().rpartition(")")[2].split()[1]
                )
            except OSError:
                continue  # the process has just ended
            mine = parent in {process.pid for process in self._processes}
            if mine and b"CoarseGrainedExecutorBackend" in command:
                found.append(int(directory.name))
        return found

    def kill_executor(self) -> int:
        victim = self.executors()[0]
        os.kill(victim, signal.SIGKILL)
        return victim

    def _start(self, name: str, kind: str, *arguments: str) -> None:
        local = ("--host", "127.0.0.1", "--webui-port", "0")
        with self._log(name).open("wb") as log:
            self._processes.append(
                subprocess.Popen(
                    [
                        *(*self._spark_class(name), f"org.apache.spark.{kind}"),
                        *(*local, *arguments),
                    ],
                    env=self._environment,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            )

    def _log(self, name: str) -> Path:
        return self.directory / f"{name}.log"

    def _said(self, name: str, pattern: str) -> str:
        """Wait until the log of a process matches a pattern."""
        found: list[re.Match[str]] = []

        def says() -> bool:
            match = re.search(pattern, self._log(name).read_text(errors="replace"))
            found.extend([match] if match else [])
            return bool(found)

        wait_for(says, timeout=STARTED)
        return found[0][1]


@pytest.fixture(scope="package")
def environment(spark_environment: None) -> dict[str, str]:
    """The environment of every process. jsync is found because it is installed, not by a path."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return {
        **kept,
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_HOME": str(Path(pyspark.__file__).parent),
        "SPARK_DAEMON_MEMORY": "256m",
    }


@pytest.fixture(scope="package")
def spark_cluster(
    environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SparkCluster]:
    with SparkCluster(tmp_path_factory.mktemp("cluster"), environment) as cluster:
        yield cluster


@pytest.fixture(scope="package")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source distribution of jsync."""
    directory = tmp_path_factory.mktemp("sdist")
    setup = [sys.executable, "setup.py", "-q", "sdist", "--dist-dir", str(directory)]
    subprocess.run(setup, cwd=ROOT, check=True)
    (path,) = directory.glob("jsync-*.tar.gz")
    return path
