"""Cycles of flows that would copy a topic back to where it came from. They are refused unless that cannot happen.

Flows and clusters are a graph; only flows on one of its cycles can feed each other. With ``prefix`` a topic has the
names of the clusters that it came from, and is not copied back to one of these (``FlowConfig.left_out``): what leaves a
cluster with a prefix does not come in again with a prefix. So no circle is closed at a cluster where both flows have
prefixes, unless flows call one cluster by several names.

Elsewhere a topic may go round: with ``identity`` in circles forever, with a prefix in it its name would grow without
end. A flow whose patterns are plain names copies a fixed set of topics, whose path can be followed. A flow with real
patterns may copy any topic, so every circle that names do not close needs a flow of plain names, none of whose topics
returns to a flow that has copied it.

Heartbeats are copied beside a flow's topics, and are followed in the same way: their names prevent a cycle unless a
cluster has two names.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from mirror.mirrormaker.names import HEARTBEATS

if TYPE_CHECKING:
    from mirror.config.models import FlowConfig

_PLAIN_NAME: Final = re.compile(r"(?:[A-Za-z0-9_-]|\\[.-]|\[\.\])+")

Flows = Sequence["FlowConfig"]
Following = Callable[["FlowConfig", str], list["FlowConfig"]]


def feedback_groups(flows: Flows, identity: Mapping[str, str]) -> Iterator[tuple[Flows, str]]:
    """Yield groups of flows that may feed each other, with the reason.

    ``identity`` maps each cluster's name to one name of its physical cluster, which may have several names.
    """
    graph = _Graph(flows, identity)
    groups: dict[str, list[FlowConfig]] = {}
    for flow in flows:
        if (cycle := graph.cycle_of(flow)) is not None:
            groups.setdefault(cycle, []).append(flow)
    for group in groups.values():
        if reason := _reason(group, identity):
            yield group, reason


def unregistered_writers(flows: Flows, identity: Mapping[str, str]) -> Iterator[tuple[FlowConfig, FlowConfig]]:
    """Yield each flow that writes, without registering its producers, where another flow copies local records only.

    The second of a pair is that other flow: it would take what the first one writes for local.
    """
    readers = {identity[flow.source]: flow for flow in flows if flow.only_local}
    for flow in flows:
        if not flow.registers_producers and (reader := readers.get(identity[flow.target])) is not None:
            yield flow, reader


class _Graph:
    """The graph of clusters, whose edges are ``flows``."""

    def __init__(self, flows: Flows, identity: Mapping[str, str]) -> None:
        self._identity = identity
        self._targets: dict[str, set[str]] = defaultdict(set)
        for flow in flows:
            self._targets[identity[flow.source]].add(identity[flow.target])
        self._reached: dict[str, set[str]] = {}

    def cycle_of(self, flow: FlowConfig) -> str | None:
        """Return a name that is the same for all flows on the same cycles; None if ``flow`` is on no cycle."""
        source, target = self._identity[flow.source], self._identity[flow.target]
        if source not in self._reachable(target):
            return None
        return min(cluster for cluster in self._reachable(source) if source in self._reachable(cluster))

    def _reachable(self, start: str) -> set[str]:
        """Return the clusters that can be reached from ``start`` by at least one flow."""
        if start not in self._reached:
            seen: set[str] = set()
            waiting = list(self._targets.get(start, ()))
            while waiting:
                cluster = waiting.pop()
                if cluster not in seen:
                    seen.add(cluster)
                    waiting += self._targets.get(cluster, ())
            self._reached[start] = seen
        return self._reached[start]


def plain_names(flow: FlowConfig) -> list[str] | None:
    """Return the topics that the flow selects, or None if not all its patterns are plain names."""
    if not all(_PLAIN_NAME.fullmatch(pattern) for pattern in flow.topics):
        return None
    names = (re.sub(r"\\|\[|\]", "", pattern) for pattern in flow.topics)
    return [name for name in names if flow.selects(name)]


def _reason(group: Flows, identity: Mapping[str, str]) -> str | None:
    if all(flow.only_local for flow in group):
        return None  # a record is copied from the cluster on which it was produced, and from no other
    names = {flow.name: plain_names(flow) for flow in group}
    patterned = [flow for flow in group if names[flow.name] is None]
    doubled = _doubled(patterned, identity)
    if circle := _open_circle(patterned, identity, names_close=not doubled):
        return _reason_of_circle(circle, doubled)
    if all(flow.naming == "prefix" for flow in group) and not _doubled(group, identity):
        return None  # Names close every circle. To follow each topic through a mesh would take factorial time.
    following = _following(group, names, identity)
    for flow in group:
        heartbeats = [HEARTBEATS] if flow.mirrormaker.heartbeats else []
        for topic in [*(names[flow.name] or ()), *heartbeats]:
            if path := _circular_path(flow, topic, following):
                steps = ", ".join(step.name for step in path)
                return f'these flows feed each other: topic "{topic}" goes through {steps} again and again'
    return None


def _doubled(flows: Flows, identity: Mapping[str, str]) -> list[str]:
    """Return the names of clusters that ``flows`` call by more than one name, each cluster's as one text."""
    names: dict[str, set[str]] = defaultdict(set)
    for flow in flows:
        names[identity[flow.source]].add(flow.source)
        names[identity[flow.target]].add(flow.target)
    return sorted(" and ".join(sorted(of)) for of in names.values() if len(of) > 1)


def _open_circle(flows: Flows, identity: Mapping[str, str], *, names_close: bool) -> Flows | None:
    """Return flows through which a topic could go in a circle, because no cluster's name closes it.

    Without ``names_close`` none does. Where a topic may go depends on the cluster where it is, and on whether the last
    flow has set a prefix.
    """
    leaving: dict[str, dict[tuple[str, str, str], FlowConfig]] = defaultdict(dict)
    for flow in flows:
        leaving[identity[flow.source]].setdefault((flow.source, flow.target, flow.naming), flow)

    def onward(flow: FlowConfig) -> Iterator[FlowConfig]:
        for other in leaving[identity[flow.target]].values():
            # What leaves a cluster with a prefix never comes in again with one.
            if not (names_close and flow.naming == other.naming == "prefix"):
                yield other

    done: set[tuple[str, str]] = set()
    for first in flows:
        path, on_path, onwards = [first], {(first.target, first.naming): 0}, [onward(first)]
        while path:
            if (other := next(onwards[-1], None)) is None:
                flow = path.pop()
                onwards.pop()
                del on_path[flow.target, flow.naming]
                done.add((flow.target, flow.naming))
                continue
            key = (other.target, other.naming)
            if key in on_path:
                circle = [*path[on_path[key] + 1 :], other]
                start = min(range(len(circle)), key=lambda at: flows.index(circle[at]))
                return [*circle[start:], *circle[:start]]
            if key not in done:
                on_path[key] = len(path)
                path.append(other)
                onwards.append(onward(other))
    return None


def _reason_of_circle(circle: Flows, doubled: Sequence[str]) -> str:
    path = " -> ".join([circle[0].source, *(f"{flow.target} (flow {flow.name})" for flow in circle)])
    lines = [f"these flows may feed each other: a topic could go {path}, and on, in a circle"]
    lines += [f"{names} are one cluster, which the names of topics do not show: give it one name" for names in doubled]
    identity = [flow.name for flow in circle if flow.naming == "identity"]
    if identity:
        lines.append(f'use naming = "prefix" in {", ".join(identity)}, or origin = "local" in all of them')
    lines.append("or write the topics of one of them as plain names (a dot as \\\\.)")
    return "; ".join(lines)


def _following(group: Flows, names: Mapping[str, list[str] | None], identity: Mapping[str, str]) -> Following:
    """Return a function that finds the flows that copy a topic which a flow writes, without testing all flows."""
    plain: dict[tuple[str, str], list[FlowConfig]] = defaultdict(list)
    patterned: dict[str, list[FlowConfig]] = defaultdict(list)
    for flow in group:
        topics = names[flow.name]
        if topics is None or flow.mirrormaker.heartbeats:
            patterned[identity[flow.source]].append(flow)
            continue
        for topic in topics:
            plain[identity[flow.source], topic].append(flow)

    def following(flow: FlowConfig, written: str) -> list[FlowConfig]:
        cluster = identity[flow.target]
        others = [other for other in patterned.get(cluster, ()) if other.includes(written)]
        return [*plain.get((cluster, written), ()), *others]

    return following


def _circular_path(first: FlowConfig, topic: str, following: Following) -> tuple[FlowConfig, ...] | None:
    """Return the flows that copy ``topic`` in a circle; None if every path of the topic ends.

    A path ends where all flows of a circle copy local records only: no record goes through two of them.
    """
    paths: list[tuple[tuple[FlowConfig, ...], str]] = [((first,), topic)]
    while paths:
        path, name = paths.pop()
        written = path[-1].target_topic(name)
        for flow in reversed(following(path[-1], written)):
            at = next((at for at, step in enumerate(path) if step is flow), None)
            if at is None:
                paths.append(((*path, flow), written))
            elif not all(step.only_local for step in path[at:]):
                return path
    return None


def cluster_identities(clusters: Mapping[str, Iterable[object]]) -> dict[str, str]:
    """Return for each cluster a name that all clusters with a common broker address share, directly or indirectly."""
    identity = {name: name for name in clusters}
    owner: dict[object, str] = {}
    for name, brokers in clusters.items():
        for broker in brokers:
            first = owner.setdefault(broker, name)
            old, new = identity[name], identity[first]
            identity = {key: new if value == old else value for key, value in identity.items()}
    return identity
