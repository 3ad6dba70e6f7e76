"""`jsync completion`, and what the shell is told of streams, buckets, contexts and so on."""

from __future__ import annotations

import os
import re
from itertools import islice
from typing import TYPE_CHECKING, Final

import click
from click.shell_completion import (
    CompletionItem,
    FishComplete,
    add_completion_class,
    get_completion_class,
)

from . import contexts
from .output import write_text
from .settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import jsync

VARIABLE: Final = "_JSYNC_COMPLETE"
"""Set by the shell's script when it asks for completions."""
_PATIENCE: Final = 1.0
"""Seconds that somebody who pressed Tab waits for a server."""
_MOST_KEYS: Final = 10_000
"""Keys of a bucket that are looked at."""
_WORD: Final = re.compile(r"[\w@%+=:,./-]+")
"""A name that a shell takes as it is: a server could offer `$(...)`, and Enter runs that."""


class _Stream(click.ParamType):  # type: ignore[type-arg]  # generic in new ones
    """The name of a stream, completed by those there are."""

    name = "stream"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        return _asked(ctx, incomplete, lambda js: js.stream_names())


class _Consumer(click.ParamType):  # type: ignore[type-arg]
    """The name of a consumer, completed by those of the stream that stands before it."""

    name = "consumer"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        stream = ctx.params.get("stream")
        if not stream:
            return []
        return _asked(ctx, incomplete, lambda js: js.consumer_names(stream))


class _Bucket(click.ParamType):  # type: ignore[type-arg]
    """The name of a bucket, completed by those there are."""

    name = "bucket"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        return _asked(ctx, incomplete, lambda js: js.key_value_names())


class _Key(click.ParamType):  # type: ignore[type-arg]
    """A key, completed by those of the bucket that stands before it."""

    name = "key"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        bucket = ctx.params.get("bucket")
        if not bucket:
            return []
        words, dot, _ = incomplete.rpartition(".")

        def keys(js: jsync.JetStream) -> Iterable[str]:
            return islice(js.key_value(bucket).keys(f"{words}{dot}>"), _MOST_KEYS)

        return _asked(ctx, incomplete, keys)


class _Store(click.ParamType):  # type: ignore[type-arg]
    """The name of an object store, completed by those there are."""

    name = "store"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        return _asked(ctx, incomplete, lambda js: js.object_store_names())


class _Object(click.ParamType):  # type: ignore[type-arg]
    """The name of an object, completed by those of the store that stands before it."""

    name = "object"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        store = ctx.params.get("store")
        if not store:
            return []
        return _asked(
            ctx, incomplete, lambda js: (i.name for i in js.object_store(store).list())
        )


class _Context(click.ParamType):  # type: ignore[type-arg]
    """The name of a context, completed by those there are."""

    name = "context"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        return _begun(contexts.names(contexts.directory(os.environ)), incomplete)


class _Path(click.ParamType):  # type: ignore[type-arg]
    """The name of a file, or of a directory, completed by the shell itself."""

    def __init__(self, kind: str) -> None:
        self.name = kind

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        return [CompletionItem(incomplete, type=self.name)]


STREAM: Final = _Stream()
STORE: Final = _Store()
OBJECT: Final = _Object()
CONSUMER: Final = _Consumer()
BUCKET: Final = _Bucket()
KEY: Final = _Key()
CONTEXT: Final = _Context()
FILE: Final = _Path("file")
DIRECTORY: Final = _Path("dir")


def _asked(
    ctx: click.Context,
    incomplete: str,
    ask: Callable[[jsync.JetStream], Iterable[str]],
) -> list[CompletionItem]:
    """What the server says; nothing when it cannot, since nobody sees errors here."""
    settings = ctx.find_object(Settings) or Settings()
    settings.given.setdefault("timeout", os.environ.get("NATS_TIMEOUT", _PATIENCE))
    try:
        with settings.connect(allow_reconnect=False) as nc:
            return _begun(ask(settings.jetstream(nc)), incomplete)
    except Exception:  # noqa: BLE001
        return []


def _begun(names: Iterable[str], incomplete: str) -> list[CompletionItem]:
    """The names that begin so; without any that would be more than a word to a shell."""
    return [
        CompletionItem(name)
        for name in names
        if name.startswith(incomplete) and _WORD.fullmatch(name)
    ]


@add_completion_class
class _Fish(FishComplete):
    """The script for fish; click's own ends a line of help at its first comma."""

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


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Write the script that completes commands in a shell.

    For bash, put `eval "$(jsync completion bash)"` into ~/.bashrc. For zsh, put the
    same with zsh into ~/.zshrc, below `compinit`. For fish, run
    `jsync completion fish > ~/.config/fish/completions/jsync.fish`.
    """
    kind = get_completion_class(shell)
    assert kind is not None
    script = kind(ctx.find_root().command, {}, "jsync", VARIABLE).source()
    write_text(script, "\n")
