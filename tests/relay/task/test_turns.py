"""How many partitions of a task are acquired at a time."""

from __future__ import annotations

import time
from collections import Counter
from concurrent.futures import Future
from typing import cast

import pytest

from mirror.relay.model.ranges import Outcome
from mirror.relay.partition.context import CopyHandle
from mirror.relay.task import turns as module
from mirror.relay.task.turns import TURN_MS, AcquisitionTurns
from mirror.timing import FOREVER_MS
from mirror.wire.api import Api
from tests.fakes.clock import FakeClock
from tests.fakes.control import Action, ServerCall
from tests.fakes.record_batches import build
from tests.relay.fake_pair import FakePair

A, B, C = (cast("CopyHandle", name) for name in ("a", "b", "c"))


@pytest.fixture
def one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_ACQUISITIONS", 1)


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
def test_copies_that_have_ended_take_no_turn() -> None:
    turns = AcquisitionTurns(lambda: None, lambda: 0)
    call: Future[None] = Future()
    turns.begun(call)
    assert not turns.may_begin(A)
    assert not turns.may_begin(B)
    call.set_result(None)
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
