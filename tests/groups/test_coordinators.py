"""Calls about groups run beside each other by coordinator, and wait for no coordinator that hangs."""

from __future__ import annotations

from concurrent.futures import Future

import pytest

from mirror.client import Outcomes
from mirror.errors import ConnectionFailed, KafkaError, KafkaTimeout
from mirror.groups.coordinators import CoordinatorCalls, answers_any, spread
from mirror.runtime.clock import SystemClock
from tests.fakes.clock import FakeClock

PATIENCE_MS = 100


class Brokers:
    """Answers calls at once, but for those of the coordinators that hang; keys are (coordinator, number)."""

    def __init__(self, *hanging: int) -> None:
        self.hanging = set(hanging)
        self.asked: list[tuple[int, int]] = []
        self.open: list[Future[str]] = []
        self.most_at_once = 0

    def submit(self, key: tuple[int, int]) -> Future[str]:
        self.asked.append(key)
        future: Future[str] = Future()
        if key[0] in self.hanging:
            self.open.append(future)
        else:
            future.set_result(f"{key[1]} of {key[0]}")
        return future


def work(*nodes: int, count: int = 5) -> dict[int, list[tuple[int, int]]]:
    return {node: [(node, number) for number in range(count)] for node in nodes}


def calls(at_once: int = 2) -> CoordinatorCalls[tuple[int, int], str]:
    return CoordinatorCalls(SystemClock(), at_once=at_once, patience_ms=PATIENCE_MS)


def test_every_call_has_its_outcome() -> None:
    brokers = Brokers()
    found = calls().run(work(1, 2), brokers.submit)
    assert found == {(node, number): f"{number} of {node}" for node in (1, 2) for number in range(5)}


def test_a_coordinator_that_hangs_delays_a_round_once() -> None:
    brokers, runner = Brokers(2), calls()
    found = runner.run(work(1, 2), brokers.submit)
    assert {key for key, outcome in found.items() if isinstance(outcome, KafkaTimeout)} == set(work(2)[2])
    assert [key for key in brokers.asked if key[0] == 2] == [(2, 0), (2, 1)], "no more than two at once"
    # The next round asks nothing of it, and does not wait.
    brokers.asked.clear()
    found = runner.run(work(1, 2), brokers.submit)
    assert {key[0] for key in brokers.asked} == {1}
    assert all(isinstance(found[key], KafkaTimeout) for key in work(2)[2])
    # Once its calls have ended, it is asked again.
    brokers.hanging.clear()
    for future in brokers.open:
        future.set_exception(KafkaTimeout("late"))
    assert not any(isinstance(outcome, KafkaError) for outcome in runner.run(work(2), brokers.submit).values())


def test_the_error_of_a_call_is_its_outcome_and_any_other_exception_is_raised() -> None:
    failed: Future[str] = Future()
    failed.set_exception(ConnectionFailed("gone"))
    (outcome,) = calls().run(work(1, count=1), lambda _: failed).values()
    assert isinstance(outcome, ConnectionFailed)
    broken: Future[str] = Future()
    broken.set_exception(ZeroDivisionError())
    with pytest.raises(ZeroDivisionError):
        calls().run(work(1, count=1), lambda _: broken)


def test_a_call_that_times_out_is_no_answer() -> None:
    clock, asked = FakeClock(), 0

    def times_out(_: tuple[int, int]) -> Future[Outcomes[str, str]]:
        nonlocal asked
        asked += 1
        clock.advance(PATIENCE_MS - 40)
        future: Future[Outcomes[str, str]] = Future()
        if asked % 2:
            future.set_exception(KafkaTimeout("late"))
        else:
            future.set_result(Outcomes({}, {"group": KafkaTimeout("late")}))
        return future

    runner = CoordinatorCalls[tuple[int, int], Outcomes[str, str]](
        clock, at_once=1, patience_ms=PATIENCE_MS, is_answer=answers_any
    )
    found = runner.run(work(1, count=50), times_out)
    assert asked == 2
    assert len(found) == 50


def test_groups_of_unknown_coordinators_are_spread() -> None:
    found = {spread(f"group {number}") for number in range(1_000)}
    assert found == set(range(-16, 0))
