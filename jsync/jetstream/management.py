"""Streams and consumers created, changed, asked about, listed and deleted (`$JS.API`).

Each operation once, for the methods of `JetStream`, `Stream` and `Consumer`, which differ
in what they know already. What a caller gives is checked here, before anything is sent.
"""

from __future__ import annotations

import contextlib
import math
import secrets
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from ..errors import (
    AmbiguousSubjectError,
    ConfigError,
    JetStreamNotEnabledError,
    StreamNameInUseError,
    StreamNotFoundError,
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
from .arguments import a_name, at_least, wire_time
from .versions import PAUSE, RESET, UNPIN

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Literal

    from .api import API

    Action = Literal["create", "update", ""]


def account_info(api: API, timeout: float | None = None) -> AccountInfo:
    return AccountInfo.from_wire(api.request("INFO", timeout=timeout))


# Streams ------------------------------------------------------------------------------


def create_stream(
    api: API, config: object | None, fields: Mapping[str, Any], timeout: float | None
) -> StreamInfo:
    return _put_stream(api, "CREATE", StreamConfig.of(config, fields), timeout)


def update_stream(
    api: API,
    config: object | None,
    fields: Mapping[str, Any],
    timeout: float | None,
    *,
    name: str | None = None,
) -> StreamInfo:
    """Give a stream a whole configuration; keywords change only what they name."""
    changes = config is None
    if changes:
        fields = {"name": name, **fields}
    wanted = StreamConfig.of(config, fields)
    _check_same("stream", name, wanted.name)
    if changes:
        current = stream_info(api, wanted.name or "", timeout=timeout).config
        wanted = current.changed(fields)
    return _put_stream(api, "UPDATE", wanted, timeout)


def create_or_update_stream(
    api: API, config: object | None, fields: Mapping[str, Any], timeout: float | None
) -> StreamInfo:
    wanted = StreamConfig.of(config, fields)
    try:
        return _put_stream(api, "UPDATE", wanted, timeout)
    except StreamNotFoundError:
        try:
            return _put_stream(api, "CREATE", wanted, timeout)
        except StreamNameInUseError:
            # Somebody else has created it in between.
            return _put_stream(api, "UPDATE", wanted, timeout)


def _check_same(what: str, name: str | None, *wanted: str | None) -> None:
    for other in wanted:
        if name is not None and other not in (None, name):
            raise ConfigError(
                f"name: a {what} cannot be renamed: {name!r} to {other!r}"
            )


def _put_stream(
    api: API, verb: str, config: StreamConfig, timeout: float | None
) -> StreamInfo:
    subject = f"STREAM.{verb}.{config.name}"
    needs = config.newer_than()
    reply = api.request(subject, config.to_request(), needs=needs, timeout=timeout)
    return StreamInfo.from_wire(reply)


def stream_info(
    api: API,
    stream: str,
    *,
    deleted_details: bool = False,
    subjects_filter: str | None = None,
    timeout: float | None = None,
) -> StreamInfo:
    """One reply has 100,000 subjects at most: more are asked for and put together."""
    check_name(stream, "stream")
    wanted: dict[str, Any] = {}
    if deleted_details:
        wanted["deleted_details"] = True
    if subjects_filter is not None:
        check_filter(subjects_filter, "subjects_filter")
        wanted["subjects_filter"] = subjects_filter
    subject = f"STREAM.INFO.{stream}"
    reply = page = api.request(subject, wanted or None, timeout=timeout)
    if subjects_filter is not None:
        subjects: dict[str, int] = {}
        offset = 0
        while found := page["state"].get("subjects"):
            subjects.update(found)
            offset += len(found)
            if offset >= page.get("total", 0):
                break
            wanted = {"subjects_filter": subjects_filter, "offset": offset}
            page = api.request(subject, wanted, timeout=timeout)
        reply["state"]["subjects"] = subjects
    return StreamInfo.from_wire(reply)


def delete_stream(api: API, stream: str, timeout: float | None = None) -> None:
    check_name(stream, "stream")
    api.request(f"STREAM.DELETE.{stream}", timeout=timeout)


def streams(
    api: API, subject: str | None, timeout: float | None
) -> Iterator[StreamInfo]:
    pages = api.pages("STREAM.LIST", "streams", _of_subject(subject), timeout)
    return (StreamInfo.from_wire(stream) for stream in pages)


def stream_names(api: API, subject: str | None, timeout: float | None) -> Iterator[str]:
    return api.pages("STREAM.NAMES", "streams", _of_subject(subject), timeout)


def _of_subject(subject: str | None) -> dict[str, Any]:
    if subject is None:
        return {}
    check_filter(subject, "subject")
    return {"subject": subject}


def stream_name_by_subject(api: API, subject: str, timeout: float | None) -> str:
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
    timeout: float | None,
) -> int:
    wanted: dict[str, Any] = {}
    if sequence is not None and keep is not None:
        raise ConfigError("sequence and keep exclude each other: give one")
    if subject is not None:
        check_filter(subject, "subject")
        wanted["filter"] = subject
    if sequence is not None:
        # To a server 0 is no bound at all.
        wanted["seq"] = at_least(1, sequence, "sequence")
    if keep is not None:
        wanted["keep"] = at_least(0, keep, "keep")
    reply = api.request(f"STREAM.PURGE.{stream}", wanted or None, timeout=timeout)
    return int(reply.get("purged", 0))


# Consumers ----------------------------------------------------------------------------


def put_consumer(
    api: API,
    stream: str,
    action: Action,
    config: object | None,
    fields: Mapping[str, Any],
    timeout: float | None,
    *,
    name: str | None = None,
) -> ConsumerInfo:
    """Create a consumer, update it, or with neither word do what is to be done.

    An update with keywords changes only what they name.
    """
    check_name(stream, "stream")
    wanted = ConsumerConfig.of(config, fields)
    _check_same("consumer", name, wanted.durable_name, wanted.name)
    which = wanted.durable_name or wanted.name or name
    if which is None:
        if action != "create":
            raise ConfigError("name: missing: which consumer is to be updated?")
        which = secrets.token_hex(8)
        wanted = wanted.replace(name=which)
    if action == "update" and config is None:
        wanted = consumer_info(api, stream, which, timeout).config.changed(fields)
    subject = f"CONSUMER.CREATE.{stream}.{which}"
    if wanted.filter_subject and not {"*", ">"} & {*wanted.filter_subject.split(".")}:
        # Permissions can be given by subject then; nothing is published to a wildcard.
        subject = f"{subject}.{wanted.filter_subject}"
    payload = {"stream_name": stream, "config": wanted.to_request()}
    if action:
        payload["action"] = action
    needs = wanted.newer_than()
    reply = api.request(subject, payload, needs=needs, timeout=timeout)
    return ConsumerInfo.from_wire(reply)


def consumer_info(
    api: API, stream: str, consumer: str, timeout: float | None = None
) -> ConsumerInfo:
    subject = f"CONSUMER.INFO.{_which(stream, consumer)}"
    return ConsumerInfo.from_wire(api.request(subject, timeout=timeout))


def delete_consumer(
    api: API, stream: str, consumer: str, timeout: float | None = None
) -> None:
    api.request(f"CONSUMER.DELETE.{_which(stream, consumer)}", timeout=timeout)


def consumers(api: API, stream: str, timeout: float | None) -> Iterator[ConsumerInfo]:
    check_name(stream, "stream")
    pages = api.pages(f"CONSUMER.LIST.{stream}", "consumers", {}, timeout)
    return (ConsumerInfo.from_wire(consumer) for consumer in pages)


def consumer_names(api: API, stream: str, timeout: float | None) -> Iterator[str]:
    check_name(stream, "stream")
    return api.pages(f"CONSUMER.NAMES.{stream}", "consumers", {}, timeout)


def pause_consumer(
    api: API,
    stream: str,
    consumer: str,
    until: datetime | float,
    timeout: float | None,
) -> ConsumerPause:
    return _pause(api, stream, consumer, {"pause_until": _moment(until)}, timeout)


def resume_consumer(
    api: API, stream: str, consumer: str, timeout: float | None
) -> ConsumerPause:
    return _pause(api, stream, consumer, {}, timeout)


def _pause(
    api: API,
    stream: str,
    consumer: str,
    wanted: dict[str, str],
    timeout: float | None,
) -> ConsumerPause:
    subject = f"CONSUMER.PAUSE.{_which(stream, consumer)}"
    reply = api.request(subject, wanted, needs=PAUSE, timeout=timeout)
    return ConsumerPause.from_wire(reply)


def _moment(until: datetime | float) -> str:
    if isinstance(until, datetime):
        return wire_time(until, "until")
    if isinstance(until, bool) or not isinstance(until, int | float):
        raise ConfigError(f"until: a datetime, or seconds from now, not {until!r}")
    if not (math.isfinite(until) and until > 0):
        raise ConfigError(f"until: seconds from now, more than 0, not {until!r}")
    try:
        return wire_time(datetime.now(UTC) + timedelta(seconds=until), "until")
    except OverflowError as error:
        raise ConfigError(f"until: {until!r} seconds are past all calendars") from error


def unpin_consumer(
    api: API, stream: str, consumer: str, group: str, timeout: float | None
) -> None:
    wanted = {"group": a_name(group, "group")}
    subject = f"CONSUMER.UNPIN.{_which(stream, consumer)}"
    api.request(subject, wanted, needs=UNPIN, timeout=timeout)


def reset_consumer(
    api: API,
    stream: str,
    consumer: str,
    sequence: int | None,
    timeout: float | None,
) -> ConsumerReset:
    where = _which(stream, consumer)
    wanted = None if sequence is None else {"seq": at_least(1, sequence, "sequence")}
    api.require(RESET)
    # Nobody answers for a consumer that there is not, so that is asked first; where only
    # the reset is imported, there is nobody to ask.
    with contextlib.suppress(JetStreamNotEnabledError):
        consumer_info(api, stream, consumer, timeout)
    reply = api.request(f"CONSUMER.RESET.{where}", wanted, needs=RESET, timeout=timeout)
    return ConsumerReset.from_wire(reply)


def _which(stream: str, consumer: str) -> str:
    check_name(stream, "stream")
    check_name(consumer, "consumer")
    return f"{stream}.{consumer}"
