"""Tests that jsync reads every reply of each line completely, and writes it back unchanged."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from jsync.models import (
    AccountInfo,
    ConsumerConfig,
    ConsumerInfo,
    ConsumerPause,
    External,
    PubAck,
    StreamConfig,
    StreamInfo,
    StreamSource,
    SubjectTransform,
    decode_pub_ack,
)

from ..support.raw_api import (
    ask,
    assert_nothing_is_lost,
    create_consumer,
    create_stream,
)
from ..support.servers import wait_for
from ..support.threads import LONG

if TYPE_CHECKING:
    import jsync
    from jsync.models.server_version import ServerVersion

FAR_AWAY = datetime(2120, 1, 1, tzinfo=UTC)


def test_the_state_of_a_stream_is_read_whole(nc: jsync.Connection, unique: str) -> None:
    reply = create_stream(nc, StreamConfig(name=unique, subjects=[f"{unique}.>"]))
    empty = StreamInfo.from_wire(reply)
    assert (empty.state.messages, empty.state.first_ts) == (0, None)
    before = datetime.now(UTC) - timedelta(seconds=60)
    for number in range(5):
        nc.request(f"{unique}.{number % 2}", b"data", timeout=LONG)
    ask(nc, f"STREAM.MSG.DELETE.{unique}", {"seq": 3})
    reply = ask(
        nc,
        f"STREAM.INFO.{unique}",
        {"deleted_details": True, "subjects_filter": ">"},
    )
    assert_nothing_is_lost(StreamInfo, reply)
    info = StreamInfo.from_wire(reply)
    assert info.state.messages == 4
    assert (info.state.first_seq, info.state.last_seq) == (1, 5)
    assert (info.state.num_deleted, info.state.deleted) == (1, [3])
    assert info.state.subjects == {f"{unique}.0": 2, f"{unique}.1": 2}
    assert (info.total, info.offset) == (2, 0)
    assert info.state.first_ts is not None
    assert info.ts is not None
    assert before < info.state.first_ts < info.ts


def test_mirrors_and_sources_are_read_whole(nc: jsync.Connection, unique: str) -> None:
    origin = f"{unique}-origin"
    create_stream(nc, StreamConfig(name=origin, subjects=[f"{unique}.>"]))
    for number in range(3):
        nc.request(f"{unique}.{number}", timeout=LONG)
    source = StreamSource(
        name=origin,
        subject_transforms=[SubjectTransform(src=f"{unique}.>", dest=f"{unique}-t.>")],
    )
    far = StreamSource(name="FAR", external=External(api="$JS.far.API", deliver="x.y"))
    create_stream(
        nc, StreamConfig(name=f"{unique}-m", mirror=StreamSource(name=origin))
    )
    create_stream(nc, StreamConfig(name=f"{unique}-s", sources=[source, far]))
    mirror, sources = f"{unique}-m", f"{unique}-s"
    for name in (mirror, sources):
        wait_for(lambda: ask(nc, f"STREAM.INFO.{name}")["state"]["messages"] == 3)  # noqa: B023
    reply = ask(nc, f"STREAM.INFO.{mirror}")
    assert_nothing_is_lost(StreamInfo, reply)
    copied = StreamInfo.from_wire(reply).mirror
    assert copied is not None
    assert (copied.name, copied.lag, copied.error) == (origin, 0, None)
    assert copied.active is not None
    assert 0 <= copied.active < LONG
    reply = ask(nc, f"STREAM.INFO.{sources}")
    assert_nothing_is_lost(StreamInfo, reply)
    # The sources can be in any order.
    infos = {info.name: info for info in StreamInfo.from_wire(reply).sources or ()}
    copied, never = infos[origin], infos["FAR"]
    assert copied.lag == 0
    assert copied.subject_transforms == source.subject_transforms
    assert never.external == far.external
    assert never.active is not None
    assert never.active < 0
    # The list has the same fields.
    page = ask(nc, "STREAM.LIST", {"subject": f"{unique}.>"})
    for stream in page["streams"]:
        assert_nothing_is_lost(StreamInfo, stream)


def test_the_state_of_a_consumer_is_read_whole(
    nc: jsync.Connection, line: ServerVersion, unique: str
) -> None:
    create_stream(nc, StreamConfig(name=unique, subjects=[f"{unique}.>"]))
    for _ in range(3):
        nc.request(f"{unique}.a", timeout=LONG)
    config = ConsumerConfig(name="pull", ack_wait=60)
    create_consumer(nc, unique, config)
    inbox = nc.subscribe(f"{unique}-inbox")
    nc.publish(
        f"$JS.API.CONSUMER.MSG.NEXT.{unique}.pull", b"2", reply=f"{unique}-inbox"
    )
    first, _ = inbox.next(LONG), inbox.next(LONG)
    assert first.reply is not None
    nc.request(first.reply, b"+ACK", timeout=LONG)
    reply = ask(nc, f"CONSUMER.INFO.{unique}.pull")
    assert_nothing_is_lost(ConsumerInfo, reply)
    info = ConsumerInfo.from_wire(reply)
    assert (info.delivered.stream_seq, info.ack_floor.stream_seq) == (2, 1)
    assert (info.num_ack_pending, info.num_pending) == (1, 1)
    assert info.delivered.last_active is not None

    # A push consumer with a subscriber.
    nc.subscribe(f"{unique}-deliver")
    push = ConsumerConfig(name="push", deliver_subject=f"{unique}-deliver")
    nc.flush()
    create_consumer(nc, unique, push)
    reply = ask(nc, f"CONSUMER.INFO.{unique}.push")
    assert_nothing_is_lost(ConsumerInfo, reply)
    assert ConsumerInfo.from_wire(reply).push_bound

    if line < (2, 11):
        return
    reply = ask(
        nc, f"CONSUMER.PAUSE.{unique}.pull", {"pause_until": "2120-01-01T00:00:00Z"}
    )
    assert_nothing_is_lost(ConsumerPause, reply)
    pause = ConsumerPause.from_wire(reply)
    assert (pause.paused, pause.pause_until) == (True, FAR_AWAY)
    reply = ask(nc, f"CONSUMER.INFO.{unique}.pull")
    assert_nothing_is_lost(ConsumerInfo, reply)
    info = ConsumerInfo.from_wire(reply)
    assert (info.paused, info.config.pause_until) == (True, FAR_AWAY)
    assert info.pause_remaining is not None
    assert info.pause_remaining > 86400
    reply = ask(nc, f"CONSUMER.PAUSE.{unique}.pull")
    assert_nothing_is_lost(ConsumerPause, reply)
    pause = ConsumerPause.from_wire(reply)
    assert (pause.paused, pause.pause_until) == (False, None)

    pinned = ConsumerConfig(
        name="pinned", priority_groups=["g"], priority_policy="pinned_client"
    )
    reply = create_consumer(nc, unique, pinned)
    assert_nothing_is_lost(ConsumerInfo, reply)
    nc.publish(
        f"$JS.API.CONSUMER.MSG.NEXT.{unique}.pinned",
        b'{"batch":1,"group":"g"}',
        reply=f"{unique}-inbox",
    )
    inbox.next(LONG)
    reply = ask(nc, f"CONSUMER.INFO.{unique}.pinned")
    assert_nothing_is_lost(ConsumerInfo, reply)
    groups = ConsumerInfo.from_wire(reply).priority_groups
    assert groups is not None
    (group,) = groups
    assert group.group == "g"
    assert group.pinned_client_id
    assert group.pinned_ts is not None


def test_the_account_is_read_whole(nc: jsync.Connection) -> None:
    reply = ask(nc, "INFO")
    assert_nothing_is_lost(AccountInfo, reply)
    info = AccountInfo.from_wire(reply)
    assert info.limits.max_streams == -1
    assert info.tiers is None


def test_acks_are_read_whole(
    nc: jsync.Connection, line: ServerVersion, unique: str
) -> None:
    create_stream(nc, StreamConfig(name=unique, subjects=[f"{unique}.>"]))

    def publish(data: bytes = b"", **headers: str) -> PubAck | dict[str, Any]:
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        msg = nc.request(f"{unique}.a", data, headers=names, timeout=LONG)
        return decode_pub_ack(msg.data)

    assert publish(Nats_Msg_Id="1") == PubAck(stream=unique, seq=1)
    twice = publish(Nats_Msg_Id="1")
    assert twice == PubAck(stream=unique, seq=1, duplicate=True)
    error = publish(Nats_Expected_Last_Sequence="7")
    assert isinstance(error, dict)
    assert (error["code"], error["err_code"]) == (400, 10071)
    if line < (2, 12):
        return
    ask(
        nc,
        f"STREAM.UPDATE.{unique}",
        StreamConfig(
            name=unique, subjects=[f"{unique}.>"], allow_atomic=True
        ).to_wire(),
    )
    ack = publish(Nats_Batch_Id="b", Nats_Batch_Sequence="1", Nats_Batch_Commit="1")
    assert ack == PubAck(stream=unique, seq=2, batch="b", count=1)
    name = f"{unique}-counter"
    create_stream(
        nc, StreamConfig(name=name, subjects=[f"{name}.>"], allow_msg_counter=True)
    )
    large = 1 << 80
    for number in (1, 2):
        msg = nc.request(f"{name}.a", headers={"Nats-Incr": f"+{large}"}, timeout=LONG)
        ack = decode_pub_ack(msg.data)
        assert isinstance(ack, PubAck)
        assert ack.value == number * large
