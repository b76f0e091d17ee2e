"""What the search for the exact position reads, and when it waits; fake brokers behind real network threads."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from mirror.client import TopicPartition
from mirror.errors import KafkaTimeout
from mirror.producer.batch.queue import ProducerId
from mirror.relay.partition.search import position_search
from mirror.relay.progress.committed import NO_TOTALS, Searched
from mirror.relay.progress.position import Appenders, FoundPosition, PositionQuery, TargetLogCut
from mirror.relay.progress.target_log import TargetMark
from mirror.wire.records import TRANSACTIONAL
from tests.fakes.record_batches import build
from tests.relay.partition.search.search_site import FENCE, FOREIGN, NO_SUCH_ID, OTHER, OWN, Site
from tests.relay.searching import find_on


def test_nothing_appended_leaves_the_progress_and_the_source_unread(
    site: Site, sources_read: list[TopicPartition]
) -> None:
    site.pair.write(b"0", b"1")
    site.append(b"x", producer_id=FOREIGN)
    site.fence()
    query = site.query(offset=1, leader_epoch=0)
    assert site.find(query) == FoundPosition(replace(query.progress, searched=Searched(2, 0)), NO_TOTALS)
    assert sources_read == []


def test_log_that_was_searched_already_may_be_deleted(site: Site, sources_read: list[TopicPartition]) -> None:
    site.pair.write(b"0", b"1")
    site.fence()
    searched = site.find(offset=1).progress.searched
    assert searched == Searched(1, 0)
    site.append(b"x", producer_id=FOREIGN)
    site.pair.log().delete_before(1)
    site.pair.log().end_transaction(OWN, commit=True, epoch=FENCE.epoch + 1)
    later = ProducerId(OWN, FENCE.epoch + 1)
    found = site.find(replace(site.query(offset=1, searched=searched), fence=later))
    assert (found.progress.offset, found.progress.searched) == (1, Searched(3, 0))
    assert "begins at offset 1" in site.unproved(replace(site.query(offset=1), fence=later))
    sources_read.clear()
    site.pair.log().delete_before(2)
    assert "begins at offset 2" in site.unproved(replace(site.query(offset=1, searched=searched), fence=later))
    ended = replace(site.query(offset=1, searched=searched), fence=later, appenders=Appenders(frozenset({OTHER}), True))
    assert site.find(ended).progress.offset == 1, "its attempt has ended: nothing of it can have been there"


def test_search_begins_at_the_mark_if_the_log_has_lost_the_marker_behind_it(site: Site) -> None:
    """What is written there instead may be a zombie's, which only the lost marker had fenced."""
    site.pair.write(b"0", b"1", b"2")
    site.append(b"0")
    site.fence()
    searched = site.find(offset=1, mark=1).progress.searched
    assert searched == Searched(2, 0)
    log = site.pair.log()
    log.truncate(1)
    log.leader_epoch = 1
    site.append(b"1", b"2")
    site.fence()
    assert site.find(offset=1, mark=1, searched=searched).progress.offset == 3


def test_appended_is_counted_and_found(site: Site, sources_read: list[TopicPartition]) -> None:
    site.pair.source.log("t", 0).leader_epoch = 6
    site.pair.write(*(b"%d" % n for n in range(9)))
    site.append(b"not ours", b"any more", producer_id=OTHER)
    site.append(b"2", b"3")
    site.append(b"x", producer_id=FOREIGN)
    site.append(b"4", producer_id=OTHER)
    site.fence()
    found = site.find(offset=2, mark=2)
    assert (found.progress.offset, found.progress.leader_epoch, found.progress.generation) == (5, 6, 4)
    last = next(batch for batch in reversed(site.pair.log().batches()) if not batch.is_control)
    assert found.progress.target == TargetMark(
        topic_id="",
        end=last.next_offset,
        leader_epoch=0,
        producer_id=OTHER,
        batch=(last.producer_epoch, last.base_sequence),
    )
    assert found.appended[:2] == (3, 2)
    assert (
        found.appended.bytes
        == sum(
            one.size for one in site.pair.log().batches() if one.producer_id in {OWN, OTHER} and one.base_offset >= 2
        )
        - site.pair.log().batches()[-1].size
    )
    assert sources_read == [TopicPartition("t", 0)]


def test_where_the_log_begins_does_not_matter_behind_a_claim_of_transactions(
    site: Site, sources_read: list[TopicPartition]
) -> None:
    site.pair.write(b"0", b"1")
    site.append(b"x", producer_id=FOREIGN)
    end = site.fence()
    query = replace(site.query(), appenders=Appenders(frozenset({OWN}), ended=True))
    assert site.find(query) == FoundPosition(replace(query.progress, searched=Searched(end, 0)), NO_TOTALS)
    site.pair.log().delete_before(end - 1)
    assert site.find(query).progress.offset == 0
    assert sources_read == []


def of_transactions(site: Site, *, offset: int, end: int, since: int | None) -> PositionQuery:
    """Behind a claim of transactions, with such a mark."""
    mark = TargetMark(topic_id="", end=end, leader_epoch=0, producer_id=OWN, since=since)
    return replace(site.query(offset=offset, target=mark), appenders=Appenders(frozenset({OWN}), ended=True))


def commit(site: Site, *values: bytes) -> int:
    """Commit a transaction; the offset after its data."""
    site.append(*values, transactional=True)
    return site.pair.log().end_transaction(OWN, commit=True, epoch=FENCE.epoch - 1)


def test_transactions_whose_progress_was_lost_are_found(site: Site) -> None:
    site.pair.write(*(b"%d" % n for n in range(9)))
    end = commit(site, b"0", b"1")
    site.append(b"x", producer_id=FOREIGN)
    site.append(b"2", b"other", transactional=True)
    site.pair.log().end_transaction(OWN, commit=False, epoch=FENCE.epoch - 1)
    commit(site, b"2", b"3")
    last = commit(site, b"4")
    site.fence()
    found = site.find(of_transactions(site, offset=2, end=end, since=end))
    assert (found.progress.offset, found.appended[:2]) == (5, (3, 2))
    mark = TargetMark(topic_id="", end=last, leader_epoch=0, producer_id=OWN, since=last)
    assert found.progress.target == mark, "nothing of it is found again"
    again = replace(
        of_transactions(site, offset=5, end=last, since=last), progress=replace(found.progress, searched=None)
    )
    assert site.find(again) == FoundPosition(found.progress, NO_TOTALS)


@pytest.mark.parametrize("lost", [False, True])
def test_transaction_that_has_stored_the_progress_is_in_front_of_it_wherever_its_data_is(
    site: Site, *, lost: bool
) -> None:
    """Its mark is of the time before its data had offsets: others, and the marker before, have taken some of them."""
    site.pair.write(*(b"%d" % n for n in range(9)))
    site.append(b"0", transactional=True)
    site.append(b"x", b"x", b"x", producer_id=FOREIGN)
    site.pair.log().end_transaction(OWN, commit=True, epoch=FENCE.epoch - 1)
    end = commit(site, b"1", b"2")
    if lost:
        end = commit(site, b"3")
    site.fence()
    found = site.find(of_transactions(site, offset=3, end=3, since=1))
    assert found.progress.offset == 3 + lost
    mark = TargetMark(topic_id="", end=end, leader_epoch=0, producer_id=OWN, since=end)
    assert found.progress.target == mark


def test_mark_that_is_not_known_to_be_exact_leaves_the_progress(site: Site) -> None:
    """Version 0.2 stored where the log would end, and not what is certain."""
    site.pair.write(b"0", b"1", b"2")
    site.append(b"x", producer_id=FOREIGN)
    commit(site, b"0", b"1")
    site.fence()
    assert site.find(of_transactions(site, offset=2, end=2, since=None)).progress.offset == 2


def test_transactions_that_are_not_in_the_source_are_unproved(site: Site) -> None:
    site.pair.write(b"0", b"1", b"2")
    end = commit(site, b"0")
    commit(site, b"2")
    site.fence()
    assert "differs in its value" in site.unproved(of_transactions(site, offset=1, end=end, since=end))


@pytest.mark.parametrize("log_start", [3, 4])
def test_retention_between_the_mark_and_what_it_precedes_is_passed(site: Site, log_start: int) -> None:
    """The mark is at 4, and is known to be exact at 2 only: what may be missing is behind 4."""
    site.pair.write(*(b"%d" % n for n in range(9)))
    site.append(b"x", b"x", producer_id=FOREIGN)
    commit(site, b"0", b"1", b"2")
    site.append(b"y", producer_id=FOREIGN)
    site.fence()
    query = replace(of_transactions(site, offset=3, end=4, since=2), appenders=Appenders(frozenset({OWN}), ended=False))
    site.pair.log().delete_before(log_start)
    assert site.find(query).progress.offset == 3


@pytest.mark.parametrize("log_start", [3, 4])
def test_transaction_that_has_stored_the_progress_may_be_deleted_and_the_next_one_counts(
    site: Site, log_start: int
) -> None:
    """The commit of the second one is lost. The first one that is left is not the one of the progress."""
    site.pair.write(*(b"%d" % n for n in range(9)))
    site.append(b"x", producer_id=FOREIGN)
    stored = commit(site, b"0", b"1")
    end = commit(site, b"2", b"3")
    site.fence()
    site.pair.log().delete_before(log_start)
    found = site.find(of_transactions(site, offset=2, end=stored, since=1))
    assert (found.progress.offset, found.appended.records) == (4, 2)
    assert found.progress.target == TargetMark(topic_id="", end=end, leader_epoch=0, producer_id=OWN, since=end)


def test_transaction_that_has_stored_the_progress_may_be_compacted_and_the_next_one_counts(site: Site) -> None:
    """Compaction leaves the log's start where it is."""
    site.pair.write(*(b"%d" % n for n in range(9)))
    site.append(b"x", producer_id=FOREIGN)
    log = site.pair.log()
    log.end_offset = 4
    commit(site, b"2", b"3")
    site.fence()
    assert site.find(of_transactions(site, offset=2, end=3, since=1)).progress.offset == 4


@pytest.mark.parametrize("lost", [False, True])
def test_first_transaction_that_does_not_continue_the_progress_has_stored_it(site: Site, *, lost: bool) -> None:
    """Others have written where its data was expected, and the log begins behind that."""
    site.pair.write(*(b"%d" % n for n in range(9)))
    site.append(b"x", b"x", b"x", producer_id=FOREIGN)
    end = commit(site, b"0", b"1")
    if lost:
        end = commit(site, b"2", b"3")
    site.fence()
    site.pair.log().delete_before(3)
    found = site.find(of_transactions(site, offset=2, end=2, since=0))
    assert (found.progress.offset, found.appended.records) == ((4, 2) if lost else (2, 0))
    assert found.progress.target == TargetMark(topic_id="", end=end, leader_epoch=0, producer_id=OWN, since=end)


@pytest.mark.parametrize("log_start", [1, 4, 5])
@pytest.mark.parametrize("lost", [False, True])
def test_transaction_that_has_stored_the_progress_is_passed_if_the_source_has_lost_as_many_records(
    site: Site, log_start: int, *, lost: bool
) -> None:
    """None of its records is left in the source, and none has to be: they are in front of the progress."""
    for number in range(9):
        site.pair.write(b"%d" % number)
    for _ in range(5):
        site.append(b"x", producer_id=FOREIGN)
    commit(site, b"0", b"1")
    if lost:
        commit(site, b"2", b"3", b"4")
    site.fence()
    site.pair.source.log("t", 0).delete_before(4)
    site.pair.log().delete_before(log_start)
    found = site.find(of_transactions(site, offset=2, end=3, since=0))
    assert (found.progress.offset, found.appended.records) == ((5, 3) if lost else (2, 0))


def test_second_reading_advances_the_search(site: Site, sources_read: list[TopicPartition]) -> None:
    """Otherwise a search whose second reading takes long would time out in it."""
    site.pair.write(*(b"%d" % n for n in range(9)))
    for _ in range(3):
        site.append(b"x", producer_id=FOREIGN)
    commit(site, b"0", b"1")
    site.fence()
    site.pair.log().delete_before(3)
    run = site.search.begin(of_transactions(site, offset=2, end=2, since=0))
    while not sources_read:
        assert run.advance() is None
    run.advanced_ms = 0
    assert find_on(run).progress.offset == 2
    assert run.advanced_ms > 0


def test_marker_counts_once_it_is_below_the_high_watermark(site: Site) -> None:
    site.pair.write(b"0", b"1")
    site.append(b"0")
    log = site.pair.log()
    log.replicated_to = site.fence() - 1
    with pytest.raises(KafkaTimeout, match=r"paris\.t-0: the marker of the fence \(producer 7, epoch 3\) was not read"):
        site.find(timeout_ms=200)
    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(site.find)
        log.replicated_to = None
        assert found.result(20).progress.offset == 1


def test_open_transaction_of_another_producer_holds_up_nothing(site: Site) -> None:
    site.pair.write(b"0", b"1")
    site.append(b"x", producer_id=FOREIGN, transactional=True)
    site.append(b"0")
    site.fence()
    assert site.pair.log().last_stable_offset == 0
    assert site.find().progress.offset == 1


def test_own_transaction_without_an_end_does_not_count(site: Site) -> None:
    """The coordinator lets no producer id commit it any more."""
    site.pair.write(b"0", b"1")
    site.append(b"0", producer_id=OTHER, transactional=True)
    site.fence()
    assert site.find().progress.offset == 0


def test_open_transaction_of_the_source_is_not_read(site: Site) -> None:
    site.pair.write(b"0")
    site.pair.source.log("t", 0).append_values(b"1", attributes=TRANSACTIONAL, producer_id=5)
    site.append(b"0", b"1")
    site.fence()
    assert "offset 1 is not in the source" in site.unproved()


def test_error_names_partitions_offsets_reason_and_remedy(site: Site) -> None:
    site.pair.write(b"0", b"1", b"2")
    site.append(b"0")
    site.append(b"1", b"x")
    site.fence()
    text = site.unproved(offset=1, mark=1)
    named = ("t-0", "paris.t-0", "source's offset 1", "target's offset 1", "2 records", "value", "start-over = true")
    assert all(name in text for name in named), text


def test_log_starts_behind_the_progress_are_found_on_either_side(site: Site) -> None:
    values = [b"%d" % n for n in range(9)]
    for first in range(0, 9, 3):
        site.pair.write(*values[first : first + 3])
    site.append(*values[:3])
    site.append(*values[3:5])
    end = site.fence()
    site.pair.source.log("t", 0).delete_before(3)
    assert site.find().progress.offset == 5
    site.pair.log().delete_before(3)
    assert "may have none of them" in site.unproved(), "two of the target's records, three offsets of the source's"
    site.pair.source.log("t", 0).start_offset = 0
    found = site.find()
    assert (found.progress.offset, found.appended.records) == (5, 2)
    site.pair.log().delete_before(end - 1)
    assert f"begins at offset {end - 1}" in site.unproved()
    assert site.find(offset=9).progress.offset == 9, "the source has nothing that could have been appended"
    site.pair.source.log("t", 0).delete_before(9)
    assert "begins at offset" in site.unproved(offset=8)


def test_foreign_records_that_are_left_are_not_taken_for_lost_ones(site: Site) -> None:
    site.pair.write(b"a", b"b", b"c", b"a", b"b", b"c", b"d")
    site.append(b"x", producer_id=FOREIGN)
    site.append(b"x", b"x", b"x", producer_id=FOREIGN)
    site.append(b"a", b"b", b"c")
    site.fence()
    site.pair.log().delete_before(1)
    assert site.find().progress.offset == 3, "at most one record is lost"
    site.pair.log().delete_before(4)
    assert "more than one place" in site.unproved()


def test_log_that_ends_before_the_mark_is_not_searched(site: Site) -> None:
    end = site.fence()
    with pytest.raises(TargetLogCut):
        site.find(mark=end + 5)


def test_progress_without_a_mark_is_unproved_unless_nothing_was_ever_appended(site: Site) -> None:
    site.pair.write(b"0")
    site.fence()
    assert site.find(target=None).appended == NO_TOTALS
    site.append(b"0")
    site.fence()
    site.pair.log().end_transaction(OWN, commit=True, epoch=FENCE.epoch + 1)
    query = replace(site.query(target=None), fence=ProducerId(OWN, FENCE.epoch + 1))
    assert "does not say how far" in site.unproved(query)


def test_other_topic_of_the_same_name_is_not_compared(site: Site) -> None:
    site.pair.write(b"0")
    site.append(b"0")
    site.fence()
    text = site.unproved(topic_id=NO_SUCH_ID)
    assert "not the log that was copied" in text
    with pytest.raises(TargetLogCut):
        site.find(target=TargetMark(topic_id=NO_SUCH_ID, end=0))
    topic_id = str(site.pair.source.topics["t"].topic_id)
    target = TargetMark(topic_id=str(site.pair.target.topics["paris.t"].topic_id), end=0)
    assert site.find(target=target, topic_id=topic_id).progress.offset == 1


def test_truncated_source_is_unproved(site: Site) -> None:
    log = site.pair.source.log("t", 0)
    site.pair.write(b"0", b"1")
    log.truncate(0)
    log.move(1)
    site.pair.write(b"other", b"records", b"here")
    site.append(b"2")
    site.fence()
    assert "not the log that was copied" in site.unproved(offset=2, leader_epoch=0)


def test_retention_during_the_search_is_a_named_error(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.pair.write(b"0", b"1")
    site.append(b"0")
    end = site.fence()

    def compare(*_: Any) -> Any:
        site.pair.log().delete_before(end - 1)
        return original(*_)

    original = position_search._read_source
    monkeypatch.setattr(position_search, "_read_source", compare)
    assert f"begins at offset {end - 1} now" in site.unproved()


def test_reading_after_retention_advances_the_search(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.pair.write(b"0", b"1")
    site.append(b"0")
    site.append(b"1")
    site.fence()
    run = site.search.begin(site.query())
    advanced_ms = list[int]()

    def compare(*_: Any) -> Any:
        advanced_ms.append(run.advanced_ms)
        site.pair.log().delete_before(1)
        run.advanced_ms = 0
        return original(*_)

    original = position_search._read_source
    monkeypatch.setattr(position_search, "_read_source", compare)
    assert find_on(run).progress.offset == 2
    assert len(advanced_ms) == 2
    assert all(advanced_ms), "the target was read before each comparison"


def test_log_that_is_cut_while_it_is_searched_is_resolved_again(site: Site) -> None:
    site.append(b"0", b"1")
    site.append(b"2")
    run = site.search.begin(site.query())
    assert run.advance() is None
    site.pair.log().truncate(2)
    site.pair.log().leader_epoch = 1
    with pytest.raises(TargetLogCut):
        find_on(run)


def test_damaged_marker_ends_the_search(site: Site) -> None:
    marker: Callable[..., Any] = site.pair.log().append
    marker(build((b"",), producer_id=OWN, producer_epoch=3, attributes=TRANSACTIONAL | 0x20))
    with pytest.raises(Exception, match="control batch at offset 0 is corrupt"):
        site.find()
