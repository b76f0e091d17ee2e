"""What an operator is to do about a group that is not ready, by reason. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from mirror.groups.back_positions import BackReason
from mirror.groups.decision import Reason
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

    def of(self, reason: str) -> str:
        """Return what to do about ``reason``."""
        return self._texts().get(reason, "")

    def _texts(self) -> dict[str, str]:
        return {**self._common(), **(self._back() if self.reverse else self._ahead())}

    def _common(self) -> dict[str, str]:
        return {
            Why.NOT_KNOWN: f"compare the records around its position on {self.new} before it moves",
            Why.READ_AGAIN: "let a round of the flow bring its position over, or raise --max-records",
            Reason.UNAUTHORIZED: _PERMISSION,
            Reason.UNAVAILABLE: _ASK_AGAIN,
        }

    def _ahead(self) -> dict[str, str]:
        position = (
            f"run the flow: its next round commits the position on {self.new}"
            if self.syncs
            else f"add the section [flows.{self.flow}.groups], so that the flow brings positions over"
        )
        return {
            Why.SKIPS: (
                f"reset it on {self.new} to what mirror groups shows, or delete its offsets there: the flow"
                " commits them again"
                if self.syncs
                else f"reset it on {self.new} to what mirror offsets shows for its position on {self.old}"
            ),
            Why.NO_POSITION: position,
            Why.OUT_OF_RANGE: position,
            Reason.ACTIVE: f"stop its consumers on {self.new} until it is to move there, or exclude it from the flow",
            Reason.TAKEN_OVER: f"mirror groups --flow {self.flow} --resume GROUP, or exclude it if it stays there",
            Reason.UNKNOWN: "have it commit an offset that is copied, or choose its position by hand (mirror offsets)",
            Reason.NOT_SUPPORTED: "move it by its own means, and exclude it from the flow",
            Reason.REFUSED: "remove the cause that the broker names; the next round commits it",
            Reason.OTHER_RUN: "rehearse again once the other run has ended its round",
        }

    def _back(self) -> dict[str, str]:
        commit = f"mirror groups --flow {self.flow} --reverse --commit"
        return {
            Why.SKIPS: f"if it has read them on {self.new} before, nothing; otherwise reset it there by hand",
            Why.NO_POSITION: commit,
            Why.OUT_OF_RANGE: commit,
            Why.READ_AGAIN: commit,
            BackReason.ACTIVE: f"stop its consumers on {self.new} until it is to move there",
            BackReason.UNKNOWN: "choose its position by hand (mirror offsets --reverse)",
            BackReason.REFUSED: "remove the cause that the broker names",
        }
