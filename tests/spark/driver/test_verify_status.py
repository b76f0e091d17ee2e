"""The exit status of a verification in which no Spark is needed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from openlineage.client.event_v2 import RunState

from mirror.exit_status import ATTENTION, FAILED
from mirror.runtime.clock import SystemClock
from mirror.spark.driver.verify_job import main
from mirror.telemetry.lineage.emitter import Lineage
from tests.relay.fake_pair import FakePair
from tests.spark.verification.test_verify_on_fakes import Audit

if TYPE_CHECKING:
    from openlineage.client.event_v2 import RunEvent


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
