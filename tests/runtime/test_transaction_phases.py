"""What application threads see of a transaction's state, in whatever order calls and their answers cross."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from typing import Any

import pytest

from mirror.client import Producer, TopicPartition
from mirror.cluster.events import CompletableEvent
from mirror.errors import ConfigError, KafkaError, KafkaTimeout, NeedsAbort, NetworkThreadDied, WrongState
from mirror.producer.batch.queue import ProducerId
from mirror.producer.events import AddPartitionsEvent, TransactionEvent
from tests.polling import eventually
from tests.runtime.listener import Listener

TP = TopicPartition("t", 0)


class Asked:
    """A producer whose questions to its core are answered by the test, when it likes."""

    def __init__(self, servers: str, patch: pytest.MonkeyPatch) -> None:
        self.producer = Producer({"bootstrap.servers": servers, "transactional.id": "t"})
        self.patch = patch
        self._submit = self.producer.network_thread.submit
        self.open: list[CompletableEvent[Any]] = []
        self.added: list[Collection[TopicPartition]] = []
        patch.setattr(self.producer.network_thread, "submit", self._keep)

    def _keep(self, core: Any, event: Any) -> None:
        if isinstance(event, AddPartitionsEvent):
            self.added.append(event._tps)
        elif isinstance(event, TransactionEvent):
            self.open.append(event)
        elif core is None:
            self._submit(core, event)

    def answer(self, error: KafkaError | None = None) -> None:
        """To the question that waits for longest."""
        event = self.open.pop(0)
        event.complete(None) if error is None else event.fail(error)

    def begin(self) -> None:
        outcome = self.producer.init_transactions_async()
        self.answer()
        outcome.result(0)
        self.producer.begin_transaction()

    def state(self) -> str:
        """As an application hears of it."""
        with pytest.raises(WrongState) as wrong:
            self.producer.begin_transaction()
        return str(wrong.value)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[Asked]:
    listener = Listener()
    asked = Asked(listener.address, monkeypatch)
    yield asked
    monkeypatch.undo()
    asked.producer.close(0)
    listener.close()


def test_it_is_initialized_once(asked: Asked) -> None:
    producer = asked.producer
    both = [producer.init_transactions_async(), producer.init_transactions_async()]
    for _ in both:
        asked.answer()
    assert [outcome.result(0) for outcome in both] == [None, None]
    with pytest.raises(WrongState, match="is initialized already"):
        producer.init_transactions_async()
    producer.begin_transaction()
    with pytest.raises(WrongState, match="is initialized already"):
        producer.init_transactions_async()


def test_an_open_transaction_is_to_be_ended_and_a_failed_one_aborted(asked: Asked) -> None:
    asked.begin()
    assert "call commit_transaction() or abort_transaction() first" in asked.state()
    commit = asked.producer.commit_transaction_async()
    asked.answer(NeedsAbort("a record was lost"))
    assert isinstance(commit.exception(0), NeedsAbort)
    assert "failed (call abort_transaction() first)" in asked.state()
    assert not asked.producer.send_offsets_to_transaction_async({TP: 1}, "g").done(), "the core says why not"
    asked.answer(NeedsAbort("a record was lost"))
    abort = asked.producer.abort_transaction_async()
    asked.answer()
    abort.result(0)
    asked.producer.begin_transaction()


@pytest.mark.parametrize("error", [WrongState("it is committing"), NeedsAbort("lost")])
def test_offsets_that_a_commit_overtook_open_nothing_again(error: KafkaError, asked: Asked) -> None:
    asked.begin()
    offsets = asked.producer.send_offsets_to_transaction_async({TP: 1}, "g")
    asked.producer.commit_transaction_async()
    asked.answer(error)
    assert type(offsets.exception(0)) is type(error)
    if isinstance(error, WrongState):
        assert "committing" in asked.state()
    asked.answer()
    asked.producer.begin_transaction()


def test_partitions_are_added_within_a_transaction_only(asked: Asked) -> None:
    producer = asked.producer
    for state in ("call init_transactions() first", "call begin_transaction() first"):
        with pytest.raises(WrongState) as wrong:
            producer.add_partitions([TP])
        assert "add_partitions(): the producer of 't' is not" in str(wrong.value)
        assert state in str(wrong.value)
        if "init" in state:
            outcome = producer.init_transactions_async()
            asked.answer()
            outcome.result(0)
    producer.begin_transaction()
    producer.add_partitions([TP, TP])
    producer.add_partitions([])
    assert asked.added == [(TP,)]
    calls: list[Callable[[], object]] = [lambda: producer.adopt(TP, ProducerId(5, 0), 1), lambda: producer.release(TP)]
    for call in calls:
        with pytest.raises(WrongState, match="sends under its own identity only"):
            call()
    assert producer.identity is None


def test_a_commit_whose_end_is_out_cannot_be_aborted(asked: Asked) -> None:
    asked.begin()
    commit = asked.producer.commit_transaction_async()
    aborts = [asked.producer.abort_transaction_async() for _ in range(2)]
    asked.open.append(asked.open.pop(0))  # the commit is answered last
    for abort in aborts:
        asked.answer(WrongState("the commit is under way"))
        assert isinstance(abort.exception(0), WrongState)
    assert "committing" in asked.state()
    assert asked.producer._ending == [commit], "close waits for it"
    asked.answer()
    commit.result(0)
    asked.producer.begin_transaction()


def test_a_commit_that_still_waits_can_be_aborted(asked: Asked) -> None:
    asked.begin()
    commit = asked.producer.commit_transaction_async()
    abort = asked.producer.abort_transaction_async()
    asked.answer(NeedsAbort("the transaction was aborted"))
    assert isinstance(commit.exception(0), NeedsAbort)
    assert "aborting" in asked.state()
    asked.answer()
    abort.result(0)
    asked.producer.begin_transaction()


def test_a_commit_that_was_done_before_the_abort_came(asked: Asked) -> None:
    asked.begin()
    commit = asked.producer.commit_transaction_async()
    abort = asked.producer.abort_transaction_async()
    asked.answer()
    commit.result(0)
    asked.answer(WrongState("not in a transaction"))
    assert isinstance(abort.exception(0), WrongState)
    asked.producer.begin_transaction()


@pytest.mark.parametrize("error", [None, NeedsAbort("lost"), WrongState("refused")])
def test_an_answer_that_comes_late_says_nothing_of_the_next_transaction(error: KafkaError | None, asked: Asked) -> None:
    asked.begin()
    for _ in range(2):
        asked.producer.commit_transaction_async()
    asked.answer()
    asked.producer.begin_transaction()
    asked.answer(error)
    assert "in a transaction (call commit" in asked.state()


@pytest.mark.parametrize("call", ["init_transactions", "commit_transaction", "abort_transaction"])
def test_a_call_that_ran_out_of_time_says_how_to_go_on(call: str, asked: Asked) -> None:
    if call != "init_transactions":
        asked.begin()
    outcome = getattr(asked.producer, f"{call}_async")(100)
    cause = KafkaError("no coordinator")
    asked.open[0].last_error = cause
    asked.open.pop().expire()
    error = outcome.exception(0)
    assert isinstance(error, KafkaTimeout)
    assert str(error) == (
        f"{call}() did not succeed within 100 ms: no coordinator; it continues: call {call}() again for its outcome"
    )
    assert error.__cause__ is cause


@pytest.mark.parametrize("ending", ["commit_transaction", "abort_transaction"])
def test_close_does_not_wait_for_an_outcome_that_cannot_come(ending: str, asked: Asked) -> None:
    """The call was never handed over: its thread had died."""
    asked.begin()
    asked.patch.undo()
    thread = asked.producer.network_thread
    calls: list[Callable[[], object]] = [getattr(asked.producer, ending), asked.producer.close]

    def run_once() -> None:
        raise RuntimeError("a bug in the loop")

    thread.loop.run_once = run_once  # type: ignore[method-assign]
    thread.network.wakeup()
    eventually(lambda: thread.dead, what="the thread's death")
    asked.producer._ended_by = None  # as where it dies between two calls
    before = asked.producer._phase
    began = time.monotonic()
    with pytest.raises(NetworkThreadDied):
        calls[0]()
    assert (asked.producer._phase, asked.producer._ending) == (before, [])
    calls[1]()
    assert time.monotonic() - began < 20


# --- settings


def test_problems_of_all_kinds_are_reported_at_once() -> None:
    wrong: dict[str, object] = {
        "foo": 1,
        "request.timeout.ms": 20_000,
        "linger.ms": 1,
        "acks": "1",
        "retries": 0,
        "max.in.flight.requests.per.connection": 9,
        "delivery.timeout.ms": 5,
        "compression.type": "brotli",
        "security.protocol": "SASL_SSL",
    }
    with pytest.raises(ConfigError) as raised:
        Producer(wrong)
    missing = {"bootstrap.servers", "sasl.mechanism"}
    assert {problem.key for problem in raised.value.problems} == {*wrong, *missing} - {
        "request.timeout.ms",
        "linger.ms",
        "security.protocol",
    }
    assert len(raised.value.problems) == 8
    assert "linger.ms (1) + request.timeout.ms (20000) + retry.backoff.ms (100) = 20101" in str(raised.value)


def test_nothing_is_concluded_from_a_value_that_could_not_be_read() -> None:
    with pytest.raises(ConfigError) as raised:
        Producer({"bootstrap.servers": "here:1", "request.timeout.ms": "soon", "delivery.timeout.ms": 20_000})
    assert [problem.key for problem in raised.value.problems] == ["request.timeout.ms"]
