"""Decides what is done about one configuration of one topic, which may have been set on either side. Pure.

A value on the target is replaced or reset only if it is the one that this flow knows: what was set there by others
survives. What the flow knows is in its inventory, which begins when the flow sees a topic for the first time.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from mirror.alignment.config_bounds import CLEANUP_POLICY, reduces, why_out_of_bounds
from mirror.relay.batches.topic_config import MAX_MESSAGE_BYTES

_MOST_BEFORE: Final = 4
"""Values that a key may still have on the target, of changes whose outcome is not known."""
_MAX_BYTES: Final = "max.message.bytes"
_COPIES_DEPEND_ON: Final = frozenset(
    {
        "message.timestamp.type",
        "message.timestamp.before.max.ms",
        "message.timestamp.after.max.ms",
        "message.timestamp.difference.max.ms",
    }
)
"""A copy reads these when it begins: they decide how a batch goes exactly once, and which timestamps it may have."""


class ConfigMark(enum.StrEnum):
    """How this flow knows a key of a target topic."""

    SET = "set"
    """This flow has set it, or is about to."""
    SEEN = "seen"
    """It was the same on both sides."""
    DIFFERED = "differed"
    """Both sides differed when the inventory of the topic began."""


class Known(NamedTuple):
    """What the inventory has about one key of a target topic."""

    mark: ConfigMark
    value: str | None = None
    """The value on the target; None: it was reset there."""
    before: tuple[str | None, ...] = ()
    """What the target may still have: a change is stored before it is made."""

    def settled(self) -> Known | None:
        """Return what is known after the change was made; None: nothing."""
        return None if self.mark is ConfigMark.SET and self.value is None else self._replace(before=())


class Act(enum.Enum):
    """What is done on the target."""

    NOTHING = enum.auto()
    SET = enum.auto()
    RESET = enum.auto()
    """The target's default holds again."""


class Reason(enum.StrEnum):
    """Why a key that differs is not changed; the values are for users."""

    BEFORE = "differed-before"
    """Both sides differed before this flow had an inventory of the topic."""
    CHANGED = "changed-on-target"
    """This flow had set the value, or seen it, and others have changed it on the target since."""
    NOT_OWN = "not-set-by-flow"
    """The source has no value any more; the target's was the same, and this flow has not set it."""
    ONLY_ON_TARGET = "only-on-target"
    """The source has no value, and others have set one on the target. This is no drift."""
    NOT_OWNED = "not-owned"
    """The flow has not created the topic and copies nothing into it: nothing about it is changed."""
    NOT_FOLLOWED = "not-followed"
    """The key is not in configs-include. This is no drift."""
    OUT_OF_BOUNDS = "out-of-bounds"
    """The source's value would cost the target's brokers much."""
    CONFIRMING = "waits-for-second-round"
    """Records would be deleted: another round has to see the same."""
    OVER_LIMIT = "over-limit"
    """Records would be deleted, in more topics than max-deletions."""
    SOURCE_RECREATED = "source-recreated"
    """Records would be deleted, and they are not of the source topic that there is now."""
    NOT_COPIED = "not-copied"
    """Records would be deleted, and the flow has copied none of them."""
    WAITS = "waits-for-restart"
    """A running copy depends on the value: it is changed when the flow starts again."""


NO_DRIFT: Final = frozenset({Reason.ONLY_ON_TARGET, Reason.NOT_FOLLOWED})


class Observed(NamedTuple):
    """Both sides of one key: values that are set on the topics themselves, without defaults of brokers."""

    source: str | None
    target: str | None
    known: Known | None
    begun: bool
    """Whether there was an inventory of the topic before."""


class Decision(NamedTuple):
    """What is done; with a reason, nothing is, although the sides differ."""

    act: Act
    known: Known | None
    """What the inventory is to have from now on, before the change is made."""
    reason: Reason | None = None


@dataclass(frozen=True, slots=True)
class ConfigRules:
    """Which configurations the topics on the target get."""

    excludes: Callable[[str], bool] = lambda _: False
    """Whether a key is left as it is on the target."""
    overrides: Mapping[str, str] = field(default_factory=dict)
    """Values that topics on the target have in any case, by key; also of excluded keys."""
    follows: Callable[[str], bool] = lambda _: True
    """Whether a key is brought to the target at all."""
    kept_ms: int = 0
    """What deletes no record younger than this, in ms, is a change like any other."""

    def wanted(self, source: Mapping[str, str]) -> dict[str, str]:
        """Return what a target topic is to have, by what is set on its source topic."""
        followed = {
            key: value for key, value in source.items() if self.manages(key) and self.why_withheld(key, value) is None
        }
        return {**followed, **self.overrides}

    def manages(self, key: str) -> bool:
        """Return whether the flow may change ``key``."""
        return key in self.overrides or (self.follows(key) and not self.excludes(key))

    def why_withheld(self, key: str, value: str) -> tuple[Reason, str] | None:
        """Return why the source's ``value`` is not brought to the target, with the detail, although it is not excluded.

        None if it is, or the key is excluded or overridden.
        """
        if key in self.overrides or self.excludes(key):
            return None
        if not self.follows(key):
            return Reason.NOT_FOLLOWED, ""
        why = why_out_of_bounds(key, value)
        return (Reason.OUT_OF_BOUNDS, f"followed if it is {why}") if why else None

    def reduces(self, key: str, target: str | None, wanted: str | None) -> bool:
        """Return whether a change to what the source says makes brokers delete records."""
        return key not in self.overrides and reduces(key, target, wanted, self.kept_ms)


# Invariant: What others have set on the target survives: a value is replaced only if it is the one that the inventory
#   has, and what differed at the beginning is left until it is adopted.
# Test: tests/alignment/test_decision.py::test_only_what_the_flow_knows_is_changed_unless_it_is_forced
# Test: tests/alignment/test_rounds_on_fakes.py::test_what_differed_before_is_left_until_it_is_adopted
# Test: tests/alignment/test_configs_beside_mirrormaker.py::test_every_row_of_the_table
def decide(key: str, seen: Observed, *, forced: bool = False, beside_copies: bool = False) -> Decision:
    """Decide about ``key``; ``seen.source`` is the value that the target is to have, None for its default.

    ``forced``: the user wants it, whatever was on the target. ``beside_copies``: copies run that have read the
    target's configuration.
    """
    if equal(key, seen.source, seen.target):
        return Decision(Act.NOTHING, _known_when_equal(key, seen))
    decision = _decide(key, seen, forced=forced)
    if decision.act is not Act.NOTHING and beside_copies and _disturbs(key, seen.source, seen.target):
        return Decision(Act.NOTHING, _known_when_held(seen), Reason.WAITS)
    return decision


def _decide(key: str, seen: Observed, *, forced: bool) -> Decision:
    known = seen.known
    if forced:
        return _change(seen)
    if known is None or known.mark is ConfigMark.DIFFERED:
        if known is None and seen.target is None and seen.begun:
            return _change(seen)
        return _leave(seen, Reason.CHANGED if known is None and seen.begun else Reason.BEFORE)
    if not any(equal(key, seen.target, value) for value in (known.value, *known.before)):
        return _leave(seen, Reason.CHANGED)
    if seen.source is None and known.mark is ConfigMark.SEEN:
        return _hold(seen, Reason.NOT_OWN)
    return _change(seen)


def _leave(seen: Observed, reason: Reason) -> Decision:
    """Leave what others have set on the target; it is no drift if the source has nothing to set."""
    return Decision(Act.NOTHING, None, Reason.ONLY_ON_TARGET) if seen.source is None else _hold(seen, reason)


def _change(seen: Observed) -> Decision:
    """Make the target's value the wanted one; what earlier changes may still do is remembered."""
    pending = (seen.known.value, *seen.known.before) if seen.known is not None and seen.known.before else ()
    before = tuple(dict.fromkeys((seen.target, *pending)))[:_MOST_BEFORE]
    act = Act.RESET if seen.source is None else Act.SET
    return Decision(act, Known(ConfigMark.SET, seen.source, before))


def _hold(seen: Observed, reason: Reason) -> Decision:
    return Decision(Act.NOTHING, _known_when_held(seen), reason)


def _known_when_held(seen: Observed) -> Known | None:
    """Return what the inventory has about a key that is not changed."""
    if seen.known is None and not seen.begun:
        return Known(ConfigMark.DIFFERED)
    return seen.known


def _known_when_equal(key: str, seen: Observed) -> Known | None:
    if seen.target is None:
        return None
    own = seen.known is not None and seen.known.mark is ConfigMark.SET and equal(key, seen.known.value, seen.target)
    return Known(ConfigMark.SET if own else ConfigMark.SEEN, seen.target)


def equal(key: str, one: str | None, other: str | None) -> bool:
    """Return whether two values of a key mean the same; the order of cleanup policies does not matter."""
    if key == CLEANUP_POLICY and one is not None and other is not None:
        return _items(one) == _items(other)
    return one == other


# Invariant: What a running copy depends on (compaction, timestamps, smaller batches) waits until the flow starts again.
# Test: tests/alignment/test_decision.py::test_what_a_running_copy_depends_on_waits
def _disturbs(key: str, wanted: str | None, target: str | None) -> bool:
    """Return whether a copy that has begun depends on what ``key`` is now.

    One that goes by sequence compares records that a compaction would remove. A lower limit of the size refuses
    batches that were split by the former one.
    """
    if key == CLEANUP_POLICY:
        return "compact" not in _items(target or "") and (wanted is None or "compact" in _items(wanted))
    if key == _MAX_BYTES:
        return wanted is None or _number(wanted) < (MAX_MESSAGE_BYTES if target is None else _number(target))
    return key in _COPIES_DEPEND_ON


def _items(value: str) -> frozenset[str]:
    return frozenset(item.strip() for item in value.split(","))


def _number(value: str) -> int:
    return int(value) if value.isascii() and value.isdigit() else 0
