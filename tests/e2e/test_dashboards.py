"""The dashboards' queries and the alerts, in a real Prometheus that scrapes a real stream and the exporter."""

from __future__ import annotations

import json
import math
import signal
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from mirror.errors import DeliveryCause
from mirror.exit_status import ATTENTION, DONE
from mirror.sandbox.cluster import Cluster
from mirror.sandbox.ports import free_ports
from mirror.spark.ledger.copy_rate import MIN_BYTES
from tests import jvm
from tests.e2e.broker_side import Side
from tests.e2e.feed import Feed
from tests.e2e.prometheus import Prometheus, prometheus
from tests.e2e.said import EXPORTER, PROMETHEUS, Said
from tests.e2e.sick import PARTITIONS, SICK, SickFlow
from tests.e2e.site import Site, flow
from tests.polling import eventually
from tests.telemetry.dashboards import BOARDS, RULES, Query, choices, filled_in, queries

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.brokers,
    pytest.mark.spark,
    pytest.mark.prometheus,
    pytest.mark.timeout(900),
]

NAME = "sick-flow"
SHORT = """period-ms = 5000
refresh-ms = 1000
[flows.sick-flow.producer]
"delivery.timeout.ms" = 2500
"request.timeout.ms" = 1200
"linger.ms" = 0
[flows.sick-flow.groups]
interval-ms = 1000"""
WITHIN_S = 120.0


@pytest.fixture
def sick(source: Side, unique: Callable[[str], str]) -> Iterator[SickFlow]:
    topic = unique("orders")
    with Cluster(2, heap=jvm.BROKER) as cluster:
        yield SickFlow(source, topic, cluster, f"a.{topic}", name=NAME)


def test_every_query_has_an_answer_and_alerts_fire(site: Site, source: Side, sick: SickFlow, tmp_path: Path) -> None:
    """One stream for all of it: its start takes longer than the asking."""
    sick.fill(300, size=2 * MIN_BYTES // (300 * PARTITIONS) + 1_000)  # in one period, or in two: a rate is measured
    site.write({"a": source.address, "b": sick.address}, {NAME: flow("a", "b", [f"{sick.topic}.*"], SHORT)})
    (nobody,) = free_ports(1)
    environ = {
        "OTEL_METRICS_EXPORTER": "prometheus",
        "OTEL_EXPORTER_PROMETHEUS_HOST": "127.0.0.1",
        "OTEL_EXPORTER_PROMETHEUS_PORT": "0",
        "OTEL_METRIC_EXPORT_INTERVAL": "1000",
        # So that telemetry is dropped, too.
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": f"http://127.0.0.1:{nobody}/v1/traces",
        "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT": "1",
    }
    child = site.start(command="stream", environ=environ)
    said = Said(child)
    address = said.find(PROMETHEUS)
    exporter = site.launch([*site.command("exporter"), "--listen", "127.0.0.1:0", "--every", "1"])
    beside = Said(exporter).find(EXPORTER)
    with prometheus(tmp_path, [address, beside], RULES) as asked, Feed(source, sick.topic, PARTITIONS, 100):
        eventually(
            lambda: sick.copied(SICK) > 0, within_s=WITHIN_S, what="a copy of the sick partition while it is well"
        )
        verified = site.run("--report-dir", str(tmp_path / "verified"), command="verify")
        assert "equal" in verified.out, verified
        # The tasks report every ten seconds, and a rate is known at the end of the period in which they did.
        eventually(lambda: rate_of(site), within_s=WITHIN_S, what="a rate", every_s=1)
        rehearsed = site.finish(site.launch(site.command("rehearse")))
        assert rehearsed.status in {DONE, ATTENTION}, rehearsed
        # A rate needs two periods that ended, and two plans that were made, before its eyes.
        two = "sum(rate(mirror_period_duration_seconds_count[1m])) > 0"
        eventually(lambda: asked.query(two), within_s=WITHIN_S, what="periods")
        sick.add_topic()
        again = "sum(rate(mirror_plan_duration_seconds_count[1m])) > 0"
        eventually(lambda: asked.query(again), within_s=WITHIN_S, what="a plan of the new topic")
        sick.harm()
        await_answers(asked, {"flow": NAME, "topic": sick.topic, "partition": str(SICK), "window": "1m"})
        await_alerts(asked, sick.topic)
        child.send_signal(signal.SIGTERM)
        assert child.wait(WITHIN_S) == ATTENTION, said.all()  # its partition had expired
        ended = f'max(mirror_flow_state{{flow="{NAME}", state="ended"}}) == 1'
        eventually(lambda: asked.query(ended), within_s=WITHIN_S, what="the exporter to see its end")
    exporter.send_signal(signal.SIGTERM)
    assert exporter.wait(WITHIN_S) == DONE
    site.await_end()
    assert "Traceback" not in said.all()


def rate_of(site: Site) -> float | None:
    """How fast the flow was copied, as a plan says; None if that is not known."""
    planned = site.finish(site.launch([*site.command("plan"), "--json"]))
    (found,) = json.loads(planned.out)["flows"]
    rate: float | None = found["bytes_per_second"]
    return rate


def await_answers(asked: Prometheus, chosen: Mapping[str, str]) -> None:
    """Of every query, a number that is one; of every choice that Grafana offers, the ``chosen`` one."""
    left: list[Query] = [query for path in BOARDS for query in queries(path)]
    assert len(left) > 60

    def answered() -> bool:
        left[:] = [query for query in left if not numbers(asked.ranged(filled_in(query.expr, chosen), 20))]
        return not left

    try:
        eventually(answered, within_s=WITHIN_S, what="answers")
    except AssertionError as error:
        raise AssertionError(f"no data: {left}") from error
    for path in BOARDS:
        for name, selector, label in choices(path):
            assert chosen[name] in asked.label_values(label, filled_in(selector, chosen)), (path, name)


def numbers(series: list[dict[str, Any]]) -> list[float]:
    """All values of all series that are ones; an infinite time is."""
    values = [float(value) for one in series for _, value in one["values"]]
    return [value for value in values if not math.isnan(value)]


def await_alerts(asked: Prometheus, topic: str) -> None:
    """Those whose time has come; all others can be worked out."""

    def firing(name: str) -> list[dict[str, Any]]:
        return [each for each in asked.rules()[name]["alerts"] if each["state"] == "firing"]

    for name in ("MirrorExpiry", "MirrorTelemetryDropped"):
        eventually(lambda name=name: firing(name), within_s=WITHIN_S, what=name)  # type: ignore[misc]
    rules = asked.rules()
    assert {name: rule["lastError"] for name, rule in rules.items() if rule["health"] != "ok"} == {}
    (expiry,) = (each for each in firing("MirrorExpiry") if each["labels"]["phase"] == "metadata")
    assert (expiry["labels"]["topic"], expiry["labels"]["cause"]) == (topic, DeliveryCause.NO_LEADER.value)
    assert expiry["annotations"]["summary"] == f"{topic} (flow {NAME}): deliveries expire (metadata, no leader)"
    assert "MirrorGone" in rules
    assert not firing("MirrorGone")
