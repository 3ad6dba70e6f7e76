"""Tests of the error classes and of the server codes that they stand for."""

from __future__ import annotations

import builtins
import copy
import inspect
import json
import pickle
import re
from pathlib import Path

import pytest

from jsync import errors
from jsync.jetstream.replies import api_error

ERRORS = [
    kind
    for _, kind in inspect.getmembers(errors, inspect.isclass)
    if issubclass(kind, BaseException)
]

# The errors of nats-server 2.15: {err_code: [code, constant, description]}.
SERVER_ERRORS: dict[str, tuple[int, str, str]] = json.loads(
    Path(__file__).with_name("server_errors.json").read_text()
)


@pytest.mark.parametrize("kind", ERRORS)
def test_every_error_is_a_jsync_error(kind: type[Exception]) -> None:
    assert issubclass(kind, errors.Error)


def test_every_error_stands_below_its_own_kinds() -> None:
    parents: dict[str, set[str]] = {"Error": {"Exception"}}
    above: list[tuple[int, str]] = []
    for line in (errors.__doc__ or "").splitlines():
        if line in ("Error", "APIError"):
            above = [(0, line)]
        found = re.fullmatch(r"([ │]+)[├└]── (\w+Error(?:  \w+Error)*)(?:  .*)?", line)
        if found is None:
            continue
        depth = len(found[1])
        while above[-1][0] >= depth:
            above.pop()
        for name in found[2].split():
            parents.setdefault(name, set()).add(above[-1][1])
        above.append((depth, found[2]))
    assert parents == {
        kind.__name__: {
            base.__name__ for base in kind.__bases__ if base.__module__ != "builtins"
        }
        or {"Exception"}
        for kind in ERRORS
    }


@pytest.mark.parametrize("kind", ERRORS)
def test_every_error_survives_pickling_and_copying(kind: type[Exception]) -> None:
    words: tuple[object, ...] = ("what happened",)
    if kind is errors.ServiceError:
        words = (404, "what happened")
    error = kind(*words)
    error.__dict__["detail"] = 7
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(again) is kind
        assert str(again) == str(error)
        assert "what happened" in str(again)
        assert vars(again)["detail"] == 7


def test_errors_with_fields_keep_them_through_a_pickle() -> None:
    error = errors.StreamNotFoundError(
        "stream not found", code=404, err_code=10059, description="stream not found"
    )
    again = pickle.loads(pickle.dumps(error))
    assert (again.code, again.err_code, again.description) == (
        404,
        10059,
        "stream not found",
    )
    violation = pickle.loads(
        pickle.dumps(errors.PermissionsError("no", subject="a", operation="publish"))
    )
    assert (violation.subject, violation.operation) == ("a", "publish")


def test_timeouts_and_connection_errors_are_also_builtin_ones() -> None:
    assert issubclass(errors.DrainTimeoutError, builtins.TimeoutError)
    assert issubclass(errors.WriteTimeoutError, builtins.TimeoutError)
    assert issubclass(errors.ConnectionLostError, builtins.ConnectionError)
    assert issubclass(errors.InvalidSubjectError, ValueError)


# The server codes that no jsync client gets, with the reasons.
UNMET = {
    "declared, but sent by no release from 2.10 on": {
        *(10004, 10019, 10032, 10033, 10061, 10085, 10092, 10093, 10117, 10163, 10180),
    },
    "stream templates, gone since 2.14, have no part in jsync": {
        *(10036, 10066, 10067, 10068, 10073),
    },
    "snapshots and restores have no part in jsync": {
        *(10015, 10042, 10048, 10062, 10064, 10072, 10130),
    },
    "step-downs, moves, peers and rescue have no part in jsync": {
        *(10006, 10010, 10011, 10040, 10041, 10044, 10075, 10129, 10202, 10224),
    },
    "no reply, but the `error` of a mirror or source in a StreamInfo": {10029, 10045},
}


def test_every_code_has_a_class_or_never_occurs() -> None:
    unmet = [code for codes in UNMET.values() for code in codes]
    known = set(errors.APIError.by_err_code)
    assert len(set(unmet)) == len(unmet)
    assert known.isdisjoint(unmet)
    assert known | set(unmet) == {int(code) for code in SERVER_ERRORS}


def test_a_class_has_codes_or_groups_other_classes() -> None:
    registered = set(errors.APIError.by_err_code.values())
    for kind in ERRORS:
        if issubclass(kind, errors.APIError) and not kind.__subclasses__():
            # jsync detects the errors of buckets, which are subclasses of the server's errors.
            assert registered & set(kind.__mro__), kind


@pytest.mark.parametrize("err_code", sorted(errors.APIError.by_err_code))
def test_a_reply_becomes_the_error_of_its_code(err_code: int) -> None:
    code, _, description = SERVER_ERRORS[str(err_code)]
    error = api_error({"code": code, "err_code": err_code, "description": description})
    assert type(error) is errors.APIError.by_err_code[err_code]
    assert (error.code, error.err_code) == (code, err_code)
    assert error.description == description
    advice = f": {error.advice}" if error.advice else ""
    assert str(error) == f"{description} (err_code {err_code}){advice}"
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert vars(again) == vars(error)


def test_a_stream_sealed_during_a_purge_is_sealed() -> None:
    error = api_error({"err_code": 10051, "description": "sealed stream"})
    assert type(error) is errors.StreamSealedError
    other = api_error({"err_code": 10051, "description": "no such file or directory"})
    assert type(other) is errors.OperationFailedError


def test_a_disabled_ttl_names_the_enabling_field() -> None:
    error = api_error({"err_code": 10166, "description": "per-message TTL is disabled"})
    assert "limit_marker_ttl on the bucket" in str(error)


@pytest.mark.parametrize(
    ("kind", "codes"),
    [
        (errors.NotFoundError, {10014, 10037, 10059, 10149}),
        (errors.AlreadyExistsError, {10013, 10058, 10148}),
        (errors.LimitExceededError, {10002, 10026, 10027, 10054, 10199, 10210, 10211}),
        (errors.FeatureDisabledError, {10166, 10168, 10174, 10188, 10205}),
        (errors.WrongExpectationError, {10060, 10070, 10071, 10164}),
        (
            errors.AtomicPublishError,
            {*range(10174, 10178), 10179, *range(10199, 10202), 10210},
        ),
        (errors.BatchPublishError, {*range(10205, 10209), 10211}),
        (errors.TooManyRequestsError, {10167, 10210, 10211}),
        (errors.InvalidStreamConfigError, {10052, 10198, 10209}),
        (errors.InvalidConsumerConfigError, {10136, 10138, 10139, 10160, 10178}),
    ],
)
def test_one_catch_covers_a_kind_of_error(
    kind: type[errors.APIError], codes: set[int]
) -> None:
    for code in codes:
        assert issubclass(errors.APIError.by_err_code[code], kind)


def test_an_error_names_its_request() -> None:
    error = api_error({"description": "gone", "err_code": 1}, "STREAM.INFO.ORDERS")
    assert str(error) == "gone (err_code 1, asked STREAM.INFO.ORDERS)"


def test_an_unknown_code_is_an_api_error() -> None:
    error = api_error({"code": 400, "err_code": 19999, "description": "new"})
    assert type(error) is errors.APIError
    assert (error.code, error.err_code, error.description) == (400, 19999, "new")


def test_errors_have_the_name_that_catches_them() -> None:
    for kind in ERRORS:
        assert getattr(errors, kind.__name__) is kind
        assert (
            f"{kind.__module__}.{kind.__qualname__}" == f"jsync.errors.{kind.__name__}"
        )


@pytest.mark.parametrize(
    ("err_code", "words"),
    [
        (10002, "limits of the account"),
        (10005, "fewer replicas"),
        (10026, "max_consumers"),
        (10027, "max_streams"),
        (10047, "limits of the account"),
        (10054, "max_msg_size"),
        (10077, "raise its limits"),
    ],
)
def test_an_exceeded_limit_tells_what_to_do(err_code: int, words: str) -> None:
    reply = {"code": 400, "err_code": err_code, "description": "exceeded"}
    assert words in str(api_error(reply))
