"""The progress topic and the status topic on real brokers: compaction, committed and aborted transactions."""

from __future__ import annotations

from collections.abc import Callable

from mirror.client import EARLIEST, LATEST, Admin, NewTopic, Producer, TopicPartition
from mirror.relay.progress.committed import Progress
from mirror.relay.progress.flow_topic import topic_of
from mirror.relay.progress.progress_topic import ProgressRecord, ProgressTopic
from mirror.sandbox.cluster import Cluster
from tests.relay.progress.status_site import check_reports_are_followed
from tests.topic_creation import create_topics


def test_record_stays_current_while_only_aborted_records_follow(
    target_cluster: Cluster, unique: Callable[[str], str]
) -> None:
    flow, topic = unique("f").replace(".", "-"), unique("a.orders")
    tp, idle = TopicPartition(topic, 0), TopicPartition(topic, 1)
    options = {"bootstrap.servers": target_cluster.bootstrap_servers}
    notes = ProgressTopic(options, flow)
    with Admin(options) as admin, Producer({**options, "transactional.id": unique("t")}) as producer:
        create_topics(admin, [NewTopic(topic, 2)])
        assert notes.read([tp]) == {}, "no topic of notes yet"
        create_topics(admin, [NewTopic(topic_of(flow), 1, configs={"cleanup.policy": "compact"})])

        def end() -> int:
            return admin.list_offsets({tp: LATEST}, isolation="read_uncommitted")[tp].offset

        def transaction(*, commit: bool) -> None:
            producer.begin_transaction()
            producer.send(topic, 0, value=b"record").result(10)
            producer.commit_transaction() if commit else producer.abort_transaction()

        producer.init_transactions()
        transaction(commit=True)
        progress = Progress(offset=9, leader_epoch=0, source_cluster_id="s", topic_id="t", time_ms=1)
        wanted = {tp: ProgressRecord(progress, end()), idle: ProgressRecord(progress, 0)}
        assert notes.write({tp: ProgressRecord(progress, 0)}, 10_000) == {}
        assert notes.write(wanted, 10_000) == {}
        assert notes.read([tp, idle]) == wanted
        assert notes.holds_no_records(idle, wanted[idle].target_end, 10_000)

        for _ in range(3):
            transaction(commit=False)
            assert notes.holds_no_records(tp, wanted[tp].target_end, 10_000)
        voided = end()
        assert voided > wanted[tp].target_end
        transaction(commit=True)
        assert not notes.holds_no_records(tp, wanted[tp].target_end, 10_000)
        assert not notes.holds_no_records(tp, voided, 10_000)
        assert notes.holds_no_records(tp, end(), 10_000)
        assert not notes.holds_no_records(tp, end() + 1, 10_000)

        admin.delete_records({tp: end()})
        assert admin.list_offsets({tp: EARLIEST})[tp].offset == end()
        assert not notes.holds_no_records(tp, wanted[tp].target_end, 10_000)
        assert notes.holds_no_records(tp, end(), 10_000)


def test_large_progress_topic_is_read_to_its_end(target_cluster: Cluster, unique: Callable[[str], str]) -> None:
    flow = unique("f")
    options = {"bootstrap.servers": target_cluster.bootstrap_servers}
    notes = ProgressTopic(options, flow)
    with Admin(options) as admin:
        create_topics(admin, [NewTopic(topic_of(flow), 1, configs={"cleanup.policy": "compact"})])
    tps = [TopicPartition("a.orders", number) for number in range(2_000)]
    last: dict[TopicPartition, ProgressRecord] = {}
    for turn in range(3):
        progress = Progress(offset=turn, leader_epoch=None, source_cluster_id="s", topic_id="t", time_ms=turn)
        last = {tp: ProgressRecord(progress, tp.partition) for tp in tps}
        assert notes.write(last, 10_000) == {}
    assert notes.read(tps) == last


def test_what_two_processes_report_is_followed(target_cluster: Cluster, unique: Callable[[str], str]) -> None:
    check_reports_are_followed(target_cluster.bootstrap_servers, unique("f").replace(".", "-"))
