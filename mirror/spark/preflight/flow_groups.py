"""What a flow's configuration says about consumer groups, rounds by these rules, and what the next one would commit."""

from __future__ import annotations

import functools
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from mirror.config.flow_rules import source_options, target_options
from mirror.errors import MirrorError, named
from mirror.groups.clusters import FlowAccess
from mirror.groups.forecast import GroupsForecast, forecast_of
from mirror.groups.own_groups import is_own_group
from mirror.groups.reverse import ReverseGroups
from mirror.groups.routes import AlsoFed, CopyingFlow, Partners
from mirror.groups.rules import GroupRules
from mirror.groups.sync import GroupSync
from mirror.runtime.clock import SystemClock
from mirror.spark.planning.opposite_flows import brought_back_by, opposite_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from mirror.config.models import FlowConfig, MirrorConfig
    from mirror.groups.reverse import FedBy

TIMEOUT_S: Final = 60.0
"""How long the comparison of groups takes at most. A round has no such limit: only each of its calls has."""
_KNOWN_NAMES: Final = 50_000
"""Groups and topics whose names are matched with a flow's patterns once."""


def open_sync(
    config: MirrorConfig,
    flow: FlowConfig,
    *,
    beside_copies: bool = False,
    only: Collection[str] = (),
    holder: str = "",
) -> GroupSync:
    """Return the rounds of ``flow``, to be closed; if groups are named, ``only`` of these. Raises MirrorError.

    They write although the flow is held, if ``holder`` holds it.
    """
    interval_ms = flow.groups.interval_ms if beside_copies else 0
    rules = only_groups(rules_of(flow, patience_ms=interval_ms), only)
    partners = partners_of(config, flow)
    return GroupSync(access_of(config, flow, holder), rules, SystemClock(), partners, interval_ms=interval_ms)


def open_way_back(config: MirrorConfig, flow: FlowConfig, *, only: Collection[str] = ()) -> ReverseGroups:
    """Return what reads the groups of the target of ``flow``, to be closed. Raises MirrorError."""
    rules, feeding = only_groups(rules_of(flow), only), feeding_flow(config, flow)
    return ReverseGroups(access_of(config, flow), rules, SystemClock(), feeding, also_fed(config, flow))


def access_of(config: MirrorConfig, flow: FlowConfig, holder: str = "") -> FlowAccess:
    """Return how the clusters of ``flow`` are reached, for what reads groups."""
    return FlowAccess(
        name=flow.name,
        source_options=source_options(config, flow),
        target_options=target_options(config, flow),
        policy=flow.copy_policy(),
        holder=holder,
    )


def rules_of(flow: FlowConfig, *, patience_ms: int = 0) -> GroupRules:
    """Return which groups and topics ``flow`` brings to its target; ``patience_ms`` is that of :class:`GroupRules`."""

    def target_topic(topic: str) -> str | None:
        return flow.target_topic(topic) if flow.includes(topic) else None

    # Each round asks for each partition of a group; matching the patterns took a sixth of its CPU time.
    known = functools.lru_cache(_KNOWN_NAMES)
    return GroupRules(
        includes=known(lambda group: flow.groups.includes(group) and not _is_own(flow, group)),
        target_group=known(flow.groups.target_group) if flow.groups.names else str,
        source_group=known(flow.groups.source_group) if flow.groups.names else str,
        name_taken_by=flow.groups.name_taken_by,
        target_topic=known(target_topic),
        source_topic=known(flow.source_topic),
        lists_translated=flow.mirrormaker.checkpoints,
        most=flow.max_groups,
        delete=flow.groups.on_group_deleted == "delete",
        patience_ms=patience_ms,
    )


def _is_own(flow: FlowConfig, group: str) -> bool:
    return is_own_group(group) or is_own_group(flow.groups.target_group(group))


def only_groups(rules: GroupRules, names: Collection[str]) -> GroupRules:
    """Return the rules for these groups only; if none is named, for all."""
    if not names:
        return rules
    return replace(rules, includes=lambda group: group in names and rules.includes(group))


def with_the_same_name(rules: GroupRules) -> Callable[[str], bool]:
    """Return whether a group has the same name on both sides, as all that MirrorMaker 2 brings over."""
    return lambda group: rules.includes(group) and rules.target_group(group) == group


def partners_of(config: MirrorConfig, flow: FlowConfig) -> Partners:
    """Return the flows in the other direction that concern the groups of ``flow``."""
    opposite = opposite_of(config, flow)
    return Partners(
        opposite=None if opposite is None else opposite.name,
        opposite_group=str if opposite is None else rules_of(opposite).source_group,
        copying=tuple(_copying_flow(config, other) for other in brought_back_by(config, flow)),
        also_fed=also_fed(config, flow),
    )


def _copying_flow(config: MirrorConfig, flow: FlowConfig) -> CopyingFlow:
    return CopyingFlow(access=access_of(config, flow), rules=rules_of(flow), writes=flow.groups.sync)


def also_fed(config: MirrorConfig, flow: FlowConfig) -> AlsoFed:
    """Return what finds flows that a translation leaves out, though they change the order of a topic's records.

    They copy between the two clusters, under the same names.
    """
    ends = (flow.source, flow.target)
    between = [one for one in config.flows.values() if (one.source, one.target) in {ends, ends[::-1]}]

    @functools.lru_cache(_KNOWN_NAMES)
    def find(flows: frozenset[str], source_topic: str, target_topic: str) -> str:
        for one in between:
            names = (source_topic, target_topic) if one.source == flow.source else (target_topic, source_topic)
            if one.name not in flows and one.includes(names[0]) and one.target_topic(names[0]) == names[1]:
                used = named("flow", sorted(flows))
                return f"flow {one.name} copies {names[0]} to {names[1]}, too, which the index of {used} does not have"
        return ""

    return find


def feeding_flow(config: MirrorConfig, flow: FlowConfig) -> FedBy:
    """Return what finds the flow that copies, to a topic of ``flow``'s source, one of its target; None if none does."""
    others = [one for one in config.flows.values() if (one.source, one.target) == (flow.target, flow.source)]
    copying = {one.name: _copying_flow(config, one) for one in others}

    def find(source_topic: str, target_topic: str) -> CopyingFlow | None:
        feeding = (
            one for one in others if one.includes(target_topic) and one.target_topic(target_topic) == source_topic
        )
        return next((copying[one.name] for one in feeding), None)

    return find


def compare_groups(config: MirrorConfig, flow: FlowConfig, *, timeout_s: float = TIMEOUT_S) -> GroupsForecast | None:
    """Return what the next round would commit, without writing anything; None if the flow commits no positions.

    Returns within ``timeout_s`` seconds and raises nothing: what keeps groups from being compared is in ``problems``.
    """
    if not flow.groups.sync:
        return None
    found: list[GroupsForecast] = []

    def read() -> None:
        try:
            with open_sync(config, flow) as sync:
                found.append(forecast_of(sync.round(write=False)))
        except MirrorError as error:
            found.append(_failed(str(error)))
        except Exception as error:  # noqa: BLE001 - raised in a thread, it would be lost
            found.append(_failed(f"{type(error).__name__}: {error}"))

    # The thread is a daemon: neither this call nor the end of the process may wait for it any longer.
    thread = threading.Thread(target=read, name=f"mirror-groups-{flow.name}", daemon=True)
    thread.start()
    thread.join(timeout_s)
    return found[0] if found else _failed(f"not done within {timeout_s:g} s; mirror groups waits longer")


def _failed(problem: str) -> GroupsForecast:
    return GroupsForecast(problems=(f"consumer groups could not be compared: {' '.join(problem.split())}",))
