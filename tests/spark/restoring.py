"""A server whose files can be restored to an older state, as after the loss of a disk."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

from jsync.server import LocalServer

if TYPE_CHECKING:
    from pathlib import Path

    import jsync


class Restorable:
    """A server with a backup of the files of its streams. Its port stays the same."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._streams = directory / "files/jetstream/$G/streams"
        self.server = LocalServer(store_dir=directory / "files")
        self.server.start()

    def back_up(self, *streams: str) -> None:
        """Copy the files of these streams while the server is down."""
        self.server.stop()
        for name in streams:
            shutil.copytree(self._streams / name, self._directory / name)
        self.server.start()

    def restore(self, *streams: str) -> None:
        """Restore the copies. The streams keep their times of creation."""
        self.server.stop()
        for name in streams:
            shutil.rmtree(self._streams / name)
            shutil.copytree(self._directory / name, self._streams / name)
        self.server.start()

    def close(self) -> None:
        self.server.stop()


class Snapshot:
    """A backup of a stream through the API, as `nats stream backup` makes it."""

    def __init__(self, nc: jsync.Connection, stream: str) -> None:
        self._nc = nc
        self._stream = stream
        self._chunks: list[bytes] = []
        inbox = f"snapshots.{stream}"
        with nc.subscribe(inbox) as chunks:
            wanted = json.dumps({"deliver_subject": inbox}).encode()
            reply = nc.request(f"$JS.API.STREAM.SNAPSHOT.{stream}", wanted)
            self._info = json.loads(reply.data)
            while (chunk := chunks.next(timeout=10)).data:
                self._chunks.append(chunk.data)
                if chunk.reply:
                    nc.publish(chunk.reply, b"")

    def restore(self) -> None:
        """Restore the stream in place of the current stream of that name."""
        self._nc.jetstream().delete_stream(self._stream)
        wanted = {name: self._info[name] for name in ("config", "state")}
        subject = f"$JS.API.STREAM.RESTORE.{self._stream}"
        reply = self._nc.request(subject, json.dumps(wanted).encode())
        deliver = json.loads(reply.data)["deliver_subject"]
        for chunk in (*self._chunks, b""):
            self._nc.request(deliver, chunk)
