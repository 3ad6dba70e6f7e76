"""The JetStream API by hand: send configurations and return replies without changing them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from jsync.jetstream.replies import api_error
from jsync.models import ConsumerConfig, Model, StreamConfig

from .threads import LONG

if TYPE_CHECKING:
    import jsync


def ask(
    nc: jsync.Connection, subject: str, body: dict[str, Any] | None = None
) -> dict[str, Any]:
    data = b"" if body is None else json.dumps(body).encode()
    msg = nc.request(f"$JS.API.{subject}", data, timeout=LONG)
    reply: dict[str, Any] = json.loads(msg.data)
    if "error" in reply:
        raise api_error(reply["error"])
    return reply


def create_stream(nc: jsync.Connection, config: StreamConfig) -> dict[str, Any]:
    return ask(nc, f"STREAM.CREATE.{config.name}", config.to_wire())


def create_consumer(
    nc: jsync.Connection, stream: str, config: ConsumerConfig
) -> dict[str, Any]:
    body = {"stream_name": stream, "config": config.to_wire(), "action": "create"}
    name = config.name or config.durable_name
    return ask(nc, f"CONSUMER.CREATE.{stream}" + (f".{name}" if name else ""), body)


def named(value: Any, name: str) -> Any:
    """Return `value` with `name` in place of every `%` that starts a string."""
    if isinstance(value, str):
        return name + value[1:] if value.startswith("%") else value
    if isinstance(value, list):
        return [named(item, name) for item in value]
    if isinstance(value, dict):
        return {key: named(item, name) for key, item in value.items()}
    if isinstance(value, Model):
        return type(value).from_wire(named(value.to_wire(), name))
    return value


def assert_nothing_is_lost(kind: type[Model], reply: dict[str, Any]) -> None:
    model = kind.from_wire(reply)
    assert model.to_wire() == reply
    assert set(model.extra) <= {"type"}, "a field that jsync does not know"
    for name, value in reply.items():
        if isinstance(value, dict) and isinstance(getattr(model, name), Model):
            assert not getattr(model, name).extra
