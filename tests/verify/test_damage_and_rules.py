"""Damage beside what a flow's rules permit is found."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mirror.errors import FlowError, RecordNotMasked
from mirror.verify.values import Kind, Rules
from mirror.wire.decode import Record
from tests.relay.batches.logs_by_hand import Made
from tests.verify import harmless_logs, harmless_records
from tests.verify.damages import FOREIGN, source_records
from tests.verify.harmless_records import RECORD_CASES
from tests.verify.logs import (
    RECORDS,
    TARGET_BASE,
    Found,
    by_tens,
    copied,
    found_between,
    found_in,
    log_of,
    verdict_of,
)


def _case(name: str) -> tuple[list[Made], list[Made], Rules]:
    """A harmless difference, to be damaged."""
    (case,) = (case for case in RECORD_CASES if case.name == name)
    source = case.source()
    return source, case.target(source), case.rules


# --- what a flow does to records


def test_missing_header_of_the_flow_is_found() -> None:
    source, target, rules = _case("headers that the flow adds")
    target[60] = target[60]._replace(headers=target[60].headers[:-1])
    assert found_between(source, target, rules) == [Found(Kind.CONTENT, 60, 60, 1, ("headers",))]
    assert found_between(source, source, rules) == [Found(Kind.CONTENT, 0, 0, RECORDS, ("headers",))]


def test_other_value_of_the_flow_s_header_is_found() -> None:
    source, target, rules = _case("headers that the flow adds")
    target[60] = target[60]._replace(headers=(*target[60].headers[:-2], ("copied-by", b"other"), ("null", None)))
    assert found_between(source, target, rules) == [Found(Kind.CONTENT, 60, 60, 1, ("headers",))]


def test_record_that_the_transform_did_not_change_is_found() -> None:
    source, target, rules = _case("a transform that changes")
    target[60] = source[60]
    assert found_between(source, target, rules) == [Found(Kind.CONTENT, 60, 60, 1, ("value",))]


def test_record_that_the_transform_should_have_dropped_is_found() -> None:
    source, target, rules = _case("a transform that drops")
    at = target.index(source[56])
    target.insert(at, source[55])
    assert found_between(source, target, rules) == [Found(Kind.FOREIGN, 56, at)]


@pytest.mark.parametrize("transform", [lambda record: record.value.missing, lambda record: record.value])
def test_transform_that_fails_is_named_with_the_offset(transform: Callable[[Record], Record | None]) -> None:
    source = source_records()
    with pytest.raises(FlowError, match=r"the transform (failed|gave a bytes).* at offset 0"):
        found_between(source, source, Rules(transform=transform))


def test_record_that_cannot_be_masked_is_an_error_unless_the_flow_leaves_it_out() -> None:
    def mask(record: Record) -> Record | None:
        raise RecordNotMasked(f"the value of the record at offset {record.offset}", left_out=False)

    with pytest.raises(RecordNotMasked, match="the value of the record at offset 0"):
        found_between(source_records(), source_records(), Rules(transform=mask))


# --- policies do not hide other damage


def test_record_within_the_limits_of_time_is_missing() -> None:
    source, target, rules = _case("records left out because they were too old")
    del target[20]
    assert found_between(source, target, rules) == [Found(Kind.MISSING, 20, 20)]


@pytest.mark.parametrize("time_ms", [harmless_records.NOW - 50_000 - 1_000, harmless_records.NOW - 300_000 + 60_001, 6])
def test_timestamp_to_which_nothing_is_clamped_is_found(time_ms: int) -> None:
    source, target, rules = _case("timestamps clamped because they were too old")
    target[75] = target[75]._replace(time_ms=time_ms)
    assert found_between(source, target, rules) == [Found(Kind.CONTENT, 75, 75, 1, ("timestamp",))]


def test_timestamp_clamped_in_the_wrong_direction_is_found() -> None:
    source, target, rules = _case("timestamps clamped because they were too new")
    target[75] = target[75]._replace(time_ms=source[75].time_ms + 1)
    assert found_between(source, target, rules) == [Found(Kind.CONTENT, 75, 75, 1, ("timestamp",))]


def test_clamped_timestamp_is_found_where_such_records_are_left_out() -> None:
    source, _, rules = _case("records left out because they were too old")
    target = [*source[:70], source[70]._replace(time_ms=harmless_records.NOW - 350_000), *source[80:]]
    assert found_between(source, target, rules) == [Found(Kind.CONTENT, 70, 70, 1, ("timestamp",))]


def test_timestamp_of_the_last_record_is_found_where_others_are_clamped() -> None:
    source, target, rules = _case("timestamps clamped because they were too old")
    target[-1] = target[-1]._replace(time_ms=6)
    assert found_between(source, target, rules) == [Found(Kind.CONTENT, RECORDS - 1, RECORDS - 1, 1, ("timestamp",))]


def test_record_that_is_not_too_large_is_missing() -> None:
    source, target, rules = _case("a record left out because it is too large")
    del target[50]
    assert found_between(source, target, rules) == [Found(Kind.MISSING, 51, 50)]


def test_record_with_a_key_is_missing() -> None:
    source, target, rules = _case("a record left out because it has no key")
    del target[50]
    assert found_between(source, target, rules) == [Found(Kind.MISSING, 51, 50)]


def test_missing_record_among_permitted_foreign_records_is_found() -> None:
    source, target, rules = _case("permitted foreign batches")
    at = target.index(source[60])
    del target[at]
    assert found_between(source, target, rules) == [Found(Kind.MISSING, 60, at)]


def test_changed_record_among_permitted_foreign_records_is_found() -> None:
    source, target, rules = _case("a permitted foreign record between any two")
    at = 2 * 90 + 1
    assert target[at] == source[90]
    target[at] = target[at]._replace(value=b"changed")
    assert found_between(source, target, rules) == [Found(Kind.CONTENT, 90, at, 1, ("value",))]


def test_doubled_record_among_permitted_foreign_records_is_found() -> None:
    source, target, rules = _case("a permitted foreign record")
    target.insert(100, source[80])
    assert found_between(source, target, rules) == [Found(Kind.DOUBLED, 80, 100)]


@pytest.mark.parametrize(("number", "to"), [(90, 20), (20, 90)])
def test_moved_record_among_permitted_foreign_records_is_found(number: int, to: int) -> None:
    source = source_records()
    target = list(source)
    target.insert(to, target.pop(number))
    assert found_between(source, target, Rules(foreign_allowed=True)) == [Found(Kind.ORDER, number, to)]


def test_foreign_record_is_found_where_repetitions_are_permitted() -> None:
    source, target, rules = _case("repetitions at least once")
    target.insert(40, FOREIGN)
    assert found_between(source, target, rules) == [Found(Kind.FOREIGN, 40, 40)]


def test_missing_record_among_repetitions_is_found() -> None:
    source, target, rules = _case("repetitions at least once")
    del target[40]
    assert found_between(source, target, rules) == [Found(Kind.MISSING, 40, 40)]


def test_batch_that_a_flow_has_written_to_the_source_and_that_came_back_is_found() -> None:
    source, _ = harmless_logs.others_in_source()
    parts = by_tens(source_records())
    numbers = [number for number in range(20) if number % 3 or number == 6]
    target = copied([parts[number] for number in numbers])
    verdict = verdict_of(source, target, Rules(is_left_out=harmless_logs.is_of_flow))
    assert found_in(verdict.differences) == [Found(Kind.FOREIGN, 70, TARGET_BASE + 10 * numbers.index(6), 10)]


def test_missing_record_behind_more_foreign_records_than_the_window_has_is_found() -> None:
    source = source_records()
    others = [FOREIGN._replace(value=b"%d" % number) for number in range(600)]
    target = [*source[:90], *others, *source[90:120], *source[121:]]
    rules = Rules(foreign_allowed=True, window=64)
    assert found_between(source, target, rules) == [Found(Kind.MISSING, 120, 720)]


def test_own_records_that_are_out_of_step_are_compared_no_further() -> None:
    """They are not those of others, however many these may have written."""
    source = source_records()
    rules = Rules(foreign_allowed=True, window=16, is_own=lambda _: True)
    verdict = verdict_of(log_of(by_tens(source)), copied(by_tens([*source[:20], *source[150:]])), rules)
    assert found_in(verdict.differences) == [Found(Kind.MISSING, 20, TARGET_BASE + 20)]
    assert not verdict.complete
