"""Each release that tests run: its brokers start, answer another client, and are gone afterwards."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from mirror.errors import SandboxError
from mirror.sandbox.cluster import Cluster
from mirror.sandbox.fetch import pinned_jars
from tests.conftest import NewCluster
from tests.e2e.broker_side import Side
from tests.polling import eventually
from tests.releases import releases
from tests.releases.releases import OTHERS


@pytest.mark.cluster
@pytest.mark.parametrize("version", OTHERS)
def test_brokers_of_a_release_keep_records(new_cluster: NewCluster, unique: Callable[[str], str], version: str) -> None:
    cluster = new_cluster(release=version)
    processes = [node.process.pid for node in cluster._nodes if node.process]
    assert len(processes) == 1 + OTHERS[version].zookeeper
    assert f"kafka-clients-{version}.jar" in " ".join(psutil.Process(cluster.pids[1]).cmdline())
    side, topic = Side(cluster.bootstrap_servers), unique("records")
    side.create(topic)
    side.fill(topic, [b"one", b"two"])
    assert side.read(topic) == [b"one", b"two"]
    cluster.restart(1)
    # A broker with ZooKeeper is alive before its controller has assigned it what it leads.
    eventually(lambda: side.end(topic) == 2, within_s=60, what="the partition's leader")
    assert side.read(topic) == [b"one", b"two"]
    cluster.stop()
    assert not any(psutil.pid_exists(pid) for pid in processes)


@pytest.mark.parametrize("version", OTHERS)
def test_pins_contain_the_brokers_of_the_release(version: str) -> None:
    pins = pinned_jars(OTHERS[version].pins)
    assert {f"kafka_{OTHERS[version].scala}-{version}.jar", f"kafka-clients-{version}.jar"} <= pins.keys()
    assert all(re.fullmatch(r"[0-9a-f]{64}", digest) for digest in pins.values())


def test_features_need_a_release_that_formats_its_storage() -> None:
    with pytest.raises(SandboxError, match="this one has ZooKeeper"):
        releases.cluster("2.1.1", features={"transaction.version": 1})


def test_only_a_cluster_with_a_zookeeper_has_its_address() -> None:
    with pytest.raises(SandboxError, match="has no ZooKeeper"):
        _ = Cluster().zookeeper


def test_a_download_that_fails_ends_with_one_line_and_an_error(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    environ = {"PATH": str(tmp_path / "bin"), "XDG_CACHE_HOME": str(tmp_path), "PYTHONPATH": str(Path.cwd())}
    command = [sys.executable, "-m", "tests.releases.releases", "oldest"]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert re.fullmatch(r"[^\n]*Java[^\n]*\n", done.stderr)
