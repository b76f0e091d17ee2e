"""Which anchors a copy makes: what they say is acknowledged, committed, and exact."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mirror.producer.batch.batches import RecordMetadata
from mirror.relay.model.ranges import OPEN_END
from mirror.relay.progress.anchors import INTERVAL_MS, AnchorCount
from mirror.relay.progress.committed import Progress
from mirror.relay.progress.target_log import TargetMark
from tests.relay.copy_harness import CopyHarness, made, progress_at
from tests.relay.hand_context import TARGET

MARK = TargetMark(topic_id="its-id", end=1_000, leader_epoch=4, producer_id=6)


def _run(*, atomic: bool = True, end: int = 100, anchor: AnchorCount | None = None) -> CopyHarness:
    run = CopyHarness(end, atomic=atomic)
    run.context.leader = (1, 4)
    committed = replace(progress_at(0), target=MARK)
    return run.opened_with(committed if anchor is None else replace(committed, anchor=anchor))


def _counted(run: CopyHarness, age_ms: int) -> AnchorCount:
    return AnchorCount(8, run.clock.unix_ms() - age_ms)


def test_anchor_is_made_of_what_a_transaction_has_committed() -> None:
    run = _run()
    run.fetch(made(0, 3))
    run.ack_all()
    run.fetch(made(3, 4))
    run.advance(1_000)
    assert not run.context.anchors, "the commit is in flight"
    run.ack_all()
    assert not run.context.anchors
    committed = run.commit()
    (anchor,) = run.context.anchors
    assert (anchor.number, anchor.offset, anchor.exactly_once) == (0, 7, True)
    assert anchor.target == replace(MARK, end=1_007, producer_id=7, since=1_007)
    assert (anchor.source_cluster_id, anchor.topic_id) == (committed.source_cluster_id, committed.topic_id)


def test_anchor_without_transactions_has_nothing_that_was_acknowledged_after_its_commit_began() -> None:
    run = _run(atomic=False)
    run.fetch(made(0, 3), made(3, 4))
    run.ack(0)
    run.advance(1_000)
    run.ack_all()
    run.commit()
    (anchor,) = run.context.anchors
    assert (anchor.offset, anchor.target.end, anchor.exactly_once) == (3, 1_003, False)


def _copy_one(run: CopyHarness, offset: int) -> Progress:
    run.fetch(made(offset, 1), stable_end=offset + 1)
    run.advance(50)
    run.ack_all()
    return run.commit()


def test_no_anchor_follows_within_a_minute_and_one_does_after_it() -> None:
    run = _run(end=OPEN_END)
    counted = _copy_one(run, 0).anchor
    (first,) = run.context.anchors
    assert counted.number == first.number == 0, "the next attempt does not use its number again"
    run.clock.advance(INTERVAL_MS - 1_000)
    assert _copy_one(run, 1).anchor == counted
    assert run.context.anchors == [first]
    run.clock.advance(1_000)
    _copy_one(run, 2)
    assert [(one.number, one.offset) for one in run.context.anchors] == [(0, 1), (1, 3)]


@pytest.mark.parametrize(("age_ms", "numbers"), [(INTERVAL_MS - 1_000, []), (INTERVAL_MS, [9])])
def test_minute_is_that_of_the_attempts_before(age_ms: int, numbers: list[int]) -> None:
    run = CopyHarness(3)
    run.context.leader = (1, 4)
    run.opened_with(replace(progress_at(0), target=MARK, anchor=_counted(run, age_ms)))
    run.fetch(made(0, 3))
    run.ack_all()
    run.commit()
    assert [one.number for one in run.context.anchors] == numbers


def test_first_progress_is_an_anchor_if_the_log_s_end_is_known() -> None:
    run = CopyHarness(3, first=0)
    run.found(None)
    log = TargetMark(topic_id="its-id", end=40, leader_epoch=4)
    run.resolved(None, target_end=40, mark=log)
    run.commit()
    (anchor,) = run.context.anchors
    assert (anchor.offset, anchor.target) == (0, log)


def test_copy_that_starts_over_begins_a_series_with_an_anchor() -> None:
    run = CopyHarness(3, first=0)
    run.context.leader = (1, 4)
    run.found(progress_at(2))
    run.resolved(None, target_end=40, mark=TargetMark(topic_id="its-id", end=40, leader_epoch=4))
    committed = run.commit()
    (anchor,) = run.context.anchors
    assert anchor.series == committed.series == run.clock.unix_ms()


def test_restored_progress_continues_its_series() -> None:
    run = CopyHarness(3, first=0)
    run.found(None)
    run.resolved(replace(progress_at(2), series=7), target_end=40, mark=replace(MARK, end=40)).acquired()
    assert run.commit().series == 7


@pytest.mark.parametrize(
    ("mark", "response"),
    [
        (None, 1_000),
        (replace(MARK, leader_epoch=None), 1_000),
        (MARK, -1),
    ],
    ids=["progress of another program", "leader epoch unknown", "a duplicate's response has no offset"],
)
def test_no_anchor_is_made_of_what_is_not_known(mark: TargetMark | None, response: int) -> None:
    run = CopyHarness(3)
    found: Progress = progress_at(0)
    run.found(found if mark is None else replace(found, target=mark))
    run.resolved(found, mark=mark)
    if mark is not None and mark.leader_epoch is not None:
        run.context.leader = (1, mark.leader_epoch)
    run.fetch(made(0, 3))
    run.writer.sent[0].answer(RecordMetadata(TARGET, response))
    run.context.run_until_idle()
    run.commit()
    assert run.context.anchors == []
