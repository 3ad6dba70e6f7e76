"""Tests of connections and subscriptions in a forked child."""

from __future__ import annotations

import copy
import pickle
from typing import TYPE_CHECKING

import pytest

import jsync

from ...support.processes import run_child

if TYPE_CHECKING:
    from jsync.server import LocalServer

pytestmark = pytest.mark.server

FORK = """
    import gc, os, signal, sys, threading, time
    import jsync
    from jsync import errors

    url, subject = sys.argv[1:3]

    def in_child(function):
        # What `function` returns or raises in a forked child, as text.
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            signal.alarm(8)  # nothing here may hang
            try:
                text = str(function())
            except BaseException as error:
                text = type(error).__name__
            os.write(write, text.encode())
            os._exit(0)
        os.close(write)
        text = b""
        while part := os.read(read, 4096):
            text += part
        os.close(read)
        _, status = os.waitpid(pid, 0)
        return text.decode() if status == 0 else f"{text.decode()} status {status}"

    stop = threading.Event()

    def keep_busy():
        # The locks of the connection are held by others at the moment of the fork.
        while not stop.is_set():
            nc.publish("busy." + subject, b"x")
            with nc.subscribe("busier." + subject):
                nc.flush()

    nc = jsync.connect(url)
    sub = nc.subscribe(subject)
    idle = nc.subscribe("idle." + subject)
    nc.subscribe("echo." + subject, callback=lambda msg: msg.respond(msg.data))
    assert nc.request("echo." + subject, b"1").data == b"1"
    nc.publish(subject, b"read me", reply="nobody")
    nc.publish(subject, b"and me", reply="nobody")
    msg = sub.next()
    while not sub.pending:
        time.sleep(0.001)

    def check_parent():
        assert nc.is_connected and nc.stats().reconnects == 0, nc.last_error
        assert nc.request("echo." + subject, b"2").data == b"2"
"""


def test_every_call_in_a_forked_child_raises(server: LocalServer, unique: str) -> None:
    script = (
        FORK
        + """
    calls = {
        "publish": lambda: nc.publish(subject),
        "request": lambda: nc.request(subject),
        "request_many": lambda: list(nc.request_many(subject)),
        "subscribe": lambda: nc.subscribe(subject),
        "flush": nc.flush,
        "rtt": nc.rtt,
        "drain": nc.drain,
        "next": lambda: sub.next(),
        "iteration": lambda: next(iter(sub)),
        "next of nothing": lambda: idle.next(),
        "iteration of nothing": lambda: next(iter(idle)),
        "subscription drain": sub.drain,
        "respond": lambda: msg.respond(b""),
    }
    busy = [threading.Thread(target=keep_busy) for _ in range(2)]
    for thread in busy:
        thread.start()
    for _ in range(4):
        for name, call in calls.items():
            if (result := in_child(call)) != "ForkedProcessError":
                print(name, result)
    # These have nothing to wait for, and nothing to do.
    for name in ("unsubscribe", "close"):
        call = sub.unsubscribe if name == "unsubscribe" else nc.close
        for _ in range(4):
            if (result := in_child(call)) not in ("None", "ForkedProcessError"):
                print(name, result)
    stop.set()
    for thread in busy:
        thread.join()
    check_parent()
    assert sub.next().data == b"and me"
    nc.close()
"""
    )
    assert run_child(script, server.url, unique) == ""


def test_an_iterator_in_a_forked_child_raises(server: LocalServer, unique: str) -> None:
    """All requested messages are at hand, so the iterator would not have to wait."""
    script = (
        FORK
        + """
    js = nc.jetstream()
    stream = js.create_stream(name=subject, subjects=["js." + subject])
    for _ in range(5):
        js.publish("js." + subject)
    for read in (
        stream.create_consumer().fetch(5),
        stream.create_consumer().messages(max_messages=5),
        stream.ordered_consumer().fetch(5),
        stream.ordered_consumer().messages(max_messages=5),
    ):
        with read:
            messages = iter(read)
            next(messages)
            while "4 pending" not in repr(read):
                time.sleep(0.001)
            if (result := in_child(lambda: list(messages))) != "ForkedProcessError":
                print(read, result)
            assert len([next(messages) for _ in range(4)]) == 4
    stream.delete()
    nc.close()
"""
    )
    assert run_child(script, server.url, unique) == ""


def test_a_forked_childs_end_leaves_the_parent_alone(
    server: LocalServer, unique: str
) -> None:
    script = (
        FORK
        + """
    def collect():
        global nc, sub, idle, msg
        del nc, sub, idle, msg
        return gc.collect() >= 0

    def leave_with_block():
        with nc:
            return "left"

    def leave_with_block_by_an_exception():
        with nc:
            raise LookupError

    assert in_child(nc.close) == "None"
    assert in_child(lambda: (nc.close(), nc.close())[0]) == "None"
    check_parent()
    assert in_child(collect) == "True"
    check_parent()
    assert in_child(leave_with_block) == "left"
    assert in_child(leave_with_block_by_an_exception) == "LookupError"
    check_parent()

    # The interpreter's own end, with its atexit.
    for _ in range(3):
        pid = os.fork()
        if pid == 0:
            signal.alarm(8)
            sys.exit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
        check_parent()
    nc.close()
    print("parent is fine")
"""
    )
    assert run_child(script, server.url, unique).strip() == "parent is fine"


def test_a_forked_child_can_connect_again(server: LocalServer, unique: str) -> None:
    script = (
        FORK
        + """
    def connect_anew():
        with jsync.connect(url) as mine:
            mine.subscribe("mine." + subject, callback=lambda m: m.respond(b"anew"))
            return mine.request("mine." + subject).data.decode()

    for _ in range(3):
        assert in_child(connect_anew) == "anew"
        check_parent()
    nc.close()
    print("connected")
"""
    )
    assert run_child(script, server.url, unique).strip() == "connected"


def test_the_parent_can_close_while_a_child_lives(
    server: LocalServer, unique: str
) -> None:
    script = (
        FORK
        + """
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        signal.alarm(8)
        os.close(write)
        os.read(read, 1)  # until the parent closes its end
        os._exit(0)
    os.close(read)
    client_id = nc.client_id
    nc.close()
    # The descriptor is still open in the child, and the server knows all the same.
    import json, urllib.request
    for _ in range(500):
        with urllib.request.urlopen(sys.argv[3] + "/connz?limit=10000") as page:
            if client_id not in [c["cid"] for c in json.load(page)["connections"]]:
                print("gone")
                break
        time.sleep(0.01)
    os.close(write)
    os.waitpid(pid, 0)
"""
    )
    monitoring = server.monitoring_url
    assert run_child(script, server.url, unique, monitoring).strip() == "gone"


def test_multiprocessing_by_fork_gets_the_typed_error(
    server: LocalServer, unique: str
) -> None:
    script = (
        FORK
        + """
    import multiprocessing
    context = multiprocessing.get_context("fork")
    results = context.SimpleQueue()

    def work():
        try:
            nc.publish(subject)
        except errors.ForkedProcessError:
            with jsync.connect(url) as mine:
                mine.flush()
                results.put("connected anew")

    process = context.Process(target=work)
    process.start()
    print(results.get())
    process.join()
    assert process.exitcode == 0
    check_parent()
    nc.close()
"""
    )
    assert run_child(script, server.url, unique).strip() == "connected anew"


@pytest.mark.parametrize("make_copy", [pickle.dumps, copy.copy, copy.deepcopy])
def test_a_connection_is_neither_pickled_nor_copied(
    server: LocalServer, make_copy: object
) -> None:
    assert callable(make_copy)
    with jsync.connect(server.url) as nc:
        with pytest.raises(TypeError, match=r"jsync\.connect\(\)"):
            make_copy(nc)


def test_a_subscription_is_not_pickled(server: LocalServer, unique: str) -> None:
    with jsync.connect(server.url) as nc:
        with pytest.raises(TypeError):
            pickle.dumps(nc.subscribe(unique))


IN_A_HANDLER = """
    import os, signal, sys, threading
    import jsync
    from jsync import errors

    url, subject, threads = sys.argv[1], sys.argv[2], int(sys.argv[3])
    pids = []

    def fork(*_):
        pids.append(os.fork())

    def answer():
        msgs = [sub.next() for _ in range(threads + 1)]
        os.kill(os.getpid(), signal.SIGUSR1)
        while not pids:
            pass
        print(os.waitstatus_to_exitcode(os.waitpid(pids[0], 0)[1]))
        for msg in msgs:
            msg.respond(b"answer")

    signal.signal(signal.SIGUSR1, fork)
    with jsync.connect(url) as service, jsync.connect(url) as nc:
        sub = service.subscribe(subject)
        service.flush()
        answering = threading.Thread(target=answer)
        answering.start()
        others = [
            threading.Thread(target=nc.request, args=(subject, b""), kwargs={"timeout": 30})
            for _ in range(threads)
        ]
        for each in others:
            each.start()
        try:
            print(nc.request(subject, b"", timeout=30).data)
        except errors.ForkedProcessError:
            os._exit(7)
        finally:
            if pids == [0]:
                os._exit(8)
        answering.join()
        for each in others:
            each.join()
"""


@pytest.mark.parametrize("threads", [0, 3])
def test_a_handlers_fork_ends_the_childs_wait(
    server: LocalServer, unique: str, threads: int
) -> None:
    printed = run_child(IN_A_HANDLER, server.url, unique, str(threads))
    assert printed.splitlines() == ["7", "b'answer'"]
