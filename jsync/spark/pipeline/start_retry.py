"""Start what needs a Python worker, and retry if the worker did not connect in time.

Spark starts its Python workers in separate processes, and gives each ten seconds. A busy
machine can need longer. A retry is safe, because nothing was read or written yet.
"""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Final, TypeVar

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

if TYPE_CHECKING:
    from collections.abc import Callable

    T = TypeVar("T")

START_SECONDS: Final = 900.0
"""Seconds to retry a start. A Python that can never start fails in the same way."""
WORKER_TIMEOUT: Final = "Python worker failed to connect back"
"""The text of Spark's error about a Python worker that starts too late."""
RETRYING: Final = "a Python worker of Spark did not start within 10 s: starting again"
_JOB_STARTED: Final = "Job aborted"
"""The text of Spark's error about a job whose tasks have begun."""


def is_late(error: BaseException) -> bool:
    """Return whether a Python worker did not connect in time."""
    return isinstance(error, PySparkException | Py4JError) and WORKER_TIMEOUT in str(
        error
    )


def failed_to_start(error: BaseException) -> bool:
    """Return whether a Python worker did not connect in time, and no task has begun."""
    return is_late(error) and _JOB_STARTED not in str(error)


def start_with_retry(
    start: Callable[[], T],
    *,
    is_retried: Callable[[BaseException], bool] = is_late,
    is_stopped: Callable[[], bool] = lambda: False,
    say: Callable[[str], object] = lambda _: None,
    seconds: float = START_SECONDS,
) -> T:
    """Return the result of `start`, and retry while a Python worker does not connect.

    Args:
        start: A call that may be repeated.
        is_retried: Returns whether to retry after an error.
        is_stopped: If it returns true, the last error is raised.
        say: Called with a message before each retry.
        seconds: The time after which the last error is raised.
    """
    until = monotonic() + seconds
    while True:
        try:
            return start()
        except (PySparkException, Py4JError) as error:
            if not is_retried(error) or is_stopped() or monotonic() >= until:
                raise
        say(RETRYING)
