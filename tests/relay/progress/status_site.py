"""Two writers and a follower of a status topic, on brokers of any release that a target may have."""

from __future__ import annotations

import contextlib
from dataclasses import replace

from mirror.client import Admin, NewTopic
from mirror.relay.progress.flow_topic import status_topic_of
from mirror.relay.progress.status_topic import StatusFollower, StatusNews, StatusWriter, write_status
from mirror.relay.progress.status_values import RUN, RunState
from mirror.spark.preflight.flow_topics import FLOW_TOPIC_CONFIGS
from tests.relay.progress.test_status_values import REPORT, TASK
from tests.topic_creation import create_topics


def check_reports_are_followed(address: str, flow: str) -> None:
    """Create the topic of ``flow`` on the cluster at ``address``, and have two processes' reports read from it."""
    options = {"bootstrap.servers": address}
    task, driver = StatusWriter(options, flow), StatusWriter(options, flow)
    with Admin(options) as admin, contextlib.closing(StatusFollower(options, flow)) as follower:
        assert follower.news() == StatusNews(again=True, records=[], exists=False), "there is no topic"
        create_topics(admin, [NewTopic(status_topic_of(flow), 1, configs=FLOW_TOPIC_CONFIGS)])
        for sequence in range(1_000):
            task.send(replace(REPORT, sequence=sequence))
        driver.put(RUN, RunState(run="r", since_ms=1))
        task.send(TASK)
        assert (task.close(10_000), driver.close(10_000)) == (None, None)
        news = follower.news()
        assert (news.again, news.not_understood, news.tasks) == (True, 0, [TASK])
        assert news.partitions[-1].sequence == 999
        assert write_status(options, flow, {RUN: None}, 10_000) is None
        assert [record[:2] for record in follower.news().records] == [(RUN, None)]
