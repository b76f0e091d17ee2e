"""The clusters of a takeover and of a hand back: their clients, and who writes to them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

from mirror.client import Admin, TopicPartition
from mirror.closing import Closing
from mirror.errors import BrokerError, FlowError, KafkaError
from mirror.mirrormaker.connect_status import Status, StatusKey
from mirror.relay.progress.control_record import control_partition
from mirror.relay.progress.control_record import from_offset as control_of
from mirror.relay.progress.flow_topic import cluster_options
from mirror.relay.progress.latch import LatchCheck
from mirror.takeover.facts import FactsReader
from mirror.takeover.mirrormaker_activity import ActivitySample, signs_of_life
from mirror.takeover.places import Deployment, Places, status_topics
from mirror.takeover.stored_offsets import TopicReader, last_of_keys
from mirror.timing import Clock
from mirror.wire.error_codes import GROUP_ID_NOT_FOUND

TIMEOUT_MS: Final = 30_000
"""For each call."""
STALL_MS: Final = 20_000
"""Reading a topic fails if nothing arrives for so long."""
_CHECK_EVERY_MS: Final = 1_000
"""A takeover commits thousands of partitions: it does not read the latch for each of them."""
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
    unmatched_from_start: bool = False
    """Whether a partition without a stored position begins at the source's beginning although its target has records,
    of which none is a copy of what the source has now."""
    observed_s: float = OBSERVED_S
    includes_group: Callable[[str], bool] | None = None
    """Whether the flow commits the positions of a consumer group on the target; None: it commits none."""


class TakeoverSides(Closing):
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
        self._check_latch: Final = LatchCheck(self.target_options, request.flow)
        self._checked_ms: int | None = None
        self.facts: Final = FactsReader(request.flow, self.source, self.target)

    def close(self) -> None:
        self._clients.close()

    def check_may_write(self) -> None:
        """Raise FlowHeld or LatchMoved if the flow may write no more, as it was within the last second."""
        now_ms = self._clock.now()
        if self._checked_ms is None or now_ms - self._checked_ms >= _CHECK_EVERY_MS:
            self._check_latch()
            self._checked_ms = now_ms

    def check_flow_rests(self) -> None:
        """Raise FlowError if a run of the flow is alive, FlowHeld if it is held, but for a dry run."""
        if not self._request.dry_run:
            self._check_latch()
        group, tp = control_partition(self._request.flow)
        control = control_of(self.target.group_offsets(group, [tp], timeout_ms=TIMEOUT_MS).get(tp))
        if control is not None and not control.ended and not control.is_dead(self._clock.unix_ms()):
            raise FlowError(
                f"flow {self._request.flow} is copied now, by run {control.run} on {control.host}:"
                " end it with mirror stop"
            )

    # Invariant: Nothing is taken over while MirrorMaker 2 or a run of the flow may write: positions, logs and workers
    #   rest for ten seconds, a connector is stopped, and all is checked again before anything is written.
    # Test: tests/takeover/test_discovery_on_fakes.py::test_it_is_refused_while_something_writes
    # Test: tests/takeover/test_idle_on_fakes.py::test_a_connector_that_was_not_stopped_is_named
    # Test: tests/takeover/test_discovery_on_fakes.py::test_a_flow_that_begins_meanwhile_is_not_taken_over
    def check_mirrormaker_rests(self, places: Places) -> list[str]:
        """Observe the clusters for a while; return what shows that something writes, if that is allowed.

        What could not be observed is in the result, too. Raises FlowError if something writes, and it is not allowed.
        """
        request = self._request
        before = self._observe(places)
        self._pause(request.observed_s)
        after = self._observe(places)
        signs = signs_of_life(before, after, places)
        if signs and not request.while_it_writes:
            raise FlowError(
                f"MirrorMaker 2 seems to run still: {'; '.join(signs)}. Stop it first; if others write to these topics,"
                " use --while-it-writes"
            )
        if places.dedicated and after.workers_error is not None:
            signs.append(
                f"whether MirrorMaker 2's workers run cannot be read from their group {places.group}:"
                f" {after.workers_error}"
            )
        if not places.status_topic:
            possible = status_topics(request.deployment.source, places.offsets_topic, places.group)
            signs.append(
                f"whether connector {places.connector} was stopped is not known, nor whether it is started again: there"
                f" is no topic {' or '.join(possible)}; name its workers' status.storage.topic with --status-topic"
            )
        return signs

    def _observe(self, places: Places) -> ActivitySample:
        described = self.positions.describe_groups([places.group], partial=True, timeout_ms=TIMEOUT_MS)
        group, error = described.get(places.group), described.failed.get(places.group)
        missing = error is not None and _is_missing(error)
        workers = 0 if missing and places.group_known else None
        return ActivitySample(
            self.position_topics.ends(places.offsets_topic),
            self.facts.target_ends(self.existing_targets()),
            workers if group is None else len(group.members),
            None if missing or error is None else str(error),
            self._status_of(places),
        )

    def _status_of(self, places: Places) -> Status | None:
        if places.dedicated or not places.status_topic:
            return None  # the workers of a dedicated cluster are members of its group for as long as they run
        own = StatusKey(places.connector).to_bytes()
        found = [one for one in last_of_keys(self.position_topics.records(places.status_topic)) if one.key == own]
        return Status.parse(found[-1].value) if found else None

    def ends_of(self, places: Places) -> tuple[dict[TopicPartition, int], KafkaError | None]:
        """Return the last stable offsets of the topics that a MirrorMaker 2 writes which runs.

        Those of the status topic are missing if it cannot be described, as the error says then. Raises KafkaError.
        """
        wanted = [places.offsets_topic, places.status_topic or places.offsets_topic]
        found = self.positions.describe_topics(wanted, partial=True, timeout_ms=TIMEOUT_MS)
        if error := found.failed.get(places.offsets_topic):
            raise error
        ends = {tp: end for topic in found for tp, end in self.position_topics.ends(topic, stable=True).items()}
        return ends, found.failed.get(places.status_topic)

    def existing_targets(self) -> list[TopicPartition]:
        """Return the flow's target partitions that exist. Raises KafkaError."""
        topics = self.target.describe_topics({tp.topic for tp in self._request.targets.values()})
        counts = {name: len(topic.partitions) for name, topic in topics.items()}
        return [tp for tp in self._request.targets.values() if tp.partition < counts.get(tp.topic, 0)]


def _is_missing(error: KafkaError) -> bool:
    return isinstance(error, BrokerError) and error.code == GROUP_ID_NOT_FOUND
