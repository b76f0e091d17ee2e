"""The exit status of a verification in which no Spark is needed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from openlineage.client.event_v2 import RunState

from mirror.exit_status import ATTENTION, FAILED
from mirror.runtime.clock import SystemClock
from mirror.spark.driver.verify_job import main
from mirror.telemetry.lineage.emitter import Lineage
from mirror.verify.proof import Proof, parse_proof
from tests.relay.fake_pair import FakePair
from tests.spark.verification.test_verify_on_fakes import Audit

if TYPE_CHECKING:
    from openlineage.client.event_v2 import RunEvent


def test_a_short_tail_behind_a_proof_is_compared_without_spark(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("mirror.spark.driver.verify_job.catch_signals", lambda: None)
    audit = Audit(FakePair(monkeypatch), tmp_path)
    audit.pair.write(b"1", b"2")
    audit.pair.copy()
    results = audit.verify(proof=Proof())
    clusters = audit.plan().source_cluster_id, audit.plan().target_cluster_id
    link = replace(audit.link(results), source_cluster_id=clusters[0], target_cluster_id=clusters[1])
    proof = tmp_path / "proof.json"
    proof.write_text(Proof().extended(link).to_json())
    audit.pair.write(b"3", b"4", b"5")
    audit.pair.copy()
    folder = tmp_path / "verify"
    assert main(["--config", str(audit.config), "--report-dir", str(folder), "--proof", str(proof)]) == 0
    (flow,) = json.loads((folder / "verify.json").read_text(encoding="utf-8"))["flows"]
    assert [one["source"]["equal_to"] for one in flow["partitions"]] == [5]
    assert len(parse_proof(proof.read_text()).links) == 2


@pytest.mark.parametrize(("strict", "status"), [((), FAILED), (("--strict",), ATTENTION)])
def test_target_that_lacks_records_fails_the_strict_gate(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, strict: tuple[str, ...], status: int
) -> None:
    monkeypatch.setattr("mirror.spark.driver.verify_job.catch_signals", lambda: None)
    audit = Audit(FakePair(monkeypatch), tmp_path)
    audit.pair.write(b"not copied")
    events: list[RunEvent] = []
    lineage = Lineage(SystemClock(), "etl", events.append)
    monkeypatch.setattr("mirror.spark.driver.verify_job.lineage_of", lambda *_: lineage)
    folder = tmp_path / "verify"
    assert main(["--config", str(audit.config), "--report-dir", str(folder), *strict]) == status
    content = json.loads((folder / "verify.json").read_text(encoding="utf-8"))
    (flow,) = content["flows"]
    (partition,) = flow["partitions"]
    assert (content["exit_status"], flow["complete"], partition["complete"]) == (status, False, False)
    assert partition["incomplete"] == ["source 0 to 0 not compared: nothing is copied yet"]
    began, ended = events
    assert {began.job.name, ended.job.name} == {"mirror.flow.verify"}
    assert (began.eventType, ended.eventType) == (RunState.START, RunState.COMPLETE)
    assert ended.inputs
    of_target: Any = ended.inputs[-1].inputFacets
    verdict = {one.assertion: one.success for one in of_target["dataQualityAssertions"].assertions}
    assert verdict == {"equal_to_source": False, "complete": False}
