"""The exact position of a partition whose progress is a lower bound: the question, and its answer. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeVar

from mirror.cluster.types import TopicPartition
from mirror.errors import KafkaTimeout
from mirror.producer.batch.queue import ProducerId
from mirror.relay.progress.committed import Progress, ProgressTotals, StartChanged
from mirror.relay.progress.target_loss import TargetLoss


class Appenders(NamedTuple):
    """The earlier attempts, as their progress describes them."""

    producer_ids: frozenset[int]
    """Their producer ids."""
    ended: bool
    """Whether the progress says that none of them has appended anything behind it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionQuery:
    """Asks what earlier attempts have appended to ``target`` behind ``progress``."""

    source: TopicPartition
    target: TopicPartition
    progress: Progress
    """A lower bound, with the mark of the target's log there."""
    appenders: Appenders
    fence: ProducerId
    """The producer id and epoch of the fence's marker, behind which nothing of an earlier attempt is appended."""
    loss: TargetLoss | None = None
    """Set if the target lost records: then ``progress`` is an anchor, and committed transactions behind it count."""


@dataclass(frozen=True, slots=True)
class FoundPosition:
    """The exact position."""

    progress: Progress
    """Behind everything that was appended; its mark is behind the last batch of it."""
    appended: ProgressTotals
    """What was found behind the progress that was asked about."""
    loss: TargetLoss | None = None
    """What the target has lost, if that is why the position was searched."""


class TargetLogCut(StartChanged):
    """The target's log lost a part that was to be searched, or was searched already: it has to be resolved again."""


class OpenSearch(Protocol):
    """One search, which advances in slices: only one thread at a time advances it."""

    advanced_ms: int
    """When it last read something that it had not read before, in monotonic ms."""

    @property
    def awaited_offset(self) -> int | None:
        """The target offset at which more is awaited; None if it does not wait for the target's log to grow."""
        ...

    @property
    def settled(self) -> bool:
        """Whether the log was read up to the marker, and nothing was appended: :meth:`advance` reads nothing more."""
        ...

    def advance(self) -> FoundPosition | None:
        """Read on in this thread; return the position, or None if nothing more comes for a while.

        Raises FlowError ``position-unproved`` if it cannot be shown, TargetLogCut if the target has lost what was to be
        searched, ClientClosed after :meth:`stop`, KafkaError.
        """
        ...

    def stop(self) -> None:
        """End soon. May be called from any thread."""
        ...

    def timeout_error(self) -> KafkaTimeout:
        """Return the error of a search that has not advanced for too long."""
        ...


S = TypeVar("S", bound=OpenSearch)


class PositionSearch(Protocol[S]):
    """Finds exact positions in the logs of both clusters; may be called by several threads."""

    def begin(self, query: PositionQuery) -> S:
        """Return a search that has read nothing yet. It waits until the fence's marker is replicated."""
        ...

    def read_together(self, searches: Sequence[S], on_read: Callable[[S], None]) -> None:
        """Read the target for new searches, with the same requests, in this thread.

        ``on_read`` is called with each of them once: when it has read up to the marker of its fence, or has to read on
        alone. An error is raised by its :meth:`OpenSearch.advance`, not here.
        """
        ...
