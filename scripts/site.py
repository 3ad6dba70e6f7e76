"""A hook of mkdocs: mark where a long name in a table may break."""

from __future__ import annotations

import re

LONGEST = 16
"""The characters of a name that needs no mark."""

CELL = re.compile(r"<td[ >].*?</td>", re.DOTALL)
CODE = re.compile(rf"(?<=<code>)[^<>]{{{LONGEST + 1},}}(?=</code>)")


def on_page_content(html: str, **_: object) -> str:
    """Let names in the cells of tables break after `_`, `.` and `=`."""
    return CELL.sub(
        lambda cell: CODE.sub(
            lambda code: re.sub(r"(?<=[_.=])(?=\w)", "<wbr>", code[0]), cell[0]
        ),
        html,
    )
