"""Builds `jsync._fast`. Everything else is in pyproject.toml."""

import os
import sys

from Cython.Build import cythonize
from setuptools import Extension, setup

DEBUG = bool(os.environ.get("JSYNC_DEBUG"))

if sys.platform == "win32":  # Microsoft's compiler
    arguments = ["/Od", "/Z7", "/UNDEBUG"] if DEBUG else ["/O2"]
else:
    arguments = ["-O1", "-g3", "-UNDEBUG"] if DEBUG else ["-O3", "-g0"]

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
    ext_modules=cythonize(
        [
            Extension(
                "jsync._fast",
                ["jsync/_fast.pyx"],
                depends=["jsync/_fast_parts"],
                extra_compile_args=arguments,
                libraries=["ws2_32"] if sys.platform == "win32" else [],
            )
        ],
        compiler_directives=directives,
        annotate=DEBUG,
        emit_linenums=DEBUG,  # a sanitizer names the lines of the sources
    )
)
