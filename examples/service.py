"""A service: requests answered by whichever of its instances is free.

    python examples/service.py           until Ctrl-C
    python examples/service.py --once    asks itself, and ends

Core NATS, without a stream: a request that nobody answers fails at once.
"""

from __future__ import annotations

import os
import sys
import threading

import msgspec

import jsync
from jsync.errors import NoRespondersError

URL = os.environ.get("NATS_URL", "nats://127.0.0.1:4222")


class Question(msgspec.Struct):
    numbers: list[float]


def answer(msg: jsync.Msg) -> None:
    """Called on the subscription's thread, one request after the other."""
    try:
        question = msgspec.json.decode(msg.data, type=Question)
        mean = sum(question.numbers) / len(question.numbers)
    except (msgspec.DecodeError, ZeroDivisionError) as error:
        # As the micro services of other clients have it.
        headers = {"Nats-Service-Error": str(error), "Nats-Service-Error-Code": "400"}
        msg.respond(b"", headers=headers)
        return
    msg.respond(msgspec.json.encode({"mean": mean}))


def ask(nc: jsync.Connection, numbers: list[float]) -> str:
    reply = nc.request("mean", msgspec.json.encode(Question(numbers)), timeout=5)
    if reply.headers and "Nats-Service-Error" in reply.headers:
        return f"refused: {reply.headers['Nats-Service-Error']}"
    return reply.data.decode()


def main(*, once: bool) -> None:
    with jsync.connect(URL) as nc:
        # Of those that subscribe with one queue, each request reaches one.
        with nc.subscribe("mean", queue="means", callback=answer):
            if not once:
                threading.Event().wait()
            print(ask(nc, [1, 2, 6]))
            print(ask(nc, []))
        try:
            ask(nc, [1])
        except NoRespondersError:
            print("nobody answers any more")


if __name__ == "__main__":
    try:
        main(once="--once" in sys.argv)
    except KeyboardInterrupt:
        print("done")
