"""A copy's own batches are distinguished from everything else in the target's log."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror.errors import CorruptBatch
from mirror.producer.batch.queue import ProducerId
from mirror.relay.batches.own_appends import Committed, OwnAppends
from mirror.relay.progress.committed import NO_TOTALS
from mirror.wire.records import AnyBatch, Batch
from tests.fakes.record_batches import ABORT, COMMIT, batch, build
from tests.relay.batches.logs_by_hand import Made, batch_at, marker_at

OWN, OTHER, FOREIGN = 7, 8, 9
FENCE = ProducerId(OWN, 3)


def plain(offset: int, producer_id: int = OWN, count: int = 2, *, transactional: bool = False) -> Batch:
    return batch_at(offset, [Made()] * count, producer=(producer_id, 1, 0), transactional=transactional)


def search(*batches: AnyBatch, start: int = 0, committed: Committed = Committed.ALL) -> tuple[OwnAppends, list[int]]:
    appends = OwnAppends(start, {OTHER}, FENCE, committed)
    assert appends.add(batches)
    return appends, [batch.base_offset for batch in appends.own(batches)]


def test_only_own_batches_between_the_mark_and_the_fence_count() -> None:
    batches = [plain(0), plain(2), plain(4, FOREIGN), plain(6, OTHER, 3), marker_at(9, OWN, 3, COMMIT, epoch=4)]
    appends, own = search(*batches, start=2)
    assert own == [2, 6]
    assert (appends.first, appends.end, appends.leader_epoch) == (2, 10, 4)
    assert appends.totals == (5, 2, batches[1].size + batches[3].size)


def test_nothing_appended_has_no_first_offset_and_no_totals() -> None:
    appends, own = search(plain(0), plain(2, FOREIGN), marker_at(4, OWN, 3, COMMIT), start=2)
    assert (own, appends.first, appends.totals) == ([], None, NO_TOTALS)


def test_marker_of_another_epoch_or_producer_or_an_abort_is_not_the_fence() -> None:
    appends = OwnAppends(0, {OTHER}, FENCE)
    markers = (
        marker_at(0, OWN, 2, COMMIT),
        marker_at(1, OTHER, 3, COMMIT),
        marker_at(2, FOREIGN, 3, COMMIT),
        marker_at(3, OWN, 3, ABORT),
    )
    assert not appends.add(markers)
    assert appends.end is None
    assert appends.add([marker_at(4, OWN, 3, COMMIT)])
    assert appends.end == 5


TRANSACTIONS = (
    plain(0, transactional=True),
    plain(2, OTHER, transactional=True),
    plain(4, FOREIGN, transactional=True),
    marker_at(7, FOREIGN, 1, COMMIT),
    marker_at(8, OWN, 2, ABORT),
    plain(9, OTHER, transactional=True),
    marker_at(11, OTHER, 1, COMMIT),
    plain(12),
    plain(14, transactional=True),
    marker_at(16, OWN, 2, COMMIT),
    plain(17, OTHER, transactional=True),
    marker_at(19, OWN, 3, COMMIT),
)
"""One is aborted, two are committed, one is open at the fence, and one is another producer's."""


@pytest.mark.parametrize(
    ("committed", "own", "covered_end"),
    [
        (Committed.ALL, [2, 9, 12, 14], None),
        (Committed.ALL_BUT_FIRST, [12, 14], 11),
        (Committed.UNKNOWN, [12], None),
    ],
)
def test_transactions_count_if_they_are_committed_and_not_in_the_progress(
    committed: Committed, own: list[int], covered_end: int | None
) -> None:
    appends, found = search(*TRANSACTIONS, committed=committed)
    assert found == own
    assert (appends.first, appends.covered_end) == (own[0], covered_end)
    assert appends.totals[:2] == (2 * len(own), len(own))
    assert appends.last == (16, OWN, None) if committed is not Committed.UNKNOWN else (14, OWN, (1, 0))


def test_marker_without_data_is_not_that_of_the_first_transaction() -> None:
    """The marker of the transaction before the one that has stored the progress may be behind what others wrote."""
    marker = marker_at(0, OWN, 1, COMMIT)
    appends, own = search(marker, *TRANSACTIONS, committed=Committed.ALL_BUT_FIRST)
    assert (own, appends.covered_end) == ([12, 14], 11)


def test_batch_behind_the_fence_in_the_same_fetch_does_not_count() -> None:
    appends, own = search(plain(0), marker_at(2, OWN, 3, COMMIT), plain(3))
    assert (own, appends.totals[0]) == ([0], 2)


def test_batches_that_compaction_emptied_do_not_count() -> None:
    emptied = batch(build((), producer_id=OWN, producer_epoch=1, last_offset_delta=3))
    appends, own = search(emptied, plain(4, FOREIGN), marker_at(6, OWN, 3, COMMIT))
    assert (own, appends.first, appends.totals) == ([], None, NO_TOTALS)


def test_damaged_marker_is_named() -> None:
    marker = marker_at(4, OWN, 3, COMMIT)
    marker.view[70] ^= 1
    with pytest.raises(CorruptBatch, match="offset 4"):
        OwnAppends(0, (), FENCE).add([marker])


@given(
    st.lists(st.tuples(st.sampled_from(["plain", "in", "commit", "abort"]), st.sampled_from([OWN, OTHER, FOREIGN]))),
    st.integers(1, 5),
)
def test_own_batches_are_those_of_the_copy_that_its_readers_read(events: list[tuple[str, int]], at_once: int) -> None:
    batches: list[Batch] = []
    expected: list[int] = []
    undecided: dict[int, list[int]] = {OWN: [], OTHER: [], FOREIGN: []}
    for at, (kind, producer_id) in enumerate([*events, ("commit", OWN)]):
        if kind in {"plain", "in"}:
            batches.append(plain(at, producer_id, 1, transactional=kind == "in"))
            (expected if kind == "plain" and producer_id != FOREIGN else undecided[producer_id]).append(at)
        else:
            epoch = 3 if at == len(events) else 1
            batches.append(marker_at(at, producer_id, epoch, COMMIT if kind == "commit" else ABORT))
            expected += undecided[producer_id] if kind == "commit" and producer_id != FOREIGN else []
            undecided[producer_id].clear()
    expected.sort()
    appends = OwnAppends(0, {OTHER}, FENCE)
    portions = [batches[n : n + at_once] for n in range(0, len(batches), at_once)]
    assert [appends.add(portion) for portion in portions] == [False] * (len(portions) - 1) + [True]
    assert [one.base_offset for portion in portions for one in appends.own(portion)] == expected
    assert appends.first == (expected[0] if expected else None)
    assert appends.totals[:2] == (len(expected), len(expected))
