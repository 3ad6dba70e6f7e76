"""Run the jobs of the comparison with natsio: `python -m benchmarks.peers.use_natsio JOB
...`.

natsio needs a newer Python than jsync, so it runs in another virtual environment.
"""

from __future__ import annotations

import asyncio
import sys
from functools import partial
from importlib.metadata import version
from itertools import count as count_up
from typing import TYPE_CHECKING, Any

import natsio
from natsio.micro import add_service

from .jobs import main
from .measure import Result, await_go, cpu_seconds, now, percentiles, rate

if TYPE_CHECKING:
    import argparse
    from collections.abc import Awaitable, Callable, Coroutine


async def connect(options: argparse.Namespace) -> Any:
    tls = natsio.TLSConfig(cafile=options.ca) if options.ca else None
    return await natsio.connect(options.url, tls=tls)


async def go() -> None:
    """Wait as `await_go` does, while the event loop runs."""
    await asyncio.get_running_loop().run_in_executor(None, await_go)


async def timed(count: int, one: Callable[[], Awaitable[object]]) -> Result:
    latencies = []
    await go()
    for _ in range(count // 10):
        await one()
    cpu, start = cpu_seconds(), now()
    for _ in range(count):
        begin = now()
        await one()
        latencies.append(now() - begin)
    return rate(count, start, cpu) | percentiles("latency", latencies)


async def publish(options: argparse.Namespace) -> Result:
    payload = b"x" * options.size
    async with await connect(options) as nc:
        await go()
        cpu, begin = cpu_seconds(), now()
        for _ in range(options.count):
            await nc.publish(options.subject, payload)
        await nc.flush(60)
        return rate(options.count, begin, cpu)


async def read(options: argparse.Namespace) -> Result:
    begin, left, size = 0, options.count, 0
    async with await connect(options) as nc:
        messages = nc.subscribe(
            options.subject, pending_msgs_limit=0, pending_bytes_limit=0
        )
        await nc.flush()
        await go()
        cpu = cpu_seconds()
        async for msg in messages:
            begin = begin or now()
            size += len(msg.payload)
            left -= 1
            if not left:
                break
        assert size == options.count * options.size
        return rate(options.count, begin, cpu)


async def request(options: argparse.Namespace) -> Result:
    payload = b"x" * options.size
    async with await connect(options) as nc:
        return await timed(
            options.count, lambda: nc.request(options.subject, payload, timeout=5)
        )


async def bound(nc: Any, options: argparse.Namespace) -> Any:
    return await (await nc.jetstream().stream(options.stream)).consumer(
        options.consumer
    )


async def fetch(options: argparse.Namespace) -> Result:
    done, size = 0, 0
    async with await connect(options) as nc:
        consumer = await bound(nc, options)
        await go()
        cpu, begin = cpu_seconds(), now()
        while done < options.count:
            for msg in await consumer.fetch(options.batch, timeout=10):
                size += len(msg.payload)
                done += 1
                if options.ack:
                    await msg.ack()
        await nc.flush(60)
        return rate(done, begin, cpu)


async def consume(options: argparse.Namespace) -> Result:
    left, size = options.count, 0
    async with await connect(options) as nc:
        consumer = await bound(nc, options)
        await go()
        cpu, begin = cpu_seconds(), now()
        async with consumer.consume(max_messages=options.batch) as messages:
            async for msg in messages:
                size += len(msg.payload)
                if options.ack:
                    await msg.ack()
                left -= 1
                if not left:
                    break
            await nc.flush(60)
            return rate(options.count, begin, cpu)


async def next_message(options: argparse.Namespace) -> Result:
    async with await connect(options) as nc:
        consumer = await bound(nc, options)
        return await timed(options.count, consumer.next)


async def ordered(options: argparse.Namespace) -> Result:
    count, size = 0, 0
    async with await connect(options) as nc:
        stream = await nc.jetstream().stream(options.stream)
        await go()
        cpu, begin = cpu_seconds(), now()
        async with stream.ordered_consumer() as consumer:
            async for msg in consumer.messages(
                max_messages=options.batch, until_drained=True
            ):
                size += len(msg.payload)
                count += 1
            assert count == options.count
            return rate(count, begin, cpu)


async def publisher(options: argparse.Namespace) -> Result:
    payload = b"x" * options.size
    async with await connect(options) as nc:
        js = nc.jetstream(
            publish_async_max_pending=options.window, publish_async_stall_wait=60
        )
        await go()
        cpu, begin = cpu_seconds(), now()
        for _ in range(options.count):
            await js.publish_async(options.subject, payload)
        await js.publish_async_complete(60)
        return rate(options.count, begin, cpu)


async def single(options: argparse.Namespace) -> Result:
    payload = b"x" * options.size
    async with await connect(options) as nc:
        js = nc.jetstream()
        return await timed(options.count, lambda: js.publish(options.subject, payload))


def key(number: int) -> str:
    return f"key.{number}"


async def kv_put(options: argparse.Namespace) -> Result:
    payload, numbers = b"x" * options.size, count_up()
    async with await connect(options) as nc:
        bucket = await nc.jetstream().key_value(options.bucket)
        return await timed(
            options.count, lambda: bucket.put(key(next(numbers)), payload)
        )


async def kv_get(options: argparse.Namespace) -> Result:
    numbers = count_up()
    async with await connect(options) as nc:
        bucket = await nc.jetstream().key_value(options.bucket)
        return await timed(
            options.count, lambda: bucket.get(key(next(numbers) % options.keys))
        )


async def kv_keys(options: argparse.Namespace) -> Result:
    async with await connect(options) as nc:
        bucket = await nc.jetstream().key_value(options.bucket)
        await go()
        cpu, begin = cpu_seconds(), now()
        for _ in range(options.passes):
            count = 0
            async for _key in bucket.iter_keys():
                count += 1
            assert count == options.count
        return rate(options.count * options.passes, begin, cpu)


async def kv_watch(options: argparse.Namespace) -> Result:
    async with await connect(options) as nc:
        bucket = await nc.jetstream().key_value(options.bucket)
        await go()
        cpu, begin = cpu_seconds(), now()
        for _ in range(options.passes):
            count = size = 0
            async with bucket.watch() as watcher:
                async for entry in watcher:
                    if entry is None:
                        break
                    size += len(entry.value)
                    count += 1
            assert count == options.count
        return rate(options.count * options.passes, begin, cpu)


async def serve(options: argparse.Namespace) -> Result:
    """Run a service that echoes after `delay` microseconds, until a message on `<subject>.stop`."""
    seconds = options.delay / 1e6
    async with await connect(options) as nc:
        tasks: set[asyncio.Task[None]] = set()

        async def echo(request: Any) -> None:
            if seconds:
                await asyncio.sleep(seconds)
            await request.respond(request.data)

        async def spawn(request: Any) -> None:
            task = asyncio.create_task(echo(request))
            tasks.add(task)
            task.add_done_callback(tasks.discard)

        async with add_service(nc, name="bench", version="1.0.0") as service:
            handler = spawn if options.workers > 1 else echo
            service.add_endpoint("echo", handler, subject=options.subject)
            stop = nc.subscribe(f"{options.subject}.stop")
            await nc.flush()
            await go()
            cpu, begin = cpu_seconds(), now()
            await stop.next_msg(timeout=180)
            return rate(service.stats().endpoints[0].num_requests, begin, cpu)


async def object_job(options: argparse.Namespace, kind: str) -> Result:
    """Put objects into a store, get them whole, or open them and read the first byte."""
    payload, latencies = b"x" * options.size, []
    async with await connect(options) as nc:
        files = await nc.jetstream().object_store(options.stream)

        async def one() -> None:
            if kind == "put":
                await files.put("object", payload)
            elif kind == "get":
                assert len(await files.get_bytes("object")) == options.size
            else:
                async with files.get("object") as found:
                    assert await anext(aiter(found))

        await go()
        for _ in range(options.count // 10):
            await one()
        cpu, start = cpu_seconds(), now()
        for _ in range(options.count):
            begin = now()
            await one()
            latencies.append(now() - begin)
        result = rate(options.count, start, cpu)
    return result | percentiles("latency", latencies)


def blocking(
    work: Callable[[argparse.Namespace], Coroutine[Any, Any, Result]],
) -> Callable[[argparse.Namespace], Result]:
    return lambda options: asyncio.run(work(options))


JOBS: dict[str, Callable[[argparse.Namespace], Coroutine[Any, Any, Result]]] = {
    "publish": publish,
    "read": read,
    "request": request,
    "fetch": fetch,
    "consume": consume,
    "next": next_message,
    "ordered": ordered,
    "publisher": publisher,
    "single": single,
    "kvput": kv_put,
    "kvget": kv_get,
    "kvkeys": kv_keys,
    "kvwatch": kv_watch,
    "serve": serve,
    "objectput": partial(object_job, kind="put"),
    "objectget": partial(object_job, kind="get"),
    "objectopen": partial(object_job, kind="open"),
}

if __name__ == "__main__":
    if sys.argv[1:] == ["version"]:
        sys.stdout.write(f"{version('natsio')}, CPython {sys.version.split()[0]}\n")
    else:
        main({name: blocking(work) for name, work in JOBS.items()})
