"""Tests of `shared_connection`: one connection for each process and set of options."""

from __future__ import annotations

import contextlib
import queue
import socket
from typing import TYPE_CHECKING

import pytest

import jsync
from jsync import errors

from ..support.processes import run_child
from ..support.threads import LONG, Thread
from ..support.windows import needs_fork, needs_signals

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jsync.server import LocalServer

THREADS = 6


@pytest.fixture
def url(server: LocalServer) -> Iterator[str]:
    """A URL without a shared connection."""
    yield server.url
    jsync.shared_connection(server.url).close()


def test_all_threads_get_the_same_connection(url: str) -> None:
    calls = [Thread(jsync.shared_connection, url) for _ in range(THREADS)]
    connection = jsync.shared_connection(url)
    assert connection is jsync.shared_connection(servers=url)
    assert {id(call.result()) for call in calls} == {id(connection)}


def test_only_the_servers_may_be_positional(url: str) -> None:
    with pytest.raises(TypeError, match="positional"):
        jsync.shared_connection(url, "name")  # type: ignore[call-arg]


def test_other_options_get_another_connection(url: str) -> None:
    one = jsync.shared_connection(url)
    with jsync.shared_connection(url, name="other") as other:
        assert other is not one
        assert other is jsync.shared_connection(url, name="other")


def test_a_closed_connection_is_replaced(url: str) -> None:
    one = jsync.shared_connection(url)
    one.close()
    other = jsync.shared_connection(url)
    assert other is not one
    assert other.is_connected


def test_waiting_threads_share_one_failed_attempt() -> None:
    with silent_server() as (url, guests):
        calls = [Thread(connect_patiently, url) for _ in range(THREADS)]
        first = guests.get(timeout=LONG)
        for call in calls:
            call.wait_until_blocked()
        first.close()
        found = [call.error() for call in calls]
        assert {type(error) for error in found} == {errors.ConnectionError}
        assert len(set(map(id, found))) == THREADS
        assert guests.empty()
        later = Thread(connect_patiently, url)
        guests.get(timeout=LONG).close()
        assert isinstance(later.error(), errors.ConnectionError)


def connect_patiently(url: str) -> jsync.Connection:
    return jsync.shared_connection(url, connect_timeout=LONG)


@contextlib.contextmanager
def silent_server() -> Iterator[tuple[str, queue.Queue[socket.socket]]]:
    """A server that sends nothing, and a queue of the connections to it."""
    guests: queue.Queue[socket.socket] = queue.Queue()

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                guests.put(listener.accept()[0])

    with socket.create_server(("127.0.0.1", 0)) as listener:
        accepting = Thread(accept)
        try:
            yield f"nats://127.0.0.1:{listener.getsockname()[1]}", guests
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            accepting.result()


@needs_fork
def test_a_forked_child_gets_another_connection(url: str, unique: str) -> None:
    script = """
        import os, sys, threading
        import jsync

        url, subject = sys.argv[1:]
        nc = jsync.shared_connection(url)
        stop = threading.Event()

        def call():  # holds the locks at the moment of a fork
            while not stop.is_set():
                jsync.shared_connection(url)

        calling = threading.Thread(target=call)
        calling.start()
        for _ in range(20):
            child = os.fork()
            if child == 0:
                own = jsync.shared_connection(url)
                assert own is not nc and own is jsync.shared_connection(url)
                own.publish(subject, b"x")
                own.flush()
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
        stop.set()
        calling.join()
        assert nc is jsync.shared_connection(url)
        nc.flush()
        """
    with jsync.shared_connection(url).subscribe(unique) as messages:
        run_child(script, url, unique)
        assert len([messages.next() for _ in range(20)]) == 20


def test_messages_arrive_before_the_process_exits(url: str, unique: str) -> None:
    script = """
        import sys
        import jsync

        url, subject = sys.argv[1:]
        for number in range(1000):
            jsync.shared_connection(url).publish(subject, b"%d" % number)
        """
    with jsync.shared_connection(url).subscribe(unique) as messages:
        run_child(script, url, unique)
        assert [int(messages.next().data) for _ in range(1000)] == list(range(1000))


@needs_signals
def test_a_signal_handler_may_connect_meanwhile(server: LocalServer) -> None:
    script = """
        import signal, socket, sys, threading
        import jsync

        in_handler, found = threading.Event(), []
        main = threading.get_ident()

        def dial(host, port, timeout):
            if not in_handler.is_set():
                signal.pthread_kill(main, signal.SIGUSR1)
                in_handler.wait()
            return socket.create_connection((host, port), timeout)

        def handle(*_):
            in_handler.set()
            found.append(jsync.shared_connection(sys.argv[1], dialer=dial))

        signal.signal(signal.SIGUSR1, handle)
        nc = jsync.shared_connection(sys.argv[1], dialer=dial)
        assert found == [nc]
        nc.flush()
        """
    run_child(script, server.url)


def test_options_new_in_each_call_warn_once(url: str) -> None:
    script = """
        import sys, warnings
        import jsync

        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for _ in range(30):
                jsync.shared_connection(sys.argv[1], on_error=lambda error: None)
        (warning,) = caught
        assert "define callables such as on_error once" in str(warning.message)
        assert warning.category is RuntimeWarning
        """
    run_child(script, url)
