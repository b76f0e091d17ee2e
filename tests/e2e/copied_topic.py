"""A topic that a flow copies while it loses processes and hosts, and what its copy has to be afterwards."""

from __future__ import annotations

import operator
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from mirror.sandbox import copy_verifier
from tests.e2e.broker_side import Side
from tests.polling import eventually

WITHIN_S: Final = 240.0


@dataclass
class CopiedTopic:
    """One topic of the flow ``f``, on its way from ``source``, the cluster a, to ``target``."""

    source: Side
    target: Side
    topic: str
    partitions: int

    def await_progress(self, ends: Sequence[int], driver: subprocess.Popen[str], what: str) -> None:
        """Wait until the target's progress has reached ``ends``; ``driver`` has to live as long."""

        def reached() -> bool:
            assert driver.poll() is None, (what, driver.communicate())
            progress = [self.target.progress("f", f"a.{self.topic}", each) for each in range(self.partitions)]
            return all(map(operator.ge, progress, ends))

        eventually(reached, within_s=WITHIN_S, what=what)

    def agree(self, at_least: Sequence[int]) -> None:
        """Nothing twice, nothing left out, nothing out of order, of what is there; and that is so much."""
        for partition, least in enumerate(at_least):
            copied = self.target.read(f"a.{self.topic}", partition)
            assert least <= len(copied)
            assert copied == self.source.read(self.topic, partition)[: len(copied)]

    def equal(self) -> copy_verifier.CopyCheck:
        """Keys, values, headers, timestamps and order of all there is."""
        return copy_verifier.compare(self.source.address, self.topic, self.target.address, f"a.{self.topic}")
