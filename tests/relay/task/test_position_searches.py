"""The searches of a task: they occupy a thread only while there is something to read, and end with their attempt."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

import pytest

from mirror.client import TopicPartition
from mirror.errors import ClientClosed, FlowError, KafkaTimeout
from mirror.producer.batch.queue import ProducerId
from mirror.relay.progress.committed import NO_TOTALS
from mirror.relay.progress.position import Appenders, FoundPosition, PositionQuery
from mirror.relay.task.position_searches import PositionSearches
from tests.relay.copy_harness import progress_at

TIMEOUT_MS = 5_000
FOUND = FoundPosition(progress_at(7), NO_TOTALS)


class Run:
    """A search whose slices return what the test says."""

    def __init__(self, now: int) -> None:
        self.advanced_ms = now
        self.awaited_offset: int | None = 3
        self.slices = deque[FoundPosition | Exception | None]()
        self.stopped = self.settled = False

    def advance(self) -> FoundPosition | None:
        outcome = self.slices.popleft() if self.slices else None
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def stop(self) -> None:
        self.stopped = True

    def timeout_error(self) -> KafkaTimeout:
        return KafkaTimeout("nothing new")


class Site:
    """The searches of a task whose threads and lookups the test answers; it is the lookups and the positions, too."""

    def __init__(self) -> None:
        self.time = 1_000
        self.runs = list[Run]()
        self.submitted = list[tuple[Callable[[], Any], Future[Any]]]()
        self.read = list[list[Run]]()
        """The searches whose targets were read together."""
        self.reads_at_once = True
        self.reading_error: Exception | None = None
        self.asked = list[Future[tuple[int, int]]]()
        self.wakes = 0
        self.searches = PositionSearches(self, self, self._submit, lambda: self.time, self._wake)

    def begin(self, query: PositionQuery) -> Run:
        assert query.target.topic == "paris.t"
        self.runs.append(Run(self.time))
        return self.runs[-1]

    def log_end(self, tp: TopicPartition, timeout_ms: int) -> Future[tuple[int, int]]:
        assert tp.topic == "paris.t"
        assert timeout_ms > 0
        self.asked.append(Future())
        return self.asked[-1]

    def read_together(self, searches: Sequence[Run], on_read: Callable[[Run], None]) -> None:
        self.read.append(list(searches))
        if self.reading_error is not None:
            raise self.reading_error
        for run in searches:
            on_read(run)

    def _submit(self, advance: Callable[[], Any]) -> Future[Any]:
        future = Future[Any]()
        self.submitted.append((advance, future))
        if self.reads_at_once and advance == self.searches._read_all:
            self.run_slice()
        return future

    def _wake(self) -> None:
        self.wakes += 1

    def find(self) -> Future[FoundPosition]:
        self.search = self.searches.of(TopicPartition("t", 0), TopicPartition("paris.t", 0))
        return self.find_again()

    def find_again(self) -> Future[FoundPosition]:
        return self.search.find(progress_at(4), Appenders(frozenset({7}), False), ProducerId(7, 1), TIMEOUT_MS, None)

    def log_ends_at(self, end: int) -> None:
        self.asked.pop().set_result((end, 0))

    def run_slice(self) -> None:
        advance, future = self.submitted.pop()
        try:
            found = advance()
        except Exception as error:  # noqa: BLE001 - as an executor does
            future.set_exception(error)
        else:
            future.set_result(found)

    def pass_time(self, ms: int) -> None:
        until = self.time + ms
        while self.time < until:
            self.searches.update(self.time)
            self.time = min(until, max(self.time + 1, self.searches.due_ms()))
        self.searches.update(self.time)


@pytest.fixture
def site() -> Site:
    return Site()


def test_position_is_found_in_one_slice(site: Site) -> None:
    found = site.find()
    site.log_ends_at(9)
    site.runs[0].slices.append(FOUND)
    site.run_slice()
    assert found.result() is FOUND
    assert not site.wakes


def test_search_rests_while_the_high_watermark_stands_still(site: Site) -> None:
    """It occupies no thread, and costs at most one lookup a second after the first ones."""
    found = site.find()
    run = site.runs[0]
    for lookups in range(60):
        site.log_ends_at(3)
        assert not site.submitted
        assert site.wakes > lookups
        run.advanced_ms = site.time  # otherwise it would expire
        while not site.asked:
            site.pass_time(1)
    assert not found.done()


def test_rests_become_longer_until_something_new_is_read(site: Site) -> None:
    site.find()
    rests = list[int]()
    for _ in range(8):
        site.log_ends_at(3)
        began = site.time
        while not site.asked:
            site.pass_time(1)
        rests.append(site.time - began)
    assert rests == [20, 40, 80, 160, 320, 640, 1_000, 1_000]
    site.runs[0].advanced_ms = site.time
    site.log_ends_at(4)
    site.run_slice()
    site.pass_time(20)
    assert site.asked, "soon again"


def test_search_that_reads_on_has_time(site: Site) -> None:
    found = site.find()
    for _ in range(10):
        site.log_ends_at(9)
        site.runs[0].advanced_ms = site.time
        site.run_slice()
        site.pass_time(TIMEOUT_MS - 1)
        assert site.search.advanced_ms == site.runs[0].advanced_ms
    assert not found.done()


def test_search_that_reads_nothing_new_times_out(site: Site) -> None:
    found = site.find()
    while not found.done() and site.time < 60_000:
        if site.asked:
            site.log_ends_at(3)
        site.pass_time(100)
    assert isinstance(found.exception(), KafkaTimeout)
    assert TIMEOUT_MS <= site.time - 1_000 <= TIMEOUT_MS + 1_200
    assert site.runs[0].stopped


def test_search_that_has_ended_is_not_what_takes_too_long(site: Site) -> None:
    """What the attempt does next has an error of its own."""
    site.find()
    assert str(site.search.timeout_error()) == "nothing new"
    site.log_ends_at(9)
    site.runs[0].slices.append(FOUND)
    site.run_slice()
    assert site.search.timeout_error() is None


def test_comparison_is_continued_without_a_lookup(site: Site) -> None:
    site.find()
    site.log_ends_at(9)
    site.runs[0].awaited_offset = None
    site.run_slice()
    site.pass_time(20)
    assert site.submitted
    assert not site.asked


def test_leader_that_is_away_occupies_no_thread(site: Site) -> None:
    found = site.find()
    site.asked.pop().set_exception(KafkaTimeout("no leader"))
    assert not site.submitted
    site.pass_time(20)
    site.asked.pop().set_exception(FlowError("not permitted"))
    assert isinstance(found.exception(), FlowError)


def test_error_of_a_slice_ends_the_search(site: Site) -> None:
    found = site.find()
    site.log_ends_at(9)
    site.runs[0].slices.append(FlowError("position-unproved"))
    site.run_slice()
    assert isinstance(found.exception(), FlowError)


@pytest.mark.parametrize("moment", ["lookup", "slice", "rest"])
def test_search_ends_with_its_attempt(site: Site, moment: str) -> None:
    found = site.find()
    if moment != "lookup":
        site.log_ends_at(9)
    if moment == "rest":
        site.run_slice()
    site.search.close()
    assert isinstance(found.exception(), ClientClosed)
    assert site.runs[0].stopped
    if moment == "lookup":
        site.log_ends_at(9)
    if moment == "slice":
        site.runs[0].slices.append(FOUND)
        site.run_slice()
    site.pass_time(TIMEOUT_MS)
    assert not site.submitted
    assert not site.asked


def test_search_of_a_task_that_has_ended_fails(site: Site) -> None:
    found = site.find()
    site.log_ends_at(9)
    site.submitted.pop()[1].cancel()
    assert isinstance(found.exception(), ClientClosed)


def test_each_fence_of_an_attempt_is_searched_for(site: Site) -> None:
    """An attempt in the last epochs fences again; others may have appended between its fences."""
    first = site.find()
    site.log_ends_at(9)
    site.runs[0].slices.append(FOUND)
    site.run_slice()
    second = site.find_again()
    assert not second.done()
    site.log_ends_at(9)
    later = FoundPosition(progress_at(8), NO_TOTALS)
    site.runs[1].slices.append(later)
    site.run_slice()
    assert (first.result(0), second.result(0)) == (FOUND, later)


def test_late_slice_of_an_earlier_fence_does_not_end_the_search(site: Site) -> None:
    first = site.find()
    site.log_ends_at(9)
    second = site.find_again()
    assert isinstance(first.exception(), ClientClosed)
    assert site.runs[0].stopped
    site.runs[0].slices.append(FOUND)
    site.run_slice()
    assert not second.done()


def test_search_that_begins_after_its_attempt_has_ended_fails(site: Site) -> None:
    site.find()
    site.search.close()
    assert isinstance(site.find_again().exception(), ClientClosed)


def test_searches_that_begin_meanwhile_are_read_together(site: Site) -> None:
    site.reads_at_once = False
    outcomes = [site.find() for _ in range(3)]
    for run in site.runs:
        run.settled = True
        run.slices.append(FOUND)
        site.log_ends_at(9)
    assert len(site.submitted) == 1, "one thread reads for all of them"
    site.run_slice()
    assert [set(runs) for runs in site.read] == [set(site.runs)]
    assert [outcome.result(0) for outcome in outcomes] == [FOUND] * 3
    assert not site.submitted, "nothing was appended: no search reads on"
    site.find()
    site.log_ends_at(9)
    assert len(site.submitted) == 1, "the next one begins the next reading"


def test_search_that_finds_more_than_its_marker_goes_on_alone(site: Site) -> None:
    found = site.find()
    site.log_ends_at(9)
    assert site.read == [site.runs]
    assert len(site.submitted) == 1
    site.runs[0].slices.append(FOUND)
    site.run_slice()
    assert found.result(0) is FOUND


def test_search_whose_attempt_has_ended_is_not_read(site: Site) -> None:
    site.reads_at_once = False
    site.find()
    site.log_ends_at(9)
    site.search.close()
    site.run_slice()
    assert site.read == [[]]


def test_searches_that_wait_for_a_reading_of_a_task_that_has_ended_fail(site: Site) -> None:
    site.reads_at_once = False
    outcomes = [site.find() for _ in range(2)]
    for _ in outcomes:
        site.log_ends_at(9)
    site.submitted.pop()[1].cancel()
    assert all(isinstance(outcome.exception(0), ClientClosed) for outcome in outcomes)


def test_failed_reading_hangs_no_search(site: Site) -> None:
    site.reads_at_once = False
    site.reading_error = ValueError("unexpected")
    first = site.find()
    site.log_ends_at(9)
    advance, _ = site.submitted[-1]
    with pytest.raises(ValueError, match="unexpected"):
        advance()
    assert len(site.submitted) == 2, "what was being read goes on alone"
    second = site.find()
    site.log_ends_at(9)
    site.submitted[0][1].set_exception(site.reading_error)
    assert not first.done()
    assert isinstance(second.exception(0), ValueError)
    site.find()
    site.log_ends_at(9)
    assert len(site.submitted) == 3, "another reading begins"
