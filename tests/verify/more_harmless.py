"""More differences that are none: transactions, producers, repetitions, retention, and records of others."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

from mirror.verify.values import Bounds, Named, Rules
from mirror.wire.messages.fetch import AbortedTransaction
from mirror.wire.records import AnyBatch
from tests.fakes.record_batches import ABORT, COMMIT
from tests.relay.batches.logs_by_hand import Made, batch_at, marker_at, old_set_at
from tests.verify.damages import FOREIGN, source_records
from tests.verify.harmless import Harmless, Logs
from tests.verify.harmless_logs import GONE, compactable, compacted_log, newer
from tests.verify.logs import RECORDS, TARGET_BASE, by_sevens, by_tens, copied, log_of, numbered

_CODECS = ("none", "gzip", "lz4", "snappy", "zstd")
_AT_LEAST_ONCE, _SHARED = Rules(repeats_allowed=True), Rules(foreign_allowed=True)
_BOTH_COMPACT = Rules(source_compacted=True, target_compacted=True)


def _whole() -> list[list[Made]]:
    return by_tens(source_records())


def _target(records: Sequence[Made]) -> Logs:
    return log_of(_whole()), copied(by_sevens(records))


def _other_producers() -> Logs:
    batches = [
        batch_at(TARGET_BASE + 10 * number, part, codec="lz4", producer=(9_000 + number, number, 77 * number))
        for number, part in enumerate(_whole())
    ]
    return log_of(_whole()), batches


def _no_producer() -> Logs:
    return log_of(_whole(), producer=(-1, -1, -1)), copied(_whole())


def _transactional_source() -> Logs:
    return log_of(_whole(), transactional=True), copied(_whole())


def _a_codec_each() -> Logs:
    at, target = TARGET_BASE, list[AnyBatch]()
    for part, codec in zip(_whole(), itertools.cycle(_CODECS), strict=False):
        target.append(batch_at(at, part, codec=codec, producer=(4001, 3, 0)))
        at += len(part)
    return log_of(_whole()), target


def _interleaved() -> tuple[list[AnyBatch], tuple[AbortedTransaction, ...]]:
    """Two producers' transactions at the same time, one of which is aborted at the end."""
    log: list[AnyBatch] = []
    for number, part in enumerate(_whole()):
        at = 11 * number
        log.append(batch_at(at, part, codec="lz4", producer=(11, 0, 10 * number), transactional=True))
        log.append(batch_at(at + 10, [FOREIGN], producer=(99, 0, number), transactional=True))
    log += [marker_at(220, 11, 0, COMMIT), marker_at(221, 99, 0, ABORT)]
    return log, (AbortedTransaction(producer_id=99, first_offset=10),)


_INTERLEAVED, _INTERLEAVED_ABORTED = _interleaved()


def _only_aborted() -> Logs:
    return [batch_at(0, [FOREIGN] * 3, producer=(99, 0, 0), transactional=True), marker_at(3, 99, 0, ABORT)], []


def _source_emptied() -> Logs:
    return [], copied(_whole())


def _all_deleted_from_source(bounds: Bounds) -> Bounds:
    return replace(bounds, source_start=RECORDS, source_end=RECORDS, source_trimmed=True)


def _both_trimmed(bounds: Bounds) -> Bounds:
    return replace(bounds, source_start=100, target_start=TARGET_BASE + 40, source_trimmed=True, target_trimmed=True)


def _both_begin_later() -> Logs:
    records = source_records()
    return log_of(by_tens(records[100:]), 100), copied(by_tens(records[40:]), TARGET_BASE + 40)


def _repeated(*parts: tuple[int, int], at: int) -> Logs:
    records = source_records()
    again = [record for start, stop in parts for record in records[start:stop]]
    return _target([*records[:at], *again, *records[at:]])


def _repeated_with_their_times() -> Logs:
    records = source_records()
    return log_of(_whole()), copied(by_sevens([*records, *records[50:70]]), append_time_ms=77)


def _many_foreign() -> Logs:
    """More of them than the window has."""
    records = source_records()
    others = [FOREIGN._replace(value=b"%d" % number) for number in range(600)]
    return _target([*records[:90], *others, *records[90:]])


def _foreign_only() -> Logs:
    return [], copied([[FOREIGN._replace(value=b"%d" % number) for number in range(9)]])


def _foreign_beside_repetitions() -> Logs:
    records = source_records()
    return _target([*records[:120], FOREIGN, *records[100:]])


def _emptied_target_batch() -> Logs:
    records = [numbered(n) for n in range(RECORDS)] + [newer(n) for n in range(40, 50)]
    return log_of([records]), compacted_log(TARGET_BASE, range(40, 50), records)


def _both_compacted_alike() -> Logs:
    return compacted_log(0, GONE, compactable()), compacted_log(TARGET_BASE, GONE, compactable())


def _compacted_before_and_after() -> Logs:
    """The source was compacted in front of the copy, and the target behind it."""
    records = [*compactable(), *(newer(n)._replace(value=b"newest") for n in (60, 70))]
    left = [record for number, record in enumerate(records) if number not in GONE]
    gone = [left.index(records[number]) for number in (60, 70)]
    return compacted_log(0, GONE, records), compacted_log(TARGET_BASE, gone, left)


def _rewritten_deletion() -> Logs:
    """A key that was deleted and written again; the target has the last value only."""
    records = [
        *compactable(),
        *(newer(n)._replace(value=None) for n in (60, 70)),
        *(newer(n)._replace(value=b"back") for n in (60, 70)),
    ]
    gone = (*GONE, 60, 70, RECORDS + 3, RECORDS + 4)
    return log_of(by_tens(records)), compacted_log(TARGET_BASE, gone, records)


def _old_source_with_gaps() -> Logs:
    records = [one._replace(headers=()) for one in source_records()]
    sets = [old_set_at(20 * number, part, magic=1) for number, part in enumerate(by_tens(records))]
    return sets, copied(_singles(records))


def _singles(records: Sequence[Made]) -> list[list[Made]]:
    return [[record] for record in records]


def _source_of_singles() -> Logs:
    return log_of(_singles(source_records())), copied([source_records()])


def _dropped_all() -> Logs:
    return log_of(_whole()), []


def _equal_records_far_apart() -> Logs:
    records = [numbered(number % 50) for number in range(RECORDS)]
    return log_of(by_tens(records)), copied(by_sevens(records))


def _running_far_ahead(bounds: Bounds) -> Bounds:
    return replace(bounds, source_end=10)


MORE_HARMLESS = [
    Harmless("other producers and epochs in each batch", _other_producers),
    Harmless("a source without producer ids", _no_producer),
    Harmless("a transactional source", _transactional_source),
    Harmless("another codec in each batch", _a_codec_each),
    Harmless(
        "interleaved transactions of which one is aborted",
        lambda: (_INTERLEAVED, copied(_whole())),
        source_aborted=_INTERLEAVED_ABORTED,
        named={Named.ABORTED: 20},
        per_fetch=100,
    ),
    Harmless(
        "a source with nothing but an aborted transaction",
        _only_aborted,
        source_aborted=(AbortedTransaction(producer_id=99, first_offset=0),),
        named={Named.ABORTED: 1},
    ),
    Harmless(
        "a source that was emptied",
        _source_emptied,
        bounds=_all_deleted_from_source,
        ends=(RECORDS, TARGET_BASE + RECORDS),
        uncompared=(("target", TARGET_BASE, TARGET_BASE + RECORDS),),
    ),
    Harmless(
        "both sides begin later, the source last",
        _both_begin_later,
        bounds=_both_trimmed,
        uncompared=(("target", TARGET_BASE + 40, TARGET_BASE + 100),),
    ),
    Harmless(
        "a window repeated twice", lambda: _repeated((80, 100), (80, 100), at=100), _AT_LEAST_ONCE, {Named.REPEATED: 40}
    ),
    Harmless(
        "two windows repeated late", lambda: _repeated((10, 20), (50, 60), at=150), _AT_LEAST_ONCE, {Named.REPEATED: 20}
    ),
    Harmless(
        "the first record repeated at the end",
        lambda: _repeated((0, 1), at=RECORDS),
        _AT_LEAST_ONCE,
        {Named.REPEATED: 1},
    ),
    Harmless(
        "repetitions with times of the target's brokers",
        _repeated_with_their_times,
        _AT_LEAST_ONCE,
        {Named.REPEATED: 20, Named.APPEND_TIME: RECORDS},
    ),
    Harmless(
        "more permitted foreign records in a row than the window has",
        _many_foreign,
        replace(_SHARED, window=64),
        {Named.FOREIGN: 600},
    ),
    Harmless("nothing but permitted foreign records", _foreign_only, _SHARED, {Named.FOREIGN: 9}),
    Harmless(
        "permitted foreign records beside repetitions",
        _foreign_beside_repetitions,
        Rules(repeats_allowed=True, foreign_allowed=True),
        {Named.FOREIGN: 1, Named.REPEATED: 20},
    ),
    Harmless(
        "a batch of the target that compaction has emptied",
        _emptied_target_batch,
        _BOTH_COMPACT,
        {Named.TARGET_COMPACTED: 10},
    ),
    Harmless("both sides compacted alike", _both_compacted_alike, _BOTH_COMPACT),
    Harmless(
        "the source compacted before, and the target after the copy",
        _compacted_before_and_after,
        _BOTH_COMPACT,
        {Named.TARGET_COMPACTED: 2},
    ),
    Harmless("deleted keys that were written again", _rewritten_deletion, _BOTH_COMPACT, {Named.TARGET_COMPACTED: 7}),
    Harmless("message sets with gaps, and a batch for each record", _old_source_with_gaps),
    Harmless("one batch for what were batches of one record", _source_of_singles),
    Harmless("a transform that drops all", _dropped_all, Rules(transform=lambda _: None), {Named.DROPPED: RECORDS}),
    Harmless("records that come again later in the source", _equal_records_far_apart),
    Harmless(
        "a copy that is far ahead of its progress",
        lambda: (log_of(_whole()), copied(by_sevens(source_records()))),
        bounds=_running_far_ahead,
        ends=(10, TARGET_BASE + 10),
    ),
]
