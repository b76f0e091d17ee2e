"""read_committed: which batches belong to aborted transactions, against an oracle that knows each one's fate."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from mirror.cluster.types import TopicPartition
from mirror.consumer.fetched import Fetched, without_aborted
from mirror.wire.messages.fetch import AbortedTransaction
from mirror.wire.records import TRANSACTIONAL
from tests.fakes.client import FakeConsumer
from tests.fakes.cluster import FakeCluster
from tests.fakes.log import PartitionLog
from tests.fakes.record_batches import values_of

_T0 = TopicPartition("t", 0)


@dataclass(slots=True)
class _History:
    """A log made of interleaved transactions, and what became of each value."""

    log: PartitionLog
    committed: list[bytes] = field(default_factory=list)
    aborted: list[bytes] = field(default_factory=list)
    order: list[bytes] = field(default_factory=list)
    open: dict[int, list[bytes]] = field(default_factory=dict)

    def do(self, producer: int, what: str) -> None:
        value = b"%d" % len(self.order)
        if what == "plain":
            self.log.append_values(value)
            self.committed.append(value)
            self.order.append(value)
        elif what == "write":
            self.log.append_values(value, attributes=TRANSACTIONAL, producer_id=producer)
            self.open.setdefault(producer, []).append(value)
            self.order.append(value)
        else:
            values = self.open.pop(producer, [])
            self.log.end_transaction(producer, commit=what == "commit")
            (self.committed if what == "commit" else self.aborted).extend(values)


_HISTORIES = st.lists(
    st.tuples(st.integers(1, 4), st.sampled_from(["write", "write", "write", "plain", "commit", "abort"])), max_size=40
)


def _make(history: list[tuple[int, str]], log: PartitionLog) -> _History:
    made = _History(log)
    for producer, what in history:
        made.do(producer, what)
    return made


def _kept(fetched: list[Fetched]) -> list[bytes]:
    return [
        value
        for one in fetched
        for batch, aborted in without_aborted(one.batches, one.aborted)
        if not aborted and not batch.is_control
        for value in values_of(batch.view)
    ]


@given(_HISTORIES, st.data())
def test_without_aborted_keeps_what_was_committed(history: list[tuple[int, str]], data: st.DataObject) -> None:
    """From any offset on, in answers of any size: each answer's own list of aborted transactions is enough."""
    made = _make(history, PartitionLog(1))
    log = made.log
    batches, limit = log.batches(), log.last_stable_offset
    start = offset = data.draw(st.integers(0, log.end_offset))
    kept: list[bytes] = []
    while offset < limit:
        one = Fetched(tp=_T0, offset=offset, next_offset=offset)
        count = data.draw(st.integers(1, 6))
        one.batches = [b for b in batches if offset < b.next_offset <= limit][:count]
        offset = one.batches[-1].next_offset
        one.aborted = tuple(
            AbortedTransaction(a.producer_id, a.first_offset)
            for a in log.aborted_between(one.batches[0].base_offset, offset)
        )
        kept += _kept([one])
    stable = {value: b for b in batches if b.next_offset <= limit and not b.is_control for value in values_of(b.view)}
    wanted = [v for v in made.order if v in made.committed and v in stable and stable[v].next_offset > start]
    assert kept == wanted


@given(_HISTORIES, st.integers(300, 2_000))
def test_a_consumer_reads_committed_records_only(history: list[tuple[int, str]], partition_bytes: int) -> None:
    cluster = FakeCluster()
    cluster.add_topic("t")
    made = _make(history, cluster.log("t"))
    consumer = FakeConsumer(cluster, **{"max.partition.fetch.bytes": partition_bytes})
    consumer.read((_T0, 0))
    fetched: list[Fetched] = []
    while more := consumer.poll(1_000):
        fetched += more
    stable = made.log.last_stable_offset
    seen = [
        value for b in made.log.batches() if b.next_offset <= stable and not b.is_control for value in values_of(b.view)
    ]
    assert _kept(fetched) == [value for value in made.order if value in made.committed and value in seen]
    assert (fetched[-1].next_offset if fetched else 0) == stable


def test_read_uncommitted_sees_everything() -> None:
    cluster = FakeCluster()
    cluster.add_topic("t")
    made = _make([(1, "write"), (2, "write"), (2, "abort"), (1, "write"), (3, "plain")], cluster.log("t"))
    consumer = FakeConsumer(cluster, **{"isolation.level": "read_uncommitted"})
    consumer.read((_T0, 0))
    assert _kept(consumer.poll()) == made.order


def test_an_open_transaction_holds_back_what_follows_until_it_ends() -> None:
    cluster = FakeCluster()
    cluster.add_topic("t")
    made = _make([(3, "plain"), (1, "write"), (3, "plain")], cluster.log("t"))
    consumer = FakeConsumer(cluster)
    consumer.read((_T0, 0))
    assert _kept(consumer.poll()) == [b"0"]
    assert consumer.poll(2_000) == []
    made.do(1, "abort")
    assert _kept(consumer.poll()) == [b"2"]
