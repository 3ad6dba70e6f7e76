"""Run all Spark benchmarks: `python -m benchmarks.spark [messages [more messages]]`.

Writes `benchmarks/results/spark.md` and `spark.json`.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path

from . import reading, sizes, writing
from .place import Place, Row

RESULTS = Path(__file__).parent.parent / "results"


def main(count: int = 1_000_000, more: int = 10_000_000) -> None:
    with Place() as place:
        reading.measure(place, count, more)
        writing.measure(place, count)
        sizes.measure(place, count)
        facts = place.facts()
    text = markdown(facts, place.rows, count)
    document = {"facts": facts, "rows": [asdict(row) for row in place.rows]}
    (RESULTS / "spark.md").write_text(text)
    (RESULTS / "spark.json").write_text(json.dumps(document, indent=1) + "\n")
    print(f"\n{text}")


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
    main(*map(int, sys.argv[1:]))
