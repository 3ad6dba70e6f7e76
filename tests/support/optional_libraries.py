"""Skip the tests that use a library without a wheel for this Python.

`JSYNC_TESTS_WITHOUT` lists these libraries, separated by blanks. Tests that import any other
missing library fail.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from types import ModuleType
from typing import Any

import pytest


class Missing(ModuleType):
    """A stand-in for a missing library. Its use skips the test."""

    def __getattr__(self, name: str) -> Any:
        # An import of a submodule asks for `__path__`. Python asks for other dunders that few
        # modules have.
        if name.startswith("__") and name != "__path__":
            raise AttributeError(name)
        pytest.skip(f"no {self.__name__} for this Python", allow_module_level=True)


def leave_out(libraries: str) -> None:
    """Replace these libraries, so that their use skips a test and no import fails."""
    for library in libraries.split():
        sys.modules[library] = Missing(library)


leave_out(os.environ.get("JSYNC_TESTS_WITHOUT", ""))

needs_gevent = pytest.mark.skipif(
    sys.platform == "win32"
    or sys.version_info >= (3, 15)
    or bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
    reason="gevent has no wheel for this Python, or jsync does not claim to work with it here",
)
"""For tests whose child processes import gevent or eventlet. This process must not: with gevent
imported, threads wait in another way, and eventlet warns of each fork."""
