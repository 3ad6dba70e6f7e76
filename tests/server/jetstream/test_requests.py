"""Tests that requests to the JetStream API carry the fields that its JSON schemas require."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from jsync import errors
from jsync.models import SubjectTransform

from ...support.threads import LONG

if TYPE_CHECKING:
    import jsync

# The `required` fields in the schemas of jsm.go 0.5.1, which nats.go always sends.
REQUIRED: dict[str, set[str]] = {
    "STREAM.CREATE": {
        *("name", "retention", "storage", "num_replicas"),
        *("max_consumers", "max_msgs", "max_bytes", "max_age"),
    },
    "CONSUMER.CREATE": {"stream_name", "config"},
    "CONSUMER.UNPIN": {"group"},
    "CONSUMER.PAUSE": set(),
    "CONSUMER.RESET": set(),
    "STREAM.LIST": {"offset"},
    "STREAM.NAMES": {"offset"},
    "CONSUMER.LIST": {"offset"},
    "CONSUMER.NAMES": {"offset"},
    "STREAM.MSG.GET": set(),
    "STREAM.MSG.DELETE": {"seq"},
    "STREAM.PURGE": set(),
}
REQUIRED["STREAM.UPDATE"] = REQUIRED["STREAM.CREATE"]

START = {"by_start_sequence": "opt_start_seq", "by_start_time": "opt_start_time"}


def missing_fields(subject: str, payload: dict[str, Any]) -> set[str]:
    """Return the fields that the schema of a request requires and the request lacks."""
    verb = subject.removeprefix("$JS.API.").split(".")
    wanted = next(
        fields
        for name, fields in REQUIRED.items()
        if verb[: name.count(".") + 1] == name.split(".")
    )
    missing = wanted - payload.keys()
    if "config" in payload:
        policy = payload["config"].get("deliver_policy")
        fields = {"deliver_policy", "ack_policy", START.get(policy, "deliver_policy")}
        missing |= fields - payload["config"].keys()
    for transform in payload.get("subject_transforms", ()):
        missing |= {"src", "dest"} - transform.keys()
    for name in ("subject_transform", "mirror"):
        missing |= missing_fields_of(payload.get(name))
    for source in payload.get("sources", ()):
        missing |= missing_fields_of(source)
    return missing


def missing_fields_of(part: dict[str, Any] | None) -> set[str]:
    """Return the missing fields of a transform, or of the transforms of a source."""
    if part is None:
        return set()
    if "dest" in part or "src" in part:
        return {"src", "dest"} - part.keys()
    transforms = part.get("subject_transforms", ())
    lacks = [missing_fields_of(transform) for transform in transforms]
    return ({"name"} - part.keys()).union(*lacks)


def test_every_request_has_its_schemas_required_fields(
    nc: jsync.Connection, js: jsync.JetStream, unique: str
) -> None:
    seen = nc.subscribe("$JS.API.>")
    stream = js.create_stream(
        name=unique,
        subjects=[f"{unique}.>"],
        subject_transform=SubjectTransform(dest=f"{unique}.>"),
    )
    copy = js.create_stream(
        name=f"{unique}-copy",
        sources=[{"name": unique, "subject_transforms": [{"dest": "copy.>"}]}],
    )
    stream.update(description="more")
    js.create_or_update_stream(name=unique, subjects=[f"{unique}.>"])
    sequence = js.publish(f"{unique}.a", b"1").seq
    stream.get_message(sequence)
    start = datetime(2026, 1, 1, tzinfo=UTC)
    stream.create_consumer(deliver_policy="by_start_time", opt_start_time=start)
    stream.create_consumer(deliver_policy="by_start_sequence", opt_start_seq=1)
    stream.create_push_consumer(durable_name="push", deliver_subject=f"{unique}-push")
    consumer = stream.create_consumer(
        durable_name="pinned",
        priority_groups=["all"],
        priority_policy="pinned_client",
    )
    consumer.update(description="more")
    stream.create_or_update_consumer(
        durable_name="pinned", priority_groups=["all"], priority_policy="pinned_client"
    )
    stream.update_consumer(name="pinned", max_deliver=3)
    consumer.unpin("all")
    consumer.pause(60)
    consumer.resume()
    consumer.reset()
    stream.ordered_consumer()
    list(js.streams())
    list(js.stream_names(subject=f"{unique}.a"))
    list(stream.consumers())
    list(stream.consumer_names())
    stream.delete_message(sequence)
    stream.purge(subject=f"{unique}.a")
    copy.delete()
    stream.delete()

    requests: list[jsync.Msg] = []
    while not requests or not requests[-1].subject.endswith(f"STREAM.DELETE.{unique}"):
        requests.append(seen.next(LONG))
    sent = [(msg.subject, json.loads(msg.data)) for msg in requests if msg.data]
    # The test has made requests of every kind.
    unseen = {
        name for name in REQUIRED if not any(name in subject for subject, _ in sent)
    }
    assert unseen == {"CONSUMER.RESET"}  # it has no payload
    lacking = {subject: missing_fields(subject, payload) for subject, payload in sent}
    assert {subject: fields for subject, fields in lacking.items() if fields} == {}
    assert all(
        subject.startswith("$JS.API.") and isinstance(payload, dict)
        for subject, payload in sent
    )


def test_an_unanswered_request_sends_no_second_one(
    nc: jsync.Connection, unique: str
) -> None:
    # A second request, for the version of the servers, waited for one more second.
    silent = nc.subscribe(f"{unique}.>")
    js = nc.jetstream(prefix=unique, timeout=0.1)
    with pytest.raises(errors.TimeoutError):
        js.stream("S")
    nc.publish(f"{unique}.last")
    subjects = [silent.next(LONG).subject for _ in range(2)]
    assert subjects == [f"{unique}.STREAM.INFO.S", f"{unique}.last"]
