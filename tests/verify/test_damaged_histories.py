"""Damage to whole logs is found beside what transactions, compaction and the rules of a flow explain."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import pytest

from mirror.verify.values import Kind, Rules
from mirror.wire.messages.fetch import AbortedTransaction
from mirror.wire.records import AnyBatch
from tests.fakes.record_batches import ABORT, COMMIT
from tests.relay.batches.logs_by_hand import batch_at, marker_at, old_set_at
from tests.verify.damages import FOREIGN, source_records
from tests.verify.harmless import Logs
from tests.verify.harmless_logs import GONE, compactable, compacted_log
from tests.verify.logs import (
    COPY_PRODUCER,
    RECORDS,
    TARGET_BASE,
    TARGET_COMPACT,
    Found,
    by_sevens,
    by_tens,
    copied,
    found_in,
    log_of,
    verdict_of,
)

_RECORDS = source_records()
_PARTS = by_tens(_RECORDS)
_OWN = Rules(foreign_allowed=True, is_own=lambda batch: batch.producer_id == COPY_PRODUCER[0])


@dataclass(frozen=True)
class History:
    name: str
    logs: Callable[[], Logs]
    found: Sequence[Found]
    """With target offsets from 0."""
    rules: Rules = field(default_factory=Rules)
    target_aborted: tuple[AbortedTransaction, ...] = ()


def _transaction(*, copied_batches: int) -> Logs:
    """The source has two batches in one transaction."""
    source = log_of(_PARTS[:2], transactional=True)
    source.append(marker_at(20, 7, 0, COMMIT))
    source += log_of(_PARTS[2:], 21)
    kept = [*_PARTS[:copied_batches], *_PARTS[2:]]
    return source, copied(kept)


def _second_half_aborted() -> Logs:
    """The copy's transaction was aborted behind its first batch, which another one had committed."""
    target: list[AnyBatch] = copied(_PARTS[:10])
    target.append(batch_at(TARGET_BASE + 100, _PARTS[10], producer=(4001, 4, 0), transactional=True))
    target.append(marker_at(TARGET_BASE + 110, 4001, 4, ABORT))
    return log_of(_PARTS), target


def _only_markers() -> Logs:
    return log_of(_PARTS), [marker_at(TARGET_BASE + at, 4001, 3, COMMIT) for at in range(3)]


def _old_format(lost: int) -> Logs:
    records = [one._replace(headers=()) for one in _RECORDS]
    sets = [old_set_at(10 * number, part, magic=1) for number, part in enumerate(by_tens(records))]
    return sets, copied(by_sevens([*records[:lost], *records[lost + 1 :]]))


def _exchanged_beside_broker_times() -> Logs:
    target = list(_RECORDS)
    target[40], target[41] = target[41], target[40]
    return log_of(_PARTS), copied(by_tens(target), append_time_ms=9)


def _superseded_by_others() -> Logs:
    """The cleaner has removed the value of the source, because others have written a later one."""
    records = compactable()
    target = [*records, records[90]._replace(value=b"by others")]
    return log_of(by_tens(records)), compacted_log(TARGET_BASE, (*GONE, 90), target)


def _older_value_left() -> Logs:
    """The value that supersedes is lost, and the superseded one is there."""
    records = compactable()
    return log_of(by_tens(records)), copied(by_tens(records[:-1]))


def _late_and_again() -> Logs:
    """At least once, a record may come again, but not be missing in its place."""
    target = [*_RECORDS[:50], *_RECORDS[51:100], *_RECORDS[50:51], *_RECORDS[90:]]
    return log_of(_PARTS), copied(by_sevens(target))


def _own_among_others() -> Logs:
    others = batch_at(TARGET_BASE + RECORDS, [FOREIGN], producer=(8, 0, 0))
    own = batch_at(TARGET_BASE + RECORDS + 1, [FOREIGN._replace(value=b"lost on the source")], producer=COPY_PRODUCER)
    return log_of(_PARTS), [*copied(_PARTS), others, own]


def _own_repeated() -> Logs:
    return log_of(_PARTS), [*copied(_PARTS), *copied(_PARTS[-2:], TARGET_BASE + RECORDS)]


HISTORIES = [
    History("half of a transaction", lambda: _transaction(copied_batches=1), [Found(Kind.MISSING, 10, 10, 10)]),
    History("nothing of a transaction", lambda: _transaction(copied_batches=0), [Found(Kind.MISSING, 0, 0, 20)]),
    History(
        "the rest in an aborted transaction",
        _second_half_aborted,
        [Found(Kind.MISSING, 100, 111, 100)],
        target_aborted=(AbortedTransaction(producer_id=4001, first_offset=TARGET_BASE + 100),),
    ),
    History("nothing but markers", _only_markers, [Found(Kind.MISSING, 0, 3, RECORDS)]),
    History("a record of a message set lost", lambda: _old_format(57), [Found(Kind.MISSING, 57, 57)]),
    History(
        "neighbours exchanged beside times of the target's brokers",
        _exchanged_beside_broker_times,
        [Found(Kind.ORDER, 41, 40)],
    ),
    History(
        "a value that others have superseded", _superseded_by_others, [Found(Kind.FOREIGN, 203, 203)], TARGET_COMPACT
    ),
    History("the last value lost", _older_value_left, [Found(Kind.MISSING, 202, 202)], TARGET_COMPACT),
    History("a record late, and repeated", _late_and_again, [Found(Kind.ORDER, 50, 99)], Rules(repeats_allowed=True)),
    History("a record of the flow that the source lacks", _own_among_others, [Found(Kind.FOREIGN, 200, 201)], _OWN),
    History("batches of the flow doubled", _own_repeated, [Found(Kind.DOUBLED, 180, 200, 20)], _OWN),
    History(
        "a record of the flow that the source lacks, at least once",
        _own_among_others,
        [Found(Kind.FOREIGN, 200, 201)],
        replace(_OWN, repeats_allowed=True),
    ),
]


@pytest.mark.parametrize("history", HISTORIES, ids=lambda one: one.name)
def test_damage_to_a_log_is_found_with_its_kind_and_offsets(history: History) -> None:
    verdict = verdict_of(*history.logs(), history.rules, target_aborted=history.target_aborted)
    found = [one._replace(target=one.target - TARGET_BASE) for one in found_in(verdict.differences)]
    assert found == list(history.found)
    assert verdict.unaccounted == 0
