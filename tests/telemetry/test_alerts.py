"""The alerts of config/alerts with Prometheus' own tool: they fire when they should, and only then."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.telemetry.dashboards import RULES

pytestmark = pytest.mark.prometheus

CASES = Path(__file__).with_name("alerts.yml")


def promtool(*arguments: str | Path) -> str:
    done = subprocess.run(["promtool", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_rules_are_valid() -> None:
    alerts = RULES.read_text(encoding="utf-8").count("- alert:")
    assert f"SUCCESS: {alerts} rules found" in promtool("check", "rules", RULES)


def test_alerts_fire_when_they_should_and_only_then(tmp_path: Path) -> None:
    cases = CASES.read_text(encoding="utf-8").replace("[RULES]", f'["{RULES}"]')
    alerts = re.findall(r"alert: (\w+)", RULES.read_text(encoding="utf-8"))
    assert [name for name in alerts if f'alertname="{name}"' not in cases] == []
    file = tmp_path / "alerts.yml"
    file.write_text(cases, encoding="utf-8")
    assert "SUCCESS" in promtool("test", "rules", file)
