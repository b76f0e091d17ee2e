"""Real executors: a standalone master with two workers, real brokers, and everything that may be lost on the way.

After each harm what the target has is what the source has, record by record, read by another client.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from mirror.sandbox.cluster import Cluster
from mirror.spark.ledger.ledger import Ledger
from tests import jvm
from tests.copying.pair import End
from tests.e2e.broker_side import Side
from tests.e2e.copied_topic import WITHIN_S, CopiedTopic
from tests.e2e.feed import Feed
from tests.e2e.site import Run, Site, flow
from tests.e2e.standalone import SECURED, Standalone, standalone
from tests.polling import eventually
from tests.telemetry import receiver

pytestmark = [pytest.mark.cluster, pytest.mark.brokers, pytest.mark.spark, pytest.mark.timeout(900)]

CHECKOUT: Final = Path(__file__).parents[2]
HERE: Final = Path("/proc/self/cwd")
"""What lies behind it is seen by the driver and its planners, not by executors: their working folders are others."""
SHORT: Final = """period-ms = 3000
refresh-ms = 2000
shutdown-timeout-ms = 10000"""
EXPIRES_SOON: Final = """commit-interval-ms = 500
[flows.f.producer]
"delivery.timeout.ms" = 5000
"request.timeout.ms" = 2000
"linger.ms" = 0"""
CLOSE_MS: Final = 50
SOON_MISSED: Final = {
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "500",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}
"""A controller finds out quickly that a broker is gone, and coordinators are where a test puts them."""
EXPIRY: Final = {"phase", "cause", "age_ms", "queued_ms", "in_flight_ms", "attempts", "last_error", "start", "end"} | {
    "may_have_been_written"
}


@pytest.fixture(scope="module")
def executors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    """The cluster; all tests of this module share it."""
    with standalone(tmp_path_factory.mktemp("standalone")) as cluster:
        yield cluster


@dataclass
class Flow(CopiedTopic):
    """Such a flow, submitted to the cluster ``executors`` from ``site``."""

    site: Site
    executors: Standalone

    def prepare(self, *lines: str) -> None:
        """The topic, and the configuration where no executor finds it but by its name."""
        self.source.create(self.topic, self.partitions)
        self.site.write(
            {"a": self.source.address, "b": self.target.address}, {"f": flow("a", "b", [self.topic], *lines)}
        )

    def start(
        self, job: str, report: str, *settings: Mapping[str, object], environ: Mapping[str, str] | None = None
    ) -> subprocess.Popen[str]:
        """`mirror run` or `mirror stream` on the cluster, by this interpreter and these sources on all sides."""
        conf = self.site.folder / f"conf-{report}"
        conf.mkdir(exist_ok=True)
        python = {"spark.pyspark.python": sys.executable, "spark.executorEnv.PYTHONPATH": CHECKOUT}
        write(conf / "spark-defaults.conf", python, *settings)
        where = ["--config", str(HERE / "mirror.toml"), "--report-dir", str(HERE / report)]
        command = [sys.executable, "-m", "mirror.cli", job, *where, "--master", self.executors.url]
        ours = {"SPARK_CONF_DIR": str(conf), "PYTHONPATH": str(CHECKOUT)}
        return self.site.launch(command, environ={**ours, **(environ or {})})

    def stop(self) -> Run:
        """`mirror stop`, from this host, which is not among those of the run."""
        command = [sys.executable, "-m", "mirror.cli", "stop", "--config", str(self.site.config)]
        return self.site.finish(self.site.launch(command, environ={"PYTHONPATH": str(CHECKOUT)}))


def write(path: Path, *settings: Mapping[str, object]) -> None:
    """Spark's settings for small executors on this machine, and ``settings``, which win."""
    common: dict[str, object] = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.executor.cores": 1,
        "spark.executor.memory": "512m",
        "spark.executor.extraJavaOptions": " ".join(jvm.SPARK),
        "spark.files": HERE / "mirror.toml",
        "spark.ui.enabled": "false",
        **SECURED,
    }
    for each in settings:
        common.update(each)
    path.write_text("".join(f"{key} {value}\n" for key, value in common.items()), encoding="utf-8")


def cores(count: int) -> dict[str, object]:
    return {"spark.cores.max": count, "spark.default.parallelism": count}


def test_a_stream_outlives_an_executor_and_a_driver_and_gives_way_to_another(
    site: Site, source: Side, target: Side, executors: Standalone, unique: Callable[[str], str]
) -> None:
    one = Flow(source, target, unique("orders"), 4, site, executors)
    one.prepare(SHORT)
    with Feed(source, one.topic, one.partitions, 200) as feed:
        first = one.start("stream", "report", cores(2))
        one.await_progress([100] * one.partitions, first, "the first periods")
        eventually(lambda: _in_mid_epoch(site.folder / "report"), within_s=WITHIN_S, what="a period")
        lost = executors.executors()
        assert len(lost) == 2
        lost[0].kill()
        one.await_progress(at_loss := feed.ends(), first, "what the lost executor had")
        one.agree(at_loss)
        assert lost[0].pid not in [each.pid for each in executors.executors()]

        eventually(lambda: _in_mid_epoch(site.folder / "report"), within_s=WITHIN_S, what="another period")
        site.kill()
        assert site.finish(first).status == -signal.SIGKILL
        again = one.start("stream", "report", cores(1))
        one.await_progress(at_loss := feed.ends(), again, "what the lost driver had")
        one.agree(at_loss)

        other = one.start("stream", "other-report", cores(1))
        fenced = site.finish(again)
        assert fenced.status == 3, fenced.err
        assert "flow f: held: another run of this flow took over" in fenced.err
        summary = json.loads((site.folder / "report/summary.json").read_text(encoding="utf-8"))
        assert summary["flows"][0]["outcome"] == "fenced"
        one.await_progress(feed.end(), other, "the rest")
    stopped = one.stop()
    assert (stopped.status, stopped.errors) == (0, [])
    last = site.finish(other)
    assert (last.status, last.errors) == (0, [])
    verdict = one.equal()
    assert verdict.equal, verdict.difference
    assert verdict.records == sum(feed.ends())


def _in_mid_epoch(report: Path) -> bool:
    """Whether tasks copy a period whose results are not reported yet."""
    ledger = Ledger.runs(report, "f")[0]
    return (ledger.last_planned_period() or 0) > (ledger.last_completed_period() or 0)


def test_a_run_with_a_sick_partition_is_one_tree_of_spans_over_driver_and_executors(
    site: Site, source: Side, executors: Standalone, unique: Callable[[str], str]
) -> None:
    topic, sick = unique("traced"), unique("sick")
    source.create(topic, 4)
    source.create(sick)
    for name, partition in [(sick, 0), *((topic, each) for each in range(4))]:
        source.fill(name, [b"%d" % number for number in range(50)], partition)
    with Cluster(2, properties=SOON_MISSED, heap=jvm.BROKER) as cluster, receiver.http() as (address, taken):
        target = End(cluster.bootstrap_servers)
        for internal in ("__transaction_state", "__consumer_offsets", "mirror-inventory.f.internal"):
            target.create_at(internal, [1], cleanup_policy="compact")
        target.create_at(f"a.{sick}", [2])
        ends = {"a": source.address, "b": target.address}
        site.write(ends, {"f": flow("a", "b", [sick], EXPIRES_SOON)})
        # Without a leader it cannot be read whether a topic of others is empty.
        site.ask("apply", "--flow", "f", "--adopt", f"a.{sick}")
        cluster.kill(2)
        eventually(lambda: target.leader(f"a.{sick}") < 0, what="no leader")
        site.write(ends, {"f": flow("a", "b", [topic, sick], EXPIRES_SOON)})
        one = Flow(source, target, topic, 4, site, executors)
        asked = {"OTEL_EXPORTER_OTLP_ENDPOINT": address, "OTEL_BSP_SCHEDULE_DELAY": "100"}
        run = site.finish(one.start("run", "traced", cores(2), environ=asked))
    assert run.status == 3, run.err
    (flow_reported,) = json.loads((site.folder / "traced" / "summary.json").read_text())["flows"]
    results = {(each["topic"], each["partition"]): each for each in flow_reported["partitions"]}
    _one_tree(taken)
    tasks = taken.named("mirror.task")
    assert len({span.resource["process.pid"] for span in tasks}) == 2, "two executors' workers"
    assert {span.resource["process.pid"] for span in taken.named("mirror.period")}.isdisjoint(
        span.resource["process.pid"] for span in tasks
    )
    for span in taken.named("mirror.partition"):
        result = results[span.attributes["mirror.topic"], span.attributes["mirror.partition"]]
        assert span.attributes["mirror.outcome"] == result["outcome"]
        assert abs(span.ended_ms - span.began_ms - result["seconds"] * 1000) <= CLOSE_MS
        assert span.began_ms == result["timeline"]["began_ms"]
    (late,) = [span for span in taken.named("mirror.partition") if span.attributes["mirror.topic"] == sick]
    (result,) = results[sick, 0]["expiries"]
    (expiry,) = [event for event in late.events if event[0] == "mirror.delivery.expired"]
    assert abs(expiry[1] - result["time_ms"]) <= CLOSE_MS
    wanted = {
        f"mirror.expiry.{name}": value for name, value in result.items() if name != "time_ms" and value is not None
    }
    assert expiry[2] == wanted
    assert {name.removeprefix("mirror.expiry.") for name in expiry[2]} >= EXPIRY
    assert expiry[2]["mirror.expiry.cause"] == "no leader"
    healthy = [span for span in taken.named("mirror.partition") if span is not late]
    assert min(span.at_s for span in healthy) * 1000 < late.ended_ms, "reported while the sick one was still tried"
    assert late.attributes["mirror.lag.before"] == 50
    assert all(span.attributes["mirror.lag.after"] == 0 for span in healthy)


def _one_tree(taken: receiver.ReceivedTelemetry) -> None:
    # An exporter whose connection breaks sends again: stores know a span by its id.
    by_id = {span.id: span for span in taken.spans}
    assert all(span.began_ms == by_id[span.id].began_ms for span in taken.spans)
    (root,) = [span for span in taken.spans if not span.parent]
    assert root.name == "mirror.period"
    assert {span.trace for span in taken.spans} == {root.trace}
    for span in taken.spans:
        if span.parent:
            parent = by_id[span.parent]
            assert parent.began_ms - CLOSE_MS <= span.began_ms <= span.ended_ms <= parent.ended_ms + CLOSE_MS
    assert len({span.id for span in taken.named("mirror.partition")}) == 5
