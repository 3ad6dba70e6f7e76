"""Tests of finding the position of a key in a TOML file."""

from __future__ import annotations

import pytest

from jsync.spark.pipeline.toml_lines import KeyLines

FILE = """\
# A comment, name = "no"
name = "one"

[spark.conf]
"spark.a" = 1
numbers = [
  1,
  2,
]

[sources.messages]
format = "jetstream"
options = { stream = "S", startingOffsets = "earliest" }
json = '''
a int,
name string'''

[steps]
first = \"\"\"
select *
from messages\"\"\"
second = "select 1"
third = \"\"\"select 1\"\"\"
[steps.fourth]
sql = \"\"\"select 1
from x
\"\"\"
"""


@pytest.mark.parametrize(
    ("key", "line"),
    [
        (["name"], 2),
        (["spark"], 4),
        (["spark", "conf", "spark.a"], 5),
        (["spark", "conf", "numbers"], 6),
        (["sources", "messages"], 11),
        (["sources", "messages", "format"], 12),
        (["sources", "messages", "options"], 13),
        (["sources", "messages", "options", "startingOffsets"], 13),
        (["sources", "messages", "json"], 14),
        (["steps", "first"], 19),
        (["steps", "second"], 22),
        (["steps", "fourth"], 24),
        (["steps", "fourth", "sql"], 25),
    ],
)
def test_a_key_stands_where_its_statement_begins(key: list[str], line: int) -> None:
    assert KeyLines(FILE).line(key) == line


@pytest.mark.parametrize(
    ("key", "line"),
    [
        (["sources", "messages", "path"], 11),
        (["sources", "nothing", "path"], 11),
        (["sinks"], 1),
        ([], 1),
    ],
)
def test_a_missing_key_belongs_to_the_table_above(key: list[str], line: int) -> None:
    assert KeyLines(FILE).line(key) == line


@pytest.mark.parametrize(
    ("key", "text_line", "line"),
    [
        (["sources", "messages", "json"], 1, 15),
        (["sources", "messages", "json"], 2, 16),
        (["steps", "first"], 1, 20),
        (["steps", "first", "sql"], 2, 21),
        (["steps", "second"], 1, 22),
        (["steps", "third"], 1, 23),
        (["steps", "fourth", "sql"], 1, 25),
        (["steps", "fourth", "sql"], 2, 26),
        (["steps", "fourth", "sql"], 99, 27),
    ],
)
def test_a_text_line_is_found_in_the_file(
    key: list[str], text_line: int, line: int
) -> None:
    assert KeyLines(FILE).text_line(key, text_line) == line


def test_lines_end_as_they_do_on_windows() -> None:
    positions = KeyLines(FILE.replace("\n", "\r\n"))
    assert positions.line(["steps", "second"]) == 22
    assert positions.text_line(["steps", "first"], 2) == 21
