"""A leaf node in front of a server with JetStream."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import jsync
from jsync import errors
from jsync.server import LocalServer

from ..support.servers import free_port, wait_for
from .lines import binary_of

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def leaf_before(front: str, behind: str) -> Iterator[jsync.JetStream]:
    """Yield the JetStream of line `behind`, through a leaf node of line `front` without JetStream."""
    address = f"127.0.0.1:{free_port()}"
    with hub_of(behind, address), leaf_of(front, address) as leaf:
        with jsync.connect(leaf.url) as nc:
            js = nc.jetstream(domain="hub")
            wait_for(lambda: answers(js))
            assert nc.server_info.version.startswith(front)
            yield js


def hub_of(line: str, address: str, *, advertise: bool = True) -> LocalServer:
    """Return a server with the JetStream domain `hub`, to which leaf nodes connect.

    Without `advertise`, the hub does not tell leaf nodes its own address. They then keep the given
    one, for example that of a proxy.
    """
    hidden = "" if advertise else ", no_advertise: true"
    return LocalServer(
        binary=binary_of(line),
        config=f'jetstream {{ domain: hub }}\nleafnodes {{ listen: "{address}"{hidden} }}',
    )


def leaf_of(line: str, address: str) -> LocalServer:
    """Return a leaf node of that hub, without JetStream."""
    return LocalServer(
        binary=binary_of(line),
        jetstream=False,
        config=f"""leafnodes {{
            reconnect: 1
            remotes: [{{ url: "nats-leaf://{address}" }}]
        }}""",
    )


def answers(js: jsync.JetStream) -> bool:
    """Return whether the leaf node knows the JetStream of the hub already."""
    try:
        js._api.request("INFO")
    except errors.JetStreamNotEnabledError:
        return False
    return True
