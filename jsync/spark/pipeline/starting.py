"""Starting what needs a Python worker, again if the worker did not connect in time.

Spark starts the reader of a Python source in a process of its own, and gives it ten seconds.
A busy machine can need longer. Nothing has been read or written by then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

if TYPE_CHECKING:
    from collections.abc import Callable

    T = TypeVar("T")

STARTS: Final = 6
"""How often a query is started before the error of its worker is told."""
TOO_LATE: Final = "Python worker failed to connect back"
"""The text of Spark's error about a Python worker that starts too late."""


def started(start: Callable[[], T]) -> T:
    """Return the result of `start`, called again if a Python worker did not connect.

    Args:
        start: A call that may be made twice.
    """
    for _ in range(STARTS - 1):
        try:
            return start()
        except (PySparkException, Py4JError) as error:
            if TOO_LATE not in str(error):
                raise
    return start()
