"""Tests of nonsense from JetStream: calls return or raise typed errors, and the connection works."""

from __future__ import annotations

import contextlib
import json
import os
from typing import TYPE_CHECKING, Any, Literal

import pytest

import jsync
from jsync import errors

from ...support.campaign import seeded
from ...support.connection_faults import FakeServer, _no_crash  # noqa: F401 (a fixture of every test here)
from ...support.fake_jetstream import FakeReply, answer_requests
from ...support.json_mutation import VALUES, mutated
from ...support.threads import SOON
from ...unit.test_hostile_replies import (
    ACCOUNT,
    CONSUMER,
    ERROR,
    FLOW,
    PUB_ACK,
    STORED,
    STREAM,
)

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator

    from jsync import Connection, JetStream

pytestmark = pytest.mark.server

ROUNDS = int(os.environ.get("JSYNC_ROUNDS", "30"))
STATUSES = [
    *("404 No Messages", "408 Request Timeout", "409 Exceeded MaxWaiting", "204 EOB"),
    *("409 Consumer Deleted", "503", "100 Idle Heartbeat", "423 Nats-Pin-Id", "999 x"),
]
NUMBERS = [
    *("0", "1", "-1", "9" * 20, "9" * 30, "9" * 5000, "\u00b2", "x", "", "1_0"),
    *("18446744073709551615", "18446744073709551616"),
]
HEADERS = [
    *("Nats-Pending-Messages", "Nats-Pending-Bytes", "Nats-Last-Sequence"),
    *("Nats-Num-Pending", "Nats-Sequence", "Nats-Last-Consumer", "Nats-Pin-Id"),
    *("Nats-Last-Stream", "Nats-Consumer-Stalled", "Nats-Subject", "Nats-Stream"),
]
DIRECT = {
    "Nats-Stream": "S",
    "Nats-Subject": "s",
    "Nats-Sequence": "1",
    "Nats-Time-Stamp": "2026-01-01T00:00:00Z",
    "Nats-Num-Pending": "0",
    "Nats-Last-Sequence": "0",
}


class Liar:
    """Replies to everything, each time with another error in the reply."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self.silent = False
        """Whether some messages to the stream get no reply."""

    def answer(self, subject: str, payload: bytes) -> list[FakeReply]:
        rng = self._rng
        verb = subject.removeprefix("$JS.API.").split(".")
        match verb:
            case ["CONSUMER", "MSG", "NEXT", *_]:
                return [
                    *(self._message() for _ in range(rng.randrange(3))),
                    self._status(),
                ]
            case ["DIRECT", *_]:
                if rng.random() < 0.3:
                    return [self._status()]
                return [
                    FakeReply(b"x", self._block({**DIRECT})),
                    self._status("204 EOB"),
                ]
            case _ if rng.random() < 0.05:
                return [self._status()]
            case _ if subject == "s" and self.silent and rng.random() < 0.3:
                return []
        document = self.document(verb)
        if rng.random() < 0.5:  # so that calls of several requests proceed further
            return [FakeReply(json.dumps(document).encode())]
        return [FakeReply(mutated(document, rng))]

    def document(self, verb: list[str]) -> Any:
        page = {"total": 1, "offset": 0, "limit": 256}
        match verb:
            case ["STREAM", "NAMES"]:
                return {**page, "streams": ["S"]}
            case ["STREAM", "LIST"]:
                return {**page, "streams": [STREAM], "missing": ["T"]}
            case ["CONSUMER", "NAMES", *_]:
                return {**page, "consumers": ["C"]}
            case ["CONSUMER", "LIST", *_]:
                return {**page, "consumers": [CONSUMER]}
            case ["STREAM", "MSG", "GET", *_]:
                return {"message": STORED}
            case ["STREAM", "PURGE" | "DELETE", *_] | ["CONSUMER", "DELETE", *_]:
                return {"success": True, "purged": 1}
            case ["STREAM", *_]:
                return STREAM
            case ["CONSUMER", *_]:
                return CONSUMER
            case ["INFO"]:
                return ACCOUNT
        if self._rng.random() < 0.2:
            return {"error": ERROR}
        return FLOW if self._rng.random() < 0.2 else PUB_ACK

    def _message(self) -> FakeReply:
        rng = self._rng
        numbers = [rng.choice(["1", "1", *NUMBERS]) for _ in range(5)]
        reply = f"$JS.ACK.S.C.{'.'.join(numbers)}"
        return FakeReply(
            b"x", subject=b"s", reply=reply.replace("..", ".0.").encode()[:4000]
        )

    def _status(self, usual: str = "404 No Messages") -> FakeReply:
        status = self._rng.choice([usual, *STATUSES])
        given = {name: "1" for name in HEADERS if self._rng.random() < 0.3}
        return FakeReply(b"", self._block(given, f" {status}"))

    def _block(self, headers: dict[str, str], status: str = "") -> bytes:
        for _ in range(self._rng.randrange(3)):
            name = self._rng.choice(HEADERS)
            if self._rng.random() < 0.3:
                headers.pop(name, None)
            else:
                value = self._rng.choice([*NUMBERS, "0001-01-01T00:00:00+05:00"])
                headers[self._rng.choice([*DIRECT, name])] = value
        lines = [f"{name}: {value}\r\n" for name, value in headers.items()]
        return f"NATS/1.0{status}\r\n{''.join(lines)}\r\n".encode()


def with_publisher(js: JetStream) -> None:
    with js.publisher(ack_timeout=0.2, window=8) as publisher:
        futures = [publisher.publish("s", b"x") for _ in range(4)]
        for future in futures:
            try:
                future.result(5)
            except errors.Error:
                continue


def with_batch(js: JetStream) -> None:
    batch = js.atomic_batch(timeout=0.1)
    try:
        batch.add("s", b"1")
        batch.add("s", b"2", ack=True)
        batch.commit("s", b"3", timeout=0.1)
    except errors.AmbiguousCommitError as error:
        error.resolve(0.1)


def with_ingest(js: JetStream) -> None:
    with js.fast_ingest(ack_timeout=0.1) as ingest:
        for _ in range(3):
            ingest.add("s", b"x")


def with_subscription(js: JetStream) -> None:
    with js.subscribe("s", stream="S", timeout=0.5, on_error=lambda error: None) as sub:
        list(zip(range(1), iter(lambda: sub.next(0.01), None), strict=False))


def ordered(js: JetStream) -> None:
    stream = js.stream("S")
    consumer = stream.ordered_consumer(max_reset_attempts=1)
    with consumer.messages(idle_timeout=0.05) as messages:
        list(zip(range(2), messages, strict=False))


CALLS: dict[str, Callable[[JetStream], object]] = {
    "publish": lambda js: js.publish("s", b"x"),
    "publisher": with_publisher,
    "atomic batch": with_batch,
    "fast ingest": with_ingest,
    "account": lambda js: js.account_info(),
    "stream": lambda js: js.stream("S"),
    "stream info": lambda js: js.stream("S").info(subjects_filter=">"),
    "streams": lambda js: [repr(one.cached_info) for one in js.streams()],
    "stream names": lambda js: [name.upper() for name in js.stream_names()],
    "stream by subject": lambda js: js.stream_name_by_subject("s").upper(),
    "create stream": lambda js: js.create_stream(name="S", subject_delete_marker_ttl=5),
    "update stream": lambda js: js.update_stream(name="S", max_age=5),
    "purge": lambda js: js.stream("S").purge() + 1,
    "delete": lambda js: js.delete_stream("S"),
    "consumer": lambda js: repr(js.consumer("S", "C").info()),
    "consumers": lambda js: [repr(one.cached_info) for one in js.consumers("S")],
    "consumer names": lambda js: [name.upper() for name in js.consumer_names("S")],
    "create consumer": lambda js: js.create_consumer("S", durable_name="C"),
    "pause": lambda js: js.consumer("S", "C").pause(5),
    "reset": lambda js: js.consumer("S", "C").reset(),
    "get": lambda js: js.stream("S").get_message(1, direct=False),
    "direct get": lambda js: js.stream("S").get_message(1),
    "direct gets": lambda js: list(js.stream("S").get_messages("s", max_messages=2)),
    "last messages": lambda js: list(js.stream("S").get_last_messages("s")),
    "fetch": lambda js: [
        repr(msg) for msg in js.consumer("S", "C").fetch(2, timeout=0.05)
    ],
    "next": lambda js: js.consumer("S", "C").next(timeout=0.05).metadata,
    "messages": lambda js: list(
        zip(
            range(2),
            js.consumer("S", "C").messages(idle_timeout=0.05),
            strict=False,
        )
    ),
    "ordered": ordered,
    "subscribe": with_subscription,
}


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> random.Random:
    return seeded(request.node.name)


@pytest.fixture
def liar(rng: random.Random) -> Liar:
    return Liar(rng)


@pytest.fixture
def nc(liar: Liar) -> Iterator[Connection]:
    with (
        FakeServer(answer_requests(liar.answer)) as fake,
        jsync.connect(fake.url, on_error=lambda error: None) as nc,
    ):
        yield nc


@pytest.mark.parametrize("call", CALLS)
def test_any_answer_is_a_result_or_typed_error(
    nc: Connection, liar: Liar, call: str
) -> None:
    liar.silent = call == "atomic batch"
    js = nc.jetstream(timeout=0.5)
    for _ in range(ROUNDS):
        try:
            CALLS[call](js)
        except errors.Error:
            continue
    assert nc.state is jsync.ConnectionState.CONNECTED
    assert nc.stats().reconnects == 0, nc.last_error


@pytest.mark.parametrize(
    "number", ["9" * 5000, "\u00b2", "-1", "x", ""], ids=["long", *"bcde"]
)
def test_numbers_in_headers_may_be_anything(number: str) -> None:
    block = f"NATS/1.0 408 Request Timeout\r\nNats-Pending-Messages: {number}\r\n"
    block += f"Nats-Pending-Bytes: {number}\r\nNats-Num-Pending: {number}\r\n"
    block += f"Nats-Last-Sequence: {number}\r\n\r\n"

    def answer(subject: str, payload: bytes) -> list[FakeReply]:
        message = FakeReply(
            b"x", subject=b"s", reply=b"$JS.ACK.S.C.1.1.1.1700000000000000000.0"
        )
        status = FakeReply(b"", block.encode())
        if ".DIRECT." in subject:
            return [
                FakeReply(b"", block.replace("408 Request Timeout", "204 EOB").encode())
            ]
        if ".NEXT." in subject:
            return [status, message]
        return [
            FakeReply(
                json.dumps(CONSUMER if ".CONSUMER." in subject else STREAM).encode()
            )
        ]

    told: list[Exception] = []
    with FakeServer(answer_requests(answer)) as fake, jsync.connect(fake.url) as nc:
        stream = nc.jetstream(timeout=0.5).stream("S")
        with stream.consumer("C").messages(on_error=told.append) as messages:
            assert messages.next(10).data == b"x"
        with contextlib.suppress(errors.Error):
            list(stream.get_messages("s"))
        assert nc.stats().reconnects == 0, nc.last_error
    assert not [one for one in told if not isinstance(one, errors.Error)]


def test_batch_searches_have_results_or_typed_errors(
    rng: random.Random,
) -> None:
    liar = Liar(rng)
    searching = False

    def answer(subject: str, payload: bytes) -> list[FakeReply]:
        if searching:
            return liar.answer(subject, payload)
        if subject.startswith("$JS.API."):
            verb = subject.removeprefix("$JS.API.").split(".")
            return [FakeReply(json.dumps(liar.document(verb)).encode())]
        return [] if payload == b"the last" else [FakeReply()]

    with FakeServer(answer_requests(answer)) as fake, jsync.connect(fake.url) as nc:
        js = nc.jetstream(timeout=SOON)
        for _ in range(ROUNDS):
            searching = False
            batch = js.atomic_batch()
            batch.add("s", b"the first")
            batch.add("s", b"the second")  # returns with the ack of the first
            with pytest.raises(errors.AmbiguousCommitError) as unclear:
                batch.commit("s", b"the last", timeout=0.02)
            searching = True
            with contextlib.suppress(errors.Error):
                unclear.value.resolve(0.2)
        assert nc.stats().reconnects == 0, nc.last_error


@pytest.mark.parametrize("value", VALUES, ids=map(str, range(len(VALUES))))
@pytest.mark.parametrize("part", ["seq", "val", "stream", "error"])
def test_an_odd_ack_concerns_its_own_message_only(part: str, value: object) -> None:
    def answer(subject: str, payload: bytes) -> list[FakeReply]:
        ack = {"stream": "S", "seq": 1}
        said = [FakeReply(json.dumps(ack).encode())]
        if payload == b"odd":  # as from another responder, before the stream
            said.insert(0, FakeReply(json.dumps(ack | {part: value}).encode()))
        return said

    with FakeServer(answer_requests(answer)) as fake, jsync.connect(fake.url) as nc:
        publisher = nc.jetstream().publisher()
        futures = [publisher.publish("s", data) for data in (b"1", b"odd", b"2")]
        assert [futures[0].result(10).seq, futures[2].result(10).seq] == [1, 1]
        try:
            assert 0 <= futures[1].result(10).seq < 1 << 64
        except errors.Error as error:
            assert isinstance(error, errors.JetStreamError)  # noqa: PT017
        publisher.publish("s", b"3").result(10)
        assert nc.stats().reconnects == 0, nc.last_error


@pytest.mark.parametrize("gaps", ["fail", "ok"])
@pytest.mark.parametrize(
    "said",
    [
        {"type": "gap", "last_seq": 1, "seq": 5},
        {"type": "ack", "seq": 0, "msgs": 10},
        None,
    ],
    ids=["gap", "ack", "silence"],
)
def test_repeated_answers_keep_no_ingest_waiting(
    said: dict[str, object] | None, gaps: Literal["fail", "ok"]
) -> None:
    """Neither do its own pings, which leave the buffer one after the other."""
    answers = [FakeReply(json.dumps(FLOW).encode())]

    def answer(subject: str, payload: bytes) -> list[FakeReply]:
        if subject != "s":
            return []
        if answers:
            return [answers.pop()]
        return [] if said is None else [FakeReply(json.dumps(said).encode())]

    with FakeServer(answer_requests(answer)) as fake, jsync.connect(fake.url) as nc:
        ingest = nc.jetstream().fast_ingest(ack_timeout=0.5, gaps=gaps)
        for _ in range(20):
            ingest.add("s", b"x")
        with pytest.raises(errors.IngestTimeoutError):
            ingest.close()


def test_an_offline_stream_hides_no_later_page() -> None:
    def answer(subject: str, payload: bytes) -> list[FakeReply]:
        names = ["A", "B", "C", "D", "E", "F"]
        page = names[json.loads(payload)["offset"] :][:3]
        reply = {
            "total": len(names),
            "streams": [{"config": {"name": name}} for name in page],
            # A server gives a stream whose servers are all offline in both places.
            "missing": [name for name in page if name in ("B", "C")],
        }
        return [FakeReply(json.dumps(reply).encode())]

    with FakeServer(answer_requests(answer)) as fake, jsync.connect(fake.url) as nc:
        listed = nc.jetstream().streams()
        assert [next(listed).name for _ in range(6)] == ["A", "B", "C", "D", "E", "F"]
        with pytest.raises(errors.IncompleteListError) as raised:
            next(listed)
        assert raised.value.missing == ["B", "C"]
