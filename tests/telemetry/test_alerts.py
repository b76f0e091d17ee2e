"""The alerts of config/alerts with Prometheus' own tool: they fire when they should, and only then."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import yaml

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
    file = tmp_path / "alerts.yml"
    file.write_text(cases, encoding="utf-8")
    assert "SUCCESS" in promtool("test", "rules", file)


def test_each_alert_is_seen_to_fire_and_not_to_fire_on_its_own_series() -> None:
    found = {name: (set[str](), set[str]()) for name in rules()}
    for case in yaml.safe_load(CASES.read_text(encoding="utf-8"))["tests"]:
        given = set(re.findall(r"mirror_\w+", " ".join(one["series"] for one in case["input_series"])))
        for name, expression in rules().items():
            for check in case.get("promql_expr_test", ()):
                asked = re.search(r'alertname="(\w+)"', check["expr"])
                if asked is not None and asked[1] != name:
                    continue
                fires = any(f'alertname="{name}"' in one["labels"] for one in check["exp_samples"])
                if fires or given.issuperset(names(expression)):
                    found[name][not fires].add(case["name"])
    assert [name for name, (fires, _) in found.items() if not fires] == []
    assert [name for name, (_, not_) in found.items() if not not_] == []


def test_an_alert_without_one_of_its_two_tests_is_found() -> None:
    assert names("a > 0 and mirror_x{y='mirror'} unless mirror_z_total offset 5m") == {"mirror_x", "mirror_z_total"}
    assert rules()["MirrorLosing"].endswith("<= 0")


def rules() -> dict[str, str]:
    """The expressions of the alerts."""
    groups = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    return {rule["alert"]: rule["expr"] for group in groups for rule in group["rules"]}


def names(expression: str) -> set[str]:
    """The metrics that an expression asks for."""
    return set(re.findall(r"mirror_\w+", re.sub(r"\{[^}]*\}", "", expression)))
