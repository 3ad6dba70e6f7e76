"""Servers that never answer, or send what a test says, and questions about a connection."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import TYPE_CHECKING, cast

from .proxy import SCHEME
from .threads import Thread

if TYPE_CHECKING:
    from collections.abc import Iterator

    import jsync


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
def canned_server(*replies: bytes) -> Iterator[str]:
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


def connection_of(js: jsync.JetStream) -> jsync.Connection:
    """Return the connection of `js`."""
    return cast("jsync.Connection", js._api.owner)
