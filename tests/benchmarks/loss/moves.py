"""Losses of whole clusters, and how clients move to the target: by our commands, or by the steps of an operator.

The steps beside copiers that have no such command are those of Apache Kafka's documents for MirrorMaker 2: stop the
producers, wait until everything has come, stop the consumers, wait for their positions, stop the copier, start the
clients at the target. A program does them here, without a pause between them.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any, Final

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

from mirror.sandbox.cluster import Cluster
from tests.alignment.permissions.guarded import login
from tests.benchmarks.loss import accounting
from tests.benchmarks.loss.clients import GROUP, PARTITIONS, TOPIC, Application
from tests.benchmarks.loss.copiers import SWITCH, SYNC_S, Mirror
from tests.benchmarks.loss.site import SINKS, Site

_DRAINED_WITHIN_S: Final = 60.0
_WITHIN_S: Final = 300.0
_READS_S: Final = 10.0
_STILL_S: Final = 3.0 + 2 * SYNC_S
_SAYS: Final = f"mirror: switch {SWITCH}: "

Figures = dict[str, Any]


def leader(cluster: Cluster) -> int:
    """Return the broker that leads partition 0."""
    topics = AdminClient({"bootstrap.servers": cluster.bootstrap_servers}).list_topics(TOPIC, timeout=30).topics
    return int(topics[TOPIC].partitions[0].leader)


def kill_all(cluster: Cluster) -> float:
    """SIGKILL all brokers; return when the first one was killed."""
    at = time.monotonic()
    for broker in [*cluster.pids]:
        cluster.kill(broker)
    return at


def start_all(cluster: Cluster) -> None:
    """Start the brokers that do not run."""
    for broker in range(1, len(cluster.bootstrap_servers.split(",")) + 1):
        if broker not in cluster.pids:
            cluster.restart(broker)


def fail_over(site: Site) -> tuple[float, Figures]:
    """Kill the source for good, and move the clients to the target."""
    at = kill_all(site.source)
    if isinstance(site.copier, Mirror):
        _command(site, "failover", {"OPEN": lambda: _arrive(site)})
    else:
        with site.namespace.entered():
            site.copier.stop()
        _arrive(site)
    return at, _moved(site, at)


def cut_over(site: Site) -> tuple[float, Figures]:
    """Move the clients to the target while both clusters live."""
    if isinstance(site.copier, Mirror):
        folder = str(site.folder / "proofs")
        leave = lambda: _leave(site)  # noqa: E731
        _command(site, "cutover", {"fenced": leave, "OPEN": lambda: _arrive(site)}, "--folder", folder)
    else:
        site.writer.move(None)
        assert site.wait_while(lambda: _lacks(site) > 0, _DRAINED_WITHIN_S), f"the target lacks {_lacks(site)} records"
        site.wait_while(lambda: not _has_read_all(site), _READS_S)
        _leave(site)
        if site.name in SINKS:
            _reset_to_ends(site.target)
        else:
            _await_positions(site)
        with site.namespace.entered():
            site.copier.stop()
        _arrive(site)
    at = max(site.writer.acknowledged.values())
    return at, _moved(site, at)


def _command(site: Site, name: str, does: dict[str, Callable[[], None]], *more: str) -> None:
    """Run a command of ours; ``does``: what is done when it says a state. Raises AssertionError if it is not done."""
    assert isinstance(site.copier, Mirror)
    words = [sys.executable, "-m", "mirror.cli", name, SWITCH, "--config", str(site.copier.config), *more]
    with site.namespace.entered():
        command = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    said = []
    with command:
        assert command.stderr is not None
        for line in command.stderr:
            said.append(line)
            if line.startswith(_SAYS) and (act := does.get(line.removeprefix(_SAYS).strip())) is not None:
                act()
    assert command.returncode == 0, f"mirror {name}: {command.returncode}: {''.join(said)[-2000:]}"


def _leave(site: Site) -> None:
    """Stop the application on the source in order."""
    site.application.stop(commits=True)


def _arrive(site: Site) -> None:
    """Start the clients at the target."""
    before = site.application
    before.stop(commits=False)  # nothing, where it has been stopped in order
    site.left = list(before.read)
    site.application = Application(login(site.target, "bob"))
    site.writer.move(login(site.target, "alice"))


def _lacks(site: Site) -> int:
    return accounting.missing(dict(site.writer.acknowledged), list(site.reader.arrivals), 0.0, time.monotonic())


def _has_read_all(site: Site) -> bool:
    return site.writer.acknowledged.keys() <= {number for _, number in site.application.read}


def _positions(cluster: Cluster) -> list[int]:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    asked = ConsumerGroupTopicPartitions(GROUP, [TopicPartition(TOPIC, number) for number in range(PARTITIONS)])
    answer = admin.list_consumer_group_offsets([asked])[GROUP].result(30)
    return [one.offset for one in answer.topic_partitions]


def _reset_to_ends(cluster: Cluster) -> None:
    """Commit the ends of the target for the group, which has read everything: nothing else translates positions."""
    options = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": GROUP}
    consumer = Consumer(options)
    try:
        places = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
        ends = [
            TopicPartition(TOPIC, one.partition, consumer.get_watermark_offsets(one, timeout=30)[1]) for one in places
        ]
        consumer.commit(offsets=ends, asynchronous=False)
    finally:
        consumer.close()


def _await_positions(site: Site) -> None:
    """Wait until the positions of the group on the target do not change any more."""
    seen, since = _positions(site.target), time.monotonic()
    while time.monotonic() < since + _STILL_S:
        time.sleep(0.25)
        if (now := _positions(site.target)) != seen:
            seen, since = now, time.monotonic()


def _moved(site: Site, at: float) -> Figures:
    """Wait until the clients work on the target; return when they did, and what the group has read again or skipped."""

    def unserved() -> bool:
        moved = site.writer.moved.keys()
        return not any(number in moved for _, number in site.application.read)

    assert site.wait_while(unserved, _WITHIN_S), "no client is served on the target"
    moved = dict(site.writer.moved)
    served = next(came for came, number in site.application.read if number in moved)
    time.sleep(_READS_S)
    shown = {number for came, number in site.reader.arrivals} - site.writer.moved.keys()
    before, after = ([number for _, number in read] for read in (site.left, site.application.read))
    again, skipped = accounting.positions(before, after, shown)
    writes = min(moved.values()) - at
    return {
        "served_s": round(served - at, 1),
        "writes_s": round(writes, 1),
        "read_again": again,
        "skipped": skipped,
    }
