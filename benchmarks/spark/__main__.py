"""Run the Spark benchmarks: `python -m benchmarks.spark [part ...] [messages [more messages]]`.

The parts are `reading`, `writing` and `sizes`, by default all of them. Writes
`benchmarks/results/spark.md` and `spark.json`, or for some parts a name such as `spark-sizes`.
The files have each row as soon as it is measured, so an interrupted run leaves its rows.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path

from . import reading, sizes, writing
from .place import Place, Row

RESULTS = Path(__file__).parent.parent / "results"
PARTS = ("reading", "writing", "sizes")
COUNT, MORE = 1_000_000, 10_000_000


def main(*arguments: str) -> None:
    parts = [part for part in PARTS if part in arguments] or PARTS
    counts = [int(each) for each in arguments if each not in PARTS]
    count, more = [*counts, *(COUNT, MORE)[len(counts) :]]
    file = RESULTS / "-".join(["spark", *(parts if len(parts) < len(PARTS) else ())])
    with Place() as place:
        place.on_report = lambda: save(file, place, count, finished=False)
        if "reading" in parts:
            reading.measure(place, count, more)
        if "writing" in parts:
            writing.measure(place, count)
        if "sizes" in parts:
            sizes.measure(place, count)
        save(file, place, count, finished=True)
    print(f"\n{file.with_suffix('.md').read_text()}")


def save(file: Path, place: Place, count: int, *, finished: bool) -> None:
    """Write the rows so far as a table and as JSON."""
    facts = place.facts() | ({} if finished else {"unfinished": "rows are missing"})
    document = {"facts": facts, "rows": [asdict(row) for row in place.rows]}
    file.with_suffix(".md").write_text(markdown(facts, place.rows, count))
    file.with_suffix(".json").write_text(json.dumps(document, indent=1) + "\n")


def markdown(facts: dict[str, str], rows: list[Row], count: int) -> str:
    lines = ["# Spark beside jsync itself", ""]
    lines += [f"- {name}: {value}" for name, value in facts.items()]
    lines += [
        f"- {count:,} messages of 128 bytes, fewer of larger ones; medians of interleaved rounds in one run",
        *("", "| | measured | wanted | |", "|---|---|---|---|"),
    ]
    for row in rows:
        met = {True: "yes", False: "no", None: ""}[row.met]
        lines.append(f"| {row.what} | {row.figure} | {row.bar} | {met} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main(*sys.argv[1:])
