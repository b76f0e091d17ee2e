"""A rehearsal is checked by doing it: the groups are started on the target, and what they read is counted.

Real clusters, and confluent-kafka as the producer and as the consumers of both sides.
"""

from __future__ import annotations

import json
import logging
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import Consumer as Confluent
from confluent_kafka import KafkaError as ConfluentError
from confluent_kafka import Producer as ConfluentProducer
from typer.testing import CliRunner

from mirror.cli.app import app
from tests.copying.group_site import commit, committed_at, consumer_of, group_sync
from tests.copying.pair import End, Seen, TwoClusters
from tests.polling import eventually

pytestmark = [pytest.mark.brokers, pytest.mark.timeout(900)]

_log: Final = logging.getLogger(__name__)

PARTITIONS: Final = 3
SEED: Final = 25
PROTOCOL: Final = "consumer"
"""A group of the classic protocol waits three seconds for more members."""
_END: Final = ConfluentError._PARTITION_EOF


@contextmanager
def beside(work: Callable[[], object], *, pause_s: float = 0.0) -> Iterator[None]:
    """Repeat ``work`` in a thread during the block; it is done once at least, and not cut off."""
    stopped = threading.Event()
    failed: list[BaseException] = []

    def run() -> None:
        try:
            while True:
                work()
                if stopped.wait(pause_s):
                    return
        except BaseException as error:  # noqa: BLE001 - raised again in the test
            failed.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join()
    if failed:
        raise failed[0]


class Producing:
    """Appends values that say partition and number, and never stops."""

    def __init__(self, end: End, topic: str, rng: random.Random) -> None:
        self._topic, self._rng = topic, rng
        self._producer = ConfluentProducer({"bootstrap.servers": end.address, "linger.ms": 2})
        self._next = [0] * PARTITIONS

    def more(self) -> None:
        for _ in range(self._rng.randint(1, 40)):
            partition = self._rng.randrange(PARTITIONS)
            value = b"%d-%d" % (partition, self._next[partition])
            self._producer.produce(self._topic, value, partition=partition)
            self._next[partition] += 1
        self._producer.flush()


def reads_on(end: End, group: str, topic: str, rng: random.Random) -> None:
    """A member of the group reads on from its position, and commits some of that."""
    with consumer_of(end, group, group_protocol=PROTOCOL, auto_offset_reset="earliest") as consumer:
        consumer.subscribe([topic])
        messages: list[Any] = []

        def has_read() -> bool:
            messages.extend(one for one in consumer.consume(rng.randint(1, 30), timeout=0.2) if one.error() is None)
            return bool(messages)

        eventually(has_read, what=f"a record for {group}")
        for message in messages[: rng.randint(1, len(messages))]:
            consumer.commit(message=message, asynchronous=False)


def delivered(end: End, group: str, topic: str) -> list[list[bytes]]:
    """What a new member of the group reads up to the end, by partition; it commits nothing."""
    found: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
    left = set(range(PARTITIONS))
    consumer = Confluent(
        {
            "bootstrap.servers": end.address,
            "group.id": group,
            "enable.auto.commit": False,
            "group.protocol": PROTOCOL,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
        }
    )
    try:
        consumer.subscribe([topic])

        def at_end() -> bool:
            messages: list[Any] = consumer.consume(1_000, timeout=0.2)
            for message in messages:
                error = message.error()
                if error is not None:
                    assert error.code() == _END, error
                    left.discard(message.partition())
                else:
                    found[message.partition()].append(message.value())
            return not left

        eventually(at_end, within_s=60, what=f"the end of {topic} for {group}")
        return found
    finally:
        consumer.close()


def rehearsed(pair: TwoClusters, folder: Path, topic: str, *arguments: str) -> dict[str, Any]:
    file = folder / "mirror.toml"
    file.write_text(
        f'[clusters.a]\n"bootstrap.servers" = "{pair.source.address}"\n'
        f'[clusters.b]\n"bootstrap.servers" = "{pair.target.address}"\n'
        f'[flows.{pair.flow}]\nsource = "a"\ntarget = "b"\ntopics = ["{topic}"]\nnaming = "identity"\n'
        f'configs = "off"\n[flows.{pair.flow}.groups]\n'
    )
    options = ["--config", str(file), "--flow", pair.flow, "--json"]
    found = CliRunner().invoke(app, ["rehearse", *options, *arguments])
    assert found.exit_code in {0, 3}, found.output
    (flow,) = json.loads(found.stdout)["flows"]
    assert (found.exit_code == 0) == flow["ready"]
    return dict(flow)


Logs = list[list[tuple[int, Seen]]]
"""Offsets and records, by partition."""


def check(
    pair: TwoClusters, topic: str, group: str, said: list[dict[str, Any]], at_source: Logs, at_target: Logs
) -> tuple[int, int]:
    """Start the group on the target: what it reads again and skips is what was said. Return the sums of both."""
    sums = [0, 0]
    got = delivered(pair.target, group, topic)
    for move in said:
        partition = move["partition"]
        position = committed_at(pair.source, group, topic, partition)[0]
        assert move["from"]["offset"] == position
        read = {one.value for offset, one in at_source[partition] if offset < position}
        there = {one.value for _, one in at_target[partition]}
        again = sum(value in read for value in got[partition])
        skipped = len(there - read - set(got[partition]))
        assert (move["read_again"], move["skipped"]) == (again, skipped), (group, move)
        assert move["read_again_is_exact"]
        assert move["skipped_is_exact"]
        sums[0] += again
        sums[1] += skipped
    return sums[0], sums[1]


@pytest.mark.cluster
@pytest.mark.parametrize("moments", [1, 20])
def test_what_is_said_is_what_happens(
    pair: TwoClusters,
    unique: Callable[[str], str],
    tmp_path: Path,
    moments: int,
) -> None:
    """At random moments of a copy, while a producer goes on: the copy stops, and the groups start on the target."""
    rng, topic, name = random.Random(SEED), pair.topics(PARTITIONS), unique("g.billing")
    groups = [f"{name}.{number}" for number in range(2)]
    producing = Producing(pair.source, topic, rng)
    producing.more()
    totals = [0, 0]
    with beside(producing.more, pause_s=0.1):
        for moment in range(moments):
            late, astray = f"{name}.late.{moment}", f"{name}.astray.{moment}"
            with group_sync(pair, topic) as sync, beside(lambda: (pair.complete(topic), sync.round())):
                for group in groups:
                    reads_on(pair.source, group, topic, rng)
            for group in [*groups, late]:  # after the last round
                reads_on(pair.source, group, topic, rng)
            (first, end) = pair.target.ends(topic)
            commit(pair.source, astray, topic, rng.randint(0, 20))
            commit(pair.target, astray, topic, rng.randint(first, end))
            before = [pair.source.ends(topic, partition)[1] for partition in range(PARTITIONS)]
            found = rehearsed(pair, tmp_path, topic, *(f"--group={one}" for one in [*groups, late, astray]))
            after = [pair.source.ends(topic, partition)[1] for partition in range(PARTITIONS)]
            at_source, at_target = (end.logs(topic, PARTITIONS) for end in (pair.source, pair.target))
            copied = [len(log) for log in at_target]
            waiting = {one["partition"]: one["records"] for one in found["backlogs"]}
            for partition in range(PARTITIONS):
                count = waiting.get(partition, 0)
                assert before[partition] - copied[partition] <= count <= after[partition] - copied[partition]
            said = {one["group"]: one["partitions"] for one in found["groups"]}
            assert said.keys() == {*groups, late, astray}
            assert any(move["reason"] == "no-position" for move in said[late])
            for group in (*groups, late, astray):
                again, skipped = check(pair, topic, group, said[group], at_source, at_target)
                assert group == astray or not skipped
                totals[0] += again
                totals[1] += skipped
    assert totals[0] > 0, "nothing was read again in any moment: the test says nothing"
    _log.info("%d moments: %d records read again, %d skipped, as said", moments, *totals)


def test_a_topic_that_is_missing_on_the_target_costs_no_time_and_is_not_ready(
    pair: TwoClusters, unique: Callable[[str], str], tmp_path: Path
) -> None:
    topic, name = unique("t"), unique("g.billing")
    pair.source.create(topic, PARTITIONS)
    pair.own_topics()
    Producing(pair.source, topic, random.Random(1)).more()
    commit(pair.source, name, topic, 0)
    found = rehearsed(pair, tmp_path, topic, f"--group={name}")
    assert not found["ready"]
    assert {"topic", "partition"} <= {one["kind"] for one in found["blockers"]}
    (group,) = found["groups"]
    assert not group["ready"]
    assert all(move["action"] for move in group["partitions"])


def test_a_group_with_members_on_the_target_is_not_ready(
    pair: TwoClusters, unique: Callable[[str], str], tmp_path: Path
) -> None:
    topic, name = pair.topics(PARTITIONS), unique("g.billing")
    Producing(pair.source, topic, random.Random(1)).more()
    commit(pair.source, name, topic, 0)
    pair.complete(topic)
    with group_sync(pair, topic) as sync:
        sync.round()
    assert rehearsed(pair, tmp_path, topic, f"--group={name}")["groups"][0]["ready"]
    commit(pair.source, name, topic, 1)
    with consumer_of(pair.target, name, auto_offset_reset="earliest") as consumer:
        consumer.subscribe([topic])
        eventually(lambda: consumer.poll(0.1) is not None, what="a record for the member")
        (group,) = rehearsed(pair, tmp_path, topic, f"--group={name}")["groups"]
    assert {move["reason"] for move in group["partitions"]} == {"active-on-target"}
