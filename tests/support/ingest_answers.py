"""Replies of a server to a fast ingest, for the tests."""

from __future__ import annotations

import json
from typing import Any

from jsync.jetstream.ingest.flow_messages import (
    FlowMessage,
    Operation,
    parse_flow_message,
)

START, APPEND, COMMIT, END, PING = Operation


def error_of(err_code: int, code: int = 400) -> dict[str, Any]:
    return {"code": code, "err_code": err_code, "description": f"error {err_code}"}


def answer(
    sequence: int, operation: Operation, body: dict[str, Any] | None = None
) -> FlowMessage:
    """Return the reply to the subject of a message. Without a body, there is no responder."""
    subject = f"_INBOX.id.500.fail.{sequence}.{operation.value}.$FI"
    if body is None:
        return parse_flow_message(subject, 503, b"")
    return parse_flow_message(subject, None, json.dumps(body).encode())


def flow(seq: int, msgs: int = 10) -> dict[str, Any]:
    return {"type": "ack", "seq": seq, "msgs": msgs}


def gap(last_seq: int, seq: int) -> dict[str, Any]:
    return {"type": "gap", "last_seq": last_seq, "seq": seq}


def rejection(seq: int, err_code: int = 10071) -> dict[str, Any]:
    return {"type": "err", "seq": seq, "error": error_of(err_code)}


def final(count: int, seq: int = 0) -> dict[str, Any]:
    return {"stream": "S", "seq": seq or count, "batch": "id", "count": count}


def refused(err_code: int, code: int = 400) -> dict[str, Any]:
    return {"error": error_of(err_code, code), "stream": "S", "seq": 0}
