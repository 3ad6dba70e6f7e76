"""Restore a stream from files.

A server creates the stream with the first messages of an archive, and keeps it if the rest
does not come. Until the archive is complete, the stream therefore has a private subject and a
mark. No client publishes to that subject, so an incomplete stream can safely be deleted. The
mark distinguishes it from a stream of the same name that another client has created.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, cast

from ... import errors
from ...core.clock import deadline_after
from ...core.requests import open_request, request
from ...errors import (
    APIError,
    BackupError,
    ConfigError,
    Error,
    JetStreamNotEnabledError,
    NoRespondersError,
    PermissionsError,
    StreamNotFoundError,
    SubjectOverlapError,
)
from ...models import StreamInfo, check_name
from ...validation import check_optional_callable, check_seconds, format_seconds
from ..buckets.engine import TRANSIENT_ERRORS
from ..features import RESTORE_ARCHIVE, RESTORE_RENAMED
from ..management import check_overlap, countdown, delete_stream, stream_info
from ..replies import get_field, parse_reply
from .engine import (
    ARCHIVE,
    CHUNK,
    META,
    OLD_ARCHIVE,
    UNFINISHED,
    Manifest,
    archive_name,
    is_complete,
    read_manifest,
    subjects_of,
    unfinished,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from os import PathLike

    from ..._fast import Msg
    from ...validation import Seconds
    from ..api import API
    from ..management import Countdown
    from .driver import Progress

RESTORE_SECONDS: Final = 3600.0
"""The most seconds that a server may take once it has the whole archive."""
_PARTS_OF_TIMEOUT: Final = 4
"""A server that is silent for one of these parts of the timeout is looked for."""
_NO_RESPONDERS: Final = 503
_NAME_IN_USE: Final = 10130
_MAX_CLEANUP_SECONDS: Final = 5.0
"""The most seconds that a failed restore takes to delete the unfinished stream."""
_POLL_DELAYS: Final = (0.0, 0.05, 0.2, 0.5)
"""Pauses before each look for a stream that the server may still be creating."""


def restore(
    api: API,
    directory: str | PathLike[str],
    *,
    name: str | None,
    config: Callable[[dict[str, Any]], dict[str, Any]] | None,
    on_progress: Progress | None,
    timeout: Seconds,
) -> StreamInfo:
    """Do the work of `JetStream.restore_stream`."""
    check_optional_callable(on_progress, "on_progress")
    timeout = check_seconds(timeout, "timeout")
    where = Path(directory)
    try:
        manifest = read_manifest((where / META).read_bytes(), str(where / META))
    except FileNotFoundError:
        raise ConfigError(
            f"{where} holds no whole backup: there is no {META} in it"
        ) from None
    archive = _archive(where)
    with archive.open("rb") as file:
        is_old = archive_name(file) == OLD_ARCHIVE
    restored_config = _restored_config(manifest, name, config)
    stream = str(restored_config["name"])
    if stream != manifest.stream:
        if is_old:
            raise ConfigError(
                f"{where} is a backup by a nats-server before 2.15: stream "
                f"{manifest.stream} keeps its name, so it cannot become {stream!r}"
            )
        api.require(RESTORE_RENAMED)
    if not is_old:
        api.require(RESTORE_ARCHIVE)  # an older server reports an invalid tar
    _verify(archive, manifest)
    left = countdown(api, timeout)
    # A server that does not list its streams may still restore one.
    check_overlap(
        api, stream, subjects_of(restored_config), countdown(api, timeout / 2)
    )
    restoring = _Restore(api, stream, restored_config, timeout)
    # From an older archive, a server creates nothing before the archive is complete.
    return restoring.run(archive, manifest.state, on_progress, left, hidden=not is_old)


def _restored_config(
    manifest: Manifest,
    name: str | None,
    config: Callable[[dict[str, Any]], dict[str, Any]] | None,
) -> dict[str, Any]:
    found = dict(manifest.config)
    metadata = dict(found.get("metadata") or {})
    if metadata.pop(UNFINISHED, None) is not None:
        raise ConfigError(
            f"the backup is of a part of stream {manifest.stream}, which was restored then"
        )
    if name is not None:
        check_name(name, "stream")
        found["name"] = name
    if config is not None:
        found = config(found)
        if not isinstance(found, dict):
            raise ConfigError(f"config has to return a dict, not {found!r}")
    check_name(cast("str", found.get("name")), "stream")
    return found


def check_finished(api: API, stream: str) -> None:
    """Raise `BackupError` if a stream is incomplete: a restore is running, or has left it."""
    info = stream_info(api, stream)
    if UNFINISHED in (info.config.metadata or {}):
        raise BackupError(
            f"stream {stream} is a part that another restore writes now, or has left: if no "
            "restore is running, delete the stream, and begin again"
        )


class _Restore:
    """The restore of one stream."""

    def __init__(
        self, api: API, stream: str, config: dict[str, Any], timeout: float
    ) -> None:
        self._api = api
        self._stream = stream
        self._config = config
        self._timeout = timeout
        self._mark = os.urandom(11).hex()
        self._restore_subject = f"STREAM.RESTORE.{stream}"

    def run(
        self,
        archive: Path,
        state: dict[str, Any],
        on_progress: Progress | None,
        left: Countdown,
        *,
        hidden: bool,
    ) -> StreamInfo:
        """Restore the stream. The first answer may take the time `left`."""
        config = unfinished(self._config, self._mark) if hidden else self._config
        try:
            reply = self._api.request(
                self._restore_subject,
                {"config": config, "state": state},
                timeout=left(),
            )
        except APIError as error:
            if error.err_code == _NAME_IN_USE:
                with contextlib.suppress(APIError, errors.TimeoutError):
                    check_finished(self._api, self._stream)
            raise
        except Error as error:
            self._clean_up(error, hidden=hidden)  # the server may have begun
            raise
        subject = get_field(reply, "deliver_subject", "", str)
        try:
            self._send_all(archive, subject, on_progress)
            made = self._await_end(subject, hidden=hidden)
            return self._finish() if hidden else made
        except BaseException as error:
            self._stop(subject)
            self._clean_up(error, hidden=hidden)
            raise

    def _clean_up(self, error: BaseException, *, hidden: bool) -> None:
        """Remove the part on the server, or add a note to the error that it may be left."""
        if hidden and not self._is_deleted(ended=isinstance(error, APIError)):
            error.add_note(
                f"a part of stream {self._stream} may be left on the server, without its "
                "subjects: delete it before you restore it again"
            )

    def _send_all(
        self, archive: Path, subject: str, on_progress: Progress | None
    ) -> None:
        total, sent = archive.stat().st_size, 0
        size = min(CHUNK, self._api.session.write_buffer.max_payload or CHUNK)
        with archive.open("rb") as file:
            while chunk := file.read(size):
                if answer := self._send(subject, chunk, self._timeout):
                    parse_reply(answer, self._restore_subject)
                sent += len(chunk)
                if on_progress is not None:
                    on_progress(sent, total)

    def _await_end(self, subject: str, *, hidden: bool) -> StreamInfo:
        """Send the end of the archive, and wait while the restoring server is there."""
        session, timeout = self._api.session, self._timeout
        now = monotonic()
        end, silent_at = now + max(RESTORE_SECONDS, timeout), now + timeout
        leader: str | None = None
        answer: Msg | None = None
        mailbox, token = open_request(session, subject, b"", deadline_after(timeout))
        try:
            while answer is None:
                left = max(0.0, min(silent_at, end) - monotonic())
                try:
                    answer = mailbox.next(min(left, timeout / _PARTS_OF_TIMEOUT))
                except errors.TimeoutError as late:
                    found = self._restorer(silent_at, hidden=hidden)
                    leader = leader or found
                    if found == (leader or ""):
                        silent_at = monotonic() + timeout
                    if monotonic() >= min(silent_at, end):
                        raise errors.TimeoutError(
                            f"the server that restores stream {self._stream} has not "
                            f"answered within {format_seconds(timeout)}"
                        ) from late
        finally:
            session.reply_mux.discard(token)
        if answer.status == _NO_RESPONDERS and not answer.data:
            raise BackupError("the server gave up the restore: begin again")
        return StreamInfo.from_wire(parse_reply(answer.data, self._restore_subject))

    def _restorer(self, deadline: float, *, hidden: bool) -> str | None:
        """Return the leader of the stream, or "" if it is not known.

        None: the stream of this restore does not answer until the deadline.
        """
        wait = min(max(0.0, deadline - monotonic()), _MAX_CLEANUP_SECONDS)
        try:
            info = stream_info(self._api, self._stream, timeout=wait)
        except StreamNotFoundError:
            # From an older archive, the server creates the stream at the end.
            return None if hidden else ""
        except PermissionsError:
            return ""  # this client may not look
        except Error:
            return None
        if hidden and (info.config.metadata or {}).get(UNFINISHED) != self._mark:
            return None
        return (info.cluster and info.cluster.leader) or ""

    def _send(self, subject: str, data: bytes, timeout: float) -> bytes:
        try:
            return request(self._api.session, subject, data, timeout).data
        except NoRespondersError as no_responders:
            raise BackupError(
                "the server gave up the restore: begin again"
            ) from no_responders
        except errors.TimeoutError as late:
            raise errors.TimeoutError(
                f"the server did not take the backup within {format_seconds(timeout)}"
            ) from late

    def _finish(self) -> StreamInfo:
        """Give the complete stream its final configuration."""
        left = countdown(self._api, self._timeout)
        subject = f"STREAM.UPDATE.{self._stream}"
        while True:
            try:
                reply = self._api.request(subject, self._config, timeout=left())
                return StreamInfo.from_wire(reply)
            except SubjectOverlapError as error:
                subjects = subjects_of(self._config)
                check_overlap(self._api, self._stream, subjects, left, error)
                raise
            except (errors.TimeoutError, JetStreamNotEnabledError):
                # The update can be repeated, and may have been done.
                if left() <= _POLL_DELAYS[-1]:
                    raise
                self._api.session.sleep(_POLL_DELAYS[-1])

    def _stop(self, subject: str) -> None:
        """Make the server end the restore, by a chunk without the reply subject it needs."""
        with contextlib.suppress(Error):
            self._api.session.write_buffer.publish(subject, b"")

    def _is_deleted(self, *, ended: bool) -> bool:
        """Delete the part on the server. Return whether certainly nothing of it is left.

        `ended` is whether the server itself has ended the restore.
        """
        left = countdown(self._api, min(self._timeout, _MAX_CLEANUP_SECONDS))
        pauses = [0.0] if ended else [*_POLL_DELAYS]
        while pauses:
            try:
                self._api.session.sleep(min(pauses[0], left()))
                info = stream_info(self._api, self._stream, timeout=left())
                if (info.config.metadata or {}).get(UNFINISHED) != self._mark:
                    return True  # another stream of this name
                if self._config.get("mirror"):
                    return False  # it has begun to copy its origin
                delete_stream(self._api, self._stream, left())
                return True
            except StreamNotFoundError:
                del pauses[0]
            except TRANSIENT_ERRORS:
                if not left():
                    return False
                pauses[0] = _POLL_DELAYS[-1]  # the server may be starting again
            except Error:
                return False
        return True


def _archive(where: Path) -> Path:
    found = [where / name for name in (ARCHIVE, OLD_ARCHIVE) if (where / name).exists()]
    if len(found) != 1:
        names = f"{ARCHIVE} and {OLD_ARCHIVE}"
        words = f"both {names}" if found else f"neither of {names}"
        raise ConfigError(f"{where} holds {words}")
    return found[0]


def _verify(archive: Path, manifest: Manifest) -> None:
    """Compare the archive with the description. The `nats` command writes no digest."""
    with archive.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        if manifest.sha256 is None:
            if not is_complete(file, size):
                raise BackupError(f"{archive} was cut off, at {size} bytes")
        elif hashlib.file_digest(file, "sha256").hexdigest() != manifest.sha256:
            raise BackupError(
                f"{archive} is damaged: it has {size} bytes of {manifest.size}, or other ones"
            )
