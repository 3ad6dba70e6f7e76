"""Tests of turning files into rows, subjects and message ids, without a server."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import re
import zipfile
from math import inf
from typing import TYPE_CHECKING, Any

import pyarrow
import pyarrow.parquet
import pytest

from jsync.cli.ingest.errors import BadRowError, BadValueError
from jsync.cli.ingest.files import format_of, identity_of, open_source
from jsync.cli.ingest.message_ids import PositionIds, TemplateIds, position_of
from jsync.cli.ingest.rows import ReadOptions, Row, open_rows
from jsync.cli.ingest.template import (
    ColumnTemplate,
    SubjectTemplate,
    column_or_template,
)
from jsync.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path


def read(path: Path | str, stdin: bytes = b"", **how: Any) -> list[Row | BadRowError]:
    form = how.pop("form", None)
    with open_source(
        str(path), form=form, identity=None, stdin=io.BytesIO(stdin)
    ) as source:
        return list(open_rows(source, ReadOptions(**how)))


def values(rows: list[Row | BadRowError]) -> list[Any]:
    return [json.loads(row.data) for row in rows if isinstance(row, Row)]


def written(path: Path, data: bytes | str) -> Path:
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


# Formats ------------------------------------------------------------------------------


def test_lines_are_messages_as_they_stand(tmp_path: Path) -> None:
    rows = read(written(tmp_path / "a.log", b"one\r\n\n\xff two\nthree"))
    assert [(row.number, row.data) for row in rows if isinstance(row, Row)] == [
        (1, b"one"),
        (2, b""),
        (3, b"\xff two"),
        (4, b"three"),
    ]


def test_ndjson_lines_are_sent_unchanged_and_have_columns(tmp_path: Path) -> None:
    text = '{"a":  1, "b": {"c": "x"}}\n\n[1]\n{"a": 2}'
    rows = read(written(tmp_path / "a.jsonl", text))
    assert rows == [
        Row(1, {"a": 1, "b": {"c": "x"}}, b'{"a":  1, "b": {"c": "x"}}'),
        Row(3, {}, b"[1]"),
        Row(4, {"a": 2}, b'{"a": 2}'),
    ]


def test_invalid_json_is_reported_by_line_and_skipped(
    tmp_path: Path,
) -> None:
    deep = "[" * 100_000 + "]" * 100_000
    text = f'{{"a": 1}}\n{{"a": \n{{"a": 3}}\n\xff\n{deep}\n{{"a": 6}}\n'
    path = written(tmp_path / "a.ndjson", text)
    rows = read(path)
    assert [row.number for row in rows if isinstance(row, Row)] == [1, 3, 6]
    told = [str(row) for row in rows if isinstance(row, BadRowError)]
    assert [line.partition(": ")[0] for line in told] == [
        f"{path}, line {number}" for number in (2, 4, 5)
    ]


def test_a_csv_row_is_an_object_of_texts(tmp_path: Path) -> None:
    path = written(tmp_path / "a.csv", '\ufeffid,name\n007,"a\nb"\n\n1.50,NA\n')
    rows = read(path)
    assert values(rows) == [
        {"id": "007", "name": "a\nb"},
        {"id": "1.50", "name": "NA"},
    ]
    # These are the first lines of the rows: a quoted line break counts as a line, too.
    assert [row.number for row in rows if isinstance(row, Row)] == [2, 5]


def test_typed_columns_have_their_type_in_every_row(tmp_path: Path) -> None:
    text = "zip,price,n,ok,x\n007,36.45,1,TRUE,5\n1,36.40, 2 ,false,\nNA,,,,NA\n"
    types = {"zip": "text", "price": "float", "n": "int", "ok": "bool"}
    path = written(tmp_path / "a.csv", text)
    rows = read(path, types=types, nulls=frozenset({"NA"}), infer=True)
    assert values(rows) == [
        {"zip": "007", "price": 36.45, "n": 1, "ok": True, "x": 5},
        {"zip": "1", "price": 36.4, "n": 2, "ok": False, "x": ""},
        {"zip": None, "price": None, "n": None, "ok": None, "x": None},
    ]


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        *(("int", "1.5"), ("int", "1_0"), ("int", "x"), ("int", "\u0663")),
        *(("float", "nan"), ("float", "inf"), ("float", "1,5"), ("bool", "yes")),
    ],
)
def test_a_wrongly_typed_value_is_a_bad_row(
    tmp_path: Path, kind: str, text: str
) -> None:
    path = written(tmp_path / "a.csv", f'a\n"{text}"\n')
    rows = read(path, types={"a": kind})
    assert [type(row) for row in rows] == [BadRowError]
    assert f"line 2: 'a' is '{text}'" in str(rows[0])


def test_types_of_unknown_columns_and_kinds_are_rejected(tmp_path: Path) -> None:
    path = written(tmp_path / "a.csv", "a\n1\n")
    with pytest.raises(ConfigError, match=r"types: .*no column 'b'; it has a"):
        read(path, types={"b": "int"})
    with pytest.raises(ConfigError, match="types: a=date: the types are text, int"):
        read(path, types={"a": "date"})


def test_an_index_without_a_name_is_a_column(tmp_path: Path) -> None:
    found = read(written(tmp_path / "a.csv", ",a\n0,x\n1,y\n"))
    assert values(found) == [{"index": "0", "a": "x"}, {"index": "1", "a": "y"}]
    for header in (",index", "a,,b", "a,"):
        with pytest.raises(ConfigError, match="each column needs a name of its own"):
            read(written(tmp_path / "a.csv", f"{header}\n"))


@pytest.mark.parametrize("kind", ["gz", "bz2", "xz"])
@pytest.mark.parametrize("form", ["csv", "ndjson", "txt"])
def test_a_file_that_was_cut_off_is_named(tmp_path: Path, kind: str, form: str) -> None:
    text = b'{"a":1}\n' * 10_000
    compressed = {
        "gz": gzip.compress(text),
        "bz2": bz2.compress(text),
        "xz": lzma.compress(text),
    }
    data = compressed[kind]
    for size in (20, len(data) - 1):
        path = written(tmp_path / f"a.{form}.{kind}", data[:size])
        with pytest.raises(BadRowError, match=rf"a\.{form}\.{kind} is damaged: "):
            read(path)


def test_a_truncated_parquet_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"a": list(range(100_000))}), path)
    data = bytearray(path.read_bytes())
    with pytest.raises(ConfigError, match=r"a\.parquet is not Parquet"):
        read(written(path, bytes(data[:-1])))
    data[100:50_000] = bytes(49_900)
    with pytest.raises(BadRowError, match=r"a\.parquet is damaged"):
        read(written(path, bytes(data)))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("7", 7),
        ("-7", -7),
        ("0", 0),
        ("007", "007"),
        ("1.5", 1.5),
        ("1.50", "1.50"),
        ("1e5", "1e5"),
        ("-", "-"),
        ("٣", "٣"),
        ("nan", "nan"),
        ("true", True),
        ("True", "True"),
        ("12345678901234567890", "12345678901234567890"),
        ("NA", None),
        ("", ""),
    ],
)
def test_only_canonical_numbers_are_inferred_to_be_numbers(
    tmp_path: Path, text: str, value: object
) -> None:
    path = written(tmp_path / "a.csv", f"x,y\n{text},\n")
    (found,) = values(read(path, infer=True, nulls=frozenset({"NA"})))
    assert found == {"x": value, "y": ""}
    assert type(found["x"]) is type(value)


def test_csv_may_have_another_delimiter_and_no_header(tmp_path: Path) -> None:
    assert values(read(written(tmp_path / "a.tsv", "a\tb\n1\t2\n"))) == [
        {"a": "1", "b": "2"}
    ]
    path = written(tmp_path / "a.csv", "1;2\n")
    assert values(read(path, delimiter=";", header=("a", "b"))) == [
        {"a": "1", "b": "2"}
    ]


def test_bad_csv_rows_are_reported_and_skipped(tmp_path: Path) -> None:
    path = written(tmp_path / "a.csv", b'a,b\n1\n1,2\n\xff,2\n"x"y,2\n3,4\n')
    rows = read(path)
    assert values(rows) == [{"a": "1", "b": "2"}, {"a": "3", "b": "4"}]
    told = [str(row) for row in rows if isinstance(row, BadRowError)]
    assert [line.partition(": ")[0] for line in told] == [
        f"{path}, line {number}" for number in (2, 4, 5)
    ]
    assert told[0].endswith("1 columns, but the header has 2")


@pytest.mark.parametrize("text", ["", "a,a\n1,2\n", "a,,b\n1,2,3\n"])
def test_csv_needs_a_name_for_each_column(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError, match=r"a\.csv"):
        read(written(tmp_path / "a.csv", text))


def test_rows_of_parquet_are_objects_with_their_types(tmp_path: Path) -> None:
    table = pyarrow.table({"id": [1, 2], "at": [None, 1.5], "raw": [b"\xff", b""]})
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    rows = read(tmp_path / "a.parquet")
    assert values(rows) == [
        {"id": 1, "at": None, "raw": "/w=="},
        {"id": 2, "at": 1.5, "raw": ""},
    ]
    (first, _) = read(tmp_path / "a.parquet", data="raw")
    assert isinstance(first, Row)
    assert first.data == b"\xff"
    with pytest.raises(ConfigError, match="is not Parquet"):
        read(written(tmp_path / "b.parquet", "x"))


def test_a_value_that_json_lacks_is_refused(tmp_path: Path) -> None:
    numbers = [float("inf"), float("nan"), None, -1.5]
    path = tmp_path / "a.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"a": numbers}), path)
    rows = read(path)
    assert str(rows[0]) == f"{path}, row 1: 'a' is inf, which JSON cannot hold"
    assert values(rows) == [{"a": None}, {"a": None}, {"a": -1.5}]


@pytest.mark.parametrize("nested", [[1.0, -inf], {"x": [inf]}, [{"y": {"z": inf}}]])
def test_an_infinity_within_a_nested_value_is_refused(
    tmp_path: Path, nested: Any
) -> None:
    path = tmp_path / "a.parquet"
    columns = {"a": [nested, None], "flat": [inf, 1.0], "t": ["x", "y"]}
    pyarrow.parquet.write_table(pyarrow.table(columns), path)
    for data in (None, "a"):
        assert re.search(
            "row 1: 'a' has -?inf, which JSON cannot hold",
            str(read(path, data=data)[0]),
        )
    for data in ("flat", "t"):
        assert isinstance(read(path, data=data)[0], BadRowError) is (data == "flat")


def test_parquet_needs_a_name_for_each_column(tmp_path: Path) -> None:
    table = pyarrow.Table.from_arrays([pyarrow.array([1])] * 2, names=["a", "a"])
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(ConfigError, match=r"a\.parquet: each column"):
        read(tmp_path / "a.parquet")


def test_a_quote_that_stays_open_names_its_lines(tmp_path: Path) -> None:
    good, bad = read(written(tmp_path / "a.csv", 'a,b\nx,1\n"y,2\nz,3\nw,4\n'))
    assert isinstance(good, Row)
    assert str(bad).endswith("line 3: unexpected end of data (up to line 5)")


def test_a_column_can_be_the_message(tmp_path: Path) -> None:
    path = written(tmp_path / "a.ndjson", '{"a": "x y"}\n{"a": {"b": 1}}\n{"b": 1}\n')
    first, second, third = read(path, data="a")
    assert isinstance(first, Row)
    assert isinstance(second, Row)
    assert (first.data, second.data) == (b"x y", b'{"b":1}')
    assert str(third).endswith("line 3: the row has no 'a' for the message")
    with pytest.raises(ConfigError, match="no column 'c'; it has a, b"):
        read(written(tmp_path / "a.csv", "a,b\n"), data="c")


# Files --------------------------------------------------------------------------------


def test_compressed_files_are_read_by_their_names(tmp_path: Path) -> None:
    text = b"a,b\n1,2\n"
    packed = {
        "a.csv.gz": gzip.compress(text),
        "a.csv.bz2": bz2.compress(text),
        "a.csv.xz": lzma.compress(text),
    }
    for name, data in packed.items():
        assert values(read(written(tmp_path / name, data))) == [{"a": "1", "b": "2"}]
    with zipfile.ZipFile(tmp_path / "a.csv.zip", "w") as archive:
        archive.writestr("inner/a.csv", text)
    assert values(read(tmp_path / "a.csv.zip")) == [{"a": "1", "b": "2"}]
    with zipfile.ZipFile(tmp_path / "a.csv.zip", "a") as archive:
        archive.writestr("b.csv", text)
    with pytest.raises(ConfigError, match="holds 2 files"):
        read(tmp_path / "a.csv.zip")


def test_an_inaccessible_file_is_named_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        read(tmp_path / "none.csv")
    with pytest.raises(ConfigError, match="not a zip file"):
        read(written(tmp_path / "a.csv.zip", "x"))
    with pytest.raises(ConfigError, match="does not tell the format: pass --format"):
        read(written(tmp_path / "a.data", "x"))
    (tmp_path / "rows").mkdir()
    with pytest.raises(ConfigError, match="Is a directory"):
        read(tmp_path / "rows")
    assert format_of("-", None) == "lines"
    assert format_of("A.CSV.GZ", None) == "csv"


# Subjects -----------------------------------------------------------------------------


def test_a_subject_takes_its_tokens_from_columns() -> None:
    template = SubjectTemplate("flights.{carrier}.{origin}-{n}")
    assert template.columns == ("carrier", "origin", "n")
    assert template.filter == "flights.*.*"
    fields = {"carrier": "AA", "origin": "JFK", "n": 7}
    assert template.fill(fields) == "flights.AA.JFK-7"
    assert SubjectTemplate("a.b").fill({}) == "a.b"
    assert SubjectTemplate("a.{user.id}").fill({"user": {"id": True}}) == "a.true"
    assert SubjectTemplate("a.{user.id}").fill({"user.id": "x"}) == "a.x"


@pytest.mark.parametrize(
    "value", ["", "a.b", "a b", "*", ">", "x\n", None, {}, [1], b"x"]
)
def test_values_unfit_for_tokens_are_rejected_or_replaced(value: object) -> None:
    with pytest.raises(BadValueError, match=r"'c'|binary"):
        SubjectTemplate("a.{c}").fill({"c": value})
    if value is None or isinstance(value, str):
        filled = SubjectTemplate("a.{c}", "_").fill({"c": value})
        expected = {
            "": "_",
            "a.b": "a_b",
            "a b": "a_b",
            "*": "_",
            ">": "_",
            "x\n": "x_",
        }
        assert filled == f"a.{expected[value or '']}"


def test_a_column_may_hold_whole_subjects() -> None:
    template = SubjectTemplate("{subject}")
    assert template.filter == ">"
    assert template.fill({"subject": "a.b.c"}) == "a.b.c"
    for wrong in ("", "a..b", "a.*", "a b", "a."):
        with pytest.raises(BadValueError, match="is not a subject"):
            template.fill({"subject": wrong})


@pytest.mark.parametrize(
    "text",
    ["a.{", "a.}", "a.{}", "a.{b!r}", "a.{b:>3}", "a..{b}", "a.*", "a b", ".a", ""],
)
def test_an_invalid_template_is_rejected(text: str) -> None:
    with pytest.raises(ConfigError, match="subject: "):
        SubjectTemplate(text)


def test_columns_are_checked_before_the_first_row() -> None:
    SubjectTemplate("a.{b}.{c.d}").check_columns(["b", "c"])
    with pytest.raises(ConfigError, match="no column 'x'; there are b, c"):
        SubjectTemplate("a.{x}").check_columns(["b", "c"])


# Ids ----------------------------------------------------------------------------------


def test_an_id_consists_of_file_line_and_content(tmp_path: Path) -> None:
    path = written(tmp_path / "a.csv", "a\n1\n")
    with open_source(str(path), form=None, identity=None, stdin=io.BytesIO()) as source:
        ids = PositionIds(source)
        msg_id = ids.of(Row(2, {}, b"x"))
        assert msg_id.startswith("a.csv@")
        place = position_of(msg_id)
        assert place is not None
        assert (place.identity, place.number) == (identity_of(str(path)), 2)
        others = {ids.of(Row(3, {}, b"x")), ids.of(Row(2, {}, b"y"))}
        assert len(others | {msg_id}) == 3
    assert identity_of(str(tmp_path / "b" / "a.csv")) != identity_of(str(path))
    assert position_of("order-7") is None


def test_an_id_may_be_one_or_several_columns() -> None:
    row = Row(1, {"n": 7, "day": "mon"}, b"")
    assert TemplateIds(column_or_template("n")).of(row) == "7"
    assert TemplateIds(column_or_template("{day}-{n}")).of(row) == "mon-7"
    with pytest.raises(ConfigError, match="same for all"):
        column_or_template("{{n}}")
    assert ColumnTemplate("{{{n}}}", "id").fill({"n": 1}) == "{1}"
