from __future__ import annotations

import json
from pathlib import Path

from tests.campaign.chaos.injection import Effect
from tests.campaign.chaos.process_counts import Count
from tests.campaign.chaos.results import document, write
from tests.campaign.chaos.round import RoundResult
from tests.campaign.chaos.schedule import FaultKind, schedule

KINDS = [FaultKind.BROKER_KILLED, FaultKind.EXECUTOR_KILLED]


def played(seed: int, *counts: int) -> RoundResult:
    """Return a round of which the first ``counts`` faults have ended."""
    result = RoundResult(schedule(seed, KINDS), records=100, before={"worker": Count(1, 2, 3)})
    faults = sorted(result.schedule.faults, key=lambda fault: fault.kind)
    result.effects += [(fault, Effect(count, f"of {fault.kind}")) for fault, count in zip(faults, counts, strict=False)]
    return result


def test_document_counts_tries_and_hits_of_each_kind(tmp_path: Path) -> None:
    rounds = [played(1, 5, 0), played(2, 7)]
    rounds[1].findings.append("something is lost")
    write(tmp_path / "results.json", document(rounds, 60, {FaultKind.CLOCK_STEPPED: "no library"}, ["--seed", "1"]))
    written = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    assert written["faults"] == {
        "broker killed": {"tried": 2, "hit": 2, "effects": {"of broker killed": 12}},
        "executor killed": {"tried": 2, "hit": 0, "effects": {"of executor killed": 0}},
    }
    assert (written["rounds"], written["records"], written["rounds with findings"]) == (2, 200, 1)
    assert written["findings"] == ["seed 2: something is lost"]
    assert [each["findings"] for each in written["each round"]] == [[], ["something is lost"]]
    assert written["arguments"] == ["--seed", "1"]
    assert written["versions"]["confluent-kafka"].count(".") == 2
    assert written["left out"] == {"clock stepped": "no library"}


def test_round_names_the_faults_without_effect() -> None:
    assert played(1, 5, 0).without_effect == [FaultKind.EXECUTOR_KILLED]
    assert played(1, 5, 1).without_effect == []
