"""Random source topics: writes of several producers, concurrent transactions, and deletions of records."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Self

from confluent_kafka import TIMESTAMP_CREATE_TIME
from hypothesis import strategies as st

from mirror.client import Producer, TopicPartition
from mirror.relay.batches.reencode import ReencodeReason
from mirror.relay.model.ranges import RangeResult
from mirror.wire.encode import CODECS
from tests.copying.pair import TwoClusters, same
from tests.copying.site import name
from tests.copying.writers import Made, batch_of
from tests.e2e.broker_side import FIRST_MS, WITHIN_S

PARTITIONS: Final = 2
PLAIN: Final = 0
"""The producer without transactions; the others have them."""
WRITERS: Final = 3
_SMALL_LIMIT: Final = 3_000
_MOST_VALUE: Final = 1_500


@dataclass(frozen=True)
class Write:
    """One batch of ``records``, repeated ``times`` times; ``codec`` is an index into the plan's."""

    partition: int
    writer: int
    codec: int
    records: list[Made]
    times: int


@dataclass(frozen=True)
class End:
    """The end of a writer's transaction, if it has one."""

    writer: int
    commit: bool


@dataclass(frozen=True)
class Delete:
    """DeleteRecords up to this part of the present log."""

    partition: int
    thousandths: int


@dataclass(frozen=True)
class Plan:
    """What happens to a topic, and how it is copied in the end."""

    steps: list[Write | End | Delete]
    codecs: list[str]
    log_append_time: bool
    small_target: bool
    exactly_once: bool
    batch_size: int
    rest: list[bool] = field(default_factory=list)
    """Whether the transactions that are open during the first copy are committed afterwards."""


_texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
_bytes = st.none() | st.binary(max_size=20) | st.integers(0, _MOST_VALUE).map(lambda size: b"mirror. " * (size // 8))
_headers = st.lists(st.tuples(_texts, st.none() | st.binary(max_size=20)), max_size=3).map(tuple)
_records = st.builds(
    Made,
    st.none() | st.binary(max_size=10),
    _bytes,
    _headers,
    st.integers(0, 10**9).map(lambda later: FIRST_MS + later) | st.integers(0, 10**6),
)
# Mostly in one partition by one writer, so that small batches are neighbours.
_partitions = st.sampled_from([0, 0, 0, 1])
_writers = st.sampled_from([PLAIN, PLAIN, PLAIN, 1, 2])
_writes = st.builds(
    Write,
    _partitions,
    _writers,
    st.integers(0, 1),
    st.lists(_records, min_size=1, max_size=4),
    st.sampled_from([1, 1, 1, 2, 10, 200]),
)
plans: Final = st.builds(
    Plan,
    st.lists(
        st.one_of(
            *[_writes] * 6,
            st.builds(End, st.integers(1, WRITERS - 1), st.booleans()),
            st.builds(Delete, _partitions, st.integers(0, 1_000)),
        ),
        min_size=8,
        max_size=24,
    ),
    st.lists(st.sampled_from(list(CODECS)), min_size=1, max_size=2),
    st.sampled_from([False, False, True]),
    st.sampled_from([False, False, True]),
    st.booleans(),
    st.sampled_from([1, 16_384, 262_144]),
    st.lists(st.booleans(), min_size=WRITERS, max_size=WRITERS),
)


class Writers:
    """A producer without transactions and two with them, which all plans share. A context manager."""

    def __init__(self, servers: str) -> None:
        self._stack = contextlib.ExitStack()
        ids = [None, *(name("writer") for _ in range(WRITERS - 1))]
        self._producers = [self._producer({"bootstrap.servers": servers}, own_id) for own_id in ids]
        self._open: set[int] = set()

    def _producer(self, options: dict[str, Any], transactional_id: str | None) -> Producer:
        if transactional_id is None:
            return self._stack.enter_context(Producer(options))
        producer = self._stack.enter_context(Producer({**options, "transactional.id": transactional_id}))
        producer.init_transactions()
        return producer

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def write(self, topic: str, step: Write, codec: str) -> None:
        """Write a batch, and wait until it is in the log."""
        producer = self._producers[step.writer]
        if step.writer != PLAIN and step.writer not in self._open:
            producer.begin_transaction()
            self._open.add(step.writer)
        batch = batch_of(step.records * step.times, codec)
        producer.send_batch(TopicPartition(topic, step.partition), batch).result(timeout=WITHIN_S)

    def end(self, step: End) -> None:
        """End the writer's transaction; do nothing if none is open."""
        if step.writer in self._open:
            self._open.discard(step.writer)
            producer = self._producers[step.writer]
            (producer.commit_transaction if step.commit else producer.abort_transaction)()

    @contextlib.contextmanager
    def topic(self) -> Iterator[None]:
        """Abort the transactions that are still open at the end of the block."""
        try:
            yield
        finally:
            for writer in list(self._open):
                self.end(End(writer, commit=False))


def play(pair: TwoClusters, writers: Writers, plan: Plan) -> list[RangeResult]:
    """Write, copy up to the last stable offsets, end open transactions, and copy the rest; compare after each copy."""
    topic = pair.topics(
        PARTITIONS,
        source={"message_timestamp_type": "LogAppendTime" if plan.log_append_time else "CreateTime"},
        target={"max_message_bytes": _SMALL_LIMIT} if plan.small_target else {},
    )
    with writers.topic():
        for step in plan.steps:
            match step:
                case Write():
                    writers.write(topic, step, plan.codecs[step.codec % len(plan.codecs)])
                case End():
                    writers.end(step)
                case Delete():
                    end = pair.source.end(topic, step.partition)
                    pair.source.delete_records(topic, end * step.thousandths // 1_000, step.partition)
        results = _copied(pair, topic, plan)
        for writer, commit in enumerate(plan.rest):
            writers.end(End(writer, commit))
    pair.source.await_stable(topic, PARTITIONS)
    results += _copied(pair, topic, plan)
    if plan.batch_size == 1 and not (plan.small_target or plan.log_append_time):
        same_bytes(pair, topic)
    return results


def _copied(pair: TwoClusters, topic: str, plan: Plan) -> list[RangeResult]:
    ranges = pair.ranges(topic)
    results = pair.complete(ranges, exactly_once=plan.exactly_once, writing={"batch.size": plan.batch_size})
    target = pair.target.logs(topic, PARTITIONS)
    for copied, result, source in zip(ranges, results, pair.source.logs(topic, PARTITIONS), strict=True):
        # Commit markers may be written after the answer: more may be stable now than when the copy was planned.
        expected = [seen._replace(kind=TIMESTAMP_CREATE_TIME) for offset, seen in source if offset < copied.end]
        same([seen for _, seen in target[copied.partition]], expected, f"partition {copied.partition}")
        assert result.records <= len(expected)
        possible = {ReencodeReason.TRIMMED, ReencodeReason.SMALL}
        if plan.log_append_time:
            possible.add(ReencodeReason.APPEND_TIME)
        if plan.small_target:
            possible.add(ReencodeReason.TOO_LARGE)
        assert set(result.deep) <= possible - ({ReencodeReason.SMALL} if plan.batch_size == 1 else set())
    return results


def same_bytes(pair: TwoClusters, topic: str) -> None:
    """Assert that batches were passed on as bytes, except for the first, of which records may have been deleted."""
    for partition in range(PARTITIONS):
        theirs, ours = pair.source.payloads(topic, partition), pair.target.payloads(topic, partition)
        assert len(ours) == len(theirs)
        assert ours[1:] == theirs[1:]
