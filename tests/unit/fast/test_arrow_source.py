"""Tests of columns from other libraries: text layouts, slices, nulls and header shapes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars
import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from jsync._fast import ArrowSource, RowBuffer, parse_headers
from jsync.errors import ConfigError, InvalidHeaderError
from jsync.jetstream.publishing.options import check_header

from ...support.arrow_messages import Reader, Sent

if TYPE_CHECKING:
    from jsync import Headers

IDS = st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1, max_size=30)
KINDS = [
    *(pa.utf8(), pa.large_utf8(), pa.string_view()),
    *(
        pa.dictionary(width, pa.utf8())
        for width in (pa.int8(), pa.uint32(), pa.int64())
    ),
]
LIST = pa.list_(pa.utf8())
PAIRS = pa.list_(pa.struct([("name", pa.utf8()), ("value", pa.utf8())]))


def taken(table: Any, most: int = 1000, **columns: str) -> list[tuple[Any, ...]]:
    """Return all rows as subject, payload and headers."""
    names: dict[str, Any] = {"subject": "s", "data": "data", **columns}
    source = ArrowSource(table, **names)
    found: list[tuple[Any, ...]] = []
    while (part := source.take(most)) is not None:
        subjects, payloads, blocks, _ = part
        for row, data in enumerate(payloads):
            subject = subjects if isinstance(subjects, str) else subjects[row]
            block = blocks and blocks[row]
            headers = parse_headers(block)[2] if block else None
            found.append((subject, data, headers))
    return found


def ids_of(rows: list[tuple[Any, ...]]) -> list[str | None]:
    return [headers and headers["Nats-Msg-Id"] for _, _, headers in rows]


def all_of(headers: Headers | None) -> dict[str, list[str]] | None:
    return (headers and {name: headers.get_all(name) for name in headers}) or None


def as_kind(values: list[str | None], kind: pa.DataType) -> pa.Array:
    if pa.types.is_dictionary(kind):
        return pa.array(values, pa.utf8()).dictionary_encode().cast(kind)
    return pa.array(values, kind)


@given(
    st.lists(st.tuples(st.text(max_size=30), st.none() | IDS), max_size=40),
    st.sampled_from(KINDS),
    st.sampled_from([pa.binary(), pa.large_binary(), pa.binary_view()]),
    st.integers(0, 5),
    st.integers(1, 20),
)
def test_text_may_lie_in_any_way(
    pairs: list[tuple[str, str | None]],
    kind: pa.DataType,
    data: pa.DataType,
    skipped: int,
    most: int,
) -> None:
    table = pa.table(
        {
            "data": pa.array([text.encode() for text, _ in pairs], data),
            "id": as_kind([name for _, name in pairs], kind),
        }
    ).slice(skipped)
    batches = table.to_batches(max_chunksize=7)
    table = pa.Table.from_batches(batches, table.schema)
    found = taken(table, most, msg_id="id")
    assert [data for _, data, _ in found] == [
        text.encode() for text, _ in pairs[skipped:]
    ]
    assert ids_of(found) == [name for _, name in pairs[skipped:]]


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (
            pa.map_(pa.utf8(), LIST),
            [[("A", ["1", "2"]), ("B", ["3"])], None, [("C", [])]],
        ),
        (
            pa.map_(pa.utf8(), pa.utf8()),
            [[("A", "1"), ("B", "3")], None, [("C", None)]],
        ),
        (
            PAIRS,
            [[{"name": "A", "value": "1"}, {"name": "B", "value": "3"}], None, []],
        ),
        (pa.large_list(PAIRS.value_type), [[{"name": "A", "value": "1"}], None, []]),
    ],
    ids=["map of lists", "map", "list of pairs", "large list of pairs"],
)
def test_headers_have_several_shapes(kind: pa.DataType, values: list[Any]) -> None:
    column = pa.array([None, *values, values[0]], kind).slice(1)
    table = pa.table({"data": ["a", "b", "c", "d"], "headers": column})
    found = [all_of(headers) for _, _, headers in taken(table, headers="headers")]
    assert found[0] == found[3]
    assert found[0]
    assert found[0]["A"][0] == "1"
    assert found[1:3] == [None, None]
    if isinstance(values[0][0], tuple):
        assert list(found[0]) == ["A", "B"]


def test_a_batch_of_its_own_can_be_read() -> None:
    reader = Reader(RowBuffer())
    block = b"NATS/1.0\r\nA: 1\r\nB: 2\r\nA: 3\r\n\r\n"
    reader.bring(Sent(block=block, data=b"x").wire, Sent(sequence=2, data=b"").wire)
    (batch,) = reader.batches()
    expected = [
        ("s.a", b"x", {"A": ["1", "3"], "B": ["2"]}),
        ("s.a", b"", None),
    ]
    for table in (batch, pa.table(batch), polars.DataFrame(batch)):
        found = taken(table, subject="subject", headers="headers")
        assert [(to, data, all_of(headers)) for to, data, headers in found] == expected


def test_a_slice_of_structs_is_a_table_too() -> None:
    # The offset belongs to the struct, not to its columns.
    structs = pa.array([{"data": text} for text in "abcde"])
    sliced = pa.chunked_array([structs.slice(1, 3), structs.slice(4)])
    assert [data for _, data, _ in taken(sliced)] == [b"b", b"c", b"d", b"e"]


def test_options_are_columns() -> None:
    table = pa.table(
        {
            "data": ["a", "b"],
            "ttl": pa.array([60, None], pa.int16()),
            "seq": pa.array([(1 << 64) - 1, 0], pa.uint64()),
            "last": pa.array([None, 7], pa.int64()),
            "id": ["x", None],
        }
    )
    found = taken(
        table,
        ttl="ttl",
        expected_last_sequence="seq",
        expected_last_subject_sequence="last",
        expected_last_msg_id="id",
        expected_stream="ORDERS",
    )
    assert [all_of(headers) for _, _, headers in found] == [
        {
            "Nats-Expected-Stream": ["ORDERS"],
            "Nats-Expected-Last-Sequence": ["18446744073709551615"],
            "Nats-Expected-Last-Msg-Id": ["x"],
            "Nats-TTL": ["60s"],
        },
        {
            "Nats-Expected-Stream": ["ORDERS"],
            "Nats-Expected-Last-Sequence": ["0"],
            "Nats-Expected-Last-Subject-Sequence": ["7"],
        },
    ]
    assert all_of(
        taken(pa.table({"data": ["a"], "ttl": ["never"]}), ttl="ttl")[0][2]
    ) == {"Nats-TTL": ["never"]}


@pytest.mark.parametrize(("ids", "all_ids"), [(["1", "2"], True), (["1", None], False)])
def test_the_source_tells_whether_all_rows_have_ids(
    ids: list[str | None], all_ids: bool
) -> None:
    table = pa.table({"data": ["a", "b"], "id": pa.array(ids, pa.utf8())})
    part = ArrowSource(table, subject="s", data="data", msg_id="id").take(9)
    assert part is not None
    assert part[3] is all_ids


@pytest.mark.parametrize(
    ("option", "values", "what"),
    [
        ("msg_id", ["a", ""], "msg_id: row 1 is empty"),
        ("msg_id", ["a", " b"], "blanks around"),
        ("msg_id", ["a", "b\n"], "control character"),
        ("msg_id", [1, 2], "neither text nor binary"),
        ("expected_stream", [1, 2], "neither text nor binary"),
        ("expected_last_msg_id", ["a", "\x7f"], "control character"),
        ("expected_last_sequence", [1, -1], "expected_last_sequence: row 1 is out of"),
        ("expected_last_sequence", ["1", "2"], "does not hold whole numbers"),
        ("expected_last_subject_sequence", [1.0, 2.0], "does not hold whole numbers"),
        ("ttl", [1, 0], "ttl: row 1 is out of range"),
        ("ttl", [1, 1 << 40], "ttl: row 1 is out of range"),
        ("ttl", ["never", "60"], "seconds are numbers"),
    ],
)
def test_an_invalid_option_is_rejected(
    option: str, values: list[Any], what: str
) -> None:
    table = pa.table({"data": ["a", "b"], "it": values})
    with pytest.raises(ConfigError, match=what):
        taken(table, 9, **{option: "it"})


def test_an_option_that_no_column_fits_is_refused() -> None:
    with pytest.raises(TypeError, match="'schedule' is not an option"):
        taken(pa.table({"data": ["a"]}), schedule="data")
    with pytest.raises(ConfigError, match="expected_stream is empty"):
        taken(pa.table({"data": ["a"]}), expected_stream="")


@pytest.mark.parametrize(
    ("name", "value", "kind", "what"),
    [
        ("a b", "x", InvalidHeaderError, "printable ASCII"),
        ("", "x", InvalidHeaderError, "cannot be empty"),
        ("a", "x\r\ny", InvalidHeaderError, "of row 1 has a line break"),
        ("Nats-TTL", "x", ConfigError, "use ttl= instead of"),
        ("Nats-Batch-Id", "x", ConfigError, "atomic_batch"),
        (None, "x", ConfigError, "a name of row 1 is null"),
    ],
)
def test_an_invalid_header_is_rejected(
    name: str | None, value: str, kind: type[Exception], what: str
) -> None:
    headers = pa.array([None, [{"name": name, "value": value}]], PAIRS)
    table = pa.table({"data": ["a", "b"], "headers": headers})
    source = ArrowSource(
        table, subject="s", data="data", headers="headers", check_header=check_header
    )
    with pytest.raises(kind, match=what):
        source.take(9)
