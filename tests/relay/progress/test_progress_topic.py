"""The progress topic: records are written, read, and compared with the target. Real clients, brokers in memory."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from mirror.client import Admin, TopicPartition
from mirror.errors import AuthorizationFailed, KafkaTimeout
from mirror.relay.model.way import Way
from mirror.relay.progress.anchor_keeper import AnchorKeeper
from mirror.relay.progress.anchors import SLOTS, Anchor, encode_key, key_of
from mirror.relay.progress.committed import Beginning, Progress, Searched
from mirror.relay.progress.flow_topic import topic_of
from mirror.relay.progress.progress_topic import ProgressRecord, ProgressTopic
from mirror.relay.progress.target_log import TargetMark
from mirror.wire.api import Api
from mirror.wire.encode import BatchBuilder
from mirror.wire.records import CONTROL, TRANSACTIONAL
from tests.fakes import errors
from tests.fakes.cluster import FakeCluster
from tests.fakes.control import Action, ServerCall
from tests.fakes.log import PartitionLog
from tests.fakes.record_batches import build
from tests.fakes.threaded import threaded_cluster

TOPIC = topic_of("f")
OTHER = TopicPartition("a.orders-1", 1)
TP = TopicPartition("a.orders", 11)
DATA = TopicPartition("a.orders", 0)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCluster]:
    with threaded_cluster(monkeypatch, brokers=2) as made:
        made.add_topic(TOPIC)
        made.add_topic(DATA.topic)
        yield made


@pytest.fixture
def topic(cluster: FakeCluster) -> ProgressTopic:
    return ProgressTopic({"bootstrap.servers": cluster.bootstrap, "batch.size": 5, "transactional.id": "x"}, "f")


def kept(offset: int, target_end: int = 0, epoch: int | None = 3) -> ProgressRecord:
    progress = Progress(
        offset=offset,
        leader_epoch=epoch,
        source_cluster_id="s",
        topic_id="t",
        time_ms=77,
        series=9,
        beginning=Beginning(2, 30),
    )
    return ProgressRecord(progress, target_end)


# --- keeping and reading


def test_written_records_are_read(topic: ProgressTopic) -> None:
    wanted = {TP: kept(5, 6), OTHER: kept(7, 8, epoch=None)}
    assert topic.write(wanted, 10_000) == {}
    assert topic.read([TP, OTHER]) == wanted
    assert topic.read([OTHER, DATA]) == {OTHER: wanted[OTHER]}


def test_last_record_wins(topic: ProgressTopic) -> None:
    for offset in (9, 5, 7):
        assert topic.write({TP: kept(offset)}, 10_000) == {}
    assert topic.read([TP]) == {TP: kept(7)}


def test_record_says_nothing_of_the_attempt(topic: ProgressTopic) -> None:
    record = kept(7)
    attempt = replace(
        record.progress,
        way=Way.SEQUENCES,
        generation=5,
        producer_id=4,
        earlier_ids=frozenset({3}),
        attempt=2,
        ended=True,
        searched=Searched(end=9, leader_epoch=1),
        claimed_ms=6,
        claimed_by=(4, 2),
    )
    assert topic.write({TP: replace(record, progress=attempt)}, 10_000) == {}
    assert topic.read([TP]) == {TP: record}


def test_ambiguous_names_have_different_keys(topic: ProgressTopic) -> None:
    one, two = TopicPartition("a-1", 1), TopicPartition("a", 11)
    assert topic.write({one: kept(1), two: kept(2)}, 10_000) == {}
    assert topic.read([one, two]) == {one: kept(1), two: kept(2)}


def test_tombstone_removes_a_record(cluster: FakeCluster, topic: ProgressTopic) -> None:
    topic.write({TP: kept(5)}, 10_000)
    key = json.dumps({"topic": TP.topic, "partition": TP.partition}, separators=(",", ":")).encode()
    put(cluster, key, None)
    assert topic.read([TP]) == {}


def test_missing_and_empty_topic_hold_no_records(cluster: FakeCluster, topic: ProgressTopic) -> None:
    assert topic.read([TP]) == {}
    del cluster.topics[TOPIC]
    assert topic.read([TP]) == {}


def test_no_partitions_need_no_request(cluster: FakeCluster, topic: ProgressTopic) -> None:
    assert (topic.read([]), topic.write({}, 10_000)) == ({}, {})
    assert cluster.received == []


def put(cluster: FakeCluster, key: bytes | None, value: bytes | None) -> None:
    """Append a record as another program would."""
    builder = BatchBuilder("none", 16_384)
    builder.append(key, value, (), 0)
    cluster.log(TOPIC).append(bytes(builder.build().view))


PROGRESS = {"offset": 1, "leader_epoch": 0, "source_cluster_id": "s", "topic_id": "t"}
GOOD = {"v": 1, "progress": PROGRESS, "target_end": 1}


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"\xff",
        b"no json",
        b"[]",
        b"{}",
        json.dumps({**GOOD, "v": 2}).encode(),
        json.dumps({**GOOD, "progress": {**PROGRESS, "offset": -1}}).encode(),
        json.dumps({**GOOD, "progress": {**PROGRESS, "offset": True}}).encode(),
        json.dumps({**GOOD, "target_end": "1"}).encode(),
        json.dumps({**GOOD, "progress": {**PROGRESS, "source_cluster_id": None}}).encode(),
    ],
)
def test_invalid_records_are_skipped_with_a_warning(
    cluster: FakeCluster, topic: ProgressTopic, caplog: pytest.LogCaptureFixture, value: bytes
) -> None:
    topic.write({TP: kept(5)}, 10_000)
    key = json.dumps({"topic": TP.topic, "partition": TP.partition}).encode()
    put(cluster, key, value)
    put(cluster, b"garbage", value)
    put(cluster, None, value)
    with caplog.at_level(logging.WARNING):
        assert topic.read([TP]) == {TP: kept(5)}
    (line,) = caplog.messages
    assert line.startswith(f"{TOPIC}: 3 records are not understood and passed over, the first at offset 1; ")


def test_record_has_the_documented_format(cluster: FakeCluster, topic: ProgressTopic) -> None:
    put(cluster, b'{"topic":"a.orders","partition":11}', json.dumps(GOOD).encode())
    progress = Progress(offset=1, leader_epoch=0, source_cluster_id="s", topic_id="t", time_ms=0)
    assert topic.read([TP]) == {TP: ProgressRecord(progress, 1)}


def test_failed_writes_are_returned_for_each_partition(cluster: FakeCluster, topic: ProgressTopic) -> None:
    refused: dict[TopicPartition | str, int] = {TopicPartition(TOPIC, 0): errors.TOPIC_AUTHORIZATION_FAILED}
    cluster.control.on(Api.PRODUCE, Action(errors=refused), times=None)
    lost = topic.write({TP: kept(5), OTHER: kept(6)}, 10_000)
    assert {tp: type(error) for tp, error in lost.items()} == dict.fromkeys([TP, OTHER], AuthorizationFailed)


def test_missing_topic_is_waited_for_once(cluster: FakeCluster, topic: ProgressTopic) -> None:
    del cluster.topics[TOPIC]
    before = cluster.clock.now()
    lost = topic.write({TopicPartition("a", n): kept(n) for n in range(50)}, 5_000)
    assert len(lost) == 50
    assert all(isinstance(error, KafkaTimeout) for error in lost.values())
    assert 5_000 <= cluster.clock.now() - before < 10_000


def test_unavailable_broker_is_waited_for_no_longer_than_the_timeout(cluster: FakeCluster) -> None:
    for node in cluster.brokers:
        cluster.kill(node)
    topic = ProgressTopic({"bootstrap.servers": cluster.bootstrap}, "f")
    assert isinstance(topic.write({TP: kept(5)}, 3_000)[TP], KafkaTimeout)


# --- held against the target


def aborted(log: PartitionLog) -> None:
    log.append_values(b"void", attributes=TRANSACTIONAL, producer_id=5)
    log.end_transaction(5, commit=False)


def committed(log: PartitionLog) -> None:
    log.append_values(b"good", attributes=TRANSACTIONAL, producer_id=5)
    log.end_transaction(5, commit=True)


def only_markers(log: PartitionLog) -> None:
    log.end_transaction(6, commit=True)
    log.end_transaction(6, commit=False)


def aborted_twice_and_interleaved(log: PartitionLog) -> None:
    aborted(log)
    log.append_values(b"void", attributes=TRANSACTIONAL, producer_id=7)
    log.append_values(b"void", attributes=TRANSACTIONAL, producer_id=5)
    log.end_transaction(7, commit=False)
    log.end_transaction(5, commit=False)


def plain(log: PartitionLog) -> None:
    log.append_values(b"good")


def good_behind_void(log: PartitionLog) -> None:
    for _ in range(50):
        aborted(log)
    committed(log)


def emptied(log: PartitionLog) -> None:
    """Leave what compaction leaves of a producer's last batch."""
    log.append(build((), last_offset_delta=0, producer_id=9, producer_epoch=0, base_sequence=0))


def hole(log: PartitionLog) -> None:
    log.end_offset += 2
    only_markers(log)


def cut_back(log: PartitionLog) -> None:
    log.truncate(4)


def later_start(log: PartitionLog) -> None:
    aborted(log)
    log.delete_before(log.end_offset)


def nothing(log: PartitionLog) -> None:
    del log


def all_before_is_gone(log: PartitionLog) -> None:
    log.delete_before(log.end_offset)


@pytest.mark.parametrize(
    ("since", "true"),
    [
        (nothing, True),
        (only_markers, True),
        (aborted, True),
        (aborted_twice_and_interleaved, True),
        (all_before_is_gone, True),
        (committed, False),
        (plain, False),
        (good_behind_void, False),
        (emptied, False),
        (hole, False),
        (cut_back, False),
        (later_start, False),
    ],
)
def test_forgotten_progress_is_restored_or_reported_never_restarted(
    cluster: FakeCluster, topic: ProgressTopic, since: Callable[[PartitionLog], None], true: bool
) -> None:
    log = cluster.log(DATA.topic)
    log.append_values(b"1", b"2", b"3")
    committed(log)
    note = kept(5, log.end_offset)
    since(log)
    assert topic.holds_no_records(DATA, note.target_end, 10_000) is true


def test_open_transaction_is_waited_for(cluster: FakeCluster, topic: ProgressTopic) -> None:
    """It may hide committed records that cannot be read yet."""
    log = cluster.log(DATA.topic)
    log.append_values(b"open", attributes=TRANSACTIONAL, producer_id=5)
    committed_behind = log.append_values(b"good", attributes=TRANSACTIONAL, producer_id=6)
    log.end_transaction(6, commit=True)
    with pytest.raises(KafkaTimeout, match=r"a.orders-0: could be read up to offset 0 only, not to 3"):
        topic.holds_no_records(DATA, kept(5, 0).target_end, 300)
    assert log.last_stable_offset < committed_behind
    cluster.after(500, lambda: log.end_transaction(5, commit=False))
    assert topic.holds_no_records(DATA, kept(5, 0).target_end, 10_000) is False


def test_retention_between_two_calls_does_not_look_like_an_empty_log(
    cluster: FakeCluster, topic: ProgressTopic
) -> None:
    log = cluster.log(DATA.topic)
    log.append_values(b"1")
    note = kept(5, log.end_offset)
    committed(log)

    def overtake(call: ServerCall) -> None:
        if call.api is Api.FETCH:
            log.delete_before(log.end_offset)

    cluster.control.add(overtake)
    assert topic.holds_no_records(DATA, note.target_end, 10_000) is False
    assert log.start_offset > note.target_end


# --- a mark held against the target


MARK = TargetMark(topic_id="its-id", end=3, leader_epoch=0, producer_id=5)


def all_lost(log: PartitionLog) -> None:
    log.truncate(0)


def lost_by_a_new_leader(log: PartitionLog) -> None:
    log.truncate(0)
    log.move(1)
    log.append_values(b"other", b"other", b"other", b"other")


def all_deleted(log: PartitionLog) -> None:
    lost_by_a_new_leader(log)
    log.delete_before(log.end_offset)


@pytest.mark.parametrize(
    ("since", "cut"),
    [(nothing, None), (committed, None), (lost_by_a_new_leader, 1), (all_lost, 0), (all_deleted, None)],
)
def test_only_missing_offsets_below_the_end_of_a_mark_are_a_truncation(
    cluster: FakeCluster, topic: ProgressTopic, since: Callable[[PartitionLog], None], cut: int | None
) -> None:
    log = cluster.log(DATA.topic)
    log.append_values(b"1", b"2", b"3", attributes=TRANSACTIONAL, producer_id=5)
    log.end_transaction(5, commit=True)
    since(log)
    assert topic.truncated_at(DATA, MARK, 1, 10_000) == cut


@pytest.mark.parametrize(("sequence", "cut"), [(7, None), (8, 1)])
def test_append_without_transactions_is_identified_by_its_sequence(
    cluster: FakeCluster, topic: ProgressTopic, sequence: int, cut: int | None
) -> None:
    """Its producer may have continued after the loss, and none of that was aborted."""
    log = cluster.log(DATA.topic)
    for number in (6, 7):
        log.append(build((b"own",), producer_id=5, producer_epoch=2, base_sequence=number))
    log.append(build((b"own",), producer_id=5, producer_epoch=2, base_sequence=sequence))
    log.append(build((b"own",), producer_id=5, producer_epoch=2, base_sequence=9))
    assert topic.truncated_at(DATA, replace(MARK, batch=(2, 7)), 1, 10_000) == cut


def _others(log: PartitionLog) -> None:
    """Others write between the records of a transaction and its marker."""
    log.append_values(b"other")
    log.append_values(b"other", attributes=TRANSACTIONAL, producer_id=6)
    log.end_transaction(6, commit=True)


def _aborted(log: PartitionLog) -> None:
    log.end_transaction(5, commit=False)


def _ended(log: PartitionLog) -> None:
    log.end_transaction(5, commit=True)


def _ended_with_the_next_one(log: PartitionLog) -> None:
    """Without its marker, the producer's next transaction goes on with this one."""
    log.append_values(b"4", attributes=TRANSACTIONAL, producer_id=5)
    _ended(log)


def _aborted_with_the_next_one(log: PartitionLog) -> None:
    log.append_values(b"4", attributes=TRANSACTIONAL, producer_id=5)
    _aborted(log)


def _ended_behind_others(log: PartitionLog) -> None:
    _others(log)
    _ended(log)


@pytest.mark.parametrize(
    ("since", "is_committed"),
    [
        (nothing, False),
        (_others, False),
        (_aborted, False),
        (_aborted_with_the_next_one, False),
        (_ended_with_the_next_one, True),
        (_ended, True),
        (_ended_behind_others, True),
    ],
)
def test_append_in_a_transaction_is_committed_by_its_own_marker(
    cluster: FakeCluster, topic: ProgressTopic, since: Callable[[PartitionLog], None], is_committed: bool
) -> None:
    log = cluster.log(DATA.topic)
    log.append_values(b"1", b"2", b"3", attributes=TRANSACTIONAL, producer_id=5)
    since(log)
    assert topic.is_committed(DATA, MARK, 10_000) is is_committed


def test_transaction_that_ended_in_front_of_the_mark_waits_for_no_marker(
    cluster: FakeCluster, topic: ProgressTopic
) -> None:
    """The progress of a commit without data may end behind a marker, or behind records of others."""
    log = cluster.log(DATA.topic)
    log.append_values(b"1", attributes=TRANSACTIONAL, producer_id=5)
    _ended(log)
    assert topic.is_committed(DATA, replace(MARK, end=log.end_offset), 10_000)
    log.append_values(b"of others")
    assert topic.is_committed(DATA, replace(MARK, end=log.end_offset), 10_000)


def test_marker_that_the_log_cleaner_has_emptied_is_not_missing(cluster: FakeCluster, topic: ProgressTopic) -> None:
    log = cluster.log(DATA.topic)
    log.append(build((), producer_id=5, attributes=TRANSACTIONAL, last_offset_delta=2))
    log.append(build((), producer_id=5, attributes=CONTROL | TRANSACTIONAL, last_offset_delta=0))
    assert topic.is_committed(DATA, MARK, 10_000)


def test_append_without_a_transaction_waits_for_no_marker(cluster: FakeCluster, topic: ProgressTopic) -> None:
    log = cluster.log(DATA.topic)
    for number in (7, 8):
        log.append(build((b"own",), producer_id=5, producer_epoch=2, base_sequence=number))
    assert topic.is_committed(DATA, replace(MARK, end=1), 10_000)
    assert topic.is_committed(DATA, replace(MARK, producer_id=-1), 10_000)


def test_marker_that_retention_has_deleted_is_not_missing(cluster: FakeCluster, topic: ProgressTopic) -> None:
    log = cluster.log(DATA.topic)
    log.append_values(b"1", b"2", b"3", attributes=TRANSACTIONAL, producer_id=5)
    _ended_behind_others(log)
    log.delete_before(log.end_offset)
    assert topic.is_committed(DATA, MARK, 10_000)


# --- anchors


def _anchor(number: int, offset: int) -> Anchor:
    return Anchor(
        number=number,
        offset=offset,
        leader_epoch=1,
        source_cluster_id="s",
        topic_id="t",
        target=TargetMark(topic_id="i", end=2 * offset, leader_epoch=3),
        exactly_once=True,
        time_ms=5,
    )


def test_anchors_are_read_beside_progress_records_and_replace_those_of_their_slot(
    topic: ProgressTopic, caplog: pytest.LogCaptureFixture
) -> None:
    first, other, newer = _anchor(1, 10), _anchor(2, 20), _anchor(1 + 2 * SLOTS, 30)
    assert topic.write({TP: kept(7)}, 5_000, {key_of(TP, one): one for one in (first, other)}) == {}
    assert topic.write_anchors({key_of(TP, newer): newer, key_of(OTHER, first): first}, 5_000) == {}
    assert topic.read_anchors([TP], 5_000) == {TP: [newer, other]}
    assert topic.write_anchors({key_of(TP, newer): None}, 5_000) == {}
    assert topic.read_anchors([TP, OTHER, DATA], 5_000) == {TP: [other], OTHER: [first], DATA: []}
    with caplog.at_level(logging.WARNING):
        assert topic.read([TP]) == {TP: kept(7)}
    assert not caplog.records, "an anchor is no record that cannot be understood"


def test_anchor_that_cannot_be_read_is_none(cluster: FakeCluster, topic: ProgressTopic) -> None:
    first = _anchor(1, 10)
    builder = BatchBuilder("none", 16_384)
    builder.append(encode_key(key_of(TP, first)), b"nonsense", (), 0)
    cluster.log(TOPIC).append(bytes(builder.build().view))
    assert topic.read_anchors([TP], 5_000) == {TP: []}


def test_keeper_deletes_anchors_that_the_source_s_retention_made_useless(
    cluster: FakeCluster, topic: ProgressTopic
) -> None:
    cluster.log(*DATA).append_values(*[b"v"] * 30)
    made = {key_of(TP, one): one for one in (_anchor(number, 10 * number) for number in range(3))}
    with Admin({"bootstrap.servers": cluster.bootstrap}) as source:
        keeper = AnchorKeeper(source, topic)
        assert keeper.write(made, {TP: DATA})
        cluster.log(*DATA).delete_before(25)
        last = _anchor(63, 28)
        assert keeper.write({key_of(TP, last): last}, {TP: DATA})
    assert {one.offset for one in topic.read_anchors([TP], 5_000)[TP]} == {20, 28}


def test_keeper_never_raises(cluster: FakeCluster, topic: ProgressTopic) -> None:
    cluster.control.on(Api.PRODUCE, Action(errors={TopicPartition(TOPIC, 0): errors.TOPIC_AUTHORIZATION_FAILED}))
    first = _anchor(63, 1)
    with Admin({"bootstrap.servers": cluster.bootstrap}) as source:
        assert not AnchorKeeper(source, topic).write({key_of(TP, first): first}, {TP: DATA})
