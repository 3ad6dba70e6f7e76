"""Tests of Python without the GIL: jsync leaves it off, and says who turns it on.

`conftest.py` collects them on a free-threaded interpreter only.
"""

from __future__ import annotations

import os
import pkgutil
import shlex
import subprocess
import sys
import sysconfig
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

# An extension that does not say that it can run without the GIL.
NEEDY = """
#include <Python.h>
static struct PyModuleDef needy = {PyModuleDef_HEAD_INIT, "needy", NULL, -1, NULL};
PyMODINIT_FUNC PyInit_needy(void) { return PyModule_Create(&needy); }
"""


def python(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run Python as users do: it decides about the GIL by itself."""
    inherited = {
        name: value for name, value in os.environ.items() if name != "PYTHON_GIL"
    }
    return subprocess.run(
        [sys.executable, *arguments],
        env=inherited | variables,
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.fixture
def needy(tmp_path: Path) -> Path:
    """A folder with the extension `needy`."""
    source = tmp_path / "needy.c"
    source.write_text(NEEDY)
    subprocess.run(
        [
            *shlex.split(sysconfig.get_config_var("LDSHARED")),
            *("-fPIC", f"-I{sysconfig.get_path('include')}", str(source)),
            *("-o", str(tmp_path / "needy.so")),
        ],
        check=True,
    )
    return tmp_path


@pytest.mark.parametrize(
    ("module", "needs"),
    [
        ("jsync", "msgspec:Struct"),
        ("jsync.cli.app", "click:command"),
        ("jsync.integrations.fsspec", "fsspec:filesystem"),
        ("jsync.jetstream.keyvalue.aesgcm", "cryptography.fernet:Fernet"),
        ("jsync.core.auth", "nkeys:from_seed"),
        ("jsync.core.proxies", "socks:socksocket"),
        ("jsync.spark.columns", "pyarrow:Table"),
    ],
)
def test_the_gil_stays_off(module: str, needs: str) -> None:
    assert pkgutil.resolve_name(needs)  # skipped where the library is left out
    library = needs.partition(":")[0]
    program = f"import sys, jsync, {library}, {module}; sys.exit(sys._is_gil_enabled())"
    ended = python("-W", "error", "-c", program)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_one_warning_names_extensions_that_enable_the_gil(
    needy: Path,
) -> None:
    program = "import sys, jsync, needy, jsync.cli; sys.exit(sys._is_gil_enabled())"
    ended = python("-c", program, PYTHONPATH=str(needy))
    assert ended.returncode == 1
    (warning,) = [line for line in ended.stderr.splitlines() if "Warning" in line]
    assert (
        "RuntimeWarning: The global interpreter lock (GIL) has been enabled" in warning
    )
    assert "to load module 'needy'" in warning


def test_doctor_reports_the_gil_and_how_to_investigate() -> None:
    off = python("-m", "jsync", "doctor", "python")
    assert "without the GIL" in off.stdout
    on = python("-X", "gil=1", "-m", "jsync", "doctor", "python")
    assert on.returncode == 0
    assert "free-threaded, but the GIL is on" in on.stdout
    assert "-W error::RuntimeWarning" in on.stdout
