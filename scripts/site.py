"""A hook of mkdocs: fit tables on narrow screens.

Long names in a table get marks where they may break. Cells of wide tables get the heading of their
column, which docs/assets/extra.css shows on a telephone, where the cells of a row stand one below the other.
"""

from __future__ import annotations

import re
from itertools import count

LONGEST = 16
"""The characters of a name that needs no mark."""

WIDE = 3
"""A table of this number of columns does not fit on a telephone."""

CELL = re.compile(r"<td[ >].*?</td>", re.DOTALL)
CODE = re.compile(rf"(?<=<code>)[^<>]{{{LONGEST + 1},}}(?=</code>)")
TABLE = re.compile(r"<table>.*?</table>", re.DOTALL)
HEADING = re.compile(r"<th[ >].*?</th>", re.DOTALL)
ROW = re.compile(r"<tr[ >].*?</tr>", re.DOTALL)
TAG = re.compile(r"<[^>]*>")


def on_page_content(html: str, **_: object) -> str:
    """Let names in cells break after `_`, `.`, `:`, `/` and `=`, and label the cells of wide tables."""
    html = CELL.sub(
        lambda cell: CODE.sub(
            lambda code: re.sub(r"(?<=[_.=/:])(?=\w)", "<wbr>", code[0]), cell[0]
        ),
        html,
    )
    return TABLE.sub(lambda table: labelled(table[0]), html)


def labelled(table: str) -> str:
    """The table, with the heading of its column in each cell."""
    headings = [TAG.sub("", heading).strip() for heading in HEADING.findall(table)]
    if len(headings) < WIDE:
        return table

    def row(found: re.Match[str]) -> str:
        column = count()
        return re.sub(
            r"<td(?=[ >])",
            lambda cell: f'{cell[0]} data-label="{headings[next(column)]}"',
            found[0],
        )

    return ROW.sub(row, table)
