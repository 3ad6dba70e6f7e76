"""The modules that a new Python process imports."""

from __future__ import annotations

import subprocess
import sys


def imported(statement: str, before: str = "sys") -> set[str]:
    """Return the modules that `statement` imports in a new Python that has those `before`."""
    code = (
        f"import sys, {before}\n"
        "before = set(sys.modules)\n"
        f"{statement}\n"
        "print(*sorted(set(sys.modules) - before))"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    )
    return set(run.stdout.split())


def below(modules: set[str], names: tuple[str, ...]) -> set[str]:
    """Return the modules that are one of `names`, or in one of these packages."""
    return {
        each for each in modules if f"{each}.".startswith(tuple(f"{n}." for n in names))
    }
