"""One round with two harms, by the campaign itself; `make faults` is all of it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[3]
WITHIN_S = 840


@pytest.mark.cluster
@pytest.mark.brokers
@pytest.mark.spark
@pytest.mark.timeout(900)
def test_a_round_with_two_harms_ends_as_it_must(tmp_path: Path) -> None:
    results = tmp_path / "results.json"
    harms = ["broker killed", "executor killed"]
    chosen = [word for harm in harms for word in ("--kind", harm)]
    command = [sys.executable, str(Path(__file__).with_name("campaign.py")), "--rounds", "1", "--seed", "1", *chosen]
    environ = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
    with subprocess.Popen(
        [*command, "--results", str(results)], cwd=CHECKOUT, env=environ, stdout=subprocess.PIPE, text=True
    ) as campaign:
        try:
            said, _ = campaign.communicate(timeout=WITHIN_S)
        except BaseException:
            campaign.send_signal(signal.SIGINT)  # it stops what it has started
            campaign.communicate(timeout=60)
            raise
    assert campaign.returncode == 0, said
    told = json.loads(results.read_text(encoding="utf-8"))
    assert told["harms"] == dict.fromkeys(harms, 1)
    assert told["records"] > 20_000
    assert told["failures"] == []
