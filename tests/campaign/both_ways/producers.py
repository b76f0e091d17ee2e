"""Producers on each cluster: a plain, an idempotent and a transactional one, which also aborts."""

from __future__ import annotations

import random
from typing import Final

from tests.campaign.both_ways.verification import NUMBERS_EACH, Logs, by_producer
from tests.campaign.chaos.load import PlainWriter, RecordSource, TransactionalWriter, Writer

KINDS: Final = 3


class LocalProducers:
    """The three producers of one cluster, which write to the same topic until :meth:`stop`."""

    def __init__(
        self, cluster: str, address: str, topic: str, partitions: int, per_second: float, *, first: int, seed: int
    ) -> None:
        """``first`` is the index of the first one; each writes ``per_second`` records."""
        self.cluster: Final = cluster
        self.indexes: Final = range(first, first + KINDS)
        self._topic: Final = topic
        sources = [RecordSource(random.Random(f"{seed} {one}"), one * NUMBERS_EACH + 1) for one in self.indexes]
        self._plain: Final = PlainWriter(address, topic, partitions, per_second, sources[0], "none")
        self._idempotent: Final = Writer(address, topic, partitions, per_second, sources[1], "zstd")
        self._transactional: Final = TransactionalWriter(address, topic, partitions, per_second, sources[2], "none")

    def stop(self) -> None:
        """Stop, and wait until everything is in the log. AssertionError where that takes too long."""
        writers = (self._plain, self._idempotent, self._transactional)
        for writer in writers:
            writer.stopping.set()
        for writer in writers:
            writer.stop()

    def lost(self, logs: Logs) -> list[str]:
        """Return a line for each partition of this cluster that lacks acknowledged records of its own producers."""
        wrong = []
        acknowledged = (self._plain.acknowledged, None)
        for writer, index, numbers in zip((self._plain, self._idempotent), self.indexes, acknowledged, strict=False):
            for partition, sent in writer.sent.items():
                found = {one.number for one in by_producer(logs[self.cluster, self._topic][partition])[index]}
                wanted = {one.number for one in sent}
                wanted = wanted if numbers is None else wanted & numbers
                if wanted - found:
                    wrong.append(f"{self.cluster}-{partition} lost {len(wanted - found)} records of producer {index}")
        return wrong
