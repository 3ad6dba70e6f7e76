"""Process the orders of a shop: a program on nats-py, before its move to jsync.

    python before.py nats://127.0.0.1:4222 monday

The program answers requests for prices, publishes the orders of a day, processes them with two
workers that share the stock in a key-value bucket, and prints a report in JSON.
"""

import asyncio
import json
import logging
import sys
from dataclasses import dataclass, field

import nats
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig, KeyValueConfig, StreamConfig
from nats.js.errors import KeyNotFoundError, KeyWrongLastSequenceError
from nats.js.kv import KeyValue

log = logging.getLogger("shop")

PRICES = {"apple": 0.5, "bread": 3.25, "cheese": 8.0}
ORDERS = [("apple", 4), ("bread", 1), ("cheese", 9), ("dodo", 1)] * 15


@dataclass
class Shop:
    nc: Client
    js: JetStreamContext
    stock: KeyValue
    settings: KeyValue
    day: str
    discount: float = 0.0
    known: asyncio.Event = field(default_factory=asyncio.Event)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    sold: dict[str, int] = field(default_factory=dict)
    refused: dict[str, int] = field(default_factory=dict)

    async def count(self, counts: dict[str, int], item: str, number: int) -> None:
        async with self.lock:
            counts[item] = counts.get(item, 0) + number


async def set_up(nc: Client, day: str) -> Shop:
    js = nc.jetstream(timeout=10)
    await js.add_stream(
        StreamConfig(
            name="SHOP",
            subjects=["orders.>", "invoices.>"],
            max_age=7 * 24 * 3600,
            duplicate_window=120,
        )
    )
    stock = await js.create_key_value(KeyValueConfig(bucket="STOCK", history=5))
    settings = await js.create_key_value(bucket="SETTINGS")
    for item in PRICES:
        try:
            await stock.create(item, b"100")
        except KeyWrongLastSequenceError:
            entry = await stock.get(item)
            log.info("%s: %s left from another day", item, entry.value)
    return Shop(nc, js, stock, settings, day)


async def answer_prices(shop: Shop) -> None:
    """Answer requests for a price. You can run several instances."""

    async def quote(msg: Msg) -> None:
        price = PRICES.get(msg.data.decode())
        if price is None:
            await msg.respond(b'{"error": "no such item"}')
        else:
            price *= 1 - shop.discount
            await msg.respond(json.dumps({"price": round(price, 2)}).encode())

    await shop.nc.subscribe("prices.quote", queue="pricing", cb=quote)
    await shop.nc.flush()


async def follow_discount(shop: Shop) -> None:
    """Keep the discount up to date with the bucket."""
    watcher = await shop.settings.watch("discount")
    try:
        async for entry in watcher:
            if entry is None:  # the end of the initial values
                shop.known.set()
            elif entry.operation in ("DEL", "PURGE"):
                shop.discount = 0.0
            else:
                assert entry.value is not None
                shop.discount = float(entry.value)
                log.info("discount is now %s", shop.discount)
    finally:
        await watcher.stop()  # type: ignore[no-untyped-call]


async def take_orders(shop: Shop) -> int:
    """Publish the orders of the day. Because of the ids you can run this twice."""
    duplicates = 0
    for _ in range(2):
        for number, (item, count) in enumerate(ORDERS):
            order = {"id": f"{shop.day}-{number}", "item": item, "count": count}
            ack = await shop.js.publish(
                f"orders.{item}",
                json.dumps(order).encode(),
                headers={"Nats-Msg-Id": f"order-{shop.day}-{number}", "Day": shop.day},
            )
            duplicates += bool(ack.duplicate)
    await shop.js.publish("orders.broken", b"{", headers={"Day": shop.day})
    return duplicates


async def reserve(shop: Shop, item: str, count: int) -> bool:
    """Take from the stock, unless there is too little."""
    while True:
        try:
            entry = await shop.stock.get(item)
        except KeyNotFoundError:
            return False
        assert entry.value is not None
        left = int(entry.value) - count
        if left < 0:
            return False
        try:
            await shop.stock.update(item, b"%d" % left, last=entry.revision)
        except KeyWrongLastSequenceError:
            continue  # another worker was faster
        return True


async def fulfil(shop: Shop, msg: Msg) -> None:
    try:
        order = json.loads(msg.data)
    except ValueError:
        await msg.term()
        await shop.count(shop.refused, "broken", 1)
        return
    item, count = order["item"], order["count"]
    if item == "bread" and msg.metadata.num_delivered == 1:
        await msg.nak(delay=0.1)  # still in the oven
        return
    reply = await shop.nc.request("prices.quote", item.encode(), timeout=5)
    quote = json.loads(reply.data)
    if "error" in quote or not await reserve(shop, item, count):
        await shop.count(shop.refused, item, 1)
        await msg.ack()
        return
    invoice = {"order": order["id"], "total": round(quote["price"] * count, 2)}
    headers = {"Nats-Msg-Id": f"invoice-{order['id']}"}
    if msg.headers:
        headers["Day"] = msg.headers["Day"]
    await shop.js.publish(
        f"invoices.{item}", json.dumps(invoice).encode(), headers=headers
    )
    await msg.ack_sync()
    await shop.count(shop.sold, item, count)


async def work(shop: Shop) -> None:
    """Process orders until none is left."""
    config = ConsumerConfig(
        ack_policy=AckPolicy.EXPLICIT, ack_wait=30, max_deliver=5, max_ack_pending=100
    )
    sub = await shop.js.pull_subscribe("orders.>", durable="fulfilment", config=config)
    while True:
        try:
            messages = await sub.fetch(10, timeout=1)
        except TimeoutError:
            info = await sub.consumer_info()
            if info.num_pending == 0 and info.num_ack_pending == 0:
                return
            continue
        for msg in messages:
            await fulfil(shop, msg)


async def invoices(shop: Shop) -> dict[str, float]:
    """The invoices of the day by item, read from the stream in order."""
    totals: dict[str, float] = {}
    sub = await shop.js.subscribe("invoices.>", ordered_consumer=True)
    async for msg in sub.messages:
        if msg.headers and msg.headers["Day"] == shop.day:
            item = msg.subject.removeprefix("invoices.")
            totals[item] = round(totals.get(item, 0) + json.loads(msg.data)["total"], 2)
        if msg.metadata.num_pending == 0:
            break
    await sub.unsubscribe()
    return totals


async def main(url: str, day: str) -> None:
    async def on_error(error: Exception) -> None:
        log.error("in the background: %r", error)

    nc = await nats.connect(
        url, name="shop", error_cb=on_error, max_reconnect_attempts=-1
    )
    shop = await set_up(nc, day)
    await shop.settings.put("discount", b"0.1")
    following = asyncio.create_task(follow_discount(shop))
    await asyncio.wait_for(shop.known.wait(), 10)
    await answer_prices(shop)
    duplicates = await take_orders(shop)
    await asyncio.gather(work(shop), work(shop))
    report = {
        "day": day,
        "duplicates": duplicates,
        "sold": shop.sold,
        "refused": shop.refused,
        "invoices": await invoices(shop),
        "left": {
            item: int((await shop.stock.get(item)).value or 0)
            for item in sorted(await shop.stock.keys())
        },
        "changes of bread": len(await shop.stock.history("bread")),
        "stored": (await shop.js.stream_info("SHOP")).state.messages,
    }
    print(json.dumps(report, indent=2, sort_keys=True))
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)
    await nc.close()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    asyncio.run(main(*sys.argv[1:]))
