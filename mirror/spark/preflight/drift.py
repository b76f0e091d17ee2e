"""Compares both sides of a flow, or brings them in step once, without Spark: topics, their configurations and ACLs."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from mirror.alignment.deletion_decision import CONFIRM_MS
from mirror.alignment.differences import KindReport
from mirror.alignment.owned_topics import adopt as mark_adopted
from mirror.alignment.planned import Item, items_of, stale
from mirror.config.flow_rules import target_options
from mirror.errors import FlowError, KafkaError
from mirror.relay.origin.records import REGISTRY_TOPIC, Registry
from mirror.relay.origin.registry import Side
from mirror.relay.progress.latch import LatchCheck
from mirror.runtime.clock import SystemClock
from mirror.spark.planning.range_planner import select_topics
from mirror.spark.preflight import flow_topics
from mirror.spark.preflight.flow_reconciler import (
    Alignment,
    FlowReconciler,
    compare_target,
    creation_recorder,
    fenced_in,
    kinds_of,
    owned_topics,
)
from mirror.spark.preflight.flow_registries import begin_registries, begun, read_registries, to_begin
from mirror.spark.preflight.plan_file import FlowPlan, PlanFile, refuse_stale
from mirror.spark.preflight.plan_items import beginnings, begins_registries, what_of
from mirror.spark.preflight.target_topics import Prepared, prepare_topics
from mirror.spark.run_control import RunControlClient

if TYPE_CHECKING:
    from mirror.client import Admin
    from mirror.config.models import FlowConfig, MirrorConfig
    from mirror.observation import Sides

_KEEPS: Final = 'on-topic-deleted is "keep", and configs is not "sync"'
pause = time.sleep
"""Waits between two rounds; tests replace it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowDrift:
    """What differs between the two sides of a flow; the field names are keys of the JSON output."""

    flow: str
    source: str
    target: str
    changes: list[str]
    """Lines about topics that are missing or too small, and about registries that have not begun."""
    done: list[str]
    """Lines about topics that were created, and about registries that were begun."""
    obstacles: dict[str, str]
    """Why a source topic has no target topic that it can be copied into, by source topic; the registry's problem."""
    configs: KindReport
    deletions: KindReport
    acls: KindReport
    warnings: list[str]
    topics: tuple[Item, ...] = ()
    """The topics that are missing or too small, and the registries that have not begun, as a plan lists them."""
    source_id: str = ""
    """The id of the source cluster."""
    target_id: str = ""

    @property
    def planned(self) -> FlowPlan:
        """What :func:`apply` would change."""
        of_kinds = (item for kind in self.kinds for item in items_of(kind, self.target))
        return FlowPlan(source_id=self.source_id, target_id=self.target_id, items=(*self.topics, *of_kinds))

    @property
    def kinds(self) -> tuple[KindReport, ...]:
        """What differs, by kind."""
        return self.configs, self.deletions, self.acls

    @property
    def is_in_step(self) -> bool:
        """Whether both sides are the same now."""
        return not self.changes and not self.obstacles and all(kind.is_in_step for kind in self.kinds)

    @property
    def problems(self) -> tuple[str, ...]:
        """What could not be compared, or failed."""
        return tuple(problem for kind in self.kinds for problem in kind.problems)

    def lines(self) -> Iterator[str]:
        """Yield the differences as a diff."""
        yield from (f"+ {line}" for line in (*self.done, *self.changes))
        yield from (f"= {line}" for line in self.obstacles.values())
        for kind in self.kinds:
            yield from kind.lines()
        yield from (f"= {line}" for line in self.problems)

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "flow": self.flow,
            "source": self.source,
            "target": self.target,
            "in_step": self.is_in_step,
            "changes": self.changes,
            "done": self.done,
            "obstacles": self.obstacles,
            "configs": self.configs.to_json(),
            "deletions": self.deletions.to_json(),
            "acls": self.acls.to_json(),
            "warnings": self.warnings,
        }


class Comparison(NamedTuple):
    """Both sides of a flow, compared."""

    drift: FlowDrift
    topics: Prepared
    registries: Mapping[Side, Registry]


def compare(
    config: MirrorConfig, flow: FlowConfig, sides: Sides, *, adopt: bool = False, max_deletions: int | None = None
) -> Comparison:
    """Compare both sides and change nothing; the options are those of :func:`apply`.

    Raises FlowError if no topic matches, KafkaError.
    """
    owned = owned_topics(config, flow)
    found = prepare_topics(flow, sides, validate_only=True, owned=owned)
    kinds = compare_target(config, flow, sides, coming=found.new.keys(), adopt=adopt, max_deletions=max_deletions)
    registries = read_registries(config, flow)
    drift = FlowDrift(
        flow=flow.name,
        source=flow.source,
        target=flow.target,
        changes=[
            *_on(flow.target, [*found.changes, *to_begin(registries, "target")]),
            *_on(flow.source, [*found.source_changes, *to_begin(registries, "source")]),
        ],
        done=[],
        obstacles={topic: obstacle.describe(topic) for topic, obstacle in found.targets.obstacles.items()},
        **kinds._asdict(),
        warnings=found.warnings,
        topics=(*found.items(flow, sides.source.topics), *beginnings(flow, registries)),
        source_id=sides.source.cluster.cluster_id or "",
        target_id=sides.target.cluster.cluster_id or "",
    )
    return Comparison(drift, found, registries)


def check_plan(config: MirrorConfig, flow: FlowConfig, sides: Sides, plan: PlanFile) -> FlowPlan:
    """Return what the ``plan`` has for ``flow``, which rests on what both sides are now. Changes nothing.

    Raises FlowError with what has changed since it was made, FlowHeld, and what :func:`compare` raises.
    """
    LatchCheck(config.clusters[flow.target].client_options(), flow.name)()
    found = compare(config, flow, sides, adopt=plan.adopt, max_deletions=plan.max_deletions)
    planned, now = plan.flows[flow.name], found.drift.planned
    refuse_stale([*_other_clusters(sides, planned), *stale(planned.items, now.items, found.drift.kinds)])
    return planned


def _other_clusters(sides: Sides, plan: FlowPlan) -> list[str]:
    """Return a line for each side that is another cluster than that of the ``plan``. Raises KafkaError."""
    return [
        f"cluster {side.name} had the id {before} and has {after}"
        for side, before in zip(sides, (plan.source_id, plan.target_id), strict=True)
        if (after := side.cluster.cluster_id or "") != before
    ]


def apply(
    config: MirrorConfig,
    flow: FlowConfig,
    sides: Sides,
    *,
    adopt: bool = False,
    adopted: Collection[str] = (),
    max_deletions: int | None = None,
    plan: FlowPlan | None = None,
) -> FlowDrift:
    """Create what is missing, begin registries, and bring the target's topics and ACLs in step; return what differs.

    ``adopt``: also replace what others have set there. ``adopted``: target topics that are the flow's from now on.
    ``max_deletions``: delete or reduce up to so many topics, instead of the flow's limit. Both need two rounds, between
    which this waits. Changes that would disturb running copies are not made while a run of the flow is alive. What
    fails once topics are prepared, also because a run begins meanwhile, is among the problems. With a ``plan`` nothing
    else is changed, and this only from the facts of the plan. Raises FlowError if no topic matches, one cannot be
    adopted or a cluster is not that of the plan, FlowHeld, KafkaError.
    """
    check_latch = LatchCheck(config.clusters[flow.target].client_options(), flow.name)
    check_latch()
    sides = sides.again()  # earlier flows of the command have made topics since
    if plan is not None:
        refuse_stale(_other_clusters(sides, plan))
    if adopted:
        _adopt(config, flow, adopted, sides, check_latch)
        sides = sides.again()
    owned = owned_topics(config, flow)
    planned = None if plan is None else {item.key: item for item in plan.items}
    recorder = creation_recorder(config, flow)
    prepared = prepare_topics(flow, sides, recorder=recorder, owned=owned, planned=planned, check=check_latch)
    obstacles = {topic: obstacle.describe(topic) for topic, obstacle in prepared.targets.obstacles.items()}
    registries: list[str] = []
    check_latch()
    try:
        # Before anything else, because origin-from decides about what is produced before a registry begins.
        if plan is None or begins_registries(plan.items):
            registries = begun(begin_registries(config, flow), flow)
    except (FlowError, KafkaError) as error:
        obstacles[REGISTRY_TOPIC] = str(error)
    items = None if plan is None else plan.items
    kinds = _reconcile(config, flow, sides, prepared, adopt=adopt, max_deletions=max_deletions, planned=items)
    unused = [] if max_deletions is None or flow.aligns_topics else ["--max-deletions has no effect: " + _KEEPS]
    return FlowDrift(
        flow=flow.name,
        source=flow.source,
        target=flow.target,
        changes=[],
        done=[
            *_on(
                flow.target,
                (f"topic {name} was created" for name in (*prepared.new, *(one.name for one in prepared.own))),
            ),
            *_on(
                flow.target, (f"topic {name} has {count} partitions now" for name, count in prepared.extended.items())
            ),
            *_on(flow.source, (f"topic {name} was created" for name in (one.name for one in prepared.own_on_source))),
            *_on(flow.target, (f"topic {name} was adopted" for name in sorted(adopted))),
            *registries,
        ],
        obstacles=obstacles,
        **kinds._asdict(),
        warnings=[*prepared.warnings, *unused, *_vanished(flow, sides, plan, prepared, obstacles, kinds)],
    )


def _vanished(
    flow: FlowConfig,
    sides: Sides,
    plan: FlowPlan | None,
    prepared: Prepared,
    obstacles: Collection[str],
    kinds: Alignment,
) -> Iterator[str]:
    """Yield a line for each item of ``plan`` that was not made, and for which nothing else gives a reason."""
    if plan is None or obstacles or any(kind.problems for kind in kinds):
        return
    seen = {item.what for item in prepared.items(flow, sides.source.topics)}
    seen |= {one.what or one.text for kind in kinds for one in kind.differences}
    # Earlier flows of the command may have made what several flows write.
    seen |= {what_of(own.name) for own in (*flow_topics.on_source(flow), *flow_topics.on_target(flow))}
    for item in plan.items:
        if item.what not in seen and not begins_registries([item]):
            yield f"{item}: nothing was to be done about it any more"


def _reconcile(
    config: MirrorConfig,
    flow: FlowConfig,
    sides: Sides,
    prepared: Prepared,
    *,
    adopt: bool,
    max_deletions: int | None,
    planned: Collection[Item] | None,
) -> Alignment:
    """Bring the target in step; what another round has to confirm, in two rounds. Raises KafkaError."""
    if not kinds_of(flow):
        return Alignment()
    running = flow.aligns_topics and _is_running(sides.target.admin, flow)
    with FlowReconciler(config, flow) as reconciler:
        align = partial(
            reconciler.round, adopt=adopt, beside_copies=running, max_deletions=max_deletions, planned=planned
        )
        found = align(sides.again(), created=prepared.created)
        if fenced_in(found) is None and any(one.unconfirmed for one in found.values()):
            pause(CONFIRM_MS / 1000)
            second = align(sides.again())
            found = {kind: one.followed_by(second[kind]) for kind, one in found.items()}
    return Alignment(**found)


def _adopt(
    config: MirrorConfig, flow: FlowConfig, names: Collection[str], sides: Sides, check_latch: LatchCheck
) -> None:
    """Make these target topics the flow's. Raises FlowError if the flow copies into none of that name, KafkaError."""
    copies = {flow.target_topic(name) for name in select_topics(flow, sides.source.topics)}
    found = sides.target.describe(names)
    for error in found.failed.values():
        raise error
    refused = [
        f"flow {flow.name} cannot adopt {', '.join(of_reason)}: {reason}; nothing was changed"
        for of_reason, reason in (
            (sorted(set(names) - copies), f"it copies no topic of {flow.source} into a topic of that name"),
            (sorted(set(names) & copies - found.keys()), f"{flow.target} has no such topic: a run creates it"),
        )
        if of_reason
    ]
    if refused:
        raise _NotAdopted("\n".join(refused))
    if without_id := sorted(name for name, topic in found.items() if topic.topic_id is None):
        raise FlowError(
            f"flow {flow.name} cannot adopt {', '.join(without_id)}: the brokers of {flow.target} give topics no ids"
            " (Apache Kafka's do from 2.8 on), by which adopted topics are known; leave the source topic out by"
            " topics-exclude, or use another naming; nothing was changed"
        )
    flow_topics.prepare([flow_topics.inventory_of(flow)], sides.target, check=check_latch)
    check_latch()
    mark_adopted(target_options(config, flow), flow.name, found)


class _NotAdopted(FlowError):
    """Topics that a flow cannot adopt, a line for each reason."""

    several_lines = True


def _on(cluster: str, lines: Iterable[str]) -> list[str]:
    return [f"on {cluster}: {line}" for line in lines]


def _is_running(target: Admin, flow: FlowConfig) -> bool:
    """Return whether a run of the flow is alive, or may be."""
    control = RunControlClient(target, flow.name).read()
    return control is not None and not control.ended and not control.is_dead(SystemClock().unix_ms())
