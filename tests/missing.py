"""Libraries that have no wheel for this Python: a test that uses one is skipped.

`JSYNC_TESTS_WITHOUT` names them, with blanks between. Nothing else is skipped: a library
that is missing and not named there fails the tests that import it.
"""

from __future__ import annotations

import os
import sys
from types import ModuleType
from typing import Any

import pytest


class Missing(ModuleType):
    """What `import` finds in place of a library: whoever uses it is skipped."""

    def __getattr__(self, name: str) -> Any:
        # An import of a part of the library asks for its path. Others look for dunders that
        # few modules have.
        if name.startswith("__") and name != "__path__":
            raise AttributeError(name)
        pytest.skip(f"no {self.__name__} for this Python", allow_module_level=True)


def leave_out(libraries: str) -> None:
    """Have the libraries of these names found missing by tests, not by whoever imports them."""
    for library in libraries.split():
        sys.modules[library] = Missing(library)


leave_out(os.environ.get("JSYNC_TESTS_WITHOUT", ""))
