"""Tests of services with killed servers, cut connections, forked processes and Ctrl-C."""

from __future__ import annotations

import signal
import threading
from typing import TYPE_CHECKING

import pytest

import jsync
from jsync import errors

from ...support.connection_faults import Events, connect
from ...support.processes import Child, run_child
from ...support.servers import wait_for
from ...support.threads import LONG, Thread
from .support import Slow

if TYPE_CHECKING:
    from jsync.server import LocalServer

    from ...conftest import StartServer
    from ...support.proxy import FaultProxy

pytestmark = pytest.mark.server


class Caller:
    """A thread that calls a service repeatedly, and records how each call ended."""

    def __init__(self, nc: jsync.Connection, subject: str, number: int) -> None:
        self.answered = 0
        self.failed: list[Exception] = []
        self.over = False
        self._nc = nc
        self._subject = subject
        self._number = number
        self._thread = Thread(self._run)

    def _run(self) -> None:
        while not self.over:
            data = b"%d of %d" % (self.answered, self._number)
            try:
                msg = self._nc.services.call(self._subject, data, timeout=5)
            except (
                errors.Error
            ) as error:  # any other kind ends the thread, and the test
                self.failed.append(error)
            else:
                assert msg.data == data[::-1]
                self.answered += 1

    def end(self) -> None:
        self.over = True
        self._thread.result()


def test_each_call_ends_when_the_server_is_killed(
    own_server: StartServer,
) -> None:
    server = own_server()
    with (
        connect(server.url, Events()) as host,
        connect(server.url, Events()) as nc,
        host.service("orders", "1.0.0") as service,
    ):
        service.endpoint("echo", workers=4)(lambda request: request.data[::-1])
        host.flush()
        callers = [Caller(nc, "echo", number) for number in range(8)]
        for _ in range(2):
            answered = [caller.answered for caller in callers]

            def all_answered(before: list[int] = answered) -> bool:
                return all(
                    c.answered > count + 20
                    for c, count in zip(callers, before, strict=True)
                )

            wait_for(all_answered, 60)
            server.kill()
            server.start()
        answered = [caller.answered for caller in callers]
        wait_for(lambda: all_answered(answered), 60)
        for caller in callers:
            caller.end()
        allowed = (
            errors.ConnectionLostError,
            errors.NoRespondersError,
            errors.TimeoutError,
        )
        for caller in callers:
            assert all(isinstance(error, allowed) for error in caller.failed)
        # The same service is still running.
        assert [found.id for found in nc.services.ping("orders")] == [service.id]
        (stats,) = service.stats().endpoints
        assert stats.num_errors == 0
        assert stats.num_requests >= sum(caller.answered for caller in callers)


def test_answers_ready_during_a_cut_are_sent_afterwards(
    nc: jsync.Connection, proxy: FaultProxy, unique: str
) -> None:
    slow, events = Slow(), Events()
    with (
        connect(proxy.url, events) as host,
        host.service(unique, "1.0.0") as service,
    ):
        service.endpoint("slow", subject=unique)(slow)
        host.flush()
        call = Thread(nc.request, unique, b"answer")
        slow.wait_begun()
        proxy.refuse()
        proxy.cut()
        events.wait("disconnect")
        slow.go.set()
        wait_for(lambda: host.stats().unsent_bytes > 0)
        proxy.accept()
        assert call.result().data == b"answer"
        events.wait("reconnect")
        assert nc.request(unique, b"again").data == b"again"
        assert len(nc.services.ping(unique)) == 1


def test_a_service_begun_while_disconnected_answers_after_reconnecting(
    nc: jsync.Connection, proxy: FaultProxy, unique: str
) -> None:
    events = Events()
    with connect(proxy.url, events) as host:
        proxy.refuse()
        proxy.cut()
        events.wait("disconnect")
        with host.service(unique, "1.0.0") as service:
            service.endpoint("echo", subject=unique)(lambda request: request.data)
            proxy.accept()
            events.wait("reconnect")
            host.flush()
            assert nc.request(unique, b"x").data == b"x"


def test_a_stop_while_disconnected_waits_only_for_handlers(
    nc: jsync.Connection, proxy: FaultProxy, unique: str
) -> None:
    slow, events = Slow(), Events()
    with connect(proxy.url, events) as host:
        service = host.service(unique, "1.0.0")
        service.endpoint("slow", subject=unique)(slow)
        host.flush()
        nc.publish(unique)
        slow.wait_begun()
        proxy.refuse()
        proxy.cut()
        events.wait("disconnect")
        with pytest.raises(errors.DrainTimeoutError):
            service.stop(timeout=0.1)
        slow.go.set()
        assert service.wait(LONG)
        proxy.accept()
        events.wait("reconnect")
        host.flush()
        with pytest.raises(errors.NoRespondersError):
            nc.request(unique)


def test_a_lost_line_raises_in_calls_and_discoveries(
    proxy: FaultProxy, host: jsync.Connection, service: jsync.Service, unique: str
) -> None:
    slow, events = Slow(), Events()
    service.endpoint("slow", subject=unique)(slow)
    host.flush()
    with connect(proxy.url, events) as far:
        call = Thread(far.services.call, unique)
        slow.wait_begun()
        proxy.cut()
        assert isinstance(call.error(), errors.ConnectionLostError)
        slow.go.set()
        events.wait("reconnect")
        assert [found.id for found in far.services.ping(unique)] == [service.id]


def test_a_forked_child_cannot_use_its_parents_service(
    server: LocalServer, unique: str
) -> None:
    script = """
        import os, signal, sys
        import jsync
        from jsync import errors
        url, subject = sys.argv[1:]
        nc = jsync.connect(url)
        with nc.service(subject, "1.0.0") as service:
            service.endpoint("echo", subject=subject)(lambda request: request.data)
            assert nc.request(subject, b"1").data == b"1"
            calls = {
                "stop": service.stop,
                "wait": service.wait,
                "stats": service.stats,
                "reset": service.reset,
                "endpoint": lambda: service.endpoint("b")(lambda request: b""),
                "service": lambda: nc.service("b", "1.0.0"),
                "ping": nc.services.ping,
                "call": lambda: nc.services.call(subject),
            }
            pid = os.fork()
            if pid == 0:
                signal.alarm(10)
                for name, call in calls.items():
                    try:
                        call()
                        print(name, "returned", flush=True)
                    except errors.ForkedProcessError:
                        pass
                service.__exit__(None, None, None)
                os._exit(0)
            print(os.waitpid(pid, 0)[1])
            assert nc.request(subject, b"2").data == b"2"
            assert service.state.value == "running"
        nc.close()
    """
    assert run_child(script, server.url, unique).split() == ["0"]


SERVING = """
    import signal, sys, threading, time
    import jsync
    url, subject, how = sys.argv[1:]
    try:
        with jsync.connect(url) as nc, nc.service(subject, "1.0.0") as service:
            @service.endpoint("slow", subject=subject)
            def slow(request):
                print("begun", flush=True)
                sys.stdin.readline()
                return b"finished"
            if how == "handler":
                signal.signal(signal.SIGTERM, lambda *_: service.stop())
            nc.flush()
            print("ready", flush=True)
            service.wait()
            print("waited", flush=True)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    print(service.state.value, flush=True)
"""


@pytest.mark.parametrize(
    ("how", "number", "said"),
    [
        ("ctrl-c", signal.SIGINT, ["interrupted", "stopped"]),
        ("handler", signal.SIGTERM, ["waited", "stopped"]),
    ],
)
def test_a_signal_ends_services_after_their_running_requests(
    server: LocalServer,
    nc: jsync.Connection,
    unique: str,
    how: str,
    number: int,
    said: list[str],
) -> None:
    with Child(SERVING, server.url, unique, how) as child:
        assert child.line() == "ready"
        call = Thread(nc.request, unique)
        assert child.line() == "begun"
        child.process.send_signal(number)
        gone = threading.Event()

        def nobody() -> bool:
            try:
                nc.request(f"$SRV.PING.{unique}", timeout=LONG)
            except errors.NoRespondersError:
                gone.set()
            return gone.is_set()

        wait_for(nobody)  # the service is stopping
        child.send_line()
        assert call.result().data == b"finished"
        assert [child.line(), child.line()] == said
        code, _, complaints = child.finish()
        assert (code, complaints) == (0, "")


def test_a_second_ctrl_c_waits_for_no_handler(
    server: LocalServer, nc: jsync.Connection, unique: str
) -> None:
    with Child(SERVING, server.url, unique, "ctrl-c") as child:
        assert child.line() == "ready"
        nc.publish(unique)
        assert child.line() == "begun"
        child.process.send_signal(signal.SIGINT)

        def gone() -> bool:
            return nc.services.ping(unique) == []

        wait_for(gone)
        child.process.send_signal(signal.SIGINT)
        assert child.line() == "interrupted"
