"""Two Kafka clusters in a folder: what the driver, the planner's process and the tasks of one Spark job all see.

They stand in for brokers in the tests of the Spark layer only, behind the two faces that it uses: Admin and
``copy_ranges``. A cluster is one JSON file, named by its bootstrap server, changed under a lock.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self, TypeVar

import mirror.client
import mirror.relay.task.copy_ranges
from mirror.client import (
    AclOperation,
    Broker,
    ClusterDescription,
    ConfigEntry,
    ConfigKind,
    ConfigResource,
    ConfigSource,
    GroupListing,
    LogDir,
    NewTopic,
    OffsetAndMetadata,
    OffsetResult,
    Outcomes,
    PartitionDescription,
    ProducerState,
    ReplicaLog,
    TopicDescription,
    TopicListing,
    TopicPartition,
    TransactionDescription,
    TransactionListing,
)
from mirror.errors import AuthorizationFailed, BrokerError, ConnectionFailed, InvalidArgument, KafkaError, KafkaTimeout
from mirror.meters import NetworkSnapshot
from mirror.relay.futures import done
from mirror.relay.model.observer import TaskObserver
from mirror.relay.model.policy import CopyPolicy
from mirror.relay.model.ranges import Outcome, Range, RangeResult
from mirror.relay.progress import status_topic
from mirror.relay.progress.committed import Progress, ProgressStore, group_of, to_offset
from mirror.relay.progress.status_topic import StatusNews
from mirror.relay.task.reporting import SendReport
from mirror.relay.task.taking import Selection
from mirror.wire.api import Api
from mirror.wire.versions import BrokerVersions

V = TypeVar("V")

FOLDER = "FAKE_KAFKA_FOLDER"
"""Environment: the folder of the clusters' files."""
RETENTION_MINUTES = "10080"
"""How long the brokers remember committed offsets."""
NOW_MS = 1_800_000_000_000
"""When ``copy_ranges`` commits, ms since 1970."""


class Cluster:
    """One cluster's file. ``server`` is its bootstrap server."""

    def __init__(self, server: str, folder: Path | None = None) -> None:
        self.path = (folder or Path(os.environ[FOLDER])) / f"{server.replace(':', '-')}.json"
        self.server = server

    def make(self) -> Self:
        self.path.write_text(json.dumps({"id": f"id-{self.server}", "topics": {}, "groups": {}, "moods": {}}))
        return self

    @contextlib.contextmanager
    def change(self) -> Iterator[dict[str, Any]]:
        """The state, to be changed under the lock."""
        try:
            file = self.path.open("r+")
        except FileNotFoundError:
            raise ConnectionFailed(f"no broker of {self.server} could be reached; is the address right?") from None
        with file:
            fcntl.flock(file, fcntl.LOCK_EX)
            state = json.load(file)
            yield state
            file.seek(0)
            file.truncate()
            json.dump(state, file)

    def state(self) -> dict[str, Any]:
        with self.change() as state:
            return state

    def add_topic(
        self,
        name: str,
        ends: Sequence[int],
        *,
        earliest: int = 0,
        replicas: int = 3,
        configs: Mapping[str, str] = MappingProxyType({}),
    ) -> Self:
        partitions = [{"earliest": earliest, "end": end, "replicas": replicas, "leader": 1} for end in ends]
        with self.change() as state:
            state["topics"][name] = {"id": str(uuid.uuid4()), "partitions": partitions, "configs": dict(configs)}
        return self

    def progress(self, flow: str, topic: str, partition: int) -> int | None:
        """The committed progress of a target partition."""
        tp = TopicPartition(topic, partition)
        kept = self.state()["groups"].get(group_of(flow, tp), {}).get(str(tp))
        return None if kept is None else int(kept[0])

    def begin_transaction(
        self, topic: str, partition: int, records: int, *, producer: int = 7, start: int | None = None, last: int = -1
    ) -> Self:
        """A transaction with ``records`` behind the end; ``start`` (ms) is when it began, if its coordinator tells."""
        with self.change() as state:
            begun = {"records": records, "producer": producer, "start": start, "last": last}
            state["topics"][topic]["partitions"][partition]["open"] = begun
        return self

    def end_transaction(self, topic: str, partition: int) -> Self:
        """It is committed."""
        with self.change() as state:
            place = state["topics"][topic]["partitions"][partition]
            place["end"] += place.pop("open")["records"] + 1
        return self

    def set_moods(self, moods: Mapping[str, str]) -> Self:
        """How ``copy_ranges`` fares with a target partition (``topic/0``): ``fail``, ``raise``, ``die`` once, ``hang``.

        ``list_offsets``, ``broker_configs``, ``topic_configs``, ``log_dirs``: refused with that text. ``silent``: a
        JSON list of source partitions (``topic/0``) whose leaders do not report offsets. ``denied``, ``no_ids``:
        permissions, see Admin. ``refused``, ``hidden_configs``: of single topics, see Admin. ``brokers``: how many
        there are for the replicas of a topic (3).
        """
        with self.change() as state:
            state["moods"] = dict(moods)
        return self


class Admin:
    def __init__(self, options: Mapping[str, object]) -> None:
        self.cluster = Cluster(str(options["bootstrap.servers"]))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        pass

    def describe_cluster(
        self,
        *,
        timeout_ms: int | None = None,  # noqa: ARG002  (the real one's face)
    ) -> ClusterDescription:
        return ClusterDescription(self.cluster.state()["id"], 1, (Broker(1, self.cluster.server, 9092),))

    def describe_versions(
        self,
        brokers: Iterable[int],
        *,
        partial: bool = False,  # noqa: ARG002  (the real one's face)
        timeout_ms: int | None = None,  # noqa: ARG002
    ) -> Outcomes[int, BrokerVersions]:
        """Those of this client itself."""
        own = BrokerVersions({api.spec.key: (api.spec.low, api.spec.high) for api in Api})
        return Outcomes(dict.fromkeys(brokers, own), {})

    def list_topics(
        self,
        *,
        timeout_ms: int | None = None,  # noqa: ARG002  (the real one's face)
    ) -> dict[str, TopicDescription]:
        return self.describe_topics(self.cluster.state()["topics"])

    def network(self) -> NetworkSnapshot:
        return NetworkSnapshot({}, 0)

    def list_changed_topics(self, known: Collection[bytes]) -> TopicListing:
        topics = self.list_topics()
        digest = repr(topics).encode()
        return TopicListing(digest, None if digest in known else topics)

    def describe_topics(
        self,
        names: Iterable[str],
        *,
        include_authorized_operations: bool = False,
        partial: bool = False,  # noqa: ARG002  (the real one's face)
        timeout_ms: int | None = None,  # noqa: ARG002  (the same)
    ) -> Outcomes[str, TopicDescription]:
        topics = self.cluster.state()["topics"]
        wanted = [_checked(name) for name in names]
        found = {name: _description(name, topics[name]) for name in wanted if name in topics}
        if include_authorized_operations:
            for name, each in found.items():
                found[name] = replace(each, authorized_operations=self._may("topic", name))
        return Outcomes(found, {})

    def list_groups(self, *, kinds: Iterable[str], timeout_ms: int) -> dict[str, GroupListing]:
        """Those that the mood ``groups`` names, as a JSON list."""
        assert timeout_ms
        names = json.loads(self.cluster.state()["moods"].get("groups", "[]"))
        return {name: GroupListing(name, next(iter(kinds)), "Empty", "consumer") for name in names}

    def group_operations(
        self,
        groups: Iterable[str],
        *,
        partial: bool,
        timeout_ms: int,
    ) -> Outcomes[str, frozenset[AclOperation]]:
        assert partial
        assert timeout_ms
        return Outcomes({name: self._may("group", name) for name in groups}, {})

    def transactional_id_operations(
        self,
        ids: Iterable[str],
        *,
        partial: bool,
        timeout_ms: int,
    ) -> Outcomes[str, frozenset[AclOperation]]:
        assert partial
        assert timeout_ms
        refused = set(json.loads(self.cluster.state()["moods"].get("no_ids", "[]")))
        return Outcomes(
            {name: frozenset({AclOperation.DESCRIBE}) for name in ids if name not in refused},
            {name: AuthorizationFailed(f"{name} may not be seen", 53) for name in ids if name in refused},
        )

    def _may(self, kind: str, name: str) -> frozenset[AclOperation]:
        """Everything but what the mood ``denied`` says: a JSON object of ``topic orders`` -> names of operations."""
        denied = json.loads(self.cluster.state()["moods"].get("denied", "{}")).get(f"{kind} {name}", [])
        return frozenset(AclOperation) - {AclOperation[one] for one in denied}

    def describe_topic_configs(
        self,
        names: Iterable[str],
        *,
        partial: bool = False,
        timeout_ms: int | None = None,  # noqa: ARG002  (the real one's face)
    ) -> Outcomes[str, dict[str, str]]:
        state = self.cluster.state()
        hidden = json.loads(state["moods"].get("hidden_configs", "[]"))
        failed: dict[str, KafkaError] = {name: AuthorizationFailed(f"{name} is hidden", 29) for name in hidden}
        return _outcomes(names, lambda name: state["topics"][name]["configs"], failed, partial=partial)

    def describe_configs(
        self,
        resources: Iterable[ConfigResource],
        *,
        keys: Collection[str] | None = None,  # noqa: ARG002  (the real one's face)
        partial: bool = False,  # noqa: ARG002  (the same)
        timeout_ms: int | None = None,  # noqa: ARG002  (the same)
    ) -> Outcomes[ConfigResource, dict[str, ConfigEntry]]:
        state = self.cluster.state()
        of_brokers = any(resource.kind == ConfigKind.BROKER for resource in resources)
        if of_brokers and "broker_configs" in state["moods"]:
            raise AuthorizationFailed(state["moods"]["broker_configs"], 31)
        if "topic_configs" in state["moods"]:
            error = AuthorizationFailed(state["moods"]["topic_configs"], 29)
            return Outcomes({}, dict.fromkeys(resources, error))
        topics = state["topics"]
        found = {
            resource: _entries(topics[resource.name]["configs"])
            if resource.kind == ConfigKind.TOPIC
            else _broker_entries(state["moods"])
            for resource in resources
        }
        return Outcomes(found, {})

    def create_topics(
        self, topics: Iterable[NewTopic], *, validate_only: bool = False, partial: bool = False
    ) -> Outcomes[str, uuid.UUID | None]:
        failed: dict[str, KafkaError] = {}
        made = []
        for topic in topics:
            made.append(topic.name)
            error = self._cannot_create(topic)
            if error is not None:
                failed[topic.name] = error
            elif not validate_only:
                replicas = 3 if topic.replication_factor == -1 else topic.replication_factor
                self.cluster.add_topic(topic.name, [0] * topic.partitions, replicas=replicas, configs=topic.configs)
        return _outcomes(made, lambda _: None, failed, partial=partial)

    def _cannot_create(self, topic: NewTopic) -> KafkaError | None:
        """As brokers check it; the moods ``refused`` and ``refused_configs`` are JSON: name -> what a policy says."""
        state = self.cluster.state()
        _checked(topic.name)
        refused = json.loads(state["moods"].get("refused", "{}"))
        rivals = [name for name in state["topics"] if name.replace(".", "_") == topic.name.replace(".", "_")]
        if topic.name in rivals:
            return BrokerError(f"topic {topic.name} exists", 36)
        for key, words in json.loads(state["moods"].get("refused_configs", "{}")).items():
            if key in topic.configs:
                return BrokerError(f"creating topic {topic.name!r}: POLICY_VIOLATION: {words}", 44)
        if topic.name in refused:
            return BrokerError(f"creating topic {topic.name!r}: POLICY_VIOLATION: {refused[topic.name]}", 44)
        brokers = int(state["moods"].get("brokers", "3"))
        if topic.replication_factor > brokers:
            why = f"the target replication factor of {topic.replication_factor} cannot be reached: {brokers} brokers"
            return BrokerError(f"creating topic {topic.name!r}: INVALID_REPLICATION_FACTOR: {why}", 38)
        if rivals:
            return BrokerError(f"Topic '{topic.name}' collides with existing topic: {rivals[0]}", 17)
        return None

    def create_partitions(
        self, totals: Mapping[str, int], *, validate_only: bool = False, partial: bool = False
    ) -> Outcomes[str, None]:
        refused = json.loads(self.cluster.state()["moods"].get("refused", "{}"))
        failed: dict[str, KafkaError] = {name: BrokerError(why, 44) for name, why in refused.items() if name in totals}
        with self.cluster.change() as state:
            for name, total in totals.items():
                partitions = state["topics"][name]["partitions"]
                if name not in failed and not validate_only:
                    partitions += [{"earliest": 0, "end": 0, "replicas": 3, "leader": 1}] * (total - len(partitions))
        return _outcomes(totals, lambda _: None, failed, partial=partial)

    def describe_log_dirs(
        self,
        brokers: Iterable[int] | None = None,  # noqa: ARG002  (the real one's face)
        *,
        partial: bool = False,
        timeout_ms: int | None = None,
    ) -> Outcomes[int, dict[str, LogDir]]:
        """One broker; a record takes what ``record_bytes`` of its topic's configuration says, else 100 bytes."""
        assert partial
        assert timeout_ms
        state = self.cluster.state()
        if "log_dirs" in state["moods"]:
            raise AuthorizationFailed(state["moods"]["log_dirs"], 31)
        logs = {
            TopicPartition(name, number): ReplicaLog(
                (each["end"] - each["earliest"]) * int(topic["configs"].get("record_bytes", "100")), 0, False
            )
            for name, topic in state["topics"].items()
            for number, each in enumerate(topic["partitions"])
        }
        return Outcomes({1: {"/logs": LogDir(None, None, None, logs)}}, {})

    def list_offsets(
        self,
        asked: Mapping[TopicPartition, int],
        *,
        isolation: str = "read_committed",
        partial: bool = False,  # noqa: ARG002  (the real one's face)
        timeout_ms: int | None = None,  # noqa: ARG002  (the same)
    ) -> Outcomes[TopicPartition, OffsetResult]:
        state = self.cluster.state()
        if "list_offsets" in state["moods"]:
            raise AuthorizationFailed(state["moods"]["list_offsets"], 29)
        silent = json.loads(state["moods"].get("silent", "[]"))
        topics = state["topics"]
        found = {}
        for tp, spec in asked.items():
            partition = topics[tp.topic]["partitions"][tp.partition]
            # Record n has the time stamp n here.
            end = partition["end"]  # the last stable offset
            if isolation == "read_uncommitted":
                end += partition.get("open", {}).get("records", 0)
            at = {-2: partition["earliest"], -1: end}.get(spec, max(spec, partition["earliest"]))
            found[tp] = OffsetResult(at if at <= end else -1, -1, 0)
        failed = {tp: KafkaTimeout(f"{tp}: no answer") for tp in found if f"{tp.topic}/{tp.partition}" in silent}
        return Outcomes({tp: each for tp, each in found.items() if tp not in failed}, failed)

    def describe_producers(
        self,
        tps: Iterable[TopicPartition],
        *,
        partial: bool,
        timeout_ms: int,
    ) -> Outcomes[TopicPartition, tuple[ProducerState, ...]]:
        assert partial
        assert timeout_ms
        state = self.cluster.state()
        if "producers" in state["moods"]:
            raise AuthorizationFailed(state["moods"]["producers"], 29)
        found: dict[TopicPartition, tuple[ProducerState, ...]] = {}
        for tp in tps:
            partition = state["topics"][tp.topic]["partitions"][tp.partition]
            begun = partition.get("open")
            other = ProducerState(1, 0, -1, 0, None)
            holder = [ProducerState(begun["producer"], 3, begun["last"], 0, partition["end"])] if begun else []
            found[tp] = (other, *holder)
        return Outcomes(found, {})

    def list_transactions(
        self,
        producer_ids: Iterable[int],
        *,
        partial: bool,
        timeout_ms: int,
    ) -> tuple[TransactionListing, ...]:
        assert partial
        assert timeout_ms
        seen = self._transactions()
        return tuple(TransactionListing(f"id-{one}", one, "Ongoing") for one in producer_ids if one in seen)

    def describe_transactions(
        self,
        ids: Iterable[str],
        *,
        partial: bool,
        timeout_ms: int,
    ) -> Outcomes[str, TransactionDescription]:
        assert partial
        assert timeout_ms
        seen = {f"id-{producer}": (producer, start) for producer, start in self._transactions().items()}
        return Outcomes({one: TransactionDescription("Ongoing", seen[one][0], 3, 1, seen[one][1]) for one in ids}, {})

    def _transactions(self) -> dict[int, int]:
        """Producer id -> when its transaction began, of those that coordinators report."""
        topics = self.cluster.state()["topics"].values()
        begun = [each["open"] for topic in topics for each in topic["partitions"] if "open" in each]
        return {each["producer"]: each["start"] for each in begun if each.get("start") is not None}

    def group_offsets(
        self,
        group: str,
        tps: Collection[TopicPartition] | None = None,
        *,
        require_stable: bool = True,  # noqa: ARG002  (the real one's face)
        timeout_ms: int | None = None,  # noqa: ARG002  (the real one's face)
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        kept = self.cluster.state()["groups"].get(group, {})
        if tps is None:
            names = [name.rpartition("-") for name in kept]
            tps = [TopicPartition(topic, int(number)) for topic, _, number in names]
        for tp in tps:
            _checked(tp.topic)
        return {tp: OffsetAndMetadata(*kept[str(tp)]) for tp in tps if str(tp) in kept}

    def commit_group_offsets_async(
        self, group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> Future[Outcomes[TopicPartition, None]]:
        """The moods ``uncommittable`` and ``gone`` are JSON lists of topics: of no permission, of none at all."""
        moods = self.cluster.state()["moods"]
        denied, gone = (json.loads(moods.get(name, "[]")) for name in ("uncommittable", "gone"))
        refused: dict[TopicPartition, KafkaError] = {
            tp: AuthorizationFailed(f"no Read on {tp.topic}", 29) for tp in offsets if tp.topic in denied
        }
        refused |= {tp: BrokerError("unknown topic", 3) for tp in offsets if tp.topic in gone}
        self.commit_group_offsets(group, {tp: one for tp, one in offsets.items() if tp not in refused})
        return done(Outcomes(dict.fromkeys(offsets.keys() - refused.keys()), refused))

    def commit_group_offsets(
        self,
        group: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        *,
        timeout_ms: int | None = None,  # noqa: ARG002  (the real one's face)
    ) -> None:
        with self.cluster.change() as state:
            kept = state["groups"].setdefault(group, {})
            kept.update({str(tp): (each.offset, each.leader_epoch, each.metadata) for tp, each in offsets.items()})

    def delete_group_offsets(
        self,
        group: str,
        tps: Iterable[TopicPartition],
        *,
        partial: bool = False,  # noqa: ARG002  (the real one's face)
    ) -> Outcomes[TopicPartition, None]:
        with self.cluster.change() as state:
            found = [tp for tp in tps if state["groups"].get(group, {}).pop(str(tp), None) is not None]
        return Outcomes(dict.fromkeys(found), {})


def _checked(name: str) -> str:
    """As Admin checks its arguments, before anything is sent."""
    if not 1 <= len(name) <= 249:
        raise InvalidArgument(f"a topic name must have 1 to 249 characters, not {len(name)}")
    return name


def _outcomes(
    names: Iterable[str], result: Callable[[str], V], failed: Mapping[str, KafkaError], *, partial: bool
) -> Outcomes[str, V]:
    """As Admin has it: what succeeded and what failed, or without ``partial`` the first failure raised."""
    wanted = list(names)
    refused = {name: failed[name] for name in wanted if name in failed}
    if refused and not partial:
        raise next(iter(refused.values()))
    return Outcomes({name: result(name) for name in wanted if name not in refused}, refused)


def _broker_entries(moods: Mapping[str, str]) -> dict[str, ConfigEntry]:
    values = {"offsets.retention.minutes": RETENTION_MINUTES, **json.loads(moods.get("broker_settings", "{}"))}
    if "id_expiration_ms" in moods:
        values["transactional.id.expiration.ms"] = moods["id_expiration_ms"]
    return {key: ConfigEntry(value, ConfigSource.DEFAULT, False, True) for key, value in values.items()}


def _entries(configs: Mapping[str, str]) -> dict[str, ConfigEntry]:
    set_here = {key: ConfigEntry(value, ConfigSource.TOPIC, False, False) for key, value in configs.items()}
    return {"retention.ms": ConfigEntry("604800000", ConfigSource.DEFAULT, False, False), **set_here}


def _description(name: str, topic: Mapping[str, Any]) -> TopicDescription:
    partitions = [
        PartitionDescription(number, each["leader"], 0, tuple(range(each["replicas"])), tuple(range(each["replicas"])))
        for number, each in enumerate(topic["partitions"])
    ]
    return TopicDescription(name, uuid.UUID(topic["id"]), False, tuple(partitions))


def copy_ranges(
    ranges: Sequence[Range],
    *,
    source_options: Mapping[str, object],  # noqa: ARG001  (numbers need no source)
    target_options: Mapping[str, object],
    policy: CopyPolicy,  # noqa: ARG001  (and are committed at once)
    watcher: TaskObserver | None = None,  # noqa: ARG001  (it is not used)
    selection: Selection | None = None,  # noqa: ARG001  (nothing is added)
    send: SendReport | None = None,  # noqa: ARG001  (nothing is reported)
    flow: str = "",  # noqa: ARG001  (the ranges name it)
) -> list[RangeResult]:
    """Moves numbers where the real one moves batches; re-checks the start against the progress, as the real one."""
    target = Cluster(str(target_options["bootstrap.servers"]))
    return [_copy(each, target) for each in ranges]


def _copy(each: Range, target: Cluster) -> RangeResult:
    key = f"{each.target_topic}/{each.partition}"
    with target.change() as state:
        mood = state["moods"].get(key)
        if mood == "die":
            state["moods"].pop(key)
    result = RangeResult(
        flow=each.flow,
        topic=each.topic,
        target_topic=each.target_topic,
        partition=each.partition,
        start=each.start,
        end=each.start,
        seconds=0.5,
    )
    if mood == "fail":
        result.outcome = Outcome.FAILED
        result.error = "the target refused the batch at offset 7"
        return result
    if mood == "raise":
        raise RuntimeError("a bug\nof two lines")
    if mood == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if mood == "hang":
        target.path.with_suffix(".hangs").touch()
        signal.pause()
    tp = TopicPartition(each.target_topic, each.partition)
    admin = Admin({"bootstrap.servers": target.server})
    known = ProgressStore(admin, each.flow).read([tp]).get(tp)
    result.start = known.offset if known else each.start
    with target.change() as state:
        state["topics"][each.target_topic]["partitions"][each.partition]["end"] += each.end - result.start
    moved = Progress(
        offset=each.end,
        leader_epoch=0,
        source_cluster_id=each.source_cluster_id,
        topic_id=each.topic_id,
        time_ms=NOW_MS,
    )
    admin.commit_group_offsets(group_of(each.flow, tp), {tp: to_offset(moved)})
    result.end = each.end
    result.records = result.end - result.start
    result.batches = 1
    result.bytes = result.records * 100
    result.outcome = Outcome.COMPLETE
    return result


class SilentWriter:
    """In place of a StatusWriter: these clusters keep no records."""

    def __init__(self, *_: object) -> None: ...

    def send(self, *_: object) -> None: ...

    def put(self, *_: object) -> None: ...

    def close(self, *_: object) -> None: ...


class SilentFollower:
    """In place of a StatusFollower: these clusters keep no records."""

    def __init__(self, *_: object) -> None: ...

    def news(self, *_: object) -> StatusNews:
        return StatusNews(again=True, records=[])

    def close(self) -> None: ...


def install() -> None:
    """Put the fakes where the Spark layer imports the real ones from."""
    mirror.client.Admin = Admin  # type: ignore[assignment,misc]  # the part of its face that the Spark layer uses
    status_topic.StatusFollower = SilentFollower  # type: ignore[assignment,misc]
    status_topic.StatusWriter = SilentWriter  # type: ignore[assignment,misc]
    mirror.relay.task.copy_ranges.copy_ranges = copy_ranges
