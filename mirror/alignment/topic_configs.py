"""The configurations of a flow's target topics: what differs from their source topics, and is changed."""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

from mirror.alignment.config_decision import (
    NO_DRIFT,
    Act,
    ConfigMark,
    ConfigRules,
    Known,
    Observed,
    Reason,
    decide,
    equal,
)
from mirror.alignment.config_requests import KeyChange, TopicKey, alter, in_portions, make
from mirror.alignment.differences import Difference, KindReport, Words, outcome_of
from mirror.alignment.inventory import TIMEOUT_MS
from mirror.alignment.inventory_records import CreatedTopic, Inventory, Key, Reduction, Subject, TopicConfigs
from mirror.alignment.owned_topics import OwnedTopics
from mirror.alignment.reconciler import Failure, Making, Outcome
from mirror.alignment.reductions import NO_REDUCTIONS, Reducing, ReductionRules, decide_reductions, why_foreign
from mirror.client import Admin, TopicPartition
from mirror.errors import AuthorizationFailed, KafkaTimeout, named
from mirror.observation import Side, Sides
from mirror.relay.progress.committed import Progress, read_progress
from mirror.timing import Clock

WORDS: Final = Words(
    subject="configurations of target topics",
    one="configuration of target topics",
    many="configurations of target topics",
)
_REFUSED_ROUNDS: Final = 10
"""After so many rounds a refused value is tried again: the target's policy may have changed."""

Created = Mapping[str, Mapping[str, str]]
"""The configurations that topics were created with, by target topic."""


@dataclass(frozen=True, slots=True)
class AlignmentRules:
    """Which topics a flow brings in step, and how."""

    target_topic: Callable[[str], str | None]
    """The target topic of a source topic; None if the flow does not copy it."""
    configs: ConfigRules
    reductions: ReductionRules = NO_REDUCTIONS
    adopt: bool = False
    """Whether a user wants the source's values also where others have set others on the target."""
    beside_copies: bool = False
    """Whether copies of the flow are running."""


@dataclass(slots=True, kw_only=True)
class _Topic:
    """One target topic in a round."""

    name: str
    topic_id: str
    source_id: str
    """The id of its source topic; empty if the source has no ids."""
    partitions: Collection[TopicPartition]
    owned: bool
    before: TopicConfigs | None
    """What the inventory had."""
    reduced_before: Reduction | None
    """The same, about changes that make brokers delete records."""
    source: Mapping[str, str]
    """What is set on the source topic itself, by key."""
    wanted: Mapping[str, str]
    target: Mapping[str, str]
    """What is set on the topic itself, by key."""
    reduction: Reduction | None = None
    """What the inventory is to have about changes that make brokers delete records."""
    keys: dict[str, KeyChange] = field(default_factory=dict)

    @property
    def known(self) -> Mapping[str, Known]:
        return {} if self.before is None else self.before.configs

    def keep(
        self, key: str, wanted: str | None, kept: Known | None, reason: enum.StrEnum | None, detail: str = ""
    ) -> None:
        """Leave a key as it is; ``kept`` is what the inventory has about it."""
        self.keys[key] = KeyChange.left(kept, reason, detail, wanted=wanted, there=self.target.get(key))

    def due(self) -> dict[str, KeyChange]:
        """Return the changes that are to be made, by key."""
        return {key: one for key, one in self.keys.items() if one.is_due}

    def reducing(self, rules: ConfigRules, held: Reason | None = None) -> dict[str, str | None]:
        """Return the values that are, or were, set so that brokers delete records, by key; or those ``held`` for this.

        What the target has refused is not among them.
        """
        return {
            key: one.wanted
            for key, one in self.keys.items()
            if (one.outcome is not Outcome.HELD if held is None else one.reason is held)
            and rules.reduces(key, one.there, one.wanted)
        }

    def records(self, rules: ConfigRules) -> Iterator[tuple[Key, Any]]:
        """Yield what the inventory is to have about the topic."""
        known = {key: one for key, one in self.known.items() if key not in self.keys}
        known |= {key: stored for key, one in self.keys.items() if (stored := one.stored) is not None}
        created = self.before is not None and self.before.created
        yield Key(Subject.CONFIGS, self.name), TopicConfigs(self.topic_id, created, known)
        yield Key(Subject.REDUCED, self.name), self._reduced(rules)

    def _reduced(self, rules: ConfigRules) -> Reduction | None:
        """Return what the inventory is to have about reductions: of what the target has refused, none was made."""
        before = self.reduced_before
        done_ms = 0 if before is None else before.done_ms
        if self.reduction is not None:
            refused = self.reduction.done_ms != done_ms and not self.reducing(rules)
            return before if refused else self.reduction
        if before is not None and before.seen_ms:
            return replace(before, seen_ms=0, wanted={}) if done_ms else None
        return before


@dataclass(slots=True)
class ConfigPlan:
    """What one round has found and decided."""

    rules: AlignmentRules
    target: Admin
    topics: list[_Topic] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def records(self) -> dict[Key, Any]:
        """Return what the inventory is to have about the flow's own topics."""
        return dict(record for topic in self.topics if topic.owned for record in topic.records(self.rules.configs))

    def hold(self, subjects: Collection[TopicKey], reason: enum.StrEnum) -> None:
        """Leave these keys as they are."""
        topics = {topic.name: topic for topic in self.topics}
        for name, key in subjects:
            topics[name].keys[key].hold(reason)

    def changes(self) -> dict[TopicKey, KeyChange]:
        """Return what is to be changed."""
        return {TopicKey(topic.name, key): one for topic in self.topics for key, one in topic.due().items()}


class ConfigAlignment:
    """The configurations of one flow's target topics. Its calls wait for the clusters; use it in one thread."""

    def __init__(self, flow: str, inventory: Inventory, rules: AlignmentRules, clock: Clock) -> None:
        self._flow: Final = flow
        self._inventory: Final = inventory
        self.rules = rules
        """May be replaced between rounds."""
        self.created: Created = {}
        """Target topics that this flow has created since the last round."""
        self._clock: Final = clock
        self._owned: Final = OwnedTopics(flow, source_topic=self._source_of)
        self._sources: dict[str, str] = {}
        """The source topics by target topic, of the present round."""
        self._refused: dict[TopicKey, tuple[str | None, str]] = {}
        """What the target refuses: the value, and why."""
        self._rounds = 0

    def plan(self, sides: Sides) -> ConfigPlan:
        """Decide about each key of each topic that is on both sides, and have the target check what is to be changed.

        Raises KafkaError.
        """
        plan = ConfigPlan(self.rules, sides.target.admin)
        self._read_topics(sides, plan)
        for topic in plan.topics:
            self._decide(topic)
        self._limit(plan)
        self._check(plan)
        self._rounds += 1
        return plan

    def make(self, plan: ConfigPlan, making: Making) -> None:
        """Change what is to be changed; what the target refuses keeps nothing else from being changed."""
        due = plan.changes()
        for names in map(frozenset, in_portions(sorted({name for name, _ in due}))):
            portion = {key: one for key, one in due.items() if key.topic in names}
            making.send(portion, partial(make, plan.target, portion))

    def report(self, plan: ConfigPlan) -> KindReport:
        """Return what the round has found and done."""
        differences = [_difference(topic, key, one) for topic in plan.topics for key, one in topic.keys.items()]
        confirming = {one.subject.topic for one in filter(None, differences) if one.reason is Reason.CONFIRMING}
        reduced = sum(bool(topic.reducing(plan.rules.configs)) for topic in plan.topics)
        return KindReport(
            words=WORDS,
            differences=tuple(filter(None, differences)),
            problems=tuple(plan.problems),
            compared=len(plan.topics),
            unconfirmed=len(confirming),
            # Without a limit that a user has given, the inventory has those that were made.
            spent=len(confirming) + (reduced if plan.rules.reductions.by_hand else 0),
            time_ms=self._clock.unix_ms(),
        )

    # --- what there is

    def _source_of(self, name: str) -> str | None:
        return self._sources.get(name)

    def _read_topics(self, sides: Sides, plan: ConfigPlan) -> None:
        """Read the target topics that are on both sides and can be read, in order. Raises KafkaError."""
        at_target, at_source = sides.target.topics, sides.source.topics
        self._sources = sources = {}
        for name in sorted(at_source):
            to = self.rules.target_topic(name)
            if to is not None and to in at_target:
                sources[to] = name
        wanted = _read_configs(sides.source, "source", list(sources.values()), plan.problems)
        readable = [to for to, name in sources.items() if name in wanted]
        self._owned.add({name: at_target[name] for name in self.created if name in at_target})
        owned = self._owned.owned(plan.target, {name: at_target[name] for name in readable}, self._inventory)
        of_others = self._owned.other_sources
        for name, target in _read_configs(sides.target, "target", readable, plan.problems).items():
            before = self._before(name, str(at_target[name].topic_id))
            source = wanted[sources[name]]
            topic = _Topic(
                name=name,
                topic_id=str(at_target[name].topic_id),
                source_id=str(at_source[sources[name]].topic_id or ""),
                partitions=[TopicPartition(name, each.partition) for each in at_target[name].partitions],
                owned=name in owned or (before is not None and before.created and name not in of_others),
                before=before,
                reduced_before=self._inventory.reductions.get(name),
                source=source,
                wanted=self.rules.configs.wanted(source),
                target=target,
            )
            plan.topics.append(topic)

    def _before(self, name: str, topic_id: str) -> TopicConfigs | None:
        """Return what the flow knows about a topic: of one that it has just created, what it was created with."""
        if name in self.created:
            known = {key: Known(ConfigMark.SET, value) for key, value in self.created[name].items()}
            return TopicConfigs(topic_id, created=True, configs=known)
        return self._inventory.configs_of(name, topic_id)

    # --- decisions

    def _decide(self, topic: _Topic) -> None:
        rules = self.rules.configs
        for key in sorted(topic.source.keys() | topic.wanted.keys() | topic.target.keys() | topic.known.keys()):
            given, there, before = topic.source.get(key), topic.target.get(key), topic.known.get(key)
            withheld = None if given is None else rules.why_withheld(key, given)
            if withheld is not None:  # nor is the key reset: the source has a value
                if not equal(key, given, there):
                    topic.keep(key, given, before, *withheld)
                continue
            if not rules.manages(key):
                continue
            wanted = topic.wanted.get(key)
            if not topic.owned:
                if wanted is not None and not equal(key, wanted, there):
                    topic.keep(key, wanted, before, Reason.NOT_OWNED)
                continue
            seen = Observed(wanted, there, before, begun=topic.before is not None)
            forced = self.rules.adopt or key in rules.overrides
            act, known, reason = decide(key, seen, forced=forced, beside_copies=self.rules.beside_copies)
            if act is Act.NOTHING or known is None:
                topic.keep(key, wanted, known, reason)
            else:
                settled = known.settled()
                topic.keys[key] = KeyChange(kept=before, intent=known, settled=settled, wanted=wanted, there=there)

    def _limit(self, plan: ConfigPlan) -> None:
        """Hold what makes brokers delete records, unless two rounds have seen it and the limit allows it."""
        rules, topics = self.rules.configs, plan.topics
        waiting = {topic.name: topic.reducing(rules, Reason.WAITS) for topic in topics}
        reducing = {topic.name: topic for topic in topics if topic.reducing(rules) or waiting[topic.name]}
        progress: dict[str, list[Progress]] = {name: [] for name in reducing}
        if reducing:
            tps = [tp for topic in reducing.values() for tp in topic.partitions]
            for tp, one in read_progress(plan.target, self._flow, tps).items():
                progress[tp.topic].append(one)
        found = {
            name: Reducing(
                topic.topic_id,
                why_foreign(progress[name], self._created(topic), topic.source_id),
                topic.reducing(rules),
                waiting[name],
            )
            for name, topic in reducing.items()
        }
        limits, now_ms = self.rules.reductions, self._clock.unix_ms()
        for name, verdict in decide_reductions(found, self._inventory, limits, self._flow, now_ms).items():
            topic = reducing[name]
            topic.reduction = verdict.record
            if verdict.reason is not None:
                # What a restart alone does not bring in step says so.
                also = {} if verdict.reason is Reason.CONFIRMING else waiting[name]
                for key in (*topic.reducing(rules), *also):
                    topic.keys[key].hold(verdict.reason, verdict.detail)

    def _created(self, topic: _Topic) -> CreatedTopic | None:
        found = self._inventory.created.get(topic.name)
        return found if found is not None and found.topic_id == topic.topic_id else None

    # Invariant: What the target refuses is never in the inventory, and keeps nothing else from being set: a change is
    #   validated first.
    # Test: tests/alignment/test_rounds_on_fakes.py::test_a_refused_value_is_reported_and_the_rest_is_applied
    # Test: tests/alignment/
    #   test_policies_on_brokers.py::test_a_refused_change_is_reported_with_its_reason_and_the_rest_is_applied
    def _check(self, plan: ConfigPlan) -> None:
        """Have the target check what is to be changed, and hold what it refuses."""
        for key, one in plan.changes().items():
            value, detail = self._refused.get(key, ("", ""))
            if detail and value == one.wanted and self._rounds % _REFUSED_ROUNDS:
                one.hold(Failure.REFUSED, detail)
        due = plan.changes()
        for key, error in alter(plan.target, due, TIMEOUT_MS, validate_only=True).items():
            one = due[key]
            one.fail(error)
            one.outcome = Outcome.HELD  # nothing was to be made
            if one.reason is Failure.REFUSED:
                self._refused[key] = one.wanted, one.detail


# Invariant: Only what is set on a topic itself counts: a broker's value is never turned into a topic's.
# Test: tests/alignment/test_rounds_on_fakes.py::test_defaults_of_brokers_are_no_differences
# Test: tests/alignment/test_rounds_on_fakes.py::test_many_topics_take_a_few_requests
def _read_configs(observed: Side, side: str, topics: list[str], problems: list[str]) -> dict[str, dict[str, str]]:
    """Return what is set on each topic itself; a topic whose configuration cannot be read is a problem."""
    configs: dict[str, dict[str, str]] = {}
    refused: dict[str, list[str]] = {}
    for names in in_portions(topics):
        outcomes = observed.own_configs(names)
        configs.update(outcomes)
        for name, error in outcomes.failed.items():
            if isinstance(error, KafkaTimeout):
                raise error
            why = "the permission DescribeConfigs is missing"
            refused.setdefault(why if isinstance(error, AuthorizationFailed) else str(error), []).append(name)
    for why, names in refused.items():
        problems.append(f"the configuration of {named(f'{side} topic', sorted(names))} cannot be read: {why}")
    return configs


def _difference(topic: _Topic, key: str, one: KeyChange) -> Difference | None:
    if one.outcome is Outcome.HELD and one.reason is None:
        return None
    there = "the default" if one.there is None else one.there
    wanted = "the default" if one.wanted is None else one.wanted
    sign = "~" if one.there is not None and one.wanted is not None else "-" if one.wanted is None else "+"
    return Difference(
        subject=TopicKey(topic.name, key),
        text=f"{key}: {there}, not {wanted}" if one.reason is not None else f"{key}: {there} -> {wanted}",
        sign="=" if one.reason is not None else sign,
        what=f"{key} of topic {topic.name}",
        **outcome_of(one, "reset" if one.wanted is None else "set", confirming=Reason.CONFIRMING),
        is_drift=one.reason not in NO_DRIFT,
        name=f"topic {topic.name}: {key} = {one.wanted}",
        under=f"topic {topic.name}",
        fields={
            "topic": topic.name,
            "topic_id": topic.topic_id,
            "source_id": topic.source_id,
            "key": key,
            "wanted": one.wanted,
            "target": one.there,
        },
    )
