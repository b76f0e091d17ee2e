"""Every offset of a copied topic is translated to the same record, by content, and back: real brokers."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import pytest

from mirror.client import TopicPartition
from mirror.relay.model.policy import CopyPolicy
from mirror.relay.offsets.index import Place
from mirror.relay.offsets.partition_offsets import PartitionOffsets
from mirror.relay.offsets.translator import OffsetTranslator
from tests.copying.generated import End, Write, Writers
from tests.copying.pair import Seen, TwoClusters
from tests.copying.writers import Made, batch_of, made, write_batches
from tests.polling import eventually

pytestmark = pytest.mark.brokers

WAYS: Final[dict[str, dict[str, Any]]] = {
    "transactions": {"exactly_once_by": "transactions", "exactly_once": True},
    "sequences": {"exactly_once_by": "auto", "exactly_once": True},
    "at least once": {"exactly_once": False},
}
_COMPACTED: Final = {
    "cleanup_policy": "compact",
    "min_cleanable_dirty_ratio": "0.001",
    "segment_ms": "100",
    "max_compaction_lag_ms": "200",
}


@pytest.fixture(scope="module")
def writers(pair: TwoClusters) -> Iterator[Writers]:
    with Writers(pair.source.address) as writers:
        yield writers


def _now_ms() -> int:
    return int(time.time() * 1000)


def _records(first: int, count: int) -> list[Made]:
    return [Made(b"k%d" % number, b"v%d" % number, (), _now_ms()) for number in range(first, first + count)]


def _plain(pair: TwoClusters, _: Writers, topic: str, turn: int) -> None:
    write_batches(pair.source.address, topic, [batch_of(_records(1_000 * turn + 100 * one, 100)) for one in range(10)])


def _small(pair: TwoClusters, _: Writers, topic: str, turn: int) -> None:
    """Merged; then a large batch, which is passed on."""
    batches = [batch_of(_records(1_000 * turn + 3 * one, 3), "lz4") for one in range(100)]
    write_batches(pair.source.address, topic, [*batches, batch_of(_records(1_000 * turn + 400, 400), "lz4")])


def _transactional(_: TwoClusters, writers: Writers, topic: str, turn: int) -> None:
    for number in range(6):
        records = _records(1_000 * turn + 100 * number, 5)
        writers.write(topic, Write(0, 1 + number % 2, 0, records, 1), "none")
        writers.write(topic, Write(0, 0, 0, _records(1_000 * turn + 100 * number + 50, 2), 1), "none")
        writers.end(End(1 + number % 2, commit=number % 3 > 0))


def _compacted(pair: TwoClusters, _: Writers, topic: str, turn: int) -> None:
    records = [Made(b"k%d" % (number % 70), b"%d of %d" % (number, turn), (), _now_ms()) for number in range(200)]
    before = pair.source.batches(topic)
    write_batches(pair.source.address, topic, [batch_of(records[:100]), batch_of(records[100:], "zstd")])
    start = before[-1].next_offset if before else 0

    def compacted() -> bool:
        write_batches(pair.source.address, topic, [batch_of([Made(b"turn", b"v", (), _now_ms())])])
        found = [one for one in pair.source.batches(topic) if one.base_offset >= start]
        return sum(int(one.count) for one in found if one.count > 1) < len(records)

    eventually(compacted, what="the cleaner has compacted the log")


Kind = Callable[[TwoClusters, Writers, str, int], None]
KINDS: Final[dict[str, Kind]] = {
    "plain": _plain,
    "merged": _small,
    "transactional": _transactional,
    "compacted": _compacted,
}


def _translator(pair: TwoClusters, way: str) -> OffsetTranslator:
    return OffsetTranslator(
        pair.flow,
        {"bootstrap.servers": pair.source.address},
        {"bootstrap.servers": pair.target.address},
        CopyPolicy(**WAYS[way]),
    )


def _check(pair: TwoClusters, topic: str, offsets: PartitionOffsets) -> None:
    """By content, as confluent-kafka reads both logs."""
    source, target = dict(pair.source.seen(topic)), dict(pair.target.seen(topic))
    end = pair.source.ends(topic)[1]

    def content(seen: Seen) -> tuple[object, ...]:
        return seen.key, seen.value, seen.headers, seen.time_ms

    # The source may be compacted further at any time: then more was copied than it has now.
    for offset in range(end):
        found = offsets.translate(offset)
        assert found.place in {Place.RECORD, Place.NEXT, Place.END}, (offset, found, offsets.reason)
        if offset in source:
            assert found.place is Place.RECORD
            assert found.offset is not None
            assert content(target[found.offset]) == content(source[offset]), offset
            assert offsets.translate_back(found.offset) == (Place.RECORD, offset)
    assert offsets.translate(end) == (Place.END, max(target) + 1)
    assert offsets.translate(end + 1) == (Place.NOT_COPIED, max(target) + 1)
    assert offsets.translate_back(max(target) + 1) == (Place.END, end)
    for offset in target:
        assert offsets.translate_back(offset).place is Place.RECORD


def _each(kinds: Iterable[str], in_suite: set[tuple[str, str]]) -> pytest.MarkDecorator:
    """Each kind by each way; the suite has only some pairs."""
    pairs = itertools.product(kinds, WAYS)
    marked = [pytest.param(*pair, marks=() if pair in in_suite else pytest.mark.cluster) for pair in pairs]
    return pytest.mark.parametrize(("kind", "way"), marked)


@_each(
    KINDS,
    {
        ("plain", "sequences"),
        ("merged", "sequences"),
        ("transactional", "transactions"),
        ("compacted", "transactions"),
    },
)
def test_every_offset_is_translated_from_the_index(
    pair: TwoClusters, writers: Writers, kind: str, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = pair.topics(source=_COMPACTED if kind == "compacted" else {})
    with writers.topic():
        for turn in range(3):
            KINDS[kind](pair, writers, topic, turn)
            pair.source.await_stable(topic)
            pair.complete(topic, **WAYS[way])
    tp = TopicPartition(topic, 0)
    with _translator(pair, way) as translator:
        offsets = translator.open({tp: tp})[tp]
        monkeypatch.setattr(offsets, "_fill", lambda hole: pytest.fail(f"{hole} was read"))
        _check(pair, topic, offsets)


@_each(
    ["plain", "merged", "transactional"],
    {("plain", "transactions"), ("merged", "transactions"), ("transactional", "sequences")},
)
def test_offsets_that_no_task_has_written_are_found_in_the_logs(
    pair: TwoClusters, writers: Writers, kind: str, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = pair.topics()
    with writers.topic():
        for turn in range(3):
            KINDS[kind](pair, writers, topic, turn)
            pair.source.await_stable(topic)
            with monkeypatch.context() as patch:
                if turn:
                    patch.setattr("mirror.relay.offsets.offset_topic.OffsetKeeper.write", lambda *_: True)
                pair.complete(topic, **WAYS[way])
            write_batches(pair.target.address, topic, [batch_of(made(2, first=turn))])
    tp = TopicPartition(topic, 0)
    with _translator(pair, way) as translator:
        offsets = translator.open({tp: tp})[tp]
        source, target = pair.source.seen(topic), dict(pair.target.seen(topic))
        for offset, seen in source:
            found = offsets.translate(offset)
            assert found.place is Place.RECORD, offsets.reason
            assert found.offset is not None
            assert target[found.offset][:3] == seen[:3]
            assert offsets.translate_back(found.offset) == (Place.RECORD, offset)
