"""Describes for people which way partitions go, and why. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Final, NamedTuple

from mirror.errors import MAX_NAMES_SHOWN
from mirror.relay.model.way import Way


class PartitionWay(NamedTuple):
    """The way of one partition, and why it goes that way."""

    partition: str
    """Its name, for people."""
    way: str
    """The value of a :class:`Way`; empty if it is unknown, or delivery is at least once."""
    reason: str
    """One clause; empty if it is unknown."""


_CONFIGURED: Final = "exactly-once-by = "


def configured_reason(mode: str) -> str:
    """Return the reason for a way that the flow itself fixes; ``mode`` is its ``exactly-once-by``."""
    return f'{_CONFIGURED}"{mode}"'


def way_notes(partitions: Iterable[PartitionWay]) -> list[str]:
    """Return one line for each reason why partitions go in transactions, unless the flow itself says so.

    Those whose reason is unknown have a line only if others go by sequences.
    """
    by_reason: dict[str, list[str]] = defaultdict(list)
    mixed = False
    for partition in partitions:
        mixed = mixed or partition.way == Way.SEQUENCES
        if partition.way == Way.TRANSACTIONS and not partition.reason.startswith(_CONFIGURED):
            by_reason[partition.reason].append(partition.partition)
    return [_note(names, reason) for reason, names in by_reason.items() if reason or mixed]


def way_lines(partitions: Iterable[PartitionWay]) -> list[str]:
    """Return one line for each way and reason of partitions whose way is known, also if the flow itself says so."""
    grouped: dict[tuple[str, str], list[str]] = defaultdict(list)
    for partition in partitions:
        if partition.way:
            grouped[partition.way, partition.reason].append(partition.partition)
    return [_note(names, reason, way) for (way, reason), names in grouped.items()]


def _note(names: list[str], reason: str, way: str = Way.TRANSACTIONS) -> str:
    how = "by sequences" if way == Way.SEQUENCES else "in transactions"
    more = f" and {len(names) - MAX_NAMES_SHOWN:,} more" if len(names) > MAX_NAMES_SHOWN else ""
    count = "1 partition goes" if len(names) == 1 else f"{len(names):,} partitions go"
    because = f", because {reason}" if reason else ""
    return f"{count} {how}{because}: {', '.join(names[:MAX_NAMES_SHOWN])}{more}"
