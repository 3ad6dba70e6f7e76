"""`jsync object`: files in object stores."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from jsync.errors import ConfigError, InvalidObjectInfoError

from ..groups import CommandGroup
from ..params.completion import FILE, OBJECT, STORE
from ..params.values import DURATION, HEADER, KEY_VALUE, SIZE, Number
from ..ui.errors import format_error, print_error
from ..ui.lists import write_names
from ..ui.output import (
    byte_output,
    echo,
    write_json,
    write_key_values,
    write_line,
    write_result,
    write_table,
)
from ..ui.prompts import confirm, force_option
from ..ui.stdin import standard_input

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import jsync

    from ..params.settings import Settings
    from ..ui.progress import ProgressState

_STORE = click.argument("store", type=STORE)
_OBJECT = click.argument("name", type=OBJECT)
_QUIET = click.option("--no-progress", is_flag=True, help="Show no progress bar.")


@click.group("object", cls=CommandGroup)
def object_() -> None:
    """Put files into object stores, and get them."""


@object_.command("ls", example="jsync object ls FILES")
@click.argument("store", type=STORE, required=False)
@click.option("--names", "-n", is_flag=True, help="Write only the names.")
@click.pass_obj
def list_(settings: Settings, store: str | None, names: bool) -> None:
    """List the stores, or the objects of one.

    Objects whose info cannot be read are named on the standard error.
    """
    with settings.connect(
        on_error=lambda error: print_error(format_error(error))
    ) as nc:
        js = settings.jetstream(nc)
        if store is None and names:
            write_names(js.object_store_names(), settings)
        elif store is None:
            _write_stores(js.object_store_statuses(), settings)
        elif names:
            infos = js.object_store(store).list()
            write_names((info.name for info in infos), settings)
        else:
            _write_objects(js.object_store(store).list(), settings)


def _write_stores(
    statuses: Iterable[jsync.ObjectStoreStatus], settings: Settings
) -> None:
    found = list(statuses)
    if settings.json:
        write_json([_store_document(status) for status in found])
        return
    rows = [[s.bucket, s.description, s.size, s.is_sealed] for s in found]
    write_table(["store", "description", "bytes", "sealed"], rows)


def _write_objects(infos: Iterable[jsync.ObjectInfo], settings: Settings) -> None:
    found = list(infos)
    if settings.json:
        write_json([_document(info) for info in found])
        return
    rows = [
        [info.name, info.size, info.modified.isoformat(), _link(info) or ""]
        for info in found
    ]
    write_table(["name", "bytes", "modified", "link"], rows)


@object_.command(example="jsync object create PICTURES")
@click.argument("store")
@click.option("--description", metavar="WORDS", help="A description.")
@click.option("--ttl", type=DURATION, help="The age at which objects expire.")
@click.option("--max-bytes", type=SIZE, help="The maximum size of the store.")
@click.option(
    "--storage",
    type=click.Choice(["file", "memory"]),
    help="Store objects in files or in memory.",
)
@click.option("--replicas", type=Number(1), help="The number of replicas.")
@click.option(
    "--compress", "compression", is_flag=True, help="Compress the files of the store."
)
@click.option(
    "--metadata",
    type=KEY_VALUE,
    multiple=True,
    help="A name and a value to store in the metadata. Can be repeated.",
)
@click.pass_obj
def create(
    settings: Settings,
    /,
    store: str,
    metadata: tuple[tuple[str, str], ...],
    **fields: Any,
) -> None:
    """Create a store."""
    fields["compression"] = fields["compression"] or None
    with settings.connect() as nc:
        made = settings.jetstream(nc).create_object_store(
            bucket=store, metadata=dict(metadata) or None, **fields
        )
        status = made.status()
    _write_store(status, settings)


@object_.command(example="jsync object put FILES orders.json --name backup/orders.json")
@_STORE
@click.argument("file", type=FILE)
@click.option(
    "--name",
    metavar="NAME",
    help="The name of the object. Default: the name of the file.",
)
@click.option("--description", metavar="WORDS", help="A description.")
@click.option(
    "--header",
    "-H",
    "headers",
    type=HEADER,
    multiple=True,
    help="A header of the object, as NAME:VALUE. Can be repeated.",
)
@click.option(
    "--metadata",
    type=KEY_VALUE,
    multiple=True,
    help="A name and a value to store in the metadata. Can be repeated.",
)
@click.option(
    "--chunk-size",
    type=SIZE,
    help="The size of each chunk of the object. Default: 128 KiB.",
)
@_QUIET
@click.pass_obj
def put(
    settings: Settings,
    store: str,
    file: str,
    name: str | None,
    description: str | None,
    headers: tuple[tuple[str, str], ...],
    metadata: tuple[tuple[str, str], ...],
    chunk_size: int | None,
    no_progress: bool,
) -> None:
    """Put a file into a store, or with `-` the standard input.

    An existing object of the same name is replaced when the new one is complete.
    """
    if file == "-" and name is None:
        raise click.UsageError("an object from the standard input needs a --name")
    several: dict[str, list[str]] = {}
    for header, value in headers:
        several.setdefault(header, []).append(value)
    options: dict[str, Any] = {
        "description": description,
        "headers": several or None,
        "metadata": dict(metadata) or None,
        "chunk_size": chunk_size,
    }
    with settings.connect() as nc:
        found = settings.jetstream(nc).object_store(store)

        def run(progress: Callable[[int, int | None], object]) -> jsync.ObjectInfo:
            if file != "-":
                return found.put_file(file, name, progress=progress, **options)
            return found.put(name or "", standard_input(), progress=progress, **options)

        info = _with_bar(run, name or file, "bytes put", shown=not no_progress)
    _write(info, settings)


@object_.command(example="jsync object get FILES backup/orders.json -O copy.json")
@_STORE
@_OBJECT
@click.option(
    "--output",
    "-O",
    type=FILE,
    help="The file to write, or `-` for standard output. Default: the last part of NAME.",
)
@_QUIET
@force_option
@click.pass_obj
def get(
    settings: Settings,
    store: str,
    name: str,
    output: str | None,
    no_progress: bool,
    force: bool,
) -> None:
    """Get an object into a file.

    The command writes a temporary file, checks the digest, and then renames the file. The
    default name is the last part of the object's name, in the working directory.
    """
    with settings.connect() as nc:
        found = settings.jetstream(nc).object_store(store)
        if output == "-":
            with found.open(name) as source:
                target = byte_output()
                for part in source.iter_chunks():
                    target.write(bytes(part))
                target.flush()
            return
        path = Path(output) if output is not None else Path(_last_part(name))
        if path.exists():
            found.info(name)
            confirm(f"Replace the file {path}?", force=force)

        def run(progress: Callable[[int, int | None], object]) -> jsync.ObjectInfo:
            return found.get_file(name, path, progress=progress)

        info = _with_bar(run, name, "bytes got", shown=not no_progress)
    if settings.json:
        write_json({**_document(info), "file": str(path)})
    else:
        echo(f"wrote {info.size:,} bytes to {path}")


def _last_part(name: str) -> str:
    """Return the name of a file in this directory for an object of any name.

    Raises `ConfigError` if the last part of the object's name cannot be one.
    """
    part = name.replace("\\", "/").rpartition("/")[2]
    if part in ("", ".", "..") or "\x00" in part or Path(part).name != part:
        raise ConfigError(f"no file can be called {name!r}; name one with --output")
    return part


@object_.command(example="jsync object rm FILES backup/orders.json --force")
@_STORE
@click.argument("name", type=OBJECT, required=False)
@force_option
@click.pass_obj
def rm(settings: Settings, store: str, name: str | None, force: bool) -> None:
    """Delete an object, or without NAME the whole store."""
    with settings.connect() as nc:
        js = settings.jetstream(nc)
        found = js.object_store(store)
        if name is not None:
            try:
                size = f"of {found.info(name).size:,} bytes"
            except InvalidObjectInfoError:
                size = "whose info cannot be read"
            confirm(f"Delete object {name} {size}?", force=force)
            found.delete(name)
        else:
            stored = found.status().size
            confirm(f"Delete store {store} with its {stored:,} bytes?", force=force)
            js.delete_object_store(store)
    what = f"object {name}" if name is not None else f"store {store}"
    write_result(
        settings, f"deleted {what}", {"store": store, "deleted": name or store}
    )


@object_.command(example="jsync object info FILES backup/orders.json")
@_STORE
@click.argument("name", type=OBJECT, required=False)
@click.pass_obj
def info(settings: Settings, store: str, name: str | None) -> None:
    """Show an object, or without NAME the store."""
    with settings.connect() as nc:
        found = settings.jetstream(nc).object_store(store)
        if name is not None:
            _write(found.info(name), settings)
        else:
            _write_store(found.status(), settings)


@object_.command(example="jsync object watch FILES --count 1")
@_STORE
@click.option("--new", is_flag=True, help="Begin with the next change.")
@click.option("--count", type=Number(1), help="End after this number of entries.")
@click.pass_obj
def watch(settings: Settings, store: str, new: bool, count: int | None) -> None:
    """Write the objects of a store, and each change as it comes.

    The existing objects come first, unless you pass --new.
    """
    with settings.connect(flow=True) as nc:
        found = settings.jetstream(nc).object_store(store)
        with found.watch(updates_only=new) as changes:
            for seen, change in enumerate(changes, 1):
                if settings.json:
                    write_line(_document(change))
                else:
                    word = "deleted" if change.deleted else f"{change.size:,} bytes"
                    echo(f"{change.modified.isoformat()}  {change.name}  {word}")
                if seen == count:
                    return


@object_.command(example="jsync object seal FILES --force")
@_STORE
@force_option
@click.pass_obj
def seal(settings: Settings, store: str, force: bool) -> None:
    """Seal a store. Its objects can never be changed again."""
    with settings.connect() as nc:
        found = settings.jetstream(nc).object_store(store)
        confirm(f"Seal store {store} for ever?", force=force)
        status = found.seal()
    _write_store(status, settings)


@object_.command(example="jsync object check FILES")
@_STORE
@click.option(
    "--older-than",
    type=DURATION,
    help="The minimum age of chunks to remove. Default: 1h.",
)
@click.option(
    "--dry-run", is_flag=True, help="Show the leftovers without removing them."
)
@click.pass_obj
def check(
    settings: Settings, store: str, older_than: float | None, dry_run: bool
) -> None:
    """Find the leftovers of crashes in a store, and remove them."""
    options: dict[str, Any] = {} if older_than is None else {"older_than": older_than}
    with settings.connect() as nc:
        found = settings.jetstream(nc).object_store(store)
        result = found.check(remove=not dry_run, **options)
    fields = {
        "orphans": result.orphans,
        "uploads": result.uploads,
        "incomplete": result.incomplete,
        "renamed": result.renamed,
        "unreadable": result.unreadable,
    }
    if settings.json:
        write_json(fields)
        return
    word = "found" if dry_run else "removed"
    orphans, uploads = sum(result.orphans.values()), sum(result.uploads.values())
    write_key_values(
        f"Store {store}",
        {
            f"chunks of no object, {word}": orphans,
            f"former names, {word}": result.renamed,
            "chunks too young to tell": uploads,
            "incomplete objects": result.incomplete,
            "unreadable infos": result.unreadable,
        },
    )


def _with_bar(
    run: Callable[[Callable[[int, int | None], object]], jsync.ObjectInfo],
    what: str,
    verb: str,
    *,
    shown: bool,
) -> jsync.ObjectInfo:
    from ..ui.progress import Bar, ProgressState

    now = [0, None]

    def progress(done: int, total: int | None) -> None:
        now[:] = [done, total]

    def get_state() -> ProgressState:
        done, total = now
        return ProgressState(what, done or 0, total, done or 0)

    with Bar(get_state, verb, shown=shown):
        return run(progress)


def _link(info: jsync.ObjectInfo) -> str | None:
    if info.link is None:
        return None
    return f"{info.link.bucket}/{info.link.name or ''}"


def _document(info: jsync.ObjectInfo) -> dict[str, Any]:
    return {
        "name": info.name,
        "bucket": info.bucket,
        "nuid": info.nuid,
        "size": info.size,
        "chunks": info.chunks,
        "digest": info.digest,
        "modified": info.modified.isoformat(),
        "description": info.description,
        "headers": {name: info.headers.get_all(name) for name in info.headers},
        "metadata": info.metadata,
        "link": _link(info),
        "deleted": info.deleted,
    }


def _write(info: jsync.ObjectInfo, settings: Settings) -> None:
    document = _document(info)
    if settings.json:
        write_json(document)
        return
    shown = {name: value for name, value in document.items() if value not in ("", {})}
    for name in ("headers", "metadata"):
        if name in shown:
            shown[name] = [f"{key}: {value}" for key, value in shown[name].items()]
    write_key_values(f"Object {info.name}", {**shown, "deleted": info.deleted or None})


def _store_document(status: jsync.ObjectStoreStatus) -> dict[str, Any]:
    return {
        "store": status.bucket,
        "description": status.description,
        "bytes": status.size,
        "ttl": status.ttl,
        "max_bytes": status.config.max_bytes,
        "storage": status.storage,
        "replicas": status.replicas,
        "sealed": status.is_sealed,
        "compressed": status.is_compressed,
        "metadata": status.metadata,
    }


def _write_store(status: jsync.ObjectStoreStatus, settings: Settings) -> None:
    document = _store_document(status)
    if settings.json:
        write_json(document)
        return
    notes = [f"{name}: {value}" for name, value in status.metadata.items()]
    write_key_values(f"Store {status.bucket}", {**document, "metadata": notes or None})
