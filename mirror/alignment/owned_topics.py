"""Reads what shows whose target topics are, and keeps what is owned: an id is never another topic's.

::

    inventory ──► created or adopted ─┐
    progress, progress topic          ├─► Evidence ──► Standing
    ends of logs ─────────────────────┘

Each source is asked only for topics that the ones before it do not show to be owned.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from mirror.alignment.inventory_records import Inventory, Key, Subject, record_of
from mirror.alignment.ownership import Evidence, Standing, is_owned, needs_no_progress, other_source, standing
from mirror.client import LATEST, Admin, TopicDescription, TopicPartition
from mirror.errors import AuthorizationFailed, KafkaError, KafkaTimeout
from mirror.relay.progress.committed import Progress, read_progress
from mirror.relay.progress.flow_topic import FlowTopic, inventory_topic_of, log_bounds
from mirror.relay.progress.progress_topic import ProgressTopic
from mirror.runtime.clock import SystemClock
from mirror.timing import Timer

_TIMEOUT_MS: Final = 20_000
_SEARCH_MS: Final = 20_000
"""For all logs that are read to see whether they have only aborted records, of a first attempt that was killed: each
takes some ms, and of topics that others have filled there may be thousands. The next preparation goes on."""
_EACH_SEARCH_MS: Final = 5_000
"""For each partition: an open transaction is waited for no longer."""
_NO_LEADER: Final = -1


def adopt(target_options: Mapping[str, object], flow: str, topics: Mapping[str, TopicDescription]) -> None:
    """Store that a person has made these topics of the target the flow's. Raises KafkaError."""
    inventory = FlowTopic(target_options, inventory_topic_of(flow))
    for error in inventory.write(
        {name: record_of(Key(Subject.ADOPTED, name), _id(one)) for name, one in topics.items()}, _TIMEOUT_MS
    ).values():
        raise error


class OwnedTopics:
    """The target topics of one flow. Its calls wait for the target; use it in one thread."""

    def __init__(
        self,
        flow: str,
        target_options: Mapping[str, object] | None = None,
        source_topic: Callable[[str], str | None] = lambda _: None,
    ) -> None:
        """``target_options`` are those of :meth:`use`; None: only committed progress counts. Raises ConfigError.

        ``source_topic`` returns the source topic that is to be copied into a topic of the target; None: any may be.
        """
        self.other_sources: dict[str, str] = {}
        """Of the topics whose standing was asked for last: which other source topic each of those is the copy of."""
        self._source_topic: Final = source_topic
        self._flow: Final = flow
        self._inventory: FlowTopic | None = None
        self._progress: ProgressTopic | None = None
        if target_options is not None:
            self.use(target_options)
        self._owned: Final[set[tuple[str, str]]] = set()
        """Names and ids."""
        self._searched: Final[set[tuple[str, str]]] = set()
        """Names and ids of those that the progress topic did not show to be owned."""
        self._holding: Final[set[tuple[str, str]]] = set()
        """Names and ids of those that hold records, or did."""

    def use(self, target_options: Mapping[str, object]) -> None:
        """Read the flow's topics with these options from now on: dotted keys, of which those of the cluster are used.

        Raises ConfigError.
        """
        self._inventory = FlowTopic(target_options, inventory_topic_of(self._flow))
        self._progress = ProgressTopic(target_options, self._flow)

    def standings(self, target: Admin, topics: Mapping[str, TopicDescription]) -> dict[str, Standing]:
        """Return what each of these topics of the target is to the flow. Raises KafkaError."""
        unknown, is_read = self._unknown(topics), True
        evidence: dict[str, Evidence] = {}
        if unknown:
            known = self._read_inventory()
            is_read = known is not None
            evidence = self._without_owned(target, unknown, known or Inventory())
        filled = self._filled(target, {name: topics[name] for name, one in evidence.items() if not other_source(one)})
        holding: dict[str, bool | None] = {}
        if filled:
            evidence |= self._restorable(filled, evidence)
            filled = {name: one for name, one in filled.items() if standing(evidence[name]) is Standing.FOREIGN}
            holding = self._holding_records(target, filled) if is_read else dict.fromkeys(filled)
        self._note_others(evidence)
        found = {name: standing(replace(one, has_records=holding.get(name, False))) for name, one in evidence.items()}
        self._keep({name: topics[name] for name, one in found.items() if one is Standing.OWNED})
        return {name: found.get(name, Standing.OWNED) for name in topics}

    def owned(self, target: Admin, topics: Mapping[str, TopicDescription], known: Inventory) -> set[str]:
        """Return which of these topics of the target are owned, by the inventory as it was read. Raises KafkaError."""
        return topics.keys() - self._without_owned(target, self._unknown(topics), known).keys()

    def recorded(self, target: Admin, topics: Mapping[str, TopicDescription], known: Inventory) -> set[str]:
        """Return which of these topics are :meth:`owned`, also by the progress topic; the log is not read.

        The progress topic is read once for each topic: what copies into a topic later commits progress, too. Raises
        KafkaError.
        """
        evidence = self._without_owned(target, self._unknown(topics), known)
        left = {name: topics[name] for name in evidence if (name, _id(topics[name])) not in self._searched}
        found = {name for name, one in self._restorable(left, evidence).items() if is_owned(one)} if left else set()
        self._searched.update((name, _id(one)) for name, one in left.items())
        self._keep({name: topics[name] for name in found})
        return (topics.keys() - evidence.keys()) | found

    def add(self, topics: Mapping[str, TopicDescription]) -> None:
        """Take these topics, which the flow has just created, for owned."""
        self._keep(topics)

    def _unknown(self, topics: Mapping[str, TopicDescription]) -> dict[str, TopicDescription]:
        return {name: one for name, one in topics.items() if (name, _id(one)) not in self._owned}

    def _keep(self, topics: Mapping[str, TopicDescription]) -> None:
        """Remember owned topics; one without an id may be another one the next time."""
        self._owned.update((name, _id(one)) for name, one in topics.items() if _id(one))

    def _without_owned(
        self, target: Admin, topics: Mapping[str, TopicDescription], known: Inventory
    ) -> dict[str, Evidence]:
        """Return the evidence about those that neither the inventory nor committed progress shows to be owned."""
        evidence = {name: self._evidence(one, known) for name, one in topics.items()}
        left = {name: topics[name] for name, one in evidence.items() if not needs_no_progress(one)}
        found: dict[str, list[Progress]] = {}
        for tp, progress in (read_progress(target, self._flow, _partitions(left)) if left else {}).items():
            found.setdefault(tp.topic, []).append(progress)
        by_topic = {name: replace(evidence[name], progress=found.get(name, ())) for name in left}
        not_owned = {name: one for name, one in by_topic.items() if not is_owned(one)}
        self._keep({name: one for name, one in topics.items() if name not in not_owned})
        self._note_others(not_owned)
        return not_owned

    def _note_others(self, evidence: Mapping[str, Evidence]) -> None:
        self.other_sources = {name: other for name, one in evidence.items() if (other := other_source(one))}

    def _evidence(self, topic: TopicDescription, known: Inventory) -> Evidence:
        created = known.created.get(topic.name)
        return Evidence(
            topic_id=_id(topic),
            claimed_ids=known.claimed_ids(topic.name),
            source=self._source_topic(topic.name) or "",
            created_of=created.source.name if created is not None and created.topic_id == _id(topic) else "",
        )

    def _read_inventory(self) -> Inventory | None:
        """Return what the inventory says; nothing if this client may not read it, which the checks warn of.

        Records are copied without that permission: committed progress still shows what is owned. None: it does not
        answer, as long as its partition has no leader. Then only what nothing else shows to be owned has to wait.
        """
        known = Inventory()
        if self._inventory is None:
            return known
        try:
            for record in self._inventory.records(Timer(SystemClock(), _TIMEOUT_MS)):
                known.take(record.key, record.value)
        except AuthorizationFailed:
            return Inventory()
        except KafkaTimeout:
            return None
        return known

    def _filled(self, target: Admin, topics: Mapping[str, TopicDescription]) -> dict[str, TopicDescription]:
        """Return those of which a partition holds records, or did, or may: its leader does not answer."""
        led = {
            TopicPartition(name, partition.partition): LATEST
            for name, one in topics.items()
            for partition in one.partitions
            if partition.leader != _NO_LEADER
        }
        ends = target.list_offsets(led, isolation="read_uncommitted", partial=True) if led else {}
        empty = {tp for tp, end in ends.items() if end.offset == 0}
        return {
            name: one
            for name, one in topics.items()
            if not all(TopicPartition(name, partition.partition) in empty for partition in one.partitions)
        }

    def _restorable(
        self, topics: Mapping[str, TopicDescription], evidence: Mapping[str, Evidence]
    ) -> dict[str, Evidence]:
        """Return ``evidence`` with that of the progress topic: it outlives committed offsets, which it restores."""
        progress: dict[str, list[Progress]] = {}
        if self._progress is not None:
            for tp, record in self._progress.read(_partitions(topics)).items():
                progress.setdefault(tp.topic, []).append(record.progress)
        return {name: replace(evidence[name], progress=progress.get(name, ())) for name in topics}

    def _holding_records(self, target: Admin, topics: Mapping[str, TopicDescription]) -> dict[str, bool | None]:
        """Return whether these topics hold more than aborted records of a killed first attempt; None if not read."""
        timer = Timer(SystemClock(), _SEARCH_MS)
        return {name: self._holds_records(target, one, timer) for name, one in topics.items()}

    def _holds_records(self, target: Admin, topic: TopicDescription, timer: Timer) -> bool | None:
        if (topic.name, _id(topic)) in self._holding:
            return True
        log = self._progress
        led = [one.partition for one in topic.partitions if one.leader != _NO_LEADER]
        for tp in (TopicPartition(topic.name, partition) for partition in led):
            if timer.expired():
                return None
            each = Timer(SystemClock(), min(_EACH_SEARCH_MS, timer.remaining_ms()))
            try:
                first, end = log_bounds(target, tp, each)
                holds = end and (first or log is None or not log.holds_no_records(tp, 0, each.remaining_ms()))
            except KafkaError:
                return None
            if holds:
                if _id(topic):
                    self._holding.add((topic.name, _id(topic)))
                return True
        return False if len(led) == len(topic.partitions) else None


def _id(topic: TopicDescription) -> str:
    return str(topic.topic_id or "")


def _partitions(topics: Mapping[str, TopicDescription]) -> list[TopicPartition]:
    return [TopicPartition(name, each.partition) for name, one in topics.items() for each in one.partitions]
