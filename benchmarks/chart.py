"""A picture of the results: `python -m benchmarks.chart [NAME]` draws `results/NAME.json` anew.

One panel for each scenario and figure, in its own unit; jsync first, in colour, and the raw
socket, which is no client, last.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any, NamedTuple

CPU, RATE, MEDIAN = "CPU, us each", "thousand/s", "p50, us"
JSYNC, PEER, RAW = "#0b7285", "#adb5bd", "#dee2e6"
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
    Panel("consume500", "consume, pulls of 500", RATE),
    Panel("consumeack500", "consume and ack", RATE),
    Panel("ahead", "publisher, window 4000", RATE),
    Panel("ingest", "fast ingest", RATE),
    Panel("consume500", "consume", CPU),
    Panel("consumeack500", "consume and ack", CPU),
    Panel("ahead", "publisher", CPU),
    Panel("ingest", "fast ingest", CPU),
    Panel("read", "core subscribe", RATE),
    Panel("publish", "core publish", RATE),
    Panel("read", "core subscribe", CPU),
    Panel("publish", "core publish", CPU),
    Panel("request", "request, median", MEDIAN),
    Panel("single", "publish and its ack, median", MEDIAN),
    Panel("next", "next, median", MEDIAN),
    Panel("api", "request to the JetStream API, median", MEDIAN),
]
UNITS = {
    CPU: "client CPU, µs a message: less is better",
    RATE: "thousand messages a second: more is better",
    MEDIAN: "µs: less is better",
}


def panels_of(document: dict[str, Any]) -> list[tuple[Panel, dict[str, list[float]]]]:
    return [(panel, found) for panel in PANELS if (found := values(document, panel))]


def is_possible(document: dict[str, Any]) -> bool:
    """Whether there is something to draw, and matplotlib: the figures do without."""
    found = importlib.util.find_spec("matplotlib") is not None
    return found and bool(panels_of(document))


def values(document: dict[str, Any], panel: Panel) -> dict[str, list[float]]:
    """Of each client: median, least and most."""
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
    """Write `name`.svg and `name`.png."""
    # Not needed to run the benchmarks.
    import matplotlib as mpl  # noqa: PLC0415

    mpl.use("Agg")
    mpl.rcParams |= {
        "svg.hashsalt": "jsync",
        "svg.fonttype": "none",
        "font.size": 8,
        "axes.titlesize": 9,
    }
    from matplotlib import pyplot as plt  # noqa: PLC0415

    panels = panels_of(document)
    columns = 4
    rows = -(-len(panels) // columns)
    figure, axes = plt.subplots(
        rows, columns, figsize=(13, 0.6 + 1.9 * rows), squeeze=False
    )
    for axis in axes.flat:
        axis.set_visible(False)
    for axis, (panel, found) in zip(axes.flat, panels, strict=False):
        axis.set_visible(True)
        _bars(axis, panel, found)
    facts = document["facts"]
    figure.suptitle(
        f"128 bytes (requests: 16), nats-server {facts['nats-server']}, {facts['cpu']}; "
        f"medians of {document['rounds']} rounds, lines from the least to the most",
        fontsize=9,
    )
    figure.tight_layout()
    figure.savefig(directory / f"{name}.svg", metadata={"Date": None})
    figure.savefig(directory / f"{name}.png", dpi=110)
    plt.close(figure)


def _bars(axis: Any, panel: Panel, found: dict[str, list[float]]) -> None:
    quick = [v[0] for name, v in found.items() if name not in {"natsio", "nats-py"}]
    most_of_all = max(median for median, _, _ in found.values())
    limit = 1.35 * (most_of_all if most_of_all < 2.5 * max(quick) else max(quick))
    for at, (client, (median, least, most)) in enumerate(found.items()):
        colour = {"jsync": JSYNC, "raw socket": RAW}.get(client, PEER)
        axis.barh(at, min(median, limit), color=colour, height=0.7)
        label = f"{median:,.0f}" if median >= 100 else f"{median:.3g}"
        if median > limit:  # what is ten times as much is told, not drawn
            axis.text(limit, at, f"{label} → ", va="center", ha="right", color="black")
            continue
        axis.plot([least, min(most, limit)], [at, at], color="black", linewidth=0.8)
        axis.text(min(max(most, median), limit), at, f" {label}", va="center")
    axis.set_yticks(range(len(found)), list(found))
    axis.invert_yaxis()
    axis.set_xlim(0, limit * 1.12)
    axis.set_title(panel.title)
    axis.set_xlabel(UNITS[panel.column], fontsize=7)
    axis.spines[["top", "right"]].set_visible(False)


if __name__ == "__main__":
    results = Path(__file__).parent / "results"
    chosen = sys.argv[1] if len(sys.argv) > 1 else "latest"
    draw(json.loads((results / f"{chosen}.json").read_text()), results, chosen)
