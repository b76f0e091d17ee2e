"""The two ways on which a flow brings positions over: of what it copies, and of copies that came from its target."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Final

from mirror.client import TopicPartition
from mirror.errors import KafkaError
from mirror.groups.clusters import TIMEOUT_MS, FlowAccess, FlowClusters
from mirror.groups.commit_decision import Intent, Reason
from mirror.groups.group_partition import GroupPartition
from mirror.groups.intents import StoredIntents
from mirror.groups.other_direction import is_theirs
from mirror.groups.rules import GroupRules
from mirror.groups.translation.back_logs import BackLogs
from mirror.groups.translation.both_directions import BothDirectionsLogs
from mirror.groups.translation.logs import FlowLogs
from mirror.relay.progress.flow_topic import FlowTopic, group_topic_of
from mirror.relay.progress.followed_topic import FollowedTopic
from mirror.timing import Clock


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyingFlow:
    """A flow from this flow's target to its source, whose copies this flow brings the positions of back."""

    access: FlowAccess
    rules: GroupRules
    """Those of the copying flow."""
    writes: bool
    """Whether it brings groups over itself."""

    @property
    def name(self) -> str:
        """The name of the flow."""
        return self.access.name


AlsoFed = Callable[[frozenset[str], str, str], str]
"""Why the records of a source and a target topic are in another order than some flows know of; empty if they are not.

The arguments are the names of the flows whose indexes translate between them, and of the topics.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Partners:
    """The flows in the other direction that concern the groups of a flow."""

    opposite: str | None = None
    """The flow that brings the positions of this flow's copies back to its source; None if none does."""
    opposite_group: Callable[[str], str | None] = str
    """The name that a group of this flow's source has on the source of that flow; None if it brings none over so."""
    copying: tuple[CopyingFlow, ...] = ()
    """Those whose copies are brought back by this flow."""
    also_fed: AlsoFed = lambda _flows, _source, _target: ""
    """What else feeds the topics of a row."""


class TheirIntents:
    """What another flow has stored, whose group topic is on this flow's source."""

    def __init__(
        self,
        flow: str,
        source_options: Mapping[str, object],
        clock: Clock,
        group_there: Callable[[str], str | None] = str,
    ) -> None:
        """``group_there`` returns the name on the other flow's source of a group that it brings to this source."""
        self.flow: Final = flow
        self._group_there: Final = group_there
        self._clock: Final = clock
        self._followed: Final = FollowedTopic(FlowTopic(source_options, group_topic_of(flow)))
        self._stored: Final = StoredIntents(group_there)
        self._is_read = False

    def close(self) -> None:
        """Close the connections."""
        self._followed.close()

    def read(self) -> None:
        """Read what was stored since the last call; without the topic, there is nothing. Raises KafkaError."""
        self._is_read = False
        stored = self._stored
        self._followed.follow(
            self._clock,
            TIMEOUT_MS,
            clear=stored.clear,
            take=lambda record: stored.take(record.key, record.value, record.offset),
        )
        self._is_read = True

    def get(self, group: str, tp: TopicPartition) -> Intent | None:
        """Return the other flow's last intent for a partition of this flow's source; none if it could not be read."""
        there = self._group_there(group)
        return None if there is None or not self._is_read else self._stored.get(there, tp)


@dataclass(frozen=True, slots=True, eq=False)
class Route:
    """Topics whose positions a flow brings over, and what translates them.

    Each is equal to itself only: a round has one as the key of each row, and a hash of all fields takes longer.
    """

    flows: tuple[str, ...]
    """Those whose indexes translate them: of this flow, of the one in the other direction, or of both."""
    logs: FlowLogs | BothDirectionsLogs
    target_topic: Callable[[str], str | None]
    source_topic: Callable[[str], str | None]
    delete: bool
    """Whether offsets are deleted that the source's group does not have any more."""
    repeats: bool
    """Whether the copy may repeat records, so that an earlier translation may have been that of a late copy."""
    theirs: TheirIntents | None
    is_ahead: bool = False
    """Whether what it translates is copied by this flow, and not only from there."""

    @property
    def is_both_directions(self) -> bool:
        """Whether the records of both sides are in the logs, in another order: positions are the lowest ones."""
        return len(self.flows) > 1

    @property
    def name(self) -> str:
        """The names of its flows."""
        return " and ".join(self.flows)

    def read_theirs(self) -> str | None:
        """Read what the other flow has stored; return why that could not be read.

        What is not known of it looks like a takeover: nothing is written.
        """
        if self.theirs is None:
            return None
        try:
            self.theirs.read()
        except KafkaError as error:
            return f"what flow {self.theirs.flow} has committed for groups cannot be read: {error}"
        return None

    def intent_of_other(self, row: GroupPartition) -> Intent | None:
        """Return the intent of the flow that goes the other way, for the offset of ``row`` on the source."""
        return None if self.theirs is None else self.theirs.get(row.group, row.source)

    def only_came_back(self, row: GroupPartition) -> bool:
        """Whether it is certain, without the target's offset, that there is nothing to bring over."""
        committed = None if row.committed is None else row.committed.offset
        return row.intent is None and is_theirs(self.intent_of_other(row), committed)


@dataclass(frozen=True, slots=True)
class Routes:
    """The routes of a flow."""

    each: tuple[Route, ...]
    """Its own copies first, then those of other flows that came from its target."""
    both_directions: Mapping[str, Route]
    """Of topics that this flow and another one feed from each other's side, by the other flow's name."""
    also_fed: AlsoFed

    def one_row_each(self, parts: Iterable[tuple[Route, GroupPartition]]) -> list[tuple[Route, GroupPartition]]:
        """Return one row of each group and target partition, with its route.

        Of several, it is the one whose topic the group has committed for. Where this flow and another one feed a topic
        under one name, the route is that of both. Where the group has committed for several topics whose records the
        target has in one log, no position of one of them is known to skip nothing of the others: the row is held.
        """
        if len(self.each) == 1:  # a route has one row of each itself
            kept = list(parts)
            self._hold_also_fed(kept)
            return kept
        found: dict[tuple[str, TopicPartition], tuple[Route, GroupPartition]] = {}
        for route, row in parts:
            key = row.group, row.target
            earlier = found.get(key)
            if earlier is not None and self._is_both_directions(*earlier, route, row):
                found[key] = self.both_directions[route.name], earlier[1]
            elif earlier is None or not earlier[1].has_position:
                if earlier is None or row.has_position:
                    found[key] = route, row
            elif row.has_position and not earlier[1].unread:
                names = " and ".join(dict.fromkeys((earlier[0].name, route.name)))
                earlier[1].hold(Reason.UNKNOWN, f"flows {names} feed {row.target} in another order than its sources")
        kept = list(found.values())
        self._hold_also_fed(kept)
        return kept

    def _hold_also_fed(self, parts: Iterable[tuple[Route, GroupPartition]]) -> None:
        """Hold the rows whose topics are also fed by flows that the translation leaves out."""
        reasons: dict[tuple[Route, str, str], str] = {}
        for route, row in parts:
            of = route, row.source.topic, row.target.topic
            if of not in reasons:
                reasons[of] = self.also_fed(frozenset(route.flows), row.source.topic, row.target.topic)
            if reasons[of] and row.committed is not None and not row.unread:
                row.hold(Reason.UNKNOWN, reasons[of])

    def _is_both_directions(self, first: Route, earlier: GroupPartition, route: Route, row: GroupPartition) -> bool:
        return first is self.each[0] and earlier.source == row.source and route.name in self.both_directions


def open_routes(
    stack: ExitStack,
    flow: FlowAccess,
    clusters: FlowClusters,
    rules: GroupRules,
    partners: Partners,
    clock: Clock,
) -> Routes:
    """Return the routes of ``flow``; ``stack`` closes their clients.

    Raises ConfigError, FlowError.
    """

    def theirs_of(other: str | None, group_there: Callable[[str], str | None]) -> TheirIntents | None:
        if other is None:
            return None
        theirs = TheirIntents(other, flow.source_options, clock, group_there)
        stack.callback(theirs.close)
        return theirs

    own = Route(
        (flow.name,),
        clusters.logs,
        rules.target_topic,
        rules.source_topic,
        delete=rules.delete,
        repeats=not flow.policy.exactly_once,
        theirs=theirs_of(partners.opposite, partners.opposite_group),
        is_ahead=True,
    )
    routes = [own]
    both_directions: dict[str, Route] = {}
    for other in partners.copying:
        translator = stack.enter_context(other.access.open_translator())
        logs = BackLogs(clusters.source, clusters.target, translator, clock, TIMEOUT_MS)
        theirs = theirs_of(other.name if other.writes else None, other.rules.source_group)
        # The copies' groups expire on the source while they are used on the target: nothing is deleted for that.
        there, back = other.rules.source_topic, other.rules.target_topic
        routes.append(Route((other.name,), logs, there, back, delete=False, repeats=False, theirs=theirs))
        both = BothDirectionsLogs(clusters.source, clusters.target, clusters.logs, logs, other.name)
        both_directions[other.name] = replace(own, flows=(flow.name, other.name), logs=both)
    return Routes(tuple(routes), both_directions, partners.also_fed)
