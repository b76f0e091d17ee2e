"""What a task fetches for its copies, and which fetches reach them: only those behind the last position asked for."""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Any, cast

import pytest

from mirror.client import OffsetAndMetadata, TopicPartition
from mirror.consumer.fetched import Fetched
from mirror.consumer.positions import LastResponse
from mirror.relay.byte_limits import RateLimiter, SourceBudget
from mirror.relay.partition.context import CopyHandle
from mirror.relay.progress.committed import NO_TOTALS
from mirror.relay.progress.position import FoundPosition
from mirror.relay.task.fetch_steering import FetchSteering
from tests.relay.copy_harness import CopyHarness
from tests.relay.hand_context import SOURCE
from tests.relay.partition.test_sequences import claimed, harness, young


class Consumer:
    """Notes what it is to fetch; the test decides what its polls return."""

    def __init__(self) -> None:
        self.sought: list[int] = []
        self.assigned: set[TopicPartition] = set()
        self.responses: dict[TopicPartition, LastResponse] = {}

    def incremental_assign(self, tps: Collection[TopicPartition], *, paused: bool) -> None:
        assert paused
        self.assigned |= set(tps)

    def incremental_unassign(self, tps: Collection[TopicPartition]) -> None:
        self.assigned -= set(tps)

    def seek(self, tp: TopicPartition, position: OffsetAndMetadata) -> None:
        assert tp in self.assigned
        self.sought.append(position.offset)

    def pause(self, tps: Collection[TopicPartition]) -> None: ...

    def resume(self, tps: Collection[TopicPartition]) -> None: ...

    def last_responses(self) -> dict[TopicPartition, LastResponse]:
        return self.responses


class Part:
    """The memory of a fetch."""

    held = 1

    def __init__(self) -> None:
        self.released = 0

    def release(self) -> None:
        self.released += 1


class Steered:
    """A copy by sequences that has read from offset 4 on, with the steering of its task.

    It has fetched offset 4 and fences. Earlier attempts had copied up to offset 6, which the search has just found.
    """

    def __init__(self) -> None:
        self.run: CopyHarness = harness()
        context, now = self.run.context, self.run.clock.now()
        self.consumer = Consumer()
        self.steering = FetchSteering(
            cast("Any", self.consumer),
            SourceBudget(10**6),
            RateLimiter(0, 0),
            max_partition_bytes=10,
            stall_ms=5_000,
            now=now,
        )
        context.read_from = self.read_from  # type: ignore[method-assign]
        context.stop_reading = self.steering.stop_reading  # type: ignore[method-assign]
        self.run.opened_with(claimed(4))
        self.turn()
        self.poll(self.fetched(4))
        self.run.writer.acquired = True
        self.run.writer.acquisitions[0][1].set_result(FoundPosition(claimed(6), NO_TOTALS))

    def read_from(self, copy: CopyHandle, offset: int, leader_epoch: int | None, topic_id: str) -> None:
        del topic_id
        self.steering.read_from(copy, offset, leader_epoch, "")

    def turn(self) -> None:
        self.steering.update(self.run.clock.now(), [self.run.copy], [self.run.copy])

    def fetched(self, base: int, count: int = 1) -> Fetched:
        batches = [young(self.run, base + number) for number in range(count)]
        next_offset = base + count
        return Fetched(
            tp=SOURCE,
            offset=base,
            next_offset=next_offset,
            batches=batches,
            size=1,
            last_stable_offset=next_offset,
            part=Part(),
        )

    def poll(self, *fetched: Fetched) -> None:
        for _ in self.steering.on_polled(fetched, self.run.clock.now()):
            self.run.context.run_until_idle()

    @property
    def copied(self) -> list[int]:
        return [int(value) for values in self.run.sent for value in values]


def test_rest_of_a_poll_is_released_once_the_copy_reads_from_where_it_begins() -> None:
    """Its offset is right by chance, and the seek repeats it: the copy would miss all that comes behind it."""
    steered = Steered()
    rest = steered.fetched(6)
    steered.poll(steered.fetched(5), rest)
    assert isinstance(rest.part, Part | None)
    assert (steered.copied, rest.part) == ([], None), "released"
    steered.turn()
    assert steered.consumer.sought == [4, 6]
    steered.poll(steered.fetched(6, 2), steered.fetched(8))
    steered.run.ack_all()
    steered.turn()
    steered.poll(steered.fetched(9, 3))
    steered.run.ack_all()
    assert steered.copied == [6, 7, 8, 9, 10, 11]


def test_fetches_that_were_held_until_the_copy_reads_elsewhere_do_not_reach_it() -> None:
    """They were polled in an earlier turn, and are delivered after the copy was stepped in this one."""
    steered = Steered()
    steered.run.context.run_until_idle()
    steered.poll(steered.fetched(6, 2))
    assert steered.copied == []
    steered.turn()
    steered.poll(steered.fetched(6, 3))
    steered.run.ack_all()
    assert steered.copied == [6, 7, 8]


def test_response_to_a_fetch_of_the_former_position_does_not_count_for_the_next_one() -> None:
    steered = Steered()
    steered.run.context.run_until_idle()
    now = steered.run.clock.now()
    steered.consumer.responses[SOURCE] = LastResponse(now, 5)
    steered.steering.check_responses(now)
    assert steered.run.copy.awaits_first_response
    steered.turn()
    steered.consumer.responses[SOURCE] = LastResponse(now, 6)
    steered.steering.check_responses(now + 1_000)
    assert not steered.run.copy.awaits_first_response


def test_throttling_is_logged_when_it_begins_and_when_it_ends(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "mirror.relay.task.fetch_steering")
    steered = Steered()
    steered.run.context.run_until_idle()
    steered.turn()
    logged = []
    # Without a response it is not known whether throttling goes on.
    for turn, until_ms in enumerate([0, 5_000, 5_000, None, 7_000, 0, 0, 9_000]):
        now = steered.run.clock.now() + 5_000 * turn
        steered.consumer.responses.clear()
        if until_ms is not None:
            steered.consumer.responses[SOURCE] = LastResponse(now, 6, until_ms)
        caplog.clear()
        steered.steering.check_responses(now)
        logged.append([(one.levelname, one.getMessage().split(":")[0]) for one in caplog.records])
    begins, ends = ("WARNING", "1 partitions of the source wait"), ("INFO", "the source does not throttle any more")
    assert logged == [[], [begins], [], [], [], [ends], [], [begins]]


def test_partition_is_unassigned_when_its_copy_stops_before_it_was_sought() -> None:
    steered = Steered()
    steered.run.context.run_until_idle()
    steered.steering.stop_reading(steered.run.copy)
    steered.turn()
    assert (steered.consumer.sought, steered.consumer.assigned) == ([4], set())


class PausedCopy:
    """Wants nothing more, and counts how often it is asked."""

    source = SOURCE
    held_bytes = 0
    asked = 0

    @property
    def wants_more(self) -> bool:
        self.asked += 1
        return False


@pytest.mark.parametrize(("held", "asked"), [(0, 2), (10**6, 11)], ids=["room", "short"])
def test_paused_copies_are_asked_each_second_and_while_the_budget_is_short_each_100_ms(held: int, asked: int) -> None:
    """None wants more before it is stepped, unless it was refused room; many are paused while they are acquired."""
    budget, copy = SourceBudget(10**6), cast("Any", PausedCopy())
    budget.add(held)
    steering = FetchSteering(
        cast("Any", Consumer()), budget, RateLimiter(0, 0), max_partition_bytes=10, stall_ms=5_000, now=0
    )
    steering.read_from(copy, 0, None, "")
    for now in range(0, 1_001, 10):
        steering.update(now, (), [copy])
    assert copy.asked == asked
