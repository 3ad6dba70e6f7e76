"""Process the orders of a shop: the program of before.py, moved from nats-py to jsync.

    python after.py nats://127.0.0.1:4222 monday

The program answers requests for prices, publishes the orders of a day, processes them with two
workers that share the stock in a key-value bucket, and prints a report in JSON.
"""

import json
import logging
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import jsync
from jsync.errors import (
    BucketNotFoundError,
    KeyExistsError,
    KeyNotFoundError,
    WrongRevisionError,
)

log = logging.getLogger("shop")

PRICES = {"apple": 0.5, "bread": 3.25, "cheese": 8.0}
ORDERS = [("apple", 4), ("bread", 1), ("cheese", 9), ("dodo", 1)] * 15


@dataclass
class Shop:
    nc: jsync.Connection
    js: jsync.JetStream
    stock: jsync.KeyValue
    settings: jsync.KeyValue
    day: str
    discount: float = 0.0
    lock: threading.Lock = field(default_factory=threading.Lock)
    sold: dict[str, int] = field(default_factory=dict)
    refused: dict[str, int] = field(default_factory=dict)

    def count(self, counts: dict[str, int], item: str, number: int) -> None:
        with self.lock:
            counts[item] = counts.get(item, 0) + number


def bucket(js: jsync.JetStream, name: str, history: int) -> jsync.KeyValue:
    """Bind to a bucket that nats-py may have created, or create it."""
    try:
        return js.key_value(name)
    except BucketNotFoundError:
        return js.create_key_value(bucket=name, history=history)


def set_up(nc: jsync.Connection, day: str) -> Shop:
    js = nc.jetstream(timeout=10)
    js.create_stream(
        name="SHOP",
        subjects=["orders.>", "invoices.>"],
        max_age=7 * 24 * 3600,
        duplicate_window=120,
    )
    # A consumer that is created explicitly outlives the subscriptions of the workers.
    js.create_consumer(
        "SHOP",
        durable_name="fulfilment",
        filter_subject="orders.>",
        ack_policy="explicit",
        ack_wait=30,
        max_deliver=5,
        max_ack_pending=100,
    )
    stock = bucket(js, "STOCK", history=5)
    settings = bucket(js, "SETTINGS", history=1)
    for item in PRICES:
        try:
            stock.create(item, b"100")
        except KeyExistsError:
            entry = stock.get(item)
            log.info("%s: %s left from another day", item, entry.value)
    return Shop(nc, js, stock, settings, day)


def answer_prices(shop: Shop) -> None:
    """Answer requests for a price. You can run several instances."""

    def quote(msg: jsync.Msg) -> None:
        price = PRICES.get(msg.data.decode())
        if price is None:
            msg.respond(b'{"error": "no such item"}')
        else:
            price *= 1 - shop.discount
            msg.respond(json.dumps({"price": round(price, 2)}).encode())

    shop.nc.subscribe("prices.quote", queue="pricing", callback=quote)
    shop.nc.flush()


def follow_discount(shop: Shop) -> jsync.Watch:
    """Keep the discount up to date with the bucket."""

    def changed(entry: jsync.Entry) -> None:
        if entry.operation in ("DEL", "PURGE"):
            shop.discount = 0.0
        else:
            shop.discount = float(entry.value)
            log.info("discount is now %s", shop.discount)

    watch = shop.settings.watch("discount", callback=changed)
    if not watch.wait_initial(10):
        raise TimeoutError("the settings have not come")
    return watch


def take_orders(shop: Shop) -> int:
    """Publish the orders of the day. Because of the ids you can run this twice."""
    duplicates = 0
    for _ in range(2):
        for number, (item, count) in enumerate(ORDERS):
            order = {"id": f"{shop.day}-{number}", "item": item, "count": count}
            ack = shop.js.publish(
                f"orders.{item}",
                json.dumps(order).encode(),
                msg_id=f"order-{shop.day}-{number}",
                headers={"Day": shop.day},
            )
            duplicates += ack.duplicate
    shop.js.publish("orders.broken", b"{", headers={"Day": shop.day})
    return duplicates


def reserve(shop: Shop, item: str, count: int) -> bool:
    """Take from the stock, unless there is too little."""
    while True:
        try:
            entry = shop.stock.get(item)
        except KeyNotFoundError:
            return False
        left = int(entry.value) - count
        if left < 0:
            return False
        try:
            shop.stock.update(item, b"%d" % left, last=entry.revision)
        except WrongRevisionError:
            continue  # another worker was faster
        return True


def fulfil(shop: Shop, msg: jsync.JetStreamMsg) -> None:
    try:
        order = json.loads(msg.data)
    except ValueError:
        msg.term()
        shop.count(shop.refused, "broken", 1)
        return
    item, count = order["item"], order["count"]
    if item == "bread" and msg.metadata.num_delivered == 1:
        msg.nak(delay=0.1)  # still in the oven
        return
    reply = shop.nc.request("prices.quote", item.encode(), timeout=5)
    quote = json.loads(reply.data)
    if "error" in quote or not reserve(shop, item, count):
        shop.count(shop.refused, item, 1)
        msg.ack()
        return
    invoice = {"order": order["id"], "total": round(quote["price"] * count, 2)}
    shop.js.publish(
        f"invoices.{item}",
        json.dumps(invoice).encode(),
        msg_id=f"invoice-{order['id']}",
        headers={"Day": msg.headers["Day"]} if msg.headers else None,
    )
    msg.ack_sync()
    shop.count(shop.sold, item, count)


def work(shop: Shop) -> None:
    """Process orders until none is left."""
    sub = shop.js.pull_subscribe_bind("fulfilment", "SHOP")
    while True:
        try:
            messages = sub.fetch(10, timeout=1)
        except TimeoutError:
            info = sub.consumer_info()
            if info.num_pending == 0 and info.num_ack_pending == 0:
                return
            continue
        for msg in messages:
            fulfil(shop, msg)


def invoices(shop: Shop) -> dict[str, float]:
    """The invoices of the day by item, read from the stream in order."""
    totals: dict[str, float] = {}
    with shop.js.subscribe("invoices.>", ordered_consumer=True) as sub:
        for msg in sub.messages:
            if msg.headers and msg.headers["Day"] == shop.day:
                item = msg.subject.removeprefix("invoices.")
                total = json.loads(msg.data)["total"]
                totals[item] = round(totals.get(item, 0) + total, 2)
            if msg.metadata.num_pending == 0:
                break
    return totals


def main(url: str, day: str) -> None:
    def on_error(error: Exception) -> None:
        log.error("in the background: %r", error)

    with jsync.connect(url, name="shop", on_error=on_error) as nc:
        shop = set_up(nc, day)
        shop.settings.put("discount", b"0.1")
        following = follow_discount(shop)
        answer_prices(shop)
        duplicates = take_orders(shop)
        with ThreadPoolExecutor(2) as workers:
            for done in [workers.submit(work, shop) for _ in range(2)]:
                done.result()
        report = {
            "day": day,
            "duplicates": duplicates,
            "sold": shop.sold,
            "refused": shop.refused,
            "invoices": invoices(shop),
            "left": {
                item: int(shop.stock.get(item).value)
                for item in list(shop.stock.keys())
            },
            "changes of bread": len(list(shop.stock.history("bread"))),
            "stored": shop.js.stream("SHOP").info().state.messages,
        }
        print(json.dumps(report, indent=2, sort_keys=True))
        following.stop()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    main(*sys.argv[1:])
