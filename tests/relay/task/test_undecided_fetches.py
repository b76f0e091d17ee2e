"""Fetches that wait until the origin of their batches is known."""

from __future__ import annotations

from collections.abc import Callable, Collection
from concurrent.futures import Future

from mirror.cluster.types import TopicPartition
from mirror.consumer.fetched import Fetched
from mirror.errors import KafkaError, KafkaTimeout, NotRetriable
from mirror.relay.byte_limits import SourceBudget
from mirror.relay.task.undecided_fetches import UndecidedFetches
from mirror.wire.legacy import MessageSet
from tests.fakes.record_batches import batch, build

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


class HandOrigin:
    """Decisions that the test makes."""

    def __init__(self) -> None:
        self.decided: set[int] = set()
        self.asked: list[tuple[set[int], Future[None]]] = []
        self.refused: KafkaError | None = None
        self.wakes = 0

    def undecided(self, fetched: Fetched) -> set[int]:
        return {one.producer_id for one in fetched.batches if not isinstance(one, MessageSet)} - self.decided

    def decide(self, producer_ids: Collection[int]) -> None:
        del producer_ids
        raise AssertionError("it waits, and belongs in a thread")

    def refusal(self, fetched: Fetched) -> KafkaError | None:
        del fetched
        return self.refused

    def submit(self, decide: Callable[[Collection[int]], None], producer_ids: set[int]) -> Future[None]:
        assert decide == self.decide
        self.asked.append((set(producer_ids), Future()))
        return self.asked[-1][1]

    def wake(self) -> None:
        self.wakes += 1


class Part:
    """The memory of a fetch."""

    held = 100
    released = 0

    def release(self) -> None:
        self.released += 1


def fetch(tp: TopicPartition, offset: int, producer_id: int) -> Fetched:
    made = batch(build((b"x",), base_offset=offset, producer_id=producer_id))
    return Fetched(tp=tp, offset=offset, next_offset=offset + 1, batches=[made], held=100)


def make() -> tuple[HandOrigin, SourceBudget, UndecidedFetches]:
    origin, budget = HandOrigin(), SourceBudget(1_000)
    return origin, budget, UndecidedFetches(origin, origin.submit, budget, origin.wake)


def test_fetches_wait_in_order_and_only_those_of_their_partition() -> None:
    origin, budget, fetches = make()
    origin.decided = {1}
    known, unknown, behind, other = fetch(T0, 0, 1), fetch(T0, 1, 2), fetch(T0, 2, 1), fetch(T1, 0, 1)
    assert fetches.hold([known, unknown, behind, other]) == [known, other]
    assert budget.held == 200
    assert fetches.take_decided() == []
    ((asked, decided),) = origin.asked
    assert asked == {2}
    origin.decided = {1, 2}
    decided.set_result(None)
    assert origin.wakes == 1
    assert fetches.take_decided() == [unknown, behind]
    assert budget.held == 0
    assert fetches.take_decided() == []


def test_what_is_fetched_while_the_registry_is_read_is_decided_by_the_next_reading() -> None:
    origin, _, fetches = make()
    first, second = fetch(T0, 0, 1), fetch(T1, 0, 2)
    assert fetches.hold([first]) == []
    assert fetches.hold([second]) == []
    assert len(origin.asked) == 1
    origin.decided = {1}
    origin.asked[0][1].set_result(None)
    assert fetches.take_decided() == [first]
    assert origin.asked[1][0] == {2}
    origin.decided = {1, 2}
    origin.asked[1][1].set_result(None)
    assert fetches.take_decided() == [second]


def test_an_unreadable_registry_ends_the_fetches_that_need_it_with_its_error() -> None:
    origin, budget, fetches = make()
    held = fetch(T0, 0, 1)
    assert fetches.hold([held, fetch(T0, 1, 1)]) == []
    error = KafkaTimeout("no leader of the registry")
    origin.asked[0][1].set_exception(error)
    assert [one.error for one in fetches.take_decided()] == [error, error]
    assert budget.held == 0


def test_what_is_held_of_a_partition_is_dropped_once_it_is_read_from_another_position() -> None:
    origin, budget, fetches = make()
    part = Part()
    stale, other, fresh = fetch(T0, 0, 1), fetch(T1, 0, 1), fetch(T0, 0, 1)
    stale.part = part
    assert fetches.hold([stale, other]) == []
    fetches.drop(T0)
    assert (budget.held, part.released) == (100, 1)
    assert fetches.hold([fresh]) == []
    origin.decided = {1}
    origin.asked[0][1].set_result(None)
    taken = fetches.take_decided()
    assert len(taken) == 2
    assert taken[0] is other
    assert taken[1] is fresh
    assert budget.held == 0


def test_records_of_unknown_origin_are_an_error_of_their_partition() -> None:
    origin, _, fetches = make()
    origin.decided, origin.refused = {1}, NotRetriable("set origin-from")
    (refused,) = fetches.hold([fetch(T0, 0, 1)])
    assert refused.error is origin.refused
