"""What tasks measure: each part is counted once, whichever of their reports arrive."""

from __future__ import annotations

from dataclasses import replace

from mirror.meters import Histogram, NetworkSnapshot, RequestMeter
from mirror.telemetry.task_report import MeasuredTasks, TaskReport
from tests.telemetry.results import AT_MS, a_task


def report(commits: int, *, attempt: int = 0, at_ms: int | None = None, run: str = "run-1") -> TaskReport:
    """Of a task that has committed so often, in 10 ms each, and sent as many requests."""
    durations = Histogram()
    for _ in range(commits):
        durations.add(10)
    produced = RequestMeter(durations.copy(), lost=commits, throttled_ms=commits)
    return a_task(
        attempt=attempt,
        run=run,
        ended_ms=AT_MS + (100 * commits if at_ms is None else at_ms),
        networks={"target": NetworkSnapshot({"Produce": produced}, commits)},
        commits=durations,
        phases={"producing": 10 * commits},
        dropped={"traces": commits},
        peaks={"buffer": commits},
    )


def counted(added: TaskReport | None) -> tuple[int, ...]:
    assert added is not None
    produced = added.networks["target"].requests["Produce"]
    return (
        added.commits.count,
        produced.took.count,
        produced.lost,
        produced.throttled_ms,
        added.networks["target"].busy_ms,
        added.phases["producing"] // 10,
        added.dropped["traces"],
    )


def test_each_report_adds_what_is_new_since_the_last_one_that_arrived() -> None:
    measured = MeasuredTasks("run-1")
    assert counted(measured.take(report(3))) == (3,) * 7
    assert measured.take(report(3)) is None, "it was read again"
    assert measured.take(report(2)) is None, "it is older"
    added = measured.take(report(10))
    assert counted(added) == (7,) * 7
    assert added is not None
    assert (added.began_ms, added.ended_ms) == (AT_MS + 300, AT_MS + 1_000), "as long as it took"
    assert added.peaks == {"buffer": 10}, "a peak since the report before"


def test_an_attempt_counts_from_its_own_begin_and_the_one_that_it_replaces_counts_no_more() -> None:
    measured = MeasuredTasks("run-1")
    measured.take(report(5))
    assert counted(measured.take(report(2, attempt=1))) == (2,) * 7
    assert measured.take(report(9)) is None


def test_reports_of_other_runs_and_unsound_ones_add_nothing() -> None:
    measured = MeasuredTasks("run-1")
    assert measured.take(report(3, run="run-0")) is None
    broken = RequestMeter(Histogram(counts=[1]))
    assert measured.take(replace(report(3), commits=Histogram(counts=[1, 2]))) is None
    assert measured.take(replace(report(3), networks={"source": NetworkSnapshot({"Fetch": broken}, 0)})) is None
    assert counted(measured.take(report(3))) == (3,) * 7


def test_a_period_has_the_tasks_of_the_run_within_it() -> None:
    measured = MeasuredTasks("run-1")
    measured.take(report(3))
    (found,) = measured.between(AT_MS + 90, AT_MS + 500)
    assert (found.host, found.began_ms, found.ended_ms) == ("worker-1", AT_MS + 90, AT_MS + 500)
