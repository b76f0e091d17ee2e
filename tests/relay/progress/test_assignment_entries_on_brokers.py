"""Entries of assignments on real brokers: a thousand are committed, read by a task, and deleted by the next job."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mirror.client import Admin, NewTopic
from mirror.relay.model.assignments import AssignmentTable, OwnAssignments
from mirror.relay.model.ranges import OPEN_END, Range
from mirror.relay.progress.assignment_entries import outdated, requests_of
from mirror.relay.progress.control_record import RunControl, control_partition
from mirror.relay.task.assignment_reading import load_entries
from mirror.sandbox.cluster import Cluster
from tests.topic_creation import create_topics

pytestmark = pytest.mark.cluster

COUNT = 1_000


def test_a_thousand_entries_are_committed_and_read(target_cluster: Cluster, unique: Callable[[str], str]) -> None:
    flow, topic = unique("f").replace(".", "-"), unique("a.orders")
    group, control = control_partition(flow)
    ranges = [
        Range(
            flow=flow,
            topic="orders",
            target_topic=topic,
            partition=partition,
            start=5,
            end=OPEN_END,
            source_cluster_id="paris",
            topic_id="the-id",
        )
        for partition in range(COUNT)
    ]
    table = AssignmentTable("run", 1, [[], []])
    with Admin({"bootstrap.servers": target_cluster.bootstrap_servers}) as admin:
        create_topics(admin, [NewTopic(topic, COUNT), NewTopic(control.topic, 1)])
        record = RunControl(run="run", host="h", since_ms=1)
        admin.commit_group_offsets(group, {control: record.to_offset()})
        for request in requests_of(table.take(ranges, {0: 0, 1: 0})):
            admin.commit_group_offsets(group, request)
        entries = load_entries(admin, flow, "run", 1)
        taken = [OwnAssignments("run", 1, task, []).apply(entries, table.version).taken for task in (0, 1)]
        assert [len(each) for each in taken] == [COUNT // 2, COUNT // 2]
        assert sorted([*taken[0], *taken[1]], key=lambda each: each.partition) == ranges

        admin.delete_group_offsets(group, outdated(admin.group_offsets(group), flow, "run", 2))
        assert list(admin.group_offsets(group)) == [control]
