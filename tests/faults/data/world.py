"""Operators who run the command and are interrupted, and a second writer beside them."""

from __future__ import annotations

import os
import resource
import signal
import tempfile
import threading
import time
from multiprocessing.connection import wait
from pathlib import Path
from typing import TYPE_CHECKING, Final

from jsync import errors

from ...support.proxy import FaultProxy
from ...support.servers import wait_for
from ...support.threads import LONG, Thread
from .command import start

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from random import Random
    from typing import Self

    import jsync
    from jsync.server import LocalServer

NONE: Final = ("none",)
KILLS: Final = ("kill", "interrupt")
CUTS: Final = (*KILLS, "cut")
DISK: Final = (*CUTS, "full disk")
DELAY: Final = 0.005
"""The delay of commands that wait for an answer to each part of what they send."""
DELETED: Final = 20
"""The writer deletes every message with a number of this kind."""


class Writer:
    """Publishes to a stream all the time, and keeps what was acknowledged."""

    def __init__(self, js: jsync.JetStream, subject: str) -> None:
        self.acked: dict[int, bytes] = {}
        """The payloads, by sequence."""
        self._js, self._subject = js, subject
        self._over = threading.Event()
        self._thread = Thread(self._run)

    def _run(self) -> None:
        stream = self._js.stream(self._js.stream_name_by_subject(self._subject))
        number = 0
        while not self._over.wait(0.003):
            number += 1
            data = b"writer %d" % number
            try:
                sequence = self._js.publish(self._subject, data).seq
            except errors.APIError:  # the stream is full
                continue
            self.acked[sequence] = data
            if number % DELETED == 0:
                stream.delete_message(sequence)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.result()

    def kept(self) -> dict[int, bytes]:
        """Return what the stream holds from now on for sure: all that it does not delete."""
        acked = self.acked.copy()
        return {
            sequence: data
            for sequence, data in acked.items()
            if int(data.split()[1]) % DELETED
        }


class Operator:
    """A run of the command, through a proxy of its own."""

    def __init__(self, server: LocalServer, delay: float, *arguments: str) -> None:
        self.proxy = FaultProxy("127.0.0.1", server.port)
        self.proxy.delay(delay)
        self._errors = Path(tempfile.mkstemp()[1])
        self._process = start(self._errors, "--server", self.proxy.url, *arguments)
        assert self._process.pid is not None
        self._pid = self._process.pid

    def close(self) -> None:
        self._process.kill()
        self._process.join()
        self.proxy.close()
        self._errors.unlink()

    def _has_ended(self) -> bool:
        # `is_alive` would take the exit code from another thread that asks at that moment.
        return bool(wait([self._process.sentinel], 0))

    def wait_for_bytes(self, size: int) -> None:
        """Block until that many bytes have passed, or the run has ended."""
        deadline = time.monotonic() + LONG
        while sum(self.proxy.bytes_to.values()) < size and not self._has_ended():
            assert time.monotonic() < deadline, "the command is stuck"
            time.sleep(0.001)

    def hurt(self, rng: Random, faults: tuple[str, ...], size: int) -> str:
        """Have something happen within the first bytes, and return its name."""
        fault = rng.choice(faults)
        at = rng.randrange(1, size)
        if fault == "cut":
            self.proxy.cut_after(at, rng.choice(("client", "server")))
        elif fault == "full disk":
            resource.prlimit(self._pid, resource.RLIMIT_FSIZE, (at, at))
        elif fault != "none":
            self.wait_for_bytes(at)
            if not self._has_ended():
                os.kill(self._pid, signal.SIGKILL if fault == "kill" else signal.SIGINT)
        return fault

    def end(self) -> tuple[int, str]:
        """Wait until the run has ended and the server knows it. Return its code and errors."""
        self._process.join(LONG)
        wait_for(lambda: self.proxy.connected == 0)
        assert self._process.exitcode is not None, "the command is stuck"
        return self._process.exitcode, self._errors.read_text()


def run(
    server: LocalServer,
    rng: Random,
    faults: tuple[str, ...],
    size: int,
    *commands: tuple[str, ...],
    beside: Callable[[Operator], object] = lambda _: None,
    delay: float = 0.0,
) -> list[tuple[int, str]]:
    """Run commands at once, and hurt the first. Return the exit codes and the errors.

    With a `delay` on their way, a kill meets them before their end.
    """
    operators = [Operator(server, delay, *command) for command in commands]
    try:
        other = Thread(beside, operators[0])
        fault = operators[0].hurt(rng, faults, size)
        ended = [each.end() for each in operators]
        other.result()
    finally:
        for each in operators:
            each.close()
    told = [(code, words.strip()[-300:]) for code, words in ended]
    print(commands[0][0], fault, told)  # noqa: T201 (pytest shows it if the test fails)
    assert not any("Traceback" in words for _, words in ended), ended
    return ended


def messages_of(stream: jsync.Stream) -> Iterator[jsync.JetStreamMsg]:
    """Read what the stream holds."""
    with stream.ordered_consumer().messages(until_end=True) as messages:
        yield from messages


def pause() -> None:
    """Wait longer than the shortest duplicate window, as an operator does."""
    time.sleep(0.15)
