"""`jsync account`: who you are to the server, and the limits of your account."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import click

from jsync import errors

from ..groups import CommandGroup
from ..ui.output import (
    Duration,
    Size,
    is_terminal,
    write_json,
    write_key_values,
    write_sections,
)
from .backup import account_backup, account_restore

if TYPE_CHECKING:
    import jsync
    from jsync.models import AccountInfo, Tier

    from ..params.settings import Settings

_USER: Final = "$SYS.REQ.USER.INFO"
_NANOSECONDS: Final = 1e9
_WITHOUT_JETSTREAM: Final = (
    errors.NoRespondersError,
    errors.JetStreamNotEnabledError,
    errors.JetStreamNotEnabledForAccountError,
)


@click.group(cls=CommandGroup)
def account() -> None:
    """Show your user and the limits of your account, and back it up."""


account.add_command(account_backup)
account.add_command(account_restore)


@account.command(example="jsync account info")
@click.pass_obj
def info(settings: Settings) -> None:
    """Show the connection, its user, and the use of JetStream by the account."""
    with settings.connect() as nc:
        user = _user(nc, settings.timeout)
        nc.rtt(settings.timeout)  # warm up: the first round trip is slower
        rtt = nc.rtt(settings.timeout)
        try:
            found = settings.jetstream(nc).account_info()
        except _WITHOUT_JETSTREAM:
            found = None
        connection = _connection(nc, user, rtt)
    if settings.json:
        jetstream = None if found is None else found.to_wire()
        write_json({"connection": connection, "jetstream": jetstream})
    elif is_terminal():
        sections = {"Connection": _user_fields(connection), **_jetstream(found)}
        write_sections("Account information", sections)
    else:
        fields = {name: _value(value) for name, value in connection.items()}
        write_key_values("Account information", fields | _to_json(found))


def _user(nc: jsync.Connection, timeout: float) -> dict[str, Any]:
    """Return the server's description of the user, {} if it does not send one."""
    try:
        answer = json.loads(nc.request(_USER, b"", timeout=timeout).data)
        found = answer["data"]
    except (errors.Error, ValueError, KeyError, TypeError, RecursionError):
        # The permissions may forbid this request, or the server may be too old for it.
        return {}
    return found if isinstance(found, dict) else {}


def _connection(
    nc: jsync.Connection, user: dict[str, Any], rtt: float
) -> dict[str, Any]:
    server = nc.server_info
    expires = user.get("expires")
    return {
        "user": user.get("user") or None,
        "account": user.get("account"),
        "expires": expires / _NANOSECONDS if isinstance(expires, int) else None,
        "permissions": user.get("permissions"),
        "client_id": nc.client_id,
        "client_ip": nc.client_ip,
        "rtt": rtt,
        "max_payload": nc.max_payload,
        "url": nc.connected_url,
        "server": server.server_name,
        "version": server.version,
        "cluster": server.cluster or None,
        "tls": bool(nc.connected_url and nc.connected_url.startswith("tls:"))
        or server.tls_required,
    }


def _value(value: object) -> object:
    return json.dumps(value) if isinstance(value, dict) else value


def _user_fields(connection: dict[str, Any]) -> dict[str, object]:
    expires = connection["expires"]
    permissions = connection["permissions"] or {}
    return {
        "User": connection["user"],
        "Account": connection["account"],
        "Expires": "never" if not expires else Duration(expires),
        "Client ID": connection["client_id"],
        "Client IP": connection["client_ip"],
        "RTT": Duration(connection["rtt"]),
        "Maximum Payload": Size(connection["max_payload"]),
        "Connected URL": connection["url"],
        "Connected Server": connection["server"],
        "Connected Server Version": connection["version"],
        "Cluster": connection["cluster"],
        "TLS Connection": connection["tls"],
        "Publish Permissions": _rules(permissions, "publish"),
        "Subscribe Permissions": _rules(permissions, "subscribe"),
    }


def _rules(permissions: Any, kind: str) -> list[str] | None:
    rules = permissions.get(kind) if isinstance(permissions, dict) else None
    if not isinstance(rules, dict):
        return None
    allowed = [f"allow {subject}" for subject in rules.get("allow") or []]
    denied = [f"deny {subject}" for subject in rules.get("deny") or []]
    return [*allowed, *denied] or None


def _jetstream(found: AccountInfo | None) -> dict[str, dict[str, object]]:
    if found is None:
        return {"JetStream": {"Enabled": False}}
    sections: dict[str, dict[str, object]] = {
        "JetStream": {
            "Domain": found.domain,
            "API Level": found.api.level,
            "API Requests": found.api.total,
            "API Errors": found.api.errors,
            **_use(found),
        }
    }
    for name, tier in sorted((found.tiers or {}).items()):
        sections[f"Tier {name}"] = _use(tier)
    return sections


def _use(tier: Tier) -> dict[str, object]:
    limits = tier.limits
    max_ack_pending = limits.max_ack_pending
    return {
        "Storage": _format_size(
            tier.storage, limits.max_storage, tier.reserved_storage
        ),
        "Memory": _format_size(tier.memory, limits.max_memory, tier.reserved_memory),
        "Storage Per Stream": _byte_limit(limits.storage_max_stream_bytes),
        "Memory Per Stream": _byte_limit(limits.memory_max_stream_bytes),
        "Streams": _format_count(tier.streams, limits.max_streams),
        "Consumers": _format_count(tier.consumers, limits.max_consumers),
        "Consumer Maximum Ack Pending": max_ack_pending
        if max_ack_pending > 0
        else None,
        "Stream Requires Max Bytes": limits.max_bytes_required or None,
    }


def _format_size(used: int, limit: int, reserved: int) -> str:
    of = Size(limit).text if limit >= 0 else "unlimited"
    more = f", {Size(reserved).text} reserved" if reserved else ""
    return f"{Size(used).text} of {of}{more}"


def _byte_limit(limit: int) -> Size | None:
    return Size(limit) if limit > 0 else None


def _format_count(used: int, limit: int) -> str:
    return f"{used:,} of {limit:,}" if limit >= 0 else f"{used:,} of unlimited"


def _to_json(found: AccountInfo | None) -> dict[str, object]:
    if found is None:
        return {"jetstream": False}
    return {
        "jetstream": True,
        "domain": found.domain,
        "storage": found.storage,
        "max_storage": found.limits.max_storage,
        "memory": found.memory,
        "max_memory": found.limits.max_memory,
        "streams": found.streams,
        "max_streams": found.limits.max_streams,
        "consumers": found.consumers,
        "max_consumers": found.limits.max_consumers,
    }
