"""Object stores as a file system of fsspec: `jetstream://STORE/name`.

The extra `fsspec` installs what this needs. fsspec finds it by its protocol, so that you
need not import it.
"""

from __future__ import annotations

import contextlib
import glob
import os
from typing import TYPE_CHECKING, Any, TypeVar

from fsspec.callbacks import DEFAULT_CALLBACK
from fsspec.implementations.local import make_path_posix, trailing_sep
from fsspec.spec import AbstractFileSystem
from fsspec.utils import isfilelike, other_paths

import jsync
from jsync import errors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime

    Listed = dict[str, dict[str, Any]]
    Tree = dict[str, tuple[Listed, Listed]]

Found = TypeVar("Found")

CLOSED_STORE_BYTES = 1
"""The `max_bytes` of a store that takes nothing more, because it is being deleted."""
MAX_MOVES = 3
"""The most attempts to move an object that others replace at the same time."""


class JetStreamFileSystem(AbstractFileSystem):  # type: ignore[misc]
    """The object stores of an account. The first part of a path is the store.

    Slashes in the names of objects make directories, which exist as long as something is
    in them. It connects when it is first used, once in each process: a forked child, such as
    a worker of a data loader, makes another connection. File systems with equal options share
    a connection. Any thread may use it.

    Args:
        servers: The URL of a server, or several. Default: that of `jsync.connect`.
        domain: The JetStream domain.
        prefix: The prefix of JetStream's API.
        timeout: Seconds to wait for each answer at most.
        **options: Options of fsspec, and of `jsync.connect`, such as `creds`.
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
        self._options: dict[str, Any] = {"name": "fsspec", **options}
        if servers is not None:
            self._options["servers"] = servers
        self._connection: jsync.Connection | None = None
        self._context: dict[str, Any] = {
            "domain": domain,
            "prefix": prefix,
            "timeout": timeout,
        }

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        stripped = super()._strip_protocol(path)
        return stripped if isinstance(stripped, list) else stripped.lstrip("/")

    @property
    def connection(self) -> jsync.Connection:
        """The connection of this process. The first use connects. Blocks."""
        self._connection = jsync.shared_connection(**self._options)
        return self._connection

    @property
    def jetstream(self) -> jsync.JetStream:
        """JetStream on the connection of this process. The first use connects. Blocks."""
        return self.connection.jetstream(**self._context)

    def close(self) -> None:
        """Close the connection of this process. The next use connects again."""
        if self._connection is not None:
            self._connection.close()

    def _store(self, bucket: str) -> jsync.ObjectStore:
        with _as_os_errors(bucket):
            return self.jetstream.object_store(bucket)

    def _of(self, path: str, call: Callable[[jsync.ObjectStore, str], Found]) -> Found:
        """Return the result of `call` with the store and the name of an object.

        fsspec removes the last slash of a path, so this also tries the name with a slash.
        """
        bucket, name = _object(path)
        store = self._store(bucket)
        with _as_os_errors(path):
            try:
                return call(store, name)
            except errors.ObjectNotFoundError:
                return call(store, f"{name}/")

    def _locate(self, path: str) -> tuple[jsync.ObjectStore, jsync.ObjectInfo]:
        """Return the store and the info of an object. Raises `FileNotFoundError`."""
        return self._of(path, lambda store, name: (store, store.info(name)))

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
        """Open an object as a file, with the options of `ObjectStore.open`."""
        if not autocommit:
            raise NotImplementedError(
                "transactions are not supported: an object is stored when you close it"
            )
        if mode == "rb":
            return self._of(path, lambda store, name: store.open(name))
        if mode not in ("wb", "xb"):
            raise NotImplementedError(
                f"mode {mode!r} is not supported: use rb, wb or xb"
            )
        bucket, name = _object(path)
        with _as_os_errors(path):
            store = self._store(bucket)
            if mode == "wb":
                return store.open(name, "wb", **options)
            # Its `close` raises `FileExistsError`, too, if another one was faster.
            return store.open(name, "xb", **options)

    def cat_file(
        self,
        path: str,
        start: int | None = None,
        end: int | None = None,
        **_options: Any,
    ) -> bytes:
        """The bytes of an object, or those from `start` to `end`."""
        path = self._strip_protocol(path)
        if start is None and end is None:
            return self._of(path, lambda store, name: store.get(name))
        with self._of(path, lambda store, name: store.open(name)) as file:
            first, last, _ = slice(start, end).indices(file.info.size)
            file.seek(first)
            return file.read(max(0, last - first))

    def pipe_file(
        self, path: str, value: bytes, mode: str = "overwrite", **options: Any
    ) -> None:
        """Put bytes as an object."""
        path = self._strip_protocol(path)
        bucket, name = _object(path)
        with _as_os_errors(path):
            store = self._store(bucket)
            if mode != "create":
                store.put(name, value, **options)
                return
            with store.open(name, "xb", **options) as file:
                file.write(value)

    def put_file(
        self,
        lpath: Any,
        rpath: str,
        callback: Any = DEFAULT_CALLBACK,
        mode: str = "overwrite",
        **options: Any,
    ) -> None:
        """Put a file as an object."""
        if mode != "create" or os.path.isdir(lpath):
            super().put_file(lpath, rpath, callback, mode, **options)
            return
        with open(lpath, "rb") as source, self.open(rpath, "xb", **options) as target:
            callback.set_size(os.fstat(source.fileno()).st_size)
            while block := source.read(target.chunk_size):
                target.write(block)
                callback.relative_update(len(block))

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
        `../../a`, or if an object has the name of a directory, the others are written.

        Raises:
            ValueError: Some objects were not written, because of their names.
        """
        base = None
        if isinstance(lpath, str | os.PathLike):
            lpath = make_path_posix(os.fspath(lpath))
            base = lpath.rstrip("/")
        left: list[str] = []
        pairs = self._pairs(rpath, lpath, recursive, maxdepth, os.path.isdir)
        callback.set_size(len(pairs))
        for source, target in callback.wrap(pairs):
            if base is not None and not _is_below(target, base):
                left.append(source)
                continue
            try:
                with callback.branched(source, target) as child:
                    self.get_file(source, target, callback=child, **options)
            except (FileExistsError, IsADirectoryError, NotADirectoryError):
                left.append(source)
        if left:
            more = f" and {len(left) - 5} more" if len(left) > 5 else ""
            raise ValueError(
                f"not written, since no file at {lpath!r} can have that name: "
                f"{', '.join(map(repr, left[:5]))}{more}; get each of them to a "
                "separate path"
            )

    def cp_file(
        self, path1: str, path2: str, *, move: bool = False, **_options: Any
    ) -> None:
        """Copy an object. Its bytes pass through this machine."""
        path1, path2 = self._strip_protocol(path1), self._strip_protocol(path2)
        try:
            store, info = self._locate(path1)
        except (FileNotFoundError, IsADirectoryError):
            if self.isdir(path1):
                return
            raise
        if not move:
            self._copy(store, info.name, path2)
        elif path1 != path2:
            self._move(path1, path2)

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
        **options: Any,
    ) -> None:
        """Copy objects. Their bytes pass through this machine.

        `on_error` is `raise` or `ignore`, and applies to objects that were deleted since they
        were listed. The default is `ignore` if `recursive`.
        """
        pairs = self._pairs(path1, path2, recursive, maxdepth, self.isdir)
        sources, targets = ([pair[n] for pair in pairs] for n in (0, 1))
        super().copy(sources, targets, recursive, on_error=on_error, **options)

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
        if not recursive and isinstance(path1, str) and self.isdir(path1):
            raise IsADirectoryError(
                f"a directory: {path1!r}; move it with recursive=True"
            )
        self.copy(path1, path2, recursive, maxdepth, "raise", move=True)

    def _move(self, source: str, target: str) -> None:
        bucket, other = _object(target)
        for _ in range(MAX_MOVES):
            store, info = self._locate(source)
            with _as_os_errors(source):
                if bucket == store.bucket:
                    with contextlib.suppress(errors.ObjectExistsError):
                        store.update_meta(info.name, new_name=other)
                        return
                # A put replaces the object in one step. With a delete before a rename, the
                # object would be lost if the rename failed.
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
        with contextlib.suppress(errors.InvalidObjectInfoError):
            name = self._locate(path)[1].name
        with _as_os_errors(path):
            store.delete(name)

    def rm(
        self, path: Any, recursive: bool = False, maxdepth: int | None = None
    ) -> None:
        """Delete objects, and directories with their objects. Stores stay.

        Raises:
            ValueError: The path is that of all stores.
        """
        paths = [path] if isinstance(path, str | os.PathLike) else list(path)
        if recursive and not all(map(self._strip_protocol, paths)):
            raise ValueError("cannot remove the objects of all stores: name a store")
        # Another client may have deleted an object, and a directory is not an object.
        passing = (FileNotFoundError, IsADirectoryError) if recursive else ()
        for found in reversed(self.expand_path(paths, recursive, maxdepth)):
            with contextlib.suppress(*passing):
                self.rm_file(found)

    def touch(self, path: str, truncate: bool = True, **options: Any) -> None:
        """Put an empty object. Without `truncate`, an existing object is not changed."""
        if truncate:
            self.pipe_file(path, b"", **options)
            return
        with contextlib.suppress(FileExistsError):
            self.pipe_file(path, b"", mode="create", **options)

    # Directories ----------------------------------------------------------------------

    def mkdir(self, path: str, create_parents: bool = True, **options: Any) -> None:
        """Create the store of a path, with `options` as its fields.

        Directories in a store need not be created.
        """
        bucket, _, name = self._strip_protocol(path).partition("/")
        js = self.jetstream
        if not name or (create_parents and bucket not in js.object_store_names()):
            if not name and bucket in js.object_store_names():
                raise FileExistsError(path)
            try:
                js.create_object_store(bucket=bucket, **options)
            except errors.AlreadyExistsError as error:  # another client was faster
                if not name:
                    raise FileExistsError(path) from error

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        """Create the store of a path."""
        try:
            self.mkdir(path)
        except FileExistsError:
            if not exist_ok:
                raise

    def rmdir(self, path: str) -> None:
        """Delete an empty store. Directories in a store end with their last object.

        The store refuses to store anything while it is deleted, so that no object of another
        client is deleted with it. If this process dies in between, the empty store keeps
        refusing. Call `rmdir` again, or set the `max_bytes` of the store.
        """
        path = self._strip_protocol(path)
        if "/" in path:
            return
        store, js = self._store(path), self.jetstream
        with _as_os_errors(path):
            _check_empty(store)
            status = store.status()
            if status.is_sealed:
                js.delete_object_store(path)
                return
            if status.stream_info.config.discard != "new":
                raise OSError(
                    f"the store removes old objects to store new ones: {path}; delete it "
                    "with JetStream.delete_object_store"
                )
            limit = status.config.max_bytes
            try:
                js.update_object_store(bucket=path, max_bytes=CLOSED_STORE_BYTES)
                _check_empty(store)
                js.delete_object_store(path)
            except BaseException:
                if limit != CLOSED_STORE_BYTES:  # no other program is deleting it
                    with contextlib.suppress(errors.BucketNotFoundError):
                        js.update_object_store(bucket=path, max_bytes=limit)
                raise

    def ls(self, path: str, detail: bool = True, **_options: Any) -> list[Any]:
        """List a directory, or an object as the only entry."""
        path = self._strip_protocol(path)
        inner, files = self._tree(path)[path]
        entries = [*inner.values(), *files.values()]
        found = sorted(entries, key=lambda entry: str(entry["name"]))
        if not found and "/" in path:
            raise FileNotFoundError(path)
        return found if detail else [entry["name"] for entry in found]

    def walk(
        self,
        path: str,
        maxdepth: int | None = None,
        topdown: bool = True,
        on_error: str | Callable[[OSError], object] = "omit",
        detail: bool = False,
        **_options: Any,
    ) -> Iterator[tuple[str, Any, Any]]:
        """Directories one by one, with what is in each, as `os.walk` does.

        The store is listed once, and not again for each directory.
        """
        if maxdepth is not None and maxdepth < 1:
            raise ValueError("maxdepth must be at least 1")
        path = self._strip_protocol(path)
        try:
            tree = self._tree(path)
        except FileNotFoundError as error:
            if on_error == "raise":
                raise
            if callable(on_error):
                on_error(error)
            return
        yield from self._walk(tree, path, maxdepth, topdown, detail)

    def _walk(
        self, tree: Tree, path: str, maxdepth: int | None, topdown: bool, detail: bool
    ) -> Iterator[tuple[str, Any, Any]]:
        if path not in tree:  # a store, below the root
            yield from self.walk(path, maxdepth, topdown, detail=detail)
            return
        inner, files = tree[path]
        here: tuple[str, Any, Any] = (path, inner, files)
        if not detail:
            here = (path, list(inner), list(files))
        if topdown:
            yield here
        if maxdepth is None or maxdepth > 1:
            below = None if maxdepth is None else maxdepth - 1
            for name in list(here[1]):  # the caller may have removed some
                if name in inner:
                    directory = inner[name]["name"]
                    yield from self._walk(tree, directory, below, topdown, detail)
        if not topdown:
            yield here

    def du(
        self,
        path: str,
        total: bool = True,
        maxdepth: int | None = None,
        withdirs: bool = False,
        **_options: Any,
    ) -> Any:
        """The bytes of the objects below a path, together or of each."""
        found = self.find(path, maxdepth, detail=True)
        sizes = {name: entry.get("size", 0) for name, entry in found.items()}
        if withdirs:
            sizes = dict.fromkeys(self.find(path, maxdepth, withdirs=True), 0) | sizes
        return sum(sizes.values()) if total else sizes

    def _tree(self, path: str) -> Tree:
        """Return the contents of each directory, from one listing of the store.

        Their names are relative to the directory. The tree of the root has only the stores.
        """
        tree: Tree = {path: ({}, {})}
        bucket, _, name = path.partition("/")
        if not bucket:
            names = self.jetstream.object_store_names()
            tree[path][0].update((store, _directory(store)) for store in names)
            return tree
        with _as_os_errors(path):
            store = self._store(bucket)
            infos = list(store.list())
        for info in infos:
            full = f"{bucket}/{info.name}"
            if name and info.name != name and not full.startswith(f"{path}/"):
                continue
            top = path
            for end in _ends(full):
                if end > len(path):
                    directory = full[:end]
                    tree[top][0][full[len(top) + 1 : end]] = _directory(directory)
                    tree.setdefault(directory, ({}, {}))
                    top = directory
            tree[top][1][full[len(top) + 1 :]] = _file(info, store)
        return tree

    def _pairs(
        self,
        source: Any,
        target: Any,
        recursive: bool,
        maxdepth: int | None,
        is_directory: Callable[[str], bool],
    ) -> list[tuple[str, str]]:
        """Return objects with their targets, by fsspec's rules for `cp`, `mv` and `get`."""
        if isinstance(source, list) and isinstance(target, list):
            return list(zip(map(self._strip_protocol, source), target, strict=True))
        paths = self.expand_path(source, recursive, maxdepth)
        is_one = isinstance(source, str | os.PathLike)
        if is_one and (not recursive or maxdepth is not None):
            paths = [path for path in paths if not self.isdir(path)]
            if not paths:
                return []
        exists = False
        if is_one:
            path = self._strip_protocol(os.fspath(source))
            if glob.has_magic(path) and path not in paths:
                exists = len(paths) == 1
            elif isinstance(target, str) and not trailing_sep(os.fspath(source)):
                exists = trailing_sep(target) or is_directory(target)
        targets = other_paths(paths, target, exists=exists, flatten=not is_one)
        return list(zip(paths, targets, strict=True))

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
        paths = [path] if isinstance(path, str | os.PathLike) else list(path)
        found: set[str] = set()
        for one in map(self._strip_protocol, paths):
            if glob.has_magic(one) and self.lexists(one):
                found.add(one)
            else:
                with contextlib.suppress(FileNotFoundError):
                    found.update(super().expand_path([one], recursive, maxdepth))
        if not found:
            raise FileNotFoundError(path)
        return sorted(found)

    # Information ----------------------------------------------------------------------

    def info(self, path: str, **_options: Any) -> dict[str, Any]:
        """Return the information about an object, a directory or a store."""
        path = self._strip_protocol(path)
        bucket, _, name = path.partition("/")
        if not bucket:
            return _directory(path)
        store = self._store(bucket)
        if not name:
            return _directory(path)
        with contextlib.suppress(errors.ObjectNotFoundError):
            return _known_file(store.info(name), store)
        found = self.ls(path)
        return found[0] if found[0]["name"] == f"{path}/" else _directory(path)

    def exists(self, path: str, **_options: Any) -> bool:
        """Return whether an object, a directory or a store exists.

        Unlike the method of fsspec, `exists`, `isdir` and `isfile` raise an error if the
        server cannot answer.
        """
        return self._type(path) is not None

    def isdir(self, path: str) -> bool:
        """Return whether a path is a store, or has objects below it."""
        return self._type(path) == "directory"

    def isfile(self, path: str) -> bool:
        """Return whether a path is an object, or a link to an object."""
        return self._type(path) == "file"

    def _type(self, path: str) -> str | None:
        try:
            return str(self.info(path)["type"])
        except FileNotFoundError:
            return None
        except errors.InvalidObjectInfoError:
            return "file"

    def lexists(self, path: str, **_options: Any) -> bool:
        """Return whether a path is an object or a link, even a broken link."""
        try:
            self._locate(self._strip_protocol(path))
        except (FileNotFoundError, IsADirectoryError):
            return False
        except errors.InvalidObjectInfoError:
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


def _check_empty(store: jsync.ObjectStore) -> None:
    """Raise `OSError` if a store has objects, unfinished puts or unreadable infos."""
    found = store.check(remove=False)
    if any(store.list()) or found.uploads or found.unreadable:
        raise OSError(f"the store is not empty: {store.bucket}")


def _object(path: str) -> tuple[str, str]:
    """Split a path into store and object. Raises `IsADirectoryError` without an object."""
    bucket, _, name = path.partition("/")
    if not name:
        raise IsADirectoryError(f"a store, not an object: {path!r}")
    return bucket, name


def _directory(name: str) -> dict[str, Any]:
    return {"name": name, "size": 0, "type": "directory"}


def _ends(path: str) -> Iterator[int]:
    """Iterate over the ends of the directories in the path of an object.

    An empty part, as in `a//b`, cannot be a directory: fsspec would remove the slash.
    """
    end = path.find("/")
    while 0 <= end < len(path) - 1:
        yield end
        if path[end + 1] == "/":
            return
        end = path.find("/", end + 1)


def _known_file(info: jsync.ObjectInfo, store: jsync.ObjectStore) -> dict[str, Any]:
    """Return the entry of an object. Raises `FileNotFoundError` for a broken link."""
    entry = _file(info, store)
    if info.link is not None and info.link.name is not None and "nuid" not in entry:
        raise FileNotFoundError(entry["name"])
    return entry


def _file(info: jsync.ObjectInfo, store: jsync.ObjectStore) -> dict[str, Any]:
    """Return the entry of an object. For a link, the size is that of its target, if any."""
    entry = {"name": f"{store.bucket}/{info.name}", "size": 0, "type": "file"}
    found = info
    if info.link is not None:
        try:
            with store.open(info.name) as file:
                found = file.info
        except errors.JetStreamError:
            # A link to a store, or to nothing, and an object that cannot be read.
            return {**entry, "mtime": info.modified}
    return {
        **entry,
        "size": found.size,
        "mtime": found.modified,
        "nuid": found.nuid,
        "digest": found.digest,
        "description": found.description,
        "metadata": found.metadata,
    }


def _is_below(target: str, base: str) -> bool:
    """Return whether `target` is the directory `base`, or a valid file name below it."""
    if target.rstrip("/") == base:
        return True
    if not target.startswith(base):
        return False
    return all(map(_is_file_name, target[len(base) :].split("/")[1:]))


def _is_file_name(part: str) -> bool:
    """Return whether a part of an object's name can be a file name on this system."""
    if part in ("", ".", "..") or "\x00" in part:
        return False
    return os.name != "nt" or not set('\\:<>"|?*') & set(part)


@contextlib.contextmanager
def _as_os_errors(path: str) -> Iterator[None]:
    """Raise the errors that fsspec and its users expect, instead of some of jsync."""
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
