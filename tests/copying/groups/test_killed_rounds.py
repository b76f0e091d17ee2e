"""What copies is killed while it compares the index and the positions of groups. Real clusters."""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import random
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import replace
from multiprocessing.process import BaseProcess
from types import SimpleNamespace
from typing import Any, Final, NamedTuple

import pytest
from confluent_kafka import Producer

from mirror.client import LATEST, Admin, OffsetAndMetadata, TopicPartition
from mirror.errors import KafkaError
from mirror.groups.sync import GroupSync
from mirror.relay.model.policy import CopyPolicy
from mirror.relay.progress.flow_topic import group_topic_of
from mirror.runtime.clock import SystemClock
from tests.copying.group_site import group_access, group_rules
from tests.copying.pair import End, TwoClusters
from tests.polling import eventually

pytestmark = [pytest.mark.brokers, pytest.mark.cluster, pytest.mark.timeout(400)]

_KILLS: Final = 12
_LONGEST_S: Final = 3.0
"""A process is killed at most so long after its first round has begun."""
_GROUPS: Final = 40
_PARTITIONS: Final = 2
_BATCH: Final = 10
_ALL_WITHIN_S: Final = 90.0


class _Sample(NamedTuple):
    """What a group had committed on the target, and later on the source."""

    partition: int
    target: int
    source: int


def _pair_at(source: str, target: str, flow: str) -> TwoClusters:
    """Return the clusters at these addresses."""
    ends: Any = SimpleNamespace(bootstrap_servers=source), SimpleNamespace(bootstrap_servers=target)
    return TwoClusters(ends[0], ends[1], lambda name: name, flow)


def _copy_and_sync(source: str, target: str, flow: str, topic: str, begun: Any, ended: Any) -> None:
    """Copy in one thread, and run rounds in another one, until the process is killed."""
    pair = _pair_at(source, target, flow)

    def copy() -> None:
        while True:
            with contextlib.suppress(KafkaError):
                pair.copy(topic, index_interval_ms=250)

    threading.Thread(target=copy, daemon=True).start()
    access = replace(group_access(pair), policy=CopyPolicy(index_interval_ms=250))
    rules = replace(group_rules(topic), patience_ms=1_000)
    with GroupSync(access, rules, SystemClock()) as sync:
        while True:
            begun.value += 1
            with contextlib.suppress(KafkaError):  # a coordinator is being loaded
                sync.round()
            ended.value += 1


class _Driver:
    """The process that is killed, and the next one."""

    def __init__(self, *arguments: str) -> None:
        self._context: Final = multiprocessing.get_context("spawn")
        self._arguments: Final = arguments
        self._process: BaseProcess | None = None
        self.in_a_round = 0
        """So many were killed while they ran a round."""

    def start(self) -> None:
        # Without locks: a process that is killed would keep them.
        self._begun, self._ended = (self._context.Value("i", 0, lock=False) for _ in range(2))
        arguments = (*self._arguments, self._begun, self._ended)
        self._process = self._context.Process(target=_copy_and_sync, args=arguments, daemon=True)
        self._process.start()

    @property
    def rounds(self) -> int:
        """How many rounds have begun."""
        return int(self._begun.value)

    def kill(self) -> None:
        assert self._process is not None
        assert self._process.is_alive()
        self._process.kill()
        self._process.join()
        self.in_a_round += self._begun.value > self._ended.value


class _Writer(threading.Thread):
    """Writes transactions to the source, of which some are aborted; knows what is committed."""

    def __init__(self, source: End, topic: str, seed: int) -> None:
        super().__init__(daemon=True)
        self.over: Final = threading.Event()
        self._topic: Final = topic
        self._rng: Final = random.Random(seed)
        self._producer: Final = Producer({"bootstrap.servers": source.address, "transactional.id": f"writer.{topic}"})

    def run(self) -> None:
        self._producer.init_transactions(60)
        for number in itertools.count():
            self._producer.begin_transaction()
            for at in range(_BATCH):
                self._producer.produce(self._topic, b"%d.%d" % (number, at), partition=number % _PARTITIONS)
            if self._rng.random() < 0.2:
                self._producer.flush(60)  # a transaction without records on the broker cannot be aborted
                self._producer.abort_transaction(60)
            else:
                self._producer.commit_transaction(60)
            if self.over.wait(0.02):
                return


class _Groups:
    """Groups that move on the source, and what was seen of them on the target."""

    def __init__(self, topic: str, prefix: str, rng: random.Random) -> None:
        self._topic: Final = topic
        self._rng: Final = rng
        self.at: Final[dict[str, dict[int, int]]] = {
            f"{prefix}.{number}": dict.fromkeys(range(_PARTITIONS), 0) for number in range(_GROUPS)
        }
        """What each group has committed on the source, or is about to."""
        self.samples: Final[set[_Sample]] = set()
        self._last: dict[tuple[str, int], int] = {}

    def move(self, source: Admin) -> None:
        """Some groups commit on the source; none goes back."""
        tps = [TopicPartition(self._topic, number) for number in range(_PARTITIONS)]
        found = source.list_offsets(dict.fromkeys(tps, LATEST), isolation="read_committed")
        for group in self._rng.sample(sorted(self.at), _GROUPS // 4):
            at = self.at[group]
            for tp in tps:
                at[tp.partition] = self._rng.randint(at[tp.partition], max(at[tp.partition], found[tp].offset))
            offsets = {TopicPartition(self._topic, number): OffsetAndMetadata(offset) for number, offset in at.items()}
            source.commit_group_offsets(group, offsets)

    def look(self, target: Admin) -> Mapping[tuple[str, int], int]:
        """Read the positions on the target: none has gone back."""
        found = target.offsets_of_groups_async(tuple(self.at), 30_000).result()
        seen = {
            (group, tp.partition): committed.offset
            for group, offsets in found.items()
            for tp, committed in offsets.items()
            if tp.topic == self._topic
        }
        read = {key: last for key, last in self._last.items() if key[0] not in found.failed}
        assert {key: (last, seen.get(key)) for key, last in read.items() if seen.get(key, -1) < last} == {}
        self._last |= seen
        self.samples.update(_Sample(key[1], offset, self.at[key[0]][key[1]]) for key, offset in seen.items())
        return seen


class _Logs:
    """The committed records of both sides."""

    def __init__(self, pair: TwoClusters, topic: str) -> None:
        self._source: Final = [[(at, one.value) for at, one in log] for log in pair.source.logs(topic, _PARTITIONS)]
        target = [[(at, one.value) for at, one in log] for log in pair.target.logs(topic, _PARTITIONS)]
        self.is_complete: Final = all(
            [value for _, value in log] == [value for _, value in copy]
            for log, copy in zip(self._source, target, strict=True)
        )
        self._target: Final = [[at for at, _ in log] for log in target]

    def is_translation(self, partition: int, offset: int, target: int | None) -> bool:
        """Whether the next record from ``target`` on is the first one from ``offset`` on, or neither has one."""
        number = bisect_left(self._source[partition], (offset, b""))
        return target is not None and bisect_left(self._target[partition], target) == number

    def skips(self, sample: _Sample) -> bool:
        """Whether a record is in front of the target's position, and not in front of the source's."""
        passed = bisect_left(self._target[sample.partition], sample.target)
        return passed > 0 and self._source[sample.partition][passed - 1][0] >= sample.source


def test_no_position_skips_a_record_or_goes_back_while_what_writes_it_is_killed(
    pair: TwoClusters, unique: Callable[[str], str]
) -> None:
    seed = random.SystemRandom().randrange(10**9)  # a new one in each run; a failure reports it
    rng, flow, topic = random.Random(seed), unique("flow"), unique("t")
    own = _pair_at(pair.source.address, pair.target.address, flow)
    own.source.create(topic, _PARTITIONS)
    own.target_topic(topic, _PARTITIONS)
    own.target.create(group_topic_of(flow), cleanup_policy="compact")
    groups, writer = _Groups(topic, unique("g.moving"), rng), _Writer(own.source, topic, seed)
    driver = _Driver(own.source.address, own.target.address, flow, topic)
    with (
        Admin({"bootstrap.servers": own.source.address}) as source,
        Admin({"bootstrap.servers": own.target.address}) as target,
    ):
        writer.start()
        for _ in range(_KILLS):
            driver.start()
            eventually(lambda: driver.rounds, within_s=60, what="the first round")
            until = time.monotonic() + rng.uniform(0, _LONGEST_S)
            while time.monotonic() < until:
                groups.move(source)
                groups.look(target)
            driver.kill()
            groups.look(target)
        writer.over.set()
        writer.join(60)
        driver.start()

        def all_in_step() -> bool:
            logs = _Logs(own, topic)
            seen = groups.look(target)
            return logs.is_complete and all(
                logs.is_translation(number, offset, seen.get((group, number)))
                for group, offsets in groups.at.items()
                for number, offset in offsets.items()
            )

        eventually(all_in_step, within_s=_ALL_WITHIN_S, what=f"all positions, seed {seed}", every_s=1)
        driver.kill()
    logs = _Logs(own, topic)
    assert [one for one in groups.samples if logs.skips(one)] == [], f"seed {seed}"
    assert len({one for one in groups.samples if one.target}) > _KILLS
    assert driver.in_a_round > _KILLS // 2
