"""Damage the JSON of a server in every way, to check that its reader copes with it."""

from __future__ import annotations

import copy
import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from random import Random

DEEP = "[" * 900 + "]" * 900
"""Nested deeply, but not too deeply for some Pythons to decode."""

VALUES: list[Any] = [
    *(None, True, False, 0, 1, -1, 2**31, 2**53, 2**63, 2**64 - 1, 2**64, -(2**63)),
    *(2**200, -(2**200), 0.5, 1e308, -1e308, "", "x", "0", "-1", "9" * 30, "9" * 5000),
    *(
        "1_0",
        " 7 ",
        "²",
        "\uff11",
        "a.b",
        ">",
        "*",
        "\x00\x1b[2J",
        "\udcff",
        "\U0010ffff",
    ),
    *("0001-01-01T00:00:00+05:00", "9999-12-31T23:59:59-05:00", "2026-01-01T00:00:00"),
    *(
        [],
        {},
        [[]],
        [{}],
        [None],
        [1, "x"],
        {"": {}},
        {"name": 1},
        [0] * 100,
        {"a": [{}]},
    ),
]
TEXTS = [
    *("NaN", "Infinity", "-Infinity", "1e400", "9" * 5000, "-0", "01", DEEP),
    *('{"a":' * 100_000, '"\\ud800"', '"\x01"', "'x'", "tru", ""),
]
"""Texts that no encoder writes."""
_PLACE = "@@a place@@"


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path]
    if isinstance(value, dict):
        for key in value:
            found += _places(value[key], (*path, key))
    elif isinstance(value, list):
        for at, item in enumerate(value):
            found += _places(item, (*path, at))
    return found


def mutated(document: Any, rng: Random) -> bytes:
    """Return the document with up to four mutations, as bytes."""
    document = copy.deepcopy(document)
    late: list[str] = []
    for _ in range(rng.randrange(5)):
        *above, last = rng.choice(_places(document)) or (None,)
        if last is None:
            document = copy.deepcopy(rng.choice(VALUES))
            continue
        parent = document
        for key in above:
            parent = parent[key]
        match rng.randrange(8):
            case 0:
                del parent[last]
            case 1 | 2 | 3 | 4:
                parent[last] = copy.deepcopy(rng.choice(VALUES))
            case 5:
                parent[last] = copy.deepcopy(document)
            case 6 if isinstance(parent, dict):
                parent[str(rng.choice(VALUES))[:20]] = parent[last]
            case _:
                late.append(rng.choice(TEXTS))
                parent[last] = f"{_PLACE}{len(late)}"
    text = json.dumps(document)
    for number, value in enumerate(late, 1):
        text = text.replace(f'"{_PLACE}{number}"', value)
    data = text.encode()
    match rng.randrange(12):
        case 0:
            data = data[: rng.randrange(len(data) + 1)]
        case 1:
            at = rng.randrange(len(data) + 1)
            data = (
                data[:at]
                + rng.choice([b"\xff", b"\x00", b"\xc2", b'"', b"}"])
                + data[at:]
            )
        case 2 if data.startswith(b"{") and len(data) > 2:
            twice = data[1:-1]
            data = b"{" + twice + b"," + twice + b"}"
    return data
