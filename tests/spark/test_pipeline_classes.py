"""Tests of what pipelines keep for faster starts, in own processes: classes and links."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyspark
import pytest

from .support import fill

if TYPE_CHECKING:
    import jsync
    from jsync.server import LocalServer

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
READ = """\
[nats]
servers = "{url}"

[sources.numbers]
format = "jetstream"
options = {{ stream = "{stream}" }}

[sinks.out]
format = "parquet"
from = "numbers"
path = "{directory}/out"
"""
NOTES = """\
import os
with open(os.environ["NOTES"], "a") as file:
    file.write(os.environ["PYTHONPATH"] + "\\n")
"""
"""The program of each Python that starts: it notes where modules are."""
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
        return sorted(self.cache.glob("jsync/spark/*.jsa"))


@pytest.fixture
def run(
    tmp_path: Path, spark_environment: None, monkeypatch: pytest.MonkeyPatch
) -> Run:
    """Runs pipelines as a user does who has installed PySpark by pip."""
    monkeypatch.delenv("SPARK_HOME")
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


@pytest.mark.sparks
@pytest.mark.timeout(600)
def test_python_workers_find_pyspark_by_links(
    run: Run,
    stream: jsync.Stream,
    js: jsync.JetStream,
    server: LocalServer,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    (tmp_path / "sitecustomize.py").write_text(NOTES)
    monkeypatch.setenv("NOTES", str(tmp_path / "notes"))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    fill(js, stream, b"1", b"2")
    text = READ.format(url=server.url, stream=stream.name, directory=tmp_path)
    (tmp_path / "pipeline.toml").write_text(text)
    (out,) = run()["sinks"]
    assert out["rows"] == 2
    paths = (tmp_path / "notes").read_text().splitlines()
    workers = [
        path for path in paths if not path.startswith(str(tmp_path) + os.pathsep)
    ]
    assert workers
    for path in workers:
        first = Path(path.partition(os.pathsep)[0])
        assert first.is_relative_to(run.cache)
        assert (first / "pyspark").resolve() == Path(pyspark.__file__).parent


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
    assert not run.cache.exists()


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
