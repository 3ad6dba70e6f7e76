"""Changes of Python files below a directory, for development."""

from __future__ import annotations

import contextlib
import logging
import threading
from typing import TYPE_CHECKING

from ..errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

logger = logging.getLogger("jsync.worker")


@contextlib.contextmanager
def watch_files(directory: str, changed: Callable[[], object]) -> Iterator[None]:
    """Call `changed` after each change of a Python file, on a thread, while the block runs.

    Changes within a short time cause one call. Virtual environments are left out.

    Args:
        directory: The directory, with all that is in it.
        changed: Called without arguments.

    Raises:
        ConfigError: The extra `reload` is not installed.
    """
    try:
        from watchfiles import PythonFilter, watch  # noqa: PLC0415 (an extra)
    except ImportError:
        raise ConfigError(
            'reload needs the package watchfiles; run pip install "jsync[reload]"'
        ) from None
    over = threading.Event()

    def run() -> None:
        for changes in watch(
            directory,
            watch_filter=PythonFilter(),
            debounce=300,
            stop_event=over,
            rust_timeout=1000,
        ):
            names = ", ".join(sorted({path for _, path in changes}))
            logger.info("%s changed, so each process is replaced", names)
            changed()

    thread = threading.Thread(target=run, name="jsync-worker-reload", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
