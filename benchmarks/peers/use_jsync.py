"""Run the jobs of the comparison with jsync: `python -m benchmarks.peers.use_jsync JOB ...`.

The arguments are those in `jobs.py`, followed by options. `--busy N` starts N threads that
compute in Python, `--hold MS` starts one that holds the GIL in C, and `--ca FILE` is for TLS.
"""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack
from functools import partial
from itertools import count as counter, islice
from pathlib import Path
from statistics import median
from threading import Event
from typing import TYPE_CHECKING, Any

import msgspec

import jsync

from .jobs import Work, main
from .measure import (
    Busy,
    Result,
    await_go,
    context_switches,
    cpu_seconds,
    in_threads,
    now,
    percentiles,
    rate,
    resident,
    sleep_until,
)

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Mapping

UNLIMITED = 1 << 40


def connect(options: argparse.Namespace) -> jsync.Connection:
    return jsync.connect(
        options.url,
        tls_ca=options.ca,
        max_pending_messages=UNLIMITED,
        max_pending_bytes=UNLIMITED,
    )


def read(options: argparse.Namespace) -> Result:
    count, expected = options.count, options.count * options.size
    with connect(options) as nc, nc.subscribe(options.subject) as messages:
        for other in range(options.others):
            nc.subscribe(f"bench.other.{other}")
        nc.flush()
        await_go()
        stream, cpu = iter(messages), cpu_seconds()
        size = len(next(stream).data)
        begin, busy = now(), Busy(options.busy)
        for left, msg in enumerate(stream, 2 - count):
            size += len(msg.data)
            if left == 0:
                break
        result = rate(count, begin, cpu)
        busy.stop()
        assert size == expected
    return result


def read_many(options: argparse.Namespace) -> Result:
    """Read messages that arrive for many subscriptions in turn."""
    each, size = options.count // options.subscriptions, 0
    with connect(options) as nc:
        subscriptions = [
            nc.subscribe(f"{options.subject}.{number}")
            for number in range(options.subscriptions)
        ]
        nc.flush()
        await_go()
        cpu = cpu_seconds()
        size = len(subscriptions[0].next().data)
        begin, first = now(), 1
        for messages in subscriptions:
            for msg in islice(messages, each - first):
                size += len(msg.data)
            first = 0
        result = rate(each * len(subscriptions), begin, cpu)
    assert size == each * len(subscriptions) * options.size
    return result


def callbacks(options: argparse.Namespace) -> Result:
    """Receive messages by the callbacks of many subscriptions."""
    each, numbers, ended = options.count // options.subscriptions, counter(1), Event()
    last, begun = each * options.subscriptions, []

    def handle(msg: jsync.Msg) -> None:
        number = next(numbers)
        if number == 1:
            begun.append(now())
        if number == last:
            ended.set()

    with connect(options) as nc:
        for number in range(options.subscriptions):
            nc.subscribe(f"{options.subject}.{number}", callback=handle)
        nc.flush()
        await_go()
        cpu = cpu_seconds()
        ended.wait()
        result = rate(last, begun[0], cpu)
        return result | {"threads": threads(), "resident_mib": resident() / 2**20}


def threads() -> float:
    """Return the number of threads of this process."""
    status = Path("/proc/self/status").read_text("ascii")
    return float(status.split("Threads:")[1].split()[0])


def request(options: argparse.Namespace) -> Result:
    count, payload = options.count, b"x" * options.size
    latencies = []
    with connect(options) as nc:
        busy = Busy(options.busy)
        await_go()
        for _ in range(count // 10):
            nc.request(options.subject, payload)
        cpu, start = cpu_seconds(), now()
        for _ in range(count):
            begin = now()
            nc.request(options.subject, payload)
            latencies.append(now() - begin)
        result = rate(count, start, cpu)
        busy.stop()
    return result | percentiles("latency", latencies)


def publish(options: argparse.Namespace) -> Result:
    count, payload, subject = options.count, b"x" * options.size, options.subject
    with connect(options) as nc:

        def some() -> None:
            send = nc.publish
            for _ in range(count // options.threads):
                send(subject, payload)

        await_go()
        busy = Busy(options.busy)
        cpu, begin = cpu_seconds(), now()
        in_threads(options.threads, some)
        nc.flush(60)
        result = rate(count, begin, cpu)
        busy.stop()
    return result


def lone(options: argparse.Namespace) -> Result:
    padding = b"x" * (options.size - 19)
    interval, spent = options.interval * 1000, []
    with connect(options) as nc:
        busy = Busy(options.busy)
        await_go()
        cpu = cpu_seconds()
        moment = start = now()
        for _ in range(options.count):
            moment += interval
            sleep_until(moment)
            begin = now()
            nc.publish("bench.lone", b"%019d" % begin + padding)
            spent.append(now() - begin)
        result = rate(options.count, start, cpu)
        busy.stop()
    return result | percentiles("caller", spent)


def fetch(options: argparse.Namespace) -> Result:
    done, size = 0, 0
    with connect(options) as nc:
        # The names are resolved at run time, so this file also works without JetStream.
        js: Any = nc.jetstream()
        consumer = js.stream(options.stream).consumer(options.consumer)
        await_go()
        cpu, begin = cpu_seconds(), now()
        while done < options.count:
            with consumer.fetch(options.batch, timeout=10) as batch:
                for msg in batch:
                    size += len(msg.data)
                    done += 1
                    if options.ack:
                        msg.ack()
        nc.flush(60)
        return rate(done, begin, cpu)


def consume(options: argparse.Namespace) -> Result:
    """Consume by overlapping pull requests for `batch` messages, with a handler or a loop."""
    if options.handler:
        return handle(options, [options.consumer])
    left, size = options.count, 0
    with connect(options) as nc:
        consumer = nc.jetstream().stream(options.stream).consumer(options.consumer)
        await_go()
        cpu, begin = cpu_seconds(), now()
        with consumer.messages(max_messages=options.batch) as messages:
            for msg in messages:
                size += len(msg.data)
                if options.ack:
                    msg.ack()
                left -= 1
                if not left:
                    break
            nc.flush(60)
            return rate(options.count, begin, cpu)


def consumers(options: argparse.Namespace) -> Result:
    """Consume with several consumers on one connection, which share the messages evenly."""
    return handle(options, [f"{options.consumer}{n}" for n in range(options.consumers)])


def handle(options: argparse.Namespace, names: list[str]) -> Result:
    """Run `consume` with a handler for each of the consumers."""
    each, ack, size = options.count // len(names), options.ack, 0

    def handler(msg: jsync.JetStreamMsg) -> None:
        nonlocal size
        size += len(msg.data)
        if ack:
            msg.ack()

    with connect(options) as nc, ExitStack() as stack:
        stream = nc.jetstream().stream(options.stream)
        mine = [stream.consumer(name) for name in names]
        await_go()
        busy = Busy(options.busy, options.hold)
        cpu, begin = cpu_seconds(), now()
        running = [
            stack.enter_context(
                consumer.consume(handler, max_messages=options.batch, stop_after=each)
            )
            for consumer in mine
        ]
        for consuming in running:
            consuming.wait(120)
        nc.flush(60)
        result = rate(each * len(names), begin, cpu)
        busy.stop()
        return result | {"reconnects": nc.stats().reconnects}


def ordered(options: argparse.Namespace) -> Result:
    """Read a stream from its first message to its last."""
    count, size = 0, 0
    with connect(options) as nc:
        consumer = nc.jetstream().ordered_consumer(options.stream)
        await_go()
        cpu, begin = cpu_seconds(), now()
        with consumer.messages(max_messages=options.batch, until_end=True) as messages:
            for msg in messages:
                size += len(msg.data)
                count += 1
        result = rate(count, begin, cpu)
    assert count == options.count
    return result


def push(options: argparse.Namespace) -> Result:
    """Read a stream from its first message to its last with a push consumer."""
    left, size = options.count, 0
    with connect(options) as nc:
        await_go()
        cpu, begin = cpu_seconds(), now()
        with nc.jetstream().subscribe(
            stream=options.stream,
            ack_policy="none",
            flow_control=bool(options.flow),
            pending_msgs_limit=options.count,
            pending_bytes_limit=1 << 40,
        ) as messages:
            for msg in messages:
                size += len(msg.data)
                left -= 1
                if not left:
                    break
            result = rate(options.count, begin, cpu)
            assert messages.dropped == 0
    return result


def next_message(options: argparse.Namespace) -> Result:
    count = options.count
    latencies = []
    with connect(options) as nc:
        consumer = nc.jetstream().stream(options.stream).consumer(options.consumer)
        await_go()
        for _ in range(count // 10):
            consumer.next()
        cpu, start = cpu_seconds(), now()
        for _ in range(count):
            begin = now()
            consumer.next()
            latencies.append(now() - begin)
        result = rate(count, start, cpu)
    return result | percentiles("latency", latencies)


def publisher(options: argparse.Namespace) -> Result:
    """Publish without waiting for each ack.

    A `chunk` of 0 publishes messages one by one, -1 one by one with headers, and a larger one
    `chunk` messages at once.
    """
    count, subject, payload = options.count, options.subject, b"x" * options.size
    with connect(options) as nc:
        js = nc.jetstream()
        await_go()
        busy = Busy(options.busy)
        cpu, begin = cpu_seconds(), now()
        with js.publisher(window=options.window) as ahead:
            if options.chunk > 0:
                for _ in range(count // options.chunk):
                    ahead.publish_many(subject, [payload] * options.chunk)
            elif options.chunk < 0:
                for i in range(count):
                    ahead.publish(subject, payload, msg_id=str(i))
            else:
                publish = ahead.publish
                for _ in range(count):
                    publish(subject, payload)
        result = rate(count, begin, cpu)
        busy.stop()
    return result


def ingest(options: argparse.Namespace) -> Result:
    """Publish by fast ingest.

    A `chunk` of 0 adds messages one by one, -1 one by one with headers, and a larger one
    `chunk` messages at once.
    """
    count, subject, payload = options.count, options.subject, b"x" * options.size
    flow, outstanding = options.flow, options.outstanding
    with connect(options) as nc:
        js = nc.jetstream()
        await_go()
        busy = Busy(options.busy)
        cpu, begin = cpu_seconds(), now()
        with js.fast_ingest(flow=flow, outstanding=outstanding) as batch:
            if options.chunk > 0:
                for _ in range(count // options.chunk):
                    batch.add_many(subject, [payload] * options.chunk)
            elif options.chunk < 0:
                for i in range(count):
                    batch.add(subject, payload, msg_id=str(i))
            else:
                add = batch.add
                for _ in range(count):
                    add(subject, payload)
        result = rate(count, begin, cpu)
        busy.stop()
    return result


def atomic(options: argparse.Namespace) -> Result:
    """Publish atomic batches of `chunk` messages, at once or one by one (-1)."""
    size, payload = abs(options.chunk), b"x" * options.size
    batches = options.count // size
    with connect(options) as nc:
        js = nc.jetstream()
        await_go()
        cpu, begin = cpu_seconds(), now()
        for _ in range(batches):
            if options.chunk > 0:
                js.publish_batch([(options.subject, payload)] * size)
                continue
            with js.atomic_batch() as batch:
                for _ in range(size):
                    batch.add(options.subject, payload)
        return rate(batches * size, begin, cpu)


def single(options: argparse.Namespace) -> Result:
    payload = b"x" * options.size
    with connect(options) as nc:
        js = nc.jetstream()
        return timed(options.count, lambda _: js.publish(options.subject, payload))


def key(number: int) -> str:
    return f"key.{number}"


def timed(count: int, one: Callable[[int], object]) -> Result:
    """Call `one` again and again and time each call, after a tenth as many calls to warm up."""
    latencies = []
    await_go()
    for i in range(count // 10):
        one(i)
    cpu, start = cpu_seconds(), now()
    for i in range(count):
        begin = now()
        one(i)
        latencies.append(now() - begin)
    return rate(count, start, cpu) | percentiles("latency", latencies)


def kv_put(options: argparse.Namespace) -> Result:
    payload = b"x" * options.size
    with connect(options) as nc:
        bucket = nc.jetstream().key_value(options.bucket)
        return timed(options.count, lambda i: bucket.put(key(i), payload))


def kv_get(options: argparse.Namespace) -> Result:
    with connect(options) as nc:
        bucket = nc.jetstream().key_value(options.bucket)
        return timed(options.count, lambda i: bucket.get(key(i % options.keys)))


def kv_many(options: argparse.Namespace) -> Result:
    """Get all keys at once. Each time, get a tenth of them one by one for comparison."""
    keys = [key(i) for i in range(options.keys)]
    calls, some = options.count // options.keys, keys[: options.keys // 10]
    seconds = cpu = 0.0
    times = []
    with connect(options) as nc:
        bucket = nc.jetstream().key_value(options.bucket)
        await_go()
        bucket.get_many(keys)
        for _ in range(calls):
            cpu_before, begin = cpu_seconds(), now()
            assert len(bucket.get_many(keys)) == options.keys
            many = (now() - begin) / 1e9
            seconds, cpu = seconds + many, cpu + cpu_seconds() - cpu_before
            begin = now()
            for name in some:
                bucket.get(name)
            times.append((now() - begin) / 1e9 / len(some) / (many / len(keys)))
    found = {"count": calls * options.keys, "seconds": seconds, "cpu": cpu}
    return found | {"times": median(times)}


def kv_keys(options: argparse.Namespace) -> Result:
    with connect(options) as nc:
        bucket = nc.jetstream().key_value(options.bucket)
        await_go()
        cpu, begin = cpu_seconds(), now()
        for _ in range(options.passes):
            count = 0
            for _ in bucket.keys():  # noqa: SIM118 - a bucket is no mapping
                count += 1
            assert count == options.count
        return rate(options.count * options.passes, begin, cpu)


def kv_watch(options: argparse.Namespace) -> Result:
    """Read all values that a bucket holds when the watch begins."""
    with connect(options) as nc:
        bucket = nc.jetstream().key_value(options.bucket)
        await_go()
        cpu, begin = cpu_seconds(), now()
        for _ in range(options.passes):
            count = size = 0
            with bucket.watch() as watch:
                for entry in watch.initial():
                    size += len(entry.value)
                    count += 1
            assert count == options.count
        return rate(options.count * options.passes, begin, cpu)


def kv_ordered(options: argparse.Namespace) -> Result:
    """Read the same messages with an ordered consumer."""
    with connect(options) as nc:
        js = nc.jetstream()
        await_go()
        cpu, begin = cpu_seconds(), now()
        for _ in range(options.passes):
            count = size = 0
            with js.ordered_consumer(
                f"KV_{options.bucket}", deliver_policy="last_per_subject"
            ) as consumer:
                for msg in consumer.messages(until_end=True):
                    size += len(msg.data)
                    count += 1
            assert count == options.count
        return rate(options.count * options.passes, begin, cpu)


def kv_live(options: argparse.Namespace) -> Result:
    """Measure reads from a live view, and its memory."""
    with connect(options) as nc:
        bucket = nc.jetstream().key_value(options.bucket)
        with bucket.live("none"):  # exclude memory that is allocated only once
            before = resident()
        await_go()
        cpu, begin = cpu_seconds(), now()
        with bucket.live() as view:
            loaded = rate(options.count, begin, cpu)
            memory = resident() - before
            some = [key(i % 1000) for i in range(options.reads)]
            every = [key(i * 7919 % options.count) for i in range(options.reads)]
            like = dict(view)
            spent = {
                "read": min(reading(view, some) for _ in range(3)),
                "read_every": min(reading(view, every) for _ in range(3)),
                "dict_every": min(reading(like, every) for _ in range(3)),
            }
    return loaded | spent | {"each": memory / options.count}


def reading(values: Mapping[str, bytes], keys: list[str]) -> float:
    """Return the microseconds per read. The hashes of the keys are computed before."""
    for name in keys:
        hash(name)
    begin = now()
    for name in keys:
        values[name]
    return (now() - begin) / 1e3 / len(keys)


class Order(msgspec.Struct):
    """The payload of the messages for a worker."""

    id: int
    customer: str
    amount: float


def work(options: argparse.Namespace) -> Result:
    """Run a worker until `count` messages are done, or no message has come for a second.

    The handler computes for `spin` microseconds. With `plain`, `consume` calls the handler,
    which acknowledges the messages itself.
    """
    count, wanted, enough = 0, options.count, threading.Event()
    spin = options.spin * 1000

    def handle(_: object) -> None:
        nonlocal count
        if spin:
            until = time.thread_time_ns() + spin
            while time.thread_time_ns() < until:
                pass
        count += 1
        if count == wanted:
            enough.set()

    def handle_and_ack(msg: jsync.JetStreamMsg) -> None:
        handle(msg)
        msg.ack()

    app = jsync.Worker(stream=options.stream)
    app.handle(
        options.stream,
        consumer=options.consumer,
        payload=Order if options.typed else bytes,
        max_messages=options.batch,
    )(handle)
    with connect(options) as nc:
        consumer = nc.jetstream().consumer(options.stream, options.consumer)
        await_go()
        cpu, begin = cpu_seconds(), now()
        with (
            consumer.consume(handle_and_ack, max_messages=options.batch)
            if options.plain
            else app.start(nc)
        ):
            if wanted:
                enough.wait(120)
                nc.flush(60)
                return rate(count, begin, cpu)
            last, seen, still = begin, 0, 0
            while still < QUIET:
                time.sleep(0.02)
                if count == seen:
                    still += 1
                else:
                    last, seen, still = now(), count, 0
            # Do not count the final second of waiting.
            took = {"count": count, "seconds": (last - begin) / 1e9}
            return rate(count, begin, cpu) | took


QUIET = 50
"""The number of checks without a message, 20 ms apart, after which the worker stops."""


def member(options: argparse.Namespace) -> Result:
    """Be a member of the group `g` until no message has come for a second."""
    seconds, count = options.sleep / 1e6, 0
    with connect(options) as nc:
        group = nc.jetstream().consumer_group(options.stream, "g")
        with group.join(options.consumer) as joined:
            await_go()
            cpu, begin = cpu_seconds(), now()
            last = begin
            try:
                while True:
                    msg = joined.next(1)
                    time.sleep(seconds)
                    msg.ack()
                    count, last = count + 1, now()
            except jsync.errors.TimeoutError:
                # Do not count the final second of waiting.
                took = {"count": count, "seconds": (last - begin) / 1e9}
                return rate(count, begin, cpu) | took


def regroup(options: argparse.Namespace) -> Result:
    """Add a fourth member to three and drop it, repeatedly, while all of them work."""
    seconds = options.sleep / 1e6
    # by member and partition: the first message after the change
    first: dict[tuple[str, int], int] = {}
    partition_of: dict[str, int] = {}
    pauses: dict[str, list[int]] = {"add": [], "drop": []}
    with connect(options) as nc, ExitStack() as stack:
        js = nc.jetstream()
        group = js.consumer_group(options.stream, "g")
        subjects = js.stream(f"{options.stream}-g").info(subjects_filter=">")
        for subject in subjects.state.subjects or ():
            number, _, rest = subject.partition(".")
            partition_of[rest] = int(number)

        def handler(name: str) -> Callable[[jsync.JetStreamMsg], None]:
            def handle(msg: jsync.JetStreamMsg) -> None:
                first.setdefault((name, partition_of[msg.subject]), now())
                time.sleep(seconds)
                msg.ack()

            return handle

        for name in ("m0", "m1", "m2", "m3"):
            joined = stack.enter_context(group.join(name))
            running = joined.consume(handler(name))
            stack.callback(running.stop)
        await_go()
        for change in (group.add_members, group.delete_members) * options.changes:
            time.sleep(0.3)
            before = group.config.assignment()
            begin = now()
            change("m3")
            after = group.config.assignment()
            first.clear()
            moved = [
                (owner, number)
                for number, owner in after.items()
                if owner != before.get(number)
            ]
            while any(each not in first for each in moved):
                time.sleep(0.001)
                if now() - begin > 5e9:
                    break
            took = [first[each] - begin for each in moved if each in first]
            pauses[change].append(max(took))
        return {
            **percentiles("add", pauses["add"]),
            **percentiles("drop", pauses["drop"]),
            "changes": 2 * options.changes,
        }


def serve(options: argparse.Namespace) -> Result:
    """Run a service that echoes after `delay` microseconds, until a message on `<subject>.stop`."""
    seconds = options.delay / 1e6
    with connect(options) as nc, nc.service("bench", "1.0.0") as service:

        @service.endpoint("echo", subject=options.subject, workers=options.workers)
        def echo(request: jsync.Request) -> bytes:
            if seconds:
                time.sleep(seconds)
            return request.data

        stopped = threading.Event()
        nc.subscribe(f"{options.subject}.stop", callback=lambda _: stopped.set())
        nc.flush()
        await_go()
        cpu, begin = cpu_seconds(), now()
        stopped.wait()
        return rate(service.stats().endpoints[0].num_requests, begin, cpu)


def shared(options: argparse.Namespace) -> Result:
    """Call from threads that share a connection. Each waits for its answer."""
    payload, target, threads = b"x" * options.size, options.target, options.threads
    latencies: list[int] = []
    with connect(options) as nc:
        js = nc.jetstream()
        bucket = js.key_value(target) if options.call in {"get", "put"} else None
        calls: dict[str, Callable[[str], object]] = {
            "publish": lambda _: js.publish(target, payload),
            "request": lambda _: nc.request(target, payload),
            "get": lambda key: bucket and bucket.get(key),
            "put": lambda key: bucket and bucket.put(key, payload),
        }
        one = calls[options.call]

        def run(count: int) -> None:
            numbers = iter(range(threads))

            def work() -> None:
                key, spent = f"key.{next(numbers)}", []
                for _ in range(count):
                    begin = now()
                    one(key)
                    spent.append(now() - begin)
                latencies.extend(spent)

            in_threads(threads, work)

        each = options.count // threads
        await_go()
        run(each // 10 + 1)
        latencies.clear()
        switches, cpu, begin = context_switches(), cpu_seconds(), now()
        run(each)
        result = rate(len(latencies), begin, cpu)
        result["switches"] = (context_switches() - switches) / len(latencies)
    return result | percentiles("latency", latencies)


def object_job(options: argparse.Namespace, kind: str) -> Result:
    """Put objects into a store, get them whole, or open them and read the first byte."""
    payload, latencies = b"x" * options.size, []
    with connect(options) as nc:
        files = nc.jetstream().object_store(options.stream)
        await_go()

        def one() -> None:
            if kind == "put":
                files.put("object", payload)
            elif kind == "get":
                assert len(files.get("object")) == options.size
            else:
                with files.open("object") as file:
                    assert file.read(1)

        for _ in range(options.count // 10):
            one()
        cpu, start = cpu_seconds(), now()
        for _ in range(options.count):
            begin = now()
            one()
            latencies.append(now() - begin)
        result = rate(options.count, start, cpu)
    return result | percentiles("latency", latencies)


JOBS: dict[str, Work] = {
    "publish": publish,
    "read": read,
    "readmany": read_many,
    "callbacks": callbacks,
    "request": request,
    "lone": lone,
    "fetch": fetch,
    "consume": consume,
    "consumers": consumers,
    "ordered": ordered,
    "push": push,
    "next": next_message,
    "publisher": publisher,
    "ingest": ingest,
    "atomic": atomic,
    "single": single,
    "kvput": kv_put,
    "kvget": kv_get,
    "kvmany": kv_many,
    "kvkeys": kv_keys,
    "kvwatch": kv_watch,
    "kvordered": kv_ordered,
    "kvlive": kv_live,
    "work": work,
    "member": member,
    "regroup": regroup,
    "serve": serve,
    "shared": shared,
    "objectput": partial(object_job, kind="put"),
    "objectget": partial(object_job, kind="get"),
    "objectopen": partial(object_job, kind="open"),
}

if __name__ == "__main__":
    main(JOBS)
