"""`jsync doctor`: a line for each part that works, and advice for the others."""

from __future__ import annotations

import ipaddress
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
from importlib import metadata
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias
from urllib.parse import urlsplit

import click
import msgspec

import jsync
from jsync import errors
from jsync.server import LocalServer
from jsync.subjects import any_covers, intersection

from ..diagnosis import leaderless, replicas_away, stranded
from ..groups import ExampleCommand
from ..ui.errors import format_error
from ..ui.lists import collect
from ..ui.output import Styled, echo, is_terminal, write_json, write_row

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ..params.settings import Settings

State: TypeAlias = Literal["ok", "note", "broken"]

_PARTS: Final = (
    "python",
    "server",
    "tls",
    "jetstream",
    "streams",
    "permissions",
    "own-server",
    "parquet",
    "java",
    "spark",
)
_OLDEST: Final = (2, 10)
_COUNTS_HELD: Final = (2, 14)
"""The first version that does not count deleted messages as redelivered."""
_MAX_NAMES: Final = 5
"""The maximum number of names in one finding."""
_SPARK_JAVA: Final = (17, 21)
_MARKS: Final = {"ok": ("✓", "green"), "note": ("-", "yellow"), "broken": ("✗", "red")}
_LEVELS: Final = {2: "atomic batches", 4: "fast ingest"}
"""The features that jsync uses, by the API level that introduced them."""


class CheckResult(NamedTuple):
    """The result for one part."""

    part: str
    state: State
    """`broken` makes the exit code 1, while `note` is only worth knowing."""
    says: str
    do: str = ""
    """The advice."""


@click.command(
    short_help="Check the server and this machine, and suggest fixes.",
    cls=ExampleCommand,
    example="jsync doctor server jetstream streams permissions",
)
@click.argument("parts", nargs=-1, type=click.Choice(_PARTS), metavar="[PART]...")
@click.pass_obj
def doctor(settings: Settings, parts: tuple[str, ...]) -> int:
    """Check the server and this machine, and suggest fixes.

    PARTs are python, server, tls, jetstream, streams, permissions, own-server, parquet,
    java and spark. Default: all. The exit code is 1 if a named part does not work, or a
    server that an option, the environment or a context names.
    """
    findings = list(_run_checks(settings, parts or _PARTS, requested=set(parts)))
    broken = any(finding.state == "broken" for finding in findings)
    if settings.json:
        checks = [finding._asdict() for finding in findings]
        write_json({"ok": not broken, "checks": checks})
        return int(broken)
    width = max(len(finding.part) for finding in findings)
    for part, state, words, do in findings:
        says = " ".join(words.split())  # keep the server's text on one line
        if not is_terminal():
            write_row([state, part, says, do])
            continue
        mark, color = _MARKS[state]
        advice = f": {do}" if do else ""
        echo(Styled(mark, color=color), f" {part:<{width}}  {says}{advice}")
    return int(broken)


def _run_checks(
    settings: Settings, parts: tuple[str, ...], *, requested: set[str]
) -> Iterator[CheckResult]:
    if "python" in parts:
        yield _python()
    remote = [part for part in _REMOTE if part in parts]
    if remote:
        named = bool(requested & {"server", *_REMOTE}) or settings.names_a_server
        yield from _remote(settings, remote, "broken" if named else "note")
    for part, check in _LOCAL.items():
        if part in parts:
            yield check("broken" if part in requested else "note")


def _python() -> CheckResult:
    words = f"jsync {jsync.__version__} on {platform.python_implementation()} "
    words += f"{platform.python_version()}, {platform.system()} {platform.machine()}"
    if not getattr(sys, "_is_gil_enabled", lambda: True)():
        return CheckResult("python", "ok", f"{words}, without the GIL")
    if not sysconfig.get_config_var("Py_GIL_DISABLED"):
        return CheckResult("python", "ok", words)
    return CheckResult(
        "python",
        "note",
        f"{words}, free-threaded, but the GIL is on",
        "unset PYTHON_GIL, or find the import that turns the GIL on: run your program with "
        "python -W error::RuntimeWarning",
    )


# The server ---------------------------------------------------------------------------


def _remote(
    settings: Settings, parts: list[str], severity: State
) -> Iterator[CheckResult]:
    try:
        with settings.connect(allow_reconnect=False) as nc:
            for part in parts:
                found = _check_part(part, settings, nc)
                yield (
                    found._replace(state=severity) if found.state == "broken" else found
                )
    except errors.Error as error:
        yield CheckResult("server", severity, format_error(error), _advice(error))


def _check_part(part: str, settings: Settings, nc: jsync.Connection) -> CheckResult:
    try:
        return _REMOTE[part](settings, nc)
    except errors.JetStreamUnavailableError as error:
        do = "more than half of the servers of the cluster must run: start the others"
        return CheckResult(part, "broken", format_error(error), do)
    except errors.Error as error:
        do = "" if nc.is_connected else _advice(error)
        return CheckResult(part, "broken", format_error(error), do)


def _advice(error: errors.Error) -> str:
    if isinstance(error, errors.AuthenticationError):
        return "--creds FILE, --user NAME --password WORD, or --context NAME"
    if isinstance(error, errors.TLSError):
        return (
            "--tlsca FILE names the authorities to trust, --tlscert FILE and --tlskey FILE "
            "your own certificate"
        )
    return "pass --server URL, or start one here with `jsync server`"


def _server(settings: Settings, nc: jsync.Connection) -> CheckResult:
    info = nc.server_info
    words = f"nats-server {info.version} at {nc.connected_url}"
    if info.cluster:
        words += f", in cluster {info.cluster}"
    words += f", {nc.rtt() * 1000:.1f} ms away"
    if _release_of(info.version) < _OLDEST:
        return CheckResult("server", "broken", words, "jsync is for 2.10 or newer")
    if info.ldm:
        return CheckResult("server", "note", f"{words}, about to shut down")
    if failures := list(_failures(settings)):
        words = "; ".join([words, *failures])
        return CheckResult("server", "note", words, "start the servers that are named")
    return CheckResult("server", "ok", words)


def _failures(settings: Settings) -> Iterator[str]:
    """Yield the error of each named server that cannot be reached.

    Yields nothing if only one server is named, because the command is connected to it.
    """
    servers = settings.servers
    for url in servers if len(servers) > 1 else ():
        try:
            settings.connect(
                servers=url, allow_reconnect=False, ignore_discovered_servers=True
            ).close()
        except errors.Error as error:
            yield format_error(error)


def _tls(settings: Settings, nc: jsync.Connection) -> CheckResult:
    url = nc.connected_url or ""
    info = nc.server_info
    if info.tls_required or (info.tls_available and url.startswith("tls:")):
        certificate = ", which asks for our certificate" if info.tls_verify else ""
        return CheckResult("tls", "ok", f"encrypted by TLS{certificate}")
    if _is_loopback(urlsplit(url).hostname or ""):
        return CheckResult(
            "tls", "ok", "not encrypted, and does not leave this machine"
        )
    return CheckResult(
        "tls",
        "note",
        "not encrypted: the network can read messages and passwords",
        "set up TLS on the server, and connect to tls://...",
    )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _jetstream(settings: Settings, nc: jsync.Connection) -> CheckResult:
    try:
        account = settings.jetstream(nc).account_info()
    except errors.JetStreamNotEnabledError as error:
        return CheckResult(
            "jetstream", "broken", format_error(error), "nats-server -js has it on"
        )
    except errors.JetStreamNotEnabledForAccountError as error:
        do = "allow it in the server's configuration, or for the account by nsc"
        return CheckResult("jetstream", "broken", format_error(error), do)
    except errors.PermissionsError as error:
        return CheckResult(
            "jetstream", "broken", format_error(error), "allow $JS.API.>"
        )
    words = f"{account.streams:,} streams, {account.storage:,} bytes in files, "
    words += f"{account.memory:,} in memory, API level {account.api.level}"
    missing = [what for at, what in _LEVELS.items() if account.api.level < at]
    if missing:
        do = "a newer nats-server: 2.12 has atomic batches, 2.14 fast ingest"
        return CheckResult(
            "jetstream", "note", f"{words}: no {' and no '.join(missing)}", do
        )
    return CheckResult("jetstream", "ok", words)


def _streams(settings: Settings, nc: jsync.Connection) -> CheckResult:
    js = settings.jetstream(nc)
    bound, incomplete = collect(js.streams())
    infos = [stream.cached_info for stream in bound]
    broken = sorted(
        {*leaderless(infos), *(incomplete.missing if incomplete is not None else ())}
    )
    notes: list[str] = []
    todo: list[str] = []
    if broken:
        notes.append(f"no leader for {_first_names(broken)}")
        todo.append("start the servers that hold these streams")
    offline = replicas_away(infos)
    if offline:
        notes += [
            f"{name} is away, which holds a replica of {count} streams"
            for name, count in sorted(offline.items())
        ]
        todo.append(
            "start these servers, or remove them with `jsync server peer-remove`"
        )
    lost = [info.config.name or "" for info in infos if info.state.lost]
    if lost:
        notes.append(f"lost messages in {_first_names(lost)}")
    if left := list(_stranded(bound)):
        # Before 2.14 the server also counts messages that were deleted since.
        sure = _release_of(nc.server_info.version) >= _COUNTS_HELD
        perhaps = "" if sure else "perhaps "
        notes.append(
            f"messages that reached max_deliver: {perhaps}{_first_names(left)}"
        )
        todo.append(
            "nobody gets them again: `jsync consumer report STREAM` counts them"
        )
    state: State = "broken" if broken else "note" if notes else "ok"
    words = "; ".join(notes) or f"{len(infos):,} streams, all with their replicas"
    return CheckResult("streams", state, words, "; ".join(todo))


def _stranded(streams: list[jsync.Stream]) -> Iterator[str]:
    """Yield the consumers with messages that the server never delivers again."""
    for stream in streams:
        if not stream.cached_info.state.consumer_count:
            continue
        consumers, _ = collect(stream.consumers())
        state = stream.info().state
        for consumer in consumers:
            if count := stranded(consumer.cached_info, state):
                yield f"{count:,} of consumer {consumer.name} of {stream.name}"


def _release_of(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d{1,9}", version)[:2])


def _first_names(names: list[str]) -> str:
    more = f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
    return f"{', '.join(names[:_MAX_NAMES])}{more}"


class _Rules(msgspec.Struct):
    allow: list[str] | None = None
    deny: list[str] | None = None

    def allows(self, subject: str) -> bool:
        """Return whether the user may use every subject that `subject` matches."""
        if any(intersection(rule, subject) for rule in self.deny or ()):
            return False
        return not self.allow or any_covers(self.allow, subject)


class _Permissions(msgspec.Struct):
    publish: _Rules | None = None
    subscribe: _Rules | None = None


class _User(msgspec.Struct):
    user: str = ""
    account: str = ""
    permissions: _Permissions | None = None


class _UserInfo(msgspec.Struct):
    data: _User


_UNREADABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""The errors of decoding JSON from an untrusted sender."""


def _permissions(settings: Settings, nc: jsync.Connection) -> CheckResult:
    try:
        reply = nc.request("$SYS.REQ.USER.INFO", timeout=settings.timeout)
        user = msgspec.json.decode(reply.data, type=_UserInfo).data
    except (errors.Error, *_UNREADABLE) as error:
        do = "allow $SYS.REQ.USER.INFO, and $JS.API.> and $JS.ACK.> for JetStream"
        return CheckResult("permissions", "note", f"unknown: {format_error(error)}", do)
    name = f"{user.user or 'nobody'} in account {user.account}"
    given = user.permissions or _Permissions()
    publish, subscribe = given.publish or _Rules(), given.subscribe or _Rules()
    lacking = [
        f"{verb} {subject} ({what})"
        for verb, rules, subject, what in (
            ("publish", publish, "$JS.API.>", "managing and pulling"),
            ("publish", publish, "$JS.ACK.>", "acknowledging"),
            ("subscribe", subscribe, "_INBOX.>", "getting answers"),
        )
        if not rules.allows(subject)
    ]
    if lacking:
        words = f"{name} may not {' nor '.join(lacking)}, at least in part"
        return CheckResult(
            "permissions", "note", words, "allow these subjects for the user"
        )
    if publish.allow or subscribe.allow or publish.deny or subscribe.deny:
        return CheckResult(
            "permissions", "ok", f"{name}, limited, but JetStream is open"
        )
    return CheckResult("permissions", "ok", f"{name}, without limits")


_REMOTE: Final[dict[str, Callable[[Any, jsync.Connection], CheckResult]]] = {
    "server": _server,
    "tls": _tls,
    "jetstream": _jetstream,
    "streams": _streams,
    "permissions": _permissions,
}


# This machine -------------------------------------------------------------------------


def _own_server(severity: State) -> CheckResult:
    try:
        with LocalServer() as server, jsync.connect(server.url) as nc:
            words = f"nats-server {nc.server_info.version} runs here"
    except errors.Error as error:
        return CheckResult("own-server", severity, format_error(error))
    return CheckResult("own-server", "ok", words)


def _parquet(severity: State) -> CheckResult:
    version = _version("pyarrow")
    if version is None:
        return CheckResult("parquet", severity, "no pyarrow", "pip install pyarrow")
    return CheckResult("parquet", "ok", f"pyarrow {version}")


def _java(severity: State) -> CheckResult:
    needed = "install openjdk-17-jre-headless, or set JAVA_HOME to a Java 17 or 21"
    home = os.environ.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else shutil.which("java")
    if java is None:
        return CheckResult("java", severity, "no Java, which Spark needs", needed)
    try:
        ran = subprocess.run(  # noqa: S603
            [java, "-version"], capture_output=True, text=True, timeout=30, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        return CheckResult(
            "java", severity, f"{java} does not run: {format_error(error)}", needed
        )
    match = re.search(r'version "(\d+)[^"]*"', ran.stderr)
    if match is None or int(match[1]) not in _SPARK_JAVA:
        found = match[0] if match else ran.stderr[:80]
        return CheckResult(
            "java", severity, f"{java} is {found}: Spark needs 17 or 21", needed
        )
    return CheckResult("java", "ok", f"{java}, {match[0]}")


def _spark(severity: State) -> CheckResult:
    do = 'pip install "jsync[spark]"'
    found = {name: _version(name) for name in ("pyspark", "pyarrow", "sqlglot")}
    missing = [name for name, version in found.items() if version is None]
    if missing:
        return CheckResult("spark", severity, f"no {' and no '.join(missing)}", do)
    words = ", ".join(f"{name} {version}" for name, version in found.items())
    if int((found["pyspark"] or "0").split(".")[0]) < 4:
        return CheckResult(
            "spark", severity, f"{words}: jsync needs pyspark 4.0 or newer", do
        )
    return CheckResult("spark", "ok", words)


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


_LOCAL: Final[dict[str, Callable[[State], CheckResult]]] = {
    "own-server": _own_server,
    "parquet": _parquet,
    "java": _java,
    "spark": _spark,
}
