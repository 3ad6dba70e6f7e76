"""Writers of the campaign: a thread of jsync, or a process that may be killed.

`python -m tests.faults.objects.writer URL STORE SEED` puts and deletes by jsync until it is killed,
and `python -m tests.faults.objects.writer URL STORE SEED nats-py` by nats-py.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import sys
import time

import jsync
from jsync import errors

from .history import bytes_of

SHARED = [f"shared {n}" for n in range(5)]


def choose_step(
    choose: random.Random, writer: str, number: int
) -> tuple[str, str | None]:
    """Return a name, and the content to put, or None to delete it."""
    name = choose.choice(SHARED)
    return name, None if choose.random() < 0.2 else f"{writer} {number}"


def put_or_delete(files: jsync.ObjectStore, name: str, content: str | None) -> str:
    """Do one step. Return `done`, `unclear`, or `failed` if it surely has not happened."""
    try:
        if content is None:
            files.delete(name, timeout=3)
        else:
            files.put(name, bytes_of(content), chunk_size=20_000, timeout=3)
    except (
        errors.ObjectNotFoundError,
        errors.ObjectIncompleteError,
        errors.ChunkOrderError,
        errors.WrongLastSequenceError,
    ):
        return "failed"
    except errors.Error:
        return "unclear"
    return "done"


def rename_one(files: jsync.ObjectStore, choose: random.Random) -> None:
    """Rename one of the objects that are only ever renamed."""
    infos = [info for info in files.list(timeout=3) if info.name.startswith("moving")]
    info = choose.choice(infos)
    new = f"{info.name.partition('/')[0]}/{choose.randrange(3)}"
    if new != info.name:
        files.update_meta(info.name, new_name=new, timeout=4)


def say(**words: object) -> None:
    sys.stdout.write(json.dumps(words) + "\n")
    sys.stdout.flush()


def by_jsync(url: str, store: str, choose: random.Random, writer: str) -> None:
    """Change objects until the process is killed."""
    files, number = None, 0
    while files is None:
        # The server may be down.
        with contextlib.suppress(errors.Error):
            files = jsync.connect(url).jetstream(timeout=3).object_store(store)
    while True:
        number += 1
        if choose.random() < 0.4:
            with contextlib.suppress(errors.Error):
                rename_one(files, choose)
            continue
        name, content = choose_step(choose, writer, number)
        say(name=name, content=content, start=time.monotonic())
        outcome = put_or_delete(files, name, content)
        say(outcome=outcome, end=time.monotonic())


async def by_nats_py(url: str, store: str, choose: random.Random, writer: str) -> None:
    """Change objects until the process is killed."""
    import nats  # noqa: PLC0415 (only this process needs it)
    from nats.js.api import ObjectMeta, ObjectMetaOptions  # noqa: PLC0415
    from nats.js.errors import ObjectNotFoundError  # noqa: PLC0415

    async def ignore(error: Exception) -> None:
        """Say nothing of lost connections."""

    nc = await nats.connect(url, error_cb=ignore, max_reconnect_attempts=-1)
    files, number = None, 0
    while files is None:
        # The server may be down.
        with contextlib.suppress(nats.errors.Error, OSError):
            files = await nc.jetstream(timeout=3).object_store(store)
    while True:
        number += 1
        name, content = choose_step(choose, writer, number)
        say(name=name, content=content, start=time.monotonic())
        outcome = "done"
        try:
            if content is None:
                await files.delete(name)
            else:
                meta = ObjectMeta(
                    headers={"writer": writer},
                    options=ObjectMetaOptions(max_chunk_size=20_000),
                )
                await files.put(name, bytes_of(content), meta=meta)
        except ObjectNotFoundError:
            outcome = "failed"
        except Exception:  # noqa: BLE001 (whatever that client raises)
            outcome = "unclear"
        say(outcome=outcome, end=time.monotonic())
        await asyncio.sleep(0.01)


def main(url: str, store: str, seed: str, client: str = "jsync") -> None:
    choose, writer = random.Random(seed), f"{client} {seed}"
    if client == "jsync":
        by_jsync(url, store, choose, writer)
    else:
        asyncio.run(by_nats_py(url, store, choose, writer))


if __name__ == "__main__":
    main(*sys.argv[1:])
