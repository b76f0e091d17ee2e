"""A source that is killed with records that were not copied, on real clusters that obey ACLs."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from mirror.client import LATEST, Admin, TopicPartition
from mirror.cluster.acls import write_denial
from mirror.exit_status import ATTENTION, DONE, HELD, ROLLED_BACK
from tests.alignment.permissions.guarded import acls, create
from tests.polling import eventually
from tests.switch.guarded_pair import TOPICS, Pair, Writer, as_user, pair, read_some

pytestmark = [pytest.mark.brokers, pytest.mark.spark, pytest.mark.cluster, pytest.mark.timeout(600)]


@pytest.fixture
def clusters(tmp_path: Path) -> Iterator[Pair]:
    with pair(tmp_path) as found:
        text = found.config.read_text()
        ahead, switch = text[: text.index("[flows.back]")], text[text.index("[switches.move]") :]
        found.config.write_text(ahead.replace('origin = "local"\norigin-from = "earliest"\n', "") + switch)
        yield found


def mirror(clusters: Pair, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    command = [sys.executable, "-m", "mirror.cli", *arguments, "--config", str(clusters.config)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def run_flow(clusters: Pair) -> subprocess.CompletedProcess[str]:
    return mirror(clusters, "run", "--flow", "ahead", "--report-dir", str(clusters.config.parent / "report"))


def killed_at(clusters: Pair, line: str) -> bool:
    """Run the command, and kill it when it says this; return whether it did."""
    command = [sys.executable, "-m", "mirror.cli", "failover", "move", "--config", str(clusters.config)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for said in process.stderr:
            if said.strip() == f"mirror: switch move: {line}":
                process.kill()
                return True
    return False


def leave_open(clusters: Pair) -> Producer:
    """Begin a transaction on the target with the id of a copy, as a task that was killed leaves it."""
    options: dict[str, Any] = {
        "bootstrap.servers": clusters.target.bootstrap_servers,
        "transactional.id": f"mirror.ahead.{TOPICS[0]}.0",
    }
    producer = Producer(options)
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(TOPICS[0], b"of a dead copy", partition=0)
    producer.flush(30)
    return producer


def values(clusters: Pair) -> list[str]:
    """All committed values of the target."""
    options: dict[str, Any] = {
        "bootstrap.servers": clusters.target.bootstrap_servers,
        "group.id": "reader",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "enable.partition.eof": False,
    }
    consumer, found = Consumer(options), []
    consumer.subscribe([*TOPICS])
    empty = 0
    while empty < 5:
        message = consumer.poll(2.0)
        if message is None:
            empty += 1
        elif message.error() is None:
            found.append((message.value() or b"").decode())
    consumer.close()
    return found


def test_a_killed_source_is_failed_over_without_loss_of_what_was_copied(clusters: Pair) -> None:
    writer = Writer(as_user(clusters.source, "alice"), "before")
    eventually(lambda: len(writer.acknowledged) > 300, what="records", within_s=60)
    before = writer.stop()
    read = read_some(as_user(clusters.source, "bob"), 50)
    done = run_flow(clusters)
    assert done.returncode == DONE, done.stderr
    lost = Writer(as_user(clusters.source, "alice"), "lost")
    eventually(lambda: len(lost.acknowledged) > 20, what="records that are not copied", within_s=60)
    lost.stop()
    refused = mirror(clusters, "failover", "move")
    assert refused.returncode == ATTENTION, refused.stderr
    assert "the source answers" in refused.stderr
    brokers = [*clusters.source.pids]
    for broker in brokers:
        clusters.source.kill(broker)
    dead = leave_open(clusters)
    with Admin({"bootstrap.servers": clusters.target.bootstrap_servers}) as target:
        create(target, [write_denial(TOPICS[0])])
        assessed = mirror(clusters, "failover", "move", "--assess", "--json")
        assert assessed.returncode == DONE, assessed.stderr
        shown = json.loads(assessed.stdout)
        assert 0 < min(one["confirmed_ms"] for one in shown["partitions"]) < shown["time_ms"]
        assert [one["group"] for one in shown["groups"]] == ["billing"]
        assert shown["of_copies"] == [f"mirror.ahead.{TOPICS[0]}.0"]
        assert sum(one["copied"] or 0 for one in shown["partitions"]) >= len(before)
        groups = mirror(clusters, "groups", "--flow", "ahead", "--timeout", "10", "--json")
        assert [one["group"] for one in json.loads(groups.stdout)["groups"]] == ["billing"], groups.stderr
        assert killed_at(clusters, "moved")
        done = mirror(clusters, "failover", "move", "--json")
        assert done.returncode == DONE, done.stderr
        record = json.loads(done.stdout)
        assert record["state"] == "done"
        tps = [TopicPartition(topic, number) for topic in TOPICS for number in range(3)]
        ends = [
            {tp: one.offset for tp, one in target.list_offsets(dict.fromkeys(tps, LATEST), isolation=how).items()}
            for how in ("read_committed", "read_uncommitted")
        ]
        assert ends[0] == ends[1]
    with pytest.raises(Exception, match=r"fenced|Fenced"):
        dead.commit_transaction(30)
    after = Writer(as_user(clusters.target, "alice"), "after")
    eventually(lambda: len(after.acknowledged) > 20, what="records on the target", within_s=60)
    new = after.stop()
    for broker in brokers:
        clusters.source.restart(broker)
    cron = run_flow(clusters)
    assert cron.returncode == HELD, cron.stderr
    assert "fail over" in cron.stderr
    assert sorted(values(clusters)) == sorted(before + new)
    rest = read_some(as_user(clusters.target, "bob"), len(before) - len(read) + len(new))
    assert sorted(read + rest) == sorted(before + new)


def test_a_source_that_answers_is_fenced_and_its_acls_come_back_with_a_rollback(clusters: Pair) -> None:
    writer = Writer(as_user(clusters.source, "alice"), "before")
    eventually(lambda: len(writer.acknowledged) > 100, what="records", within_s=60)
    done = run_flow(clusters)
    assert done.returncode == DONE, done.stderr
    before = acls(clusters.source)
    held = mirror(clusters, "failover", "move", "--although-reachable", "--until", "moved", "--json")
    assert held.returncode == DONE, held.stderr
    states = [one["state"] for one in json.loads(held.stdout)["steps"]]
    assert states == ["planned", "ready", "fenced", "moved"]
    assert len(acls(clusters.source)) == len(before) + 3
    eventually(lambda: writer.refused > 0, what="a refused record")
    back = mirror(clusters, "failover", "move", "--rollback")
    assert back.returncode == ROLLED_BACK, back.stderr
    assert acls(clusters.source) == before
    writer.stop()
    done = run_flow(clusters)
    assert done.returncode == DONE, done.stderr
    opened = mirror(clusters, "failover", "move", "--although-reachable", "--json")
    assert opened.returncode == DONE, opened.stderr
    refused = Writer(as_user(clusters.source, "alice"), "late")
    eventually(lambda: refused.refused > 0, what="a refused record")
    assert not refused.stop()
