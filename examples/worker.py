"""A worker: messages of a durable consumer, each acknowledged once it is done.

    python examples/worker.py            until Ctrl-C or SIGTERM
    python examples/worker.py --once     until there is nothing left to do

What fails is delivered again, later each time, and given up after five times. As many of
these as you like share the work.
"""

from __future__ import annotations

import os
import signal
import sys
import threading

import msgspec

import jsync

URL = os.environ.get("NATS_URL", "nats://127.0.0.1:4222")
ATTEMPTS = 5


class Order(msgspec.Struct):
    id: int
    amount: float


def handle(msg: jsync.JetStreamMsg) -> None:
    """Called for each message on a thread of its own; what it raises is a failure."""
    try:
        order = msgspec.json.decode(msg.data, type=Order)
    except msgspec.DecodeError as error:
        msg.term(f"no order: {error}")  # it will not be one the next time either
        return
    attempt = msg.metadata.num_delivered
    try:
        charge(order, attempt)
    except OSError as error:
        print(f"order {order.id}: {error}, attempt {attempt}")
        msg.nak(delay=0.1 * 2**attempt)
        return
    msg.ack()
    print(f"order {order.id}: charged {order.amount:.2f}")


def charge(order: Order, attempt: int) -> None:
    if order.id == 2 and attempt == 1:
        raise OSError("the bank does not answer")


def main(*, once: bool) -> None:
    with jsync.connect(URL, name="worker") as nc:
        js = nc.jetstream()
        stream = js.create_stream(name="ORDERS", subjects=["orders.>"])
        worker = stream.create_consumer(
            durable_name="charging",
            ack_wait=30,  # seconds for one message; msg.in_progress() asks for more
            max_deliver=ATTEMPTS,
            max_ack_pending=100,
        )
        if once:
            seed(js)
        # The handler of a signal should do no more than this.
        ended = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: ended.set())
        with worker.consume(handle, max_messages=100) as running:
            while not ended.wait(0.05):
                running.wait(0)  # raises what has ended it
                if once and not left(worker):
                    break
            running.drain()  # asks for no more; what is here is done
            running.wait()


def left(worker: jsync.Consumer) -> int:
    info = worker.info()
    return info.num_pending + info.num_ack_pending


def seed(js: jsync.JetStream) -> None:
    """Three orders, and something that is none."""
    for number in (1, 2, 3):
        js.publish("orders.new", msgspec.json.encode(Order(number, number * 9.5)))
    js.publish("orders.new", b"hello")


if __name__ == "__main__":
    main(once="--once" in sys.argv)
