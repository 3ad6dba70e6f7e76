"""The options of a read or a write: their names, and the parsing of their values.

Pure. Spark passes options as text, with names of any case. An unknown or invalid option
raises a `ConfigError` that names it, on the driver, before any request to a server. A read
takes the options of the source, and a write takes the options of the sink. Only a table in
SQL has one set of options for both.
"""

from __future__ import annotations

import difflib
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from ..errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

SOURCE = (
    "stream",
    "streams",
    "streamPattern",
    "subjects",
    "lastPerSubject",
    "bucket",
    "keys",
    "history",
    "objectStore",
    "pathGlobFilter",
    "maxObjectBytes",
    "startingOffsets",
    "startingTimestamp",
    "endingOffsets",
    "endingTimestamp",
    "maxOffsetsPerTrigger",
    "maxBytesPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "minPartitions",
    "maxPartitions",
    "minRecordsPerPartition",
    "maxRecordsPerPartition",
    "maxPartitionBytes",
    "failOnDataLoss",
    "pauseFile",
    "includeHeaders",
    "readMode",
)
SINK = (
    "stream",
    "bucket",
    "subject",
    "delivery",
    "publisher",
    "fenceBucket",
    "deadLetterSubject",
    "maxRestartTime",
    "allowPurge",
    "jobId",
    "jobBatch",
)
NATS = (
    "nats.servers",
    "nats.serversEnv",
    "nats.serversFile",
    "nats.context",
    "nats.name",
    "nats.user",
    "nats.passwordEnv",
    "nats.passwordFile",
    "nats.tokenEnv",
    "nats.tokenFile",
    "nats.nkeySeedEnv",
    "nats.nkeySeedFile",
    "nats.credentialsEnv",
    "nats.credentialsFile",
    "nats.jwtEnv",
    "nats.jwtFile",
    "nats.tls",
    "nats.tlsCa",
    "nats.tlsCert",
    "nats.tlsKey",
    "nats.tlsHostname",
    "nats.tlsHandshakeFirst",
    "nats.proxy",
    "nats.proxyEnv",
    "nats.proxyFile",
    "nats.wsHeadersEnv",
    "nats.wsHeadersFile",
    "nats.inboxPrefix",
    "nats.connectTimeout",
    "nats.timeout",
    "nats.retryTimeout",
    "nats.domain",
    "nats.apiPrefix",
)
Purpose: TypeAlias = Literal["read", "write", "monitor"]
"""The use of the options."""

_KNOWN = {name.lower(): name for name in (*SOURCE, *SINK, *NATS)}
_ALLOWED: Final[dict[Purpose, tuple[str, ...]]] = {
    "read": (*SOURCE, *NATS),
    "write": (*SINK, *NATS),
    "monitor": NATS,
}
_COUNTERPARTS: Final[dict[Purpose, dict[str, str]]] = {
    "read": {"subject": "subjects"},
    "write": {"subjects": "subject", "streams": "stream"},
    "monitor": {},
}

_OF_SPARK = ("checkpointlocation", "queryname")
"""Options for Spark that it passes to the source or sink as well."""

# Secrets that would end up in plans and logs, and the options to use instead.
_SECRETS = {
    "nats.password": "nats.passwordEnv or nats.passwordFile",
    "nats.token": "nats.tokenEnv or nats.tokenFile",
    "nats.nkeyseed": "nats.nkeySeedEnv or nats.nkeySeedFile",
    "nats.credentials": "nats.credentialsEnv or nats.credentialsFile",
    "nats.creds": "nats.credentialsEnv or nats.credentialsFile",
    "nats.jwt": "nats.jwtEnv or nats.jwtFile",
    "nats.userjwt": "nats.jwtEnv or nats.jwtFile",
    "nats.wsheaders": "nats.wsHeadersEnv or nats.wsHeadersFile",
}

_OTHER_NAMES = {
    "url": "nats.servers",
    "nats.url": "nats.servers",
    "token": "nats.tokenEnv",
    "kv": "bucket",
    "keyvalue": "bucket",
    "object": "objectStore",
    "objects": "objectStore",
    "store": "objectStore",
    "path": "stream",
    # Kafka's names.
    "assign": "stream",
    "subscribe": "stream",
    "subscribepattern": "streamPattern",
    "topic": "stream",
    "kafka.bootstrap.servers": "nats.servers",
    "startingoffsetsbytimestamp": "startingTimestamp",
    "endingoffsetsbytimestamp": "endingTimestamp",
}

_DURATION = re.compile(r"(\d+) ?(ms|s|m|min|h|d)")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


class Options:
    """The given options. Each method reads one of them, or raises `ConfigError`.

    An option that was given as an empty text counts as not given.

    Args:
        given: The names of any case, and their values.
        purpose: The use of the options. Options for another use are refused. None: a table
            in SQL, whose options are for reads and writes.
    """

    def __init__(
        self, given: Mapping[str, str], purpose: Purpose | None = None
    ) -> None:
        self._given: dict[str, str] = {}
        names = _KNOWN.values() if purpose is None else _ALLOWED[purpose]
        allowed = {name.lower(): name for name in names}
        for name, value in given.items():
            known = name.lower()
            if known in allowed:
                self._given[known] = str(value).strip()
            elif known in _KNOWN and purpose is not None:
                raise _misplaced(_KNOWN[known], purpose)
            elif known not in _OF_SPARK:
                raise _unknown(name, allowed)
        # Check here, so that no table in SQL is created with a secret: catalogs keep options.
        for server in self.list("nats.servers"):
            _check_server(server)
        if "@" in (self.text("nats.proxy") or ""):
            raise ConfigError(
                "option nats.proxy: credentials in a URL would show in plans and logs; give "
                "nats.proxyEnv or nats.proxyFile"
            )

    def text(self, name: str) -> str | None:
        return self._given.get(name.lower()) or None

    def list(self, name: str) -> tuple[str, ...]:
        """Return the parts of a list that is separated by commas."""
        text = self.text(name) or ""
        parts = tuple(filter(None, map(str.strip, text.split(","))))
        if text and not parts:
            raise invalid_option(name, "a list, separated by commas", text)
        return parts

    def flag(self, name: str, default: bool) -> bool:
        text = self.text(name)
        if text is None:
            return default
        if text.lower() not in ("true", "false"):
            raise invalid_option(name, "true or false", text)
        return text.lower() == "true"

    def choice(self, name: str, choices: tuple[str, ...], default: str) -> str:
        text = self.text(name)
        if text is None:
            return default
        if text.lower() not in choices:
            raise invalid_option(name, " or ".join(choices), text)
        return text.lower()

    def count(self, name: str, minimum: int = 1) -> int | None:
        """Return a whole number from `minimum` on."""
        text = self.text(name)
        if text is None:
            return None
        if not (text.isascii() and text.isdigit() and int(text) >= minimum):
            raise invalid_option(name, f"a whole number from {minimum} on", text)
        return int(text)

    def count_range(self, name: str) -> tuple[int | None, int | None]:
        """Return the whole numbers of the options `min{name}` and `max{name}`."""
        minimum, maximum = self.count(f"min{name}"), self.count(f"max{name}")
        if minimum is not None and maximum is not None and minimum > maximum:
            raise ConfigError(
                f"option min{name} is above max{name}: {minimum} and {maximum}; give one "
                f"of them, or a greater max{name}"
            )
        return minimum, maximum

    def seconds(self, name: str) -> float | None:
        text = self.text(name)
        if text is None:
            return None
        try:
            value = float(text)
        except ValueError:
            value = 0.0
        if not 0 < value < float("inf"):
            raise invalid_option(name, "a number of seconds above 0", text)
        return value

    def duration(self, name: str) -> float | None:
        """Return the seconds of a duration with its unit, as Spark writes it: `15m`."""
        text = self.text(name)
        if text is None:
            return None
        found = _DURATION.fullmatch(text.lower())
        seconds = 0.0 if found is None else int(found[1]) * _UNITS[found[2]]
        if not seconds:
            raise invalid_option(name, "a duration such as 500ms, 30s, 15m or 2h", text)
        return seconds

    def __repr__(self) -> str:
        return f"<Options {', '.join(_KNOWN[name] for name in self._given)}>"


def moment(name: str, text: str) -> datetime:
    """Read a time: ISO 8601 with its offset from UTC, or milliseconds since 1970."""
    try:
        if text.lstrip("-").isdigit():
            return datetime.fromtimestamp(int(text) / 1000, UTC)
        found = datetime.fromisoformat(text)
        if found.tzinfo is not None:
            return found.astimezone(UTC)
    except (ValueError, OverflowError, OSError):
        pass
    expected = "a time as 2026-01-31T12:00:00Z, or milliseconds since 1970"
    raise invalid_option(name, expected, text)


def invalid_option(name: str, expected: str, text: str) -> ConfigError:
    return ConfigError(f"option {name} has to be {expected}, not {text!r}")


def exclusive(options: Options, *names: str) -> str | None:
    """Return which of these options is given, or None. Raises `ConfigError` for two."""
    given = [name for name in names if options.text(name) is not None]
    if len(given) > 1:
        raise ConfigError(f"options {' and '.join(given)} exclude each other: give one")
    return given[0] if given else None


def _check_server(url: str) -> None:
    """Raise `ConfigError` for a URL that may contain a secret."""
    if "@" in url:
        raise ConfigError(
            "option nats.servers: credentials in a URL would show in plans and logs; "
            "give nats.user and nats.passwordEnv, or nats.credentialsFile"
        )
    if "?" in url:
        raise ConfigError(
            "option nats.servers: the query of a URL may be a secret, and would show in "
            "plans and logs; give nats.serversEnv or nats.serversFile, which are read "
            "where the connection is made"
        )


def _misplaced(name: str, purpose: Purpose) -> ConfigError:
    place = "a read" if name in SOURCE else "a write"
    near = _COUNTERPARTS[purpose].get(name)
    hint = "leave it out" if near is None else f"is it {near}?"
    return ConfigError(f"option {name} is for {place}, and this is a {purpose}: {hint}")


def _unknown(name: str, allowed: Mapping[str, str]) -> ConfigError:
    if place := _SECRETS.get(name.lower()):
        return ConfigError(
            f"option {name} would show a secret in plans and logs: give {place}, "
            "which the executors read where they run"
        )
    near = difflib.get_close_matches(name.lower(), allowed, n=1)
    other = _OTHER_NAMES.get(name.lower(), "")
    known = allowed.get(other.lower()) or (allowed[near[0]] if near else None)
    hint = (
        f": is it {known}?" if known else f"; there are {', '.join(allowed.values())}"
    )
    return ConfigError(f"there is no option {name}{hint}")
