"""The table of commands: the module and the line of help of each.

The lines are all that `jsync --help` needs, so it imports no command. A test checks
that they equal the commands' own help.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Command(NamedTuple):
    """The place of a command's code, and its line of help."""

    where: str
    """`module:name`, as seen from here."""
    help: str


SECTIONS: Final[dict[str, dict[str, Command]]] = {
    "Messages": {
        "pub": Command(".publish:pub", "Publish messages."),
        "sub": Command(
            ".subscribe:sub",
            "Write the messages of subjects as they arrive.",
        ),
        "request": Command(".request:request", "Send a request and write the replies."),
        "reply": Command(
            ".request:reply",
            "Answer requests.",
        ),
        "service": Command(".service:service", "Find services, and run one."),
    },
    "JetStream": {
        "stream": Command(".stream:stream", "Create, look at and change streams."),
        "consumer": Command(
            ".consumer:consumer", "Create, look at and change consumers."
        ),
        "kv": Command(".kv:kv", "Create buckets of keys, and read and change them."),
        "next": Command(
            ".consume:next_", "Write a consumer's next message, and acknowledge it."
        ),
        "fetch": Command(
            ".consume:fetch",
            "Write a batch of a consumer's messages, and acknowledge them.",
        ),
        "consume": Command(
            ".consume:consume",
            "Write the messages of a consumer or a stream as they arrive.",
        ),
        "object": Command(
            ".object:object_", "Put files into object stores, and get them."
        ),
        "counter": Command(
            ".counter:counter", "Read counters, and add to them (2.12)."
        ),
        "schedule": Command(
            ".schedule:schedule",
            "Have a server publish messages later, or again and again (2.12).",
        ),
        "group": Command(
            ".group:group",
            "Create groups by key, change their members, see the lag.",
        ),
        "worker": Command(
            ".worker:worker", "Run the handlers of a worker until SIGTERM."
        ),
        "dead": Command(
            ".dead:dead", "List, show, replay and drop the dead letters of workers."
        ),
    },
    "Operate": {
        "top": Command(
            "..top.command:top",
            "Show the rate and lag of streams and consumers, live.",
        ),
        "events": Command(
            ".events:events",
            "Write events of JetStream and servers as they arrive.",
        ),
        "account": Command(
            ".account:account",
            "Show your user and the limits of your account, and back it up.",
        ),
        "trace": Command(".trace:trace", "Show which way a message takes."),
        "rtt": Command(".rtt:rtt", "Measure the round-trip time to each server."),
        "context": Command(
            ".context:context", "Create, show, change and select contexts."
        ),
    },
    "Data": {
        "ingest": Command("..ingest.command:ingest", "Rows of files into a stream."),
        "export": Command(
            ".export:export", "Write the messages of a stream to a file."
        ),
        "pipeline": Command(
            ".pipeline:pipeline",
            "Run, check, watch and replay data pipelines on Spark.",
        ),
    },
    "More": {
        "demo": Command(".demo:demo", "Demonstrate JetStream on a private server."),
        "server": Command(
            ".server:server",
            "Run a server here, or look at and steer servers.",
        ),
        "doctor": Command(
            ".doctor:doctor", "Check the server and this machine, and suggest fixes."
        ),
        "bench": Command(
            ".bench:bench", "Measure publishing and consuming, in seconds."
        ),
        "options": Command(
            ".options:options", "Show the options that all commands take."
        ),
        "completion": Command(
            ".completion:completion",
            "Write the script that completes commands in a shell.",
        ),
    },
}

HIDDEN: Final = {
    "c": "consumer",
    "con": "consumer",
    "ctr": "counter",
    "ctx": "context",
    "event": "events",
    "micro": "service",
    "obj": "object",
    "publish": "pub",
    "req": "request",
    "s": "stream",
    "srv": "service",
    "str": "stream",
    "subscribe": "sub",
}
"""Other names of commands, which the nats command line tool has."""
