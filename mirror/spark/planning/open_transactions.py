"""Looks up the source's open transactions: they keep its last stable offsets from moving (KIP-664)."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from mirror.client import LATEST, TopicPartition
from mirror.errors import KafkaError, MirrorError
from mirror.relay.progress.open_transactions import OpenTransaction, OpenTransactions, update_open_transactions

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from mirror.client import Admin, ProducerState, TransactionDescription, TransactionListing
    from mirror.observation import Side

_log: Final = logging.getLogger(__name__)

_CLUSTER_CALL_TIMEOUT_MS: Final = 5_000
_MAX_PARTITIONS: Final = 20
"""Partitions whose producers are looked up, the oldest transactions first: a leader sends all that it remembers."""


def high_watermarks(
    source: Admin, tps: Collection[TopicPartition], *, call_timeout_ms: int | None
) -> dict[TopicPartition, int]:
    """Return the high watermarks of the partitions that answer, with one request to each broker.

    Call it after the last stable offsets were read: the high watermarks are then never below them.
    """
    if not tps:
        return {}
    specs = dict.fromkeys(tps, LATEST)
    try:
        found = source.list_offsets(specs, isolation="read_uncommitted", partial=True, timeout_ms=call_timeout_ms)
    except KafkaError:
        return {}  # The copy needs only the last stable offsets.
    return {tp: result.offset for tp, result in found.items()}


def look_up_withheld(
    source: Side,
    stable: Mapping[TopicPartition, tuple[int, int]],
    before: OpenTransactions | None,
    now_ms: int,
) -> dict[TopicPartition, OpenTransaction]:
    """Return the open transactions, by the last stable offsets and the high watermarks of partitions.

    The first observation looks up all their producers; later ones, which have those of the one ``before``, only those
    of last stable offsets that did not move.
    """
    found = update_open_transactions(before or {}, stable, now_ms)
    to_look_up = {
        tp: transaction for tp, transaction in found.items() if before is None or transaction.since_ms < now_ms
    }
    return found | with_producers(source.admin, to_look_up)


def still_open(source: Admin, before: OpenTransactions, now_ms: int) -> dict[TopicPartition, OpenTransaction]:
    """Return those of ``before`` that are still open at ``now_ms``, updated, and those that could not be checked."""
    if not before:
        return {}
    try:
        found = source.list_offsets(dict.fromkeys(before, LATEST), partial=True, timeout_ms=_CLUSTER_CALL_TIMEOUT_MS)
    except KafkaError:
        return dict(before)
    high = high_watermarks(source, found, call_timeout_ms=_CLUSTER_CALL_TIMEOUT_MS)
    stable = {tp: (result.offset, high[tp]) for tp, result in found.items() if tp in high}
    now_open = update_open_transactions(before, stable, now_ms)
    unchanged = {
        tp: now_open[tp]
        for tp, transaction in before.items()
        if tp in now_open and now_open[tp].offset == transaction.offset
    }
    unchecked = {tp: transaction for tp, transaction in before.items() if tp not in stable}
    return with_producers(source, unchecked | unchanged)


def with_producers(source: Admin, found: OpenTransactions) -> dict[TopicPartition, OpenTransaction]:
    """Return ``found`` with their producers and start times, as far as brokers and permissions allow.

    This takes at most three requests to each broker, and none if all producers are already in ``found``.
    """
    unidentified = [transaction for transaction in found.values() if transaction.producer_id is None]
    oldest = sorted(unidentified, key=lambda transaction: (transaction.since_ms, transaction.tp))[:_MAX_PARTITIONS]
    if not oldest:
        return dict(found)
    try:
        return dict(found) | _look_up_producers(source, oldest)
    except MirrorError as error:
        _log.info("the producers of the source's open transactions are not known: %s", error)
        return dict(found)


def _look_up_producers(source: Admin, transactions: Iterable[OpenTransaction]) -> dict[TopicPartition, OpenTransaction]:
    states = source.describe_producers(
        [transaction.tp for transaction in transactions], partial=True, timeout_ms=_CLUSTER_CALL_TIMEOUT_MS
    )
    for error in [*states.failed.values()][:1]:
        _log.info("the producers of the source's open transactions are not all known: %s", error)
    found = {
        transaction.tp: replace(
            transaction,
            producer_id=state.producer_id,
            producer_epoch=state.producer_epoch,
            last_record_ms=state.last_timestamp_ms if state.last_timestamp_ms >= 0 else None,
        )
        for transaction in transactions
        if (state := _producer_of(transaction, states.get(transaction.tp, ()))) is not None
    }
    producer_ids = {transaction.producer_id for transaction in found.values() if transaction.producer_id is not None}
    if not producer_ids:
        return found
    listed = source.list_transactions(producer_ids, partial=True, timeout_ms=_CLUSTER_CALL_TIMEOUT_MS)
    names = {listing.transactional_id for listing in listed}
    described = source.describe_transactions(names, partial=True, timeout_ms=_CLUSTER_CALL_TIMEOUT_MS) if names else {}
    return {tp: _with_start(transaction, listed, described) for tp, transaction in found.items()}


def _producer_of(transaction: OpenTransaction, states: Iterable[ProducerState]) -> ProducerState | None:
    """Return the producer whose transaction begins at the last stable offset."""
    return next((state for state in states if state.transaction_start == transaction.offset), None)


def _with_start(
    transaction: OpenTransaction,
    listed: Iterable[TransactionListing],
    described: Mapping[str, TransactionDescription],
) -> OpenTransaction:
    """Add the transactional id, and the start time if the coordinator still describes this producer's transaction."""
    for listing in listed:
        if listing.producer_id != transaction.producer_id:
            continue
        description = described.get(listing.transactional_id)
        if description is None or description.producer_id != transaction.producer_id:
            return replace(transaction, transactional_id=listing.transactional_id, start_ms=None)
        return replace(transaction, transactional_id=listing.transactional_id, start_ms=description.start_ms)
    return transaction
