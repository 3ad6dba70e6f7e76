"""The time of `import jsync`, and the modules that it loads."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from statistics import median

from .scenario import Bar, Column, Result, Scenario, key

# Not in this list: inspect, decimal and typing_extensions, because msgspec imports them.
HEAVY = (
    *("asyncio", "ssl", "concurrent.futures", "multiprocessing", "unittest", "email"),
    *("http.client", "urllib.request", "xml", "ctypes", "sqlite3", "pydantic", "nats"),
    *("nkeys", "nacl", "cryptography", "numpy", "pyarrow", "pyspark", "typer", "rich"),
)
_LOADED = "import sys; print(*[m for m in sys.argv[1:] if m in sys.modules])"


def imported() -> Result:
    """Return the medians of ten processes each, in turn, with cached bytecode."""
    with tempfile.TemporaryDirectory() as cache:
        environment = dict(os.environ, PYTHONPYCACHEPREFIX=cache)
        environment.pop("PYTHONDONTWRITEBYTECODE", None)

        def run(*arguments: str) -> subprocess.CompletedProcess[str]:
            return subprocess.run(
                [sys.executable, *arguments],
                env=environment,
                capture_output=True,
                text=True,
                check=True,
            )

        def timed(code: str) -> float:
            begin = time.perf_counter()
            run("-c", code)
            return (time.perf_counter() - begin) * 1000

        def by_importtime() -> float:
            lines = run("-X", "importtime", "-c", "import jsync").stderr.splitlines()
            mine = next(at for at in lines if at.split("|")[-1].strip() == "jsync")
            return int(mine.split("|")[1]) / 1000

        heavy = run("-c", f"import jsync; {_LOADED}", *HEAVY).stdout.split()
        with_it, bare, cumulative = [], [], []
        for _ in range(10):
            bare.append(timed("pass"))
            with_it.append(timed("import jsync"))
            cumulative.append(by_importtime())
    return {
        "process": median(with_it),
        "bare": median(bare),
        "difference": median(with_it) - median(bare),
        "importtime": median(cumulative),
        "heavy": len([name for name in heavy if name != "ssl"]),
        "ssl": int("ssl" in heavy),
    }


IMPORT = Scenario(
    f"`import jsync`, ms, bytecode cached; and how many come with it of: {', '.join(HEAVY)}",
    [
        Column("process", key("process")),
        Column("bare interpreter", key("bare")),
        Column("difference", key("difference")),
        Column("-X importtime", key("importtime")),
        Column("heavy modules", key("heavy")),
        Column("ssl", key("ssl")),
    ],
    lambda _: iter([("import jsync", imported)]),
    [
        Bar(
            "import jsync, ms over the bare interpreter",
            80,
            lambda r: r["import jsync"]["difference"],
        ),
        Bar(
            "heavy modules that the import loads",
            0,
            lambda r: r["import jsync"]["heavy"],
        ),
    ],
)
