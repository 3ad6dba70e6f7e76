"""Columns of others: text in any layout, slices, nulls, headers of several shapes."""

from __future__ import annotations

from typing import Any

import polars
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from jsync._fast import ArrowSource, Columns

from .arrow_support import Reader, Sent

BOUNDED = settings(derandomize=True, database=None, deadline=None, max_examples=100)
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
    """All rows: subject, payload, message id and headers."""
    source = ArrowSource(table, **{"subject": "s", "data": "data", **columns})
    found: list[tuple[Any, ...]] = []
    while (part := source.take(most)) is not None:
        subjects, payloads, msg_ids, headers = part
        for row, data in enumerate(payloads):
            found.append(
                (
                    subjects if isinstance(subjects, str) else subjects[row],
                    data,
                    msg_ids and msg_ids[row],
                    headers and headers[row],
                )
            )
    return found


def as_kind(values: list[str | None], kind: pa.DataType) -> pa.Array:
    if pa.types.is_dictionary(kind):
        return pa.array(values, pa.utf8()).dictionary_encode().cast(kind)
    return pa.array(values, kind)


@BOUNDED
@given(
    st.lists(
        st.tuples(st.text(max_size=30), st.none() | st.text(max_size=30)), max_size=40
    ),
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
    assert taken(table, most, msg_id="id") == [
        ("s", text.encode(), name, None) for text, name in pairs[skipped:]
    ]


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
    found = [headers for _, _, _, headers in taken(table, headers="headers")]
    assert found[0] == found[3]
    assert found[0]["A"][0] == "1"
    assert found[1] is None
    assert not found[2]
    if isinstance(values[0][0], tuple):
        assert list(found[0]) == ["A", "B"]


def test_a_batch_of_its_own_can_be_read() -> None:
    reader = Reader(Columns())
    block = b"NATS/1.0\r\nA: 1\r\nB: 2\r\nA: 3\r\n\r\n"
    reader.bring(Sent(block=block, data=b"x").wire, Sent(sequence=2, data=b"").wire)
    (batch,) = reader.batches()
    expected = [
        ("s.a", b"x", None, {"A": ["1", "3"], "B": ["2"]}),
        ("s.a", b"", None, None),
    ]
    for table in (batch, pa.table(batch), polars.DataFrame(batch)):
        assert taken(table, subject="subject", headers="headers") == expected


def test_a_slice_of_structs_is_a_table_too() -> None:
    # Its offset is its own, and not that of the columns.
    structs = pa.array([{"data": text} for text in "abcde"])
    sliced = pa.chunked_array([structs.slice(1, 3), structs.slice(4)])
    assert [data for _, data, _, _ in taken(sliced)] == [b"b", b"c", b"d", b"e"]
