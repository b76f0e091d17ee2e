"""A stream as one job per flow: it copies while its workers are lost, ends in order, and another one goes on."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable

import pytest

from mirror.spark.ledger.status_table import read_status
from tests.e2e.broker_side import Side
from tests.e2e.feed import Feed
from tests.e2e.site import Site, flow
from tests.e2e.test_stream import Stream
from tests.polling import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.brokers, pytest.mark.spark, pytest.mark.timeout(900)]

PARTITIONS = 4
LINES = """period-ms = 5000
refresh-ms = 2000
shutdown-timeout-ms = 10000
"""


def test_a_job_outlives_its_workers_ends_in_order_and_the_next_one_resumes(
    site: Site, source: Side, target: Side, unique: Callable[[str], str]
) -> None:
    topic = unique("orders")
    source.create(topic, PARTITIONS)
    site.write({"a": source.address, "b": target.address}, {"f": flow("a", "b", [f"{topic}.*"], LINES)})

    def copied() -> list[int]:
        return [target.progress("f", f"a.{topic}", each) for each in range(PARTITIONS)]

    def await_progress(stream: Stream, ends: list[int], what: str) -> None:
        def reached() -> bool:
            assert stream.child.poll() is None, stream.child.communicate()
            return all(done >= end for done, end in zip(copied(), ends, strict=True))

        eventually(reached, within_s=120, what=what, every_s=0.1)

    with Feed(source, topic, PARTITIONS, 200) as feed:
        stream = Stream(site)
        await_progress(stream, [100] * PARTITIONS, "the first records")
        for _ in range(2):
            workers = site.workers()
            assert len(workers) >= 2
            workers[0].kill()
            await_progress(stream, feed.ends(), "what the lost worker had")
        eventually(lambda: _all_is_reported(target), within_s=60, what="what the tasks report, from here", every_s=1)
        began_s = time.monotonic()
        run = stream.end()
        assert time.monotonic() - began_s < 15
        assert (run.status, run.errors) == (0, []), run.err
        summary = site.flows()["f"]
        assert summary["outcome"] == "complete", summary
        before = sum(len(target.read(f"a.{topic}", each)) for each in range(PARTITIONS))
        # What a lost worker had not reported yet is not counted.
        assert 0 < sum(each["records"] for each in summary["partitions"]) <= before
        stream = Stream(site)
        await_progress(stream, feed.ends(), "what came since")
    await_progress(stream, feed.ends(), "the rest")
    run = stream.end()
    assert (run.status, run.errors) == (0, []), run.err
    for partition in range(PARTITIONS):
        assert target.read(f"a.{topic}", partition) == source.read(topic, partition)
    after = sum(each["records"] for each in site.flows()["f"]["partitions"])
    assert before + after == sum(feed.ends())


def _all_is_reported(target: Side) -> bool:
    """Whether the status topic has the tasks of the run, and each partition with what is copied of it."""
    found = read_status({"bootstrap.servers": target.address}, "f", 10_000)
    reports = [report for report, _ in found.partitions.values()]
    return bool(found.tasks) and len(reports) == PARTITIONS and all(report.result.records for report in reports)


def test_a_driver_that_is_killed_is_followed_by_another_one(
    site: Site, source: Side, target: Side, unique: Callable[[str], str]
) -> None:
    topic = unique("orders")
    source.create(topic, PARTITIONS)
    site.write({"a": source.address, "b": target.address}, {"f": flow("a", "b", [f"{topic}.*"], LINES)})
    with Feed(source, topic, PARTITIONS, 100) as feed:
        stream = Stream(site)
        eventually(lambda: target.progress("f", f"a.{topic}", 0) > 50, within_s=100, what="records", every_s=0.1)
        site.kill()
        assert site.finish(stream.child).status == -signal.SIGKILL
        stream = Stream(site)
        ends = feed.ends()
        eventually(
            lambda: all(target.progress("f", f"a.{topic}", each) >= ends[each] for each in range(PARTITIONS)),
            within_s=100,
            what="the rest",
            every_s=0.1,
        )
    run = stream.end()
    assert (run.status, run.errors) == (0, []), run.err
    for partition in range(PARTITIONS):
        copied = target.read(f"a.{topic}", partition)
        assert copied == source.read(topic, partition)[: len(copied)]
