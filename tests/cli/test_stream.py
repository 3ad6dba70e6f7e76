"""`jsync stream` against a real server."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from jsync import Stream

    from .support import Jsync

pytestmark = pytest.mark.server


def test_streams_are_listed_as_a_table_as_names_and_as_json(
    jsync: Jsync, stream: Stream
) -> None:
    subject = f"{stream.name}.>"
    table = jsync("stream", "ls", "--subject", subject)
    assert table.rows == [[stream.name, subject, "0", "0", "0"]]
    assert jsync("s", "list", "-n", "--subject", subject).lines == [stream.name]
    (found,) = jsync("stream", "ls", "--subject", subject, "--json").json
    assert found["config"]["subjects"] == [subject]
