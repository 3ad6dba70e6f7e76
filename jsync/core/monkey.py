"""Processes that gevent has patched, where threads are greenlets and sockets belong to them.

The I/O thread stays a thread of the operating system, with sockets of the operating system.
Code of the user runs in greenlets, as every other thread of such a process does.
"""

from __future__ import annotations

import importlib
import queue
import sys
import threading
from typing import TYPE_CHECKING, Any

from .._fast import HandoffQueue
from ..errors import ConfigError
from .sync import ForkSafeRLock

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from types import ModuleType


def _gevent_monkey() -> ModuleType | None:
    return sys.modules.get("gevent.monkey")


def is_patched() -> bool:
    """Return whether the threads of this process are greenlets."""
    # Another thread may be importing gevent, and has patched nothing then.
    is_module_patched = getattr(_gevent_monkey(), "is_module_patched", None)
    return is_module_patched is not None and bool(is_module_patched("threading"))


def original(module: str, name: str) -> Any:
    """Return what a module of the standard library has, even if gevent has replaced it."""
    get_original = getattr(_gevent_monkey(), "get_original", None)
    if get_original is None:
        return getattr(importlib.import_module(module), name)
    return get_original(module, name)


native_ident: Callable[[], int] = original("_thread", "get_ident")
"""Returns the number of the calling thread, the same for all its greenlets."""
_start_new_thread: Callable[..., int] = original("_thread", "start_new_thread")


def check_supported() -> None:
    """Raise `ConfigError` in a process where calls would stop all others."""
    patcher = sys.modules.get("eventlet.patcher")
    if patcher is not None and any(
        patcher.is_monkey_patched(module) for module in ("socket", "thread", "select")
    ):
        raise ConfigError(
            "eventlet has patched sockets or threads in this process: jsync waits on real "
            "threads, which would stop every green thread. The authors of eventlet advise "
            "against new uses of it, so jsync supports gevent instead. Use gevent or threads"
        )
    if is_patched() and not getattr(sys, "_is_gil_enabled", lambda: True)():
        raise ConfigError(
            "gevent has patched the threads of this process, which jsync supports only on "
            "a Python with a GIL"
        )


def main_hub() -> Any | None:
    """Return the hub of gevent in which callbacks run: that of a patched main thread."""
    if not is_patched():
        return None
    from gevent.hub import (  # noqa: PLC0415 (imported already)
        MAIN_THREAD_IDENT,
        get_hub,
    )

    return get_hub() if native_ident() == MAIN_THREAD_IDENT else None


def start_greenlet(hub: Any, name: str, run: Callable[[], object]) -> threading.Thread:
    """Start a thread of the patched `threading` in `hub`, from any thread."""
    from gevent import spawn_raw  # noqa: PLC0415 (imported already)

    loop = hub.loop
    if loop is None:
        raise RuntimeError("the hub of gevent has ended")
    thread = threading.Thread(target=run, name=name, daemon=True)
    loop.run_callback_threadsafe(spawn_raw, thread.start)
    return thread


def lock_for_waits() -> AbstractContextManager[object]:
    """Return a re-entrant lock that its owner may hold while it waits.

    A greenlet that waits for this lock lets the others run, among them its owner. The lock
    of a thread would be the lock of all its greenlets.
    """
    if not is_patched():
        return ForkSafeRLock()
    from gevent.lock import RLock  # noqa: PLC0415 (imported already)

    lock: AbstractContextManager[object] = RLock()
    return lock


def _end_hub() -> None:
    """End the hub that code of the user, such as a log handler, has made for this thread."""
    # Never import gevent here: few processes use it, and many do not have it.
    get_hub = getattr(sys.modules.get("gevent._hub_local"), "get_hub_if_exists", None)
    if get_hub is not None and (hub := get_hub()) is not None:
        hub.destroy(destroy_loop=True)


class NativeThread:
    """A thread of the operating system, also where gevent has patched `threading`."""

    def __init__(self, run: Callable[[], object], name: str) -> None:
        self._target = run
        self._name = name
        self._ended: HandoffQueue[None] = HandoffQueue()
        self._is_alive = False

    def start(self) -> None:
        self._is_alive = True
        try:
            _start_new_thread(self._run, ())
        except BaseException:
            self._is_alive = False
            raise

    def _run(self) -> None:
        try:
            self._target()
        finally:
            _end_hub()
            self._is_alive = False
            self._ended.put(None)

    def is_alive(self) -> bool:
        return self._is_alive

    def join(self, timeout: float) -> None:
        """Wait for the end, at most `timeout` seconds. A greenlet lets the others run."""
        if not self._is_alive:
            return
        try:
            self._ended.get(timeout)
        except queue.Empty:
            return
        self._ended.put(None)  # for others who wait

    def __repr__(self) -> str:
        return f"<NativeThread {self._name} {'alive' if self._is_alive else 'ended'}>"
