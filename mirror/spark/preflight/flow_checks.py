"""What is wrong with flows, as far as their clusters show it: all of it, before the first task of any flow starts.

::

    config ──look_at──► clusters as they are ──check──► problems: all is refused
           ──look_for_permissions──► Seen ──judge──┘    warnings, and unreachable: a flow's own trouble
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from mirror.client import Admin
from mirror.config import cycles as loops
from mirror.config.notices import notices
from mirror.errors import FlowError, KafkaTimeout, MirrorError
from mirror.spark.planning.range_planner import select_topics, source_topic_for, unmatched_patterns
from mirror.spark.preflight.acl_check import Lacking, Seen, missing_permissions
from mirror.spark.preflight.acl_lookup import ask
from mirror.spark.preflight.transform_check import why_not_loaded

if TYPE_CHECKING:
    from mirror.config.models import FlowConfig, MirrorConfig

T = TypeVar("T")

_PATIENCE_S: Final = 3.0
_PATIENCE_AGAIN_S: Final = 15.0
"""How long a cluster may take before it is said that it has not answered, and between two times."""


@dataclass(frozen=True, slots=True)
class ClusterSeen:
    """A cluster's id, and the names of all topics that may be seen."""

    cluster_id: str
    topics: frozenset[str]


Clusters = Mapping[str, ClusterSeen | MirrorError]
"""By the name in the configuration; an error where the cluster could not be asked."""


class FlowsRefused(FlowError):
    """Flows that must not run as they are: ``problems`` of all of them, by flow; one line each in the text."""

    several_lines = True

    def __init__(self, problems: Mapping[str, Sequence[str]]) -> None:
        super().__init__("\n".join(dict.fromkeys(line for lines in problems.values() for line in lines)))
        self.problems: Final = problems

    def __reduce__(self) -> tuple[type[FlowsRefused], tuple[Mapping[str, Sequence[str]]]]:
        return type(self), (self.problems,)


@dataclass(slots=True)
class Findings:
    """By flow: ``problems`` refuse all flows, ``warnings`` none; ``unreachable`` flows fail, the others go on."""

    problems: dict[str, list[str]] = field(default_factory=dict)
    warnings: dict[str, list[str]] = field(default_factory=dict)
    unreachable: dict[str, MirrorError] = field(default_factory=dict)


def check_flows(
    config: MirrorConfig, flows: Sequence[FlowConfig], waiting: Callable[[str], None] | None = None
) -> Findings:
    """Look at the clusters of ``flows`` and check these, also against the configuration's other flows.

    Takes as long as the slowest cluster; ``waiting`` hears now and then which ones have not answered yet. Raises
    FlowsRefused with every problem of every flow.
    """
    clusters = look_at(config, {name for flow in flows for name in (flow.source, flow.target)}, waiting)
    # A flow that is not to run may still own a topic; only those that could are asked for it.
    rivals = {other.source for flow in flows for other in _others(config, flow, clusters)}
    clusters |= look_at(config, rivals - clusters.keys(), waiting)
    findings = check(config, flows, clusters)
    for flow in flows:
        findings.warnings[flow.name] = [*_of_configuration(config, flow), *findings.warnings.get(flow.name, [])]
    for name, seen in look_for_permissions(config, flows, clusters).items():
        if isinstance(seen, MirrorError):
            # No reason to refuse: what is really missing is found out by the copy, in its own time.
            lacking = Lacking(warnings=[f"whether it has all permissions could not be asked: {seen}"])
        else:
            lacking = missing_permissions(config.flows[name], seen)
        if lacking.problems:
            findings.problems.setdefault(name, []).extend(lacking.problems)
        findings.warnings.setdefault(name, []).extend(lacking.warnings)
    if findings.problems:
        raise FlowsRefused(
            {each.name: findings.problems[each.name] for each in flows if each.name in findings.problems}
        )
    return findings


def _of_configuration(config: MirrorConfig, flow: FlowConfig) -> list[str]:
    """What can be said without its clusters. Executors may have a transform that this host has not."""
    why = why_not_loaded(flow.transform) if flow.transform else None
    lines = [] if why is None else [f'transform = "{flow.transform}" {why}; without it no partition is copied']
    return [*lines, *notices(config, flow)]


def look_at(
    config: MirrorConfig, names: Iterable[str], waiting: Callable[[str], None] | None = None
) -> dict[str, ClusterSeen | MirrorError]:
    """Ask these clusters, all at once: one that does not answer must not hold up the others."""

    def look(name: str) -> ClusterSeen:
        with Admin(config.clusters[name].client_options()) as admin:
            return ClusterSeen(_reach(name, admin), frozenset(admin.list_topics()))

    def not_yet(name: str, seconds: float) -> None:
        if waiting is not None:
            waiting(f"cluster {name} has not answered for {seconds:.0f} s; waiting on")

    return _all_at_once("cluster", {name: partial(look, name) for name in sorted(names)}, not_yet)


def look_for_permissions(
    config: MirrorConfig, flows: Sequence[FlowConfig], clusters: Clusters
) -> dict[str, Seen | MirrorError]:
    """What the clusters say that may be done, by flow; nothing of flows whose clusters or topics could not be seen."""
    asking: dict[str, Callable[[], Seen]] = {}
    for flow in flows:
        source, target = clusters[flow.source], clusters[flow.target]
        if isinstance(source, ClusterSeen) and isinstance(target, ClusterSeen):
            topics = sorted(name for name in source.topics if flow.includes(name))
            if topics:
                asking[flow.name] = partial(ask, config, flow, topics)
    return _all_at_once("flow", asking)


def _all_at_once(
    kind: str, calls: Mapping[str, Callable[[], T]], not_yet: Callable[[str, float], None] | None = None
) -> dict[str, T | MirrorError]:
    """What each comes to, in order, each in a thread of its own; ``kind`` is what their names are of.

    ``not_yet`` hears of those that take long, and for how many seconds they have.
    """
    found: dict[str, T | MirrorError] = {}

    def run(name: str) -> None:
        try:
            found[name] = calls[name]()
        except MirrorError as error:
            found[name] = error
        except Exception as error:  # noqa: BLE001 - told by who waits for it; a thread has nobody to raise to
            found[name] = FlowError(f"{kind} {name}: {type(error).__name__}: {error}")

    # Daemons: a signal ends the wait for them, and the process must not wait for a cluster then.
    threads = {name: threading.Thread(target=run, args=(name,), daemon=True) for name in calls}
    began_s = time.monotonic()
    for thread in threads.values():
        thread.start()
    patience_s = _PATIENCE_S
    while slow := [name for name, thread in threads.items() if thread.is_alive()]:
        threads[slow[0]].join(max(0.0, began_s + patience_s - time.monotonic()))
        if time.monotonic() - began_s >= patience_s:
            for name in slow:
                if threads[name].is_alive() and not_yet is not None:
                    not_yet(name, patience_s)
            patience_s += _PATIENCE_AGAIN_S
    return {name: found[name] for name in calls}


def check(config: MirrorConfig, flows: Sequence[FlowConfig], clusters: Clusters) -> Findings:
    """What is wrong with ``flows``. Pure."""
    findings = Findings()
    for flow in flows:
        source, target = clusters[flow.source], clusters[flow.target]
        for end in (source, target):
            if isinstance(end, MirrorError):
                findings.unreachable.setdefault(flow.name, end)
        if not isinstance(source, ClusterSeen):
            continue
        problems: list[str] = []
        if isinstance(target, ClusterSeen) and source.cluster_id == target.cluster_id:
            problems.append(
                f"flow {flow.name}: {flow.source} and {flow.target} are one cluster under two names (cluster id"
                f" {source.cluster_id}), it would be copied into itself; correct a bootstrap.servers"
            )
        try:
            wanted = select_topics(flow, source.topics)
        except FlowError as error:
            problems.append(str(error))
        else:
            clashing, warnings = _clashes(config, flow, wanted, clusters)
            problems += clashing
            findings.warnings[flow.name] = [*unmatched_patterns(flow, wanted), *warnings]
        if problems:
            findings.problems[flow.name] = problems
    _feeding(config, flows, clusters, findings)
    return findings


def _feeding(config: MirrorConfig, flows: Sequence[FlowConfig], clusters: Clusters, findings: Findings) -> None:
    """Flows that feed each other over a cluster with two names: the configuration alone could not tell."""
    identity = {name: _identity(name, clusters) for name in config.clusters}
    apart = [flow for flow in config.flows.values() if identity[flow.source] != identity[flow.target]]
    for group, reason in loops.feedback_groups(apart, identity):
        names = {flow.name for flow in group}
        for flow in flows:
            if flow.name in names:
                line = f"flows {', '.join(sorted(names))}: {reason}"
                findings.problems.setdefault(flow.name, []).append(line)


def _identity(name: str, clusters: Clusters) -> str:
    seen = clusters.get(name)
    return f"id {seen.cluster_id}" if isinstance(seen, ClusterSeen) else f"name {name}"


def _others(config: MirrorConfig, flow: FlowConfig, clusters: Clusters) -> list[FlowConfig]:
    """The other flows that could write what ``flow`` writes."""
    source = clusters.get(flow.source)
    if not isinstance(source, ClusterSeen):
        return []
    topics = [flow.target_topic(topic) for topic in source.topics if flow.includes(topic)]
    return [
        other
        for other in config.flows.values()
        if other.name != flow.name
        and _identity(other.target, clusters) == _identity(flow.target, clusters)
        and any(source_topic_for(other, topic) for topic in topics)
    ]


def _clashes(
    config: MirrorConfig, flow: FlowConfig, topics: Collection[str], clusters: Clusters
) -> tuple[list[str], list[str]]:
    """Target topics that another flow copies into as well: records would mix, and progress too. Problems, warnings.

    Where the other source could not be asked it is a warning: it must not stop this flow.
    """
    problems, warnings = [], []
    for other in _others(config, flow, clusters):
        rivals = {topic: rival for topic in topics if (rival := source_topic_for(other, flow.target_topic(topic)))}
        there = clusters[other.source]
        if isinstance(there, MirrorError):
            first = flow.target_topic(next(iter(rivals)))
            warnings.append(f"could not see whether flow {other.name} copies into {first} too: {there}")
            continue
        one, two = sorted((flow, other), key=lambda each: each.name)
        for topic, rival in rivals.items():
            if rival not in there.topics:
                continue
            # A prefix on both sides keeps topics apart already, unless they have one source.
            plain = [each for each in (one, two) if each.naming == "identity"]
            advice = f', or use naming = "prefix" in flow {plain[0].name}' if plain else ""
            by = {flow.name: f"{flow.source}: {topic}", other.name: f"{other.source}: {rival}"}
            problems.append(
                f"flows {one.name} and {two.name} both copy into topic {flow.target_topic(topic)} of cluster"
                f" {one.target} ({by[one.name]}, {by[two.name]}); exclude it from one of them{advice}"
            )
    return problems, warnings


def _reach(cluster: str, admin: Admin) -> str:
    """The cluster's id. Asked first: the error of one that does not answer has the name it is configured by."""
    try:
        return admin.describe_cluster().cluster_id
    except KafkaTimeout as error:
        raise FlowError(
            f"cluster {cluster} does not answer: {error}; check its bootstrap.servers, and that it runs"
        ) from error
