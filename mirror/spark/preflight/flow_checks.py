"""Check flows against their clusters, and report all problems of all flows before the first task starts.

::

    clusters ──► ClusterTopics ──────────────find_problems──────► problems, warnings, and errors of clusters
             ──► FlowPermissions ──missing_permissions──┘         that do not answer: each of one flow
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from mirror.config import cycles
from mirror.config.notices import notices
from mirror.errors import FlowError, MirrorError, SeveralErrors
from mirror.spark.concurrent_calls import call_concurrently
from mirror.spark.planning.range_planner import no_topics, select_topics, topics_left_out, unmatched_patterns
from mirror.spark.preflight.api_table import missing_apis
from mirror.spark.preflight.old_brokers import topics_without_ids, why_no_target
from mirror.spark.preflight.permission_check import MissingPermissions, missing_permissions
from mirror.spark.preflight.permission_lookup import look_up_permissions
from mirror.spark.preflight.permissions import FlowPermissions
from mirror.spark.preflight.transform_check import why_not_loaded

if TYPE_CHECKING:
    from mirror.config.models import FlowConfig, MirrorConfig
    from mirror.observation import Side
    from mirror.spark.clusters import Clusters
    from mirror.wire.versions import BrokerVersions

T = TypeVar("T")

_WAITS: Final = (
    "cluster {cluster} has no topic that it copies yet, or this client's user lacks Describe on it;"
    " one is copied once it is listed"
)


@dataclass(frozen=True, slots=True)
class ClusterTopics:
    """A cluster's id, and the names of all topics that this client may see."""

    cluster_id: str
    topics: frozenset[str]
    without_ids: frozenset[str] = frozenset()
    """Those that have no id."""
    versions: Mapping[str, BrokerVersions] = field(default_factory=dict)
    """By broker, as far as they answered."""

    @classmethod
    def of(cls, side: Side) -> ClusterTopics:
        """Return what a cluster shows. Raises MirrorError if it does not answer."""
        cluster_id, versions, topics = side.cluster.cluster_id, side.versions, side.topics
        return cls(
            cluster_id,
            frozenset(topics),
            frozenset(name for name, one in topics.items() if one.topic_id is None),
            versions,
        )


Described = Mapping[str, ClusterTopics | MirrorError]
"""By the name in the configuration; an error for a cluster that could not be described."""


class FlowsRefused(FlowError):
    """Flows that must not run as they are. The text has the problems of all flows, one per line."""

    several_lines = True

    def __init__(self, problems: Mapping[str, Sequence[str]]) -> None:
        """``problems`` are lines by flow."""
        super().__init__("\n".join(dict.fromkeys(line for lines in problems.values() for line in lines)))
        self.problems: Final = problems

    def __reduce__(self) -> tuple[type[FlowsRefused], tuple[Mapping[str, Sequence[str]]]]:
        return type(self), (self.problems,)


@dataclass(slots=True)
class Findings:
    """The result of the checks, by flow."""

    problems: dict[str, list[str]] = field(default_factory=dict)
    """A flow with one must not run. One that concerns several flows is a problem of each."""
    warnings: dict[str, list[str]] = field(default_factory=dict)
    left_out: dict[str, dict[str, str]] = field(default_factory=dict)
    """The topics that a flow's patterns match, and that it does not copy, with the reason."""
    errors: dict[str, MirrorError] = field(default_factory=dict)
    """Why flows cannot run: they are refused, or a cluster does not answer. The others run."""


def check_flows(
    config: MirrorConfig,
    flows: Sequence[FlowConfig],
    observed: Clusters,
    on_waiting: Callable[[str], None] | None = None,
) -> Findings:
    """Check ``flows`` against their clusters and against the configuration's other flows.

    Takes as long as the slowest cluster. ``on_waiting`` is called now and then with a line about a cluster that has not
    answered yet. Raises FlowsRefused with every problem of every flow if all of them are refused; otherwise those that
    are have it as their error.
    """
    clusters = _describe(observed, {name for flow in flows for name in (flow.source, flow.target)}, on_waiting)
    # A flow that is not to run may still own a topic. Only the sources of flows that could own one are described.
    rivals = {other.source for flow in flows for other in _possible_rivals(config, flow, clusters)}
    clusters |= _describe(observed, rivals - clusters.keys(), on_waiting)
    findings = find_problems(config, flows, clusters)
    for flow in flows:
        findings.warnings[flow.name] = [*_local_warnings(config, flow), *findings.warnings.get(flow.name, [])]
    for name, permissions in _look_up_all(config, flows, clusters, observed).items():
        if isinstance(permissions, MirrorError):
            # This is no reason to refuse the flow: the copy reports a permission that is really missing.
            missing = MissingPermissions(warnings=[f"the flow's permissions could not be checked: {permissions}"])
        else:
            missing = missing_permissions(permissions)
        if missing.problems:
            findings.problems.setdefault(name, []).extend(missing.problems)
        findings.warnings.setdefault(name, []).extend(missing.warnings)
    refused = {flow.name: _refusal(flow.name, findings) for flow in flows if flow.name in findings.problems}
    if len(refused) == len(flows):
        raise FlowsRefused(refused)
    findings.errors |= {name: FlowsRefused({name: lines}) for name, lines in refused.items()}
    return findings


def _refusal(flow: str, findings: Findings) -> list[str]:
    """Return why a flow is refused, and which of its clusters do not answer."""
    error = findings.errors.get(flow)
    lines = () if error is None else str(error).splitlines()
    return [*findings.problems[flow], *(f"flow {flow}: {line}" for line in lines)]


def find_refusals(
    config: MirrorConfig,
    flows: Sequence[FlowConfig],
    observed: Clusters,
    on_waiting: Callable[[str], None] | None = None,
) -> dict[str, str]:
    """Return why runs would refuse some of ``flows``, by name, as far as their own clusters show it.

    Permissions are not looked up. A cluster that does not answer is away in the observation from then on.
    """
    not_read: MirrorError = FlowError("only the clusters of these flows are read")
    clusters: dict[str, ClusterTopics | MirrorError] = dict.fromkeys(config.clusters, not_read)
    clusters |= _describe(observed, {name for flow in flows for name in (flow.source, flow.target)}, on_waiting)
    problems = find_problems(config, flows, clusters).problems
    return {name: "; ".join(lines) for name, lines in problems.items()}


def _local_warnings(config: MirrorConfig, flow: FlowConfig) -> list[str]:
    """Return the warnings that need no cluster. Executors may have a transform that this host does not have."""
    why = why_not_loaded(flow.transform) if flow.transform else None
    lines = [] if why is None else [f'transform = "{flow.transform}" {why}; without it no partition is copied']
    return [*lines, *notices(config, flow)]


def _describe(
    observed: Clusters, names: Iterable[str], on_waiting: Callable[[str], None] | None
) -> dict[str, ClusterTopics | MirrorError]:
    """Describe these clusters concurrently, so that a cluster that does not answer does not delay the others."""

    def describe(name: str) -> ClusterTopics:
        return ClusterTopics.of(observed.side(name))

    return call_concurrently("cluster", {name: partial(describe, name) for name in sorted(names)}, on_waiting)


def _look_up_all(
    config: MirrorConfig, flows: Sequence[FlowConfig], clusters: Described, observed: Clusters
) -> dict[str, FlowPermissions | MirrorError]:
    """Return the permissions by flow, without the flows whose clusters or topics could not be described."""
    calls: dict[str, Callable[[], FlowPermissions]] = {}
    for flow in flows:
        source, target = clusters[flow.source], clusters[flow.target]
        if isinstance(source, ClusterTopics) and isinstance(target, ClusterTopics):
            topics = sorted(name for name in source.topics if flow.selects(name))
            if topics:
                calls[flow.name] = partial(look_up_permissions, config, flow, topics, observed.of(flow))
    return call_concurrently("flow", calls)


def find_problems(config: MirrorConfig, flows: Sequence[FlowConfig], clusters: Described) -> Findings:
    """Find what is wrong with ``flows``. Pure."""
    findings = Findings()
    for flow in flows:
        source, target = clusters[flow.source], clusters[flow.target]
        if errors := [one for one in (source, target) if isinstance(one, MirrorError)]:
            findings.errors[flow.name] = errors[0] if len(errors) == 1 else SeveralErrors(errors)
        if not isinstance(source, ClusterTopics):
            continue
        if left_out := topics_left_out(flow, source.topics):
            findings.left_out[flow.name] = left_out
        problems, warnings = _about_clusters(flow, source, target) if isinstance(target, ClusterTopics) else ([], [])
        of_topics, findings.warnings[flow.name] = _about_topics(config, flow, source, clusters)
        findings.warnings[flow.name] += warnings
        problems += of_topics
        if problems:
            findings.problems[flow.name] = problems
    _find_cycles(config, flows, clusters, findings)
    return findings


def _about_topics(
    config: MirrorConfig, flow: FlowConfig, source: ClusterTopics, clusters: Described
) -> tuple[list[str], list[str]]:
    """Return problems and warnings about the topics that ``flow`` copies."""
    try:
        wanted = select_topics(flow, source.topics)
    except FlowError as error:
        return [str(error)], []
    coming = _coming_topics(config, flow, clusters)
    if any(map(flow.selects, wanted)):
        unmatched = unmatched_patterns(flow, [*wanted, *coming], topics_left_out(flow, source.topics))
    elif _has_topics_elsewhere(config, flow, clusters):
        unmatched = [] if coming else [_WAITS.format(cluster=flow.source)]
    else:
        return [str(no_topics(flow, sorted(source.topics)))], []
    problems, warnings = _find_clashes(config, flow, wanted, clusters)
    unguarded = topics_without_ids(flow.source, source.without_ids.intersection(wanted))
    return problems, [*unmatched, *warnings, *unguarded]


def _about_clusters(flow: FlowConfig, source: ClusterTopics, target: ClusterTopics) -> tuple[list[str], list[str]]:
    """Return problems and warnings about what the clusters are, and offer."""
    problems = []
    if source.cluster_id == target.cluster_id and not flow.is_within_one_cluster:
        problems.append(
            f"flow {flow.name}: {flow.source} and {flow.target} are two names of one cluster (cluster id"
            f" {source.cluster_id}), which would be copied into itself; correct a bootstrap.servers"
        )
    if (why := why_no_target(flow.target, target.versions)) is not None:
        return [*problems, f"flow {flow.name}: {why}"], []
    missing = missing_apis(flow, source.versions, target.versions)
    return problems + missing.problems, missing.warnings


def _find_cycles(config: MirrorConfig, flows: Sequence[FlowConfig], clusters: Described, findings: Findings) -> None:
    """Find what only shows once clusters with two names are known: flows that feed each other, and hidden producers."""
    identity = {name: _identity(name, clusters) for name in config.clusters}
    candidates = [
        flow
        for flow in config.flows.values()
        if flow.is_within_one_cluster or identity[flow.source] != identity[flow.target]
    ]
    for group, reason in cycles.feedback_groups(candidates, identity):
        names = {flow.name for flow in group}
        for flow in flows:
            if flow.name in names:
                line = f"flows {', '.join(sorted(names))}: {reason}"
                findings.problems.setdefault(flow.name, []).append(line)
    for writer, reader in cycles.unregistered_writers(candidates, identity):
        line = (
            f"flow {writer.name}: register-producers must be true, because flow {reader.name} copies from"
            f" {reader.source}, which is cluster {writer.target}, what was produced there only"
        )
        for flow in flows:
            if flow.name in {writer.name, reader.name}:
                findings.problems.setdefault(flow.name, []).append(line)


def _identity(name: str, clusters: Described) -> str:
    cluster = clusters.get(name)
    return f"id {cluster.cluster_id}" if isinstance(cluster, ClusterTopics) else f"name {name}"


def _has_topics_elsewhere(config: MirrorConfig, flow: FlowConfig, clusters: Described) -> bool:
    """Return whether another flow that is on a cycle has topics to copy: then ``flow`` may get some."""
    return any(
        any(map(other.selects, source.topics))
        for other in config.flows.values()
        if other.name != flow.name and other.may_wait_for_topics
        if isinstance(source := clusters.get(other.source), ClusterTopics)
    )


def _coming_topics(config: MirrorConfig, flow: FlowConfig, clusters: Described) -> list[str]:
    """Return the topics that other flows create on the flow's source, and that it copies."""
    return [
        created
        for other in config.flows.values()
        if other.name != flow.name and _identity(other.target, clusters) == _identity(flow.source, clusters)
        if isinstance(source := clusters.get(other.source), ClusterTopics)
        for topic in source.topics
        if other.includes(topic) and flow.selects(created := other.target_topic(topic))
    ]


def _possible_rivals(config: MirrorConfig, flow: FlowConfig, clusters: Described) -> list[FlowConfig]:
    """Return the other flows that could write to a topic that ``flow`` writes to."""
    source = clusters.get(flow.source)
    if not isinstance(source, ClusterTopics):
        return []
    topics = [flow.target_topic(topic) for topic in source.topics if flow.includes(topic)]
    return [
        other
        for other in config.flows.values()
        if other.name != flow.name
        and _identity(other.target, clusters) == _identity(flow.target, clusters)
        and any(other.source_topic(topic) for topic in topics)
    ]


def _find_clashes(
    config: MirrorConfig, flow: FlowConfig, topics: Collection[str], clusters: Described
) -> tuple[list[str], list[str]]:
    """Find target topics that another flow also writes to, which would mix records; return problems and warnings.

    It is a warning if the other flow's source could not be described: that must not stop this flow.
    """
    problems, warnings = [], []
    for other in _possible_rivals(config, flow, clusters):
        rivals = {topic: rival for topic in topics if (rival := other.source_topic(flow.target_topic(topic)))}
        other_source = clusters[other.source]
        if isinstance(other_source, MirrorError):
            topic = flow.target_topic(next(iter(rivals)))
            warnings.append(
                f"it could not be checked whether flow {other.name} also copies into topic {topic}: {other_source}"
            )
            continue
        if (
            flow.only_local
            and other.only_local
            and _identity(flow.source, clusters) != _identity(other.source, clusters)
        ):
            continue  # each record is copied from the cluster on which it was produced
        first, second = sorted((flow, other), key=lambda candidate: candidate.name)
        for topic, rival in rivals.items():
            if rival not in other_source.topics:
                continue
            # If both flows have a prefix, only a common source makes their topics clash; a prefix does not help then.
            plain = [candidate for candidate in (first, second) if candidate.naming == "identity"]
            advice = f', or use naming = "prefix" in flow {plain[0].name}' if plain else ""
            origin = {flow.name: f"{flow.source}: {topic}", other.name: f"{other.source}: {rival}"}
            problems.append(
                f"flows {first.name} and {second.name} both copy into topic {flow.target_topic(topic)} of cluster"
                f" {first.target} ({origin[first.name]}, {origin[second.name]}); exclude it from one of them{advice}"
            )
    return problems, warnings
