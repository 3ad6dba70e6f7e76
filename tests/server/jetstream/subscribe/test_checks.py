"""Tests of ADR-15, Push Consumer active information and queue group binding, on real consumers.

tests/unit/jetstream/subscribe/test_checks.py tests each rule alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from nats.js import api as nats_py

import jsync
from jsync import errors

from ....support.servers import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable

    from jsync.server import LocalServer

    Create = Callable[..., str]

pytestmark = pytest.mark.server


@pytest.fixture
def pushing(stream: jsync.Stream) -> Create:
    """Return a function that creates a push consumer and returns its name."""

    def create(**config: Any) -> str:
        deliver = f"to.{stream.name}"
        return stream.create_consumer(
            durable_name="c", deliver_subject=deliver, **config
        ).name

    return create


def is_bound(stream: jsync.Stream) -> bool:
    """Return whether the server has noticed a subscription, which takes a moment."""
    return stream.consumer("c").cached_info.push_bound


def unchanged(stream: jsync.Stream, act: Callable[[], object]) -> None:
    """Run a rejected call, and check that it changes nothing on the server."""
    before = stream.consumer("c").cached_info
    act()
    after = stream.consumer("c").cached_info
    assert (after.config, after.created) == (before.config, before.created)
    assert list(stream.consumer_names()) == ["c"]


def test_binding_a_used_consumer_is_a_duplicate_subscription(
    js: jsync.JetStream, stream: jsync.Stream, subject: str, pushing: Create
) -> None:
    name = pushing()
    with js.subscribe(subject, consumer=name):
        wait_for(lambda: is_bound(stream))
        for named in ({"consumer": name}, {"durable": name}):
            with pytest.raises(errors.DuplicateSubscriptionError):
                js.subscribe(subject, **named)  # type: ignore[arg-type]
    wait_for(lambda: not is_bound(stream))
    with js.subscribe(subject, durable=name) as again:
        assert again.is_active


def test_binding_a_queue_shares_a_consumer_in_use(
    js: jsync.JetStream, subject: str, pushing: Create
) -> None:
    name = pushing(deliver_group="q")
    with js.subscribe(subject, "q", consumer=name):
        with js.subscribe(subject, "q", consumer=name) as second:
            assert second.queue == "q"


@pytest.mark.parametrize(
    ("group", "queue", "error"),
    [
        ("q", None, errors.QueueRequiredError),
        ("q", "other", errors.OtherDeliverGroupError),
        (None, "q", errors.NoDeliverGroupError),
    ],
)
@pytest.mark.parametrize("bound", [True, False])
def test_binding_checks_the_deliver_group_bound_or_not(
    js: jsync.JetStream,
    stream: jsync.Stream,
    nc: jsync.Connection,
    subject: str,
    pushing: Create,
    group: str | None,
    queue: str | None,
    error: type[Exception],
    bound: bool,
) -> None:
    name = pushing(deliver_group=group)
    if bound:
        nc.subscribe(f"to.{stream.name}", queue=group)
        wait_for(lambda: is_bound(stream))

    def act() -> None:
        with pytest.raises(error):
            js.subscribe(subject, queue, consumer=name)

    unchanged(stream, act)


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({"idle_heartbeat": 1.0}, "heartbeats"),
        ({"idle_heartbeat": 1.0, "flow_control": True}, "flow control"),
    ],
)
def test_binding_a_queue_rejects_flow_control_and_heartbeats(
    js: jsync.JetStream,
    stream: jsync.Stream,
    subject: str,
    pushing: Create,
    given: dict[str, Any],
    what: str,
) -> None:
    name = pushing(deliver_group="q", **given)

    def act() -> None:
        with pytest.raises(errors.DeliverGroupFeatureError, match=what):
            js.subscribe(subject, "q", consumer=name)

    unchanged(stream, act)


def test_binding_a_subject_unlike_the_filter_is_refused(
    js: jsync.JetStream, stream: jsync.Stream, subject: str, pushing: Create
) -> None:
    name = pushing(filter_subject=subject)

    def act() -> None:
        for other in (f"{stream.name}.other", f"{stream.name}.*"):
            with pytest.raises(errors.FilterMismatchError):
                js.subscribe(other, consumer=name)

    unchanged(stream, act)
    with js.subscribe(subject, consumer=name) as sub:
        assert sub.is_active


def test_binding_a_pull_rejects_a_push_consumer(
    js: jsync.JetStream, stream: jsync.Stream, subject: str, pushing: Create
) -> None:
    name = pushing()

    def act() -> None:
        for named in ({"durable": name}, {"consumer": name}):
            with pytest.raises(errors.PushRequiredError):
                js.pull_subscribe(subject, **named)  # type: ignore[arg-type]
        with pytest.raises(errors.PushRequiredError):
            js.pull_subscribe_bind(name, stream.name)

    unchanged(stream, act)


def test_binding_a_push_rejects_a_pull_consumer(
    js: jsync.JetStream, stream: jsync.Stream, subject: str
) -> None:
    stream.create_consumer(durable_name="c")

    def act() -> None:
        for options in ({"durable": "c"}, {"consumer": "c"}, {"queue": "c"}):
            with pytest.raises(errors.PullRequiredError):
                js.subscribe(subject, **options)  # type: ignore[arg-type]

    unchanged(stream, act)


def test_binding_names_each_differing_configuration_field(
    js: jsync.JetStream, stream: jsync.Stream, subject: str, pushing: Create
) -> None:
    name = pushing(ack_wait=10, max_deliver=5)

    def act() -> None:
        with pytest.raises(errors.ConfigMismatchError) as caught:
            js.subscribe(
                subject,
                durable=name,
                config=nats_py.ConsumerConfig(ack_wait=20, max_deliver=5),
                headers_only=True,
            )
        assert set(caught.value.differences) == {"ack_wait", "headers_only"}

    unchanged(stream, act)
    with js.subscribe(subject, durable=name, ack_wait=10, max_deliver=5) as sub:
        assert sub.is_active


def test_binding_a_pull_compares_its_configuration_too(
    js: jsync.JetStream, stream: jsync.Stream, subject: str
) -> None:
    config = nats_py.ConsumerConfig(ack_wait=20)
    first = js.pull_subscribe(subject, "c", config=config)

    def act() -> None:
        with pytest.raises(errors.ConfigMismatchError, match="ack_wait"):
            js.pull_subscribe(subject, "c", ack_wait=30)
        with pytest.raises(errors.FilterMismatchError):
            js.pull_subscribe(f"{stream.name}.other", "c")

    unchanged(stream, act)
    assert not js.pull_subscribe(subject, "c", config=config).created
    first.unsubscribe()


def test_binding_again_accepts_the_consumer_it_has_created(
    server: LocalServer, js: jsync.JetStream, stream: jsync.Stream, subject: str
) -> None:
    options: dict[str, Any] = {
        "durable": "c",
        "config": nats_py.ConsumerConfig(
            ack_policy=nats_py.AckPolicy.ALL,
            deliver_policy=nats_py.DeliverPolicy.NEW,
            backoff=[1, 2.5],
            max_deliver=3,
            metadata={"who": "me"},
            sample_freq="50%",
        ),
        "idle_heartbeat": 0.5,
        "flow_control": True,
        "headers_only": True,
        "inactive_threshold": 30,
    }
    nc = jsync.connect(server.url)
    nc.jetstream().subscribe(subject, **options)
    nc.close()  # without a drain, which would delete the consumer
    wait_for(lambda: not is_bound(stream))
    with js.subscribe(subject, **options):
        pass
    assert list(stream.consumer_names()) == ["c"]
