"""Read the public names of other Python clients from their sources.

Python 3.13 or newer reads these sources, so a test of the group `interop` runs this file:

    python3.13 tests/docs/other_clients.py FOLDER > tests/docs/other_clients.json
"""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path

CALLS = {
    "natsio": {
        "natsio/client.py": ["Client"],
        "natsio/subscription.py": ["Subscription"],
        "natsio/message.py": ["Msg"],
        "natsio/jetstream/context.py": ["JetStreamContext"],
        "natsio/jetstream/stream.py": ["Stream", "StoredMsg"],
        "natsio/jetstream/consumer.py": ["Consumer", "Consumption", "OrderedConsumer"],
        "natsio/jetstream/message.py": ["JsMsg", "AckMetadata"],
        "natsio/kv/bucket.py": ["KeyValue", "KvWatcher"],
        "natsio/objectstore/store.py": ["ObjectStore", "ObjectWatcher"],
    },
    "nats.client": {
        "nats/client/__init__.py": ["Client"],
        "nats/client/subscription.py": ["Subscription"],
        "nats/client/message.py": ["Message"],
    },
    "nats.jetstream": {
        "nats/jetstream/__init__.py": ["JetStream"],
        "nats/jetstream/stream.py": ["Stream"],
        "nats/jetstream/consumer/pull.py": [
            "PullConsumer",
            "PullMessageBatch",
            "PullMessageStream",
        ],
        "nats/jetstream/consumer/ordered.py": ["OrderedConsumer"],
        "nats/jetstream/message.py": ["Message", "Metadata"],
    },
}
"""The classes whose members the page lists, by package and file."""


def members(tree: ast.Module, name: str) -> list[str]:
    """Return the public methods and fields of a class, with its name before each."""
    (found,) = [
        node
        for node in tree.body
        if isinstance(node, ast.ClassDef) and node.name == name
    ]
    names = set()
    for node in found.body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            names.add(node.name)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.add(node.target.id)
    return [f"{name}.{each}" for each in sorted(names) if not each.startswith("_")]


def exported(tree: ast.Module) -> list[str]:
    """Return the names in `__all__`, and the functions of the package."""
    (listed,) = [
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        and any(isinstance(t, ast.Name) and t.id == "__all__" for t in node.targets)
    ]
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    names = {*ast.literal_eval(listed)}
    names |= {node.name for node in tree.body if isinstance(node, functions)}
    return sorted(name for name in names if not name.startswith("_"))


def read(folder: Path) -> dict[str, list[str]]:
    """Return the names by title of their table."""
    tables = {}
    for package, files in CALLS.items():
        init = folder / package.replace(".", "/") / "__init__.py"
        tables[f"Names of {package}"] = exported(ast.parse(init.read_text()))
        tables[f"Calls of {package}"] = [
            member
            for path, classes in files.items()
            for name in classes
            for member in members(ast.parse((folder / path).read_text()), name)
        ]
    return tables


if __name__ == "__main__":
    sys.stdout.write(json.dumps(read(Path(sys.argv[1])), indent=1) + "\n")
