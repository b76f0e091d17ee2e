"""Asks a cluster where leader epochs of its logs end: what was in a log behind that may be lost (KIP-101)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import Future

from mirror.client import Admin, TopicPartition
from mirror.cluster.types import EpochEndOffset, Outcomes


def read_epoch_ends(
    admin: Admin,
    epochs: Mapping[TopicPartition, Collection[int]],
    timeout_ms: int | None = None,
    *,
    partial: bool = False,
) -> dict[TopicPartition, dict[int, EpochEndOffset]]:
    """Return the responses to OffsetForLeaderEpoch for these leader epochs of each partition. Raises KafkaError.

    One request has one epoch of each partition; all of them are sent at once. With ``partial``, the epochs are absent
    whose leaders do not answer.
    """
    ends: dict[TopicPartition, dict[int, EpochEndOffset]] = {tp: {} for tp in epochs}
    left = {tp: sorted(set(found)) for tp, found in epochs.items() if found}
    calls: list[tuple[dict[TopicPartition, int], Future[Outcomes[TopicPartition, EpochEndOffset]]]] = []
    while left:
        asked = {tp: found.pop() for tp, found in left.items()}
        calls.append((asked, admin.epoch_ends_async(asked, timeout_ms)))
        left = {tp: found for tp, found in left.items() if found}
    for asked, call in calls:
        found = call.result()
        for error in () if partial else found.failed.values():
            raise error
        for tp, end in found.items():
            ends[tp][asked[tp]] = end
    return ends


def known(epochs: Iterable[int | None]) -> set[int]:
    """Return those ``epochs`` that are known."""
    return {epoch for epoch in epochs if epoch is not None}
