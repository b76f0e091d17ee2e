"""MirrorMaker 2 is killed at random moments, and a flow takes over. Real clients, brokers in memory."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from mirror.client import TopicPartition
from mirror.relay.model.policy import CopyPolicy
from mirror.relay.model.ranges import Outcome as CopyOutcome
from mirror.relay.offsets import offset_topic
from mirror.relay.offsets.index import Place
from mirror.relay.offsets.partition_offsets import PartitionOffsets
from mirror.relay.offsets.translator import OffsetTranslator
from mirror.takeover.continuation import TakeoverOutcome
from mirror.wire.records import TRANSACTIONAL
from tests.fakes.log import PartitionLog
from tests.fakes.record_batches import values_of
from tests.relay.fake_pair import FLOW
from tests.takeover.fake_mirrormaker import FakeMirrorMaker

SOURCE, TARGET = TopicPartition("t", 0), TopicPartition("paris.t", 0)
WAYS = ["transactions", "sequences", "at least once"]
LAG = 4
"""``offset.lag.max``: so many records are between two offset syncs."""


@pytest.fixture(autouse=True)
def no_random_tidying(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offset_topic, "_TIDIED_EVERY", 10**9)


class RandomMirrorMaker:
    """Copies, stores and is killed as the generator says."""

    def __init__(self, mm2: FakeMirrorMaker, rng: random.Random) -> None:
        self._mm2, self._rng = mm2, rng
        self._source, self._target = mm2.pair.source.log("t"), mm2.pair.log()
        self.stored = -1
        self._next = 0
        self._synced: int | None = None
        self._last: int | None = None
        self._written = 0

    def step(self) -> None:
        self._rng.choice([self.produce, self.produce, self.copy, self.copy, self.copy, self.store, self.kill])()
        if self._rng.random() < 0.1:
            self._target.append_values(b"of others")

    def produce(self) -> None:
        """Sometimes in a transaction, which is aborted; there may be equal records."""
        first, self._written = self._written, self._written + self._rng.randrange(1, 6)
        values = [b"%d" % number if self._rng.random() < 0.9 else b"equal" for number in range(first, self._written)]
        if self._rng.random() < 0.8:
            self._source.append_values(*values)
            return
        self._source.append_values(*values, attributes=TRANSACTIONAL, producer_id=7)
        self._source.end_transaction(7, commit=self._rng.random() < 0.5)

    def copy(self) -> None:
        """A batch of what comes next, aborted records included."""
        records = [(at, value) for at, value in _all(self._source).items() if at >= self._next]
        taken = records[: self._rng.randrange(1, 8)]
        if not taken:
            return
        first = self._target.append_values(*(value for _, value in taken))
        for target, (source, _) in enumerate(taken, first):
            if self._is_due(source, target):
                self._mm2.sync(source, target)
                self._synced = target
            self._last = source
        self._next = taken[-1][0] + 1

    def _is_due(self, source: int, target: int) -> bool:
        if self._synced is None or target - (self._synced + 1) >= LAG:
            return True
        return self._last is not None and source - self._last != 1

    def store(self) -> None:
        if self._last is not None:
            self.stored = self._last
            self._mm2.store(self.stored)

    def kill(self) -> None:
        """Begins again behind the stored offset."""
        self._next, self._synced, self._last = self.stored + 1, None, None


def _all(log: PartitionLog) -> dict[int, bytes]:
    batches = [one for one in log.batches() if not one.is_control]
    return {one.base_offset + at: value for one in batches for at, value in enumerate(values_of(one.view))}


def _committed(log: PartitionLog) -> dict[int, bytes]:
    spans = [range(one.first_offset, one.last_offset + 1) for one in log.aborted]
    return {at: value for at, value in _all(log).items() if not any(at in span for span in spans)}


@pytest.mark.parametrize("seed", [*range(3), *(pytest.param(seed, marks=pytest.mark.cluster) for seed in range(3, 8))])
@pytest.mark.parametrize("way", WAYS)
def test_nothing_is_lost_and_nothing_is_doubled_that_was_not(
    monkeypatch: pytest.MonkeyPatch, way: str, seed: int
) -> None:
    rng = random.Random(seed)
    mm2 = FakeMirrorMaker(monkeypatch, exactly_once=way != "at least once")
    simulated = RandomMirrorMaker(mm2, rng)
    for _ in range(40):
        simulated.step()
    before = Counter(_all(mm2.pair.log()).values())
    with mm2.takeover() as takeover:
        (decision,) = takeover.run().decisions
    assert decision.outcome in {TakeoverOutcome.SETTLED, TakeoverOutcome.NOTHING_COPIED}, decision.reason
    mm2.write(b"the last one")
    policy = {} if way == "at least once" else {"exactly_once_by": "auto" if way == "sequences" else way}
    result = mm2.pair.copy(**policy)
    assert result.outcome is CopyOutcome.COMPLETE, result.error
    wanted = Counter(_committed(mm2.pair.source.log("t")).values())
    found = Counter(_all(mm2.pair.log()).values())
    for counter in (before, wanted, found):
        del counter[b"equal"]
    assert not wanted - found
    assert found - wanted == before - wanted
    _check_translations(mm2)


def _check_translations(mm2: FakeMirrorMaker) -> None:
    """Who continues at a translated position reads everything that follows in the source."""
    source, target = _committed(mm2.pair.source.log("t")), _all(mm2.pair.log())
    ends = [{"bootstrap.servers": cluster.bootstrap} for cluster in (mm2.pair.source, mm2.pair.target)]
    policy = CopyPolicy(exactly_once=mm2.pair.exactly_once)
    with OffsetTranslator(FLOW, ends[0], ends[1], policy, timeout_ms=60_000) as translator:
        offsets = translator.open({SOURCE: TARGET})[SOURCE]
        for offset in source:
            _check_translation(offsets, offset, source, target)


def _check_translation(
    offsets: PartitionOffsets, offset: int, source: dict[int, bytes], target: dict[int, bytes]
) -> None:
    place, at = offsets.translate(offset)
    if place is Place.UNKNOWN:
        return
    assert place in {Place.RECORD, Place.NEXT}
    assert at is not None
    if place is Place.RECORD:
        assert target[at] == source[offset]
        assert source.get(offsets.translate_back(at).offset or 0) == source[offset]
    behind = {value for one, value in source.items() if one >= offset}
    assert behind <= {value for one, value in target.items() if one >= at}
