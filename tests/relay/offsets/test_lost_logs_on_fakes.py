"""Offsets after a log has lost records, and what was not written of the index. Real clients, brokers in memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from mirror.relay.model.ranges import Outcome
from mirror.relay.offsets.index import Place
from mirror.relay.offsets.partition_offsets import PartitionOffsets
from mirror.relay.progress.flow_topic import offset_topic_of
from tests.relay.fake_pair import FLOW, FakePair
from tests.relay.offsets.test_translator_on_fakes import SOURCE, TARGET, WAYS, _opened, _pair, _records, _translator

_LONG = b"." * 9_000
"""Batches with it are not merged, so that a log may be cut back between two of them."""


def _copy(pair: FakePair, *values: bytes, indexed: bool = True, **policy: Any) -> None:
    """Copy ``values``; unless they are ``indexed``, nothing of them is written to the offset topic."""
    for value in values:
        pair.write(value)
    topic = pair.target.topics[offset_topic_of(FLOW)]
    if not indexed:
        del pair.target.topics[offset_topic_of(FLOW)]
    result = pair.copy(**policy)
    assert result.outcome is Outcome.COMPLETE, result.error
    pair.target.topics[offset_topic_of(FLOW)] = topic


def _at(pair: FakePair, value: bytes) -> int:
    return next(at for at, each in _records(pair, "target").items() if each == value)


def _values(pair: FakePair, offsets: PartitionOffsets) -> list[bytes | None]:
    """The value of the target's record for each of the source's; None if it is unknown."""
    target = _records(pair, "target")
    found = [offsets.translate(offset) for offset in _records(pair, "source")]
    assert all(one.place in {Place.RECORD, Place.UNKNOWN} for one in found)
    return [None if one.offset is None else target.get(one.offset) for one in found]


@pytest.mark.parametrize("way", WAYS)
def test_part_of_a_segment_in_front_of_a_loss_of_the_target_still_counts(
    monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    pair = FakePair(monkeypatch, brokers=2, exactly_once=way != "at least once")
    values = [b"%d" % number + _LONG for number in range(8)]
    _copy(pair, *values[:4], **WAYS[way])
    cut = _at(pair, values[2])
    pair.target.elect_uncleanly(*TARGET, 2, cut, new_replica=False)
    pair.log().append_values(b"foreign", b"foreign", b"foreign")
    with _translator(pair) as translator:
        before = _opened(translator)
        assert _values(pair, before) == [*values[:2], None, None]
    _copy(pair, *values[4:], indexed=False, **WAYS[way])
    with _translator(pair) as translator:
        assert _values(pair, _opened(translator)) == values


@pytest.mark.parametrize("way", WAYS)
def test_offsets_that_a_source_has_used_again_are_not_those_of_the_records_that_it_lost(
    monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """What was copied behind the place where its log was cut back was not written to the index."""
    pair = _pair(monkeypatch, way)
    _copy(pair, b"0", b"1", b"lost", b"lost, too", **WAYS[way])
    pair.source.elect_uncleanly(*SOURCE, 1, 2, new_replica=False)
    _copy(pair, b"2", b"3", b"4", indexed=False, on_gap="skip", **WAYS[way])
    assert list(_records(pair, "target").values()) == [b"0", b"1", b"lost", b"lost, too", b"2", b"3", b"4"]
    with _translator(pair) as translator:
        assert _values(pair, _opened(translator)) in ([b"0", b"1", None, None, None], [b"0", b"1", b"2", b"3", b"4"])


@pytest.mark.parametrize("way", ["transactions", "sequences"])
def test_gap_that_was_skipped_is_in_front_of_the_next_record(monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    pair = _pair(monkeypatch, way)
    _copy(pair, b"0", b"1", **WAYS[way])
    pair.write(b"2", b"3", b"4")
    pair.source.log("t").delete_before(4)
    _copy(pair, on_gap="skip", **WAYS[way])
    with _translator(pair) as translator:
        offsets = _opened(translator)
        target = {value: offset for offset, value in _records(pair, "target").items()}
        assert offsets.translate(4) == (Place.RECORD, target[b"4"])
        assert [offsets.translate(offset) for offset in (2, 3)] == [(Place.NEXT, target[b"4"])] * 2, offsets.reason


@pytest.mark.parametrize("way", WAYS)
def test_index_begins_with_the_copy_although_its_first_segments_were_not_written(
    monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    pair = _pair(monkeypatch, way)
    _copy(pair, b"0", b"1", indexed=False, **WAYS[way])
    _copy(pair, b"2", indexed=False, **WAYS[way])
    with _translator(pair) as translator:
        assert _values(pair, _opened(translator)) == [b"0", b"1", b"2"]
    _copy(pair, b"3", **WAYS[way])
    with _translator(pair) as translator:
        offsets = _opened(translator)
        assert _values(pair, offsets) == [b"0", b"1", b"2", b"3"], offsets.reason
        assert offsets.translate_back(_at(pair, b"0")) == (Place.RECORD, 0)


@pytest.mark.parametrize("way", WAYS)
def test_records_that_the_other_side_has_deleted_are_in_front_of_the_next_one(
    monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """A group at an offset in front of the log's start would be reset, perhaps to the log's end."""
    pair = _pair(monkeypatch, way)
    _copy(pair, b"0", b"1", b"2", b"3", **WAYS[way])
    target = {value: offset for offset, value in _records(pair, "target").items()}
    pair.log().delete_before(target[b"2"])
    pair.source.log("t").delete_before(1)
    with _translator(pair) as translator:
        offsets = _opened(translator)
        assert [offsets.translate(offset) for offset in range(4)] == [
            (Place.NEXT, target[b"2"]),
            (Place.NEXT, target[b"2"]),
            (Place.RECORD, target[b"2"]),
            (Place.RECORD, target[b"3"]),
        ]
        assert offsets.translate_back(target[b"0"]) == (Place.NEXT, 1)
        assert offsets.translate_back(target[b"1"]) == (Place.RECORD, 1)
    end = pair.log().end_offset
    pair.log().delete_before(end)
    with _translator(pair) as translator:
        assert [_opened(translator).translate(offset) for offset in (0, 4, 5)] == [
            (Place.END, end),
            (Place.END, end),
            (Place.NOT_COPIED, end),
        ]


@pytest.mark.parametrize("indexed", [True, False])
@pytest.mark.parametrize("way", WAYS)
def test_logs_may_begin_within_a_batch(monkeypatch: pytest.MonkeyPatch, way: str, indexed: bool) -> None:
    pair = _pair(monkeypatch, way)
    pair.write(b"0", b"1", b"2", b"3", b"4")
    pair.source.log("t").delete_before(2)
    planned = replace(pair.range_of(), start=2, first=2)
    monkeypatch.setattr(pair, "range_of", lambda: planned)
    _copy(pair, indexed=indexed, **WAYS[way])
    target = {value: offset for offset, value in _records(pair, "target").items()}
    assert list(target) == [b"2", b"3", b"4"]
    with _translator(pair) as translator:
        offsets = _opened(translator)
        assert [offsets.translate(offset) for offset in range(2, 5)] == [
            (Place.RECORD, target[b"%d" % offset]) for offset in range(2, 5)
        ]
    pair.log().delete_before(target[b"3"])
    with _translator(pair) as translator:
        offsets = _opened(translator)
        found = [offsets.translate(offset) for offset in range(2, 5)]
        if indexed:
            assert found == [
                (Place.NEXT, target[b"3"]),
                (Place.RECORD, target[b"3"]),
                (Place.RECORD, target[b"4"]),
            ]
        else:
            assert {one.place for one in found} == {Place.UNKNOWN}
