"""Build the peers that are not in Python, and a virtual environment for natsio.

If a tool is missing, its peer is left out and the results say why.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

SOURCES = Path(__file__).parent
ROOT = SOURCES.parent.parent
CACHE = ROOT / ".cache" / "benchmarks"
NATSIO = "natsio==1.0.1"
NATSIO_PYTHONS = ("3.13", "3.14", "3.15")


class Programs:
    """The compiled peers. `natsc`, `natsgo` and `natsio` are None if they cannot be built."""

    def __init__(self) -> None:
        self.left_out: list[str] = []
        CACHE.mkdir(parents=True, exist_ok=True)
        compiler = shutil.which(os.environ.get("CC", "cc"))
        if compiler is None:
            raise SystemExit("no C compiler: every job needs programs in C")
        self._compiler = compiler
        self.raw = self._needed("raw")
        self.pull = self._needed("pull")
        self.window = self._needed("window")
        self.batch = self._needed("batch")
        self.atomic = self._needed("atomic")
        self.delay = self._needed("delay")
        self.natsc = self._or_left_out("nats.c", self._natsc())
        self.natsgo = self._or_left_out("nats.go and orbit.go", _natsgo())
        self.natsio = self._or_left_out("natsio", _natsio())

    def _or_left_out(self, name: str, program: Path | str) -> Path | None:
        if isinstance(program, Path):
            return program
        self.left_out.append(f"{name}: {program}")
        return None

    def _needed(self, name: str) -> Path:
        program = self._build(name, ["-lpthread"])
        if isinstance(program, str):
            raise SystemExit(f"{name}.c cannot be compiled: {program}")
        return program

    def _natsc(self) -> Path | str:
        """Build with the newest nats.c of apt, otherwise with the library of the system."""
        directory = CACHE / "nats.c"
        archive = directory / "libnats_static.a"
        if not archive.exists() and shutil.which("apt-get"):
            _run([SOURCES / "newest-natsc.sh", directory])
        if archive.exists():
            shims = CACHE / "glibc.o"
            source = SOURCES / "glibc.c"
            _run([self._compiler, "-std=c99", "-O2", "-c", "-o", shims, source])
            others = [
                found[0]
                for name in ("sodium", "protobuf-c")
                if (found := sorted(Path("/usr/lib").glob(f"*/lib{name}.so.*")))
            ]
            includes = f"-I{directory}/usr/include"
            libraries: list[str | Path] = [
                archive,
                *others,
                "-lssl",
                "-lcrypto",
                "-lpthread",
            ]
            for objects in (libraries, [shims, *libraries]):
                built = self._build("natsc", [includes, *objects])
                if isinstance(built, Path):
                    return built
        built = self._build("natsc", ["-lnats", "-lpthread"])
        return built if isinstance(built, Path) else f"{built} (libnats-dev)"

    def _build(self, name: str, flags: Sequence[str | Path]) -> Path | str:
        """Return the program, or the first error of the compiler."""
        source, program = SOURCES / f"{name}.c", CACHE / name
        if _is_newer(program, source, SOURCES / "bench.h"):
            return program
        return _run(
            [self._compiler, "-O2", "-Wall", "-o", program, source, *flags], program
        )


def _natsgo() -> Path | str:
    go = shutil.which("go") or shutil.which("/usr/local/go/bin/go")
    if go is None:
        return "no Go toolchain found"
    module, program = SOURCES / "go", CACHE / "natsgo"
    if _is_newer(program, *module.glob("*.go"), module / "go.mod"):
        return program
    return _run([go, "build", "-C", module, "-o", program, "."], program)


def _natsio() -> Path | str:
    """Return the Python of an environment with natsio, or the reason that there is none."""
    environment = CACHE / NATSIO.replace("==", "-")
    program = environment / "bin" / "python"
    if (environment / "ready").exists():
        return program
    python = next(filter(None, map(_python, NATSIO_PYTHONS)), None)
    if python is None:
        return f"needs Python {NATSIO_PYTHONS[0]} or newer"
    steps: list[list[str | Path]] = [
        [python, "-m", "venv", environment],
        [program, "-m", "pip", "--disable-pip-version-check", "install", "-q", NATSIO],
    ]
    for step in steps:
        if isinstance(done := _run(step, program), str):
            return done
    (environment / "ready").touch()
    return program


def _python(version: str) -> Path | None:
    mine = sorted((Path.home() / ".pyenv/versions").glob(f"{version}.*/bin/python"))
    found = shutil.which(f"python{version}")
    return mine[-1] if mine else Path(found) if found else None


def _is_newer(program: Path, *sources: Path) -> bool:
    newest = max(source.stat().st_mtime for source in sources)
    return program.exists() and program.stat().st_mtime > newest


def _run(command: Sequence[str | Path], made: Path = CACHE) -> Path | str:
    """Run a command. Return the path `made`, or the first line of the error.

    The line goes into results, so it names no directory of this machine.
    """
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return made
    said = done.stderr.replace(f"{ROOT}{os.sep}", "").splitlines()
    errors = [line for line in said if "error" in line]
    return (errors or said or ["failed"])[0]
