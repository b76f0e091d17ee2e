"""Asks a cluster where leader epochs of its logs end: what was in a log behind that may be lost (KIP-101)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import Future
from typing import Final

from mirror.client import Admin, TopicPartition
from mirror.cluster.types import EpochEndOffset, Outcomes

_Call = tuple[dict[TopicPartition, int], Future[Outcomes[TopicPartition, EpochEndOffset | None]]]


class EpochEndCalls:
    """The requests OffsetForLeaderEpoch for leader epochs of each partition: sent at once, and read later.

    One request has one epoch of each partition.
    """

    def __init__(
        self, admin: Admin, epochs: Mapping[TopicPartition, Collection[int]], timeout_ms: int | None = None
    ) -> None:
        self._tps: Final = tuple(epochs)
        self._calls: Final[list[_Call]] = []
        left = {tp: sorted(set(found)) for tp, found in epochs.items() if found}
        while left:
            asked = {tp: found.pop() for tp, found in left.items()}
            self._calls.append((asked, admin.epoch_ends_async(asked, timeout_ms)))
            left = {tp: found for tp, found in left.items() if found}

    def read(self, *, partial: bool = False) -> dict[TopicPartition, dict[int, EpochEndOffset | None]]:
        """Return the responses, None where a leader does not offer the API.

        With ``partial``, epochs are absent whose leaders do not answer. Raises KafkaError.
        """
        ends: dict[TopicPartition, dict[int, EpochEndOffset | None]] = {tp: {} for tp in self._tps}
        for asked, call in self._calls:
            found = call.result()
            for error in () if partial else found.failed.values():
                raise error
            for tp, end in found.items():
                ends[tp][asked[tp]] = end
        return ends


def known(epochs: Iterable[int | None]) -> set[int]:
    """Return those ``epochs`` that are known."""
    return {epoch for epoch in epochs if epoch is not None}
