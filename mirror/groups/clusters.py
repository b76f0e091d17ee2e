"""What reads the groups and the logs of a flow's two clusters."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from typing import Final, Self

from mirror.client import Admin
from mirror.groups.reader import GroupReader
from mirror.groups.translation.logs import PATIENCE, FlowLogs
from mirror.relay.model.policy import CopyPolicy
from mirror.relay.offsets.translator import OffsetTranslator
from mirror.relay.progress.flow_topic import cluster_options
from mirror.timing import Clock

TIMEOUT_MS: Final = 20_000
"""For each call."""


class FlowClusters:
    """The clients and readers of both clusters. Their calls wait; use them in one thread."""

    def __init__(
        self,
        flow: str,
        source_options: Mapping[str, object],
        target_options: Mapping[str, object],
        policy: CopyPolicy,
        clock: Clock,
    ) -> None:
        """The options are dotted keys, of which those of the clusters are used. Raises ConfigError, FlowError."""
        with ExitStack() as stack:
            translator = OffsetTranslator(
                flow, source_options, target_options, policy, timeout_ms=TIMEOUT_MS, patience=PATIENCE
            )
            stack.enter_context(translator)
            self.source: Final = stack.enter_context(Admin(cluster_options(source_options)))
            self.target: Final = stack.enter_context(Admin(cluster_options(target_options)))
            self._clients: Final = stack.pop_all()
        self.translator: Final = translator
        """That of the flow's index."""
        self.of_source: Final = GroupReader(self.source, clock, TIMEOUT_MS)
        self.of_target: Final = GroupReader(self.target, clock, TIMEOUT_MS)
        self.logs: Final = FlowLogs(self.source, self.target, translator, clock, TIMEOUT_MS)

    def close(self) -> None:
        """Close the connections."""
        self._clients.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def network_ms(self) -> int:
        """Return the CPU time of the network threads, which all clients of the process share."""
        return self.source.network().busy_ms + self.target.network().busy_ms
