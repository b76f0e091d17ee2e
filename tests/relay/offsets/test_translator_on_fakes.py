"""Whole copies write the offset index, and their offsets are translated. Real clients, brokers in memory."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mirror.client import TopicPartition
from mirror.errors import KafkaError, KafkaTimeout
from mirror.relay.model.policy import CopyPolicy
from mirror.relay.model.ranges import Outcome
from mirror.relay.offsets import offset_topic
from mirror.relay.offsets.index import Place, Translation
from mirror.relay.offsets.log_answers import LogAnswers, LogEnds
from mirror.relay.offsets.offset_topic import OffsetTopic
from mirror.relay.offsets.partition_offsets import PartitionOffsets
from mirror.relay.offsets.segments import Segment
from mirror.relay.offsets.translator import OffsetTranslator
from mirror.relay.progress.flow_topic import offset_topic_of
from mirror.wire.records import TRANSACTIONAL
from tests.fakes.record_batches import values_of
from tests.relay.fake_pair import FLOW, FakePair

SOURCE, TARGET = TopicPartition("t", 0), TopicPartition("paris.t", 0)
WAYS: dict[str, dict[str, Any]] = {
    "transactions": {"exactly_once_by": "transactions"},
    "sequences": {"exactly_once_by": "auto"},
    "at least once": {},
}


@pytest.fixture(autouse=True)
def no_random_tidying(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would merge segments that are counted."""
    monkeypatch.setattr(offset_topic, "_TIDIED_EVERY", 10**9)


def _pair(monkeypatch: pytest.MonkeyPatch, way: str) -> FakePair:
    return FakePair(monkeypatch, exactly_once=way != "at least once")


def _opened(translator: OffsetTranslator) -> PartitionOffsets:
    return translator.open({SOURCE: TARGET})[SOURCE]


def _translator(pair: FakePair, **policy: Any) -> OffsetTranslator:
    return OffsetTranslator(
        FLOW,
        {"bootstrap.servers": pair.source.bootstrap},
        {"bootstrap.servers": pair.target.bootstrap},
        CopyPolicy(exactly_once=pair.exactly_once, **policy),
        timeout_ms=5_000,
    )


def _segments(pair: FakePair) -> list[Segment]:
    return OffsetTopic({"bootstrap.servers": pair.target.bootstrap}, FLOW).read([TARGET], 10_000)[TARGET]


def _records(pair: FakePair, cluster: str) -> dict[int, bytes]:
    log = pair.source.log("t") if cluster == "source" else pair.log()
    return {
        one.base_offset + at: value
        for one in log.batches()
        if not one.is_control
        and not any(
            each.producer_id == one.producer_id and each.first_offset <= one.base_offset <= each.last_offset
            for each in log.aborted
        )
        for at, value in enumerate(values_of(one.view))
    }


def _check(pair: FakePair, offsets: PartitionOffsets) -> None:
    """Every offset, by content, in both directions."""
    source, target = _records(pair, "source"), _records(pair, "target")
    end = pair.source.log("t").end_offset
    for offset in range(end + 1):
        found = offsets.translate(offset)
        following = min((one for one in source if one >= offset), default=None)
        if following is None:
            assert found == (Place.END, max(target) + 1), offset
            continue
        assert found.place is (Place.RECORD if following == offset else Place.NEXT), (offset, offsets.reason)
        assert found.offset is not None
        assert target[found.offset] == source[following], offset
    for offset in range(min(target), pair.log().end_offset):
        back = offsets.translate_back(offset)
        following = min((one for one in target if one >= offset), default=None)
        if following is None:
            assert back == (Place.END, end)
            continue
        assert back.offset is not None
        assert back.place is (Place.RECORD if following == offset else Place.NEXT), (offset, offsets.reason)
        assert source[back.offset] == target[following]


def _write_mixed(pair: FakePair, at: int) -> None:
    """Plain records, a committed transaction, an aborted one, and records behind it."""
    log = pair.source.log("t")
    pair.write(*(b"%d" % one for one in range(at, at + 3)))
    log.append_values(b"%d-c" % at, b"%d-d" % at, attributes=TRANSACTIONAL, producer_id=40)
    log.end_transaction(40, commit=True)
    log.append_values(b"%d-x" % at, attributes=TRANSACTIONAL, producer_id=40)
    log.end_transaction(40, commit=False)
    pair.write(b"%d-z" % at)


@pytest.mark.parametrize("way", WAYS)
def test_every_offset_of_several_runs_is_translated_from_the_index(monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    pair = _pair(monkeypatch, way)
    for at in range(0, 400, 100):
        _write_mixed(pair, at)
        assert pair.copy(**WAYS[way]).outcome is Outcome.COMPLETE
    assert len(_segments(pair)) == 4
    with _translator(pair) as translator:
        offsets = _opened(translator)
        monkeypatch.setattr(offsets, "_fill", lambda hole: pytest.fail(f"{hole} was read"))
        _check(pair, offsets)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("lost", [{1}, {3}, {1, 2, 3}])
def test_what_was_not_written_is_found_in_the_logs(monkeypatch: pytest.MonkeyPatch, way: str, lost: set[int]) -> None:
    pair = _pair(monkeypatch, way)
    for run in range(4):
        _write_mixed(pair, 100 * run)
        topic = pair.target.topics[offset_topic_of(FLOW)]
        if run in lost:
            del pair.target.topics[offset_topic_of(FLOW)]
        assert pair.copy(**WAYS[way]).outcome is Outcome.COMPLETE
        pair.target.topics[offset_topic_of(FLOW)] = topic
        pair.log().append_values(b"foreign %d" % run)
    assert len(_segments(pair)) == 4 - len(lost)
    with _translator(pair) as translator:
        offsets = _opened(translator)
        for offset in _records(pair, "source"):
            found = offsets.translate(offset)
            assert found.offset is not None, (offset, offsets.reason)
            assert _records(pair, "target")[found.offset] == _records(pair, "source")[offset]


def test_offsets_in_a_target_that_lost_records_are_those_of_what_was_sent_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pair = FakePair(monkeypatch, brokers=2)
    pair.write(b"0", b"1")
    assert pair.copy().outcome is Outcome.COMPLETE
    cut = pair.log().end_offset
    pair.write(b"2", b"3")
    assert pair.copy().outcome is Outcome.COMPLETE
    pair.target.elect_uncleanly(*TARGET, 2, cut, new_replica=False)
    pair.log().append_values(b"foreign", b"foreign")
    pair.write(b"4")
    assert pair.copy().outcome is Outcome.COMPLETE
    with _translator(pair) as translator:
        offsets = _opened(translator)
        records = _records(pair, "target")
        for offset, value in _records(pair, "source").items():
            found = offsets.translate(offset)
            assert found.offset is not None, offsets.reason
            assert records[found.offset] == value


def test_offsets_of_a_source_topic_that_was_made_again_are_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = FakePair(monkeypatch)
    pair.write(b"0", b"1")
    assert pair.copy().outcome is Outcome.COMPLETE
    pair.source.add_topic("t", 1)
    pair.write(b"another", b"another")
    with _translator(pair) as translator:
        offsets = _opened(translator)
        assert offsets.translate(0).place is Place.UNKNOWN
        assert "is not the topic that was copied" in offsets.reason


def test_offsets_of_a_partition_that_was_never_copied_are_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = FakePair(monkeypatch)
    pair.write(b"0", b"1")
    with _translator(pair) as translator:
        offsets = _opened(translator)
        assert [offsets.translate(offset) for offset in (0, 1)] == [(Place.NOT_COPIED, None)] * 2
        assert "has no progress" in offsets.reason


def test_a_partition_whose_topic_does_not_exist_costs_no_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[TopicPartition]()

    def empty(_: LogAnswers, partitions: dict[TopicPartition, TopicPartition]) -> dict[TopicPartition, LogEnds]:
        asked.extend(partitions)
        return {}

    monkeypatch.setattr(LogAnswers, "empty", empty)
    absent = {TopicPartition("absent", 0): TARGET, SOURCE: TopicPartition("paris.absent", 0)}
    with _translator(FakePair(monkeypatch)) as translator:
        for source, offsets in translator.open(absent).items():
            assert offsets.translate(0) == (Place.NOT_COPIED, None), source
            assert "has no progress" in offsets.reason
    assert asked == []


def test_hole_that_the_source_has_deleted_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = FakePair(monkeypatch)
    pair.write(b"0", b"1")
    assert pair.copy().outcome is Outcome.COMPLETE
    topic = pair.target.topics.pop(offset_topic_of(FLOW))
    pair.write(b"2", b"3")
    assert pair.copy().outcome is Outcome.COMPLETE
    pair.target.topics[offset_topic_of(FLOW)] = topic
    pair.write(b"4")
    assert pair.copy().outcome is Outcome.COMPLETE
    pair.source.log("t").delete_before(4)
    with _translator(pair) as translator:
        offsets = _opened(translator)
        assert [offsets.translate(offset).place for offset in range(6)] == [
            *[Place.RECORD] * 2,
            *[Place.UNKNOWN] * 2,
            Place.RECORD,
            Place.END,
        ]
        assert offsets.reason


def test_segments_are_made_fewer_while_a_copy_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = FakePair(monkeypatch)
    for number in range(6):
        if number == 5:
            monkeypatch.setattr(offset_topic, "_TIDIED_EVERY", 1)
        pair.write(b"%d" % number)
        assert pair.copy().outcome is Outcome.COMPLETE
    assert len(_segments(pair)) == 2, "the last one was not there yet when the others were merged"
    with _translator(pair) as translator:
        offsets = _opened(translator)
        monkeypatch.setattr(offsets, "_fill", lambda hole: pytest.fail(f"{hole} was read"))
        _check(pair, offsets)


def test_segments_of_a_copy_that_has_started_over_are_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = FakePair(monkeypatch)
    for number in range(2):
        pair.write(b"%d" % number)
        assert pair.copy().outcome is Outcome.COMPLETE
    (former,) = {segment.end.series for segment in _segments(pair)}
    monkeypatch.setattr(offset_topic, "_TIDIED_EVERY", 1)
    pair.made_again()
    assert pair.copy(start_over=True).outcome is Outcome.COMPLETE
    (segment,) = _segments(pair)
    assert segment.end.series > former
    with _translator(pair) as translator:
        _check(pair, _opened(translator))


def test_segments_in_front_of_the_log_start_of_the_source_are_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = FakePair(monkeypatch)
    for number in range(6):
        if number == 5:
            monkeypatch.setattr(offset_topic, "_TIDIED_EVERY", 1)
            pair.source.log("t").delete_before(4)
        pair.write(b"%d" % number)
        assert pair.copy().outcome is Outcome.COMPLETE
    assert min(segment.start for segment in _segments(pair)) > 0
    with _translator(pair) as translator:
        offsets = _opened(translator)
        records = _records(pair, "target")
        for offset in (4, 5):
            found = offsets.translate(offset)
            assert found.offset is not None, offsets.reason
            assert (found.place, records[found.offset]) == (Place.RECORD, b"%d" % offset)


@pytest.mark.parametrize("way", WAYS)
def test_what_was_not_written_is_completed_from_the_logs(monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    pair = _pair(monkeypatch, way)
    for run in range(5):
        _write_mixed(pair, 100 * run)
        topic = pair.target.topics[offset_topic_of(FLOW)]
        if run in {0, 2}:
            del pair.target.topics[offset_topic_of(FLOW)]
        if run == 4:
            monkeypatch.setattr(offset_topic, "_TIDIED_EVERY", 1)
        assert pair.copy(**WAYS[way]).outcome is Outcome.COMPLETE
        pair.target.topics[offset_topic_of(FLOW)] = topic
    pair.source.log("t").delete_before(pair.source.log("t").end_offset)
    with _translator(pair) as translator:
        index = _opened(translator).index
        source, target = _records(pair, "source"), _records(pair, "target")
        for offset, value in source.items():
            found = index.translate(offset)
            assert isinstance(found, Translation)
            assert found.place is Place.RECORD
            assert found.offset is not None
            assert target[found.offset] == value


def test_segments_stay_if_what_they_are_merged_into_cannot_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = FakePair(monkeypatch)
    write, written = OffsetTopic.write, list[Any]()

    def write_some(self: OffsetTopic, segments: Any, timeout_ms: int) -> dict[Any, KafkaError]:
        written.append(segments)
        if any(segment is not None and segment.end.offset > segment.start + 1 for segment in segments.values()):
            return dict.fromkeys(segments, KafkaTimeout("no"))
        return write(self, segments, timeout_ms)

    monkeypatch.setattr(OffsetTopic, "write", write_some)
    for number in range(6):
        if number == 5:
            monkeypatch.setattr(offset_topic, "_TIDIED_EVERY", 1)
        pair.write(b"%d" % number)
        assert pair.copy().outcome is Outcome.COMPLETE
    assert len(written) > 6
    assert len(_segments(pair)) == 6
    assert all(None not in each.values() for each in written)


def test_flow_without_an_offset_topic_is_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = FakePair(monkeypatch)
    del pair.target.topics[offset_topic_of(FLOW)]
    pair.write(b"0", b"1")
    result = pair.copy()
    assert (result.outcome, result.records) == (Outcome.COMPLETE, 2), result.error
    with _translator(pair) as translator:
        _check(pair, _opened(translator))


def test_what_an_earlier_version_has_copied_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """It did not store where it had begun."""
    pair = FakePair(monkeypatch)
    topic = pair.target.topics.pop(offset_topic_of(FLOW))
    pair.write(b"0", b"1")
    assert pair.copy().outcome is Outcome.COMPLETE
    metadata = json.loads(pair.metadata())
    del metadata["beginning"]
    pair.set_metadata(json.dumps(metadata))
    with _translator(pair) as translator:
        offsets = _opened(translator)
        assert offsets.translate(0).place is Place.UNKNOWN
        assert "no offset index" in offsets.reason
    pair.target.topics[offset_topic_of(FLOW)] = topic
    pair.write(b"2", b"3")
    assert pair.copy().outcome is Outcome.COMPLETE
    with _translator(pair) as translator:
        offsets = _opened(translator)
        places = [offsets.translate(offset).place for offset in range(5)]
        assert places == [*[Place.UNKNOWN] * 2, *[Place.RECORD] * 2, Place.END]
