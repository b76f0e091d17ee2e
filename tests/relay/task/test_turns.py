"""How many partitions of a task are acquired at a time."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Collection
from concurrent.futures import Future
from dataclasses import dataclass
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror.relay.model.ranges import Outcome
from mirror.relay.partition.context import CopyHandle
from mirror.relay.partition.machine.partition_copy import PartitionCopy
from mirror.relay.task import turns as module
from mirror.relay.task.task import Task
from mirror.relay.task.turns import TURN_MS, AcquisitionTurns
from mirror.timing import FOREVER_MS
from mirror.wire.api import Api
from tests.fakes.clock import FakeClock
from tests.fakes.control import Action, ServerCall
from tests.fakes.record_batches import build
from tests.relay.fake_pair import FakePair
from tests.relay.task_harness import TaskHarness

A, B, C = (cast("CopyHandle", name) for name in ("a", "b", "c"))


@pytest.fixture
def one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_ACQUISITIONS", 1)


def turns_awaited_by(*copies: CopyHandle) -> AcquisitionTurns:
    """Return turns for which ``copies`` wait, and the only one before them has ended."""
    turns = AcquisitionTurns(lambda: None, lambda: 0)
    call: Future[None] = Future()
    turns.begun(call)
    for copy in copies:
        assert not turns.may_begin(copy)
    call.set_result(None)
    return turns


@pytest.mark.usefixtures("one_at_a_time")
def test_copies_begin_in_their_order_when_others_have_ended() -> None:
    woken: list[bool] = []
    turns = AcquisitionTurns(lambda: woken.append(True), lambda: 0)
    calls: list[Future[None]] = [Future(), Future()]
    assert turns.may_begin(A)
    turns.begun(calls[0])
    assert not turns.may_begin(B)
    assert not turns.may_begin(C)
    assert turns.take_ready({A, B, C}, 0) == []
    assert not woken
    calls[0].set_exception(ValueError("it has failed"))
    assert woken
    assert turns.take_ready({A, B, C}, 0) == [B]
    assert turns.may_begin(B)
    turns.begun(calls[1])
    assert turns.take_ready({A, B, C}, 0) == []
    calls[1].set_result(None)
    assert turns.take_ready({A, B, C}, 0) == [C]


@pytest.mark.usefixtures("one_at_a_time")
def test_copies_with_records_go_before_quiet_ones() -> None:
    """A task begins with a commit for each of its partitions, which may be thousands."""
    turns = AcquisitionTurns(lambda: None, lambda: 0)
    calls: list[Future[None]] = [Future(), Future()]
    turns.begun(calls[0])
    assert not turns.may_begin(A, quiet=True)
    assert not turns.may_begin(B, quiet=True)
    assert not turns.may_begin(C)
    assert not turns.may_begin(B), "it has got a record meanwhile"
    assert not turns.may_begin(B, quiet=True), "and has to commit, too"
    calls[0].set_result(None)
    order = list[CopyHandle]()
    while ready := turns.take_ready({A, B, C}, 0):
        order += ready
    assert order == [C, B, A]
    assert turns.due_ms() == FOREVER_MS


def test_quiet_copies_have_a_share_of_the_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_ACQUISITIONS", 1_000)
    turns = AcquisitionTurns(lambda: None, lambda: 0)
    calls: list[Future[None]] = [Future() for _ in range(1_000)]
    for call in calls:
        turns.begun(call)
    copies = [cast("CopyHandle", number) for number in range(40)]
    for copy in copies:
        assert not turns.may_begin(copy, quiet=cast("int", copy) >= 20)
    for call in calls:
        call.set_result(None)
    ready = cast("list[int]", turns.take_ready(set(copies), 0))
    with_records = [number for number in ready if number < 20]
    assert with_records == list(range(20))
    assert ready.index(20) == module.QUIET_SHARE - 1
    assert ready.index(21) == 2 * module.QUIET_SHARE - 1


@pytest.mark.usefixtures("one_at_a_time")
def test_no_copy_takes_the_place_of_one_that_has_waited() -> None:
    """Thousands of quiet copies open meanwhile, and were stepped before those whose turn had come."""
    turns = turns_awaited_by(A)
    assert not turns.may_begin(B, quiet=True), "A waits"
    assert turns.take_ready({A, B, C}, 0) == [A]
    assert not turns.may_begin(C), "it is A's turn"
    assert turns.may_begin(A)


@pytest.mark.usefixtures("one_at_a_time")
def test_turn_that_a_copy_does_not_use_passes_to_the_next_one() -> None:
    """Its attempt has ended, for example."""
    turns = turns_awaited_by(A, B)
    assert turns.take_ready({A, B}, 0) == [A]
    assert turns.due_ms() == 0
    assert turns.take_ready({A, B}, 0) == [B]
    assert turns.due_ms() == FOREVER_MS
    assert turns.take_ready({A, B}, 0) == []
    assert turns.may_begin(C), "B has not used it either"


@dataclass(eq=False)
class Copy:
    """A copy: it asks when it is stepped, from turn ``asks`` on; at turn ``changes`` it ends or has nothing to send."""

    quiet: bool
    asks: int
    changes: int | None
    ends: bool
    takes: int
    """Turns until its acquisition has ended; 0: it never ends."""
    waits_since: int | None = None
    acquired: int | None = None


COPIES = st.builds(
    Copy,
    quiet=st.booleans(),
    asks=st.integers(0, 5),
    changes=st.none() | st.integers(1, 12),
    ends=st.booleans(),
    takes=st.integers(0, 3),
)


@given(st.lists(COPIES, max_size=20), st.integers(1, 3), st.randoms(use_true_random=False))
def test_each_copy_that_asks_begins_in_bounded_time(copies: list[Copy], most: int, order: random.Random) -> None:
    """As the task steps them: those that are ready with the others, in any order."""
    turn_ms, running = TURN_MS // 4, dict[Future[None], tuple[int, int]]()
    clock = FakeClock(0)
    turns = AcquisitionTurns(lambda: None, clock.now)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "MAX_ACQUISITIONS", most)
        for turn in range(6 + 4 * len(copies) + 5):
            clock.advance(turn_ms)
            for call in [call for call, (_, ends) in running.items() if ends == turn]:
                del running[call]
                call.set_result(None)
            gone = {copy for copy in copies if copy.changes is not None and copy.changes <= turn}
            active = {cast("CopyHandle", copy) for copy in copies if copy not in gone or not copy.ends}
            ready = cast("list[Copy]", turns.take_ready(active, clock.now()))
            waiting = (
                {copy for copy in copies if copy.waits_since is not None and copy.waits_since < turn} - {*ready} - gone
            )
            opening = [copy for copy in copies if copy.asks == turn]
            for copy in order.sample(ready + opening, len(ready + opening)):
                if copy in gone or copy.acquired is not None:
                    copy.waits_since = None
                elif turns.may_begin(cast("CopyHandle", copy), quiet=copy.quiet):
                    assert copy in ready or not waiting, "it has overtaken others"
                    copy.acquired, copy.waits_since = turn, None
                    call = Future[None]()
                    turns.begun(call)
                    running[call] = clock.now(), turn + copy.takes if copy.takes else -1
                else:
                    assert copy not in ready
                    copy.waits_since = turn
            assert sum(began > clock.now() - TURN_MS for began, _ in running.values()) <= most
    assert all(copy.acquired is not None for copy in copies if copy.changes is None)
    assert turns.due_ms() == FOREVER_MS, "none waits"


def test_copies_whose_turn_has_come_are_stepped_in_the_same_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind thousands that open, they were stepped dozens of turns of the loop later."""
    harness = TaskHarness(20, monkeypatch)
    monkeypatch.setattr("mirror.relay.task.task._MOST_STEPPED", 1)
    step, turn = PartitionCopy.step, Task._turn
    ready, stepped, seen = list[CopyHandle](), set[CopyHandle](), 0

    def take_ready(turns: AcquisitionTurns, active: Collection[CopyHandle], now: int) -> list[CopyHandle]:
        del turns, now
        ready[:] = list(active)[-1:]
        return list(ready)

    def see_step(copy: PartitionCopy, now: int) -> None:
        stepped.add(copy)
        step(copy, now)

    def see_turn(task: Task, now: int) -> None:
        nonlocal seen
        stepped.clear()
        turn(task, now)
        assert stepped >= set(ready)
        seen += len(ready)

    monkeypatch.setattr(AcquisitionTurns, "take_ready", take_ready)
    monkeypatch.setattr(PartitionCopy, "step", see_step)
    monkeypatch.setattr(Task, "_turn", see_turn)
    harness.copy()
    assert seen >= 20


@pytest.mark.usefixtures("one_at_a_time")
def test_copies_that_have_ended_take_no_turn() -> None:
    turns = turns_awaited_by(A, B)
    assert turns.take_ready({B}, 0) == [B]


@pytest.mark.usefixtures("one_at_a_time")
def test_acquisition_that_does_not_end_holds_up_others_only_for_its_turn() -> None:
    clock = FakeClock(100)
    turns = AcquisitionTurns(lambda: None, clock.now)
    stuck: Future[None] = Future()
    assert turns.may_begin(A)
    turns.begun(stuck)
    assert turns.due_ms() == FOREVER_MS, "no copy waits"
    assert not turns.may_begin(B)
    assert turns.due_ms() == 100 + TURN_MS
    assert turns.take_ready({A, B}, 99 + TURN_MS) == []
    assert turns.take_ready({A, B}, 100 + TURN_MS) == [B]
    assert turns.may_begin(B)
    clock.advance(TURN_MS)
    turns.begun(Future())
    stuck.set_result(None)
    assert not turns.may_begin(C), "a turn ends once"


@pytest.mark.parametrize(("way", "last"), [("sequences", Api.END_TXN), ("transactions", Api.OFFSET_FETCH)])
def test_many_partitions_are_acquired_in_turn(monkeypatch: pytest.MonkeyPatch, way: str, last: Api) -> None:
    """In transactions a partition is acquired when it opens: its progress is read last."""
    monkeypatch.setattr(module, "MAX_ACQUISITIONS", 5)
    monkeypatch.setattr(module, "TURN_MS", FOREVER_MS)  # no turn ends before its acquisition on a busy machine
    pair = FakePair(monkeypatch, partitions=40)
    for partition in range(40):
        pair.source.log("t", partition).append(build((b"x",), timestamp=int(time.time() * 1000)))
    pair.target.admin.broker_configs[""] = {"producer.id.expiration.ms": str(86_400_000)}
    begun: Counter[str] = Counter()
    most = 0

    def see(call: ServerCall) -> Action | None:
        nonlocal most
        if call.api is Api.INIT_PRODUCER_ID and call.body.transactional_id:
            begun["all"] += 1
        if call.api is last:
            begun["ended"] += _partitions_read(call) if last is Api.OFFSET_FETCH else 1
        most = max(most, begun["all"] - begun["ended"])
        return None

    pair.target.control.add(see)
    results = pair.copy_all(exactly_once_by=way)
    assert Counter(result.outcome for result in results) == {Outcome.COMPLETE: 40}
    assert begun["ended"] >= 40
    assert 1 <= most <= 5


def _partitions_read(call: ServerCall) -> int:
    return sum(len(topic.partition_indexes) for group in call.body.groups for topic in group.topics)
