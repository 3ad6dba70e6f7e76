"""Run the operations that a test requests: a line of JSON each, on stdin and stdout.

A request is `{"op": name, ...}`. Its reply is the result of the method of that name, or
`{"error": text}`. Bytes are base64. `tests/interop/clients.py` lists the operations.
"""

from __future__ import annotations

import asyncio
import base64
import json
import sys
from typing import Any


def data(request: dict[str, Any], name: str = "value") -> bytes:
    return base64.b64decode(request.get(name) or "")


def text(value: bytes | None) -> str:
    return base64.b64encode(value or b"").decode()


async def run(operations: Any) -> None:
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        request = json.loads(line)
        try:
            method = getattr(operations, request.pop("op"))
            reply = await asyncio.wait_for(method(request), 20) or {}
        except Exception as error:  # noqa: BLE001 (the text is the reply)
            reply = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(reply), flush=True)  # noqa: T201
