"""Losses of whole clusters, and how clients move to the target: by our commands, or by the steps of an operator.

The steps beside copiers that have no such command are those of Apache Kafka's documents for MirrorMaker 2: stop the
producers, wait until everything has come, stop the consumers, wait for their positions, stop the copier, start the
clients at the target. A program does them here, without a pause between them.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

from mirror.exit_status import ATTENTION, DONE, FAILED, ROLLED_BACK
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
_POSITIONS_S: Final = 60.0
_SAYS: Final = f"mirror: switch {SWITCH}: "
_REPEATED: Final = frozenset({ATTENTION, FAILED, ROLLED_BACK})
"""Exit statuses of a command after which clients work where they did, and it may be repeated."""
_REPEATS_S: Final = 120.0

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
    _await_first_positions(site)
    at, figures = kill_all(site.source), Figures()
    if isinstance(site.copier, Mirror):
        at_ms = (time.time() - (time.monotonic() - at)) * 1000
        record, commands = _command(site, "failover", {"OPEN": lambda: _arrive(site)})
        figures = {"steps_s": accounting.steps_s(record["steps"], at_ms), "commands": commands}
    else:
        with site.namespace.entered():
            site.copier.stop()
        _arrive(site)
    return at, _moved(site, at) | figures


def cut_over(site: Site) -> tuple[float, Figures]:
    """Move the clients to the target while both clusters live."""
    _await_first_positions(site)
    figures: Figures = {}
    if isinstance(site.copier, Mirror):
        folder = str(site.folder / "proofs")
        does = {"fenced": lambda: _leave(site), "OPEN": lambda: _arrive(site)}
        record, commands = _command(site, "cutover", does, "--folder", folder)
        figures = {"steps_s": accounting.steps_s(record["steps"]), "commands": commands}
    else:
        _cut_over_by_hand(site)
    at = max(site.writer.acknowledged.copy().values())
    return at, _moved(site, at) | figures


def _cut_over_by_hand(site: Site) -> None:
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


def _command(
    site: Site, name: str, does: Mapping[str, Callable[[], None]], *more: str
) -> tuple[Mapping[str, Any], int]:
    """Run a command of ours, again if it was refused; ``does``: what is done when it says a state.

    Return the record of the switch, and how many commands it took. Raises AssertionError if it is not done.
    """
    assert isinstance(site.copier, Mirror)
    words = [sys.executable, "-m", "mirror.cli", name, SWITCH, "--config", str(site.copier.config), "--json", *more]
    until = time.monotonic() + _REPEATS_S
    commands, said = 0, list[str]()
    while True:
        commands += 1
        status, output = _run(site, words, does, said)
        if status == DONE:
            return json.loads(output), commands
        may_repeat = status in _REPEATED and time.monotonic() < until
        assert may_repeat, f"mirror {name}: {status}: {''.join(said)[-2000:]}"


def _run(site: Site, words: Sequence[str], does: Mapping[str, Callable[[], None]], said: list[str]) -> tuple[int, str]:
    with (site.folder / "switch.json").open("w+", encoding="utf-8") as output:
        with site.namespace.entered():
            command = subprocess.Popen(words, stdout=output, stderr=subprocess.PIPE, text=True)
        with command:
            assert command.stderr is not None
            for line in command.stderr:
                said.append(line)
                if line.startswith(_SAYS) and (act := does.get(line.removeprefix(_SAYS).strip())) is not None:
                    act()
        output.seek(0)
        return command.returncode, output.read()


def _leave(site: Site) -> None:
    """Stop the application on the source in order."""
    site.application.stop()


def _arrive(site: Site) -> None:
    """Start the clients at the target; those of a source that is lost end without order."""
    site.application.abandon()
    site.left = [site.application]
    site.writer.move(login(site.target, "alice"))
    site.application = Application(login(site.target, "bob"))


def _lacks(site: Site) -> int:
    return len(site.writer.acknowledged.copy().keys() - site.reader.firsts.copy().keys())


def _has_read_all(site: Site) -> bool:
    return site.writer.acknowledged.copy().keys() <= {number for _, number in [*site.application.read]}


def _positions(admin: AdminClient) -> list[int]:
    """Return the position of the group in each partition, below 0 without one; none of a group that is not there."""
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


def _await_first_positions(site: Site) -> None:
    """Wait until the group has positions on the target, where the copier brings them: it has just begun."""
    if site.name not in SINKS:
        admin = AdminClient({"bootstrap.servers": site.target.bootstrap_servers})

        def lacks_some() -> bool:
            return sum(offset >= 0 for offset in _positions(admin)) < PARTITIONS

        site.wait_while(lacks_some, _POSITIONS_S)


def _await_positions(site: Site) -> None:
    """Wait until the positions of the group on the target do not change any more."""
    admin = AdminClient({"bootstrap.servers": site.target.bootstrap_servers})
    seen, since = _positions(admin), time.monotonic()
    while time.monotonic() < since + _STILL_S:
        time.sleep(0.25)
        if (now := _positions(admin)) != seen:
            seen, since = now, time.monotonic()


def _moved(site: Site, at: float) -> Figures:
    """Wait until the clients work on the target; return when they did, and what the group has read again or skipped."""

    def unserved() -> bool:
        moved = site.writer.moved.copy()
        return not any(number in moved for _, number in [*site.application.read])

    assert site.wait_while(unserved, _WITHIN_S), "no client is served on the target"
    moved = site.writer.moved.copy()
    served = next(came for came, number in site.application.read if number in moved)
    time.sleep(_READS_S)
    shown = site.reader.firsts.copy().keys() - site.writer.moved.copy().keys()
    before, after = ([number for _, number in [*one.read]] for one in (*site.left, site.application))
    again, skipped = accounting.positions(before, after, shown)
    writes = min(moved.values()) - at
    return {
        "served_s": round(served - at, 1),
        "writes_s": round(writes, 1),
        "read_again": again,
        "skipped": skipped,
    }
