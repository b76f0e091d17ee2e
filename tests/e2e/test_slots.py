"""Runs that a scheduler ends early, or begins twice: nothing is lost or doubled, and the exit status says it."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from pyspark.find_spark_home import _find_spark_home

from tests.e2e.broker_side import Side
from tests.e2e.site import Run, Site, flow
from tests.polling import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.brokers, pytest.mark.spark, pytest.mark.timeout(900)]

CHECKOUT: Final = Path(__file__).parents[2]
SLOT: Final = CHECKOUT / "jobs" / "schedules" / "cron" / "slot.sh"
RECORDS: Final = 12_000
"""Each one a batch of its own."""
OFTEN: Final = "commit-interval-ms = 200"
SLOWLY: Final = f"{OFTEN}\nmax-bytes-per-second = 6000"
"""All of them take minutes: longer than Spark takes to start on a busy machine."""


@pytest.fixture
def values() -> list[bytes]:
    return [b"%d" % number for number in range(RECORDS)]


@pytest.fixture
def topic(source: Side, unique: Callable[[str], str], values: list[bytes]) -> str:
    """A topic of the source with all values."""
    name = unique("slots")
    source.create(name)
    source.fill(name, values, batch_num_messages=1, linger_ms=0)
    return name


@pytest.fixture
def copied(target: Side, topic: str) -> Callable[[], int]:
    """How many records the progress on the target has."""
    return lambda: target.progress("f", f"a.{topic}", 0)


def test_a_slot_that_ends_a_run_loses_and_doubles_nothing(
    site: Site, source: Side, target: Side, topic: str, values: list[bytes], copied: Callable[[], int]
) -> None:
    """The slots of cron, one after the other, until everything is copied."""
    site.write({"a": source.address, "b": target.address}, {"f": flow("a", "b", [topic], SLOWLY)})
    command = [*site.command("run"), "--report-dir", str(site.report), "--master", "local[2,4]"]
    slots = 0
    while copied() <= 0:
        slots += 1
        assert slots < 6, "Spark does not start within a slot"
        run = site.finish(site.launch([str(SLOT), str(site.folder / "slot"), "45", "1", *command]))
        assert run.status == 143, run.out
        assert "interrupted by SIGTERM; the next run resumes from the committed progress" in run.out
        assert "slot.sh: exit status 143: ended after 45 s" in run.out
        site.await_end()
    reached = copied()
    assert reached < RECORDS
    assert site.flows()["f"]["outcome"] == "unfinished"
    assert site.partitions("f")[topic, 0]["end"] == reached
    assert target.read(f"a.{topic}") == values[:reached]

    site.write({"a": source.address, "b": target.address}, {"f": flow("a", "b", [topic], OFTEN)})
    run = site.finish(site.launch([str(SLOT), str(site.folder / "slot"), "400", "1", *command]))
    assert run == Run(0, "", ""), "cron would mail what is printed"
    assert site.partitions("f")[topic, 0]["start"] == reached
    assert target.read(f"a.{topic}") == values


def test_sigterm_to_a_bare_spark_submit_loses_and_doubles_nothing(
    site: Site, source: Side, target: Side, topic: str, values: list[bytes], copied: Callable[[], int]
) -> None:
    clusters = {"a": source.address, "b": target.address}
    site.write(clusters, {"f": flow("a", "b", [topic], SLOWLY)})
    submit = [str(Path(_find_spark_home()) / "bin/spark-submit"), "--master", "local[2,4]"]
    job = [str(CHECKOUT / "jobs" / "replicate.py"), "--config", str(site.config), "--report-dir", str(site.report)]
    environ = {"PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(CHECKOUT)}
    run = site.launch([*submit, *job], environ=environ)
    eventually(lambda: copied() > 0 or run.poll() is not None, within_s=120, what="the first records")
    os.kill(run.pid, signal.SIGTERM)
    assert site.finish(run).status == 143
    site.await_end()
    assert 0 < copied() < RECORDS

    site.write(clusters, {"f": flow("a", "b", [topic], OFTEN)})
    assert site.finish(site.launch([*submit, *job], environ=environ)).status == 0
    assert target.read(f"a.{topic}") == values


def test_run_that_overlaps_another_one_takes_over(
    site: Site, source: Side, target: Side, topic: str, values: list[bytes], copied: Callable[[], int]
) -> None:
    """The second one has another report folder, as on another host."""
    clusters = {"a": source.address, "b": target.address}
    site.write(clusters, {"f": flow("a", "b", [topic], SLOWLY)})
    first = site.start()
    eventually(lambda: copied() > 0 or first.poll() is not None, within_s=120, what="the first records")

    refused = site.run()
    assert refused.status == 1
    assert str(site.report) in refused.err

    site.write(clusters, {"f": flow("a", "b", [topic], OFTEN)})
    other = [*site.command("run"), "--report-dir", str(site.folder / "other"), "--master", "local[2,4]"]
    second = site.finish(site.launch(other))
    assert second.status == 0, second.out
    ended = site.finish(first)
    assert ended.status == 3, ended.out
    assert site.flows()["f"]["outcome"] == "fenced"
    assert site.partitions("f")[topic, 0]["end"] < RECORDS
    assert target.read(f"a.{topic}") == values
