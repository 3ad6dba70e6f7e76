"""ADR-32: names and subjects, states, counts, and errors.

Pure: no socket, thread or clock.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, TypeGuard

from .._fast import check_subscribe_subject
from ..errors import ConfigError, InvalidSubjectError, ServiceError
from ..errors.service import ERROR, ERROR_CODE
from ..subjects import has_wildcard
from .messages import EndpointStats

if TYPE_CHECKING:
    from .._fast import Msg
    from .messages import EndpointInfo

Verb: TypeAlias = Literal["PING", "INFO", "STATS"]

VERBS: Final[tuple[Verb, ...]] = ("PING", "INFO", "STATS")
DEFAULT_PREFIX: Final = "$SRV"
DEFAULT_QUEUE: Final = "q"

_NAME: Final = re.compile(r"[A-Za-z0-9_-]+")
# The expression that semver.org suggests.
_NUMBER: Final = r"(?:0|[1-9][0-9]*)"
_PRE: Final = rf"(?:{_NUMBER}|[0-9]*[a-zA-Z-][0-9a-zA-Z-]*)"
_VERSION: Final = re.compile(
    rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}"
    rf"(?:-{_PRE}(?:\.{_PRE})*)?(?:\+[0-9a-zA-Z-]+(?:\.[0-9a-zA-Z-]+)*)?"
)


# States ---------------------------------------------------------------------------------


class ServiceState(Enum):
    """The state of a service.

    Example:
        ```python
        service = nc.service("prices", "1.0.0")
        service.stop()
        print(service.state is jsync.ServiceState.STOPPED)
        ```
    """

    RUNNING = "running"
    STOPPING = "stopping"
    """The service gets no more requests, and finishes those that it has."""
    STOPPED = "stopped"


TRANSITIONS: Final[Mapping[ServiceState, frozenset[ServiceState]]] = {
    ServiceState.RUNNING: frozenset({ServiceState.STOPPING}),
    ServiceState.STOPPING: frozenset({ServiceState.STOPPED}),
    ServiceState.STOPPED: frozenset(),
}


# Names and subjects ---------------------------------------------------------------------


def check_name(name: object, what: str) -> str:
    """Check the name of a service or an endpoint.

    Raises:
        ConfigError: The name is not valid.
    """
    if isinstance(name, str) and _NAME.fullmatch(name):
        return name
    raise ConfigError(
        f"{what} cannot be {name!r}: use letters, digits, `-` and `_`, at least one"
    )


def check_version(version: object) -> str:
    """Check a version.

    Raises:
        ConfigError: The version is not a semantic version.
    """
    if isinstance(version, str) and _VERSION.fullmatch(version):
        return version
    raise ConfigError(
        f"version has to be a semantic version such as 1.2.0, not {version!r}"
    )


def _is_text(value: object) -> TypeGuard[str]:
    """Return whether a value is a string that JSON can carry, without lone surrogates."""
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def check_description(description: object) -> str:
    """Check a description, which each answer to INFO carries.

    Raises:
        ConfigError: The description is not a string, or not valid Unicode.
    """
    if _is_text(description):
        return description
    raise ConfigError(
        f"description has to be a string of valid Unicode, not {description!r}"
    )


def check_metadata(metadata: object) -> dict[str, str]:
    """Check and copy metadata, since it cannot change later.

    Raises:
        ConfigError: The metadata is not a mapping of strings to strings.
    """
    if metadata is None:
        return {}
    if isinstance(metadata, Mapping) and all(
        _is_text(name) and _is_text(value) for name, value in metadata.items()
    ):
        return dict(metadata)
    raise ConfigError(f"metadata has to be strings by strings, not {metadata!r}")


def check_prefix(prefix: object) -> str:
    """Check a prefix of control subjects.

    Raises:
        ConfigError: The prefix is not a subject, or has wildcards.
    """
    try:
        if isinstance(prefix, str) and not has_wildcard(prefix):
            check_subscribe_subject(prefix)
            return prefix
    except InvalidSubjectError as error:
        raise ConfigError(f"prefix: {error}") from error
    raise ConfigError(f"prefix has to be a subject without wildcards, not {prefix!r}")


def group_prefix(above: str, name: object) -> str:
    """Return the prefix of the subjects of a group.

    Raises:
        ConfigError: The name is not valid.
    """
    if not isinstance(name, str):
        raise ConfigError(f"the name of a group has to be a string, not {name!r}")
    if not name:
        return above
    try:
        check_subscribe_subject(name)
    except InvalidSubjectError as error:
        raise ConfigError(f"the name of a group: {error}") from error
    if ">" in name.split("."):
        raise ConfigError(
            f"the name of a group cannot be {name!r}: subjects follow it, so leave out `>`"
        )
    return f"{above}.{name}" if above else name


def endpoint_subject(prefix: str, name: str, subject: str | None) -> str:
    """Return the subject of an endpoint."""
    own = name if subject is None else subject
    return f"{prefix}.{own}" if prefix else own


def control_subject(
    prefix: str, verb: Verb, name: str | None = None, instance_id: str | None = None
) -> str:
    """Return a control subject of all services, of all services of a name, or of one instance.

    Raises:
        ConfigError: There is an id without a name, or one of them is not valid.
    """
    if name is None:
        if instance_id is not None:
            raise ConfigError("an id needs the name of its service: give both")
        return f"{prefix}.{verb}"
    check_name(name, "the name of a service")
    if instance_id is None:
        return f"{prefix}.{verb}.{name}"
    return f"{prefix}.{verb}.{name}.{check_name(instance_id, 'the id of a service')}"


def control_subjects(prefix: str, name: str, instance_id: str) -> dict[str, Verb]:
    """Return all control subjects of an instance, with the verb of each.

    Raises:
        ConfigError: The prefix and the name together are too long for a subject. The
            server would close the connection, and again after each reconnect.
    """
    subjects = {
        control_subject(prefix, verb, *who): verb
        for verb in VERBS
        for who in ((), (name,), (name, instance_id))
    }
    try:
        check_subscribe_subject(max(subjects, key=len))
    except InvalidSubjectError as error:
        raise ConfigError(f"the name of a service: {error}") from error
    return subjects


# Counts ---------------------------------------------------------------------------------


class ThreadCounters:
    """The requests that one thread has handled. Only that thread changes it."""

    __slots__ = ("nanoseconds", "requests")

    def __init__(self) -> None:
        self.requests = 0
        self.nanoseconds = 0


class EndpointCounters:
    """The statistics of an endpoint. The caller must hold the lock of the endpoint.

    Each thread counts its own requests and times without the lock, because a lock for each
    request would cost more than the counting itself.
    """

    def __init__(self) -> None:
        self._threads: list[ThreadCounters] = []
        self.reset()

    def add_thread(self) -> ThreadCounters:
        """Return the counts for another thread."""
        work = ThreadCounters()
        self._threads.append(work)
        return work

    def reset(self) -> None:
        """Set all counts to zero."""
        self._errors = 0
        self._last_error = ""
        self._before = self._totals()

    def failed(self, error: ServiceError) -> None:
        """Count an answer that is an error."""
        self._errors += 1
        self._last_error = f"{error.code}:{error.headers[ERROR]}"

    def _totals(self) -> tuple[int, int]:
        return (
            sum(work.requests for work in self._threads),
            sum(work.nanoseconds for work in self._threads),
        )

    def stats(self, endpoint: EndpointInfo) -> EndpointStats:
        """Return the statistics as a part of STATS."""
        requests, nanoseconds = (
            now - before
            for now, before in zip(self._totals(), self._before, strict=True)
        )
        mean = nanoseconds // requests if requests else 0
        return EndpointStats(
            name=endpoint.name,
            subject=endpoint.subject,
            queue_group=endpoint.queue_group,
            num_requests=requests,
            num_errors=self._errors,
            last_error=self._last_error,
            processing_time=nanoseconds / 1e9,
            average_processing_time=mean / 1e9,
        )


# Errors ---------------------------------------------------------------------------------


def error_of(msg: Msg) -> ServiceError | None:
    """Return the error that a reply carries, or None."""
    headers = msg.headers
    if headers is None or not (ERROR in headers or ERROR_CODE in headers):
        return None
    code = headers.get(ERROR_CODE, "")
    return ServiceError(
        int(code) if code.isdecimal() and len(code) < 10 else 0,
        headers.get(ERROR, ""),
        msg.data,
    )


def sanitize_error(error: BaseException, exposed: bool) -> ServiceError:
    """Return the error for the requester: the exception's name, and its text if `exposed`."""
    name = type(error).__name__
    if not exposed:
        return ServiceError(500, name)
    try:
        text = str(error)
    except Exception as second:  # noqa: BLE001 (user code)
        text = f"its text raised {type(second).__name__}"
    return ServiceError(500, f"{name}: {text}" if text else name)
