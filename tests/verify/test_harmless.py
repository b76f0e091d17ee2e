"""No harmless difference raises an alarm; it is named, and what could not be compared is said."""

from __future__ import annotations

import pytest

from mirror.verify.values import Named
from tests.verify.harmless import Harmless
from tests.verify.harmless_logs import LOG_CASES
from tests.verify.harmless_records import RECORD_CASES
from tests.verify.logs import TARGET_BASE, found_in, verdict_of
from tests.verify.more_harmless import MORE_HARMLESS

HARMLESS = [*(case.harmless() for case in RECORD_CASES), *LOG_CASES, *MORE_HARMLESS]
_ALWAYS = {Named.MARKERS, Named.ABORTED}
"""What is named beside what a case says."""


def test_there_are_eighty_kinds_of_harmless_difference() -> None:
    assert len({case.name for case in HARMLESS}) == len(HARMLESS) >= 80


@pytest.mark.parametrize("case", HARMLESS, ids=lambda case: case.name)
def test_harmless_difference_raises_no_alarm(case: Harmless) -> None:
    source, target = case.logs()
    verdict = verdict_of(
        source,
        target,
        case.rules,
        source_aborted=case.source_aborted,
        target_aborted=case.target_aborted,
        per_fetch=case.per_fetch,
        bounds=case.bounds,
    )
    assert found_in(verdict.differences) == []
    ends = (
        source[-1].next_offset if source else 0,
        target[-1].next_offset if target else TARGET_BASE,
    )
    assert (verdict.source_end, verdict.target_end) == (case.ends or ends)
    assert {
        name: count for name, count in verdict.named.items() if name in case.named or name not in _ALWAYS
    } == case.named
    assert tuple((one.side, one.start, one.end) for one in verdict.uncompared) == case.uncompared
