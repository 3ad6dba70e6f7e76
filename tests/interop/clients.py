"""Build a small program of each other client, and send it operations line by line.

Each program reads a JSON request a line, `{"op": name, ...}`, and writes a JSON reply a line: the
result, or `{"error": text}`. Bytes are base64. The operations:

    kv_create kv_put kv_insert kv_update kv_delete kv_purge kv_get kv_history kv_keys kv_status
    obj_create obj_put obj_get obj_info obj_list obj_update obj_delete obj_link obj_link_store
    svc_start svc_stop svc_call svc_verbs
    group_create group_config group_list group_add group_map group_delete
    publish schedule get_msg

`kv_insert` is create. `python -m tests.interop.clients` builds all programs below `.cache/clients`,
as `make interop` does. The versions of their dependencies are locked by a file in each folder.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import functools
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from . import go_program

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType
    from typing import Self

HERE = Path(__file__).parent
CACHE = HERE.parent.parent / ".cache" / "clients"


class PeerError(Exception):
    """An operation of another client failed. The text is that client's own."""


class Toolchain(NamedTuple):
    """A command that builds or runs a program."""

    commands: tuple[str, ...]
    """Where it may be, as patterns of paths."""
    version: str
    """The argument that prints its version."""
    oldest: tuple[int, ...]
    advice: str

    def find(self) -> str:
        """Return its path. The error says what to install."""
        for command in self.commands:
            where = Path(command).expanduser()
            found = shutil.which(command)
            for path in (
                sorted(where.parent.parent.parent.glob(_below(where)), reverse=True)
                if "*" in command
                else [found]
            ):
                if path is not None and self._version(str(path)) >= self.oldest:
                    return str(path)
        raise AssertionError(self.advice)

    def _version(self, path: str) -> tuple[int, ...]:
        told = subprocess.run(
            [path, self.version], capture_output=True, text=True, check=False
        )
        number = re.search(r"\d+(\.\d+)+", told.stdout + told.stderr)
        # A shim of pyenv names the versions that it cannot run.
        if number is None or told.returncode != 0:
            return ()
        return tuple(map(int, number[0].split(".")))


def _below(path: Path) -> str:
    return "/".join(path.parts[-3:])


CARGO = Toolchain(
    ("cargo", str(Path.home() / ".cargo/bin/cargo")),
    "--version",
    (1, 89),
    "no Rust here: install Rust 1.89 or newer with rustup, for the tests beside async-nats",
)
NODE = Toolchain(
    ("node",),
    "--version",
    (20,),
    "no Node.js here: install Node.js 20 or newer, for the tests beside nats.js",
)
NPM = Toolchain(
    ("npm",), "--version", (8,), "no npm here: install it, for the tests beside nats.js"
)
MAVEN = Toolchain(
    ("mvn",),
    "--version",
    (3, 6),
    "no Maven here: install it, for the tests beside jnats",
)
JDK = Toolchain(
    ("javac",),
    "-version",
    (17,),
    "no JDK here: install openjdk-17-jdk-headless or newer, for the tests beside jnats",
)
PYTHON = Toolchain(
    (
        *(f"python3.{minor}" for minor in range(19, 12, -1)),
        *(f"~/.pyenv/versions/3.{minor}*/bin/python" for minor in range(19, 12, -1)),
        str(HERE.parent.parent / ".pythons/3.1[3-9]/bin/python3"),
    ),
    "--version",
    (3, 13),
    "no Python 3.13 or newer here: install one, for the tests beside natsio",
)


def _run(*command: str, where: Path = HERE, **environment: str) -> None:
    built = subprocess.run(
        command,
        cwd=where,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stdout + built.stderr


def _python(target: Path) -> list[str]:
    return [sys.executable, str(HERE / "python" / "nats_py.py")]


def _natsio(target: Path) -> list[str]:
    python = PYTHON.find()
    packages = target / "packages"
    with _once(target, HERE / "python" / "requirements.txt") as stale:
        if stale:
            shutil.rmtree(packages, ignore_errors=True)
            _run(
                *(sys.executable, "-m", "pip", "install", "--quiet"),
                *("--disable-pip-version-check", "--no-deps", "--require-hashes"),
                *("--python-version", "3.13", "--only-binary", ":all:"),
                *("--target", str(packages), "-r"),
                str(HERE / "python" / "requirements.txt"),
            )
    program = str(HERE / "python" / "nats_io.py")
    return ["/usr/bin/env", f"PYTHONPATH={packages}", python, program]


def _go(target: Path) -> list[str]:
    program = target / "records"
    go = go_program.toolchain()
    sources = HERE / "go"
    with _once(target, sources / "records" / "main.go", sources / "go.sum") as stale:
        if stale:
            _run(go, "build", "-C", str(sources), "-o", str(program), "./records")
    return [str(program)]


def _rust(target: Path) -> list[str]:
    cargo = CARGO.find()
    sources = HERE / "rust"
    files = ("Cargo.toml", "Cargo.lock", "src/main.rs")
    with _once(target, *(sources / name for name in files)) as stale:
        if stale:
            manifest = str(sources / "Cargo.toml")
            _run(
                *(cargo, "build", "--locked", "--quiet", "--manifest-path", manifest),
                CARGO_TARGET_DIR=str(target / "target"),
                # A cargo of rustup finds its compiler beside it.
                PATH=f"{Path(cargo).parent}:{os.environ['PATH']}",
            )
    return [str(target / "target" / "debug" / "peer")]


def _java(target: Path) -> list[str]:
    java = str(Path(JDK.find()).with_name("java"))
    sources = HERE / "java"
    repository = target / "repository"
    with _once(
        target, sources / "pom.xml", sources / "src/main/java/Peer.java"
    ) as stale:
        if stale:
            _run(
                *(
                    MAVEN.find(),
                    "--quiet",
                    "--batch-mode",
                    "-f",
                    str(sources / "pom.xml"),
                ),
                f"-Dclients={target}",
                f"-Dmaven.repo.local={repository}",
                "compiler:compile",
            )
    jars = [target / "classes", *repository.glob("io/nats/jnats/*/*.jar")]
    path = os.pathsep.join(map(str, jars))
    return [java, "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-cp", path, "Peer"]


def _node(target: Path) -> list[str]:
    node = NODE.find()
    sources = [
        HERE / "node" / n for n in ("package.json", "package-lock.json", "peer.js")
    ]
    with _once(target, *sources) as stale:
        if stale:
            for source in sources:  # Node looks for packages beside the program
                shutil.copy(source, target)
            options = ("--ignore-scripts", "--no-audit", "--no-fund")
            _run(NPM.find(), "ci", *options, where=target)
    return [node, str(target / "peer.js")]


CLIENTS: dict[str, Callable[[Path], list[str]]] = {
    "nats-py": _python,
    "natsio": _natsio,
    "nats.go": _go,
    "async-nats": _rust,
    "jnats": _java,
    "nats.js": _node,
}


@contextlib.contextmanager
def _once(target: Path, *sources: Path) -> Iterator[bool]:
    """Give whether to build, for one process at a time: not if the sources are as before."""
    target.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256()
    for source in sources:
        digest.update(source.read_bytes())
    built = target / "built"
    with (target / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        stale = not built.exists() or built.read_text() != digest.hexdigest()
        yield stale
        built.write_text(digest.hexdigest())


@functools.cache
def command(name: str) -> list[str]:
    """Build the program of a client if it is not there, and return how to run it."""
    return CLIENTS[name](CACHE / name)


class Peer:
    """A process of another client."""

    def __init__(self, name: str, url: str) -> None:
        self.name = name
        self._process = subprocess.Popen(
            [*command(name), url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )

    def __call__(self, op: str, **request: Any) -> dict[str, Any]:
        """Run one operation, and return the reply, with values as bytes.

        Raises:
            PeerError: The operation failed.
        """
        if isinstance(request.get("value"), bytes):
            request["value"] = base64.b64encode(request["value"]).decode()
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"op": op, **request}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"the program of {self.name} has ended"
        reply: dict[str, Any] = json.loads(line)
        if "error" in reply:
            raise PeerError(reply["error"])
        for found in (reply, reply.get("entry"), *(reply.get("entries") or ())):
            if found and "value" in found:
                found["value"] = base64.b64decode(found["value"] or "")
        return reply

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.communicate()


if __name__ == "__main__":
    for client in CLIENTS:
        began = time.monotonic()
        command(client)
        print(f"{client}: {time.monotonic() - began:.1f} s")  # noqa: T201
