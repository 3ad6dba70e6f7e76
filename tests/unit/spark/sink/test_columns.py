"""Tests of turning the columns of a frame into messages."""

from __future__ import annotations

import pytest

from jsync.errors import ConfigError
from jsync.spark.sink.columns import KINDS, OPTIONS, ColumnPlan

DATA = ("data", "binary")


def test_all_columns_fit_in_any_order_and_case() -> None:
    fields = [(name.upper(), kinds[-1]) for name, kinds in KINDS.items()]
    plan = ColumnPlan.of(fields[::-1])
    assert plan.names == tuple(KINDS)[::-1]
    assert {"subject", "data", *OPTIONS} == set(plan.names)
    assert plan.expectations == (
        "expected_last_msg_id",
        "expected_last_subject_sequence",
        "expected_last_sequence",
    )


@pytest.mark.parametrize(("name", "kinds"), KINDS.items())
def test_a_column_has_one_of_its_types(name: str, kinds: tuple[str, ...]) -> None:
    others = [field for field in (DATA, ("subject", "string")) if field[0] != name]
    for kind in (*kinds, *(f"{one} collate UTF8_LCASE" for one in kinds)):
        ColumnPlan.of([(name, kind), *others])
    with pytest.raises(ConfigError, match=f"column {name} is date, .* cast it"):
        ColumnPlan.of([(name, "date"), *others])


def test_the_subject_is_a_column_or_an_option() -> None:
    assert ColumnPlan.of([DATA], "orders.new").subject == "orders.new"
    with pytest.raises(ConfigError, match="give the option subject, or a column"):
        ColumnPlan.of([DATA])
    with pytest.raises(ConfigError, match="drop one of them"):
        ColumnPlan.of([DATA, ("subject", "string")], "orders.new")


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        ([("subject", "string")], "no column data.*to_json"),
        ([DATA, ("sequence", "bigint")], "gives the column sequence: drop it"),
        (
            [("stream", "string"), ("sequence", "bigint"), DATA],
            "gives the columns stream, sequence: drop them",
        ),
        ([DATA, ("Data", "string")], "two columns have the name data"),
        ([DATA, ("value", "binary")], "no value: is it data"),
        ([DATA, ("topic", "string")], "no topic: is it subject"),
        ([DATA, ("msgid", "string")], "no msgid: is it msg_id"),
        ([DATA, ("carrier", "string")], "no carrier: drop it; there are subject, data"),
    ],
)
def test_any_other_column_is_refused_by_name(
    fields: list[tuple[str, str]], what: str
) -> None:
    with pytest.raises(ConfigError, match=what):
        ColumnPlan.of(fields, "orders.new")
