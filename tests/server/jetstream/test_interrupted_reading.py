"""Tests that Ctrl-C at any moment of a read loses no message and repeats none."""

from __future__ import annotations

import gc
import itertools
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

import jsync
from jsync.jetstream.keyvalue import live_view
from jsync.jetstream.ordered import (
    arrow as ordered_arrow,
    batch as ordered_batch,
    driver,
    factory,
)
from jsync.jetstream.ordered.factory import ConsumerFactory
from jsync.jetstream.pulls import (
    arrow as pulls_arrow,
    consume,
    driver as pulls_driver,
    engine as pulls_engine,
    inbox as pulls_inbox,
    pull as pulls_pull,
)
from jsync.jetstream.watching import driver as watching_driver, watch

from ...support.processes import run_child
from ...support.servers import wait_for
from ...support.threads import SOON
from ..core.test_interrupted import interrupt, interrupted_before, signalled_before

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from jsync.server import LocalServer

pytestmark = pytest.mark.server

COUNT = 30_000

# Extending a list runs no bytecode between the iterator and the list. A message that is missing in
# the list was therefore lost by the iterator.
READS = {
    "ordered": "extend(stream.ordered_consumer().messages(**FEW))",
    "without acks": "extend(stream.create_consumer(ack_policy='none').messages(**FEW))",
    "with acks": "extend(stream.create_consumer(**ACKS).messages(**FEW))",
    "next": """
        messages = stream.create_consumer(ack_policy="none").messages(**FEW)
        extend(iter(messages.next, None))
    """,
    "fetch": """
        consumer = stream.create_consumer(ack_policy="none")
        while len(got) < count:
            extend(consumer.fetch_nowait(500))
    """,
    "arrow": """
        consumer = stream.create_consumer(ack_policy="none")
        extend(consumer.arrow_batches(max_rows=5, max_messages=10, idle_timeout=1))
    """,
    "arrow next": """
        consumer = stream.create_consumer(ack_policy="none")
        batches = consumer.arrow_batches(max_rows=5, max_messages=10, idle_timeout=1)
        extend(iter(batches.next, None))
    """,
    "arrow range": """
        extend(iter(stream.read_arrow(max_rows=5)))
    """,
    "subscription": """
        subscription = nc.subscribe(sys.argv[2] + ".again")

        def publish():
            for number in range(count):
                nc.publish(subscription.subject, b"%d" % number)
                if number % 100 == 0:
                    time.sleep(0.001)
            subscription.drain()

        threading.Thread(target=publish).start()
        extend(subscription)
    """,
}

SCRIPT = """
    import gc, logging, os, random, signal, sys, textwrap, threading, time
    import jsync

    logging.disable()
    # Ctrl-C may meet a finaliser of garbage first, and Python prints that.
    gc.disable()
    count = int(sys.argv[3])
    FEW = {"max_messages": 10, "stop_after": count}
    ACKS = {"max_ack_pending": -1, "ack_wait": 600}
    got, interrupts = [], 0
    # Not events: Ctrl-C in the middle of `set` may leave one locked.
    reading = done = False

    def interrupt():
        sent = 0
        while sent < 150 and not done:
            time.sleep(random.uniform(0.0001, 0.002))
            if reading:
                sent += 1
                os.kill(os.getpid(), signal.SIGINT)

    def raise_once(*_):
        # A signal may be late: it must not end the script while nothing is read.
        global reading
        if reading:
            reading = False
            raise KeyboardInterrupt

    signal.signal(signal.SIGINT, raise_once)

    def extend(messages):
        global interrupts, reading
        while True:
            try:
                reading = True
                try:
                    got.extend(messages)
                    return
                except jsync.errors.SubscriptionClosedError:
                    return
                finally:
                    reading = False
            except KeyboardInterrupt:
                interrupts += 1

    def numbers_of(one):
        if isinstance(one, jsync.ArrowBatch):  # of a stream that begins at 1
            return range(one.last_sequence - len(one), one.last_sequence)
        return [int(one.data)]

    with jsync.connect(sys.argv[1]) as nc:
        stream = nc.jetstream().stream(sys.argv[2])
        thread = threading.Thread(target=interrupt)
        thread.start()
        whole = True
        for _ in range(20):  # under load, all may be read before the first Ctrl-C
            got.clear()
            exec(textwrap.dedent(sys.argv[4]))
            numbers = [number for one in got for number in numbers_of(one)]
            whole &= numbers == list(range(count))
            if interrupts:
                break
        done = True
        thread.join()
        print(whole, interrupts > 0)
"""


@pytest.fixture(scope="module")
def numbers(server: LocalServer) -> str:
    """The name of a stream of numbers, which the tests only read."""
    with jsync.connect(server.url) as nc:
        js = nc.jetstream()
        name = "INTERRUPTED_READING"
        js.create_stream(name=name, subjects=[name], storage="memory")
        with js.publisher() as publisher:
            for number in range(COUNT):
                publisher.publish(name, b"%d" % number)
    return name


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_random_interrupts_lose_and_repeat_no_message(
    server: LocalServer, numbers: str, read: str
) -> None:
    output = run_child(SCRIPT, server.url, numbers, COUNT, read)
    assert output == "True True\n"


@pytest.mark.parametrize("ack_policy", ["explicit", "none", "ordered"])
@pytest.mark.parametrize("how", ["iterating", "next"])
def test_a_message_whose_pull_was_interrupted_comes_next(
    server: LocalServer, numbers: str, ack_policy: str, how: str
) -> None:
    with jsync.connect(server.url) as nc:
        stream = nc.jetstream().stream(numbers)
        if ack_policy == "ordered":
            messages = stream.ordered_consumer().messages(max_messages=2)
        else:
            consumer = stream.create_consumer(ack_policy=ack_policy)
            messages = consumer.messages(max_messages=2)
        with messages:
            mailbox = messages._pull.mailbox
            got = [int(messages.next(SOON).data)]
            for _ in range(20):
                refill, mailbox.on_credit = mailbox.on_credit, interrupt
                with pytest.raises(KeyboardInterrupt):  # noqa: PT012 - of any of them
                    while True:
                        got.append(int(messages.next(SOON).data))
                mailbox.on_credit = refill
                msg = messages.next(SOON) if how == "next" else next(iter(messages))
                got.append(int(msg.data))
    assert got == list(range(len(got)))


@pytest.mark.parametrize("ack_policy", ["explicit", "none", "ordered"])
def test_ctrl_c_during_a_refill_stalls_no_reader(
    server: LocalServer, numbers: str, ack_policy: str
) -> None:
    files = {str(pulls_driver.__file__), str(pulls_engine.__file__)}
    got: list[int] = []
    with jsync.connect(server.url) as nc:
        stream = nc.jetstream().stream(numbers)
        if ack_policy == "ordered":
            messages = stream.ordered_consumer().messages(max_messages=2)
        else:
            consumer = stream.create_consumer(ack_policy=ack_policy, max_ack_pending=-1)
            messages = consumer.messages(max_messages=2)

        def read() -> None:
            got.append(int(messages.next(SOON).data))

        with messages:
            for instruction in itertools.count():
                # Only one in a few reads pulls again.
                if not any(
                    interrupted_before(instruction, files, read) for _ in range(3)
                ):
                    break
                for _ in range(4):
                    read()
    assert instruction > 50
    assert got == list(range(len(got)))


@pytest.mark.parametrize("acks", [True, False])
def test_rows_whose_pull_was_interrupted_come_next(
    server: LocalServer, numbers: str, acks: bool
) -> None:
    with jsync.connect(server.url) as nc:
        stream = nc.jetstream().stream(numbers)
        consumer = stream.create_consumer(ack_policy="explicit" if acks else "none")
        rows = 0
        with consumer.arrow_batches(max_rows=5, max_messages=10) as batches:
            mailbox = batches._pull.mailbox
            for _ in range(20):
                refill, mailbox.on_credit = mailbox.on_credit, interrupt
                with pytest.raises(KeyboardInterrupt):  # noqa: PT012 - of any of them
                    while True:
                        batch = batches.next(SOON)
                        rows += len(batch)
                mailbox.on_credit = refill
                batch = batches.next(SOON)
                rows += len(batch)
                # This holds for a stream without deleted messages.
                assert batch.last_sequence == rows


@pytest.mark.parametrize("face", ["iterating", "next", "range"])
def test_ctrl_c_during_a_read_loses_no_rows(
    server: LocalServer, numbers: str, face: str
) -> None:
    files = {str(pulls_arrow.__file__), str(ordered_arrow.__file__)}
    got: list[jsync.ArrowBatch] = []
    with jsync.connect(server.url) as nc:
        stream = nc.jetstream().stream(numbers)
        read: Iterator[jsync.ArrowBatch]
        if face == "range":
            read = iter(stream.read_arrow(max_rows=5))
        else:
            consumer = stream.create_consumer(ack_policy="none")
            batches = consumer.arrow_batches(max_rows=5, max_messages=10)
            read = iter(batches) if face == "iterating" else iter(batches.next, None)
        for instruction in itertools.count():
            before = len(got)
            interrupted_before(
                instruction % 100, files, lambda: got.extend(itertools.islice(read, 1))
            )
            if instruction > 100 and len(got) == before + 1 and instruction % 100 == 99:
                break
        got += itertools.islice(read, 2)
    rows = 0
    for batch in got:
        rows += len(batch)
        assert batch.last_sequence == rows  # for a stream without deleted messages


@pytest.mark.parametrize("ack_policy", ["none", "explicit"])
def test_stop_returns_the_rows_ctrl_c_held_back(
    server: LocalServer, numbers: str, ack_policy: Any
) -> None:
    with jsync.connect(server.url) as nc:
        stream = nc.jetstream().stream(numbers)
        consumer = stream.create_consumer(ack_policy=ack_policy)
        with consumer.arrow_batches(max_rows=5, max_messages=10) as batches:
            taken: list[jsync.ArrowBatch] = []
            for instruction in itertools.count():
                interrupted_before(
                    instruction,
                    {str(pulls_arrow.__file__)},
                    partial(batches.next, SOON),
                )
                if taken := batches._taken.copy():
                    break
            last = taken[0].last_sequence
            assert batches.pending >= len(taken[0])
        rest = batches.stop()
        if ack_policy == "none":
            assert rest[0] is taken[0]
        else:
            assert not rest
            with consumer.fetch(1000, timeout=SOON) as again:
                assert last in {msg.metadata.stream_sequence for msg in again}


def test_ctrl_c_in_stop_leaves_the_rest_readable(
    server: LocalServer, numbers: str
) -> None:
    got: list[int] = []
    with jsync.connect(server.url) as nc:
        consumer = nc.jetstream().stream(numbers).ordered_consumer()
        for instruction in itertools.count():
            messages = consumer.messages(max_messages=4)
            got.append(int(messages.next(SOON).data))
            if not interrupted_before(
                instruction, {str(driver.__file__)}, messages.stop
            ):
                break
            # If the call was interrupted before it began, reading continues.
            if not messages.closed:
                messages.stop()
    assert instruction > 30
    assert got == list(range(len(got)))


def test_ordered_fetches_survive_ctrl_c_at_any_instruction(
    server: LocalServer, numbers: str
) -> None:
    got: list[int] = []
    # keeps the batches, because Ctrl-C in a finaliser is another case
    batches: list[jsync.OrderedBatch] = []
    with jsync.connect(server.url) as nc:
        consumer = nc.jetstream().stream(numbers).ordered_consumer()

        def read() -> None:
            batches.append(consumer.fetch(3, timeout=SOON))
            got.extend(int(msg.data) for msg in batches[-1])

        for instruction in itertools.count():
            if not interrupted_before(instruction, {str(ordered_batch.__file__)}, read):
                break
            batches.clear()
            read()
    assert instruction > 200
    assert got == list(range(len(got)))


def test_a_range_interrupted_at_start_is_read_whole(
    server: LocalServer, numbers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with jsync.connect(server.url) as nc:
        reading = iter(nc.jetstream().stream(numbers).read_arrow())
        with monkeypatch.context() as patch:
            patch.setattr(ConsumerFactory, "create", interrupt)
            with pytest.raises(KeyboardInterrupt):
                next(reading)
        assert sum(map(len, reading)) == COUNT


STARTS: dict[str, Callable[[jsync.Stream, jsync.Consumer], object]] = {
    "messages": lambda _, consumer: consumer.messages(),
    "consume": lambda _, consumer: consumer.consume(print),
    "fetch": lambda _, consumer: consumer.fetch(3),
    "arrow": lambda _, consumer: consumer.arrow_batches(),
    "ordered": lambda stream, _: stream.ordered_consumer().messages(),
}


@pytest.mark.parametrize("start", STARTS.values(), ids=STARTS)
def test_ctrl_c_at_a_start_leaves_no_pull(
    nc: jsync.Connection,
    stream: jsync.Stream,
    start: Callable[[jsync.Stream, jsync.Consumer], object],
) -> None:
    modules = consume, driver, pulls_arrow, pulls_driver, pulls_inbox, pulls_pull
    files = {str(module.__file__) for module in modules}
    consumer = stream.create_consumer()
    idle, interests = nc._session.idle_inboxes, nc._session.interests
    # Ctrl-C in a finaliser is another case.
    started: list[object] = []
    for instruction in itertools.count():
        if not interrupted_before(
            instruction, files, lambda: started.append(start(stream, consumer))
        ):
            break
    started.clear()
    assert instruction > 50
    gc.collect()
    # One subscription is that of requests, and one may be the last pull. With Python 3.13, one
    # instruction follows the start, where no signal is handled but where this test interrupts.
    wait_for(lambda: len(interests) - len(idle) <= 3, SOON)


def watch_keys(kv: jsync.KeyValue) -> None:
    with kv.watch():
        pass


def call_back(kv: jsync.KeyValue) -> None:
    with kv.watch(callback=lambda _: None):
        pass


def view_live(kv: jsync.KeyValue) -> None:
    with kv.live():
        pass


WATCHES: dict[str, Callable[[jsync.KeyValue], object]] = {
    "watch": watch_keys,
    "callback": call_back,
    "keys": lambda kv: list(kv.keys()),
    "history": lambda kv: kv.history("a"),
    "live": view_live,
}


@pytest.mark.parametrize("read", WATCHES.values(), ids=WATCHES)
def test_ctrl_c_leaves_nothing_of_a_watch(
    nc: jsync.Connection, unique: str, read: Callable[[jsync.KeyValue], object]
) -> None:
    modules = driver, factory, watching_driver, watch, live_view, pulls_driver
    files = {__file__, *(str(module.__file__) for module in modules)}
    js = nc.jetstream()
    kv = js.create_key_value(bucket=unique, storage="memory", history=2)
    kv.put("a", b"1")
    stream = js.stream(f"KV_{unique}")
    idle, interests = nc._session.idle_inboxes, nc._session.interests

    def is_clean() -> bool:
        # One subscription is that of requests.
        left = len(interests) - len(idle)
        return left <= 1 and not stream.info().state.consumer_count

    # Steps of a prime number: each interrupt takes a few round trips.
    for instruction in itertools.count(step=7):
        if not signalled_before(instruction, files, lambda: read(kv)):
            break
        wait_for(is_clean, SOON)
    assert instruction > 200
