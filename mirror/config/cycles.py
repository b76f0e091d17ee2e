"""Flows that feed each other: refused unless it is certain that no topic can go round.

Flows and clusters are a graph; only flows on one of its cycles can feed each other. A flow whose patterns are plain
names copies a known set of topics, so their way round can be followed. A flow with real patterns copies nobody knows
what, so every cycle must have a flow of plain names in it, none of whose topics comes back to a flow it has been
through. With ``identity`` such a topic would go round for ever; with ``prefix`` its name would grow without end.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from mirror.config.models import FlowConfig

_PLAIN_NAME: Final = re.compile(r"(?:[A-Za-z0-9_-]|\\[.-]|\[\.\])+")

Flows = Sequence["FlowConfig"]
Following = Callable[["FlowConfig", str], list["FlowConfig"]]


def feedback_groups(flows: Flows, identity: Mapping[str, str]) -> Iterator[tuple[Flows, str]]:
    """Groups of flows that may feed each other, with the reason.

    ``identity`` gives for each cluster's name one name for the cluster it really is (two names may mean one).
    """
    graph = _Graph(flows, identity)
    groups: dict[str, list[FlowConfig]] = {}
    for flow in flows:
        if (cycle := graph.cycle_of(flow)) is not None:
            groups.setdefault(cycle, []).append(flow)
    for group in groups.values():
        if reason := _reason(group, identity):
            yield group, reason


class _Graph:
    """The clusters, joined by ``flows``."""

    def __init__(self, flows: Flows, identity: Mapping[str, str]) -> None:
        self._identity = identity
        self._targets: dict[str, set[str]] = defaultdict(set)
        for flow in flows:
            self._targets[identity[flow.source]].add(identity[flow.target])
        self._reached: dict[str, set[str]] = {}

    def cycle_of(self, flow: FlowConfig) -> str | None:
        """One name for all flows that are on cycles with it; None where it is on none."""
        source, target = self._identity[flow.source], self._identity[flow.target]
        if source not in self._reachable(target):
            return None
        return min(cluster for cluster in self._reachable(source) if source in self._reachable(cluster))

    def _reachable(self, start: str) -> set[str]:
        """What can be reached from there, by one flow at least."""
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
    """The topics that the flow copies, or None where its patterns are more than plain names."""
    if not all(_PLAIN_NAME.fullmatch(pattern) for pattern in flow.topics):
        return None
    names = (re.sub(r"\\|\[|\]", "", pattern) for pattern in flow.topics)
    return [name for name in names if flow.includes(name)]


def _reason(group: Flows, identity: Mapping[str, str]) -> str | None:
    names = {flow.name: plain_names(flow) for flow in group}
    patterned = [flow for flow in group if names[flow.name] is None]
    graph = _Graph(patterned, identity)
    if any(graph.cycle_of(flow) is not None for flow in patterned):
        return (
            "these flows may feed each other, for their patterns could match what the others write; "
            "write the topics of one of them as plain names (a dot as \\\\.) until loop prevention is there"
        )
    following = _following(group, names, identity)
    for flow in group:
        for topic in names[flow.name] or ():
            if way := _way_round(flow, topic, following):
                told = ", ".join(step.name for step in way)
                return f'these flows feed each other: topic "{topic}" goes through {told} again and again'
    return None


def _following(group: Flows, names: Mapping[str, list[str] | None], identity: Mapping[str, str]) -> Following:
    """Finds the flows that take up what a flow writes to a topic; not by asking each of thousands."""
    plain: dict[tuple[str, str], list[FlowConfig]] = defaultdict(list)
    patterned: dict[str, list[FlowConfig]] = defaultdict(list)
    for flow in group:
        known = names[flow.name]
        if known is None:
            patterned[identity[flow.source]].append(flow)
        for topic in known or ():
            plain[identity[flow.source], topic].append(flow)

    def following(flow: FlowConfig, written: str) -> list[FlowConfig]:
        cluster = identity[flow.target]
        others = [other for other in patterned.get(cluster, ()) if other.includes(written)]
        return [*plain.get((cluster, written), ()), *others]

    return following


def _way_round(first: FlowConfig, topic: str, following: Following) -> tuple[FlowConfig, ...] | None:
    """The flows that ``topic`` passes until it meets one of them again; None if it always ends somewhere."""
    ways: list[tuple[tuple[FlowConfig, ...], str]] = [((first,), topic)]
    while ways:
        way, name = ways.pop()
        written = way[-1].target_topic(name)
        for flow in reversed(following(way[-1], written)):
            if any(step is flow for step in way):
                return way
            ways.append(((*way, flow), written))
    return None


def cluster_identities(clusters: Mapping[str, Iterable[object]]) -> dict[str, str]:
    """One name for all clusters that share a broker's address, directly or through others."""
    identity = {name: name for name in clusters}
    owner: dict[object, str] = {}
    for name, brokers in clusters.items():
        for broker in brokers:
            first = owner.setdefault(broker, name)
            old, new = identity[name], identity[first]
            identity = {key: new if value == old else value for key, value in identity.items()}
    return identity
