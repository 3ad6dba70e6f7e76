"""Tests that subinterpreters (PEP 734) are rejected in one sentence, and the main one continues."""

from __future__ import annotations

import subprocess
import sys

import pytest

# The API of this Python: a public module since 3.14, and private ones before.
RUN = {
    True: """
from concurrent import interpreters
interpreter = interpreters.create()
def run(code):
    interpreter.exec(code)
""",
    False: """
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters
interpreter = interpreters.create()
def run(code):
    # It raises, or before 3.14 returns what was raised.
    failure = interpreters.run_string(interpreter, code)
    if failure is not None:
        raise RuntimeError(failure)
""",
}
PROGRAM = """
import jsync
failed = ""
try:
    run("import jsync")
except Exception as error:
    failed = str(error)
print(failed)
print(jsync.Headers({"still": "here"})["still"])
"""


@pytest.fixture
def told() -> str:
    """Return the output of a program that imports jsync, also in a subinterpreter."""
    program = RUN[sys.version_info >= (3, 14)] + PROGRAM
    done = subprocess.run(
        [sys.executable, "-c", program],
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_subinterpreters_get_advice_while_the_main_one_continues(
    told: str,
) -> None:
    assert "jsync cannot be imported in a subinterpreter: import it in the main" in told
    assert "use threads or processes" in told
    assert told.rstrip().endswith("here")
