"""Compiles the peers written in C."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

SOURCES = Path(__file__).parent
CACHE = SOURCES.parent.parent / ".cache" / "benchmarks"


class Programs:
    """The compiled peers: `natsc` may be None, when it cannot be had."""

    def __init__(self) -> None:
        self.left_out: list[str] = []
        compiler = shutil.which(os.environ.get("CC", "cc"))
        if compiler is None:
            raise SystemExit("no C compiler: the far ends of all the jobs are in C")
        self._compiler = compiler
        self.raw = self._needed("raw")
        self.pull = self._needed("pull")
        self.window = self._needed("window")
        self.batch = self._needed("batch")
        self.atomic = self._needed("atomic")
        natsc = self._build("natsc", ["-lnats", "-lpthread"])
        self.natsc = None if isinstance(natsc, str) else natsc
        if isinstance(natsc, str):
            self.left_out.append(f"nats.c (apt-get install libnats-dev): {natsc}")

    def _needed(self, name: str) -> Path:
        program = self._build(name, [])
        if isinstance(program, str):
            raise SystemExit(f"{name}.c cannot be compiled: {program}")
        return program

    def _build(self, name: str, libraries: list[str]) -> Path | str:
        """The program, or the compiler's first complaint."""
        source, program = SOURCES / f"{name}.c", CACHE / name
        newest = max(source.stat().st_mtime, (SOURCES / "bench.h").stat().st_mtime)
        if program.exists() and program.stat().st_mtime > newest:
            return program
        CACHE.mkdir(parents=True, exist_ok=True)
        done = subprocess.run(
            [self._compiler, "-O2", "-Wall", "-o", program, source, *libraries],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode == 0:
            return program
        errors = [line for line in done.stderr.splitlines() if "error" in line]
        return (errors or done.stderr.splitlines() or ["failed"])[0]
