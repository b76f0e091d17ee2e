"""How long records took from the source's append to the target's acknowledgement, and how many attempts have failed."""

from __future__ import annotations

import pytest

from mirror.cluster.types import TopicPartition
from mirror.errors import RecordRejected
from mirror.meters import Histogram
from mirror.producer.batch.batches import RecordMetadata
from mirror.relay.batches.slow_records import MOST_DECODED, SlowRecords
from mirror.relay.batches.target_limits import TargetLimits
from mirror.relay.model.observer import NullObserver, SlowRecord
from mirror.relay.model.ranges import OPEN_END, Range
from mirror.wire.encode import BatchBuilder
from mirror.wire.records import Batch
from tests.fakes.clock import FakeClock
from tests.fakes.record_batches import appended_at, batch, stamped
from tests.relay.copy_harness import CopyHarness, made


def counted(*latencies: tuple[int, int]) -> Histogram:
    expected = Histogram()
    for ms, records in latencies:
        expected.add(ms, records)
    return expected


@pytest.mark.parametrize("atomic", [True, False])
def test_each_record_counts_with_the_time_of_its_acknowledgement(*, atomic: bool) -> None:
    run = CopyHarness(OPEN_END, atomic=atomic).opened(0)
    appended_ms = run.clock.unix_ms()
    run.clock.advance(30)
    run.fetch(made(0, 3, timestamp=appended_ms))
    run.clock.advance(10)
    assert run.context.latency == counted(), "the target has not answered"
    run.writer.sent[0].answer(RecordMetadata(TopicPartition("a.t", 0), 0, 0, 0))
    run.clock.advance(900)  # the task is busy with others
    run.context.run_until_idle()
    assert run.context.latency == counted((40, 3))
    run.fetch(made(3, 2, timestamp=run.clock.unix_ms() - 7))
    run.ack()
    assert run.context.latency == counted((40, 3), (7, 2))


def test_a_clock_ahead_counts_as_no_latency_and_records_without_a_time_do_not_count() -> None:
    run = CopyHarness(OPEN_END).opened(0)
    run.fetch(made(0, timestamp=run.clock.unix_ms() + 5_000))
    run.ack()
    assert run.context.latency == counted((0, 1))
    run.fetch(made(1, timestamp=-1))
    run.ack_all()
    assert run.context.latency == counted((0, 1))


def test_each_failed_attempt_is_counted_when_it_fails() -> None:
    run = CopyHarness(OPEN_END)
    run.context.retries_allowed = True
    run.opened(0)
    found = []
    for _ in range(2):
        run.fetch(made(0))
        run.fail(0, RecordRejected("no", 87))
        run.closed()
        found.append(run.copy.result_at(run.clock.now()))
        run.back_off()
        run.opened(0)
    assert [one.failures for one in found] == [{"failed": 1}, {"failed": 2}]


# --- records that were late, and belong to a trace

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class Observer(NullObserver):
    def __init__(self) -> None:
        self.slow: list[SlowRecord] = []

    def record_was_slow(self, range_: Range, record: SlowRecord) -> None:
        assert range_.topic == "t"
        self.slow.append(record)


def traced(base: int, appended_ms: int, *traces: str | None, apart_ms: int = 1) -> Batch:
    """A record without a trace, and behind it one of each of ``traces``; their timestamps are ``apart_ms`` apart."""
    builder = BatchBuilder("none", 1_000_000)
    for number, trace in enumerate([None, *(traces or [TRACE])]):
        headers = () if trace is None else (("traceparent", trace.encode()),)
        assert builder.append(None, b"v", headers, appended_ms + number * apart_ms)
    built = builder.build()
    return batch(stamped(bytes(built.view), base, 0))


class SlowSite:
    """A copy whose records are late after 500 ms."""

    def __init__(self, batch_size: int = 1, facts: TargetLimits | None = None) -> None:
        self.observer, clock = Observer(), FakeClock()
        self.run = CopyHarness(OPEN_END, clock=clock, batch_size=batch_size, facts=facts)
        self.run.context.slow_records = SlowRecords(500, self.observer, clock.now, clock.unix_ms)
        self.run.opened(0)

    def copy(self, base: int, *, late_ms: int, trace: str | None = TRACE) -> None:
        """Fetch a batch 100 ms after its append, and have it acknowledged so late."""
        appended_ms = self.run.clock.unix_ms()
        self.run.clock.advance(100)
        self.run.fetch(traced(base, appended_ms, trace), received_ms=self.run.clock.now() - 20)
        self.run.clock.advance(late_ms - 100)
        self.acknowledge()

    def acknowledge(self) -> None:
        self.run.ack()
        if self.run.committing is not None:
            self.run.commit()


def test_the_way_of_a_late_record_is_shown_with_its_times_and_offsets() -> None:
    site = SlowSite()
    site.copy(0, late_ms=400)
    assert site.observer.slow == []
    began_ms = site.run.clock.unix_ms()
    site.copy(2, late_ms=700)
    (slow,) = site.observer.slow
    assert slow == SlowRecord(
        trace=TRACE,
        offset=3,
        target_offset=1_003,
        appended_ms=began_ms + 1,
        received_ms=began_ms + 80,
        sent_ms=began_ms + 100,
        acknowledged_ms=began_ms + 700,
    )


def test_few_of_many_late_records_are_shown_and_those_without_a_trace_hide_none() -> None:
    site = SlowSite()
    for number in range(10):
        site.copy(2 * number, late_ms=501, trace=TRACE if number % 2 else None)
    assert [slow.offset for slow in site.observer.slow] == [3, 7, 11, 15, 19]
    site = SlowSite()
    site.copy(0, late_ms=600)
    appended_ms = site.run.clock.unix_ms() - 10_000
    for number in range(1, 21):
        site.run.clock.advance(100)
        site.run.fetch(traced(2 * number, appended_ms))
        site.acknowledge()
    assert [slow.offset for slow in site.observer.slow] == [1, 21, 41], "one a second"


def test_a_record_of_a_merged_batch_keeps_its_times_and_its_offset() -> None:
    site = SlowSite(batch_size=1_000_000)
    site.run.context.reencodes_by_hand = True
    appended_ms, now = site.run.clock.unix_ms(), site.run.clock.now()
    site.run.fetch(traced(0, appended_ms, None), traced(2, appended_ms), received_ms=now - 5)
    site.run.clock.advance(600)
    site.run.context.reencode()
    site.run.context.run_until_idle()
    site.run.clock.advance(100)
    site.acknowledge()
    (slow,) = site.observer.slow
    assert (slow.offset, slow.target_offset) == (3, 1_003)
    times = (slow.received_ms, slow.sent_ms, slow.acknowledged_ms)
    assert [time_ms - appended_ms for time_ms in times] == [-5, 600, 700]


def test_a_late_record_is_shown_also_at_once_after_others_that_have_no_trace() -> None:
    """When a target answers again, all that has waited for it comes within milliseconds."""
    site = SlowSite()
    appended_ms = site.run.clock.unix_ms()
    site.run.clock.advance(2_500)
    for number in range(MOST_DECODED):
        last = number == MOST_DECODED - 1
        site.run.fetch(traced(2 * number, appended_ms, TRACE if last else None))
        site.acknowledge()
    assert [slow.offset for slow in site.observer.slow] == [2 * MOST_DECODED - 1]


def test_no_more_than_a_few_batches_are_decoded_in_a_second() -> None:
    site = SlowSite()
    appended_ms = site.run.clock.unix_ms()
    site.run.clock.advance(2_500)
    for number in range(MOST_DECODED + 1):
        site.run.fetch(traced(2 * number, appended_ms, None if number < MOST_DECODED else TRACE))
        site.acknowledge()
    assert site.observer.slow == []


def test_records_whose_traces_are_not_sampled_hide_none_behind_them() -> None:
    site = SlowSite()
    appended_ms = site.run.clock.unix_ms()
    site.run.clock.advance(600)
    site.run.fetch(traced(0, appended_ms, f"{TRACE[:-2]}00", TRACE))
    site.acknowledge()
    assert [slow.offset for slow in site.observer.slow] == [2]


def test_a_record_without_a_timestamp_is_not_late() -> None:
    site = SlowSite()
    site.run.fetch(traced(0, -1, TRACE, apart_ms=0))
    site.acknowledge()
    assert site.observer.slow == []


def test_a_record_was_appended_when_its_broker_says_so_although_the_batch_is_sent_without_it() -> None:
    site = SlowSite(facts=TargetLimits(log_append_time=True))
    made_ms = site.run.clock.unix_ms()
    site.run.clock.advance(5_000)  # its producer has kept it for so long
    site.run.fetch(batch(appended_at(traced(0, made_ms).view, made_ms + 5_000)))
    site.run.clock.advance(400)
    site.acknowledge()
    assert site.observer.slow == [], "it was copied in time"
    site.run.fetch(batch(appended_at(traced(2, made_ms).view, made_ms + 5_400)))
    site.run.clock.advance(700)
    site.acknowledge()
    (slow,) = site.observer.slow
    assert (slow.appended_ms, slow.acknowledged_ms) == (made_ms + 5_400, made_ms + 6_100)
