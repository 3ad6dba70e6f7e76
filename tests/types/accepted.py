"""Code of users that type checkers must accept, with the types that they must infer.

This file never runs: `make types` checks it with mypy and pyright. `refused.py` is the other half.
"""

from __future__ import annotations

import shutil
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import BinaryIO, assert_type

import msgspec

import jsync
from jsync import errors, metrics
from jsync.models import AccountInfo
from jsync.server import LocalServer
from jsync.testing import Ack, message


def connecting() -> None:
    assert_type(jsync.connect(), jsync.Connection)
    jsync.connect(["nats://a:4222", "tls://b"], name="x", connect_timeout=2)
    jsync.connect("nats://a", user=lambda: "bob", password="secret", tls=True)
    jsync.connect("nats://a", creds=Path("user.creds"))
    jsync.connect("nats://a", creds=b"-----BEGIN", tls=ssl.create_default_context())
    jsync.connect(auth_callback=lambda nonce: {"sig": nonce.decode()})
    jsync.connect(on_error=print, on_reconnect=lambda: None, max_reconnects=-1)
    with jsync.connect() as nc, LocalServer() as server:
        assert_type(nc, jsync.Connection)
        assert_type(server.url, str)
        assert_type(nc.stats(), jsync.Statistics)
        assert_type(nc.stats().in_messages, int)
        assert_type(nc.connected_url, str | None)
        assert_type(nc.last_error, Exception | None)
        assert_type(nc.state, jsync.ConnectionState)
        assert_type(nc.server_info, jsync.ServerInfo)
        assert_type(nc.server_info.version, str)
        assert_type(nc.rtt(), float)
        assert_type(metrics.prometheus_text(nc, nc), str)


def a_handler(msg: jsync.JetStreamMsg) -> None:
    msg.nak(timedelta(seconds=5))


def testing_a_handler() -> None:
    msg = message("orders.new", b"{}", headers={"A": "1"}, num_delivered=3)
    assert_type(msg, jsync.JetStreamMsg)
    a_handler(msg)
    assert_type(msg.acks, list[Ack])
    assert_type(msg.acks[0].delay, float | None)
    assert_type(msg.acks[0].reason, str | None)
    assert msg.acks == [Ack("nak", delay=5), Ack("term", reason="too old")]


def durations(nc: jsync.Connection, soon: timedelta) -> None:
    js = nc.jetstream()
    assert_type(js.bind_stream("ORDERS"), jsync.Stream)
    assert_type(js.get_message("ORDERS", 7, timeout=soon), jsync.StoredMessage)
    worker = js.create_consumer("ORDERS", ack_wait=soon, timeout=soon)
    assert_type(worker.next(soon), jsync.JetStreamMsg)
    worker.fetch(10, timeout=soon, idle_heartbeat=soon)
    worker.messages(expires=soon, idle_timeout=soon)
    worker.consume(a_handler, on_exception="nak", nak_delay=soon)
    worker.pause(soon)


def core(nc: jsync.Connection) -> None:
    nc.publish("a", b"x", reply="b", headers={"A": "1", "B": ["2", "3"]})
    nc.publish("a", bytearray(b"x"))
    nc.publish("a", memoryview(b"x"), headers=jsync.Headers({"A": "1"}))
    reply = nc.request("a", timeout=0.5)
    assert_type(reply, jsync.Msg)
    assert_type(reply.data, bytes)
    assert_type(reply.headers, jsync.Headers | None)
    assert_type(nc.request_many("a", max_messages=3), Iterator[jsync.Msg])
    with nc.subscribe("a.>", queue="q") as sub:
        assert_type(sub, jsync.Subscription)
        assert_type(sub.next(timeout=None), jsync.Msg)
        for msg in sub:
            assert_type(msg, jsync.Msg)
            msg.respond(b"yes", headers={"A": "1"})
    nc.subscribe("a", callback=lambda msg: nc.publish("b", msg.data))
    nc.subscribe("a", callback=print)


def streams(nc: jsync.Connection) -> None:
    js = nc.jetstream(domain="hub", timeout=2)
    assert_type(js, jsync.JetStream)
    assert_type(js.account_info(), AccountInfo)
    stream = js.create_stream(name="ORDERS", subjects=["orders.>"], max_age=3600.0)
    assert_type(stream, jsync.Stream)
    js.create_stream(jsync.StreamConfig(name="ORDERS", subjects=["orders.>"]))
    assert_type(js.stream("ORDERS").info(), jsync.StreamInfo)
    assert_type(stream.config.subjects, list[str] | None)
    assert_type(stream.purge(subject="orders.a", keep=1), int)
    assert_type(stream.get_message(7), jsync.StoredMessage)
    assert_type(stream.get_message(last_by_subject="orders.a").data, bytes)
    for stored in stream.get_messages("orders.*"):
        assert_type(stored.timestamp, datetime)
    for other in js.streams():
        assert_type(other.name, str)
    assert_type(stream.read_arrow(filter_subjects="orders.a"), jsync.ArrowRange)


def consumers(stream: jsync.Stream) -> None:
    worker = stream.create_consumer(durable_name="w", ack_policy="explicit")
    assert_type(worker, jsync.Consumer)
    stream.create_consumer(jsync.ConsumerConfig(durable_name="w", ack_wait=30.0))
    assert_type(worker.info(), jsync.ConsumerInfo)
    msg = worker.next(timeout=5)
    assert_type(msg, jsync.JetStreamMsg)
    assert_type(msg.metadata, jsync.Metadata)
    assert_type(msg.metadata.stream_sequence, int)
    assert_type(msg.metadata.timestamp, datetime)
    msg.ack()
    msg.nak(delay=1.5)
    msg.term("broken")
    msg.in_progress()
    msg.ack_sync(timeout=2)
    with worker.fetch(100, timeout=2) as batch:
        assert_type(batch, jsync.Batch)
        for fetched in batch:
            assert_type(fetched, jsync.JetStreamMsg)
    assert_type(batch.error, Exception | None)
    assert_type(worker.fetch(max_bytes=1_000_000), jsync.Batch)
    assert_type(worker.fetch_nowait(10).to_arrow(), jsync.ArrowBatch)
    with worker.messages(max_messages=500) as messages:
        assert_type(messages, jsync.MessagesContext)
        for one in messages:
            assert_type(one, jsync.JetStreamMsg)
    with worker.consume(lambda m: m.ack(), workers=4) as running:
        assert_type(running, jsync.ConsumeContext)
        assert_type(running.wait(60), bool)
    with worker.arrow_batches(max_rows=100) as batches:
        for rows in batches:
            assert_type(rows, jsync.ArrowBatch)
            rows.ack()


def ordered(js: jsync.JetStream, stream: jsync.Stream) -> None:
    log = stream.ordered_consumer(filter_subjects=["a", "b"])
    assert_type(log, jsync.OrderedConsumer)
    js.ordered_consumer("S", opt_start_time=datetime.now(UTC))
    with log.messages(until_end=True) as messages:
        for msg in messages:
            assert_type(msg, jsync.JetStreamMsg)
    assert_type(log.fetch(10), jsync.OrderedBatch)


def publishing(js: jsync.JetStream) -> None:
    ack = js.publish("a", b"x", msg_id="1", expected_last_sequence=4, ttl=60)
    assert_type(ack, jsync.PubAck)
    assert_type(ack.seq, int)
    with js.publisher(window=4000) as publisher:
        assert_type(publisher, jsync.Publisher)
        future = publisher.publish("a", b"x", headers={"A": "1"})
        assert_type(future, jsync.PubAckFuture)
        assert_type(future.result(5), jsync.PubAck)
        assert_type(future.exception(), Exception | None)
        future.add_done_callback(lambda done: print(done.subject))  # noqa: T201
        assert_type(publisher.publish_many("a", [b"1", b"2"]), list[jsync.PubAckFuture])
    with js.atomic_batch() as batch:
        assert_type(batch, jsync.AtomicBatch)
        batch.add("a", b"x", msg_id="1")
    assert_type(batch.pub_ack, jsync.PubAck | None)
    assert_type(batch.state, jsync.BatchState)
    with js.fast_ingest(gaps="fail") as ingest:
        assert_type(ingest, jsync.FastIngest)
        assert_type(ingest.add("a", b"x"), jsync.FastPubAck)
        ingest.add_many("a", (b"%d" % n for n in range(10)))
    assert_type(ingest.pub_ack, jsync.PubAck)


def pushed(js: jsync.JetStream) -> None:
    with js.subscribe("orders.>", queue="q", deliver_policy="last") as sub:
        assert_type(sub, jsync.PushSubscription)
        assert_type(sub.next(), jsync.JetStreamMsg)
        for msg in sub:
            assert_type(msg, jsync.JetStreamMsg)
    pulls = js.pull_subscribe("orders.>", "worker")
    assert_type(pulls, jsync.PullSubscription)
    assert_type(pulls.fetch(10), list[jsync.JetStreamMsg])


def failing(js: jsync.JetStream) -> None:
    try:
        js.publish("a")
    except errors.StreamNotFoundError as error:
        assert_type(error.err_code, int)
    except errors.TimeoutError as error:
        builtin: TimeoutError = error
        base: errors.Error = error
        raise builtin from base
    except (errors.ConnectionError, errors.JetStreamError):
        raise


def objects(js: jsync.JetStream) -> None:
    files = js.create_object_store(bucket="FILES", max_bytes=1 << 30)
    assert_type(files, jsync.ObjectStore)
    with open("a", "rb") as source:
        assert_type(files.put("a", source), jsync.ObjectInfo)
    files.put("a", bytearray(b"1"), headers={"One": ["1"]}, metadata={"a": "b"})
    files.put("a", (b"1" for _ in range(2)), progress=lambda done, total: None)
    assert_type(files.get("a"), bytes)
    assert_type(files.open("a"), jsync.ObjectReader)
    assert_type(files.open("a", "wb", description="words"), jsync.ObjectWriter)
    with files.open("a") as file, files.open("b", "wb") as target:
        assert_type(file.read(1), bytes)
        shutil.copyfileobj(file, target)
        binary: BinaryIO = file
        assert_type(binary.seek(0), int)
        assert_type(file.info.modified, datetime)
    assert_type(files.list(), Iterator[jsync.ObjectInfo])
    with files.watch() as watch:
        for info in watch:
            assert_type(info, jsync.ObjectInfo)
    assert_type(files.check().orphans, dict[str, int])


def key_value(js: jsync.JetStream) -> None:
    kv = js.create_key_value(bucket="B", history=5, ttl=3600)
    assert_type(kv, jsync.KeyValue)
    assert_type(js.key_value("B").put("a", b"1"), int)
    assert_type(kv.get("a").value, bytes)
    assert_type(kv.get("a").created, datetime)
    assert_type(kv.keys("a.*"), Iterator[str])
    assert_type(kv.get_many(["a"]), dict[str, jsync.Entry])
    numbers = kv.with_codec(jsync.JSON(int), keys=jsync.PathKeys())
    assert_type(numbers, jsync.KeyValue[int])
    secret = jsync.AESGCM(b"k" * 32, key_id="1", old={"0": b"o" * 32})
    assert_type(kv.with_codec(secret), jsync.KeyValue)
    assert_type(
        kv.with_codec(jsync.JSON(int), secret, keys=[jsync.PathKeys()]),
        jsync.KeyValue[int],
    )
    assert_type(numbers.put("a", 1), int)
    assert_type(numbers.get("a").value, int)
    assert_type(numbers.history("a"), list[jsync.Entry[int]])
    with numbers.live("a/*") as view, numbers.watch(callback=print) as watch:
        assert_type(view["a"], int)
        assert_type(watch.next(), jsync.Entry[int])
    with kv.lock("a", ttl=30) as lock, kv.elect("b") as election:
        assert_type(lock.token, int)
        assert_type(election.is_leader, bool)


class Order(msgspec.Struct):
    item: str


def services(nc: jsync.Connection) -> None:
    with nc.service("orders", "1.2.0", queue=None, on_done=print) as service:
        assert_type(service, jsync.Service)

        @service.endpoint("total", workers=4)
        def total(order: Order) -> int:
            return len(order.item)

        @service.group("a").group("b", queue="q").endpoint("raw", queue=None)
        def raw(request: jsync.Request) -> None:
            request.respond(request.data, headers={"A": "b"})
            request.error(404, "gone")

        assert_type(total(Order("x")), int)
        assert_type(service.wait(1), bool)
        assert_type(service.stats().endpoints[0].num_requests, int)
        service.stop(ValueError("x"), timeout=timedelta(seconds=1))
    assert_type(nc.services.call("total", Order("x")), jsync.Msg)
    assert_type(nc.services.call("total", b"x", reply_type=Order), Order)
    assert_type(nc.services.ping("orders")[0].rtt, float | None)
    assert_type(nc.services.info(), list[jsync.ServiceInfo])
    try:
        nc.services.call("total")
    except errors.ServiceError as error:
        assert_type((error.code, error.description), tuple[int, str])
