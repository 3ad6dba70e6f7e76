"""A chart of the run: the rate of each call, and the lag of the consumer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

COLOUR = "#0b7285"


def draw(
    rates: Mapping[str, float],
    lag: Sequence[tuple[float, int]],
    title: str,
    directory: Path,
) -> list[Path]:
    """Write `flights.svg` and `flights.png`, and return their paths.

    Args:
        rates: The messages per second of each call.
        lag: The lag of the consumer, with the seconds since the first measurement.
        title: The line above the chart.
        directory: The directory for the files. It is created if it does not exist.
    """
    figure = Figure(figsize=(9, 3.2), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    bars = left.barh(list(rates), list(rates.values()), color=COLOUR)
    left.bar_label(bars, fmt="{:,.0f}", padding=4)
    left.set(title="messages per second", xlim=(0, 1.3 * max(rates.values())))
    left.invert_yaxis()
    right.plot(*zip(*lag, strict=True), color=COLOUR, marker="o")
    right.set(title="lag of the consumer, by jsync top", xlabel="seconds")
    right.set_ylim(bottom=0)
    for axes in (left.xaxis, right.yaxis):
        axes.set_major_formatter("{x:,.0f}")
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    left.xaxis.set_major_locator(MaxNLocator(3))
    figure.suptitle(title, fontsize=10)
    directory.mkdir(parents=True, exist_ok=True)
    paths = [directory / f"flights.{suffix}" for suffix in ("svg", "png")]
    for path in paths:
        figure.savefig(path, dpi=110)
    return paths
