"""Patches the process of the tests, before other plugins import sockets: `make gevent`."""

from __future__ import annotations

from gevent import monkey

monkey.patch_all()
