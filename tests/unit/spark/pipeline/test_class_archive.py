"""Tests of the archive of classes: its name, and its protection."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from jsync.spark.pipeline.class_archive import archive_of, file_of, java_options

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A Spark with two jars."""
    jars = tmp_path / "spark" / "jars"
    jars.mkdir(parents=True)
    for name in ("a.jar", "b.jar"):
        (jars / name).write_text(name)
    return tmp_path / "spark"


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """The environment of a user with a Java."""
    java = tmp_path / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.touch()
    (tmp_path / "java" / "release").write_text('JAVA_VERSION="17.0.1"')
    return {"JAVA_HOME": str(tmp_path / "java"), "HOME": str(tmp_path / "home")}


def test_an_archive_belongs_to_one_java_and_spark(
    home: Path, env: dict[str, str], tmp_path: Path
) -> None:
    first = archive_of(home, "4.3.0", env)
    assert first is not None
    assert first.parent == tmp_path / "home" / ".cache" / "jsync" / "spark"
    assert archive_of(home, "4.3.0", env) == first
    found = {first, archive_of(home, "4.2.0", env)}
    (tmp_path / "java" / "release").write_text('JAVA_VERSION="17.0.2"')
    found.add(archive_of(home, "4.3.0", env))
    (home / "jars" / "a.jar").write_text("another")
    found.add(archive_of(home, "4.3.0", env))
    assert len(found) == 4
    cached = {**env, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    other = archive_of(home, "4.3.0", cached)
    assert other is not None
    assert other.parent == tmp_path / "cache" / "jsync" / "spark"


def test_no_archive_fits_some_environments(
    home: Path, env: dict[str, str], tmp_path: Path
) -> None:
    assert archive_of(home, "4.3.0", {**env, "HADOOP_CONF_DIR": "/etc"}) is None
    assert archive_of(home, "4.3.0", {**env, "HOME": ""}) is None
    assert archive_of(home, "4.3.0", {**env, "JAVA_HOME": str(home)}) is None
    assert archive_of(tmp_path / "none", "4.3.0", env) is None
    (home / "conf").mkdir()
    assert archive_of(home, "4.3.0", env) is not None
    (home / "conf" / "spark-defaults.conf").touch()
    assert archive_of(home, "4.3.0", env) is None


def test_only_a_whole_and_protected_archive_is_used(tmp_path: Path) -> None:
    archive = tmp_path / "cache" / "spark-4.3.0-abc"
    assert file_of(archive) is None
    assert "-XX:+RecordDynamicDumpInfo" in java_options(archive)
    archive.parent.mkdir(mode=0o700)
    file = archive.with_name("spark-4.3.0-abc-5.jsa")
    file.write_text("whole")
    file.chmod(0o600)
    assert file_of(archive) == file
    assert f"-XX:SharedArchiveFile={file}" in java_options(archive)
    for path, mode in ((file, 0o666), (archive.parent, 0o777)):
        before = path.stat().st_mode
        path.chmod(mode)
        assert file_of(archive) is None
        path.chmod(before)
    file.write_text("cut")
    assert file_of(archive) is None
    file.unlink()
    other = tmp_path / "other"
    other.write_text("whole")
    file.symlink_to(other)
    assert file_of(archive) is None
