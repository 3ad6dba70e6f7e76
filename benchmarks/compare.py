"""jsync beside its peers: `python -m benchmarks.compare [--rounds 3] [--only read,...]`.

Every figure is the median over several rounds, and in each round all peers do the same job
one after the other, so that a machine that is busy with something else is so for all of
them; ratios are taken within a round. Writes a table, JSON and a chart to
`benchmarks/results/`.

Peers are built when first needed, into `.cache/`: bare sockets and nats.c, where a newer
library than the system's is unpacked with apt if there is one; nats.go and orbit.go where
there is a Go toolchain; natsio where there is a Python that it runs on. nats-py comes with
the group `bench`. What could not be had is told in the results.
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
    parser.add_argument("--scale", type=float, default=1.0, help="of all the counts")
    parser.add_argument("--name", default="latest", help="of the files in results/")
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
