"""A leaf node before the server that has JetStream."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import jsync
from jsync import errors
from jsync.server import LocalServer

from ..servers import free_port, wait_for
from .lines import binary_of

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def leaf_before(front: str, behind: str) -> Iterator[jsync.JetStream]:
    """JetStream of line `behind`, through a leaf node of line `front` that has none."""
    address = f"127.0.0.1:{free_port()}"
    with hub_of(behind, address), leaf_of(front, address) as leaf:
        with jsync.connect(leaf.url) as nc:
            js = nc.jetstream(domain="hub")
            wait_for(lambda: answers(js))
            assert nc.server_info.version.startswith(front)
            yield js


def hub_of(line: str, address: str, *, advertise: bool = True) -> LocalServer:
    """A server with the JetStream domain `hub`, to which leaf nodes connect.

    One that does not advertise tells them no other way to itself than theirs, a proxy's
    for instance.
    """
    hidden = "" if advertise else ", no_advertise: true"
    return LocalServer(
        binary=binary_of(line),
        config=f'jetstream {{ domain: hub }}\nleafnodes {{ listen: "{address}"{hidden} }}',
    )


def leaf_of(line: str, address: str) -> LocalServer:
    """A leaf node of that hub, without JetStream."""
    return LocalServer(
        binary=binary_of(line),
        jetstream=False,
        config=f"""leafnodes {{
            reconnect: 1
            remotes: [{{ url: "nats-leaf://{address}" }}]
        }}""",
    )


def answers(js: jsync.JetStream) -> bool:
    """Whether the leaf knows of the hub's JetStream by now."""
    try:
        js._api.request("INFO")
    except errors.JetStreamNotEnabledError:
        return False
    return True
