"""Turn the rounds into medians, bars, a table and JSON."""

from __future__ import annotations

import json
from statistics import median
from typing import TYPE_CHECKING, Any

from . import chart

if TYPE_CHECKING:
    from pathlib import Path

    from .scenarios.scenario import Bar, Round, Scenario


def summary(
    results: dict[str, tuple[Scenario, list[Round]]],
    facts: dict[str, str],
    left_out: list[str],
    rounds: int,
) -> dict[str, Any]:
    return {
        "facts": facts,
        "rounds": rounds,
        "left_out": left_out,
        "scenarios": {
            name: {
                "title": scenario.title,
                "rows": (rows := _rows(scenario, turns)),
                "bars": [_bar(bar, turns) for bar in scenario.bars],
                "losses": _losses(rows),
                "rounds": turns,
            }
            for name, (scenario, turns) in results.items()
        },
    }


CLIENTS = ("nats.go", "nats.c", "orbit.go", "natsio", "nats-py")
MORE_IS_BETTER = {"thousand/s"}
COMPARED = {"thousand/s", "CPU, us each", "p50, us", "p99, us"}
CLOSE = 1.03
"""A smaller ratio than this is not reported as a loss."""


def _variant(row: str) -> str:
    """Return the name of a row without the name of its client: "consume by 500, TLS"."""
    for client in ("jsync", *CLIENTS):
        if client in row:
            return row.replace(client, "*").lower()
    return row


def _losses(rows: dict[str, dict[str, list[float]]]) -> list[str]:
    """Return the figures in which another client beats jsync.

    Each client is compared with the same variant of jsync, or with the first row of jsync.
    """
    mine = [name for name in rows if "jsync" in name]
    losses = []
    for peer, row in rows.items():
        if not mine or not any(client in peer for client in CLIENTS):
            continue
        same = [name for name in mine if _variant(name) == _variant(peer)]
        against = (same or mine)[0]
        for title in COMPARED & row.keys() & rows[against].keys():
            ours, theirs = rows[against][title][0], row[title][0]
            behind = theirs / ours if title in MORE_IS_BETTER else ours / theirs
            if behind > CLOSE:
                losses.append(
                    f"{title}: {against} {_number(ours)}, {peer} {_number(theirs)}"
                )
    return sorted(losses)


def _rows(scenario: Scenario, rounds: list[Round]) -> dict[str, dict[str, list[float]]]:
    """Return the median, minimum and maximum for each peer and column."""
    rows: dict[str, dict[str, list[float]]] = {}
    for peer in dict.fromkeys(peer for turn in rounds for peer in turn):
        results = [turn[peer] for turn in rounds if peer in turn]
        for column in scenario.columns:
            values = [v for r in results if (v := column.value(r)) is not None]
            if values:
                rows.setdefault(peer, {})[column.title] = [
                    median(values),
                    min(values),
                    max(values),
                ]
    return rows


def _bar(bar: Bar, rounds: list[Round]) -> dict[str, Any]:
    values = []
    for turn in rounds:
        try:
            values.append(bar.value(turn))
        except KeyError:  # this peer was left out
            continue
    if not values:
        return {"text": bar.text, "limit": bar.limit, "value": None, "met": None}
    value = median(values)
    return {
        "text": bar.text,
        "limit": bar.limit,
        "at_most": bar.at_most,
        "value": value,
        "spread": [min(values), max(values)],
        "met": value <= bar.limit if bar.at_most else value >= bar.limit,
    }


def write(document: dict[str, Any], directory: Path, name: str) -> str:
    """Write all files, and return the text of the Markdown file."""
    directory.mkdir(exist_ok=True)
    (directory / f"{name}.json").write_text(json.dumps(document, indent=1) + "\n")
    text = _markdown(document)
    if chart.is_possible(document):
        chart.draw(document, directory, name)
        text = text.replace("\n", f"\n\n![the chart]({name}.svg)\n", 1)
    (directory / f"{name}.md").write_text(text)
    return text


def _markdown(document: dict[str, Any]) -> str:
    lines = ["# jsync beside its peers", ""]
    lines += [f"- {name}: {value}" for name, value in document["facts"].items()]
    lines += [
        f"- medians of {document['rounds']} rounds, peers interleaved, with the minimum "
        "and the maximum in parentheses. CPU is user and system time of the whole client process",
    ]
    lines += [f"- left out: {why}" for why in document["left_out"]]
    lines += ["", "| bar | wanted | measured | |", "|---|---|---|---|"]
    for scenario in document["scenarios"].values():
        lines += [_bar_line(bar) for bar in scenario["bars"]]
    lines += ["", "## Where another client is ahead of jsync", ""]
    for scenario in document["scenarios"].values():
        if scenario["losses"]:
            lines.append(f"- {scenario['title']}")
            lines += [f"  - {loss}" for loss in scenario["losses"]]
    for scenario in document["scenarios"].values():
        lines += ["", f"## {scenario['title']}", ""]
        columns = list(
            dict.fromkeys(c for row in scenario["rows"].values() for c in row)
        )
        lines += [
            "| | " + " | ".join(columns) + " |",
            "|---" * (len(columns) + 1) + "|",
        ]
        for peer, row in scenario["rows"].items():
            cells = [_cell(row[c]) if c in row else "" for c in columns]
            lines.append(f"| {peer} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _bar_line(bar: dict[str, Any]) -> str:
    if bar["value"] is None:
        return f"| {bar['text']} | {bar['limit']:g} | not run | |"
    wanted = f"{'at most' if bar['at_most'] else 'at least'} {bar['limit']:g}"
    least, most = bar["spread"]
    measured = f"{_number(bar['value'])} ({_number(least)} to {_number(most)})"
    return f"| {bar['text']} | {wanted} | {measured} | {'yes' if bar['met'] else '**no**'} |"


def _cell(values: list[float]) -> str:
    middle, least, most = values
    if least == most:
        return _number(middle)
    return f"{_number(middle)} ({_number(least)} to {_number(most)})"


def _number(value: float) -> str:
    if value == int(value) and value < 100:
        return str(int(value))
    if value >= 100:
        return f"{value:,.0f}"
    if value >= 10:
        return f"{value:.1f}"
    return f"{value:.2f}" if value >= 1 else f"{value:.3f}"
