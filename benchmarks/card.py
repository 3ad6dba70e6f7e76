"""Draw the social card: `python -m benchmarks.card` draws docs/assets/card.png.

A chat or a social network shows the card below a link to the site.
"""

from __future__ import annotations

import json
from pathlib import Path

from .chart import DARK, FRONT, values

ROOT = Path(__file__).parents[1]
SIZE = (12.0, 6.3)
"""The size in inches, of 100 pixels each: 1200 by 630 is what most networks show."""
PAGE = "#14202b"


def draw(target: Path) -> None:
    """Draw the name, the purpose and the rates of the clients."""
    # Imported here because the benchmarks run without matplotlib.
    import matplotlib as mpl  # noqa: PLC0415

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    document = json.loads((Path(__file__).parent / "results/idle.json").read_text())
    rates = {
        client: row[0]
        for client, row in values(document, FRONT[0]).items()
        if client != "raw socket"
    }
    figure = plt.figure(figsize=SIZE, facecolor=PAGE)
    figure.text(0.06, 0.82, "jsync", color=DARK.jsync, size=54, weight="bold")
    figure.text(
        0.06,
        0.72,
        "NATS and JetStream for synchronous Python",
        color="#ffffff",
        size=26,
    )
    figure.text(
        0.06,
        0.64,
        "Pub/sub, request/reply, streams, work queues. Thread-safe. No event loop.",
        color=DARK.ink,
        size=17,
    )
    axis = figure.add_axes((0.16, 0.12, 0.76, 0.42), facecolor=PAGE)
    colours = [DARK.jsync if client == "jsync" else DARK.peer for client in rates]
    axis.barh(range(len(rates)), [*rates.values()], color=colours, height=0.7)
    for at, rate in enumerate(rates.values()):
        axis.annotate(
            f"{rate:,.0f}",
            (rate, at),
            xytext=(8, 0),
            textcoords="offset points",
            va="center",
            color=DARK.ink,
            size=15,
        )
    axis.set_yticks(range(len(rates)), [*rates], color=DARK.ink, size=16)
    axis.set_xlim(0, 1.12 * max(rates.values()))
    axis.invert_yaxis()
    axis.set_xticks([])
    axis.tick_params(length=0)
    axis.spines[:].set_visible(False)
    figure.text(
        0.16,
        0.05,
        "thousand messages of 128 bytes consumed from JetStream in a second",
        color=DARK.peer,
        size=13,
    )
    figure.savefig(target, dpi=100, facecolor=PAGE)
    plt.close(figure)


if __name__ == "__main__":
    draw(ROOT / "docs/assets/card.png")
