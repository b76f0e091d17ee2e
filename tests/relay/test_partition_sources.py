"""What goes wrong at the source, how an epoch ends, and whose memory is whose; each answer given by hand."""

from __future__ import annotations

import pytest

from mirror.errors import AuthorizationFailed, ConnectionFailed, DeliveryTimeout, KafkaTimeout, LogTruncated
from mirror.errors import OffsetOutOfRange as OutOfRange
from mirror.relay.gaps import SourceState
from mirror.relay.partition import Stage
from mirror.relay.ranges import Outcome
from tests.fakes.clock import FakeClock
from tests.fakes.record_batches import batch, build
from tests.relay.site import TIMES, TOPIC_ID, Run, made


def _look(run: Run, *, earliest: int = 0, end: int = 1_000, topic_id: str = TOPIC_ID) -> None:
    assert run.copy.stage is Stage.LOOKING
    assert run.site.reading is None
    run.site.looks[-1].set_result(SourceState(topic_id=topic_id, earliest=earliest, end=end))
    run.site.settle_down()


# --- gaps


def test_retention_that_overtook_the_copy_fails_it_and_says_what_is_lost() -> None:
    run = Run(100).opened(5)
    run.fetch_fails(OutOfRange("gone", 1))
    _look(run, earliest=40)
    result = run.ends(Outcome.FAILED)
    assert "offsets 5 to 39 are gone and were never copied" in str(result.error)
    assert 'on-gap = "skip"' in str(result.error)
    assert (result.end, result.gaps) == (5, {})


@pytest.mark.parametrize(
    ("error", "state", "resume", "gaps"),
    [
        (OutOfRange("gone", 1), {"earliest": 40}, 40, {"retention": 35}),
        (OutOfRange("gone", 1), {"end": 3}, 3, {"truncated": 2}),
        (LogTruncated("cut back", 4), {}, 4, {"truncated": 1}),
        (LogTruncated("made anew"), {"topic_id": "another", "earliest": 0}, 0, {"recreated": 0}),
    ],
)
def test_a_gap_is_passed_over_where_the_flow_says_so_and_counted_once_it_is_kept(
    error: OutOfRange | LogTruncated, state: dict[str, int], resume: int, gaps: dict[str, int]
) -> None:
    run = Run(50, on_gap="skip").opened(5)
    run.fetch_fails(error)
    _look(run, **state)  # type: ignore[arg-type]
    assert (run.committing, run.copy.result.gaps) == (resume, {})
    kept = run.commit()
    assert run.copy.result.gaps == gaps
    assert kept.topic_id == state.get("topic_id", TOPIC_ID)
    if "end" not in state:
        assert run.site.reading == (resume, None)
        run.fetch(made(resume, 50 - resume))
        run.ack_all()
        run.commit()
    assert run.ends(Outcome.COMPLETE).end == state.get("end", 50)


def test_a_gap_whose_passing_was_not_kept_is_counted_once() -> None:
    run = Run(50, on_gap="skip").opened(5)
    run.site.neighbours_are_healthy = True
    for _ in range(2):
        run.fetch_fails(OutOfRange("gone", 1))
        _look(run, earliest=40)
        if run.copy.result.retries == 0:
            run.commit(KafkaTimeout("..."))
            run.dropped()
            run.advance(1_000)
            run.opened(5)
    run.commit()
    assert run.copy.result.gaps == {"retention": 35}


def test_a_topic_made_anew_between_two_runs_is_seen_by_its_id() -> None:
    run = Run(50).opened(5, topic_id="the-former")
    _look(run)
    assert "deleted and made again" in str(run.ends(Outcome.FAILED).error)
    assert run.sent == []


def test_a_source_that_errs_about_its_gap_is_asked_a_few_times_and_then_believed() -> None:
    run = Run(50).opened(5)
    for times in range(4):
        assert len(run.site.looks) == times
        run.fetch_fails(OutOfRange("gone", 1))
        _look(run)
    assert run.ends(Outcome.FAILED).error == "gone"


def test_what_was_sent_before_a_gap_is_committed_first() -> None:
    run = Run(50).opened(0)
    run.fetch(made(0, 5))
    run.fetch_fails(OutOfRange("gone", 1))
    assert run.copy.stage is Stage.COPYING
    run.ack()
    assert run.commit().offset == 5
    _look(run, earliest=40)
    assert run.ends(Outcome.FAILED).end == 5


@pytest.mark.parametrize("error", [KafkaTimeout("slow"), ValueError("odd")])
def test_a_source_that_cannot_be_asked_fails_the_copy(error: Exception) -> None:
    run = Run(50).opened(5)
    run.fetch_fails(OutOfRange("gone", 1))
    run.site.looks[-1].set_exception(error)
    run.site.settle_down()
    assert str(error) in str(run.ends(Outcome.FAILED).error)


# --- errors and silence


def test_a_source_that_refuses_waits_for_what_was_sent_before() -> None:
    run = Run(3).opened(0)
    run.fetch(made(0))
    run.fetch_fails(AuthorizationFailed("no Read on topic t", 29))
    assert not run.copy.done
    run.ack()
    assert run.commit().offset == 1
    assert run.ends(Outcome.FAILED).error == "no Read on topic t"


@pytest.mark.parametrize("atomic", [True, False])
def test_nothing_behind_a_corrupt_batch_is_copied_or_passed_by_progress(atomic: bool) -> None:
    """The whole range has come: its end must not count as reached."""
    damaged = build((b"1",), base_offset=1)
    damaged[-1] ^= 1
    run = Run(3, atomic=atomic).opened(0)
    run.fetch(made(0), batch(damaged), made(2))
    run.ack_all()
    assert run.commit().offset == 1
    result = run.ends(Outcome.FAILED)
    assert (result.end, run.sent) == (1, [[b"0"]])
    assert "the batch at offset 1" in str(result.error)


def test_a_codec_that_stumbles_ends_the_copy_and_nothing_else() -> None:
    run = Run(3, headers=(("h", b""),)).opened(0)
    run.site.encodes_by_hand = True
    run.fetch(made(0))
    run.site.makings[-1][2].set_exception(TypeError("odd record"))
    run.site.settle_down()
    assert "odd record" in str(run.ends(Outcome.FAILED).error)


def test_a_source_that_gives_nothing_is_given_up_with_its_reason() -> None:
    run = Run(3).opened(0)
    run.site.silence = ": no route"
    run.advance(TIMES.stall_ms - 1)
    assert run.copy.stage is Stage.COPYING
    run.advance(1)
    assert run.ends(Outcome.FAILED).error == "t-0: nothing came from the source for 5000 ms: no route"


def test_waiting_for_the_target_is_no_stall() -> None:
    run = Run(10).opened(0)
    run.fetch(made(0), stable_end=10)
    run.advance(TIMES.stall_ms * 2 - 500)
    assert run.copy.stage is Stage.COPYING
    run.ack()
    run.commit()
    assert run.copy.stage is Stage.COPYING, "it was not asked all that time"
    run.advance(TIMES.stall_ms - 1)
    assert run.copy.stage is Stage.COPYING
    run.advance(1)
    run.ends(Outcome.FAILED)


def test_a_source_that_is_not_asked_is_not_silent() -> None:
    run = Run(3).opened(0)
    run.clock.advance(TIMES.stall_ms - 1)
    run.copy.heard(run.clock.now())
    run.advance(TIMES.stall_ms - 1)
    assert run.copy.stage is Stage.COPYING


# --- an epoch's end


def _ends(run: Run, *, at_once: bool = False) -> None:
    run.copy.wind_up(run.clock.now(), at_once=at_once)
    run.site.settle_down()


@pytest.mark.parametrize("atomic", [True, False])
def test_what_is_acknowledged_at_an_epoch_s_end_is_committed(atomic: bool) -> None:
    run = Run(10**6, atomic=atomic).opened(0)
    run.fetch(made(0), stable_end=10**6)
    run.ack()
    _ends(run)
    assert run.commit().offset == 1
    result = run.ends(Outcome.UNFINISHED)
    assert (result.end, result.stuck_since_ms) == (1, None)


def test_what_is_undelivered_at_an_epoch_s_end_hands_on_since_when_it_waits() -> None:
    run = Run(10**6).opened(0)
    run.advance(100)
    handed_over = run.clock.wall()
    run.fetch(made(0), stable_end=10**6)
    run.advance(500)
    _ends(run)
    result = run.ends(Outcome.UNFINISHED)
    assert (result.end, result.stuck_since_ms) == (0, handed_over)


def test_a_commit_that_hangs_hands_on_since_when_it_waits() -> None:
    run = Run(10**6).opened(0)
    run.fetch(made(0), stable_end=1)
    run.advance(100)
    run.ack()
    assert run.committing == 1
    asked = run.clock.wall() - (run.clock.now() - run.copy._now_copying.commits.since_ms)
    run.advance(700)
    _ends(run)
    assert run.committing == 1, "it may still get through"
    _ends(run, at_once=True)
    assert run.ends(Outcome.UNFINISHED).stuck_since_ms == asked


@pytest.mark.parametrize("stage", [Stage.OPENING, Stage.SETTLING, Stage.LOOKING])
def test_an_epoch_ends_whatever_is_waited_for(stage: Stage) -> None:
    run = Run(10)
    began = run.clock.wall()
    if stage is Stage.SETTLING:
        run.opened_with(None)
    elif stage is Stage.LOOKING:
        run.opened(0)
        run.fetch_fails(OutOfRange("gone", 1))
    assert run.copy.stage is stage
    run.advance(300)
    _ends(run)
    assert run.ends(Outcome.UNFINISHED).stuck_since_ms == began


def test_the_time_of_a_stuck_batch_goes_on_over_epochs_and_each_tries_at_least_once() -> None:
    clock = FakeClock()
    stuck_since = clock.wall() - 4_000
    run = Run(10, clock=clock, stuck_since_ms=stuck_since)
    assert run.carrier.open_timeout_ms == TIMES.delivery_ms - 4_000
    run.opened(0)
    run.fetch(made(0))
    assert run.carrier.sent[0].created_ms == stuck_since
    _ends(run)
    assert run.ends(Outcome.UNFINISHED).stuck_since_ms == stuck_since
    run = Run(10, clock=clock, stuck_since_ms=clock.wall() - 60_000)
    assert run.carrier.open_timeout_ms == TIMES.request_ms
    run.opened(0)
    run.fetch(made(0))
    assert run.carrier.sent[0].created_ms == clock.wall() - TIMES.delivery_ms + TIMES.request_ms


def test_a_stuck_batch_that_got_through_is_stuck_no_more() -> None:
    clock = FakeClock()
    run = Run(10**6, clock=clock, stuck_since_ms=clock.wall() - 4_000).opened(0)
    run.fetch(made(0), stable_end=1)
    run.ack()
    run.advance(TIMES.commit_min_ms)
    run.commit()
    run.fetch(made(1), stable_end=2)
    assert run.carrier.sent[1].created_ms is None


def test_a_resting_copy_ends_with_its_epoch_as_what_it_was() -> None:
    run = Run(10).opened(0)
    run.site.neighbours_are_healthy = True
    run.fetch(made(0))
    run.fail(0, DeliveryTimeout("late"))
    run.dropped()
    run.site.neighbours_are_healthy = False
    _ends(run)
    run.ends(Outcome.EXPIRED)


# --- memory


def test_bytes_are_held_until_the_last_of_them_is_acknowledged_and_released_once() -> None:
    run = Run(10).opened(0)
    run.fetch(made(0), made(1))
    run.fetch(made(2), made(3))
    size = made(0).size
    assert run.copy.held == 4 * size
    run.ack(0)
    run.ack(1)
    assert [part.released for part in run.parts] == [1, 0]
    assert run.copy.held == 2 * size
    run.ack(2)
    assert [part.released for part in run.parts] == [1, 0]
    run.ack(3)
    assert [part.released for part in run.parts] == [1, 1]
    assert run.copy.held == 0


def test_bytes_of_a_lost_batch_are_not_released_since_they_may_still_be_sent() -> None:
    run = Run(10).opened(0)
    run.fetch(made(0), made(1))
    run.ack(0)
    run.fail(1, ConnectionFailed("gone"))
    assert [part.released for part in run.parts] == [0]
    assert run.copy.held == 0


def test_bytes_made_anew_are_held_too_and_their_sources_released_once_they_are_made() -> None:
    run = Run(10, headers=(("h", b"x"),)).opened(0)
    run.site.encodes_by_hand = True
    run.fetch(made(0))
    assert run.copy.held == made(0).size
    run.site.encode()
    run.site.settle_down()
    assert run.parts[0].released == 1
    assert run.copy.held == run.carrier.sent[0].size
    run.ack()
    assert run.copy.held == 0


def test_without_memory_a_batch_waits_in_line_and_goes_later() -> None:
    run = Run(1).opened(0)
    run.carrier.refuse = KafkaTimeout("no memory")
    run.site.window.call = lambda now: None  # type: ignore[method-assign] # noqa: ARG005
    run.fetch(made(0))
    assert run.site.window.awaited == 1
    assert not run.copy.wants_more
    run.carrier.refuse = None
    del run.site.window.call
    run.site.settle_down()
    assert run.sent == [[b"0"]]
