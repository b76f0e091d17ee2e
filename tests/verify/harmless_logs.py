"""Harmless differences between logs: batches, markers, compaction, timestamps, and where they begin and end."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from mirror.verify.values import Bounds, Named, Rules
from mirror.wire.messages.fetch import AbortedTransaction
from mirror.wire.records import AnyBatch
from tests.fakes.record_batches import ABORT, COMMIT
from tests.relay.batches.logs_by_hand import Made, batch_at, marker_at, old_set_at
from tests.verify.damages import FOREIGN, source_records
from tests.verify.harmless import Harmless, Logs
from tests.verify.logs import RECORDS, TARGET_BASE, by_sevens, by_tens, compacted, copied, log_of, numbered


def _whole() -> list[list[Made]]:
    return by_tens(source_records())


def _other_epochs() -> Logs:
    target = [batch_at(TARGET_BASE + 10 * n, part, codec="lz4", epoch=n) for n, part in enumerate(_whole())]
    return log_of(_whole()), target


def _spaced(batches: Sequence[Sequence[Made]], at: int, between: Callable[[int], list[AnyBatch]]) -> list[AnyBatch]:
    """A log with other batches behind each of its own."""
    log: list[AnyBatch] = []
    for number, records in enumerate(batches):
        log.append(batch_at(at, records, codec="lz4", producer=(11, 0, 10 * number), transactional=True))
        others = between(at + len(records))
        log += others
        at = others[-1].next_offset if others else at + len(records)
    return log


def _markers(at: int) -> list[AnyBatch]:
    return [marker_at(at, 11, 0, COMMIT)]


def _aborted_between(at: int) -> list[AnyBatch]:
    """A batch of another producer, and its abort."""
    return [
        marker_at(at, 11, 0, COMMIT),
        batch_at(at + 1, [FOREIGN] * 3, producer=(99, 0, 0), transactional=True),
        marker_at(at + 4, 99, 0, ABORT),
    ]


def aborts(log: Sequence[AnyBatch]) -> tuple[AbortedTransaction, ...]:
    return tuple(
        AbortedTransaction(producer_id=99, first_offset=batch.base_offset)
        for batch in log
        if batch.producer_id == 99 and not batch.is_control
    )


SOURCE_ABORTS = _spaced(_whole(), 0, _aborted_between)
_TARGET_ABORTS = _spaced(_whole(), TARGET_BASE, _aborted_between)


def newer(number: int) -> Made:
    """A later record with the key of that number."""
    return numbered(number)._replace(value=b"newer", time_ms=numbered(RECORDS).time_ms)


GONE = (41, 44, 47)


def compactable() -> list[Made]:
    """Records of which the last ones supersede some."""
    return [numbered(n) for n in range(RECORDS)] + [newer(n) for n in GONE]


def compacted_log(at: int, gone: Collection[int], records: Sequence[Made], **options: int | None) -> list[AnyBatch]:
    log: list[AnyBatch] = []
    for start in range(0, len(records), 10):
        stop = min(start + 10, len(records))
        left = [(at + n, records[n]) for n in range(start, stop) if n not in gone]
        log.append(compacted(left, at + start, at + stop - 1, **options))  # type: ignore[arg-type] # its own
    return log


def _renumbered(gone: Sequence[int], records: Sequence[Made]) -> list[Made]:
    return [record for n, record in enumerate(records) if n not in gone]


def _tombstones() -> list[Made]:
    """Values that are deleted later: compaction removes them, and the deletions in time."""
    records = compactable()
    records[-3:] = [record._replace(value=None) for record in records[-3:]]
    return records


def _both_compacted() -> Logs:
    records = [*compactable(), *(newer(n)._replace(value=b"newest") for n in GONE)]
    return compacted_log(0, GONE, records), compacted_log(TARGET_BASE, (*GONE, RECORDS, RECORDS + 1), records)


def _emptied() -> Logs:
    """A whole batch of which compaction has left nothing but its header."""
    records = [numbered(n) for n in range(RECORDS)] + [newer(n) for n in range(40, 50)]
    return compacted_log(0, range(40, 50), records), copied([list(records)])


def _old_formats() -> Logs:
    records = [one._replace(headers=()) for one in source_records()]
    source = [old_set_at(10 * n, part, magic=1) for n, part in enumerate(by_tens(records))]
    return source, copied(by_sevens(records))


def _oldest_formats() -> Logs:
    records = [one._replace(headers=(), time_ms=-1) for one in source_records()]
    source = [old_set_at(10 * n, part, magic=0) for n, part in enumerate(by_tens(records))]
    return source, copied(by_sevens(records))


def _mixed_formats() -> Logs:
    records = [one._replace(headers=()) for one in source_records()]
    parts = by_tens(records)
    old = [old_set_at(10 * n, part, magic=1) for n, part in enumerate(parts[:10])]
    return [*old, *log_of(parts[10:], 100)], copied(parts)


def _append_time_target() -> Logs:
    return log_of(_whole()), copied(_whole(), append_time_ms=77)


def _append_time_target_merged() -> Logs:
    return log_of(_whole()), copied(by_sevens(source_records()), append_time_ms=77)


def _append_time_both() -> Logs:
    return log_of(_whole(), append_time_ms=66), copied(_whole(), append_time_ms=77)


def _append_time_source() -> Logs:
    """The time at which the source's broker got them became each record's own."""
    records = [record._replace(time_ms=66) for record in source_records()]
    return log_of(_whole(), append_time_ms=66), copied(by_tens(records))


def others_in_source() -> Logs:
    """A flow of the other direction has written every third batch to the source."""
    parts = _whole()
    source: list[AnyBatch] = []
    for number, part in enumerate(parts):
        producer = (500, 0, 0) if number % 3 == 0 else _LOCAL
        source.append(batch_at(10 * number, part, codec="lz4", producer=producer))
    return source, copied([part for number, part in enumerate(parts) if number % 3])


_LOCAL = (8, 0, 0)


def is_of_flow(batch: AnyBatch) -> bool:
    return batch.producer_id == 500


def _halves() -> Logs:
    """The progress is within a source batch: the copy had cut it."""
    return log_of(_whole()), copied(by_tens(source_records()[: RECORDS - 5]))


def _trimmed_source() -> Logs:
    records = source_records()
    return log_of(by_tens(records[100:]), 100), copied(by_tens(records))


def trimmed_target() -> Logs:
    records = source_records()
    return log_of(by_tens(records)), copied(by_tens(records[100:]), TARGET_BASE + 100)


def _gapped_target() -> Logs:
    return log_of(_whole()), _spaced(by_sevens(source_records()), TARGET_BASE, _markers)


def _large_records() -> Logs:
    records = [Made(b"%d" % n, bytes([n]) * 300_000, (), n) for n in range(20)]
    return log_of([[one] for one in records]), copied([records[:9], records[9:]])


def _nothing() -> Logs:
    return [], []


def _only_markers() -> Logs:
    source = [marker_at(0, 11, 0, COMMIT), marker_at(1, 11, 0, ABORT)]
    return source, [marker_at(TARGET_BASE, 4001, 3, COMMIT)]


def _ends_at(source_end: int) -> Callable[[Bounds], Bounds]:
    return lambda bounds: replace(bounds, source_end=source_end)


def _from(source_start: int, target_start: int, **trimmed: bool) -> Callable[[Bounds], Bounds]:
    return lambda bounds: replace(bounds, source_start=source_start, target_start=target_start, **trimmed)


def _withheld(bounds: Bounds) -> Bounds:
    return replace(bounds, target_end=TARGET_BASE + 150, withheld=True)


_BOTH_COMPACT = Rules(source_compacted=True, target_compacted=True)
_SOURCE_COMPACT = Rules(source_compacted=True)
_TARGET_COMPACT = Rules(target_compacted=True)

LOG_CASES = [
    Harmless("other leader epochs", _other_epochs),
    Harmless(
        "markers in the source", lambda: (_spaced(_whole(), 0, _markers), copied(_whole())), named={Named.MARKERS: 20}
    ),
    Harmless("markers in the target", lambda: (log_of(_whole()), _spaced(_whole(), TARGET_BASE, _markers))),
    Harmless("markers between other batches", _gapped_target),
    Harmless(
        "markers on both sides", lambda: (_spaced(_whole(), 0, _markers), _spaced(_whole(), TARGET_BASE, _markers))
    ),
    Harmless("nothing but markers", _only_markers),
    Harmless("empty logs", _nothing),
    Harmless(
        "aborted transactions in the source",
        lambda: (SOURCE_ABORTS, copied(_whole())),
        source_aborted=aborts(SOURCE_ABORTS),
        named={Named.ABORTED: 20},
    ),
    Harmless(
        "aborted transactions in the target",
        lambda: (log_of(_whole()), _TARGET_ABORTS),
        target_aborted=aborts(_TARGET_ABORTS),
        named={Named.ABORTED: 20},
    ),
    Harmless(
        "aborted transactions on both sides",
        lambda: (SOURCE_ABORTS, _TARGET_ABORTS),
        source_aborted=aborts(SOURCE_ABORTS),
        target_aborted=aborts(_TARGET_ABORTS),
        per_fetch=1,
    ),
    Harmless("responses of one batch", lambda: (log_of(_whole()), copied(_whole())), per_fetch=1),
    Harmless(
        "a source that was compacted before it was copied",
        lambda: (compacted_log(0, GONE, compactable()), copied([_renumbered(GONE, compactable())])),
        _BOTH_COMPACT,
    ),
    Harmless(
        "a source that was compacted after it was copied",
        lambda: (compacted_log(0, GONE, compactable()), copied(by_tens(compactable()))),
        _SOURCE_COMPACT,
        {Named.SOURCE_COMPACTED: 3},
    ),
    Harmless(
        "a target that was compacted",
        lambda: (log_of(by_tens(compactable())), compacted_log(TARGET_BASE, GONE, compactable())),
        _TARGET_COMPACT,
        {Named.TARGET_COMPACTED: 3},
    ),
    Harmless("both sides compacted, the target further", _both_compacted, _BOTH_COMPACT, {Named.TARGET_COMPACTED: 2}),
    Harmless("an emptied batch", _emptied, _SOURCE_COMPACT, {Named.SOURCE_COMPACTED: 10}),
    Harmless(
        "deleted values, removed from the target",
        lambda: (log_of(by_tens(_tombstones())), compacted_log(TARGET_BASE, GONE, _tombstones())),
        _TARGET_COMPACT,
        {Named.TARGET_COMPACTED: 3},
    ),
    Harmless(
        "deletions, removed from the target with their values",
        lambda: (
            log_of(by_tens([*_tombstones(), numbered(900)])),
            compacted_log(TARGET_BASE, (*GONE, 200, 201, 202), [*_tombstones(), numbered(900)]),
        ),
        _TARGET_COMPACT,
        {Named.TARGET_COMPACTED: 6},
    ),
    Harmless(
        "deletions, removed from the source with their values",
        lambda: (
            compacted_log(0, (*GONE, 200, 201, 202), [*_tombstones(), numbered(900)]),
            copied(by_tens([*_tombstones(), numbered(900)])),
        ),
        _SOURCE_COMPACT,
        {Named.SOURCE_COMPACTED: 6},
    ),
    Harmless(
        "a record that is superseded by one that is not copied yet",
        lambda: (compacted_log(0, GONE, compactable()), copied(by_tens(compactable()[:RECORDS]))),
        _SOURCE_COMPACT,
        {Named.SOURCE_COMPACTED: 3},
        bounds=_ends_at(RECORDS),
        ends=(RECORDS, TARGET_BASE + RECORDS),
    ),
    Harmless("message sets of format 1", _old_formats),
    Harmless("message sets of format 0", _oldest_formats),
    Harmless("message sets and batches", _mixed_formats),
    Harmless("times of the target's brokers", _append_time_target, named={Named.APPEND_TIME: RECORDS}),
    Harmless(
        "times of the target's brokers, in other batches",
        _append_time_target_merged,
        named={Named.APPEND_TIME: RECORDS},
    ),
    Harmless("times of the brokers on both sides", _append_time_both, named={Named.APPEND_TIME: RECORDS}),
    Harmless("times of the source's brokers", _append_time_source),
    Harmless("batches of flows in the source", others_in_source, Rules(is_left_out=is_of_flow), {Named.NOT_LOCAL: 7}),
    Harmless("records of 300 KB", _large_records),
    Harmless(
        "a progress within a batch",
        _halves,
        bounds=_ends_at(RECORDS - 5),
        ends=(RECORDS - 5, TARGET_BASE + RECORDS - 5),
    ),
    Harmless(
        "a copy that is running",
        lambda: (log_of(_whole()), copied(_whole())),
        bounds=_ends_at(120),
        ends=(120, TARGET_BASE + 120),
    ),
    Harmless(
        "a copy that is running, in other batches",
        lambda: (log_of(_whole()), copied(by_sevens(source_records()))),
        bounds=_ends_at(123),
        ends=(123, TARGET_BASE + 123),
    ),
    Harmless(
        "a start within batches",
        lambda: (log_of(_whole()), copied(by_sevens(source_records()))),
        bounds=_from(33, TARGET_BASE + 33),
    ),
    Harmless(
        "a source that begins later",
        _trimmed_source,
        bounds=_from(100, TARGET_BASE, source_trimmed=True),
        uncompared=(("target", TARGET_BASE, TARGET_BASE + 100),),
    ),
    Harmless(
        "a source that begins later than the window reaches",
        _trimmed_source,
        Rules(window=16),
        bounds=_from(100, TARGET_BASE, source_trimmed=True),
        uncompared=(("target", TARGET_BASE, TARGET_BASE + 100),),
    ),
    Harmless(
        "a target that begins later",
        trimmed_target,
        bounds=_from(0, TARGET_BASE + 100, target_trimmed=True),
        uncompared=(("source", 0, 100),),
    ),
    Harmless(
        "a target that begins later than the window reaches",
        trimmed_target,
        Rules(window=16),
        bounds=_from(0, TARGET_BASE + 100, target_trimmed=True),
        uncompared=(("source", 0, 100),),
    ),
    Harmless(
        "records behind an open transaction of the target",
        lambda: (log_of(_whole()), copied(_whole())),
        bounds=_withheld,
        ends=(150, TARGET_BASE + 150),
        uncompared=(("source", 150, RECORDS),),
    ),
]
