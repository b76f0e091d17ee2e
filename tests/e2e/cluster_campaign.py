"""More of a real cluster: `make cluster`. Not in the suite: what `make dist` makes takes long, and so does speculation.

When Spark begins another attempt is its own time; its event log must show that the later one gave the answer for both.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mirror.sandbox import copy_verifier
from tests.e2e.broker_side import Side
from tests.e2e.copied_topic import WITHIN_S
from tests.e2e.feed import Feed
from tests.e2e.site import Site
from tests.e2e.spark_hosts import ARCHIVE, pack
from tests.e2e.standalone import SPARK_HOME, Standalone
from tests.e2e.test_on_a_cluster import CHECKOUT, HERE, Flow, cores, executors, write
from tests.polling import eventually

__all__ = ["executors"]
pytestmark = [pytest.mark.brokers, pytest.mark.spark, pytest.mark.timeout(900)]


def test_a_batch_by_spark_submit_with_the_packed_environment(
    site: Site, source: Side, target: Side, executors: Standalone, unique: Callable[[str], str]
) -> None:
    """As config/standalone and jobs/README.md have it: Python and the mirror come from the archive, on all sides."""
    one = Flow(source, target, unique("orders"), 4, site, executors)
    one.prepare()
    secrets = site.folder / "secrets"  # as mounted on every host
    secrets.mkdir()
    (secrets / "clusters__b__bootstrap_servers").write_text(target.address, encoding="utf-8")
    site.config.write_text(
        site.config.read_text(encoding="utf-8").replace(target.address, "nowhere:1"), encoding="utf-8"
    )
    for partition in range(one.partitions):
        source.fill(one.topic, (b"%d-%d" % (partition, number) for number in range(1_000)), partition)
    pack()
    archive = CHECKOUT / "dist" / ARCHIVE
    (site.folder / "environment").mkdir()
    subprocess.run(["tar", "xzf", str(archive), "-C", str(site.folder / "environment")], check=True)
    (site.folder / archive.name).symlink_to(archive)
    own = site.folder / "own.conf"
    write(own, cores(2))
    options = ["--properties-file", str(CHECKOUT / "config/standalone/spark-defaults.conf"), "--master", executors.url]
    for line in own.read_text(encoding="utf-8").splitlines():
        options += ["--conf", line.replace(" ", "=", 1)]
    job = [str(CHECKOUT / "jobs/replicate.py"), "--config", str(HERE / "mirror.toml")]
    command = [
        str(SPARK_HOME / "bin/spark-submit"),
        *options,
        *job,
        "--report-dir",
        str(site.report),
        "--secrets-dir",
        str(secrets),
    ]
    run = site.finish(site.launch(command, environ={"PYTHONPATH": "", "SPARK_HOME": str(SPARK_HOME)}))

    assert run.status == 0, run.err
    assert site.flows()["f"]["outcome"] == "complete"
    assert sum(each["records"] for each in site.partitions("f").values()) == 4_000
    assert one.equal() == copy_verifier.CopyCheck(4_000, None)
    unpacked = list(executors.folder.glob("work-*/app-*/*/environment/bin/python"))
    assert len(unpacked) == 2, "an executor on each worker"


def test_speculation_in_a_stream_copies_nothing_twice(
    site: Site, source: Side, target: Side, executors: Standalone, unique: Callable[[str], str]
) -> None:
    """Each epoch's one task gets another attempt after a second, on the other worker, while it still copies."""
    one = Flow(source, target, unique("orders"), 2, site, executors)
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
    one = Flow(source, target, unique("orders"), 2, site, executors)
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
    assert one.equal() == copy_verifier.CopyCheck(6_000, None)


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
            result = json.loads(line) if line.startswith('{"Event":"SparkListenerTask') and line.endswith("}") else {}
            if "Task Info" in result:
                attempts[result["Task Info"]["Task ID"]] = {**result["Task Info"], "Stage": result["Stage ID"]}
    answered = [each for each in attempts.values() if each["Finish Time"] and not each["Killed"] and not each["Failed"]]
    originals = {each["Stage"]: each for each in attempts.values() if not each["Speculative"]}
    return any(
        each["Speculative"]
        and each["Host"] != originals[each["Stage"]]["Host"]
        # It runs on until it is killed, which Spark may report late or never.
        and originals[each["Stage"]] not in answered
        for each in answered
    )
