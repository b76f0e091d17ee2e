"""Which topics a round deletes on the target, and which it keeps, for users: lines of a diff, and JSON. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from mirror.alignment.deletions.decision import NO_DRIFT, Reason
from mirror.errors import printable


@dataclass(frozen=True, slots=True, kw_only=True)
class Deletion:
    """A target topic whose source topic does not exist, or may not exist."""

    topic: str
    """The target topic."""
    source: str
    """The source topic; empty if it is not known."""
    done: bool = False
    """Whether it was deleted."""
    reason: Reason | None = None
    """Why it is kept."""
    detail: str = ""

    @property
    def is_drift(self) -> bool:
        """Whether the two sides are not in step because of it."""
        return not self.done and self.reason not in NO_DRIFT

    def line(self) -> str:
        """Return the deletion as a line of a diff."""
        source = f"source topic {self.source}" if self.source else "its source topic"
        if self.reason is None:
            done = "was" if self.done else "is"
            return printable(f"- topic {self.topic} {done} deleted with all its records: {source} does not exist")
        detail = f": {self.detail}" if self.detail else ""
        return printable(f"= topic {self.topic} is kept, without {source} ({self.reason}{detail})")

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "topic": self.topic,
            "source": self.source or None,
            "change": None if self.reason is not None else "delete",
            "done": self.done,
            "reason": None if self.reason is None else self.reason.value,
            "detail": self.detail or None,
            "drift": self.is_drift,
        }


@dataclass(frozen=True, slots=True)
class DeletionReport:
    """What one round found and did."""

    deletions: tuple[Deletion, ...] = ()
    problems: tuple[str, ...] = ()
    """Lines about what was not done as it should be."""

    @property
    def pending(self) -> tuple[Deletion, ...]:
        """The topics that are deleted by the next round that writes."""
        return tuple(one for one in self.deletions if one.reason is None and not one.done)

    @property
    def deleted(self) -> int:
        """How many topics were deleted."""
        return sum(one.done for one in self.deletions)

    @property
    def held(self) -> tuple[Deletion, ...]:
        """The drift that no round removes by itself."""
        return tuple(one for one in self.deletions if one.reason is not None and one.is_drift)

    @property
    def is_in_step(self) -> bool:
        """Whether no topic is left that should be deleted."""
        return not self.problems and not any(one.is_drift for one in self.deletions)

    def lines(self) -> Iterator[str]:
        """Yield the diff, a line for each topic."""
        yield from (one.line() for one in self.deletions)
        yield from (f"= {line}" for line in self.problems)

    def warnings(self) -> tuple[str, ...]:
        """Return the lines about what was deleted, and what is kept. They are the same until something changes."""
        details = Counter((one.reason, one.detail) for one in self.held)
        kept = (
            f"{count} target topic{'s' if count > 1 else ''} kept without source topic ({reason}"
            f"{f': {detail}' if detail else ''}); mirror drift lists them"
            for (reason, detail), count in sorted(details.items(), key=str)
        )
        done = (f"topic {one.topic} was deleted, as {one.source} on the source" for one in self.deletions if one.done)
        return tuple(printable(line) for line in (*self.problems, *done, *kept))

    def by_reason(self) -> dict[str, int]:
        """Return how many topics are kept that should be deleted, by reason."""
        return dict(Counter(str(one.reason) for one in self.held))

    def summary(self) -> dict[str, Any]:
        """Return the counts as plain values, for ``summary.json``."""
        return {"deleted": self.deleted, "not_deleted": self.by_reason()}

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "in_step": self.is_in_step,
            "deleted": self.deleted,
            "topics": [one.to_json() for one in self.deletions],
            "problems": list(self.problems),
        }
