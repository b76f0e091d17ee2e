"""Damage that lists of records do not show: of transactions, times, and bytes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror.verify.items import digest_of
from mirror.verify.values import Bounds, Kind, Named, Rules, Verdict
from mirror.wire.decode import Record
from mirror.wire.messages.fetch import AbortedTransaction
from mirror.wire.records import Batch
from tests.fakes.record_batches import ABORT, COMMIT
from tests.relay.batches.logs_by_hand import Made, batch_at, fetched, marker_at
from tests.verify import harmless_logs
from tests.verify.damages import FOREIGN, source_records
from tests.verify.logs import (
    RECORDS,
    TARGET_BASE,
    Found,
    by_sevens,
    by_tens,
    compare,
    copied,
    found_in,
    log_of,
    numbered,
    verdict_of,
)

# --- transactions


def test_aborted_record_that_is_in_the_target_is_found() -> None:
    log = harmless_logs.SOURCE_ABORTS
    target = list(source_records())
    target[10:10] = [FOREIGN] * 3
    verdict = verdict_of(log, copied(by_tens(target)), source_aborted=harmless_logs.aborts(log))
    assert [(one.kind, one.target, one.records) for one in found_in(verdict.differences)] == [
        (Kind.FOREIGN, TARGET_BASE + 10, 3)
    ]


def test_records_of_a_transaction_that_was_aborted_on_the_target_are_missing() -> None:
    parts = by_tens(source_records())
    target = copied(parts[:5])
    target.append(batch_at(TARGET_BASE + 50, parts[5], producer=(4001, 3, 50), transactional=True))
    target.append(marker_at(TARGET_BASE + 60, 4001, 3, ABORT))
    target += copied(parts[6:], TARGET_BASE + 61)
    aborted = [AbortedTransaction(producer_id=4001, first_offset=TARGET_BASE + 50)]
    verdict = verdict_of(log_of(parts), target, target_aborted=aborted)
    assert found_in(verdict.differences) == [Found(Kind.MISSING, 50, TARGET_BASE + 61, 10)]
    assert (verdict.source_end, verdict.target_end) == (50, TARGET_BASE + 50)


def test_marker_in_the_place_of_records_does_not_stand_for_them() -> None:
    parts = by_tens(source_records())
    target = [*copied(parts[:-1]), marker_at(TARGET_BASE + 190, 4001, 3, COMMIT)]
    verdict = verdict_of(log_of(parts), target)
    assert found_in(verdict.differences) == [Found(Kind.MISSING, 190, TARGET_BASE + 191, 10)]


# --- timestamps


def test_records_that_differ_in_their_times_only_are_distinguished() -> None:
    records = [Made(None, b"tick", (), 5 + number) for number in range(RECORDS)]
    target = [*records[:57], *records[58:]]
    assert found_in(verdict_of(log_of(by_sevens(records)), copied(by_sevens(target))).differences) == [
        Found(Kind.MISSING, 57, TARGET_BASE + 57)
    ]


def test_record_that_came_at_another_time_is_not_the_one_that_is_missing() -> None:
    records = [Made(b"%d" % number, b"tick", (), 5) for number in range(RECORDS)]
    target = [*records[:57], *records[58:], records[57]._replace(time_ms=99)]
    assert found_in(verdict_of(log_of(by_sevens(records)), copied(by_sevens(target))).differences) == [
        Found(Kind.MISSING, 57, TARGET_BASE + 57),
        Found(Kind.FOREIGN, RECORDS, TARGET_BASE + RECORDS - 1),
    ]


def test_missing_record_is_found_where_the_target_s_brokers_set_the_times() -> None:
    records = [numbered(number) for number in range(2 * RECORDS)]
    target = log_of(by_tens([*records[:57], *records[58:]]), TARGET_BASE, append_time_ms=9)
    assert found_in(verdict_of(log_of(by_tens(records)), target).differences) == [
        Found(Kind.MISSING, 57, TARGET_BASE + 57)
    ]


def test_time_of_the_source_s_broker_has_to_become_the_record_s_own() -> None:
    """The bytes of both batches are equal, and readers of the source see another time."""
    parts = by_tens(source_records())
    verdict = verdict_of(log_of(parts, append_time_ms=66), copied(parts))
    assert found_in(verdict.differences) == [Found(Kind.CONTENT, 0, TARGET_BASE, RECORDS, ("timestamp",))]


def test_digests_distinguish_null_from_empty() -> None:
    records = [
        Record(0, 0, key, value, headers)
        for key in (None, b"")
        for value in (None, b"")
        for headers in ((), (("", None),), (("", b""),), (("\udcff", b""),))
    ]
    assert len({digest_of(record) for record in records}) == len(records)


# --- bytes


def test_value_is_compared_where_the_brokers_set_the_times() -> None:
    records = source_records()
    changed = [*records[:70], records[70]._replace(value=b"x"), *records[71:]]
    target = log_of(by_tens(changed), TARGET_BASE, append_time_ms=9)
    assert found_in(verdict_of(log_of(by_tens(records)), target).differences) == [
        Found(Kind.CONTENT, 70, TARGET_BASE + 70, 1, ("value",))
    ]


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_batch_with_a_wrong_checksum_is_found_and_ends_the_comparison(codec: str) -> None:
    parts = by_tens(source_records())
    target = log_of(parts, TARGET_BASE, codec=codec)
    target[7].view[-1] ^= 1
    verdict = verdict_of(log_of(parts, codec=codec), target)
    assert found_in(verdict.differences) == [Found(Kind.CONTENT, 70, TARGET_BASE + 70, 1, ("batch",))]
    assert (verdict.source_end, verdict.target_end) == (70, TARGET_BASE + 70)
    ((side, start, end, reason),) = ((one.side, one.start, one.end, one.reason) for one in verdict.uncompared)
    assert (side, start, end) == ("source", 70, RECORDS)
    assert "corrupt" in reason


def test_checksum_of_equal_bytes_is_verified() -> None:
    """Both sides have the same bytes, and the target's checksum is that of others."""
    parts = by_tens(source_records())
    target = log_of(parts, TARGET_BASE)
    bad = target[7].view
    bad[17] ^= 1
    target[7] = Batch(bad)
    verdict = verdict_of(log_of(parts), target)
    assert found_in(verdict.differences) == [Found(Kind.CONTENT, 70, TARGET_BASE + 70, 1, ("batch",))]


def test_corrupt_batch_of_the_source_is_no_difference_and_ends_the_comparison() -> None:
    parts = by_tens(source_records())
    source = log_of(parts)
    source[7].view[-1] ^= 1
    verdict = verdict_of(source, copied(parts))
    assert verdict.equal
    assert not verdict.complete
    assert (verdict.source_end, verdict.target_end) == (70, TARGET_BASE + 70)


def test_batches_behind_a_difference_are_compared_as_bytes_again() -> None:
    records = source_records()
    target = [*records[:57], *records[58:]]
    verdict = verdict_of(log_of(by_tens(records)), copied(by_tens(target)))
    window = 64
    assert verdict.decoded <= 9 + window + 10
    assert verdict.batches == 20 - 1 - (verdict.decoded - 9) // 10
    merged = [*by_tens(records)[:5], records[50:70], *by_tens(records)[7:]]
    verdict = verdict_of(log_of(by_tens(records)), copied(merged))
    assert (verdict.batches, verdict.decoded) == (18, 20)


# --- limits


def test_logs_that_are_out_of_step_are_compared_no_further() -> None:
    records = source_records()
    verdict = verdict_of(log_of(by_tens(records)), copied(by_tens([*records[:20], *records[150:]])), Rules(window=16))
    assert found_in(verdict.differences) == [Found(Kind.MISSING, 20, TARGET_BASE + 20)]
    assert (verdict.source_end, verdict.target_end) == (20, TARGET_BASE + 20)
    assert [(one.side, one.start, one.end) for one in verdict.uncompared] == [("source", 20, RECORDS)]


def test_beginning_that_may_be_anywhere_is_no_difference() -> None:
    records = source_records()

    def bounds(whole: Bounds) -> Bounds:
        return replace(whole, source_trimmed=True, target_trimmed=True)

    far = verdict_of(log_of(by_tens(records)), copied(by_tens(records[150:])), Rules(window=16), bounds=bounds)
    assert far.equal
    assert not far.complete
    near = verdict_of(log_of(by_tens(records)), copied(by_tens(records[50:])), bounds=bounds)
    assert (near.equal, near.complete, near.records) == (True, True, RECORDS - 50)


def test_comparison_ends_with_enough_findings() -> None:
    records = source_records()
    target = [record._replace(value=b"x%d" % n) if n % 2 else record for n, record in enumerate(records)]
    verdict = verdict_of(log_of(by_tens(records)), copied(by_tens(target)), Rules(max_findings=5))
    assert [one.source for one in found_in(verdict.differences)] == [1, 3, 5, 7, 9]
    assert "5 findings" in verdict.uncompared[0].reason


def test_tail_that_was_cut_off_is_counted_beyond_the_limit_of_findings() -> None:
    parts = by_tens(source_records())
    verdict = verdict_of(log_of(parts), copied(parts[:3]), Rules(max_findings=5))
    assert found_in(verdict.differences) == [Found(Kind.MISSING, 30, TARGET_BASE + 30, 170)]
    assert verdict.complete


def test_record_in_front_of_what_is_copied_next_is_found() -> None:
    """A running copy has appended more than its progress says, and somebody else has before."""
    records = source_records()
    target = [*records[:120], FOREIGN, *records[120:150]]
    verdict = verdict_of(
        log_of(by_tens(records)), copied(by_sevens(target)), bounds=lambda bounds: replace(bounds, source_end=120)
    )
    assert found_in(verdict.differences) == [Found(Kind.FOREIGN, 120, TARGET_BASE + 120)]


def test_comparison_ends_where_what_is_copied_next_differs() -> None:
    """It is for the next one, which begins exactly there."""
    records = source_records()
    target = [*records[:120], records[120]._replace(value=b"changed"), *records[121:150]]
    logs = log_of(by_tens(records)), copied(by_sevens(target))
    first = verdict_of(*logs, bounds=lambda bounds: replace(bounds, source_end=120))
    assert first.equal
    assert (first.source_end, first.target_end) == (120, TARGET_BASE + 120)
    second = verdict_of(
        *logs,
        bounds=lambda bounds: replace(bounds, source_start=120, source_end=150, target_start=first.target_end),
    )
    assert found_in(second.differences) == [Found(Kind.CONTENT, 120, TARGET_BASE + 120, 1, ("value",))]


def test_records_in_front_of_the_start_do_not_count() -> None:
    parts = by_tens(source_records())
    verdict = verdict_of(
        log_of(parts),
        copied(parts),
        bounds=lambda bounds: replace(bounds, source_start=33, target_start=TARGET_BASE + 33),
    )
    assert (verdict.records, verdict.source_end) == (RECORDS - 33, RECORDS)


def test_batch_that_two_responses_have_is_compared_once() -> None:
    parts = by_tens(source_records())
    source, target = log_of(parts), copied(parts)
    fetches = [fetched(*target[:7]), fetched(*target[6:])]
    bounds = Bounds(source_start=0, source_end=RECORDS, target_start=TARGET_BASE, target_end=TARGET_BASE + RECORDS)
    verdict = compare([fetched(*source[:3]), fetched(*source[2:])], fetches, bounds, Rules())
    assert verdict.equal
    assert verdict.records == RECORDS


def test_beginning_that_no_retention_explains_is_missing() -> None:
    source, target = harmless_logs.trimmed_target()
    verdict = verdict_of(source, target)
    assert found_in(verdict.differences) == [Found(Kind.MISSING, 0, TARGET_BASE + 100, 100)]


def test_damage_behind_a_beginning_that_retention_has_removed_is_found() -> None:
    records = source_records()
    target = copied(by_tens([*records[100:150], *records[151:]]), TARGET_BASE + 100)

    verdict = verdict_of(
        log_of(by_tens(records)),
        target,
        bounds=lambda bounds: replace(bounds, target_start=TARGET_BASE + 100, target_trimmed=True),
    )
    assert found_in(verdict.differences) == [Found(Kind.MISSING, 150, TARGET_BASE + 150)]


def test_excerpts_are_there_only_if_asked_for() -> None:
    records = source_records()
    target = [record._replace(value=b"secret!") if n == 5 else record for n, record in enumerate(records)]
    logs = log_of(by_tens(records)), copied(by_tens(target))
    assert verdict_of(*logs).differences[0].excerpts is None
    assert "secret" not in repr(verdict_of(*logs, Rules(excerpts=True)).differences)
    source, other = verdict_of(*logs, Rules(excerpts=True)).differences[0].excerpts or ("", "")
    assert other == f"value[0:7] {b'secret!'.hex()}"
    assert source.startswith("value[0:")


# --- any damage

_RECORDS = [numbered(number) for number in range(40)]


@st.composite
def _edited(draw: st.DrawFn) -> list[Made]:
    """The records, cut, repeated, moved and changed anywhere."""
    records = list(_RECORDS)
    for _ in range(draw(st.integers(0, 4))):
        at, to = draw(st.integers(0, len(records))), draw(st.integers(0, len(records)))
        length = draw(st.integers(0, 6))
        part = records[at : at + length]
        how = draw(st.sampled_from(["cut", "repeat", "move", "change", "add"]))
        if how in {"cut", "move"}:
            del records[at : at + length]
        if how in {"repeat", "move"}:
            records[to:to] = part
        if how == "change":
            records[at : at + length] = [one._replace(value=b"changed %d" % to) for one in part]
        if how == "add":
            records[at:at] = [FOREIGN._replace(value=b"%d" % n) for n in range(length)]
    return records


@given(_edited(), st.sampled_from([by_tens, by_sevens]), st.sampled_from([64, 65_536]))
def test_any_damage_is_found_and_every_record_is_accounted_for(target: list[Made], layout: object, window: int) -> None:
    assert callable(layout)
    verdict = verdict_of(log_of(by_tens(_RECORDS)), copied(layout(target)), Rules(window=window))
    assert verdict.equal == (target == _RECORDS)
    kinds = verdict.kinds
    both = verdict.records + kinds[Kind.CONTENT] + kinds[Kind.ORDER]
    assert both + kinds[Kind.MISSING] == len(_RECORDS)
    assert both + kinds[Kind.DOUBLED] + kinds[Kind.FOREIGN] == len(target)
    _check_ends(verdict, target)


def _check_ends(verdict: Verdict, target: list[Made]) -> None:
    """Both sides are equal up to there, and nowhere beyond if something differs."""
    same = verdict.source_end
    assert verdict.target_end - TARGET_BASE == same
    assert target[:same] == _RECORDS[:same]
    if not verdict.equal:
        assert target[same : same + 1] != _RECORDS[same : same + 1]


@given(
    st.integers(0, 40),
    st.integers(0, 40),
    st.lists(st.integers(0, 40), max_size=6),
    st.sampled_from([by_tens, by_sevens]),
)
def test_next_comparison_goes_on_where_one_ended(
    first_end: int, length: int, others: list[int], layout: object
) -> None:
    """Whatever a running copy has appended beyond its progress, and others between its records."""
    assert callable(layout)
    records = _RECORDS[: max(first_end, length)]
    target = list(records)
    for number, at in enumerate(sorted(others, reverse=True)):
        target.insert(min(at, len(target)), FOREIGN._replace(value=b"%d" % number))
    logs = log_of(by_tens(_RECORDS)), copied(layout(target))
    rules = Rules(foreign_allowed=True)
    first = verdict_of(*logs, rules, bounds=lambda whole: replace(whole, source_end=first_end))
    assert (first.equal, first.source_end, first.records) == (True, first_end, first_end)
    second = verdict_of(
        *logs,
        rules,
        bounds=lambda whole: replace(
            whole, source_start=first.source_end, source_end=len(records), target_start=first.target_end
        ),
    )
    assert (second.equal, second.source_end, second.records) == (True, len(records), len(records) - first_end)
    assert second.target_end == TARGET_BASE + len(target)
    assert first.named[Named.FOREIGN] + second.named[Named.FOREIGN] == len(others)
