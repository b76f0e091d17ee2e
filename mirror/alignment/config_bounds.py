"""Which values of a source's configurations a target topic gets by itself, and which of them delete records. Pure.

The administrators of the source set these values. A copy that is kept for a disaster must not lose its records with the
source, and its brokers must not have to make a file for each record.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Final, NamedTuple

CLEANUP_POLICY: Final = "cleanup.policy"


class Bounds(NamedTuple):
    """The values that are followed, inclusive."""

    least: float = -inf
    most: float = inf

    def __str__(self) -> str:
        return f"{self.least:,.2f} or more" if self.most == inf else f"{self.most:,.0f} or less"


BOUNDS: Final[Mapping[str, Bounds]] = {
    "segment.ms": Bounds(least=10 * 60 * 1000),
    "segment.bytes": Bounds(least=10 * 1024 * 1024),
    "max.compaction.lag.ms": Bounds(least=10 * 60 * 1000),
    "min.cleanable.dirty.ratio": Bounds(least=0.01),
    "max.message.bytes": Bounds(most=128 * 1024 * 1024),
}
"""Smaller segments are more files for each partition, and more compaction; larger messages are memory of brokers."""

_DEFAULTS: Final[Mapping[str, float]] = {
    "retention.ms": 7 * 24 * 60 * 60 * 1000,
    "retention.bytes": inf,
    "delete.retention.ms": 24 * 60 * 60 * 1000,
    "min.compaction.lag.ms": 0,
    "max.compaction.lag.ms": inf,
}
"""Kafka's: lower values make brokers delete more. Those of the target's brokers are its own administrator's choice.
Smaller segments delete nothing by themselves: retention also rolls the active segment."""
_SIZES: Final = frozenset({"retention.bytes"})
_DEFAULT_POLICY: Final = "delete"
_TIERED: Final[Mapping[str, str]] = {"remote.storage.enable": "false", "remote.log.delete.on.disable": "true"}
"""The values with which brokers delete what tiered storage has (KIP-950)."""
_DEFAULT_TIERED: Final = "false"


def why_out_of_bounds(key: str, value: str) -> str:
    """Return what a value would have to be; empty if it is within the bounds of its key, or no number."""
    bounds, number = BOUNDS.get(key), _number(value)
    if bounds is None or number is None or bounds.least <= number <= bounds.most:
        return ""
    return str(bounds)


def reduces(key: str, target: str | None, wanted: str | None, kept_ms: int) -> bool:
    """Return whether the brokers of the target may delete records, once ``key`` is ``wanted`` and not ``target``.

    None is their default. What deletes no record that is younger than ``kept_ms`` reduces nothing.
    """
    if key == CLEANUP_POLICY:
        return bool(_policies(wanted) - _policies(target))
    if key in _TIERED:
        return _is_deleting(key, wanted) and not _is_deleting(key, target)
    if key not in _DEFAULTS:
        return False
    before, after = (_DEFAULTS[key] if value is None else _number(value) for value in (target, wanted))
    if before is None or after is None:
        return True  # brokers refuse it, or have what this version does not know
    return after < before and (key in _SIZES or after < kept_ms)


def _policies(value: str | None) -> frozenset[str]:
    """Return the policies: with an empty value, there is none (KIP-1161)."""
    given = _DEFAULT_POLICY if value is None else value
    return frozenset(item.strip() for item in given.split(",") if item.strip())


def _is_deleting(key: str, value: str | None) -> bool:
    return (_DEFAULT_TIERED if value is None else value.strip().lower()) == _TIERED[key]


def _number(value: str) -> float | None:
    """Return a number, -1 as the infinite one that it stands for; None for anything else."""
    try:
        number = float(value)
    except ValueError:
        return None
    return inf if number < 0 else number
