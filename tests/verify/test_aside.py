"""The aside topic explains what the target lacks, and what was copied again from it; nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mirror.relay.batches.aside import COPIED, CORRUPT, DISMISSED, AsideOrigin, AsideRecord, Place, Settlement, parse
from mirror.spark.aside_topic import entries_of, unknown_of
from mirror.spark.verification.aside_contents import contents_of
from mirror.verify.values import AsideContents, Kind, Named, Rules
from mirror.wire.decode import Record, records_of
from mirror.wire.records import Batch
from tests.relay.batches.logs_by_hand import Made, batch_at
from tests.verify.logs import TARGET_BASE, by_tens, copied, found_in, log_of, numbered, verdict_of

RECORDS = [numbered(number) for number in range(30)]
PLACE = Place("c", "t", 0, 12)
TIME_MS = RECORDS[12][3]


def aside_of(number: int, **changed: object) -> AsideRecord:
    key, value, headers, time_ms = RECORDS[number]
    one = AsideRecord("too large", "f", PLACE._replace(offset=number), number + 1, "t", time_ms, 5, key, value, headers)
    return replace(one, **changed)  # type: ignore[arg-type]


def rules_of(*found: AsideRecord | Settlement) -> Rules:
    return Rules(aside=contents_of(found).get(("t", 0), AsideContents()))


def without(*numbers: int) -> list[Made]:
    return [one for number, one in enumerate(RECORDS) if number not in numbers]


def test_record_that_is_aside_is_named_and_leaves_the_target_incomplete() -> None:
    verdict = verdict_of(
        log_of(by_tens(RECORDS)), copied(by_tens(without(12, 13))), rules_of(aside_of(12), aside_of(13))
    )
    assert (verdict.equal, verdict.complete, verdict.named, verdict.records) == (True, True, {Named.ASIDE: 2}, 28)
    assert verdict.unaccounted == 0


@pytest.mark.parametrize(
    "found",
    [
        (),
        (aside_of(13, place=PLACE._replace(partition=1)),),
        (aside_of(12, value=b"other"),),
        (aside_of(12, headers=()),),
        (aside_of(12, timestamp_ms=1),),
        (aside_of(13),),
    ],
    ids=["empty", "another partition", "another value", "other headers", "another time", "another offset"],
)
def test_record_that_is_not_aside_is_missing(found: tuple[AsideRecord, ...]) -> None:
    verdict = verdict_of(log_of(by_tens(RECORDS)), copied(by_tens(without(12))), rules_of(*found))
    assert [(one.kind, one.source) for one in found_in(verdict.differences)] == [(Kind.MISSING, 12)]


def test_record_that_was_copied_again_is_no_foreign_one() -> None:
    target = [*copied(by_tens(without(12))), batch_at(TARGET_BASE + 29, [RECORDS[12]], producer=(9, 0, 0))]
    again = Settlement(COPIED, "f", PLACE, TIME_MS, "t", TARGET_BASE + 29)
    verdict = verdict_of(log_of(by_tens(RECORDS)), target, rules_of(aside_of(12), again))
    assert (verdict.equal, verdict.named) == (True, {Named.SETTLED: 1, Named.COPIED_AGAIN: 1})
    verdict = verdict_of(log_of(by_tens(RECORDS)), target, rules_of(aside_of(12)))
    assert not verdict.equal


def test_damaged_batch_that_is_aside_ends_no_comparison() -> None:
    log = log_of(by_tens(RECORDS))
    view = memoryview(bytearray(log[1].view))
    view[-3] ^= 1
    log[1] = Batch(view)
    found = aside_of(10, reason=CORRUPT, end=20, key=None, value=bytes(view), headers=())
    target = copied(by_tens(without(*range(10, 20))))
    verdict = verdict_of(log, target, rules_of(found))
    assert (verdict.equal, verdict.complete, verdict.named) == (True, True, {Named.ASIDE_BATCHES: 1})
    settled = rules_of(found, Settlement(DISMISSED, "f", *found.identity))
    assert verdict_of(log, target, settled).named == {}
    assert not verdict_of(log, target, rules_of()).complete


# --- the list


def test_each_record_is_listed_once_with_its_last_settlement() -> None:
    first, again = Settlement(DISMISSED, "f", PLACE, TIME_MS), Settlement(COPIED, "f", PLACE, TIME_MS, "t", 40)
    entries = entries_of([aside_of(12), aside_of(13), aside_of(12, aside_ms=9), first, again])
    assert [(one.record.place.offset, one.state, one.record.aside_ms) for one in entries] == [
        (12, COPIED, 5),
        (13, "aside", 5),
    ]
    assert entries[0].size == len(RECORDS[12][0] or b"") + len(RECORDS[12][1] or b"")
    assert entries[0].record.value is None, "the list holds no content"
    assert unknown_of(["t-0@12", "t-0@99"], entries) == ["t-0@99"]


def test_record_of_a_topic_that_was_made_again_is_another_one() -> None:
    old = aside_of(12, timestamp_ms=1, value=b"old")
    settled = Settlement(COPIED, "f", *old.identity, "t", 40)
    entries = entries_of([old, settled, aside_of(12)])
    assert [one.state for one in entries] == [COPIED, "aside"]
    log, target = log_of(by_tens(RECORDS)), copied(by_tens(without(12)))
    assert verdict_of(log, target, rules_of(old, settled, aside_of(12))).named == {Named.ASIDE: 1}


def test_contents_are_those_of_records_as_they_were_read() -> None:
    origin = AsideOrigin("f", "c", "t", 0, "t")
    key, value, headers, time_ms = RECORDS[12]
    whole = Record(0, 5, key, value, (*headers, *origin.headers("too large", 12, 13, time_ms)))
    batch = batch_at(0, [Made(whole.key, whole.value, whole.headers, whole.timestamp_ms)])
    (read,) = records_of(batch)
    assert parse(read) == aside_of(12)
