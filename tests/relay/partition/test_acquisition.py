"""The position that an attempt finds when it acquires its partition counts, whatever it has begun with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from mirror.errors import CorruptBatch, LogTruncated, OffsetOutOfRange
from mirror.relay.model.way import Way
from mirror.relay.partition.states import CopyState
from mirror.relay.progress.committed import ProgressTotals
from tests.relay.copy_harness import CopyHarness, progress_at
from tests.relay.hand_context import TIMES
from tests.relay.partition.test_sequences import MARK, claimed, harness, young


def claims_its_first_progress() -> CopyHarness:
    """Another attempt has begun meanwhile."""
    return harness().opened_with(None).resolved()


def _damaged(run: CopyHarness) -> None:
    run.fetch_fails(CorruptBatch("t-0: the batch is damaged"))


def _gone(run: CopyHarness) -> None:
    run.fetch_fails(OffsetOutOfRange("t-0: out of range", 1))


def _truncated(run: CopyHarness) -> None:
    run.fetch_fails(LogTruncated("t-0: the log was cut back"))


def _silent(run: CopyHarness) -> None:
    run.advance(TIMES.stall_ms + 1)
    run.copy.step(run.clock.now())


Event = Callable[[CopyHarness], None]


def test_restored_progress_is_a_lower_bound() -> None:
    """Nothing was behind it when it was restored; an earlier attempt that is not fenced yet may append."""
    run = harness().opened_with(None).resolved(progress_at(4), mark=MARK)
    (claim, _), *_ = run.writer.acquisitions
    assert (claim.offset, claim.way, claim.exact) == (4, Way.SEQUENCES, False)
    run.acquired(replace(claim, offset=6), ProgressTotals(2, 1, 100))
    assert run.commit().offset == 6
    run.fetch(young(run, 6))
    assert run.sent == [[b"6"]]


@pytest.mark.parametrize("event", [_damaged, _gone, _truncated, _silent])
def test_position_that_is_found_counts_whatever_the_source_reports_meanwhile(event: Event) -> None:
    """Sent from where the attempt had begun, records of the earlier one would be in the target twice."""
    run = claims_its_first_progress()
    asked, _ = run.writer.acquisitions[0]
    found = asked.offset + 2
    event(run)
    run.acquired(replace(claimed(found), generation=asked.generation), ProgressTotals(2, 1, 100))
    assert run.context.read_position == (found, None)
    run.commit()
    run.fetch(young(run, found))
    assert run.sent == [[b"%d" % found]]
    assert len(run.writer.acquisitions) == 1


@pytest.mark.parametrize("event", [_damaged, _gone, _truncated])
def test_what_the_source_reports_counts_once_the_position_is_known(event: Event) -> None:
    """Nothing was appended behind the progress: it is read there again, or the source is asked for the reason."""
    run = claims_its_first_progress()
    asked, _ = run.writer.acquisitions[0]
    event(run)
    assert not run.context.source_lookups
    run.acquired()
    assert run.commit().offset == asked.offset
    if event is _damaged:
        assert run.context.read_position == (asked.offset, None)
    else:
        assert run.copy.state is CopyState.CHECKING_SOURCE
