"""Speculation on a real cluster: `make speculation`. Not in the suite: when Spark begins an attempt is its own time.

Its event log must show that the later attempt gave the answer for both.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mirror.sandbox import judge
from tests.e2e.broker_side import Side
from tests.e2e.feed import Feed
from tests.e2e.site import Site
from tests.e2e.standalone import Standalone
from tests.e2e.test_on_a_cluster import WITHIN_S, Flow, cores, executors
from tests.polling import eventually

__all__ = ["executors"]
pytestmark = [pytest.mark.brokers, pytest.mark.spark, pytest.mark.timeout(900)]


def test_speculation_in_a_stream_copies_nothing_twice(
    site: Site, source: Side, target: Side, executors: Standalone, unique: Callable[[str], str]
) -> None:
    """Each epoch's one task gets another attempt after a second, on the other worker, while it still copies."""
    one = Flow(site, source, target, unique("orders"), 2, executors)
    # Long enough for the other one, in a Python of its own, to take over.
    one.prepare("epoch-ms = 8000")
    events = site.folder / "events"
    with Feed(source, one.topic, one.partitions, 200) as feed:
        stream = one.start("stream", "report", cores(2), speculating(events, after="1s"))
        eventually(lambda: taken_over(events), within_s=WITHIN_S, what="an epoch that the later attempt ended")
        one.await_progress(feed.end(), stream, "the rest")
    stopped = one.stop()
    assert (stopped.status, stopped.errors) == (0, [])
    last = site.finish(stream)
    assert (last.status, last.errors) == (0, [])
    verdict = one.equal()
    assert verdict.equal, verdict.difference
    assert verdict.records == sum(feed.ends())


def test_speculation_in_a_scheduled_run_copies_all_and_nothing_twice(
    site: Site, source: Side, target: Side, executors: Standalone, unique: Callable[[str], str]
) -> None:
    one = Flow(site, source, target, unique("orders"), 2, executors)
    one.prepare("max-bytes-per-second = 50000", "commit-interval-ms = 200")
    for partition in range(one.partitions):
        source.fill(
            one.topic, (b"%d-%d" % (partition, number) for number in range(3_000)), partition, batch_num_messages=1
        )
    events = site.folder / "events"
    run = site.finish(one.start("run", "report", cores(2), speculating(events, after="3s")))
    assert (run.status, run.errors) == (0, [])
    assert {each["outcome"] for each in site.partitions("f").values()} == {"complete"}
    assert taken_over(events)
    assert one.equal() == judge.Verdict(6_000, None)


def speculating(events: Path, *, after: str) -> dict[str, object]:
    """One task at a time, which gets another attempt ``after`` some time; Spark's events go to ``events``."""
    events.mkdir()
    return {
        "spark.default.parallelism": 1,
        "spark.speculation": "true",
        "spark.speculation.interval": "100ms",
        # A task alone has no others to be slower than.
        "spark.speculation.task.duration.threshold": after,
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": events.as_uri(),
        "spark.eventLog.compress": "false",
    }


def taken_over(events: Path) -> bool:
    """Whether a speculative attempt, on another host, began while its original copied, and gave the answer for both."""
    attempts: dict[int, dict[str, Any]] = {}
    for path in events.rglob("events_*"):
        for line in path.read_text(encoding="utf-8").splitlines():
            told = json.loads(line) if line.startswith('{"Event":"SparkListenerTask') and line.endswith("}") else {}
            if "Task Info" in told:
                attempts[told["Task Info"]["Task ID"]] = {**told["Task Info"], "Stage": told["Stage ID"]}
    answered = [each for each in attempts.values() if each["Finish Time"] and not each["Killed"] and not each["Failed"]]
    originals = {each["Stage"]: each for each in attempts.values() if not each["Speculative"]}
    return any(
        each["Speculative"]
        and each["Host"] != originals[each["Stage"]]["Host"]
        # It runs on until it is killed, which Spark may tell late or never.
        and originals[each["Stage"]] not in answered
        for each in answered
    )
