"""A server that is behind and answers direct gets, without a cluster: a mirror that is full."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .servers import wait_for

if TYPE_CHECKING:
    import jsync


def lag(js: jsync.JetStream, bucket: str, mirror: str = "MIRROR") -> None:
    """Have a mirror of a bucket answer every second direct get by the present state, for ever."""
    kv = js.key_value(bucket)
    kv.put("P.probe", b"old")
    messages = kv.status().values
    js.create_stream(
        name=mirror,
        mirror={"name": f"KV_{bucket}"},
        max_msgs=messages,
        discard="new",
        allow_direct=True,
        mirror_direct=True,
    )
    wait_for(lambda: js.stream(mirror).info().state.messages == messages)
    kv.put("P.probe", b"new")
    wait_for(lambda: kv.get("P.probe").value == b"old")
