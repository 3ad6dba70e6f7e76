"""A campaign against services: callers, handlers that raise, answer twice or wait, kills, cuts, drains.

The judge compares each answer with the request, and the statistics of the instances with the calls.
"""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING

import jsync
from jsync import errors

from ..support.connection_faults import Events, connect
from ..support.proxy import FaultProxy
from ..support.servers import wait_for
from ..support.threads import Thread

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from ..conftest import StartServer
    from ..support.campaign import Campaign

ALLOWED = (
    *(errors.ConnectionLostError, errors.NoRespondersError, errors.TimeoutError),
)
"""How a call may end besides with the answer of its handler."""
TIMEOUT = 10.0
CALLERS = 6


def handle(request: jsync.Request) -> bytes | None:
    """Answer, fail, or do both, as the request says."""
    match request.data.split()[0]:
        case b"raise":
            raise LookupError("not for the caller")
        case b"error":
            request.error(404, request.data.decode())
        case b"twice":
            request.error(404, request.data.decode())
            raise LookupError("after the answer")
        case b"slow":
            time.sleep(0.05)
    if request.data.startswith(b"error"):
        return None
    return request.data[::-1]


class Caller:
    """A thread that calls the service again and again, and checks each answer."""

    def __init__(
        self, nc: jsync.Connection, dice: Random, over: threading.Event
    ) -> None:
        self.done = 0
        self.slowest = 0.0
        self._nc, self._dice, self._over = nc, dice, over
        self.thread = Thread(self._run)

    def _run(self) -> None:
        kinds = ["ok"] * 6 + ["raise", "error", "twice", "slow"]
        number = 0
        while not self._over.is_set():
            number += 1
            kind = self._dice.choice(kinds)
            data = f"{kind} {id(self)} {number}".encode()
            begun = time.monotonic()
            try:
                self._check(kind, data)
            except ALLOWED:
                pass
            else:
                self.done += 1
            self.slowest = max(self.slowest, time.monotonic() - begun)

    def _check(self, kind: str, data: bytes) -> None:
        if kind == "twice":
            answers = [
                *self._nc.request_many("work", data, timeout=TIMEOUT, stall=0.05)
            ]
            codes = [
                (answer.headers or jsync.Headers()).get("Nats-Service-Error-Code")
                for answer in answers
            ]
            assert codes in (["404"], ["503"], []), codes
            return
        try:
            msg = self._nc.services.call("work", data, timeout=TIMEOUT)
            answer = f"200: {msg.data.decode()}"
        except errors.ServiceError as error:
            answer = str(error)
        expected = {
            "raise": "500: LookupError",
            "error": f"404: {data.decode()}",
        }.get(kind, f"200: {data[::-1].decode()}")
        # An instance that was stopping has refused the request.
        assert answer == expected or answer.startswith("503: stopping"), answer


def test_calls_end_in_an_answer_or_typed_error(
    own_server: StartServer, campaign: Campaign
) -> None:
    server, dice, over = own_server(), campaign.random(), threading.Event()
    with (
        FaultProxy("127.0.0.1", server.port) as proxy,
        connect(proxy.url, Events()) as host,
        connect(server.url, Events()) as nc,
        contextlib.ExitStack() as stack,
    ):

        def begin() -> jsync.Service:
            service = host.service("work", "1.0.0")
            # The result of a function with an annotation would be sent as JSON.
            service.endpoint("work", workers=3)(lambda request: handle(request))  # noqa: PLW0108
            return service

        services = [stack.enter_context(begin()) for _ in "12"]
        host.flush()
        callers = [
            Caller(nc, campaign.random(number), over) for number in range(CALLERS)
        ]
        stack.callback(over.set)

        def kill_the_server() -> None:
            server.kill()
            server.start()

        def cut_the_host() -> None:
            proxy.cut()

        def replace_an_instance() -> None:
            old = services.pop(0)
            services.append(stack.enter_context(begin()))
            host.flush()
            with contextlib.suppress(errors.TimeoutError, errors.ConnectionError):
                old.stop(timeout=TIMEOUT)

        def wait_a_little() -> None:
            time.sleep(dice.random() / 5)

        faults: list[Callable[[], None]] = [
            *(kill_the_server, cut_the_host, replace_an_instance, wait_a_little),
        ]
        for _ in campaign.rounds():
            before = [caller.done for caller in callers]
            wait_for(
                lambda before=before: all(  # type: ignore[misc]
                    caller.done > count + 5 or caller.thread.ended
                    for caller, count in zip(callers, before, strict=True)
                )
            )
            for caller in callers:
                if caller.thread.ended:
                    caller.thread.result()
            fault = dice.choice(faults)
            print(fault.__name__)  # noqa: T201 (pytest shows it if the test fails)
            with contextlib.suppress(errors.ConnectionError):
                fault()
        over.set()
        for caller in callers:
            caller.thread.result()
            assert caller.slowest < 2 * TIMEOUT
        # Each running instance answers, and has counted no error twice.
        wait_for(lambda: len(list(nc.services.ping("work", timeout=0.5))) == 2)
        for service in services:
            (stats,) = service.stats().endpoints
            assert stats.num_errors <= stats.num_requests
