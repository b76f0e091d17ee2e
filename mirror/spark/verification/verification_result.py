"""What the verification of a flow came to."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mirror.verify.partition_results import PartitionResult


@dataclass(slots=True, kw_only=True)
class FlowVerification:
    """What the verification of one flow came to."""

    flow: str
    results: list[PartitionResult] = field(default_factory=list)
    error: str = ""
    """Why nothing of it could be verified; empty if something could."""
    partial: bool = False
    """Whether it leaves out, as it was asked to, some of what is copied and was not proved before."""
    source_cluster_id: str = ""
    target_cluster_id: str = ""
    started: datetime = field(default_factory=lambda: datetime.now(UTC))
    ended: datetime | None = None
    proof_hash: str = ""
    """The last hash of the proof that was kept or checked."""

    @property
    def seconds(self) -> float:
        """How long it took."""
        return 0.0 if self.ended is None else (self.ended - self.started).total_seconds()

    @property
    def complete(self) -> bool:
        """Whether the target has every record that the source has now."""
        return not self.error and not any(result.incomplete for result in self.results)

    def to_record(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        return {
            "flow": self.flow,
            "error": self.error or None,
            "complete": self.complete,
            "partial": self.partial,
            "started": self.started.isoformat(),
            "seconds": round(self.seconds, 3),
            "source_cluster_id": self.source_cluster_id,
            "target_cluster_id": self.target_cluster_id,
            "proof": self.proof_hash or None,
            "partitions": [result.to_record() for result in self.results],
        }
