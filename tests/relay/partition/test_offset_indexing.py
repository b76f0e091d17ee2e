"""Which segments a copy makes, and when: what they say is committed, or acknowledged."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mirror.errors import BrokerError, DeliveryTimeout
from mirror.relay.batches.exactly_once_way import WayRules
from mirror.relay.model.ranges import OPEN_END
from mirror.relay.model.way import Way
from mirror.relay.offsets import extents
from mirror.relay.offsets.extents import AppendedExtents, Extent, decode_extents
from mirror.relay.progress.anchors import INTERVAL_MS
from mirror.relay.progress.target_log import TargetMark
from tests.relay.copy_harness import CopyHarness, made, progress_at

_DAY_MS = 86_400_000
MARK = TargetMark(topic_id="its-id", end=1_000, leader_epoch=4, producer_id=6)


def _extent(*, atomic: bool = True, mark: TargetMark = MARK, end: int = OPEN_END, index_ms: int = 0) -> CopyHarness:
    extent = CopyHarness(end, atomic=atomic, index_interval_ms=index_ms)
    extent.context.leader = None if mark.leader_epoch is None else (1, mark.leader_epoch)
    return extent.opened_with(replace(progress_at(0), target=mark))


def _copy(extent: CopyHarness, offset: int, base_offset: int) -> None:
    extent.fetch(made(offset, 2), stable_end=offset + 2)
    extent.advance(50)
    extent.ack(*extent.unanswered, base_offset=base_offset)
    extent.commit()


def _extents(extent: CopyHarness) -> list[list[Extent]]:
    return [list(one.extents) for one in extent.context.segments]


def test_segment_is_written_with_an_anchor_and_again_when_it_has_grown() -> None:
    extent = _extent()
    _copy(extent, 0, 1_000)
    _copy(extent, 2, 1_003)
    assert _extents(extent) == [[Extent(0, 1_000, 2)]]
    extent.clock.advance(INTERVAL_MS)
    _copy(extent, 4, 1_006)
    first, again = extent.context.segments
    assert list(again.extents) == [Extent(0, 1_000, 2), Extent(2, 1_003, 2), Extent(4, 1_006, 2)]
    assert (first.start, again.start, again.end.offset) == (0, 0, 6)
    assert again.end.target == replace(MARK, end=1_008, producer_id=7)


def test_segment_is_written_more_often_for_consumer_groups() -> None:
    extent = _extent(index_ms=2_000)
    for number in range(3):
        _copy(extent, 2 * number, 1_000 + 3 * number)
        extent.clock.advance(1_200)
    assert [len(found) for found in _extents(extent)] == [1, 3]


def test_a_commit_that_comes_a_little_early_writes_its_segment() -> None:
    """Commits that are due once in an interval have not exactly that between them."""
    extent = _extent(index_ms=250)
    for number in range(4):
        _copy(extent, 2 * number, 1_000 + 3 * number)
        extent.clock.advance(250 - 50 - 10)
    assert [len(found) for found in _extents(extent)] == [1, 2, 3, 4]


def test_rest_is_written_when_the_copy_ends() -> None:
    extent = _extent(end=4)
    _copy(extent, 0, 1_000)
    extent.fetch(made(2, 2))
    extent.ack(*extent.unanswered, base_offset=1_003)
    extent.commit()
    extent.closed()
    assert extent.copy.done
    assert _extents(extent)[-1] == [Extent(0, 1_000, 2), Extent(2, 1_003, 2)]


def test_what_was_aborted_is_in_no_segment_and_the_next_attempt_goes_on() -> None:
    extent = _extent()
    extent.context.retries_allowed = True
    _copy(extent, 0, 1_000)
    extent.fetch(made(2, 2), made(4, 2))
    acknowledged, failed = extent.unanswered
    extent.ack(acknowledged, base_offset=1_003)
    extent.fail(failed, DeliveryTimeout("late"))
    extent.closed()
    extent.back_off()
    extent.opened_with(replace(progress_at(2), target=replace(MARK, end=1_002, producer_id=7)))
    _copy(extent, 2, 1_009)
    extent.clock.advance(INTERVAL_MS)
    _copy(extent, 4, 1_012)
    assert _extents(extent)[-1] == [Extent(0, 1_000, 2), Extent(2, 1_009, 2), Extent(4, 1_012, 2)]


def test_batch_without_an_offset_ends_a_segment_and_the_next_commit_begins_another() -> None:
    """A broker that had the batch already does not say where it is."""
    extent = _extent()
    _copy(extent, 0, 1_000)
    _copy(extent, 2, -1)
    _copy(extent, 4, 1_006)
    extent.clock.advance(INTERVAL_MS)
    _copy(extent, 6, 1_009)
    assert [(one.start, one.end.offset) for one in extent.context.segments][-1] == (4, 8)
    assert all(one.end.offset <= 2 or one.start >= 4 for one in extent.context.segments)
    assert _extents(extent)[-1] == [Extent(4, 1_006, 2), Extent(6, 1_009, 2)]


def test_nothing_is_written_while_the_leader_epoch_is_not_known() -> None:
    """It could not be known later whether the target still has what a segment says."""
    extent = _extent(mark=replace(MARK, leader_epoch=None), end=2)
    _copy(extent, 0, 1_000)
    extent.closed()
    assert extent.copy.done
    assert extent.context.segments == []


def test_flow_that_begins_knows_that_nothing_of_it_is_in_front() -> None:
    begins, goes_on = _extent(mark=replace(MARK, producer_id=-1)), _extent()
    for extent in (begins, goes_on):
        _copy(extent, 0, 1_005)
    assert [extent.context.segments[0].target_start for extent in (begins, goes_on)] == [1_000, 1_005]


def test_without_transactions_what_is_acknowledged_is_kept_although_its_commit_has_failed() -> None:
    extent = _extent(atomic=False)
    extent.context.retries_allowed = True
    _copy_at_least_once(extent, 0, 1_000)
    extent.fetch(made(2, 2), stable_end=4)
    extent.ack(*extent.unanswered, base_offset=1_002)
    extent.advance(1_000)
    extent.commit(BrokerError("odd", 99))
    extent.copy.wind_up(extent.clock.now(), immediately=True)
    extent.context.run_until_idle()
    if extent.committing is not None:
        extent.commit(BrokerError("odd", 99))
    if not extent.copy.done:
        extent.closed()
    assert _extents(extent)[-1] == [Extent(0, 1_000, 4)]


def _copy_at_least_once(extent: CopyHarness, offset: int, base_offset: int) -> None:
    extent.fetch(made(offset, 2), stable_end=offset + 2)
    extent.ack(*extent.unanswered, base_offset=base_offset)
    extent.advance(1_000)
    extent.commit()


def test_what_a_transaction_has_aborted_is_in_no_segment_although_the_way_was_another_before() -> None:
    extent = CopyHarness(OPEN_END, rules=WayRules(mode="auto", expiration_ms=_DAY_MS))
    extent.context.leader, extent.context.retries_allowed = (1, 4), True
    begins = replace(progress_at(0), way=Way.SEQUENCES, generation=5, target=MARK)
    extent.opened_with(begins)
    extent.fetch(made(0, 2, timestamp=extent.clock.unix_ms()), stable_end=2)
    extent.acquired()
    extent.ack(*extent.unanswered, base_offset=1_001)
    extent.advance(1_000)
    extent.commit()
    extent.fetch(made(2, 2, timestamp=extent.clock.unix_ms() - 10 * _DAY_MS), stable_end=4)
    extent.commit()  # its last one
    mark = replace(MARK, end=1_003, producer_id=7)
    extent.opened_with(replace(begins, offset=2, way=Way.TRANSACTIONS, target=mark))
    extent.fetch(made(2, 2), made(4, 1), stable_end=5)
    assert extent.writer.atomic
    acknowledged, *_ = extent.unanswered
    extent.ack(acknowledged, base_offset=1_004)
    extent.fail(extent.unanswered[0], DeliveryTimeout("late"))
    extent.closed()
    extent.back_off()
    extent.opened_with(replace(begins, offset=2, way=Way.TRANSACTIONS, target=mark))
    _copy(extent, 2, 1_010)
    extent.clock.advance(INTERVAL_MS)
    _copy(extent, 4, 1_013)
    found = {one for extents_of_one in _extents(extent) for one in extents_of_one}
    assert found == {Extent(0, 1_001, 2), Extent(2, 1_010, 2)}


@pytest.mark.parametrize("end", [1_005, 1_002], ids=["exact", "a lower bound"])
def test_segment_does_not_go_on_behind_what_another_process_has_sent_again(end: int) -> None:
    """The target had lost what this copy had appended, and it was copied again, up to the same source offset."""
    extent = _extent()
    extent.context.retries_allowed = True
    _copy(extent, 0, 1_000)
    extent.fetch(made(2, 1), stable_end=3)
    extent.fail(extent.unanswered[0], DeliveryTimeout("late"))
    extent.closed()
    extent.back_off()
    extent.context.leader = (1, 5)
    extent.opened_with(replace(progress_at(2), target=replace(MARK, end=end, leader_epoch=5)))
    _copy(extent, 2, 1_006)
    extent.clock.advance(INTERVAL_MS)
    _copy(extent, 4, 1_009)
    assert _extents(extent)[-1] == [Extent(2, 1_006, 2), Extent(4, 1_009, 2)]


def test_runs_that_cannot_be_written_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """The brokers of the target do not say their leader epochs."""
    monkeypatch.setattr(extents, "MAX_EXTENTS", 2)
    extent = _extent(mark=replace(MARK, leader_epoch=None))
    for number in range(20):
        _copy(extent, 2 * number, 1_000 + 3 * number)
    gathered = extent.copy._machine._commits.appends
    gathered.commit()
    assert len(_gathered(gathered)) <= 4


def _gathered(gathered: AppendedExtents) -> list[Extent]:
    return [one for span in gathered.take() for one in decode_extents(span.start, span.target_start, span.encoded)]
