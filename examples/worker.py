"""A worker: jsync calls a function for each order, with retries and dead letters.

    python examples/worker.py                  runs until Ctrl-C or SIGTERM
    python examples/worker.py --once           runs until no orders are left
    cd examples && jsync worker worker:app --processes 4 --http 127.0.0.1:8080

If the function fails, the server delivers the order again, each time after a longer delay.
After five attempts the order becomes a dead letter. You can run several workers, which share
the orders.
"""

from __future__ import annotations

import logging
import os
import sys
import time

import msgspec

import jsync

URL = os.environ.get("NATS_URL", "nats://127.0.0.1:4222")


class Order(msgspec.Struct):
    id: int
    amount: float


app = jsync.Worker(
    stream="ORDERS",
    connect=lambda: jsync.connect(URL, name="worker"),
    retry=jsync.Retry(delays=[0.1, 1, 10], attempts=5, dead_letter="dead.orders"),
)


@app.handle("orders.*", consumer="charging", time_limit=60)
def charge(order: Order, msg: jsync.JetStreamMsg) -> None:
    """Charge an order. The worker retries the order if this function raises an exception."""
    attempt = msg.metadata.num_delivered
    if order.id == 2 and attempt == 1:
        print(f"order {order.id}: the bank does not answer, attempt {attempt}")
        raise OSError("the bank does not answer")
    print(f"order {order.id}: charged {order.amount:.2f}")


def once(nc: jsync.Connection, js: jsync.JetStream) -> None:
    """Publish three orders and one malformed message, then wait until all are handled."""
    logging.disable()  # hide the two failures that this example causes
    for number in (1, 2, 3):
        js.publish("orders.new", msgspec.json.encode(Order(number, number * 9.5)))
    js.publish("orders.new", b"hello")
    with app.start(nc):
        worker = js.consumer("ORDERS", "charging")
        while (info := worker.info()).num_pending or info.num_ack_pending:
            time.sleep(0.05)
    letter = js.stream("DEAD").get_message(1)
    print(f"dead letter: {letter.data.decode()}")


def main() -> None:
    with app.connect() as nc:
        js = nc.jetstream()
        js.create_stream(name="ORDERS", subjects=["orders.>"])
        js.create_stream(name="DEAD", subjects=["dead.>"])
        if "--once" in sys.argv:
            once(nc, js)
            return
    app.run()


if __name__ == "__main__":
    main()
