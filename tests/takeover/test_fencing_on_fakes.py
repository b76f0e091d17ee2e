"""MirrorMaker 2 with exactly-once support: one transaction has records and positions. Brokers in memory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mirror.client import Producer, TopicPartition
from mirror.errors import KafkaError
from mirror.mirrormaker.source_offsets import SourceOffsetKey, encode_offset, partition_of
from mirror.relay.model.ranges import Outcome as CopyOutcome
from mirror.takeover import fencing
from mirror.takeover.continuation import TakeoverOutcome
from mirror.wire.api import Api
from tests.fakes import errors
from tests.fakes.control import Action
from tests.takeover.fake_mirrormaker import CONNECTOR, POSITIONS, FakeMirrorMaker

VALUES = [b"%d" % number for number in range(12)]
TASK = f"paris-mm2-{CONNECTOR}-0"


class Task:
    """One of its tasks."""

    def __init__(self, mm2: FakeMirrorMaker, transactional_id: str = TASK) -> None:
        self._source = mm2.pair.source.log("t")
        options = {"bootstrap.servers": mm2.pair.target.bootstrap, "transactional.id": transactional_id}
        self.producer = Producer(options)
        self.producer.init_transactions()

    def send(self, start: int, end: int) -> None:
        """Begins a transaction with the records ``[start, end)``, and the position behind them."""
        self.producer.begin_transaction()
        times = {one.base_offset: one.base_timestamp for one in self._source.batches()}
        sent = [
            self.producer.send("paris.t", 0, value=VALUES[offset], timestamp_ms=times[offset])
            for offset in range(start, end)
        ]
        key = SourceOffsetKey(CONNECTOR, "paris", TopicPartition("t", 0)).to_bytes()
        sent.append(self.producer.send(POSITIONS, partition_of(key), key=key, value=encode_offset(end - 1)))
        for one in sent:
            one.result()


@pytest.fixture
def mm2(monkeypatch: pytest.MonkeyPatch) -> FakeMirrorMaker:
    mm2 = FakeMirrorMaker(monkeypatch)
    mm2.write(*VALUES)
    return mm2


@pytest.fixture
def task(mm2: FakeMirrorMaker) -> Iterator[Task]:
    task = Task(mm2)
    yield task
    task.producer.close(timeout_ms=0)


def test_a_transaction_that_never_was_committed_is_aborted(mm2: FakeMirrorMaker, task: Task) -> None:
    task.send(0, 4)
    with mm2.takeover() as takeover:
        (decision,) = takeover.run().decisions
    assert (decision.outcome, decision.stored) == (TakeoverOutcome.NOTHING_COPIED, None), (
        "as before there was a transaction"
    )
    result = mm2.pair.copy()
    assert result.outcome is CopyOutcome.COMPLETE, result.error
    assert mm2.pair.values() == VALUES


def test_all_tasks_are_fenced(mm2: FakeMirrorMaker, task: Task) -> None:
    last = Task(mm2, TASK.replace("-0", "-3"))
    with mm2.takeover() as takeover:
        assert takeover.run().found.transactional_ids == [TASK.replace("-0", f"-{number}") for number in range(4)]
    for one in (task, last):
        with pytest.raises(KafkaError):
            one.send(0, 1)
    last.producer.close(timeout_ms=0)


def test_a_task_behind_one_that_brokers_have_forgotten_is_fenced(
    mm2: FakeMirrorMaker, task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fencing, "_PROBED", 2)
    last = Task(mm2, TASK.replace("-0", "-2"))
    with mm2.takeover() as takeover:
        assert takeover.run().found.transactional_ids == [TASK.replace("-0", f"-{number}") for number in range(3)]
    for one in (task, last):
        with pytest.raises(KafkaError):
            one.send(0, 1)
    last.producer.close(timeout_ms=0)


def test_a_target_that_refuses_to_say_is_not_reported_as_one_without_exactly_once(mm2: FakeMirrorMaker) -> None:
    refused = Action(errors={TASK: errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED})
    mm2.pair.target.control.add(lambda call: refused if call.api is Api.DESCRIBE_TRANSACTIONS else None)
    with mm2.takeover() as takeover:
        report = takeover.run()
    assert report.found.exactly_once is None
    assert any("whether it was exactly once is not known: nothing is fenced" in line for line in report.lines())
    assert any("cannot be read, it is not fenced" in one for one in report.warnings)


def test_an_open_transaction_is_aborted_and_the_task_writes_nothing_more(mm2: FakeMirrorMaker, task: Task) -> None:
    task.send(0, 4)
    task.producer.commit_transaction()
    task.send(4, 7)
    with mm2.takeover(dry_run=True) as takeover:
        dry = takeover.run()
    with mm2.takeover() as takeover:
        report = takeover.run()
    assert dry.decisions[0].next_offset == 4
    (decision,) = report.decisions
    assert report.found.transactional_ids == [TASK]
    assert (decision.outcome, decision.stored, decision.next_offset) == (TakeoverOutcome.SETTLED, 3, 4)
    with pytest.raises(KafkaError):
        task.producer.commit_transaction()
    result = mm2.pair.copy()
    assert result.outcome is CopyOutcome.COMPLETE, result.error
    assert mm2.pair.values() == VALUES
