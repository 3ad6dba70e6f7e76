"""Tests of the schema of payloads, inferred from samples."""

from __future__ import annotations

import pytest

from jsync.spark.pipeline import Inference


@pytest.mark.parametrize(
    ("payloads", "schema"),
    [
        ([b'{"a": 1, "b": "x"}', b'{"c": true}'], "a bigint, b string, c boolean"),
        ([b'{"a": 1}', b'{"a": 2.5}', b'{"a": null}'], "a double"),
        ([b'{"a": 1}', b'{"a": 9223372036854775808}'], "a decimal(38,0)"),
        ([b'{"a": null}'], "a string"),
        ([b'{"a": 1}', b'{"a": "x"}'], "a string"),
        ([b'{"a": {"b": 1}}', b'{"a": 5}'], "a string"),
        ([b'{"a": [1, null]}', b'{"a": [2.5]}'], "a array<double>"),
        ([b'{"a": []}'], "a array<string>"),
        (
            [b'{"a": {"b": 1}}', b'{"a": {"c d": [{"e": false}]}}'],
            "a struct<b: bigint, `c d`: array<struct<e: boolean>>>",
        ),
        ([b'{"from-to": 1, "w`x": 2}'], "`from-to` bigint, `w``x` bigint"),
        ([b"[1]", b"no JSON", b"\xff"], ""),
    ],
)
def test_the_schema_fits_all_samples(payloads: list[bytes], schema: str) -> None:
    assert Inference.of(payloads).schema == schema


def test_samples_that_are_no_object_are_counted() -> None:
    found = Inference.of([b'{"a": 1}', b'{"b": 1}', b"[]", b"", b"[" * 100_000])
    assert (found.samples, found.malformed) == (5, 3)
    assert [kind.present for kind in found.payload.fields.values()] == [1, 1]
