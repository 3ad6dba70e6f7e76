"""Names, patterns, URLs and options: nothing is sent."""

from __future__ import annotations

import traceback
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, strategies as st
from kombu import Connection

import jsync
from jsync.errors import ConfigError
from jsync.integrations.kombu import codec, names, options

WORD = st.text("ab.é *>", min_size=0, max_size=4)


@given(st.text(max_size=20), st.text(max_size=20))
def test_different_names_are_different_tokens_that_nats_takes(a: str, b: str) -> None:
    assert (names.encode_token(a) == names.encode_token(b)) == (a == b)
    assert not set(names.encode_token(a)) & set(" .*>\r\n\t/\\")
    assert names.encode_token(a)


@pytest.mark.parametrize(
    ("pattern", "key", "taken"),
    [
        ("a.b", "a.b", True),
        ("a.b", "a.c", False),
        ("a.*", "a.b", True),
        ("a.*", "a", False),
        ("a.*", "a.b.c", False),
        ("a.#", "a", True),
        ("a.#", "a.b.c", True),
        ("#", "", True),
        ("#", "a.b", True),
        ("#.c", "a.b.c", True),
        ("#.c", "c", True),
        ("a.#.c", "a.c", True),
        ("a.#.c", "a.b.b.c", True),
        ("a.#.c", "a.b.b", False),
        ("*.#", "a", True),
        ("*.#.*", "a", False),
    ],
)
def test_topics_match_as_in_amqp(pattern: str, key: str, taken: bool) -> None:
    assert names.matches("topic", pattern, key) == taken


def fits(subject: str, filter_subject: str) -> bool:
    """Whether a subscription brings a subject, as a server says."""
    filters, words = filter_subject.split("."), subject.split(".")
    for place, part in enumerate(filters):
        if part == ">":
            return len(words) > place
        if place >= len(words) or part not in ("*", words[place]):
            return False
    return len(words) == len(filters)


@given(
    st.lists(st.sampled_from(["a", "b", "*", "#", "é"]), min_size=1, max_size=4),
    st.lists(st.sampled_from(["a", "b", "é", "*"]), min_size=1, max_size=4),
    st.sampled_from(["direct", "topic", "fanout"]),
)
def test_a_bindings_subject_brings_all_that_it_matches(
    pattern: list[str], key: list[str], kind: str
) -> None:
    bound, published = ".".join(pattern), ".".join(key)
    subject = names.binding_subject("k", kind, "ex", bound)
    if names.matches(kind, bound, published):
        assert fits(names.exchange_subject("k", "ex", published), subject)


@pytest.mark.parametrize(
    ("url", "servers", "name"),
    [
        ("jetstream://", ["nats://127.0.0.1"], "kombu"),
        ("jetstream://h:1/shop", ["nats://h:1"], "shop"),
        ("jetstream://u:p@h,i:2", ["nats://u:p@h", "nats://u:p@i:2"], "kombu"),
        ("tls://h", ["tls://h"], "kombu"),
        ("jetstream+tls://h", ["tls://h"], "kombu"),
        ("jetstream://[::1]:4222", ["nats://[::1]:4222"], "kombu"),
        ("jetstream://u:p,%2Fq@h", ["nats://u:p%2C%2Fq@h"], "kombu"),
    ],
)
def test_a_url_names_servers_and_a_broker(
    url: str, servers: list[str], name: str
) -> None:
    assert options.parse_urls(url) == options.BrokerAddress(tuple(servers), name)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("jetstream://h:port", "wrong port"),
        ("jetstream://u:secret@h?ack_wait=3", "broker_transport_options"),
        ("jetstream://u:secret#secret@h", "%23"),
        ("jetstream://u:secret/secret@h/shop", "%2F"),
        ("jetstream://u:secret?secret@h:1", "%3F"),
        ("jetstream://u:secret@secret@h", "quote"),
        ("jetstream://u:secret@h,v:secret@i", "once for all hosts"),
        ("jetstream://u:a://secret/@h", "quote"),
        ("jetstream://u:secret", "wrong port"),  # kombu split it at a semicolon
        ("jetstream://h/a.b", "not allowed"),
        ("redis://u:secret@h", "not a URL of this transport"),
    ],
)
def test_a_wrong_url_is_one_error_without_password(url: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as raised:
        options.parse_urls(url)
    assert "secret" not in "".join(traceback.format_exception(raised.value))


@pytest.mark.parametrize(
    ("given_options", "words"),
    [
        ({"ackwait": 3}, "unknown option of the transport: 'ackwait'"),
        ({"visibility_timeout": 3600}, "set ack_wait"),
        ({"ack_wait": 0}, "seconds above 0"),
        ({"ack_wait": "3"}, "seconds above 0"),
        ({"storage": "disk"}, "file or memory"),
        ({"connect": []}, "has to be a dict"),
    ],
)
def test_a_wrong_option_is_one_error_before_sending(
    given_options: dict[str, Any], words: str
) -> None:
    connection = Connection("jetstream://nobody", transport_options=given_options)
    with pytest.raises(ConfigError, match=words):
        connection.connect()


def test_tls_is_never_without_verification() -> None:
    assert options.tls_options({"ca_certs": "ca.pem"}) == {
        "tls": True,
        "tls_ca": "ca.pem",
    }
    assert options.tls_options(None) == {}
    with pytest.raises(ConfigError, match="always verified"):
        options.tls_options({"cert_reqs": 0})


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("jetstream://u:secret@h/shop", "jetstream://u:**@h/shop"),
        ("jetstream://u:sec/ret@h:1/shop", "jetstream://u:**@h:1/shop"),
        ("jetstream://u:sec#ret@[::1]:4222", "jetstream://u:**@[::1]:4222"),
        ("jetstream://secret@h", "jetstream://**@h"),
        ("jetstream://h:1,i:2/shop", "jetstream://h:1,i:2/shop"),
        ("jetstream://u:secret", "jetstream://u:**"),
    ],
)
def test_a_url_is_shown_without_its_password(url: str, shown: str) -> None:
    assert options.mask_password(url) == shown


def test_a_connection_is_shown_without_its_password() -> None:
    shown = Connection("jetstream://u:secret@h/shop").as_uri()
    assert shown == "jetstream://u:**@h/shop"


def test_a_message_comes_out_as_it_went_in() -> None:
    message = {
        "body": "é",
        "content-type": "application/json",
        "content-encoding": "utf-8",
        "headers": {"task": "é\n", "eta": None},
        "properties": {"priority": 3, "expires": datetime(2030, 1, 1, tzinfo=UTC)},
    }
    data, headers = codec.pack(message)
    found = codec.unpack(jsync.Msg("a", data, headers=headers))
    assert found.body == "é".encode()
    assert (found.content_type, found.content_encoding) == ("application/json", "utf-8")
    assert (found.headers, found.properties) == (
        message["headers"],
        message["properties"],
    )


@pytest.mark.parametrize(
    "headers", [None, {codec.HEADERS: "{"}, {codec.HEADERS: "[1]"}]
)
def test_a_message_from_somebody_else_is_still_read(
    headers: dict[str, str] | None,
) -> None:
    found = codec.unpack(jsync.Msg("a", b"x", headers=headers))
    assert found == (b"x", None, None, {}, {})


@pytest.mark.parametrize(
    ("priority", "levels", "found"),
    [(None, 10, 0), (3, 10, 3), (12, 10, 9), (-1, 10, 0), ("x", 10, 0), (5, 1, 0)],
)
def test_a_priority_is_one_that_the_queue_has(
    priority: object, levels: int, found: int
) -> None:
    assert codec.priority_level({"priority": priority}, levels) == found
