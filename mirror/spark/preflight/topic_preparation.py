"""Create the target topics that are missing, add partitions to those of the flow's own, and name what is in the way."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, TypedDict

from mirror.alignment.inventory_records import SourceTopic
from mirror.alignment.owned_topics import OwnedTopics
from mirror.alignment.ownership import Standing
from mirror.alignment.planned import Item
from mirror.client import NewTopic, Outcomes, TopicDescription
from mirror.errors import BrokerError, KafkaError
from mirror.relay.batches.topic_config import TopicConfig, readable
from mirror.relay.progress.gaps import other_topic_text
from mirror.spark.ledger.topic_obstacles import Obstacle, TargetTopics, colliding, not_owned, unnameable
from mirror.spark.preflight import target_warnings, topic_compare
from mirror.spark.preflight.allowance import Allowance
from mirror.spark.preflight.flow_reconciler import config_rules
from mirror.spark.preflight.flow_topics import PROPAGATION_TIMEOUT_S, TOPIC_ALREADY_EXISTS
from mirror.spark.preflight.plan_items import creation, extension
from mirror.spark.preflight.portions import send_in_portions
from mirror.spark.preflight.refused_configs import without_refused

if TYPE_CHECKING:
    import uuid
    from collections.abc import Callable, Collection, Iterable
    from collections.abc import Set as AbstractSet

    from mirror.alignment.creations import CreationRecorder
    from mirror.config.models import FlowConfig
    from mirror.observation import Side, Sides

INVALID_TOPIC: Final = 17
"""Kafka's error code for a name that brokers refuse, also because it collides (``Errors.INVALID_TOPIC_EXCEPTION``)."""
INVALID_PARTITIONS: Final = 37
"""Kafka's error code for a topic that has as many partitions as requested, or more (``Errors.INVALID_PARTITIONS``)."""

_EACH_PARTITION_S: Final = 0.01
_LEAST_PAUSE_S: Final = 0.1
_HEARTBEAT_CONFIGS: Final = {"cleanup.policy": "compact", "max.message.bytes": str(64 * 1024)}
"""Of a topic that is copied whatever ``topics`` says: what its source sets is not asked. A heartbeat has 100 bytes."""

Planned = Mapping[tuple[str, str], Item]
"""What a plan has, by :attr:`Item.key`."""
Pairs = dict[str, tuple[TopicConfig, TopicConfig]]
"""Target topic -> its source's configuration, and its own one or the one that it would be created with."""


class Means(TypedDict, total=False):
    """What a run has for all its preparations."""

    recorder: CreationRecorder | None
    """Stores what is created."""
    on_throttled: Callable[[str], None]
    """Called with a line while a quota holds topics back."""
    owned: OwnedTopics
    """Says which of the topics that exist are the flow's; without it, those with progress are."""
    allowance: Allowance
    """What the run has created before."""
    check: Callable[[], object]
    """Called directly before each change; it raises if the flow may change nothing any more."""
    planned: Planned | None
    """What is created and extended, as a plan has it; None: all that is missing."""


class TopicPreparation:
    """One preparation of target topics; its fields are what was found and done, or would be with ``validate_only``."""

    def __init__(
        self,
        flow: FlowConfig,
        wanted: Mapping[str, TopicDescription],
        sides: Sides,
        means: Means,
        *,
        rivals: AbstractSet[str] | None = None,
        validate_only: bool = False,
    ) -> None:
        """Prepare the target topics of ``wanted``, which are source topics. Raises KafkaError.

        No new name may collide with those of ``rivals``; None: of all topics of the target. Brokers refuse others.
        """
        self.obstacles: Final[dict[str, Obstacle]] = unnameable(flow, wanted)
        """By source topic."""
        self.created: dict[str, NewTopic] = {}
        """By target topic."""
        self.extended: dict[str, int] = {}
        """The new partition count by target topic."""
        self.notes: Final[list[str]] = []
        """Lines about configurations with which topics are not created."""
        self._flow: Final = flow
        self._wanted: Final = wanted
        self._source: Final = sides.source
        self._target: Final = sides.target
        self._rivals: Final = rivals
        self._validate_only: Final = validate_only
        self._recorder: Final = None if validate_only else means.get("recorder")
        self._on_throttled: Final[Callable[[str], None]] = means.get("on_throttled", lambda _: None)
        self._owned: Final = means.get("owned") or OwnedTopics(flow.name, source_topic=flow.source_topic)
        self._allowance: Final = means.get("allowance") or Allowance()
        self._check: Final[Callable[[], object]] = bool if validate_only else means.get("check", bool)
        self._planned: Final = means.get("planned")
        self._ids: Final[dict[str, uuid.UUID]] = {}
        """Of the topics that were created."""
        self._standings: Final[dict[str, Standing]] = {}
        """Of the target topics that existed."""
        self._source_of: Final = {flow.target_topic(name): name for name in wanted if name not in self.obstacles}
        if rivals is None:
            self._target.topics  # noqa: B018 - read first: it describes those that are wanted, too
        self.existing: dict[str, TopicDescription] = self._described(self._target.describe(self._source_of))
        """The target topics that exist, by name."""
        self._create_missing()
        self._leave_others()
        self._extend()

    def targets(self) -> TargetTopics:
        """Return the result of the preparation, or the result that it would have."""
        counts = {name: len(topic.partitions) for name, topic in self.existing.items()}
        counts |= {name: topic.partitions for name, topic in self.created.items()} | self.extended
        made = {
            topic: min(counts[name], self._needed(topic)) for name, topic in self._source_of.items() if name in counts
        }
        obstacles = self._more_than_heartbeats() | self.obstacles
        made |= {topic: min(made.get(topic, 0), obstacle.first_partition) for topic, obstacle in obstacles.items()}
        return TargetTopics(
            copyable=made,
            obstacles=dict(sorted(obstacles.items())),
            on_source={name: len(topic.partitions) for name, topic in self._wanted.items()},
        )

    def compare(self, topics: Collection[str]) -> tuple[Pairs, list[str]]:
        """Return the configurations of both sides, and the warnings about ``topics`` of the source.

        A target topic that does not exist yet gets no warning, because only its creation shows its final configuration.
        Raises KafkaError.
        """
        flow, names = self._flow, {self._flow.target_topic(topic) for topic in topics}
        existing = {name: one for name, one in sorted(self.existing.items()) if name in names}
        configs = _configs(self._target, existing)
        of_new = {name: topic.configs for name, topic in self.created.items() if name not in existing}
        shown = [topic for topic in topics if flow.target_topic(topic) in configs.keys() | of_new.keys()]
        pairs = {
            name: (TopicConfig.of(found), TopicConfig.of(configs[name] if name in configs else of_new[name]))
            for topic, found in _configs(self._source, shown).items()
            for name in [flow.target_topic(topic)]
            if not flow.carries_only_heartbeats(topic)
        }
        counts = {flow.target_topic(name): len(topic.partitions) for name, topic in self._wanted.items()}
        of_existing = {name: pair for name, pair in pairs.items() if name in existing}
        return pairs, [
            *self.notes,
            *target_warnings.warnings(existing, configs, counts),
            *topic_compare.warnings(flow, of_existing),
        ]

    def _described(self, found: Outcomes[str, TopicDescription]) -> dict[str, TopicDescription]:
        for name, error in found.failed.items():
            if not isinstance(error, BrokerError):
                raise error  # the cluster does not answer
            self._add_obstacle(name, f"target topic {name} cannot be described: {error}; grant Describe on it")
        return found

    def _add_obstacle(self, name: str, reason: str, first: int = 0) -> None:
        """Record why target topic ``name`` cannot be copied into, from partition ``first`` on."""
        self.obstacles[self._source_of[name]] = Obstacle(" ".join(reason.split()), first)

    def _has(self, name: str) -> int:
        """Return how many partitions a target topic has."""
        return len(self.existing[name].partitions) if name in self.existing else 0

    def _needed(self, topic: str) -> int:
        """Return how many partitions the target topic of source topic ``topic`` needs."""
        return 1 if self._flow.carries_only_heartbeats(topic) else len(self._wanted[topic].partitions)

    def _create_missing(self) -> None:
        """Create the missing topics. A topic that another client creates at the same time is used as it is."""
        new = self._new_topics()
        if not new:
            return
        self._record_intents(new)
        failed = self._send(new)
        if accepted := self._without_refused_configs({name: new[name] for name in failed}, failed):
            failed = {name: error for name, error in failed.items() if name not in accepted} | self._send(accepted)
            new |= accepted
        created_by_others = {name for name, error in failed.items() if _code(error) == TOPIC_ALREADY_EXISTS}
        for name in failed.keys() - created_by_others:
            self._add_obstacle(
                name,
                f"target topic {name} cannot be created: {failed[name]}; correct the cause, or create the topic"
                f" yourself with {new[name].partitions} partitions",
            )
        if self._rivals is not None and (invalid := [name for name in failed if _code(failed[name]) == INVALID_TOPIC]):
            others = [self._source_of[name] for name in invalid]
            self.obstacles.update(colliding(self._flow, others, self._target.again().topics.keys()))
        self.created = {name: topic for name, topic in new.items() if name not in failed}
        counts = {name: topic.partitions for name, topic in self.created.items()}
        self._allowance.spend(_now_ms(), topics=len(counts), partitions=sum(counts.values()))
        if self._recorder is not None:
            self._recorder.confirm({name: self._ids[name] for name in self.created if name in self._ids})
            self.notes.extend(self._recorder.problems)
        self._await_metadata(counts | dict.fromkeys(created_by_others, 1))

    def _new_topics(self) -> dict[str, NewTopic]:
        """Return the topics to create."""
        flow = self._flow
        missing = [
            topic
            for name, topic in self._source_of.items()
            if name not in self.existing and topic not in self.obstacles
        ]
        if not missing:
            return {}
        rivals = self._rivals
        known = self._target.topics.keys() if rivals is None else rivals - {*map(flow.target_topic, missing)}
        self.obstacles.update(colliding(flow, missing, known))
        configs = self._source_configs([topic for topic in missing if topic not in self.obstacles])
        for topic, error in configs.failed.items():
            self._add_obstacle(
                flow.target_topic(topic),
                f"its target topic is to be created with the source topic's configuration, which cluster {flow.source}"
                f" does not show: {error}",
            )
        new = {topic.name: topic for topic in (self._new_topic(name, found) for name, found in configs.items())}
        new = self._of_plan(new)
        fitting = self._fitting({name: topic.partitions for name, topic in new.items()}, topics=True)
        return {name: topic for name, topic in new.items() if name in fitting}

    def _of_plan(self, new: dict[str, NewTopic]) -> dict[str, NewTopic]:
        """Return those of the ``new`` topics that the plan has, from the same facts.

        A plan has a topic without the configurations that the target refuses: these are found here once more.
        """
        planned = self._planned
        if planned is None:
            return new

        def items(topics: Mapping[str, NewTopic]) -> dict[str, Item]:
            return {name: creation(self._flow, one, self._source_topic(name)) for name, one in topics.items()}

        differ = {name: new[name] for name, one in items(new).items() if one != planned.get(one.key, one)}
        failed = self._send(differ, validate_only=True)
        new = new | self._without_refused_configs({name: differ[name] for name in failed}, failed)
        return {name: new[name] for name in self._only_planned(planned, items(new))}

    def _only_planned(self, planned: Planned, items: Mapping[str, Item]) -> list[str]:
        """Return those of the target topics whose items the plan has as they are; name the rest."""
        found = [name for name, one in items.items() if planned.get(one.key) == one]
        for name in items.keys() - set(found):
            self._add_obstacle(
                name, f"target topic {name} is not prepared: the plan does not have it so", self._has(name)
            )
        return found

    def _source_topic(self, name: str) -> TopicDescription:
        return self._wanted[self._source_of[name]]

    def _new_topic(self, topic: str, configs: Mapping[str, str]) -> NewTopic:
        """Return the target topic to create for source topic ``topic`` with its ``configs``."""
        only_heartbeats = self._flow.carries_only_heartbeats(topic)
        wanted = _HEARTBEAT_CONFIGS if only_heartbeats else config_rules(self._flow).wanted(configs)
        return NewTopic(self._flow.target_topic(topic), self._needed(topic), self._flow.replication_factor, wanted)

    def _fitting(self, new: Mapping[str, int], *, topics: bool) -> dict[str, int]:
        """Return those of the ``new`` partitions, by target topic, that the limits of the flow allow; name the rest."""
        fitting = self._allowance.fitting(self._flow, new, _now_ms(), topics=topics)
        for name in new.keys() - fitting.keys():
            self._add_obstacle(
                name,
                f"target topic {name} is to get {new[name]} new partitions, which is more than flow {self._flow.name}"
                f" may create within an hour (max-new-topics = {self._flow.max_new_topics}, max-partitions ="
                f" {self._flow.max_partitions}): check that the source is to have them, then raise the limit",
                first=self._has(name),
            )
        return fitting

    def _record_intents(self, new: Mapping[str, NewTopic]) -> None:
        """Store which topics are about to be created. Brokers without topic ids cannot show which were."""
        if self._recorder is None:
            return
        cluster_id = self._source.cluster.cluster_id or ""
        sources = {name: self._wanted[self._source_of[name]] for name in new}
        self._recorder.intend(
            {
                name: SourceTopic(name=found.name, topic_id=str(found.topic_id), cluster_id=cluster_id)
                for name, found in sources.items()
                if found.topic_id is not None and cluster_id
            }
        )

    def _source_configs(self, topics: list[str]) -> Outcomes[str, dict[str, str]]:
        if self._flow.configs == "off":
            return Outcomes({topic: {} for topic in topics}, {})
        return self._source.own_configs(topics)

    def _send(self, new: Mapping[str, NewTopic], *, validate_only: bool = False) -> dict[str, KafkaError]:
        """Create topics; return the errors by topic."""
        validates = validate_only or self._validate_only
        return send_in_portions(
            {name: 1 + topic.partitions + len(topic.configs) for name, topic in new.items()},
            lambda names: self._create([new[name] for name in names], validate_only=validates),
            on_throttled=self._note_throttled,
        )

    def _create(self, topics: list[NewTopic], *, validate_only: bool) -> Outcomes[str, uuid.UUID | None]:
        if not validate_only:
            self._check()
        found = self._target.admin.create_topics(topics, partial=True, validate_only=validate_only)
        if not validate_only:
            self._ids.update({name: topic_id for name, topic_id in found.items() if topic_id is not None})
        return found

    def _note_throttled(self, topics: int) -> None:
        self._on_throttled(
            f"cluster {self._flow.target} throttles this client: {topics:,} topics are still to be created or extended"
            " (quota controller_mutation_rate)"
        )

    def _without_refused_configs(
        self, topics: Mapping[str, NewTopic], errors: Mapping[str, KafkaError]
    ) -> dict[str, NewTopic]:
        """Return those of ``topics`` that the target would create without the configurations that it refuses."""
        accepted = {}
        for name, topic in topics.items():
            found = without_refused(
                topic,
                errors[name],
                lambda wanted: self._send({wanted.name: wanted}, validate_only=True).get(wanted.name),
            )
            if found is not None:
                accepted[name], lines = found
                self.notes.extend(f"target topic {line}" for line in lines)
        return accepted

    def _leave_others(self) -> None:
        """Make obstacles of the topics that exist and are not the flow's, as far as they cannot be copied into."""
        self._owned.add({name: one for name, one in self.existing.items() if name in self.created})
        others = {name: one for name, one in self.existing.items() if name not in self.created}
        self._standings.update(self._owned.standings(self._target.admin, others))
        for name, standing in self._standings.items():
            topic = self._source_of[name]
            other = self._owned.other_sources.get(name)
            if other is not None and not self._flow.start_over:
                self._add_obstacle(name, other_topic_text(other, topic, name))
                continue
            found = not_owned(self._flow, name, standing, has=self._has(name), needed=self._needed(topic))
            if found is not None:
                self.obstacles[topic] = found

    def _extend(self) -> None:
        """Add partitions to topics that have fewer than their source. Another client may do so at the same time."""
        lacking = {
            name: self._needed(topic)
            for name, topic in self._source_of.items()
            if name in self.existing and self._has(name) < self._needed(topic)
            if self._standings.get(name, Standing.OWNED) is Standing.OWNED
        }
        if self._planned is not None:
            items = {
                name: extension(self._flow, self.existing[name], count, self._source_topic(name))
                for name, count in lacking.items()
            }
            lacking = {name: lacking[name] for name in self._only_planned(self._planned, items)}
        fitting = self._fitting({name: count - self._has(name) for name, count in lacking.items()}, topics=False)
        if not fitting:
            return
        failed = send_in_portions(
            fitting,
            lambda names: self._add_partitions({name: lacking[name] for name in names}),
            on_throttled=self._note_throttled,
        )
        refused = {name: error for name, error in failed.items() if _code(error) != INVALID_PARTITIONS}
        for name, error in refused.items():
            self._add_obstacle(
                name,
                f"target topic {name} has {self._has(name)} partitions and cannot be extended to {lacking[name]}:"
                f" {error}; correct the cause, or add the partitions yourself",
                first=self._has(name),
            )
        self.extended = {name: lacking[name] for name in fitting if name not in refused}
        self._allowance.spend(_now_ms(), topics=0, partitions=sum(fitting[name] for name in self.extended))
        self._await_metadata(self.extended)

    def _add_partitions(self, totals: Mapping[str, int]) -> Outcomes[str, None]:
        self._check()
        return self._target.admin.create_partitions(totals, partial=True, validate_only=self._validate_only)

    def _await_metadata(self, expected: Mapping[str, int]) -> None:
        """Describe target topics until the brokers return the partition counts that the controller has just created.

        Brokers take their time for many partitions, and show some before others: a broker on two busy cores made 3,620
        of 10,000 partitions in the first 15 s, and the others later.
        """
        if self._validate_only:
            return
        lacking = dict(expected)
        patience_s = PROPAGATION_TIMEOUT_S + sum(expected.values()) * _EACH_PARTITION_S
        give_up_s = time.monotonic() + patience_s
        while lacking:
            before, began_s = len(lacking), time.monotonic()
            self.existing |= self._described(self._target.admin.describe_topics(lacking, partial=True))
            lacking = {
                name: count
                for name, count in lacking.items()
                if self._source_of[name] not in self.obstacles
                and (name not in self.existing or self._has(name) < count)
            }
            now_s = time.monotonic()
            if len(lacking) < before:
                give_up_s = now_s + patience_s
            if now_s > give_up_s:
                break
            if lacking:
                time.sleep(max(_LEAST_PAUSE_S, now_s - began_s))  # to describe many keeps a broker from creating them
        for name in lacking:
            self._add_obstacle(
                name,
                f"target topic {name} has {self._has(name)} partitions {patience_s:.0f} s after {lacking[name]} were"
                " created; find out what deletes it",
                first=self._has(name),
            )

    def _more_than_heartbeats(self) -> dict[str, Obstacle]:
        """Return the obstacles of partitions that no heartbeats are in: the first one is prepared and copied."""
        return {
            name: Obstacle("a topic that is copied for its heartbeats alone has one partition", 1)
            for name, topic in self._wanted.items()
            if self._flow.carries_only_heartbeats(name) and len(topic.partitions) > 1
        }


def _now_ms() -> int:
    return int(time.monotonic() * 1000)


def _code(error: KafkaError) -> int | None:
    return error.code if isinstance(error, BrokerError) else None


def _configs(side: Side, topics: Iterable[str]) -> dict[str, dict[str, str]]:
    """Return each topic's configuration, with its brokers' defaults.

    Leaves out topics whose configuration the brokers do not show: these are not compared. If a topic is to be created,
    the creation reports the missing permission.
    """
    return {name: readable(entries) for name, entries in side.configs(topics).items()}
