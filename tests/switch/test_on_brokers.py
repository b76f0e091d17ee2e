"""Cut-overs between real clusters that obey ACLs, while confluent-kafka's clients go on."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mirror.relay.progress.latch import read_latch
from tests.alignment.permissions.guarded import acls
from tests.polling import eventually
from tests.switch.guarded_pair import GROUP, Pair, Writer, as_user, pair, read_some

pytestmark = [pytest.mark.brokers, pytest.mark.spark, pytest.mark.cluster, pytest.mark.timeout(900)]


@pytest.fixture
def clusters(tmp_path: Path) -> Iterator[Pair]:
    with pair(tmp_path, 'back = ["back"]\ndeny-read = true\n') as found:
        yield found


def mirror(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return subprocess.run([sys.executable, "-m", "mirror.cli", *arguments], capture_output=True, text=True, check=False)


def begin(clusters: Pair) -> tuple[Writer, list[str]]:
    """Have a producer write, a group read some of it, and the flow copy it once; return them, and what was read."""
    writer = Writer(as_user(clusters.source, "alice"), "before")
    eventually(lambda: len(writer.acknowledged) > 300, what="records", within_s=60)
    read = read_some(as_user(clusters.source, "bob"), 50)
    run_flow(clusters, "ahead")
    run_flow(clusters, "back")
    run_flow(clusters, "ahead")
    return writer, read


def run_flow(clusters: Pair, flow: str) -> None:
    report = clusters.config.parent / "report"
    done = mirror("run", "--config", str(clusters.config), "--flow", flow, "--report-dir", str(report))
    assert done.returncode == 0, done.stderr


def killed_at(clusters: Pair, line: str) -> bool:
    """Run the command, and kill it when it says this; return whether it did."""
    command = [sys.executable, "-m", "mirror.cli", *clusters.command()]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for said in process.stderr:
            if said.strip() == f"mirror: switch move: {line}":
                process.kill()
                return True
    return False


def test_operators_that_are_killed_at_each_step_lose_nothing(clusters: Pair) -> None:
    writer, read = begin(clusters)
    for state in ("ready", "fenced", "drained", "proved", "moved", "OPEN", "reversed"):
        assert killed_at(clusters, state), state
    done = mirror(*clusters.command("--json"))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["state"], found["denied_groups"]) == ("done", [GROUP])
    assert found["pause"]["total_ms"] > 3_000
    acknowledged = writer.stop()
    assert writer.refused > 0
    rest = read_some(as_user(clusters.target, "bob"), len(acknowledged) - len(read) + 1)
    assert sorted(read + rest) == sorted(acknowledged)


def test_the_way_back_begins_behind_what_was_moved(clusters: Pair) -> None:
    writer, read = begin(clusters)
    done = mirror(*clusters.command())
    assert done.returncode == 0, done.stderr
    acknowledged = writer.stop()
    held = mirror(
        "run", "--config", str(clusters.config), "--flow", "ahead", "--report-dir", str(clusters.config.parent)
    )
    assert held.returncode == 4, held.stderr
    after = Writer(as_user(clusters.target, "alice"), "after")
    eventually(lambda: len(after.acknowledged) > 100, what="records", within_s=60)
    new = after.stop()
    run_flow(clusters, "back")
    anonymous: dict[str, Any] = {"bootstrap.servers": clusters.source.bootstrap_servers}
    there = read_some(anonymous, len(acknowledged) - len(read) + len(new) + 1)
    assert sorted(read + there) == sorted(acknowledged + new)
    options = {"bootstrap.servers": clusters.source.bootstrap_servers}
    assert not read_latch(options, "back").is_held


def test_a_switch_is_shown_stopped_behind_its_fence_and_rolled_back(clusters: Pair) -> None:
    writer, _ = begin(clusters)
    before = acls(clusters.source)
    shown = mirror(*clusters.command("--dry-run"))
    assert shown.returncode == 0, shown.stderr
    assert "creates on the source: DENY WRITE on TOPIC 'orders' (LITERAL) for User:*" in shown.stdout
    assert acls(clusters.source) == before
    fenced = mirror(*clusters.command("--until", "fenced"))
    assert fenced.returncode == 0, fenced.stderr
    assert len(acls(clusters.source)) == len(before) + 3 + 1, "three topics, and the group"
    said = mirror(*clusters.command("--status"))
    assert "switch move: fenced" in said.stdout, said.stderr
    eventually(lambda: writer.refused > 0, what="a refused record")
    done = mirror(*clusters.command("--rollback"))
    assert done.returncode == 6, done.stderr
    assert acls(clusters.source) == before
    writer.stop()
    again = Writer(as_user(clusters.source, "alice"), "again")
    eventually(lambda: len(again.acknowledged) > 10, what="records", within_s=60)
    again.stop()


def test_a_producer_that_bypasses_the_fence_is_named_and_the_acls_are_as_before(clusters: Pair) -> None:
    writer, _ = begin(clusters)
    before = acls(clusters.source)
    options = {"bootstrap.servers": clusters.source.bootstrap_servers, "enable.idempotence": True, "retries": 9}
    super_user = Writer(options, "super")
    eventually(lambda: super_user.acknowledged, what="records", within_s=60)
    began_s = time.monotonic()
    done = mirror(*clusters.command())
    assert time.monotonic() - began_s < 240
    assert done.returncode == 6, done.stderr
    assert "still written to behind the fence" in done.stderr
    assert "written by producer id" in done.stderr
    assert acls(clusters.source) == before
    super_user.stop()
    writer.stop()
    run_flow(clusters, "ahead")
