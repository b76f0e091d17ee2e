"""The changes that a plan lists, each with the facts that it rests on, and rounds that make these alone. Pure.

A decision is pure, so the same facts give the same item: a round may make a change if the plan has its equal.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeVar

from mirror.alignment.differences import Difference, KindReport
from mirror.alignment.reconciler import Kind, KindPlan, Making
from mirror.errors import printable
from mirror.observation import Sides


class Reason(enum.StrEnum):
    """Why a change is not made; the values are for users."""

    NOT_PLANNED = "not-in-plan"


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """A change of a cluster; the field names are keys of a plan's file."""

    on: str
    """The cluster, as the configuration calls it."""
    what: str
    """One change of it is in a plan."""
    change: str
    """A verb."""
    facts: Mapping[str, Any]
    """What the decision rests on, and what is made, as JSON values."""

    @property
    def key(self) -> tuple[str, str]:
        """What is changed."""
        return self.on, self.what

    def __str__(self) -> str:
        return printable(f"{self.change} {self.what} on {self.on}")


def items_of(report: KindReport, target: str) -> Iterator[Item]:
    """Yield what rounds that write change on the cluster ``target``."""
    for one in report.differences:
        if one.change is not None and not one.done:
            yield _item(one, one.change, target)


def _item(one: Difference, change: str, target: str) -> Item:
    return Item(on=target, what=one.what or one.text, change=change, facts=one.fields)


def stale(planned: Iterable[Item], now: Iterable[Item], reports: Iterable[KindReport]) -> list[str]:
    """Return a line for each of the ``planned`` items that would not be made ``now``, or for other facts."""
    current = {item.key: item for item in now}
    held = {one.what or one.text: one for report in reports for one in report.differences if one.reason is not None}
    lines = []
    for item in planned:
        found = current.get(item.key)
        if found == item:
            continue
        if found is not None:
            lines.append(f"{item}: {_difference(item, found)}")
        elif (reason := held.get(item.what)) is not None:
            lines.append(
                f"{item}: it would not be made now ({reason.reason}{f': {reason.detail}' if reason.detail else ''})"
            )
        else:
            lines.append(f"{item}: nothing is to be done about it any more")
    return [printable(line) for line in lines]


def _difference(planned: Item, found: Item) -> str:
    if found.change != planned.change:
        return f"now it would be to {found.change} it"
    keys = sorted(planned.facts.keys() | found.facts.keys())
    differs = [key for key in keys if planned.facts.get(key) != found.facts.get(key)]
    said = (f"{key} was {_shown(planned.facts.get(key))} and is {_shown(found.facts.get(key))}" for key in differs)
    return ", ".join(said)


def _shown(value: Any) -> str:
    return "not set" if value is None else str(value)


class HoldingPlan(KindPlan, Protocol):
    """What a round has decided, of which changes can be left as they are."""

    def hold(self, subjects: Collection[Any], reason: enum.StrEnum) -> None:
        """Leave these as they are, and what must not be made without them."""
        ...


P = TypeVar("P", bound=HoldingPlan)


# Invariant: A plan that is applied changes what it lists, from the facts that it lists, and nothing else.
# Test: tests/alignment/test_planned_on_fakes.py::test_what_the_plan_does_not_have_stays_as_it_is
# Test: tests/alignment/test_planned_on_fakes.py::test_what_changes_between_the_check_and_the_round_is_not_made
# Test: tests/alignment/test_planned_on_fakes.py::test_a_topic_is_created_from_the_facts_of_its_plan_alone
# Test: tests/alignment/test_planned_on_fakes.py::test_another_cluster_after_the_check_is_left_as_it_is
class OnlyPlanned(Generic[P]):
    """A kind whose rounds make only what a plan lists."""

    def __init__(self, kind: Kind[P, KindReport], planned: Collection[Item], target: str) -> None:
        """``target`` is the cluster's name in the items."""
        self._kind: Final = kind
        self._planned: Final = {item.key: item for item in planned}
        self._target: Final = target

    def plan(self, sides: Sides) -> P:
        """Decide as the kind does, and hold what is not planned. Raises KafkaError."""
        plan = self._kind.plan(sides)
        unplanned = [
            one.subject
            for one in self._kind.report(plan).pending
            if one.change is not None and (item := _item(one, one.change, self._target)) != self._planned.get(item.key)
        ]
        if unplanned:
            plan.hold(unplanned, Reason.NOT_PLANNED)
        return plan

    def make(self, plan: P, making: Making) -> None:
        """Make the changes of ``plan`` that are due. Raises KafkaError."""
        self._kind.make(plan, making)

    def report(self, plan: P) -> KindReport:
        """Return what the round has found and done."""
        return self._kind.report(plan)
