"""An order book: one atomic batch stores all messages of a trade, or none of them.

    python examples/order_book.py

Each trade moves an amount from one account to another. The stream rejects the batch if either
balance has changed in the meantime. Needs nats-server 2.12.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import jsync
from jsync.errors import MessageNotFoundError, WrongLastSequenceError

URL = os.environ.get("NATS_URL", "nats://127.0.0.1:4222")
NAMES = ("ann", "bob", "cay")


def balance(stream: jsync.Stream, name: str) -> tuple[int, int]:
    """Return the balance of an account and its revision."""
    try:
        # Read from the leader, because a replica can be a moment behind.
        found = stream.get_message(last_by_subject=f"book.balance.{name}", direct=False)
    except MessageNotFoundError:
        return 0, 0
    return int(found.data), found.sequence


def trade(js: jsync.JetStream, seller: str, buyer: str, amount: int) -> bool:
    """Move an amount between accounts. Retry until no other trade interferes.

    Returns:
        False if the seller has too little.
    """
    stream = js.stream("BOOK")
    while True:
        (has, revision), (gets, other) = balance(stream, seller), balance(stream, buyer)
        if has < amount:
            return False
        try:
            with js.atomic_batch() as batch:
                batch.add(
                    f"book.balance.{seller}",
                    b"%d" % (has - amount),
                    expected_last_subject_sequence=revision,
                )
                batch.add(
                    f"book.balance.{buyer}",
                    b"%d" % (gets + amount),
                    expected_last_subject_sequence=other,
                )
                batch.add(f"book.trades.{seller}.{buyer}", b"%d" % amount)
        except WrongLastSequenceError:
            continue  # another trade changed a balance: read both again
        return True


def main() -> None:
    with jsync.connect(URL) as nc:
        js = nc.jetstream()
        stream = js.create_stream(name="BOOK", subjects=["book.>"], allow_atomic=True)
        with js.atomic_batch() as batch:
            for name in NAMES:
                batch.add(f"book.balance.{name}", b"100")
        pairs = [(NAMES[n % 3], NAMES[(n + 1) % 3], 10 + n % 7) for n in range(30)]
        with ThreadPoolExecutor(4) as pool:
            done = list(pool.map(lambda pair: trade(js, *pair), pairs))
        total = sum(balance(stream, name)[0] for name in NAMES)
        info = stream.info(subjects_filter="book.trades.>")
        trades = sum((info.state.subjects or {}).values())
        print(f"{sum(done)} trades done, {trades} in the book")
        print(f"{total} in all accounts together")


if __name__ == "__main__":
    main()
