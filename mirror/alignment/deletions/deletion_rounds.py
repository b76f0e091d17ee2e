"""Deletes topics that a flow has created on the target once their source topics do not exist, one round at a time.

::

    1 inventory topic ──► topics that the flow has created ─┐
    2 the source's topics, and what each broker says of     ├─► decide, limit ─► inventory, stored
      those that it does not show; the target's topics     ─┘   ─► deleted by id ─► inventory ─► records removed
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from mirror.alignment.deletions.decision import (
    Act,
    Decision,
    Reason,
    Seen,
    decide,
    deleted_lately,
    over_limit,
    within_limit,
)
from mirror.alignment.deletions.records import CreatedTopic, Creations, created_record
from mirror.alignment.deletions.remains import remove_records
from mirror.alignment.deletions.report import Deletion, DeletionReport
from mirror.alignment.inventory_topic import InventoryTopic
from mirror.client import Admin, TopicDescription, TopicPartition
from mirror.errors import AuthorizationFailed, BrokerError, KafkaError, KafkaTimeout
from mirror.relay.progress.committed import read_each_progress
from mirror.timing import Clock, Timer
from mirror.wire.error_codes import UNKNOWN_TOPIC_ID

TIMEOUT_MS: Final = 20_000
"""For each call."""
_FENCED_MS: Final = 10_000
"""Nothing is deleted later than this after the inventory was to be stored: a later run may have begun since."""


def transactional_id(flow: str) -> str:
    """Return the id under which a flow stores what it is about to delete."""
    return f"mirror.{flow}.deletions"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletionRules:
    """Which topics a flow deletes."""

    target_topic: Callable[[str], str | None]
    """The target topic of a source topic; None if the flow does not copy it."""
    copy_name: Callable[[str], str]
    """The name of a copy of a source topic, whether the flow copies it or not."""
    limit: int
    """How many topics are deleted at a time, and within an hour; at least 1."""
    by_hand: bool = False
    """Whether a user has given the limit for this round: earlier deletions do not count."""
    spent: int = 0
    """In how many other topics this round makes brokers delete records, or the next one does."""


@dataclass(slots=True)
class _Topic:
    """A topic that the flow has created, in a round."""

    name: str
    seen: Seen
    decision: Decision
    detail: str = ""
    done: bool = False

    @property
    def wanted(self) -> bool:
        """Whether it is to be deleted, and exists."""
        return self.decision.act in {Act.CONFIRM, Act.DELETE} and self.seen.target_id is not None

    def hold(self, reason: Reason, detail: str = "") -> None:
        """Keep the topic."""
        record = replace(self.decision.record, deleting=self.seen.record.deleting)
        self.decision, self.detail = Decision(Act.NOTHING, record, reason), detail


@dataclass(slots=True)
class _Source:
    """What a round knows about the source."""

    cluster_id: str
    topics: Mapping[str, TopicDescription]
    gone: set[str] = field(default_factory=set)
    """Topics of which each broker says that they do not exist."""
    hidden: set[str] = field(default_factory=set)
    """Topics that may not be described."""
    empty: bool = False

    def id_of(self, name: str) -> str | None:
        found = self.topics.get(name)
        return None if found is None else str(found.topic_id)

    def doubt(self, record: CreatedTopic) -> Reason | None:
        """Return why the source topic of ``record`` may exist, although it is not shown."""
        name = record.source.name
        if self.cluster_id != record.source.cluster_id:
            return Reason.OTHER_CLUSTER
        if self.empty:
            return Reason.SOURCE_EMPTY
        if name in self.hidden:
            return Reason.NOT_VISIBLE
        return None if name in self.gone else Reason.UNCERTAIN


@dataclass(slots=True)
class _Targets:
    """What a round knows about target topics: those that it does not have are shown by no broker."""

    topics: dict[str, TopicDescription] = field(default_factory=dict)
    doubts: dict[str, Reason] = field(default_factory=dict)
    """Why nothing is known about a topic."""


class Deletions:
    """Rounds of one flow. Its calls wait for the clusters; use it in one thread."""

    def __init__(
        self, flow: str, source: Admin, target: Admin, target_options: Mapping[str, object], clock: Clock
    ) -> None:
        """``target_options`` are dotted keys, of which those of the cluster are used. Raises ConfigError."""
        self._flow: Final = flow
        self._source: Final = source
        self._target: Final = target
        self._clock: Final = clock
        self._topic: Final = InventoryTopic(target_options, flow, transactional_id(flow), clock, TIMEOUT_MS)
        self._creations: Final = Creations()

    def close(self) -> None:
        """Close the connections that the rounds have opened."""
        self._topic.close()

    def give_way(self) -> None:
        """Another run has fenced this one: the next round fences that one."""
        self._topic.give_way()

    def round(self, rules: DeletionRules, *, write: bool = True) -> DeletionReport:
        """Delete what is to be deleted; without ``write`` only find it.

        Raises KafkaError if a cluster does not answer, and Fenced if another run deletes topics of the flow.
        """
        if write:
            self._topic.begin()
        self._read_inventory()
        if not (self._creations.topics or self._creations.known or self._creations.intents):
            return DeletionReport()
        source = self._read_source()
        topics = self._decide(source, rules)
        self._limit(topics, rules)
        problems = self._write(topics) if write else []
        deletions = [*(_reported(topic) for topic in topics if _is_shown(topic)), *self._of_others(source, rules)]
        return DeletionReport(tuple(sorted(deletions, key=lambda one: one.topic)), tuple(problems))

    # --- what there is

    def _read_inventory(self) -> None:
        self._topic.follow(clear=self._creations.clear, take=self._creations.take)

    def _read_source(self) -> _Source:
        """Return what the source shows, and what each of its brokers says about topics that it does not show."""
        topics = self._source.list_topics(timeout_ms=TIMEOUT_MS)
        source = _Source(self._cluster_id(), topics, empty=all(one.internal for one in topics.values()))
        missing = {
            one.source.name
            for one in self._creations.topics.values()
            if one.source.name not in topics and not one.deleted_ms
        }
        if missing and not source.empty:
            answers = self._source.describe_topics_by_broker(missing, partial=True, timeout_ms=TIMEOUT_MS)
            if answers and not answers.failed:
                source.gone = {name for name in missing if all(name not in broker for broker in answers.values())}
            source.hidden = {
                name
                for name in missing
                if any(isinstance(broker.get(name), AuthorizationFailed) for broker in answers.values())
            }
            if self._cluster_id() != source.cluster_id:
                source.cluster_id = ""  # the addresses lead to several clusters
        return source

    def _cluster_id(self) -> str:
        return self._source.describe_cluster(timeout_ms=TIMEOUT_MS).cluster_id or ""

    def _describe_targets(self, source: _Source) -> _Targets:
        """Return the target topics about which something may have to be decided."""
        names = [
            name
            for name, one in self._creations.topics.items()
            if source.id_of(one.source.name) != one.source.topic_id or one.deleting
        ]
        targets = _Targets()
        if not names:
            return targets
        answers = self._target.describe_topics_by_broker(names, partial=True, timeout_ms=TIMEOUT_MS)
        for name in names:
            said = [broker[name] for broker in answers.values() if name in broker]
            shown = {one.topic_id: one for one in said if isinstance(one, TopicDescription)}
            if any(isinstance(one, AuthorizationFailed) for one in said):
                targets.doubts[name] = Reason.UNAUTHORIZED
            elif len(shown) == 1:
                (targets.topics[name],) = shown.values()
            elif said or answers.failed or not answers:
                targets.doubts[name] = Reason.UNAVAILABLE
        return targets

    # --- decisions

    def _decide(self, source: _Source, rules: DeletionRules) -> list[_Topic]:
        targets = self._describe_targets(source)
        settled = self._settled(source, targets.topics)
        now_ms = self._clock.unix_ms()
        topics = []
        for name, record in self._creations.topics.items():
            source_id = source.id_of(record.source.name)
            seen = Seen(
                record=record,
                source_id=source_id,
                doubt=None if source_id is not None else source.doubt(record),
                target_id=str(targets.topics[name].topic_id) if name in targets.topics else None,
                target_doubt=targets.doubts.get(name),
                selected=rules.target_topic(record.source.name) == name,
                settled_id=settled.get(name),
            )
            topics.append(_Topic(name, seen, decide(seen, now_ms)))
        return topics

    def _settled(self, source: _Source, targets: Mapping[str, TopicDescription]) -> dict[str, str]:
        """Return the id of the source topic that all progress is about, for topics that were created again."""
        partitions = {
            name: [TopicPartition(name, one.partition) for one in targets[name].partitions]
            for name, record in self._creations.topics.items()
            if name in targets
            and (record.again or source.id_of(record.source.name) not in {None, record.source.topic_id})
        }
        tps = [tp for of_topic in partitions.values() for tp in of_topic]
        if not tps:
            return {}
        progress = read_each_progress(self._target, self._flow, tps, TIMEOUT_MS)
        found = {}
        for name, of_topic in partitions.items():
            ids = {progress[tp].topic_id if tp in progress else "" for tp in of_topic}
            if len(ids) == 1 and (settled := ids.pop()):
                found[name] = settled
        return found

    def _limit(self, topics: list[_Topic], rules: DeletionRules) -> None:
        """Keep all topics if more are to be deleted than the limit allows."""
        wanted = [topic for topic in topics if topic.wanted]
        lately = 0 if rules.by_hand else deleted_lately(self._creations, self._clock.unix_ms())
        if within_limit(len(wanted) + rules.spent, lately, rules.limit):
            return
        detail = over_limit(self._flow, len(wanted) + rules.spent, lately, rules.limit, "deletes them")
        for topic in wanted:
            topic.hold(Reason.OVER_LIMIT, detail)

    def _of_others(self, source: _Source, rules: DeletionRules) -> list[Deletion]:
        """Return the topics that the flow keeps in step, or was about to create, and that are without source topics."""
        creations = self._creations
        copies = {rules.copy_name(name) for name in source.topics}
        names = sorted((creations.known | creations.intents.keys()) - creations.topics.keys() - copies)
        found = self._target.describe_topics(names, partial=True, timeout_ms=TIMEOUT_MS) if names else {}
        return [
            Deletion(
                topic=name,
                source=creations.intents[name].name if name in creations.intents else "",
                reason=Reason.CREATION_UNKNOWN if name in creations.intents else Reason.NOT_CREATED,
            )
            for name in found
        ]

    # --- changes

    def _write(self, topics: list[_Topic]) -> list[str]:
        """Store what is known, delete, and remove the records about it; return problems. Raises KafkaError, Fenced."""
        timer = Timer(self._clock, _FENCED_MS)
        self._store(topics)
        self._delete([topic for topic in topics if topic.decision.act is Act.DELETE], timer)
        for topic in topics:
            if topic.decision.act is Act.FORGET:
                self._put({topic.name: None})
        return self._clean([topic for topic in topics if topic.decision.act is Act.CLEAN or topic.done])

    def _delete(self, topics: list[_Topic], timer: Timer) -> None:
        ids = {uuid.UUID(topic.decision.record.topic_id): topic for topic in topics if topic.wanted}
        self._deleted([topic for topic in topics if not topic.wanted])  # others have, or an earlier run
        if not ids:
            return
        if not timer.remaining_ms():
            raise KafkaTimeout(f"not sent within {_FENCED_MS} ms after its inventory; the next round tries again")
        outcomes = self._target.delete_topics_by_id(ids, partial=True, timeout_ms=timer.remaining_ms())
        deleted = []
        for topic_id, topic in ids.items():
            error = outcomes.failed.get(topic_id)
            if error is None or (isinstance(error, BrokerError) and error.code == UNKNOWN_TOPIC_ID):
                deleted.append(topic)
            else:
                topic.decision = topic.decision._replace(reason=_reason_of(error))
                topic.detail = str(error)
        self._deleted(deleted)

    def _deleted(self, topics: list[_Topic]) -> None:
        """Store that topics were deleted."""
        for topic in topics:
            topic.done = True
            record = replace(topic.decision.record, deleted_ms=self._clock.unix_ms())
            topic.decision = topic.decision._replace(record=record)
        self._store(topics)

    def _clean(self, topics: list[_Topic]) -> list[str]:
        """Remove what is stored about deleted topics; the next round tries again what was not."""
        if not topics:
            return []
        ids = {topic.name: topic.decision.record.topic_id for topic in topics}

        def names() -> set[str]:
            """Return those that no run creates again: a preparation stores its intent before it creates a topic."""
            self._read_inventory()
            known = self._creations.topics
            return {
                name
                for name, topic_id in ids.items()
                if name not in self._creations.intents and name in known and known[name].topic_id == topic_id
            }

        try:
            remove_records(self._topic.options, self._flow, names, TIMEOUT_MS)
            topics = [topic for topic in topics if topic.name in names()]
        except KafkaError as error:
            return [f"what is stored about deleted topics could not be removed: {error}"]
        now_ms = self._clock.unix_ms()
        for topic in topics:
            topic.decision = topic.decision._replace(record=replace(topic.decision.record, cleaned_ms=now_ms))
        self._store(topics)
        return []

    def _store(self, topics: Collection[_Topic]) -> None:
        """Store what the inventory does not have yet. Raises KafkaError, Fenced."""
        known = self._creations.topics
        new = {topic.name: topic.decision.record for topic in topics}
        self._put({name: one for name, one in new.items() if one != known.get(name)})

    def _put(self, records: Mapping[str, CreatedTopic | None]) -> None:
        if records:
            self._topic.write(created_record(name, one) for name, one in records.items())
            for name, one in records.items():
                self._creations.put(name, one)


def _is_shown(topic: _Topic) -> bool:
    """Whether users are to see the topic: of one that does not exist any more only the round that has deleted it."""
    seen = topic.seen
    if seen.record.deleted_ms or (seen.target_id is None and seen.target_doubt is None):
        return False
    return topic.decision.act in {Act.CONFIRM, Act.DELETE} or topic.decision.reason is not None


def _reported(topic: _Topic) -> Deletion:
    return Deletion(
        topic=topic.name,
        source=topic.seen.record.source.name,
        done=topic.done,
        reason=topic.decision.reason,
        detail=topic.detail,
    )


def _reason_of(error: KafkaError) -> Reason:
    if isinstance(error, KafkaTimeout):
        return Reason.UNAVAILABLE
    return Reason.UNAUTHORIZED if isinstance(error, AuthorizationFailed) else Reason.REFUSED
