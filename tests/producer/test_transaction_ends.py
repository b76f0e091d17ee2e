"""How a transaction ends that cannot be committed, or whose end is not known: nothing of it may join another one."""

from __future__ import annotations

import itertools

import pytest

from mirror.errors import DeliveryTimeout, Fenced, KafkaError, NeedsAbort, TransactionExpired
from mirror.producer.txn.steps import TransactionState
from mirror.wire.api import Api
from tests.fakes import errors
from tests.fakes.client import FakeProducer
from tests.fakes.control import Action
from tests.fakes.transactions import State as OnCoordinator
from tests.producer.site import (
    T0,
    TIMES,
    committed,
    expired,
    failure,
    finish,
    send,
    transactional,
    values,
)
from tests.producer.test_transactions import SOURCE, VERSIONS, group_offset, one_more

_TIMEOUT_MS = 9_000
"""The shortest ``transaction.timeout.ms`` that TIMES allow."""


def _asked_as(producer: FakeProducer) -> list[tuple[int, int]]:
    """Producer id (counted from the first) and epoch of each InitProducerId after the first."""
    bodies = [call.body for call in producer.cluster.calls(Api.INIT_PRODUCER_ID)[1:]]
    return [(body.producer_id - 1001, body.producer_epoch) for body in bodies]


# --- a batch that expires, and may be in the log


@VERSIONS
def test_an_expired_batch_ends_the_transaction_and_the_next_one_has_a_new_epoch(version: int) -> None:
    producer = transactional(version, **TIMES)
    cluster = producer.cluster
    one_more(producer, b"first", 1)
    cluster.control.on(Api.PRODUCE, Action(silent=True), times=2)
    producer.begin()
    producer.add_offsets("group", {SOURCE: 2})
    sent = send(producer, b"expired")
    commit = producer.commit()
    assert expired(producer, sent).may_have_been_written
    error = failure(producer, commit)
    assert isinstance(error, NeedsAbort)
    assert isinstance(error.__cause__, DeliveryTimeout)
    producer.finish(producer.abort())
    ends = cluster.calls(Api.END_TXN)
    if version == 1:
        assert len(ends) == 1, "the first transaction's"
        assert _asked_as(producer) == [(0, 0), (0, 1)], "its own epoch, and then the one in which it was aborted"
    else:
        assert [(call.version, call.body.committed) for call in ends] == [(5, True), (5, False)]
        assert _asked_as(producer) == []
    one_more(producer, b"next", 3)
    assert (committed(cluster), group_offset(cluster)) == ([b"first", b"next"], 3)
    producer.run_for(5_000)
    assert producer.taken == producer.released


@VERSIONS
def test_an_abort_with_nothing_missing_is_a_plain_one(version: int) -> None:
    producer = transactional(version, **TIMES)
    producer.begin()
    finish(producer, producer.send(T0, b"hidden"))
    producer.finish(producer.abort())
    assert _asked_as(producer) == []
    one_more(producer, b"next", 1)
    assert committed(producer.cluster) == [b"next"]


@VERSIONS
def test_a_refused_batch_leaves_a_gap_in_its_sequences_that_a_new_epoch_closes(version: int) -> None:
    producer = transactional(version, **TIMES)
    producer.cluster.control.on(Api.PRODUCE, Action(errors={T0: errors.NOT_ENOUGH_REPLICAS}), times=None)
    producer.begin()
    assert not expired(producer, send(producer)).may_have_been_written
    producer.cluster.control.clear()
    producer.finish(producer.abort())
    assert _asked_as(producer) == ([(0, 0), (0, 1)] if version == 1 else [])
    one_more(producer, b"next", 1)
    assert committed(producer.cluster) == [b"next"]


@VERSIONS
def test_a_batch_that_is_unanswered_when_it_is_aborted_is_shut_out(version: int) -> None:
    producer = transactional(version, **TIMES)
    held = producer.cluster.control.on(Api.PRODUCE, Action(hold="before"))
    producer.begin()
    producer.send(T0, b"unanswered")
    producer.run_for(100)
    producer.finish(producer.abort())
    held.release()
    one_more(producer, b"next", 1)
    producer.run_for(1_000)
    assert values(producer.cluster) == [b"next"]
    assert _asked_as(producer) == ([(0, 0), (0, 1)] if version == 1 else [])


def test_an_empty_transaction_does_not_lose_the_need_of_a_new_epoch() -> None:
    producer = transactional(1, **TIMES)
    producer.cluster.control.on(Api.TXN_OFFSET_COMMIT, Action(close="after"))
    producer.begin()
    producer.add_offsets("group", {SOURCE: 1})
    producer.finish(producer.commit())
    producer.begin()
    producer.finish(producer.abort())
    one_more(producer, b"next", 2)
    assert _asked_as(producer) == [(0, 0)]


# --- whether the coordinator has the transaction


@pytest.mark.parametrize("code", [errors.COORDINATOR_LOADING, errors.CONCURRENT_TRANSACTIONS, 120, 29, 3])
@pytest.mark.parametrize("done", [True, False])
@pytest.mark.parametrize("api", [Api.ADD_PARTITIONS_TO_TXN, Api.ADD_OFFSETS_TO_TXN])
def test_what_may_have_been_added_is_ended_whatever_is_said_of_it_later(api: Api, done: bool, code: int) -> None:
    """Left open at its coordinator, it would be timed out there, and that looks like fencing."""
    producer = transactional(1, **TIMES)
    cluster = producer.cluster
    cluster.control.on(api, Action(close="after" if done else "before"))
    cluster.control.on(api, Action(errors={api.label: code, T0: code}), times=3)
    producer.begin()
    if api is Api.ADD_PARTITIONS_TO_TXN:
        producer.send(T0, b"hidden")
    else:
        producer.add_offsets("group", {SOURCE: 1})
    producer.run_for(50)
    producer.finish(producer.abort())
    producer.run_for(10)
    assert cluster.transactions.ids["x"].state is not OnCoordinator.ONGOING
    cluster.control.clear()
    producer.run_for(60_000)
    one_more(producer, b"next", 1)
    assert committed(cluster) == [b"next"]


@pytest.mark.parametrize("code", [120, 29, errors.COORDINATOR_LOADING])
def test_an_answer_that_comes_while_it_is_aborted_does_not_end_the_producer(code: int) -> None:
    producer = transactional(1, **TIMES)
    cluster = producer.cluster
    late = Action(delay_ms=300, errors={"AddPartitionsToTxn": code, T0: code})
    cluster.control.on(Api.ADD_PARTITIONS_TO_TXN, late)
    producer.begin()
    producer.send(T0, b"hidden")
    producer.run_for(100)
    producer.finish(producer.abort())
    one_more(producer, b"next", 1)
    assert committed(cluster) == [b"next"]


# --- the coordinator's own clock


@VERSIONS
@pytest.mark.parametrize("then", ["send", "commit", "abort", "offsets"])
def test_a_transaction_that_outlives_its_timeout_is_aborted_and_gone_on_from(version: int, then: str) -> None:
    producer = transactional(version, **TIMES, **{"transaction.timeout.ms": _TIMEOUT_MS})
    cluster = producer.cluster
    producer.begin()
    finish(producer, producer.send(T0, b"hidden"))
    producer.run_for(_TIMEOUT_MS + 100)
    error: BaseException | None = None
    if then == "send":
        error = failure(producer, producer.send(T0, b"too late"))
    elif then == "commit":
        error = failure(producer, producer.commit()).__cause__
    elif then == "offsets":
        producer.add_offsets("group", {SOURCE: 1})
        error = failure(producer, producer.commit()).__cause__
    if then == "commit" and version == 2:
        assert "INVALID_TXN_STATE" in str(error), "its own code for that, under version 2"
    elif then != "abort":
        assert isinstance(error, TransactionExpired)
        assert f"longer than transaction.timeout.ms ({_TIMEOUT_MS})" in str(error)
    producer.finish(producer.abort())
    one_more(producer, b"next", 2)
    assert (committed(cluster), group_offset(cluster)) == ([b"next"], 2)


@pytest.mark.parametrize("then", ["abort", "commit"])
def test_a_producer_that_is_fenced_before_the_timeout_is_fenced(then: str) -> None:
    producer = transactional(1, **TIMES, **{"transaction.timeout.ms": _TIMEOUT_MS})
    producer.begin()
    finish(producer, producer.send(T0, b"hidden"))
    newer = FakeProducer(producer.cluster, **{"transactional.id": "x"})
    newer.init()
    ask = producer.abort if then == "abort" else producer.commit
    assert isinstance(failure(producer, ask()), Fenced)


def test_a_commit_after_a_newer_producer_has_aborted_it_is_fenced() -> None:
    """The newer producer has no epoch yet: version 2 compares the outcomes, and names no fence."""
    producer = transactional(2, **TIMES, **{"transaction.timeout.ms": _TIMEOUT_MS})
    cluster = producer.cluster
    producer.begin()
    finish(producer, producer.send(T0, b"hidden"))
    newer = FakeProducer(cluster, **{"transactional.id": "x"})
    initialized = newer.init_async()
    newer.run_until(lambda: cluster.transactions.ids["x"].state is OnCoordinator.ENDED)
    error = failure(producer, producer.commit())
    assert isinstance(error, Fenced)
    assert "INVALID_TXN_STATE" in str(error)
    newer.finish(initialized)
    one_more(newer, b"next", 2)
    assert committed(cluster) == [b"next"]


def test_a_commit_whose_answer_was_lost_is_never_called_expired_and_fences_nobody() -> None:
    """It was done; then a newer producer came. The clock alone would say that the coordinator has aborted it."""
    producer = transactional(1, **TIMES, **{"transaction.timeout.ms": _TIMEOUT_MS})
    cluster = producer.cluster
    producer.begin()
    finish(producer, producer.send(T0, b"committed"))
    producer.run_for(_TIMEOUT_MS - 1_000)
    held = cluster.control.on(Api.END_TXN, Action(hold="after", close="after"))
    cluster.control.on(Api.END_TXN, Action(stall_ms=3_000))
    commit = producer.commit()
    producer.run_until(lambda: len(cluster.calls(Api.END_TXN)) == 2)
    newer = FakeProducer(cluster, **{"transactional.id": "x"})
    newer.init()
    held.release()
    error = failure(producer, commit)
    assert isinstance(error, Fenced)
    assert error.may_have_been_written, "it may have been committed"
    assert isinstance(failure(producer, producer.abort()), Fenced)
    one_more(newer, b"newer", 1)
    assert committed(cluster) == [b"committed", b"newer"]


@pytest.mark.parametrize("code", [errors.INVALID_PRODUCER_ID_MAPPING, 120])
def test_a_commit_whose_answer_was_lost_is_never_called_aborted(code: int) -> None:
    producer = transactional(1, **TIMES)
    producer.cluster.control.on(Api.END_TXN, Action(close="after"))
    producer.cluster.control.on(Api.END_TXN, Action(errors={"EndTxn": code}))
    producer.begin()
    finish(producer, producer.send(T0, b"committed"))
    error = failure(producer, producer.commit())
    assert not isinstance(error, NeedsAbort)
    assert error.may_have_been_written
    assert committed(producer.cluster) == [b"committed"]


@VERSIONS
def test_an_end_that_meets_the_fence_of_a_newer_producer_is_asked_again(version: int) -> None:
    """The coordinator throws meanwhile, which is UNKNOWN_SERVER_ERROR, and then it names the fence."""
    producer = transactional(version, **TIMES)
    cluster = producer.cluster
    producer.begin()
    finish(producer, producer.send(T0, b"hidden"))
    cluster.control.on(Api.END_TXN, Action(errors={"EndTxn": errors.UNKNOWN_SERVER_ERROR}), times=2)
    commit = producer.commit()
    producer.run_until(lambda: len(cluster.calls(Api.END_TXN)) == 2)
    newer = FakeProducer(cluster, **{"transactional.id": "x"})
    newer.init()
    error = failure(producer, commit)
    assert isinstance(error, Fenced)
    assert error.may_have_been_written, "what threw may have committed it"
    one_more(newer, b"next", 2)
    assert committed(cluster) == [b"next"]


@VERSIONS
def test_an_end_that_a_coordinator_could_not_process_once_is_asked_again(version: int) -> None:
    producer = transactional(version, **TIMES)
    producer.cluster.control.on(Api.END_TXN, Action(errors={"EndTxn": errors.UNKNOWN_SERVER_ERROR}))
    one_more(producer, b"first", 1)
    one_more(producer, b"second", 2)
    assert committed(producer.cluster) == [b"first", b"second"]


# --- coordinators


@VERSIONS
@pytest.mark.parametrize("lost", ["moved", "down", "silent", "cut"])
def test_coordinators_that_move_or_are_away_are_found_again(version: int, lost: str) -> None:
    producer = transactional(version, brokers=3, **{"request.timeout.ms": 2_000})
    cluster = producer.cluster
    one_more(producer, b"first", 1)
    cluster.log("t", 0).leader = cluster.log("t", 1).leader = 3
    producer.begin()
    producer.send(T0, b"second")
    producer.add_offsets("group", {SOURCE: 2})
    producer.run_for(1)
    before = {name: cluster.coordinator(name) for name in ("x", "group")}
    for name, node in before.items():
        _harm(producer, name, node, lost)
    producer.finish(producer.commit(), within_ms=15_000)
    producer.run_for(100)
    assert (committed(cluster), group_offset(cluster)) == ([b"first", b"second"], 2)


def _harm(producer: FakeProducer, name: str, node: int, lost: str) -> None:
    cluster = producer.cluster
    if lost == "moved":
        cluster.coordinators[name] = node % 2 + 1
    elif lost == "down":
        cluster.kill(node)
        cluster.after(3_000, lambda: cluster.start(node))
    elif lost == "cut":
        for later in range(0, 2_000, 100):
            cluster.after(later, lambda: cluster.disconnect(node))
    else:
        for api in (Api.END_TXN, Api.TXN_OFFSET_COMMIT, Api.ADD_OFFSETS_TO_TXN, Api.ADD_PARTITIONS_TO_TXN):
            cluster.control.on(api, Action(silent=True))


@VERSIONS
def test_a_commit_is_not_lost_with_a_caller_that_ran_out_of_time_while_its_coordinator_was_away(version: int) -> None:
    producer = transactional(version, **{"request.timeout.ms": 2_000})
    cluster = producer.cluster
    producer.begin()
    finish(producer, producer.send(T0, b"value"))
    cluster.control.on(Api.END_TXN, Action(silent=True), times=2)
    assert isinstance(failure(producer, producer.commit(300)), TimeoutError)
    assert producer.core.transactions.state is TransactionState.COMMITTING
    producer.finish(producer.commit())
    assert committed(cluster) == [b"value"]


@VERSIONS
@pytest.mark.parametrize("marker_ms", [10, 300, 3_000])
def test_concurrent_transactions_is_waiting_and_asked_again_after_20_ms(version: int, marker_ms: int) -> None:
    """For half a second; whatever takes longer is asked about less and less often (KIP-580)."""
    producer = transactional(version)
    cluster = producer.cluster
    cluster.marker_ms = marker_ms
    producer.begin()
    producer.send(T0, b"first")
    producer.finish(producer.commit())
    begun = producer.now
    producer.begin()
    finish(producer, producer.send(T0, b"second"))
    assert producer.completed_ms - begun <= marker_ms + (25 if marker_ms <= 500 else 1_200)
    asked = Api.ADD_PARTITIONS_TO_TXN if version == 1 else Api.PRODUCE
    times = [call.received_ms for call in cluster.calls(asked)][1:]
    gaps = [after - before for before, after in itertools.pairwise(times)]
    assert all(gap == 20 for gap in gaps[:24]), gaps
    if marker_ms > 500:
        assert max(gaps) >= 200, gaps
        assert max(gaps) <= 1_200, gaps
    producer.finish(producer.commit())


def test_the_error_of_an_abort_that_cannot_be_done_is_reported() -> None:
    producer = transactional(1, **TIMES)
    cluster = producer.cluster
    producer.begin()
    finish(producer, producer.send(T0, b"value"))
    cluster.control.on(Api.END_TXN, Action(errors={"EndTxn": errors.COORDINATOR_LOADING}), times=None)
    error: KafkaError = failure(producer, producer.abort(2_000))
    assert isinstance(error, TimeoutError)
    assert "COORDINATOR_LOAD_IN_PROGRESS" in str(error)


@pytest.mark.parametrize("version", [1, 2])
def test_success_resets_attempts(version: int) -> None:
    """Each transaction's end is refused four times; the waits of the second one are no longer than the first one's."""
    producer = transactional(version)
    cluster = producer.cluster
    for _ in range(2):
        producer.begin()
        finish(producer, producer.send(T0, b"x"))
        before = len(cluster.calls(Api.END_TXN))
        cluster.control.on(Api.END_TXN, Action(errors={"x": errors.COORDINATOR_LOADING}), times=4)
        producer.finish(producer.commit())
        times = [call.received_ms for call in cluster.calls(Api.END_TXN)[before:]]
        waits = [later - earlier for earlier, later in itertools.pairwise(times)]
        assert len(waits) == 4
        for number, wait in enumerate(waits):
            assert 80 * 2**number <= wait <= min(1_000, 120 * 2**number) + 20, waits
