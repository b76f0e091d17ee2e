"""A partition of a stream that is given to tasks and taken from them, job after job, under any faults.

The target's records are a prefix of the source's stream at any time, each once and in order. The present attempt copies
everything once faults have stopped, and none ends as fenced unless another one has fenced it. Each class has one kind
of faults, beside those of an attempt's process.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from mirror.wire.api import Api
from tests.examples import examples
from tests.fakes import errors
from tests.producer.faults import LOST, Fault, fault
from tests.relay.partition.sequences_site import DAY_MS, NODES, WRITES
from tests.relay.partition.site_model import SiteModel
from tests.relay.partition.stream_site import TASKS, StreamSite

pytestmark = pytest.mark.timeout(300)

_MS = st.sampled_from([*[2_000] * 6, 1, 30, 150])
_ROUNDS = st.sampled_from([*[100_000] * 6, 1, 5, 13])
"""How often everything makes a turn, unless the time is over before: an attempt may be cut short between any two."""
_STANDS_MS = st.sampled_from([200, 300, 0])
_AGES_MS = st.sampled_from([0, 0, 0, 10 * DAY_MS])
_COUNTS = st.lists(st.sampled_from([1, 2, 3, -1, -2]), min_size=1, max_size=6)
_WAYS = st.sampled_from(["auto", "auto", "auto", "transactions"])
_CHANGES = ["moves", "moves", "moves", "job_begins", "task_is_lost"]
_newest = st.sampled_from([0, 0, 0, 1, 2])
"""An attempt, counted from the one that began last."""
_batches = st.integers(1, 4)

_PROCESSES: list[st.SearchStrategy[Fault]] = [
    fault("source_grows", counts=_COUNTS, age_ms=_AGES_MS),
    fault("requests_fare_badly", api=st.sampled_from([Api.PRODUCE, *WRITES]), knobs=LOST, times=st.integers(1, 2)),
    fault("task_stands_still", number=_newest, ms=st.sampled_from([50, 600, 1_500])),
    fault("suspend", number=_newest),
    fault("resume", number=_newest),
    fault("kill", number=_newest),
    fault("leader_moves", node=st.integers(1, NODES)),
    fault("task_is_lost", task=st.sampled_from(range(TASKS))),
    fault("moves", task=st.sampled_from(range(TASKS))),
]
_FETCHES = fault(
    "fetch_fails",
    number=_newest,
    code=st.sampled_from([None, None, errors.OFFSET_OUT_OF_RANGE, errors.NOT_LEADER]),
    skipped=st.sampled_from([0, 0, 1]),
    times=st.integers(1, 2),
    again_ms=st.sampled_from([900, 900, 0]),
)
_EPOCHS_UNKNOWN = fault("source_leader_moves", node=st.integers(1, 2), epoch_unknown=st.booleans())
_CONFIGURED = fault("flow_is_configured", by=_WAYS)
_CUTS = fault("source_is_cut_back", batches=_batches, node=st.integers(1, 2), counts=_COUNTS)
_SKIPPED_ONCE = fault("gap_is_skipped_once", batches=_batches, counts=_COUNTS, ms=st.sampled_from([1, 30, 60, 150]))
_SKIPS = fault("gaps_are_skipped", skipped=st.booleans())
_LOST_COMMITS = fault("offsets_topic_loses_commits", claims=st.integers(0, 2), lazy=st.integers(0, 2))


class _Model(SiteModel[StreamSite]):
    """A stream that begins with one job."""

    @initialize(
        level=st.integers(1, 2),
        by=_WAYS,
        marker_ms=st.sampled_from([0, 20, 300]),
        jitter_ms=st.sampled_from([0, 3, 20]),
        batch_size=st.sampled_from([1, 1, 262_144]),
        counts=_COUNTS,
        seed=st.integers(0, 1_000),
    )
    def begin(
        self, level: int, by: str, marker_ms: int, jitter_ms: int, batch_size: int, counts: list[int], seed: int
    ) -> None:
        options = {"batch.size": batch_size}
        self.site = StreamSite(level=level, by=by, marker_ms=marker_ms, jitter_ms=jitter_ms, seed=seed, **options)
        self.site.source_grows(counts, 0)
        self.site.job_begins()
        self.site.time_passes(2_000)


def _model(name: str, *kinds: st.SearchStrategy[Fault], plans: bool = False, trickles: bool = False) -> type[_Model]:
    """Return a model with faults of these ``kinds``, half of all, and those of processes.

    ``plans``: jobs begin, with plans of any age. ``trickles``: many batches come while tasks stand still.
    """
    faults = st.one_of(st.one_of(*_PROCESSES), st.one_of(*kinds)) if kinds else st.one_of(*_PROCESSES)

    class Model(_Model):
        @rule(
            change=st.sampled_from(
                ["job_begins"] if plans else ["moves", "moves", "moves", "job_begins", "task_is_lost"]
            ),
            task=st.sampled_from(range(TASKS)),
            plan_age=st.sampled_from([1, 0, 2] if plans else [0]),
            in_order=st.sampled_from([*[True] * 3, False]),
            before=st.sampled_from([0, 3, 14]),
            first_ms=st.sampled_from([950, 950, 950, 300]),
            stands_ms=st.tuples(_STANDS_MS if trickles else st.just(0), st.sampled_from([600, 300, 200, 0])),
            batches=st.sampled_from([14, 14, 1, 3] if trickles else [1, 1, 0, 3]),
            later_ms=st.sampled_from([100, 100, 100, 0, 300]),
            every_ms=st.sampled_from([40, 40, 40, 1]),
            faults=st.lists(faults, max_size=1 if plans else 2),
            rounds=_ROUNDS,
            ms=_MS,
        )
        def changes_hands(self, faults: list[Fault], rounds: int, ms: int, **arguments: Any) -> None:
            self._happen([("changes_hands", arguments), *faults], rounds, ms)

    Model.__name__ = Model.__qualname__ = name
    return Model


MovesModel = _model("MovesModel", trickles=True)
PlansModel = _model("PlansModel", plans=True)
FetchesModel = _model("FetchesModel", _FETCHES, _FETCHES, _EPOCHS_UNKNOWN)
CutsModel = _model("CutsModel", _CUTS, _SKIPPED_ONCE, _SKIPS, _CONFIGURED)
LostCommitsModel = _model("LostCommitsModel", _LOST_COMMITS, _CONFIGURED)
EverythingModel = _model(
    "EverythingModel",
    _FETCHES,
    _EPOCHS_UNKNOWN,
    _CUTS,
    _SKIPS,
    _LOST_COMMITS,
    _CONFIGURED,
    plans=True,
    trickles=True,
)

_SETTINGS = settings(max_examples=examples(2, 240), stateful_step_count=6)
TestMoves = MovesModel.TestCase
TestMoves.settings = _SETTINGS
TestPlans = PlansModel.TestCase
TestPlans.settings = _SETTINGS
TestFetches = FetchesModel.TestCase
TestFetches.settings = _SETTINGS
TestCuts = CutsModel.TestCase
TestCuts.settings = _SETTINGS
TestLostCommits = LostCommitsModel.TestCase
TestLostCommits.settings = _SETTINGS
TestEverything = EverythingModel.TestCase
TestEverything.settings = settings(_SETTINGS, max_examples=examples(3, 240))
