"""Tests of the import graph: one direction, no cycles, and a few files with access to the world."""

from __future__ import annotations

import ast
import collections
import functools
import itertools
import re
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

import jsync

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

pytestmark = pytest.mark.tools

ROOT = Path(jsync.__file__).parent

# The types in the stub of the extension: plain data, which does not import the extension.
STUB = {"models.ack", "models.publish"}

# Only these files may use sockets, files and processes.
DOORS = {
    "socket": {
        "core.network_stream",
        "core.proxies",
        "core.dialer_call",
        "server",
        "spark.pipeline.brokers",
        "worker.http",
    },
    "ssl": {"core.tls", "core.options", "connection"},
    "select": {"cli.ui.keyboard", "cli.ui.stdin"},
    "signal": {
        "cli",
        "cli.commands.local_server",
        "cli.commands.pipeline",
        "cli.commands.service",
        "cli.top.command",
        "core.io_thread",
        "core.callbacks",
        "server",
        "spark.pipeline.signals",
        "worker.process",
        "worker.supervisor",
    },
    "subprocess": {
        "_win32_job",
        "cli.commands.doctor",
        "contexts",
        "server",
        "worker.supervisor",
    },
    "random": {
        "cli.params.templates",
        "core.io_thread",
        "jetstream.publishing.backoff",
        "jetstream.retries.driver",
        "server",
    },
    "asyncio": set[str](),
}

# Pure modules turn bytes into decisions. They use no door, no clock and no thread, and no
# module that does.
WORLD = {*DOORS, "threading", "time"}
SAYS_PURE = re.compile(r"\bPure[.,:]|\bis pure\b|no socket, thread or clock")
"""Words in the docstring of a module, which make the module pure. Each `engine` is."""

# Pure code may use these functions of bytes, and the classes that it gets as arguments.
PURE_FAST = {
    "BatchQueue",
    "DirectGetReply",
    "IngestCounters",
    "JetStreamMsg",
    "Msg",
    "check_publish_subject",
    "check_subscribe_subject",
    "encode_headers",
    "is_key",
    "parse_headers",
    "read_direct",
    "read_entries",
}


class Source(NamedTuple):
    """The text of a module, and whether it is a package."""

    text: str
    package: bool = False


class Import(NamedTuple):
    """An import of `name` from `module`, or of the module itself.

    Modules of jsync lack `jsync.`.
    """

    module: str
    name: str | None
    ours: bool
    for_types: bool


def tree(root: Path) -> dict[str, Source]:
    """Return every module of jsync and the stub of the extension, by dotted name."""
    found = {}
    for path in [*root.rglob("*.py"), *root.rglob("*.pyi")]:
        parts = path.relative_to(root).with_suffix("").parts
        package = parts[-1] == "__init__"
        name = ".".join(parts[:-1] if package else parts)
        found[name] = Source(path.read_text(), package)
    return found


@functools.cache
def parsed(text: str) -> ast.Module:
    """Return the tree of a module. Nearly every test here reads all of them."""
    return ast.parse(text)


def imports(modules: Mapping[str, Source], name: str) -> Iterator[Import]:
    yield from _imports(modules, name, parsed(modules[name].text), for_types=False)


def _imports(
    modules: Mapping[str, Source], name: str, node: ast.AST, *, for_types: bool
) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        match child:
            case ast.If(test=ast.Name(id="TYPE_CHECKING"), body=body, orelse=rest):
                typed, run = ast.Module(body, []), ast.Module(rest, [])
                yield from _imports(modules, name, typed, for_types=True)
                yield from _imports(modules, name, run, for_types=for_types)
            case ast.ImportFrom(module=module, level=level, names=names):
                ours, source = _source(modules, name, module, level)
                for alias in names:
                    below = f"{source}.{alias.name}".lstrip(".")
                    if ours and below in modules:
                        yield Import(below, None, True, for_types)
                    else:
                        yield Import(source, alias.name, ours, for_types)
            case ast.Import(names=names):
                for alias in names:
                    yield Import(alias.name, None, False, for_types)
            case ast.expr():
                pass  # most nodes, and none of them has a statement below
            case _:
                yield from _imports(modules, name, child, for_types=for_types)


def _source(
    modules: Mapping[str, Source], name: str, module: str | None, level: int
) -> tuple[bool, str]:
    if not level:
        return False, module or ""
    package = name.split(".") if name else []
    up = level - 1 if modules[name].package else level
    base = package[: len(package) - up]
    return True, ".".join([*base, *([module] if module else [])])


def package_map(text: str) -> list[str]:
    """Return the files and folders that the docstring of a package lists, in its order."""
    docstring = ast.get_docstring(parsed(text)) or ""
    _, _, listed = docstring.rpartition(":\n\n    ")
    return re.findall(r"^(?: {4})?(\w+) {2,}\S", listed, re.MULTILINE)


def layers(modules: Mapping[str, Source]) -> list[str]:
    """Return the parts of the package, lowest first, by the map in the docstring of jsync.

    The last block of the map is built on the public names, which `jsync` itself ("") has.
    """
    text = ast.get_docstring(parsed(modules[""].text)) or ""
    lines = re.findall(r"^(?:    (\w+) +\S.*|\S.*)$", text, re.MULTILINE)
    blocks = [[*names] for found, names in itertools.groupby(lines, bool) if found]
    return [*(name for block in blocks[:-1] for name in block), "", *blocks[-1]]


def arrows(modules: Mapping[str, Source]) -> Iterator[tuple[str, str]]:
    """Yield the imports of a module from another, including type-only imports."""
    for name in modules:
        for found in imports(modules, name):
            if found.ours and found.module in modules and found.module != name:
                yield name, found.module


def rises(modules: Mapping[str, Source]) -> Iterator[str]:
    """Yield the imports of a part of the map from a later one."""
    order = layers(modules)
    for name, target in arrows(modules):
        here, there = name.split(".")[0], target.split(".")[0]
        if name == "_fast" and target in STUB:
            continue
        if order.index(there) > order.index(here):
            yield f"{name} imports {target or 'jsync'}, which is above it"


def circles(modules: Mapping[str, Source]) -> Iterator[str]:
    """Yield the cycles of imports between modules."""
    yield from _circles(arrows(modules))


def folder_circles(modules: Mapping[str, Source]) -> Iterator[str]:
    """Yield the cycles of imports between the folders and files of each folder."""
    between = collections.defaultdict[str, set[tuple[str, str]]](set)
    for name, target in arrows(modules):
        if name == "_fast" and target in STUB:
            continue
        one, other = name.split("."), target.split(".")
        depth = 0
        while one[depth : depth + 1] == other[depth : depth + 1] != []:
            depth += 1
        folder = ".".join(one[:depth])
        between[folder].add(
            tuple(".".join(path[: depth + 1]) for path in (one, other))  # type: ignore[arg-type]
        )
    for folder in sorted(between):
        yield from _circles(between[folder])


def _circles(pairs: Iterable[tuple[str, str]]) -> Iterator[str]:
    below = collections.defaultdict[str, set[str]](set)
    for name, target in pairs:
        below[name].add(target)
    done: set[str] = set()

    def visit(name: str, way: list[str]) -> Iterator[str]:
        if name in way:
            yield " -> ".join([*way[way.index(name) :], name])
        elif name not in done:
            for target in sorted(below.get(name, ())):
                yield from visit(target, [*way, name])
            done.add(name)

    for name in sorted(below):
        yield from visit(name, [])


def impurities(modules: Mapping[str, Source], pure: Iterable[str]) -> Iterator[str]:
    """Yield the pure modules that have a socket, a clock or a thread when they run."""
    for name in pure:
        seen: set[str] = set()
        ahead = [(name, name)]
        while ahead:
            module, way = ahead.pop()
            if module in seen:
                continue
            seen.add(module)
            for found in imports(modules, module):
                if found.for_types:
                    continue
                if not found.ours and found.module.split(".")[0] in WORLD:
                    yield f"{way} imports {found.module}"
                elif found.ours and found.module == "_fast":
                    if found.name not in PURE_FAST:
                        yield f"{way} imports {found.name} of the extension"
                elif found.ours and found.module in modules:
                    ahead.append((found.module, f"{way} -> {found.module}"))


def undeclared_doors(modules: Mapping[str, Source]) -> Iterator[str]:
    """Yield the modules that access the world and are not listed as doors."""
    for name in modules:
        for found in imports(modules, name):
            head = found.module.split(".")[0]
            if not found.ours and head in DOORS and name not in DOORS[head]:
                yield f"{name} imports {head}"


def pure(modules: Mapping[str, Source]) -> set[str]:
    return {
        name
        for name, source in modules.items()
        if name.split(".")[-1] == "engine"
        or SAYS_PURE.search(ast.get_docstring(parsed(source.text)) or "")
    }


TREE = tree(ROOT)


def test_every_part_imports_only_from_parts_below() -> None:
    assert not list(rises(TREE))


def test_no_import_leads_back_to_where_it_began() -> None:
    assert not list(circles(TREE))


def test_no_two_folders_import_each_other() -> None:
    assert not list(folder_circles(TREE))


def test_pure_modules_have_no_socket_clock_or_thread() -> None:
    assert not list(impurities(TREE, pure(TREE)))


def test_only_known_doors_lead_out() -> None:
    assert not list(undeclared_doors(TREE))


def test_the_map_lists_every_part() -> None:
    assert sorted(layers(TREE)) == sorted({name.split(".")[0] for name in TREE})


# The following tests check that the rules find violations.


def test_an_import_from_above_is_seen() -> None:
    broken = {**TREE, "core.protocol": Source("from ..connection import Connection\n")}
    assert list(rises(broken)) == [
        "core.protocol imports connection, which is above it"
    ]
    typed = "if TYPE_CHECKING:\n    from .jetstream.context import JetStream\n"
    assert list(rises({**TREE, "_fast": Source(typed)}))
    detour = {**TREE, "metrics": Source("from . import Connection\n")}
    assert list(rises(detour)) == ["metrics imports jsync, which is above it"]


@pytest.mark.parametrize("stub", [False, True])
def test_a_circle_of_types_alone_is_seen(stub: bool) -> None:
    type_only = "if TYPE_CHECKING:\n    from .{} import X\n"
    names = ("_fast", "headers") if stub else ("one", "two")
    small = {
        names[0]: Source(type_only.format(names[1])),
        names[1]: Source(type_only.format(names[0])),
    }
    assert list(circles(small))


def test_folders_that_import_each_other_are_noticed() -> None:
    small = {
        "part.one": Source("", package=True),
        "part.one.a": Source("from ..two.a import X\n"),
        "part.one.b": Source(""),
        "part.two": Source("", package=True),
        "part.two.a": Source(""),
        "part.two.b": Source("from ..one.b import Y\n"),
    }
    assert not list(circles(small))
    assert list(folder_circles(small)) == ["part.one -> part.two -> part.one"]


def test_an_engine_with_a_distant_clock_is_noticed() -> None:
    small = {
        "a.engine": Source("from .near import f\n"),
        "a.near": Source("from ..far import g\n"),
        "far": Source("from time import monotonic\n"),
    }
    assert list(impurities(small, pure(small) & set(small)))
    small["a.near"] = Source("if TYPE_CHECKING:\n    from ..far import g\n")
    assert not list(impurities(small, pure(small) & set(small)))
    hidden = "if TYPE_CHECKING:\n    pass\nelse:\n    from ..far import g\n"
    small["a.near"] = Source(hidden)
    assert list(impurities(small, pure(small) & set(small)))


def test_an_engine_with_waiting_extension_parts_is_noticed() -> None:
    small = {"engine": Source("from ._fast import WriteBuffer\n"), "_fast": Source("")}
    assert list(impurities(small, ["engine"]))


def test_a_new_door_is_seen() -> None:
    assert list(undeclared_doors({"headers": Source("import socket\n")}))


# The names for users: the package, its public modules, and their public names.
PUBLIC = {
    "jsync",
    "jsync._prometheus",
    "jsync.core.state",
    "jsync.contexts",
    "jsync.errors",
    "jsync.headers",
    "jsync.metrics",
    "jsync.models",
    "jsync.models.codec",
    "jsync.models.model",
    "jsync.server",
    "jsync.spark",
    "jsync.spark.pipeline",
    "jsync.subjects",
    "jsync.system",
    "jsync.terminal",
    "jsync.testing",
    "jsync.tracing",
    "jsync.worker",
    "jsync.worker.dead_letters",
}

# These parts are built on the public names, as a program of a user is.
OUTER = ["cli", "integrations", "spark"]

OUTER_FILES = sorted(
    path
    for outer in OUTER
    for path in [ROOT / outer, *(ROOT / outer).rglob("*.py")]
    if path.suffix == ".py"
)


def reaches(path: Path) -> Iterator[str]:
    """Yield the dotted names of jsync that a file of `OUTER` uses from outside its own part."""
    module = ["jsync", *path.relative_to(ROOT).with_suffix("").parts]
    own = module[1]
    for node in ast.walk(parsed(path.read_text())):
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
"""These names are public, although they begin with an underscore."""


@pytest.mark.parametrize(
    "path", OUTER_FILES, ids=lambda p: p.relative_to(ROOT).as_posix()
)
def test_parts_built_on_jsync_use_public_names_only(path: Path) -> None:
    for reached in reaches(path):
        module, _, name = reached.rpartition(".")
        assert module in PUBLIC, f"{path.name} imports {reached}"
        if module == "jsync":
            offered = name in jsync.__all__ or reached in PUBLIC or name == "__name__"
            assert offered, f"{path.name} uses {reached}, which is in no list"
        else:
            assert not name.startswith("_") or name == "__name__", reached
    for node in ast.walk(parsed(path.read_text())):
        if isinstance(node, ast.Attribute) and re.match(r"_[^_]", node.attr):
            if node.attr in NAMED_TUPLE:
                continue
            mine = ast.unparse(node.value) in {"self", "cls", "super()"}
            assert mine, f"{path.name}:{node.lineno} looks into {ast.unparse(node)}"


def test_no_file_is_a_drawer() -> None:
    drawers = {"utils", "util", "helpers", "common", "misc", "types"}
    assert not [name for name in TREE if name.split(".")[-1] in drawers]


MAX_LINKED_FILES = 20
"""The most files of one folder of the command that import each other."""


@pytest.mark.parametrize(
    "folder", ["", "commands", "params", "ui", "ingest", "top"], ids=lambda f: f or "."
)
def test_folders_of_the_command_stay_small(folder: str) -> None:
    linked = set[str]()
    for path in (ROOT / "cli" / folder).glob("*.py"):
        for node in ast.walk(parsed(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.level == 1:
                names = [node.module] if node.module else [a.name for a in node.names]
                linked.update([path.stem, *names])
    assert len(linked) <= MAX_LINKED_FILES


# The maps of packages ------------------------------------------------------------------

MAPS = sorted(
    path.parent
    for path in ROOT.rglob("__init__.py")
    if path.parent != ROOT and package_map(path.read_text())
)


def test_many_packages_have_a_map() -> None:
    assert len(MAPS) > 10


@pytest.mark.parametrize(
    "package", MAPS, ids=lambda path: path.relative_to(ROOT).as_posix()
)
def test_the_map_of_a_package_names_its_files(package: Path) -> None:
    files = {path.stem for path in package.glob("*.py")}
    folders = {path.parent.name for path in package.glob("*/__init__.py")}
    named = package_map((package / "__init__.py").read_text())
    assert sorted(named) == sorted((files | folders) - {"__init__"})
