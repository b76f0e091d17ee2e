"""The table of states: every way between two of them is gone, and every call that a state does not allow is refused."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest

from mirror.cluster.loop import LeaveEvent
from mirror.errors import ClientClosed, Fenced, KafkaError, NeedsAbort, WrongState
from mirror.producer.txn.steps import TRANSITIONS, TransactionState, may_go
from mirror.producer.txn.transactions import Transactions
from mirror.wire.api import Api
from tests.fakes import errors
from tests.fakes.client import FakeProducer
from tests.fakes.cluster import FakeCluster
from tests.fakes.control import Action
from tests.producer.site import T0, TIMES, failure, finish

VERSIONS = pytest.mark.parametrize("version", [1, 2])
Way = tuple[TransactionState, TransactionState]
Scenario = Callable[[FakeProducer], object]


def _new(version: int) -> FakeProducer:
    cluster = FakeCluster()
    cluster.add_topic("t", 2)
    cluster.features["transaction.version"] = version
    return FakeProducer(cluster, **{"transactional.id": "x", **TIMES})


def _state(producer: FakeProducer) -> TransactionState:
    return producer.core.transactions.state


# --- how to come into each state


def _initializing(producer: FakeProducer) -> None:
    producer.cluster.control.on(Api.INIT_PRODUCER_ID, Action(silent=True))
    producer.init_async()
    producer.run_for(10)


def _ready(producer: FakeProducer) -> None:
    producer.init()


def _in_transaction(producer: FakeProducer) -> None:
    producer.init()
    producer.begin()
    finish(producer, producer.send(T0))


def _committing(producer: FakeProducer) -> None:
    _in_transaction(producer)
    producer.cluster.control.on(Api.END_TXN, Action(silent=True))
    producer.commit()
    producer.run_until(lambda: producer.cluster.calls(Api.END_TXN))


def _too_large(producer: FakeProducer) -> None:
    producer.cluster.control.on(Api.PRODUCE, Action(errors={T0: errors.MESSAGE_TOO_LARGE}))
    failure(producer, producer.send(T0))


def _failed(producer: FakeProducer) -> None:
    _in_transaction(producer)
    _too_large(producer)


def _aborting(producer: FakeProducer) -> None:
    _in_transaction(producer)
    producer.cluster.control.on(Api.END_TXN, Action(silent=True))
    producer.abort()
    producer.run_until(lambda: producer.cluster.calls(Api.END_TXN))


def _ended(producer: FakeProducer) -> None:
    refusal = Action(errors={"InitProducerId": errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED})
    producer.cluster.control.on(Api.INIT_PRODUCER_ID, refusal)
    failure(producer, producer.init_async())


INTO: dict[TransactionState, Scenario] = {
    TransactionState.UNINITIALIZED: lambda _: None,
    TransactionState.INITIALIZING: _initializing,
    TransactionState.READY: _ready,
    TransactionState.IN_TRANSACTION: _in_transaction,
    TransactionState.COMMITTING: _committing,
    TransactionState.ABORTABLE_ERROR: _failed,
    TransactionState.ABORTING: _aborting,
    TransactionState.FATAL_ERROR: _ended,
}


# --- how to go on from there


def _end(producer: FakeProducer) -> None:
    event = LeaveEvent(producer.core, *producer.timer(1_000))
    producer.call(event)


def _pass_on(producer: FakeProducer) -> None:
    producer.run_for(10_000)


def _aborted_before_its_end_is_asked_for(producer: FakeProducer) -> None:
    _pass_on(producer)
    producer.begin()
    producer.cluster.control.on(Api.PRODUCE, Action(silent=True))
    producer.send(T0)
    producer.commit()
    producer.run_for(10)
    producer.abort()


def _refused_abortable(producer: FakeProducer) -> None:
    producer.cluster.control.on(Api.END_TXN, Action(silent=True), times=100)
    producer.run_for(60_000)  # until the coordinator has aborted it
    producer.cluster.control.clear()
    producer.cluster.control.on(Api.END_TXN, Action(errors={"EndTxn": errors.INVALID_TXN_STATE}))
    producer.run_for(10_000)


ON: dict[Way, Scenario] = {
    (TransactionState.UNINITIALIZED, TransactionState.INITIALIZING): _initializing,
    (TransactionState.INITIALIZING, TransactionState.READY): _pass_on,
    (TransactionState.READY, TransactionState.IN_TRANSACTION): FakeProducer.begin,
    (TransactionState.IN_TRANSACTION, TransactionState.COMMITTING): FakeProducer.commit,
    (TransactionState.IN_TRANSACTION, TransactionState.ABORTING): FakeProducer.abort,
    (TransactionState.IN_TRANSACTION, TransactionState.ABORTABLE_ERROR): _too_large,
    (TransactionState.COMMITTING, TransactionState.READY): _pass_on,
    (TransactionState.COMMITTING, TransactionState.ABORTING): _aborted_before_its_end_is_asked_for,
    (TransactionState.COMMITTING, TransactionState.ABORTABLE_ERROR): _refused_abortable,
    (TransactionState.ABORTABLE_ERROR, TransactionState.ABORTING): FakeProducer.abort,
    (TransactionState.ABORTING, TransactionState.READY): _pass_on,
    **{
        (state, TransactionState.FATAL_ERROR): _end
        for state in TransactionState
        if may_go(state, TransactionState.FATAL_ERROR)
    },
}


@pytest.fixture
def ways(monkeypatch: pytest.MonkeyPatch) -> list[Way]:
    """Those that are gone, in order."""
    gone: list[Way] = []
    go = Transactions._go

    def note(self: Transactions, state: TransactionState) -> None:
        gone.append((self.state, state))
        go(self, state)

    monkeypatch.setattr(Transactions, "_go", note)
    return gone


def test_each_way_of_the_table_has_its_scenario() -> None:
    assert set(ON) == {(state, following) for state, ways in TRANSITIONS.items() for following in ways}
    assert set(INTO) == set(TransactionState)


@VERSIONS
@pytest.mark.parametrize("way", ON, ids=lambda way: f"{way[0].name}-{way[1].name}")
def test_every_transition_is_reached(version: int, way: Way, ways: list[Way]) -> None:
    before, _ = way
    producer = _new(version)
    INTO[before](producer)
    assert _state(producer) is before
    del ways[:]
    ON[way](producer)
    producer.run_for(1)
    assert way in ways


@pytest.mark.parametrize(
    ("before", "after"), [way for way in itertools.product(TransactionState, TransactionState) if not may_go(*way)]
)
def test_no_other_way_is_gone(before: TransactionState, after: TransactionState) -> None:
    transactions = _new(1).core.transactions
    transactions.state = before
    with pytest.raises(AssertionError, match=f"does not go from {before.name} to {after.name}"):
        transactions._go(after)


# --- calls


def _offsets(producer: FakeProducer) -> Future[Any]:
    return producer.add_offsets("group", {T0: 1})


CALLS: dict[str, tuple[Callable[[FakeProducer], Future[Any]], set[TransactionState]]] = {
    "init": (FakeProducer.init_async, {TransactionState.UNINITIALIZED, TransactionState.INITIALIZING}),
    "send": (lambda producer: producer.send(T0), {TransactionState.IN_TRANSACTION}),
    "offsets": (_offsets, {TransactionState.IN_TRANSACTION}),
    "commit": (FakeProducer.commit, {TransactionState.IN_TRANSACTION, TransactionState.COMMITTING}),
    "abort": (
        FakeProducer.abort,
        {TransactionState.IN_TRANSACTION, TransactionState.ABORTABLE_ERROR, TransactionState.ABORTING},
    ),
}
"""Each call, and the states that allow it (a second call joins the first)."""


_REFUSED = [(call, state) for call, (_, allowed) in CALLS.items() for state in TransactionState if state not in allowed]


@VERSIONS
@pytest.mark.parametrize(("call", "state"), _REFUSED)
def test_a_call_that_the_state_does_not_allow_is_refused_and_sends_nothing(
    version: int, state: TransactionState, call: str
) -> None:
    ask, _ = CALLS[call]
    producer = _new(version)
    INTO[state](producer)
    before = len(producer.cluster.received)
    future = ask(producer)
    producer.run_until(future.done, within_ms=1)
    error = future.exception(0)
    expected = {TransactionState.ABORTABLE_ERROR: NeedsAbort, TransactionState.FATAL_ERROR: KafkaError}.get(
        state, WrongState
    )
    assert isinstance(error, expected), error
    assert len(producer.cluster.received) == before
    assert _state(producer) is state
    if expected is WrongState:
        assert state.value in str(error) or "the commit is under way" in str(error)
    if call == "send":
        assert producer.released == producer.taken


@VERSIONS
@pytest.mark.parametrize("state", [state for state in TransactionState if state is not TransactionState.READY])
def test_begin_changes_nothing_where_it_does_not_fit(version: int, state: TransactionState) -> None:
    producer = _new(version)
    INTO[state](producer)
    producer.begin()
    producer.run_for(1)
    assert _state(producer) is state


def test_needs_abort_says_why() -> None:
    producer = _new(1)
    _failed(producer)
    error = failure(producer, producer.commit())
    assert isinstance(error, NeedsAbort)
    assert "abort_transaction()" in str(error)
    assert "MESSAGE_TOO_LARGE" in str(error.__cause__)


# --- joining a call that is under way


@VERSIONS
@pytest.mark.parametrize(
    "state", [TransactionState.INITIALIZING, TransactionState.COMMITTING, TransactionState.ABORTING]
)
def test_the_same_call_again_joins_the_first(version: int, state: TransactionState) -> None:
    producer = _new(version)
    INTO[state](producer)
    name = {
        TransactionState.INITIALIZING: "init",
        TransactionState.COMMITTING: "commit",
        TransactionState.ABORTING: "abort",
    }[state]
    ask, _ = CALLS[name]
    both = [ask(producer), ask(producer)]
    for one in both:
        producer.finish(one)
    assert _state(producer) is TransactionState.READY


@VERSIONS
@pytest.mark.parametrize("commit", [True, False])
def test_what_ran_out_of_time_goes_on_and_can_be_asked_for_again(version: int, commit: bool) -> None:
    producer = _new(version)
    _in_transaction(producer)
    held = producer.cluster.control.on(Api.END_TXN, Action(hold="after"))
    ask = producer.commit if commit else producer.abort
    error = failure(producer, ask(500))
    assert isinstance(error, TimeoutError)
    held.release()
    producer.run_for(1_000)
    assert _state(producer) is TransactionState.READY
    producer.finish(ask())
    assert isinstance(failure(producer, ask()), WrongState), "once only"
    assert len(producer.cluster.calls(Api.END_TXN)) == 1


@VERSIONS
def test_a_commit_that_ran_out_of_time_cannot_be_aborted(version: int) -> None:
    """It may have happened."""
    producer = _new(version)
    _committing(producer)
    assert isinstance(failure(producer, producer.abort()), WrongState)
    producer.finish(producer.commit())


# --- the end of a producer


@VERSIONS
def test_closed_in_a_transaction_every_caller_is_notified(version: int) -> None:
    producer = _new(version)
    _in_transaction(producer)
    producer.cluster.control.on(Api.PRODUCE, Action(silent=True))
    producer.cluster.control.on(Api.TXN_OFFSET_COMMIT, Action(silent=True))
    sent = producer.send(T0)
    offsets = producer.add_offsets("group", {T0: 1})
    commit = producer.commit()
    producer.run_for(100)
    _end(producer)
    result = [failure(producer, future) for future in (sent, offsets, commit)]
    assert all(isinstance(error, ClientClosed) for error in result)
    assert [error.may_have_been_written for error in result] == [True, False, False]


@VERSIONS
def test_closed_while_it_commits_nobody_knows_the_outcome(version: int) -> None:
    producer = _new(version)
    _in_transaction(producer)
    producer.cluster.control.on(Api.END_TXN, Action(silent=True))
    commit = producer.commit()
    producer.run_for(100)
    _end(producer)
    error = failure(producer, commit)
    assert isinstance(error, ClientClosed)
    assert error.may_have_been_written


@VERSIONS
def test_a_producer_that_is_fenced_cannot_go_on(version: int) -> None:
    producer = _new(version)
    _in_transaction(producer)
    producer.cluster.control.on(Api.PRODUCE, Action(errors={T0: errors.INVALID_PRODUCER_EPOCH}))
    assert isinstance(failure(producer, producer.send(T0)), Fenced)
    assert _state(producer) is TransactionState.FATAL_ERROR
    for ask, _ in CALLS.values():
        assert isinstance(failure(producer, ask(producer)), Fenced)
