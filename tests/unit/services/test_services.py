"""Tests of services without a server: names, subjects, counts, messages and typed handlers."""

from __future__ import annotations

import json
import pickle
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

import jsync
from jsync import errors
from jsync.services.bound_handler import bind_handler
from jsync.services.engine import (
    TRANSITIONS,
    EndpointCounters,
    ServiceState,
    check_description,
    check_metadata,
    check_name,
    check_prefix,
    check_version,
    control_subject,
    control_subjects,
    endpoint_subject,
    error_of,
    group_prefix,
    sanitize_error,
)
from jsync.services.messages import (
    EndpointInfo,
    EndpointStats,
    ServiceInfo,
    ServicePing,
    ServiceStats,
)

if TYPE_CHECKING:
    from collections.abc import Callable


class Order(msgspec.Struct):
    item: str
    quantity: int


class Total(msgspec.Struct):
    cents: int


def request(data: bytes = b"") -> jsync.Request:
    return jsync.Request(jsync.Msg("a", data))


# Names ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a", "A-Z_09", "-", "9"])
def test_names_have_letters_digits_dash_and_underscore(name: str) -> None:
    assert check_name(name, "name") == name


@pytest.mark.parametrize("name", ["", "a.b", "a b", "ä", "a\n", "*", ">", None, 1])
def test_other_names_are_rejected_before_anything_is_sent(name: Any) -> None:
    with pytest.raises(errors.ConfigError, match="use letters, digits"):
        check_name(name, "name")


@pytest.mark.parametrize(
    "version",
    ["0.0.0", "1.2.3", "10.20.30", "1.0.0-alpha.1", "1.0.0-0A.is.legal", "1.0.0+b.1-x"],
)
def test_semantic_versions_are_taken(version: str) -> None:
    assert check_version(version) == version


@pytest.mark.parametrize(
    "version",
    [
        "",
        "1",
        "1.2",
        "v1.2.3",
        "01.2.3",
        "1.2.3-",
        "1.2.3-01",
        "1.2.3+",
        "1.2.3\n",
        None,
    ],
)
def test_other_versions_are_rejected(version: Any) -> None:
    with pytest.raises(errors.ConfigError, match="has to be a semantic version"):
        check_version(version)


def test_metadata_is_copied_and_has_strings_only() -> None:
    mine = {"region": "eu"}
    copied = check_metadata(mine)
    mine["region"] = "us"
    assert copied == {"region": "eu"}
    for bad in ({"a": 1}, {1: "a"}, ["a"], "a", {"a": "\ud800"}, {"\ud800": "a"}):
        with pytest.raises(errors.ConfigError, match="strings by strings"):
            check_metadata(bad)


@pytest.mark.parametrize("bad", [None, 1, b"a", "\ud800"])
def test_a_description_is_a_string_valid_in_json(bad: Any) -> None:
    assert check_description("ä") == "ä"
    with pytest.raises(errors.ConfigError, match="description has to be a string"):
        check_description(bad)


def test_a_prefix_keeps_case_and_has_no_wildcards() -> None:
    assert check_prefix("$srv.Account") == "$srv.Account"
    for bad in ("", "a.*", ">", "a..b", "a b", None):
        with pytest.raises(errors.ConfigError, match="prefix"):
            check_prefix(bad)


@pytest.mark.parametrize(
    ("above", "name", "prefix"),
    [
        ("", "a", "a"),
        ("a", "b", "a.b"),
        ("a", "", "a"),
        ("", "", ""),
        ("", "a.*", "a.*"),
    ],
)
def test_a_group_is_the_beginning_of_subjects(
    above: str, name: str, prefix: str
) -> None:
    assert group_prefix(above, name) == prefix


@pytest.mark.parametrize("name", [">", "a.>", "a b", "a..b", ".a", None])
def test_a_group_cannot_end_subjects(name: Any) -> None:
    with pytest.raises(errors.ConfigError, match="the name of a group"):
        group_prefix("", name)


def test_an_endpoint_listens_on_its_subject_or_name() -> None:
    assert endpoint_subject("", "total", None) == "total"
    assert endpoint_subject("a.b", "total", None) == "a.b.total"
    assert endpoint_subject("a.b", "total", "sum.*") == "a.b.sum.*"


def test_control_subjects_address_all_one_name_or_instance() -> None:
    assert control_subject("$SRV", "PING") == "$SRV.PING"
    assert control_subject("$SRV", "INFO", "orders") == "$SRV.INFO.orders"
    assert control_subject("$SRV", "STATS", "orders", "X1") == "$SRV.STATS.orders.X1"
    assert len(control_subjects("$SRV", "orders", "X1")) == 9
    with pytest.raises(errors.ConfigError, match="needs the name"):
        control_subject("$SRV", "PING", None, "X1")
    with pytest.raises(errors.ConfigError, match="use letters"):
        control_subject("$SRV", "PING", "*")


def test_a_service_only_moves_towards_its_end() -> None:
    order = list(ServiceState)
    assert set(TRANSITIONS) == set(order)
    for state, after in TRANSITIONS.items():
        assert all(order.index(later) > order.index(state) for later in after)


# Counts and messages --------------------------------------------------------------------


def test_the_average_divides_time_by_requests() -> None:
    counts = EndpointCounters()
    assert counts.stats(EndpointInfo()).average_processing_time == 0
    one, other = counts.add_thread(), counts.add_thread()
    one.requests, one.nanoseconds = 2, 4
    other.requests, other.nanoseconds = 1, 6
    counts.failed(errors.ServiceError(404, "no such order"))
    stats = counts.stats(EndpointInfo(name="n", subject="s", queue_group="q"))
    assert (stats.name, stats.subject, stats.queue_group) == ("n", "s", "q")
    assert stats.to_wire()["processing_time"] == 10
    assert stats.to_wire()["average_processing_time"] == 3
    assert (stats.num_requests, stats.num_errors) == (3, 1)
    assert stats.last_error == "404:no such order"
    counts.reset()
    assert counts.stats(EndpointInfo()) == EndpointStats()
    other.requests += 1
    assert counts.stats(EndpointInfo()).num_requests == 1


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        (ServicePing(), "io.nats.micro.v1.ping_response"),
        (ServiceInfo(), "io.nats.micro.v1.info_response"),
        (ServiceStats(), "io.nats.micro.v1.stats_response"),
    ],
)
def test_answers_have_their_type_and_the_standard_fields(
    message: ServicePing | ServiceInfo | ServiceStats, kind: str
) -> None:
    wire = message.to_wire()
    assert wire["type"] == kind
    assert {"name", "id", "version", "metadata"} <= set(wire)
    assert wire["metadata"] == {}


def test_round_trips_are_absent_from_ping_answers() -> None:
    assert "rtt" not in ServicePing(rtt=0.5).to_wire()


def test_answers_from_go_with_null_lists_are_read() -> None:
    info = ServiceInfo.from_wire(
        json.loads(
            '{"name":"a","id":"b","version":"1.0.0","metadata":null,"description":"",'
            '"endpoints":[{"name":"e","subject":"s","queue_group":"q","metadata":null}]}'
        )
    )
    assert info.metadata == {}
    assert info.endpoints[0].metadata == {}
    stats = ServiceStats.from_wire(
        json.loads(
            '{"started":"2026-11-22T19:00:00.123456789Z","endpoints":[{"name":"e",'
            '"processing_time":1500000000,"last_error":{"odd":1}}]}'
        )
    )
    assert stats.started is not None
    assert stats.started.isoformat() == "2026-11-22T19:00:00.123456+00:00"
    assert stats.endpoints[0].processing_time == 1.5
    assert stats.endpoints[0].last_error == ""


# Errors ---------------------------------------------------------------------------------


def test_an_error_becomes_headers_and_comes_back() -> None:
    error = errors.ServiceError(404, "no\r\nsuch order", b"more")
    assert error.headers == {
        "Nats-Service-Error": "no  such order",
        "Nats-Service-Error-Code": "404",
    }
    read = error_of(jsync.Msg("a", b"more", headers=error.headers))
    assert read is not None
    assert (read.code, read.description, read.data) == (404, "no  such order", b"more")
    assert str(read) == "404: no  such order"


def test_a_description_is_made_fit_for_headers() -> None:
    headers = errors.ServiceError(500, "\ud800\r\n" + "x" * 10_000).headers
    assert headers["Nats-Service-Error"].startswith("\\ud800  xxx")
    assert len(headers["Nats-Service-Error"]) < 5000
    jsync.Msg("a", headers=headers)


def test_a_reply_without_error_headers_is_no_error() -> None:
    assert error_of(jsync.Msg("a", b"x")) is None
    assert error_of(jsync.Msg("a", b"x", headers={"Other": "1"})) is None


def test_an_error_code_alone_is_an_error() -> None:
    read = error_of(jsync.Msg("a", headers={"Nats-Service-Error-Code": "404"}))
    assert read is not None
    assert (read.code, read.description) == (404, "")


@pytest.mark.parametrize("code", ["", "many", "-1", "1e3", "9" * 5000])
def test_a_code_without_a_number_reads_as_zero(code: str) -> None:
    headers = {"Nats-Service-Error": "odd", "Nats-Service-Error-Code": code}
    read = error_of(jsync.Msg("a", headers=headers))
    assert read is not None
    assert (read.code, read.description) == (0, "odd")


def test_a_service_error_survives_a_pickle() -> None:
    again = pickle.loads(pickle.dumps(errors.ServiceError(404, "gone", b"x")))
    assert (again.code, again.description, again.data) == (404, "gone", b"x")


def test_exceptions_send_their_text_only_with_expose_errors() -> None:
    secret = ValueError("password=hunter2")
    assert sanitize_error(secret, exposed=False).description == "ValueError"
    assert (
        sanitize_error(secret, exposed=True).description
        == "ValueError: password=hunter2"
    )
    assert sanitize_error(KeyError(), exposed=True).description == "KeyError"


# Handlers -------------------------------------------------------------------------------


def of_bytes(data: bytes) -> bytes:
    return data + b"!"


def of_order(order: Order) -> Total:
    return Total(order.quantity)


class Callee:
    def __call__(self, order: Order) -> Total:
        return Total(order.quantity)


ORDER = b'{"item":"x","quantity":7}'


@pytest.mark.parametrize(
    ("handler", "data", "answer"),
    [
        (lambda request: request.data, b"x", b"x"),
        (of_bytes, b"x", b"x!"),
        (of_order, ORDER, b'{"cents":7}'),
    ],
)
def test_a_result_is_answered_as_bytes(
    handler: Callable[..., Any], data: bytes, answer: bytes
) -> None:
    assert bind_handler(handler).call(request(data)) == answer


def test_the_schemas_of_the_types_are_json() -> None:
    schemas = bind_handler(of_order).schemas
    properties = json.loads(schemas["request_schema"])["$defs"]["Order"]["properties"]
    assert properties == {"item": {"type": "string"}, "quantity": {"type": "integer"}}
    assert "cents" in schemas["response_schema"]
    assert bind_handler(of_bytes).schemas == {}


def returns_nothing(order: Order) -> None:
    """A handler without a result sends an empty reply, because nothing else can reply."""


def returns_perhaps(order: Order) -> Total | None:
    return None


def answers_later(request: jsync.Request) -> Total | None:
    return None


def test_a_handler_without_the_request_answers_its_result() -> None:
    assert bind_handler(returns_nothing).call(request(ORDER)) == b""
    assert bind_handler(returns_perhaps).call(request(ORDER)) == b"null"
    assert bind_handler(answers_later).call(request(ORDER)) is None


def returns_text(request):  # type: ignore[no-untyped-def]
    return "text"


def test_unannotated_results_other_than_bytes_raise_clear_errors() -> None:
    with pytest.raises(TypeError, match="returned a str: return bytes, or annotate"):
        bind_handler(returns_text).call(request())


@pytest.mark.parametrize("kind", [bytearray, memoryview])
def test_other_bytes_are_answered_as_bytes(kind: Callable[[bytes], Any]) -> None:
    assert bind_handler(lambda request: kind(request.data)).call(request(b"x")) == b"x"


def without_result(data: bytes) -> Unknown:  # type: ignore[name-defined]  # noqa: F821
    return data


def without_schema(thing: Callee) -> bytes:
    return b""


@pytest.mark.parametrize(
    ("handler", "words"),
    [
        (without_schema, "cannot be read from JSON"),
        (without_result, "'Unknown', an annotation of without_result"),
    ],
)
def test_a_type_without_schema_is_rejected(handler: Any, words: str) -> None:
    with pytest.raises(errors.ConfigError, match=words):
        bind_handler(handler)


def test_a_request_without_a_reply_cannot_be_answered() -> None:
    with pytest.raises(errors.NoReplySubjectError):
        request().respond(b"x")
    with pytest.raises(errors.ConfigError, match="code"):
        request().error(-1, "x")
    with pytest.raises(errors.ConfigError, match="description"):
        request().error(400, "")
