"""Prepare the target topics before anything is copied: create them, add partitions, check their configuration."""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from mirror.alignment.deletions.records import SourceTopic
from mirror.alignment.owned_topics import OwnedTopics
from mirror.alignment.ownership import Standing
from mirror.client import Admin, ConfigResource, NewTopic, Outcomes, TopicDescription
from mirror.errors import BrokerError, KafkaError
from mirror.relay.batches.topic_config import TopicConfig, readable
from mirror.spark.ledger.obstacles import Obstacle, TargetTopics, colliding, not_owned, too_long
from mirror.spark.planning import broker_retention
from mirror.spark.planning.range_planner import select_topics
from mirror.spark.preflight import flow_topics, target_warnings, topic_compare
from mirror.spark.preflight.allowance import Allowance
from mirror.spark.preflight.flow_alignment import config_rules
from mirror.spark.preflight.flow_topics import PROPAGATION_TIMEOUT_S, TOPIC_ALREADY_EXISTS
from mirror.spark.preflight.portions import send_in_portions
from mirror.spark.preflight.refused_configs import without_refused

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from mirror.alignment.deletions.creations import CreationRecorder
    from mirror.config.models import FlowConfig

INVALID_TOPIC: Final = 17
"""Kafka's error code for a name that brokers refuse, also because it collides (``Errors.INVALID_TOPIC_EXCEPTION``)."""
INVALID_PARTITIONS: Final = 37
"""Kafka's error code for a topic that has as many partitions as requested, or more (``Errors.INVALID_PARTITIONS``)."""

_EACH_PARTITION_S: Final = 0.01
_LEAST_PAUSE_S: Final = 0.1

_HEARTBEAT_CONFIGS: Final = {"cleanup.policy": "compact", "max.message.bytes": str(64 * 1024)}
"""Of a topic that is copied whatever ``topics`` says: what its source sets is not asked. A heartbeat has 100 bytes."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """The result of :func:`prepare_topics`; ``warnings`` are lines."""

    targets: TargetTopics
    warnings: list[str]
    created: dict[str, dict[str, str]]
    """The configurations of the target topics that were created, by topic."""
    own: tuple[str, ...] = ()
    """The topics that the flow itself writes, and that were created on the target."""
    own_on_source: tuple[str, ...] = ()


def prepare_topics(
    flow: FlowConfig,
    source: Admin,
    target: Admin,
    recorder: CreationRecorder | None = None,
    on_throttled: Callable[[str], None] = lambda _: None,
    owned: OwnedTopics | None = None,
    allowance: Allowance | None = None,
) -> Prepared:
    """Prepare every target topic of ``flow``, and the topics that it writes itself on both clusters. Idempotent.

    A missing topic is created with the source topic's partition count, with the configuration that the flow's
    ``configs`` keys select, and with the flow's replication factor. A topic of the flow with fewer partitions than its
    source is extended. A topic that cannot be prepared becomes an obstacle, and does not stop the other topics.

    The warnings also say what the two configurations will do to the records. ``recorder`` stores what is created;
    ``on_throttled`` is called with a line while a quota holds topics back. ``owned`` says which of the topics that
    exist are the flow's; without it, those with progress are. ``allowance`` is what the run has created before.

    Raises FlowError if no topic matches, and KafkaError if a cluster cannot be read.
    """
    # First, because heartbeats are copied, too.
    new_on_source, on_source = flow_topics.prepare(flow_topics.on_source(flow), source)
    topics = source.list_topics()
    wanted = {name: topics[name] for name in select_topics(flow, topics)}
    new_own, own = flow_topics.prepare(flow_topics.on_target(flow), target)  # before what is recorded there
    preparation = _Preparation(flow, wanted, source, target, recorder, on_throttled, owned, allowance)
    preparation.create()
    preparation.leave_others()
    preparation.extend()
    targets = preparation.targets()
    copyable = [name for name, count in targets.copyable.items() if count]
    warnings = [*preparation.warnings(copyable), *own, *on_source, *broker_retention.warnings(flow, target)]
    created = {name: topic.configs for name, topic in preparation.created.items()}
    return Prepared(targets, warnings, created, _names(new_own), _names(new_on_source))


def _names(topics: Iterable[NewTopic]) -> tuple[str, ...]:
    return tuple(topic.name for topic in topics)


def prepare_own_topics(flow: FlowConfig, source: Admin, target: Admin) -> list[str]:
    """Prepare the topics that ``flow`` writes itself on both clusters, and return the warnings. Raises KafkaError."""
    _, on_source = flow_topics.prepare(flow_topics.on_source(flow), source)
    _, on_target = flow_topics.prepare(flow_topics.on_target(flow), target)
    return [*on_target, *on_source]


def prepare_new_topics(
    flow: FlowConfig,
    source: Admin,
    target: Admin,
    before: TargetTopics,
    topics: Mapping[str, TopicDescription],
    recorder: CreationRecorder | None = None,
    on_throttled: Callable[[str], None] = lambda _: None,
    owned: OwnedTopics | None = None,
    allowance: Allowance | None = None,
) -> Prepared:
    """Prepare the target topics of these source ``topics``, which ``flow`` copies, as :func:`prepare_topics` does.

    The result has all other topics as the preparation ``before`` has them. Raises KafkaError.
    """
    preparation = _Preparation(flow, topics, source, target, recorder, on_throttled, owned, allowance)
    # To list all topics of the target costs more than all else; brokers refuse collisions with others than the flow's.
    preparation.create(rivals={flow.target_topic(name) for name in before.copyable})
    preparation.leave_others()
    preparation.extend()
    targets = preparation.targets().beside(before)
    created = {name: topic.configs for name, topic in preparation.created.items()}
    new = [name for name in topics if targets.copyable.get(name) and not before.copyable.get(name)]
    return Prepared(targets, preparation.warnings(new), created)


@dataclass(frozen=True, slots=True)
class TargetTopicsForecast:
    """What :func:`prepare_topics` would find and do."""

    changes: list[str]
    """Lines about topics that would be created or extended on the target."""
    source_changes: list[str]
    """Lines about topics that would be created on the source."""
    warnings: list[str]
    pairs: dict[str, tuple[TopicConfig, TopicConfig]]
    """Target topic -> its source's configuration, and its own one or the one that it would be created with."""
    existing: Mapping[str, TopicDescription]
    """The target topics that exist."""
    targets: TargetTopics


def inspect_topics(
    flow: FlowConfig,
    wanted: Mapping[str, TopicDescription],
    source: Admin,
    target: Admin,
    owned: OwnedTopics | None = None,
) -> TargetTopicsForecast:
    """Read both clusters' topics and change nothing: the brokers only validate what would be created.

    A topic that does not exist yet gets no warning, because only its creation shows its final configuration. Raises
    KafkaError.
    """
    preparation = _Preparation(flow, wanted, source, target, owned=owned)
    preparation.create(validate_only=True)
    preparation.leave_others()
    preparation.extend(validate_only=True)
    existing, created = preparation.existing, preparation.created
    configs = _configs(target, sorted(existing))
    pairs = {
        name: (TopicConfig.of(found), TopicConfig.of(configs[name] if name in configs else created[name].configs))
        for topic, found in _configs(source, list(wanted)).items()
        for name in [flow.target_topic(topic)]
        if (name in configs or name in created) and not flow.carries_only_heartbeats(topic)
    }
    on_source, source_warnings = flow_topics.prepare(flow_topics.on_source(flow), source, validate_only=True)
    own, own_warnings = flow_topics.prepare(flow_topics.on_target(flow), target, validate_only=True)
    changes = [
        *(flow_topics.creation(topic) for topic in created.values()),
        *(
            f"topic {name} gets {count} partitions (now {len(existing[name].partitions)})"
            for name, count in preparation.extended.items()
        ),
        *map(flow_topics.creation, own),
    ]
    targets = preparation.targets()
    copyable = {flow.target_topic(name) for name, count in targets.copyable.items() if count}
    used = {name: topic for name, topic in existing.items() if name in copyable}
    warnings = [
        *preparation.notes,
        *target_warnings.warnings(used, configs, _partition_counts(flow, wanted)),
        *topic_compare.warnings(flow, {name: pair for name, pair in pairs.items() if name in used}),
        *own_warnings,
        *source_warnings,
        *broker_retention.warnings(flow, target),
    ]
    return TargetTopicsForecast(
        changes,
        [*map(flow_topics.creation, on_source)],
        warnings,
        pairs,
        existing,
        targets,
    )


class _Preparation:
    """The preparation of one flow's target topics."""

    def __init__(
        self,
        flow: FlowConfig,
        wanted: Mapping[str, TopicDescription],
        source: Admin,
        target: Admin,
        recorder: CreationRecorder | None = None,
        on_throttled: Callable[[str], None] = lambda _: None,
        owned: OwnedTopics | None = None,
        allowance: Allowance | None = None,
    ) -> None:
        """``wanted`` are the source topics that the flow copies."""
        self.obstacles: Final[dict[str, Obstacle]] = too_long(flow, wanted)
        """By source topic."""
        self.created: dict[str, NewTopic] = {}
        """By target topic."""
        self.extended: dict[str, int] = {}
        """The new partition count by target topic."""
        self.notes: list[str] = []
        """Lines about configurations with which topics are not created."""
        self._flow: Final = flow
        self._wanted: Final = wanted
        self._source: Final = source
        self._target: Final = target
        self._recorder: Final = recorder
        self._on_throttled: Final = on_throttled
        self._owned: Final = owned or OwnedTopics(flow.name)
        self._allowance: Final = allowance or Allowance()
        self._ids: Final[dict[str, uuid.UUID]] = {}
        """Of the topics that were created."""
        self._standings: Final[dict[str, Standing]] = {}
        """Of the target topics that existed."""
        self._source_of: Final = {flow.target_topic(name): name for name in wanted if name not in self.obstacles}
        self.existing: dict[str, TopicDescription] = self._describe(self._source_of)
        """The target topics that exist, by name."""

    def _describe(self, names: Iterable[str]) -> dict[str, TopicDescription]:
        found = self._target.describe_topics(names, partial=True)
        for name, error in found.failed.items():
            if not isinstance(error, BrokerError):
                raise error  # the cluster does not answer
            self._add_obstacle(name, f"target topic {name} cannot be described: {error}; grant Describe on it")
        return found

    def _add_obstacle(self, name: str, reason: str, first: int = 0) -> None:
        """Record why target topic ``name`` cannot be copied into, from partition ``first`` on."""
        self.obstacles[self._source_of[name]] = Obstacle(" ".join(reason.split()), first)

    def create(self, *, validate_only: bool = False, rivals: AbstractSet[str] | None = None) -> None:
        """Create the missing topics. A topic that another client creates at the same time is used as it is.

        No name may collide with those of ``rivals``; None: of all topics of the target. Brokers refuse others.
        """
        missing = [
            topic
            for name, topic in self._source_of.items()
            if name not in self.existing and topic not in self.obstacles
        ]
        if not missing:
            return
        flow = self._flow
        known = self._target.list_topics().keys() if rivals is None else rivals - {*map(flow.target_topic, missing)}
        self.obstacles.update(colliding(flow, missing, known))
        configs = self._source_configs([topic for topic in missing if topic not in self.obstacles])
        for topic, error in configs.failed.items():
            self._add_obstacle(
                flow.target_topic(topic),
                f"its target topic is to be created with the source topic's configuration, which cluster {flow.source}"
                f" does not show: {error}",
            )
        new = {topic.name: topic for topic in (self._new_topic(name, found) for name, found in configs.items())}
        fitting = self._fitting({name: topic.partitions for name, topic in new.items()}, topics=True)
        new = {name: topic for name, topic in new.items() if name in fitting}
        if not new:
            return
        if not validate_only:
            self._record_intents(new)
        failed = self._send(new, validate_only=validate_only)
        if accepted := self._without_refused_configs({name: new[name] for name in failed}, failed):
            failed = {name: error for name, error in failed.items() if name not in accepted}
            failed |= self._send(accepted, validate_only=validate_only)
            new |= accepted
        created_by_others = {name for name, error in failed.items() if _code(error) == TOPIC_ALREADY_EXISTS}
        for name in failed.keys() - created_by_others:
            self._add_obstacle(
                name,
                f"target topic {name} cannot be created: {failed[name]}; correct the cause, or create the topic"
                f" yourself with {new[name].partitions} partitions",
            )
        if rivals is not None and (invalid := [name for name in failed if _code(failed[name]) == INVALID_TOPIC]):
            others = [self._source_of[name] for name in invalid]
            self.obstacles.update(colliding(flow, others, self._target.list_topics().keys()))
        self.created = {name: topic for name, topic in new.items() if name not in failed}
        self._spend(self.created.keys(), {name: topic.partitions for name, topic in self.created.items()})
        if not validate_only:
            if self._recorder is not None:
                self._recorder.confirm({name: self._ids[name] for name in self.created if name in self._ids})
                self.notes += self._recorder.problems
            expected = {name: topic.partitions for name, topic in self.created.items()}
            self._await_metadata(expected | dict.fromkeys(created_by_others, 1))

    def _fitting(self, new: Mapping[str, int], *, topics: bool) -> dict[str, int]:
        """Return those of the ``new`` partitions, by target topic, that the limits of the flow allow; name the rest."""
        fitting = self._allowance.fitting(self._flow, new, _now_ms(), topics=topics)
        for name in new.keys() - fitting.keys():
            has = len(self.existing[name].partitions) if name in self.existing else 0
            self._add_obstacle(
                name,
                f"target topic {name} is to get {new[name]} new partitions, which is more than flow {self._flow.name}"
                f" may create within an hour (max-new-topics = {self._flow.max_new_topics}, max-partitions ="
                f" {self._flow.max_partitions}): check that the source is to have them, then raise the limit",
                first=has,
            )
        return fitting

    def _spend(self, topics: Collection[str], partitions: Mapping[str, int]) -> None:
        self._allowance.spend(_now_ms(), topics=len(topics), partitions=sum(partitions.values()))

    def leave_others(self) -> None:
        """Make obstacles of the topics that exist and are not the flow's, as far as they cannot be copied into."""
        self._owned.add({name: one for name, one in self.existing.items() if name in self.created})
        others = {name: one for name, one in self.existing.items() if name not in self.created}
        for name, standing in self._owned.standings(self._target, others).items():
            self._standings[name] = standing
            topic = self._source_of[name]
            has, needed = len(others[name].partitions), self._needed(topic)
            if (found := not_owned(self._flow, name, standing, has=has, needed=needed)) is not None:
                self.obstacles[topic] = found

    def _record_intents(self, new: Mapping[str, NewTopic]) -> None:
        """Store which topics are about to be created. Brokers without topic ids cannot show which were."""
        if self._recorder is None:
            return
        cluster_id = self._source.describe_cluster().cluster_id or ""
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
        return self._source.describe_topic_configs(topics, partial=True)

    def _send(self, new: Mapping[str, NewTopic], *, validate_only: bool) -> dict[str, KafkaError]:
        """Create topics; return the errors by topic."""
        return send_in_portions(
            {name: 1 + topic.partitions + len(topic.configs) for name, topic in new.items()},
            lambda names: self._create([new[name] for name in names], validate_only=validate_only),
            on_throttled=self._note_throttled,
        )

    def _note_throttled(self, topics: int) -> None:
        self._on_throttled(
            f"cluster {self._flow.target} throttles this client: {topics:,} topics are still to be created or extended"
            " (quota controller_mutation_rate)"
        )

    def _create(self, topics: list[NewTopic], *, validate_only: bool) -> Outcomes[str, uuid.UUID | None]:
        found = self._target.create_topics(topics, partial=True, validate_only=validate_only)
        if not validate_only:
            self._ids.update({name: topic_id for name, topic_id in found.items() if topic_id is not None})
        return found

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
                self.notes += [f"target topic {line}" for line in lines]
        return accepted

    def _new_topic(self, topic: str, configs: Mapping[str, str]) -> NewTopic:
        """Return the target topic to create for source topic ``topic`` with its ``configs``."""
        return NewTopic(
            self._flow.target_topic(topic),
            self._needed(topic),
            self._flow.replication_factor,
            _HEARTBEAT_CONFIGS
            if self._flow.carries_only_heartbeats(topic)
            else config_rules(self._flow).wanted(configs),
        )

    def _needed(self, topic: str) -> int:
        """Return how many partitions the target topic of source topic ``topic`` needs."""
        return 1 if self._flow.carries_only_heartbeats(topic) else len(self._wanted[topic].partitions)

    def extend(self, *, validate_only: bool = False) -> None:
        """Add partitions to topics that have fewer than their source. Another client may do so at the same time."""
        lacking = {
            name: count
            for name, topic in self._source_of.items()
            for count in [self._needed(topic)]
            if name in self.existing and len(self.existing[name].partitions) < count
            if self._standings.get(name, Standing.OWNED) is Standing.OWNED
        }
        more = {name: count - len(self.existing[name].partitions) for name, count in lacking.items()}
        fitting = self._fitting(more, topics=False)
        lacking = {name: count for name, count in lacking.items() if name in fitting}
        if not lacking:
            return
        failed = send_in_portions(
            fitting,
            lambda names: self._target.create_partitions(
                {name: lacking[name] for name in names}, partial=True, validate_only=validate_only
            ),
            on_throttled=self._note_throttled,
        )
        refused = {name: error for name, error in failed.items() if _code(error) != INVALID_PARTITIONS}
        for name, error in refused.items():
            count = len(self.existing[name].partitions)
            self._add_obstacle(
                name,
                f"target topic {name} has {count} partitions and cannot be extended to {lacking[name]}: {error};"
                " correct the cause, or add the partitions yourself",
                first=count,
            )
        self.extended = {name: count for name, count in lacking.items() if name not in refused}
        self._spend((), {name: fitting[name] for name in self.extended})
        if not validate_only:
            self._await_metadata(self.extended)

    def _await_metadata(self, expected: Mapping[str, int]) -> None:
        """Describe target topics until the brokers return the partition counts that the controller has just created.

        Brokers take their time for many partitions, and show some before others: see :func:`_patience_s`.
        """
        lacking, patience_s = dict(expected), _patience_s(expected)
        give_up_s = time.monotonic() + patience_s
        while lacking:
            before, began_s = len(lacking), time.monotonic()
            self.existing = {**self.existing, **self._describe(lacking)}
            lacking = {
                name: count
                for name, count in lacking.items()
                if self._source_of[name] not in self.obstacles
                and (name not in self.existing or len(self.existing[name].partitions) < count)
            }
            now_s = time.monotonic()
            if len(lacking) < before:
                give_up_s = now_s + patience_s
            if now_s > give_up_s:
                break
            if lacking:
                time.sleep(max(_LEAST_PAUSE_S, now_s - began_s))  # to describe many keeps a broker from creating them
        for name in lacking:
            count = len(self.existing[name].partitions) if name in self.existing else 0
            self._add_obstacle(
                name,
                f"target topic {name} has {count} partitions {patience_s:.0f} s after {lacking[name]} were created;"
                " find out what deletes it",
                first=count,
            )

    def targets(self) -> TargetTopics:
        """Return the result of the preparation, or the result that it would have."""
        counts = {name: len(topic.partitions) for name, topic in self.existing.items()}
        counts |= {name: topic.partitions for name, topic in self.created.items()} | self.extended
        made = {
            topic: min(counts[name], self._needed(topic)) for name, topic in self._source_of.items() if name in counts
        }
        obstacles = self._more_than_heartbeats() | self.obstacles
        made |= {topic: min(made.get(topic, 0), obstacle.first_partition) for topic, obstacle in obstacles.items()}
        return TargetTopics(copyable=made, obstacles=dict(sorted(obstacles.items())))

    def _more_than_heartbeats(self) -> dict[str, Obstacle]:
        """Return the obstacles of partitions that no heartbeats are in: the first one is prepared and copied."""
        return {
            name: Obstacle("a topic that is copied for its heartbeats alone has one partition", 1)
            for name, topic in self._wanted.items()
            if self._flow.carries_only_heartbeats(name) and len(topic.partitions) > 1
        }

    def warnings(self, topics: Sequence[str]) -> list[str]:
        """Return the warnings about these source topics, whose target topics exist."""
        flow = self._flow
        existing = {name: self.existing[name] for name in sorted(flow.target_topic(topic) for topic in topics)}
        configs = _configs(self._target, list(existing))
        sources = _configs(self._source, topics)
        pairs = {
            name: (TopicConfig.of(found), TopicConfig.of(configs[name]))
            for topic, found in sources.items()
            for name in [flow.target_topic(topic)]
            if name in configs and not flow.carries_only_heartbeats(topic)
        }
        return [
            *self.notes,
            *target_warnings.warnings(existing, configs, _partition_counts(flow, self._wanted)),
            *topic_compare.warnings(flow, pairs),
        ]


def _patience_s(expected: Mapping[str, int]) -> float:
    """Return how long none of the ``expected`` partitions may appear before they are given up, in seconds.

    A broker on two busy cores made 3,620 of 10,000 partitions in the first 15 s, and the others later.
    """
    return PROPAGATION_TIMEOUT_S + sum(expected.values()) * _EACH_PARTITION_S


def _now_ms() -> int:
    return int(time.monotonic() * 1000)


def _code(error: KafkaError) -> int | None:
    return error.code if isinstance(error, BrokerError) else None


def _configs(admin: Admin, topics: Sequence[str]) -> dict[str, dict[str, str]]:
    """Return each topic's configuration, with its brokers' defaults.

    Leaves out topics whose configuration the brokers do not show: these are not compared. If a topic is to be created,
    the creation reports the missing permission.
    """
    if not topics:
        return {}
    found = admin.describe_configs([ConfigResource.topic(name) for name in topics], partial=True)
    return {resource.name: readable(entries) for resource, entries in found.items()}


def _partition_counts(flow: FlowConfig, wanted: Mapping[str, TopicDescription]) -> dict[str, int]:
    """Return the partition count of the source of each target topic."""
    return {flow.target_topic(name): len(topic.partitions) for name, topic in wanted.items()}
