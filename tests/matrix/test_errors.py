"""Tests of the rejected requests of all release lines, and of the jsync error for each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import jsync
from jsync import errors
from jsync.jetstream.features import missing_features
from jsync.models import ConsumerConfig, StreamConfig
from jsync.server import LocalServer

from ..support.raw_api import ask, named
from ..support.threads import LONG
from .lines import LINES, binary_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jsync.models.server_version import ServerVersion

ACCOUNTS = """
no_auth_user: full
accounts {
    FULL: {
        users: [{ user: full, password: full }]
        jetstream: { max_streams: 1, max_consumers: 1, max_file: 1MB, max_bytes_required: true }
    }
    WITHOUT: { users: [{ user: without, password: without }] }
}
"""


@pytest.mark.parametrize(
    ("fields", "err_code", "kind"),
    [
        ({"name": "%taken"}, 10058, errors.StreamNameInUseError),
        ({"subjects": ["%taken.a"]}, 10065, errors.SubjectOverlapError),
        ({"num_replicas": 3}, 10074, errors.ReplicasNotSupportedError),
        (
            {"discard_new_per_subject": True},
            10052,
            errors.InvalidStreamConfigError,
        ),
        (
            {"max_age": 1, "duplicate_window": 60},
            10052,
            errors.InvalidStreamConfigError,
        ),
        (
            {"mirror": {"name": "%taken"}, "subjects": ["%"]},
            10034,
            errors.InvalidStreamConfigError,
        ),
        (
            {"mirror": {"name": "%taken"}, "sources": [{"name": "%taken"}]},
            10031,
            errors.InvalidStreamConfigError,
        ),
        (
            {"mirror": {"name": "%taken"}, "first_seq": 7},
            10143,
            errors.InvalidStreamConfigError,
        ),
        (
            {"sources": [{"name": "%taken"}, {"name": "%taken"}]},
            10140,
            errors.InvalidStreamConfigError,
        ),
        ({"max_bytes": 1 << 60}, 10047, errors.InsufficientResourcesError),
        (
            {"max_bytes": 1 << 60, "storage": "memory"},
            10028,
            errors.InsufficientResourcesError,
        ),
        (
            {"mirror": {"name": "%taken"}, "allow_msg_counter": True},
            10173,
            errors.InvalidStreamConfigError,
        ),
        (
            {"mirror": {"name": "%taken"}, "allow_atomic": True},
            10198,
            errors.InvalidStreamConfigError,
        ),
        (
            {"mirror": {"name": "%taken"}, "allow_msg_schedules": True},
            10186,
            errors.InvalidStreamConfigError,
        ),
        (
            {"mirror": {"name": "%taken"}, "allow_batched": True},
            10209,
            errors.InvalidStreamConfigError,
        ),
        (
            {"allow_atomic": True, "persist_mode": "async"},
            10052,
            errors.InvalidStreamConfigError,
        ),
    ],
)
def test_a_stream_that_cannot_be(
    js: jsync.JetStream,
    line: ServerVersion,
    unique: str,
    fields: dict[str, Any],
    err_code: int,
    kind: type[errors.APIError],
) -> None:
    js.create_stream(name=f"{unique}taken", subjects=[f"{unique}taken.>"])
    config = StreamConfig.from_any(None, {"name": unique, **named(fields, unique)})
    if missing_features(config.required_versions(), line):
        return
    with pytest.raises(errors.APIError) as caught:
        js.create_stream(config)
    assert (caught.value.err_code, type(caught.value)) == (err_code, kind)
    assert caught.value.code >= 400
    assert caught.value.description in str(caught.value)


@pytest.mark.parametrize(
    ("fields", "err_code", "kind"),
    [
        ({"name": "taken"}, 10148, errors.ConsumerExistsError),
        (
            {"filter_subject": "%.a", "filter_subjects": ["%.b"]},
            10137,
            errors.DuplicateFilterSubjectsError,
        ),
        (
            {"filter_subjects": ["%.a", "%.*"]},
            10138,
            errors.OverlappingFilterSubjectsError,
        ),
        (
            {"max_waiting": 5, "deliver_subject": "d"},
            10080,
            errors.InvalidConsumerConfigError,
        ),
        (
            {"max_deliver": 1, "backoff": [1, 2]},
            10116,
            errors.InvalidConsumerConfigError,
        ),
        ({"flow_control": True}, 10089, errors.InvalidConsumerConfigError),
        ({"idle_heartbeat": 1}, 10088, errors.InvalidConsumerConfigError),
        ({"rate_limit_bps": 1000}, 10086, errors.InvalidConsumerConfigError),
        ({"sample_freq": "x"}, 10095, errors.InvalidConsumerConfigError),
        ({"opt_start_seq": 5}, 10094, errors.InvalidConsumerConfigError),
        ({"num_replicas": 3}, 10074, errors.ReplicasNotSupportedError),
        ({"metadata": {"a": "b" * 200_000}}, 10135, errors.InvalidConsumerConfigError),
        ({"description": "b" * 5000}, 10107, errors.InvalidConsumerConfigError),
        ({"max_ack_pending": 1000}, 10121, errors.ConsumerLimitExceededError),
        ({"inactive_threshold": 1000}, 10153, errors.ConsumerLimitExceededError),
        ({"priority_policy": "overflow"}, 10159, errors.PriorityGroupError),
        (
            {"priority_policy": "overflow", "priority_groups": ["a b"]},
            10162,
            errors.PriorityGroupError,
        ),
        (
            {
                "priority_policy": "overflow",
                "priority_groups": ["g"],
                "deliver_subject": "d",
            },
            10178,
            errors.PriorityGroupError,
        ),
        (
            {"ack_policy": "flow_control"},
            10218,
            errors.InvalidConsumerConfigError,
        ),
    ],
)
def test_a_consumer_that_cannot_be(
    js: jsync.JetStream,
    line: ServerVersion,
    unique: str,
    fields: dict[str, Any],
    err_code: int,
    kind: type[errors.APIError],
) -> None:
    stream = js.create_stream(
        name=unique,
        subjects=[f"{unique}.>"],
        consumer_limits={"max_ack_pending": 100, "inactive_threshold": 60},
    )
    stream.create_consumer(name="taken", description="another")
    config = ConsumerConfig.from_any(None, {"name": "d", **named(fields, unique)})
    if missing_features(config.required_versions(), line):
        return
    with pytest.raises(errors.APIError) as caught:
        stream.create_consumer(config)
    assert (caught.value.err_code, type(caught.value)) == (err_code, kind)


def test_missing_streams_consumers_and_messages_raise_not_found(
    js: jsync.JetStream, nc: jsync.Connection, unique: str
) -> None:
    with pytest.raises(errors.StreamNotFoundError):
        js.stream(unique)
    with pytest.raises(errors.StreamNotFoundError):
        js.delete_stream(unique)
    with pytest.raises(errors.StreamNotFoundError):
        js.create_consumer(unique, name="d")
    stream = js.create_stream(name=unique)
    with pytest.raises(errors.ConsumerNotFoundError) as missing:
        stream.consumer("d")
    assert isinstance(missing.value, errors.NotFoundError)
    consumer = stream.create_consumer(name="d")
    consumer.delete()
    for gone in (consumer.info, consumer.delete):
        with pytest.raises(errors.ConsumerNotFoundError):
            gone()
    body = {"stream_name": unique, "config": {"durable_name": "d"}, "action": "update"}
    with pytest.raises(errors.ConsumerDoesNotExistError):
        ask(nc, f"CONSUMER.DURABLE.CREATE.{unique}.d", body)
    with pytest.raises(errors.MessageNotFoundError):
        ask(nc, f"STREAM.MSG.GET.{unique}", {"seq": 7})
    nc.request(unique, timeout=LONG)
    ask(nc, f"STREAM.MSG.DELETE.{unique}", {"seq": 1})
    with pytest.raises(errors.MessageDeleteError):
        ask(nc, f"STREAM.MSG.DELETE.{unique}", {"seq": 1})


def test_a_work_queue_has_one_consumer_per_subject(
    js: jsync.JetStream, unique: str
) -> None:
    stream = js.create_stream(
        name=unique, subjects=[f"{unique}.>"], retention="workqueue"
    )
    stream.create_consumer(name="one")
    for filter_subject in (None, f"{unique}.a"):
        with pytest.raises(errors.WorkQueueConsumerError):
            stream.create_consumer(name="two", filter_subject=filter_subject)
    with pytest.raises(errors.InvalidConsumerConfigError):
        stream.create_consumer(name="two", ack_policy="none")


def test_a_stream_that_cannot_take_the_message(
    js: jsync.JetStream, nc: jsync.Connection, unique: str
) -> None:
    stream = js.create_stream(
        name=unique,
        subjects=[f"{unique}.>"],
        max_msgs=1,
        discard="new",
        max_msg_size=100,
        deny_delete=True,
        deny_purge=True,
        max_consumers=1,
    )
    js.publish(f"{unique}.a")
    with pytest.raises(errors.StreamStoreError, match="maximum messages exceeded"):
        js.publish(f"{unique}.a")
    with pytest.raises(errors.MessageTooLargeError):
        js.publish(f"{unique}.a", bytes(200))
    with pytest.raises(errors.RollupError):
        js.publish(f"{unique}.a", headers={"Nats-Rollup": "all"})
    with pytest.raises(errors.MessageDeleteError):
        ask(nc, f"STREAM.MSG.DELETE.{unique}", {"seq": 1})
    with pytest.raises(errors.StreamPurgeError):
        ask(nc, f"STREAM.PURGE.{unique}")
    stream.create_consumer(name="one")
    with pytest.raises(errors.MaximumConsumersError) as limit:
        stream.create_consumer(name="two")
    assert isinstance(limit.value, errors.LimitExceededError)
    sealed = stream.config.replace(sealed=True).to_wire()
    ask(nc, f"STREAM.UPDATE.{unique}", sealed)
    with pytest.raises(errors.StreamSealedError):
        js.publish(f"{unique}.a")


def test_requests_unreadable_to_the_server_raise_bad_request(
    nc: jsync.Connection, js: jsync.JetStream, unique: str
) -> None:
    js.create_stream(name=unique)
    with pytest.raises(errors.InvalidJSONError) as caught:
        ask(nc, f"STREAM.CREATE.{unique}", {"name": 1})
    assert isinstance(caught.value, errors.InvalidRequestError)
    for subject, body in (
        (f"STREAM.MSG.GET.{unique}", None),
        (f"STREAM.CREATE.{unique}", {"name": "another"}),
        (f"CONSUMER.INFO.{unique}.d", {"a": "body"}),
    ):
        with pytest.raises(errors.InvalidRequestError):
            ask(nc, subject, body)


@pytest.fixture(scope="module", params=LINES)
def limited(request: pytest.FixtureRequest) -> Iterator[LocalServer]:
    """A server of each line with an account that has low limits, and one without JetStream."""
    with LocalServer(binary=binary_of(request.param), config=ACCOUNTS) as server:
        yield server


def test_an_account_has_its_limits(limited: LocalServer) -> None:
    with jsync.connect(limited.url) as nc:
        js = nc.jetstream()
        with pytest.raises(errors.InvalidStreamConfigError, match="max bytes"):
            js.create_stream(name="A")
        with pytest.raises(errors.LimitExceededError):
            js.create_stream(name="A", max_bytes=1 << 30)
        stream = js.create_stream(name="A", max_bytes=1000)
        with pytest.raises(errors.MaximumStreamsError):
            js.create_stream(name="B", max_bytes=1000)
        stream.create_consumer(name="one")
        with pytest.raises(errors.MaximumConsumersError):
            stream.create_consumer(name="two")


def test_an_account_without_jetstream(limited: LocalServer) -> None:
    with jsync.connect(limited.url, user="without", password="without") as nc:
        js = nc.jetstream()
        with pytest.raises(
            (errors.JetStreamNotEnabledForAccountError, errors.JetStreamNotEnabledError)
        ) as caught:
            js.stream("A", timeout=LONG)
        assert caught.value.code == 503


@pytest.mark.parametrize("line", LINES)
def test_a_server_without_jetstream(line: str) -> None:
    with (
        LocalServer(binary=binary_of(line), jetstream=False) as server,
        jsync.connect(server.url) as nc,
    ):
        js = nc.jetstream()
        with pytest.raises(errors.JetStreamNotEnabledError, match="JetStream is off"):
            js.create_stream(name="A")
        with pytest.raises(errors.NoStreamResponseError):
            js.publish("a")
