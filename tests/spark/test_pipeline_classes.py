"""Tests of the archive of classes that pipelines keep for faster starts, in own processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pathlib import Path

FILE = """\
[sources.numbers]
format = "ndjson"
path = "{0}/numbers.ndjson"
schema = "number int"

[sinks.out]
format = "parquet"
from = "numbers"
path = "{0}/out"
mode = "overwrite"
"""
SHARED = "shared objects file (top)"
"""The source of a class in an archive, as Java logs it."""


class Run:
    """Runs a pipeline in a process with a new cache."""

    def __init__(self, directory: Path) -> None:
        self.cache = directory / "cache"
        self._directory = directory
        self._file = directory / "pipeline.toml"
        self._file.write_text(FILE.format(directory))
        (directory / "numbers.ndjson").write_text('{"number": 1}\n{"number": 2}\n')

    def __call__(self, *arguments: str) -> Any:
        """Return the document that the command prints, and nothing else is on its output."""
        command = [sys.executable, "-m", "jsync.spark.pipeline", "run", "--json"]
        ended = subprocess.run(
            [*command, *arguments, str(self._file)],
            env={**os.environ, "XDG_CACHE_HOME": str(self.cache)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert ended.returncode == 0, ended.stderr
        return json.loads(ended.stdout)

    def archived(self) -> int:
        """Return how many classes the JVM of a run takes from the archive."""
        log = self._directory / "classes.log"
        options = f"-Xlog:class+load:file={log}"
        self("--conf", f"spark.driver.extraJavaOptions={options}")
        return log.read_text().count(SHARED)

    @property
    def files(self) -> list[Path]:
        return sorted(self.cache.glob("jsync/spark/*"))


@pytest.fixture
def run(tmp_path: Path, spark_environment: None) -> Run:
    return Run(tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_run_leaves_its_classes_to_the_next(run: Run) -> None:
    (first,) = run()["sinks"]
    assert first["rows"] == 2
    (archive,) = run.files
    assert archive.suffix == ".jsa"
    written = archive.stat().st_mtime_ns
    assert run.archived() > 5000
    assert run.files == [archive]
    assert archive.stat().st_mtime_ns == written
    archive.chmod(0o600)
    with archive.open("r+b") as file:
        file.truncate(archive.stat().st_size // 2)
    assert run.archived() == 0
    (again,) = run.files
    assert again.stat().st_size == int(again.stem.rpartition("-")[2])


@pytest.mark.timeout(600)
def test_explain_shows_the_choices_without_spark(run: Run) -> None:
    cores = str(os.cpu_count())
    chosen = {choice["value"]: choice for choice in run("--explain")["choices"]}
    assert chosen.pop(cores)["name"] == "spark.sql.shuffle.partitions"
    assert any("-XX:+RecordDynamicDumpInfo" in value for value in chosen)
    own = (
        "spark.sql.shuffle.partitions=7",
        "spark.driver.extraJavaOptions=-Xshare:off",
    )
    given = [part for each in own for part in ("--conf", each)]
    left = [choice["value"] for choice in run("--explain", *given)["choices"]]
    assert "7" not in left
    assert cores not in left
    assert not any("Dump" in value or "Shared" in value for value in left)
    assert run.files == []


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_java_starts_without_options_it_refuses(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another collector can come from a place that jsync does not know."""
    folder = run.cache.parent / "settings"
    folder.mkdir()
    (folder / "spark-env.sh").write_text("export JDK_JAVA_OPTIONS=-XX:+UseParallelGC\n")
    monkeypatch.setenv("SPARK_CONF_DIR", str(folder))
    (out,) = run("--master", "local[1]")["sinks"]
    assert out["rows"] == 2
