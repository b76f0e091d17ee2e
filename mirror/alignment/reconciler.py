"""Brings one kind of what a flow keeps in step on its target a round further. The same steps for every kind.

::

    fence ─► inventory, read ─► plan: both sides, what the flow owns, limits ─► intents, stored ─► changes, made
                                                                       report ◄─ what has become of each, stored

What may be made is stored before it is made, under a fence: of two owners only the later one stores, and it has read
what the earlier one may still make. A change that was refused is withdrawn from the inventory. One whose outcome is not
known keeps its intent: the next round decides by it, and by what the target has then.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, Self, TypeVar

from mirror.errors import AuthorizationFailed, BrokerError, KafkaError, KafkaTimeout, NotRetriable
from mirror.observation import Sides
from mirror.timing import Clock, Timer

FENCED_MS: Final = 10_000
"""Nothing is made later than this after its intent was to be stored: another owner may have begun since."""


class Failure(enum.StrEnum):
    """Why the target has not made a change; the values are for users."""

    REFUSED = "refused"
    UNAUTHORIZED = "unauthorized"
    """A permission is missing."""
    UNAVAILABLE = "unavailable"
    """The target does not answer: whether the change was made is not known."""


class Outcome(enum.Enum):
    """What has become of a change."""

    DUE = enum.auto()
    """It is to be made."""
    HELD = enum.auto()
    """It was not made, and will not be."""
    MADE = enum.auto()
    UNKNOWN = enum.auto()
    """It was sent, and may be made later than anything that is seen now."""


V = TypeVar("V")


@dataclass(slots=True, kw_only=True)
class Change(Generic[V]):
    """Something that differs on the target, and what the inventory has about it in each case; None for nothing."""

    kept: V | None
    """If it is not made."""
    intent: V | None
    """From before it is made until its outcome is known."""
    settled: V | None
    """Once it was made."""
    outcome: Outcome = Outcome.DUE
    reason: enum.StrEnum | None = None
    """Why it is not made, or may not have been."""
    detail: str = ""

    @classmethod
    def left(cls, kept: V | None, reason: enum.StrEnum | None, detail: str = "", **more: Any) -> Self:
        """Return what stays as it is; without a reason, it does not differ. ``more`` are fields of a subclass."""
        outcome = Outcome.HELD
        return cls(kept=kept, intent=None, settled=None, outcome=outcome, reason=reason, detail=detail, **more)

    @property
    def is_due(self) -> bool:
        """Whether it is to be made."""
        return self.outcome is Outcome.DUE

    @property
    def stored(self) -> V | None:
        """What the inventory is to have about it now."""
        match self.outcome:
            case Outcome.HELD:
                return self.kept
            case Outcome.MADE:
                return self.settled
            case Outcome.DUE | Outcome.UNKNOWN:
                return self.intent

    def hold(self, reason: enum.StrEnum, detail: str = "") -> None:
        """Do not make it, or record that it was not made."""
        self.outcome, self.reason, self.detail = Outcome.HELD, reason, detail

    def fail(self, error: KafkaError) -> None:
        """Record that the call which was to make it has failed."""
        self.hold(failure_of(error), str(error))
        if self.reason is Failure.UNAVAILABLE:
            self.outcome = Outcome.UNKNOWN


def failure_of(error: KafkaError) -> Failure:
    """Return why a change was not made, by the error of its call; what is not a refusal leaves it open."""
    if isinstance(error, AuthorizationFailed):
        return Failure.UNAUTHORIZED
    return Failure.REFUSED if isinstance(error, BrokerError | NotRetriable) else Failure.UNAVAILABLE


class IntentStore(Protocol):
    """The inventory of one flow on its target: what it knows about the target, and is about to change there."""

    @property
    def name(self) -> str:
        """The name of its topic."""
        ...

    def begin(self) -> None:
        """Fence other owners, if this one has not since it failed: they store nothing afterwards. Raises KafkaError."""
        ...

    def read(self) -> bool:
        """Read what was stored since the last call, by any owner; return whether there is an inventory."""
        ...

    def store(self, records: Mapping[Any, Any]) -> None:
        """Store what the inventory does not have yet, all or none; None removes a record. Raises KafkaError, Fenced."""
        ...


P = TypeVar("P", bound="KindPlan")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
K = TypeVar("K", bound=Hashable)


class KindPlan(Protocol):
    """What a round has found and decided."""

    def records(self) -> Mapping[Any, Any]:
        """Return what the inventory is to have by the outcomes of the changes now, by key. Pure."""
        ...


class Kind(Protocol[P, R_co]):
    """One kind of what is kept in step. Its calls wait for the clusters."""

    def plan(self, sides: Sides) -> P:
        """Read both sides and decide, by the inventory as it was read; change nothing. Raises KafkaError."""
        ...

    def make(self, plan: P, making: Making) -> None:
        """Make the changes of ``plan`` that are due, in their order. Raises KafkaError."""
        ...

    def report(self, plan: P) -> R_co:
        """Return what the round has found and done. Pure."""
        ...


class Making:
    """The time in which the changes of one round are made, and stores what has become of them."""

    def __init__(self, clock: Clock, store: Callable[[], None]) -> None:
        self._timer: Final = Timer(clock, FENCED_MS)
        self._store: Final = store
        self._failed = False

    def store(self) -> None:
        """Store what has become of the changes until now. Raises KafkaError, Fenced.

        After that it does nothing: another owner may have begun, and what is stored then is that owner's.
        """
        if not self._failed:
            self._failed = True
            self._store()
            self._failed = False

    def send(
        self, changes: Mapping[K, Change[Any]], call: Callable[[list[K], int], Mapping[K, KafkaError | None]]
    ) -> list[K]:
        """Make those of these changes that are due by one ``call``; return those of them that were not made.

        ``call`` gets their keys and some ms, and returns the errors of those that have failed. Raises its error: then
        the outcome of none of them is known.
        """
        due = {key: change for key, change in changes.items() if change.is_due}
        if not due:
            return []
        left_ms = self._timer.remaining_ms()
        if not left_ms:
            raise KafkaTimeout(f"not sent within {FENCED_MS} ms after its intent; the next round tries again")
        for change in due.values():
            change.outcome = Outcome.UNKNOWN
        errors = call(list(due), left_ms)
        for key, change in due.items():
            error = errors.get(key)
            if error is None:
                change.outcome = Outcome.MADE
            else:
                change.fail(error)
        return [key for key, change in due.items() if change.outcome is not Outcome.MADE]


# Invariant: What a flow is about to set is stored before it is set, under a fence: a run that was killed in between is
#   continued, and a stale one changes nothing.
# Test: tests/alignment/test_decision.py::test_a_crash_between_the_inventory_and_the_change_is_continued
# Test: tests/alignment/test_rounds_on_fakes.py::test_an_earlier_writer_is_fenced_and_changes_nothing
class Reconciler:
    """The rounds of one flow. Its calls wait for the clusters; use it in one thread."""

    def __init__(self, store: IntentStore, clock: Clock) -> None:
        self._store: Final = store
        self._clock: Final = clock

    def round(self, kind: Kind[P, R], sides: Sides, *, write: bool = True) -> R:
        """Bring what differs in step, by a new observation of both ``sides``; without ``write`` only find it.

        Raises KafkaError if a cluster does not answer, and Fenced if another owner has begun, which the next round
        fences. What concerns single changes is in the report.
        """
        if write:
            self._store.begin()
        if not self._store.read() and write:
            raise KafkaError(f"there is no topic {self._store.name} on the target, so nothing is brought in step")
        plan = kind.plan(sides)
        if write:
            making = Making(self._clock, lambda: self._store.store(plan.records()))
            making.store()
            try:
                kind.make(plan, making)
            finally:
                # Also after a failure: of what was made before it, the inventory has more than an intent.
                making.store()
        return kind.report(plan)
