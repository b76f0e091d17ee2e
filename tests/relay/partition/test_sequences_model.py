"""Attempts at one partition in any interleaving and under any faults, with the real code from ``copy_ranges`` down.

The target's records are a prefix of the source's stream at any time, without duplicates and in order; they are complete
in the end, or the partition has a named error that something which happened justifies.
"""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from mirror.wire.api import Api
from tests.examples import examples
from tests.fakes import errors
from tests.producer.faults import LOST, Fault, fault
from tests.relay.partition.sequences_faults import NEARLY_EXPIRED_MS, FaultySite
from tests.relay.partition.sequences_site import DAY_MS, NODES, WRITES
from tests.relay.partition.site_model import SiteModel

pytestmark = pytest.mark.timeout(300)

_MS = st.sampled_from([1, 10, 30, 60, 100, 200, 400, 1_500, 5_000])
_ROUNDS = st.sampled_from([100_000, 1, 2, 3, 5, 8, 13])
"""How often everything makes a turn, unless the time is over before: an attempt may be cut short between any two."""
_nodes = st.integers(1, NODES)
_number = st.integers(0, 30)
_few = st.integers(1, 4)
_COUNTS = st.lists(st.sampled_from([1, 2, 3, 4, -1, -2]), min_size=1, max_size=12)
_AGES = st.sampled_from([0, 0, 0, 0, NEARLY_EXPIRED_MS, 10 * DAY_MS])
_WAYS = st.sampled_from(["auto", "auto", "auto", "transactions"])
_REFUSED = st.sampled_from([errors.NOT_ENOUGH_REPLICAS, errors.NOT_LEADER])
_UNDECIDED = st.sampled_from([errors.REQUEST_TIMED_OUT, errors.NOT_ENOUGH_REPLICAS_AFTER_APPEND])
_LATE = st.sampled_from([None, 0, 30, 700, 5_000])
_READS = [Api.FIND_COORDINATOR, Api.METADATA, Api.FETCH, Api.OFFSET_FETCH, Api.LIST_OFFSETS]


def _cut_short(age_ms: st.SearchStrategy[int]) -> st.SearchStrategy[Fault]:
    """The first of the batches is the fence's marker."""
    batches, rounds = st.integers(0, 5), st.integers(0, 20)
    return fault(
        "attempt_is_cut_short", counts=_COUNTS, age_ms=age_ms, batches=batches, rounds=rounds, killed=st.booleans()
    )


_FAULTS: st.SearchStrategy[Fault] = st.one_of(
    fault("start"),
    fault("flow_is_planned"),
    _cut_short(_AGES),
    _cut_short(st.just(0)),
    _cut_short(st.just(0)),
    fault("suspend", number=_number),
    fault("resume", number=_number),
    fault("kill", number=_number),
    fault("source_grows", counts=_COUNTS, age_ms=_AGES),
    fault("flow_is_configured", by=_WAYS),
    fault("batches_are_refused", code=_REFUSED, handled=st.just(False), times=st.integers(1, 2)),
    fault("batches_are_refused", code=_UNDECIDED, handled=st.booleans(), times=st.integers(1, 2)),
    fault("leader_moves", node=_nodes),
    fault("replication_stands_still", ms=_MS),
    fault("markers_take", ms=st.sampled_from([0, 20, 300, 2_500])),
    fault("marker_comes_again"),
    fault("coordinators_move", node=_nodes),
    fault("connections_break", node=_nodes, late_ms=_LATE),
    fault("broker_restarts", node=_nodes, ms=st.sampled_from([1, 300, 3_000])),
    fault("requests_fare_badly", api=st.sampled_from(WRITES), knobs=LOST, times=st.integers(1, 2)),
    fault("requests_fare_badly", api=st.sampled_from(_READS), knobs=LOST, times=st.just(1)),
    fault("request_comes_again", api=st.sampled_from(WRITES), number=_number),
    fault("minutes_pass", minutes=st.sampled_from([1, 11, 30])),
    fault("days_pass", days=st.integers(1, 3)),
)
_LOSSES: st.SearchStrategy[Fault] = st.one_of(
    fault("leader_loses", node=_nodes, batches=st.integers(1, 6), new_replica=st.booleans()),
    fault("source_deletes", batches=st.integers(1, 12)),
    fault("target_deletes", batches=st.integers(1, 12)),
    fault("retention_deletes_what_an_ended_attempt_copied", markers=st.integers(0, 2)),
    fault("target_is_made_again", offsets_too=st.booleans()),
)
_LOST_COMMITS = fault("offsets_topic_loses_commits", claims=st.integers(0, 8), lazy=st.integers(0, 8))
_COURSES: st.SearchStrategy[Fault] = st.one_of(
    fault("progress_comes_late_after_transactions", counts=_COUNTS, number=_number),
    fault("batch_comes_late_when_producers_are_forgotten", counts=_COUNTS, number=_number),
    fault("producer_id_changes_between_attempts_that_die", counts=_COUNTS),
    fault("transactions_of_lost_commits", counts=_COUNTS, kept=st.integers(0, 2), lost=_few, more=_COUNTS),
    fault("transaction_of_the_progress_is_deleted", counts=_COUNTS, copies=st.integers(2, 3), more=_COUNTS),
    fault(
        "target_is_made_again_and_progress_comes_late",
        offsets_too=st.booleans(),
        counts=_COUNTS,
        batches=_few,
        number=_number,
    ),
)


class _Model(SiteModel[FaultySite]):
    """A site that begins with one attempt, and copies everything in the end."""

    @initialize(
        level=st.integers(1, 2),
        by=_WAYS,
        marker_ms=st.sampled_from([0, 20, 300, 1_000]),
        jitter_ms=st.sampled_from([0, 3, 20, 40]),
        in_flight=st.integers(1, 5),
        batch_size=st.sampled_from([1, 1, 250, 262_144]),
        counts=_COUNTS,
        age_ms=_AGES,
        seed=st.integers(0, 1_000),
    )
    def begin(
        self,
        level: int,
        by: str,
        marker_ms: int,
        jitter_ms: int,
        in_flight: int,
        batch_size: int,
        counts: list[int],
        age_ms: int,
        seed: int,
    ) -> None:
        options = {"max.in.flight.requests.per.connection": in_flight, "batch.size": batch_size}
        self.site = FaultySite(level=level, by=by, marker_ms=marker_ms, jitter_ms=jitter_ms, seed=seed, **options)
        self.site.source_grows(counts, age_ms)
        self.site.start()


class SequencesModel(_Model):
    """Faults that lose nothing, or only commits of the progress; :class:`LossesModel` has the others.

    No error is justified.
    """

    @rule(faults=st.lists(st.one_of(_FAULTS, _LOST_COMMITS), max_size=3), rounds=_ROUNDS, ms=_MS)
    def faults_and_time(self, faults: list[Fault], rounds: int, ms: int) -> None:
        self._happen(faults, rounds, ms)


class LossesModel(SequencesModel):
    """Besides, logs lose what is acknowledged, or what retention deletes."""

    @rule(faults=st.lists(st.one_of(_FAULTS, _LOSSES), max_size=3), rounds=_ROUNDS, ms=_MS)
    def losses_and_time(self, faults: list[Fault], rounds: int, ms: int) -> None:
        self._happen(faults, rounds, ms)


class CoursesModel(_Model):
    """Courses of events that single faults hit too seldom, each beside another fault."""

    @rule(course=_COURSES, faults=st.lists(_FAULTS, max_size=1), rounds=_ROUNDS, ms=_MS)
    def course_and_time(self, course: Fault, faults: list[Fault], rounds: int, ms: int) -> None:
        self._happen([*faults, course], rounds, ms)


TestSequences = SequencesModel.TestCase
TestSequences.settings = settings(max_examples=examples(7, 150), stateful_step_count=10)
TestLosses = LossesModel.TestCase
TestLosses.settings = settings(max_examples=examples(7, 150), stateful_step_count=10)
TestCourses = CoursesModel.TestCase
TestCourses.settings = settings(max_examples=examples(3, 40), stateful_step_count=3)
