"""Clusters of real brokers: they start, are damaged as asked, and never stay behind."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from mirror.errors import SandboxError
from mirror.sandbox import cluster as cluster_module
from mirror.sandbox import formatting
from mirror.sandbox.cluster import Cluster
from mirror.sandbox.ports import free_ports
from mirror.sandbox.probe import alive_brokers
from tests import jvm
from tests.conftest import NewCluster
from tests.polling import eventually

pytestmark = pytest.mark.brokers


@pytest.fixture(autouse=True)
def _quick_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a test, or a process that it starts, takes the sandbox's own JVM options."""
    monkeypatch.setenv("JDK_JAVA_OPTIONS", jvm.SANDBOX)


def create(servers: str, topic: str, partitions: int = 1, replicas: int = 1) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(topic, partitions, replicas)])[topic].result(timeout=60)


def produce(servers: str, topic: str, value: bytes) -> None:
    failures: list[object] = []
    producer = Producer({"bootstrap.servers": servers, "acks": "all", "delivery.timeout.ms": 60000})
    producer.produce(topic, value=value, on_delivery=lambda error, _: failures.append(error) if error else None)
    assert producer.flush(25) == 0
    assert failures == []


def read_one(servers: str, topic: str, group: str) -> bytes | None:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": group, "auto.offset.reset": "earliest"})
    try:
        consumer.subscribe([topic])
        message = consumer.poll(20)
        assert message is not None
        assert message.error() is None
        value = message.value()
        return value if isinstance(value, bytes) else None
    finally:
        consumer.close()


def port_of(cluster: Cluster) -> int:
    return int(cluster.bootstrap_servers.rpartition(":")[2])


def test_a_record_comes_back(source_cluster: Cluster, unique: Callable[[str], str]) -> None:
    topic = unique("orders")
    create(source_cluster.bootstrap_servers, topic)
    produce(source_cluster.bootstrap_servers, topic, b"hello")
    assert read_one(source_cluster.bootstrap_servers, topic, unique("readers")) == b"hello"


def test_the_shared_clusters_are_two(source_cluster: Cluster, target_cluster: Cluster) -> None:
    def cluster_id(cluster: Cluster) -> object:
        return AdminClient({"bootstrap.servers": cluster.bootstrap_servers}).list_topics(timeout=30).cluster_id

    assert cluster_id(source_cluster) != cluster_id(target_cluster)


# The suite's tests in tests/conformance and tests/copying do all of this to their brokers.
@pytest.mark.cluster
def test_pause_resume_kill_and_restart(new_cluster: NewCluster, unique: Callable[[str], str]) -> None:
    # A killed broker is registered until its session ends; the restart waits for that.
    cluster = new_cluster(properties={"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500"})
    servers, topic, pid = cluster.bootstrap_servers, unique("orders"), cluster.pids[1]
    create(servers, topic)
    produce(servers, topic, b"kept")

    cluster.pause(1)
    assert psutil.Process(pid).status() == psutil.STATUS_STOPPED
    assert alive_brokers(port_of(cluster), timeout_s=0.3) == frozenset()
    cluster.resume(1)
    eventually(lambda: alive_brokers(port_of(cluster)) == {1}, within_s=60, what="the resumed broker answers")

    cluster.kill(1)
    assert cluster.pids == {}
    assert not psutil.pid_exists(pid)
    with pytest.raises(SandboxError, match="broker 1 does not run: restart it first"):
        cluster.pause(1)

    cluster.restart(1)
    assert cluster.pids[1] != pid
    assert cluster.bootstrap_servers == servers
    assert read_one(servers, topic, unique("readers")) == b"kept"


@pytest.mark.cluster
def test_three_brokers_survive_the_kill_of_one(new_cluster: NewCluster, unique: Callable[[str], str]) -> None:
    cluster = new_cluster(
        3,
        properties={
            "broker.session.timeout.ms": "3000",
            "broker.heartbeat.interval.ms": "500",
            "min.insync.replicas": "2",
        },
    )
    assert sorted(cluster.pids) == [1, 2, 3]
    topic = unique("orders")
    create(cluster.bootstrap_servers, topic, partitions=3, replicas=3)
    cluster.kill(2)
    assert sorted(cluster.pids) == [1, 3]
    produce(cluster.bootstrap_servers, topic, b"still there")
    assert read_one(cluster.bootstrap_servers, topic, unique("readers")) == b"still there"


# In the suite, test_up_status_down looks for both after `mirror sandbox down`.
@pytest.mark.cluster
def test_stop_leaves_no_process_and_no_data(tmp_path: Path) -> None:
    cluster = Cluster(directory=tmp_path / "data")
    with cluster:
        pids, directory = list(cluster.pids.values()), cluster.directory
        assert (directory / "broker-1" / "server.log").stat().st_size > 0
    assert not any(psutil.pid_exists(pid) for pid in pids)
    assert not directory.exists()
    cluster.stop()  # once more does no harm


# The suite's tests in tests/security have five further listeners.
@pytest.mark.cluster
def test_a_further_listener_has_its_own_port(new_cluster: NewCluster) -> None:
    cluster = new_cluster(listeners={"SECOND": "PLAINTEXT"})
    assert cluster.bootstrap("SECOND") != cluster.bootstrap_servers
    topics = AdminClient({"bootstrap.servers": cluster.bootstrap("SECOND")}).list_topics(timeout=30)
    assert [f"{broker.host}:{broker.port}" for broker in topics.brokers.values()] == [cluster.bootstrap("SECOND")]


def test_a_broker_that_dies_at_its_start_says_why(tmp_path: Path) -> None:
    cluster = Cluster(directory=tmp_path / "data", properties={"authorizer.class.name": "no.such.Authorizer"})
    with pytest.raises(SandboxError, match=r"(?s)node 1 died at its start.*ClassNotFoundException: no.such.Authorizer"):
        cluster.start()
    assert cluster.pids == {}
    assert not (tmp_path / "data").exists()


def test_a_wrong_property_is_reported_before_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the tool that formats folders; where its files are kept, the broker says the same."""
    monkeypatch.setattr(formatting, "cache_folder", lambda: tmp_path)
    with pytest.raises(SandboxError, match=r"(?s)could not be formatted.*Invalid value many for configuration num.io"):
        Cluster(properties={"num.io.threads": "many"}).start()


@pytest.mark.cluster
def test_another_port_is_tried_where_one_was_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[int]] = []
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", free_ports(1)[0]))

        def first_a_taken_one(count: int) -> list[int]:
            ports = free_ports(count)
            if not asked:
                ports[0] = taken.getsockname()[1]
            asked.append(ports)
            return ports

        monkeypatch.setattr(cluster_module, "free_ports", first_a_taken_one)
        with Cluster() as cluster:
            assert port_of(cluster) == asked[1][0]
    assert len(asked) == 2


OWNER = """
import time
from mirror.sandbox.cluster import Cluster
cluster = Cluster()
cluster.start()
print(cluster.directory, *(node.process.pid for node in cluster._nodes), flush=True)
time.sleep(300)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the death signal is Linux's")
def test_nothing_runs_on_when_the_owner_is_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", OWNER], stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        try:
            directory, *pids = owner.stdout.readline().split()
        finally:
            owner.send_signal(signal.SIGKILL)
    assert len(pids) == 1
    eventually(lambda: not any(psutil.pid_exists(int(pid)) for pid in pids), what="the brokers died with their owner")
    assert re.search(r"mirror-sandbox-\w+$", directory)
    subprocess.run(["rm", "-r", directory], check=True)


def sandbox(*arguments: str | Path, expect: int = 0) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mirror.cli", "sandbox", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == expect, done.stderr
    return done


def test_up_status_down(tmp_path: Path) -> None:
    folder = tmp_path / "pair"
    try:
        exports = sandbox("up", "--dir", folder).stdout.splitlines()
        servers = [re.fullmatch(r"export MIRROR_CLUSTERS__\w+__BOOTSTRAP_SERVERS=(\S+)", line) for line in exports]
        result = json.loads(sandbox("status", "--json", "--dir", folder).stdout)
        assert [one["name"] for one in result] == ["source", "target"]
        assert [one["bootstrap_servers"] for one in result] == [match[1] for match in servers if match]
        assert [one["running"] for one in result] == [True, True]
        pids = [node["pid"] for one in result for node in one["nodes"]]
        again = sandbox("up", "--dir", folder, expect=1)
        assert "runs already" in " ".join(again.stderr.split())

        psutil.Process(pids[0]).kill()
        eventually(lambda: "broken" in sandbox("status", "--dir", folder, expect=1).stdout)
    finally:
        sandbox("down", "--dir", folder)
    eventually(lambda: not any(psutil.pid_exists(pid) for pid in pids), what="both clusters are gone")
    assert not folder.exists()
    assert "nothing runs" in sandbox("status", "--dir", folder, expect=1).stdout


@pytest.mark.parametrize("sign", [pytest.param(signal.SIGINT, marks=pytest.mark.cluster), signal.SIGTERM])
def test_an_interrupted_up_leaves_nothing(tmp_path: Path, sign: signal.Signals) -> None:
    folder = tmp_path / "pair"
    record = folder / "source" / "cluster.json"
    command = [sys.executable, "-m", "mirror.cli", "sandbox", "up", "--dir", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as up:
        try:
            eventually(lambda: record.exists() and json.loads(record.read_text())["nodes"], within_s=60)
            pids = [node["pid"] for node in json.loads(record.read_text())["nodes"]]
        finally:
            up.send_signal(sign)
        assert up.wait(60) != 0
    assert not any(psutil.pid_exists(pid) for pid in pids)
    assert not (folder / "source").exists()
    assert not (folder / "target").exists()
