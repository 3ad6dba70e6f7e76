"""One table of handlers, for services and workers: signatures, payloads and contexts."""

from __future__ import annotations

import contextlib
import functools
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import msgspec
import pytest

import jsync
from jsync import errors
from jsync.handlers.context import wrap_in_context
from jsync.services.bound_handler import bind_handler
from jsync.testing import message
from jsync.worker.routes import adapt_handler

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import jsync as only_for_checkers
    from jsync import JetStreamMsg, Request


class Order(msgspec.Struct):
    id: int


class HasData(Protocol):
    @property
    def data(self) -> bytes: ...


DATA = b'{"id":7}'
SMALL = Annotated[int, msgspec.Meta(lt=10)]

seen: list[object] = []


def call_in_service(handler: Callable[..., Any], data: bytes) -> tuple[object, ...]:
    request = jsync.Request(jsync.Msg("a", data))
    bind_handler(handler).call(request)
    return tuple("message" if item is request else item for item in seen)


def call_in_worker(handler: Callable[..., Any], data: bytes) -> tuple[object, ...]:
    msg = message("a", data)
    adapt_handler(handler)(msg)
    return tuple("message" if item is msg else item for item in seen)


@pytest.fixture(params=[call_in_service, call_in_worker])
def call(request: pytest.FixtureRequest) -> Any:
    seen.clear()
    return request.param


# Handlers -----------------------------------------------------------------------------


def plain(msg):  # type: ignore[no-untyped-def]
    seen.append(msg)


def of_bytes(data: bytes) -> None:
    seen.append(data)


def of_order(order: Order) -> None:
    seen.append(order)


def of_any(value: Any) -> None:
    seen.append(value)


def of_dict(value: dict[str, int]) -> None:
    seen.append(value)


def of_order_and_rest(order: Order, msg):  # type: ignore[no-untyped-def]
    seen.extend((order, msg))


def of_rest_and_order(msg, order: Order):  # type: ignore[no-untyped-def]
    seen.extend((msg, order))


def of_two(data, msg):  # type: ignore[no-untyped-def]
    seen.extend((data, msg))


def of_order_and_any(order: Order, msg: Any) -> None:
    seen.extend((order, msg))


def of_protocol_and_order(msg: HasData, order: Order) -> None:
    seen.extend((msg, order))


def with_default(data: bytes, more: bytes = b"!", *, key: int = 1) -> None:
    seen.append(data + more)


def with_rest(data: bytes, *more: object, **other: object) -> None:
    seen.extend((data, *more, *other))


class Callee:
    def __call__(self, order: Order) -> None:
        seen.append(order)

    def method(self, order: Order) -> None:
        seen.append(order)


@functools.wraps(of_order)
def decorated(*args: object, **keywords: object) -> None:
    of_order(*args, **keywords)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("handler", "expected"),
    [
        (plain, ("message",)),
        (lambda msg: seen.extend([msg]), ("message",)),
        (of_bytes, (DATA,)),
        (of_order, (Order(7),)),
        (of_any, ({"id": 7},)),
        (of_dict, ({"id": 7},)),
        (of_order_and_rest, (Order(7), "message")),
        (of_rest_and_order, ("message", Order(7))),
        (of_two, (DATA, "message")),
        (of_order_and_any, (Order(7), "message")),
        (of_protocol_and_order, ("message", Order(7))),
        (with_default, (DATA + b"!",)),
        (functools.partial(with_default, more=b"?"), (DATA + b"?",)),
        (with_rest, (DATA,)),
        (Callee(), (Order(7),)),
        (Callee().method, (Order(7),)),
        (decorated, (Order(7),)),
    ],
)
def test_a_handler_gets_the_arguments_it_declares(
    call: Callable[..., object], handler: Any, expected: tuple[object, ...]
) -> None:
    assert call(handler, DATA) == expected


def of_request(request: jsync.Request) -> None:
    seen.append(request)


def of_request_and_order(request: only_for_checkers.Request, order: Order) -> None:
    seen.extend((request, order))


def of_order_and_request(order: Order, request: Request) -> None:
    seen.extend((order, request))


def of_message(msg: jsync.JetStreamMsg) -> None:
    seen.append(msg)


def of_base_message(msg: jsync.Msg) -> None:
    seen.append(msg)


def of_message_and_order(msg: only_for_checkers.JetStreamMsg, order: Order) -> None:
    seen.extend((msg, order))


def of_order_and_message(order: Order, msg: JetStreamMsg) -> None:
    seen.extend((order, msg))


@pytest.mark.parametrize(
    ("call", "handler", "expected"),
    [
        (call_in_service, of_request, ("message",)),
        (call_in_service, of_request_and_order, ("message", Order(7))),
        (call_in_service, of_order_and_request, (Order(7), "message")),
        (call_in_worker, of_message, ("message",)),
        (call_in_worker, of_base_message, ("message",)),
        (call_in_worker, of_message_and_order, ("message", Order(7))),
        (call_in_worker, of_order_and_message, (Order(7), "message")),
    ],
)
def test_messages_are_found_by_their_types(
    call: Callable[..., object], handler: Any, expected: tuple[object, ...]
) -> None:
    seen.clear()
    assert call(handler, DATA) == expected


# Handlers that cannot be called ---------------------------------------------------------


def of_none() -> None: ...


def of_two_orders(one: Order, other: Order) -> None: ...


def of_three(one: Order, other, third) -> None: ...  # type: ignore[no-untyped-def]


def with_keyword(data: bytes, *, key: int) -> None: ...


def of_unknown(order: Missing) -> None: ...  # type: ignore[name-defined]  # noqa: F821


def of_undecodable(callee: Callee) -> None: ...


@pytest.mark.parametrize(
    ("handler", "words"),
    [
        (of_none, "of_none takes 0 arguments: a handler takes the payload, the "),
        (of_two_orders, "of_two_orders has a parameter too many, 'other'"),
        (of_three, "of_three takes 3 arguments"),
        (with_keyword, "needs the keyword 'key'"),
        (of_unknown, "'Missing', an annotation of of_unknown, cannot be found"),
        (of_undecodable, "cannot be read from JSON"),
        (min, "the parameters of min cannot be read"),
        (7, "callable"),
    ],
)
def test_a_handler_that_cannot_be_called_is_rejected(
    call: Callable[..., object], handler: Any, words: str
) -> None:
    with pytest.raises(errors.ConfigError, match=words):
        call(handler, DATA)
    assert not seen


# Payloads -------------------------------------------------------------------------------


def of_small(number: SMALL) -> None:
    seen.append(number)


@pytest.mark.parametrize(
    ("handler", "data", "words"),
    [
        (of_order, b"{}", "not a valid Order: .*missing required field `id`"),
        (of_order, b'{"id":"7"}', r"not a valid Order: .*`\$.id`"),
        (of_order, b"{", "truncated"),
        (of_order, b"", "truncated"),
        (of_order, b"\xff", "malformed"),
        (of_order, b'{"id":7,"more":' + b"[" * 100_000, "recursion"),
        (of_small, b"11", "not a valid int: Expected `int` <= 9"),
    ],
)
def test_an_invalid_payload_calls_no_handler(
    call: Callable[..., object], handler: Any, data: bytes, words: str
) -> None:
    with pytest.raises(errors.InvalidPayloadError, match=words):
        call(handler, data)
    assert not seen


def decoding(data: bytes) -> None:
    msgspec.json.decode(data, type=int)


def test_errors_of_handlers_are_not_payload_errors(call: Callable[..., object]) -> None:
    with pytest.raises(msgspec.DecodeError):
        call(decoding, DATA)


# Contexts -------------------------------------------------------------------------------


def test_each_call_has_a_context_manager() -> None:
    @contextlib.contextmanager
    def around(item: int) -> Iterator[None]:
        seen.append(("begin", item))
        yield
        seen.append(("end", item))

    def double(item: int) -> int:
        return 2 * item

    seen.clear()
    assert wrap_in_context(None, double) is double
    assert wrap_in_context(around, double)(3) == 6
    assert seen == [("begin", 3), ("end", 3)]


def test_a_context_that_suppresses_errors_is_reported() -> None:
    def fail(item: object) -> None:
        raise LookupError

    wrapped = wrap_in_context(lambda _: contextlib.suppress(LookupError), fail)
    with pytest.raises(RuntimeError, match="suppressed an exception"):
        wrapped(None)
