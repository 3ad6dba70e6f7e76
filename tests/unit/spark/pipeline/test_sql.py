"""Tests of the checks of Spark SQL without Spark."""

from __future__ import annotations

import pytest

from jsync.spark.pipeline import sql


@pytest.mark.parametrize(
    ("query", "reads"),
    [
        ("select a from b", ["b"]),
        ("from a |> where x > 1 |> select x", ["a"]),
        ("with a as (select * from b) select * from a join c using (x)", ["b", "c"]),
        ("select * from A union all select * from `b-c`", ["A", "b-c"]),
        ("select * from x where exists (select 1 from y where y.a = x.a)", ["x", "y"]),
        ("select * from catalog.orders, parquet.`/data`, range(10)", []),
        ("select explode(xs) from a lateral view explode(ys) as y", ["a"]),
        ("select * from values (1, 2) as t(a, b)", []),
        (
            "select window(t, '1 hour').start, to_json(struct(*)) from a group by 1",
            ["a"],
        ),
        ("select window(t, '1 day').end from a group by window(t, '1 day')", ["a"]),
        ("select window.start, b from a group by window, b", ["a"]),
        ("select sum(x) over w from a window w as (order by y)", ["a"]),
        (
            "select /*+ broadcast(b) */ * from a left anti join b on a.x = b.x",
            ["a", "b"],
        ),
    ],
)
def test_the_views_that_a_query_reads(query: str, reads: list[str]) -> None:
    assert sorted(read.name for read in sql.reads(query)) == sorted(reads)


def test_a_view_is_found_in_its_line() -> None:
    assert [*sql.reads("select *\nfrom a\njoin b using (x)")] == [("a", 2), ("b", 3)]


@pytest.mark.parametrize(
    ("query", "passed"),
    [
        ("select * from a", ("a", True, {})),
        ("select *, b + 1 as c from a where b > 1", ("a", True, {"c": None})),
        ("select b, x.c as d from A x", ("A", False, {"b": "b", "d": "c"})),
        ("select * except (b) from a", None),
        ("select * from a join b using (x)", None),
        ("select b, count(*) from a group by b", None),
        ("select * from a union all select * from b", None),
        ("with a as (select * from b) select * from a", None),
        ("select * from (select * from a)", None),
        ("values (1)", None),
    ],
)
def test_the_columns_that_a_query_passes_on(query: str, passed: object) -> None:
    found = sql.passed(query)
    assert (None if found is None else tuple(found)) == passed


def test_types_are_spelled_as_spark_does() -> None:
    schema = "a integer, b long, c dec(5), d numeric, e varchar(3), f array<long>"
    assert sql.types(schema) == {
        "a": "int",
        "b": "bigint",
        "c": "decimal(5,0)",
        "d": "decimal(10,0)",
        "e": "string",
        "f": "array<bigint>",
    }


@pytest.mark.parametrize(
    ("query", "message", "line"),
    [
        ("", "there is no SQL here", 1),
        ("select 1; select 2", "a step is one query, and these are several", 1),
        ("create table x as select 1", "not CREATE", 1),
        ("insert into x select 1", "not INSERT", 1),
        ("drop table x", "not DROP", 1),
        ("select a\nfrom b\nwhere (", r"this is not Spark SQL at '\('", 3),
        ("select 'a", "this is not Spark SQL", 1),
    ],
)
def test_a_statement_that_is_no_query_is_rejected(
    query: str, message: str, line: int
) -> None:
    with pytest.raises(sql.SQLError, match=message) as refused:
        sql.reads(query)
    assert refused.value.line == line


@pytest.mark.parametrize(
    ("schema", "columns"),
    [
        ("a int", ["a"]),
        ("a int not null comment 'x', `b c` map<string, array<double>>", ["a", "b c"]),
        ("a struct<x: int, y: string>, b decimal(10, 2)", ["a", "b"]),
        ("a timestamp,\nb timestamp_ntz,\nc variant", ["a", "b", "c"]),
        (
            "carrier string, year int, month int, hour double, data binary",
            ["carrier", "year", "month", "hour", "data"],
        ),
    ],
)
def test_the_columns_of_a_schema(schema: str, columns: list[str]) -> None:
    assert sql.columns(schema) == columns


@pytest.mark.parametrize(
    ("schema", "message", "line"),
    [
        ("", "a schema is written as", 1),
        ("a", "column 'a' has no type", 1),
        ("a: int", "column 'a' has no type", 1),
        ("a int,\nb itn", "not Spark SQL at 'itn'", 2),
        ("a array<foo>", "not Spark SQL at 'foo'", 1),
        ("a int, A string", "column 'A' is there twice", 1),
        ("a int) as select (1", "a schema is written as", 1),
        ("a int) using csv options (b 'x'", "a schema is written as", 1),
    ],
)
def test_an_invalid_schema_is_rejected(schema: str, message: str, line: int) -> None:
    with pytest.raises(sql.SQLError, match=message) as refused:
        sql.columns(schema)
    assert refused.value.line == line
