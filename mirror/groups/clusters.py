"""What reads the groups and the logs of a flow's two clusters."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

from mirror.client import Admin
from mirror.closing import Closing
from mirror.groups.reader import GroupReader
from mirror.groups.rules import GroupRules
from mirror.groups.translation.logs import PATIENCE, FlowLogs
from mirror.relay.model.policy import CopyPolicy
from mirror.relay.offsets.translator import OffsetTranslator
from mirror.relay.progress.flow_topic import cluster_options
from mirror.timing import Clock

TIMEOUT_MS: Final = 20_000
"""For each call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowAccess:
    """A flow, how its clusters are reached, and how it copies."""

    name: str
    source_options: Mapping[str, object]
    """Dotted keys, of which those of the clusters are used."""
    target_options: Mapping[str, object]
    policy: CopyPolicy
    holder: str = ""
    """Whose hold of the flow lets it write, as a latch names it."""

    def open_translator(self) -> OffsetTranslator:
        """Return the translator of its index, to be closed. Raises ConfigError, FlowError."""
        options = self.source_options, self.target_options
        return OffsetTranslator(self.name, *options, self.policy, timeout_ms=TIMEOUT_MS, patience=PATIENCE)


class FlowClusters(Closing):
    """The clients and readers of both clusters. Their calls wait; use them in one thread."""

    def __init__(self, flow: FlowAccess, rules: GroupRules, clock: Clock) -> None:
        """Groups have their names on the source on both sides. Raises ConfigError, FlowError."""
        with ExitStack() as stack:
            translator = stack.enter_context(flow.open_translator())
            self.source: Final = stack.enter_context(Admin(cluster_options(flow.source_options)))
            self.target: Final = stack.enter_context(Admin(cluster_options(flow.target_options)))
            self._clients: Final = stack.pop_all()
        self.translator: Final = translator
        """That of the flow's index."""
        self.of_source: Final = GroupReader(self.source, clock, TIMEOUT_MS)
        self.of_target: Final = GroupReader(self.target, clock, TIMEOUT_MS, rules.target_group, rules.source_group)
        self.logs: Final = FlowLogs(self.source, self.target, translator, clock, TIMEOUT_MS)

    def close(self) -> None:
        """Close the connections."""
        self._clients.close()

    def network_ms(self) -> int:
        """Return the CPU time of the network threads, which all clients of the process share."""
        return self.source.network().busy_ms + self.target.network().busy_ms
