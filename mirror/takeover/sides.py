"""The clusters of a takeover and of a hand back: their clients, and who writes to them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

from mirror.client import Admin, TopicPartition
from mirror.errors import BrokerError, FlowError, KafkaError
from mirror.relay.progress.control import control_partition
from mirror.relay.progress.control import from_offset as control_of
from mirror.relay.progress.flow_topic import cluster_options
from mirror.takeover.facts import FactsReader
from mirror.takeover.observation import Observation, signs_of_life
from mirror.takeover.places import Deployment, is_dedicated
from mirror.takeover.stored_offsets import TopicReader
from mirror.timing import Clock

TIMEOUT_MS: Final = 30_000
"""For each call."""
STALL_MS: Final = 20_000
"""Reading a topic fails if nothing arrives for so long."""
OBSERVED_S: Final = 10.0
"""How long the positions and the target are observed by default."""
_NOT_FOUND: Final = 69
"""Kafka's error code for a group that does not exist."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeoverRequest:
    """What is to be taken over, or handed back."""

    flow: str
    deployment: Deployment
    targets: Mapping[TopicPartition, TopicPartition]
    """The flow's source partitions, and their target partitions."""
    exactly_once: bool
    """Whether the flow copies exactly once."""
    dry_run: bool = False
    while_it_writes: bool = False
    """Whether to go on although something seems to write still."""
    unmatched_from_start: bool = False
    """Whether a partition without a stored position begins at the source's beginning although its target has records,
    of which none is a copy of what the source has now."""
    observed_s: float = OBSERVED_S
    includes_group: Callable[[str], bool] | None = None
    """Whether the flow commits the positions of a consumer group on the target; None: it commits none."""


class Sides:
    """The clients of both clusters. Its calls wait; use it in one thread."""

    def __init__(
        self,
        request: TakeoverRequest,
        source_options: Mapping[str, object],
        target_options: Mapping[str, object],
        *,
        positions_options: Mapping[str, object] | None = None,
        clock: Clock,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        """The options are dotted keys, of which those of the clusters are used. Raises ConfigError.

        ``positions_options`` are those of the cluster that has MirrorMaker 2's positions; None: the target has them.
        ``pause`` waits for seconds.
        """
        self._request: Final = request
        self._clock: Final = clock
        self._pause: Final = pause
        self.source_options: Final = cluster_options(source_options)
        self.target_options: Final = cluster_options(target_options)
        self.positions_options: Final = (
            self.target_options if positions_options is None else cluster_options(positions_options)
        )
        with ExitStack() as stack:
            self.source: Final = stack.enter_context(Admin(self.source_options))
            self.target: Final = stack.enter_context(Admin(self.target_options))
            self.source_topics: Final = TopicReader(self.source_options, self.source, clock, STALL_MS)
            stack.callback(self.source_topics.close)
            self.target_topics: Final = TopicReader(self.target_options, self.target, clock, STALL_MS)
            stack.callback(self.target_topics.close)
            self.positions: Final = stack.enter_context(Admin(self.positions_options))
            self.position_topics: Final = TopicReader(self.positions_options, self.positions, clock, STALL_MS)
            stack.callback(self.position_topics.close)
            self._clients: Final = stack.pop_all()
        self.facts: Final = FactsReader(request.flow, self.source, self.target)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._clients.close()

    def check_flow_rests(self) -> None:
        """Raise FlowError if a run of the flow is alive."""
        group, tp = control_partition(self._request.flow)
        control = control_of(self.target.group_offsets(group, [tp], timeout_ms=TIMEOUT_MS).get(tp))
        if control is not None and not control.ended and not control.is_dead(self._clock.unix_ms()):
            raise FlowError(
                f"flow {self._request.flow} is copied now, by run {control.run} on {control.host}:"
                " end it with mirror stop"
            )

    def check_mirrormaker_rests(self, offsets_topic: str, group: str) -> list[str]:
        """Observe the clusters for a while; return what shows that something writes, if that is allowed.

        What could not be observed is in the result, too. Raises FlowError if something writes, and it is not allowed.
        """
        request = self._request
        before = self._observe(offsets_topic, group)
        self._pause(request.observed_s)
        after = self._observe(offsets_topic, group)
        signs = signs_of_life(before, after, group)
        if signs and not request.while_it_writes:
            raise FlowError(
                f"MirrorMaker 2 seems to run still: {'; '.join(signs)}. Stop it first; if others write to these topics,"
                " use --while-it-writes"
            )
        unknown = after.workers_error
        if unknown is None:
            return signs
        return [*signs, f"whether MirrorMaker 2's workers run cannot be read from their group {group}: {unknown}"]

    def _observe(self, offsets_topic: str, group: str) -> Observation:
        workers, error = 0, None
        if is_dedicated(self._request.deployment, offsets_topic):
            described = self.positions.describe_groups([group], partial=True, timeout_ms=TIMEOUT_MS)
            workers = len(described[group].members) if group in described else 0
            error = described.failed.get(group)
        targets = self.facts.target_ends(self.existing_targets())
        unknown = None if error is None or _is_missing(error) else str(error)
        return Observation(self.position_topics.ends(offsets_topic), targets, workers, unknown)

    def existing_targets(self) -> list[TopicPartition]:
        """Return the flow's target partitions that exist. Raises KafkaError."""
        topics = self.target.describe_topics({tp.topic for tp in self._request.targets.values()})
        counts = {name: len(topic.partitions) for name, topic in topics.items()}
        return [tp for tp in self._request.targets.values() if tp.partition < counts.get(tp.topic, 0)]


def _is_missing(error: KafkaError) -> bool:
    return isinstance(error, BrokerError) and error.code == _NOT_FOUND
