"""Tests of the positions of a query in its streams: arithmetic, and reports of losses."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from jsync.errors import CheckpointError
from jsync.spark.fingerprint import StreamFingerprint
from jsync.spark.offsets import (
    MAX_ROWS,
    VERSION,
    OffsetRange,
    StreamBounds,
    check_start,
    check_truncated,
    describe_loss,
    from_json,
    packed,
    partition_counts,
    passed_over,
    plan_partitions,
    rate_limit,
    resume_offset,
    rows_for_bytes,
    split_range,
    to_json,
    with_start,
)
from jsync.spark.range_progress import RangeProgress

OLD = "2026-01-01T00:00:00+00:00"
NEW = "2026-02-01T00:00:00+00:00"


def bounds(
    first: int, following: int, created: str = OLD, leader: str = ""
) -> StreamBounds:
    return StreamBounds("A", created, first, following, leader=leader)


def test_an_offset_of_a_newer_version_is_refused() -> None:
    offset = {**to_json({"A": OffsetRange(OLD, 1, 5, 2)}), "v": VERSION + 1}
    with pytest.raises(CheckpointError, match="written by a newer jsync"):
        from_json(offset)


def test_messages_that_are_passed_over_are_counted() -> None:
    read = OffsetRange(OLD, 1, 5, fingerprint=StreamFingerprint(9, OLD))
    assert passed_over(read, OLD, 8) == 3
    assert passed_over(read, OLD, 3) == 0  # restored, and read again
    assert passed_over(read, NEW, 1) == 5  # 5 to 9 of the old stream


def test_an_offset_comes_back_from_json() -> None:
    ranges = {
        "A": OffsetRange(OLD, 1, 5, 2),
        "B": OffsetRange(NEW, None, 9),
        "C": OffsetRange(NEW, 1, 5, 1, fingerprint=StreamFingerprint(7, NEW), pack=3),
        "D": OffsetRange(NEW, 1, 5, 1, edges=(3,), missing=2, deleted=1),
    }
    assert from_json(to_json(ranges)) == ranges
    assert [offset_range.reached for offset_range in ranges.values()] == [5, 9, 8, 5]
    assert with_start(ranges["B"], OffsetRange(NEW, 2, 4)) == OffsetRange(NEW, 4, 9)
    assert with_start(ranges["A"], OffsetRange(OLD, 0, 3)) == ranges["A"]


@pytest.mark.parametrize(
    ("start", "upto", "stream", "loss"),
    [
        (5, 9, bounds(5, 20), None),
        (5, 9, bounds(1, 20), None),
        (5, 9, bounds(6, 20), "sequence 5 of stream A went"),
        (5, 9, bounds(8, 20), "sequences 5 to 7 of stream A went"),
        (5, 9, bounds(15, 20), "sequences 5 to 8 of stream A went"),
        (5, 5, bounds(15, 20), None),
        (5, 9, bounds(1, 20, NEW), "was recreated at"),
    ],
)
def test_the_lost_messages_of_a_range(
    start: int, upto: int, stream: StreamBounds, loss: str | None
) -> None:
    found = describe_loss(OLD, start, upto, stream)
    assert found is None if loss is None else loss in (found or "")


def test_a_read_resumes_after_a_loss() -> None:
    offset_range = OffsetRange(OLD, 1, 10)
    assert resume_offset(offset_range, bounds(1, 20), None) == 10
    assert resume_offset(offset_range, bounds(15, 20), None) == 15
    assert resume_offset(offset_range, bounds(3, 20, NEW), None) == 3
    assert resume_offset(offset_range, bounds(1, 7), None) == 7
    # The stream is new, or in an older state: reading resumes at messages not seen yet.
    assert resume_offset(offset_range, bounds(1, 20, NEW), 6) == 6
    assert resume_offset(offset_range, bounds(1, 20), 6) == 6
    assert resume_offset(offset_range, bounds(8, 20), 6) == 8
    assert resume_offset(offset_range, bounds(1, 20), 15) == 10
    assert check_truncated(10, bounds(1, 7)) == (
        "stream A ends at sequence 6, but reached 9 before"
    )
    assert check_truncated(10, bounds(1, 10)) is None


def test_a_place_that_a_stream_has_not_reached() -> None:
    assert check_start(10, bounds(1, 10)) is None
    assert check_start(11, bounds(1, 10)) == (
        "stream A has no sequence 11 to begin with: the next message will have sequence 10"
    )


@given(
    st.dictionaries(st.sampled_from("ABCD"), st.integers(0, 10**9), min_size=1),
    st.integers(1, 10**9),
)
def test_the_limit_is_used_up_without_starving_streams(
    backlogs: dict[str, int], limit: int
) -> None:
    shares = rate_limit(backlogs, limit)
    assert all(0 <= shares[name] <= count for name, count in backlogs.items())
    assert all(shares[name] for name, count in backlogs.items() if count)
    assert sum(shares.values()) < limit + len(backlogs)
    assert sum(shares.values()) >= min(limit, sum(backlogs.values()))


@given(st.integers(1, 10**12), st.integers(0, 10**9), st.integers(0, 300))
def test_ranges_are_the_whole_in_order(start: int, count: int, parts: int) -> None:
    found = split_range(start, start + count, parts)
    assert sum(end - low + 1 for low, end in found) == count
    assert len(found) == (min(count, max(parts, 1)))
    position = start
    for low, end in found:
        assert low == position <= end
        position = end + 1


def test_partitions_are_as_many_as_asked_for() -> None:
    assert partition_counts({"A": 0, "B": 10}, None, None) == {"A": 0, "B": 1}
    assert partition_counts({"A": MAX_ROWS + 1}, None, None) == {"A": 2}
    assert partition_counts({"A": 100}, None, 30) == {"A": 4}
    assert partition_counts({"A": 75, "B": 25}, 4, None) == {"A": 3, "B": 1}
    assert partition_counts({"A": 2}, 8, None) == {"A": 2}
    assert partition_counts({"A": 75, "B": 25}, None, 5, 6) == {"A": 4, "B": 1}
    assert plan_partitions({"A": OffsetRange(OLD, 1, 101)}, 3, None) == {
        "A": OffsetRange(OLD, 1, 101, 3)
    }


def packs(ranges: dict[str, OffsetRange]) -> list[list[str]]:
    """Return the streams of each shared partition."""
    found: dict[int, list[str]] = {}
    for name, offset_range in ranges.items():
        if offset_range.pack is not None:
            found.setdefault(offset_range.pack, []).append(name)
    return list(found.values())


def test_small_streams_share_partitions_in_order() -> None:
    ranges = {f"S{n}": OffsetRange(OLD, 1, 11) for n in range(200)}
    shared = packs(plan_partitions(ranges, None, None))
    assert [name for names in shared for name in names] == list(ranges)
    assert len(shared) == 4
    assert {len(names) for names in shared} <= {49, 50, 51}
    # A large stream has a partition for itself, and an empty stream has none.
    mixed = plan_partitions(
        {**ranges, "L": OffsetRange(OLD, 1, 100_001), "E": OffsetRange(OLD, 5, 5)},
        1,
        None,
    )
    assert (mixed["L"].pack, mixed["L"].parts) == (None, 1)
    assert (mixed["E"].pack, mixed["E"].parts) == (None, 0)
    assert packs(mixed) == shared


@given(
    st.lists(st.integers(0, 3 * MAX_ROWS), min_size=1, max_size=60),
    st.none() | st.integers(1, 50),
    st.none() | st.integers(1, 50),
)
def test_partitions_are_between_the_least_and_the_most(
    counts: list[int], least: int | None, most: int | None
) -> None:
    ranges = {f"S{n}": OffsetRange(OLD, 1, 1 + count) for n, count in enumerate(counts)}
    found = plan_partitions(ranges, least, None, most)
    shared = packs(found)
    alone = sum(
        offset_range.parts
        for offset_range in found.values()
        if offset_range.pack is None
    )
    assert all(found[name].parts == 1 for names in shared for name in names)
    partitions = alone + len(shared)
    if most is not None:
        assert partitions <= most
    elif least is not None:
        assert partitions >= min(least, sum(counts))
    for name, count in zip(ranges, counts, strict=True):
        assert bool(found[name].parts) is bool(count)


def test_bytes_are_about_so_many_rows() -> None:
    assert rows_for_bytes(1000, {"A": 50}, {"A": 100.0}) == 10
    assert rows_for_bytes(1000, {"A": 10, "B": 10}, {"A": 100.0, "B": 300.0}) == 5
    assert rows_for_bytes(1, {"A": 50}, {"A": 100.0}) == 1
    assert rows_for_bytes(1000, {"A": 50}, {"A": 0.0}) == 50


# Checking a range ----------------------------------------------------------------------


def test_rows_without_a_gap_leave_nothing_open() -> None:
    coverage = RangeProgress(5, 20)
    assert not coverage.has_gap(6, 10)
    coverage.advance(6, 10)
    assert coverage.has_gap(5, 16)
    coverage.advance(5, 16)
    assert not coverage.is_complete()
    coverage.advance(4, 20)
    assert coverage.is_complete()
    assert coverage.missing == 1


@pytest.mark.parametrize(
    ("before", "found", "after", "confirmed"),
    [
        (bounds(1, 21), None, bounds(1, 25), True),
        (bounds(1, 30), 21, bounds(1, 30), True),
        # One message has not arrived.
        (bounds(1, 30), 20, bounds(1, 30), False),
        # The replying server does not have all of the range itself.
        (bounds(1, 20), None, bounds(1, 25), False),
        # This is another server, which may not have had the message when it was asked.
        (bounds(1, 21, leader="a"), None, bounds(1, 21, leader="b"), False),
        (bounds(1, 21, leader="a"), None, bounds(1, 21, leader="a"), True),
        (bounds(1, 21), None, bounds(1, 21, NEW), False),
    ],
)
def test_only_a_complete_leader_confirms_a_complete_range(
    before: StreamBounds, found: int | None, after: StreamBounds, confirmed: bool
) -> None:
    assert RangeProgress(11, 20).confirmed(before, found, after) is confirmed


@given(
    st.dictionaries(st.text(max_size=3), st.integers(0, 200_000), max_size=8),
    st.none() | st.integers(1, 20),
    st.none() | st.integers(1, 20),
)
def test_packed_parts_have_each_sequence_once(
    counts: dict[str, int], least: int | None, most: int | None
) -> None:
    ranges = {name: OffsetRange(OLD, 1, 1 + count) for name, count in counts.items()}
    partitions = packed(
        plan_partitions(ranges, least, None, most), lambda name, _, *ends: (name, *ends)
    )
    assert all(partitions)
    found: dict[str, list[tuple[int, int]]] = {}
    for name, start, end in (part for parts in partitions for part in parts):
        found.setdefault(name, []).append((start, end))
    assert found.keys() == {name for name, count in counts.items() if count}
    for name, its in found.items():
        starts, ends = zip(*sorted(its), strict=True)
        assert starts == (1, *(end + 1 for end in ends[:-1]))
        assert ends[-1] == counts[name]
        sizes = [end - start for start, end in its]
        assert max(sizes) - min(sizes) <= 1


def test_a_replaced_revision_is_not_lost() -> None:
    there = StreamBounds("KV_b", OLD, 8, 20, is_bucket=True)
    assert describe_loss(OLD, 5, 9, there) is None
    assert "was recreated" in (describe_loss(NEW, 5, 9, there) or "")


@pytest.mark.parametrize(
    ("count", "parts"), [(5, 1), (999, 1), (1000, 1), (2500, 2), (4000, 4), (9000, 4)]
)
def test_few_messages_stay_in_one_partition(count: int, parts: int) -> None:
    ranges = {"A": OffsetRange(OLD, 1, 1 + count)}
    found = plan_partitions(ranges, 4, None, None, 1000)
    assert found["A"].parts == parts
    assert found["A"].pack is None


def test_few_messages_of_many_streams_share_a_partition() -> None:
    ranges = {name: OffsetRange(OLD, 1, 11) for name in "ABC"}
    packs = [
        offset_range.pack
        for offset_range in plan_partitions(ranges, 3, None, None, 1000).values()
    ]
    assert packs == [0, 0, 0]
    assert [s.pack for s in plan_partitions(ranges, 3, None).values()] == [None] * 3
