"""The consumer that reads back beside the copies: what it fetches, when results are complete, what they lack."""

from __future__ import annotations

from collections.abc import Collection
from concurrent.futures import Future
from typing import Any

import pytest

from mirror.client import TopicPartition
from mirror.consumer.fetched import Fetched
from mirror.errors import KafkaError
from mirror.relay.futures import done
from mirror.relay.model.observer import NullObserver
from mirror.relay.model.ranges import OPEN_END, Range, RangeResult
from mirror.relay.progress.lookup.lookup_results import LogBounds
from mirror.relay.readback import reader
from mirror.relay.readback.reader import ReadBackObserver, TargetReadBack
from mirror.timing import FOREVER_MS
from mirror.wire.records import Batch
from tests.relay.readback.committed_log import TARGET, batches_of, committed, fetch

GRACE_MS = 1_000
SENT = batches_of(*[(b"v%d" % n,) for n in range(6)])


class Log:
    """A consumer of one log; it holds back what is behind ``visible``."""

    def __init__(self) -> None:
        self.batches: list[Batch] = [*SENT]
        self.visible = len(SENT)
        self.position = -1
        self.paused = True
        self.polls = 0
        self.responses = list[int]()
        """The ends of the first fetches of the next poll: it was not polled for a while."""
        self.error: KafkaError | None = None

    def assign(self, tps: Collection[TopicPartition], *, paused: bool) -> None:
        assert (list(tps), paused) == ([TARGET], True)

    def seek(self, tp: TopicPartition, offset: int) -> None:
        assert tp == TARGET
        self.position = offset

    def pause(self, tps: Collection[TopicPartition]) -> None:
        assert list(tps) == [TARGET]
        self.paused = True

    def resume(self, tps: Collection[TopicPartition]) -> None:
        assert list(tps) == [TARGET]
        self.paused = False

    def poll(self, timeout_ms: int, *, max_bytes: int) -> list[Fetched]:
        assert (timeout_ms, max_bytes > 0, self.paused) == (0, True, False)
        self.polls += 1
        if self.error is not None:
            raise self.error
        ends, self.responses = [*self.responses, self.visible], []
        return [fetched for end in ends if (fetched := self._fetch(end)) is not None]

    def _fetch(self, end: int) -> Fetched | None:
        found = [one for one in self.batches if self.position < one.next_offset <= end]
        if not found:
            return None
        fetched = fetch(found, self.position)
        self.position = fetched.next_offset
        return fetched


class Site:
    def __init__(self, mode: str = "all") -> None:
        self.log = Log()
        self.bounds = LogBounds(0, len(SENT))
        self.read_back = TargetReadBack(
            self.log, mode, exactly_once=True, grace_ms=GRACE_MS, bounds=self._bounds, unix_ms=lambda: 77
        )
        self.finished = list[RangeResult]()

    def _bounds(self, tp: TopicPartition, timeout_ms: int) -> Future[LogBounds]:
        assert tp == TARGET
        assert timeout_ms > 0
        return done(self.bounds)

    def add(self, first: int, end: int, now: int = 0) -> None:
        self.read_back.add(TARGET, committed(SENT)[first:end], now, compacted=False)

    def finish(self, now: int, *, batches: int) -> RangeResult:
        result = RangeResult(
            flow="f", topic="t", target_topic=TARGET.topic, partition=0, start=0, end=0, batches=batches
        )
        self.read_back.finish(TARGET, result, now, lambda: self.finished.append(result))
        return result


@pytest.fixture
def site() -> Site:
    return Site()


def test_nothing_is_polled_if_nothing_is_to_be_read(site: Site) -> None:
    site.read_back.step(0)
    assert (site.log.polls, site.read_back.due_ms()) == (0, FOREVER_MS)
    site.add(0, 3)
    site.read_back.step(0)
    assert (site.log.polls, site.log.paused) == (1, True), "what it waited for was read"
    site.read_back.step(50)
    assert (site.log.polls, site.read_back.due_ms()) == (1, FOREVER_MS)


def test_result_waits_for_what_was_committed_before_it(site: Site) -> None:
    site.log.visible = 2
    site.add(0, 4)
    site.read_back.step(0)
    result = site.finish(10, batches=4)
    site.read_back.step(20)
    assert site.finished == []
    site.log.visible = 4
    site.read_back.step(60)
    assert site.finished == [result]
    assert result.read_back is not None
    assert (result.read_back["batches"], result.read_back["unverified"]) == (4, {})


def test_result_does_not_wait_for_longer_than_its_grace(site: Site) -> None:
    site.log.visible = 2
    site.add(0, 4)
    result = site.finish(10, batches=4)
    site.read_back.step(10 + GRACE_MS - 1)
    assert site.finished == []
    site.read_back.step(10 + GRACE_MS)
    assert site.finished == [result]
    assert result.read_back is not None
    assert (result.read_back["batches"], result.read_back["unverified"]) == (2, {"the run ended before": 2})


@pytest.mark.parametrize(("mode", "unverified"), [("all", {"appended by an earlier attempt": 3}), ("sample", {})])
def test_what_an_earlier_attempt_has_appended_is_counted(mode: str, unverified: dict[str, int]) -> None:
    site = Site(mode)
    site.add(0, 4)
    result = site.finish(0, batches=7)  # three were found in the log
    site.read_back.step(0)
    assert result.read_back is not None
    assert (result.read_back["batches"], result.read_back["unverified"]) == (4, unverified)


def test_what_is_committed_after_the_result_is_not_read_back(site: Site) -> None:
    site.add(0, 2)
    result = site.finish(0, batches=2)
    site.read_back.step(0)
    site.add(2, 6)
    site.read_back.step(50)
    assert result.read_back is not None
    assert (result.read_back["batches"], site.log.polls) == (2, 1)


def test_log_that_ends_in_front_of_a_committed_batch_lacks_it(site: Site) -> None:
    site.log.visible, site.bounds = 2, LogBounds(0, 2)
    site.add(0, 4)
    result = site.finish(0, batches=4)
    for now in range(0, GRACE_MS, 50):
        site.read_back.step(now)
    assert site.finished == [result]
    assert result.read_back is not None
    assert [(one["kind"], one["target_offset"], one["time_ms"]) for one in result.read_back["found"]] == [
        ("missing", 2, 77),
        ("missing", 3, 77),
    ]


def test_what_was_fetched_before_a_seek_does_not_make_anything_missing(site: Site) -> None:
    site.add(0, 2)
    site.read_back.step(0)
    poll, stale = site.log.poll, fetch(SENT[4:], 4)
    site.add(2, 6, now=30)
    site.log.poll = lambda *_, **__: [stale]  # type: ignore[method-assign]
    site.read_back.step(30)
    site.log.poll = poll  # type: ignore[method-assign]
    result = site.finish(40, batches=6)
    site.read_back.step(60)
    assert result.read_back is not None
    assert (result.read_back["batches"], result.read_back["differences"]) == (6, {})


def test_client_that_fails_leaves_everything_out_and_ends_nothing(site: Site) -> None:
    site.log.error = KafkaError("the network thread has died")
    site.add(0, 4)
    result = site.finish(0, batches=4)
    site.read_back.step(0)
    assert result.read_back is not None
    assert result.read_back["unverified"] == {"not readable": 4}


def test_too_many_batches_of_a_task_are_left_out(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "_MAX_PENDING", 3)
    site.add(0, 4)
    result = site.finish(0, batches=4)
    site.read_back.step(0)
    assert result.read_back is not None
    assert result.read_back["unverified"] == {"reading back was behind": 4}


def test_observer_gets_a_result_that_is_complete(site: Site) -> None:
    seen = list[Any]()

    class Observer(NullObserver):
        def range_finished(self, range_: Range, result: RangeResult) -> None:
            del range_
            seen.append(result.read_back)

    observer = ReadBackObserver(Observer(), site.read_back, lambda: 0)
    copied = Range(
        flow="f",
        topic="t",
        target_topic=TARGET.topic,
        partition=0,
        start=0,
        end=OPEN_END,
        source_cluster_id="paris",
        topic_id="",
    )
    site.add(0, 2)
    observer.range_finished(copied, RangeResult.initial(copied, 0))
    assert seen == []
    site.read_back.step(0)
    assert [found["batches"] for found in seen] == [2]


def test_rest_of_a_poll_is_not_read_twice() -> None:
    """After what compaction has removed it reads from the next batch on, which the same poll has returned already."""
    site = Site()
    site.log.batches = [*SENT[2:]]
    site.log.visible, site.log.responses = 5, [3]
    site.read_back.add(TARGET, [one for one in committed(SENT) if one.target_offset in {0, 4}], 0, compacted=True)
    site.read_back.step(0)
    site.log.visible = 6
    site.add(5, 6)
    result = site.finish(0, batches=3)
    site.read_back.step(60)
    assert site.finished == [result]
    assert result.read_back is not None
    assert (result.read_back["batches"], result.read_back["differences"]) == (2, {})
