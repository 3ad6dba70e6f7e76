"""Durations and sizes as people read them."""

from __future__ import annotations

from typing import Final

_SIZES: Final = ("KiB", "MiB", "GiB", "TiB", "PiB")


def format_duration(duration: float) -> str:
    """Return a duration as people write it: `1h30m`, `500ms`."""
    for unit, seconds_each in (("d", 86400), ("h", 3600), ("m", 60)):
        whole, rest = divmod(duration, seconds_each)
        if whole:
            return f"{whole:.0f}{unit}" + (format_duration(rest) if rest else "")
    return f"{duration * 1000:g}ms" if 0 < duration < 1 else f"{duration:g}s"


def format_duration_short(duration: float) -> str:
    """Return a duration in its two largest units: `3d4h`, `1m5s`, `12ms`, `340µs`."""
    if duration < 0:
        return f"-{format_duration_short(-duration)}"
    if duration >= 86400:
        duration -= duration % 3600
    elif duration >= 3600:
        duration -= duration % 60
    elif duration >= 1:
        return (
            format_duration(float(int(duration)))
            if duration >= 10
            else f"{duration:.3g}s"
        )
    elif duration >= 1e-3:
        return f"{duration * 1e3:.3g}ms"
    elif duration > 0:
        return f"{duration * 1e6:.3g}µs"
    return format_duration(duration)


def format_size(count: int) -> str:
    """Return a number of bytes in units of 1024: `512 B`, `1.5 MiB`."""
    if count < 1024:
        return f"{count} B"
    power = 1
    while count >= 1023.5 * 1024**power and power < len(_SIZES):
        power += 1
    number, unit = count / 1024**power, _SIZES[power - 1]
    return f"{number:.1f} {unit}" if number < 99.95 else f"{number:.0f} {unit}"
