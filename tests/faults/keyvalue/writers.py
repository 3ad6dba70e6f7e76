"""Clients that change keys by their revisions, and note each call for the judge."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading
from time import monotonic
from typing import TYPE_CHECKING, Any

import nats

from jsync import errors

from ...support.servers import wait_for
from ...support.threads import Thread
from .model import Call, Outcome

if TYPE_CHECKING:
    from collections.abc import Iterator
    from random import Random

    import jsync

MAX_CALLS = 55
"""Calls on a key, so that a history of 64 keeps every revision."""
SECONDS = 2.0


class Round:
    """The calls of one round, and what all writers know of its keys."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.keys = [f"k.{number}.{key}" for key in range(12)]
        self.purged = [f"p.{number}.{key}" for key in range(4)]
        self.calls: dict[str, list[Call]] = {
            key: [] for key in (*self.keys, *self.purged)
        }
        self.over = threading.Event()
        self._known: dict[str, tuple[int, str]] = {}
        self._values = itertools.count()
        self._count: dict[str, int] = dict.fromkeys(self.keys, 0)

    def choose(self, rng: Random) -> tuple[str, str, int, bytes] | None:
        """Choose a change: a key, an operation, the expected revision, a value."""
        pool = self.purged if rng.random() < 0.2 else self.keys
        key = rng.choice(pool)
        if pool is self.keys:
            self._count[key] += 1
            if self._count[key] > MAX_CALLS:
                return None
        revision, operation = self._known.get(key, (0, "DEL"))
        if rng.random() < 0.1:  # of another moment
            revision = max(0, revision - rng.randrange(3))
        value = b"%d.%d" % (self.number, next(self._values))
        if operation != "PUT" and rng.random() < 0.9:
            return key, "PUT", 0, value
        if not revision or rng.random() < 0.7:
            return key, "PUT", revision, value
        if pool is self.purged and rng.random() < 0.5:
            return key, "PURGE", revision, b""
        return key, "DEL", revision, b""

    def note(self, call: Call) -> None:
        self.calls[call.key].append(call)
        if call.outcome is Outcome.UNCLEAR or not call.revision:
            return
        if call.revision >= self._known.get(call.key, (0, ""))[0]:
            operation = call.operation if call.outcome is Outcome.DONE else "PUT"
            self._known[call.key] = (call.revision, operation)

    @property
    def done(self) -> int:
        return sum(
            call.outcome is Outcome.DONE
            for calls in list(self.calls.values())
            for call in list(calls)
        )


def write(kv: jsync.KeyValue, now: Round, rng: Random, client: str) -> None:
    """Change keys with jsync until the round is over."""
    while not now.over.is_set():
        chosen = now.choose(rng)
        if chosen is None:
            now.over.wait(0.01)
            continue
        key, operation, expected, value = chosen
        begun, outcome, revision = monotonic(), Outcome.DONE, 0
        try:
            if operation == "DEL":
                revision = kv.delete(key, last=expected, timeout=SECONDS)
            elif operation == "PURGE":
                revision = kv.purge(key, last=expected, timeout=SECONDS)
            elif expected:
                revision = kv.update(key, value, last=expected, timeout=SECONDS)
            else:
                revision = kv.create(key, value, timeout=SECONDS)
        except (errors.WrongRevisionError, errors.KeyExistsError) as error:
            outcome, revision = Outcome.REFUSED, error.revision or 0
        except errors.Error:
            outcome = Outcome.UNCLEAR
        now.note(
            Call(
                *(key, operation, expected, value, client),
                *(begun, monotonic(), outcome, revision),
            )
        )
        now.over.wait(0.01 if outcome is not Outcome.UNCLEAR else 0.1)


class NatsPy:
    """nats-py on a thread of its own, which changes the same keys."""

    def __init__(self, urls: list[str], bucket: str) -> None:
        self._urls, self._bucket = urls, bucket

    @contextlib.contextmanager
    def writing(self, now: Round, rng: Random) -> Iterator[None]:
        thread = Thread(lambda: asyncio.run(self._run(now, rng)))
        try:
            yield
        finally:
            now.over.set()
            wait_for(lambda: thread.ended)
            thread.result()

    async def _run(self, now: Round, rng: Random) -> None:
        async def ignore(error: Exception) -> None:
            pass

        nc = await nats.connect(
            self._urls,
            max_reconnect_attempts=-1,
            reconnect_time_wait=0.05,
            connect_timeout=10,
            error_cb=ignore,
        )
        try:
            js: Any = nc.jetstream(timeout=SECONDS)
            kv: Any = None
            while kv is None and not now.over.is_set():
                try:
                    kv = await js.key_value(self._bucket)
                except Exception:  # noqa: BLE001 (a leader is elected)
                    await asyncio.sleep(0.1)
            while not now.over.is_set():
                await self._change(kv, now, rng)
                await asyncio.sleep(0.01)
        finally:
            await nc.close()

    async def _change(self, kv: Any, now: Round, rng: Random) -> None:
        chosen = now.choose(rng)
        if chosen is None or chosen[1] == "PURGE":  # it cannot check a purge
            return
        key, operation, expected, value = chosen
        begun, outcome, revision = monotonic(), Outcome.DONE, 0
        try:
            if operation == "DEL":
                # It tells no revision of a marker.
                ack = await kv._js.publish(
                    f"$KV.{self._bucket}.{key}",
                    headers={
                        "KV-Operation": "DEL",
                        "Nats-Expected-Last-Subject-Sequence": str(expected),
                    },
                )
                revision = ack.seq
            elif expected:
                revision = await kv.update(key, value, last=expected)
            else:
                revision = await kv.create(key, value)
        except nats.js.errors.KeyWrongLastSequenceError:
            outcome = Outcome.REFUSED
        except nats.js.errors.APIError as error:
            refused = error.err_code in (10071, 10164)
            outcome = Outcome.REFUSED if refused else Outcome.UNCLEAR
        except Exception:  # noqa: BLE001 (a lost connection has many errors)
            outcome = Outcome.UNCLEAR
        now.note(
            Call(
                *(key, operation, expected, value, "nats-py"),
                *(begun, monotonic(), outcome, revision),
            )
        )
