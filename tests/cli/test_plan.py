"""``mirror plan`` as it is typed: statuses, tables, JSON."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from mirror.cli.app import app
from mirror.spark.ledger import status_table
from mirror.spark.ledger.copy_rate import CopyRate
from mirror.spark.ledger.status_table import StatusTable
from tests.spark.flow_harness import UNREACHABLE_FLOW, FlowHarness, configuration, use_fakes

if TYPE_CHECKING:
    from pathlib import Path

    from typer.testing import Result

TOPICS = "orders[bold]?"


class PlanHarness(FlowHarness):
    def plan(self, *arguments: str) -> Result:
        return self.invoke("plan", *arguments)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PlanHarness:
    use_fakes(monkeypatch)
    return PlanHarness(tmp_path, TOPICS)


def test_something_to_do_is_status_3(site: PlanHarness) -> None:
    site.a.add_topic("orders", [10, 0])
    found = site.plan()
    assert (found.exit_code, found.stderr) == (3, "")
    for part in ["flow f: a to b", "orders", "1.0 kB", "shallow", "copy", "1 of 2 partitions have nothing to copy"]:
        assert part in found.stdout
    assert "on b: topic a.orders is created: partitions 2, replicas the cluster's default" in found.stdout
    assert "estimated time: unknown (no earlier run of the flow has shown a rate); 13 s of it are" in found.stdout
    assert site.b.state()["topics"] == {}
    assert not (site.folder / "report").exists(), "to look leaves nothing behind"


def test_topic_of_heartbeats_that_is_missing_is_a_change_on_the_source(site: PlanHarness) -> None:
    site.a.add_topic("orders", [0])
    site.commit(0)
    site.b.add_topic("a.orders", [0])
    for name in ("mirror-progress.f", "mirror-offsets.f", "mirror-progress.f.status"):
        site.b.add_topic(f"{name}.internal", [0], configs={"cleanup.policy": "compact"})
    assert site.plan().exit_code == 0
    with site.config.open("a") as file:
        file.write("[flows.f.mirrormaker]\nheartbeats = true\n")
    found = site.plan()
    assert found.exit_code == 3
    assert "on a: topic heartbeats is created: partitions 1, replicas the cluster's default" in found.stdout
    (document,) = json.loads(site.plan("--json").stdout)["flows"]
    assert len(document["changes"]) == 1
    assert "heartbeats" not in site.a.state()["topics"]


def test_the_estimate_is_never_less_than_spark_s_start(site: PlanHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    site.a.add_topic("orders", [10])
    monkeypatch.setattr(status_table, "read_status", lambda *_: StatusTable(rate=CopyRate(16_000, 2.0, 1)))
    said = "estimated time: 13 s, copying at 8.0 kB/s; 13 s of it are Spark's start, as measured elsewhere on two cores"
    assert said in site.plan().stdout


def test_nothing_to_do_is_status_0(site: PlanHarness) -> None:
    site.a.add_topic("orders", [0])
    site.b.add_topic("a.orders", [0])
    for name in ("mirror-progress.f", "mirror-offsets.f", "mirror-progress.f.status"):
        site.b.add_topic(f"{name}.internal", [0], configs={"cleanup.policy": "compact"})
    found = site.plan()
    assert (found.exit_code, found.stderr) == (0, "")
    assert found.stdout.rstrip().endswith("nothing to do")


def test_as_json(site: PlanHarness) -> None:
    site.a.add_topic("orders", [10, 0])
    found = site.plan("--json")
    assert found.exit_code == 3
    outcome = json.loads(found.stdout)
    (flow,) = outcome["flows"]
    assert outcome["errors"] == {}
    assert (flow["flow"], flow["records"], flow["bytes"], flow["seconds"], flow["to_do"]) == ("f", 10, 1000, None, True)
    first, second = flow["partitions"]
    assert first == {
        "topic": "orders",
        "target_topic": "a.orders",
        "partition": 0,
        "action": "copy",
        "start": 0,
        "end": 10,
        "records": 10,
        "bytes": 1000,
        "way": "shallow",
        "reasons": [],
        "error": None,
    }
    assert second["action"] == "nothing"


def test_a_cluster_that_does_not_answer_is_status_1_and_hides_no_other_flow(site: PlanHarness) -> None:
    site.a.add_topic("orders", [10])
    site.config.write_text(configuration(TOPICS) + UNREACHABLE_FLOW)
    found = site.plan("--json")
    line = (
        "cluster gone does not answer: describing the cluster did not succeed within 60000 ms: "
        "broker -1 at gone:1: connection refused; check its bootstrap.servers, and that it runs"
    )
    assert (found.exit_code, found.stderr) == (1, f"mirror: flow g: {line}\n")
    outcome = json.loads(found.stdout)
    assert [flow["flow"] for flow in outcome["flows"]] == ["f"]
    assert outcome["errors"] == {"g": line}
    assert site.plan("--flow", "f").exit_code == 3
    shown = site.plan("--debug")
    assert "Traceback (most recent call last)" in shown.stderr


def test_wrong_flows_are_refused_all_at_once(site: PlanHarness) -> None:
    second = UNREACHABLE_FLOW.replace("gone:1", "a:1").replace('["clicks"]', '["__.*"]')
    site.config.write_text(configuration(TOPICS) + second)
    site.a.add_topic("__consumer_offsets", [1])
    found = site.plan()
    assert (found.exit_code, found.stdout) == (1, "")
    first, other = found.stderr.splitlines()
    assert first.startswith("mirror: flow f: none of the 1 topics of cluster a matches")
    assert other.startswith("mirror: flow g: topics = ['__.*'] matches nothing but topics that topics-exclude")


def test_wrong_usage_is_status_2(site: PlanHarness) -> None:
    assert site.plan("--nonsense").exit_code == 2
    assert CliRunner().invoke(app, ["plan"]).exit_code == 2


def test_help_says_what_the_statuses_mean() -> None:
    found = CliRunner().invoke(app, ["plan", "--help"])
    text = " ".join(found.stdout.replace("│", " ").split())
    assert "0 nothing to do, 3 something to copy or change or a partition that would fail, 1 could not plan" in text


def test_it_needs_no_spark() -> None:
    script = "import sys, mirror.cli.commands.plan; sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_text_of_brokers_is_not_read_as_markup(site: PlanHarness) -> None:
    site.config.write_text(configuration(".*"))
    site.a.add_topic("orders", [10])
    site.b.set_moods({"refused": json.dumps({"a.orders": "[red]no"})})
    assert "[red]no" in site.plan().stdout


def test_a_topic_that_cannot_be_copied_is_named_with_its_reason_and_is_status_3(site: PlanHarness) -> None:
    long = "x" * 249
    site.config.write_text(configuration(".*"))
    site.a.add_topic("orders", [0]).add_topic(long, [5])
    site.b.add_topic("a.orders", [0])
    for name in ("mirror-progress.f", "mirror-offsets.f", "mirror-progress.f.status"):
        site.b.add_topic(f"{name}.internal", [0], configs={"cleanup.policy": "compact"})
    found = site.plan("--json")
    assert (found.exit_code, found.stderr) == (3, ""), "permissions were asked for, too"
    (flow,) = json.loads(found.stdout)["flows"]
    found_for = {each["topic"]: (each["action"], each["error"]) for each in flow["partitions"]}
    assert found_for["orders"] == ("nothing", None)
    assert found_for[long][0] == "fail"
    assert flow["changes"] == []
    assert [line for line in flow["warnings"] if "permissions could not be checked" in line] == []
    shown = " ".join(site.plan().stdout.split())
    assert "would have 251 characters" in shown


def test_topics_that_transactions_couple_are_found_as_far_back_as_asked(site: PlanHarness) -> None:
    for name in ("orders", "outbox", "audit"):
        site.a.add_topic(name, [0])
        site.a.begin_transaction(name, 0, 1, producer=9 if name == "audit" else 7).end_transaction(name, 0)
        log = site.a.kafka.log(name, 0)
        log.append_values(b"", producer_id=5)  # idempotent, in each of the topics
        log.producers.clear()  # the leader has forgotten them
    line = "transactions of producer id 7 write to topic outbox and to topic orders: no flow copies it to b"
    found = site.plan("--coupled", "1000000")
    assert f"warning: {line}" in found.stdout
    assert "audit" not in found.stdout
    (flow,) = json.loads(site.plan("--json", "--coupled", "1000000").stdout)["flows"]
    assert line in flow["warnings"]
    for arguments in ((), ("--coupled", "0.001")):
        assert "transactions of producer" not in site.plan(*arguments).stdout


def test_topics_of_another_flow_to_the_same_target_are_not_left_behind(site: PlanHarness) -> None:
    with site.config.open("a") as file:
        file.write('[flows.g]\nsource = "a"\ntarget = "b"\ntopics = ["outbox"]\n')
    for name in ("orders", "outbox"):
        site.a.add_topic(name, [0]).begin_transaction(name, 0, 1).end_transaction(name, 0)
    assert "transactions of producer" not in site.plan("--flow", "f", "--coupled", "1000000").stdout
