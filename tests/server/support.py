"""Shared parts of the tests of the connection: fake servers, threads and child processes."""

from __future__ import annotations

import contextlib
import queue
import socket
import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from ..proxy import SCHEME

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType
    from typing import Self

    import jsync

Result = TypeVar("Result")

LONG = 90.0
"""A timeout that no healthy test waits for."""
SOON = 20.0
"""The time limit for calls with the timeout `LONG`: generous, but well below it."""


class Thread(Generic[Result]):
    """A call on another thread."""

    def __init__(self, function: Callable[..., Result], *args: object) -> None:
        self._future: Future[Result] = Future()

        def run() -> None:
            try:
                self._future.set_result(function(*args))
            except BaseException as error:  # noqa: BLE001 - it belongs to who asks
                self._future.set_exception(error)

        self._thread = threading.Thread(target=run, daemon=True)
        self._thread.start()

    @property
    def ended(self) -> bool:
        return self._future.done()

    def result(self) -> Result:
        """Wait for the end of the call. Return its result, or raise its error."""
        result = self._future.result(SOON)
        self._thread.join(SOON)
        return result

    def error(self) -> BaseException | None:
        """Wait for the end of the call, and return its error."""
        error = self._future.exception(SOON)
        self._thread.join(SOON)
        return error

    def wait_until_blocked(self) -> None:
        """Block until the call waits for something."""
        wait_until_blocked(self._thread, lambda: self.ended)


def wait_until_blocked(
    thread: threading.Thread,
    ended: Callable[[], bool] = lambda: False,
    progress: Callable[[], object] = lambda: None,
) -> None:
    """Block until a thread has stood still for 50 ms, or has ended.

    `progress` returns a value that changes when the thread gets on. The thread is looked at
    before and after the 50 ms: on a busy machine the sleep can last longer, while the thread
    runs.
    """
    seen: object = None
    since = time.monotonic()
    deadline = since + SOON
    while not ended():
        where = whereabouts(thread)
        now = where and (where, progress())
        if now is None or now != seen:
            seen, since = now, time.monotonic()
        elif time.monotonic() >= since + 0.05:
            return
        if time.monotonic() > deadline:
            raise TimeoutError("the thread does not block")
        time.sleep(0.005)


def whereabouts(thread: threading.Thread) -> object:
    """Return a value that changes when a thread runs, or None if the thread is running or ready."""
    frame = sys._current_frames().get(thread.ident or 0)
    if frame is None:
        return None
    # On a busy machine a thread can stand still without a processor. The counts of the kernel
    # tell. A thread that waits for the GIL wakes up every few milliseconds.
    switches = ""
    with contextlib.suppress(OSError):
        status = Path(f"/proc/self/task/{thread.native_id}/status").read_text()
        if "\nState:\tR" in status:
            return None
        switches = status[status.index("\nvoluntary_ctxt_switches") :]
    return frame.f_code, frame.f_lasti, switches


class Recorder:
    """A callback that records its arguments and the thread that called it."""

    def __init__(self) -> None:
        self.calls: queue.SimpleQueue[tuple[tuple[Any, ...], threading.Thread]] = (
            queue.SimpleQueue()
        )

    def __call__(self, *args: Any) -> None:
        self.calls.put((args, threading.current_thread()))

    def get(self) -> Any:
        """Wait for the next call, and return its argument, or None if it has none."""
        args, _ = self.calls.get(timeout=SOON)
        return args[0] if args else None

    def thread(self) -> threading.Thread:
        """Wait for the next call, and return its thread."""
        return self.calls.get(timeout=SOON)[1]

    @property
    def waiting(self) -> int:
        """The number of calls that `get` has not returned yet."""
        return self.calls.qsize()


def works(nc: jsync.Connection) -> bool:
    """Return whether a message comes back."""
    with nc.subscribe("does.it.work") as sub:
        nc.publish("does.it.work", b"yes")
        return sub.next().data == b"yes"


@contextlib.contextmanager
def black_hole() -> Iterator[str]:
    """The URL of a server that accepts connections and never sends anything."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"{SCHEME}://127.0.0.1:{listener.getsockname()[1]}"


@contextlib.contextmanager
def stranger(*replies: bytes) -> Iterator[str]:
    """The URL of a server that sends one of `replies` to each connection, and then the last one."""
    listener = socket.create_server(("127.0.0.1", 0))
    guests: list[socket.socket] = []
    over = threading.Event()

    def serve() -> None:
        for number in range(1 << 30):
            with contextlib.suppress(OSError):
                guest, _ = listener.accept()
                guests.append(guest)
                if over.is_set():
                    return
                guest.sendall(replies[min(number, len(replies) - 1)])
                continue
            return

    thread = Thread(serve)
    try:
        yield f"nats://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        over.set()
        # Linux ends `accept` at a shutdown, Windows at a close, and both at a connection.
        socket.create_connection(listener.getsockname()).close()
        thread.result()
        listener.close()
        for guest in guests:
            guest.close()


def refusing_url() -> str:
    """Return the URL of a port without a listener, which no other program gets."""
    sock = socket.socket()
    # This option allows a test to start a server on the port.
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind(("127.0.0.1", 0))
    url = f"{SCHEME}://127.0.0.1:{sock.getsockname()[1]}"
    sock.detach()  # the socket keeps its port while this process runs
    return url


class Child:
    """A Python process that runs `script`. It is killed if it still runs at the end.

    The script imports the same jsync as this process. `args` are its `sys.argv[1:]`.
    """

    # Python warns of each fork beside other threads. Some scripts test exactly that.
    STRICT = ("-W", "error", "-W", "ignore:This process:DeprecationWarning")

    def __init__(
        self,
        script: str,
        *args: object,
        options: tuple[str, ...] = STRICT,
        patience: float = LONG,
    ) -> None:
        self.process = subprocess.Popen(
            [
                *(sys.executable, *options, "-c", textwrap.dedent(script)),
                *(str(arg) for arg in args),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._watchdog = threading.Timer(patience, self.process.kill)
        self._watchdog.daemon = True
        self._watchdog.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._watchdog.cancel()
        self.process.kill()
        self.process.communicate()
        self._watchdog.join()

    @property
    def pid(self) -> int:
        return self.process.pid

    def line(self) -> str:
        """Return the next line of its output, or an empty one at the end."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def go_on(self) -> None:
        """Write a line to its input."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def finish(self) -> tuple[int, str, str]:
        """Wait for its end. Return the exit code, and the remaining output and errors."""
        output, errors = self.process.communicate(timeout=LONG)
        return self.process.returncode, output, errors


def run_child(script: str, *args: object) -> str:
    """Run `script` in another process, check that it succeeds, and return its output."""
    with Child(script, *args) as child:
        code, output, errors = child.finish()
    assert (code, errors) == (0, ""), f"exit code {code}\n{output}\n{errors}"
    return output


def connection_of(js: jsync.JetStream) -> jsync.Connection:
    """Return the connection of `js`."""
    return cast("jsync.Connection", js._api.owner)


class Interrupting(dict[Any, Any]):
    """A table of legal moves that lets another thread run between the check and the move."""

    def __init__(self, table: dict[Any, Any], state: object) -> None:
        super().__init__(table)
        self.state = state
        self.call: Callable[[], object] | None = None
        self.thread: Thread[object] | None = None

    def __getitem__(self, state: object) -> Any:
        found = super().__getitem__(state)
        if state is self.state and self.call is not None:
            call, self.call = self.call, None
            self.thread = Thread(call)
            self.thread._thread.join(0.3)  # the thread ends now, or waits for its turn
        return found
