"""Object stores as a file system of fsspec: `jetstream://STORE/name`.

The extra `fsspec` installs what this needs. fsspec finds it by its protocol, so that you
need not import it.
"""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Any

from fsspec.spec import AbstractFileSystem

import jsync
from jsync import errors

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime


class JetStreamFileSystem(AbstractFileSystem):  # type: ignore[misc]
    """The object stores of an account. The first part of a path is the store.

    Slashes in the names of objects make directories, which exist as long as something is
    in them. It connects when it is first used. Any thread may use it.

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
        self._lock = threading.Lock()
        self._connection: jsync.Connection | None = None

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        stripped = super()._strip_protocol(path)
        return stripped if isinstance(stripped, list) else stripped.lstrip("/")

    @property
    def jetstream(self) -> jsync.JetStream:
        """JetStream on the connection; connects first, which blocks."""
        with self._lock:
            if self._connection is None:
                self._connection = jsync.connect(*self._arguments, **self._options)
            return self._connection.jetstream(**self._context)

    def close(self) -> None:
        """Close the connection. The next use connects again."""
        with self._lock:
            connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _store(self, bucket: str) -> jsync.ObjectStore:
        with _as_os_errors(bucket):
            return self.jetstream.object_store(bucket)

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
        if mode == "xb" and self.exists(path):
            raise FileExistsError(path)
        with _as_os_errors(path):
            if mode == "rb":
                return store.open(name)
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
                return self._store(bucket).get(name)
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
        if mode == "create" and self.exists(path):
            raise FileExistsError(path)
        bucket, name = _object(path)
        with _as_os_errors(path):
            self._store(bucket).put(name, value, **options)

    def cp_file(self, path1: str, path2: str, **_options: Any) -> None:
        """Copy an object by way of this machine."""
        path1, path2 = self._strip_protocol(path1), self._strip_protocol(path2)
        if self.isdir(path1):
            return
        source, name = _object(path1)
        target, copy = _object(path2)
        with _as_os_errors(path1), self._store(source).open(name) as file:
            info = file.info
            self._store(target).put(
                copy,
                file,
                description=info.description,
                headers=info.headers,
                metadata=info.metadata,
            )

    def mv(self, path1: str, path2: str, *args: Any, **options: Any) -> None:
        """Rename an object, without a copy if the store stays the same.

        An object that has the new name already is replaced by a copy.
        """
        path1, path2 = self._strip_protocol(path1), self._strip_protocol(path2)
        source, _, name = path1.partition("/")
        target, _, other = path2.partition("/")
        if source != target or not (name and other) or not self.isfile(path1):
            super().mv(path1, path2, *args, **options)
        elif path1 != path2:
            if self.isdir(path2):
                other = f"{other}/{name.rpartition('/')[2]}"
            store = self._store(source)
            with _as_os_errors(path1):
                try:
                    store.update_meta(name, new_name=other)
                except errors.ObjectExistsError:
                    # A put replaces the object at once. After a delete it would be
                    # lost if the rename failed.
                    self.cp_file(path1, f"{target}/{other}")
                    store.delete(name)

    def rm_file(self, path: str) -> None:
        """Delete an object."""
        path = self._strip_protocol(path)
        bucket, name = _object(path)
        with _as_os_errors(path):
            self._store(bucket).info(name)
            self._store(bucket).delete(name)

    def rm(
        self, path: Any, recursive: bool = False, maxdepth: int | None = None
    ) -> None:
        """Delete objects. Directories go with what is in them; stores stay."""
        for found in reversed(self.expand_path(path, recursive, maxdepth)):
            if recursive and not self.isfile(found):
                continue
            self.rm_file(found)

    def touch(self, path: str, truncate: bool = True, **options: Any) -> None:
        """Put an empty object; without `truncate` only where there is none."""
        if truncate or not self.exists(path):
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
        if any(True for _ in self._store(path).list()):
            raise OSError(f"the store is not empty: {path}")
        with _as_os_errors(path):
            self.jetstream.delete_object_store(path)

    def ls(self, path: str, detail: bool = True, **_options: Any) -> list[Any]:
        """What is in a directory; of an object, itself."""
        path = self._strip_protocol(path)
        found = sorted(self._entries(path), key=lambda entry: str(entry["name"]))
        if not found and "/" in path:
            raise FileNotFoundError(path)
        return found if detail else [entry["name"] for entry in found]

    def _entries(self, path: str) -> Iterator[dict[str, Any]]:
        bucket, _, name = path.partition("/")
        if not bucket:
            for store in self.jetstream.object_store_names():
                yield _directory(store)
            return
        prefix = f"{name}/" if name else ""
        directories: set[str] = set()
        with _as_os_errors(path):
            for info in self._store(bucket).list():
                if info.name == name:
                    yield _file(info, bucket)
                elif info.name.startswith(prefix):
                    inner, slash, _ = info.name[len(prefix) :].partition("/")
                    if not slash:
                        yield _file(info, bucket)
                    elif inner not in directories:
                        directories.add(inner)
                        yield _directory(f"{bucket}/{prefix}{inner}")

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
            found = store.info(name)
            if found.link is not None and found.link.name is not None:
                # The info is of a link, so take the size of the object.
                with store.open(name) as file:
                    return {**_file(file.info, bucket), "name": path}
            return _file(found, bucket)
        if any(info.name.startswith(f"{name}/") for info in store.list()):
            return _directory(path)
        raise FileNotFoundError(path)

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


def _file(info: jsync.ObjectInfo, bucket: str) -> dict[str, Any]:
    return {
        "name": f"{bucket}/{info.name}",
        "size": info.size,
        "type": "file",
        "mtime": info.modified,
        "nuid": info.nuid,
        "digest": info.digest,
        "description": info.description,
        "metadata": info.metadata,
    }


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
