"""What a run, its report and ``mirror status`` say of both sides being in step, beyond records and groups. Pure.

A round of each kind of differences (configurations, topics, and others) ends with a summary, the values that
``summary.json`` has of it; the state has the last one of each kind.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final, Self

ACLS: Final = "acls"
CONFIGS: Final = "configs"
DELETIONS: Final = "deletions"
TOPICS: Final = "topics"
NOT_COMPARED: Final = "not-compared"
"""The reason of what a round could not compare."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KindState:
    """One kind of differences after its last round."""

    by_reason: Mapping[str, int]
    """How many differences no round removes by itself, by reason; :data:`NOT_COMPARED`: problems."""
    time_ms: int
    """When the last round ended, in ms since 1970."""
    synced_ms: int = 0
    """When the last round ended that had no problem: it has compared everything; 0: none."""

    @property
    def in_step(self) -> bool:
        """Whether nothing differs."""
        return not self.by_reason

    def words(self) -> str:
        """Return the counts as a part of a line."""
        return ", ".join(f"{count:,} {reason}" for reason, count in self.by_reason.items()) or "in step"


@dataclass(frozen=True, slots=True)
class SyncState:
    """The state of a flow."""

    kinds: Mapping[str, KindState] = field(default_factory=lambda: MappingProxyType({}))
    """By kind; only kinds that the flow keeps in step."""
    not_local: int = 0
    """Records that the run has left out, because a flow has written them to the source (``origin = "local"``)."""
    aside: int = 0
    """Records, and batches that cannot be decoded, that the run has written to the flow's aside topic."""

    def after(self, kind: str, not_in_step: Mapping[str, int], problems: int, time_ms: int) -> SyncState:
        """Return the state after a round of ``kind``."""
        before = self.kinds.get(kind)
        counts = {reason: count for reason, count in sorted(not_in_step.items()) if count}
        if problems:
            counts[NOT_COMPARED] = problems
            synced_ms = before.synced_ms if before is not None else 0
        else:
            synced_ms = time_ms
        state = KindState(by_reason=counts, time_ms=time_ms, synced_ms=synced_ms)
        return replace(self, kinds={**self.kinds, kind: state})

    def to_json(self) -> dict[str, Any]:
        """Return plain values, for ``summary.json`` and ``mirror status --json``."""
        kinds = {
            kind: {
                "in_step": state.in_step,
                "not_in_step": dict(state.by_reason),
                "time_ms": state.time_ms,
                "synced_ms": state.synced_ms or None,
            }
            for kind, state in self.kinds.items()
        }
        return {"kinds": kinds, "not_local": self.not_local, "aside": self.aside}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """Return what :meth:`to_json` has returned. Raises KeyError, TypeError, ValueError for anything else."""
        kinds = {
            str(kind): KindState(
                by_reason={str(reason): int(count) for reason, count in state["not_in_step"].items()},
                time_ms=int(state["time_ms"]),
                synced_ms=int(state["synced_ms"] or 0),
            )
            for kind, state in values["kinds"].items()
        }
        return cls(kinds, int(values["not_local"]), int(values.get("aside", 0)))  # earlier versions have none
