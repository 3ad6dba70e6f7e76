"""Run all Spark benchmarks: `python -m benchmarks.spark [messages [more messages]]`."""

from __future__ import annotations

import sys

from . import reading, writing
from .place import Place


def main(count: int = 1_000_000, more: int = 10_000_000) -> None:
    with Place() as place:
        reading.measure(place, count, more)
        writing.measure(place, count)
        print("\n| | | bar | met |\n|---|---|---|---|")
        for row in place.rows:
            met = {True: "yes", False: "no", None: ""}[row.met]
            print(f"| {row.what} | {row.figure} | {row.bar} | {met} |")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
