"""The whole job under a real spark-submit, with clusters in a folder: statuses, outputs, secrets, signals."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from mirror.spark.ledger.ledger import Ledger
from tests.e2e.site import DOING, errors_in
from tests.polling import eventually
from tests.spark.stand_in.files import FOLDER, Cluster

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ROOT = Path(__file__).parents[3]
CANARY = "canary-4711"
"""Stands for everything that a configuration holds; the sandbox's clusters have no secrets yet."""

CONFIG = f"""
[clusters.a]
"bootstrap.servers" = "a:1"
"client.id" = "{CANARY}"
[clusters.b]
"bootstrap.servers" = "b:1"

[flows.good]
source = "a"
target = "b"
topics = ["orders", "clicks-.*"]
configs = "create"
"""

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]


@dataclass
class JobHarness:
    """A folder with clusters, a configuration and reports."""

    folder: Path
    environ: Mapping[str, str]
    a: Cluster
    b: Cluster

    @property
    def report_dir(self) -> Path:
        return self.folder / "my report"

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        base = [sys.executable, "-m", "mirror.cli", "run", "--config", "mirror.toml", "--master", "local[2,4]"]
        return subprocess.Popen(
            [*base, "--report-dir", str(self.report_dir), *arguments],
            cwd=self.folder,
            env=self.environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: str) -> tuple[int, str, str]:
        with self.start(*arguments) as child:
            out, err = child.communicate()
        return child.returncode, out, err

    def summary(self) -> list[dict[str, Any]]:
        flows: list[dict[str, Any]] = json.loads((self.report_dir / "summary.json").read_text())["flows"]
        return flows

    def ledger(self, flow: str) -> Ledger:
        return Ledger(max((self.report_dir / "ledger" / flow).iterdir()))


@pytest.fixture
def site(tmp_path: Path) -> Iterator[JobHarness]:
    made = [Cluster(f"{name}:1", tmp_path).make() for name in "ab"]
    made[0].add_topic("orders", [100, 20, 30, 40]).add_topic("clicks-1", [10], earliest=3)
    (tmp_path / "mirror.toml").write_text(CONFIG)
    (tmp_path / "conf").mkdir()
    events = tmp_path / "events"
    events.mkdir()
    settings = {
        "spark.ui.enabled": "false",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": events.as_uri(),
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
    }
    (tmp_path / "conf" / "spark-defaults.conf").write_text(
        "\n".join(f"{key} {value}" for key, value in settings.items())
    )
    environ = {
        **os.environ,
        "PYTHONPATH": str(Path(__file__).parents[1] / "stand_in"),
        "SPARK_CONF_DIR": str(tmp_path / "conf"),
        FOLDER: str(tmp_path),
    }
    yield JobHarness(tmp_path, environ, made[0], made[1])
    # Whatever a test left running: all of it carries the folder in its environment.
    for process in processes_of(tmp_path):
        process.kill()


def processes_of(folder: Path) -> list[psutil.Process]:
    """Every process that was started for this folder's clusters."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(FOLDER) == str(folder) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue
    return found


@pytest.mark.cluster
def test_partitions_fail_alone_and_a_dead_worker_is_retried(site: JobHarness) -> None:
    """What comes of the next run: see tests/e2e."""
    site.b.set_moods({"a.orders/1": "fail", "a.orders/2": "die"})
    status, out, err = site.run("--flow", "good")
    assert status == 3, err
    assert errors_in(err) == ""
    steps = [re.sub(DOING, "", line) for line in err.splitlines()]
    assert steps[0].startswith("starting Spark (master local[2,4]); Spark's log is ")
    assert steps[1:] == [
        "checking the clusters a, b",
        "flow good: preparing its topics on cluster b",
        "flow good: planning",
        "flow good: copying 197 records in 5 partitions of 2 topics",
    ]
    assert "4 of 5 complete" in out
    assert "the target refused the batch at offset 7" in out
    (flow,) = site.summary()
    assert (flow["flow"], flow["outcome"], flow["error"]) == ("good", "failed", None)
    results = {(each["topic"], each["partition"]): each for each in flow["partitions"]}
    assert {key: each["outcome"] for key, each in results.items()} == {
        ("clicks-1", 0): "complete",
        ("orders", 0): "complete",
        ("orders", 1): "failed",
        ("orders", 2): "complete",
        ("orders", 3): "complete",
    }
    assert (results["clicks-1", 0]["start"], results["clicks-1", 0]["records"]) == (3, 7)
    # The worker that was killed was tried again, and only the range it had not done was still there to copy.
    assert {each.attempt for each in site.ledger("good").attempts()} >= {1}
    ends = [each["end"] for each in site.b.state()["topics"]["a.orders"]["partitions"]]
    assert ends == [100, 0, 30, 40]
    assert no_leak(site)


def no_leak(site: JobHarness) -> bool:
    """Spark's event log and log hold our options, but nothing of the configuration's content."""
    texts = [path.read_text() for path in [*(site.folder / "events").iterdir(), site.report_dir / "spark.log"]]
    assert any("mirror good: a to b" in text for text in texts), "the event log is not where it is looked for"
    return not any(CANARY in text for text in texts)


@pytest.mark.cluster
def test_topics_that_cannot_be_copied_fail_alone_and_are_named_with_their_reasons(site: JobHarness) -> None:
    long = "clicks-".ljust(249, "x")
    site.a.add_topic(long, [5]).add_topic("clicks-a.b", [5])
    site.b.add_topic("a.clicks-a_b", [0]).set_moods({"refused": json.dumps({"a.orders": "a policy says no"})})
    reasons = {long: "would have 251 characters", "clicks-a.b": "collides", "orders": "a policy says no"}
    status, out, err = site.run("--flow", "good")
    assert status == 3, err
    warned = errors_in(err).splitlines()
    assert len(warned) == len(reasons), err
    for topic, reason in reasons.items():
        (line,) = [each for each in warned if each.startswith(f"mirror: warning: flow good: topic {topic} cannot be")]
        assert reason in line
    assert "1 of 7 complete" in out
    (flow,) = site.summary()
    assert (flow["outcome"], flow["error"]) == ("failed", None)
    results = {(each["topic"], each["partition"]): each for each in flow["partitions"]}
    assert results.pop(("clicks-1", 0))["records"] == 7
    assert results.keys() == {(long, 0), ("clicks-a.b", 0), *(("orders", number) for number in range(4))}
    for (topic, _), each in results.items():
        assert (each["outcome"], each["records"]) == ("failed", 0)
        assert reasons[topic] in each["error"]
    page = (site.report_dir / "report.html").read_text()
    for reason in reasons.values():
        assert reason in page


@pytest.mark.cluster
def test_a_bug_in_a_task_is_one_line_and_with_debug_a_traceback(site: JobHarness) -> None:
    site.b.set_moods({"a.clicks-1/0": "raise"})
    status, out, err = site.run("--flow", "good", "--debug")
    assert status == 3
    assert "RuntimeError: a bug of two lines" in " ".join(out.split())
    assert err.count("Traceback (most recent call last)") == 1
    assert 'raise RuntimeError("a bug\\nof two lines")' in err


@pytest.mark.cluster
def test_a_hanging_task_is_interrupted(site: JobHarness) -> None:
    """Other ways to cut a run short: see tests/e2e."""
    site.b.set_moods({"a.orders/0": "hang"})
    with site.start("--flow", "good", "--json") as child:
        hangs = site.folder / "b-1.hangs"
        eventually(lambda: hangs.exists() or child.poll() is not None, within_s=400)
        assert child.poll() is None, child.communicate()
        assert len(processes_of(site.folder)) >= 4
        second, _, refused = site.run("--flow", "good")
        assert second == 1
        assert errors_in(refused).startswith("mirror: another run is using the report folder ")
        child.send_signal(signal.SIGTERM)
        out, err = child.communicate()
    assert child.returncode == 143
    assert errors_in(err) == "mirror: interrupted by SIGTERM; the next run resumes from the committed progress\n"
    (flow,) = site.summary()
    assert json.loads(out) == {"flows": [flow]}, "printed also after Spark has gone"
    assert flow["outcome"] == "unfinished"
    results = {(each["topic"], each["partition"]): each for each in flow["partitions"]}
    assert results["orders", 0]["outcome"] == "unfinished"
    assert {each["outcome"] for each in flow["partitions"]} <= {"unfinished", "complete"}
    # Of a task without results, the target has what was committed.
    copied = {key: site.b.progress("good", f"a.{key[0]}", key[1]) for key in results}
    assert {key: each["end"] for key, each in results.items()} == {
        key: each["start"] if copied[key] is None else copied[key] for key, each in results.items()
    }
    assert all(each["records"] == each["end"] - each["start"] for each in results.values())
    assert any(each["records"] for each in results.values()), "the hanging task's neighbours had copied something"
    assert all((each["bytes"] is None) == (each["outcome"] == "unfinished") for each in results.values())
    eventually(lambda: not processes_of(site.folder))


def test_wrong_usage_of_the_job_itself(site: JobHarness) -> None:
    submit = Path(sys.executable).with_name("spark-submit")
    environ = {**site.environ, "PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    command = [str(submit), str(ROOT / "jobs" / "replicate.py"), "--flow", "good"]
    done = subprocess.run(command, env=environ, cwd=site.folder, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "the following arguments are required: --config" in done.stderr
    assert done.stdout == ""


def test_wrong_usage_and_a_wrong_configuration_need_no_spark(site: JobHarness) -> None:
    assert site.run("--nonsense")[0] == 2
    status, _, err = site.run("--flow", "other")
    assert status == 1
    assert "other" in err
    assert "Traceback" not in err
    assert not site.report_dir.exists(), "where it submits, its log is"
