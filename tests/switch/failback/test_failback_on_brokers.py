"""A source is killed with records that were not copied, and comes back: its tail is exported, and clients go home."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from mirror.relay.progress.latch import read_latch
from mirror.sandbox.cluster import Cluster
from tests.alignment.permissions.guarded import acls
from tests.polling import eventually
from tests.switch.guarded_pair import PARTITIONS, TOPICS, Pair, Writer, as_user, pair, read_some

pytestmark = [pytest.mark.brokers, pytest.mark.spark, pytest.mark.cluster, pytest.mark.timeout(900)]

_HOME = '[switches.home]\nflows = ["back"]\nback = ["ahead"]\nquiet-seconds = 3\n'


@pytest.fixture
def clusters(tmp_path: Path) -> Iterator[Pair]:
    with pair(tmp_path, f'back = ["back"]\n{_HOME}') as found:
        yield found


def mirror(clusters: Pair, *arguments: str, status: int = 0) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mirror.cli", *arguments, "--config", str(clusters.config)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == status, done.stderr
    return done


def run_flow(clusters: Pair, flow: str, status: int = 0) -> None:
    mirror(clusters, "run", "--flow", flow, "--report-dir", str(clusters.config.parent / "report"), status=status)


def values(bootstrap: str, topic: str) -> Counter[str]:
    """All committed values of a topic, as an independent client reads them."""
    found = Counter[str]()
    for message in messages(bootstrap, topic):
        found[(message.value() or b"").decode()] += 1
    return found


def messages(bootstrap: str, topic: str) -> list[Any]:
    options = {"bootstrap.servers": bootstrap, "group.id": "compare", "enable.partition.eof": True}
    consumer = Consumer({**options, "isolation.level": "read_committed", "enable.auto.commit": False})
    found, left = [], PARTITIONS
    try:
        consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
        while left:
            message = consumer.poll(20.0)
            assert message is not None
            if message.error() is None:
                found.append(message)
            else:
                left -= 1
    finally:
        consumer.close()
    return found


def both(bootstrap: str) -> Counter[str]:
    return sum((values(bootstrap, topic) for topic in TOPICS), Counter[str]())


def write(side: Any, name: str, most: int) -> list[str]:
    writer = Writer(as_user(side, "alice"), name)
    eventually(lambda: len(writer.acknowledged) > most, what="records", within_s=60)
    return writer.stop()


def exported_from(old: Cluster, new: Cluster, cluster: str) -> Counter[str]:
    """The values of the tails' topics, each of which is at the place that its headers name."""
    found = Counter[str]()
    for topic in TOPICS:
        places = messages(old.bootstrap_servers, topic)
        there = {(one.partition(), one.offset()): one.value() for one in places}
        for message in messages(new.bootstrap_servers, f"{topic}.tail.1"):
            headers = dict(message.headers())
            at = int(headers["mirror-tail-partition"]), int(headers["mirror-tail-offset"])
            assert there[at] == message.value()
            assert headers["mirror-tail-cluster"] == cluster.encode()
            assert int(headers["mirror-tail-timestamp"]) == message.timestamp()[1]
            found[message.value().decode()] += 1
    return found


def killed_at(clusters: Pair, line: str, *arguments: str) -> None:
    command = [sys.executable, "-m", "mirror.cli", *arguments, "--config", str(clusters.config)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        said = []
        for text in process.stderr:
            said.append(text)
            if line in text:
                process.send_signal(signal.SIGKILL)
                return
        raise AssertionError("".join(said))


def test_the_tail_of_a_source_that_comes_back_is_exported_and_clients_go_home(clusters: Pair) -> None:
    old, new = clusters.source, clusters.target
    before = write(old, "before", 200)
    read = read_some(as_user(old, "bob"), 50)
    for flow in ("ahead", "back", "ahead"):  # groups have positions once both flows have progress
        run_flow(clusters, flow)
    original = acls(old)
    tail = write(old, "tail", 100)
    (broker,) = old.pids
    old.kill(broker)
    mirror(clusters, "failover", "move")
    after = write(new, "after", 100)
    read += read_some(as_user(new, "bob"), len(before) - len(read) + len(after))
    old.restart(broker)
    run_flow(clusters, "ahead", status=4)

    shown = json.loads(mirror(clusters, "failback", "move", "--inspect", "--json").stdout)
    assert {one["verdict"] for one in shown["inspection"]["topics"]} == {"same"}
    assert acls(old) == original, "an inspection changes nothing"
    mirror(clusters, "failback", "move")
    assert len(acls(old)) == len(original) + 4, "WRITE on three topics, READ on a group"
    shown = json.loads(mirror(clusters, "failback", "move", "--list", "--json").stdout)
    assert shown["exact"]
    assert sum(part["records"] for one in shown["topics"] for part in one["partitions"]) == len(tail)

    killed_at(clusters, "records exported", "failback", "move", "--export")
    mirror(clusters, "failback", "move", "--export")
    assert exported_from(old, new, shown["inspection"]["cluster"]) == Counter(tail)
    assert not read_latch({"bootstrap.servers": new.bootstrap_servers}, "ahead").is_held

    run_flow(clusters, "ahead")
    assert both(new.bootstrap_servers) == Counter(before + after), "the flow does not append the tail"
    run_flow(clusters, "back")
    assert both(old.bootstrap_servers) == Counter(before + tail + after)
    run_flow(clusters, "ahead")
    mirror(clusters, "cutover", "home", "--folder", str(clusters.config.parent / "proofs"))
    mirror(clusters, "failback", "move", "--lift")
    assert acls(old) == original
    home = write(old, "home", 20)
    rest = read_some(as_user(old, "bob"), len(before + after + home) - len(read))
    assert not Counter(before + after + home) - Counter(read + rest), "nothing is skipped"
    assert not {*tail} & {*rest}, "what was exported is passed"
    run_flow(clusters, "ahead")
    assert both(new.bootstrap_servers) == Counter(before + after + home)
