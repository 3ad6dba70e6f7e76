"""The management of streams and consumers: create, update, look up, list, delete.

Each operation exists once, for the methods of `JetStream`, `Stream` and `Consumer`, which
add what they know already. Arguments are checked here, before a request is sent to the API
(`$JS.API`).
"""

from __future__ import annotations

import contextlib
import secrets
from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from .. import errors
from ..core.clock import deadline_after
from ..errors import (
    AlreadyExistsError,
    AmbiguousSubjectError,
    ConfigError,
    ConsumerDoesNotExistError,
    ConsumerExistsError,
    ConsumerNotFoundError,
    Error,
    JetStreamNotEnabledError,
    NoCachedInfoError,
    NotFoundError,
    StreamCreateError,
    StreamNameInUseError,
    StreamNotFoundError,
    SubjectOverlapError,
)
from ..models import (
    AccountInfo,
    ConsumerConfig,
    ConsumerInfo,
    ConsumerPause,
    ConsumerReset,
    StreamConfig,
    StreamInfo,
    check_filter,
    check_name,
)
from ..models.codec import wire_time
from ..models.consumer import consumer_request
from ..models.stream import stream_request
from ..subjects import has_wildcard
from ..validation import check_heartbeat_timeout, check_int, check_seconds
from .features import PAUSE, RESET
from .paging import Pages
from .replies import get_field

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import Literal, TypeAlias

    from ..validation import Seconds
    from .api import API
    from .features import Features

    Action = Literal["create", "update", ""]
    Countdown: TypeAlias = Callable[[], float]

_FIXED: Final = frozenset(
    {
        # fields of a stream that cannot change
        *("storage", "persist_mode", "allow_msg_counter"),
        # fields of a consumer that cannot change
        *("deliver_policy", "opt_start_seq", "opt_start_time", "replay_policy"),
        *("ack_policy", "max_waiting", "mem_storage", "idle_heartbeat", "flow_control"),
    }
)
"""Fields that servers never change. `_is_fixed` adds those that depend on the values."""

_SET_ONLY: Final = frozenset(
    {"deny_delete", "deny_purge", "sealed", "allow_msg_ttl", "allow_msg_schedules"}
)
"""Fields that servers can turn on, but not off."""


def account_info(api: API, timeout: Seconds | None = None) -> AccountInfo:
    return AccountInfo.from_wire(api.request("INFO", timeout=timeout))


def placement(
    *,
    preferred: str | None,
    cluster: str | None = None,
    tags: Sequence[str] | None = None,
) -> dict[str, Any]:
    """Build the payload of a step-down, which is empty if any server may lead next."""
    fields = {"preferred": preferred, "cluster": cluster, "tags": tags}
    chosen = {name: value for name, value in fields.items() if value}
    return {"placement": chosen} if chosen else {}


def step_down(
    api: API, what: str, preferred: str | None, timeout: Seconds | None
) -> None:
    """Have the leader of a stream or consumer step down."""
    request = placement(preferred=preferred)
    api.request(what, request or None, timeout=timeout)


# Streams ------------------------------------------------------------------------------


def countdown(api: API, timeout: Seconds | None) -> Countdown:
    """Return a function that gives the seconds left of a call with several requests."""
    deadline = deadline_after(api.seconds(timeout))
    return lambda: max(0.0, deadline - monotonic())


def create_stream(
    api: API, config: object | None, fields: Mapping[str, Any], timeout: Seconds | None
) -> StreamInfo:
    requested = StreamConfig.from_any(config, fields)
    left = countdown(api, timeout)
    try:
        return _create(api, requested, left)
    except StreamNameInUseError as error:
        raise _stream_differs(api, error, requested, left) from error


def _stream_differs(
    api: API,
    error: AlreadyExistsError,
    requested: StreamConfig,
    left: Countdown,
) -> AlreadyExistsError:
    """Return the error with the differing fields, if the server reports them."""
    name = requested.name or ""
    differences: dict[str, tuple[Any, Any]] = {}
    with contextlib.suppress(Error):
        existing = stream_info(api, name, timeout=left()).config
        differences = requested.differences(existing)
    remedy = _hint("update_stream", [f"name={name!r}"], differences)
    return _already_exists(error, f"stream {name!r}", differences, remedy)


def _hint(
    method: str, which: list[str], differences: dict[str, tuple[Any, Any]]
) -> str:
    """Suggest the call that gives the existing one the wanted fields, if any can."""
    fixed = [name for name, values in differences.items() if _is_fixed(name, *values)]
    if fixed:
        return (
            f"{' and '.join(fixed)} cannot be changed: delete and recreate it, or choose "
            "another name"
        )
    arguments = [f"{name}={mine!r}" for name, (mine, _) in differences.items()]
    call = f"{method}({', '.join([*which, *arguments])})"
    return f"call JetStream.{call} to change it, or choose another name"


def _is_fixed(field: str, mine: Any, theirs: Any) -> bool:
    """Return whether servers reject an update of a field from `theirs` to `mine`."""
    match field:
        case "retention":
            return "workqueue" in (mine, theirs)
        case "mirror":  # Since nats-server 2.12 you can promote a mirror.
            return mine is not None
        case (
            "deliver_subject"
        ):  # A pull consumer cannot become a push consumer, nor the other way round.
            return not (mine and theirs)
    return field in _FIXED or (field in _SET_ONLY and not mine)


def _already_exists(
    error: AlreadyExistsError,
    what: str,
    differences: dict[str, tuple[Any, Any]],
    remedy: str,
) -> AlreadyExistsError:
    found = ", ".join(
        f"{field} is {'not set' if theirs is None else repr(theirs)} instead of "
        f"{'its default' if mine is None else repr(mine)}"
        for field, (mine, theirs) in differences.items()
    )
    return type(error)(
        f"{error.description}: {what}{found and ': '}{found}; {remedy} "
        f"(err_code {error.err_code})",
        code=error.code,
        err_code=error.err_code,
        description=error.description,
        differences=differences,
    )


def update_stream(
    api: API,
    config: object | None,
    fields: Mapping[str, Any],
    timeout: Seconds | None,
    *,
    name: str | None = None,
) -> StreamInfo:
    """Give a stream a whole configuration. Keywords alone change only those fields."""
    changes = config is None
    if changes:
        fields = {"name": name, **fields}
    requested = StreamConfig.from_any(config, fields)
    _check_same("stream", name, requested.name)
    left = countdown(api, timeout)
    if changes:
        current = stream_info(api, requested.name or "", timeout=left()).config
        requested = current.updated(fields)
    return _put_stream(api, "UPDATE", requested, left)


def create_or_update_stream(
    api: API, config: object | None, fields: Mapping[str, Any], timeout: Seconds | None
) -> StreamInfo:
    requested = StreamConfig.from_any(config, fields)
    left = countdown(api, timeout)
    try:
        return _put_stream(api, "UPDATE", requested, left)
    except StreamNotFoundError:
        try:
            return _create(api, requested, left)
        except StreamNameInUseError:
            # Another client has created the stream in between.
            return _put_stream(api, "UPDATE", requested, left)


def _create(api: API, config: StreamConfig, left: Countdown) -> StreamInfo:
    """Create a stream, with a second attempt if the server could not make its directory.

    When the last stream of an account is deleted, the server removes the directory of all
    streams a moment after its reply, also under the feet of a stream that is being created.
    """
    try:
        return _put_stream(api, "CREATE", config, left)
    except StreamCreateError as error:
        if error.description != "error creating store for stream":
            raise
        return _put_stream(api, "CREATE", config, left)


def _check_same(what: str, name: str | None, *others: str | None) -> None:
    for other in others:
        if name is not None and other not in (None, name):
            raise ConfigError(
                f"name: a {what} cannot be renamed: {name!r} to {other!r}"
            )


def _put_stream(
    api: API, verb: str, config: StreamConfig, left: Countdown
) -> StreamInfo:
    subject = f"STREAM.{verb}.{config.name}"
    needs = config.required_versions()
    payload = stream_request(config) | api.strictly
    try:
        reply = api.request(subject, payload, needs=needs, timeout=left())
    except SubjectOverlapError as error:
        name = config.name or ""
        check_overlap(api, name, config.subjects or [name], left, error)
        raise
    return StreamInfo.from_wire(reply)


def check_overlap(
    api: API,
    stream: str,
    subjects: Sequence[str],
    left: Countdown,
    error: SubjectOverlapError | None = None,
) -> None:
    """Raise `SubjectOverlapError` with the other streams that have some of these subjects.

    Returns if there are none, or if the server reports none.
    """
    found: dict[str, str] = {}
    with contextlib.suppress(Error):
        for subject in subjects:
            for name in stream_names(api, subject, left()):
                if name != stream:
                    found.setdefault(name, subject)
    if found:
        others = [f"{subject} with {name}" for name, subject in found.items()]
        description = "subjects overlap with an existing stream"
        raise SubjectOverlapError(
            f"{description}: {', '.join(others[:5])}{', ...' if others[5:] else ''}. Use "
            "other subjects, or source that stream (err_code 10065)",
            code=400,
            err_code=10065,
            description=description,
        ) from error


def stream_info(
    api: API,
    stream: str,
    *,
    deleted_details: bool = False,
    subjects_filter: str | None = None,
    timeout: Seconds | None = None,
) -> StreamInfo:
    """Get the info, and merge several replies if there are more than 100,000 subjects."""
    check_name(stream, "stream")
    request: dict[str, Any] = {}
    if deleted_details:
        request["deleted_details"] = True
    if subjects_filter is not None:
        check_filter(subjects_filter, "subjects_filter")
        request["subjects_filter"] = subjects_filter
    subject = f"STREAM.INFO.{stream}"
    reply = page = api.request(subject, request or None, timeout=timeout)
    if subjects_filter is not None:
        subjects: dict[str, int] = {}
        pages = Pages()
        while True:
            state = get_field(page, "state", dict[str, Any](), dict[str, Any])
            found = get_field(state, "subjects", dict[str, int](), dict[str, int])
            if pages.take(sorted(found), get_field(page, "total", 0, int)):
                subjects.update(found)
            if pages.is_done:
                break
            request = {"subjects_filter": subjects_filter, "offset": pages.offset}
            page = api.request(subject, request, timeout=timeout)
        state = get_field(reply, "state", dict[str, Any](), dict[str, Any])
        reply["state"] = {**state, "subjects": subjects}
    return StreamInfo.from_wire(reply)


def delete_stream(api: API, stream: str, timeout: Seconds | None = None) -> None:
    check_name(stream, "stream")
    api.request(f"STREAM.DELETE.{stream}", timeout=timeout)


def streams(
    api: API, subject: str | None, timeout: Seconds | None
) -> Iterator[StreamInfo]:
    request = _of_subject(subject)
    pages = api.list_pages(
        "STREAM.LIST", "streams", dict[str, Any], _stream_of, request, timeout
    )
    return (StreamInfo.from_wire(stream) for stream in pages)


def _stream_of(info: dict[str, Any]) -> str:
    config = info.get("config")
    return _name_in(config if isinstance(config, dict) else info)


def _name_in(found: dict[str, Any]) -> str:
    """Return the name, or a text that identifies an entry without a name."""
    name = found.get("name")
    return name if isinstance(name, str) else repr(found)


def stream_names(
    api: API, subject: str | None, timeout: Seconds | None
) -> Iterator[str]:
    request = _of_subject(subject)
    return api.list_pages("STREAM.NAMES", "streams", str, str, request, timeout)


def _of_subject(subject: str | None) -> dict[str, Any]:
    if subject is None:
        return {}
    check_filter(subject, "subject")
    return {"subject": subject}


def stream_name_by_subject(api: API, subject: str, timeout: Seconds | None) -> str:
    names = list(stream_names(api, subject, timeout))
    match names:
        case [name]:
            return name
        case []:
            raise StreamNotFoundError(
                f"no stream takes {subject!r}",
                code=404,
                err_code=10059,
                description="stream not found",
            )
        case _:
            raise AmbiguousSubjectError(
                f"{len(names)} streams match {subject!r}: {', '.join(names[:5])}"
                + (", ..." if len(names) > 5 else ""),
                streams=names,
            )


def purge_stream(
    api: API,
    stream: str,
    *,
    subject: str | None,
    sequence: int | None,
    keep: int | None,
    timeout: Seconds | None,
) -> int:
    """Purge messages of a stream. The caller checks the arguments."""
    request: dict[str, Any] = {}
    if subject is not None:
        request["filter"] = subject
    if sequence is not None:
        request["seq"] = max(1, sequence)  # 0 would purge all messages
    if keep is not None:
        request["keep"] = keep
    reply = api.request(f"STREAM.PURGE.{stream}", request or None, timeout=timeout)
    return get_field(reply, "purged", 0, int)


# Consumers ----------------------------------------------------------------------------


def upsert_consumer(
    api: API,
    stream: str,
    action: Action,
    config: object | None,
    fields: Mapping[str, Any],
    timeout: Seconds | None,
    *,
    name: str | None = None,
) -> ConsumerInfo:
    """Create a consumer, update it, or do either one if `action` is empty.

    An update with keywords alone changes only those fields.
    """
    check_name(stream, "stream")
    requested = ConsumerConfig.from_any(config, fields)
    _check_same("consumer", name, requested.durable_name, requested.name)
    which = requested.durable_name or requested.name or name
    if which is None:
        if action != "create":
            raise ConfigError("name is missing: give the consumer to update")
        which = secrets.token_hex(8)
        requested = requested.replace(name=which)
    left = countdown(api, timeout)
    if action == "update" and config is None:
        requested = _current(api, stream, which, left()).updated(fields)
    subject = f"CONSUMER.CREATE.{stream}.{which}"
    if requested.filter_subject and not has_wildcard(requested.filter_subject):
        # Name the filter in the subject, so that permissions can be given by it. A
        # wildcard cannot be published to.
        subject = f"{subject}.{requested.filter_subject}"
    payload = {
        "stream_name": stream,
        "config": consumer_request(requested),
        **api.strictly,
    }
    if action:
        payload["action"] = action
    needs = requested.required_versions()
    try:
        reply = api.request(subject, payload, needs=needs, timeout=left())
    except ConsumerExistsError as error:
        raise _consumer_differs(api, stream, error, requested, left()) from error
    return ConsumerInfo.from_wire(reply)


def _consumer_differs(
    api: API,
    stream: str,
    error: AlreadyExistsError,
    requested: ConsumerConfig,
    timeout: float,
) -> AlreadyExistsError:
    """Return the error with the differing fields, if the server reports them."""
    which = "durable_name" if requested.durable_name else "name"
    name: str = getattr(requested, which)
    differences: dict[str, tuple[Any, Any]] = {}
    threshold = None
    with contextlib.suppress(Error):
        existing = consumer_info(api, stream, name, timeout).config
        differences = requested.differences(existing)
        threshold = existing.inactive_threshold
    if differences or requested.inactive_threshold is not None or threshold is None:
        method = (
            "update_push_consumer" if requested.deliver_subject else "update_consumer"
        )
        remedy = _hint(method, [repr(stream), f"{which}={name!r}"], differences)
    else:
        # Servers fill in a threshold, and later compare with it.
        differences = {"inactive_threshold": (None, threshold)}
        remedy = f"give inactive_threshold={threshold!r} to get the existing one"
    what = f"consumer {name!r} of stream {stream!r}"
    return _already_exists(error, what, differences, remedy)


def _current(
    api: API, stream: str, consumer: str, timeout: Seconds | None
) -> ConsumerConfig:
    """Return the current configuration of a consumer that is to be updated."""
    try:
        return consumer_info(api, stream, consumer, timeout).config
    except ConsumerNotFoundError as error:
        # The error that the server gives for an update with a complete configuration.
        raise ConsumerDoesNotExistError(
            f"consumer {consumer!r} of stream {stream!r} does not exist, so there is "
            "nothing to update; create it (err_code 10149)",
            code=400,
            err_code=10149,
            description="consumer does not exist",
        ) from error


def consumer_info(
    api: API, stream: str, consumer: str, timeout: Seconds | None = None
) -> ConsumerInfo:
    subject = f"CONSUMER.INFO.{_consumer_path(stream, consumer)}"
    return ConsumerInfo.from_wire(api.request(subject, timeout=timeout))


def delete_consumer(
    api: API, stream: str, consumer: str, timeout: Seconds | None = None
) -> None:
    api.request(f"CONSUMER.DELETE.{_consumer_path(stream, consumer)}", timeout=timeout)


def consumers(api: API, stream: str, timeout: Seconds | None) -> Iterator[ConsumerInfo]:
    check_name(stream, "stream")
    pages = api.list_pages(
        f"CONSUMER.LIST.{stream}", "consumers", dict[str, Any], _name_in, {}, timeout
    )
    return (ConsumerInfo.from_wire(consumer) for consumer in pages)


def consumer_names(api: API, stream: str, timeout: Seconds | None) -> Iterator[str]:
    check_name(stream, "stream")
    return api.list_pages(
        f"CONSUMER.NAMES.{stream}", "consumers", str, str, {}, timeout
    )


def _to_timestamp(until: datetime | Seconds) -> str:
    if isinstance(until, datetime):
        return wire_time(until, "until")
    if check_heartbeat_timeout(until, "until") is None:
        raise ConfigError("until has to be a datetime or seconds from now, not None")
    try:
        ahead = timedelta(seconds=check_seconds(until, "until"))
        return wire_time(datetime.now(UTC) + ahead, "until")
    except OverflowError as error:
        raise ConfigError(
            f"until: {until!r} seconds from now is after the year 9999"
        ) from error


def _consumer_path(stream: str, consumer: str) -> str:
    check_name(stream, "stream")
    check_name(consumer, "consumer")
    return f"{stream}.{consumer}"


class BaseConsumer:
    """The calls that pull and push consumers share."""

    def __init__(
        self, api: API, stream: str, name: str, info: ConsumerInfo | None = None
    ) -> None:
        """Bind to it by name. Without `info`, nothing is sent before the first call."""
        self._api = api
        self._stream = stream
        self._name = name
        self._info = info

    @property
    def name(self) -> str:
        """The name of the consumer on the server."""
        return self._name

    @property
    def stream_name(self) -> str:
        """The name of the stream that this consumer reads from."""
        return self._stream

    @property
    def cached_info(self) -> ConsumerInfo:
        """The latest info that the server gave. Sends nothing.

        Raises:
            NoCachedInfoError: No info was requested yet, as after
                `JetStream.consumer`.
        """
        if self._info is None:
            raise NoCachedInfoError(
                f"consumer {self._name} was bound without asking the server: call info()"
            )
        return self._info

    @property
    def config(self) -> ConsumerConfig:
        """The configuration of the consumer, from `cached_info`."""
        return self.cached_info.config

    def info(self, *, timeout: Seconds | None = None) -> ConsumerInfo:
        """Get the configuration and the state of the consumer from the server. Blocks.

        Args:
            timeout: Seconds to wait. Default: the context's.

        Returns:
            The info, which `cached_info` keeps.

        Raises:
            ConsumerNotFoundError: The consumer does not exist.

        Example:
            ```python
            consumer = stream.create_consumer(durable_name="billing")
            print(consumer.info().num_pending, "messages wait")
            ```
        """
        self._info = consumer_info(self._api, self._stream, self._name, timeout)
        return self._info

    def update(
        self,
        config: ConsumerConfig | object | None = None,
        /,
        *,
        timeout: Seconds | None = None,
        **changes: Any,
    ) -> ConsumerInfo:
        """Change the configuration of the consumer. Blocks.

        Args:
            config: A whole configuration. Fields that are not set get the server's
                default.
            timeout: Seconds to wait. Default: the context's.
            **changes: The fields to change. All other fields stay as they are. None
                resets a field to the server's default.

        Returns:
            The info of the consumer.

        Raises:
            ConsumerNotFoundError: The consumer does not exist.
            ConfigError: A field has a value that is not allowed. Nothing is sent.
            UnsupportedFeatureError: The server is too old for a field. Nothing is sent.
            APIError: The server rejects the change.
        """
        self._info = upsert_consumer(
            self._api, self._stream, "update", config, changes, timeout, name=self._name
        )
        return self._info

    def pause(
        self, until: datetime | Seconds, *, timeout: Seconds | None = None
    ) -> ConsumerPause:
        """Pause the consumer: the server sends no messages for a time. Blocks.

        Pulls wait for that time. Needs nats-server 2.11.

        Args:
            until: The end of the pause: an aware datetime, or seconds from now. jsync
                adds these seconds to the time of this machine, and the server ends the
                pause by its own clock.
            timeout: Seconds to wait. Default: the context's.

        Returns:
            The state of the pause.

        Raises:
            ConfigError: `until` is not a time. Nothing is sent.
            ConsumerNotFoundError: The consumer does not exist.
            UnsupportedFeatureError: The server is too old. Nothing is sent.
        """
        return self._pause({"pause_until": _to_timestamp(until)}, timeout)

    def resume(self, *, timeout: Seconds | None = None) -> ConsumerPause:
        """End a pause. Blocks.

        Does nothing without a pause. Needs nats-server 2.11.

        Args:
            timeout: Seconds to wait. Default: the context's.

        Returns:
            The state of the pause.

        Raises:
            ConsumerNotFoundError: The consumer does not exist.
            UnsupportedFeatureError: The server is too old. Nothing is sent.
        """
        return self._pause({}, timeout)

    def _pause(self, request: dict[str, str], timeout: Seconds | None) -> ConsumerPause:
        reply = self._request("PAUSE", request, PAUSE, timeout)
        return ConsumerPause.from_wire(reply)

    def reset(
        self, sequence: int | None = None, *, timeout: Seconds | None = None
    ) -> ConsumerReset:
        """Let the consumer continue from another message of the stream. Blocks.

        The server redelivers all messages from there on, acknowledged or not. Needs
        nats-server 2.14.

        Args:
            sequence: The stream sequence to continue from. None and 0 mean the message
                after the ack floor.
            timeout: Seconds to wait. Default: the context's.

        Returns:
            The new state of the consumer.

        Raises:
            InvalidResetError: The consumer starts after that sequence, or its
                `deliver_policy` has no fixed start, such as `new`.
            ConsumerNotFoundError: The consumer does not exist.
            UnsupportedFeatureError: The server is too old. Nothing is sent.

        Example:
            ```python
            consumer = stream.create_consumer(durable_name="billing")
            for msg in consumer.fetch_nowait(100):
                msg.ack()
            consumer.reset(2)  # delivers messages again, from sequence 2 on
            print(consumer.next(timeout=5).metadata.stream_sequence)
            ```
        """
        request = (
            None if sequence is None else {"seq": check_int(sequence, "sequence", 0)}
        )
        self._api.require(RESET)
        left = countdown(self._api, timeout)
        # A reset of a missing consumer gets no answer, so look the consumer up first.
        # If the account imports only the reset, the look-up has no answer either.
        with contextlib.suppress(JetStreamNotEnabledError):
            consumer_info(self._api, self._stream, self._name, left())
        try:
            reply = self._request("RESET", request, RESET, left())
        except errors.TimeoutError as late:
            try:  # it may have been deleted since
                consumer_info(self._api, self._stream, self._name, timeout)
            except NotFoundError as gone:
                raise gone from late
            except Error:
                pass
            raise
        self._info = reset = ConsumerReset.from_wire(reply)
        return reset

    def leader_step_down(
        self, *, preferred: str | None = None, timeout: Seconds | None = None
    ) -> None:
        """Have the leader of the consumer step down. Blocks until it has agreed.

        Another replica is elected within moments. Reading continues automatically.

        Args:
            preferred: The name of the server to become the leader. Since nats-server
                2.11.
            timeout: Seconds to wait. Default: the context's.

        Raises:
            ConsumerNotFoundError: The consumer does not exist.
            APIError: The server rejects the request, for instance because it is not in a
                cluster.
        """
        which = _consumer_path(self._stream, self._name)
        step_down(self._api, f"CONSUMER.LEADER.STEPDOWN.{which}", preferred, timeout)

    def delete(self, *, timeout: Seconds | None = None) -> None:
        """Delete the consumer on the server. Blocks.

        Args:
            timeout: Seconds to wait. Default: the context's.

        Raises:
            ConsumerNotFoundError: The consumer does not exist.
        """
        delete_consumer(self._api, self._stream, self._name, timeout)

    def _request(
        self,
        what: str,
        payload: Mapping[str, Any] | None,
        needs: Features,
        timeout: Seconds | None,
    ) -> dict[str, Any]:
        subject = f"CONSUMER.{what}.{_consumer_path(self._stream, self._name)}"
        return self._api.request(subject, payload, needs=needs, timeout=timeout)
