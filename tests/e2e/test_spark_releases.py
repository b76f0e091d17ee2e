"""Each release of Spark: runs and streams that are killed and resumed, and their copies compared by another client."""

from __future__ import annotations

import operator
import signal
import subprocess
from collections.abc import Callable
from typing import Final

import pytest

from tests.e2e.broker_side import Side
from tests.e2e.feed import Feed
from tests.e2e.site import Site, flow
from tests.e2e.spark_releases import RELEASES, python_with
from tests.polling import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.brokers, pytest.mark.spark, pytest.mark.timeout(900)]

PARTITIONS: Final = 2
RECORDS: Final = 8_000
"""In each partition, each one a batch of its own."""
STEP: Final = 300
OFTEN: Final = "commit-interval-ms = 200"
SLOWLY: Final = f"""{OFTEN}
max-bytes-per-second = 60000"""
SHORT: Final = f"""{OFTEN}
refresh-ms = 2000
shutdown-timeout-ms = 10000"""


def progress(target: Side, topic: str) -> list[int]:
    return [target.progress("f", f"a.{topic}", partition) for partition in range(PARTITIONS)]


def await_progress(target: Side, topic: str, ends: list[int], job: subprocess.Popen[str], what: str) -> None:
    """Wait until the target's progress has reached ``ends``; ``job`` has to live as long."""

    def reached() -> bool:
        assert job.poll() is None, (what, job.communicate())
        return all(map(operator.ge, progress(target, topic), ends))

    eventually(reached, within_s=300, what=what)


def kill_workers(site: Site) -> None:
    workers = site.workers()
    assert len(workers) == PARTITIONS
    for worker in workers:
        worker.kill()


@pytest.mark.parametrize("release", RELEASES)
def test_a_run_outlives_its_workers_and_the_next_one_resumes_where_its_driver_was_killed(
    release: str, site: Site, source: Side, target: Side, unique: Callable[[str], str]
) -> None:
    site.python = python_with(release)
    topic = unique("orders")
    values = [[b"%d-%d" % (partition, number) for number in range(RECORDS)] for partition in range(PARTITIONS)]
    source.create(topic, PARTITIONS)
    for partition in range(PARTITIONS):
        source.fill(topic, values[partition], partition, batch_num_messages=1, linger_ms=0)
    ends = {"a": source.address, "b": target.address}

    site.write(ends, {"f": flow("a", "b", [topic], SLOWLY)})
    run = site.start()
    await_progress(target, topic, [STEP] * PARTITIONS, run, "the middle of the copy")
    kill_workers(site)
    reached = max(progress(target, topic))
    await_progress(target, topic, [reached + STEP] * PARTITIONS, run, "what Spark tries again")
    site.kill()
    assert site.finish(run).status == -signal.SIGKILL
    left = progress(target, topic)
    assert all(STEP < offset < RECORDS for offset in left)

    site.write(ends, {"f": flow("a", "b", [topic], OFTEN)})
    last = site.run()
    assert (last.status, last.errors) == (0, [])
    results = site.partitions("f")
    for partition in range(PARTITIONS):
        assert results[topic, partition]["start"] == left[partition]
        assert target.read(f"a.{topic}", partition) == values[partition]

    verified = site.run(command="verify")
    assert (verified.status, verified.errors) == (0, [])
    assert f"{PARTITIONS} of {PARTITIONS} equal" in verified.out


@pytest.mark.parametrize("release", RELEASES)
def test_a_stream_outlives_its_workers_and_another_one_goes_on_where_its_driver_was_killed(
    release: str,
    site: Site,
    source: Side,
    target: Side,
    unique: Callable[[str], str],
) -> None:
    site.python = python_with(release)
    topic = unique("orders")
    source.create(topic, PARTITIONS)
    site.write({"a": source.address, "b": target.address}, {"f": flow("a", "b", [topic], SHORT)})
    with Feed(source, topic, PARTITIONS, 200) as feed:
        first = site.start(command="stream")
        await_progress(target, topic, [STEP] * PARTITIONS, first, "the first records")
        kill_workers(site)
        await_progress(target, topic, feed.ends(), first, "what the lost workers had")
        site.kill()
        assert site.finish(first).status == -signal.SIGKILL
        second = site.start(command="stream")
        await_progress(target, topic, feed.ends(), second, "what the lost driver had")
    await_progress(target, topic, feed.ends(), second, "the rest")
    second.terminate()
    ended = site.finish(second)
    assert (ended.status, ended.errors) == (0, [])
    site.await_end()
    for partition in range(PARTITIONS):
        assert target.read(f"a.{topic}", partition) == source.read(topic, partition)
