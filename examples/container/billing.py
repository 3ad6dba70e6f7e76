"""The worker of the container: it handles paid orders, and keeps those that fail."""

from typing import Any

import jsync

app = jsync.Worker(
    stream="ORDERS",
    retry=jsync.Retry(delays=[1, 5, 30], attempts=5, dead_letter="dead.orders"),
)


@app.handle("orders.paid", consumer="billing", workers=8)
def bill(order: dict[str, Any]) -> None:
    print("bill order", order["id"], flush=True)
