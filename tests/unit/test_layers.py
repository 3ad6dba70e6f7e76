"""The import graph is the architecture: one direction, and known doors out."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import jsync

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(jsync.__file__).parent

# Lowest first. A file may import from its own layer and from those before it.
LAYERS = [
    "_version",
    "terminal",
    "errors",
    "checks",
    "headers",
    "_fast",
    "models",
    "core",
    "jetstream",
]

# Only these files may touch the world.
DOORS = {
    "socket": {"core/transport.py"},
    "ssl": {"core/tls.py", "core/options.py", "connection.py"},
    "select": {"core/transport.py"},
    "signal": {
        "cli/server.py",
        "core/io_thread.py",
        "core/callbacks.py",
        "server.py",
        "spark/pipeline/stopping.py",
    },
    "subprocess": {"cli/doctor.py", "server.py"},
    "random": {"core/io_thread.py", "jetstream/publishing/overload.py"},
    "threading": {
        "jetstream/atomic/driver.py",
        "core/session.py",
        "core/io_thread.py",
        "core/callbacks.py",
        "connection.py",
        "core/backlog.py",
        "core/subscription.py",
        "core/timers.py",
        "jetstream/pulls/faces.py",
        "jetstream/pulls/driver.py",
        "jetstream/ingest/driver.py",
        "jetstream/ordered/consumer.py",
        "jetstream/ordered/driver.py",
        "jetstream/push/driver.py",
        "jetstream/push/subscription.py",
        "server.py",
        "spark/pipeline/batch.py",
        "spark/pipeline/stopping.py",
    },
    "time": {
        "cli/bench_scenarios.py",
        "cli/demo.py",
        "cli/ingest/command.py",
        "cli/publish.py",
        "cli/server.py",
        "core/session.py",
        "core/io_thread.py",
        "core/transport.py",
        "connection.py",
        "core/backlog.py",
        "core/requests.py",
        "core/deadline.py",
        "jetstream/pulls/arrow.py",
        "jetstream/atomic/driver.py",
        "jetstream/pulls/driver.py",
        "jetstream/ingest/driver.py",
        "jetstream/pulls/fetch.py",
        "jetstream/pulls/inbox.py",
        "jetstream/ingest/tail.py",
        "jetstream/ordered/batch.py",
        "jetstream/ordered/driver.py",
        "jetstream/push/ordered.py",
        "jetstream/ordered/place.py",
        "jetstream/publishing/publish.py",
        "jetstream/publishing/acks.py",
        "jetstream/push/pull_subscription.py",
        "jetstream/push/driver.py",
        "jetstream/atomic/resolve.py",
        "jetstream/stored/get.py",
        "jetstream/push/subscribe.py",
        "server.py",
        "spark/pipeline/batch.py",
        "spark/pipeline/report.py",
        "spark/pipeline/streaming.py",
        "spark/sink/guard.py",
        "spark/patience.py",
        "spark/reading.py",
        "spark/streams.py",
    },
    "asyncio": set[str](),
}

# Bytes in, decisions out: no door at all, and nothing that has one.
PURE = {
    "terminal.py",
    "core/protocol.py",
    "core/handshake.py",
    "core/servers.py",
    "core/pool.py",
    "core/auth.py",
    "jetstream/ingest/engine.py",
    "jetstream/ingest/answer.py",
    "jetstream/ingest/missing.py",
    "jetstream/pulls/engine.py",
    "jetstream/versions.py",
    "jetstream/publishing/options.py",
    "jetstream/pulls/priority.py",
    "jetstream/ordered/engine.py",
    "jetstream/push/wanted.py",
    "jetstream/push/existing.py",
    "jetstream/push/engine.py",
    "spark/columns.py",
    "spark/coverage.py",
    "spark/offsets.py",
    "spark/options.py",
    "spark/pipeline/checks.py",
    "spark/pipeline/config.py",
    "spark/pipeline/explain.py",
    "spark/pipeline/positions.py",
    "spark/pipeline/problems.py",
    "spark/pipeline/progress.py",
    "spark/pipeline/sql.py",
    "spark/pushdown.py",
    "spark/source_options.py",
}

# The one look upwards: `Connection.jetstream()` is where users look for it.
UPWARDS = {("connection.py", "jetstream")}

FILES = sorted(p for p in ROOT.rglob("*.py") if p.name != "__init__.py")


def imports(path: Path) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            if node.module is None:
                for alias in node.names:
                    yield node.level, alias.name
            else:
                yield node.level, node.module
        elif isinstance(node, ast.Import):
            for alias in node.names:
                yield 0, alias.name


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_a_file_imports_downwards_and_through_its_own_doors(path: Path) -> None:
    name = path.relative_to(ROOT)
    depth = len(name.parts)
    layer = name.parts[0].removesuffix(".py")
    for level, module in imports(path):
        head = module.split(".")[0]
        if level == 0 and head in DOORS:
            assert name.as_posix() in DOORS[head], f"{name} imports {head}"
        if level == 0 and name.as_posix() in PURE:
            assert head not in DOORS, f"{name} is pure and imports {head}"
        if level == depth and layer in LAYERS and head in LAYERS:
            if (name.as_posix(), head) in UPWARDS:
                continue
            assert LAYERS.index(head) <= LAYERS.index(layer), f"{name} imports {head}"


# What a user has: the package, its public modules, and what these offer.
PUBLIC = {
    "jsync",
    "jsync.errors",
    "jsync.headers",
    "jsync.metrics",
    "jsync.models",
    "jsync.server",
    "jsync.spark.pipeline",
    "jsync.terminal",
    "jsync.testing",
}

# Built on the public names, as a user would.
OUTER = ["cli", "metrics.py", "spark"]

OUTER_FILES = sorted(
    path
    for outer in OUTER
    for path in [ROOT / outer, *(ROOT / outer).rglob("*.py")]
    if path.suffix == ".py"
)


def reaches(path: Path) -> Iterator[str]:
    """What of jsync a file of `OUTER` uses from outside its own part: dotted names."""
    module = ["jsync", *path.relative_to(ROOT).with_suffix("").parts]
    own = module[1]
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.ImportFrom():
                package = module[: len(module) - node.level] if node.level else []
                if path.name == "__init__.py" and node.level == 1:
                    package = module[:-1]
                source = [*package, *(node.module.split(".") if node.module else ())]
                if source[0] == "jsync" and source[1:2] != [own]:
                    yield from (".".join([*source, a.name]) for a in node.names)
            case ast.Import():
                yield from (
                    f"{a.name}.__name__"
                    for a in node.names
                    if a.name.split(".")[0] == "jsync"
                )
            case ast.Attribute(value=ast.Name(id="jsync"), attr=name):
                yield f"jsync.{name}"


NAMED_TUPLE = {"_asdict", "_replace"}
"""Public, in spite of their names."""


@pytest.mark.parametrize(
    "path", OUTER_FILES, ids=lambda p: p.relative_to(ROOT).as_posix()
)
def test_what_is_built_on_jsync_uses_public_names_only(path: Path) -> None:
    for reached in reaches(path):
        module, _, name = reached.rpartition(".")
        assert module in PUBLIC, f"{path.name} imports {reached}"
        if module == "jsync":
            offered = name in jsync.__all__ or reached in PUBLIC or name == "__name__"
            assert offered, f"{path.name} uses {reached}, which is in no list"
        else:
            assert not name.startswith("_") or name == "__name__", reached
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute) and re.match(r"_[^_]", node.attr):
            if node.attr in NAMED_TUPLE:
                continue
            mine = isinstance(node.value, ast.Name) and node.value.id in {"self", "cls"}
            assert mine, f"{path.name}:{node.lineno} looks into {ast.unparse(node)}"


def test_no_file_is_a_drawer() -> None:
    drawers = {"utils", "util", "helpers", "common", "misc", "types"}
    assert not [p for p in FILES if p.stem in drawers]
