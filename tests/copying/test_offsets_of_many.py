"""Offsets of many records of each kind of topic, by content, in both directions: real brokers."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

from mirror.client import TopicPartition
from mirror.relay.model.policy import CopyPolicy
from mirror.relay.offsets.index import Place
from mirror.relay.offsets.partition_offsets import PartitionOffsets
from mirror.relay.offsets.translator import OffsetTranslator
from tests.copying.generated import PLAIN, End, Write, Writers
from tests.copying.pair import Seen, TwoClusters
from tests.copying.writers import Made, batch_of, write_batches
from tests.polling import eventually

pytestmark = [pytest.mark.brokers, pytest.mark.timeout(400)]

_TURNS: Final = 5
"""Copies one after another; nothing of the one in the middle is written to the index."""
_BATCH: Final = 200
_WAYS: Final[dict[str, dict[str, Any]]] = {
    "auto": {"exactly_once_by": "auto"},
    "transactions": {"exactly_once_by": "transactions"},
    "at least once": {"exactly_once": False},
}
_COMPACTED: Final = {
    "cleanup_policy": "compact",
    "min_cleanable_dirty_ratio": "0.001",
    "segment_ms": "100",
    "max_compaction_lag_ms": "200",
}

Kind = Callable[[TwoClusters, Writers, str, int, int], None]


@pytest.fixture(scope="module")
def writers(pair: TwoClusters) -> Iterator[Writers]:
    with Writers(pair.source.address) as writers:
        yield writers


def _records(keys: Iterator[int], first: int, count: int) -> list[Made]:
    now_ms = int(time.time() * 1000)
    return [Made(b"k%d" % next(keys), b"v%d" % number, (), now_ms) for number in range(first, first + count)]


def _plain(pair: TwoClusters, _: Writers, topic: str, first: int, count: int) -> None:
    """Some batches are small, and merged."""
    rng = random.Random(first)
    records = _records(iter(range(first, first + count)), first, count)
    batches, at = [], 0
    while at < count:
        size = rng.choice([3, 20, _BATCH, 3 * _BATCH])
        batches.append(batch_of(records[at : at + size], "lz4"))
        at += size
    write_batches(pair.source.address, topic, batches)


def _transactional(_: TwoClusters, writers: Writers, topic: str, first: int, count: int) -> None:
    """Two producers' transactions of several batches between each other, a third of them aborted, and plain batches."""
    records = _records(iter(range(first, first + count)), first, count)
    for number, at in enumerate(range(0, count, _BATCH)):
        writer = PLAIN if number % 5 == 4 else 1 + number % 2
        writers.write(topic, Write(0, writer, 0, records[at : at + _BATCH], 1), "none")
        if number % 4 == 3:
            writers.end(End(1 + number // 4 % 2, commit=number % 3 > 0))
    for writer in (1, 2):
        writers.end(End(writer, commit=writer == 1))


def _compacted(pair: TwoClusters, _: Writers, topic: str, first: int, count: int) -> None:
    """About a third of the records are superseded by later ones, at random places."""
    rng = random.Random(first)
    records = _records((rng.randrange(count) for _ in range(count + 1)), first, count)
    before = pair.source.ends(topic)[1]
    batches = [batch_of(records[at : at + _BATCH]) for at in range(0, count, _BATCH)]
    write_batches(pair.source.address, topic, batches)

    def is_compacted() -> bool:
        later = Made(b"later", b"%d" % time.monotonic_ns(), (), int(time.time() * 1000))
        write_batches(pair.source.address, topic, [batch_of([later])])
        found = [one for one in pair.source.batches(topic) if before <= one.base_offset < before + count]
        return sum(int(one.count) for one in found) < 0.8 * count

    eventually(is_compacted, within_s=60, what="the cleaner has compacted the log")


KINDS: Final[dict[str, Kind]] = {"plain": _plain, "transactional": _transactional, "compacted": _compacted}
_FEW: Final = 2_000
_IN_SUITE: Final = {("plain", "at least once"), ("transactional", "transactions"), ("compacted", "auto")}


def _check(pair: TwoClusters, topic: str, offsets: PartitionOffsets, written: dict[int, Seen]) -> None:
    """Compare both logs as confluent-kafka reads them; ``written`` is what the source has had at any time."""
    target = dict(pair.target.seen(topic))
    values = {seen.value for seen in target.values()}
    copied = {offset: seen for offset, seen in written.items() if seen.value in values}
    back: dict[int, int] = {}
    following: int | None = None
    for offset in range(pair.source.ends(topic)[1] - 1, -1, -1):
        place, found = offsets.translate(offset)
        if offset in copied:
            assert place is Place.RECORD, (offset, place, offsets.reason)
            assert found is not None
            assert _content(target[found]) == _content(copied[offset]), offset
            back[found], following = offset, found
        elif following is None:
            assert (place, found) == (Place.END, max(target) + 1), offset
        else:
            assert (place, found) == (Place.NEXT, following), (offset, offsets.reason)
    assert back.keys() == target.keys()
    following = None
    for offset in range(max(target), -1, -1):
        following = back.get(offset, following)
        place = Place.RECORD if offset in back else Place.NEXT
        assert offsets.translate_back(offset) == (place, following), offset


def _content(seen: Seen) -> tuple[object, ...]:
    return seen.key, seen.value, seen.headers, seen.time_ms


# The suite has each kind and each way once; `make cluster` has all of both.
@pytest.mark.parametrize(
    ("kind", "way", "count"),
    [
        pytest.param(kind, way, count, marks=() if count == _FEW and (kind, way) in _IN_SUITE else pytest.mark.cluster)
        for kind in KINDS
        for way in _WAYS
        for count in (_FEW, 100_000)
    ],
)
def test_every_offset_is_that_of_the_same_record(
    pair: TwoClusters, writers: Writers, kind: str, way: str, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = _WAYS[way]
    topic = pair.topics(source=_COMPACTED if kind == "compacted" else {})
    written: dict[int, Seen] = {}
    part = count // _TURNS
    with writers.topic():
        for turn in range(_TURNS):
            KINDS[kind](pair, writers, topic, turn * part, part)
            pair.source.await_stable(topic)
            written |= pair.source.seen(topic)
            with monkeypatch.context() as patch:
                # What is compacted after it was copied cannot be found in the logs.
                if turn == _TURNS // 2 and kind != "compacted":
                    patch.setattr("mirror.relay.offsets.offset_topic.OffsetKeeper.write", lambda *_: True)
                pair.complete(topic, **policy)
    tp = TopicPartition(topic, 0)
    source, target = ({"bootstrap.servers": side.address} for side in (pair.source, pair.target))
    with OffsetTranslator(pair.flow, source, target, CopyPolicy(**policy)) as translator:
        _check(pair, topic, translator.open({tp: tp})[tp], written)
