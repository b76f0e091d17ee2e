"""Removes what a flow keeps on its target: groups, topics of its own, and its record in the registry. Never data."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from mirror.client import Admin, Outcomes
from mirror.errors import BrokerError, FlowError, KafkaError, printable
from mirror.mirrormaker.names import HEARTBEATS, DefaultPolicy
from mirror.relay.origin.records import REGISTRY_TOPIC, source_removal, whole_removal
from mirror.relay.origin.registry import read_registry, registry_topic, write_records
from mirror.relay.progress.committed import group_names
from mirror.relay.progress.control_record import control_partition
from mirror.relay.progress.flow_topic import (
    group_topic_of,
    inventory_topic_of,
    latch_topic_of,
    offset_topic_of,
    status_topic_of,
    takeover_topic_of,
    topic_of,
)
from mirror.relay.progress.latch import LatchCheck
from mirror.runtime.clock import SystemClock
from mirror.spark.run_control import RunControlClient

if TYPE_CHECKING:
    from mirror.config.models import FlowConfig, MirrorConfig

_TIMEOUT_MS: Final = 20_000
"""For each call."""
_MISSING: Final = frozenset({3, 69})
"""Kafka's error codes for a topic and for a group that does not exist."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """Something that a flow keeps on a cluster; the field names are keys of the JSON output."""

    cluster: str
    kind: str
    """As it is shown, "topic" or "group"."""
    name: str
    why: str
    """What it contains, or why it is kept."""
    error: str | None = None
    """Why it could not be removed."""

    def line(self, sign: str) -> str:
        """Return a line for the console; ``sign`` says what is done."""
        failed = "" if self.error is None else f" (not removed: {self.error})"
        return printable(f"{sign} {self.kind} {self.name} on {self.cluster}: {self.why}{failed}")

    def to_json(self) -> dict[str, str]:
        """Return plain values."""
        fields = {"cluster": self.cluster, "kind": self.kind, "name": self.name, "why": self.why}
        return fields if self.error is None else {**fields, "error": self.error}


@dataclass(slots=True)
class Forgotten:
    """What was removed, or would be, and what stays."""

    flow: str
    dry_run: bool
    warnings: list[str] = field(default_factory=list)
    removed: list[Resource] = field(default_factory=list)
    """With ``dry_run``: what would be removed."""
    kept: list[Resource] = field(default_factory=list)
    failed: list[Resource] = field(default_factory=list)
    """What could not be removed, or not be described."""

    def lines(self) -> Iterator[str]:
        """Yield a line for each resource."""
        yield from (one.line("-") for one in self.removed)
        yield from (one.line("!") for one in self.failed)
        yield from (one.line("=") for one in self.kept)

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "flow": self.flow,
            "dry_run": self.dry_run,
            "warnings": self.warnings,
            "removed": [one.to_json() for one in self.removed],
            "kept": [one.to_json() for one in self.kept],
            "failed": [one.to_json() for one in self.failed],
        }


def own_topics(flow: FlowConfig) -> list[Resource]:
    """Return the topics that only this flow writes, without its latch; all of them are on its target. Pure."""
    contents = {
        topic_of(flow.name): "records of its progress, and anchors",
        status_topic_of(flow.name): "what its runs have reported",
        offset_topic_of(flow.name): "its offset index",
        group_topic_of(flow.name): "what it has committed for consumer groups",
        inventory_topic_of(flow.name): "which topics it has created, and what it has set on them",
        takeover_topic_of(flow.name): "what it has taken over from MirrorMaker 2",
    }
    return [Resource(cluster=flow.target, kind="topic", name=name, why=why) for name, why in contents.items()]


def own_groups(flow: FlowConfig) -> list[Resource]:
    """Return the groups of a flow. Pure."""
    contents = dict.fromkeys(group_names(flow.name), "offsets up to which its partitions are copied")
    contents[control_partition(flow.name)[0]] = "which run copies the flow"
    return [Resource(cluster=flow.target, kind="group", name=name, why=why) for name, why in contents.items()]


def kept_resources(flow: FlowConfig) -> list[Resource]:
    """Return what stays, and why. Pure."""
    data = "no records of users are removed; a later run with this name needs other topics, or start-over = true"
    kept = [
        ("topics", "that it has copied into", data),
        ("positions", "of consumer groups", "consumers go on from there"),
        ("transactional ids", f"mirror.{flow.name}.*", "the brokers remove them after transactional.id.expiration.ms"),
    ]
    if flow.acls.sync:
        kept.append(("ACLs", "that it has created", "users need them; no flow deletes them any more"))
    found = [Resource(cluster=flow.target, kind=kind, name=name, why=why) for kind, name, why in kept]
    shared: list[tuple[str, str, str]] = []
    if flow.mirrormaker.checkpoints:
        name = DefaultPolicy().checkpoints_topic(flow.source)
        shared.append((flow.target, name, "consumers read it, and other flows and MirrorMaker 2 may write to it"))
    if flow.mirrormaker.heartbeats:
        shared.append((flow.source, HEARTBEATS, "other flows and MirrorMaker 2 write to it"))
    if flow.registers_producers:
        why = "it says which records flows have written, for as long as these exist"
        shared.append((flow.target, REGISTRY_TOPIC, why))
        if flow.only_local:
            shared.append((flow.source, REGISTRY_TOPIC, why))
    return found + [Resource(cluster=cluster, kind="topic", name=name, why=why) for cluster, name, why in shared]


# Invariant: mirror forget removes only what the flow alone writes, by exact names, and may be repeated after any
#   failure. It never removes a latch, which a person may set meanwhile.
# Test: tests/cli/test_forget.py::test_what_a_flow_keeps_is_removed_and_nothing_else
# Test: tests/cli/test_forget.py::test_a_flow_that_is_held_meanwhile_stays_held
def forget(config: MirrorConfig, flow: FlowConfig, *, dry_run: bool, force: bool) -> Forgotten:
    """Remove what ``flow`` keeps on its target; with ``dry_run`` only find it. It may be repeated.

    What cannot be removed does not keep the rest from being removed. Raises FlowError if a run of the flow is alive,
    unless ``force``, FlowHeld if the flow is held, LatchMoved if it was meanwhile, and KafkaError if the
    target does not answer.
    """
    check_latch = bool if dry_run else LatchCheck(config.clusters[flow.target].client_options(), flow.name)
    check_latch()
    with Admin(config.clusters[flow.target].client_options()) as target:
        found = Forgotten(flow.name, dry_run, kept=kept_resources(flow))
        _check_no_run(flow, target, found, force=force or dry_run)
        found.kept += _latch_of(flow, target)
        check_latch()
        removal = _Removal(target, found)
        removal.remove(own_groups(flow), target.describe_groups, target.delete_groups)
        if flow.registers_producers:
            removal.remove_source_record(config, flow)
        if flow.only_local:
            removal.remove_whole(config, flow)
        check_latch()
        removal.remove(own_topics(flow), target.describe_topics, target.delete_topics)
    return found


def _latch_of(flow: FlowConfig, target: Admin) -> list[Resource]:
    name = latch_topic_of(flow.name)
    why = "whether the flow may copy: it may be held while this command runs"
    there = name in target.describe_topics([name], timeout_ms=_TIMEOUT_MS)
    return [Resource(cluster=flow.target, kind="topic", name=name, why=why)] if there else []


def _check_no_run(flow: FlowConfig, target: Admin, found: Forgotten, *, force: bool) -> None:
    control = RunControlClient(target, flow.name).read()
    if control is None or control.ended or control.is_dead(SystemClock().unix_ms()):
        return
    alive = f"run {control.run} on {control.host} copies flow {flow.name}"
    if not force:
        raise FlowError(f"{alive}: end it first (mirror stop --flow {flow.name}), or give --force")
    found.warnings.append(f"{alive}, and writes some of this again")


class _Removal:
    """Removes resources, and adds the outcome of each to what was found."""

    def __init__(self, target: Admin, found: Forgotten) -> None:
        self._target: Final = target
        self._found: Final = found

    def remove(
        self,
        resources: list[Resource],
        describe: Callable[..., Outcomes[str, Any]],
        delete: Callable[..., Outcomes[str, None]],
    ) -> None:
        """Remove those ``resources`` that exist. What fails is in the list, with what was removed before."""
        names = [one.name for one in resources]
        described = _outcomes(names, describe)
        there = [name for name in names if name in described]
        deleted = Outcomes[str, Any](dict.fromkeys(there), {})
        if there and not self._found.dry_run:
            deleted = _outcomes(there, delete)
        errors = described.failed | deleted.failed
        failed = {name: error for name, error in errors.items() if not _is_missing(error)}
        for one in resources:
            if one.name in failed:
                self._found.failed.append(_failed(one, failed[one.name]))
            elif one.name in deleted:
                self._found.removed.append(one)

    def remove_source_record(self, config: MirrorConfig, flow: FlowConfig) -> None:
        """Remove which registry of its source the flow reads: a later flow of this name may read another one."""
        name = f"which registry of {flow.source} the flow reads"
        record = Resource(cluster=flow.target, kind="record", name=name, why=f"in {REGISTRY_TOPIC}")
        topic = registry_topic(config.clusters[flow.target].client_options())
        with _noted(record, self._found):
            if flow.name in read_registry(topic, _TIMEOUT_MS).sources:
                if not self._found.dry_run:
                    write_records(topic, [source_removal(flow.name)], _TIMEOUT_MS)
                self._found.removed.append(record)

    def remove_whole(self, config: MirrorConfig, flow: FlowConfig) -> None:
        """Remove what the flow copies of all producers: a later flow of this name copies into other topics."""
        name = f"what of {flow.source} the flow copies whole"
        record = Resource(cluster=flow.source, kind="record", name=name, why=f"in {REGISTRY_TOPIC}")
        topic = registry_topic(config.clusters[flow.source].client_options())
        with _noted(record, self._found):
            if whole := read_registry(topic, _TIMEOUT_MS, flow.name).whole:
                if not self._found.dry_run:
                    write_records(topic, [whole_removal(flow.name, log) for log in whole], _TIMEOUT_MS)
                self._found.removed.append(record)


@contextmanager
def _noted(resource: Resource, found: Forgotten) -> Iterator[None]:
    try:
        yield
    except KafkaError as error:
        found.failed.append(_failed(resource, error))


def _outcomes(names: list[str], call: Callable[..., Outcomes[str, Any]]) -> Outcomes[str, Any]:
    """Return the outcomes of a call; an error of the whole call is one of each name."""
    try:
        return call(names, partial=True, timeout_ms=_TIMEOUT_MS)
    except KafkaError as error:
        return Outcomes({}, dict.fromkeys(names, error))


def _is_missing(error: KafkaError) -> bool:
    return isinstance(error, BrokerError) and error.code in _MISSING


def _failed(one: Resource, error: KafkaError) -> Resource:
    return Resource(cluster=one.cluster, kind=one.kind, name=one.name, why=one.why, error=str(error))
