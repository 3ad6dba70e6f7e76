"""Object stores as a file system of fsspec: `jetstream://STORE/name`.

The extra `fsspec` installs what this needs. fsspec finds it by its protocol, so that you
need not import it.
"""

from __future__ import annotations

import contextlib
import glob
import os
import threading
from typing import TYPE_CHECKING, Any

from fsspec.callbacks import DEFAULT_CALLBACK
from fsspec.implementations.local import make_path_posix, trailing_sep
from fsspec.spec import AbstractFileSystem
from fsspec.utils import isfilelike, other_paths

import jsync
from jsync import errors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from datetime import datetime

MOVES = 3
"""How often an object that is replaced while it is moved is copied again."""
MOST_LINKS = 8

_forks = 0
"""How often this process and its parents have forked: each process has its own number."""


def _count_fork() -> None:
    global _forks  # noqa: PLW0603 (called in a new process that has one thread)
    _forks += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_count_fork)


class _Line:
    """The connection of one process."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.connection: jsync.Connection | None = None


class JetStreamFileSystem(AbstractFileSystem):  # type: ignore[misc]
    """The object stores of an account. The first part of a path is the store.

    Slashes in the names of objects make directories, which exist as long as something is
    in them. It connects when it is first used, once in each process: a forked child, such as
    a worker of a data loader, makes a connection of its own. Any thread may use it.

    Args:
        servers: The URL of a server, or several. Default: that of `jsync.connect`.
        domain: The JetStream domain.
        prefix: The prefix of JetStream's API.
        timeout: Seconds to wait for each answer at most.
        **options: Options of fsspec, and those of `jsync.connect`: `creds` for instance.
    """

    protocol = "jetstream"
    root_marker = ""

    def __init__(
        self,
        servers: str | list[str] | None = None,
        *,
        domain: str | None = None,
        prefix: str | None = None,
        timeout: float = 5.0,
        use_listings_cache: bool = False,
        skip_instance_cache: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(
            use_listings_cache=use_listings_cache,
            skip_instance_cache=skip_instance_cache,
        )
        self._arguments = () if servers is None else (servers,)
        self._options = options
        self._context: dict[str, Any] = {
            "domain": domain,
            "prefix": prefix,
            "timeout": timeout,
        }
        self._lines: dict[int, _Line] = {}

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        stripped = super()._strip_protocol(path)
        return stripped if isinstance(stripped, list) else stripped.lstrip("/")

    @property
    def _line(self) -> _Line:
        # No lock: another thread could have held it when this process was forked.
        return self._lines.setdefault(_forks, _Line())

    @property
    def jetstream(self) -> jsync.JetStream:
        """JetStream on the connection of this process; connects first, which blocks."""
        line = self._line
        with line.lock:
            if line.connection is None:
                line.connection = jsync.connect(*self._arguments, **self._options)
            return line.connection.jetstream(**self._context)

    def close(self) -> None:
        """Close the connection of this process. The next use connects again."""
        line = self._line
        with line.lock:
            connection, line.connection = line.connection, None
        if connection is not None:
            connection.close()

    def _store(self, bucket: str) -> jsync.ObjectStore:
        with _as_os_errors(bucket):
            return self.jetstream.object_store(bucket)

    def _locate(self, path: str) -> tuple[jsync.ObjectStore, jsync.ObjectInfo]:
        """The store and the info of an object; raises `FileNotFoundError`.

        fsspec takes the last slash off a path, so the name may have one more.
        """
        bucket, name = _object(path)
        store = self._store(bucket)
        with _as_os_errors(path):
            try:
                return store, store.info(name)
            except errors.ObjectNotFoundError:
                return store, store.info(f"{name}/")

    # Files ----------------------------------------------------------------------------

    def _open(
        self,
        path: str,
        mode: str = "rb",
        block_size: int | None = None,
        autocommit: bool = True,
        cache_options: dict[str, Any] | None = None,
        **options: Any,
    ) -> jsync.ObjectReader | jsync.ObjectWriter:
        """A file, of which `options` are those of `ObjectStore.open`."""
        bucket, name = _object(path)
        if not autocommit:
            raise NotImplementedError(
                "transactions are not supported: an object is stored when you close it"
            )
        store = self._store(bucket)
        if mode == "xb" and self.lexists(path):
            raise FileExistsError(path)
        with _as_os_errors(path):
            if mode == "rb":
                try:
                    return store.open(name)
                except errors.ObjectNotFoundError:
                    return store.open(f"{name}/")
            if mode in ("wb", "xb"):
                return store.open(name, "wb", **options)
        raise NotImplementedError(f"mode {mode!r} is not supported: use rb, wb or xb")

    def cat_file(
        self,
        path: str,
        start: int | None = None,
        end: int | None = None,
        **_options: Any,
    ) -> bytes:
        """The bytes of an object, or those from `start` to `end`."""
        path = self._strip_protocol(path)
        bucket, name = _object(path)
        if start is None and end is None:
            with _as_os_errors(path):
                store = self._store(bucket)
                try:
                    return store.get(name)
                except errors.ObjectNotFoundError:
                    return store.get(f"{name}/")
        with self._open(path) as file:
            assert isinstance(file, jsync.ObjectReader)
            size = file.info.size
            first, last, _ = slice(start, end).indices(size)
            file.seek(first)
            return file.read(max(0, last - first))

    def pipe_file(
        self, path: str, value: bytes, mode: str = "overwrite", **options: Any
    ) -> None:
        """Put bytes as an object."""
        path = self._strip_protocol(path)
        if mode == "create" and self.lexists(path):
            raise FileExistsError(path)
        bucket, name = _object(path)
        with _as_os_errors(path):
            self._store(bucket).put(name, value, **options)

    def get_file(
        self,
        rpath: str,
        lpath: Any = None,
        callback: Any = DEFAULT_CALLBACK,
        outfile: Any = None,
        **options: Any,
    ) -> None:
        """Write an object to a file, which gets its name once the digest was checked."""
        if outfile is not None or isfilelike(lpath):
            super().get_file(rpath, lpath, callback, outfile, **options)
            return
        path = self._strip_protocol(rpath)
        try:
            store, info = self._locate(path)
        except (FileNotFoundError, IsADirectoryError):
            if not self.isdir(path):
                raise
            os.makedirs(lpath, exist_ok=True)
            return
        os.makedirs(os.path.dirname(lpath) or ".", exist_ok=True)

        def progress(done: int, total: int | None) -> None:
            callback.set_size(total)
            callback.absolute_update(done)

        with _as_os_errors(path):
            store.get_file(info.name, lpath, progress=progress)

    def get(
        self,
        rpath: Any,
        lpath: Any,
        recursive: bool = False,
        callback: Any = DEFAULT_CALLBACK,
        maxdepth: int | None = None,
        **options: Any,
    ) -> None:
        """Write objects to files.

        An object of any name stays below `lpath`. If that is not possible, as for
        `../../a`, or if two objects would become one file, the others are written first.

        Raises:
            ValueError: Some objects were not written, because of their names.
        """
        if isinstance(lpath, str | os.PathLike):
            lpath = make_path_posix(os.fspath(lpath))
        pairs = self._pairs(rpath, lpath, recursive, maxdepth, os.path.isdir)
        left: list[str] = []
        if isinstance(lpath, str):
            pairs, left = _contained(pairs, lpath)
        callback.set_size(len(pairs))
        for source, target in callback.wrap(pairs):
            with callback.branched(source, target) as child:
                self.get_file(source, target, callback=child, **options)
        if left:
            more = f" and {len(left) - 5} more" if len(left) > 5 else ""
            raise ValueError(
                f"not written, since no file below {lpath!r} can have that name: "
                f"{', '.join(map(repr, left[:5]))}{more}; get each of them to a path of its "
                "own"
            )

    def cp_file(self, path1: str, path2: str, **_options: Any) -> None:
        """Copy an object by way of this machine."""
        path1, path2 = self._strip_protocol(path1), self._strip_protocol(path2)
        try:
            store, info = self._locate(path1)
        except (FileNotFoundError, IsADirectoryError):
            if self.isdir(path1):
                return
            raise
        self._copy(store, info.name, path2)

    def _copy(
        self, store: jsync.ObjectStore, name: str, target: str
    ) -> jsync.ObjectInfo:
        bucket, copy = _object(target)
        with _as_os_errors(f"{store.bucket}/{name}"), store.open(name) as file:
            info = file.info
            self._store(bucket).put(
                copy,
                file,
                description=info.description,
                headers=info.headers,
                metadata=info.metadata,
            )
            return info

    def copy(
        self,
        path1: Any,
        path2: Any,
        recursive: bool = False,
        maxdepth: int | None = None,
        on_error: str | None = None,
        **_options: Any,
    ) -> None:
        """Copy objects by way of this machine.

        `on_error` is `raise` or `ignore`: what becomes of an object that is gone meanwhile.
        The default is `ignore` if `recursive`.
        """
        on_error = on_error or ("ignore" if recursive else "raise")
        for source, target in self._pairs(
            path1, path2, recursive, maxdepth, self.isdir
        ):
            try:
                self.cp_file(source, target)
            except FileNotFoundError:
                if on_error == "raise":
                    raise

    def mv(
        self,
        path1: Any,
        path2: Any,
        recursive: bool = False,
        maxdepth: int | None = None,
        **_options: Any,
    ) -> None:
        """Rename objects, without a copy if the store stays the same.

        An object that has the new name already is replaced by a copy. What is put into a
        directory while it is moved stays where it is.
        """
        pairs = self._pairs(path1, path2, recursive, maxdepth, self.isdir)
        if not pairs:
            raise IsADirectoryError(
                f"a directory: {path1!r}; move it with recursive=True"
            )
        for source, target in pairs:
            if source != target:
                self._move(source, self._strip_protocol(target))

    def _move(self, source: str, target: str) -> None:
        bucket, other = _object(target)
        for _ in range(MOVES):
            store, info = self._locate(source)
            with _as_os_errors(source):
                if bucket == store.bucket:
                    with contextlib.suppress(errors.ObjectExistsError):
                        store.update_meta(info.name, new_name=other)
                        return
                # A put replaces the object at once. After a delete it would be lost if the
                # rename failed.
                self._copy(store, info.name, target)
                with contextlib.suppress(errors.WrongRevisionError):
                    store.delete(info.name, last=info.revision)
                    return
        raise OSError(f"others replace the object all the time: {source}")

    def rm_file(self, path: str) -> None:
        """Delete an object."""
        path = self._strip_protocol(path)
        bucket, name = _object(path)
        store = self._store(bucket)
        with contextlib.suppress(errors.BadObjectInfoError):
            name = self._locate(path)[1].name
        with _as_os_errors(path):
            store.delete(name)

    def rm(
        self, path: Any, recursive: bool = False, maxdepth: int | None = None
    ) -> None:
        """Delete objects. Directories go with what is in them; stores stay.

        Raises:
            ValueError: The path is that of all stores.
        """
        paths = [path] if isinstance(path, str | os.PathLike) else list(path)
        if recursive and any(not self._strip_protocol(one) for one in paths):
            raise ValueError("cannot remove the objects of all stores: name a store")
        found = self._expanded(paths, recursive, maxdepth)
        for one, kind in sorted(found.items(), reverse=True):
            if not recursive:
                self.rm_file(one)
            elif kind != "directory":
                bucket, name = _object(one)
                # Somebody else may have deleted it meanwhile.
                with contextlib.suppress(errors.ObjectNotFoundError):
                    self._store(bucket).delete(name)

    def touch(self, path: str, truncate: bool = True, **options: Any) -> None:
        """Put an empty object; without `truncate` only where there is none."""
        if truncate or not self.lexists(path):
            self.pipe_file(path, b"", **options)

    # Directories ----------------------------------------------------------------------

    def mkdir(self, path: str, create_parents: bool = True, **options: Any) -> None:
        """Create a store, of which `options` are the fields; deeper paths need nothing."""
        bucket, _, name = self._strip_protocol(path).partition("/")
        js = self.jetstream
        if not name or (create_parents and bucket not in js.object_store_names()):
            if not name and bucket in js.object_store_names():
                raise FileExistsError(path)
            js.create_object_store(bucket=bucket, **options)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        """Create the store of a path."""
        try:
            self.mkdir(path)
        except FileExistsError:
            if not exist_ok:
                raise

    def rmdir(self, path: str) -> None:
        """Delete a store that is empty; deeper paths are gone with what was in them."""
        path = self._strip_protocol(path)
        if "/" in path:
            return
        store = self._store(path)
        with _as_os_errors(path):
            found = store.check(remove=False)
            if any(store.list()) or found.uploads or found.unreadable:
                raise OSError(f"the store is not empty: {path}")
            self.jetstream.delete_object_store(path)

    def ls(self, path: str, detail: bool = True, **_options: Any) -> list[Any]:
        """What is in a directory; of an object, itself."""
        path = self._strip_protocol(path)
        found = sorted(self._tree(path)[path], key=lambda entry: str(entry["name"]))
        if not found and "/" in path:
            raise FileNotFoundError(path)
        return found if detail else [entry["name"] for entry in found]

    def walk(
        self,
        path: str,
        maxdepth: int | None = None,
        topdown: bool = True,
        on_error: str | Callable[[OSError], object] = "omit",
        **options: Any,
    ) -> Iterator[tuple[str, Any, Any]]:
        """Directories one by one, with what is in each, as `os.walk` does.

        The store is listed once, and not again for each directory.
        """
        if maxdepth is not None and maxdepth < 1:
            raise ValueError("maxdepth must be at least 1")
        path = self._strip_protocol(path)
        detail = options.pop("detail", False)
        try:
            tree = self._tree(path)
        except OSError as error:
            if on_error == "raise":
                raise
            if callable(on_error):
                on_error(error)
            return
        yield from self._walk(tree, path, maxdepth, topdown, detail)

    def _walk(
        self,
        tree: dict[str, list[dict[str, Any]]],
        path: str,
        maxdepth: int | None,
        topdown: bool,
        detail: bool,
    ) -> Iterator[tuple[str, Any, Any]]:
        if path not in tree:  # a store, below the root
            try:
                tree = self._tree(path)
            except FileNotFoundError:
                return
        directories: dict[str, dict[str, Any]] = {}
        files: dict[str, dict[str, Any]] = {}
        for entry in tree[path]:
            inner = entry["name"][len(path) + 1 if path else 0 :]
            into = directories if entry["type"] == "directory" else files
            into[inner] = entry
        inners: Any = directories if detail else list(directories)
        here = (path, inners, files if detail else list(files))
        if topdown:
            yield here
        if maxdepth is None or maxdepth > 1:
            below = None if maxdepth is None else maxdepth - 1
            for inner in filter(directories.__contains__, list(inners)):
                name = directories[inner]["name"]
                yield from self._walk(tree, name, below, topdown, detail)
        if not topdown:
            yield here

    def find(
        self,
        path: str,
        maxdepth: int | None = None,
        withdirs: bool = False,
        detail: bool = False,
        **_options: Any,
    ) -> Any:
        """All objects below a path, by one listing of the store."""
        if maxdepth is not None and maxdepth < 1:
            raise ValueError("maxdepth must be at least 1")
        path = self._strip_protocol(path)
        found: dict[str, dict[str, Any]] = {}
        with contextlib.suppress(FileNotFoundError):
            for root, tree in self._trees(path, maxdepth):
                for directory, entries in tree.items():
                    level = _level(directory, path)
                    if maxdepth is not None and level > maxdepth:
                        continue
                    for entry in entries:
                        if entry["type"] != "directory":
                            found[entry["name"]] = entry
                        elif withdirs:  # a path may be an object, too
                            found.setdefault(entry["name"], entry)
                if withdirs and root and _is_directory(root, tree[root]):
                    found.setdefault(root, _directory(root))
        names = sorted(found)
        return {name: found[name] for name in names} if detail else names

    def du(
        self,
        path: str,
        total: bool = True,
        maxdepth: int | None = None,
        withdirs: bool = False,
        **options: Any,
    ) -> Any:
        """The bytes of the objects below a path, together or of each."""
        found = self.find(
            path, maxdepth=maxdepth, withdirs=withdirs, **options, detail=True
        )
        sizes = {name: entry["size"] for name, entry in found.items()}
        return sum(sizes.values()) if total else sizes

    def _trees(
        self, path: str, maxdepth: int | None
    ) -> Iterator[tuple[str, dict[str, list[dict[str, Any]]]]]:
        """The tree of a path; of the root, that of the root and of each store."""
        tree = self._tree(path)
        yield path, tree
        if not path and maxdepth != 1:
            for entry in tree[""]:
                yield entry["name"], self._tree(entry["name"])

    def _tree(self, path: str) -> dict[str, list[dict[str, Any]]]:
        """What is in a directory, and in each one below it, by one listing of the store."""
        bucket, _, name = path.partition("/")
        if not bucket:
            names = self.jetstream.object_store_names()
            return {"": [_directory(store) for store in names]}
        with _as_os_errors(path):
            store = self._store(bucket)
            infos = {info.name: info for info in store.list()}
        tree: dict[str, list[dict[str, Any]]] = {path: []}
        prefix = f"{name}/" if name else ""
        for info in infos.values():
            if info.name != name and not info.name.startswith(prefix):
                continue
            directory, rest = path, info.name[len(prefix) :]
            if info.name != name:
                # An empty part, as in a//b, cannot be a directory: fsspec would take the
                # slash off.
                while (
                    "/" in rest and rest[0] != "/" and rest.index("/") < len(rest) - 1
                ):
                    inner, _, rest = rest.partition("/")
                    outer, directory = directory, f"{directory}/{inner}"
                    if directory not in tree:
                        tree[directory] = []
                        tree[outer].append(_directory(directory))
            tree[directory].append(_file(info, store, infos))
        return tree

    def _pairs(
        self,
        source: Any,
        target: Any,
        recursive: bool,
        maxdepth: int | None,
        is_directory: Callable[[str], bool],
    ) -> list[tuple[str, str]]:
        """Objects, and where they go, by the rules of fsspec for `cp`, `mv` and `get`."""
        if isinstance(source, list) and isinstance(target, list):
            return list(zip(map(self._strip_protocol, source), target, strict=True))
        is_one = isinstance(source, str | os.PathLike)
        found = self._expanded([source] if is_one else source, recursive, maxdepth)
        paths = sorted(found)
        if is_one and (not recursive or maxdepth is not None):
            paths = [path for path in paths if found[path] != "directory"]
        if not paths:
            return []
        exists = False
        if is_one:
            path = self._strip_protocol(os.fspath(source))
            if glob.has_magic(path) and path not in found:
                exists = len(paths) == 1
            elif isinstance(target, str) and not trailing_sep(os.fspath(source)):
                exists = trailing_sep(target) or is_directory(target)
        targets = other_paths(paths, target, exists=exists, flatten=not is_one)
        pairs = zip(paths, targets, strict=True)
        return [(path, to) for path, to in pairs if found[path] != "directory"]

    def expand_path(
        self,
        path: Any,
        recursive: bool = False,
        maxdepth: int | None = None,
        **_options: Any,
    ) -> list[str]:
        """The objects and directories of paths, which may be patterns.

        A path that is the name of an object stands for this object, also if it has `*`, `?`
        or `[` in it.
        """
        if maxdepth is not None and maxdepth < 1:
            raise ValueError("maxdepth must be at least 1")
        paths = [path] if isinstance(path, str | os.PathLike) else path
        return sorted(self._expanded(paths, recursive, maxdepth))

    def _expanded(
        self, paths: Iterable[Any], recursive: bool, maxdepth: int | None
    ) -> dict[str, str]:
        """Paths and their types. That of a path that nobody has looked for is empty."""
        found: dict[str, str] = {}
        paths = [self._strip_protocol(path) for path in paths]
        for path in paths:
            if glob.has_magic(path) and not self.lexists(path):
                matches = self.glob(path, maxdepth=maxdepth, detail=True)
                found |= {name: entry["type"] for name, entry in matches.items()}
                inner = None if maxdepth is None else maxdepth - 1
                if recursive and inner != 0:
                    for name, entry in matches.items():
                        if entry["type"] == "directory":
                            found |= self._below(name, inner)
            elif recursive:
                below = self._below(path, maxdepth)
                if not below and self.lexists(path):
                    below = {path: ""}  # an object whose info cannot be read
                found |= below
            else:
                found[path] = self._kind(path) if len(paths) == 1 else ""
        if not found:
            raise FileNotFoundError(paths)
        return found

    def _below(self, path: str, maxdepth: int | None) -> dict[str, str]:
        entries = self.find(path, maxdepth=maxdepth, withdirs=True, detail=True)
        return {name: entry["type"] for name, entry in entries.items()}

    def _kind(self, path: str) -> str:
        try:
            return str(self.info(path)["type"])
        except (FileNotFoundError, errors.BadObjectInfoError):
            return ""

    # What is known --------------------------------------------------------------------

    def info(self, path: str, **_options: Any) -> dict[str, Any]:
        """What is known of an object, a directory or a store."""
        path = self._strip_protocol(path)
        bucket, _, name = path.partition("/")
        if not bucket:
            return _directory(path)
        store = self._store(bucket)
        if not name:
            return _directory(path)
        with contextlib.suppress(errors.ObjectNotFoundError):
            return _known_file(store.info(name), store)
        found = self._tree(path)[path]
        for entry in found:
            if entry["name"] == f"{path}/":
                return entry
        if not found:
            raise FileNotFoundError(path)
        return _directory(path)

    def exists(self, path: str, **_options: Any) -> bool:
        """Whether there is an object, a directory or a store.

        Unlike fsspec's own method, it raises the error if the server cannot say.
        """
        try:
            self.info(path)
        except FileNotFoundError:
            return False
        except errors.BadObjectInfoError:
            pass
        return True

    def lexists(self, path: str, **_options: Any) -> bool:
        """Whether there is an object or a link, wherever that leads."""
        try:
            self._locate(self._strip_protocol(path))
        except (FileNotFoundError, IsADirectoryError):
            return False
        except errors.BadObjectInfoError:
            pass
        return True

    def isfile(self, path: str) -> bool:
        """Whether there is an object of that name, or a link that leads to one."""
        try:
            store, info = self._locate(self._strip_protocol(path))
            _known_file(info, store)
        except (FileNotFoundError, IsADirectoryError):
            return False
        except errors.BadObjectInfoError:
            pass
        return True

    def modified(self, path: str) -> datetime:
        """When an object was put, or its info was changed."""
        entry = self.info(path)
        if entry["type"] != "file":
            raise IsADirectoryError(path)
        modified: datetime = entry["mtime"]
        return modified

    created = modified

    def ukey(self, path: str) -> str:
        """Something that is another one when the object is."""
        return str(self.info(path).get("nuid"))

    checksum = ukey


def _object(path: str) -> tuple[str, str]:
    """The store and the object of a path."""
    bucket, _, name = path.partition("/")
    if not name:
        raise IsADirectoryError(f"a store, not an object: {path!r}")
    return bucket, name


def _directory(name: str) -> dict[str, Any]:
    return {"name": name, "size": 0, "type": "directory"}


def _is_directory(path: str, entries: list[dict[str, Any]]) -> bool:
    """Whether something is in a path; a store always is a directory."""
    names = {path, f"{path}/"}
    return "/" not in path or any(entry["name"] not in names for entry in entries)


def _level(directory: str, path: str) -> int:
    """How deep below `path` the entries of a directory are; 1 is directly in it."""
    rest = directory[len(path) :]
    return 1 + rest.count("/") + (1 if rest and not path else 0)


def _known_file(info: jsync.ObjectInfo, store: jsync.ObjectStore) -> dict[str, Any]:
    """The entry of an object; raises `FileNotFoundError` for a link that leads nowhere."""
    entry = _file(info, store, {})
    if info.link is not None and info.link.name is not None and "nuid" not in entry:
        raise FileNotFoundError(entry["name"])
    return entry


def _file(
    info: jsync.ObjectInfo,
    store: jsync.ObjectStore,
    infos: Mapping[str, jsync.ObjectInfo],
) -> dict[str, Any]:
    """The entry of an object. That of a link has the size of its object, if there is one."""
    name = f"{store.bucket}/{info.name}"
    found = _object_of(info, store, infos)
    if found is None:
        return {"name": name, "size": 0, "type": "file", "mtime": info.modified}
    return {
        "name": name,
        "size": found.size,
        "type": "file",
        "mtime": found.modified,
        "nuid": found.nuid,
        "digest": found.digest,
        "description": found.description,
        "metadata": found.metadata,
    }


def _object_of(
    info: jsync.ObjectInfo,
    store: jsync.ObjectStore,
    infos: Mapping[str, jsync.ObjectInfo],
) -> jsync.ObjectInfo | None:
    """The object that a link leads to, from the infos of its store if they have it."""
    found: jsync.ObjectInfo | None = info
    for _ in range(MOST_LINKS):
        if found is None or found.link is None:
            break
        link = found.link
        found = infos.get(link.name or "") if link.bucket == store.bucket else None
    if found is not None and found.link is None:
        return found
    # A link to a store, or to nothing, and an object that cannot be read.
    with contextlib.suppress(errors.JetStreamError), store.open(info.name) as file:
        return file.info
    return None


def _contained(
    pairs: list[tuple[str, str]], root: str
) -> tuple[list[tuple[str, str]], list[str]]:
    """The pairs whose files are below a directory, each a file of its own; the others."""
    good: list[tuple[str, str]] = []
    left: list[str] = []
    base = root.rstrip("/")
    folders = {os.path.dirname(target) for _, target in pairs}
    folders |= {
        folder[:end]
        for folder in folders
        for end in range(len(base) + 1, len(folder))
        if folder[end] == "/"
    }
    for source, target in pairs:
        rest = target[len(base) :] if target.startswith(base) else f"/{target}"
        parts = rest.split("/")[1:]
        if all(map(_is_file_name, parts)) and (target not in folders or not parts):
            good.append((source, target))
        else:
            left.append(source)
    return good, left


def _is_file_name(part: str) -> bool:
    """Whether a part of an object's name is the name of a file on this system."""
    if part in ("", ".", "..") or "\x00" in part:
        return False
    return os.name != "nt" or not set('\\:<>"|?*') & set(part)


@contextlib.contextmanager
def _as_os_errors(path: str) -> Iterator[None]:
    """What fsspec and its users expect in place of some errors of jsync."""
    try:
        yield
    except (errors.ObjectNotFoundError, errors.BucketNotFoundError) as error:
        raise FileNotFoundError(path) from error
    except errors.InvalidBucketNameError as error:
        raise FileNotFoundError(path) from error
    except errors.ObjectExistsError as error:
        raise FileExistsError(path) from error
    except errors.LinkError as error:
        raise OSError(str(error)) from error
