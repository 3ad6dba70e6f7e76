"""Tests of parsing server URLs, and of the order and the pauses of connects."""

from __future__ import annotations

import pickle
import random
from typing import Any

import pytest

from jsync.core.server_address import ServerAddress, parse_server, parse_servers
from jsync.core.server_pool import Backoff, RetryDelay, ServerPool
from jsync.errors import AuthenticationError, ConfigError

A, B, C = (ServerAddress(name) for name in "abc")
REFUSAL = "Authorization Violation"


def make_pool(*servers: ServerAddress, **options: Any) -> ServerPool:
    defaults: dict[str, Any] = {
        "randomize": False,
        "max_reconnects": 60,
        "ignore_discovered": False,
        "rng": random.Random(1),
    }
    return ServerPool(servers, **(defaults | options))


def run(pool: ServerPool, attempts: int) -> list[tuple[str, RetryDelay | None]]:
    """Fail `attempts` times. Return the tried servers, and the pause before each attempt."""
    log = []
    for _ in range(attempts):
        pause, server = pool.retry_delay, pool.select()
        if server is None:
            break
        log.append((server.host, pause))
        pool.failed(server, OSError("refused"))
    return log


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("nats://demo.nats.io:4333", ("demo.nats.io", 4333, False, None, None, None)),
        ("nats://demo.nats.io", ("demo.nats.io", 4222, False, None, None, None)),
        ("demo.nats.io", ("demo.nats.io", 4222, False, None, None, None)),
        ("localhost:5", ("localhost", 5, False, None, None, None)),
        ("localhost:", ("localhost", 4222, False, None, None, None)),
        ("NATS://LocalHost/", ("localhost", 4222, False, None, None, None)),
        ("tls://h:65535", ("h", 65535, True, None, None, None)),
        ("nats://[::1]:4223", ("::1", 4223, False, None, None, None)),
        ("[0:0::1]", ("::1", 4222, False, None, None, None)),
        ("nats://[fe80::1%25eth0]", ("fe80::1%eth0", 4222, False, None, None, None)),
        ("nats://u:p@h", ("h", 4222, False, "u", "p", None)),
        ("u:p@h:1", ("h", 1, False, "u", "p", None)),
        ("nats://u:@h", ("h", 4222, False, "u", "", None)),
        ("nats://t0k@h", ("h", 4222, False, None, None, "t0k")),
        ("nats://@h", ("h", 4222, False, None, None, None)),
        ("nats://u%40x:p%2F%3A%2C@h", ("h", 4222, False, "u@x", "p/:,", None)),
        ("nats://u:p@ss@h", ("h", 4222, False, "u", "p@ss", None)),
        ("nats://u:a:b@[::1]:7", ("::1", 7, False, "u", "a:b", None)),
        ("my_svc.default.svc", ("my_svc.default.svc", 4222, False, None, None, None)),
    ],
)
def test_a_url_holds_every_part_that_connect_needs(
    url: str, expected: tuple[object, ...]
) -> None:
    s = parse_server(url)
    assert (s.host, s.port, s.tls, s.user, s.password, s.token) == expected


@pytest.mark.parametrize(
    "url", ["nats://u:1234,s3cret@h", "nats://u:1,s3,cret@h:1", "h,u:7,s3cret@h"]
)
def test_passwords_with_commas_are_rejected_but_not_shown(url: str) -> None:
    with pytest.raises(ConfigError, match="percent-encoded: `%2C`") as caught:
        parse_servers(url)
    assert "cret" not in str(caught.value)


def test_servers_with_passwords_may_follow_each_other() -> None:
    for urls in ("nats://u:p@a,nats://u:p@b", "u:p@a, u:p@b, c", "a,nats://u:p@b"):
        assert len(parse_servers(urls)) == urls.count(",") + 1


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("ws://u:s3cret@h#s3cret", "fragment"),
        ("wss://u:s3cret@h/a b?s3cret", "percent-encoded"),
        ("ws://u:s3cret@h/\u00fc?s3cret", "percent-encoded"),
        ("ws:///path?s3cret", "host"),
        ("ws://u:s3cret@h:0/s3cret", "port"),
        ("http://u:s3cret@h", "scheme"),
        ("redis://s3cret@h", "scheme"),
        ("nats:/u:s3cret@h", "scheme has to end with"),
        ("", "host"),
        ("nats://", "host"),
        ("nats://u:s3cret@", "host"),
        ("nats://u:s3cret@:4222", "host"),
        ("nats:///path", "path"),
        ("nats://u:s3cret@h/s3cret", "path"),
        ("nats://h?password=s3cret", "query"),
        ("nats://h#s3cret", "path"),
        ("nats://u:s3/cret@h", "percent-encoded"),
        ("nats://u:s3cret@h:0", "port"),
        ("nats://u:s3cret@h:65536", "port"),
        ("nats://u:s3cret", "port"),  # the first half of `u:s3cret,more@h`
        ("nats://h:-1", "port"),
        ("nats://h:٤", "port"),
        ("nats://:s3cret@h", "password without a user"),
        ("nats://u:s3cret%ff@h", "UTF-8"),
        ("nats://ho st", "host"),
        ("nats://h\r\n", "host"),
        ("::1", "brackets"),
        ("nats://u:s3cret@::1", "brackets"),
        ("nats://[::1", "IPv6"),
        ("nats://[::1]4222", "IPv6"),
        ("nats://[s3cret]", "IPv6"),
        ("u:p://s3cret@h", "percent-encoded"),
    ],
)
def test_an_invalid_url_is_rejected_without_its_secret(url: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        parse_server(url)
    if "[" not in url:
        assert "s3cret" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_a_server_never_shows_its_secrets() -> None:
    server = parse_server("tls://bob:s3cret@h")
    assert server.url == "tls://h:4222"
    assert repr(server) == "Server('tls://h:4222')"
    assert "s3cret" not in repr(make_pool(server, parse_server("nats://s3cret@g")))
    assert parse_server("nats://[::1]:1").url == "nats://[::1]:1"


@pytest.mark.parametrize(
    ("url", "port", "tls", "target", "shown"),
    [
        ("ws://h", 80, False, "/", "ws://h:80"),
        ("wss://H", 443, True, "/", "wss://h:443"),
        ("WS://u:p@h:1/", 1, False, "/", "ws://h:1"),
        ("wss://h/nats/a@b?token=s3cret", 443, True, None, "wss://h:443/nats/a@b"),
        ("ws://[::1]:9?x=s3cret", 9, False, "/?x=s3cret", "ws://[::1]:9"),
    ],
)
def test_websocket_urls_may_have_path_and_query(
    url: str, port: int, tls: bool, target: str | None, shown: str
) -> None:
    s = parse_server(url)
    assert (s.port, s.tls, s.websocket, s.url) == (port, tls, True, shown)
    assert s.target == (target or "/nats/a@b?token=s3cret")
    assert "s3cret" not in repr(s)


def test_servers_behind_one_proxy_differ_by_their_path() -> None:
    assert parse_server("ws://h/a") != parse_server("ws://h/b")
    assert len(parse_servers("ws://h/a,ws://h/b,wss://h:80/a")) == 2


@pytest.mark.parametrize(
    "urls", ["ws://a,nats://b", "tls://a,wss://b", ["a", "ws://b"]]
)
def test_websocket_is_for_all_servers_or_for_none(urls: Any) -> None:
    with pytest.raises(ConfigError, match="for all servers, or for none"):
        parse_servers(urls)


def test_servers_that_a_cluster_announces_are_websockets_too() -> None:
    given = parse_server("wss://u:p@ws.example:9/nats?k=v")
    pool = make_pool(given)
    pool.connected(given)
    [found] = pool.discover(["10.0.0.7:9"])
    assert (found.url, found.target) == ("wss://10.0.0.7:9/nats", "/nats?k=v")
    assert (found.user, found.tls_name) == ("u", "ws.example")


def test_a_pool_of_another_kind_ignores_announced_servers() -> None:
    before = parse_server("nats://a:1")
    pool = make_pool(before)
    pool.connected(before)
    pool.replace([parse_server("ws://b:2")])
    assert pool.discover(["c:3"]) == []
    assert [server.url for server in pool.servers] == ["ws://b:2"]


def test_servers_are_equal_by_host_and_port() -> None:
    assert parse_server("nats://u:p@H:1") == parse_server("tls://h:1")
    assert hash(parse_server("nats://u:p@H:1")) == hash(parse_server("tls://h:1"))
    assert parse_server("h:1") != parse_server("h:2")
    assert parse_server("h:1") != "h:1"


def test_a_server_takes_its_secrets_nowhere() -> None:
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        with pytest.raises(TypeError, match="secrets"):
            pickle.dumps(A, protocol)


@pytest.mark.parametrize(
    ("urls", "hosts"),
    [
        ("a", ["a"]),
        ("nats://a, tls://b:1 ,c,", ["a", "b", "c"]),
        (["a", "nats://b"], ["a", "b"]),
        (("a,b", "c"), ["a", "b", "c"]),
        ("a,nats://u:p@a:4222,A", ["a"]),
    ],
)
def test_servers_come_in_strings_and_lists(
    urls: str | list[str], hosts: list[str]
) -> None:
    assert [server.host for server in parse_servers(urls)] == hosts


@pytest.mark.parametrize(
    ("urls", "kind"),
    [(None, "NoneType"), (7, "int"), (b"nats://h", "bytes"), (["h", 7], "int")],
)
def test_anything_but_urls_is_rejected_naming_the_type(urls: Any, kind: str) -> None:
    with pytest.raises(ConfigError, match=f"servers .*, not {kind}"):
        parse_servers(urls)


@pytest.mark.parametrize("urls", ["", " , ", [], [""], [b"nats://a"]])
def test_no_server_at_all_is_an_error(urls: Any) -> None:
    with pytest.raises(ConfigError):
        parse_servers(urls)


def test_the_order_given_is_kept_unless_shuffled() -> None:
    servers = [ServerAddress(f"s{n}") for n in range(20)]
    assert make_pool(*servers).servers == servers
    shuffled = make_pool(*servers, randomize=True).servers
    assert shuffled != servers
    assert sorted(s.host for s in shuffled) == sorted(s.host for s in servers)
    # with the same random numbers
    assert shuffled == make_pool(*servers, randomize=True).servers
    firsts = {
        make_pool(A, B, C, randomize=True, rng=random.Random(n)).servers[0].host
        for n in range(30)
    }
    assert firsts == {"a", "b", "c"}


def test_a_first_connect_tries_every_server_before_pausing() -> None:
    full = RetryDelay(1, False)
    assert run(make_pool(A, B, C), 5) == [
        ("a", None), ("b", None), ("c", None), ("a", full), ("b", None),
    ]  # fmt: skip


def test_after_a_loss_each_round_has_one_pause() -> None:
    pool = make_pool(A, B, C)
    pool.connected(A)
    pool.lost()
    assert run(pool, 7) == [
        ("b", None),
        ("c", None),
        ("a", RetryDelay(1, False)),
        ("b", None),
        ("c", None),
        ("a", RetryDelay(2, False)),
        ("b", None),
    ]


def test_a_single_server_first_waits_only_briefly() -> None:
    pool = make_pool(A)
    pool.connected(A)
    pool.lost()
    pauses = [pause for _, pause in run(pool, 3)]
    assert pauses == [RetryDelay(1, True), RetryDelay(2, False), RetryDelay(3, False)]


def test_servers_lost_again_immediately_are_tried_in_rounds() -> None:
    pool = make_pool(A, B)
    pool.connected(A)
    pool.lost()
    tried = []
    for _ in range(5):
        server = pool.select()
        assert server is not None
        tried.append((server.host, pool.retry_delay))
        pool.connected(server)
        pool.lost(again=True)
    assert tried == [
        ("b", None),
        ("a", RetryDelay(1, False)),
        ("b", None),
        ("a", RetryDelay(2, False)),
        ("b", None),
    ]


def test_a_candidate_stays_until_it_is_reported_on() -> None:
    pool = make_pool(A, B)
    assert pool.select() == pool.select() == A
    pool.failed(A, OSError())
    assert pool.select() == B
    pool.connected(B)
    assert pool.current == B
    assert (
        repr(pool)
        == "<ServerPool [nats://b:4222 current, nats://a:4222 1 failed] 0 out>"
    )


@pytest.mark.parametrize(
    ("max_reconnects", "attempts"),
    [(0, ["b", "c"]), (1, ["b", "c", "a"]), (2, ["b", "c", "a", "b", "c", "a"])],
)
def test_each_server_has_max_reconnects_attempts(
    max_reconnects: int, attempts: list[str]
) -> None:
    pool = make_pool(A, B, C, max_reconnects=max_reconnects)
    pool.connected(A)
    pool.lost()
    assert [host for host, _ in run(pool, 100)] == attempts
    assert pool.select() is None
    assert repr(pool) == "<ServerPool [] 3 out>"


def test_minus_one_is_for_ever() -> None:
    pool = make_pool(A, max_reconnects=-1)
    assert len(run(pool, 1000)) == 1000


def test_even_without_reconnects_a_first_connect_tries_all() -> None:
    assert [h for h, _ in run(make_pool(A, B, max_reconnects=0), 9)] == ["a", "b"]


def test_a_successful_connect_resets_the_failed_attempts() -> None:
    pool = make_pool(A, max_reconnects=3)
    run(pool, 2)
    pool.connected(A)
    assert pool.errors() == {}
    pool.lost()
    assert len(run(pool, 100)) == 3


def test_errors_of_discarded_servers_are_kept_by_url() -> None:
    pool = make_pool(A, parse_server("tls://u:s3cret@b"), max_reconnects=1)
    errors = [OSError("one"), OSError("two")]
    for error in errors:
        server = pool.select()
        assert server is not None
        pool.failed(server, error)
    assert pool.select() is None
    assert pool.errors() == {"nats://a:4222": errors[0], "tls://b:4222": errors[1]}


def test_the_same_rejection_twice_puts_a_server_out() -> None:
    pool = make_pool(A, B)
    for expected in (A, B, A, B):
        assert pool.select() == expected
        error = (
            AuthenticationError(REFUSAL) if expected == A else OSError("unreachable")
        )
        pool.failed(expected, error)
    assert pool.servers == [B]
    assert list(pool.auth_failures) == ["nats://a:4222"]
    assert isinstance(pool.errors()["nats://a:4222"], AuthenticationError)


def test_a_rejection_outlasts_other_failures_but_no_success() -> None:
    pool = make_pool(A)
    pool.failed(A, AuthenticationError(REFUSAL))
    pool.connected(A)
    pool.lost(AuthenticationError("User Authentication Expired"))
    # a new rejection, perhaps of new credentials
    pool.failed(A, AuthenticationError(REFUSAL))
    pool.failed(A, OSError())
    assert pool.select() == A
    pool.failed(A, AuthenticationError(REFUSAL))
    assert pool.select() is None


def test_running_out_of_attempts_is_no_second_rejection() -> None:
    pool = make_pool(A, max_reconnects=1)
    pool.failed(A, AuthenticationError(REFUSAL))
    assert pool.select() is None
    assert pool.auth_failures == {}


def test_a_refused_server_is_forgiven_when_announced_again() -> None:
    pool = make_pool(A, B)
    for server in (A, B, A):
        pool.failed(server, AuthenticationError(REFUSAL))
    pool.connected(B)
    pool.discover(["a", "b"])
    assert pool.auth_failures == {}
    pool.lost()
    pool.failed(A, AuthenticationError(REFUSAL))
    assert A in pool.servers


def test_other_credentials_are_no_second_rejection() -> None:
    pool = make_pool(A)
    for credentials in (1, 2, 1, 2):
        pool.failed(A, AuthenticationError(REFUSAL), credentials)
    assert pool.select() == A
    pool.failed(A, AuthenticationError(REFUSAL), 2)
    assert pool.select() is None


def test_refused_credentials_get_the_whole_pause() -> None:
    pool = connected_pool(A)
    pool.lost(AuthenticationError("User Authentication Expired"))
    assert pool.retry_delay == RetryDelay(1, brief=False)


def test_rejections_are_retried_when_asked_for() -> None:
    pool = make_pool(A, ignore_auth_error_abort=True)
    for _ in range(10):
        pool.failed(A, AuthenticationError(REFUSAL))
    assert pool.select() == A
    assert pool.auth_failures == {}


def test_credentials_that_cannot_be_read_are_no_rejection() -> None:
    pool = make_pool(A)
    for _ in range(10):
        error = AuthenticationError("cannot read")
        error.__cause__ = FileNotFoundError()
        pool.failed(A, error)
    assert pool.select() == A


@pytest.mark.parametrize(
    "words", ["Authentication Timeout", "Failed Account Registration"]
)
def test_a_server_in_distress_is_no_rejection(words: str) -> None:
    pool = make_pool(A)
    for _ in range(10):
        pool.failed(A, AuthenticationError(words))
    assert pool.select() == A


def connected_pool(*servers: ServerAddress, **options: Any) -> ServerPool:
    pool = make_pool(*servers, **options)
    pool.connected(servers[0])
    return pool


def test_discovered_servers_join_at_the_end() -> None:
    pool = connected_pool(A, B)
    new = pool.discover(["a:4222", "10.0.0.1:4222", "[::1]:4222", "h:99999", "ws://x"])
    assert new == [ServerAddress("10.0.0.1"), ServerAddress("::1")]
    assert pool.servers == [A, B, *new]
    assert all(server.discovered for server in new)
    assert pool.discover(["a:4222", "10.0.0.1:4222", "[::1]:4222"]) == []


def test_servers_no_longer_announced_go_but_yours_stay() -> None:
    pool = connected_pool(A, B)
    pool.discover(["c", "d"])
    assert pool.discover([]) == []
    assert [s.host for s in pool.servers] == ["a", "b", "c", "d"]
    pool.discover(["d"])
    assert [s.host for s in pool.servers] == ["a", "b", "d"]
    assert pool.discover(["c"]) == []  # a restarted server, not a new one
    assert [s.host for s in pool.servers] == ["a", "b", "c"]


def test_the_current_server_stays_even_when_not_announced() -> None:
    pool = connected_pool(A)
    pool.discover(["b"])
    pool.lost()
    pool.connected(ServerAddress("b"))
    pool.discover(["c"])
    assert {s.host for s in pool.servers} == {"a", "b", "c"}


def test_discovery_can_be_ignored() -> None:
    pool = connected_pool(A, ignore_discovered=True)
    assert pool.discover(["b"]) == []
    assert pool.servers == [A]


def test_a_server_announced_again_keeps_its_given_form() -> None:
    b = parse_server("tls://u:p@b")
    pool = make_pool(b, A, max_reconnects=1)
    pool.failed(b, OSError())
    pool.connected(A)
    assert pool.servers == [A]
    assert pool.discover(["b:4222"]) == []
    back = pool.servers[1]
    assert (back.user, back.tls, back.discovered) == ("u", True, False)
    assert pool.errors() == {}


def test_discovered_servers_inherit_scheme_userinfo_and_certificate_name() -> None:
    source = parse_server("tls://u:p@nats.example.com")
    pool = connected_pool(source)
    pool.discover(["10.0.0.1:4222", "other.example.com", "v:q@10.0.0.2"])
    ip, named, own = pool.servers[1:]
    assert (ip.tls, ip.user, ip.password) == (True, "u", "p")
    assert ip.certificate_name == "nats.example.com"
    assert named.certificate_name == "other.example.com"
    assert (own.user, own.password) == ("v", "q")
    # The name is passed on from an address to the addresses that it announces.
    pool.lost()
    pool.connected(ip)
    (third,) = pool.discover(["10.0.0.3:4222"])
    assert third.certificate_name == "nats.example.com"


def test_an_address_learnt_from_another_verifies_as_itself() -> None:
    pool = connected_pool(parse_server("tls://10.0.0.1"))
    (second,) = pool.discover(["10.0.0.2:4222"])
    assert second.certificate_name == "10.0.0.2"


def test_new_servers_are_shuffled_after_the_current_one() -> None:
    urls = [f"s{n}:4222" for n in range(20)]
    pool = connected_pool(A, randomize=True)
    pool.discover(urls)
    assert pool.servers[0] == A
    assert [s.host for s in pool.servers[1:]] != [u.split(":")[0] for u in urls]
    assert len(pool.servers) == 21


def test_a_server_discovered_mid_round_delays_the_pause() -> None:
    pool = connected_pool(A, B)
    pool.lost()
    pool.discover(["c"])
    assert run(pool, 3) == [("b", None), ("a", None), ("c", RetryDelay(1, False))]


@pytest.mark.parametrize(
    ("pause", "tls", "low", "high"),
    [
        (None, True, 0.0, 0.0),
        (RetryDelay(1, False), False, 2.0, 2.1),
        (RetryDelay(9, False), True, 2.0, 3.0),
        (RetryDelay(1, True), False, 0.0, 0.1),
        (RetryDelay(1, True), True, 0.0, 1.0),
    ],
)
def test_a_delay_is_the_wait_plus_jitter(
    pause: RetryDelay | None, tls: bool, low: float, high: float
) -> None:
    backoff = Backoff(random.Random(7))
    delays = [backoff.delay(pause, tls=tls) for _ in range(200)]
    assert low <= min(delays) <= max(delays) <= high
    if high > low:
        assert max(delays) - min(delays) > 0.8 * (high - low)


def test_a_rule_of_yours_replaces_the_delay() -> None:
    backoff = Backoff(random.Random(7), reconnect_delay=lambda attempt: attempt * 1.5)
    assert backoff.delay(None, tls=False) == 0.0
    assert backoff.delay(RetryDelay(1, True), tls=False) == 1.5
    assert backoff.delay(RetryDelay(4, False), tls=True) == 6.0


@pytest.mark.parametrize(
    ("answer", "low", "high"),
    [(-1.0, 0.0, 0.0), (float("nan"), 2.0, 2.1), (float("inf"), 2.0, 2.1)],
)
def test_a_rule_of_yours_cannot_stop_reconnecting(
    answer: float, low: float, high: float
) -> None:
    backoff = Backoff(random.Random(7), reconnect_delay=lambda _: answer)
    assert low <= backoff.delay(RetryDelay(1, False), tls=False) <= high
