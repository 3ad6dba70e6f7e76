"""Tests of publishing with every option: the server obeys it, or jsync reports an old server."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from jsync import errors
from jsync.jetstream.features import missing_features
from jsync.jetstream.publishing.options import required_features

from ..support.threads import LONG

if TYPE_CHECKING:
    from collections.abc import Callable

    import jsync
    from jsync.models.publish import PublishOptions
    from jsync.models.server_version import ServerVersion

LATER = datetime(2120, 1, 1, tzinfo=UTC)

OPTIONS: dict[str, PublishOptions] = {
    "headers": {"headers": {"A": "b"}},
    "msg_id": {"msg_id": "1"},
    "expected_stream": {"expected_stream": "%"},
    "expected_last_sequence": {"expected_last_sequence": 1},
    "expected_last_subject_sequence": {"expected_last_subject_sequence": 0},
    "expected_last_subject": {
        "expected_last_subject_sequence": 1,
        "expected_last_subject": "%.first",
    },
    "expected_last_msg_id": {"expected_last_msg_id": "first"},
    "ttl": {"ttl": 1000},
    "no ttl": {"ttl": "never"},
    "schedule": {"schedule": LATER, "schedule_target": "%.target"},
    "schedule_ttl": {
        "schedule": LATER,
        "schedule_target": "%.target",
        "schedule_ttl": 60,
    },
    "an interval": {
        "schedule": timedelta(days=1),
        "schedule_target": "%.target",
    },
    "a pattern": {
        "schedule": "0 0 12 * * *",
        "schedule_target": "%.target",
        "schedule_time_zone": "Europe/Prague",
    },
    "schedule_source": {
        "schedule": LATER,
        "schedule_target": "%.target",
        "schedule_source": "%.first",
    },
    "schedule_rollup": {
        "schedule": LATER,
        "schedule_target": "%.target",
        "schedule_rollup": True,
    },
    "incr": {"incr": 7},
}


def on(name: str, options: PublishOptions) -> dict[str, Any]:
    """Return the options for a stream of that name."""
    return {
        option: value.replace("%", name) if isinstance(value, str) else value
        for option, value in options.items()
    }


@pytest.fixture
def stream(js: jsync.JetStream, line: ServerVersion, unique: str) -> jsync.Stream:
    """A stream with every feature of its server except counters, and with one message."""
    fields: dict[str, Any] = {"subjects": [f"{unique}.>"], "allow_rollup_hdrs": True}
    if line >= (2, 11):
        fields["allow_msg_ttl"] = True
    if line >= (2, 12):
        fields["allow_msg_schedules"] = True
    stream = js.create_stream(name=unique, **fields)
    js.publish(f"{unique}.first", msg_id="first")
    return stream


@pytest.fixture
def counters(js: jsync.JetStream, line: ServerVersion, unique: str) -> str:
    """The name of a stream, with counters if the server supports them."""
    name = f"{unique}C"
    fields = {"allow_msg_counter": True} if line >= (2, 12) else {}
    js.create_stream(name=name, subjects=[f"{name}.>"], **fields)
    return name


@pytest.mark.parametrize("case", OPTIONS)
@pytest.mark.parametrize("way", ["publish", "publisher"])
def test_options_work_or_the_server_is_too_old(
    js: jsync.JetStream,
    line: ServerVersion,
    stream: jsync.Stream,
    counters: str,
    case: str,
    way: str,
) -> None:
    name = counters if case == "incr" else stream.name
    options: Any = on(name, OPTIONS[case])
    with contextlib.ExitStack() as stack:
        publish: Callable[..., Any] = js.publish
        if way == "publisher":
            publisher = stack.enter_context(js.publisher())

            def publish(subject: str, **options: Any) -> jsync.PubAck:
                return publisher.publish(subject, **options).result(LONG)

        missing = missing_features(required_features(options), line)
        if missing:
            with pytest.raises(errors.UnsupportedFeatureError) as caught:
                publish(f"{name}.a", **options)
            assert caught.value.feature == ", ".join(missing)
            return
        ack = publish(f"{name}.a", **options)
    assert (ack.stream, ack.duplicate) == (name, False)
    assert ack.value == (7 if case == "incr" else None)


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({"expected_stream": "OTHER"}, errors.StreamMismatchError),
        ({"expected_last_sequence": 7}, errors.WrongLastSequenceError),
        ({"expected_last_subject_sequence": 7}, errors.WrongLastSequenceError),
        (
            {
                "expected_last_subject_sequence": 7,
                "expected_last_subject": "%.first",
            },
            errors.WrongLastSequenceError,
        ),
        ({"expected_last_msg_id": "other"}, errors.WrongLastMsgIDError),
    ],
)
def test_a_message_with_a_wrong_expectation_is_refused(
    js: jsync.JetStream,
    line: ServerVersion,
    stream: jsync.Stream,
    options: PublishOptions,
    kind: type[errors.APIError],
) -> None:
    options = on(stream.name, options)  # type: ignore[assignment]
    if missing_features(required_features(options), line):
        return
    with pytest.raises(kind) as caught:
        js.publish(f"{stream.name}.a", **options)
    assert isinstance(caught.value, errors.WrongExpectationError)
    assert stream.info().state.messages == 1


@pytest.mark.parametrize(
    ("options", "header", "value", "kind"),
    [
        ({"ttl": 5}, "Nats-TTL", "5s", errors.MessageTTLDisabledError),
        ({"incr": 5}, "Nats-Incr", "+5", errors.MessageIncrDisabledError),
        (
            {"schedule": LATER, "schedule_target": "%.target"},
            "Nats-Schedule",
            "@at 2120-01-01T00:00:00Z",
            errors.MessageSchedulesDisabledError,
        ),
    ],
)
def test_only_old_servers_store_options_a_stream_disallows(
    nc: jsync.Connection,
    js: jsync.JetStream,
    line: ServerVersion,
    unique: str,
    options: PublishOptions,
    header: str,
    value: str,
    kind: type[errors.APIError],
) -> None:
    stream = js.create_stream(name=unique, subjects=[f"{unique}.>"])
    options = on(unique, options)  # type: ignore[assignment]
    if missing_features(required_features(options), line):
        with pytest.raises(errors.UnsupportedFeatureError):
            js.publish(f"{unique}.a", **options)
        assert stream.info().state.messages == 0
        # The server ignores the header, so jsync must reject the option itself.
        nc.request(f"{unique}.a", headers={header: value}, timeout=LONG)
        assert stream.info().state.messages == 1
        return
    with pytest.raises(kind) as caught:
        js.publish(f"{unique}.a", **options)
    assert isinstance(caught.value, errors.FeatureDisabledError)
    assert stream.info().state.messages == 0


def test_a_message_published_twice_is_stored_once(
    js: jsync.JetStream, stream: jsync.Stream
) -> None:
    first = js.publish(f"{stream.name}.a", msg_id="1")
    again = js.publish(f"{stream.name}.a", msg_id="1")
    assert (first.duplicate, again.duplicate) == (False, True)
    assert first.seq == again.seq


def test_thousands_of_messages_are_published_before_their_acks(
    js: jsync.JetStream, unique: str
) -> None:
    stream = js.create_stream(name=unique, subjects=[f"{unique}.>"], storage="memory")
    with js.publisher(window=500) as publisher:
        futures = [publisher.publish(f"{unique}.{n}", b"%d" % n) for n in range(3000)]
    assert [future.result(LONG).seq for future in futures] == list(range(1, 3001))
    assert stream.info().state.messages == 3000


def test_a_message_without_a_stream_raises(js: jsync.JetStream, unique: str) -> None:
    with pytest.raises(errors.NoStreamResponseError):
        js.publish(f"{unique}.nobody")
