"""A transactional producer for each partition, and the verification of their transactions by the log."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from mirror.client import Producer, TopicPartition
from mirror.errors import KafkaTimeout, NeedsAbort
from tests.campaign.soak.cluster import BrokerFault, SoakCluster
from tests.campaign.soak.load import make_batch, ticks
from tests.campaign.soak.run import HEALTHY, OPTIONS, inject_repeatedly
from tests.campaign.soak.verification import Found, percentile, read_logs
from tests.stalls import now_ms

COMMIT_EVERY_S: Final = 0.5
_BATCHES: Final = 3
"""In each transaction."""
_SIZE: Final = 16 * 1024
_CALL_MS: Final = 5_000
_SETTLED_S: Final = 90.0
"""How long a transaction may take to end: an abort may wait for the coordinator's own 30 s."""
_MAX_SHOWN: Final = 5


@dataclass(slots=True)
class Transaction:
    """A transaction: the numbers of its batches, and its outcome (None while it is unknown)."""

    begun_ms: float
    numbers: list[int] = field(default_factory=list)
    committed: bool | None = None
    ended_ms: float = -1
    why: str = ""


class Worker(threading.Thread):
    """The producer of one partition: it begins, sends for half a second, and commits, or aborts what failed.

    After ``stopping`` it commits one more transaction, which shows that it has recovered (``recovered``).
    """

    def __init__(self, servers: str, tp: TopicPartition, stopping: threading.Event) -> None:
        super().__init__(daemon=True)
        self.tp: Final = tp
        self.transactions: list[Transaction] = []
        self.ended_by: BaseException | None = None
        self.recovered = False
        self.given_up = threading.Event()
        self._stopping = stopping
        self._numbers = 0
        self._options = {"bootstrap.servers": servers, "transactional.id": str(tp), **OPTIONS}
        self.start()

    def run(self) -> None:
        try:
            with Producer(self._options) as producer:
                _until_known(lambda: producer.init_transactions(timeout_ms=_CALL_MS))
                while not self.recovered and not self.given_up.is_set():
                    after = self._stopping.is_set()
                    self.recovered = self._transact(producer) and after
        except Exception as error:  # noqa: BLE001 - no error may end a producer; verified afterwards
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
                producer.send_batch(self.tp, make_batch(self.tp, transaction.numbers[-1], _SIZE))
            _until_known(lambda: producer.commit_transaction(timeout_ms=_CALL_MS))
            transaction.committed = True
        except NeedsAbort as error:
            transaction.why = f"{type(error.__cause__).__name__}: {error.__cause__}"
            _until_known(lambda: producer.abort_transaction(timeout_ms=_CALL_MS))
            transaction.committed = False
        transaction.ended_ms = now_ms()
        return transaction.committed


def _until_known(call: Callable[[], None]) -> None:
    """Repeat ``call``, which joins the call that timed out, until its outcome is known."""
    until = time.monotonic() + _SETTLED_S
    while True:
        try:
            call()
        except KafkaTimeout:
            if time.monotonic() > until:
                raise
        else:
            return


def transaction_findings(worker: Worker, log: Sequence[Found]) -> list[str]:
    """Check that each committed transaction of a partition is in the log once, complete and in order."""
    wrong = []
    if worker.ended_by is not None:
        wrong.append(f"its producer ended with {type(worker.ended_by).__name__}: {worker.ended_by}")
    wanted = [number for one in worker.transactions if one.committed for number in one.numbers]
    found = [one.number for one in log]
    if found != wanted:
        lost, more = sorted(set(wanted) - set(found)), sorted(set(found) - set(wanted))
        duplicated = len(found) - len(set(found))
        wrong.append(
            f"{len(wanted)} committed batches, {len(found)} in the log: lost {lost[:_MAX_SHOWN]}, not committed"
            f" {more[:_MAX_SHOWN]}, {duplicated} duplicated, {'in' if found == sorted(found) else 'out of'} order"
        )
    return [f"{worker.tp}: {text}" for text in wrong]


@dataclass(slots=True)
class TransactionalRun:
    """The result of a run: ``wrong`` are the findings, ``figures`` the measurements."""

    wrong: list[str]
    figures: dict[str, Any]


def run_transactions(cluster: SoakCluster, fault: BrokerFault, *, seconds: float, rest_s: float) -> TransactionalRun:
    """Do the same as ``run.run`` with a transactional producer for each partition."""
    partitions = [tp for min_in_sync in (1, 2) for tp in cluster.create(fault.assignment, min_in_sync)]
    servers = cluster.proxy.bootstrap_servers if fault.proxied else cluster.servers
    stopping = threading.Event()
    workers = [Worker(servers, tp, stopping) for tp in partitions]
    try:
        windows = inject_repeatedly(cluster, fault, seconds, rest_s)
    finally:
        stopping.set()
        _end(workers)
    wrong = [
        f"{one.tp}: a call of its producer did not return in {_SETTLED_S:.0f} s" for one in workers if one.is_alive()
    ]
    wrong += [
        f"{one.tp}: no transaction was committed after the fault; the last: {one.transactions[-1:]}"
        for one in workers
        if not one.recovered
    ]
    cluster.recover()
    logs = read_logs(cluster.servers, partitions, committed=True)
    for worker in workers:
        wrong += transaction_findings(worker, logs[worker.tp])
    cluster.delete({tp.topic for tp in partitions})
    return TransactionalRun(wrong, _figures(workers, len(windows.spans)))


def _end(workers: Sequence[Worker]) -> None:
    """Wait until each worker has committed once more, and have the others give up."""
    for wait_s in (_SETTLED_S, OPTIONS["delivery.timeout.ms"] / 1000):
        until = time.monotonic() + wait_s
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
