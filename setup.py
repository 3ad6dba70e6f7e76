"""Builds `jsync._fast`, and the description on PyPI. Everything else is in pyproject.toml."""

import os
import re
import sys
import tomllib
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

DEBUG = bool(os.environ.get("JSYNC_DEBUG"))

if sys.platform == "win32":  # Microsoft's compiler
    arguments = ["/Od", "/Z7", "/UNDEBUG"] if DEBUG else ["/O2"]
else:
    arguments = ["-O1", "-g3", "-UNDEBUG"] if DEBUG else ["-O3", "-g0"]

# PyPI has no other file of the repository, so it needs absolute links.
LINK = re.compile(
    r"""(?P<before>\]\(|(?:href|src|srcset)=")(?!https?://|#)(?P<path>[^)"\s]+)"""
)


def description() -> str:
    """Return the README with absolute links."""
    root = Path(__file__).parent
    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]
    repository = project["urls"]["Repository"]

    def absolute(link: re.Match[str]) -> str:
        kind = "raw" if link["path"].endswith((".svg", ".png")) else "blob"
        return f"{link['before']}{repository}/{kind}/main/{link['path']}"

    return LINK.sub(absolute, (root / "README.md").read_text("utf-8"))


directives = {
    "language_level": "3",
    "embedsignature": False,
    "auto_pickle": False,
    "autotestdict": False,
    "boundscheck": DEBUG,
    "wraparound": False,
    "initializedcheck": DEBUG,
    "cdivision": True,
    "warn.unused": True,
    "warn.maybe_uninitialized": True,
}

setup(
    long_description=description(),
    long_description_content_type="text/markdown",
    ext_modules=cythonize(
        [
            Extension(
                "jsync._fast",
                ["jsync/_fast.pyx"],
                depends=[
                    str(part) for part in Path("jsync/_fast_parts").rglob("*.pxi")
                ],
                extra_compile_args=arguments,
                libraries=["ws2_32"] if sys.platform == "win32" else [],
            )
        ],
        compiler_directives=directives,
        annotate=DEBUG,
        emit_linenums=DEBUG,  # a sanitizer names the lines of the sources
    ),
)
