"""The rounds of a flow's consumer groups, with checkpoints of the positions that they translate."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from mirror.closing import Closing
from mirror.config.flow_rules import target_options
from mirror.errors import KafkaError
from mirror.mirrormaker.checkpoints import CheckpointWriter, Translated
from mirror.mirrormaker.records import Checkpoint, CheckpointKey
from mirror.runtime.clock import SystemClock
from mirror.spark.preflight.flow_groups import open_sync

if TYPE_CHECKING:
    from mirror.config.models import FlowConfig, MirrorConfig
    from mirror.errors import Fenced
    from mirror.groups.positions import GroupsReport, TranslatedPosition

_ACKNOWLEDGED_MS: Final = 5_000
"""The time that checkpoints have to be acknowledged. A stream's next round takes the acknowledgements that are late."""


class CheckpointedRounds(Closing):
    """The rounds of one flow: commits on the target, and checkpoints of the same positions, or one of both.

    Its calls wait for the clusters; use it in one thread.
    """

    def __init__(self, config: MirrorConfig, flow: FlowConfig, *, beside_copies: bool = False) -> None:
        """``beside_copies`` is as for :func:`open_sync`. Raises MirrorError."""
        self._flow: Final = flow
        self._checkpoints: CheckpointWriter | None = None
        with ExitStack() as stack:
            self._sync: Final = stack.enter_context(open_sync(config, flow, beside_copies=beside_copies))
            if flow.mirrormaker.checkpoints:
                writer = CheckpointWriter(target_options(config, flow), source=flow.source, clock=SystemClock())
                self._checkpoints = stack.enter_context(writer)
            self._clients: Final = stack.pop_all()

    def close(self) -> None:
        self._clients.close()

    def has_news(self) -> bool:
        """Return whether a round can bring groups over that have changed, or are new. Raises KafkaError."""
        return self._sync.has_news()

    def fenced(self, error: Fenced) -> GroupsReport:
        """Return the report of a round that ended with ``error``."""
        return self._sync.fenced(error)

    def network_ms(self) -> int:
        """Return the CPU time of the network threads."""
        return self._sync.network_ms()

    def round(self, *, last: bool = False) -> GroupsReport:
        """Commit what has changed, if the flow is to, and write its checkpoints. Raises KafkaError, Fenced.

        Checkpoints that cannot be written are a problem in the report, and keep no offset from being committed.
        """
        report = self._sync.round(write=self._flow.groups.sync, last=last)
        if self._checkpoints is None:
            return report
        try:
            self._checkpoints.write(checkpoints_of(self._flow, report.translated), _ACKNOWLEDGED_MS)
        except KafkaError as error:
            return replace(report, problems=(*report.problems, f"checkpoints could not be written: {error}"))
        return report


def checkpoints_of(flow: FlowConfig, positions: tuple[TranslatedPosition, ...]) -> dict[CheckpointKey, Translated]:
    """Return the checkpoints of ``positions``. Exactly once no record is repeated, so that each has one position."""
    return {
        CheckpointKey(found.group, found.target): Translated(
            Checkpoint(found.position.source, found.position.target, found.metadata),
            may_go_back=found.lost or flow.exactly_once,
        )
        for found in positions
    }
