"""Tests of ADR-15, Creating the JS Consumer, if another client creates it first.

A proxy delays the reply of the look-up, "not found", while the other client creates the consumer.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import pytest

from jsync import errors

from ....support.connections import connection_of
from ....support.servers import wait_for
from ....support.threads import SOON

if TYPE_CHECKING:
    import jsync

    from ....support.subscribe_requests import Wire

pytestmark = pytest.mark.server

NOT_FOUND = b'"err_code":10014'


def creations(wire: Wire) -> int:
    return sum("CONSUMER.CREATE" in request for request in wire.requests)


def test_race_of_a_queue_joins_another_members_consumer(
    js: jsync.JetStream,
    far: jsync.JetStream,
    wire: Wire,
    stream: jsync.Stream,
    subject: str,
) -> None:
    others: list[Any] = []
    wire.before_answer(NOT_FOUND, lambda: others.append(js.subscribe(subject, "q")))
    sub = far.subscribe(subject, "q")
    (other,) = others
    connection_of(far).flush()  # all its frames have passed the proxy
    # It tried to create the consumer, failed, and looked it up again.
    assert creations(wire) == 1
    assert wire.requests[-1] == f"CONSUMER.INFO.{stream.name}.q"
    # Its subscription on another inbox has ended, and it subscribes to the deliver subject.
    own = wire.payload("CONSUMER.CREATE")["config"]["deliver_subject"]
    assert own != other.subject == sub.subject
    assert wire.place("SUB", own) < wire.place("PUB", "$JS.API.CONSUMER.CREATE")
    assert wire.place("SUB", sub.subject) > wire.place("PUB", "$JS.API.CONSUMER.CREATE")
    with pytest.raises(errors.NoRespondersError):
        connection_of(js).request(own, timeout=SOON)
    # Both get messages, and the client that did not create the consumer does not delete it.
    for _ in range(50):
        js.publish(subject)
    wait_for(lambda: sub.delivered + other.delivered == 50)
    assert min(sub.delivered, other.delivered) > 0
    sub.unsubscribe()
    assert list(stream.consumer_names()) == ["q"]
    other.unsubscribe()
    assert list(stream.consumer_names()) == []


@pytest.mark.parametrize("bound", [True, False])
def test_race_without_a_queue_is_an_error(
    js: jsync.JetStream,
    far: jsync.JetStream,
    wire: Wire,
    stream: jsync.Stream,
    subject: str,
    bound: bool,
) -> None:
    def create() -> None:
        if bound:
            js.subscribe(subject, durable="d")
        else:
            stream.create_consumer(
                durable_name="d", deliver_subject=f"to.{stream.name}"
            )

    wire.before_answer(NOT_FOUND, create)
    with pytest.raises(errors.DuplicateSubscriptionError):
        far.subscribe(subject, durable="d", callback=print)
    own = wire.payload("CONSUMER.CREATE")["config"]["deliver_subject"]
    connection_of(far).flush()
    with pytest.raises(errors.NoRespondersError):
        connection_of(js).request(own, timeout=SOON)
    assert list(stream.consumer_names()) == ["d"]


def test_race_makes_the_same_checks_again(
    js: jsync.JetStream,
    far: jsync.JetStream,
    wire: Wire,
    stream: jsync.Stream,
    subject: str,
) -> None:
    there: list[tuple[dict[str, Any], type[Exception]]] = [
        ({}, errors.PullRequiredError),
        ({"deliver_subject": "x"}, errors.NoDeliverGroupError),
        ({"deliver_subject": "x", "deliver_group": "p"}, errors.OtherDeliverGroupError),
        (
            {"deliver_subject": "x", "deliver_group": "q", "idle_heartbeat": 1.0},
            errors.DeliverGroupFeatureError,
        ),
        (
            {
                "deliver_subject": "x",
                "deliver_group": "q",
                "filter_subject": f"{subject}.too",
            },
            errors.FilterMismatchError,
        ),
        (
            {"deliver_subject": "x", "deliver_group": "q", "ack_wait": 9},
            errors.ConfigMismatchError,
        ),
    ]
    for config, error in there:
        create = functools.partial(stream.create_consumer, durable_name="d", **config)
        wire.before_answer(NOT_FOUND, create)
        with pytest.raises(error):
            far.subscribe(subject, "q", durable="d", ack_wait=8)
        stream.delete_consumer("d")
    assert creations(wire) == len(there)


def test_race_of_a_pull_joins_only_pull_consumers(
    js: jsync.JetStream,
    far: jsync.JetStream,
    wire: Wire,
    stream: jsync.Stream,
    subject: str,
) -> None:
    js.publish(subject, b"for anybody")
    wire.before_answer(
        NOT_FOUND,
        lambda: stream.create_consumer(durable_name="d", description="by another"),
    )
    with far.pull_subscribe(subject, "d") as sub:
        assert not sub.created
        assert sub.fetch(timeout=SOON)[0].data == b"for anybody"
    assert list(stream.consumer_names()) == ["d"]
    stream.delete_consumer("d")
    wire.before_answer(
        NOT_FOUND,
        lambda: stream.create_consumer(durable_name="d", deliver_subject="x"),
    )
    with pytest.raises(errors.PushRequiredError):
        far.pull_subscribe(subject, "d")
    assert list(stream.consumer_names()) == ["d"]
