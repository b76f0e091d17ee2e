"""What a round found and did, for users: as lines of a diff, and as JSON. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final

from mirror.alignment.decision import Act, Reason
from mirror.alignment.deletions.report import DeletionReport
from mirror.errors import printable

_NO_DRIFT: Final = frozenset({Reason.ONLY_ON_TARGET, Reason.NOT_FOLLOWED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A key of a target topic that differs, or differed before it was changed."""

    topic: str
    """The target topic."""
    key: str
    wanted: str | None
    """What it is to be; None: the target's default."""
    target: str | None
    """What it was on the target; None: its default."""
    reason: Reason | None = None
    """Why it is not changed."""
    detail: str = ""

    @property
    def act(self) -> Act:
        """What is done about it."""
        if self.reason is not None:
            return Act.NOTHING
        return Act.RESET if self.wanted is None else Act.SET

    @property
    def is_drift(self) -> bool:
        """Whether the two sides are not in step because of it."""
        return self.reason not in _NO_DRIFT

    def line(self) -> str:
        """Return the difference as a line of a diff, under its topic."""
        there = "the default" if self.target is None else self.target
        wanted = "the default" if self.wanted is None else self.wanted
        sign = "~" if self.target is not None and self.wanted is not None else "-" if self.wanted is None else "+"
        if self.reason is None:
            return printable(f"{sign} {self.key}: {there} -> {wanted}")
        detail = f": {self.detail}" if self.detail else ""
        return printable(f"= {self.key}: {there}, not {wanted} ({self.reason}{detail})")

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "topic": self.topic,
            "key": self.key,
            "wanted": self.wanted,
            "target": self.target,
            "change": None if self.reason is not None else self.act.name.lower(),
            "reason": None if self.reason is None else self.reason.value,
            "detail": self.detail or None,
            "drift": self.is_drift,
        }


@dataclass(frozen=True, slots=True)
class AlignmentReport:
    """What one round found, and which of it was changed."""

    differences: tuple[Difference, ...] = ()
    problems: tuple[str, ...] = ()
    """Lines about what cannot be compared or changed, other than single keys."""
    topics: int = 0
    """How many topics were compared."""
    changed: int = 0
    """How many keys were changed."""
    time_ms: int = 0
    """When the round ended, in ms since 1970."""
    reduced: int = 0
    """In how many topics a change was made that makes brokers delete records."""
    deletions: DeletionReport = field(default_factory=DeletionReport)
    """The target topics whose source topics were deleted; empty if the flow keeps them."""

    @property
    def pending(self) -> tuple[Difference, ...]:
        """What a round that writes would change, or has changed."""
        return tuple(one for one in self.differences if one.reason is None)

    @property
    def held(self) -> tuple[Difference, ...]:
        """The drift that no round changes by itself."""
        return tuple(one for one in self.differences if one.reason is not None and one.is_drift)

    @property
    def confirming(self) -> int:
        """In how many topics records are deleted if the next round sees the same."""
        return len({one.topic for one in self.differences if one.reason is Reason.CONFIRMING})

    def followed_by(self, second: AlignmentReport) -> AlignmentReport:
        """Return the report of this round and the ``second`` one, which it announced."""
        done = tuple(one for one in self.differences if one.reason is None)
        return replace(
            second,
            differences=(*done, *second.differences),
            changed=self.changed + second.changed,
            reduced=self.reduced + second.reduced,
        )

    @property
    def is_in_step(self) -> bool:
        """Whether nothing differs, after the changes of this round."""
        return self._configs_in_step and self.deletions.is_in_step

    @property
    def _configs_in_step(self) -> bool:
        return not self.problems and not self.held and len(self.pending) <= self.changed

    def lines(self) -> Iterator[str]:
        """Yield the diff: a line for each topic, followed by its keys, with an indent."""
        topic = ""
        for one in self.differences:
            if one.topic != topic:
                topic = one.topic
                yield f"topic {topic}"
            yield f"  {one.line()}"
        yield from self.deletions.lines()

    def warnings(self) -> tuple[str, ...]:
        """Return the lines about what is not in step by itself. They are the same until something changes."""
        by_reason = Counter(one.reason for one in self.held if one.reason is not Reason.REFUSED)
        refused = (
            printable(f"topic {one.topic}: {one.key} = {one.wanted} is refused: {one.detail}")
            for one in self.held
            if one.reason is Reason.REFUSED
        )
        counts = (
            f"{count} configuration{'s' if count > 1 else ''} of target topics {reason}; mirror drift lists them"
            for reason, count in sorted(by_reason.items(), key=lambda item: str(item[0]))
        )
        return (*self.problems, *refused, *counts, *self.deletions.warnings())

    def by_reason(self) -> dict[str, int]:
        """Return how many keys are not in step, by reason."""
        return dict(Counter(str(one.reason) for one in self.held))

    def line(self) -> str:
        """Return a line for the console."""
        if self.problems and not self.topics:
            return "the configurations of target topics could not be compared"
        held = ", ".join(f"{count} {reason}" for reason, count in sorted(self.by_reason().items()))
        left = f"; not in step: {held}" if held else ""
        deleted = f"; {self.deletions.deleted} topics deleted" if self.deletions.deleted else ""
        return f"configurations of {self.topics} target topics compared, {self.changed} changed{left}{deleted}"

    def summary(self) -> dict[str, Any]:
        """Return the counts as plain values, for ``summary.json``."""
        return {
            "topics": self.topics,
            "changed": self.changed,
            "in_step": self._configs_in_step,
            "not_in_step": self.by_reason(),
            "problems": list(self.problems),
        }

    def to_json(self) -> dict[str, Any]:
        """Return plain values without the deletions, for ``--json``."""
        return {
            "topics": self.topics,
            "changed": self.changed,
            "in_step": self._configs_in_step,
            "differences": [one.to_json() for one in self.differences],
            "problems": list(self.problems),
            "time_ms": self.time_ms,
        }
