"""Two logs of one partition by hand, and their comparison."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NamedTuple

from aiokafka.record.default_records import DefaultRecordBatchBuilder

from mirror.consumer.fetched import Fetched
from mirror.verify.comparison import Comparison
from mirror.verify.values import Bounds, Difference, Kind, Rules, Verdict
from mirror.wire.encode import CODECS
from mirror.wire.messages.fetch import AbortedTransaction
from mirror.wire.records import AnyBatch, Batch
from tests.fakes.record_batches import appended_at, stamped
from tests.fakes.record_batches import batch as batch_in
from tests.relay.batches.logs_by_hand import TP, Made, batch_at

TARGET_BASE = 1_000
"""The target offset of the record at source offset 0."""
RECORDS = 200
SOURCE_PRODUCER, COPY_PRODUCER = (7, 0, 0), (4001, 3, 0)


GONE = (41, 44, 47)
"""Of the records that :func:`tests.verify.harmless_logs.compactable` makes, some that compaction may remove."""
TARGET_COMPACT, SOURCE_COMPACT = Rules(target_compacted=True), Rules(source_compacted=True)


class Found(NamedTuple):
    """What is to be found, with offsets in the logs."""

    kind: Kind
    source: int
    target: int
    records: int = 1
    parts: tuple[str, ...] = ()


def found_in(differences: Iterable[Difference]) -> list[Found]:
    return [Found(one.kind, one.source_offset, one.target_offset, one.count, one.parts) for one in differences]


def numbered(number: int) -> Made:
    headers = (("trace", b"t%d" % number), ("type", b"order"))
    return Made(b"key-%d" % number, b"value of the record %d " % number * 3, headers, 1_700_000_000_000 + 7 * number)


def by_tens(records: Sequence[Made]) -> list[list[Made]]:
    """The batches of a log whose records begin a new batch with every tenth number."""
    batches: list[list[Made]] = []
    for record in records:
        number = (record.key or b"").rpartition(b"-")[2]
        if not batches or (number.isdigit() and int(number) % 10 == 0):
            batches.append([])
        batches[-1].append(record)
    return batches


def by_sevens(records: Sequence[Made]) -> list[list[Made]]:
    return [list(records[at : at + 7]) for at in range(0, len(records), 7)]


def log_of(
    batches: Iterable[Sequence[Made]],
    at: int = 0,
    *,
    codec: str = "lz4",
    producer: tuple[int, int, int] = SOURCE_PRODUCER,
    epoch: int = 0,
    transactional: bool = False,
    append_time_ms: int | None = None,
) -> list[AnyBatch]:
    log: list[AnyBatch] = []
    for records in batches:
        log.append(
            batch_at(
                at,
                records,
                codec=codec,
                epoch=epoch,
                producer=producer,
                transactional=transactional,
                append_time_ms=append_time_ms,
            )
        )
        at += len(records)
    return log


def compacted(
    batch: Sequence[tuple[int, Made]],
    at: int,
    last: int,
    *,
    codec: int = CODECS["lz4"],
    append_time_ms: int | None = None,
) -> Batch:
    """What compaction leaves of a batch: ``(offset, record)``; the batch keeps its ``last`` offset."""
    builder = DefaultRecordBatchBuilder(2, codec, False, -1, -1, -1, 2**20)
    for offset, (key, value, headers, time_ms) in batch:
        builder.append(offset - at, time_ms, key, value, list(headers))
    made = Batch(memoryview(builder.build()))
    made.view[23:27] = (last - at).to_bytes(4, "big")
    made.stamp_crc()
    made.patch(*SOURCE_PRODUCER)
    kept = stamped(made.view, at, 0)
    return batch_in(kept if append_time_ms is None else appended_at(kept, append_time_ms))


def fetches_of(
    log: Sequence[AnyBatch], aborted: Sequence[AbortedTransaction] = (), *, per_fetch: int = 6
) -> list[Fetched]:
    """Responses with some batches each."""
    parts = [log[at : at + per_fetch] for at in range(0, len(log), per_fetch)]
    return [
        Fetched(
            tp=TP,
            offset=part[0].base_offset,
            next_offset=part[-1].next_offset,
            batches=list(part),
            aborted=tuple(one for one in aborted if one.first_offset < part[-1].next_offset),
        )
        for part in parts
    ]


def verdict_of(
    source: Sequence[AnyBatch],
    target: Sequence[AnyBatch],
    rules: Rules | None = None,
    *,
    source_aborted: Sequence[AbortedTransaction] = (),
    target_aborted: Sequence[AbortedTransaction] = (),
    per_fetch: int = 6,
    bounds: Callable[[Bounds], Bounds] = lambda bounds: bounds,
) -> Verdict:
    """Compare two logs, by default from their beginning to their end."""
    whole = Bounds(
        source_start=0,
        source_end=source[-1].next_offset if source else 0,
        target_start=TARGET_BASE,
        target_end=target[-1].next_offset if target else TARGET_BASE,
    )
    return compare(
        fetches_of(source, source_aborted, per_fetch=per_fetch),
        fetches_of(target, target_aborted, per_fetch=per_fetch),
        bounds(whole),
        rules or Rules(),
    )


def copied(
    batches: Iterable[Sequence[Made]],
    at: int = TARGET_BASE,
    *,
    codec: str = "lz4",
    append_time_ms: int | None = None,
) -> list[AnyBatch]:
    """The target's log, as a copy writes it."""
    return log_of(batches, at, codec=codec, producer=COPY_PRODUCER, append_time_ms=append_time_ms)


def found_between(source: Sequence[Made], target: Sequence[Made], rules: Rules) -> list[Found]:
    """What is found between two lists of records; target offsets are from 0 here."""
    verdict = verdict_of(log_of(by_tens(source)), copied(by_tens(target)), rules)
    return [one._replace(target=one.target - TARGET_BASE) for one in found_in(verdict.differences)]


def compare(source: Collection[Fetched], target: Collection[Fetched], bounds: Bounds, rules: Rules) -> Verdict:
    """Return what the comparison of one partition comes to; see :meth:`Comparison.run`."""
    return Comparison(source, target, bounds, rules, (source, target)).run()
