"""Brings the configurations of a flow's target topics in step with their source topics, one round at a time.

::

    1 topics of both sides ──► what is set on them ─┐
    2 inventory, progress  ──► what the flow owns  ─┴─► decide ─► limit ─► checked by the target ─► inventory, stored
                                                        ─► changes ─► inventory, settled ─► report
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from mirror.alignment.changes import TIMEOUT_MS, alter, in_portions
from mirror.alignment.decision import Act, ConfigRules, Decision, Known, Mark, Observed, Reason, decide, equal
from mirror.alignment.deletions.records import CreatedTopic, Creations, Reduction, reduction_record
from mirror.alignment.inventory import StoredInventory, TopicInventory, encode_key, encode_topic
from mirror.alignment.inventory_topic import InventoryTopic
from mirror.alignment.owned_topics import OwnedTopics
from mirror.alignment.reductions import NO_REDUCTIONS, Reducing, ReductionRules, decide_reductions, why_foreign
from mirror.alignment.report import AlignmentReport, Difference
from mirror.client import Admin, ConfigChange, ConfigOperation, TopicDescription, TopicPartition
from mirror.errors import AuthorizationFailed, KafkaError, KafkaTimeout, named
from mirror.relay.progress.committed import Progress, ProgressStore
from mirror.relay.progress.flow_topic import KeyValue
from mirror.timing import Clock

_FENCED_MS: Final = 10_000
"""Nothing is changed later than this after the inventory was to be stored: a later run may have begun since."""
_REFUSED_ROUNDS: Final = 10
"""After so many rounds a refused value is tried again: the target's policy may have changed."""


def transactional_id(flow: str) -> str:
    """Return the id under which a flow's inventory is stored. No partition has it: theirs end with a number."""
    return f"mirror.{flow}.inventory"


@dataclass(frozen=True, slots=True)
class AlignmentRules:
    """Which topics a flow brings in step, and how."""

    target_topic: Callable[[str], str | None]
    """The target topic of a source topic; None if the flow does not copy it."""
    configs: ConfigRules
    reductions: ReductionRules = NO_REDUCTIONS


@dataclass(slots=True)
class _Topic:
    """One target topic in a round."""

    name: str
    topic_id: str
    source_id: str
    """The id of its source topic; empty if the source has no ids."""
    partitions: Collection[TopicPartition]
    owned: bool
    before: TopicInventory | None
    """What the inventory had."""
    source: Mapping[str, str]
    """What is set on the source topic itself, by key."""
    wanted: Mapping[str, str]
    target: Mapping[str, str]
    """What is set on the topic itself, by key."""
    reduction: Reduction | None = None
    """What the inventory is to have about changes that make brokers delete records."""
    decisions: dict[str, Decision] = field(default_factory=dict)
    """By key."""
    differences: dict[str, Difference] = field(default_factory=dict)
    """By key."""

    def differ(self, key: str, wanted: str | None, reason: Reason | None, detail: str = "") -> None:
        """Record that a key differs, and why it is left as it is; None: it is to be changed."""
        self.differences[key] = Difference(
            topic=self.name, key=key, wanted=wanted, target=self.target.get(key), reason=reason, detail=detail
        )

    def hold(self, key: str, reason: Reason, detail: str = "") -> None:
        """Leave a key as it is, although it differs."""
        self.differences[key] = replace(self.differences[key], reason=reason, detail=detail)

    def changes(self) -> dict[str, ConfigChange]:
        """Return what is to be changed, by key."""
        return {
            key: ConfigChange(key, one.wanted, ConfigOperation.DELETE if one.act is Act.RESET else ConfigOperation.SET)
            for key, one in self.differences.items()
            if one.reason is None
        }

    def reducing(self, rules: ConfigRules, held: Reason | None = None) -> dict[str, str | None]:
        """Return the values that are to be set so that brokers delete records, by key; or those ``held`` for this."""
        return {
            key: one.wanted
            for key, one in self.differences.items()
            if one.reason is held and rules.reduces(key, one.target, one.wanted)
        }

    def inventory(self, settled: Collection[str] = ()) -> TopicInventory:
        """Return what the inventory is to have, after the changes of the ``settled`` keys were made."""
        known = {} if self.before is None else dict(self.before.configs)
        for key, decision in self.decisions.items():
            one = decision.known
            if decision.act is not Act.NOTHING and self.differences[key].reason is not None:
                one = known.get(key)  # it was not made after all
            elif one is not None and key in settled:
                one = one.settled()
            known.pop(key, None)
            if one is not None:
                known[key] = one
        return TopicInventory(self.topic_id, self.before is not None and self.before.created, known)


class Alignment:
    """Rounds of one flow. Its calls wait for the clusters; use it in one thread."""

    def __init__(
        self,
        flow: str,
        source: Admin,
        target: Admin,
        target_options: Mapping[str, object],
        rules: AlignmentRules,
        clock: Clock,
    ) -> None:
        """``target_options`` are dotted keys, of which those of the cluster are used. Raises ConfigError."""
        self._flow: Final = flow
        self._source: Final = source
        self._target: Final = target
        self.rules = rules
        """May be replaced between rounds."""
        self._clock: Final = clock
        self._topic: Final = InventoryTopic(target_options, flow, transactional_id(flow), clock, TIMEOUT_MS)
        self._inventory: Final = StoredInventory()
        self._known: Final = Creations()
        self._owned: Final = OwnedTopics(flow)
        self._refused: dict[tuple[str, str], tuple[str | None, str]] = {}
        """What the target refuses, by topic and key: the value, and why."""
        self._rounds = 0

    def close(self) -> None:
        """Close the connections that the rounds have opened."""
        self._topic.close()

    def give_way(self) -> None:
        """Another run has fenced this one: the next round fences that one."""
        self._topic.give_way()

    def network_ms(self) -> int:
        """Return the CPU time of the network threads, which all clients of the process share."""
        return self._source.network().busy_ms + self._target.network().busy_ms

    def round(
        self,
        *,
        write: bool = True,
        adopt: bool = False,
        beside_copies: bool = False,
        created: Mapping[str, Mapping[str, str]] | None = None,
    ) -> AlignmentReport:
        """Bring what differs in step; without ``write`` only find it.

        ``adopt``: also what others have set on the target. ``beside_copies``: copies of the flow are running.
        ``created`` are target topics that this flow has just created, with their configurations.

        Raises KafkaError if a cluster does not answer, and Fenced if another run brings the flow in step: until
        :meth:`give_way`, all rounds do. What concerns single topics is in the report.
        """
        if write:
            self._topic.begin()
        at_target = self._target.list_topics(timeout_ms=TIMEOUT_MS)
        stored = self._read_inventory(at_target)
        if write and not stored:
            msg = f"there is no topic {self._topic.name} on the target, so nothing is brought in step"
            raise KafkaError(msg)
        problems: list[str] = []
        topics = self._read_topics(at_target, created or {}, problems)
        for topic in topics:
            self._decide(topic, adopt=adopt, beside_copies=beside_copies)
        self._limit(topics)
        self._check(topics)
        reduced = sum(bool(topic.reducing(self.rules.configs)) for topic in topics)
        changed = self._write(topics) if write else 0
        self._rounds += 1
        return AlignmentReport(
            differences=tuple(one for topic in topics for one in topic.differences.values()),
            problems=tuple(problems),
            topics=len(topics),
            changed=changed,
            reduced=reduced,
            time_ms=self._clock.unix_ms(),
        )

    # --- what there is

    def _read_inventory(self, at_target: Mapping[str, TopicDescription]) -> bool:
        """Read what is new in the inventory topic; return whether there is one."""
        if self._topic.name not in at_target:
            self._clear()
            return False
        self._topic.follow(clear=self._clear, take=self._take)
        return True

    def _clear(self) -> None:
        self._inventory.clear()
        self._known.clear()

    def _take(self, key: bytes | None, value: bytes | None) -> None:
        self._inventory.take(key, value)
        self._known.take(key, value)

    def _read_topics(
        self,
        at_target: Mapping[str, TopicDescription],
        created: Mapping[str, Mapping[str, str]],
        problems: list[str],
    ) -> list[_Topic]:
        """Return the target topics that are on both sides and can be read, in order. Raises KafkaError."""
        sources: dict[str, str] = {}
        at_source = self._source.list_topics(timeout_ms=TIMEOUT_MS)
        for name in sorted(at_source):
            to = self.rules.target_topic(name)
            if to is not None and to in at_target:
                sources[to] = name
        wanted = self._read_configs(self._source, "source", list(sources.values()), problems)
        readable = [to for to, name in sources.items() if name in wanted]
        self._owned.add({name: at_target[name] for name in created if name in at_target})
        owned = self._owned.owned(self._target, {name: at_target[name] for name in readable}, self._known)
        topics = []
        for name, target in self._read_configs(self._target, "target", readable, problems).items():
            topic_id = str(at_target[name].topic_id)
            before = self._inventory.of(name, topic_id)
            if name in created:
                known = {key: Known(Mark.SET, value) for key, value in created[name].items()}
                before = TopicInventory(topic_id, created=True, configs=known)
            source = wanted[sources[name]]
            topic = _Topic(
                name=name,
                topic_id=topic_id,
                source_id=str(at_source[sources[name]].topic_id or ""),
                partitions=[TopicPartition(name, each.partition) for each in at_target[name].partitions],
                owned=name in owned or (before is not None and before.created),
                before=before,
                source=source,
                wanted=self.rules.configs.wanted(source),
                target=target,
            )
            topics.append(topic)
        return topics

    def _read_configs(
        self, admin: Admin, side: str, topics: list[str], problems: list[str]
    ) -> dict[str, dict[str, str]]:
        """Return what is set on each topic itself; a topic whose configuration cannot be read is a problem."""
        configs: dict[str, dict[str, str]] = {}
        refused: dict[str, list[str]] = {}
        for names in in_portions(topics):
            outcomes = admin.describe_topic_configs(names, partial=True, timeout_ms=TIMEOUT_MS)
            configs.update(outcomes)
            for name, error in outcomes.failed.items():
                if isinstance(error, KafkaTimeout):
                    raise error
                why = "the permission DescribeConfigs is missing"
                refused.setdefault(why if isinstance(error, AuthorizationFailed) else str(error), []).append(name)
        for why, names in refused.items():
            problems.append(f"the configuration of {named(f'{side} topic', sorted(names))} cannot be read: {why}")
        return configs

    # --- decisions

    def _decide(self, topic: _Topic, *, adopt: bool, beside_copies: bool) -> None:
        rules, known = self.rules.configs, {} if topic.before is None else topic.before.configs
        for key in sorted(topic.source.keys() | topic.wanted.keys() | topic.target.keys() | known.keys()):
            given = topic.source.get(key)
            withheld = None if given is None else rules.why_withheld(key, given)
            if withheld is not None:  # nor is the key reset: the source has a value
                if not equal(key, given, topic.target.get(key)):
                    topic.differ(key, given, *withheld)
                continue
            if not rules.manages(key):
                continue
            wanted = topic.wanted.get(key)
            if not topic.owned:
                if wanted is not None and not equal(key, wanted, topic.target.get(key)):
                    topic.differ(key, wanted, Reason.NOT_OWNED)
                continue
            seen = Observed(wanted, topic.target.get(key), known.get(key), begun=topic.before is not None)
            forced = adopt or key in rules.overrides
            decision = topic.decisions[key] = decide(key, seen, forced=forced, beside_copies=beside_copies)
            if decision.act is not Act.NOTHING or decision.reason is not None:
                topic.differ(key, wanted, decision.reason)

    def _limit(self, topics: list[_Topic]) -> None:
        """Hold what makes brokers delete records, unless two rounds have seen it and the limit allows it."""
        rules = self.rules.configs
        waiting = {topic.name: topic.reducing(rules, Reason.WAITS) for topic in topics}
        reducing = {topic.name: topic for topic in topics if topic.reducing(rules) or waiting[topic.name]}
        progress: dict[str, list[Progress]] = {name: [] for name in reducing}
        if reducing:
            tps = [tp for topic in reducing.values() for tp in topic.partitions]
            for tp, one in ProgressStore(self._target, self._flow).read(tps).items():
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
        now_ms = self._clock.unix_ms()
        for name, verdict in decide_reductions(found, self._known, self.rules.reductions, self._flow, now_ms).items():
            topic = reducing[name]
            topic.reduction = verdict.record
            if verdict.reason is not None:
                # What a restart alone does not bring in step says so.
                also = {} if verdict.reason is Reason.CONFIRMING else waiting[name]
                for key in (*topic.reducing(rules), *also):
                    topic.hold(key, verdict.reason, verdict.detail)

    def _created(self, topic: _Topic) -> CreatedTopic | None:
        found = self._known.topics.get(topic.name)
        return found if found is not None and found.topic_id == topic.topic_id else None

    def _check(self, topics: list[_Topic]) -> None:
        """Have the target check what is to be changed, and hold what it refuses."""
        by_name = {topic.name: topic for topic in topics}
        for topic in topics:
            for key in topic.changes():
                value, detail = self._refused.get((topic.name, key), ("", ""))
                if detail and value == topic.differences[key].wanted and self._rounds % _REFUSED_ROUNDS:
                    topic.hold(key, Reason.REFUSED, detail)
        changes = {topic.name: found for topic in topics if (found := topic.changes())}
        for (name, key), error in alter(self._target, changes, validate_only=True).failed.items():
            topic = by_name[name]
            topic.hold(key, *_reason_of(error))
            if topic.differences[key].reason is Reason.REFUSED:
                self._refused[name, key] = topic.differences[key].wanted, topic.differences[key].detail

    # --- changes

    def _write(self, topics: list[_Topic]) -> int:
        """Store the inventory, and make the changes; return how many were made. Raises KafkaError, Fenced."""
        until_ms = self._clock.now() + _FENCED_MS
        topics = [topic for topic in topics if topic.owned]
        self._store({topic.name: topic.inventory() for topic in topics}, self._reductions(topics))
        pending = {topic.name: topic for topic in topics if topic.changes()}
        done: dict[str, set[str]] = {name: set() for name in pending}
        for names in in_portions(sorted(pending)):
            if self._clock.now() >= until_ms:
                raise KafkaTimeout(f"not sent within {_FENCED_MS} ms after its inventory; the next round tries again")
            outcome = alter(self._target, {name: pending[name].changes() for name in names})
            for name, key in outcome.done:
                done[name].add(key)
            for (name, key), error in outcome.failed.items():
                if isinstance(error, KafkaTimeout):
                    raise error  # whether it was made is not known: the inventory has both values
                pending[name].hold(key, *_reason_of(error))
        self._store({name: topic.inventory(done[name]) for name, topic in pending.items()})
        return sum(len(keys) for keys in done.values())

    def _reductions(self, topics: list[_Topic]) -> dict[str, Reduction | None]:
        """Return what the inventory is to have about reductions, before any is made: what was made before stays."""
        found: dict[str, Reduction | None] = {}
        for topic in topics:
            before = self._known.reductions.get(topic.name)
            done_ms = 0 if before is None else before.done_ms
            if topic.reduction is not None:
                refused = topic.reduction.done_ms != done_ms and not topic.reducing(self.rules.configs)
                found[topic.name] = before if refused else topic.reduction
            elif before is not None and before.seen_ms:
                found[topic.name] = replace(before, seen_ms=0, wanted={}) if done_ms else None
        return found

    def _store(
        self, topics: Mapping[str, TopicInventory], reductions: Mapping[str, Reduction | None] | None = None
    ) -> None:
        """Store what the inventory does not have yet. Raises KafkaError, Fenced."""
        new = {name: one for name, one in topics.items() if one != self._inventory.of(name, one.topic_id)}
        known = self._known.reductions
        reduced = {name: one for name, one in (reductions or {}).items() if one != known.get(name)}
        if new or reduced:
            self._topic.write(
                [
                    *(KeyValue(encode_key(name), encode_topic(one)) for name, one in new.items()),
                    *(reduction_record(name, one) for name, one in reduced.items()),
                ]
            )
            for name, one in new.items():
                self._inventory.put(name, one)
            for name, reduction in reduced.items():
                self._known.put_reduction(name, reduction)


def _reason_of(error: KafkaError) -> tuple[Reason, str]:
    if isinstance(error, KafkaTimeout):
        return Reason.UNAVAILABLE, str(error)
    return (Reason.UNAUTHORIZED if isinstance(error, AuthorizationFailed) else Reason.REFUSED), str(error)
