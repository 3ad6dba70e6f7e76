"""Tests of a fast ingest with signals, forks and permissions."""

from __future__ import annotations

import signal
import threading
import time
from typing import TYPE_CHECKING

import pytest

import jsync
from jsync import errors

from ....support.connection_faults import Events, connect
from ....support.processes import run_child
from ....support.threads import LONG, SOON, Recorder

if TYPE_CHECKING:
    from jsync import JetStream, Stream
    from jsync.server import LocalServer

    from ....conftest import StartServer
    from ....support.proxy import FaultProxy
from .test_ingest import is_alone, numbers, run, stored, stream as stream

pytestmark = pytest.mark.server


@pytest.mark.parametrize("part", ["start", "window", "end"])
def test_ctrl_c_ends_waits_and_frees_the_slot(
    js: JetStream, proxy: FaultProxy, stream: Stream, unique: str, part: str
) -> None:
    with connect(proxy.url, Events()) as nc:
        ingest = nc.jetstream().fast_ingest(ack_timeout=LONG)
        payloads = numbers(5000)
        if part != "start":
            ingest.add(f"{unique}.a", payloads[0])
        proxy.deaf("server")
        began = time.monotonic()
        timer = threading.Timer(0.2, signal.raise_signal, [signal.SIGINT])
        rest = {"start": payloads[:1], "window": payloads[1:], "end": []}[part]

        def add() -> None:
            timer.start()
            with ingest:
                ingest.add_many(f"{unique}.a", rest)

        with pytest.raises(KeyboardInterrupt):
            add()
        timer.join()
        assert time.monotonic() - began < SOON
        proxy.hear("server")
        nc.flush()
    assert is_alone(js, unique)
    found = stored(js, unique)
    assert found == payloads[: len(found)]


def test_an_ingest_continues_after_ctrl_c(
    js: JetStream, proxy: FaultProxy, stream: Stream, unique: str
) -> None:
    payloads = numbers(3000)
    with connect(proxy.url, Events()) as nc:
        with nc.jetstream().fast_ingest(ack_timeout=LONG) as ingest:
            proxy.delay(0.3, "client")
            timer = threading.Timer(0.1, signal.raise_signal, [signal.SIGINT])
            added = 0
            try:
                timer.start()
                for payload in payloads:
                    ingest.add(f"{unique}.a", payload)
                    added += 1
            except KeyboardInterrupt:
                proxy.delay(0, "client")
            timer.join()
            # The interrupt came during the wait, before or after the message was added.
            for payload in payloads[ingest.added :]:
                ingest.add(f"{unique}.a", payload)
    assert stored(js, unique) == payloads


def test_a_forked_child_raises_and_the_parent_continues(
    server: LocalServer, js: JetStream, stream: Stream, unique: str
) -> None:
    told = run_child(
        """
        import os, sys
        import jsync

        url, subject = sys.argv[1:]
        with jsync.connect(url) as nc:
            with nc.jetstream().fast_ingest() as ingest:
                ingest.add(subject, b"0")
                if not (child := os.fork()):
                    for call in (
                        lambda: ingest.add(subject, b"child"),
                        lambda: ingest.add_many(subject, [b"child"]),
                        ingest.close,
                        nc.jetstream().fast_ingest,
                    ):
                        try:
                            call()
                        except jsync.errors.ForkedProcessError:
                            print("refused", flush=True)
                    os._exit(0)
                os.waitpid(child, 0)
                ingest.add(subject, b"1")
        print(ingest.pub_ack.count)
        """,
        server.url,
        f"{unique}.a",
    )
    assert told.split() == ["refused"] * 4 + ["2"]
    assert stored(js, unique) == [b"0", b"1"]


@pytest.mark.parametrize("resume_bytes", [64 << 20, 1])
@pytest.mark.parametrize("first", [True, False])
def test_a_subject_without_permission_raises_at_once(
    own_server: StartServer, unique: str, first: bool, resume_bytes: int
) -> None:
    server = own_server(
        config=f"""
        accounts {{ A {{ jetstream: enabled, users: [
            {{ user: all, password: p }}
            {{ user: some, password: p, permissions: {{
                publish: ["$JS.API.>", "{unique}.may"], subscribe: ">" }} }} ] }} }}
        """
    )
    with (
        jsync.connect(server.url, user="all", password="p") as nc,
        jsync.connect(
            server.url, user="some", password="p", on_error=Recorder()
        ) as limited,
    ):
        js = nc.jetstream()
        js.create_stream(name=unique, subjects=[f"{unique}.>"], allow_batched=True)
        ingest = limited.jetstream().fast_ingest(
            ack_timeout=LONG, resume_bytes=resume_bytes
        )
        if not first:
            ingest.add(f"{unique}.may", b"0")
        began = time.monotonic()
        refused = errors.PermissionsError if first else errors.IngestError
        with pytest.raises(refused) as caught:
            run(ingest, f"{unique}.not", {"data": b"not"})
        assert time.monotonic() - began < SOON
        if not first:
            assert isinstance(caught.value.__cause__, errors.PermissionsError)
        assert stored(js, unique) == ([] if first else [b"0"])
