"""A hook of mkdocs: fit tables on narrow screens, prefer guides in the search, add the card.

The hook marks where long names in a table may break, and which names stay whole. It also copies
the heading of the column into each cell of a wide table. On a telephone, docs/assets/extra.css
shows the cells of a row below each other, with these headings.
"""

from __future__ import annotations

import re
from html import escape
from itertools import count
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.pages import Page

LONGEST = 20
"""Names up to this length stay on one line."""

WIDE = 3
"""A table with this number of columns does not fit on a telephone."""

CELL = re.compile(r"<td[ >].*?</td>", re.DOTALL)
CODE = re.compile(rf"(<code>(?:<[^<>]+>)?)([^<>]{{{LONGEST + 1},}})(?=<)")
SHORT = re.compile(rf"<code>(?=[^<>]{{1,{LONGEST}}}</code>)")
BREAK = re.compile(r"(?<=[_.=/:])(?=\w)|(?<=[a-z])(?=[A-Z][a-z])")
TABLE = re.compile(r"<table>.*?</table>", re.DOTALL)
NOTEBOOK_LINK = re.compile(r'(<a href="[\w./-]+)\.md(?=[#"])')
HEADING = re.compile(r"<th[ >].*?</th>", re.DOTALL)
ROW = re.compile(r"<tr[ >].*?</tr>", re.DOTALL)
TAG = re.compile(r"<[^>]*>")

SECONDARY = (
    *("reference/", "cli/", "cli.md", "errors.md"),
    *("architecture.md", "conformance", "locks.md"),
)
"""The beginnings of pages that the search lists below the guides.

They name everything, so they would be the first hit of most questions.
"""


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Give the guides precedence in the search."""
    if page.file.src_uri.startswith(SECONDARY):
        page.meta["search"] = {"boost": 0.25}
    return markdown


def on_page_content(html: str, page: Page, **_: object) -> str:
    """Let long names in cells break, keep short names whole, and label cells of wide tables.

    Only the links of pages in Markdown lead to pages of the site, so change those of notebooks.
    """
    if page.file.src_uri.endswith(".ipynb"):
        html = NOTEBOOK_LINK.sub(r"\1.html", html)
    html = CELL.sub(
        lambda cell: CODE.sub(
            lambda code: code[1] + BREAK.sub("<wbr>", code[2]), cell[0]
        ),
        html,
    )
    html = SHORT.sub('<code class="short">', html)
    return TABLE.sub(lambda table: labelled(table[0]), html)


def on_post_page(output: str, page: Page, config: MkDocsConfig, **_: object) -> str:
    """Name the social card, which benchmarks/card.py draws, and the title that goes with it."""
    tags = {
        "og:title": page.title,
        "og:type": "website",
        "og:url": page.canonical_url,
        "og:image": f"{config.site_url}assets/card.png",
        "og:description": config.site_description,
        "twitter:card": "summary_large_image",
    }
    head = "".join(
        f'<meta property="{name}" content="{escape(str(content))}">'
        for name, content in tags.items()
    )
    return output.replace("</head>", f"{head}</head>", 1)


def labelled(table: str) -> str:
    """Return the table with the heading of its column in each cell."""
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
