"""Draw the results: `python -m benchmarks.chart [NAME]` draws `results/NAME.json`.

Each panel shows one figure of one scenario, in its own unit. jsync comes first, in colour. The
raw socket comes last: it is a loop over a plain socket that does the same work without a client.
`NAME-front` has one panel, for the README, and `NAME-front-dark` is for a dark page.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any, NamedTuple

CPU, RATE, MEDIAN = "CPU, us each", "thousand/s", "p50, us"


class Palette(NamedTuple):
    jsync: str
    peer: str
    raw: str
    ink: str
    grid: str


LIGHT = Palette("#0b7285", "#adb5bd", "#dee2e6", "#000000", "#e9ecef")
DARK = Palette("#3bc9db", "#868e96", "#495057", "#e9ecef", "#343a40")
CLIENTS = {
    "jsync": ("jsync", "jsync consume", "jsync, 1 thread", "jsync, add", "jsync next"),
    "nats.go": ("nats.go", "nats.go Consume", "nats.go Next", "orbit.go"),
    "nats.c": ("nats.c", "nats.c async pull", "nats.c, 1 thread", "nats.c fetch(1)"),
    "natsio": ("natsio", "natsio consume", "natsio next"),
    "nats-py": (
        *("nats-py", "nats-py fetch", "nats-py fetch(1)", "nats-py publish_async"),
    ),
    "raw socket": (
        *("raw socket", "raw socket that pulls", "raw socket, prebuilt"),
        "raw socket that counts",
    ),
}


class Panel(NamedTuple):
    scenario: str
    title: str
    column: str


PANELS = [
    Panel("consume500", "consume by 500: rate", RATE),
    Panel("consumeack500", "consume and ack: rate", RATE),
    Panel("ahead", "publisher, window 4000: rate", RATE),
    Panel("ingest", "fast ingest: rate", RATE),
    Panel("consume500", "consume by 500: CPU", CPU),
    Panel("consumeack500", "consume and ack: CPU", CPU),
    Panel("ahead", "publisher, window 4000: CPU", CPU),
    Panel("ingest", "fast ingest: CPU", CPU),
    Panel("read", "core subscribe: rate", RATE),
    Panel("publish", "core publish: rate", RATE),
    Panel("read", "core subscribe: CPU", CPU),
    Panel("publish", "core publish: CPU", CPU),
    Panel("request", "request: median latency", MEDIAN),
    Panel("single", "publish and its ack: median latency", MEDIAN),
    Panel("next", "next: median latency", MEDIAN),
    Panel("api", "JetStream API: median latency", MEDIAN),
]
FRONT = [Panel("consume500", "JetStream messages consumed", RATE)]
UNITS = {
    CPU: "µs a message: less is better",
    RATE: "thousand messages a second: more is better",
    MEDIAN: "µs: less is better",
}


def panels_of(
    document: dict[str, Any], wanted: list[Panel]
) -> list[tuple[Panel, dict[str, list[float]]]]:
    return [(panel, found) for panel in wanted if (found := values(document, panel))]


def is_possible(document: dict[str, Any]) -> bool:
    """Return whether the document has figures and matplotlib is installed."""
    found = importlib.util.find_spec("matplotlib") is not None
    return found and bool(panels_of(document, PANELS))


def values(document: dict[str, Any], panel: Panel) -> dict[str, list[float]]:
    """Return the median, minimum and maximum of each client."""
    rows = document["scenarios"].get(panel.scenario, {}).get("rows", {})
    found = {}
    for client, names in CLIENTS.items():
        row: dict[str, list[float]] = next(
            (rows[name] for name in names if name in rows), {}
        )
        if panel.column in row:
            found[client] = row[panel.column]
    return found


def draw(document: dict[str, Any], directory: Path, name: str) -> None:
    """Write `name`.svg and `name`.png, and the same with the suffix `-front`.

    The background is transparent in `name`-front-dark.svg, and the text is light.
    """
    # Imported here because the benchmarks run without matplotlib.
    import matplotlib as mpl  # noqa: PLC0415

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    for suffix, wanted, columns, palette in (
        ("", PANELS, 4, LIGHT),
        ("-front", FRONT, 1, LIGHT),
        ("-front-dark", FRONT, 1, DARK),
    ):
        mpl.rcParams |= {
            "svg.hashsalt": "jsync",
            "svg.fonttype": "none",
            "font.size": 8,
            "axes.titlesize": 9,
            "text.color": palette.ink,
            "axes.edgecolor": palette.ink,
            "axes.labelcolor": palette.ink,
            "xtick.color": palette.ink,
            "ytick.color": palette.ink,
        }
        panels = panels_of(document, wanted)
        if not panels:  # none of the scenarios has one
            continue
        rows = -(-len(panels) // columns)
        figure, axes = plt.subplots(
            rows,
            columns,
            # The front is narrow, so that its text is legible on a telephone.
            figsize=(4.2 if wanted is FRONT else 3.25 * columns, 0.6 + 1.9 * rows),
            squeeze=False,
        )
        for axis in axes.flat:
            axis.set_visible(False)
        for axis, (panel, found) in zip(axes.flat, panels, strict=False):
            axis.set_visible(True)
            if wanted is FRONT:
                found = {key: row for key, row in found.items() if key != "raw socket"}
            _bars(axis, panel, found, palette)
        facts = document["facts"]
        server = f"nats-server {facts['nats-server']}"
        rounds = f"medians of {document['rounds']} rounds"
        if wanted is FRONT:
            title = f"128 bytes, {server}, {rounds}\n{facts['cpu']}"
        else:
            title = f"128 bytes (requests: 16), {server}, {facts['cpu']}; {rounds}"
        figure.suptitle(title, fontsize=8 if wanted is FRONT else 9)
        figure.tight_layout()
        figure.savefig(
            directory / f"{name}{suffix}.svg",
            metadata={"Date": None},
            transparent=palette is DARK,
        )
        if palette is LIGHT:
            figure.savefig(directory / f"{name}{suffix}.png", dpi=110)
        plt.close(figure)


def _bars(
    axis: Any, panel: Panel, found: dict[str, list[float]], palette: Palette
) -> None:
    """Draw bars, or points on a logarithmic axis if one figure is many times another."""
    medians = [median for median, _, _ in found.values()]
    wide = panel.column == CPU and max(medians) > 10 * min(medians)
    for at, (client, (median, least, most)) in enumerate(found.items()):
        colour = {"jsync": palette.jsync, "raw socket": palette.raw}.get(
            client, palette.peer
        )
        if wide:
            axis.plot(median, at, "o", color=colour, markersize=7)
        else:
            axis.barh(at, median, color=colour, height=0.7)
        most = min(most, 1.5 * max(medians))
        axis.plot([least, most], [at, at], color=palette.ink, linewidth=0.8)
        label = f"{median:,.0f}" if median >= 100 else f"{median:.3g}"
        axis.annotate(
            label,
            (max(most, median), at),
            xytext=(5, 0),
            textcoords="offset points",
            va="center",
        )
    axis.set_yticks(range(len(found)), list(found))
    axis.invert_yaxis()
    if wide:
        axis.set_xscale("log")
        axis.set_xlim(min(medians) / 2, max(medians) * 8)
        axis.set_ylim(len(found) - 0.5, -0.5)
        axis.xaxis.set_major_formatter("{x:g}")
        axis.grid(axis="x", color=palette.grid)
        axis.set_axisbelow(True)
    else:
        longest = max(most for _, _, most in found.values())
        axis.set_xlim(0, 1.35 * min(longest, 1.5 * max(medians)))
    axis.set_title(panel.title)
    scale = ", logarithmic" if wide else ""
    axis.set_xlabel(f"{UNITS[panel.column]}{scale}", fontsize=7)
    axis.spines[["top", "right"]].set_visible(False)


if __name__ == "__main__":
    results = Path(__file__).parent / "results"
    chosen = sys.argv[1] if len(sys.argv) > 1 else "latest"
    draw(json.loads((results / f"{chosen}.json").read_text()), results, chosen)
