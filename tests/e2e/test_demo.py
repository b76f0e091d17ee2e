"""`mirror demo`, which `make run` runs: its flow goes by sequences although nothing of it says so."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from mirror.cli.commands.demo import DEMO_CONFIG

_RECORDS = 5_000

pytestmark = [pytest.mark.brokers, pytest.mark.spark, pytest.mark.cluster, pytest.mark.timeout(480)]


def test_demo_goes_by_sequences_without_naming_them(tmp_path: Path) -> None:
    (flow,) = tomllib.loads(DEMO_CONFIG.read_text())["flows"].values()
    assert not {"exactly-once-by", "delivery"} & flow.keys()
    options = ["--report-dir", str(tmp_path / "report"), "--records", str(_RECORDS)]
    demo = subprocess.run(
        [sys.executable, "-m", "mirror.cli", "demo", "--json", *options],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert demo.returncode == 0, demo.stderr
    printed = json.loads(demo.stdout)
    assert (printed["equal"], printed["records"]) == (True, _RECORDS)
    summary = json.loads((tmp_path / "report" / "summary.json").read_text())
    partitions = [one for flow in summary["flows"] for one in flow["partitions"]]
    assert sum(one["records"] for one in partitions) == _RECORDS
    ways = {(one["way"], one["way_reason"]) for one in partitions if one["records"]}
    assert ways == {("sequences", "records are younger than 12 h")}
