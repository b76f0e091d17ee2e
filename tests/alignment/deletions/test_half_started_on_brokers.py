"""A source that has only half started, or is not the one that it was: nothing is deleted at the target."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from mirror.alignment import topic_deletions
from mirror.alignment.deletion_decision import CONFIRM_MS
from mirror.alignment.differences import KindReport
from mirror.alignment.inventory import FlowInventory
from mirror.alignment.reconciler import Reconciler
from mirror.alignment.topic_deletions import TopicDeletions
from mirror.client import Admin, NewTopic
from mirror.sandbox.cluster import Cluster
from mirror.spark.preflight.flow_reconciler import deletion_rules
from tests.alignment.deletions.deletion_site import AdjustableClock, done, kept
from tests.alignment.permissions.guarded import login, one, other
from tests.alignment.test_on_brokers import Flow
from tests.conftest import NewCluster
from tests.polling import eventually
from tests.spark.observed import sides_of
from tests.spark.planning.test_range_planner import flow as flow_config
from tests.topic_creation import create_topics

__all__ = ["one", "other"]
pytestmark = [pytest.mark.brokers, pytest.mark.cluster, pytest.mark.timeout(300)]

_THREE = {"broker.session.timeout.ms": "15000", "broker.heartbeat.interval.ms": "500"}
"""A broker that is suspended is one of the cluster for as long as two rounds take."""
_ANSWERS_WITHIN_MS = 3_000
SUFFIXES = ("", "-b", "-c")


class HalfStarted:
    """A flow that has created three topics, and two rounds of deletions, as of a process that begins then."""

    def __init__(self, source: Cluster, target: Cluster, name: str, folder: Path) -> None:
        self.flow = Flow(source, target, name, f"f-{name}", folder)
        text = self.flow.file.read_text().replace(f'"{name}"', f'"{name}.*"')
        self.flow.file.write_text(text + 'on-topic-deleted = "delete"\n')
        self._options = {"bootstrap.servers": target.bootstrap_servers}
        self._clock = AdjustableClock()
        create_topics(self.flow.source, [NewTopic(name + suffix, 3) for suffix in SUFFIXES])
        assert self.flow.ask("apply")[0] == 0
        self.copies = {f"a.{name}{suffix}" for suffix in SUFFIXES}

    def rounds(self, source: Admin | None = None) -> KindReport:
        """Return the report of the second one; ``source`` replaces the flow's own client."""
        reports = [self._round(source or self.flow.source) for _ in range(2)]
        return reports[-1]

    def _round(self, source: Admin) -> KindReport:
        flow = flow_config(self.flow.name, topics=[f"{self.flow.topic}.*"], on_topic_deleted="delete")
        self._clock.shift_ms += CONFIRM_MS
        with closing(FlowInventory(self._options, flow.name, self._clock)) as inventory:
            kind = TopicDeletions(flow.name, inventory, deletion_rules(flow, 3), self._clock)
            return Reconciler(inventory, self._clock).round(kind, sides_of(source, self.flow.target))

    def left(self) -> set[str]:
        return self.copies & self.flow.target.list_topics().keys()


@contextmanager
def half_started(source: Cluster, target: Cluster, name: str, folder: Path) -> Iterator[HalfStarted]:
    made = HalfStarted(source, target, name, folder)
    try:
        yield made
    finally:
        made.flow.close()


def test_of_three_brokers_one_alone_deletes_nothing(
    new_cluster: NewCluster,
    target_cluster: Cluster,
    unique: Callable[[str], str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One topic is really gone: two brokers that do not answer yet might have it. They do not once they answer."""
    monkeypatch.setattr(topic_deletions, "TIMEOUT_MS", _ANSWERS_WITHIN_MS)
    three = new_cluster(3, _THREE)
    with half_started(three, target_cluster, unique("half"), tmp_path) as site:
        gone, source = f"{site.flow.topic}-b", site.flow.source
        source.delete_topics([gone])
        eventually(lambda: not any(source.describe_topics_by_broker([gone]).values()), what="its end")
        for broker in (2, 3):
            three.pause(broker)
        try:
            report = site.rounds()
        finally:
            for broker in (2, 3):
                three.resume(broker)
        assert (kept(report), site.left()) == ({f"a.{gone}": "uncertain"}, site.copies)
        assert done(site.rounds()) == {f"a.{gone}"}
        eventually(lambda: site.left() == site.copies - {f"a.{gone}"}, what="its copy's end")

        for broker in (2, 3):
            three.kill(broker)
        eventually(lambda: len(source.describe_cluster().brokers) == 1, within_s=60, what="one broker", every_s=0.5)
        report = site.rounds()
        assert (report.differences, site.left()) == ((), site.copies - {f"a.{gone}"})


def test_a_source_that_shows_no_topics_or_is_another_cluster_deletes_nothing(
    one: Cluster, other: Cluster, target_cluster: Cluster, unique: Callable[[str], str], tmp_path: Path
) -> None:
    """The brokers of the same cluster list nothing to a user without permissions, as those without metadata do."""
    with half_started(one, target_cluster, unique("half"), tmp_path) as site:
        for cluster, reason in ((one, "source-shows-no-topics"), (other, "other-source-cluster")):
            with Admin(login(cluster, "mirror")) as source:
                assert source.list_topics() == {}
                report = site.rounds(source)
            assert (kept(report), done(report)) == (dict.fromkeys(site.copies, reason), set())
            assert site.left() == site.copies
        assert site.rounds().differences == ()
