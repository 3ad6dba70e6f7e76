"""Tests of the end of a service: stop, drain, close, a fork, Ctrl-C and a lost permission."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest

import jsync
from jsync import errors

from ...support.servers import wait_for
from ...support.threads import LONG, Recorder, Thread
from .support import Slow

if TYPE_CHECKING:
    from jsync.server import LocalServer

    from ...conftest import StartServer
    from ...support.connection_faults import Events

pytestmark = [pytest.mark.server, pytest.mark.quick]


def test_leaving_stops_it_and_calls_on_done_once(
    nc: jsync.Connection, host: jsync.Connection, unique: str
) -> None:
    done = Recorder()
    with host.service(unique, "1.0.0", on_done=done) as service:
        service.endpoint("echo", subject=unique)(lambda request: request.data)
        host.flush()
        assert nc.request(unique, b"x").data == b"x"
        assert service.state.value == "running"
    assert service.state.value == "stopped"
    assert done.get() is service
    service.stop()
    assert done.waiting == 0
    assert service.wait()
    assert service.error is None
    for subject in (unique, f"$SRV.PING.{unique}"):
        with pytest.raises(errors.NoRespondersError):
            nc.request(subject)
    with pytest.raises(errors.SubscriptionClosedError, match="cannot add an endpoint"):
        service.endpoint("late", subject=unique)(lambda request: b"")
    assert host.stats().subscriptions == 0


def test_stop_finishes_all_that_has_come(
    nc: jsync.Connection, host: jsync.Connection, service: jsync.Service, unique: str
) -> None:
    slow = Slow()
    service.endpoint("slow", subject=unique, workers=2)(slow)
    host.flush()
    calls = [Thread(nc.request, unique, b"%d" % number) for number in range(20)]
    slow.wait_begun(2)
    wait_for(lambda: host.stats().pending_messages == 18)
    ending = Thread(service.stop)
    ending.wait_until_blocked()
    assert service.state.value == "stopping"
    slow.go.set()
    assert {call.result().data for call in calls} == {b"%d" % n for n in range(20)}
    ending.result()
    assert service.stats().endpoints[0].num_requests == 20


@pytest.mark.parametrize("number", range(8))
def test_requests_during_stop_get_answers_or_no_responders(
    nc: jsync.Connection,
    host: jsync.Connection,
    service: jsync.Service,
    unique: str,
    number: int,
) -> None:
    service.endpoint("echo", subject=unique, workers=4)(lambda request: request.data)
    host.flush()
    answered: list[int] = []

    def ask() -> None:
        for number in range(1_000_000):
            try:
                nc.request(unique, timeout=LONG)
            except errors.NoRespondersError:
                return
            answered.append(number)

    calls = [Thread(ask) for _ in range(8)]
    wait_for(lambda: len(answered) > 200)
    service.stop()
    for call in calls:
        call.result()
    assert service.stats().endpoints[0].num_requests == len(answered)


def test_stop_refuses_the_requests_behind_a_stuck_handler(
    nc: jsync.Connection, host: jsync.Connection, unique: str
) -> None:
    done = Recorder()
    service = host.service(unique, "1.0.0", on_done=done)
    slow = Slow()
    service.endpoint("slow", subject=unique)(slow)
    host.flush()
    first = Thread(nc.request, unique, b"begun")
    slow.wait_begun()
    second = Thread(nc.services.call, unique)
    wait_for(lambda: host.stats().pending_messages == 1)
    with pytest.raises(errors.DrainTimeoutError, match="1 requests were refused"):
        service.stop(timeout=0.1)
    refused = second.error()
    assert isinstance(refused, errors.ServiceError)
    assert refused.code == 503
    assert service.state.value == "stopping"
    slow.go.set()
    assert first.result().data == b"begun"
    assert done.get() is service
    assert service.wait(LONG)
    service.stop()


def test_a_handler_may_stop_its_service(
    nc: jsync.Connection, host: jsync.Connection, service: jsync.Service, unique: str
) -> None:
    waited: list[type[BaseException]] = []

    @service.endpoint("end", subject=unique, workers=2)
    def end(request: jsync.Request) -> bytes:
        try:
            service.wait()
        except errors.BlockingCallError as error:
            waited.append(type(error))
        service.stop()
        return b"ended"

    host.flush()
    assert nc.request(unique, timeout=LONG).data == b"ended"
    assert service.wait(LONG)
    assert waited == [errors.BlockingCallError]


def test_wait_raises_the_error_that_stopped_the_service(service: jsync.Service) -> None:
    why = RuntimeError("no database")
    service.stop(why)
    assert service.error is why
    with pytest.raises(RuntimeError, match="no database"):
        service.wait()


def test_wait_gives_up_after_its_timeout(service: jsync.Service) -> None:
    assert service.wait(0.01) is False
    waiting = Thread(service.wait)
    waiting.wait_until_blocked()
    service.stop()
    assert waiting.result() is True


def test_a_drain_of_the_connection_drains_the_service(
    nc: jsync.Connection, server: LocalServer, unique: str
) -> None:
    done, slow = Recorder(), Slow()
    host = jsync.connect(server.url)
    service = host.service(unique, "1.0.0", on_done=done)
    service.endpoint("slow", subject=unique)(slow)
    host.flush()
    calls = [Thread(nc.request, unique, b"%d" % number) for number in range(3)]
    slow.wait_begun()
    wait_for(lambda: host.stats().pending_messages == 2)
    draining = Thread(host.drain)
    draining.wait_until_blocked()
    slow.go.set()
    assert {call.result().data for call in calls} == {b"0", b"1", b"2"}
    draining.result()
    assert done.get() is service
    assert service.wait()


def test_a_closed_connection_ends_services_without_starting_handlers(
    nc: jsync.Connection, server: LocalServer, unique: str, events: Events
) -> None:
    done, slow = Recorder(), Slow()
    host = jsync.connect(server.url, **events.callbacks)
    service = host.service(unique, "1.0.0", on_done=done)
    service.endpoint("slow", subject=unique)(slow)
    host.flush()
    nc.publish(unique, b"begun")
    nc.publish(unique, b"not begun")
    slow.wait_begun()
    wait_for(lambda: host.stats().pending_messages == 1)
    host.close()
    slow.go.set()
    assert done.get() is service
    with pytest.raises(errors.ConnectionClosedError):
        service.wait(LONG)
    assert not slow.begun.acquire(blocking=False)
    assert "1 requests were not begun" in str(events.wait("error"))
    service.stop()


def test_the_service_stops_and_the_bodys_exception_passes(
    host: jsync.Connection, unique: str
) -> None:
    service = host.service(unique, "1.0.0")

    def body() -> None:
        with service:
            service.endpoint("echo", subject=unique)(lambda request: request.data)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as raised:
        body()
    assert service.state.value == "stopped"
    assert not hasattr(raised.value, "__notes__")


def test_a_stuck_handler_masks_no_body_exception(
    nc: jsync.Connection, server: LocalServer, unique: str
) -> None:
    slow = Slow()
    host = jsync.connect(server.url, drain_timeout=0.1)
    service = host.service(unique, "1.0.0")

    def body() -> None:
        with host, service:
            service.endpoint("slow", subject=unique)(slow)
            host.flush()
            nc.publish(unique)
            slow.wait_begun()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as raised:
        body()
    slow.go.set()
    assert "has not returned within 0.1 s" in raised.value.__notes__[0]
    wait_for(lambda: service.state.value == "stopped")


@pytest.mark.parametrize("denied", ["orders.>", "$SRV.INFO.>"])
def test_a_forbidden_subject_stops_it_and_wait_raises(
    own_server: StartServer, denied: str, events: Events
) -> None:
    server = own_server(
        config="authorization { users: [{user: a, password: b, permissions: "
        f'{{publish: ">", subscribe: {{deny: ["{denied}"]}}}}}}] }}'
    )
    with jsync.connect(server.url, user="a", password="b", **events.callbacks) as host:
        service = host.service("orders", "1.0.0")
        # The service may have stopped already.
        with contextlib.suppress(errors.SubscriptionClosedError):
            service.endpoint("total", subject="orders.total")(lambda request: b"")
        with pytest.raises(errors.PermissionsError):
            service.wait(LONG)
        assert service.state.value == "stopped"
        assert isinstance(events.wait("error"), errors.PermissionsError)
        assert host.stats().subscriptions == 0


def test_no_service_begins_on_a_closed_connection(server: LocalServer) -> None:
    with jsync.connect(server.url) as host:
        pass
    with pytest.raises(errors.ConnectionClosedError):
        host.service("orders", "1.0.0")


def test_stops_from_many_threads_wait_for_one_end(
    nc: jsync.Connection, host: jsync.Connection, unique: str
) -> None:
    done, slow = Recorder(), Slow()
    service = host.service(unique, "1.0.0", on_done=done)
    service.endpoint("slow", subject=unique)(slow)
    host.flush()
    nc.publish(unique)
    slow.wait_begun()
    stops = [Thread(service.stop) for _ in range(4)]
    for stop in stops:
        stop.wait_until_blocked()
    slow.go.set()
    for stop in stops:
        stop.result()
    assert done.get() is service
    assert done.waiting == 0


def test_an_on_done_that_raises_is_reported(
    host: jsync.Connection, unique: str, events: Events
) -> None:
    def fail(service: jsync.Service) -> None:
        raise ValueError("odd")

    with host.service(unique, "1.0.0", on_done=fail) as service:
        pass
    assert service.state.value == "stopped"
    assert isinstance(events.wait("error"), errors.CallbackError)


def test_services_on_one_connection_end_each_for_itself(
    nc: jsync.Connection, host: jsync.Connection, unique: str
) -> None:
    with host.service(f"{unique}-a", "1.0.0") as a:
        a.endpoint("a", subject=f"{unique}.a")(lambda request: b"a")
        with host.service(f"{unique}-b", "1.0.0") as b:
            b.endpoint("b", subject=f"{unique}.b")(lambda request: b"b")
            host.flush()
            assert nc.request(f"{unique}.b").data == b"b"
        assert nc.request(f"{unique}.a").data == b"a"


def test_on_done_cannot_wait_for_its_own_service(
    host: jsync.Connection, unique: str
) -> None:
    raised = Recorder()

    def done(service: jsync.Service) -> None:
        service.stop(timeout=LONG)  # returns at once
        try:
            service.wait(LONG)
        except errors.BlockingCallError as error:
            raised(error)

    service = host.service(unique, "1.0.0", on_done=done)
    Thread(service.stop).result()
    assert "on_done" in str(raised.get())
    assert service.wait(0)


def test_ctrl_c_while_a_service_begins_leaves_nothing(
    nc: jsync.Connection,
    host: jsync.Connection,
    unique: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupt(_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(host._session, "register_drainable", interrupt)
        with pytest.raises(KeyboardInterrupt):
            host.service(unique, "1.0.0")
    assert host.stats().subscriptions == 0
    assert list(nc.services.ping(unique, timeout=0.2)) == []
