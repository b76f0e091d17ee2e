"""Creates the target writers of a task's copies, from the clients that they share."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from mirror.client import Admin, BufferMemory, Consumer, Producer
from mirror.producer.settings import ProducerSettings
from mirror.relay.model.policy import CopyPolicy
from mirror.relay.model.ranges import Range
from mirror.relay.model.way import Way
from mirror.relay.offsets.offset_topic import OffsetKeeper
from mirror.relay.origin.registration import IdRegistration
from mirror.relay.origin.registry import LocalOrigin
from mirror.relay.partition.context import CopyHandle
from mirror.relay.partition.writers.at_least_once_writer import AtLeastOnceWriter
from mirror.relay.partition.writers.sequence_writer import SequenceWriter, SharedClients, fence_valid_ms
from mirror.relay.partition.writers.target_writer import ExactlyOnceWriter, TargetWriter
from mirror.relay.progress.anchor_keeper import AnchorKeeper
from mirror.relay.progress.committed import renewal_ms
from mirror.relay.progress.committer import ProgressCommitter
from mirror.relay.progress.lookup.lookups import ClusterLookups
from mirror.relay.progress.position import PositionSearch
from mirror.relay.task.assignment_reading import LoadEntries
from mirror.relay.task.position_searches import AttemptSearch, PositionSearches
from mirror.relay.task.reporting import SendReport
from mirror.relay.task.taking import LoadTaken
from mirror.relay.task.topic_rules import TopicRules


@dataclass(frozen=True, slots=True, kw_only=True)
class Clients:
    """What the copies of a task use to reach both clusters."""

    consumer: Consumer
    admin: Admin
    lookups: ClusterLookups
    producer_settings: ProducerSettings
    memory: BufferMemory
    producer: Producer | None
    """The idempotent producer that all copies share; None if all of them write in transactions."""
    positions: PositionSearch[Any] | None
    """Finds what earlier attempts have appended; None at least once."""
    anchors: AnchorKeeper | None = None
    """Writes anchors; None: none are written."""
    offsets: OffsetKeeper | None = None
    """Writes the offset index; None: it is not written."""
    origin: LocalOrigin | None = None
    """Decides which records of the source are copied; None: all."""
    registration: IdRegistration | None = None
    """Registers producer ids on the target before they are used; None: they are not registered."""
    load_entries: LoadEntries | None = None
    """Reads the entries of the job's assignments; None: the task copies its rows, and nothing changes."""
    load_taken: LoadTaken | None = None
    """Reads what partitions need to begin that the task is given; None: nothing."""
    read_rules: Callable[[Sequence[Range]], TopicRules] = lambda _: TopicRules({}, {})
    """Reads the rules of topics again."""
    send_report: SendReport = lambda _: None
    """Sends what the task reports."""


class TaskWriters:
    """The writers of one task; those that send plain batches share its producer, and commit together."""

    def __init__(self, clients: Clients, policy: CopyPolicy, searches: PositionSearches | None) -> None:
        """``searches``: None at least once."""
        self._clients: Final = clients
        self._policy: Final = policy
        self._searches: Final = searches
        self._chains: Final = itertools.count(1)
        self._committer: ProgressCommitter | None = None

    def new_writer(self, copy: CopyHandle, way: Way | None) -> TargetWriter:
        """Create the writer of another attempt: its own transactional producer, or the next chain of the shared one."""
        clients, flow = self._clients, copy.range.flow
        settings, admin, memory = clients.producer_settings, clients.admin, clients.memory
        if way is Way.TRANSACTIONS:
            on_producer_id = None if clients.registration is None else clients.registration.on_producer_id
            search, aside = self._search_of(copy), self._policy.aside
            return ExactlyOnceWriter(flow, copy.target, settings, admin, memory, search, on_producer_id, aside)
        assert clients.producer is not None  # noqa: S101 - only copies in transactions need none
        chain = next(self._chains)
        committer = self._committer = self._committer or ProgressCommitter(admin, flow, lazy=way is Way.SEQUENCES)
        if way is Way.SEQUENCES:
            valid_ms = renewal_ms(copy.target, fence_valid_ms(self._policy.renew_ms))
            shared = SharedClients(clients.producer, committer, admin, memory, valid_ms)
            return SequenceWriter(flow, copy.target, settings, shared, chain, self._search_of(copy))
        return AtLeastOnceWriter(flow, copy.target, admin, clients.producer, committer, chain, self._policy.aside)

    def _search_of(self, copy: CopyHandle) -> AttemptSearch:
        assert self._searches is not None  # noqa: S101 - there are some if the copy is exactly once
        return self._searches.of(copy.source, copy.target)

    def flush(self) -> None:
        """Send the commits that the writers have begun in this turn."""
        if self._committer is not None:
            self._committer.flush()
