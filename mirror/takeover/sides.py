"""The clusters of a takeover and of a hand back: their clients, and who writes to them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

from mirror.client import Admin, TopicPartition
from mirror.errors import FlowError
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
        clock: Clock,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        """The options are dotted keys, of which those of the clusters are used. Raises ConfigError.

        ``pause`` waits for seconds.
        """
        self._request: Final = request
        self._clock: Final = clock
        self._pause: Final = pause
        self.source_options: Final = cluster_options(source_options)
        self.target_options: Final = cluster_options(target_options)
        with ExitStack() as stack:
            self.source: Final = stack.enter_context(Admin(self.source_options))
            self.target: Final = stack.enter_context(Admin(self.target_options))
            self.source_topics: Final = TopicReader(self.source_options, self.source, clock, STALL_MS)
            stack.callback(self.source_topics.close)
            self.target_topics: Final = TopicReader(self.target_options, self.target, clock, STALL_MS)
            stack.callback(self.target_topics.close)
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

        Raises FlowError if something writes, and it is not.
        """
        request = self._request
        before = self._observe(offsets_topic, group)
        self._pause(request.observed_s)
        signs = signs_of_life(before, self._observe(offsets_topic, group), group)
        if signs and not request.while_it_writes:
            raise FlowError(
                f"MirrorMaker 2 seems to run still: {'; '.join(signs)}. Stop it first; if others write to these topics,"
                " use --while-it-writes"
            )
        return signs

    def _observe(self, offsets_topic: str, group: str) -> Observation:
        workers = 0
        if is_dedicated(self._request.deployment, offsets_topic):
            described = self.target.describe_groups([group], partial=True, timeout_ms=TIMEOUT_MS)
            workers = len(described[group].members) if group in described else 0
        targets = self.facts.target_ends(self._existing_targets())
        return Observation(self.target_topics.ends(offsets_topic), targets, workers)

    def _existing_targets(self) -> list[TopicPartition]:
        topics = self.target.describe_topics({tp.topic for tp in self._request.targets.values()})
        counts = {name: len(topic.partitions) for name, topic in topics.items()}
        return [tp for tp in self._request.targets.values() if tp.partition < counts.get(tp.topic, 0)]
