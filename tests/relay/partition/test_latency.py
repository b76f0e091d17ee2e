"""How long records took from the source's append to the target's acknowledgement, and how many attempts have failed."""

from __future__ import annotations

import pytest

from mirror.cluster.types import TopicPartition
from mirror.errors import RecordRejected
from mirror.meters import Histogram
from mirror.producer.batch.batches import RecordMetadata
from mirror.relay.model.ranges import OPEN_END
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
