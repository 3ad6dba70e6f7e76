"""Tests of ADR-15, Configuration, Consumer name, Queue name: the options of a subscription."""

from __future__ import annotations

import contextlib
import functools
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from nats.js import api as nats_py

from jsync.errors import ConfigError
from jsync.jetstream.subscribe.options import (
    SubscribeArgs,
    check_arguments,
    resolve_ordered,
    resolve_pull,
    resolve_push,
)
from jsync.models import ConsumerConfig

if TYPE_CHECKING:
    from collections.abc import Callable

    from jsync.jetstream.subscribe.options import SubscribeRequest

    Want = Callable[..., SubscribeRequest]


def pull(subject: str | None, **said: Any) -> SubscribeRequest:
    return resolve_pull(SubscribeArgs(subject, **said))


def push(subject: str | None, **said: Any) -> SubscribeRequest:
    return resolve_push(SubscribeArgs(subject, **said))


def ordered(subject: str | None, **said: Any) -> SubscribeRequest:
    return resolve_ordered(SubscribeArgs(subject, **said))


@pytest.mark.parametrize("want", [push, pull, ordered])
def test_configuration_neither_subject_nor_stream_is_refused(want: Want) -> None:
    for nothing in (None, ""):
        with pytest.raises(ConfigError, match="neither subject nor stream"):
            want(nothing)


@pytest.mark.parametrize("given", [{"idle_heartbeat": 1}, {"flow_control": True}])
def test_configuration_queues_exclude_heartbeats_and_flow_control(
    given: dict[str, Any],
) -> None:
    (name,) = given
    for options in (
        {"queue": "q", "fields": given},
        {"queue": "q", "config": given},
        {"queue": "q", "config": ConsumerConfig(**given)},
        {"config": ConsumerConfig(deliver_group="q", **given)},
        {"queue": "q", "config": nats_py.ConsumerConfig(**given)},
    ):
        with pytest.raises(ConfigError, match=f"{name}: not with queue 'q'"):
            push("a", **options)


@pytest.mark.parametrize("policy", ["none", "all", "flow_control"])
def test_configuration_a_pull_without_explicit_acks_is_refused(policy: str) -> None:
    for options in (
        {"fields": {"ack_policy": policy}},
        {"config": {"ack_policy": policy}},
        {"config": nats_py.ConsumerConfig(ack_policy=nats_py.AckPolicy(policy))},
    ):
        with pytest.raises(
            ConfigError, match=f"ack_policy: '{policy}' is not for pull"
        ):
            pull("a", **options)
    assert pull("a").config.ack_policy == "explicit"


@pytest.mark.parametrize(
    "given",
    [
        {"deliver_subject": "d"},
        {"deliver_group": "g"},
        {"flow_control": True},
        {"idle_heartbeat": 5},
        {"rate_limit_bps": 1000},
    ],
)
def test_configuration_pulls_reject_fields_of_a_push(
    given: dict[str, Any],
) -> None:
    (name,) = given
    with pytest.raises(ConfigError, match=f"{name}: it is for push"):
        pull("a", config=given)


@pytest.mark.parametrize(
    "given",
    [
        {"max_waiting": 10},
        {"max_batch": 10},
        {"max_expires": 10},
        {"max_bytes": 10},
        {"priority_groups": ["g"]},
        {"priority_policy": "overflow"},
        {"priority_timeout": 10},
    ],
)
def test_configuration_pushes_reject_fields_of_a_pull(
    given: dict[str, Any],
) -> None:
    (name,) = given
    for want in (push, ordered):
        with pytest.raises(ConfigError, match=f"{name}: it is for pull"):
            want("a", config=given)


@pytest.mark.parametrize("want", [push, pull, ordered])
@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"opt_start_seq": 3}, "opt_start_seq: only with deliver_policy"),
        (
            {"opt_start_seq": 3, "deliver_policy": "new"},
            "opt_start_seq: only with deliver_policy",
        ),
        (
            {"opt_start_time": datetime(2026, 1, 1, tzinfo=UTC)},
            "opt_start_time: only with deliver_policy",
        ),
        ({"deliver_policy": "by_start_sequence"}, "Give opt_start_seq too"),
        ({"deliver_policy": "by_start_time"}, "Give opt_start_time too"),
    ],
)
def test_configuration_a_start_contradicting_its_policy_is_refused(
    want: Want, given: dict[str, Any], match: str
) -> None:
    with pytest.raises(ConfigError, match=match):
        want("a", fields=given)


def test_unknown_values_of_a_configuration_are_rejected() -> None:
    with pytest.raises(ConfigError, match="did you mean ack_wait"):
        push("a", fields={"ack_weight": 3})
    with pytest.raises(ConfigError, match="deliver_policy"):
        push("a", fields={"deliver_policy": "newest"})
    with pytest.raises(ConfigError, match="not 7"):
        push("a", config=7)
    with pytest.raises(ConfigError, match="subject"):
        push("a b")
    with pytest.raises(ConfigError, match="stream"):
        push("a", stream="not.a.stream")
    with pytest.raises(ConfigError, match="durable"):
        push("a", durable="not.a.name")
    with pytest.raises(ConfigError, match="queue"):
        push("a", queue="a b", durable="d")


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"consumer": "a", "durable": "a"}, "consumer and durable"),
        ({"consumer": "a", "config": {"durable_name": "b"}}, "consumer: 'a'"),
        ({"consumer": "a", "config": {"name": "b"}}, "consumer: 'a'"),
        ({"durable": "a", "config": {"durable_name": "b"}}, "durable: 'a'"),
        ({"durable": "a", "config": {"name": "b"}}, "'a' is not name 'b'"),
        ({"bind": True}, "bind: to which one"),
        ({"config": {"filter_subject": "other"}}, "subject: 'subject'"),
    ],
)
@pytest.mark.parametrize("want", [push, pull])
def test_configuration_names_that_contradict_each_other_are_refused(
    want: Want, options: dict[str, Any], match: str
) -> None:
    with pytest.raises(ConfigError, match=match):
        want("subject", **options)


def test_configuration_a_queue_excludes_another_deliver_group() -> None:
    with pytest.raises(ConfigError, match="queue: 'a', but deliver_group is 'b'"):
        push("s", queue="a", config={"deliver_group": "b"})


def test_configuration_a_field_given_twice_must_agree() -> None:
    config = ConsumerConfig(headers_only=True)
    assert push("a", config=config, fields={"headers_only": True}).config.headers_only
    with pytest.raises(ConfigError, match="headers_only: True in config, False as"):
        push("a", config=config, fields={"headers_only": False})
    # Your arguments override the defaults in a configuration of nats-py.
    request = push(
        "a", config=nats_py.ConsumerConfig(), fields={"deliver_policy": "new"}
    )
    assert request.config.deliver_policy == "new"


@pytest.mark.parametrize(
    "options",
    [
        {"queue": "q"},
        {"durable": "d"},
        {"consumer": "c"},
        {"bind": True},
        {"config": {"durable_name": "d"}},
        {"config": {"deliver_group": "g"}},
        {"fields": {"ack_policy": "explicit"}},
        {"fields": {"max_deliver": 2}},
        {"fields": {"num_replicas": 3}},
        {"fields": {"deliver_subject": "d"}},
        {"fields": {"ack_wait": 3}},
        {"fields": {"backoff": [1, 2]}},
    ],
)
def test_configuration_ordered_consumers_reject_fields_they_set_themselves(
    options: dict[str, Any],
) -> None:
    with pytest.raises(ConfigError, match=r"not .*with an ordered consumer"):
        ordered("a", **options)


def test_ordered_consumers_accept_the_fields_of_a_reader() -> None:
    request = ordered(
        "a",
        config=nats_py.ConsumerConfig(headers_only=True),
        fields={"deliver_policy": "new", "idle_heartbeat": 2, "flow_control": True},
    )
    assert request.config.ack_policy == "none"
    assert request.config.idle_heartbeat == 2
    assert (request.config.headers_only, request.name) == (True, None)
    assert ordered("a", fields={"ack_policy": "none", "max_deliver": 1}).push
    assert ordered("a", fields={"name": "prefix"}).config.name == "prefix"


@pytest.mark.parametrize("want", [push, pull])
@pytest.mark.parametrize(
    "name", ["subject", "stream", "queue", "durable", "consumer", "config"]
)
def test_configuration_of_another_type_is_refused(want: Want, name: str) -> None:
    if (want, name) == (pull, "queue"):
        return
    for value in (5, b"x", ["x"], 1.5, True, object()):
        with pytest.raises(ConfigError):
            want(**{"subject": "a", name: value})


# Which consumer -----------------------------------------------------------------------


def test_consumer_name_means_an_existing_consumer() -> None:
    for want in (push, pull):
        assert (want("a", consumer="c").name, want("a", consumer="c").bound) == (
            "c",
            True,
        )
        assert (want("a", durable="d").name, want("a", durable="d").bound) == (
            "d",
            False,
        )
        bound = want("a", durable="d", bind=True)
        assert (bound.name, bound.bound) == ("d", True)
        assert want("a").name is None


def test_a_name_in_the_configuration_is_used_too() -> None:
    durable = push("a", config=ConsumerConfig(durable_name="d"))
    assert (durable.name, durable.config.durable_name) == ("d", "d")
    named = push("a", config=ConsumerConfig(name="n"))
    assert (named.name, named.config.durable_name) == ("n", None)


def test_a_consumer_binds_by_its_whole_configuration() -> None:
    there = ConsumerConfig(
        durable_name="d",
        name="d",
        filter_subject="a",
        deliver_subject="x",
        deliver_group="q",
    )
    request = push(None, stream="S", config=there, consumer="d", bind=True)
    assert (request.name, request.bound, request.queue) == ("d", True, "q")
    assert request.config.matches(there)


def test_queue_name_is_the_durable_name_by_default() -> None:
    request = push("a", queue="workers")
    assert (request.name, request.config.durable_name) == ("workers", "workers")
    assert request.config.deliver_group == "workers"
    assert "durable_name" not in request.requested
    assert push("a", queue="workers", durable="d").name == "d"
    assert push("a", queue="workers", consumer="c").name == "c"
    # As in nats-py, the configuration contains the group.
    assert push("a", config={"deliver_group": "workers"}).name == "workers"


def test_queue_name_unfit_for_a_consumer_needs_another() -> None:
    with pytest.raises(ConfigError, match="queue, which names the consumer"):
        push("a", queue="not.a.name")
    assert push("a", queue="not.a.name", durable="d").queue == "not.a.name"


# The created consumer -----------------------------------------------------------------


def test_creating_fills_the_configuration_with_the_arguments() -> None:
    request = push(
        "a.*",
        durable="d",
        config=nats_py.ConsumerConfig(ack_wait=7, max_deliver=3),
        fields={"headers_only": True, "deliver_policy": nats_py.DeliverPolicy.NEW},
    )
    config = request.config
    assert (config.filter_subject, config.durable_name) == ("a.*", "d")
    assert (config.ack_wait, config.max_deliver, config.ack_policy) == (
        7,
        3,
        "explicit",
    )
    assert (config.headers_only, config.deliver_policy) == (True, "new")
    assert request.requested >= {
        "ack_wait",
        "max_deliver",
        "headers_only",
        "durable_name",
    }


def test_creating_keeps_several_filters() -> None:
    request = push("a", config=ConsumerConfig(filter_subjects=["b", "c"]))
    assert request.config.filter_subjects == ["b", "c"]
    assert request.config.filter_subject is None


def test_flow_control_has_heartbeats_and_false_is_unset() -> None:
    assert push("a", fields={"flow_control": True}).config.idle_heartbeat == 5
    both = push("a", fields={"flow_control": True, "idle_heartbeat": 1})
    assert both.config.idle_heartbeat == 1
    said = push("a", config=ConsumerConfig(flow_control=True, idle_heartbeat=2))
    assert said.config.flow_control
    silent = push("a", fields={"flow_control": False})
    assert silent.config.flow_control is None
    assert "flow_control" not in silent.requested


# Callbacks ----------------------------------------------------------------------------


def test_callback_and_cb_are_one_option_given_once() -> None:
    assert check_arguments(print, None, None, 1, 1) is print
    assert check_arguments(None, print, None, 1, 1) is print
    assert check_arguments(None, None, None, 1, 1) is None
    with pytest.raises(ConfigError, match="the same thing: give one"):
        check_arguments(print, print, None, 1, 1)


def test_a_coroutine_function_is_rejected_as_a_callback() -> None:
    async def handle(msg: object) -> None: ...

    for function in (handle, functools.partial(handle)):
        with pytest.raises(ConfigError, match="without async"):
            check_arguments(None, function, None, 1, 1)
        with pytest.raises(ConfigError, match="on_error is a coroutine"):
            check_arguments(None, None, function, 1, 1)


def test_uncallable_callbacks_and_limits_below_one_are_rejected() -> None:
    with pytest.raises(ConfigError, match="callback has to be callable"):
        check_arguments("handle", None, None, 1, 1)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="pending_msgs_limit"):
        check_arguments(None, None, None, 0, 1)
    with pytest.raises(ConfigError, match="pending_bytes_limit"):
        check_arguments(None, None, None, 1, -1)


def test_options_are_refused_or_understood_without_other_failures() -> None:
    values: dict[str, list[Any]] = {
        "subject": [None, "a", "*", ""],
        "stream": [None, "S"],
        "queue": [None, "q"],
        "durable": [None, "d"],
        "consumer": [None, "c"],
        "bind": [False, True],
        "config": [None, ConsumerConfig(), nats_py.ConsumerConfig(name="n")],
    }
    combinations: list[dict[str, Any]] = [{}]
    for name, some in values.items():
        combinations = [{**one, name: value} for one in combinations for value in some]
    understood = 0
    for options in combinations:
        with contextlib.suppress(ConfigError):
            request = push(options.pop("subject"), **options)
            understood += 1
            assert request.name is not None or not (request.bound or request.queue)
            assert request.config.to_wire()
    assert understood
