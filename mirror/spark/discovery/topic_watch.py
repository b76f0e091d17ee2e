"""Discovers new topics and partitions of a stream's source, and has the running epoch copy them."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, Protocol

from mirror.client import TopicPartition
from mirror.errors import MAX_NAMES_SHOWN, KafkaError
from mirror.relay.progress.control import control_partition
from mirror.spark.discovery.additions import assign, grown, lacking, lasting_tasks, plan_additions, unprepared
from mirror.spark.discovery.pace import pause_ms

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from mirror.client import Admin, OffsetAndMetadata, TopicDescription
    from mirror.config.models import FlowConfig
    from mirror.relay.model.ranges import Range
    from mirror.spark.discovery.comparison import Comparison
    from mirror.spark.ledger.ledger import Ledger
    from mirror.spark.ledger.obstacles import TargetTopics
    from mirror.spark.ledger.plan import Plan
    from mirror.spark.run_control import RunControlClient


_MOST_KNOWN: Final = 8
"""Brokers say the same in different ways, for example in another order."""


_MOST_COMMITTED: Final = 500
"""Brokers append the offsets of a request as one batch of at most a MB, by default; an offset here has up to a KB."""


class Prepare(Protocol):
    """Prepares target topics, and writes the result into the ledger."""

    def __call__(self, topics: Mapping[str, TopicDescription], gone: Collection[str] = ()) -> TargetTopics:
        """Prepare these source topics, drop those that are ``gone``, and return all that is prepared.

        Raises MirrorError.
        """
        ...


class NewPartitions:
    """The partitions that could not be copied when the stream began, and what the running epoch has of them."""

    def __init__(self, targets: TargetTopics | None) -> None:
        """``targets`` is the preparation with which the stream began."""
        self.announced = 0
        """How often ranges were added to epochs of this run."""
        self.targets = targets
        """The last preparation. Other threads may read it."""
        self.assigned_version = 0 if targets is None else targets.version
        """The version of the preparation up to which everything has a task, or cannot be given to one now."""
        self._first: Final = targets
        self._new: dict[TopicPartition, int] = {}
        self._epoch: int | None = None
        self._added: set[TopicPartition] = set()
        self._reported: set[TopicPartition] = set()
        self.refused = ""
        """The last line about partitions that the target refuses to have added."""

    def is_initial(self, tp: TopicPartition) -> bool:
        """Whether the source had ``tp`` when the stream began."""
        return self._first is not None and self._first.covers(tp.topic, tp.partition)

    def update(self, targets: TargetTopics) -> None:
        """Take the result of another preparation."""
        self._new |= grown(self.targets, targets)
        self.targets = targets

    def wanted(self, plan: Plan) -> set[TopicPartition]:
        """Return the new partitions that the epoch of ``plan`` lacks. Those that it has are no longer new."""
        if plan.epoch != self._epoch:
            self._epoch, self._added = plan.epoch, set()
        late = lacking(plan, self._new)
        self._new = {tp: version for tp, version in self._new.items() if tp in late}
        return late - self._added

    @property
    def any(self) -> bool:
        """Whether there are some that an epoch may lack."""
        return bool(self._new)

    def take_unreported(self, tps: Collection[TopicPartition]) -> set[TopicPartition]:
        """Return those that were not returned before: what an early plan lacks is added to two epochs."""
        unreported = set(tps) - self._reported
        self._reported |= unreported
        return unreported

    def settle(self, tps: set[TopicPartition]) -> None:
        """Record that the running epoch has these, or that nothing can be done about them in it."""
        self._added |= tps


class TopicWatch:
    """Discovers what is new. For one thread; its calls wait for the clusters."""

    def __init__(
        self,
        flow: FlowConfig,
        source: Admin,
        prepare: Prepare,
        new: NewPartitions,
        assign: Callable[[], None],
        cpu_ms: Callable[[], int],
    ) -> None:
        """``assign`` has what was prepared copied, and raises KafkaError.

        ``cpu_ms`` returns the CPU time used so far.
        """
        self._flow: Final = flow
        self._source: Final = source
        self._prepare: Final = prepare
        self._new: Final = new
        self._assign: Final = assign
        self._cpu_ms: Final = cpu_ms
        self._known: Final = deque[bytes](maxlen=_MOST_KNOWN)

    def discover(self) -> int:
        """Find what is new once, and have it copied; return how long to wait before the next call, in ms.

        Raises MirrorError.
        """
        began_ms = self._cpu_ms()
        if (targets := self._new.targets) is not None:
            self._find(targets)
        self._assign()
        return pause_ms(self._flow.discovery_interval_ms, self._cpu_ms() - began_ms)

    def _find(self, targets: TargetTopics) -> None:
        """Prepare what is new. A response in which nothing was new is not decoded when it comes again."""
        listing = self._source.list_changed_topics(self._known)
        if listing.topics is None:
            return
        if topics := unprepared(self._flow, listing.topics, targets):
            targets = self._prepare(topics)
            self._new.update(targets)
        if not unprepared(self._flow, topics, targets):
            self._known.append(listing.digest)

    def settle(self, comparison: Comparison) -> None:
        """Prepare what a comparison of all topics has found, and have it copied. Raises MirrorError."""
        if (targets := self._new.targets) is not None:
            lacking, gone = comparison.since(targets)
            self._new.update(self._prepare(lacking, gone))
            if gone:
                self._known.clear()  # one that has come back meanwhile is new
        self._assign()


class EpochAdditions:
    """Has the running epoch of a stream copy what is new. For the thread that discovers it."""

    def __init__(
        self,
        flow: FlowConfig,
        source: Admin,
        target: Admin,
        ledger: Ledger,
        control: RunControlClient,
        new: NewPartitions,
        report: Callable[[str], None],
    ) -> None:
        """``report`` receives a line about what is copied from now on."""
        self._flow: Final = flow
        self._source: Final = source
        self._target: Final = target
        self._ledger: Final = ledger
        self._control: Final = control
        self._new: Final = new
        self._report: Final = report
        self._plan: Plan | None = None

    def update_epoch(self) -> None:
        """Have the running epoch copy what its plan lacks, or plan another one. Raises KafkaError."""
        new = self._new
        plan = self._running_plan() if new.any else None
        if plan is None or not (wanted := new.wanted(plan)):
            return
        planned = {TopicPartition(range_.topic, range_.partition) for range_ in plan.ranges}
        if wanted & planned or not lasting_tasks(plan):
            self._control.request_new_plan(plan.epoch)
            new.settle(wanted)
            return
        ranges, waiting = plan_additions(self._flow, wanted, new.is_initial, self._source, self._target)
        refused = self._add(plan, ranges)
        new.settle(wanted - waiting - refused)

    def _add(self, plan: Plan, ranges: list[Range]) -> set[TopicPartition]:
        """Add ranges to the epoch of ``plan``; return the source partitions that the target refuses to have added.

        They are tried again: the permission may come later than the topic, and the next epoch much later.
        """
        if not ranges:
            return set()
        offsets = {one.target: one.to_offset() for one in assign(plan, ranges, self._control.run)}
        refused = self._commit(offsets)
        copied = [one for one in ranges if TopicPartition(one.target_topic, one.partition) not in refused]
        if refused:
            error = next(iter(refused.values()))
            line = f"new on the source, and refused by the target, so tried again ({_counted(len(refused))}): {error}"
            if line != self._new.refused:
                self._report(line)
            self._new.refused = line
        if copied:
            self._new.announced += 1
            self._control.announce_additions(self._new.announced)
            self._report_new([TopicPartition(one.topic, one.partition) for one in copied])
        return {TopicPartition(one.topic, one.partition) for one in ranges if one not in copied}

    def _report_new(self, tps: Collection[TopicPartition]) -> None:
        if not (unreported := self._new.take_unreported(tps)):
            return
        names = sorted({tp.topic for tp in unreported})
        shown = ", ".join(names[:MAX_NAMES_SHOWN]) + (", ..." if len(names) > MAX_NAMES_SHOWN else "")
        self._report(f"new on the source, and copied from now on: {shown} ({_counted(len(unreported))})")

    def _commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> dict[TopicPartition, KafkaError]:
        """Commit offsets of the control group; return the errors of those that are refused alone. Raises KafkaError."""
        group, _ = control_partition(self._flow.name)
        refused: dict[TopicPartition, KafkaError] = {}
        items = list(offsets.items())
        for begin in range(0, len(items), _MOST_COMMITTED):
            portion = dict(items[begin : begin + _MOST_COMMITTED])
            refused |= self._target.commit_group_offsets_async(group, portion).result().failed
        return refused

    def _running_plan(self) -> Plan | None:
        """Return the plan of the last epoch that has begun."""
        epoch = self._ledger.last_planned_epoch()
        if self._plan is None or self._plan.epoch != epoch:
            self._plan = None if epoch is None else self._ledger.plan(epoch)
        return self._plan


def _counted(partitions: int) -> str:
    return f"{partitions:,} partition{'s' if partitions > 1 else ''}"
