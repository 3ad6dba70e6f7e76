"""Tests of each rule of ADR-15, Push Consumer active information and queue group binding."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from nats.js import api as nats_py

from jsync import errors
from jsync.jetstream.subscribe import options as subscribe_options
from jsync.jetstream.subscribe.options import (
    SubscribeArgs,
    SubscribeRequest,
    check_existing,
    created_within,
)
from jsync.models import ConsumerConfig, ConsumerInfo
from jsync.models.cluster import ClusterInfo


def resolve_push(subject: str | None, **said: Any) -> SubscribeRequest:
    return subscribe_options.resolve_push(SubscribeArgs(subject, **said))


def resolve_pull(subject: str | None, **said: Any) -> SubscribeRequest:
    return subscribe_options.resolve_pull(SubscribeArgs(subject, **said))


def pushing(push_bound: bool = False, **config: Any) -> ConsumerInfo:
    return pulling(push_bound, deliver_subject="to.here", **config)


def pulling(push_bound: bool = False, **config: Any) -> ConsumerInfo:
    return ConsumerInfo(
        stream_name="S",
        name="c",
        config=ConsumerConfig(durable_name="c", name="c", **config),
        push_bound=push_bound,
    )


def test_binding_a_used_consumer_is_a_duplicate_subscription() -> None:
    request = resolve_push("a", consumer="c")
    with pytest.raises(errors.DuplicateSubscriptionError, match="'c' of stream 'S'"):
        check_existing(request, pushing(push_bound=True))
    check_existing(request, pushing())


def test_binding_a_queue_may_share_a_used_consumer() -> None:
    info = pushing(push_bound=True, deliver_group="q")
    check_existing(resolve_push("a", queue="q", consumer="c"), info)


@pytest.mark.parametrize("bound", [True, False])
def test_binding_to_a_group_without_queue_is_refused(bound: bool) -> None:
    info = pushing(bound, deliver_group="q")
    with pytest.raises(errors.QueueRequiredError, match="queue='q'"):
        check_existing(resolve_push("a", consumer="c"), info)


@pytest.mark.parametrize("bound", [True, False])
def test_binding_a_queue_to_another_group_is_refused(bound: bool) -> None:
    info = pushing(bound, deliver_group="q")
    with pytest.raises(errors.OtherDeliverGroupError, match="'q', not 'other'"):
        check_existing(resolve_push("a", queue="other", consumer="c"), info)


@pytest.mark.parametrize("bound", [True, False])
def test_binding_a_queue_needs_a_consumer_with_group(bound: bool) -> None:
    with pytest.raises(errors.NoDeliverGroupError, match="without a deliver group"):
        check_existing(resolve_push("a", queue="q", consumer="c"), pushing(bound))


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"flow_control": True, "idle_heartbeat": 1}, "flow control"),
        ({"idle_heartbeat": 1}, "heartbeats"),
    ],
)
def test_binding_a_queue_excludes_flow_control_and_heartbeats(
    given: dict[str, Any], match: str
) -> None:
    info = pushing(deliver_group="q", **given)
    with pytest.raises(errors.DeliverGroupFeatureError, match=match):
        check_existing(resolve_push("a", queue="q", consumer="c"), info)


def test_binding_checks_that_a_filter_matches_the_subject() -> None:
    for make, want in ((pushing, resolve_push), (pulling, resolve_pull)):
        info = make(filter_subject="a.b")
        check_existing(want("a.b", consumer="c"), info)
        check_existing(want(None, stream="S", consumer="c"), info)
        check_existing(want("x", consumer="c"), make())
        for subject in ("a.c", "a.*", "a"):
            with pytest.raises(errors.FilterMismatchError, match=r"is for 'a\.b', not"):
                check_existing(want(subject, consumer="c"), info)


def test_binding_checks_several_filters_as_well() -> None:
    info = pushing(filter_subjects=["a", "b"])
    with pytest.raises(
        errors.FilterMismatchError, match="is for 'a', 'b', not for 'a'"
    ):
        check_existing(resolve_push("a", consumer="c"), info)
    config = ConsumerConfig(filter_subjects=["a", "b"])
    check_existing(resolve_push("a", consumer="c", config=config), info)
    config = ConsumerConfig(filter_subjects=["a", "x"])
    with pytest.raises(errors.ConfigMismatchError, match="filter_subjects"):
        check_existing(resolve_push("a", consumer="c", config=config), info)


def test_binding_a_pull_to_push_consumers_is_refused() -> None:
    with pytest.raises(errors.PushRequiredError, match="use subscribe"):
        check_existing(resolve_pull("a", consumer="c"), pushing())


def test_binding_a_push_to_pull_consumers_is_refused() -> None:
    with pytest.raises(errors.PullRequiredError, match="use pull_subscribe"):
        check_existing(resolve_push("a", consumer="c"), pulling())
    with pytest.raises(errors.PullRequiredError):
        check_existing(resolve_push("a", queue="q", consumer="c"), pulling())


def test_binding_names_each_field_that_is_otherwise() -> None:
    info = pushing(ack_wait=10.0, max_deliver=5, description="the old one")
    request = resolve_push(
        "a",
        consumer="c",
        fields={"ack_wait": 20, "max_deliver": 5, "headers_only": True},
    )
    with pytest.raises(errors.ConfigMismatchError, match="was not changed") as caught:
        check_existing(request, info)
    assert caught.value.differences == {
        "ack_wait": (20.0, 10.0),
        "headers_only": (True, None),
    }
    assert "ack_wait: you gave 20.0, it has 10.0" in str(caught.value)


def test_binding_compares_only_the_given_fields() -> None:
    info = pushing(
        ack_wait=10.0,
        max_deliver=5,
        deliver_policy="new",
        replay_policy="original",
        ack_policy="all",
        idle_heartbeat=3.0,
    )
    check_existing(resolve_push("a", consumer="c"), info)
    check_existing(resolve_push("a", consumer="c", config={"max_deliver": 5}), info)
    with pytest.raises(errors.ConfigMismatchError, match="ack_policy"):
        check_existing(resolve_push("a", consumer="c", config=ConsumerConfig()), info)
    # A configuration of nats-py contains more than its user has set.
    config = nats_py.ConsumerConfig(ack_policy=nats_py.AckPolicy.ALL)
    check_existing(resolve_push("a", consumer="c", config=config), info)


def test_binding_accepts_the_default_of_a_server() -> None:
    info = pushing(ack_wait=30.0, max_ack_pending=1000, max_deliver=-1)
    fields = {"ack_wait": 30, "deliver_policy": "all", "headers_only": False}
    check_existing(resolve_push("a", consumer="c", fields=fields), info)
    fields = {"max_ack_pending": 1000, "replay_policy": "instant"}
    check_existing(resolve_push("a", consumer="c", fields=fields), info)


def test_binding_names_a_different_deliver_subject_or_durable() -> None:
    fields = {"deliver_subject": "to.there"}
    with pytest.raises(errors.ConfigMismatchError, match="deliver_subject"):
        check_existing(resolve_push("a", consumer="c", fields=fields), pushing())
    ephemeral = ConsumerInfo(
        stream_name="S", name="c", config=ConsumerConfig(deliver_subject="to.here")
    )
    with pytest.raises(errors.ConfigMismatchError, match="durable_name"):
        check_existing(resolve_push("a", durable="c"), ephemeral)


def test_race_an_unbound_subscription_without_queue_is_duplicate() -> None:
    with pytest.raises(errors.DuplicateSubscriptionError):
        check_existing(resolve_push("a", durable="c"), pushing(), raced=True)
    group = pushing(deliver_group="q")
    check_existing(resolve_push("a", queue="q", durable="c"), group, raced=True)
    check_existing(resolve_pull("a", durable="c"), pulling(), raced=True)


def test_race_a_consumer_too_old_belongs_to_others() -> None:
    created = datetime(2026, 1, 1, tzinfo=UTC)
    info = ConsumerInfo(created=created, ts=created + timedelta(seconds=0.5))
    assert created_within(0.6, info)
    assert not created_within(0.4, info)
    # If the age of the consumer is unknown, it counts as ours.
    assert created_within(0.4, ConsumerInfo(created=created))
    clustered = ConsumerInfo(created=created, ts=info.ts, cluster=ClusterInfo())
    assert created_within(0.4, clustered)


def test_every_rejection_is_a_subscribe_error() -> None:
    for kind in (
        errors.DuplicateSubscriptionError,
        errors.QueueRequiredError,
        errors.OtherDeliverGroupError,
        errors.NoDeliverGroupError,
        errors.DeliverGroupFeatureError,
        errors.FilterMismatchError,
        errors.PullRequiredError,
        errors.PushRequiredError,
        errors.ConfigMismatchError,
    ):
        assert issubclass(kind, errors.SubscribeError)
