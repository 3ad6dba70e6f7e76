"""Types of parameters that a shell completes: names on the server, contexts, files."""

from __future__ import annotations

import os
import re
from itertools import islice
from typing import TYPE_CHECKING, Final

import click
from click.shell_completion import CompletionItem, FishComplete, add_completion_class

from jsync import contexts

from .settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import TypeAlias

    import jsync

    Asking: TypeAlias = Callable[[jsync.JetStream, str, str], Iterable[str]]

VARIABLE: Final = "_JSYNC_COMPLETE"
"""The variable that the shell's script sets when it requests completions."""
_TIMEOUT: Final = 1.0
"""The seconds that a person who pressed Tab waits for a server."""
_MAX_KEYS: Final = 10_000
"""The maximum number of keys of a bucket that are read."""
_WORD: Final = re.compile(r"[\w@%+=:,./-]+")
"""A name that needs no quotes in a shell.

A server could offer a name such as `$(...)`, which the shell would run at Enter.
"""


class _Name(click.ParamType):  # type: ignore[type-arg]  # generic in new ones
    """A name, completed from the names on the server.

    `below` is the parameter that must stand before it, for example the stream.
    """

    def __init__(self, kind: str, ask: Asking, below: str | None = None) -> None:
        self.name = kind
        self._ask = ask
        self._below = below

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        above = ctx.params.get(self._below or "") or ""
        if self._below and not above:
            return []
        return _complete(ctx, incomplete, lambda js: self._ask(js, above, incomplete))


def _keys(js: jsync.JetStream, bucket: str, incomplete: str) -> Iterable[str]:
    words, dot, _ = incomplete.rpartition(".")
    return islice(js.key_value(bucket).keys(f"{words}{dot}>"), _MAX_KEYS)


def _objects(js: jsync.JetStream, store: str, _: str) -> Iterable[str]:
    return (info.name for info in js.object_store(store).list())


class _Context(click.ParamType):  # type: ignore[type-arg]
    """The name of a context, completed from the existing contexts."""

    name = "context"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        return _starting_with(
            contexts.names(contexts.directory(os.environ)), incomplete
        )


class _Path(click.ParamType):  # type: ignore[type-arg]
    """The name of a file or directory, which the shell completes."""

    def __init__(self, kind: str) -> None:
        self.name = kind

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        return [CompletionItem(incomplete, type=self.name)]


STREAM: Final = _Name("stream", lambda js, *_: js.stream_names())
CONSUMER: Final = _Name(
    "consumer", lambda js, stream, _: js.consumer_names(stream), below="stream"
)
BUCKET: Final = _Name("bucket", lambda js, *_: js.key_value_names())
KEY: Final = _Name("key", _keys, below="bucket")
STORE: Final = _Name("store", lambda js, *_: js.object_store_names())
OBJECT: Final = _Name("object", _objects, below="store")
CONTEXT: Final = _Context()
FILE: Final = _Path("file")
DIRECTORY: Final = _Path("dir")


def _complete(
    ctx: click.Context, incomplete: str, ask: Callable[[jsync.JetStream], Iterable[str]]
) -> list[CompletionItem]:
    """Return completions from the server.

    Returns none if the request fails, because the shell shows no errors here.
    """
    settings = ctx.find_object(Settings) or Settings()
    settings.given.setdefault("timeout", os.environ.get("NATS_TIMEOUT", _TIMEOUT))
    try:
        with settings.connect(allow_reconnect=False) as nc:
            return _starting_with(ask(settings.jetstream(nc)), incomplete)
    except Exception:  # noqa: BLE001
        return []


def _starting_with(names: Iterable[str], incomplete: str) -> list[CompletionItem]:
    """Return the names with this beginning.

    Leaves out names that a shell would not take as one plain word.
    """
    return [
        CompletionItem(name)
        for name in names
        if name.startswith(incomplete) and _WORD.fullmatch(name)
    ]


@add_completion_class
class _Fish(FishComplete):
    """The script for fish.

    The script of click cuts a line of help off at its first comma.
    """

    source_template = """\
function %(complete_func)s
    set -l words (commandline --cut-at-cursor --current-process)
    set -l word (commandline --cut-at-cursor --current-token)
    for line in (env %(complete_var)s=fish_complete COMP_WORDS="$words" COMP_CWORD="$word" %(prog_name)s)
        set -l found (string split --max 1 "," -- $line)
        switch $found[1]
            case dir
                __fish_complete_directories $found[2]
            case file
                __fish_complete_path $found[2]
            case plain
                echo $found[2]
        end
    end
end

complete --no-files --command %(prog_name)s --arguments "(%(complete_func)s)"
"""
