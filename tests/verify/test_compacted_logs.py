"""Compaction explains only what it can have removed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from mirror.verify import compaction
from mirror.verify.comparison import Comparison
from mirror.verify.values import Bounds, Kind, Named, Rules
from mirror.wire.records import AnyBatch
from tests.relay.batches.logs_by_hand import Made, batch_at
from tests.verify import harmless_logs
from tests.verify.damages import FOREIGN
from tests.verify.logs import (
    GONE,
    RECORDS,
    SOURCE_COMPACT,
    TARGET_BASE,
    TARGET_COMPACT,
    Found,
    by_tens,
    compacted,
    copied,
    fetches_of,
    found_between,
    found_in,
    log_of,
    numbered,
    verdict_of,
)


def test_last_record_of_a_key_may_not_be_missing_in_a_compacted_target() -> None:
    records = harmless_logs.compactable()
    target = harmless_logs.compacted_log(TARGET_BASE, (*GONE, 90), records)
    verdict = verdict_of(log_of(by_tens(records)), target, TARGET_COMPACT)
    assert found_in(verdict.differences) == [Found(Kind.MISSING, 90, TARGET_BASE + 91)]
    assert (verdict.source_end, verdict.target_end) == (90, TARGET_BASE + 91)


def test_record_without_a_free_offset_is_missing_in_a_compacted_target() -> None:
    records = harmless_logs.compactable()
    target = [*records[:41], *records[42:]]
    assert found_between(records, target, TARGET_COMPACT) == [Found(Kind.MISSING, 41, 41)]


def test_record_without_a_key_is_missing_in_a_compacted_target() -> None:
    records = [one._replace(key=None) if n == 90 else one for n, one in enumerate(harmless_logs.compactable())]
    target = harmless_logs.compacted_log(TARGET_BASE, (*GONE, 90), records)
    verdict = verdict_of(log_of(by_tens(records)), target, TARGET_COMPACT)
    assert found_in(verdict.differences) == [Found(Kind.MISSING, 90, TARGET_BASE + 91)]


def test_record_that_only_the_source_supersedes_is_missing_in_the_target() -> None:
    """The target's cleaner cannot have removed it: what supersedes it is not there yet."""
    records = harmless_logs.compactable()
    target = harmless_logs.compacted_log(TARGET_BASE, GONE, records[:RECORDS])
    verdict = verdict_of(
        log_of(by_tens(records)), target, TARGET_COMPACT, bounds=lambda bounds: replace(bounds, source_end=RECORDS)
    )
    assert [(one.kind, one.source) for one in found_in(verdict.differences)] == [(Kind.MISSING, n) for n in GONE]


def test_record_that_nothing_supersedes_is_foreign_beside_a_compacted_source() -> None:
    records = [numbered(n) for n in range(RECORDS)]
    source = harmless_logs.compacted_log(0, (90,), records)
    verdict = verdict_of(source, copied(by_tens(records)), SOURCE_COMPACT)
    assert found_in(verdict.differences) == [Found(Kind.FOREIGN, 91, TARGET_BASE + 90)]


def test_foreign_record_without_a_free_offset_is_found_beside_a_compacted_source() -> None:
    records = [numbered(n) for n in range(RECORDS)]
    target = [*records[:90], FOREIGN, *records[90:]]
    assert found_between(records, target, SOURCE_COMPACT) == [Found(Kind.FOREIGN, 90, 90)]


def test_changed_record_of_a_compacted_target_is_found() -> None:
    records = harmless_logs.compactable()
    changed = [one._replace(value=b"changed") if n == 95 else one for n, one in enumerate(records)]
    verdict = verdict_of(
        log_of(by_tens(records)), harmless_logs.compacted_log(TARGET_BASE, GONE, changed), TARGET_COMPACT
    )
    assert found_in(verdict.differences) == [Found(Kind.CONTENT, 95, TARGET_BASE + 95, 1, ("value",))]


def test_batch_with_gaps_that_nothing_explains_is_found() -> None:
    """Without compaction, an offset that is free says nothing."""
    records = [numbered(n) for n in range(RECORDS)]
    parts = by_tens(records)
    damaged = compacted(
        [(TARGET_BASE + n, records[n]) for n in range(50, 60) if n != 55], TARGET_BASE + 50, TARGET_BASE + 59
    )
    target = [*copied(parts[:5]), damaged, *copied(parts[6:], TARGET_BASE + 60)]
    verdict = verdict_of(log_of(parts), target)
    assert found_in(verdict.differences) == [Found(Kind.MISSING, 55, TARGET_BASE + 56)]


def test_keyless_deletion_is_missing_in_a_compacted_target() -> None:
    """Compaction removes no record without a key."""
    records = [
        one._replace(key=None, value=None) if n == 90 else one for n, one in enumerate(harmless_logs.compactable())
    ]
    target = harmless_logs.compacted_log(TARGET_BASE, (*GONE, 90), records)
    verdict = verdict_of(log_of(by_tens(records)), target, TARGET_COMPACT)
    assert found_in(verdict.differences) == [Found(Kind.MISSING, 90, TARGET_BASE + 91)]


def test_key_is_seen_in_a_batch_whose_bytes_are_equal() -> None:
    records = harmless_logs.compactable()
    parts = by_tens(records)
    left = [(TARGET_BASE + n, records[n]) for n in range(40, 50) if n not in GONE]
    target = [
        *copied(parts[:4]),
        compacted(left, TARGET_BASE + 40, TARGET_BASE + 49),
        *copied(parts[5:], TARGET_BASE + 50),
    ]
    verdict = verdict_of(log_of(parts), target, TARGET_COMPACT)
    assert verdict.equal
    assert verdict.named[Named.TARGET_COMPACTED] == len(GONE)


@pytest.mark.parametrize("compacted_side", ["source", "target"])
def test_keys_that_had_to_be_forgotten_are_said(compacted_side: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a record that is lost, and not superseded, would count as removed by compaction."""
    monkeypatch.setattr(compaction, "_MAX_KEYS", 2)
    records = harmless_logs.compactable()
    if compacted_side == "target":
        logs = log_of(by_tens(records)), harmless_logs.compacted_log(TARGET_BASE, GONE, records)
        verdict, side = verdict_of(*logs, TARGET_COMPACT), "source"
    else:
        verdict = verdict_of(harmless_logs.compacted_log(0, GONE, records), copied(by_tens(records)), SOURCE_COMPACT)
        side = "target"
    assert verdict.equal
    assert not verdict.complete
    (uncompared,) = verdict.uncompared
    assert uncompared.side == side
    assert "1 removed records may not be superseded" in uncompared.reason


def test_records_that_compaction_has_removed_from_either_side_are_no_changed_ones() -> None:
    """They stand beside each other, and have the same time."""
    records = [one._replace(time_ms=5) for one in [*harmless_logs.compactable(), *(numbered(n) for n in GONE)]]
    records = [*records, *(harmless_logs.newer(n) for n in (41, 42))]
    both = Rules(source_compacted=True, target_compacted=True)
    source = harmless_logs.compacted_log(0, (41,), records)
    target = harmless_logs.compacted_log(TARGET_BASE, (42,), records)
    assert found_in(verdict_of(source, target, both).differences) == []


def test_each_removed_record_needs_a_free_offset_of_its_own() -> None:
    records = [numbered(n) for n in range(RECORDS)] + [harmless_logs.newer(n) for n in (41, 42)]
    parts = by_tens(records)
    left = [records[40], *records[43:50]]
    # Behind the record 40 one offset is free, and two records are gone.
    offsets = [TARGET_BASE + 40, *range(TARGET_BASE + 42, TARGET_BASE + 49)]
    kept = compacted(list(zip(offsets, left, strict=True)), TARGET_BASE + 40, TARGET_BASE + 48)
    target = [*copied(parts[:4]), kept, *copied(parts[5:], TARGET_BASE + 49)]
    verdict = verdict_of(log_of(parts), target, TARGET_COMPACT)
    assert found_in(verdict.differences) == [Found(Kind.MISSING, 42, TARGET_BASE + 42)]


def test_offset_that_another_record_has_is_not_free() -> None:
    records = [numbered(n) for n in range(RECORDS)] + [harmless_logs.newer(41)]
    target = [*records[:41], FOREIGN, *records[42:]]
    assert found_between(records, target, TARGET_COMPACT) == [Found(Kind.MISSING, 41, 41), Found(Kind.FOREIGN, 42, 41)]
    early = [*records[:41], numbered(150)._replace(value=b"early"), *records[42:]]
    assert found_between(records, early, SOURCE_COMPACT) == [Found(Kind.MISSING, 41, 41), Found(Kind.FOREIGN, 42, 41)]


# --- any compaction


def _cleaned(records: Sequence[Made], point: int, *, deletions: int) -> list[int]:
    """The offsets that a cleaner leaves that was at ``point``; in front of ``deletions`` it removes these, too."""
    last = {record.key: offset for offset, record in enumerate(records[:point])}
    return [
        offset
        for offset, record in enumerate(records)
        if offset >= point or (last[record.key] == offset and not (offset < deletions and record.value is None))
    ]


_KEYED = st.lists(
    st.tuples(st.sampled_from([b"a", b"b", b"c"]), st.booleans()).map(
        lambda one: Made(one[0], None if one[1] else b"v", (), 5)
    ),
    min_size=1,
    max_size=24,
).map(lambda records: [record._replace(time_ms=5 + n) for n, record in enumerate(records)])


@given(_KEYED, st.data())
def test_no_compaction_of_either_side_raises_an_alarm(records: list[Made], data: st.DataObject) -> None:
    copied = data.draw(st.integers(1, len(records)))
    points = data.draw(st.tuples(st.integers(0, len(records)), st.integers(0, copied)))
    # A deletion that is gone before it was copied is a difference: the target keeps the value.
    deletions = data.draw(st.tuples(st.integers(0, copied), st.integers(0, copied)))
    left = _cleaned(records[:copied], points[1], deletions=deletions[1])
    append_time_ms = data.draw(st.sampled_from([None, 99]))
    if append_time_ms is not None:
        # Equal records that only their times distinguish cannot be paired without these.
        records = [one._replace(headers=(("n", b"%d" % number),)) for number, one in enumerate(records)]
    gone = set(range(copied)) - set(left)
    left = _cleaned(records, points[0], deletions=deletions[0])
    source = harmless_logs.compacted_log(0, set(range(len(records))) - set(left), records)
    target = harmless_logs.compacted_log(TARGET_BASE, gone, records[:copied], append_time_ms=append_time_ms)
    verdict = verdict_of(
        source,
        target,
        Rules(source_compacted=True, target_compacted=True),
        bounds=lambda bounds: replace(bounds, source_end=copied),
    )
    assert found_in(verdict.differences) == []
    assert verdict.source_end == copied


@given(_KEYED, st.data())
def test_the_last_value_of_a_key_that_the_target_lacks_is_found(records: list[Made], data: st.DataObject) -> None:
    last = {record.key: offset for offset, record in enumerate(records)}
    values = [offset for offset in last.values() if records[offset].value is not None]
    assume(values)
    lost = data.draw(st.sampled_from(values))
    left = set(_cleaned(records, data.draw(st.integers(0, len(records))), deletions=0)) - {lost}
    target = harmless_logs.compacted_log(TARGET_BASE, set(range(len(records))) - left, records)
    verdict = verdict_of(log_of(by_tens(records)), target, Rules(source_compacted=True, target_compacted=True))
    assert [(one.kind, one.source, one.records) for one in found_in(verdict.differences)] == [(Kind.MISSING, lost, 1)]


# --- the last state of a key


_BOTH_COMPACT = Rules(source_compacted=True, target_compacted=True)
_A, _A_DELETED, _B, _C = (
    Made(key, value, (), 5 + number)
    for number, (key, value) in enumerate([(b"a", b"v"), (b"a", None), (b"b", b"1"), (b"c", b"1")])
)


def _logged(at: int, *records: tuple[int, Made]) -> list[AnyBatch]:
    return [batch_at(at + offset, [record]) for offset, record in records]


@pytest.mark.parametrize("between", [0, 1, 3], ids=["none", "one", "three"])
def test_deletion_that_never_arrived_is_missing(between: int) -> None:
    """The copy has a free offset in its place, such as that of a marker; the value is valid there."""
    others = [(1 + n, _B._replace(time_ms=n)) for n in range(between)]
    source = _logged(0, (0, _A), *others, (9, _A_DELETED), (10, _C))
    target = _logged(TARGET_BASE, (0, _A), *others, (10, _C))
    verdict = verdict_of(source, target, _BOTH_COMPACT)
    assert found_in(verdict.differences) == [Found(Kind.MISSING, 9, TARGET_BASE + 10)]
    assert (verdict.source_end, verdict.named[Named.TARGET_COMPACTED], verdict.unaccounted) == (9, 0, 0)


def test_deletion_by_others_is_foreign() -> None:
    source = _logged(0, (0, _A), (1, _B), (3, _C))
    target = _logged(TARGET_BASE, (0, _A), (1, _B), (2, _A_DELETED), (3, _C))
    verdict = verdict_of(source, target, _BOTH_COMPACT)
    assert found_in(verdict.differences) == [Found(Kind.FOREIGN, 3, TARGET_BASE + 2)]
    assert verdict.named[Named.SOURCE_COMPACTED] == 0


def test_deletion_of_what_is_written_again_later_may_be_removed() -> None:
    again = _A._replace(value=b"w", time_ms=50)
    source = _logged(0, (0, _A), (1, _B), (2, _A_DELETED), (3, _C), (4, again))
    target = _logged(TARGET_BASE, (0, _A), (1, _B), (3, _C), (4, again))
    verdict = verdict_of(source, target, _BOTH_COMPACT)
    assert (found_in(verdict.differences), verdict.named[Named.TARGET_COMPACTED]) == ([], 1)


@pytest.mark.parametrize("lacking", [2, 4], ids=["first", "second"])
def test_deletion_that_was_repeated_is_there(lacking: int) -> None:
    later = _A_DELETED._replace(time_ms=50)
    records = [(0, _A), (1, _B), (2, _A_DELETED), (3, _C), (4, later), (5, _C)]
    target = _logged(TARGET_BASE, *(one for one in records if one[0] != lacking))
    assert found_in(verdict_of(_logged(0, *records), target, _BOTH_COMPACT).differences) == []


def test_deletion_by_others_is_foreign_though_the_key_has_a_value_that_is_not_copied_yet() -> None:
    source = _logged(0, (0, _A), (1, _B), (3, _C), (4, _A._replace(value=b"w", time_ms=50)))
    target = _logged(TARGET_BASE, (0, _A), (1, _B), (2, _A_DELETED), (3, _C))
    verdict = verdict_of(source, target, _BOTH_COMPACT, bounds=lambda bounds: replace(bounds, source_end=4))
    assert found_in(verdict.differences) == [Found(Kind.FOREIGN, 3, TARGET_BASE + 2)]


def test_value_in_front_of_what_is_compared_is_found_beside_a_missing_deletion() -> None:
    """The comparison begins behind a proof; the whole logs are read for the value."""
    source = _logged(0, (0, _A), (1, _B), (2, _A_DELETED), (3, _C))
    target = _logged(0, (0, _A), (1, _B), (3, _C))
    bounds = Bounds(source_start=1, source_end=4, target_start=1, target_end=4)
    logs = fetches_of(source), fetches_of(target)
    verdict = Comparison(*logs, bounds, _BOTH_COMPACT, logs).run()
    assert found_in(verdict.differences) == [Found(Kind.MISSING, 2, 3)]


def test_deletions_that_had_to_be_forgotten_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "_MAX_KEYS", 1)
    deleted = [(2, _A_DELETED), (3, _B._replace(value=None, time_ms=30))]
    source = _logged(0, (0, _A), (1, _B), *deleted, (4, _C))
    target = _logged(TARGET_BASE, (0, _A), (1, _B), (4, _C))
    verdict = verdict_of(source, target, _BOTH_COMPACT)
    assert found_in(verdict.differences) == [Found(Kind.MISSING, 3, TARGET_BASE + 4)]
    assert not verdict.complete
    assert "1 removed records may not be superseded" in verdict.uncompared[0].reason


@given(_KEYED, st.data())
def test_deletion_that_the_target_lacks_beside_the_value_is_found(records: list[Made], data: st.DataObject) -> None:
    last = {record.key: offset for offset, record in enumerate(records)}
    values = {record.key for record in records if record.value is not None}
    deleted = [offset for key, offset in last.items() if records[offset].value is None and key in values]
    assume(deleted)
    lost = data.draw(st.sampled_from(deleted))
    key = records[lost].key
    # In front of the last value of the key the cleaner was not: it would have removed what the deletion supersedes.
    first = max(offset for offset, one in enumerate(records[:lost]) if one.key == key and one.value is not None)
    left = set(_cleaned(records, data.draw(st.integers(0, first)), deletions=data.draw(st.integers(0, first)))) - {lost}
    left -= {offset for offset in range(first, lost) if records[offset].key == key and records[offset].value is None}
    target = harmless_logs.compacted_log(TARGET_BASE, set(range(len(records))) - left, records)
    verdict = verdict_of(log_of(by_tens(records)), target, _BOTH_COMPACT)
    assert [(one.kind, one.source) for one in found_in(verdict.differences)] == [(Kind.MISSING, lost)]
