"""What still stands of a copy in a log that has lost records: what readers of committed records see."""

from __future__ import annotations

from mirror.producer.batch.queue import ProducerId
from mirror.relay.batches.standing_appends import StandingAppends
from mirror.wire.records import CONTROL, TRANSACTIONAL, AnyBatch, Batch
from tests.fakes.record_batches import ABORT, COMMIT, batch, build
from tests.relay.batches.logs_by_hand import Made, batch_at, marker_at

OWN, OTHER, FOREIGN = 7, 8, 9
FENCE = ProducerId(OWN, 3)


def plain(offset: int, producer_id: int = OWN, *, transactional: bool = False) -> Batch:
    return batch_at(offset, [Made()] * 2, producer=(producer_id, 1, 0), transactional=transactional)


def standing(*batches: AnyBatch) -> tuple[StandingAppends, list[int]]:
    """Of a log that ends with the fence's marker: what the copy's own producers have there, by offset."""
    appends = StandingAppends(0, {OTHER}, FENCE)
    fence = marker_at(batches[-1].next_offset, OWN, 3, COMMIT)
    assert appends.add([*batches, fence])
    return appends, [batch.base_offset for batch in appends.known(appends.own(batches))]


def test_plain_and_committed_batches_count() -> None:
    appends, own = standing(plain(0), plain(2, OTHER, transactional=True), marker_at(4, OTHER, 1, COMMIT))
    assert own == [0, 2]
    assert (appends.first, appends.totals[:2]) == (0, (4, 2))


def test_aborted_batches_do_not_count() -> None:
    appends, own = standing(plain(0, OTHER, transactional=True), marker_at(2, OTHER, 1, ABORT), plain(3))
    assert (own, appends.first, appends.totals[:2]) == ([3], 3, (2, 1))


def test_fence_commits_what_its_producer_has_left_open() -> None:
    """An election has removed the transaction's own marker: the broker ends it with the next one."""
    _, own = standing(plain(0, transactional=True))
    assert own == [0]


def test_batches_that_no_marker_ends_do_not_count() -> None:
    """No reader of committed records sees them. They are copied again."""
    appends, own = standing(plain(0), plain(2, OTHER, transactional=True), plain(4, FOREIGN, transactional=True))
    assert own == [0]
    assert appends.totals[:2] == (2, 1)
    assert appends.last is not None
    assert appends.last.end == 2


def test_markers_that_the_log_cleaner_has_emptied_end_nothing() -> None:
    """Of a producer without data it keeps the header of the last one, as long as the broker remembers the producer."""
    emptied = [
        batch(
            build(
                (),
                base_offset=offset,
                producer_id=producer_id,
                producer_epoch=2,
                attributes=CONTROL | TRANSACTIONAL,
                last_offset_delta=0,
            )
        )
        for offset, producer_id in ((10, OTHER), (11, OWN))
    ]
    cleaned = batch(build((), base_offset=9, producer_id=OTHER, attributes=TRANSACTIONAL, last_offset_delta=0))
    own = batch_at(12, [Made()] * 2, producer=(OWN, 2, 0), transactional=True)
    aborted = batch_at(15, [Made()], producer=(OWN, 2, 2), transactional=True)
    log = [cleaned, *emptied, own, marker_at(14, OWN, 2, COMMIT), aborted, marker_at(16, OWN, 2, ABORT)]
    appends = StandingAppends(9, {OWN}, FENCE)
    assert appends.add([*log, marker_at(17, *FENCE, COMMIT)])
    assert (appends.first, appends.end) == (12, 18)
    assert [one.base_offset for one in appends.own(log)] == [12]
