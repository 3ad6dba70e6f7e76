"""Tests of PING, INFO and STATS: exact replies, also while handlers are busy."""

from __future__ import annotations

import gc
import threading
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

import jsync
from jsync import errors

from ...support.servers import wait_for
from ...support.threads import LONG, Thread
from .support import DEEP, Order, Slow, Total

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...support.connection_faults import Events

pytestmark = [pytest.mark.server, pytest.mark.quick]

VERBS = ["PING", "INFO", "STATS"]


def asked(nc: jsync.Connection, subject: str) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.json.decode(nc.request(subject, timeout=LONG).data)
    return found


@pytest.mark.parametrize("verb", VERBS)
def test_each_verb_is_answered_on_three_subjects(
    nc: jsync.Connection,
    host: jsync.Connection,
    service: jsync.Service,
    unique: str,
    verb: str,
) -> None:
    host.flush()
    for subject in (f"$SRV.{verb}.{unique}", f"$SRV.{verb}.{unique}.{service.id}"):
        answer = asked(nc, subject)
        assert answer["type"] == f"io.nats.micro.v1.{verb.lower()}_response"
        assert (answer["name"], answer["id"]) == (unique, service.id)
        assert (answer["version"], answer["metadata"]) == ("1.2.0", {})
    every = nc.request_many(f"$SRV.{verb}", timeout=LONG, stall=1)
    assert service.id in {msgspec.json.decode(msg.data)["id"] for msg in every}


def test_two_instances_have_two_ids(host: jsync.Connection, unique: str) -> None:
    with host.service(unique, "1.0.0") as a, host.service(unique, "1.0.0") as b:
        assert a.id != b.id


def test_overlong_service_names_are_rejected_without_a_disconnect(
    host: jsync.Connection,
) -> None:
    with pytest.raises(errors.ConfigError, match=r"the name of a service: .*longer"):
        host.service("a" * 4000, "1.0.0")
    host.flush()
    assert host.stats().reconnects == 0
    assert host.last_error is None


@pytest.mark.parametrize("verb", VERBS)
def test_a_prefix_of_ones_own_keeps_its_case(
    nc: jsync.Connection, host: jsync.Connection, unique: str, verb: str
) -> None:
    prefix = f"{unique}.Far"
    with host.service(unique, "1.0.0", prefix=prefix) as service:
        host.flush()
        assert asked(nc, f"{prefix}.{verb}.{unique}")["id"] == service.id
        with pytest.raises(errors.NoRespondersError):
            nc.request(f"$SRV.{verb}.{unique}")
        ask = getattr(nc.services, verb.lower())
        assert [found.id for found in ask(prefix=prefix, stall=1)] == [service.id]
        assert ask(unique) == []


def test_info_shows_the_arguments_of_the_service(
    nc: jsync.Connection, host: jsync.Connection, unique: str
) -> None:
    metadata = {"region": "eu"}
    with host.service(
        unique, "1.0.0-rc.1", description="Orders of shops", metadata=metadata
    ) as service:
        more = {"scope": "shop"}

        @service.endpoint("total", subject=f"{unique}.total", metadata=more)
        def total(order: Order) -> Total:
            return Total(order.quantity)

        metadata["region"] = more["scope"] = "changed"
        host.flush()
        info = asked(nc, f"$SRV.INFO.{unique}")
        assert nc.services.info(unique) == [service.info()]
    (endpoint,) = info.pop("endpoints")
    assert info == {
        "type": "io.nats.micro.v1.info_response",
        "name": unique,
        "id": service.id,
        "version": "1.0.0-rc.1",
        "metadata": {"region": "eu"},
        "description": "Orders of shops",
    }
    schema = msgspec.json.decode(endpoint["metadata"].pop("request_schema"))
    assert "quantity" in schema["$defs"]["Order"]["properties"]
    schema = msgspec.json.decode(endpoint["metadata"].pop("response_schema"))
    assert "cents" in schema["$defs"]["Total"]["properties"]
    assert endpoint == {
        "name": "total",
        "subject": f"{unique}.total",
        "queue_group": "q",
        "metadata": {"scope": "shop"},
    }


def test_an_endpoint_is_added_to_a_running_service(
    nc: jsync.Connection, host: jsync.Connection, service: jsync.Service, unique: str
) -> None:
    host.flush()
    assert asked(nc, f"$SRV.INFO.{unique}")["endpoints"] == []
    service.endpoint("late", subject=unique)(lambda request: b"late")
    service.endpoint("late", subject=f"{unique}.too")(lambda request: b"same name")
    host.flush()
    assert nc.request(unique).data == b"late"
    assert nc.request(f"{unique}.too").data == b"same name"
    assert len(asked(nc, f"$SRV.INFO.{unique}")["endpoints"]) == 2


@pytest.mark.parametrize("workers", [1, 2])
def test_all_verbs_are_answered_with_every_handler_busy(
    nc: jsync.Connection,
    host: jsync.Connection,
    service: jsync.Service,
    unique: str,
    workers: int,
) -> None:
    slow = Slow()
    service.endpoint("slow", subject=unique, workers=workers)(slow)
    host.flush()
    calls = [Thread(nc.request, unique, b"%d" % number) for number in range(5)]
    slow.wait_begun(workers)
    for verb in VERBS:
        assert asked(nc, f"$SRV.{verb}.{unique}")["id"] == service.id
    slow.go.set()
    assert {call.result().data for call in calls} == {b"%d" % n for n in range(5)}


def test_each_of_many_questions_is_answered(
    nc: jsync.Connection, host: jsync.Connection, service: jsync.Service, unique: str
) -> None:
    service.endpoint("echo", subject=unique)(lambda request: request.data)
    host.flush()

    def ask(verb: str) -> None:
        for _ in range(200):
            assert asked(nc, f"$SRV.{verb}.{unique}")["id"] == service.id
            nc.request(unique, timeout=LONG)

    for asking in [Thread(ask, verb) for verb in VERBS * 2]:
        asking.result()
    assert service.stats().endpoints[0].num_requests == 1200


# Statistics -----------------------------------------------------------------------------


def test_stats_are_exact_once_the_answers_have_come(
    nc: jsync.Connection, host: jsync.Connection, service: jsync.Service, unique: str
) -> None:
    @service.endpoint("odd", subject=unique, workers=8)
    def odd(request: jsync.Request) -> bytes:
        number = int(request.data)
        if number % 4 == 1:
            raise errors.ServiceError(400, f"odd {number}")
        if number % 4 == 3:
            request.error(409, f"odd {number}")
        return b""

    host.flush()

    def ask(begin: int) -> None:
        for number in range(begin, begin + 100):
            nc.request(unique, b"%d" % number)

    for call in [Thread(ask, begin) for begin in range(0, 800, 100)]:
        call.result()
    (stats,) = asked(nc, f"$SRV.STATS.{unique}")["endpoints"]
    assert (stats["num_requests"], stats["num_errors"]) == (800, 400)
    assert stats["last_error"].split(":")[0] in {"400", "409"}
    assert stats["processing_time"] > 0
    assert stats["average_processing_time"] == stats["processing_time"] // 800


def test_each_request_is_counted_before_its_answer_leaves(
    nc: jsync.Connection, host: jsync.Connection, service: jsync.Service, unique: str
) -> None:
    service.endpoint("echo", subject=unique)(lambda request: request.data)
    host.flush()
    times = 0.0
    for number in range(1, 200):
        nc.request(unique)
        (stats,) = service.stats().endpoints
        assert stats.num_requests == number
        assert stats.processing_time > times
        times = stats.processing_time


def test_reset_zeroes_the_counts_and_renews_the_start(
    nc: jsync.Connection, host: jsync.Connection, service: jsync.Service, unique: str
) -> None:
    before = service.stats().started
    assert before is not None
    assert before <= datetime.now(UTC)

    @service.endpoint("bad", subject=unique)
    def bad(request: jsync.Request) -> bytes:
        raise errors.ServiceError(400, "bad")

    host.flush()
    nc.request(unique)
    service.reset()
    stats = service.stats()
    assert stats.started is not None
    assert stats.started > before
    (endpoint,) = stats.endpoints
    assert (endpoint.num_requests, endpoint.num_errors) == (0, 0)
    assert (endpoint.last_error, endpoint.processing_time) == ("", 0)
    nc.request(unique)
    assert service.stats().endpoints[0].num_requests == 1


def test_the_stats_handler_adds_data_to_each_endpoint(
    nc: jsync.Connection, host: jsync.Connection, unique: str
) -> None:
    def more(endpoint: jsync.EndpointStats) -> dict[str, Any]:
        return {"name": endpoint.name, "asked": endpoint.num_requests}

    with host.service(unique, "1.0.0", stats_handler=more) as service:
        service.endpoint("a", subject=f"{unique}.a")(lambda request: b"")
        service.endpoint("b", subject=f"{unique}.b")(lambda request: b"")
        host.flush()
        nc.request(f"{unique}.b")
        (stats,) = nc.services.stats(unique)
        assert [endpoint.data for endpoint in stats.endpoints] == [
            {"name": "a", "asked": 0},
            {"name": "b", "asked": 1},
        ]
        assert service.stats() == stats


@pytest.mark.parametrize(
    "handler", [lambda endpoint: 1 / 0, lambda endpoint: object()], ids=["raise", "odd"]
)
def test_failing_stats_handlers_are_left_out_and_reported(
    nc: jsync.Connection,
    host: jsync.Connection,
    events: Events,
    unique: str,
    handler: Callable[[Any], Any],
) -> None:
    with host.service(unique, "1.0.0", stats_handler=handler) as service:
        service.endpoint("a", subject=unique)(lambda request: b"")
        host.flush()
        (stats,) = nc.services.stats(unique)
        assert stats.endpoints[0].data is None
        assert isinstance(events.wait("error"), errors.CallbackError)


def test_a_slow_stats_handler_delays_only_stats(
    nc: jsync.Connection,
    host: jsync.Connection,
    unique: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("jsync.services.runner.STATS_SECONDS", 2 * LONG)
    begun, go = threading.Event(), threading.Event()

    def slow(endpoint: jsync.EndpointStats) -> int:
        begun.set()
        assert go.wait(60)
        return 1

    with host.service(unique, "1.0.0", stats_handler=slow) as service:
        service.endpoint("a", subject=unique)(lambda request: b"")
        host.flush()
        stats = Thread(asked, nc, f"$SRV.STATS.{unique}")
        assert begun.wait(LONG)
        assert asked(nc, f"$SRV.PING.{unique}")["id"] == service.id
        assert asked(nc, f"$SRV.INFO.{unique}")["id"] == service.id
        go.set()
        assert stats.result()["endpoints"][0]["data"] == 1


def test_stuck_stats_handlers_delay_other_answers_only_briefly(
    nc: jsync.Connection, host: jsync.Connection, events: Events, unique: str
) -> None:
    stuck, go = threading.Semaphore(0), threading.Event()

    def hang(endpoint: jsync.EndpointStats) -> int:
        stuck.release()
        assert go.wait(60)
        return 1

    with host.service(unique, "1.0.0", stats_handler=hang) as service:
        service.endpoint("a", subject=unique)(lambda request: b"")
        host.flush()
        first = Thread(asked, nc, f"$SRV.STATS.{unique}")
        assert stuck.acquire(timeout=LONG)
        assert first.result()["endpoints"][0].get("data") is None
        assert isinstance(events.wait("error"), errors.TimeoutError)
        # jsync does not call the handler again before it has returned.
        assert asked(nc, f"$SRV.STATS.{unique}")["endpoints"][0].get("data") is None
        assert not stuck.acquire(blocking=False)
        go.set()

        def answered() -> bool:
            endpoint = asked(nc, f"$SRV.STATS.{unique}")["endpoints"][0]
            return bool(endpoint.get("data") == 1)

        wait_for(answered)


def test_an_oversized_answer_raises_errors_on_both_sides(
    nc: jsync.Connection,
    host: jsync.Connection,
    service: jsync.Service,
    events: Events,
    unique: str,
) -> None:
    large = {"large": "x" * host.max_payload}
    service.endpoint("a", subject=unique, metadata=large)(lambda request: b"")
    host.flush()
    headers = nc.request(f"$SRV.INFO.{unique}").headers
    assert headers is not None
    assert headers["Nats-Service-Error"] == "MaxPayloadError"
    assert isinstance(events.wait("error").__cause__, errors.MaxPayloadError)
    assert nc.services.info(unique) == []
    assert len(nc.services.ping(unique)) == 1


# Discovery ------------------------------------------------------------------------------


def test_discovery_finds_every_service_by_name_or_id(
    nc: jsync.Connection, host: jsync.Connection, unique: str
) -> None:
    with host.service(unique, "1.0.0") as a, host.service(unique, "2.0.0") as b:
        host.flush()
        ids = {a.id, b.id}
        assert ids <= {found.id for found in nc.services.ping(stall=1)}
        assert {found.id for found in nc.services.ping(unique)} == ids
        (found,) = nc.services.ping(unique, b.id)
        assert (found.id, found.version) == (b.id, "2.0.0")
        assert found.rtt is not None
        assert found.rtt > 0
        assert {found.id for found in nc.services.info(unique)} == ids
        assert {found.id for found in nc.services.stats(unique)} == ids


def test_without_services_none_is_found(nc: jsync.Connection, unique: str) -> None:
    assert nc.services.ping(unique, timeout=LONG) == []
    assert nc.services.info(unique, timeout=LONG) == []
    assert nc.services.stats(unique, timeout=LONG) == []
    with pytest.raises(errors.ConfigError, match="needs the name"):
        nc.services.ping(None, "X")
    with pytest.raises(errors.ConfigError, match="stall"):
        nc.services.ping(stall=0)


def test_an_unreadable_answer_hides_no_other(
    host: jsync.Connection, server: Any, unique: str, events: Events
) -> None:
    with (
        jsync.connect(server.url, **events.callbacks) as asking,
        host.service(unique, "1.0.0") as service,
        host.subscribe(f"$SRV.PING.{unique}", callback=lambda msg: msg.respond(b"{")),
        host.subscribe(f"$SRV.PING.{unique}", callback=lambda msg: msg.respond(b"[]")),
        host.subscribe(f"$SRV.PING.{unique}", callback=lambda msg: msg.respond(b"{}")),
        host.subscribe(f"$SRV.PING.{unique}", callback=lambda msg: msg.respond(DEEP)),
    ):
        host.flush()
        assert [found.id for found in asking.services.ping(unique)] == [service.id]
        events.wait("error", 4)
        assert all(
            isinstance(error, errors.ServiceReplyError) for error in events.of("error")
        )


def test_answered_pings_leave_no_threads(
    nc: jsync.Connection, service: jsync.Service, unique: str
) -> None:
    def threads() -> int:
        return sum(isinstance(each, threading.Thread) for each in gc.get_objects())

    before = threads()
    for _ in range(50):
        nc.request(f"$SRV.PING.{unique}")
    wait_for(lambda: threads() < before + 10)
