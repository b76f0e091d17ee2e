"""Begins the registry of a cluster, and reads it."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Collection, Mapping
from typing import Final, Literal

from mirror.client import LATEST, Admin, ConfigResource, TopicPartition
from mirror.closing import Closing
from mirror.consumer.fetched import Fetched
from mirror.errors import FlowError, KafkaError, NotRetriable
from mirror.relay.batches.reencode_decision import IsForeign
from mirror.relay.batches.topic_config import readable
from mirror.relay.model.policy import CopyPolicy
from mirror.relay.origin import records
from mirror.relay.origin.records import REGISTRY_TOPIC, LogKey, Origins, Registry, SourceRegistry
from mirror.relay.origin.registry_log import ReadEnd, check_kept, read_end, read_ends
from mirror.relay.progress.flow_topic import FlowTopic, KeyValue
from mirror.relay.progress.followed_topic import FollowedTopic
from mirror.runtime.clock import SystemClock
from mirror.timing import Timer
from mirror.wire.records import AnyBatch

Side = Literal["target", "source"]

_UNCLEAN_ELECTION: Final = "unclean.leader.election.enable"


def registry_topic(options: Mapping[str, object]) -> FlowTopic:
    """Return the registry of the cluster that ``options`` (dotted keys) connect to. Raises ConfigError."""
    return FlowTopic(options, REGISTRY_TOPIC)


def read_registry(topic: FlowTopic, timeout_ms: int, flow: str = "") -> Registry:
    """Return what the registry says; nothing if it does not exist. Raises KafkaError, KafkaTimeout.

    ``flow`` is that of :attr:`.Registry.ids_of_flow` and :attr:`.Registry.whole`.
    """
    registry = Registry(flow)
    for record in topic.records(Timer(SystemClock(), timeout_ms)):
        registry.add(record.key, record.value)
    return registry


def begin_registry(topic: FlowTopic, admin: Admin, timeout_ms: int) -> tuple[Registry, bool]:
    """Begin the registry, whose topic exists, unless it has begun; return what it says, and whether it was begun here.

    Several processes may do so at the same time: the first one counts (:meth:`Registry.add`). Raises KafkaError.
    """
    registry = read_registry(topic, timeout_ms)
    if registry.has_begun:
        return registry, False
    ids = {
        TopicPartition(name, partition.partition): str(found.topic_id or "")
        for name, found in admin.list_topics(timeout_ms=timeout_ms).items()
        for partition in found.partitions
        if not (found.internal or name == REGISTRY_TOPIC)
    }
    ends = admin.list_offsets(dict.fromkeys(ids, LATEST), isolation="read_uncommitted", timeout_ms=timeout_ms)
    log_ends = {LogKey.of(tp, ids[tp]): found.offset for tp, found in ends.items() if found.offset > 0}
    beginning = str(uuid.uuid4())
    write_records(topic, records.log_end_records(beginning, log_ends), timeout_ms)
    write_records(topic, [records.began_record(beginning, SystemClock().unix_ms())], timeout_ms)
    return read_registry(topic, timeout_ms), True


def prepare_registries(
    flow: str, source_options: Mapping[str, object], target_options: Mapping[str, object], *, only_local: bool
) -> list[Side]:
    """Begin the registries that a flow needs, whose topics exist, and keep which one it reads on its source.

    Return the sides whose registry was begun. Raises KafkaError, and FlowError if one is another than before, does not
    exist, or does not keep its records.
    """
    on_target = registry_topic(target_options)
    timeout_ms = on_target.settings.default_api_timeout_ms
    with Admin(on_target.options) as target:
        _check_topic(target, "target", timeout_ms)
        found, is_new = begin_registry(on_target, target, timeout_ms)
    begun: list[Side] = ["target"] if is_new else []
    if not only_local:
        return begun
    on_source, expected = registry_topic(source_options), found.sources.get(flow)
    with Admin(on_source.options) as source:
        topic = source.describe_topics([REGISTRY_TOPIC], timeout_ms=timeout_ms).get(REGISTRY_TOPIC)
        topic_id = "" if topic is None else str(topic.topic_id or "")
        if expected is not None and expected.topic_id != topic_id:
            raise FlowError(str(_replaced_error(expected, topic_id)))
        _check_topic(source, "source", timeout_ms)
        _, is_new = begin_registry(on_source, source, timeout_ms)
        begun += ["source"] if is_new else []
        end = read_end(source, on_source, timeout_ms)
        try:
            end = check_kept(source, on_source, _read_end_of(expected), end.offset, timeout_ms)
        except NotRetriable as error:
            raise FlowError(str(error)) from error
        cluster_id = source.describe_cluster(timeout_ms=timeout_ms).cluster_id
    known = SourceRegistry(cluster_id, topic_id, end.offset, end.leader_epoch)
    if known != expected:
        write_records(on_target, [records.source_record(flow, known)], timeout_ms)
    return begun


def _read_end_of(known: SourceRegistry | None) -> ReadEnd:
    return ReadEnd() if known is None else ReadEnd(known.offset, known.leader_epoch)


def _check_topic(admin: Admin, side: str, timeout_ms: int) -> None:
    if REGISTRY_TOPIC not in admin.describe_topics([REGISTRY_TOPIC], timeout_ms=timeout_ms):
        raise FlowError(f"{REGISTRY_TOPIC} of the {side} does not exist, and could not be created")
    topic = ConfigResource.topic(REGISTRY_TOPIC)
    configs = readable(admin.describe_configs([topic], timeout_ms=timeout_ms)[topic])
    if (policy := configs.get("cleanup.policy", "delete")) != "compact":
        raise FlowError(
            f"{REGISTRY_TOPIC} of the {side} has cleanup.policy = {policy}: without the producer ids that are deleted"
            " there, flows would copy back what flows have written; set cleanup.policy = compact"
        )
    if configs.get(_UNCLEAN_ELECTION) == "true":
        raise FlowError(
            f"{REGISTRY_TOPIC} of the {side} has {_UNCLEAN_ELECTION} = true: without the producer ids that an unclean"
            f" election may lose, flows would copy back what flows have written; set {_UNCLEAN_ELECTION} = false"
        )


def write_records(topic: FlowTopic, items: Collection[KeyValue], timeout_ms: int) -> None:
    """Write all ``items``. Raises the KafkaError of one that may not have been written."""
    for error in topic.write({item.key: item for item in items}, timeout_ms).values():
        raise error


def open_origin(
    flow: str,
    source_options: Mapping[str, object],
    target_options: Mapping[str, object],
    policy: CopyPolicy,
    timeout_ms: int,
) -> LocalOrigin | None:
    """Return what decides the origin of a flow's records, once it has read the registry; None if all are copied.

    Raises KafkaError, and FlowError if the flow has not been prepared.
    """
    if not policy.only_local:
        return None
    expected = read_registry(registry_topic(target_options), timeout_ms).sources.get(flow)
    if expected is None:
        raise FlowError(f"origin-unknown: {REGISTRY_TOPIC} of the target does not say which registry {flow} reads")
    origin = LocalOrigin(flow, source_options, expected, origin_from=policy.origin_from, timeout_ms=timeout_ms)
    try:
        origin.decide(())  # records without a producer id need no decision, but the ends of the logs
    except BaseException:
        origin.close()
        raise
    return origin


class LocalOrigin(Closing):
    """Decides what was produced on a flow's source; reads the registry there. Thread-safe."""

    def __init__(
        self,
        flow: str,
        source_options: Mapping[str, object],
        expected: SourceRegistry,
        *,
        origin_from: str,
        timeout_ms: int,
    ) -> None:
        """``expected`` is the registry that the flow has read before. Raises ConfigError."""
        self._topic: Final = registry_topic(source_options)
        self._followed: Final = FollowedTopic(self._topic)
        self._admin: Final = Admin(self._topic.options)
        self._key: Final = (self._topic.settings, expected.topic_id)
        self._read_end = read_ends.furthest(self._key, _read_end_of(expected))
        self._expected: Final = expected
        self._timeout_ms: Final = timeout_ms
        self._clock: Final = SystemClock()
        self._origins: Final = Origins(origin_from, flow)
        self._lock: Final = threading.Lock()

    def close(self) -> None:
        """Close the connections."""
        self._followed.close()
        self._admin.close()

    def undecided(self, fetched: Fetched) -> set[int]:
        """Return the producer ids of a fetch that have to be decided first."""
        return self._origins.undecided(_log_of(fetched), fetched.batches)

    def decide(self, producer_ids: Collection[int]) -> None:
        """Read the registry, and decide these ids of batches that were read before. Waits.

        Raises KafkaError; NotRetriable if it is not the registry that the flow has read before, or has lost records.
        """
        with self._lock:
            news = self._followed.news(self._clock, self._timeout_ms)
            topic_id = self._followed.topic_id
            if topic_id != self._expected.topic_id:
                raise _replaced_error(self._expected, topic_id)
            # What was registered stays registered, also if the topic lost records.
            for record in news.records:
                self._origins.registry.add(record.key, record.value)
            if news.error is not None:
                raise news.error
            read = check_kept(self._admin, self._topic, self._read_end, self._followed.position, self._timeout_ms)
            self._read_end = read_ends.furthest(self._key, read)
            if not self._origins.registry.has_begun:
                raise KafkaError(f"{REGISTRY_TOPIC} of the source has not begun: another run is about to begin it")
            self._origins.decide(producer_ids)

    def refusal(self, fetched: Fetched) -> KafkaError | None:
        """Return the error of a fetch whose records' origin cannot be known; None if it can."""
        known_from = self._origins.unknown_end(_log_of(fetched))
        return None if fetched.offset >= known_from else NotRetriable(records.unknown_origin(fetched.tp, known_from))

    def is_foreign(self, log: LogKey, batch: AnyBatch) -> bool:
        """Whether a flow has written ``batch``, whose producer id was decided."""
        return not self._origins.is_local(log, batch)

    def finder(self, log: LogKey) -> IsForeign:
        """Return a function as :meth:`is_foreign` that decides producer ids where necessary, and waits for that."""

        def is_foreign(batch: AnyBatch) -> bool:
            if undecided := self._origins.undecided(log, [batch]):
                self.decide(undecided)
            return self.is_foreign(log, batch)

        return is_foreign


def _log_of(fetched: Fetched) -> LogKey:
    return LogKey.of(fetched.tp, str(fetched.topic_id or ""))


def _replaced_error(expected: SourceRegistry, topic_id: str) -> NotRetriable:
    found = f"has another id ({topic_id})" if topic_id else "does not exist"
    return NotRetriable(
        f"origin-unknown: {REGISTRY_TOPIC} of the source {found}, and not that of the registry that this flow has read"
        f" before ({expected.topic_id}): nothing shows any more what flows have written there and what was produced"
        ' there; see config/README.md, "One topic name on all clusters"'
    )
