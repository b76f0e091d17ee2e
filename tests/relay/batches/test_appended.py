"""What was appended is found in the source by its records, whatever batches they are in; or it is an error."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from mirror.consumer.fetched import Fetched
from mirror.errors import BatchTooLarge, CorruptBatch
from mirror.relay.batches import appended
from mirror.relay.batches.appended import (
    Differs,
    ExpectedRecords,
    Shift,
    SourcePosition,
    Unproved,
    compare,
    find_shifted,
)
from mirror.relay.batches.reencode import ReencodeSpec
from mirror.wire.decode import Record
from mirror.wire.messages.fetch import AbortedTransaction
from mirror.wire.records import AnyBatch, Batch
from tests.fakes.record_batches import ABORT, COMMIT
from tests.relay.batches.logs_by_hand import Made, batch_at, fetched, marker_at, old_set_at

PLAIN = ReencodeSpec()


def numbered(first: int, count: int) -> list[Made]:
    return [Made(b"k%d" % n, b"v%d" % n, (("h", b"%d" % n),), 1_000 + n) for n in range(first, first + count)]


def found(
    own: Sequence[Batch], source: Sequence[AnyBatch | Fetched], *, start: int = 0, spec: ReencodeSpec = PLAIN
) -> SourcePosition | None:
    """The position by :func:`compare`, for a source that is read from offset ``start`` on."""
    expected = ExpectedRecords([one if isinstance(one, Fetched) else fetched(one) for one in source], start, spec)
    compare(own, 100, expected)
    return expected.position


# --- from the progress on


def test_appended_beyond_the_progress_is_found_as_whole_batches_without_decoding(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source = [batch_at(n, numbered(n, 40), codec="lz4", epoch=n // 40) for n in (0, 40, 80)]
    own = [batch_at(100 + n, numbered(n, 40), codec="lz4") for n in (0, 40)]
    monkeypatch.delattr(appended, "records_of")
    assert found(own, source) == (80, 1)
    assert found(own[:1], source) == (40, 0)
    appended_later = [batch_at(100, numbered(0, 40), codec="lz4", append_time_ms=9)]
    assert found(appended_later, source) == (40, 0)
    assert found(appended_later, [batch_at(0, numbered(0, 40), codec="lz4", append_time_ms=5)]) == (40, 0)
    assert found([], source) is None


def test_appended_part_of_a_batch_is_found_inside_it() -> None:
    source = [batch_at(0, numbered(0, 40)), batch_at(40, numbered(40, 40), epoch=3)]
    assert found([batch_at(100, numbered(0, 40)), batch_at(140, numbered(40, 5))], source) == (45, 3)


def test_appended_trimmed_batch_begins_at_the_progress() -> None:
    source = [batch_at(0, numbered(0, 40)), batch_at(40, numbered(40, 40))]
    assert found([batch_at(100, numbered(30, 20))], source, start=30) == (50, 0)


def test_appended_merged_batches_are_found_across_source_batches_and_fetches() -> None:
    source = [batch_at(n, numbered(n, 2), codec="gzip", epoch=n) for n in range(0, 20, 2)]
    own = [batch_at(100, numbered(0, 7), codec="zstd"), batch_at(107, numbered(7, 6))]
    assert found(own, [fetched(*source[:4]), fetched(*source[4:])]) == (13, 12)


def test_appended_of_an_old_format_is_found() -> None:
    records = [one._replace(headers=()) for one in numbered(0, 6)]
    source = [old_set_at(0, records[:3]), old_set_at(3, records[3:], codec="lz4")]
    assert found([batch_at(100, records[:4])], source) == (4, -1)
    assert found([batch_at(100, records[1:3])], source, start=1) == (3, -1)


def test_markers_aborted_and_emptied_batches_of_the_source_are_passed() -> None:
    source = fetched(
        batch_at(0, numbered(0, 2), producer=(5, 0, 0), transactional=True),
        batch_at(2, numbered(90, 2), producer=(6, 0, 0), transactional=True),
        marker_at(4, 6, 0, ABORT),
        marker_at(5, 5, 0, COMMIT),
        batch_at(9, numbered(2, 2), epoch=2),
        aborted=[AbortedTransaction(6, 2)],
    )
    assert found([batch_at(100, numbered(0, 3))], [source]) == (10, 2)


def test_what_the_flow_changes_is_compared_after_the_change() -> None:
    def without_odd(record: Record) -> Record | None:
        return None if int((record.value or b"v0")[1:]) % 2 else record._replace(key=None, offset=-7)

    spec = ReencodeSpec(headers=(("flow", b"x"),), transform=without_odd)
    own = [
        batch_at(100, [one._replace(key=None, headers=(*one.headers, ("flow", b"x"))) for one in numbered(0, 7)[::2]])
    ]
    source = [batch_at(0, numbered(0, 40))]
    assert found(own, source, spec=spec) == (7, 0)
    with pytest.raises(Unproved, match="key"):
        found(own, source)


def test_batch_of_equal_bytes_is_not_the_same_if_the_flow_changes_records() -> None:
    batch = batch_at(0, numbered(0, 40))
    with pytest.raises(Unproved, match="key"):
        found(
            [batch_at(100, numbered(0, 40))], [batch], spec=ReencodeSpec(transform=lambda one: one._replace(key=None))
        )


def test_headers_that_the_flow_adds_may_have_been_edited_since() -> None:
    source = [batch_at(0, numbered(0, 40))]
    added = ("flow", b"x")
    own = [
        batch_at(100, numbered(0, 4)),
        batch_at(104, [one._replace(headers=(*one.headers, added)) for one in numbered(4, 4)]),
    ]
    for headers in ((), (added,), (("flow", b"y"), ("other", b""))):
        assert found(own, source, spec=ReencodeSpec(headers=headers)) == (8, 0)
    own = [batch_at(100, [one._replace(headers=(added, *one.headers)) for one in numbered(0, 4)])]
    with pytest.raises(Unproved, match="headers"):
        found(own, source, spec=ReencodeSpec(headers=(added,)))


def test_headers_that_the_flow_adds_are_compared_if_records_may_be_missing() -> None:
    added = ("flow", b"x")
    own = [batch_at(100, [one._replace(headers=(*one.headers, added)) for one in numbered(4, 4)])]
    expected = ExpectedRecords([fetched(batch_at(0, numbered(0, 40)))], 0, ReencodeSpec(headers=(added,)))
    find_shifted(own, 100, expected, Shift(target=10), timestamps=True)
    assert expected.position == (8, 0)


def test_equal_bytes_count_only_for_a_whole_source_batch_that_is_next() -> None:
    source = [batch_at(0, [Made()] * 2), batch_at(2, [Made()] * 2)]
    assert found([batch_at(100, [Made()]), batch_at(101, [Made()] * 2)], source) == (3, 0)
    assert found([batch_at(100, [Made()] * 2)], source, start=1) == (3, 0)


def test_log_append_time_of_either_side() -> None:
    source = [batch_at(0, numbered(0, 3), append_time_ms=77)]
    times = [one._replace(time_ms=77) for one in numbered(0, 3)]
    assert found([batch_at(100, times)], source) == (3, 0)
    assert found([batch_at(100, numbered(0, 3), append_time_ms=99)], source) == (3, 0)
    assert found([batch_at(100, numbered(0, 2), append_time_ms=99)], source) == (2, 0)
    with pytest.raises(Unproved, match="timestamp"):
        found([batch_at(100, numbered(0, 3))], source)


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize(
    ("change", "named"),
    [
        (Made._replace, ""),
        (lambda one: one._replace(key=b""), "key"),
        (lambda one: one._replace(value=None), "value"),
        (lambda one: one._replace(headers=(("a", b""),)), "headers"),
        (lambda one: one._replace(headers=()), "headers"),
        (lambda one: one._replace(time_ms=one.time_ms + 1), "timestamp"),
    ],
)
def test_different_content_is_unproved(change: Callable[[Made], Made], named: str, *, whole: bool) -> None:
    records = [Made(None, b"", (("a", None),), 5)] * 4
    own = [change(records[0])] * 4 if whole else [*records[:3], change(records[0])]
    source = [batch_at(0, records), batch_at(4, records)]
    if not named:
        assert found([batch_at(100, own)], source) == (4, 0)
        return
    with pytest.raises(
        Unproved, match=f"differs in its {named} from the source's record at offset {0 if whole else 3}"
    ):
        found([batch_at(100, own)], source)


def test_more_than_the_source_has_is_unproved() -> None:
    with pytest.raises(Unproved, match="offset 103 is not in the source"):
        found([batch_at(100, numbered(0, 4))], [batch_at(0, numbered(0, 3))])


def test_records_before_the_mark_in_its_batch_are_not_compared() -> None:
    assert found([batch_at(98, numbered(0, 4))], [batch_at(0, numbered(2, 4))]) == (2, 0)
    assert found([batch_at(98, [Made()] * 4)], [batch_at(0, [Made()] * 4)]) == (2, 0)


def test_damaged_batch_is_named_on_either_side() -> None:
    for damaged in (0, 1):
        logs = [batch_at(0, numbered(0, 4)), batch_at(100, numbered(0, 4))]
        logs[damaged].view[17] ^= 1
        with pytest.raises(CorruptBatch, match=f"offset {(0, 100)[damaged]}"):
            found([Batch(logs[1].view)], [Batch(logs[0].view)])


def test_batch_that_decompresses_beyond_the_limit_is_named() -> None:
    large = batch_at(0, [Made(b"k", b"x" * 5_000)] * 2, codec="gzip")
    own = [batch_at(100, [Made(b"k", b"x" * 5_000)] * 2)]
    assert found(own, [large]) == (2, 0)
    with pytest.raises(BatchTooLarge, match="offset 0"):
        found(own, [large], spec=ReencodeSpec(max_source_bytes=9_000))


# --- the beginning is missing


def shifted(
    own: Sequence[Batch],
    source: Sequence[Fetched],
    shift: Shift,
    *,
    start: int = 0,
    timestamps: bool = True,
    keep: int = 1_000,
    first_is_uncertain: bool = False,
) -> SourcePosition | None:
    expected = ExpectedRecords(source, start, PLAIN)
    find_shifted(own, 0, expected, shift, timestamps=timestamps, keep=keep, first_is_uncertain=first_is_uncertain)
    return expected.position


def test_end_of_the_appended_is_found_if_the_source_lost_its_beginning() -> None:
    source = [fetched(batch_at(4, numbered(4, 16), epoch=2))]
    own = [batch_at(100, numbered(0, 5)), batch_at(105, numbered(5, 5), codec="gzip")]
    assert shifted(own, source, Shift(source=4), start=4) == (10, 2)


def test_appended_is_found_if_the_target_lost_its_beginning() -> None:
    source = [fetched(batch_at(0, numbered(0, 20)))]
    assert shifted([batch_at(100, numbered(5, 5))], source, Shift(target=9)) == (10, 0)
    assert shifted([batch_at(100, numbered(5, 5))], source, Shift(target=5)) == (10, 0)
    with pytest.raises(Unproved, match="not in what is left"):
        shifted([batch_at(100, numbered(5, 5))], source, Shift(target=4))


def test_as_many_lost_as_appended_is_unproved_although_one_place_matches() -> None:
    """The equal record may be one that was never copied."""
    source = [fetched(batch_at(3, numbered(3, 10)))]
    own = [batch_at(100, numbered(0, 4))]
    assert shifted(own, source, Shift(source=3), start=3) == (4, 0)
    with pytest.raises(Unproved, match="may have none of them"):
        shifted(own, source, Shift(source=4), start=3)


def test_equal_records_in_repetition_are_unproved() -> None:
    source = [fetched(batch_at(2, [Made()] * 10))]
    with pytest.raises(Unproved, match="more than one place"):
        shifted([batch_at(100, [Made()] * 4)], source, Shift(source=2), start=2)
    with pytest.raises(Unproved, match="more than one place"):
        shifted([batch_at(100, [Made()] * 4)], source, Shift(target=2), start=2)


def test_null_and_empty_differ_and_timestamps_count_if_the_target_kept_them() -> None:
    source = [fetched(batch_at(0, [Made(None), Made(b""), Made(None), Made(None, time_ms=6)]))]
    own = [batch_at(100, [Made(b""), Made(None)])]
    assert shifted(own, source, Shift(target=2)) == (3, 0)
    with pytest.raises(Unproved, match="not in what is left"):
        shifted([batch_at(100, [Made(b"", time_ms=7), Made(None)])], source, Shift(target=2))
    stamped = [batch_at(100, [Made(b"", time_ms=7), Made(None)], append_time_ms=9)]
    assert shifted(stamped, source, Shift(target=2), timestamps=False) == (3, 0)


def test_only_the_last_records_are_kept_and_suffice_if_they_are_unique() -> None:
    source = [fetched(batch_at(2, numbered(2, 20)))]
    own = [batch_at(100, numbered(0, 12))]
    assert shifted(own, source, Shift(source=2), start=2, keep=3) == (12, 0)
    same = [fetched(batch_at(2, [*numbered(2, 5), *[Made()] * 10]))]
    with pytest.raises(Unproved, match="more than one place"):
        shifted([batch_at(100, [*numbered(0, 7), *[Made()] * 5])], same, Shift(source=2), start=2, keep=3)


@pytest.mark.parametrize("keep", [2, 1_000])
def test_records_that_may_be_in_front_of_the_progress_are_found_at_the_progress_only(keep: int) -> None:
    source = [fetched(batch_at(10, numbered(10, 10)))]

    def uncertain(first: int, shift: Shift) -> SourcePosition | None:
        own = [batch_at(100, numbered(first, 3))]
        return shifted(own, source, shift, start=10, keep=keep, first_is_uncertain=True)

    assert uncertain(10, Shift(target=9)) == (13, 0)
    with pytest.raises(Differs):
        uncertain(7, Shift(target=9))
    for first, shift in ((11, Shift(target=9)), (10, Shift(source=1)), (9, Shift(source=1))):
        with pytest.raises(Unproved, match="stored the progress") as raised:
            uncertain(first, shift)
        assert not isinstance(raised.value, Differs), "they are there"
