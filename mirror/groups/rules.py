"""Which groups and topics are brought to the target, under which names, and how. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRules:
    """Which groups and topics are brought to the target."""

    includes: Callable[[str], bool]
    """Whether the group is."""
    target_topic: Callable[[str], str | None]
    """The name of a source topic on the target; None if the flow does not copy it."""
    source_topic: Callable[[str], str | None]
    """The reverse."""
    target_group: Callable[[str], str] = str
    """The name of a source group on the target."""
    source_group: Callable[[str], str | None] = str
    """The reverse; None if no group is brought over under this name."""
    name_taken_by: Callable[[str], str | None] = lambda _: None
    """The other group for which a group's name on the target is kept, so that it is left out; None: it has its name."""
    lists_translated: bool = True
    """Whether the reports of rounds have the translated positions, of which checkpoints are made."""
    delete: bool = False
    """Whether offsets are deleted that the source's group does not have any more."""
    most: int = 10_000
    """How many groups are brought to the target at most."""
    patience_ms: int = 0
    """Beside a running copy: how long it may take to write what it has copied into the index. Then, as otherwise at
    once, it is read in the logs."""
