"""Tests of the handshake of a connection, without a socket."""

from __future__ import annotations

import json
from typing import Any

import pytest

from jsync import errors
from jsync._version import __version__
from jsync.core.handshake import Handshake, HandshakeState, NextStep
from jsync.core.protocol import (
    PING,
    PONG,
    ServerInfo,
    connect_command,
    is_fatal,
    parse_info,
    queue_of_violation,
    server_error,
    subscribe_command,
    unsubscribe_command,
)
from jsync.errors import (
    AuthenticationError,
    ConfigError,
    Error,
    InvalidSubjectError,
    PermissionsError,
    ProtocolError,
    ServerLimitError,
    StaleConnectionError,
    SubscriptionLimitError,
    TLSError,
)

# The INFO of nats-server 2.15.1, including the blank before the line end.
REAL_INFO = (
    b'{"server_id":"NDLEHM33JFW2YFKEVR2YEOIYZQV4MZFOU4L6YR6RKKZNDBTLMZVYDANM",'
    b'"server_name":"n1","version":"2.15.1","proto":1,"git_commit":"b2fd3ef",'
    b'"go":"go1.27.2","host":"127.0.0.1","port":35497,"headers":true,'
    b'"auth_required":true,"max_payload":1048576,"jetstream":true,"client_id":6,'
    b'"client_ip":"127.0.0.1","nonce":"bQ8Nd9FmcyLl7zw","cluster":"C1",'
    b'"cluster_dynamic":true,"domain":"hub",'
    b'"connect_urls":["127.0.0.1:35497","[::1]:4222"],"ldm":true,'
    b'"connect_info":true,"remote_account":"$G","api_lvl":5,"xkey":"XB4A75"} '
)


def make_info(**fields: Any) -> bytes:
    return json.dumps({"version": "2.15.1", "headers": True} | fields).encode()


def test_a_real_info_is_read_whole() -> None:
    info = parse_info(REAL_INFO)
    assert info == ServerInfo(
        server_id="NDLEHM33JFW2YFKEVR2YEOIYZQV4MZFOU4L6YR6RKKZNDBTLMZVYDANM",
        server_name="n1",
        version="2.15.1",
        proto=1,
        git_commit="b2fd3ef",
        go="go1.27.2",
        host="127.0.0.1",
        port=35497,
        headers=True,
        max_payload=1048576,
        jetstream=True,
        auth_required=True,
        nonce="bQ8Nd9FmcyLl7zw",
        connect_urls=("127.0.0.1:35497", "[::1]:4222"),
        ldm=True,
        client_id=6,
        client_ip="127.0.0.1",
        cluster="C1",
        domain="hub",
        xkey="XB4A75",
        api_lvl=5,
        connect_info=True,
        remote_account="$G",
    )
    with pytest.raises(AttributeError):
        info.port = 1  # type: ignore[misc]


def test_an_info_may_lack_anything_and_have_more() -> None:
    assert parse_info(b"{}") == ServerInfo()
    assert parse_info(b'{"new":[{"x":null}],"max_payload":-1}').max_payload == -1


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b" ",
        b"[]",
        b"null",
        b"{",
        b'{"server_name":"\xff"}',
        b'{"port":"4222","x":',
        b'{"port":"4222"',
        b"{}{}",
        b"HTTP/1.1 400 Bad Request",
        b"[" * 5000,
        b'{"new":' * 100_000,
    ],
    ids=range(12),
)
def test_an_invalid_info_is_a_protocol_error(data: bytes) -> None:
    with pytest.raises(ProtocolError, match="cannot read the INFO"):
        parse_info(data)


@pytest.mark.parametrize(
    ("data", "read"),
    [
        (b'{"port":"4222","version":"2.15.1"}', {"version": "2.15.1"}),
        (b'{"max_payload":null,"headers":true}', {"headers": True}),
        (
            b'{"max_payload":1e3,"client_id":1.5,"port":4222.0}',
            {"max_payload": 1000, "port": 4222},
        ),
        (b'{"connect_urls":["a:1",null,5,"b:2"]}', {"connect_urls": ("a:1", "b:2")}),
        (b'{"connect_urls":"a","go":1.25}', {}),
        (b'{"tls_required":"yes","tls_verify":0}', {"tls_required": True}),
        (b'{"nonce":5,"domain":null,"ldm":null}', {}),
    ],
    ids=range(7),
)
def test_fields_of_the_wrong_type_count_as_missing(
    data: bytes, read: dict[str, Any]
) -> None:
    assert parse_info(data) == ServerInfo(**read)


def test_connect_names_the_client() -> None:
    command = connect_command(
        auth={"user": "bob", "pass": 'p"w\r\n'}, tls=True, name="billing", echo=False
    )
    assert command.startswith(b"CONNECT {")
    assert command.endswith(b"}\r\n")
    assert command.count(b"\r\n") == 1
    assert json.loads(command[8:]) == {
        "verbose": False,
        "pedantic": False,
        "tls_required": True,
        "name": "billing",
        "lang": "python-jsync",
        "version": __version__,
        "protocol": 1,
        "echo": False,
        "headers": True,
        "no_responders": True,
        "user": "bob",
        "pass": 'p"w\r\n',
    }


def test_connect_defaults_to_echo_and_no_name() -> None:
    fields = json.loads(connect_command(auth={}, tls=False)[8:])
    assert (fields["echo"], fields["name"], fields["tls_required"]) == (True, "", False)
    assert json.loads(connect_command(auth={}, tls=False, pedantic=True)[8:])[
        "pedantic"
    ]


def test_a_secret_that_cannot_be_encoded_stays_hidden() -> None:
    with pytest.raises(ConfigError) as caught:
        connect_command(auth={"pass": "s3cret\udc80"}, tls=False)
    assert "s3cret" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (subscribe_command("orders.>", None, 1), b"SUB orders.> 1\r\n"),
        (subscribe_command("größe.*", "q", 12), "SUB größe.* q 12\r\n".encode()),
        (unsubscribe_command(1), b"UNSUB 1\r\n"),
        (unsubscribe_command(1, 5), b"UNSUB 1 5\r\n"),
        (PING, b"PING\r\n"),
        (PONG, b"PONG\r\n"),
    ],
    ids=range(6),
)
def test_commands_are_lines(command: bytes, expected: bytes) -> None:
    assert command == expected


@pytest.mark.parametrize(
    ("subject", "queue"),
    [
        ("", None),
        ("a b", None),
        ("a\r\nPUB x 0", None),
        ("a\x00", None),
        ("a\t", None),
        ("a", ""),
        ("a", "q 1"),
        ("a", "q\r\n"),
    ],
)
def test_a_subscription_cannot_smuggle_a_command(
    subject: str, queue: str | None
) -> None:
    with pytest.raises(InvalidSubjectError):
        subscribe_command(subject, queue, 1)


@pytest.mark.parametrize(
    ("text", "kind", "fatal"),
    [
        ("Authorization Violation", AuthenticationError, True),
        ("User Authentication Expired", AuthenticationError, True),
        ("User Authentication Revoked", AuthenticationError, True),
        ("Account Authentication Expired", AuthenticationError, True),
        ("Authentication Timeout", AuthenticationError, True),
        ("Failed Account Registration", AuthenticationError, True),
        ("Stale Connection", StaleConnectionError, True),
        ("Slow Consumer", ServerLimitError, True),
        ("maximum connections exceeded", ServerLimitError, True),
        ("Maximum Connections Exceeded", ServerLimitError, True),
        ("maximum account active connections exceeded", ServerLimitError, True),
        ("Maximum Payload Violation", ServerLimitError, True),
        ("maximum subscriptions exceeded", SubscriptionLimitError, False),
        ("Maximum Subscriptions Exceeded", SubscriptionLimitError, False),
        (
            "Connection throttling is active. Please try again later.",
            ServerLimitError,
            True,
        ),
        ("Invalid Subject", InvalidSubjectError, False),
        ("Invalid Publish Subject", InvalidSubjectError, False),
        ('Permissions Violation for Publish to "a.b"', PermissionsError, False),
        ("Permissions Violation", PermissionsError, False),
        ("Secure Connection - TLS Required", TLSError, True),
        ("Unknown Protocol Operation", ProtocolError, True),
        ("Parser Error", ProtocolError, True),
        ("invalid client protocol", ProtocolError, True),
        ("maximum control line exceeded", ProtocolError, True),
        ("no responders requires headers support", ProtocolError, True),
        ("attempted to connect to route port", ProtocolError, True),
        ("Attempted To Connect To Route Port", ProtocolError, True),
        ("attempted to connect to leaf node port", ProtocolError, True),
        ("attempted to connect to gateway port", ProtocolError, True),
        ("Something nobody has heard of", Error, False),
        ("", Error, False),
    ],
)
def test_the_text_of_an_error_decides_its_class(
    text: str, kind: type[Error], fatal: bool
) -> None:
    error = server_error(text)
    assert type(error) is kind
    assert str(error).startswith(text)
    assert is_fatal(error) is fatal


@pytest.mark.parametrize(
    ("text", "operation", "subject", "queue"),
    [
        ('Publish to "a.b"', "publish", "a.b", None),
        ('Publish to "$JS.API.INFO"', "publish", "$JS.API.INFO", None),
        ('Publish with Reply of "_INBOX.x"', "publish", "_INBOX.x", None),
        ('Subscription to "a.>"', "subscribe", "a.>", None),
        ('Subscription to "a" using queue "q1"', "subscribe", "a", "q1"),
        (
            'Subscription to "a" using queue "q" (sid "7")',
            "subscribe",
            "a",
            "q",
        ),
        ('Subscription to "a" (sid "7")', "subscribe", "a", None),
        ('Subscription to "a.b.c", too many tokens', "subscribe", "a.b.c", None),
        (r'Subscription to "xé\"\\" using queue "q\""', "subscribe", 'xé"\\', 'q"'),
        ("Subscription to what", "", "", None),
    ],
)
def test_a_permissions_violation_names_the_subject(
    text: str, operation: str, subject: str, queue: str | None
) -> None:
    error = server_error(f"Permissions Violation for {text}")
    assert isinstance(error, PermissionsError)
    assert (error.operation, error.subject) == (operation, subject)
    assert queue_of_violation(error) == queue


# The handshake ---------------------------------------------------------------------


def feed(handshake: Handshake, data: bytes) -> list[NextStep]:
    """Feed bytes as the connection does, with a parser of whole lines."""
    handshake.observe(data)
    steps = []
    for line in data.split(b"\r\n")[:-1]:
        op, _, rest = line.decode().partition(" ")
        value = {"INFO": rest.encode(), "-ERR": rest.strip("'")}.get(op)
        steps.append(handshake.receive(op, value))
    return steps


def greeted(tls: bool = False, **info: Any) -> Handshake:
    handshake = Handshake(tls=tls)
    feed(handshake, b"INFO " + make_info(**info) + b"\r\n")
    return handshake


def test_a_plain_handshake_goes_from_info_to_pong() -> None:
    handshake = Handshake(tls=False)
    assert (handshake.state, handshake.step) == (HandshakeState.GREETING, NextStep.READ)
    assert feed(handshake, b"INFO " + REAL_INFO + b"\r\n") == [NextStep.SEND_CONNECT]
    assert handshake.info is not None
    assert handshake.info.nonce == "bQ8Nd9FmcyLl7zw"
    assert repr(handshake) == "<Handshake waiting for our CONNECT>"
    assert handshake.connect_sent() is NextStep.READ
    assert feed(handshake, b"+OK\r\nPONG\r\n") == [NextStep.READ, NextStep.READY]
    assert handshake.state is HandshakeState.READY
    assert not handshake.encrypted


@pytest.mark.parametrize(
    ("wanted", "info"),
    [
        (True, {"tls_required": True}),
        (True, {"tls_available": True}),
        (False, {"tls_required": True}),
    ],
)
def test_tls_begins_when_either_side_asks(wanted: bool, info: dict[str, bool]) -> None:
    handshake = greeted(tls=wanted, **info)
    assert (handshake.state, handshake.step) == (HandshakeState.TLS, NextStep.START_TLS)
    assert handshake.secured() is NextStep.SEND_CONNECT
    assert handshake.encrypted
    assert repr(handshake) == "<Handshake waiting for our CONNECT, encrypted>"


def test_available_tls_is_not_used_unasked() -> None:
    assert greeted(tls_available=True).step is NextStep.SEND_CONNECT


def test_wanting_unavailable_tls_is_an_error() -> None:
    handshake = Handshake(tls=True)
    with pytest.raises(TLSError, match="the server does not offer it"):
        handshake.receive("INFO", make_info())
    assert handshake.state is HandshakeState.FAILED


@pytest.mark.parametrize("info", [{}, {"tls_required": True}])
def test_tls_may_come_before_info(info: dict[str, bool]) -> None:
    handshake = Handshake(tls=True, tls_first=True)
    assert handshake.step is NextStep.START_TLS
    assert handshake.secured() is NextStep.READ
    data = b"INFO " + make_info(**info) + b"\r\n"
    assert feed(handshake, data) == [NextStep.SEND_CONNECT]


def feed_all(handshake: Handshake, *reads: bytes) -> None:
    for read in reads:
        feed(handshake, read)


TLS_INFO = b"INFO " + make_info(tls_required=True) + b"\r\n"


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize(
    "injected", ["PING\r\n", "-ERR 'Authorization Violation'\r\n", "P"]
)
def test_plaintext_between_info_and_tls_is_refused(
    injected: str, together: bool
) -> None:
    tail = injected.encode()
    reads = [TLS_INFO + tail] if together else [TLS_INFO, tail]
    handshake = Handshake(tls=True)
    with pytest.raises(ProtocolError, match="injected"):
        feed_all(handshake, *reads)
    assert handshake.state is HandshakeState.FAILED


def test_plaintext_before_tls_is_seen_despite_cut_lines() -> None:
    handshake = Handshake(tls=True)
    for read in (TLS_INFO[:-1], b"\n", b"P"):
        handshake.observe(read)
    with pytest.raises(ProtocolError, match="injected"):
        handshake.receive("INFO", TLS_INFO[5:-2])


@pytest.mark.parametrize("together", [True, False])
def test_a_full_server_may_say_so_before_tls(together: bool) -> None:
    error = b"-ERR 'maximum connections exceeded'\r\n"
    reads = [TLS_INFO + error] if together else [TLS_INFO, error]
    with pytest.raises(ServerLimitError, match=r"^maximum connections exceeded$"):
        feed_all(Handshake(tls=True), *reads)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n", "'HTTP/1.1 400 Bad Request"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "SSH-2.0"),
        (b"INFORM x\r\n", "INFORM"),
        (b"PING\r\n", "PING"),
        (b"\x00\xff\x1b[31m" + b"x" * 99, r"'\\x00\\xff\\x1b\[31mx+'$"),
        (b"\x15\x03\x01\x00\x02\x02\x46", "tls_handshake_first"),
    ],
    ids=range(6),
)
def test_a_peer_without_info_is_no_nats_server(data: bytes, words: str) -> None:
    with pytest.raises(ProtocolError, match=words) as caught:
        Handshake(tls=False).observe(data)
    assert len(str(caught.value)) < 120
    slow = Handshake(tls=False)
    with pytest.raises(ProtocolError):
        feed_all(slow, *(data[n : n + 1] for n in range(len(data))))
    assert slow.state is HandshakeState.FAILED


@pytest.mark.parametrize("start", [b"INFO ", b"info ", b"INFO\t", b"-ERR "])
def test_the_first_bytes_may_come_one_by_one(start: bytes) -> None:
    handshake = Handshake(tls=False)
    for n in range(len(start)):
        handshake.observe(start[n : n + 1])
    assert handshake.state is HandshakeState.GREETING


def test_a_server_without_headers_is_refused() -> None:
    with pytest.raises(ProtocolError, match=r"nats-server 2\.1\.9 sends no headers"):
        Handshake(tls=False).receive("INFO", make_info(version="2.1.9", headers=False))


def test_an_error_ends_the_handshake_with_its_class() -> None:
    handshake = greeted()
    handshake.connect_sent()
    with pytest.raises(AuthenticationError, match="Authorization Violation"):
        feed(handshake, b"-ERR 'Authorization Violation'\r\n")
    assert handshake.state is HandshakeState.FAILED
    with pytest.raises(ProtocolError):
        handshake.receive("PONG", None)


def test_an_info_in_between_replaces_the_first() -> None:
    handshake = greeted()
    assert handshake.receive("INFO", make_info(client_id=3)) is NextStep.SEND_CONNECT
    handshake.connect_sent()
    assert handshake.receive("INFO", make_info(client_id=4)) is NextStep.READ
    assert handshake.info is not None
    assert handshake.info.client_id == 4


def test_a_ping_is_answered_but_not_before_connect() -> None:
    handshake = greeted()
    assert handshake.receive("PING", None) is NextStep.SEND_CONNECT
    assert handshake.connect_sent() is NextStep.SEND_PONG
    assert handshake.step is NextStep.READ
    assert handshake.receive("PING", None) is NextStep.SEND_PONG
    assert handshake.receive("PONG", None) is NextStep.READY


@pytest.mark.parametrize(
    ("state", "op", "value"),
    [
        (HandshakeState.GREETING, "PONG", None),
        (HandshakeState.GREETING, "MSG", (1, object())),
        (HandshakeState.GREETING, "INFO", b"nonsense"),
        (HandshakeState.CONNECT, "PONG", None),
        (HandshakeState.CONNECT, "MSG", (1, object())),
        (HandshakeState.PONG, "MSG", (1, object())),
        (HandshakeState.PONG, "INFO", b"nonsense"),
        (HandshakeState.READY, "PONG", None),
    ],
)
def test_an_untimely_frame_is_a_protocol_error(
    state: HandshakeState, op: str, value: object
) -> None:
    handshake = Handshake(tls=False) if state is HandshakeState.GREETING else greeted()
    if state in (HandshakeState.PONG, HandshakeState.READY):
        handshake.connect_sent()
    if state is HandshakeState.READY:
        handshake.receive("PONG", None)
    assert handshake.state is state
    with pytest.raises(ProtocolError):
        handshake.receive(op, value)
    assert handshake.state is HandshakeState.FAILED


def test_a_step_out_of_turn_ends_the_handshake() -> None:
    handshake = Handshake(tls=False)
    with pytest.raises(ProtocolError, match="our CONNECT while waiting for INFO"):
        handshake.connect_sent()
    with pytest.raises(ProtocolError, match="TLS handshake while waiting for no"):
        handshake.secured()


def test_the_moment_of_a_hangup_decides_the_error() -> None:
    cases: list[tuple[Handshake, type[Error], str]] = [
        (Handshake(tls=False), errors.ConnectionError, "is it a NATS server"),
        (greeted(), errors.ConnectionError, "without a reason.*our CONNECT"),
        (greeted(tls_required=True), errors.ConnectionError, "the TLS handshake"),
    ]
    waiting = greeted()
    waiting.connect_sent()
    cases.append((waiting, errors.ConnectionError, "without a reason.*PONG"))
    mutual = greeted(tls_required=True, tls_verify=True)
    mutual.secured()
    mutual.connect_sent()
    cases.append((mutual, TLSError, "client certificate"))
    first = Handshake(tls=True, tls_first=True)
    first.secured()
    cases.append((first, TLSError, "client certificate"))
    for handshake, kind, words in cases:
        error = handshake.eof()
        assert type(error) is kind
        with pytest.raises(kind, match=words):
            raise error
        assert handshake.state is HandshakeState.FAILED


def test_a_silent_peer_gets_a_hint() -> None:
    assert "tls_handshake_first" in str(Handshake(tls=True).timed_out())
    error = greeted().timed_out()
    assert isinstance(error, TimeoutError)
    assert str(error) == "timed out waiting for our CONNECT"
