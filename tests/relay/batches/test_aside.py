"""What goes aside: its headers, its place among the batches of the target, and damaged batches."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror.consumer.fetched import Fetched
from mirror.errors import CorruptBatch, RecordTooLarge
from mirror.meters import Histogram
from mirror.producer.batch.batches import RecordMetadata
from mirror.relay.batches.aside import (
    COPIED,
    CORRUPT,
    AsideOrigin,
    AsideRecord,
    AsideSpec,
    Place,
    Settlement,
    has_plausible_end,
    parse,
)
from mirror.relay.batches.batch_pipeline import BatchPipeline
from mirror.relay.batches.exactly_once_way import WayRules
from mirror.relay.batches.held_buffers import HeldBuffers
from mirror.relay.batches.output_batch import OutputBatch
from mirror.relay.batches.reencode import ReencodeReason, ReencodeResult, ReencodeSpec, TimestampRule, reencode
from mirror.relay.batches.refusals import handle_refusal
from mirror.relay.batches.remedies import Remedies
from mirror.relay.batches.target_limits import TargetLimits
from mirror.relay.byte_limits import SendWindow, SourceBudget
from mirror.relay.model.policy import CopyPolicy
from mirror.relay.model.way import Way
from mirror.relay.offsets.extents import AppendedExtents
from mirror.relay.partition.attempts.outbox import Outbox, PendingBatch
from mirror.wire.decode import Record, records_of
from mirror.wire.encode import BatchBuilder
from mirror.wire.records import AnyBatch, Batch
from tests.relay.copy_harness import made
from tests.relay.hand_context import SOURCE

NOW_MS = 1_800_000_000_000
ORIGIN = AsideOrigin("paris-berlin", "abc", "t", 3, "paris.t")


def source(keys: Sequence[bytes | None], times: Sequence[int] = (), base: int = 0) -> Batch:
    builder = BatchBuilder("none", 1_000_000)
    for number, key in enumerate(keys):
        time_ms = times[number] if times else NOW_MS
        assert builder.append(key, b"%d" % number, (("own", b"%d" % number),), time_ms)
    batch = builder.build()
    batch.view[:8] = base.to_bytes(8, "big")
    return Batch(batch.view)


def spec(**options: Any) -> ReencodeSpec:
    options.setdefault("aside", AsideSpec(ORIGIN, NOW_MS))
    return ReencodeSpec(**options)


def records(made: ReencodeResult, *, aside: bool) -> list[Record]:
    found = [(part, one) for part in made.batches if bool(part.aside) is aside for one in records_of(part.batch)]
    return [one for _, one in found]


# --- records


def test_record_keeps_all_of_its_own_and_gets_its_origin() -> None:
    (one,) = records(reencode([source([b"a", None], base=7)], spec(keyless="aside")), aside=True)
    assert (one.timestamp_ms, one.headers[0]) == (NOW_MS, ("own", b"1"))
    assert parse(one) == AsideRecord(
        reason="no key",
        flow="paris-berlin",
        place=Place("abc", "t", 3, 8),
        end=9,
        target_topic="paris.t",
        timestamp_ms=NOW_MS,
        aside_ms=NOW_MS,
        key=None,
        value=b"1",
        headers=(("own", b"1"),),
    )


def test_record_that_was_aside_before_keeps_its_first_origin() -> None:
    own = ORIGIN.headers("too large", 1, 2, 5)
    record = Record(0, NOW_MS, b"k", b"v", (*own, *AsideOrigin("f", "def", "u", 0, "u").headers("no key", 4, 5, 6)))
    found = parse(record)
    assert isinstance(found, AsideRecord)
    assert (found.flow, found.headers) == ("f", own)


@pytest.mark.parametrize("headers", [(), (("own", b"1"),), (("mirror.aside.reason", b"x"),)])
def test_record_of_another_writer_is_passed(headers: tuple[tuple[str, bytes | None], ...]) -> None:
    assert parse(Record(0, 0, b"k", b"v", headers)) is None
    wrong = tuple((key, b"x" if key.endswith(".offset") else value) for key, value in ORIGIN.headers("no key", 4, 5, 6))
    assert parse(Record(0, 0, b"k", b"v", wrong)) is None


def test_settlement_is_read_as_it_was_written() -> None:
    one = Settlement(COPIED, "f", Place("abc", "t", 3, 8), 5, "paris.t", 99)
    assert parse(Record(0, 0, None, None, one.headers())) == one


# --- batches


@given(
    keyless=st.lists(st.booleans(), min_size=1, max_size=20),
    late=st.lists(st.booleans(), min_size=20, max_size=20),
    large=st.sets(st.integers(0, 19), max_size=3),
    limit=st.sampled_from([1, 400, 1_000_000]),
)
def test_batches_are_cut_where_a_record_goes_aside(
    keyless: list[bool], late: list[bool], large: set[int], limit: int
) -> None:
    times = [NOW_MS + 10 if late[number] else NOW_MS for number in range(len(keyless))]
    batch = source([None if one else b"k" for one in keyless], times)
    rule = TimestampRule(0, NOW_MS, "aside")
    aside = AsideSpec(ORIGIN, NOW_MS, frozenset(large))
    found = reencode([batch], spec(keyless="aside", timestamps=rule, aside=aside, limit=limit))
    reasons = {
        number: "too large" if number in large else "no key" if keyless[number] else "bad timestamp"
        for number in range(len(keyless))
        if number in large or keyless[number] or late[number]
    }
    at = 0
    for part in found.batches:
        seen = list(records_of(part.batch))
        expected = list(range(at, at + len(seen)))
        assert [one.value for one in seen] == [b"%d" % number for number in expected]
        assert part.base_offset == at
        assert {number in reasons for number in expected} == {bool(part.aside)}
        if part.aside:
            parsed = [parse(one) for one in seen]
            assert [one.reason for one in parsed if isinstance(one, AsideRecord)] == [reasons[n] for n in expected]
            assert sum(part.aside.values()) == len(seen)
        at += len(seen)
        assert part.next_offset == at
    assert at == len(keyless)


def test_what_goes_aside_has_passed_the_transform_and_has_the_flow_s_headers() -> None:
    recipe = spec(
        keyless="aside",
        headers=(("flow", b"x"),),
        transform=lambda one: one._replace(key=None, value=b"masked") if one.value == b"1" else one,
    )
    found = reencode([source([b"a", b"b"])], recipe)
    (one,) = records(found, aside=True)
    assert (one.value, one.headers[:2]) == (b"masked", (("own", b"1"), ("flow", b"x")))
    assert [one.value for one in records(found, aside=False)] == [b"0"]


@pytest.mark.parametrize("reason", ["too large", "bad timestamp", "no key", CORRUPT])
def test_what_goes_aside_goes_in_a_transaction(reason: str) -> None:
    output = OutputBatch(0, 1, 0, made(0), tried=frozenset({ReencodeReason(reason)}), aside={reason: 1})
    rules = WayRules(mode="auto", expiration_ms=86_400_000)
    assert rules.way_of(output, 0) is Way.TRANSACTIONS


def test_what_the_aside_topic_refuses_fails_the_partition() -> None:
    output = OutputBatch(7, 8, 0, made(7), aside={"too large": 1})
    policy = CopyPolicy(on_too_large="aside", aside="beside")
    remedies = Remedies(1_000)
    error = handle_refusal(
        RecordTooLarge("no", 10), output, remedies, source=SOURCE, policy=policy, limits=TargetLimits()
    )
    assert "what is at offset 7 (too large) cannot go aside: beside does not take its " in str(error)
    assert "max.message.bytes" in str(error)
    assert not remedies.skipped_offsets


def test_what_goes_aside_is_in_no_offset_of_the_target() -> None:
    appends, done = AppendedExtents(), list[int]()
    outbox = Outbox(
        SendWindow(1_000_000, 10_000, 0),
        0,
        0,
        50,
        "copy",
        lambda _: None,
        appends,
        Histogram(),
        lambda: NOW_MS,
        lambda output, *_: done.append(output.base_offset),
    )
    outputs = [OutputBatch(0, 1, 0, made(0), count=1), OutputBatch(1, 2, 0, made(1), count=1, aside={"no key": 1})]
    for output, offset in zip(outputs, (50, 3), strict=True):
        pending = PendingBatch(output, 0)
        outbox.add(pending)
        outbox.on_answer(pending, RecordMetadata(SOURCE, offset, -1, 0))
        assert outbox.expected_end == 51
        outbox.process_answers(0)
    assert (outbox.acked_offset, outbox.target_end, outbox.log_end, outbox.regression) == (2, 51, 51, None)
    assert (outbox.counts.records, outbox.counts.aside, done) == (1, {"no key": 1}, [0])


# --- damaged batches


def pipeline_of(*batches: Batch) -> BatchPipeline:
    def encode(sources: Sequence[AnyBatch], recipe: ReencodeSpec) -> Future[ReencodeResult]:
        future: Future[ReencodeResult] = Future()
        future.set_result(reencode(sources, recipe))
        return future

    held = HeldBuffers(SourceBudget(10**9))
    policy = CopyPolicy(on_corrupt="aside", aside="beside")
    pipeline = BatchPipeline(TargetLimits(), policy, 10_000, reencode=encode, held=held, origin=ORIGIN)
    size = sum(one.size for one in batches)
    pipeline.remedies.put_aside_damaged(0)
    pipeline.add_fetched(
        Fetched(tp=SOURCE, offset=0, next_offset=batches[-1].next_offset, batches=list(batches), size=size), 10**9
    )
    return pipeline


def damaged(base: int, count: int = 40, *, delta: int | None = None) -> Batch:
    view = memoryview(bytearray(made(base, count).view))
    view[-3] ^= 1
    if delta is not None:
        view[23:27] = delta.to_bytes(4, "big")
    return Batch(view)


def test_damaged_batch_goes_aside_as_its_bytes() -> None:
    one = damaged(0)
    pipeline = pipeline_of(one, made(40, 40))
    output = pipeline.peek(NOW_MS)
    assert output is not None
    assert output.batch is not None
    assert (output.base_offset, output.next_offset, output.aside) == (0, 40, {CORRUPT: 1})
    (record,) = records_of(output.batch)
    found = parse(record)
    assert isinstance(found, AsideRecord)
    assert (found.value, found.place.offset, found.end, found.reason) == (bytes(one.view), 0, 40, CORRUPT)
    pipeline.pop()
    following = pipeline.peek(NOW_MS)
    assert following is not None
    assert (following.base_offset, following.aside) == (40, {})


def test_batch_that_is_whole_when_it_is_read_again_is_copied() -> None:
    output = pipeline_of(made(0, 40), made(40, 40)).peek(NOW_MS)
    assert output is not None
    assert (output.aside, output.count) == ({}, 40)


@pytest.mark.parametrize("delta", [0, 38, 60])
def test_damaged_batch_whose_end_is_uncertain_stays_in_front(delta: int) -> None:
    pipeline = pipeline_of(damaged(0, delta=delta), made(100, 40))
    with pytest.raises(CorruptBatch, match="offset 0 is corrupt, and does not go aside"):
        pipeline.peek(NOW_MS)


def test_an_end_is_certain_by_the_next_batch_or_by_as_many_records_as_offsets() -> None:
    assert has_plausible_end(damaged(0), None)
    assert has_plausible_end(damaged(0, delta=59), 60)
    assert not has_plausible_end(damaged(0, delta=59), None)
    assert not has_plausible_end(damaged(0), 60)


def test_only_one_try_puts_a_damaged_batch_aside() -> None:
    remedies = Remedies(1_000)
    assert [remedies.put_aside_damaged(5), remedies.put_aside_damaged(5)] == [True, False]
    assert [remedies.are_damaged(0, 5), remedies.are_damaged(0, 6), remedies.are_damaged(5, 9)] == [False, True, True]
