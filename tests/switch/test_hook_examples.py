"""The hooks of config/hooks, run as a switch runs them."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from mirror.switch.hooks import run_hook
from mirror.switch.machine import StepResult

HOOKS: Final = Path(__file__).parents[2] / "config" / "hooks"
FACTS: Final = {
    "switch": "saturday",
    "step": "switch",
    "source": "paris",
    "target": "berlin",
    "source_bootstrap": "127.0.0.1:9092,127.0.0.2:9092",
    "target_bootstrap": "127.0.0.3:9092,127.0.0.4:9092",
    "topics": ["orders"],
}
KUBECTL: Final = """#!{python}
import json, os, sys
given = sys.argv[1:]
assert given[:2] == ["--namespace", "shop"], given
if given[2] == "patch":
    _, kind, name, *options, change = given[2:]
    assert options == ["--type", "merge", "--patch"], options
    json.loads(change)
with open({calls!r}, "a") as calls:
    calls.write(json.dumps(given[2:]) + "\\n")
sys.exit(int(os.environ.get("KUBECTL_STATUS", "0")) if given[2] == "rollout" else 0)
"""
SYSTEMCTL: Final = """#!/bin/sh
echo "$@ $(readlink {folder}/proxy.yaml)" >> {folder}/calls
"""


def run(hook: str, *arguments: object, **facts: object) -> StepResult:
    return run_hook([str(HOOKS / hook), *map(str, arguments)], FACTS | facts, 30)


def program(folder: Path, name: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a program in the PATH."""
    file = folder / name
    file.write_text(text)
    file.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


# --- hosts.py

HOSTS: Final = """# ours
127.0.0.1 kafka.example.com
127.0.0.1 schemas.example.com kafka.example.com # both
127.0.0.9 other.example.com # kafka.example.com
"""


@pytest.fixture
def hosts(tmp_path: Path) -> Path:
    file = tmp_path / "hosts"
    file.write_text(HOSTS)
    file.chmod(0o640)
    return file


def test_the_name_is_the_target_s_and_others_stay(hosts: Path) -> None:
    for _ in range(2):  # it may be run again
        assert run("hosts.py", hosts, "kafka.example.com").ok
        assert hosts.read_text().splitlines() == [
            "# ours",
            "127.0.0.1 schemas.example.com # both",
            "127.0.0.9 other.example.com # kafka.example.com",
            "127.0.0.3 kafka.example.com",
            "127.0.0.4 kafka.example.com",
        ]
    assert hosts.stat().st_mode & 0o777 == 0o640
    assert [path.name for path in hosts.parent.iterdir()] == ["hosts"]


def test_the_name_server_reads_the_file_again(hosts: Path) -> None:
    copied = hosts.with_name("read")
    assert run("hosts.py", hosts, "kafka.example.com", "cp", hosts, copied).ok
    assert copied.read_text() == hosts.read_text()
    assert run("hosts.py", hosts, "kafka.example.com", "false").why.endswith("exit status 1")


@pytest.mark.parametrize("target", ["127.0.0.3:9093", "no-such-host.invalid:9092"])
def test_a_target_that_the_name_cannot_lead_to_changes_nothing(hosts: Path, target: str) -> None:
    assert not run("hosts.py", hosts, "kafka.example.com", target_bootstrap=target).ok
    assert hosts.read_text() == HOSTS


# --- configmap.py


def patched(folder: Path) -> list[Any]:
    return [json.loads(line) for line in (folder / "calls").read_text().splitlines()]


@pytest.fixture
def kubectl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    text = KUBECTL.format(python=sys.executable, calls=str(tmp_path / "calls"))
    program(tmp_path, "kubectl", text, monkeypatch)
    return tmp_path


def test_the_configmap_is_patched_and_pods_are_replaced_once_per_address(kubectl: Path) -> None:
    assert run("configmap.py", "shop", "kafka", "bootstrap.servers", "orders").ok
    first = patched(kubectl)
    address = FACTS["target_bootstrap"]
    (_, *of_map, data), (_, *of_pods, template), waits = first
    assert (of_map, json.loads(data)) == (
        ["configmap", "kafka", "--type", "merge", "--patch"],
        {"data": {"bootstrap.servers": address}},
    )
    assert (of_pods, json.loads(template)) == (
        ["deployment", "orders", "--type", "merge", "--patch"],
        {"spec": {"template": {"metadata": {"annotations": {"mirror/bootstrap-servers": address}}}}},
    )
    assert waits == ["rollout", "status", "deployment/orders"]
    assert run("configmap.py", "shop", "kafka", "bootstrap.servers", "orders").ok
    assert patched(kubectl) == first * 2, "the same patches change nothing"


def test_a_roll_out_that_fails_fails_the_hook(kubectl: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECTL_STATUS", "1")
    assert run("configmap.py", "shop", "kafka", "bootstrap.servers").ok
    assert not run("configmap.py", "shop", "kafka", "bootstrap.servers", "orders").ok
    assert len(patched(kubectl)) == 4


# --- gateway.py


@pytest.fixture
def gateway(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    program(tmp_path, "systemctl", SYSTEMCTL.format(folder=tmp_path), monkeypatch)
    for cluster in ("paris", "berlin"):
        (tmp_path / f"{cluster}.yaml").touch()
    (tmp_path / "proxy.yaml").symlink_to("paris.yaml")
    return tmp_path


def test_a_gateway_is_stopped_and_started_with_the_file_of_a_cluster(gateway: Path) -> None:
    calls = gateway / "calls"
    for step, call in {
        "fence": "stop gate ",
        "unfence": "start gate paris.yaml",
        "switch": "restart gate berlin.yaml",
    }.items():
        for _ in range(2):
            calls.unlink(missing_ok=True)
            assert run("gateway.py", gateway, "gate", step=step).ok
            assert calls.read_text() == f"{call}\n"


def test_no_gateway_is_stopped_that_could_not_be_pointed_at_the_target(gateway: Path) -> None:
    (gateway / "berlin.yaml").unlink()
    assert not run("gateway.py", gateway, "gate", step="fence").ok
    assert (gateway / "proxy.yaml").exists()
    assert not (gateway / "calls").exists()
    assert not run("gateway.py", gateway, "gate", step="other").ok
