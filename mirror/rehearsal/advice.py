"""What an operator is to do about a group that is not ready, by reason. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from mirror.groups.back_positions import BackReason
from mirror.groups.commit_decision import Reason
from mirror.groups.summary import counted
from mirror.rehearsal.values import Why

_ASK_AGAIN: Final = "rehearse again once the broker answers"
_PERMISSION: Final = "mirror plan names the permission that is missing"


@dataclass(frozen=True, slots=True)
class Advice:
    """What to do, in the words of one flow and direction."""

    flow: str
    old: str
    new: str
    syncs: bool = True
    """Whether the flow commits positions on its target."""
    reverse: bool = False

    def of(self, reason: str, skipped: int = 0) -> str:
        """Return what to do about ``reason``; ``skipped`` records would be read if a position went back."""
        return self.texts(skipped).get(reason, "")

    def texts(self, skipped: int = 0) -> dict[str, str]:
        """Return what to do, by reason."""
        return {**self._common(skipped), **(self._back(skipped) if self.reverse else self._ahead(skipped))}

    def _common(self, skipped: int) -> dict[str, str]:
        return {
            Why.NOT_KNOWN: f"compare the records around its position on {self.new} before it moves",
            Why.READ_AGAIN: "let a round of the flow bring its position over, or raise --max-records",
            Reason.PASSED: (
                f"{self.new} has deleted {counted(skipped, 'record')} of them: let the group read them on {self.old}"
                " before it moves, or go on without them"
            ),
            Reason.UNAUTHORIZED: _PERMISSION,
            Reason.UNAVAILABLE: _ASK_AGAIN,
        }

    def _ahead(self, skipped: int) -> dict[str, str]:
        back = counted(skipped, "record")
        moved = f"if it has moved to {self.new}, nothing (the way back: mirror rehearse --reverse)"
        position = (
            f"run the flow: its next round commits the position on {self.new}"
            if self.syncs
            else f"add the section [flows.{self.flow}.groups], so that the flow brings positions over"
        )
        return {
            Why.SKIPS: (
                f"{moved}; otherwise reset it there to what mirror offsets shows for its position on {self.old}, {back}"
                " back"
            ),
            Why.MOVED: (
                f"nothing: it goes on where it is (the way back: mirror rehearse --reverse); if it is not to be on"
                f" {self.new} yet, stop its consumers there, and rehearse again"
            ),
            Why.NO_POSITION: position,
            Why.OUT_OF_RANGE: position,
            Reason.ACTIVE: f"{moved}; otherwise stop its consumers there until it is to move",
            Reason.TAKEN_OVER: (
                f"{moved}; otherwise mirror groups --flow {self.flow} --resume GROUP, which lets the flow go on from"
                " there, and never back"
            ),
            Reason.NO_PARTITION: f"run the flow, which makes the partition, unless {self.old} has lost its topic",
            Reason.UNKNOWN: "have it commit an offset that is copied, or choose its position by hand (mirror offsets)",
            Reason.NOT_SUPPORTED: "move it by its own means, and exclude it from the flow",
            Reason.REFUSED: "remove the cause that the broker names; the next round commits it",
            Reason.OTHER_RUN: "rehearse again once the other run has ended its round",
        }

    def _back(self, skipped: int) -> dict[str, str]:
        commit = f"mirror groups --flow {self.flow} --reverse --commit"
        return {
            Why.SKIPS: (
                f"if it has read them on {self.new} before, nothing; otherwise reset it there to what mirror offsets"
                f" --reverse shows for its position on {self.old}, {counted(skipped, 'record')} back"
            ),
            Why.NO_POSITION: commit,
            Why.OUT_OF_RANGE: commit,
            Why.READ_AGAIN: commit,
            BackReason.ACTIVE: f"stop its consumers on {self.new} until it is to move there",
            BackReason.UNKNOWN: "choose its position by hand (mirror offsets --reverse)",
            BackReason.REFUSED: "remove the cause that the broker names",
        }
