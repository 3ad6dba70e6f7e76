from __future__ import annotations

import subprocess
import sys

import jsync


def test_all_is_what_the_package_offers() -> None:
    assert len(set(jsync.__all__)) == len(jsync.__all__)
    public = {name for name in vars(jsync) if not name.startswith("_")}
    modules = {"cli", "core", "errors", "headers", "jetstream", "models"}
    modules |= {"server", "spark"}
    assert public - modules == set(jsync.__all__) - {"__version__"}


def test_names_that_shadow_builtins_live_in_errors_alone() -> None:
    assert "TimeoutError" not in jsync.__all__
    assert "ConnectionError" not in jsync.__all__


def test_importing_is_light() -> None:
    code = (
        "import sys, threading, os; before = set(os.listdir('/dev/fd'));"
        "import jsync;"
        "heavy = {'asyncio', 'pyspark', 'pyarrow', 'nats', 'nkeys', 'concurrent.futures',"
        "'http', 'email', 'typer', 'rich'} & set(sys.modules);"
        "assert not heavy, heavy;"
        "assert threading.active_count() == 1;"
        "assert len(os.listdir('/dev/fd')) == len(before)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
