"""`jsync demo`: the features of JetStream on a private server, in a few seconds."""

from __future__ import annotations

import unicodedata
from collections import Counter
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

import click
import msgspec

import jsync
from jsync.server import LocalServer

from ..groups import ExampleCommand
from ..ui.output import echo, write_json, write_table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..params.settings import Settings

_PLANES = 0x20000
"""The number of code points to look at. Most named characters are below."""
_ACCEPTED = 500
"""The prefetch of the worker, in messages."""


class Character(msgspec.Struct):
    """A message: a character of Unicode."""

    code: int
    name: str
    category: str


class DemoStep(NamedTuple):
    """A step of the demonstration, with its figures."""

    what: str
    messages: int
    seconds: float


@click.command(
    short_help="Demonstrate JetStream on a private server.",
    cls=ExampleCommand,
    example="jsync demo",
)
@click.pass_obj
def demo(settings: Settings) -> None:
    """Demonstrate JetStream on a private server.

    Starts a nats-server, stores every named character of Unicode as a message, has a
    worker acknowledge each, reads the stream again in order, and looks up single ones.
    Nothing is left behind.
    """
    characters = list(_characters())
    say = (lambda text: None) if settings.json else echo
    with LocalServer() as server, jsync.connect(server.url, name="jsync demo") as nc:
        version = nc.server_info.version
        say(f"jsync {jsync.__version__}, with a nats-server {version} of its own")
        js = nc.jetstream()
        stream = js.create_stream(
            name="UNICODE",
            subjects=["unicode.*.*"],
            allow_batched=True,
            allow_direct=True,
        )
        say(f"stream {stream.name} takes unicode.*.*: a category, and a code point\n")
        steps = [_store(js, characters)]
        counts, step = _work(stream, len(characters))
        steps.append(step)
        steps.append(_read(stream))
        found, step = _read_by_subject(stream)
        steps.append(step)
        left = stream.consumer("worker").info()
        messages = stream.info().state.messages
    whole = (
        messages == len(characters) == counts.total()
        and left.num_pending == left.num_ack_pending == 0
    )
    _write_step(settings, version, steps, counts, found)
    if not whole:
        raise click.ClickException("the counts do not agree")


def _characters() -> Iterator[Character]:
    for code in range(_PLANES):
        name = unicodedata.name(chr(code), "")
        # Skip ideographs: their names are only numbers.
        if name and not name.startswith(("CJK ", "HANGUL SYLLABLE")):
            yield Character(code, name, unicodedata.category(chr(code)))


def _store(js: jsync.JetStream, characters: list[Character]) -> DemoStep:
    encode = msgspec.json.Encoder().encode
    begin = perf_counter()
    with js.fast_ingest() as ingest:
        for one in characters:
            ingest.add(f"unicode.{one.category}.{one.code:04X}", encode(one))
    return DemoStep(
        "stored by fast ingest", ingest.pub_ack.count or 0, perf_counter() - begin
    )


def _work(stream: jsync.Stream, expected: int) -> tuple[Counter[str], DemoStep]:
    decode = msgspec.json.Decoder(Character).decode
    counts: Counter[str] = Counter()
    begin = perf_counter()
    worker = stream.create_consumer(durable_name="worker", max_ack_pending=5000)
    with worker.messages(max_messages=_ACCEPTED, stop_after=expected) as messages:
        for msg in messages:
            counts[decode(msg.data).category] += 1
            msg.ack()
    worker.info()  # the server has read the acks when it answers this request
    return counts, DemoStep(
        "consumed, each acknowledged", counts.total(), perf_counter() - begin
    )


def _read(stream: jsync.Stream) -> DemoStep:
    begin, count, last = perf_counter(), 0, 0
    with stream.ordered_consumer().messages(until_end=True) as messages:
        for msg in messages:
            sequence = msg.metadata.stream_sequence
            count, last = count + (sequence == last + 1), sequence
    return DemoStep("read again, in order", count, perf_counter() - begin)


def _read_by_subject(stream: jsync.Stream) -> tuple[list[str], DemoStep]:
    patterns = ["*.03BB", "*.2713", "*.1F40D"]
    begin = perf_counter()
    found = []
    for subject in patterns:
        message = stream.get_message(last_by_subject=f"unicode.{subject}")
        one = msgspec.json.decode(message.data, type=Character)
        found.append(f"{message.subject} {chr(one.code)} {one.name}")
    return found, DemoStep("looked up by subject", len(found), perf_counter() - begin)


def _write_step(
    settings: Settings,
    version: str,
    steps: list[DemoStep],
    counts: Counter[str],
    found: list[str],
) -> None:
    if settings.json:
        write_json(
            {
                "server": version,
                "steps": [step._asdict() for step in steps],
                "categories": dict(counts.most_common()),
                "found": found,
            }
        )
        return
    write_table(
        ["", "messages", "seconds", "per second"],
        [
            (
                step.what,
                step.messages,
                round(step.seconds, 3),
                round(step.messages / step.seconds),
            )
            for step in steps
        ],
    )
    for line in found:
        echo(line)
    peak = ", ".join(f"{name} {count:,}" for name, count in counts.most_common(4))
    echo(f"\nThe worker counted by category: {peak}, ...")
    echo(
        "Next: `jsync server` runs a server, `jsync ingest` fills a stream from a file, "
        "`jsync bench` measures, `jsync doctor` checks this machine."
    )
