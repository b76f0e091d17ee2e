"""What an attempt needs of the copy to which it belongs, and what it returns to it."""

from __future__ import annotations

import enum
from typing import Protocol

from mirror.relay.offsets.extents import AppendedExtents
from mirror.relay.partition.attempts.outbox import CommitCounts
from mirror.relay.progress.committed import Progress


class Advance(enum.Enum):
    """What follows from a step of an attempt."""

    CONTINUES = enum.auto()
    COPIED = enum.auto()
    """Everything is copied and committed."""
    MOVES = enum.auto()
    """Earlier attempts have appended more than the progress says: the copy resumes at :attr:`.CopyAttempt.found`."""
    CHANGES_WAY = enum.auto()
    """The next batch goes the other way; everything before it is committed."""


class AttemptOwner(Protocol):
    """The copy to which an attempt belongs."""

    @property
    def winding_up(self) -> bool:
        """Whether it is to end: nothing more is sent, and what is acknowledged is committed."""
        ...

    @property
    def appends(self) -> AppendedExtents:
        """Gathers the offsets of what is acknowledged."""
        ...

    def progress_at(self, offset: int, leader_epoch: int | None) -> Progress:
        """Make the progress to commit at a source offset; ``leader_epoch`` is that of the batch before it."""
        ...

    def on_acquired(self, progress: Progress) -> None:
        """The partition is acquired, and the exact position is that of the progress."""
        ...

    def on_committed(self, counts: CommitCounts) -> None:
        """A commit has succeeded with these counts."""
        ...
