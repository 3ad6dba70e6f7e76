"""Health and metrics over HTTP: `/livez`, `/readyz` and `/metrics`."""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, ClassVar, Protocol

from ..errors import ConfigError, Error
from ..metrics import CONTENT_TYPE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

logger = logging.getLogger("jsync.http")


class HealthSource(Protocol):
    """The methods of the supervisor that the server needs."""

    def is_alive(self) -> bool:
        """Return whether all processes are alive."""

    def is_ready(self) -> bool:
        """Return whether enough processes handle messages."""

    def metrics(self) -> str:
        """Return the counts as Prometheus text."""


def parse_address(text: str) -> tuple[str, int]:
    """Split `HOST:PORT`.

    Raises:
        ConfigError: The text is not `HOST:PORT`.
    """
    host, colon, port = text.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise ConfigError(
            f"http has to be HOST:PORT, such as 127.0.0.1:8080, not {text!r}"
        )
    return host.strip("[]") or "0.0.0.0", int(port)  # noqa: S104 (as ":8080" says)


@contextlib.contextmanager
def serve(
    address: tuple[str, int],
    source: HealthSource,
    page: Callable[[], str] | None = None,
) -> Iterator[int]:
    """Serve on an address while the block runs, and yield the port. Port 0: any.

    Args:
        address: The host and the port.
        source: Answers the three paths. An `Error` that it raises is answered with 503.
        page: Returns the HTML of `/`. Default: there is no page.
    """
    paths = "/livez, /readyz or /metrics"
    if page is not None:
        paths = f"/, {paths}"

    class Handler(BaseHTTPRequestHandler):
        timeout: ClassVar[float | None] = 10.0
        server_version = "jsync"
        sys_version = ""

        def do_GET(self) -> None:
            try:
                self._answer(self.path.partition("?")[0])
            except Error as error:
                logger.warning("%s is not answered: %s", self.path, error)
                self._send(503, f"{error}\n")

        def _answer(self, path: str) -> None:
            match path:
                case "/" if page is not None:
                    self._send(200, page(), "text/html; charset=utf-8")
                case "/livez":
                    self._say_whether(source.is_alive())
                case "/readyz":
                    self._say_whether(source.is_ready())
                case "/metrics":
                    self._send(200, source.metrics(), CONTENT_TYPE)
                case _:
                    self._send(404, f"{paths}\n")

        def do_HEAD(self) -> None:
            self.do_GET()

        def _say_whether(self, well: bool) -> None:
            self._send(200 if well else 503, "ok\n" if well else "not ok\n")

        def _send(self, code: int, text: str, kind: str = "text/plain") -> None:
            body = text.encode()
            self.send_response(code)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Log nothing, because probes come all the time."""

    class Server(ThreadingHTTPServer):
        address_family: int = socket.AF_INET6 if ":" in address[0] else socket.AF_INET

    with Server(address, Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(
            target=server.serve_forever, name="jsync-worker-http", daemon=True
        )
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()
