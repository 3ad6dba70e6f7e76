"""The release lines of nats-server that jsync supports, and the paths of their last releases."""

from __future__ import annotations

from pathlib import Path

import pytest

LINES = ("2.10", "2.11", "2.12", "2.14", "2.15")

SERVERS = Path(__file__).parents[2] / ".cache" / "nats-server"


def binary_of(line: str) -> Path:
    """Return the path of the nats-server of that line. If it is missing, the tests fail."""
    binary = SERVERS / line / "bin" / "nats-server"
    if not binary.is_file():
        pytest.fail(
            f"there is no nats-server {line} in {binary}: `make servers` installs it",
            pytrace=False,
        )
    return binary
