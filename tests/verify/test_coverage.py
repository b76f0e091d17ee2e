"""Each record of the source in a range is compared, named, or in what was not compared, whatever the logs hold."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror.verify.comparison import Comparison
from mirror.verify.partition_results import PartitionResult
from mirror.verify.values import Bounds, Kind, Named, Rules, TimeLimits, Verdict
from mirror.wire.records import AnyBatch
from tests.relay.batches.logs_by_hand import Made, batch_at
from tests.verify.logs import by_sevens, by_tens, compare, copied, fetches_of, log_of, numbered, verdict_of

_AT_MOST = 150
_TIMES = TimeLimits(before_ms=500, after_ms=500, first_copy_ms=1, now_ms=1_700_000_001_000, policy="skip")
_RULES = st.builds(
    Rules,
    source_compacted=st.booleans(),
    target_compacted=st.booleans(),
    foreign_allowed=st.booleans(),
    repeats_allowed=st.booleans(),
    headers=st.sampled_from([(), (("origin", b"paris"),)]),
    times=st.sampled_from([None, _TIMES, replace(_TIMES, policy="clamp")]),
    skips_above_bytes=st.sampled_from([None, 120]),
    skips_keyless=st.booleans(),
    window=st.sampled_from([64, 256]),
)
_CHANGES: dict[str, Callable[[list[Made], int], Any]] = {
    "missing": lambda records, at: records.pop(at),
    "emptied": lambda records, _: records.clear(),
    "cut off": lambda records, at: records.__delitem__(slice(at, None)),
    "begins later": lambda records, at: records.__delitem__(slice(0, at)),
    "doubled": lambda records, at: records.insert(at, records[at]),
    "moved": lambda records, at: records.append(records.pop(at)),
    "changed": lambda records, at: records.__setitem__(at, Made(records[at].key, b"other", (), 1)),
    "clamped": lambda records, at: records.__setitem__(at, records[at]._replace(time_ms=_TIMES.now_ms - 100)),
    "foreign": lambda records, at: records.insert(at, numbered(10_000 + at)),
}


@st.composite
def _logs(draw: st.DrawFn) -> tuple[list[AnyBatch], list[AnyBatch], Bounds, Rules]:
    """Return two logs: the source's with gaps, the target's with changes and another beginning."""
    rules, keys = draw(_RULES), draw(st.sampled_from([20, 1_000]))
    records = [numbered(number % keys) for number in range(draw(st.integers(1, _AT_MOST)))]
    for at in draw(st.sets(st.integers(0, len(records) - 1), max_size=3)):
        records[at] = records[at]._replace(key=None, value=b"x" * 200, time_ms=1)
    gaps = draw(st.sets(st.integers(0, len(records) - 1), max_size=4))
    source: list[AnyBatch] = [batch_at(at, [record]) for at, record in enumerate(records) if at not in gaps]
    if not gaps and draw(st.booleans()):
        source = log_of(by_tens(records))
    written = [record._replace(headers=(*record.headers, *rules.headers)) for record in records]
    for change in draw(st.lists(st.sampled_from(sorted(_CHANGES)), max_size=3)):
        if written:
            _CHANGES[change](written, draw(st.integers(0, len(written) - 1)))
    target = copied(draw(st.sampled_from([by_tens, by_sevens]))(written), 0)
    start = draw(st.integers(0, len(records)))
    bounds = Bounds(
        source_start=start if draw(st.booleans()) else 0,
        source_end=draw(st.sampled_from([len(records), start, max(0, len(records) - 5)])),
        target_start=0,
        target_end=len(written),
        withheld=draw(st.booleans()),
        source_trimmed=draw(st.booleans()),
        target_trimmed=draw(st.booleans()),
    )
    return source, target, bounds, rules


@given(_logs())
def test_each_record_of_the_source_is_compared_or_named_or_listed(
    drawn: tuple[list[AnyBatch], list[AnyBatch], Bounds, Rules],
) -> None:
    source, target, bounds, rules = drawn
    verdict = compare(fetches_of(source), fetches_of(target), bounds, rules)
    assert verdict.unaccounted == 0, verdict
    assert not any("fault of this program" in one.reason for one in verdict.uncompared), verdict
    offsets = [offset for batch in source for offset in range(batch.base_offset, batch.next_offset)]
    expected = [offset for offset in offsets if bounds.source_start <= offset < bounds.source_end]
    listed = [one for one in verdict.uncompared if one.side == "source"]
    uncompared = sum(any(one.start <= offset < one.end for one in listed) for offset in expected)
    assert verdict.passed - verdict.skipped + uncompared == len(expected), verdict
    result = PartitionResult(topic="t", target_topic="t", partition=0, verdict=verdict)
    assert result.outcome != "equal" or verdict.records or not uncompared


def test_clamped_record_beside_a_missing_one_is_counted_as_equal() -> None:
    records = [numbered(number) for number in range(3)]
    source = log_of([[records[0], records[1]._replace(time_ms=1), records[2]]])
    target = copied([[records[1]._replace(time_ms=_TIMES.now_ms - 100), records[2]]])
    verdict = verdict_of(source, target, Rules(times=replace(_TIMES, policy="clamp")))
    assert [one.kind for one in verdict.differences] == [Kind.MISSING]
    assert (verdict.records, verdict.named[Named.CLAMPED], verdict.unaccounted) == (2, 1, 0)


@pytest.mark.parametrize(
    ("method", "reason"),
    [("_count_equal", "40 of its records are not accounted for"), ("_step", "the comparison ended in front of them")],
)
def test_fault_of_the_comparison_proves_nothing(monkeypatch: pytest.MonkeyPatch, method: str, reason: str) -> None:
    monkeypatch.setattr(Comparison, method, lambda *_: False)
    records = [numbered(number) for number in range(40)]
    verdict: Verdict = verdict_of(log_of(by_tens(records)), copied(by_sevens(records)))
    result = PartitionResult(topic="t", target_topic="t", partition=0, verdict=verdict)
    assert result.outcome == "unknown"
    (first, *_) = verdict.uncompared
    assert (first.side, first.start, first.end) == ("source", 0, 40)
    assert first.reason.startswith(reason)
