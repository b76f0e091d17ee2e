"""Repetitions from before what is remembered: the source is read again for foreign records."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mirror.verify import findings, history
from mirror.verify.values import Bounds, Kind, Named, Rules
from tests.relay.batches.logs_by_hand import Made
from tests.verify.logs import RECORDS, TARGET_BASE, Found, by_sevens, by_tens, copied, found_in, log_of, numbered
from tests.verify.logs import verdict_of as compared

_AT_LEAST_ONCE, _SHARED = Rules(repeats_allowed=True), Rules(foreign_allowed=True)
_RECORDS = [numbered(number) for number in range(RECORDS)]
_FOREIGN = numbered(10_000)


@pytest.fixture(autouse=True)
def forgetful(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remembers nothing of what is compared as bytes but its edges."""
    monkeypatch.setattr(history, "_MAX_KEPT_BYTES", 0)


def _target(*more: list[Made]) -> list[list[Made]]:
    return [*by_tens(_RECORDS), *more]


def test_repetition_in_other_batches_is_permitted_at_least_once() -> None:
    verdict = compared(log_of(by_tens(_RECORDS)), copied(_target(*by_sevens(_RECORDS[:100]))), _AT_LEAST_ONCE)
    assert (found_in(verdict.differences), verdict.named[Named.REPEATED]) == ([], 100)
    assert verdict.target_end == TARGET_BASE + RECORDS + 100


def test_repetition_in_other_batches_is_permitted_beside_times_of_the_targets_brokers() -> None:
    target = copied(_target(*by_sevens(_RECORDS[:100])), append_time_ms=77)
    verdict = compared(log_of(by_tens(_RECORDS)), target, _AT_LEAST_ONCE)
    assert (found_in(verdict.differences), verdict.named[Named.REPEATED]) == ([], 100)


def test_what_is_not_of_the_source_is_found_among_repetitions() -> None:
    target = copied(_target(_RECORDS[:5], [_FOREIGN], _RECORDS[5:9]))
    verdict = compared(log_of(by_tens(_RECORDS)), target, _AT_LEAST_ONCE)
    place = TARGET_BASE + RECORDS + 5
    assert found_in(verdict.differences) == [Found(Kind.FOREIGN, RECORDS, place)]
    assert (verdict.target_end <= place, verdict.named[Named.REPEATED]) == (True, 9)


@pytest.mark.parametrize("rules", [_AT_LEAST_ONCE, _SHARED], ids=["at least once", "shared"])
def test_more_foreign_records_than_are_remembered_are_found(rules: Rules, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(findings, "_MAX_UNSETTLED", 3)
    foreign = [numbered(10_000 + number) for number in range(5)]
    verdict = compared(log_of(by_tens(_RECORDS)), copied(_target(foreign)), rules)
    permitted = rules.foreign_allowed
    assert sum(verdict.kinds.values()) + verdict.named[Named.FOREIGN] == 5
    assert verdict.equal == permitted


def test_what_came_back_in_other_batches_is_doubled_among_permitted_foreign_records() -> None:
    target = copied(_target([_FOREIGN], *([one] for one in _RECORDS[:4])))
    verdict = compared(log_of(by_tens(_RECORDS)), target, _SHARED)
    place = TARGET_BASE + RECORDS + 1
    assert found_in(verdict.differences) == [Found(Kind.DOUBLED, 0, place, 4)]
    assert (verdict.named[Named.FOREIGN], verdict.source_end) == (1, 0)


def test_record_that_was_moved_and_repeated_is_found_once() -> None:
    target = [*by_tens([_RECORDS[50], _RECORDS[50], *_RECORDS[:50], *_RECORDS[51:]])]
    for rules, doubled in ((_AT_LEAST_ONCE, 0), (_SHARED, 1)):
        verdict = compared(log_of(by_tens(_RECORDS)), copied(target), rules)
        assert (verdict.kinds[Kind.ORDER], verdict.kinds[Kind.DOUBLED]) == (1, doubled)
        assert verdict.unaccounted == 0


def test_comparison_that_is_stopped_says_what_may_be_repetitions() -> None:
    left = [record for number, record in enumerate(_RECORDS[100:]) if number not in {10, 30}]
    target = copied([*by_tens(_RECORDS[:100]), _RECORDS[:5], *by_tens(left)])
    verdict = compared(log_of(by_tens(_RECORDS)), target, replace(_AT_LEAST_ONCE, max_findings=1))
    places = [(one.start, one.end) for one in verdict.uncompared if "whether they are repetitions" in one.reason]
    assert places == [(TARGET_BASE + 100, TARGET_BASE + 105)]


def test_records_in_front_of_what_is_copied_only_are_repeated() -> None:
    def bounds(whole: Bounds) -> Bounds:
        return replace(whole, source_end=100)

    source, target = log_of(by_tens(_RECORDS)), copied([*by_tens(_RECORDS[:100]), *by_sevens(_RECORDS[:10])])
    assert compared(source, target, _AT_LEAST_ONCE, bounds=bounds).named[Named.REPEATED] == 10
