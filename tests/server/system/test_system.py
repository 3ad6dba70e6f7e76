"""Tests of `nc.system()`, which queries and controls the servers from the system account."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import jsync
from jsync import errors

from ...support.connections import works
from ...support.servers import wait_for
from ...support.threads import Recorder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jsync.server import LocalServer
    from jsync.system import System

    from ...conftest import StartServer

ACCOUNTS = """
jetstream: enabled
accounts {
  SYS { users: [{user: admin, password: x}] }
  APP { jetstream: enabled, users: [{user: app, password: x}] }
}
system_account: SYS
max_connections: %d
"""


@pytest.fixture
def one(own_server: StartServer) -> LocalServer:
    return own_server(config=ACCOUNTS % 100)


@pytest.fixture
def system(one: LocalServer) -> Iterator[System]:
    with jsync.connect(one.url, user="admin", password="x") as nc:
        yield nc.system(timeout=30)


@pytest.fixture
def app(one: LocalServer) -> Iterator[jsync.Connection]:
    with jsync.connect(one.url, user="app", password="x", name="the app") as nc:
        yield nc


def test_every_endpoint_answers_with_its_type(
    system: System, app: jsync.Connection
) -> None:
    app.jetstream().create_stream(name="ORDERS")
    (server,) = system.servers()
    assert (server.name, server.id) == (server.info.name, app.server_info.server_id)
    for target in (
        {reply.server.id: reply.data for reply in system.varz()}[server.id],
        server.varz(),
    ):
        assert target.version == app.server_info.version
        assert target.max_connections == 100
        assert target.ping_interval == 120
        assert target.system_account == "SYS"
        assert "gomaxprocs" in target.extra
    assert server.ping().active_servers == 1
    assert server.idz().id == server.id
    assert server.healthz().ok
    assert server.healthz(js_enabled_only=True, details=True).ok
    assert server.healthz(js_meta_only=True).ok
    assert server.jsz(accounts=True).streams == 1
    assert (server.jsz(account="APP").account_details or [{}])[0]["name"] == "APP"
    assert server.subsz(subscriptions=True, account="APP").num_subscriptions > 0
    assert server.routez().num_routes == 0
    assert server.leafz().leafnodes == 0
    assert server.gatewayz().port == 0
    assert "APP" in (server.accountz().accounts or [])
    assert server.accountz(account="APP").account_detail
    for page in (server.connz(auth=True), system.connz(auth=True)[0].data):
        (mine,) = [each for each in page.connections if each.name == "the app"]
        assert (mine.cid, mine.account) == (app.client_id, "APP")


def test_accounts_are_told_with_their_use(
    system: System, app: jsync.Connection
) -> None:
    (server,) = system.servers()
    for told in (server.accstatz(), system.accstatz()[0].data):
        used = {each.acc: each for each in told.account_statz}
        assert used.keys() == {"APP", "SYS"}
        assert used["APP"].conns == 1
        assert used["SYS"].received.msgs > 0
    for told in (
        server.accstatz(include_unused=True),
        system.accstatz(include_unused=True)[0].data,
    ):
        assert "$G" in {each.acc for each in told.account_statz}
    assert server.accstatz(accounts=["$G"]).account_statz == []
    (only,) = system.accstatz(accounts=["APP"])
    assert [each.name for each in only.data.account_statz] == ["APP"]
    # Servers tell everyone of the use of their own account.
    (own,) = app.system().accstatz()
    assert [each.acc for each in own.data.account_statz] == ["APP"]


def test_the_inside_of_a_server_is_told(system: System) -> None:
    (server,) = system.servers()
    for inside in (server.expvarz(), system.expvarz()[0].data):
        assert any("nats-server" in word for word in inside.cmdline)
        assert inside.memstats["HeapAlloc"] > 0
    for queues in (server.ipqueuesz(all=True), system.ipqueuesz(all=True)[0].data):
        assert queues.queues["System recvQ"].pending >= 0
    few = server.ipqueuesz(all=True, filter="sendQ").queues
    assert list(few) == ["System sendQ"]
    # The groups of Raft are in a cluster alone.
    assert server.raftz().groups == system.raftz()[0].data.groups == {}


def test_profiles_are_files_for_pprof(system: System) -> None:
    (server,) = system.servers()
    for found in (server.profilez("heap"), system.profilez("heap")[0].data):
        assert found.profile.startswith(b"\x1f\x8b")  # gzip
    text = server.profilez("goroutine", debug=1).profile
    assert text.startswith(b"goroutine profile: total ")
    assert server.profilez("cpu", duration=0.1).profile
    for name, duration, words in (
        ("no-such", None, 'Profile "no-such" not found'),
        ("cpu", None, "Duration 0s should be between"),
        ("cpu", 60, "should be between 0s and 15s"),
    ):
        with pytest.raises(errors.SystemRequestError, match=words) as raised:
            server.profilez(name, duration=duration)
        assert raised.value.server == server.name
    with pytest.raises(errors.ConfigError, match="debug"):
        server.profilez("heap", debug=-1)


def test_servers_are_found_by_name_or_id(system: System) -> None:
    (server,) = system.servers()
    assert system.server(server.id).name == server.name
    with pytest.raises(errors.ServerNotFoundError, match=f"known: {server.name}"):
        system.server("nowhere")


def test_a_filter_leaves_servers_out(one: LocalServer) -> None:
    with jsync.connect(one.url, user="admin", password="x") as nc:
        name = nc.server_info.server_name
        assert len(nc.system(server_name=name, exact_match=True).varz()) == 1
        assert nc.system(server_name="nowhere", timeout=0.3).varz() == []
        with pytest.raises(TypeError, match="did you mean cluster"):
            nc.system(clutser="EU")  # type: ignore[call-arg]
        with pytest.raises(TypeError, match="'subs' is not an option of connz"):
            nc.system().connz(subs=True)  # type: ignore[call-arg]


def test_a_bad_answer_hides_no_other_server(one: LocalServer) -> None:
    told = Recorder()
    options: Any = {"user": "admin", "password": "x"}
    with (
        jsync.connect(one.url, **options, on_error=told) as nc,
        jsync.connect(one.url, **options) as other,
    ):
        bad = (
            b"garbage",
            b'{"server": {"name": "other"}, "error": {"code": 400}}',
        )

        def answer(request: jsync.Msg) -> None:
            for data in bad:
                other.publish(request.reply or "", data)

        for endpoint in ("VARZ", "HEALTHZ"):
            other.subscribe(f"$SYS.REQ.SERVER.PING.{endpoint}", callback=answer)
        other.flush()
        (found,) = nc.system().varz()
        assert found.data.version == nc.server_info.version
        kinds = [type(told.get()) for _ in bad]
        assert kinds == [errors.JetStreamError, errors.SystemRequestError]
        with pytest.raises(errors.Error, match="not a reply"):
            nc.system(server_name="nowhere").healthz()


def test_a_user_of_another_account_gets_advice(app: jsync.Connection) -> None:
    with pytest.raises(errors.SystemAccountError, match="user of the system account"):
        app.system().varz()
    with pytest.raises(errors.SystemAccountError):
        app.system().servers()
    # Servers tell any user about the connections of that user's account.
    (page,) = app.system().connz()
    assert [each.cid for each in page.data.connections] == [app.client_id]


def test_a_client_is_kicked_and_comes_back(
    system: System, app: jsync.Connection
) -> None:
    (server,) = system.servers()
    before = app.client_id
    with app.events() as events:
        server.kick(before)
        assert isinstance(events.next(60), jsync.Disconnected)
        assert isinstance(events.next(60), jsync.Reconnected)
    assert app.client_id != before
    assert works(app)
    with pytest.raises(errors.SystemRequestError) as raised:
        server.kick(before)
    assert raised.value.server == server.name


def test_a_client_is_told_to_move(system: System, app: jsync.Connection) -> None:
    (server,) = system.servers()
    with app.events() as events:
        server.lame_duck(app.client_id)
        assert isinstance(events.next(60), jsync.LameDuck)


def test_a_reload_reads_the_configuration_again(own_server: StartServer) -> None:
    server = own_server(config=ACCOUNTS % 100)
    with jsync.connect(server.url, user="admin", password="x") as nc:
        (one,) = nc.system(timeout=30).servers()
        path = Path(str(server._directory)) / "nats.conf"
        text = path.read_text()
        path.write_text(text.replace("max_connections: 100", "max_connections: 200"))
        one.reload()
        assert one.varz().max_connections == 200
        path.write_text("max_connections: nonsense")
        with pytest.raises(errors.SystemRequestError):
            one.reload()
        assert one.varz().max_connections == 200


def test_a_server_that_has_stopped_is_not_found(own_server: StartServer) -> None:
    server = own_server(config=ACCOUNTS % 100)
    with jsync.connect(server.url, user="admin", password="x") as nc:
        (one,) = nc.system(timeout=30).servers()
        server.restart()
        wait_for(lambda: nc.is_connected)
        with pytest.raises(errors.ServerNotFoundError, match="has stopped"):
            one.varz()


def test_a_single_server_has_no_leader_to_replace(
    system: System, app: jsync.Connection
) -> None:
    with pytest.raises(errors.APIError, match="not in a cluster"):
        system.meta_leader_step_down()
    with pytest.raises(errors.APIError, match="not in a cluster"):
        system.remove_server("node-9")
    with pytest.raises(errors.SystemAccountError):
        app.system().meta_leader_step_down()
    stream = app.jetstream().create_stream(name="ORDERS")
    with pytest.raises(errors.APIError):
        stream.leader_step_down()
