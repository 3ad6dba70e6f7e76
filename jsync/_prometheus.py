"""Prometheus' text format, version 0.0.4. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    Labels = Mapping[str, str]
    Sample = tuple[Labels, float | None]


class PrometheusText:
    """The text of metrics whose names share a prefix."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._lines: list[str] = []

    def __str__(self) -> str:
        return "".join(f"{line}\n" for line in self._lines)

    def add(
        self,
        name: str,
        kind: str,
        help_text: str,
        samples: Iterable[Sample],
    ) -> None:
        """Add a counter or a gauge. A sample without a value is left out."""
        self._add_head(name, kind, help_text)
        for labels, value in samples:
            if value is not None:
                self._add_sample(name, labels, value)

    def add_histogram(
        self,
        name: str,
        help_text: str,
        bounds: Sequence[float],
        samples: Iterable[tuple[Labels, Sequence[int], float]],
    ) -> None:
        """Add a histogram.

        Args:
            name: The name, without the prefix.
            help_text: One sentence about it.
            bounds: The upper bound of each bucket but the last, which has none.
            samples: The labels, the count of each bucket, and the sum of all values.
        """
        self._add_head(name, "histogram", help_text)
        for labels, counts, total in samples:
            below = 0
            for bound, count in zip((*bounds, "+Inf"), counts, strict=True):
                below += count
                self._add_sample(f"{name}_bucket", {**labels, "le": str(bound)}, below)
            self._add_sample(f"{name}_sum", labels, total)
            self._add_sample(f"{name}_count", labels, below)

    def _add_head(self, name: str, kind: str, help_text: str) -> None:
        self._lines.append(f"# HELP {self._prefix}{name} {help_text}")
        self._lines.append(f"# TYPE {self._prefix}{name} {kind}")

    def _add_sample(self, name: str, labels: Labels, value: float) -> None:
        pairs = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
        number = int(value) if isinstance(value, bool) else value
        self._lines.append(
            f"{self._prefix}{name}{{{pairs}}} {number}"
            if pairs
            else f"{self._prefix}{name} {number}"
        )


def _escaped(label: str) -> str:
    return label.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
