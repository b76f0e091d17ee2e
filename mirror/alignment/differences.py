"""What a round of one kind has found and done, for users: as lines of a diff, as counts, and as JSON. Pure."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from mirror.alignment.reconciler import Change, Failure, Outcome
from mirror.errors import printable

_NAMED: Final = 3
"""Refused changes that warnings name one by one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Something that differs on the target, or differed before it was changed."""

    subject: Any
    """What it is about: the key of a topic, a topic, an ACL."""
    text: str
    """What it is, as a part of a line."""
    change: str | None
    """What a round does about it: a verb, also if another round has to confirm it first; None: nothing."""
    sign: str = "="
    """Of its line in a diff."""
    done: bool = False
    """Whether the change was made."""
    reason: enum.StrEnum | None = None
    """Why it is not made."""
    detail: str = ""
    is_drift: bool = True
    """Whether the two sides are not in step because of it."""
    name: str = ""
    """What a warning calls it; empty: the text."""
    what: str = ""
    """What a plan calls it, the same whatever is done about it; empty: the text."""
    under: str = ""
    """The line under which it is listed."""
    fields: Mapping[str, Any] = field(default_factory=dict)
    """The same as plain values."""

    def line(self) -> str:
        """Return the difference as a line of a diff."""
        return printable(f"{self.sign} {self.text}{self._because()}")

    def _because(self) -> str:
        detail = f": {self.detail}" if self.detail else ""
        return "" if self.reason is None else f" ({self.reason}{detail})"

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            **self.fields,
            "change": self.change,
            "done": self.done,
            "reason": None if self.reason is None else self.reason.value,
            "detail": self.detail or None,
            "drift": self.is_drift,
        }


def outcome_of(change: Change[Any], verb: str, *, confirming: enum.StrEnum | None = None) -> dict[str, Any]:
    """Return the fields of the :class:`Difference` that the outcome of ``change`` decides.

    ``confirming`` is the reason of what the next round makes if it sees the same.
    """
    is_left = change.reason is not None and change.reason is not confirming
    return {
        "change": None if is_left else verb,
        "done": change.outcome is Outcome.MADE,
        "reason": change.reason,
        "detail": change.detail,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """How the reports of one kind speak of what they count."""

    subject: str
    """What is compared, in the plural."""
    one: str
    """One thing that differs."""
    many: str
    is_each_named: bool = False
    """Whether warnings also tell details apart."""

    def count(self, number: int) -> str:
        """Return how many things differ."""
        return f"{number:,} {self.one if number == 1 else self.many}"


@dataclass(frozen=True, slots=True, kw_only=True)
class KindReport:
    """What one round found, and which of it was changed."""

    words: Words
    differences: tuple[Difference, ...] = ()
    problems: tuple[str, ...] = ()
    """Lines about what cannot be compared or changed, other than single differences."""
    notes: tuple[str, ...] = ()
    """Lines about what the flow leaves out by its rules, which is no drift."""
    news: tuple[str, ...] = ()
    """Lines about what was done that its owners should know."""
    off: str = ""
    """Why this flow does not keep them in step at all, which is no drift; empty if it does."""
    compared: int = 0
    """How many topics or ACLs were compared."""
    unconfirmed: int = 0
    """In how many topics records are deleted if the next round sees the same."""
    spent: int = 0
    """Of how many topics this round makes brokers delete records, or the next one: they count for a limit."""
    counts: Mapping[str, Any] = field(default_factory=dict)
    """More counts for the summary."""
    time_ms: int = 0
    """When the round ended, in ms since 1970; 0 if there was none."""
    error: Exception | None = None
    """Why the round failed: then the only one of ``problems`` is about it."""

    @property
    def pending(self) -> tuple[Difference, ...]:
        """What a round that writes changes, and this one has not."""
        return tuple(one for one in self.differences if one.reason is None and not one.done)

    @property
    def done(self) -> tuple[Difference, ...]:
        """What was changed."""
        return tuple(one for one in self.differences if one.done)

    @property
    def changed(self) -> int:
        """How much was changed."""
        return len(self.done)

    @property
    def held(self) -> tuple[Difference, ...]:
        """The drift that no round removes by itself."""
        return tuple(one for one in self.differences if one.reason is not None and one.is_drift)

    @property
    def is_in_step(self) -> bool:
        """Whether nothing differs, after the changes of this round."""
        return not self.problems and not self.held and not self.pending

    def failed(self, problem: str, time_ms: int, error: Exception | None = None) -> KindReport:
        """Return the report of a round after this one that has failed: what differed before still does."""
        return KindReport(words=self.words, differences=self.held, problems=(problem,), time_ms=time_ms, error=error)

    def followed_by(self, second: KindReport) -> KindReport:
        """Return the report of this round and the ``second`` one, which it announced."""
        return replace(second, differences=(*self.done, *second.differences))

    def lines(self) -> Iterator[str]:
        """Yield the diff, and what is left out."""
        under = ""
        for one in self.differences:
            if one.under and one.under != under:
                yield one.under
            under = one.under
            yield f"  {one.line()}" if under else one.line()
        yield from (printable(f"= {line}") for line in (*self.notes, *filter(None, [self.off])))

    def warnings(self) -> tuple[str, ...]:
        """Return the lines about what is not in step by itself. They are the same until something changes."""
        refused = [one for one in self.held if one.reason is Failure.REFUSED][:_NAMED]
        others = Counter(
            (str(one.reason), one.detail if self.words.is_each_named else "") for one in self.held if one not in refused
        )
        lines = (
            *filter(None, [self.off]),
            *self.problems,
            *self.news,
            *(f"{one.name or one.text} is refused: {one.detail}" for one in refused),
            *(
                f"{self.words.count(count)} {reason}{f': {detail}' if detail else ''}; mirror drift lists them"
                for (reason, detail), count in sorted(others.items())
            ),
        )
        return tuple(map(printable, lines))

    def by_reason(self) -> dict[str, int]:
        """Return how many things are not in step, by reason."""
        return dict(Counter(str(one.reason) for one in self.held))

    def line(self) -> str:
        """Return a line for the console."""
        if self.off:
            return self.off
        if self.problems and not self.compared:
            return f"{self.words.subject} could not be compared"
        held = ", ".join(f"{count} {reason}" for reason, count in sorted(self.by_reason().items()))
        left = f"; not in step: {held}" if held else ""
        return f"{self.words.subject}: {self.compared:,} compared, {self.changed:,} changed{left}"

    def summary(self) -> dict[str, Any]:
        """Return the counts as plain values, for ``summary.json``."""
        return {
            "compared": self.compared,
            "changed": self.changed,
            **self.counts,
            "in_step": self.is_in_step,
            "not_in_step": self.by_reason(),
            "off": self.off or None,
            "problems": list(self.problems),
        }

    def to_json(self) -> dict[str, Any]:
        """Return plain values, for ``--json``."""
        return {**self.summary(), "differences": [one.to_json() for one in self.differences], "time_ms": self.time_ms}
