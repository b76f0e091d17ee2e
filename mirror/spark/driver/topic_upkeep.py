"""Keeps the topics of a stream and the assignments of its tasks up to date, in one thread.

::

    each second       ──► tasks that are lost, releases that are settled
    discovery-interval ──► new topics and partitions      ──prepare──► assign
    each 3 s          ──► target topics that are deleted ──► a comparison at once
    refresh-ms        ──► a comparison of all topics      ──prepare──► assign, release, plan
"""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

from mirror.backoff import Backoff
from mirror.errors import MirrorError, named
from mirror.relay.progress.control_record import POLL_INTERVAL_MS
from mirror.runtime.clock import SystemClock, process_rng
from mirror.spark.clusters import open_sides
from mirror.spark.discovery.topic_watch import TopicWatch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

    from mirror.config.models import FlowConfig, MirrorConfig
    from mirror.observation import Sides
    from mirror.spark.discovery.topic_watch import Prepare
    from mirror.spark.driver.copy_jobs import FollowedJob
    from mirror.spark.driver.rounds.outages import Outages
    from mirror.spark.ledger.topic_obstacles import TargetTopics

_JOIN_S: Final = 5.0
"""How long the end of a stream waits for the thread, which may be waiting for a cluster that does not answer."""
_MAX_BACKOFF_MS: Final = 30_000
"""What fails each time is tried this often: a listing of all topics is not free for the brokers."""
_CPU_SHARE: Final = 10
"""Discovery, with what is done about what is found, takes at most a tenth of a core, unless it takes more than a third
of a second each time: see the longest pause."""
_LONGEST_MS: Final = 3_000
"""A new topic waits for no longer, unless a comparison of all topics is in progress."""

_TARGET_MS: Final = 3_000
"""How often it is checked whether target topics were deleted: an idle copy would not notice."""


def pause_ms(interval_ms: int, cpu_ms: int) -> int:
    """Return how long to wait, at least ``interval_ms``, after discovery that took ``cpu_ms`` of CPU time."""
    return max(interval_ms, min(cpu_ms * (_CPU_SHARE - 1), _LONGEST_MS))


@dataclass(slots=True)
class _Step:
    """What is done again and again."""

    subject: str
    """What it does, for people."""
    run: Callable[[Sides], int]
    """Does it by a new observation of both clusters; returns how long to pause. Raises MirrorError."""
    due_ms: int
    backoff: Backoff
    failures: int = 0
    """How often it has failed in a row."""
    reported: str = ""
    """The last error, until it succeeds."""


# Invariant: A stream compares all topics of the source with the target again and again, never with a plan: what could
#   not be created is tried again, less and less often.
# Test: tests/spark/driver/
#   test_topic_upkeep.py::test_new_topics_are_discovered_and_what_could_not_be_created_is_tried_again
# Test: tests/spark/driver/
#   test_topic_upkeep.py::test_an_error_of_several_steps_is_reported_once_and_met_less_and_less_often
class TopicUpkeep:
    """The thread. Nothing else prepares topics of the flow, or changes its assignments, while it runs."""

    def __init__(
        self,
        config: MirrorConfig,
        flow: FlowConfig,
        targets: TargetTopics,
        prepare: Prepare,
        prepare_own: Callable[[Sides], None],
        job: FollowedJob,
        warn: Callable[[str], None],
        outages: Outages,
    ) -> None:
        """``targets`` is the preparation with which the stream begins.

        ``prepare`` prepares target topics, and drops others; ``prepare_own`` prepares those that the flow has for
        itself. Both are called in the thread, as ``warn`` is.
        """
        self._config: Final = config
        self._flow: Final = flow
        self._prepare_own: Final = prepare_own
        self._job: Final = job
        self._warn: Final = warn
        self._outages: Final = outages
        self._watch: Final = TopicWatch(flow, targets, prepare, job.assign)
        self._clock: Final = SystemClock()
        self._ended: Final = threading.Event()
        self._resources: Final = ExitStack()
        now, rng = self._clock.now(), process_rng()
        self._steps: Final = [
            _Step(subject, run, now + first_ms, Backoff(POLL_INTERVAL_MS, _MAX_BACKOFF_MS, rng))
            for subject, run, first_ms in (
                ("the assignments of the tasks", self._update, POLL_INTERVAL_MS),
                ("the discovery of topics", self._discover, flow.discovery_interval_ms),
                ("the target's topics", self._check_target, _TARGET_MS),
                ("the comparison of topics", self._compare, flow.refresh_ms),
            )
        ]
        self._missing, self._deleted = set[str](), set[str]()
        """The target topics that were missing the last time, and those of which it was said that they are deleted."""

    def __enter__(self) -> Self:
        observe = self._resources.enter_context(open_sides(self._config, self._flow)).again
        name = f"mirror-topics-{self._flow.name}"
        self._thread = threading.Thread(target=self._run, args=(observe,), name=name, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.end(error)
        self._thread.join(_JOIN_S)

    def end(self, error: BaseException | None) -> None:
        """Have it end, which the end of the block waits for; ``error`` is what ends the block."""
        del error
        self._ended.set()

    def _run(self, observe: Callable[[], Sides]) -> None:
        with self._resources:
            while not self._ended.wait(max(0, min(step.due_ms for step in self._steps) - self._clock.now()) / 1000):
                step = min(self._steps, key=lambda each: each.due_ms)
                pause = self._do(step, observe())
                step.due_ms = self._clock.now() + pause

    def _do(self, step: _Step, sides: Sides) -> int:
        """Do what is due; return how long to pause. After failures that is longer and longer (KIP-580).

        An error is reported once until another one occurs, or the step succeeds.
        """
        try:
            pause = step.run(sides)
        except Exception as error:  # noqa: BLE001 - the thread goes on: nothing else would find what is new
            line = str(error) if isinstance(error, MirrorError) else f"{type(error).__name__}: {error}"
            away = self._outages.failed(step.subject, error)
            if not away and line not in {each.reported for each in self._steps}:
                self._warn(line)
            step.reported, step.failures = line, step.failures + 1
            return step.backoff.after(step.failures)
        step.reported, step.failures = "", 0
        self._outages.recovered(step.subject)
        return pause

    def _update(self, _: Sides) -> int:
        self._job.update()
        return POLL_INTERVAL_MS

    def _discover(self, sides: Sides) -> int:
        def cpu_ms() -> int:
            return time.thread_time_ns() // 1_000_000 + sum(one.admin.network().busy_ms for one in sides)

        began_ms = cpu_ms()
        self._watch.discover(sides)
        return pause_ms(self._flow.discovery_interval_ms, cpu_ms() - began_ms)

    def _check_target(self, sides: Sides) -> int:
        before, self._missing = self._missing, self._watch.deleted(sides)
        deleted = before & self._missing  # a broker that is behind may not know yet what was created
        new, self._deleted = sorted(deleted - self._deleted), deleted
        if new:
            self._warn(_deleted_line(new, self._flow))
            self._watch.compare_all()
            comparison = self._steps[-1]
            comparison.due_ms = self._clock.now()
        return _TARGET_MS

    def _compare(self, sides: Sides) -> int:
        self._prepare_own(sides)
        if self._watch.compare(sides):
            return self._flow.discovery_interval_ms
        self._job.refresh(self._watch.targets)
        return self._flow.refresh_ms


def _deleted_line(topics: Sequence[str], flow: FlowConfig) -> str:
    were, them, their = ("was", "it", "its") if len(topics) == 1 else ("were", "them", "their")
    if flow.on_target_recreated == "start-over":
        follows = f"made again, {their} partitions are copied from the flow's start (on-target-recreated)"
    else:
        follows = (
            f"made again, {their} partitions fail with target-recreated; to copy them again from the flow's start, set"
            ' on-target-recreated = "start-over"'
        )
    return f"{named('target topic', topics)} {were} deleted, with what was copied into {them}: {follows}"
