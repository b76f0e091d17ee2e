"""Transactional producers under load, one per partition, and what the log holds of their transactions."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from mirror.client import Producer, TopicPartition
from mirror.errors import KafkaTimeout, NeedsAbort
from tests.campaign.judge import Found, percentile, read_logs
from tests.campaign.load import made, ticks
from tests.campaign.run import HEALTHY, OPTIONS, harmed
from tests.campaign.stage import Harm, Stage
from tests.stalls import now_ms

COMMIT_EVERY_S: Final = 0.5
_BATCHES: Final = 3
"""In each transaction."""
_SIZE: Final = 16 * 1024
_CALL_MS: Final = 5_000
_SETTLED_S: Final = 90.0
"""For who is in the middle of one when the load ends: an abort may wait for a coordinator's own 30 s."""
_FEW: Final = 5


@dataclass(slots=True)
class Transaction:
    """One transaction: the numbers of its batches, and its outcome, None as long as that is not known."""

    begun_ms: float
    numbers: list[int] = field(default_factory=list)
    committed: bool | None = None
    ended_ms: float = -1
    why: str = ""


class Worker(threading.Thread):
    """One partition's producer: begins, sends for half a second, commits; aborts what failed and goes on.

    Once it is ``over``, it still has to show that it ``went_on``: by one transaction more that it commits.
    """

    def __init__(self, servers: str, tp: TopicPartition, over: threading.Event) -> None:
        super().__init__(daemon=True)
        self.tp: Final = tp
        self.transactions: list[Transaction] = []
        self.ended_by: BaseException | None = None
        self.went_on = False
        self.given_up = threading.Event()
        self._over = over
        self._numbers = 0
        self._options = {"bootstrap.servers": servers, "transactional.id": str(tp), **OPTIONS}
        self.start()

    def run(self) -> None:
        try:
            with Producer(self._options) as producer:
                _until_told(lambda: producer.init_transactions(timeout_ms=_CALL_MS))
                while not self.went_on and not self.given_up.is_set():
                    after = self._over.is_set()
                    self.went_on = self._transact(producer) and after
        except Exception as error:  # noqa: BLE001 - nothing may end a producer here; judged afterwards
            self.ended_by = error

    def _transact(self, producer: Producer) -> bool:
        transaction = Transaction(now_ms())
        self.transactions.append(transaction)
        producer.begin_transaction()
        try:
            for place in ticks(threading.Event(), COMMIT_EVERY_S / _BATCHES, 0):
                if place == _BATCHES:
                    break
                transaction.numbers.append(self._numbers)
                self._numbers += 1
                producer.send_batch(self.tp, made(self.tp, transaction.numbers[-1], _SIZE))
            _until_told(lambda: producer.commit_transaction(timeout_ms=_CALL_MS))
            transaction.committed = True
        except NeedsAbort as error:
            transaction.why = f"{type(error.__cause__).__name__}: {error.__cause__}"
            _until_told(lambda: producer.abort_transaction(timeout_ms=_CALL_MS))
            transaction.committed = False
        transaction.ended_ms = now_ms()
        return transaction.committed


def _until_told(call: Callable[[], None]) -> None:
    """The same call again joins one that ran out of time, until its outcome is known."""
    until = time.monotonic() + _SETTLED_S
    while True:
        try:
            call()
        except KafkaTimeout:
            if time.monotonic() > until:
                raise
        else:
            return


def judge_transactions(worker: Worker, log: Sequence[Found]) -> list[str]:
    """What is wrong with the committed batches of a partition: each committed transaction once, whole and in order."""
    wrong = []
    if worker.ended_by is not None:
        wrong.append(f"its producer ended with {type(worker.ended_by).__name__}: {worker.ended_by}")
    wanted = [number for one in worker.transactions if one.committed for number in one.numbers]
    found = [one.number for one in log]
    if found != wanted:
        lost, more = sorted(set(wanted) - set(found)), sorted(set(found) - set(wanted))
        doubled = len(found) - len(set(found))
        wrong.append(
            f"{len(wanted)} committed batches, {len(found)} in the log: lost {lost[:_FEW]}, not committed"
            f" {more[:_FEW]}, {doubled} doubled, {'in' if found == sorted(found) else 'out of'} order"
        )
    return [f"{worker.tp}: {text}" for text in wrong]


@dataclass(slots=True)
class TransactionalRun:
    """What came of one: ``wrong`` is what should not be, ``figures`` go into the report."""

    wrong: list[str]
    figures: dict[str, Any]


def run_transactions(on_stage: Stage, harm: Harm, *, seconds: float, rest_s: float) -> TransactionalRun:
    """As ``run.run``, with a transactional producer for each partition."""
    partitions = [tp for min_in_sync in (1, 2) for tp in on_stage.create(harm.assignment, min_in_sync)]
    servers = on_stage.proxy.bootstrap_servers if harm.proxied else on_stage.servers
    over = threading.Event()
    workers = [Worker(servers, tp, over) for tp in partitions]
    try:
        windows = harmed(on_stage, harm, seconds, rest_s)
    finally:
        over.set()
        _end(workers)
    wrong = [
        f"{one.tp}: a call of its producer did not return in {_SETTLED_S:.0f} s" for one in workers if one.is_alive()
    ]
    wrong += [
        f"{one.tp}: no transaction was committed after the harm; the last: {one.transactions[-1:]}"
        for one in workers
        if not one.went_on
    ]
    on_stage.make_whole()
    logs = read_logs(on_stage.servers, partitions, committed=True)
    for worker in workers:
        wrong += judge_transactions(worker, logs[worker.tp])
    on_stage.delete({tp.topic for tp in partitions})
    return TransactionalRun(wrong, _figures(workers, len(windows.spans)))


def _end(workers: Sequence[Worker]) -> None:
    """Let each commit what it begins now; who cannot is told to give up."""
    for patience_s in (_SETTLED_S, OPTIONS["delivery.timeout.ms"] / 1000):
        until = time.monotonic() + patience_s
        for worker in workers:
            worker.join(max(0.0, until - time.monotonic()))
        for worker in workers:
            worker.given_up.set()


def _figures(workers: Sequence[Worker], times: int) -> dict[str, Any]:
    everything = [one for worker in workers for one in worker.transactions]
    causes: dict[str, int] = {}
    for one in everything:
        if one.why:
            kind = one.why.partition(":")[0]
            causes[kind] = causes.get(kind, 0) + 1
    lengths = [one.ended_ms - one.begun_ms for one in everything if one.committed]
    healthy = [
        one.ended_ms - one.begun_ms
        for worker in workers
        for one in worker.transactions
        if one.committed and worker.tp.partition in HEALTHY
    ]
    return {
        "times_harmed": times,
        "transactions": len(everything),
        "committed": sum(one.committed is True for one in everything),
        "aborted": sum(one.committed is False for one in everything),
        "aborted_because_of": causes,
        "committed_p50_ms": round(percentile(lengths, 0.5), 1),
        "committed_p99_ms": round(percentile(lengths, 0.99), 1),
        "committed_longest_ms": round(max(lengths, default=0), 1),
        "healthy_committed_longest_ms": round(max(healthy, default=0), 1),
    }
