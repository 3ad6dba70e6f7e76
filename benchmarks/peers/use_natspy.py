"""Run the jobs of the comparison with nats-py: `python -m benchmarks.peers.use_natspy JOB ...`."""

from __future__ import annotations

import asyncio
import io
import ssl
from functools import partial
from typing import TYPE_CHECKING, Any

import nats
import nats.micro
from nats.js.api import AckPolicy, ConsumerConfig

from .jobs import main
from .measure import (
    Busy,
    Result,
    await_go,
    cpu_seconds,
    now,
    percentiles,
    rate,
    sleep_until,
)

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Coroutine


async def connect(options: argparse.Namespace) -> Any:
    if options.ca is None:
        return await nats.connect(options.url)
    context = ssl.create_default_context(cafile=options.ca)
    return await nats.connect(options.url, tls=context)


async def go() -> None:
    """Wait as `await_go` does, while the event loop runs."""
    await asyncio.get_running_loop().run_in_executor(None, await_go)


async def read(options: argparse.Namespace) -> Result:
    count, left, size = options.count, options.count, 0
    nc = await connect(options)
    messages = await nc.subscribe(
        options.subject, pending_msgs_limit=0, pending_bytes_limit=0
    )
    await nc.flush()
    await go()
    begin, cpu, busy = 0, cpu_seconds(), Busy(0)
    # the cheapest of three ways to read with nats-py
    async for msg in messages.messages:
        if left == count:
            begin, busy = now(), Busy(options.busy)
        size += len(msg.data)
        left -= 1
        if left == 0:
            break
    result = rate(count, begin, cpu)
    busy.stop()
    assert size == count * options.size
    await nc.close()
    return result


async def request(options: argparse.Namespace) -> Result:
    count, payload = options.count, b"x" * options.size
    latencies = []
    nc = await connect(options)
    busy = Busy(options.busy)
    await go()
    for _ in range(count // 10):
        await nc.request(options.subject, payload, timeout=5)
    cpu, start = cpu_seconds(), now()
    for _ in range(count):
        begin = now()
        await nc.request(options.subject, payload, timeout=5)
        latencies.append(now() - begin)
    result = rate(count, start, cpu) | percentiles("latency", latencies)
    busy.stop()
    await nc.close()
    return result


async def publish(options: argparse.Namespace) -> Result:
    payload = b"x" * options.size
    nc = await connect(options)
    await go()
    busy = Busy(options.busy)
    cpu, begin = cpu_seconds(), now()
    for _ in range(options.count):
        await nc.publish(options.subject, payload)
    await nc.flush(60)
    result = rate(options.count, begin, cpu)
    busy.stop()
    await nc.close()
    return result


async def lone(options: argparse.Namespace) -> Result:
    padding = b"x" * (options.size - 19)
    interval, spent = options.interval * 1000, []
    nc = await connect(options)
    busy = Busy(options.busy)
    await go()
    cpu = cpu_seconds()
    moment = start = now()
    for _ in range(options.count):
        moment += interval
        # Sleep without the event loop, because its timer of 1 ms would limit the rate. The flusher
        # of nats-py gets a turn after each publish.
        sleep_until(moment)
        begin = now()
        await nc.publish("bench.lone", b"%019d" % begin + padding)
        spent.append(now() - begin)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    result = rate(options.count, start, cpu) | percentiles("caller", spent)
    busy.stop()
    await nc.close()
    return result


async def fetch(options: argparse.Namespace) -> Result:
    done, size = 0, 0
    nc = await connect(options)
    consumer = await nc.jetstream().pull_subscribe_bind(
        options.consumer, options.stream, pending_msgs_limit=0, pending_bytes_limit=0
    )
    await go()
    cpu, begin = cpu_seconds(), now()
    while done < options.count:
        for msg in await consumer.fetch(options.batch, timeout=10):
            size += len(msg.data)
            done += 1
            if options.ack:
                await msg.ack()
    await nc.flush(60)
    result = rate(done, begin, cpu)
    await nc.close()
    return result


async def next_message(options: argparse.Namespace) -> Result:
    latencies = []
    nc = await connect(options)
    consumer = await nc.jetstream().pull_subscribe_bind(
        options.consumer, options.stream
    )
    await go()
    for _ in range(options.count // 10):
        await consumer.fetch(1)
    cpu, start = cpu_seconds(), now()
    for _ in range(options.count):
        begin = now()
        await consumer.fetch(1)
        latencies.append(now() - begin)
    result = rate(options.count, start, cpu) | percentiles("latency", latencies)
    await nc.close()
    return result


async def publisher(options: argparse.Namespace) -> Result:
    payload = b"x" * options.size
    nc = await connect(options)
    js = nc.jetstream(publish_async_max_pending=options.window)
    await go()
    cpu, begin = cpu_seconds(), now()
    for _ in range(options.count):
        await js.publish_async(options.subject, payload, wait_stall=60)
    await js.publish_async_completed()
    result = rate(options.count, begin, cpu)
    await nc.close()
    return result


async def timed(
    count: int, one: Callable[[int], Coroutine[Any, Any, object]]
) -> Result:
    latencies = []
    await go()
    for i in range(count // 10):
        await one(i)
    cpu, start = cpu_seconds(), now()
    for i in range(count):
        begin = now()
        await one(i)
        latencies.append(now() - begin)
    return rate(count, start, cpu) | percentiles("latency", latencies)


async def single(options: argparse.Namespace) -> Result:
    payload = b"x" * options.size
    nc = await connect(options)
    js = nc.jetstream()
    result = await timed(options.count, lambda _: js.publish(options.subject, payload))
    await nc.close()
    return result


def blocking(
    work: Callable[[argparse.Namespace], Coroutine[Any, Any, Result]],
) -> Callable[[argparse.Namespace], Result]:
    return lambda options: asyncio.run(work(options))


async def ordered(options: argparse.Namespace) -> Result:
    count, size = 0, 0
    nc = await connect(options)
    await go()
    cpu, begin = cpu_seconds(), now()
    messages = await nc.jetstream().subscribe(
        ">",
        stream=options.stream,
        ordered_consumer=True,
        pending_msgs_limit=0,
        pending_bytes_limit=0,
    )
    async for msg in messages.messages:
        size += len(msg.data)
        count += 1
        if count == options.count:
            break
    result = rate(count, begin, cpu)
    await nc.close()
    return result


async def push(options: argparse.Namespace) -> Result:
    left, size = options.count, 0
    nc = await connect(options)
    await go()
    cpu, begin = cpu_seconds(), now()
    messages = await nc.jetstream().subscribe(
        ">",
        stream=options.stream,
        config=ConsumerConfig(ack_policy=AckPolicy.NONE),
        flow_control=bool(options.flow),
        idle_heartbeat=5 if options.flow else None,
        pending_msgs_limit=0,
        pending_bytes_limit=0,
    )
    async for msg in messages.messages:
        size += len(msg.data)
        left -= 1
        if left == 0:
            break
    result = rate(options.count, begin, cpu)
    await nc.close()
    return result


def key(number: int) -> str:
    return f"key.{number}"


async def kv_put(options: argparse.Namespace) -> Result:
    payload = b"x" * options.size
    nc = await connect(options)
    bucket = await nc.jetstream().key_value(options.bucket)
    result = await timed(options.count, lambda i: bucket.put(key(i), payload))
    await nc.close()
    return result


async def kv_get(options: argparse.Namespace) -> Result:
    nc = await connect(options)
    bucket = await nc.jetstream().key_value(options.bucket)
    result = await timed(options.count, lambda i: bucket.get(key(i % options.keys)))
    await nc.close()
    return result


async def kv_keys(options: argparse.Namespace) -> Result:
    nc = await connect(options)
    bucket = await nc.jetstream().key_value(options.bucket)
    await go()
    cpu, begin = cpu_seconds(), now()
    for _ in range(options.passes):
        assert len(await bucket.keys()) == options.count
    result = rate(options.count * options.passes, begin, cpu)
    await nc.close()
    return result


async def kv_watch(options: argparse.Namespace) -> Result:
    nc = await connect(options)
    bucket = await nc.jetstream().key_value(options.bucket)
    await go()
    cpu, begin = cpu_seconds(), now()
    for _ in range(options.passes):
        count = size = 0
        watcher = await bucket.watchall()
        async for entry in watcher:
            if entry is None:
                break
            size += len(entry.value)
            count += 1
        assert count == options.count
        await watcher.stop()
    result = rate(options.count * options.passes, begin, cpu)
    await nc.close()
    return result


async def serve(options: argparse.Namespace) -> Result:
    """Run a service that echoes after `delay` microseconds, until a message on `<subject>.stop`."""
    seconds = options.delay / 1e6
    nc = await connect(options)
    service = await nats.micro.add_service(nc, name="bench", version="1.0.0")
    tasks: set[asyncio.Task[None]] = set()

    async def echo(request: Any) -> None:
        if seconds:
            await asyncio.sleep(seconds)
        await request.respond(request.data)

    async def spawn(request: Any) -> None:
        task = asyncio.create_task(echo(request))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    handler = spawn if options.workers > 1 else echo
    await service.add_endpoint(name="echo", subject=options.subject, handler=handler)
    stop = await nc.subscribe(f"{options.subject}.stop")
    await nc.flush()
    await go()
    cpu, begin = cpu_seconds(), now()
    await stop.next_msg(timeout=180)
    result = rate(service.stats().endpoints[0].num_requests, begin, cpu)
    await nc.close()
    return result


async def object_job(options: argparse.Namespace, kind: str) -> Result:
    payload, latencies = b"x" * options.size, []
    nc = await connect(options)
    files = await nc.jetstream().object_store(options.stream)
    await go()
    cpu, start = cpu_seconds(), now()
    for _ in range(options.count):
        begin = now()
        if kind == "put":
            await files.put("object", payload)
        else:
            # Without a file to write to, nats-py copies the whole object for each chunk.
            target = io.BytesIO()
            await files.get("object", writeinto=target)
            assert len(target.getvalue()) == options.size
        latencies.append(now() - begin)
    result = rate(options.count, start, cpu)
    await nc.close()
    return result | percentiles("latency", latencies)


JOBS: dict[str, Callable[[argparse.Namespace], Coroutine[Any, Any, Result]]] = {
    "publish": publish,
    "read": read,
    "request": request,
    "lone": lone,
    "fetch": fetch,
    "next": next_message,
    "ordered": ordered,
    "push": push,
    "publisher": publisher,
    "single": single,
    "kvput": kv_put,
    "kvget": kv_get,
    "kvkeys": kv_keys,
    "kvwatch": kv_watch,
    "serve": serve,
    "objectput": partial(object_job, kind="put"),
    "objectget": partial(object_job, kind="get"),
}

if __name__ == "__main__":
    main({name: blocking(work) for name, work in JOBS.items()})
