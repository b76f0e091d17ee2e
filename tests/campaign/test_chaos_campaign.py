"""One round of the campaign with two faults; ``make faults`` has all of them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[2]
WITHIN_S = 840


@pytest.mark.cluster
@pytest.mark.brokers
@pytest.mark.spark
@pytest.mark.timeout(900)
def test_round_with_two_faults_has_effects_and_no_findings(tmp_path: Path) -> None:
    results = tmp_path / "results.json"
    kinds = ["broker killed", "executor killed"]
    chosen = [word for kind in kinds for word in ("--kind", kind)]
    command = [
        sys.executable,
        str(Path(__file__).with_name("chaos") / "campaign.py"),
        "--rounds",
        "1",
        "--seed",
        "1",
        *chosen,
    ]
    environ = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
    with subprocess.Popen(
        [*command, "--results", str(results)], cwd=CHECKOUT, env=environ, stdout=subprocess.PIPE, text=True
    ) as campaign:
        try:
            output, _ = campaign.communicate(timeout=WITHIN_S)
        except BaseException:
            campaign.send_signal(signal.SIGINT)  # It stops everything that it has started.
            campaign.communicate(timeout=60)
            raise
    assert campaign.returncode == 0, output
    document = json.loads(results.read_text(encoding="utf-8"))
    assert set(document["faults"]) == set(kinds)
    assert all(counts["hit"] for counts in document["faults"].values()), document["faults"]
    assert document["records"] > 20_000
    assert document["findings"] == []
