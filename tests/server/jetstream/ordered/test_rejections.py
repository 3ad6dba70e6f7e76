"""Tests of ordered consumers that the server cannot create or does not allow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import jsync
from jsync import errors

from .support import delete_consumers, fill, take

if TYPE_CHECKING:
    from ....conftest import StartServer

pytestmark = pytest.mark.server


def test_a_missing_stream_raises_at_the_call(nc: jsync.Connection, unique: str) -> None:
    with pytest.raises(errors.StreamNotFoundError):
        nc.jetstream().ordered_consumer(unique)


def test_a_rejected_consumer_raises_at_the_call(
    nc: jsync.Connection, unique: str
) -> None:
    js = nc.jetstream()
    queue = js.create_stream(name=unique, subjects=[unique], retention="workqueue")
    with pytest.raises(errors.APIError):
        queue.ordered_consumer()
    queue.delete()


@pytest.mark.parametrize(
    "options",
    [{"name_prefix": "a.b"}, {"max_reset_attempts": 0}, {"filter_subjects": "a b"}],
)
def test_bad_options_are_refused_before_anything_is_sent(
    nc: jsync.Connection, options: dict[str, Any]
) -> None:
    with pytest.raises(errors.ConfigError):
        nc.jetstream().ordered_consumer("MISSING", **options)


def test_bad_options_of_reading_are_refused(
    stream: jsync.Stream,
) -> None:
    consumer = stream.ordered_consumer()
    bad: Any = "nak"
    with pytest.raises(errors.ConfigError, match="given back"):
        consumer.consume(print, on_exception=bad)
    with pytest.raises(errors.ConfigError):
        consumer.messages(max_messages=1, max_bytes=1)
    with pytest.raises(errors.ConfigError):
        consumer.messages(idle_timeout=0)
    with pytest.raises(errors.ConfigError):
        consumer.fetch()


@pytest.mark.parametrize(
    "denied", ["$JS.API.STREAM.INFO.S", "$JS.API.CONSUMER.CREATE.>"]
)
def test_users_without_info_permission_may_read_the_stream(
    own_server: StartServer, denied: str
) -> None:
    server = own_server(
        config=f"""
        authorization {{ users: [
            {{ user: a, password: a }}
            {{ user: b, password: b, permissions: {{ publish: {{ deny: ["{denied}"] }} }} }}
        ] }}
        """
    )
    with (
        jsync.connect(server.url, user="a", password="a") as owner,
        jsync.connect(server.url, user="b", password="b") as reader,
    ):
        stream = owner.jetstream().create_stream(name="S", subjects=["S.>"])
        fill(owner, stream, 20)
        js = reader.jetstream(timeout=0.5)
        if "CREATE" in denied:
            with pytest.raises(errors.PermissionsError):
                js.ordered_consumer("S")
            return
        with js.ordered_consumer("S").messages(on_error=lambda e: None) as messages:
            assert take(messages, 10) == list(range(10))
            delete_consumers(owner, stream)
            fill(owner, stream, 10)
            assert take(messages, 20) == list(range(10, 30))
