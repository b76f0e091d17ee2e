"""Rounds follow each other in a thread, whatever fails, and the last one is behind the copies."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final, Self

import pytest

from mirror.errors import ConnectionFailed, Fenced, FlowError, FlowHeld, KafkaError, LatchMoved
from mirror.groups.commit_decision import Reason
from mirror.groups.positions import GroupsReport, GroupState
from mirror.spark.driver.rounds import periodic_rounds
from mirror.spark.driver.rounds.outages import ClusterOutages, Outages
from mirror.spark.driver.rounds.periodic_rounds import PeriodicRounds, RoundKind
from mirror.spark.driver.rounds.reconciling import GROUPS
from tests.polling import eventually

WITHIN_S: Final = 20


class FakeRounds:
    """Does in each round what is next in ``script``: raise an error, or return a report."""

    def __init__(self, *script: Exception | GroupsReport) -> None:
        self.script = list(script)
        self.count = self.cpu_ms = 0
        self.new_groups = threading.Event()
        self.open = False

    def __enter__(self) -> Self:
        self.open = True
        return self

    def __exit__(self, *_: object) -> None:
        self.open = False

    def round(self, **_: object) -> GroupsReport:
        assert self.open
        self.count += 1
        done = self.script.pop(0) if self.script else GroupsReport(written=self.count)
        if isinstance(done, Exception):
            raise done
        return done

    def has_news(self) -> bool:
        return self.new_groups.is_set()

    def fenced(self, error: Fenced) -> GroupsReport:
        return GroupsReport({"billing": GroupState("billing", (), Reason.OTHER_RUN)}, (str(error),))

    def network_ms(self) -> int:
        return self.cpu_ms


def kind_of(
    on_report: Callable[[GroupsReport], None], interval_ms: int = 10, news_ms: int = 1_000
) -> RoundKind[GroupsReport]:
    return RoundKind(
        subject=GROUPS,
        interval_ms=interval_ms,
        on_report=on_report,
        problems=lambda report: report.problems,
        failed=lambda last, problem: (last or GroupsReport()).failed(problem, 1_000),
        news_ms=news_ms,
    )


@contextlib.contextmanager
def running(
    rounds: FakeRounds, interval_ms: int = 10, news_ms: int = 1_000, *, ends_with_hold: bool = True
) -> Iterator[tuple[Callable[[], GroupsReport], queue.Queue[str]]]:
    reports: queue.Queue[GroupsReport] = queue.Queue()
    warnings: queue.Queue[str] = queue.Queue()
    kind = replace(kind_of(reports.put, interval_ms, news_ms), ends_with_hold=ends_with_hold)
    with PeriodicRounds(lambda: rounds, kind, warnings.put):
        yield lambda: reports.get(timeout=WITHIN_S), warnings
    assert not rounds.open


def test_rounds_follow_each_other_and_one_is_last() -> None:
    rounds = FakeRounds()
    with running(rounds) as (report, _):
        for number in (1, 2, 3):
            assert report().written == number
        before = rounds.count
    assert rounds.count > before


@pytest.mark.parametrize("error", [FlowHeld("held by switch s"), LatchMoved("held, and released since")])
def test_rounds_of_a_flow_that_is_held_have_no_last_one(error: FlowError) -> None:
    """It would be refused, and what holds the flow would wait for it: for 15 s while the source is away."""
    rounds = FakeRounds()
    with pytest.raises(FlowError, match="held"), running(rounds, interval_ms=60_000, news_ms=0) as (report, _):  # noqa: PT012 - the rounds have to be there before
        assert report().written == 1
        raise error
    eventually(lambda: not rounds.open, what="their end")
    assert rounds.count == 1


def test_rounds_that_a_hold_does_not_fence_have_a_last_one() -> None:
    rounds = FakeRounds()
    running_rounds = running(rounds, interval_ms=60_000, news_ms=0, ends_with_hold=False)
    with pytest.raises(FlowHeld), running_rounds as (report, _):  # noqa: PT012 - the rounds have to be there before
        assert report().written == 1
        raise FlowHeld("held by switch s")
    assert rounds.count == 2


def test_a_round_that_hangs_holds_up_no_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(periodic_rounds, "_JOIN_S", threading.TIMEOUT_MAX)
    began, answers = threading.Event(), threading.Event()

    class Hanging(FakeRounds):
        def round(self, **_: object) -> GroupsReport:
            began.set()
            answers.wait()
            return super().round()

    rounds = Hanging()
    with pytest.raises(FlowHeld), running(rounds):  # noqa: PT012 - the round has to hang before
        assert began.wait(WITHIN_S)
        raise FlowHeld("held by switch s")
    assert rounds.open, "the round still hangs"
    answers.set()
    eventually(lambda: not rounds.open, what="its end")
    assert rounds.count == 1


def test_a_failed_round_is_reported_once_and_the_next_one_follows() -> None:
    rounds = FakeRounds(GroupsReport(written=7), KafkaError("no answer"), KafkaError("no answer"))
    with running(rounds) as (report, warnings):
        found = [report() for _ in range(4)]
    assert [one.problems for one in found] == [(), ("no answer",), ("no answer",), ()]
    since_ms = found[1].failing_since_ms
    assert since_ms is not None
    assert [one.failing_since_ms for one in found] == [None, since_ms, since_ms, None]
    assert warnings.get_nowait() == "consumer groups: no answer"
    assert warnings.empty()


def test_a_cluster_that_is_away_is_reported_for_all_rounds_together() -> None:
    lines: list[str] = []
    reports, warnings = queue.Queue[GroupsReport](), queue.Queue[str]()
    outages = Outages(ClusterOutages(lines.append, lines.append, lambda: 0.0), "f", {"b": "b1:9092"})
    rounds = FakeRounds(
        ConnectionFailed("broker 1 at b1:9092: refused"), ConnectionFailed("broker 1 at b1:9092: reset")
    )
    with PeriodicRounds(lambda: rounds, kind_of(reports.put), warnings.put, outages=outages):
        found = [reports.get(timeout=WITHIN_S) for _ in range(3)]
    assert [len(one.problems) for one in found] == [1, 1, 0]
    assert warnings.empty()
    away, back = lines
    assert away.startswith("cluster b does not answer, since ")
    assert back.startswith("cluster b answers again, after 0.0 s")


def test_a_part_of_a_round_that_meets_an_outage_hides_no_line_of_the_others() -> None:
    lines: list[str] = []
    reports, warnings = queue.Queue[GroupsReport](), queue.Queue[str]()
    outages = Outages(ClusterOutages(lines.append, lines.append, lambda: 0.0), "f", {"b": "b1:9092"})
    error = ConnectionFailed("broker 1 at b1:9092: refused")
    kind = replace(kind_of(reports.put), errors=lambda report: {str(error): error} if report.written == 1 else {})
    rounds = FakeRounds(GroupsReport(problems=("a topic was deleted", str(error)), written=1))
    with PeriodicRounds(lambda: rounds, kind, warnings.put, outages=outages):
        for _ in range(2):
            reports.get(timeout=WITHIN_S)
    assert warnings.get_nowait() == "consumer groups: a topic was deleted"
    assert warnings.empty()
    away, back = lines
    assert away.startswith("cluster b does not answer, since ")
    assert back.startswith("cluster b answers again, after 0.0 s")


def test_an_unexpected_error_is_reported_and_the_rounds_begin_again() -> None:
    with running(FakeRounds(ZeroDivisionError("what"))) as (report, _):
        assert report().problems == ("ZeroDivisionError: what",)
        assert report().problems == ()


def test_the_rounds_of_a_fenced_run_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(periodic_rounds, "_FENCED_WAIT_MS", 50)
    rounds = FakeRounds(Fenced("another one", 90))
    with running(rounds) as (report, _):
        found = report()
        assert (found.problems, found.by_reason()) == (("another one",), {Reason.OTHER_RUN: 1})
        assert report().problems == ()


def test_errors_of_reports_and_warnings_end_no_rounds() -> None:
    """A full disk fails the report, and a closed terminal the warning."""
    rounds = FakeRounds()
    lines: queue.Queue[str] = queue.Queue()

    def fail(_: GroupsReport) -> None:
        raise OSError("disk full")

    def warn(line: str) -> None:
        lines.put(line)
        if rounds.count < 3:
            raise BrokenPipeError

    with PeriodicRounds(lambda: rounds, kind_of(fail), warn):
        found = [lines.get(timeout=WITHIN_S) for _ in range(3)]
    assert set(found) == {"consumer groups: the state of the consumer groups could not be reported: OSError: disk full"}
    assert lines.empty()


class FakeTime:
    """A stop event that is never set: waiting for it takes no time."""

    def __init__(self) -> None:
        self.now_ms = 0

    def wait(self, timeout_s: float) -> bool:
        self.now_ms += round(timeout_s * 1000)
        return False


def waited_ms(monkeypatch: pytest.MonkeyPatch, rounds: FakeRounds, interval_ms: int, *, takes_ms: int = 0) -> int:
    """Return the time between a round, which takes so long, and the next one. Only ``rounds.cpu_ms`` is CPU time."""
    fake, times = FakeTime(), list[int]()
    monkeypatch.setattr(periodic_rounds, "_now_ms", lambda: fake.now_ms)
    monkeypatch.setattr(time, "thread_time_ns", lambda: 0)
    follower = PeriodicRounds(lambda: rounds, kind_of(lambda _: None, interval_ms), lambda _: None)
    monkeypatch.setattr(follower, "_stopped", fake)
    run = rounds.round

    def round_(**_: object) -> GroupsReport:
        times.append(fake.now_ms)
        fake.now_ms += takes_ms
        return run()

    monkeypatch.setattr(rounds, "round", round_)
    with rounds:
        while len(times) < 2:
            follower._step(rounds)
    return times[1] - times[0] - takes_ms


def test_a_fenced_run_waits_in_full_also_if_there_are_new_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    rounds = FakeRounds(Fenced("another one", 90))
    rounds.new_groups.set()
    assert waited_ms(monkeypatch, rounds, 5_000) == 30_000


def test_an_interval_as_long_as_the_wait_of_a_fenced_run_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    assert waited_ms(monkeypatch, FakeRounds(), 30_000) == 30_000


def test_new_groups_do_not_wait_for_the_interval() -> None:
    rounds = FakeRounds()
    with running(rounds, interval_ms=3_600_000, news_ms=5) as (report, _):
        assert report().written == 1
        rounds.new_groups.set()
        assert report().written == 2
        rounds.new_groups.clear()


def test_a_failed_listing_of_groups_does_not_end_the_wait_for_the_next_round(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise each second would have a round, while a cluster is away."""
    rounds = FakeRounds()

    def fail() -> bool:
        raise KafkaError("no answer")

    monkeypatch.setattr(rounds, "has_news", fail)
    assert waited_ms(monkeypatch, rounds, 10_000) == 10_000


def take_cpu(monkeypatch: pytest.MonkeyPatch, rounds: FakeRounds, cpu_ms: int) -> None:
    def busy(**_: object) -> GroupsReport:
        rounds.cpu_ms += cpu_ms
        return GroupsReport()

    monkeypatch.setattr(rounds, "round", busy)


def test_a_round_that_takes_much_cpu_is_followed_later(monkeypatch: pytest.MonkeyPatch) -> None:
    rounds = FakeRounds()
    assert waited_ms(monkeypatch, rounds, 100) == 100
    take_cpu(monkeypatch, rounds, 50)
    assert waited_ms(monkeypatch, rounds, 100) == 500
    assert waited_ms(monkeypatch, rounds, 100, takes_ms=100) == 400, "of the time from one begin to the next"


@pytest.mark.parametrize(("takes_ms", "waited"), [(0, 10_000), (4_000, 6_000), (9_900, 1_000), (60_000, 1_000)])
def test_rounds_begin_an_interval_after_each_other_with_a_rest_between(
    monkeypatch: pytest.MonkeyPatch, takes_ms: int, waited: int
) -> None:
    assert waited_ms(monkeypatch, FakeRounds(), 10_000, takes_ms=takes_ms) == waited


def test_new_groups_wait_after_a_round_that_takes_much_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    rounds = FakeRounds()
    rounds.new_groups.set()
    take_cpu(monkeypatch, rounds, 700)
    assert waited_ms(monkeypatch, rounds, 60_000) == 7_000
