"""Compare jsync with other clients: `python -m benchmarks.compare [--only read,...]`.

Every figure is the median over several rounds (`--rounds`, 3 by default). In each round all peers
do the same job, one after the other, so other load on the machine affects all of them. Ratios are
taken within a round. The program writes a table, JSON and a chart to `benchmarks/results/`.

The program builds each peer into `.cache/` when it is first needed. Bare sockets and nats.c need a
C compiler. If apt has a newer nats.c than the system, that one is unpacked. nats.go and orbit.go
need a Go toolchain. natsio needs a Python version that it supports. nats-py comes with the group
`bench`. The results list the peers that were left out.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from pathlib import Path

from .peers.build import Programs
from .place import Place
from .report import summary, write
from .scenarios import SCENARIOS

RESULTS = Path(__file__).parent / "results"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compare")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help=", ".join(SCENARIOS))
    parser.add_argument(
        "--scale", type=float, default=1.0, help="factor for all counts"
    )
    parser.add_argument(
        "--name", default="latest", help="name of the files in results/"
    )
    options = parser.parse_args()
    wanted = [name for name in options.only.split(",") if name] or list(SCENARIOS)
    if unknown := set(wanted) - set(SCENARIOS):
        parser.error(f"no such scenario: {', '.join(sorted(unknown))}")

    programs = Programs()
    left_out = list(programs.left_out)
    with Place(programs, options.scale) as place:
        for why in left_out:
            print(f"left out: {why}", file=sys.stderr)
        results: dict[str, list[dict[str, dict[str, float]]]] = {n: [] for n in wanted}
        for turn, name in itertools.product(range(options.rounds), wanted):
            print(f"round {turn + 1}: {name}", end="", file=sys.stderr, flush=True)
            begin = time.monotonic()
            results[name].append(SCENARIOS[name].round(place, turn))
            print(f", {time.monotonic() - begin:.1f} s", file=sys.stderr)
        left_out += [f"{job}: {why}" for job, why in place.failures.items()]
        document = summary(
            {name: (SCENARIOS[name], rounds) for name, rounds in results.items()},
            place.facts(),
            left_out,
            options.rounds,
        )
    text = write(document, RESULTS, options.name)
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
