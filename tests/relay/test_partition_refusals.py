"""What the target refuses: remedies, what is left out, and what fails the copy; each answer given by hand."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mirror.cluster.types import ConfigEntry, ConfigSource
from mirror.errors import AuthorizationFailed, ConnectionFailed, KafkaError, RecordRejected, RecordTooLarge
from mirror.relay.batches.target_limits import TargetLimits
from mirror.relay.model.ranges import Outcome
from mirror.relay.partition.states import CopyState
from mirror.wire.encode import BatchBuilder
from mirror.wire.records import Batch
from tests.relay.copy_harness import TIMES, CopyHarness, made

HOUR = 3_600_000


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (AuthorizationFailed("no Write on topic paris.t", 29), "paris.t-0: no Write on topic paris.t"),
        (ConnectionFailed("gone"), "gone"),
        (RecordRejected("invalid", 87), "t-0, the batch at offset 0: invalid"),
    ],
)
def test_what_the_target_refuses_fails_the_copy_with_offset_and_reason(error: KafkaError, told: str) -> None:
    run = CopyHarness(2).opened(0)
    run.fetch(made(0), made(1))
    run.fail(0, error)
    assert run.ended_with(Outcome.FAILED).error == told
    assert len(run.context.writers) == 1, "it is final"


def test_what_comes_before_a_refused_batch_is_copied_all_the_same() -> None:
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


def _big(base: int, count: int, size: int, time: int = 1, *, first: int | None = None) -> Batch:
    """``first`` is the time of the first record, and so the one that its header tells."""
    builder = BatchBuilder("none", 10**6)
    for number in range(count):
        builder.append(b"k", bytes(size), (), time if number or first is None else first)
    one = builder.build()
    one.view[:8] = base.to_bytes(8, "big")
    return Batch(one.view)


def _accept_up_to(
    run: CopyHarness, limit: int, log: list[int], *, batches: Callable[[], list[Batch]] | None = None
) -> None:
    """A target that takes batches of ``limit`` bytes, and a source of 8 records of 100 bytes; until it ends."""
    for _ in range(100):
        if run.copy.state is CopyState.COPYING and run.context.read_position and run.copy._reader.position < 8:
            run.fetch(*(batches() if batches else [_big(0, 8, 100)]))
        pending = [n for n, one in enumerate(run.writer.sent) if not one.answered]
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
    raise AssertionError("it goes on for ever")


def test_a_batch_that_is_too_large_is_made_anew_in_smaller_ones() -> None:
    run, refused = CopyHarness(8).opened(0), list[int]()
    _accept_up_to(run, 300, refused)
    result = run.ended_with(Outcome.COMPLETE)
    assert refused == sorted(refused, reverse=True)
    assert len(refused) <= 4
    assert (result.records, result.deep) == (8, {"too large": 1})
    assert all(one.size <= 300 for one in run.writer.sent)
    assert result.expiries == []


def test_one_that_the_topic_s_configuration_forbids_is_not_even_tried() -> None:
    run, refused = CopyHarness(8, facts=TargetLimits(max_message_bytes=400)).opened(0), list[int]()
    _accept_up_to(run, 400, refused)
    assert refused == []
    assert run.ended_with(Outcome.COMPLETE).records == 8


def test_a_batch_larger_than_all_memory_is_made_anew_in_smaller_ones() -> None:
    run = CopyHarness(8).opened(0)
    run.writer.send_error = RecordTooLarge("larger than buffer.memory", 10)
    run.fetch(_big(0, 8, 100))
    run.closed()
    run.opened(0)
    _accept_up_to(run, 600, [])
    assert run.ended_with(Outcome.COMPLETE).deep == {"too large": 1}


def test_a_single_record_that_is_too_large_fails_with_its_offset_and_advice() -> None:
    run = CopyHarness(8).opened(0)
    _accept_up_to(run, 50, [])
    assert run.result.outcome is Outcome.FAILED
    assert "t-0: the record at offset 0 (" in str(run.result.error)
    assert 'on-too-large = "skip"' in str(run.result.error)


def test_a_single_record_that_is_too_large_is_left_out_and_counted_where_the_flow_says_so() -> None:
    run = CopyHarness(8, on_too_large="skip").opened(0)
    _accept_up_to(run, 300, [], batches=lambda: [_big(0, 3, 20), _big(3, 1, 900), _big(4, 4, 20)])
    result = run.ended_with(Outcome.COMPLETE)
    assert (result.records, result.skipped) == (7, {"too large": 1})
    assert result.end == 8


@pytest.mark.parametrize("first", [RecordTooLarge("large", 10), RecordRejected("too old", 32)])
def test_remedies_that_one_batch_needs_both_are_applied_both(first: KafkaError) -> None:
    """Each was taken for the whole remedy, and the two refusals took turns for ever."""
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
    recipe = run.context.reencodings[-1][1]
    assert recipe.timestamps is not None
    assert recipe.limit is not None
    assert recipe.limit <= 400 or run.writer.sent[0].size <= 400
    assert run.ended_with(Outcome.COMPLETE).records == 8


@pytest.mark.parametrize("reason", [32, 10])
def test_a_remedy_that_does_not_help_ends(reason: int) -> None:
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


# --- times and keys


@pytest.mark.parametrize(("policy", "records"), [("clamp", 1), ("skip", 0)])
@pytest.mark.parametrize("too", ["late", "early"])
def test_a_time_that_the_target_refuses_is_moved_or_left_out(policy: str, records: int, too: str) -> None:
    run = CopyHarness(1, facts=TargetLimits(after_max_ms=HOUR, before_max_ms=HOUR), on_bad_timestamp=policy).opened(0)
    one = _big(0, 1, 10, run.clock.unix_ms() + (2 * HOUR if too == "late" else -2 * HOUR))
    run.fetch(one)
    assert len(run.sent) == records, "made anew before it is refused"
    if records:
        rule = run.context.reencodings[-1][1].timestamps
        assert rule is not None
        arrives = run.clock.unix_ms() + TIMES.delivery_timeout_ms
        assert arrives - HOUR < rule.earliest_ms, "it is still allowed when it gets there"
        assert rule.latest_ms < run.clock.unix_ms() + HOUR
        run.ack()
    run.commit()
    result = run.ended_with(Outcome.COMPLETE)
    assert result.records == records
    assert result.skipped == ({} if records else {"bad timestamp": 1})
    assert result.deep == {"bad timestamp": 1}


@pytest.mark.parametrize(("policy", "records"), [("clamp", 2), ("skip", 1)])
def test_an_early_time_inside_a_batch_is_known_once_the_target_refuses_it(policy: str, records: int) -> None:
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


def test_an_old_broker_s_one_limit_of_times_is_kept_to() -> None:
    """Brokers 3.0 to 3.5 know no other: the copy clamped to no limit at all, and was refused again and again."""
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


def test_a_time_that_an_old_broker_refuses_names_its_key() -> None:
    limit = ConfigEntry(str(HOUR), ConfigSource.TOPIC, sensitive=False, read_only=False)
    run = CopyHarness(1, facts=TargetLimits.of({"message.timestamp.difference.max.ms": limit})).opened(0)
    run.fetch(_big(0, 1, 10, run.clock.unix_ms() - 2 * HOUR))
    assert "raise message.timestamp.difference.max.ms of the target topic" in str(run.ended_with(Outcome.FAILED).error)


def test_a_time_that_the_target_refuses_fails_with_the_record_s_offset() -> None:
    run = CopyHarness(9, facts=TargetLimits(after_max_ms=HOUR)).opened(0)
    run.fetch(made(0), _big(1, 1, 10, run.clock.unix_ms() + 2 * HOUR))
    run.ack(0)
    assert run.commit().offset == 1, "what comes before it counts"
    assert "the record at offset 1 has the time" in str(run.ended_with(Outcome.FAILED).error)


def test_without_a_key_a_compacted_topic_takes_nothing() -> None:
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


def test_of_many_put_together_it_is_told_which_one_has_no_key_and_all_before_it_is_copied() -> None:
    run = CopyHarness(3, facts=TargetLimits(compacted=True), batch_size=10_000).opened(0)
    run.fetch(made(0), made(1), made(2))
    assert run.context.reencodings, "they are put together"
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
