"""Deletes topics that a flow has created on the target once their source topics do not exist; by opt-in.

::

    1 inventory ──► topics that the flow has created    ─┐
    2 the source's topics, and what each broker says of  ├─► decide, limit ─► inventory, stored
      those that it does not show; the target's topics  ─┘   ─► deleted by id ─► inventory ─► records removed
"""

from __future__ import annotations

import enum
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from mirror.alignment.deletion_decision import (
    NO_DRIFT,
    Act,
    Decision,
    Reason,
    Seen,
    decide,
    deleted_lately,
    over_limit,
    within_limit,
)
from mirror.alignment.differences import Difference, KindReport, Words, outcome_of
from mirror.alignment.inventory import TIMEOUT_MS, FlowInventory
from mirror.alignment.inventory_records import CreatedTopic, Key, Subject
from mirror.alignment.reconciler import Change, Failure, Making, Outcome
from mirror.alignment.remains import remove_records
from mirror.client import Admin, TopicDescription, TopicPartition
from mirror.errors import AuthorizationFailed, BrokerError, KafkaError
from mirror.observation import Sides
from mirror.relay.progress.committed import read_each_progress
from mirror.timing import Clock
from mirror.wire.error_codes import UNKNOWN_TOPIC_ID

WORDS: Final = Words(
    subject="created topics",
    one="target topic without source topic:",
    many="target topics without source topics:",
    is_each_named=True,
)


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


@dataclass(slots=True, kw_only=True)
class _Topic(Change[CreatedTopic]):
    """A topic that the flow has created, in a round."""

    name: str
    seen: Seen
    act: Act
    is_lost: bool = False
    """Whether the inventory has something else under this name meanwhile: a preparation has created it again."""

    @property
    def is_wanted(self) -> bool:
        """Whether it is to be deleted, now or by the next round, and exists."""
        return self.act in {Act.CONFIRM, Act.DELETE} and self.seen.target_id is not None and self.reason is None

    @property
    def is_shown(self) -> bool:
        """Whether users are to see the topic: of one that does not exist any more only the round that deletes it."""
        seen = self.seen
        if seen.record.deleted_ms or (seen.target_id is None and seen.target_doubt is None):
            return False
        return self.act in {Act.CONFIRM, Act.DELETE} or self.reason is not None

    def cleaned(self, now_ms: int) -> None:
        """Record that the flow's records about the deleted topic were removed."""
        stored = self.stored
        if stored is not None:
            self.outcome, self.settled = Outcome.MADE, replace(stored, cleaned_ms=now_ms)


def _topic(name: str, seen: Seen, decision: Decision) -> _Topic:
    record, act = decision.record, decision.act
    kept = {Act.DELETE: seen.record, Act.FORGET: None}.get(act, record)
    topic = _Topic(
        name=name,
        seen=seen,
        act=act,
        kept=kept,
        intent=record,
        settled=record,
        outcome=Outcome.DUE if act is Act.DELETE else Outcome.HELD,
    )
    topic.reason = decision.reason
    return topic


@dataclass(slots=True)
class DeletionPlan:
    """What one round has found and decided."""

    target: Admin
    topics: list[_Topic] = field(default_factory=list)
    others: list[Difference] = field(default_factory=list)
    """Topics without source topics that the flow has not created."""
    problems: list[str] = field(default_factory=list)

    def hold(self, subjects: Collection[str], reason: enum.StrEnum) -> None:
        """Keep these topics."""
        for topic in self.topics:
            if topic.name in subjects:
                topic.hold(reason)

    def records(self) -> dict[Key, CreatedTopic | None]:
        """Return what the inventory is to have about the topics."""
        return {Key(Subject.CREATED, topic.name): topic.stored for topic in self.topics if not topic.is_lost}


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
    doubts: dict[str, Failure] = field(default_factory=dict)
    """Why nothing is known about a topic."""


class TopicDeletions:
    """The deletions of one flow. Its calls wait for the clusters; use it in one thread."""

    def __init__(self, flow: str, inventory: FlowInventory, rules: DeletionRules, clock: Clock) -> None:
        self._flow: Final = flow
        self._inventory: Final = inventory
        self.rules = rules
        """May be replaced between rounds."""
        self._clock: Final = clock
        self._creations: Final = inventory.records

    def plan(self, sides: Sides) -> DeletionPlan:
        """Decide about each topic that the flow has created. Raises KafkaError."""
        known = self._creations
        if not (known.created or known.configs or known.intents):
            return DeletionPlan(sides.target.admin)
        source = self._read_source(sides)
        topics = self._decide(source, sides.target.admin)
        self._limit(topics)
        return DeletionPlan(sides.target.admin, topics, self._of_others(source, sides.target.admin))

    def make(self, plan: DeletionPlan, making: Making) -> None:
        """Delete what is to be deleted, and remove what the flow has stored about it. Raises KafkaError."""
        topics = [topic for topic in plan.topics if topic.act is Act.DELETE and topic.is_due]
        self._gone(topic for topic in topics if not topic.is_wanted)  # others have, or an earlier run
        by_id = {uuid.UUID(topic.seen.record.topic_id): topic for topic in topics if topic.is_wanted}
        making.send(by_id, partial(_delete, plan.target))
        self._gone(topic for topic in by_id.values() if topic.outcome is Outcome.MADE)
        making.store()  # at once: the topics may be created again
        gone = [topic for topic in topics if topic.outcome is Outcome.MADE]
        self._clean(plan, [*gone, *(topic for topic in plan.topics if topic.act is Act.CLEAN)])

    def report(self, plan: DeletionPlan) -> KindReport:
        """Return what the round has found and done."""
        differences = [*map(_difference, (topic for topic in plan.topics if topic.is_shown)), *plan.others]
        return KindReport(
            words=WORDS,
            differences=tuple(sorted(differences, key=lambda one: str(one.subject))),
            problems=tuple(plan.problems),
            news=tuple(
                f"topic {one.subject} was deleted, as {one.fields['source']} on the source"
                for one in differences
                if one.done
            ),
            compared=len(plan.topics),
            unconfirmed=sum(topic.act is Act.CONFIRM and topic.is_wanted for topic in plan.topics),
            time_ms=self._clock.unix_ms(),
        )

    # --- what there is

    def _read_source(self, sides: Sides) -> _Source:
        """Return what the source shows, and what each of its brokers says about topics that it does not show."""
        topics, admin = sides.source.topics, sides.source.admin
        source = _Source(_cluster_id(admin), topics, empty=all(one.internal for one in topics.values()))
        missing = {
            one.source.name
            for one in self._creations.created.values()
            if one.source.name not in topics and not one.deleted_ms
        }
        if missing and not source.empty:
            answers = admin.describe_topics_by_broker(missing, partial=True, timeout_ms=TIMEOUT_MS)
            if answers and not answers.failed:
                source.gone = {name for name in missing if all(name not in broker for broker in answers.values())}
            source.hidden = {
                name
                for name in missing
                if any(isinstance(broker.get(name), AuthorizationFailed) for broker in answers.values())
            }
            if _cluster_id(admin) != source.cluster_id:
                source.cluster_id = ""  # the addresses lead to several clusters
        return source

    def _describe_targets(self, source: _Source, target: Admin) -> _Targets:
        """Return the target topics about which something may have to be decided."""
        names = [
            name
            for name, one in self._creations.created.items()
            if source.id_of(one.source.name) != one.source.topic_id or one.deleting
        ]
        targets = _Targets()
        if not names:
            return targets
        answers = target.describe_topics_by_broker(names, partial=True, timeout_ms=TIMEOUT_MS)
        for name in names:
            said = [broker[name] for broker in answers.values() if name in broker]
            shown = {one.topic_id: one for one in said if isinstance(one, TopicDescription)}
            if any(isinstance(one, AuthorizationFailed) for one in said):
                targets.doubts[name] = Failure.UNAUTHORIZED
            elif len(shown) == 1:
                (targets.topics[name],) = shown.values()
            elif said or answers.failed or not answers:
                targets.doubts[name] = Failure.UNAVAILABLE
        return targets

    # --- decisions

    def _decide(self, source: _Source, target: Admin) -> list[_Topic]:
        targets = self._describe_targets(source, target)
        settled = self._settled(source, target, targets.topics)
        now_ms = self._clock.unix_ms()
        topics = []
        for name, record in self._creations.created.items():
            source_id = source.id_of(record.source.name)
            seen = Seen(
                record=record,
                source_id=source_id,
                doubt=None if source_id is not None else source.doubt(record),
                target_id=str(targets.topics[name].topic_id) if name in targets.topics else None,
                target_doubt=targets.doubts.get(name),
                selected=self.rules.target_topic(record.source.name) == name,
                settled_id=settled.get(name),
            )
            topics.append(_topic(name, seen, decide(seen, now_ms)))
        return topics

    # Invariant: A source topic that was created again is settled, with all progress of the copy about it, before
    #   anything is deleted.
    # Test: tests/alignment/deletions/
    #   test_deletions_on_fakes.py::test_a_source_topic_that_is_created_again_is_settled_first
    def _settled(self, source: _Source, target: Admin, targets: Mapping[str, TopicDescription]) -> dict[str, str]:
        """Return the id of the source topic that all progress is about, for topics that were created again."""
        partitions = {
            name: [TopicPartition(name, one.partition) for one in targets[name].partitions]
            for name, record in self._creations.created.items()
            if name in targets
            and (record.again or source.id_of(record.source.name) not in {None, record.source.topic_id})
        }
        tps = [tp for of_topic in partitions.values() for tp in of_topic]
        if not tps:
            return {}
        progress = read_each_progress(target, self._flow, tps, TIMEOUT_MS)
        found = {}
        for name, of_topic in partitions.items():
            ids = {progress[tp].topic_id if tp in progress else "" for tp in of_topic}
            if len(ids) == 1 and (settled := ids.pop()):
                found[name] = settled
        return found

    def _limit(self, topics: list[_Topic]) -> None:
        """Keep all topics if more are to be deleted than the limit allows."""
        rules = self.rules
        wanted = [topic for topic in topics if topic.is_wanted]
        lately = 0 if rules.by_hand else deleted_lately(self._creations, self._clock.unix_ms())
        if within_limit(len(wanted) + rules.spent, lately, rules.limit):
            return
        detail = over_limit(self._flow, len(wanted) + rules.spent, lately, rules.limit, "deletes them")
        for topic in wanted:
            topic.hold(Reason.OVER_LIMIT, detail)

    def _of_others(self, source: _Source, target: Admin) -> list[Difference]:
        """Return the topics that the flow keeps in step, or was about to create, and that are without source topics."""
        known = self._creations
        copies = {self.rules.copy_name(name) for name in source.topics}
        names = sorted((known.configs.keys() | known.intents.keys()) - known.created.keys() - copies)
        found = target.describe_topics(names, partial=True, timeout_ms=TIMEOUT_MS) if names else {}
        return [
            _kept(name, known.intents[name].name, Reason.CREATION_UNKNOWN)
            if name in known.intents
            else _kept(name, "", Reason.NOT_CREATED)
            for name in found
        ]

    # --- changes

    def _gone(self, topics: Iterable[_Topic]) -> None:
        """Record that topics are deleted."""
        for topic in topics:
            assert topic.intent is not None  # noqa: S101 - of a deletion
            topic.outcome = Outcome.MADE
            topic.settled = replace(topic.intent, deleted_ms=self._clock.unix_ms())

    def _clean(self, plan: DeletionPlan, topics: list[_Topic]) -> None:
        """Remove what is stored about deleted topics; the next round tries again what was not."""
        if not topics:
            return

        def names() -> set[str]:
            """Return those that no run creates again: a preparation stores its intent before it creates a topic."""
            self._inventory.read()
            known = self._creations
            for topic in plan.topics:
                found = known.created.get(topic.name)
                topic.is_lost = found is None or found.topic_id != topic.seen.record.topic_id
            return {topic.name for topic in topics if not topic.is_lost and topic.name not in known.intents}

        try:
            remove_records(self._inventory.options, self._flow, names, TIMEOUT_MS)
            cleaned = names()
        except KafkaError as error:
            plan.problems.append(f"what is stored about deleted topics could not be removed: {error}")
            return
        for topic in topics:
            if topic.name in cleaned:
                topic.cleaned(self._clock.unix_ms())


def _cluster_id(admin: Admin) -> str:
    """Return the id of a cluster as it is now, not as it was when its topics were listed."""
    return admin.describe_cluster(timeout_ms=TIMEOUT_MS).cluster_id or ""


def _delete(target: Admin, ids: list[uuid.UUID], timeout_ms: int) -> dict[uuid.UUID, KafkaError | None]:
    found = target.delete_topics_by_id(ids, partial=True, timeout_ms=timeout_ms)
    return {
        topic_id: None if isinstance(error, BrokerError) and error.code == UNKNOWN_TOPIC_ID else error
        for topic_id, error in found.failed.items()
    }


def _difference(topic: _Topic) -> Difference:
    source = topic.seen.record.source.name
    if topic.reason is not None:
        return _kept(topic.name, source, topic.reason, topic.detail)
    done = topic.outcome is Outcome.MADE
    return Difference(
        subject=topic.name,
        text=f"topic {topic.name} {'was' if done else 'is'} deleted with all its records: source topic {source} does"
        " not exist",
        sign="-",
        what=f"topic {topic.name}",
        **outcome_of(topic, "delete"),
        fields={
            "topic": topic.name,
            "topic_id": topic.seen.record.topic_id,
            "source": source,
            "source_id": topic.seen.record.source.topic_id,
        },
    )


def _kept(topic: str, source: str, reason: enum.StrEnum, detail: str = "") -> Difference:
    return Difference(
        subject=topic,
        text=f"topic {topic} is kept, without {f'source topic {source}' if source else 'its source topic'}",
        what=f"topic {topic}",
        change=None,
        reason=reason,
        detail=detail,
        is_drift=reason not in NO_DRIFT,
        name=f"the deletion of topic {topic}",
        fields={"topic": topic, "source": source or None},
    )
