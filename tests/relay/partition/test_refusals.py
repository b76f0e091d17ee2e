"""Batches that the target refuses: their remedies, the skipped records, and failures of the copy."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mirror.cluster.types import ConfigEntry, ConfigSource
from mirror.errors import (
    AuthorizationFailed,
    ConnectionFailed,
    KafkaError,
    KafkaTimeout,
    RecordRejected,
    RecordTooLarge,
)
from mirror.relay.batches.target_limits import TargetLimits
from mirror.relay.model.ranges import Outcome
from mirror.relay.partition.limits import ABORT_TIMEOUT_MS
from mirror.relay.partition.states import CopyState
from mirror.wire.encode import BatchBuilder
from mirror.wire.records import Batch
from tests.relay.copy_harness import CopyHarness, made
from tests.relay.hand_context import TIMES

HOUR = 3_600_000


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (AuthorizationFailed("no Write on topic paris.t", 29), "paris.t-0: no Write on topic paris.t"),
        (ConnectionFailed("gone"), "gone"),
        (RecordRejected("invalid", 87), "t-0, the batch at offset 0: invalid"),
    ],
)
def test_refused_batch_fails_the_copy_with_offset_and_reason(error: KafkaError, message: str) -> None:
    run = CopyHarness(2).opened(0)
    run.fetch(made(0), made(1))
    run.fail(0, error)
    assert run.ended_with(Outcome.FAILED).error == message
    assert len(run.context.writers) == 1, "it is not retried"


def test_batches_before_a_refused_one_are_copied() -> None:
    run = CopyHarness(9).opened(0)
    for _ in range(2):
        run.fetch(made(0), made(1), made(2))
        run.ack(0)
        if run.writer.sent[2:]:
            run.fail(1, RecordRejected("no", 87))
            run.closed()
            run.opened(0)
    assert run.commit().offset == 1
    result = run.ended_with(Outcome.FAILED)
    assert (result.end, result.error) == (1, "t-0, the batch at offset 1: no")


@pytest.mark.parametrize("error", [None, KafkaTimeout("the coordinator does not answer")])
def test_at_least_once_commits_what_was_acknowledged_behind_the_commit_in_flight(error: KafkaError | None) -> None:
    run = CopyHarness(9, atomic=False).opened(0)
    run.fetch(made(0), made(1), made(2))
    run.ack(0)
    run.advance(TIMES.commit_interval_ms)
    assert run.committing == 1
    run.ack(1)
    run.fail(2, RecordTooLarge("too large", 10))
    assert run.writer.closed is None, "another commit follows"
    run.commit(error)
    assert run.committing == 2
    assert run.commit().offset == 2
    run.opened(2)
    assert run.copy.state is CopyState.COPYING
    assert (run.context.read_position, run.copy.result.records) == ((2, None), 2)


def test_at_least_once_attempt_ends_although_its_last_commit_is_not_answered() -> None:
    run = CopyHarness(9, atomic=False).opened(0)
    run.fetch(made(0), made(1), made(2))
    run.ack(0)
    run.advance(TIMES.commit_interval_ms)
    run.ack(1)
    run.fail(2, RecordTooLarge("too large", 10))
    run.advance(ABORT_TIMEOUT_MS)
    assert run.copy.state is CopyState.OPENING


def _big(base: int, count: int, size: int, time: int = 1, *, first: int | None = None) -> Batch:
    """``first`` is the timestamp of the first record, which the batch header contains."""
    builder = BatchBuilder("none", 10**6)
    for number in range(count):
        builder.append(b"k", bytes(size), (), time if number or first is None else first)
    built = builder.build()
    built.view[:8] = base.to_bytes(8, "big")
    return Batch(built.view)


def _accept_up_to(
    run: CopyHarness, limit: int, log: list[int], *, batches: Callable[[], list[Batch]] | None = None
) -> None:
    """Run the copy of 8 records of 100 bytes to its end, into a target that takes batches of ``limit`` bytes."""
    for _ in range(100):
        if run.copy.state is CopyState.COPYING and run.context.read_position and run.context.fetch_offset < 8:
            run.fetch(*(batches() if batches else [_big(0, 8, 100)]))
        pending = run.unanswered
        if pending:
            if run.writer.sent[pending[0]].size > limit:
                log.append(run.writer.sent[pending[0]].size)
                run.fail(pending[0], RecordTooLarge("too large", 10))
            else:
                run.ack(pending[0])
        elif run.copy.state is CopyState.ABORTING:
            run.closed()
            if run.copy.done:
                return
            run.opened(0)
        else:
            run.commit()
    raise AssertionError("the copy does not end")


def test_too_large_batch_is_split() -> None:
    run, refused = CopyHarness(8).opened(0), list[int]()
    _accept_up_to(run, 300, refused)
    result = run.ended_with(Outcome.COMPLETE)
    assert refused == sorted(refused, reverse=True)
    assert len(refused) <= 4
    assert (result.records, result.deep) == (8, {"too large": 1})
    assert all(sent.size <= 300 for sent in run.writer.sent)
    assert result.expiries == []


def test_batch_above_the_topic_s_limit_is_split_before_it_is_sent() -> None:
    run, refused = CopyHarness(8, facts=TargetLimits(max_message_bytes=400)).opened(0), list[int]()
    _accept_up_to(run, 400, refused)
    assert refused == []
    assert run.ended_with(Outcome.COMPLETE).records == 8


def test_batch_larger_than_the_buffer_is_split() -> None:
    run = CopyHarness(8).opened(0)
    run.writer.send_error = RecordTooLarge("larger than buffer.memory", 10)
    run.fetch(_big(0, 8, 100))
    run.closed()
    run.opened(0)
    _accept_up_to(run, 600, [])
    assert run.ended_with(Outcome.COMPLETE).deep == {"too large": 1}


def test_too_large_record_fails_the_copy_with_offset_and_advice() -> None:
    run = CopyHarness(8).opened(0)
    _accept_up_to(run, 50, [])
    assert run.result.outcome is Outcome.FAILED
    assert "t-0: the record at offset 0 (" in str(run.result.error)
    assert 'on-too-large = "skip"' in str(run.result.error)


def test_too_large_record_is_skipped_and_counted_if_the_flow_allows_it() -> None:
    run = CopyHarness(8, on_too_large="skip").opened(0)
    _accept_up_to(run, 300, [], batches=lambda: [_big(0, 3, 20), _big(3, 1, 900), _big(4, 4, 20)])
    result = run.ended_with(Outcome.COMPLETE)
    assert (result.records, result.skipped) == (7, {"too large": 1})
    assert result.end == 8


@pytest.mark.parametrize("first", [RecordTooLarge("large", 10), RecordRejected("too old", 32)])
def test_batch_that_needs_two_remedies_gets_both(first: KafkaError) -> None:
    """Each remedy replaced the other one, so that the two refusals alternated for ever."""
    facts = TargetLimits(before_max_ms=HOUR)
    run = CopyHarness(8, facts=facts, on_bad_timestamp="clamp").opened(0)

    def source() -> Batch:
        return _big(0, 8, 100, first=run.clock.unix_ms())

    run.fetch(source())
    run.fail(0, first)
    run.closed()
    second = RecordRejected("too old", 32) if isinstance(first, RecordTooLarge) else RecordTooLarge("large", 10)
    run.opened(0)
    run.fetch(source())
    run.fail(0, second)
    run.closed()
    run.opened(0)
    _accept_up_to(run, 400, [], batches=lambda: [source()])
    spec = run.context.reencodings[-1][1]
    assert spec.timestamps is not None
    assert spec.limit is not None
    assert spec.limit <= 400 or run.writer.sent[0].size <= 400
    assert run.ended_with(Outcome.COMPLETE).records == 8


@pytest.mark.parametrize("reason", [32, 10])
def test_remedy_without_effect_fails_the_copy(reason: int) -> None:
    error = RecordTooLarge("no", 10) if reason == 10 else RecordRejected("no", 32)
    run = CopyHarness(1, on_bad_timestamp="clamp").opened(0)
    for attempts in range(10):
        run.fetch(_big(0, 1, 100))
        run.fail(0, error)
        run.closed()
        if run.copy.done:
            assert attempts <= 2
            break
        run.opened(0)
    run.ended_with(Outcome.FAILED)


# --- timestamps and keys


@pytest.mark.parametrize(("policy", "records"), [("clamp", 1), ("skip", 0)])
@pytest.mark.parametrize("side", ["late", "early"])
def test_refused_timestamp_is_clamped_or_its_record_skipped(policy: str, records: int, side: str) -> None:
    run = CopyHarness(1, facts=TargetLimits(after_max_ms=HOUR, before_max_ms=HOUR), on_bad_timestamp=policy).opened(0)
    batch = _big(0, 1, 10, run.clock.unix_ms() + (2 * HOUR if side == "late" else -2 * HOUR))
    run.fetch(batch)
    assert len(run.sent) == records, "re-encoded before it is sent"
    if records:
        rule = run.context.reencodings[-1][1].timestamps
        assert rule is not None
        arrives = run.clock.unix_ms() + TIMES.delivery_timeout_ms
        assert arrives - HOUR < rule.earliest_ms, "it is still allowed when it arrives"
        assert rule.latest_ms < run.clock.unix_ms() + HOUR
        run.ack()
    run.commit()
    result = run.ended_with(Outcome.COMPLETE)
    assert result.records == records
    assert result.skipped == ({} if records else {"bad timestamp": 1})
    assert result.deep == {"bad timestamp": 1}


@pytest.mark.parametrize(("policy", "records"), [("clamp", 2), ("skip", 1)])
def test_early_timestamp_inside_a_batch_is_remedied_after_its_refusal(policy: str, records: int) -> None:
    run = CopyHarness(2, facts=TargetLimits(before_max_ms=HOUR), on_bad_timestamp=policy).opened(0)
    now = run.clock.unix_ms()
    run.fetch(_big(0, 2, 10, now - 2 * HOUR, first=now))
    assert run.context.reencodings == []
    run.fail(0, RecordRejected("too early", 32))
    run.closed()
    run.opened(0)
    run.fetch(_big(0, 2, 10, now - 2 * HOUR, first=now))
    run.ack()
    run.commit()
    result = run.ended_with(Outcome.COMPLETE)
    assert (result.records, result.skipped.get("bad timestamp", 0)) == (records, 2 - records)


def test_old_broker_s_timestamp_difference_limit_is_respected() -> None:
    """Brokers 3.0 to 3.5 have no other: the copy clamped to no limit, and was refused again and again."""
    limit = ConfigEntry(str(HOUR), ConfigSource.TOPIC, sensitive=False, read_only=False)
    facts = TargetLimits.of({"message.timestamp.difference.max.ms": limit})
    run = CopyHarness(1, facts=facts, on_bad_timestamp="clamp").opened(0)
    run.fetch(_big(0, 1, 10, run.clock.unix_ms() - 2 * HOUR))
    rule = run.context.reencodings[-1][1].timestamps
    assert rule is not None
    assert run.clock.unix_ms() - HOUR < rule.earliest_ms
    assert rule.latest_ms < run.clock.unix_ms() + HOUR
    run.ack()
    run.commit()
    assert run.ended_with(Outcome.COMPLETE).records == 1


def test_timestamp_refused_by_an_old_broker_names_its_configuration_key() -> None:
    limit = ConfigEntry(str(HOUR), ConfigSource.TOPIC, sensitive=False, read_only=False)
    run = CopyHarness(1, facts=TargetLimits.of({"message.timestamp.difference.max.ms": limit})).opened(0)
    run.fetch(_big(0, 1, 10, run.clock.unix_ms() - 2 * HOUR))
    assert "raise message.timestamp.difference.max.ms of the target topic" in str(run.ended_with(Outcome.FAILED).error)


def test_refused_timestamp_fails_the_copy_with_the_record_s_offset() -> None:
    run = CopyHarness(9, facts=TargetLimits(after_max_ms=HOUR)).opened(0)
    run.fetch(made(0), _big(1, 1, 10, run.clock.unix_ms() + 2 * HOUR))
    run.ack(0)
    assert run.commit().offset == 1, "batches before it are committed"
    assert "the record at offset 1 has the time" in str(run.ended_with(Outcome.FAILED).error)


def test_record_without_key_is_refused_by_a_compacted_topic() -> None:
    for policy, outcome in (("fail", Outcome.FAILED), ("skip", Outcome.COMPLETE)):
        run = CopyHarness(2, facts=TargetLimits(compacted=True), on_no_key=policy).opened(0)
        run.fetch(made(0, 2))
        run.fail(0, RecordRejected("no key", 87))
        run.closed()
        run.opened(0)
        run.fetch(made(0, 2))
        if policy == "skip":
            run.commit()
            assert run.ended_with(outcome).skipped == {"no key": 2}
        else:
            run.fail(0, RecordRejected("no key", 87))
            assert 'on-no-key = "skip"' in str(run.ended_with(outcome).error)


def test_record_without_key_in_a_merged_batch_is_named_and_batches_before_it_are_copied() -> None:
    run = CopyHarness(3, facts=TargetLimits(compacted=True), batch_size=10_000).opened(0)
    run.fetch(made(0), made(1), made(2))
    assert run.context.reencodings, "they are merged"
    run.fail(0, RecordRejected("no key", 87))
    run.closed()
    run.opened(0)
    run.fetch(made(0), made(1), made(2))
    run.ack(0)
    run.fail(1, RecordRejected("no key", 87))
    run.closed()
    run.opened(0)
    run.fetch(made(0), made(1), made(2))
    run.ack(0)
    assert run.commit().offset == 1
    assert "the batch at offset 1: " in str(run.ended_with(Outcome.FAILED).error)
