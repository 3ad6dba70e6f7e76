"""Back up all streams of an account to files, and restore them.

The directory has one directory for each stream, in the layout of the `nats` command.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ...errors import BackupError, ConfigError, Error, IncompleteListError
from ...models import check_name
from ...terminal import printable
from ...validation import check_bool, check_optional_callable
from ..features import MEMORY_BACKUP, missing_features, version_of_server
from ..management import stream_names, streams
from .driver import StreamBackup, backup
from .engine import META, read_manifest
from .restoring import check_finished, restore

if TYPE_CHECKING:
    from collections.abc import Callable
    from os import PathLike

    from ...models import StreamInfo
    from ...validation import Seconds
    from ..api import API
    from .driver import Progress

    StreamProgress = Callable[[str, int, int], object]


class AccountBackup(msgspec.Struct, frozen=True):
    """A backup of all streams of an account, which `JetStream.backup_streams` has made.

    Example:
        ```python
        import tempfile

        with tempfile.TemporaryDirectory() as directory:
            backup = js.backup_streams(directory)
            print([each.stream for each in backup.streams], backup.skipped)
        ```
    """

    directory: Path
    """It has a directory for each stream, with the name of the stream."""
    streams: list[StreamBackup]
    """The backups, in the order of the names of the streams."""
    skipped: list[str]
    """The streams in memory, which servers before 2.15 cannot back up."""


def backup_streams(
    api: API,
    directory: str | PathLike[str],
    *,
    consumers: bool,
    check: bool,
    on_progress: StreamProgress | None,
    timeout: Seconds,
) -> AccountBackup:
    """Do the work of `JetStream.backup_streams`."""
    check_optional_callable(on_progress, "on_progress")
    where = Path(directory)
    if where.exists() and any(where.iterdir()):
        raise ConfigError(f"{where} is not empty: choose another directory")
    failed: dict[str, str] = {}
    infos = _all(api, failed)
    if not infos and not failed:
        raise ConfigError("the account has no streams to back up")
    where.mkdir(parents=True, exist_ok=True)
    memory = not missing_features(MEMORY_BACKUP, version_of_server(api.session.info))
    made: list[StreamBackup] = []
    skipped: list[str] = []
    for info in infos:
        stream = info.config.name or ""
        if info.config.storage == "memory" and not memory:
            skipped.append(stream)
            continue
        try:
            check_name(stream, "stream")
        except ConfigError as error:
            # Such a name cannot be that of a directory.
            failed[printable(stream)] = str(error)
            continue
        try:
            found = backup(
                api,
                stream,
                where / stream,
                consumers=consumers,
                check=check,
                on_progress=_with_stream(on_progress, stream),
                timeout=timeout,
            )
        except (Error, OSError) as error:
            failed[stream] = _reason(error)
            with contextlib.suppress(OSError):
                (where / stream).rmdir()
        else:
            made.append(found)
    _raise_failures(failed, f"not backed up ({len(made)} others are in {where})")
    return AccountBackup(where, made, skipped)


def _all(api: API, failed: dict[str, str]) -> list[StreamInfo]:
    """List the streams that answer. The names of the others go to `failed`."""
    found: list[StreamInfo] = []
    try:
        found.extend(streams(api, None, None))
    except IncompleteListError as error:
        silent = dict.fromkeys(error.missing, "offline, or without a leader")
        failed.update(silent)
    return [info for info in found if info.config.name not in failed]


def restore_streams(
    api: API,
    directory: str | PathLike[str],
    *,
    config: Callable[[dict[str, Any]], dict[str, Any]] | None,
    skip_existing: bool,
    on_progress: StreamProgress | None,
    timeout: Seconds,
) -> list[StreamInfo]:
    """Do the work of `JetStream.restore_streams`."""
    check_bool(skip_existing, "skip_existing")
    check_optional_callable(on_progress, "on_progress")
    where = Path(directory)
    try:
        places = sorted(where.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        raise ConfigError(f"{where} is not a directory") from None
    if (where / META).exists():
        raise ConfigError(f"{where} is the backup of one stream: use restore_stream")
    # Verify first that the backup is whole and each stream new, then create the streams.
    names = {place: _stream_name(place) for place in places}
    if not names:
        raise ConfigError(f"{where} holds no backups")
    existing = set(stream_names(api, None, None)).intersection(names.values())
    if existing and not skip_existing:
        raise ConfigError(
            f"streams exist already: {', '.join(sorted(existing))}. Restore only the others "
            "with skip_existing"
        )
    made: list[StreamInfo] = []
    failed: dict[str, str] = {}
    for place, stream in names.items():
        try:
            if stream in existing:
                check_finished(api, stream)
                continue
            info = restore(
                api,
                place,
                name=None,
                config=config,
                on_progress=_with_stream(on_progress, stream),
                timeout=timeout,
            )
        except (Error, OSError) as error:
            failed[stream] = _reason(error)
        else:
            made.append(info)
    _raise_failures(failed, f"not restored ({len(made)} others are)")
    return made


def _stream_name(place: Path) -> str:
    """Read the name of the stream in a backup. Raises `ConfigError` if it is not whole."""
    try:
        return read_manifest((place / META).read_bytes(), str(place / META)).stream
    except (FileNotFoundError, NotADirectoryError):
        raise ConfigError(
            f"{place} holds no whole backup: there is no {META} in it"
        ) from None


def _with_stream(progress: StreamProgress | None, stream: str) -> Progress | None:
    if progress is None:
        return None
    return lambda done, total: progress(stream, done, total)


def _reason(error: Exception) -> str:
    return ", and ".join([str(error), *getattr(error, "__notes__", ())])


def _raise_failures(failed: dict[str, str], what: str) -> None:
    if failed:
        reasons = "; ".join(f"{stream}: {words}" for stream, words in failed.items())
        raise BackupError(f"streams {what}: {reasons}")
