"""Cycles of flows that would copy a topic back to where it came from. They are refused unless that cannot happen.

Flows and clusters are a graph; only flows on one of its cycles can feed each other. With ``prefix`` a topic has the
names of the clusters that it came from, and is not copied back to one of these (``topic_selection.left_out``): what
leaves a cluster with a prefix does not come in again with a prefix. So no circle is closed at a cluster where both
flows have prefixes, unless flows call one cluster by several names, or give topics other names (``names``).

Elsewhere a topic may go round: with ``identity`` in circles forever, with a prefix in it its name would grow without
end. A flow whose patterns are plain names copies a fixed set of topics, whose path can be followed. A flow with real
patterns may copy any topic, so every circle that names do not close needs a flow of plain names, none of whose topics
returns to a flow that has copied it. All of this takes polynomial time, also for a full mesh.

A circle of flows that all copy local records only is none: no record goes through two of them.

Heartbeats are copied beside a flow's topics, and are followed in the same way: their names prevent a cycle unless a
cluster has two names.
"""

from __future__ import annotations

import re
from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from mirror.mirrormaker.names import HEARTBEATS

if TYPE_CHECKING:
    from mirror.config.models import FlowConfig

_MOST_FOLLOWED: Final = 10_000
_PLAIN_NAME: Final = re.compile(r"(?:[A-Za-z0-9_-]|\\[.-]|\[\.\])+")

S = TypeVar("S", bound=Hashable)
Flows = Sequence["FlowConfig"]
Following = Callable[["FlowConfig", str], list["FlowConfig"]]
_Copied = tuple[str, str]
"""The name of a flow, and a topic on its source that it copies."""


# Invariant: Flows that may feed each other are refused: a topic that came from a cluster never goes back to it, over
#   any number of hops.
# Test: tests/config/test_cycles.py::test_flows_that_may_feed_each_other_are_refused
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
    names = [plain_name(pattern) for pattern in flow.topics]
    return None if None in names else [name for name in names if name is not None and flow.selects(name)]


def plain_name(pattern: str) -> str | None:
    """Return the only name that the regular expression ``pattern`` matches; None if it is not plainly a name."""
    return re.sub(r"\\|\[|\]", "", pattern) if _PLAIN_NAME.fullmatch(pattern) else None


def _reason(group: Flows, identity: Mapping[str, str]) -> str | None:
    names = {flow.name: plain_names(flow) for flow in group}
    patterned = [flow for flow in group if names[flow.name] is None]
    if circle := _open_circle(patterned, identity):
        return _reason_of_circle(circle, _doubled(patterned, identity))
    if circle := _open_circle(_carriers_of_heartbeats(group, patterned), identity):
        return _reason_of_topic(HEARTBEATS, circle)
    return _returning_topic(group, names, identity)


def _doubled(flows: Flows, identity: Mapping[str, str]) -> list[str]:
    """Return the names of clusters that ``flows`` call by more than one name, each cluster's as one text."""
    names: dict[str, set[str]] = defaultdict(set)
    for flow in flows:
        names[identity[flow.source]].add(flow.source)
        names[identity[flow.target]].add(flow.target)
    return sorted(" and ".join(sorted(of)) for of in names.values() if len(of) > 1)


def _open_circle(flows: Flows, identity: Mapping[str, str]) -> Flows | None:
    """Return flows through which a topic could go in a circle, because no cluster's name closes it.

    If a cluster has two names, no name closes a circle. Where a topic may go depends on the cluster where it is, and on
    whether the last flow has set a prefix.
    """
    names_close = not _doubled(flows, identity)
    unlike = {
        (flow.source, flow.target, _has_prefixes(flow), flow.only_local, _alone(flow)): at
        for at, flow in reversed([*enumerate(flows)])
    }
    leaving: dict[str, list[int]] = defaultdict(list)
    for at in sorted(unlike.values()):
        leaving[identity[flows[at].source]].append(at)

    def onward(at: int) -> Iterator[int]:
        for other in leaving.get(identity[flows[at].target], ()):
            # What leaves a cluster with a prefix never comes in again with one.
            closes = names_close and _has_prefixes(flows[at]) and _has_prefixes(flows[other])
            # A flow within one cluster refuses the topics whose copies it would select.
            if not closes and not (at == other and flows[at].is_within_one_cluster):
                yield other

    for first in sorted(unlike.values()):
        if not flows[first].only_local and (circle := _way_back(first, onward, first.__eq__)):
            return [flows[at] for at in circle[:-1]]
    return None


def _has_prefixes(flow: FlowConfig) -> bool:
    """Return whether the names of all copies begin with the name of the source."""
    return flow.naming == "prefix" and not flow.names


def _alone(flow: FlowConfig) -> str:
    """Return what distinguishes flows between the same clusters: several within one can feed each other."""
    return flow.name if flow.is_within_one_cluster else ""


def _reason_of_circle(circle: Flows, doubled: Sequence[str]) -> str:
    path = " -> ".join([circle[0].source, *(f"{flow.target} (flow {flow.name})" for flow in circle)])
    lines = [f"these flows may feed each other: a topic could go {path}, and on, in a circle"]
    lines += [f"{names} are one cluster, which the names of topics do not show: give it one name" for names in doubled]
    identity = [flow.name for flow in circle if flow.naming == "identity"]
    if identity:
        lines.append(f'use naming = "prefix" in {", ".join(identity)}, or origin = "local" in all of them')
    if renaming := [flow.name for flow in circle if flow.names]:
        lines.append(f"names in {', '.join(renaming)} may give a topic the name that it came with: remove that")
    lines.append("or write the topics of one of them as plain names (a dot as \\\\.)")
    return "; ".join(lines)


def _reason_of_topic(topic: str, circle: Flows) -> str:
    steps = ", ".join(flow.name for flow in circle)
    return f'these flows feed each other: topic "{topic}" goes through {steps} again and again'


def _carriers_of_heartbeats(group: Flows, patterned: Flows) -> Flows:
    """Return the flows that may copy heartbeats, as they name them; none if no flow has to copy them."""
    always = [
        flow.model_copy(update={"naming": "prefix", "names": {}}) for flow in group if flow.mirrormaker.heartbeats
    ]
    clusters = {flow.source for flow in group}
    prefixed = [HEARTBEATS, *(f"{one}.{HEARTBEATS}" for one in clusters)]
    # Heartbeats may have many prefixes. What excludes them excludes those with few.
    prefixed += [f"{one}.{other}.{HEARTBEATS}" for one in clusters for other in clusters]
    selecting = [flow for flow in patterned if any(map(flow.selects, prefixed))] if always else []
    return [*always, *selecting]


def _returning_topic(group: Flows, names: Mapping[str, list[str] | None], identity: Mapping[str, str]) -> str | None:
    """Return the reason if a topic of a flow of plain names returns to a flow that has copied it.

    Without ``names``, they only grow on their way. So one that a flow of plain names copies further on was a part of
    the name there, and only such names are followed: the others, whose number may be factorial, stay among the flows
    with patterns, whose circles are closed. With ``names`` all are followed, and too many are refused.
    """
    flows = {flow.name: flow for flow in group}
    following = _following(group, names, identity)
    listed = [(flow.name, topic) for flow in group for topic in names[flow.name] or ()]
    renaming = any(flow.names for flow in group)
    followed = {topic[at:] for _, topic in listed for at in (0, *(dot.end() for dot in re.finditer(r"\.", topic)))}
    found: dict[_Copied, list[_Copied]] = {}

    def onward(copied: _Copied) -> list[_Copied]:
        if copied not in found:
            flow = flows[copied[0]]
            written = flow.target_topic(copied[1])
            others = following(flow, written) if renaming or written in followed else ()
            found[copied] = [(other.name, written) for other in others if not (other is flow and _alone(flow))]
        return found[copied]

    waiting, reached = [*listed], set(listed)
    while waiting:
        new = set(onward(waiting.pop())) - reached
        reached |= new
        waiting += new
        if len(reached) > _MOST_FOLLOWED:
            return f"with names, their topics may go more than {_MOST_FOLLOWED} ways: remove names, or a flow"
    for first in sorted(reached):
        if flows[first[0]].only_local:
            continue
        if path := _way_back(first, onward, partial(_is_of, first[0])):
            return _reason_of_topic(first[1], [flows[name] for name, _ in path[:-1]])
    return None


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


def _is_of(flow: str, copied: _Copied) -> bool:
    return copied[0] == flow


def _way_back(first: S, onward: Callable[[S], Iterable[S]], is_back: Callable[[S], bool]) -> list[S] | None:
    """Return the shortest path from ``first`` to a state that ``is_back``, both included; None if there is none."""
    before: dict[S, S] = {}
    waiting = deque([first])
    while waiting:
        state = waiting.popleft()
        for other in onward(state):
            if is_back(other):
                path = [other, state]
                while path[-1] != first:
                    path.append(before[path[-1]])
                return path[::-1]
            if other not in before:
                before[other] = state
                waiting.append(other)
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
