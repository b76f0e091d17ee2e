"""Whether the target's log still holds the append of a mark, by its batches from there on."""

from __future__ import annotations

from dataclasses import replace

from mirror.relay.progress.target_log import TargetMark, holds_append
from mirror.wire.records import Batch
from tests.relay.batches.logs_by_hand import Made, batch_at, fetched

MARK = TargetMark(topic_id="", end=3, producer_id=5, batch=(0, 7))


def append(offset: int, producer_id: int = 9) -> Batch:
    return batch_at(offset, [Made()], producer=(producer_id, 0, 7))


def test_append_of_the_mark_s_producer_shows_that_nothing_is_lost() -> None:
    assert holds_append([fetched(append(2, producer_id=5))], MARK, 2, 100)


def test_appends_of_others_at_its_place_show_that_it_is_lost() -> None:
    assert not holds_append([fetched(append(1), append(2)), fetched(append(3))], MARK, 2, 100)


def test_hole_at_its_place_shows_nothing() -> None:
    """Compaction may have removed the append: to report a loss would copy records again."""
    assert holds_append([fetched(append(1), append(3))], MARK, 2, 100)
    assert holds_append([fetched(append(2)), fetched(append(4))], MARK, 2, 100)


def test_end_that_was_stored_before_its_data_is_that_of_an_index_only_with_an_exact_one_before() -> None:
    stored = TargetMark(topic_id="", end=3, producer_id=5)
    assert stored.indexed_end(exactly_once=True) is None
    assert stored.indexed_end(exactly_once=False) == 3
    assert [replace(stored, since=since).indexed_end(exactly_once=True) for since in (2, 3)] == [3, 3]
    assert MARK.indexed_end(exactly_once=True) == 3
