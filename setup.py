"""Builds `jsync._fast`. Everything else is in pyproject.toml."""

import os

from Cython.Build import cythonize
from setuptools import Extension, setup

DEBUG = bool(os.environ.get("JSYNC_DEBUG"))

directives = {
    "language_level": "3",
    # Off until a free-threaded interpreter has run barrier tests.
    "freethreading_compatible": False,
    "embedsignature": True,
    "embedsignature.format": "python",
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
                extra_compile_args=["-O1", "-g3", "-UNDEBUG"]
                if DEBUG
                else ["-O3", "-g0"],
            )
        ],
        compiler_directives=directives,
        annotate=DEBUG,
    )
)
