"""Tests of a full disk: stored objects stay intact, and `check` finds the remains."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from jsync import errors
from jsync.jetstream.objects import repository

from ....support.connection_faults import Events, connect
from .support import chunks_of, noise

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ....conftest import StartServer

pytestmark = [pytest.mark.server, pytest.mark.fault]

MIB = 1 << 20


class Disk(NamedTuple):
    """A small file system, which only the server that `binary` starts can see."""

    folder: Path
    binary: Path
    holder: int

    def make_room(self) -> None:
        """Remove a file that takes some of the disk."""
        Path(f"/proc/{self.holder}/root{self.folder}/ballast").unlink()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    """A disk of 34 MiB in another name space, with 10 MiB of it in use."""
    folder, binary = tmp_path / "disk", tmp_path / "server"
    folder.mkdir()
    mount = (
        f"mount -t tmpfs -o size=34m tmpfs {folder} && "
        f"head -c 10485760 /dev/zero > {folder}/ballast && echo ready && exec cat"
    )
    with subprocess.Popen(
        ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", mount],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as holder:
        assert holder.stdout is not None
        ready = holder.stdout.readline()
        assert ready == "ready\n", (
            "no file system of one's own: this system does not allow user name spaces; on "
            "Ubuntu: sysctl kernel.apparmor_restrict_unprivileged_userns=0"
        )
        inside = f"nsenter --user --mount --preserve-credentials -t {holder.pid}"
        beside = Path(sys.executable).parent
        binary.write_text(
            f'#!/bin/sh\nPATH="{beside}:$PATH"\n'
            f'exec {inside} "${{NATS_SERVER:-nats-server}}" "$@"\n'
        )
        binary.chmod(0o755)
        yield Disk(folder, binary, holder.pid)
        holder.communicate()  # closes its input, which ends the process


def test_objects_survive_a_full_disk_with_remains_found(
    own_server: StartServer, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The server sends no ack for a chunk that it cannot write.
    monkeypatch.setattr(repository, "ACK_SECONDS", 3.0)
    server = own_server(
        binary=disk.binary,
        store_dir=disk.folder / "js",
        config="jetstream { max_file_store: 10GB }",  # more than the disk has
    )
    with connect(server.url, Events()) as nc:
        js = nc.jetstream()
        files = js.create_object_store(bucket="FILES")
        former = files.put("a", noise(4 * MIB))
        for name in ("a", "b"):
            with pytest.raises(errors.TimeoutError, match="no ack") as raised:
                files.put(name, noise(40 * MIB, 2))
            assert "check() removes them" in raised.value.__notes__[0]
        assert "no space left on device" in server.log
        assert files.get("a") == noise(4 * MIB)

        disk.make_room()
        # before the restart, the server stores nothing more in that stream
        server.restart()
        assert files.get("a") == noise(4 * MIB)
        assert [info.name for info in files.list()] == ["a"]
        assert files.check(older_than=0).orphans
        assert chunks_of(js, files) == {former.nuid: former.chunks}
        files.put("a", noise(3 * MIB, 3))
        assert files.get("a") == noise(3 * MIB, 3)
