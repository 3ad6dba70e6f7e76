"""Tests that replies of any shape are read, or raise an error of jsync."""

from __future__ import annotations

import contextlib
import json
import pickle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec
import pytest
from hypothesis import given, strategies as st

from jsync import contexts, errors, models
from jsync.cli.params.config_file import read_config
from jsync.core.protocol import parse_info
from jsync.jetstream.advisory import read_advisory
from jsync.jetstream.api import _json
from jsync.jetstream.atomic.engine import has_batch_fix
from jsync.jetstream.features import version_of_config, version_of_server
from jsync.jetstream.ingest.flow_messages import parse_flow_message
from jsync.jetstream.publishing.publish import read_ack
from jsync.jetstream.push.engine import Heartbeat
from jsync.jetstream.replies import api_error, parse_reply
from jsync.models import Model, StoredMessage

from ..support.json_mutation import VALUES, mutated

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

NOW = "2026-01-01T00:00:00.123456789Z"
ERROR = {"code": 400, "err_code": 10071, "description": "wrong last sequence: 1"}
STREAM = {
    "type": "io.nats.jetstream.api.v1.stream_info_response",
    "config": {
        "name": "S",
        "subjects": ["s"],
        "allow_atomic": True,
        "allow_batched": True,
        "allow_direct": True,
        "retention": "limits",
        "max_age": 10**9,
        "num_replicas": 1,
        "metadata": {"_nats.level": "4", "_nats.ver": "2.15.1"},
        "sources": [{"name": "T", "opt_start_seq": 1, "opt_start_time": NOW}],
        "republish": {"src": ">", "dest": "x.>"},
    },
    "created": NOW,
    "state": {
        "messages": 1,
        "bytes": 1,
        "first_seq": 1,
        "last_seq": 1,
        "deleted": [2],
        "first_ts": NOW,
        "last_ts": NOW,
        "subjects": {"s": 1},
        "lost": {"msgs": [1]},
    },
    "cluster": {
        "name": "c",
        "leader": "a",
        "replicas": [{"name": "b", "current": True, "active": 10**9, "lag": 1}],
    },
    "mirror": {"name": "T", "lag": 0, "active": -1, "error": ERROR},
}
CONSUMER = {
    "stream_name": "S",
    "name": "C",
    "created": NOW,
    "config": {
        "durable_name": "C",
        "ack_wait": 3 * 10**10,
        "backoff": [10**9],
        "metadata": {"_nats.level": "4"},
    },
    "delivered": {"consumer_seq": 1, "stream_seq": 1, "last_active": NOW},
    "ack_floor": {"consumer_seq": 1, "stream_seq": 1},
    "num_ack_pending": 1,
    "num_pending": 1,
    "paused": True,
    "pause_remaining": 10**9,
    "priority_groups": [{"group": "g", "pinned_client_id": "x", "pinned_ts": NOW}],
}
ACCOUNT = {
    "memory": 1,
    "storage": 1,
    "streams": 1,
    "domain": "hub",
    "limits": {"max_memory": -1},
    "api": {"level": 4, "total": 1},
    "tiers": {"R1": {"memory": 1, "limits": {"max_streams": -1}}},
}
INFO = {
    "server_id": "x",
    "version": "2.15.1",
    "proto": 1,
    "headers": True,
    "max_payload": 1 << 20,
    "jetstream": True,
    "client_id": 5,
    "api_lvl": 4,
    "connect_urls": ["127.0.0.1:4222"],
    "nonce": "abc",
    "ldm": False,
}
PUB_ACK = {
    "stream": "S",
    "seq": 1,
    "duplicate": True,
    "batch": "b",
    "count": 1,
    "val": "7",
}
FLOW = {"type": "ack", "seq": 1, "msgs": 10}
GAP = {"type": "gap", "seq": 2, "last_seq": 1}
FAILED = {"type": "err", "seq": 2, "error": ERROR}
STORED = {
    "subject": "s",
    "seq": 1,
    "data": "eA==",
    "hdrs": "TkFUUy8xLjANCg0K",
    "time": NOW,
}
ADVISORY = {"type": "x", "id": "i", "stream": "S", "batch": "b", "reason": "timeout"}


def model(kind: type[Model]) -> Callable[[bytes], object]:
    """Return a reader of this model, which checks the uses of its result."""

    def read(data: bytes) -> object:
        found = kind.from_wire(parse_reply(data))
        assert repr(found)
        pickle.dumps(found)
        assert found == kind.from_wire(parse_reply(data))
        msgspec.json.encode(found.to_wire())
        return found

    return read


def pub_ack(data: bytes) -> object:
    ack = read_ack(data)
    assert 0 <= ack.seq < 1 << 64
    assert repr(ack)
    return ack.value


def info(data: bytes) -> object:
    found = parse_info(data)
    version_of_server(found)
    has_batch_fix(found.version)
    return found


def answer(subject: str) -> Callable[[bytes], object]:
    def read(data: bytes) -> object:
        found = parse_flow_message(subject, None, data)
        numbers = (found.sequence, found.seq, found.last_seq, found.msgs)
        assert all(0 <= number < 1 << 63 for number in numbers)
        assert found.seq + 1000 * found.msgs < 1 << 64, "the window of an ingest"
        return found

    return read


READERS: dict[str, tuple[Any, Callable[[bytes], object]]] = {
    "INFO": (INFO, info),
    "PubAck": (PUB_ACK, pub_ack),
    "PubAck with an error": ({"error": ERROR}, pub_ack),
    "reply with an error": ({"type": "x", "error": ERROR}, parse_reply),
    "StreamInfo": (STREAM, model(models.StreamInfo)),
    "ConsumerInfo": (CONSUMER, model(models.ConsumerInfo)),
    "ConsumerReset": ({**CONSUMER, "reset_seq": 1}, model(models.ConsumerReset)),
    "ConsumerPause": (
        {"paused": True, "pause_until": NOW},
        model(models.ConsumerPause),
    ),
    "AccountInfo": (ACCOUNT, model(models.AccountInfo)),
    "advisory": (ADVISORY, read_advisory),
    "flow of an ingest": (FLOW, answer("_INBOX.b.9.gap.5.1.$FI")),
    "gap of an ingest": (GAP, answer("_INBOX.b.9.gap.5.1.$FI")),
    "failure of an ingest": (FAILED, answer("_INBOX.b.9.gap.5.1.$FI")),
    "end of an ingest": (PUB_ACK, answer("_INBOX.b.9.gap.5.2.$FI")),
    "stored message": (
        STORED,
        lambda data: StoredMessage.from_api("S", parse_reply(data)),
    ),
    "line of a configuration": (
        STREAM["config"],
        lambda data: version_of_config(parse_reply(data)),
    ),
}


@pytest.mark.parametrize("name", READERS)
@given(rng=st.randoms(use_true_random=False))
def test_a_reply_is_readable_or_a_typed_error(name: str, rng: random.Random) -> None:
    document, read = READERS[name]
    data = mutated(document, rng)
    try:
        read(data)
    except errors.Error as error:
        pickle.dumps(error)


@pytest.mark.parametrize("name", READERS)
def test_a_good_reply_is_read(name: str) -> None:
    document, read = READERS[name]
    try:
        assert read(json.dumps(document).encode()) is not None
    except errors.APIError as error:
        assert "error" in document
        assert error.err_code == 10071  # noqa: PT017


@pytest.mark.parametrize("value", VALUES, ids=map(str, range(len(VALUES))))
@pytest.mark.parametrize("part", ["error", "code", "err_code", "description"])
def test_errors_of_any_shape_are_api_errors(part: str, value: object) -> None:
    told = value if part == "error" else {**ERROR, part: value}
    error = api_error(told)
    assert isinstance(error, errors.APIError)
    assert isinstance(error.code, int)
    assert isinstance(error.err_code, int)
    assert isinstance(error.description, str)
    if part not in ("error", "err_code"):
        assert isinstance(error, errors.WrongLastSequenceError)


NUMBERS = ["0", "7", "-1", "9" * 30, "9" * 5000, "²", "\uff11", "1_0", " 7", "", "x"]


@pytest.mark.parametrize("sequence", NUMBERS, ids=map(str, range(len(NUMBERS))))
@pytest.mark.parametrize("operation", NUMBERS, ids=map(str, range(len(NUMBERS))))
def test_numbers_in_reply_subjects_cause_only_typed_errors(
    sequence: str, operation: str
) -> None:
    subject = f"_INBOX.b.9.gap.{sequence}.{operation}.$FI"
    try:
        found = parse_flow_message(subject, None, b'{"type":"ack"}')
    except errors.JetStreamError:
        return
    assert 0 <= found.sequence < 1 << 63


OUT_OF_BOUNDS = [-1, 2**64, 2**200, -(2**200)]


@pytest.mark.parametrize("number", OUT_OF_BOUNDS, ids=["-1", "2^64", "2^200", "-2^200"])
def test_an_impossible_number_never_reaches_the_extension(
    number: int,
) -> None:
    sent = {"consumer_seq": number, "stream_seq": number}
    consumer = models.ConsumerInfo.from_wire({"delivered": sent, "num_pending": number})
    assert (consumer.delivered.consumer_seq, consumer.num_pending) == (0, 0)
    assert consumer.to_wire()["delivered"] == sent, "it goes back as it came"
    state = models.StreamInfo.from_wire({"state": {"last_seq": number}}).state
    assert state.last_seq == 0
    for answered in ("seq", "last_seq", "msgs", "count"):
        with pytest.raises(errors.JetStreamError):
            parse_flow_message(
                "b.9.gap.5.1.$FI", None, json.dumps({answered: number}).encode()
            )
    with pytest.raises(errors.JetStreamError):
        read_ack(json.dumps({"stream": "S", "seq": number}).encode())
    with pytest.raises(errors.JetStreamError):
        StoredMessage.from_api("S", {**STORED, "seq": number})


def test_an_ingest_window_stays_within_64_bits() -> None:
    with pytest.raises(errors.JetStreamError):
        parse_flow_message(
            "b.9.gap.5.1.$FI", None, b'{"type":"ack","msgs":9223372036854775807}'
        )


@pytest.mark.parametrize(
    "part",
    [
        {"time": "0001-01-01T00:00:00+05:00"},
        {"time": 5},
        {"hdrs": "e"},
        {"hdrs": 5},
        {"data": "\udcff"},
        {"seq": "9" * 5000},
    ],
    ids=map(str, range(6)),
)
def test_an_invalid_stored_message_is_a_typed_error(part: dict[str, Any]) -> None:
    with pytest.raises(errors.JetStreamError):
        StoredMessage.from_api("S", {**STORED, **part})


def test_deep_replies_are_refused_unlike_braces_in_text() -> None:
    deep = "[" * 150 + "]" * 150
    with pytest.raises(errors.JetStreamError):
        parse_reply(f'{{"a": {deep}}}'.encode())
    assert parse_reply(f'{{"a": "{deep}"}}'.encode()) == {"a": deep}
    wide = {"a": [{"b": [number]} for number in range(500)]}
    assert parse_reply(json.dumps(wide).encode()) == wide


@pytest.mark.parametrize(
    "level",
    ["9" * 5000, "\u00b2", "-1", 5, None, ["1"]],
    ids=["long", "raised", "negative", "number", "none", "list"],
)
def test_levels_of_any_shape_mean_the_oldest_server(level: object) -> None:
    assert version_of_config({"metadata": {"_nats.level": level}}) == ((2, 10), "")


@given(
    st.dictionaries(
        st.sampled_from(["Nats-Last-Consumer", "Nats-Last-Stream"]), st.text()
    )
)
def test_heartbeat_headers_of_any_text_are_read(headers: dict[str, str]) -> None:
    heard = Heartbeat.of(headers)
    assert heard.consumer_sequence is None or 0 <= heard.consumer_sequence < 1 << 64


CONTEXT = {
    "url": "nats://127.0.0.1:4222",
    "user": "u",
    "password": "p",
    "token": "t",
    "creds": "/tmp/x.creds",
    "nkey": "",
    "user_jwt": "",
    "tls_first": False,
    "jetstream_domain": "",
}


@given(rng=st.randoms(use_true_random=False))
def test_contexts_of_any_shape_are_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, rng: random.Random
) -> None:
    path = tmp_path_factory.getbasetemp() / "damaged.json"
    path.write_bytes(mutated(CONTEXT, rng))
    with contextlib.suppress(errors.ConfigError):
        contexts.load(Path("/nowhere"), str(path), {})


@given(rng=st.randoms(use_true_random=False))
def test_configurations_of_any_shape_are_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, rng: random.Random
) -> None:
    path = tmp_path_factory.getbasetemp() / "damaged-config.json"
    path.write_bytes(mutated(STREAM, rng))
    try:
        found = read_config(path, models.StreamConfig)
        _json(found.to_wire())  # like a request
    except (click.UsageError, errors.ConfigError):
        pass
