"""Flows that feed each other: refused unless it is certain that no topic can go round.

Flows and clusters are a graph; only flows on one of its cycles can feed each other. A flow whose patterns are plain
names copies a known set of topics, so their way round can be followed. A flow with real patterns copies nobody knows
what, so every cycle must have a flow of plain names in it, none of whose topics comes back to a flow it has been
through. With ``identity`` such a topic would go round for ever; with ``prefix`` its name would grow without end.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from mirror.config.models import FlowConfig

_PLAIN_NAME: Final = re.compile(r"(?:[A-Za-z0-9_-]|\\[.-]|\[\.\])+")

Flows = Sequence["FlowConfig"]


def feeding_each_other(flows: Flows, identity: Mapping[str, str]) -> Iterator[tuple[Flows, str]]:
    """Groups of flows that may feed each other, with the reason.

    ``identity`` gives for each cluster's name one name for the cluster it really is (two names may mean one).
    """
    remaining = list(flows)
    while remaining:
        first = remaining.pop(0)
        group = [first, *(flow for flow in remaining if _mutual(first, flow, flows, identity))]
        remaining = [flow for flow in remaining if flow not in group]
        if not _on_a_cycle(first, group, identity):
            continue
        if reason := _reason(group, identity):
            yield group, reason


def plain_names(flow: FlowConfig) -> list[str] | None:
    """The topics that the flow copies, or None where its patterns are more than plain names."""
    if not all(_PLAIN_NAME.fullmatch(pattern) for pattern in flow.topics):
        return None
    names = (re.sub(r"\\|\[|\]", "", pattern) for pattern in flow.topics)
    return [name for name in names if flow.wants(name)]


def _reason(group: Flows, identity: Mapping[str, str]) -> str | None:
    patterned = [flow for flow in group if plain_names(flow) is None]
    if any(_on_a_cycle(flow, patterned, identity) for flow in patterned):
        return (
            "these flows may feed each other, for their patterns could match what the others write; "
            "write the topics of one of them as plain names (a dot as \\\\.) until loop prevention is there"
        )
    for flow in group:
        for topic in plain_names(flow) or ():
            if way := _way_round(flow, topic, group, identity, ()):
                names = ", ".join(step.name for step in way)
                return f'these flows feed each other: topic "{topic}" goes through {names} again and again'
    return None


def _way_round(
    flow: FlowConfig, topic: str, group: Flows, identity: Mapping[str, str], way: tuple[FlowConfig, ...]
) -> tuple[FlowConfig, ...] | None:
    """The flows that ``topic`` passes until it meets one of them again; None if it always ends somewhere."""
    if any(step is flow for step in way):
        return way
    written = flow.target_topic(topic)
    for following in _following(flow, group, identity):
        if following.wants(written) and (found := _way_round(following, written, group, identity, (*way, flow))):
            return found
    return None


def _following(flow: FlowConfig, flows: Flows, identity: Mapping[str, str]) -> list[FlowConfig]:
    return [other for other in flows if identity[other.source] == identity[flow.target]]


def _reachable(start: FlowConfig, flows: Flows, identity: Mapping[str, str]) -> set[str]:
    """The names of the flows that can come after ``start``."""
    seen: set[str] = set()
    waiting: list[FlowConfig] = _following(start, flows, identity)
    while waiting:
        flow = waiting.pop()
        if flow.name not in seen:
            seen.add(flow.name)
            waiting += _following(flow, flows, identity)
    return seen


def _on_a_cycle(flow: FlowConfig, flows: Flows, identity: Mapping[str, str]) -> bool:
    return flow.name in _reachable(flow, flows, identity)


def _mutual(one: FlowConfig, other: FlowConfig, flows: Flows, identity: Mapping[str, str]) -> bool:
    return other.name in _reachable(one, flows, identity) and one.name in _reachable(other, flows, identity)


def identities(clusters: Mapping[str, Iterable[object]]) -> dict[str, str]:
    """One name for all clusters that share a broker's address, directly or through others."""
    identity = {name: name for name in clusters}
    owner: dict[object, str] = {}
    for name, brokers in clusters.items():
        for broker in brokers:
            first = owner.setdefault(broker, name)
            old, new = identity[name], identity[first]
            identity = {key: new if value == old else value for key, value in identity.items()}
    return identity
