"""A flow that creates its target topics on a cluster in memory, and deletes those whose source topics are deleted."""

from __future__ import annotations

from typing import Any

from mirror.alignment.creations import CreationRecorder
from mirror.alignment.deletion_decision import CONFIRM_MS
from mirror.alignment.differences import KindReport
from mirror.alignment.inventory import FlowInventory
from mirror.alignment.inventory_records import Inventory
from mirror.alignment.reconciler import Reconciler
from mirror.alignment.topic_deletions import DeletionRules, TopicDeletions
from mirror.client import Admin
from mirror.config.models import FlowConfig
from mirror.relay.progress.flow_topic import FlowTopic, group_topic_of, inventory_topic_of
from mirror.runtime.clock import SystemClock
from mirror.spark.preflight.flow_reconciler import deletion_rules
from mirror.spark.preflight.target_topics import prepare_topics
from mirror.timing import Timer
from tests.relay.fake_pair import FLOW, FakePair
from tests.spark.observed import sides_of
from tests.spark.planning.test_range_planner import flow


class AdjustableClock(SystemClock):
    """The time of this process, and on top of it what the test says."""

    def __init__(self) -> None:
        self.shift_ms = 0

    def unix_ms(self) -> int:
        return super().unix_ms() + self.shift_ms


class DeletionRounds:
    """The deletions of a run."""

    def __init__(self, site: DeletionSite) -> None:
        self._site = site
        self._inventory = FlowInventory(site.options, FLOW, site.clock)
        self._kind = TopicDeletions(FLOW, self._inventory, site.rules(), site.clock)
        self._reconciler = Reconciler(self._inventory, site.clock)

    def close(self) -> None:
        self._inventory.close()

    def round(self, rules: DeletionRules, *, write: bool = True) -> KindReport:
        self._kind.rules = rules
        return self._reconciler.round(self._kind, sides_of(self._site.source, self._site.target), write=write)


class DeletionSite:
    """Source topics ``t``, ``u`` and ``v``; the target has none of them yet."""

    def __init__(self, pair: FakePair, **keys: Any) -> None:
        self.pair, self.clock = pair, AdjustableClock()
        for name in ("u", "v", "another"):
            pair.source.add_topic(name)
        del pair.target.topics["paris.t"]
        pair.target.add_topic(group_topic_of(FLOW))
        self.flow: FlowConfig = flow(FLOW, "paris", "berlin", topics=["[tuv]"], on_topic_deleted="delete", **keys)
        self.options = {"bootstrap.servers": pair.target.bootstrap}
        self.source, self.target = (Admin({"bootstrap.servers": each.bootstrap}) for each in (pair.source, pair.target))
        self._open: list[DeletionRounds] = []

    def close(self) -> None:
        for one in self._open:
            one.close()
        self.source.close()
        self.target.close()

    def prepare(self) -> CreationRecorder:
        """Create the target topics that are missing, as a run does."""
        recorder = CreationRecorder(self.options, FLOW, deletes=True)
        prepare_topics(self.flow, sides_of(self.source, self.target), recorder=recorder)
        return recorder

    def copies(self) -> set[str]:
        return {name for name in self.pair.target.topics if name.startswith("paris.")}

    def delete_at_source(self, *names: str) -> None:
        for name in names:
            del self.pair.source.topics[name]

    def deletions(self) -> DeletionRounds:
        """As of a run that begins now."""
        made = DeletionRounds(self)
        self._open.append(made)
        return made

    def rules(self, limit: int | None = None) -> DeletionRules:
        return deletion_rules(self.flow, limit)

    def round(self, limit: int | None = None, *, write: bool = True, after_ms: int = CONFIRM_MS) -> KindReport:
        """One round of a run of its own, ``after_ms`` later than now; ``limit`` is given by hand."""
        self.clock.shift_ms += after_ms
        return self.deletions().round(self.rules(limit), write=write)

    def rounds(self, limit: int | None = None) -> KindReport:
        """Two rounds, which delete what may be deleted; the report of the second."""
        self.round(limit)
        return self.round(limit)

    def inventory(self) -> Inventory:
        found = Inventory()
        topic = FlowTopic(self.options, inventory_topic_of(FLOW))
        for record in topic.records(Timer(SystemClock(), 10_000)):
            found.take(record.key, record.value)
        return found

    def select(self, *topics: str) -> None:
        self.flow = self.flow.model_copy(update={"topics": topics})


def kept(report: KindReport) -> dict[str, str]:
    """Why topics are kept, by topic."""
    return {one.subject: one.reason.value for one in report.differences if one.reason is not None}


def pending(report: KindReport) -> set[str]:
    return {one.subject for one in report.pending}


def done(report: KindReport) -> set[str]:
    return {one.subject for one in report.differences if one.done}
