"""Tests of requests to endpoints, and of every way to reply to them."""

from __future__ import annotations

import enum
import threading
from typing import TYPE_CHECKING, Any

import pytest

import jsync
from jsync import errors

from ...support.threads import LONG, Thread
from .support import DEEP, Order, Slow, Total

if TYPE_CHECKING:
    from ...support.connection_faults import Events

pytestmark = [pytest.mark.server, pytest.mark.quick]


def test_a_handler_returns_the_answer(
    nc: jsync.Connection, host: jsync.Connection, service: jsync.Service, unique: str
) -> None:
    @service.endpoint("echo", subject=f"{unique}.echo")
    def echo(request: jsync.Request) -> bytes:
        return request.data[::-1]

    host.flush()
    assert nc.request(f"{unique}.echo", b"abc").data == b"cba"
    assert nc.services.call(f"{unique}.echo", b"abc").data == b"cba"


def test_a_decorated_function_stays_a_function(
    service: jsync.Service, unique: str
) -> None:
    @service.endpoint("double", subject=unique)
    def double(data: bytes) -> bytes:
        return data * 2

    assert double(b"ab") == b"abab"


def test_a_handler_may_respond_repeatedly_and_with_headers(
    nc: jsync.Connection, host: jsync.Connection, service: jsync.Service, unique: str
) -> None:
    @service.endpoint("count", subject=unique)
    def count(request: jsync.Request) -> None:
        for number in range(3):
            request.respond(b"%d" % number, headers={"N": str(number)})

    host.flush()
    replies = list(nc.request_many(unique, timeout=LONG, max_messages=3))
    assert [msg.data for msg in replies] == [b"0", b"1", b"2"]
    assert [msg.headers["N"] for msg in replies if msg.headers] == ["0", "1", "2"]


def test_a_handler_may_answer_after_it_has_returned(
    nc: jsync.Connection, host: jsync.Connection, service: jsync.Service, unique: str
) -> None:
    threads: list[threading.Thread] = []

    @service.endpoint("later", subject=unique)
    def later(request: jsync.Request) -> None:
        threads.append(threading.Thread(target=request.respond, args=(b"late",)))
        threads[0].start()

    host.flush()
    assert nc.request(unique).data == b"late"
    threads[0].join()


def test_a_message_that_wants_no_answer_is_handled(
    nc: jsync.Connection,
    host: jsync.Connection,
    service: jsync.Service,
    events: Events,
    unique: str,
) -> None:
    seen: list[bytes] = []

    @service.endpoint("note", subject=unique)
    def note(request: jsync.Request) -> bytes:
        seen.append(request.data)
        if request.data == b"bad":
            raise errors.ServiceError(400, "bad")
        return b"nobody waits"

    host.flush()
    nc.publish(unique, b"good")
    nc.publish(unique, b"bad")
    assert nc.request(unique, b"end").data == b"nobody waits"
    assert seen == [b"good", b"bad", b"end"]
    assert events.of("error") == []


def test_a_responded_error_is_raised_at_the_caller(
    nc: jsync.Connection, host: jsync.Connection, service: jsync.Service, unique: str
) -> None:
    @service.endpoint("no", subject=unique)
    def no(request: jsync.Request) -> None:
        request.error(404, "no such order", b"more", headers={"X": "y"})

    host.flush()
    with pytest.raises(errors.ServiceError) as raised:
        nc.services.call(unique)
    error = raised.value
    assert (error.code, error.description, error.data) == (
        404,
        "no such order",
        b"more",
    )
    headers = nc.request(unique).headers
    assert headers is not None
    assert dict(headers) == {
        "X": "y",
        "Nats-Service-Error": "no such order",
        "Nats-Service-Error-Code": "404",
    }


def test_a_raised_service_error_is_the_answer(
    nc: jsync.Connection,
    host: jsync.Connection,
    service: jsync.Service,
    events: Events,
    unique: str,
) -> None:
    @service.endpoint("no", subject=unique)
    def no(request: jsync.Request) -> bytes:
        raise errors.ServiceError(409, "two\nlines", b"more")

    host.flush()
    with pytest.raises(errors.ServiceError, match="409: two lines") as raised:
        nc.services.call(unique)
    assert raised.value.data == b"more"
    assert events.of("error") == []


class SecretError(Exception):
    pass


@pytest.mark.parametrize("kind", [SecretError, SystemExit])
def test_other_exceptions_answer_500_and_reach_on_error(
    nc: jsync.Connection,
    host: jsync.Connection,
    service: jsync.Service,
    events: Events,
    unique: str,
    kind: type[BaseException],
) -> None:
    @service.endpoint("bad", subject=unique)
    def bad(request: jsync.Request) -> bytes:
        raise kind("password=hunter2")

    host.flush()
    msg = nc.request(unique)
    assert msg.data == b""
    assert msg.headers is not None
    assert dict(msg.headers) == {
        "Nats-Service-Error": kind.__name__,
        "Nats-Service-Error-Code": "500",
    }
    told = events.wait("error")
    assert isinstance(told, errors.CallbackError)
    assert type(told.__cause__) is kind
    with pytest.raises(errors.ServiceError):
        nc.services.call(unique)  # the thread continues


def test_expose_errors_sends_the_text_of_an_exception(
    nc: jsync.Connection, host: jsync.Connection, unique: str
) -> None:
    with host.service(unique, "1.0.0", expose_errors=True) as service:

        @service.endpoint("bad", subject=unique)
        def bad(request: jsync.Request) -> bytes:
            raise ValueError("no\nsuch thing")

        host.flush()
        with pytest.raises(errors.ServiceError, match="500: ValueError: no such thing"):
            nc.services.call(unique)


def test_an_exposed_error_without_a_text_is_answered(
    nc: jsync.Connection, host: jsync.Connection, unique: str
) -> None:
    class SilentError(Exception):
        def __str__(self) -> str:
            raise LookupError

    with host.service(unique, "1.0.0", expose_errors=True) as service:

        @service.endpoint("bad", subject=unique)
        def bad(request: jsync.Request) -> bytes:
            raise SilentError

        host.flush()
        with pytest.raises(errors.ServiceError, match="its text raised LookupError"):
            nc.services.call(unique)


def test_an_answered_error_is_sent_and_counted_once(
    nc: jsync.Connection,
    host: jsync.Connection,
    service: jsync.Service,
    events: Events,
    unique: str,
) -> None:
    @service.endpoint("bad", subject=unique)
    def bad(request: jsync.Request) -> bytes | None:
        request.error(404, "no such order")
        if request.data == b"raise":
            raise LookupError
        if request.data == b"service error":
            raise errors.ServiceError(409, "another one")
        return b"an answer" if request.data == b"answer" else None

    host.flush()
    for data in (b"raise", b"service error", b"answer", b""):
        answers = list(nc.request_many(unique, data, timeout=10, stall=0.2))
        headers = [answer.headers or jsync.Headers() for answer in answers]
        assert [each["Nats-Service-Error-Code"] for each in headers] == ["404"]
    (stats,) = service.stats().endpoints
    assert (stats.num_requests, stats.num_errors) == (4, 4)
    assert isinstance(events.wait("error").__cause__, LookupError)


def test_an_unsendable_answer_raises_errors_on_both_sides(
    nc: jsync.Connection,
    host: jsync.Connection,
    service: jsync.Service,
    events: Events,
    unique: str,
) -> None:
    @service.endpoint("large", subject=unique)
    def large(request: jsync.Request) -> bytes:
        return bytes(host.max_payload + 1)

    host.flush()
    with pytest.raises(errors.ServiceError, match="500: MaxPayloadError"):
        nc.services.call(unique)
    assert isinstance(events.wait("error").__cause__, errors.MaxPayloadError)
    assert service.stats().endpoints[0].num_errors == 1


@pytest.mark.parametrize("data", [bytes(2 << 20), "text"], ids=["large", "text"])
def test_an_error_is_sent_without_its_unsendable_data(
    nc: jsync.Connection,
    host: jsync.Connection,
    service: jsync.Service,
    events: Events,
    unique: str,
    data: Any,
) -> None:
    @service.endpoint("bad", subject=unique)
    def bad(request: jsync.Request) -> bytes:
        raise errors.ServiceError(404, "gone", data)

    host.flush()
    with pytest.raises(errors.ServiceError, match="404: gone") as raised:
        nc.services.call(unique, timeout=LONG)
    assert raised.value.data == b""
    assert isinstance(events.wait("error"), errors.CallbackError)


# Types ----------------------------------------------------------------------------------


def test_both_sides_take_types_from_the_annotations(
    nc: jsync.Connection, host: jsync.Connection, service: jsync.Service, unique: str
) -> None:
    @service.endpoint("total", subject=unique)
    def total(order: Order) -> Total:
        return Total(order.quantity * 100)

    host.flush()
    reply = nc.services.call(unique, Order("x", 3), reply_type=Total)
    assert reply == Total(300)
    assert nc.request(unique, b'{"item":"x","quantity":3}').data == b'{"cents":300}'


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b'{"item":"x"}', "missing required field `quantity`"),
        (b'{"item":"x","quantity":"3"}', r"\$\.quantity"),
        (b"", "truncated"),
        (DEEP, "recursion"),
    ],
)
def test_a_bad_payload_answers_400_without_on_error(
    nc: jsync.Connection,
    host: jsync.Connection,
    service: jsync.Service,
    events: Events,
    unique: str,
    data: bytes,
    words: str,
) -> None:
    @service.endpoint("total", subject=unique)
    def total(order: Order) -> Total:
        return Total(order.quantity * 100)

    host.flush()
    with pytest.raises(errors.ServiceError, match=words) as raised:
        nc.services.call(unique, data)
    assert raised.value.code == 400
    (stats,) = service.stats().endpoints
    assert (stats.num_requests, stats.num_errors) == (1, 1)
    assert stats.last_error == f"400:{raised.value.description}"
    assert events.of("error") == []


class Colour(enum.Enum):
    RED = "red"


def test_a_bad_payload_of_any_size_is_answered(
    nc: jsync.Connection, host: jsync.Connection, service: jsync.Service, unique: str
) -> None:
    @service.endpoint("paint", subject=unique)
    def paint(colour: Colour) -> bytes:
        return b""

    host.flush()
    with pytest.raises(errors.ServiceError, match="Invalid enum value"):
        nc.services.call(unique, "x" * (nc.max_payload - 100), timeout=LONG)
    assert len(service.stats().endpoints[0].last_error) < 5000


def test_an_error_for_mistyped_replies_names_the_field(
    nc: jsync.Connection, host: jsync.Connection, service: jsync.Service, unique: str
) -> None:
    @service.endpoint("odd", subject=unique)
    def odd(request: jsync.Request) -> bytes:
        return b'{"cents":"many"}'

    host.flush()
    with pytest.raises(errors.ServiceReplyError, match=r"no Total.*\$\.cents"):
        nc.services.call(unique, reply_type=Total)


def test_a_reply_nested_too_deeply_counts_as_mistyped(
    nc: jsync.Connection, host: jsync.Connection, service: jsync.Service, unique: str
) -> None:
    @service.endpoint("deep", subject=unique)
    def deep(request: jsync.Request) -> bytes:
        return DEEP

    host.flush()
    with pytest.raises(errors.ServiceReplyError, match="is no Total"):
        nc.services.call(unique, reply_type=Total)


def test_data_unfit_for_json_is_rejected_before_sending(
    nc: jsync.Connection, unique: str
) -> None:
    bad: list[Any] = [object(), {1j: 2}]
    for data in bad:
        with pytest.raises(errors.ConfigError, match="cannot be written as JSON"):
            nc.services.call(unique, data)


def test_a_call_without_responders_raises_at_once(
    nc: jsync.Connection, unique: str
) -> None:
    with pytest.raises(errors.NoRespondersError):
        nc.services.call(unique, timeout=LONG)


# Threads --------------------------------------------------------------------------------


def test_as_many_handlers_run_as_there_are_workers(
    nc: jsync.Connection, host: jsync.Connection, service: jsync.Service, unique: str
) -> None:
    together = threading.Barrier(4)

    @service.endpoint("meet", subject=unique, workers=4)
    def meet(request: jsync.Request) -> bytes:
        together.wait(LONG)  # returns only when four handlers wait here
        return threading.current_thread().name.encode()

    host.flush()
    calls = [Thread(nc.request, unique) for _ in range(4)]
    assert len({call.result().data for call in calls}) == 4


def test_one_worker_handles_one_request_after_the_other(
    nc: jsync.Connection, host: jsync.Connection, service: jsync.Service, unique: str
) -> None:
    seen: list[bytes] = []

    @service.endpoint("note", subject=unique)
    def note(request: jsync.Request) -> bytes:
        seen.append(request.data)
        return b""

    host.flush()
    sent = [b"%d" % number for number in range(500)]
    for data in sent:
        nc.publish(unique, data)
    nc.request(unique, b"end")
    assert seen == [*sent, b"end"]


def test_a_busy_endpoint_does_not_hold_up_another(
    nc: jsync.Connection, host: jsync.Connection, service: jsync.Service, unique: str
) -> None:
    slow = Slow()
    service.endpoint("slow", subject=f"{unique}.slow")(slow)

    @service.endpoint("quick", subject=f"{unique}.quick")
    def quick(request: jsync.Request) -> bytes:
        return b"quick"

    host.flush()
    waiting = Thread(nc.request, f"{unique}.slow", b"slow")
    slow.wait_begun()
    assert nc.request(f"{unique}.quick").data == b"quick"
    slow.go.set()
    assert waiting.result().data == b"slow"


def test_a_handler_calls_another_endpoint_over_its_connection(
    nc: jsync.Connection, host: jsync.Connection, service: jsync.Service, unique: str
) -> None:
    @service.endpoint("outer", subject=f"{unique}.outer")
    def outer(data: bytes) -> bytes:
        return host.services.call(f"{unique}.inner", data).data + b"!"

    @service.endpoint("inner", subject=f"{unique}.inner")
    def inner(data: bytes) -> bytes:
        return data.upper()

    host.flush()
    for _ in range(100):
        assert nc.request(f"{unique}.outer", b"a", timeout=LONG).data == b"A!"


# Groups and queues ----------------------------------------------------------------------


def test_groups_are_nested_prefixes(
    nc: jsync.Connection, host: jsync.Connection, service: jsync.Service, unique: str
) -> None:
    inner = service.group(unique).group("v1").group("")
    assert inner.prefix == f"{unique}.v1"

    @inner.endpoint("named")
    def named(request: jsync.Request) -> bytes:
        return b"by name"

    @inner.endpoint("wild", subject="at.*.>")
    def wild(request: jsync.Request) -> bytes:
        return request.subject.encode()

    host.flush()
    assert nc.request(f"{unique}.v1.named").data == b"by name"
    assert nc.request(f"{unique}.v1.at.a.b.c").data == f"{unique}.v1.at.a.b.c".encode()
    subjects = [endpoint.subject for endpoint in service.info().endpoints]
    assert subjects == [f"{unique}.v1.named", f"{unique}.v1.at.*.>"]


def test_endpoint_group_or_service_sets_the_queue_group(
    host: jsync.Connection, unique: str
) -> None:
    def handler(data: bytes) -> bytes:
        return data

    with host.service(unique, "1.0.0", queue="mine") as service:
        group = service.group("g", queue="ours")
        service.endpoint("a", subject=f"{unique}.a")(handler)
        service.endpoint("b", subject=f"{unique}.b", queue="own")(handler)
        service.endpoint("c", subject=f"{unique}.c", queue=None)(handler)
        group.endpoint("d", subject=f"{unique}.d")(handler)
        group.endpoint("e", subject=f"{unique}.e", queue=None)(handler)
        group.group("h").endpoint("f", subject=f"{unique}.f")(handler)
        group.group("h", queue=None).endpoint("g", subject=f"{unique}.g")(handler)
        found = {e.name: e.queue_group for e in service.info().endpoints}
    assert found == {
        "a": "mine",
        "b": "own",
        "c": "",
        "d": "ours",
        "e": "",
        "f": "ours",
        "g": "",
    }


def test_of_two_instances_each_request_reaches_one(
    nc: jsync.Connection, host: jsync.Connection, unique: str
) -> None:
    with (
        host.service(unique, "1.0.0") as one,
        host.service(unique, "1.0.0") as other,
    ):
        for service in (one, other):
            service.endpoint("id", subject=unique)(
                lambda request, own=service.id: own.encode()
            )
        host.flush()
        asked = {nc.request(unique).data.decode() for _ in range(200)}
        assert asked == {one.id, other.id}
        done = [service.stats().endpoints[0].num_requests for service in (one, other)]
        assert sum(done) == 200
        assert one.info().endpoints[0].queue_group == "q"


def test_without_queue_groups_each_instance_gets_each_request(
    nc: jsync.Connection, host: jsync.Connection, unique: str
) -> None:
    with (
        host.service(unique, "1.0.0", queue=None) as one,
        host.service(unique, "1.0.0", queue=None) as other,
    ):
        for service in (one, other):
            service.endpoint("id", subject=unique)(
                lambda request, own=service.id: own.encode()
            )
        host.flush()
        replies = nc.request_many(unique, timeout=LONG, max_messages=2)
        assert {msg.data.decode() for msg in replies} == {one.id, other.id}


# Bad input ------------------------------------------------------------------------------


def test_invalid_options_are_rejected_before_anything_is_sent(
    host: jsync.Connection, service: jsync.Service
) -> None:
    before = host.stats().subscriptions
    bad_services: list[tuple[str, str, dict[str, Any]]] = [
        ("a.b", "1.0.0", {}),
        ("a", "1.0", {}),
        ("a", "1.0.0", {"metadata": {"a": 1}}),
        ("a", "1.0.0", {"stats_handler": 1}),
        ("a", "1.0.0", {"on_done": 1}),
        ("a", "1.0.0", {"expose_errors": "no"}),
        ("a", "1.0.0", {"prefix": "a.*"}),
    ]
    for name, version, options in bad_services:
        with pytest.raises(errors.ConfigError):
            host.service(name, version, **options)
    with pytest.raises(errors.InvalidSubjectError):
        host.service("a", "1.0.0", queue="a b")
    bad_endpoints: list[dict[str, Any]] = [
        {"name": "a.b"},
        {"name": "a", "metadata": {"a": 1}},
        {"name": "a", "workers": 0},
        {"name": "a", "workers": "many"},
        {"name": "a", "max_pending_messages": 0},
        {"name": "a", "max_pending_bytes": -1},
    ]
    for options in bad_endpoints:
        with pytest.raises(errors.ConfigError):
            service.endpoint(**options)
    bad_subjects: list[dict[str, Any]] = [
        {"subject": "a b"},
        {"subject": "a.>.b"},
        {"queue": "a b"},
    ]
    for options in bad_subjects:
        with pytest.raises(errors.InvalidSubjectError):
            service.endpoint("a", **options)
    with pytest.raises(errors.ConfigError):
        service.endpoint("a")(lambda: b"")
    assert host.stats().subscriptions == before
    assert service.info().endpoints == []
