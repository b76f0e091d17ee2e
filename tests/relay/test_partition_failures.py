"""What goes wrong with the target: expiries, rests, fences, refusals and their remedies, each answered by hand."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mirror.errors import (
    AuthorizationFailed,
    BrokerError,
    ConnectionFailed,
    DeliveryPhase,
    DeliveryTimeout,
    Fenced,
    KafkaError,
    KafkaTimeout,
    NeedsAbort,
    RecordRejected,
    RecordTooLarge,
    TransactionExpired,
)
from mirror.relay.facts import TargetFacts
from mirror.relay.partition import DROP_MS, Stage
from mirror.relay.ranges import Outcome
from mirror.wire.encode import BatchBuilder
from mirror.wire.records import Batch
from tests.fakes.record_batches import batch, build
from tests.relay.site import TIMES, Run, made

HOUR = 3_600_000


def _late() -> DeliveryTimeout:
    return DeliveryTimeout("late", phase=DeliveryPhase.IN_FLIGHT, age_ms=10_000)


def _needs_abort(cause: KafkaError) -> NeedsAbort:
    error = NeedsAbort("abort it")
    error.__cause__ = cause
    return error


# --- expiry


def test_a_partition_that_cannot_be_fenced_expires() -> None:
    """blocked_transactional_id_expires_by_the_attempt_clock."""
    run = Run(5)
    run.advance(TIMES.delivery_ms)
    run.carrier.opened.set_exception(KafkaTimeout("no coordinator"))
    run.site.settle_down()
    (expiry,) = run.ends(Outcome.EXPIRED).expiries
    assert (expiry["phase"], expiry["cause"], expiry["age_ms"]) == ("fencing", "coordinator", TIMES.delivery_ms)
    assert expiry["last_error"] == "no coordinator"


@pytest.mark.parametrize("atomic", [True, False])
def test_an_expired_batch_ends_the_attempt_and_nothing_behind_it_is_committed(atomic: bool) -> None:
    run = Run(10**6, atomic=atomic).opened(0)
    run.fetch(made(0), made(1), made(2), stable_end=10**6)
    run.ack(0)
    run.ack(2)
    run.fail(1, _late())
    if not atomic:
        assert run.committing == 1, "what is acknowledged counts"
        run.commit()
    result = run.ends(Outcome.EXPIRED)
    assert result.end == (0 if atomic else 1)
    assert result.records == result.end
    assert str(result.error) == "t-0, the batch at offset 1: late"
    (expiry,) = result.expiries
    assert (expiry["start"], expiry["end"], expiry["phase"]) == (1, 2, "in flight")
    assert expiry["time_ms"] == run.clock.wall()


def test_a_batch_whose_time_is_up_before_there_is_memory_expires_with_its_offset() -> None:
    run = Run(5).opened(0)
    run.carrier.refuse = _late()
    run.fetch(made(0))
    (expiry,) = run.ends(Outcome.EXPIRED).expiries
    assert expiry["start"] == 0


def test_a_commit_without_an_answer_expires_and_its_outcome_is_unknown() -> None:
    run = Run(1).opened(0)
    run.fetch(made(0))
    run.ack()
    assert run.carrier.commits[-1].timeout_ms == TIMES.delivery_ms
    run.advance(TIMES.delivery_ms)
    run.commit(KafkaTimeout("no coordinator"))
    result = run.ends(Outcome.EXPIRED)
    (expiry,) = result.expiries
    assert (expiry["phase"], expiry["age_ms"]) == ("committing", TIMES.delivery_ms)
    assert expiry["may_have_been_written"]
    assert result.records == 0, "not known to be there"


def test_a_commit_has_what_is_left_of_its_oldest_batch() -> None:
    run = Run(10**6).opened(0)
    run.fetch(made(0), stable_end=10**6)
    run.advance(TIMES.commit_ms)
    assert run.carrier.commits[-1].timeout_ms == TIMES.delivery_ms - TIMES.commit_ms


def test_a_commit_that_fails_with_its_batch_tells_of_the_batch() -> None:
    run = Run(1).opened(0)
    run.fetch(made(0))
    run.carrier.sent[0].future.set_exception(_late())
    run.carrier.commits[-1].future.set_exception(_needs_abort(_late()))
    run.site.settle_down()
    assert run.ends(Outcome.EXPIRED).expiries[0]["start"] == 0


def test_the_cause_is_told_not_the_transaction_s_end() -> None:
    run = Run(3).opened(0)
    run.fetch(made(0), made(1), made(2))
    run.ack(0)
    run.carrier.sent[1].future.set_exception(NeedsAbort("the transaction is to be aborted"))
    run.carrier.sent[2].future.set_exception(_late())
    run.site.settle_down()
    assert run.ends(Outcome.EXPIRED).expiries[0]["start"] == 2


def test_an_expired_transaction_is_an_expiry() -> None:
    run = Run(1).opened(0)
    run.fetch(made(0))
    run.ack()
    run.commit(TransactionExpired("outlived transaction.timeout.ms", 47))
    assert run.ends(Outcome.EXPIRED).expiries[0]["phase"] == "committing"


def test_it_is_tried_again_after_a_rest_and_goes_on_where_the_target_is() -> None:
    run = Run(3).opened(0)
    run.site.neighbours_are_healthy = True
    rests = []
    for _ in range(3):
        run.fetch(made(0), made(1), made(2))
        run.fail(0, _late())
        assert run.copy.expired
        run.dropped()
        assert run.copy.stage is Stage.RESTING
        began, attempts = run.clock.now(), len(run.site.carriers)
        run.advance(run.copy.due_ms(began) - began)
        rests.append(run.clock.now() - began)
        assert len(run.site.carriers) == attempts + 1
        run.opened(0)
    assert rests[0] < rests[1] < rests[2]
    run.fetch(made(0), made(1), made(2))
    run.ack_all()
    run.commit()
    assert not run.copy.expired
    result = run.ends(Outcome.COMPLETE)
    assert (result.retries, len(result.expiries), result.records, result.error) == (3, 3, 3, None)


def test_a_commit_of_unknown_outcome_that_was_done_is_not_done_again() -> None:
    run = Run(1).opened(0)
    run.site.neighbours_are_healthy = True
    run.fetch(made(0))
    run.ack()
    run.commit(KafkaTimeout("..."))
    run.dropped()
    run.advance(1_000)
    run.opened(1)
    assert run.ends(Outcome.COMPLETE).retries == 1
    assert sum(len(carrier.sent) for carrier in run.site.carriers) == 1


def test_it_rests_no_longer_than_there_are_healthy_ones() -> None:
    run = Run(3).opened(0)
    run.site.neighbours_are_healthy = True
    run.fetch(made(0))
    run.fail(0, _late())
    run.dropped()
    run.site.neighbours_are_healthy = False
    run.advance(1_000)
    assert len(run.site.carriers) == 1
    run.ends(Outcome.EXPIRED)


def test_an_abort_that_does_not_end_is_left_to_the_next_attempt() -> None:
    run = Run(3).opened(0)
    run.fetch(made(0))
    run.fail(0, _late())
    run.advance(DROP_MS - 1)
    assert not run.copy.done
    run.advance(1)
    assert run.result.outcome is Outcome.EXPIRED
    run.holds_nothing()


def test_a_batch_behind_what_was_skipped_goes_at_once() -> None:
    """What needs no sending is no batch that is waited for."""
    run = Run(9).opened(0)
    run.fetch(batch(build((), base_offset=0)), made(1))
    assert run.sent == [[b"1"]]


# --- fences


@pytest.mark.parametrize("when", ["opening", "sending", "committing"])
def test_who_was_shut_out_says_so_and_stops(when: str) -> None:
    run, fenced = Run(1), Fenced("another one took over", 90)
    run.site.neighbours_are_healthy = True
    if when == "opening":
        run.carrier.opened.set_exception(fenced)
        run.site.settle_down()
    else:
        run.opened(0)
        run.fetch(made(0))
        if when == "sending":
            run.fail(0, fenced)
        else:
            run.ack()
            run.commit(_needs_abort(fenced))
    assert run.ends(Outcome.FENCED).records == 0
    assert len(run.site.carriers) == 1


# --- refusals


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (AuthorizationFailed("no Write on topic paris.t", 29), "t-0, the batch at offset 0: no Write on topic paris.t"),
        (BrokerError("odd", 99), "t-0, the batch at offset 0: odd"),
        (ConnectionFailed("gone"), "gone"),
        (RecordRejected("invalid", 87), "t-0, the batch at offset 0: invalid"),
    ],
)
def test_what_the_target_refuses_fails_the_copy_with_offset_and_reason(error: KafkaError, told: str) -> None:
    run = Run(2).opened(0)
    run.fetch(made(0), made(1))
    run.fail(0, error)
    assert run.ends(Outcome.FAILED).error == told


def test_what_comes_before_a_refused_batch_is_copied_all_the_same() -> None:
    run = Run(9).opened(0)
    for _ in range(2):
        run.fetch(made(0), made(1), made(2))
        run.ack(0)
        if run.carrier.sent[2:]:
            run.fail(1, AuthorizationFailed("no", 29))
            run.dropped()
            run.opened(0)
    assert run.commit().offset == 1
    result = run.ends(Outcome.FAILED)
    assert (result.end, result.error) == (1, "t-0, the batch at offset 1: no")


def _big(base: int, count: int, size: int, time: int = 1) -> Batch:
    builder = BatchBuilder("none", 10**6)
    for _ in range(count):
        builder.append(b"k", bytes(size), (), time)
    one = builder.build()
    one.base_offset = base
    one.view[:8] = base.to_bytes(8, "big")
    return one


def _accept_up_to(run: Run, limit: int, log: list[int], *, batches: Callable[[], list[Batch]] | None = None) -> None:
    """A target that takes batches of ``limit`` bytes, and a source of 8 records of 100 bytes; until it ends."""
    for _ in range(100):
        if run.copy.stage is Stage.COPYING and run.site.reading and run.copy._reading.at < 8:
            run.fetch(*(batches() if batches else [_big(0, 8, 100)]))
        pending = [n for n, one in enumerate(run.carrier.sent) if not one.future.done()]
        if pending:
            if run.carrier.sent[pending[0]].size > limit:
                log.append(run.carrier.sent[pending[0]].size)
                run.fail(pending[0], RecordTooLarge("too large", 10))
            else:
                run.ack(pending[0])
        elif run.copy.stage is Stage.DROPPING:
            run.dropped()
            if run.copy.done:
                return
            run.opened(0)
        else:
            run.commit()
    raise AssertionError("it goes on for ever")


def test_a_batch_that_is_too_large_is_made_anew_in_smaller_ones() -> None:
    run, refused = Run(8).opened(0), list[int]()
    _accept_up_to(run, 300, refused)
    result = run.ends(Outcome.COMPLETE)
    assert refused == sorted(refused, reverse=True)
    assert len(refused) <= 4
    assert (result.records, result.deep) == (8, {"too large": 1})
    assert all(one.size <= 300 for one in run.carrier.sent)
    assert result.expiries == []


def test_one_that_the_topic_s_configuration_forbids_is_not_even_tried() -> None:
    run, refused = Run(8, facts=TargetFacts(max_message_bytes=400)).opened(0), list[int]()
    _accept_up_to(run, 400, refused)
    assert refused == []
    assert run.ends(Outcome.COMPLETE).records == 8


def test_a_batch_larger_than_all_memory_is_made_anew_in_smaller_ones() -> None:
    run = Run(8).opened(0)
    run.carrier.refuse = RecordTooLarge("larger than buffer.memory", 10)
    run.fetch(_big(0, 8, 100))
    run.dropped()
    run.opened(0)
    _accept_up_to(run, 600, [])
    assert run.ends(Outcome.COMPLETE).deep == {"too large": 1}


def test_a_single_record_that_is_too_large_fails_with_its_offset_and_advice() -> None:
    run = Run(8).opened(0)
    _accept_up_to(run, 50, [])
    assert run.result.outcome is Outcome.FAILED
    assert "t-0: the record at offset 0 (" in str(run.result.error)
    assert 'on-too-large = "skip"' in str(run.result.error)


def test_a_single_record_that_is_too_large_is_left_out_and_counted_where_the_flow_says_so() -> None:
    run = Run(8, on_too_large="skip").opened(0)
    _accept_up_to(run, 300, [], batches=lambda: [_big(0, 3, 20), _big(3, 1, 900), _big(4, 4, 20)])
    result = run.ends(Outcome.COMPLETE)
    assert (result.records, result.skipped) == (7, {"too large": 1})
    assert result.end == 8


@pytest.mark.parametrize("first", [RecordTooLarge("large", 10), RecordRejected("too old", 32)])
def test_remedies_that_one_batch_needs_both_are_applied_both(first: KafkaError) -> None:
    """Each was taken for the whole remedy, and the two refusals took turns for ever."""
    facts = TargetFacts(before_max_ms=HOUR)
    run = Run(8, facts=facts, on_bad_timestamp="clamp").opened(0)
    run.fetch(_big(0, 8, 100))
    run.fail(0, first)
    run.dropped()
    second = RecordRejected("too old", 32) if isinstance(first, RecordTooLarge) else RecordTooLarge("large", 10)
    run.opened(0)
    run.fetch(_big(0, 8, 100))
    run.fail(0, second)
    run.dropped()
    run.opened(0)
    recipe = None
    _accept_up_to(run, 400, [])
    recipe = run.site.makings[-1][1]
    assert recipe.timestamps is not None
    assert recipe.limit is not None
    assert recipe.limit <= 400 or run.carrier.sent[0].size <= 400
    assert run.ends(Outcome.COMPLETE).records == 8


@pytest.mark.parametrize("reason", [32, 10])
def test_a_remedy_that_does_not_help_ends(reason: int) -> None:
    error = RecordTooLarge("no", 10) if reason == 10 else RecordRejected("no", 32)
    run = Run(1, on_bad_timestamp="clamp").opened(0)
    for attempts in range(10):
        run.fetch(_big(0, 1, 100))
        run.fail(0, error)
        run.dropped()
        if run.copy.done:
            assert attempts <= 2
            break
        run.opened(0)
    run.ends(Outcome.FAILED)


# --- times and keys


@pytest.mark.parametrize(("policy", "records"), [("clamp", 1), ("skip", 0)])
@pytest.mark.parametrize("too", ["late", "early"])
def test_a_time_that_the_target_refuses_is_moved_or_left_out(policy: str, records: int, too: str) -> None:
    run = Run(1, facts=TargetFacts(after_max_ms=HOUR, before_max_ms=HOUR), on_bad_timestamp=policy).opened(0)
    one = _big(0, 1, 10, run.clock.wall() + (2 * HOUR if too == "late" else -2 * HOUR))
    run.fetch(one)
    if too == "early":  # only the broker knows: an early record hides behind a batch's latest time
        run.fail(0, RecordRejected("too early", 32))
        run.dropped()
        run.opened(0)
        run.fetch(_big(0, 1, 10, run.clock.wall() - 2 * HOUR))
    if records:
        rule = run.site.makings[-1][1].timestamps
        assert rule is not None
        arrives = run.clock.wall() + TIMES.delivery_ms
        assert arrives - HOUR < rule.earliest_ms, "it is still allowed when it gets there"
        assert rule.latest_ms < run.clock.wall() + HOUR
        run.ack()
    run.commit()
    result = run.ends(Outcome.COMPLETE)
    assert result.records == records
    assert result.skipped == ({} if records else {"bad timestamp": 1})
    assert result.deep == {"bad timestamp": 1}


def test_a_time_that_the_target_refuses_fails_with_the_record_s_offset() -> None:
    run = Run(9, facts=TargetFacts(after_max_ms=HOUR)).opened(0)
    run.fetch(made(0), _big(1, 1, 10, run.clock.wall() + 2 * HOUR))
    run.ack(0)
    assert run.commit().offset == 1, "what comes before it counts"
    assert "the record at offset 1 has the time" in str(run.ends(Outcome.FAILED).error)


def test_without_a_key_a_compacted_topic_takes_nothing() -> None:
    for policy, outcome in (("fail", Outcome.FAILED), ("skip", Outcome.COMPLETE)):
        run = Run(2, facts=TargetFacts(compacted=True), on_no_key=policy).opened(0)
        run.fetch(made(0, 2))
        run.fail(0, RecordRejected("no key", 87))
        run.dropped()
        if policy == "skip":
            run.opened(0)
            run.fetch(made(0, 2))
            run.commit()
            assert run.ends(outcome).skipped == {"no key": 2}
        else:
            assert 'on-no-key = "skip"' in str(run.ends(outcome).error)


def test_a_producer_that_brokers_forgot_is_replaced_but_not_for_ever() -> None:
    run = Run(1).opened(0)
    for attempts in range(10):
        run.fetch(made(0))
        run.ack()
        run.commit(BrokerError("unknown producer id", 49))
        run.dropped()
        if run.copy.done:
            assert attempts == 3
            break
        run.opened(0)
    assert "progress was not kept: unknown producer id" in str(run.ends(Outcome.FAILED).error)
