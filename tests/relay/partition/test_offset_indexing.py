"""Which segments a copy makes, and when: what they say is committed, or acknowledged."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mirror.errors import BrokerError, DeliveryTimeout
from mirror.relay.batches.exactly_once_way import WayRules
from mirror.relay.model.ranges import OPEN_END
from mirror.relay.model.way import Way
from mirror.relay.offsets import runs
from mirror.relay.offsets.runs import AppendedRuns, Run, decode_runs
from mirror.relay.progress.anchors import INTERVAL_MS
from mirror.relay.progress.target_log import TargetMark
from tests.relay.copy_harness import CopyHarness, made, progress_at

_DAY_MS = 86_400_000
MARK = TargetMark(topic_id="its-id", end=1_000, leader_epoch=4, producer_id=6)


def _run(*, atomic: bool = True, mark: TargetMark = MARK, end: int = OPEN_END, index_ms: int = 0) -> CopyHarness:
    run = CopyHarness(end, atomic=atomic, index_interval_ms=index_ms)
    run.context.leader = None if mark.leader_epoch is None else (1, mark.leader_epoch)
    return run.opened_with(replace(progress_at(0), target=mark))


def _copy(run: CopyHarness, offset: int, base_offset: int) -> None:
    run.fetch(made(offset, 2), stable_end=offset + 2)
    run.advance(50)
    run.ack(*run.unanswered, base_offset=base_offset)
    run.commit()


def _runs(run: CopyHarness) -> list[list[Run]]:
    return [list(one.runs) for one in run.context.segments]


def test_segment_is_written_with_an_anchor_and_again_when_it_has_grown() -> None:
    run = _run()
    _copy(run, 0, 1_000)
    _copy(run, 2, 1_003)
    assert _runs(run) == [[Run(0, 1_000, 2)]]
    run.clock.advance(INTERVAL_MS)
    _copy(run, 4, 1_006)
    first, again = run.context.segments
    assert list(again.runs) == [Run(0, 1_000, 2), Run(2, 1_003, 2), Run(4, 1_006, 2)]
    assert (first.start, again.start, again.end.offset) == (0, 0, 6)
    assert again.end.target == replace(MARK, end=1_008, producer_id=7)


def test_segment_is_written_more_often_for_consumer_groups() -> None:
    run = _run(index_ms=2_000)
    for number in range(3):
        _copy(run, 2 * number, 1_000 + 3 * number)
        run.clock.advance(1_200)
    assert [len(found) for found in _runs(run)] == [1, 3]


def test_rest_is_written_when_the_copy_ends() -> None:
    run = _run(end=4)
    _copy(run, 0, 1_000)
    run.fetch(made(2, 2))
    run.ack(*run.unanswered, base_offset=1_003)
    run.commit()
    run.closed()
    assert run.copy.done
    assert _runs(run)[-1] == [Run(0, 1_000, 2), Run(2, 1_003, 2)]


def test_what_was_aborted_is_in_no_segment_and_the_next_attempt_goes_on() -> None:
    run = _run()
    run.context.retries_allowed = True
    _copy(run, 0, 1_000)
    run.fetch(made(2, 2), made(4, 2))
    acknowledged, failed = run.unanswered
    run.ack(acknowledged, base_offset=1_003)
    run.fail(failed, DeliveryTimeout("late"))
    run.closed()
    run.back_off()
    run.opened_with(replace(progress_at(2), target=replace(MARK, end=1_002, producer_id=7)))
    _copy(run, 2, 1_009)
    run.clock.advance(INTERVAL_MS)
    _copy(run, 4, 1_012)
    assert _runs(run)[-1] == [Run(0, 1_000, 2), Run(2, 1_009, 2), Run(4, 1_012, 2)]


def test_batch_without_an_offset_ends_a_segment_and_the_next_commit_begins_another() -> None:
    """A broker that had the batch already does not say where it is."""
    run = _run()
    _copy(run, 0, 1_000)
    _copy(run, 2, -1)
    _copy(run, 4, 1_006)
    run.clock.advance(INTERVAL_MS)
    _copy(run, 6, 1_009)
    assert [(one.start, one.end.offset) for one in run.context.segments][-1] == (4, 8)
    assert all(one.end.offset <= 2 or one.start >= 4 for one in run.context.segments)
    assert _runs(run)[-1] == [Run(4, 1_006, 2), Run(6, 1_009, 2)]


def test_nothing_is_written_while_the_leader_epoch_is_not_known() -> None:
    """It could not be known later whether the target still has what a segment says."""
    run = _run(mark=replace(MARK, leader_epoch=None), end=2)
    _copy(run, 0, 1_000)
    run.closed()
    assert run.copy.done
    assert run.context.segments == []


def test_flow_that_begins_knows_that_nothing_of_it_is_in_front() -> None:
    begins, goes_on = _run(mark=replace(MARK, producer_id=-1)), _run()
    for run in (begins, goes_on):
        _copy(run, 0, 1_005)
    assert [run.context.segments[0].target_start for run in (begins, goes_on)] == [1_000, 1_005]


def test_without_transactions_what_is_acknowledged_is_kept_although_its_commit_has_failed() -> None:
    run = _run(atomic=False)
    run.context.retries_allowed = True
    _copy_at_least_once(run, 0, 1_000)
    run.fetch(made(2, 2), stable_end=4)
    run.ack(*run.unanswered, base_offset=1_002)
    run.advance(1_000)
    run.commit(BrokerError("odd", 99))
    run.copy.wind_up(run.clock.now(), immediately=True)
    run.context.run_until_idle()
    if run.committing is not None:
        run.commit(BrokerError("odd", 99))
    if not run.copy.done:
        run.closed()
    assert _runs(run)[-1] == [Run(0, 1_000, 4)]


def _copy_at_least_once(run: CopyHarness, offset: int, base_offset: int) -> None:
    run.fetch(made(offset, 2), stable_end=offset + 2)
    run.ack(*run.unanswered, base_offset=base_offset)
    run.advance(1_000)
    run.commit()


def test_what_a_transaction_has_aborted_is_in_no_segment_although_the_way_was_another_before() -> None:
    run = CopyHarness(OPEN_END, rules=WayRules(mode="auto", expiration_ms=_DAY_MS))
    run.context.leader, run.context.retries_allowed = (1, 4), True
    begins = replace(progress_at(0), way=Way.SEQUENCES, generation=5, target=MARK)
    run.opened_with(begins)
    run.fetch(made(0, 2, timestamp=run.clock.unix_ms()), stable_end=2)
    run.acquired()
    run.ack(*run.unanswered, base_offset=1_001)
    run.advance(1_000)
    run.commit()
    run.fetch(made(2, 2, timestamp=run.clock.unix_ms() - 10 * _DAY_MS), stable_end=4)
    run.commit()  # its last one
    mark = replace(MARK, end=1_003, producer_id=7)
    run.opened_with(replace(begins, offset=2, way=Way.TRANSACTIONS, target=mark))
    run.fetch(made(2, 2), made(4, 1), stable_end=5)
    assert run.writer.atomic
    acknowledged, *_ = run.unanswered
    run.ack(acknowledged, base_offset=1_004)
    run.fail(run.unanswered[0], DeliveryTimeout("late"))
    run.closed()
    run.back_off()
    run.opened_with(replace(begins, offset=2, way=Way.TRANSACTIONS, target=mark))
    _copy(run, 2, 1_010)
    run.clock.advance(INTERVAL_MS)
    _copy(run, 4, 1_013)
    found = {one for runs_of_one in _runs(run) for one in runs_of_one}
    assert found == {Run(0, 1_001, 2), Run(2, 1_010, 2)}


def test_segment_does_not_go_on_behind_what_another_process_has_sent_again() -> None:
    """The target had lost what this copy had appended, and it was copied again, up to the same source offset."""
    run = _run()
    run.context.retries_allowed = True
    _copy(run, 0, 1_000)
    run.fetch(made(2, 1), stable_end=3)
    run.fail(run.unanswered[0], DeliveryTimeout("late"))
    run.closed()
    run.back_off()
    run.context.leader = (1, 5)
    run.opened_with(replace(progress_at(2), target=replace(MARK, end=1_005, leader_epoch=5)))
    _copy(run, 2, 1_006)
    run.clock.advance(INTERVAL_MS)
    _copy(run, 4, 1_009)
    assert _runs(run)[-1] == [Run(2, 1_006, 2), Run(4, 1_009, 2)]


def test_runs_that_cannot_be_written_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """The brokers of the target do not say their leader epochs."""
    monkeypatch.setattr(runs, "MAX_RUNS", 2)
    run = _run(mark=replace(MARK, leader_epoch=None))
    for number in range(20):
        _copy(run, 2 * number, 1_000 + 3 * number)
    gathered = run.copy._commits.appends
    gathered.commit()
    assert len(_gathered(gathered)) <= 4


def _gathered(gathered: AppendedRuns) -> list[Run]:
    return [one for span in gathered.take() for one in decode_runs(span.start, span.target_start, span.encoded)]
