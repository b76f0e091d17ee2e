"""Each release of Spark: a run that is killed and resumed, and the copy compared by another client."""

from __future__ import annotations

import signal
from collections.abc import Callable
from functools import partial
from typing import Final

import pytest

from tests.e2e.broker_side import Side
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

    def copied(at_least: int) -> bool:
        assert run.poll() is None, run.communicate()
        return all(target.progress("f", f"a.{topic}", partition) >= at_least for partition in range(PARTITIONS))

    def await_copied(at_least: int, what: str) -> None:
        eventually(partial(copied, at_least), within_s=300, what=what)

    site.write(ends, {"f": flow("a", "b", [topic], SLOWLY)})
    run = site.start()
    await_copied(STEP, "the middle of the copy")
    lost = site.workers()
    assert len(lost) == PARTITIONS
    for worker in lost:
        worker.kill()
    reached = max(target.progress("f", f"a.{topic}", partition) for partition in range(PARTITIONS))
    await_copied(reached + STEP, "what Spark tries again")
    assert not {worker.pid for worker in lost} & {worker.pid for worker in site.workers()}
    site.kill()
    assert site.finish(run).status == -signal.SIGKILL
    left = [target.progress("f", f"a.{topic}", partition) for partition in range(PARTITIONS)]
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
