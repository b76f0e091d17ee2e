"""Asks a source who has the transactions open that keep its last stable offsets where they are (KIP-664)."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from mirror.client import LATEST, TopicPartition
from mirror.errors import KafkaError, MirrorError
from mirror.relay.progress.open_transactions import OpenTransaction, OpenTransactions, observed

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from mirror.client import Admin, ProducerState, TransactionDescription, TransactionListing

_log: Final = logging.getLogger(__name__)

_WITHIN_MS: Final = 5_000
_ASKED_FOR: Final = 20
"""Partitions whose producers are asked for, the oldest transactions first: a leader tells all that it remembers."""


def high_watermarks(
    source: Admin, tps: Collection[TopicPartition], *, within_ms: int | None
) -> dict[TopicPartition, int]:
    """The ends that readers of all records see, of those who tell; one request for each broker.

    To be asked after the last stable offsets: then it is never below them.
    """
    if not tps:
        return {}
    asked = dict.fromkeys(tps, LATEST)
    try:
        found = source.list_offsets(asked, isolation="read_uncommitted", partial=True, timeout_ms=within_ms)
    except KafkaError:
        return {}  # the last stable offsets are known, and are what is copied
    return {tp: result.offset for tp, result in found.items()}


def still_open(source: Admin, before: OpenTransactions, now_ms: int) -> dict[TopicPartition, OpenTransaction]:
    """Those of ``before`` that stand where they stood, as they are at ``now_ms``, and those that do not answer."""
    if not before:
        return {}
    try:
        found = source.list_offsets(dict.fromkeys(before, LATEST), partial=True, timeout_ms=_WITHIN_MS)
    except KafkaError:
        return dict(before)
    high = high_watermarks(source, found, within_ms=_WITHIN_MS)
    stable = {tp: (result.offset, high[tp]) for tp, result in found.items() if tp in high}
    again = observed(before, stable, now_ms)
    there = {tp: again[tp] for tp, one in before.items() if tp in again and again[tp].offset == one.offset}
    silent = {tp: one for tp, one in before.items() if tp not in stable}
    return with_producers(source, silent | there)


def with_producers(source: Admin, found: OpenTransactions) -> dict[TopicPartition, OpenTransaction]:
    """``found``, with their producers and when they began, as far as brokers tell and permissions let them.

    At most three requests for each broker, and nothing where all is known.
    """
    unknown = [one for one in found.values() if one.producer_id is None]
    asked = sorted(unknown, key=lambda one: (one.since_ms, one.tp))[:_ASKED_FOR]
    if not asked:
        return dict(found)
    try:
        known = _producers(source, asked)
    except MirrorError as error:
        _log.info("the producers of the source's open transactions are not known: %s", error)
        return dict(found)
    return dict(found) | known


def _producers(source: Admin, asked: Iterable[OpenTransaction]) -> dict[TopicPartition, OpenTransaction]:
    states = source.describe_producers([one.tp for one in asked], partial=True, timeout_ms=_WITHIN_MS)
    found = {
        one.tp: replace(
            one,
            producer_id=state.producer_id,
            producer_epoch=state.producer_epoch,
            last_record_ms=state.last_timestamp_ms if state.last_timestamp_ms >= 0 else None,
        )
        for one in asked
        if (state := _holder(one, states.get(one.tp, ()))) is not None
    }
    producers = {one.producer_id for one in found.values() if one.producer_id is not None}
    if not producers:
        return found
    listed = source.list_transactions(producers, partial=True, timeout_ms=_WITHIN_MS)
    names = {each.transactional_id for each in listed}
    described = source.describe_transactions(names, partial=True, timeout_ms=_WITHIN_MS) if names else {}
    return {tp: _with_start(one, listed, described) for tp, one in found.items()}


def _holder(one: OpenTransaction, states: Iterable[ProducerState]) -> ProducerState | None:
    """Whose transaction begins at the last stable offset."""
    return next((state for state in states if state.transaction_start == one.offset), None)


def _with_start(
    one: OpenTransaction, listed: Iterable[TransactionListing], described: Mapping[str, TransactionDescription]
) -> OpenTransaction:
    """A coordinator that has gone on with another producer id, or without a transaction, says nothing of this one."""
    for each in listed:
        if each.producer_id != one.producer_id:
            continue
        known = described.get(each.transactional_id)
        same = known is not None and known.producer_id == one.producer_id
        return replace(one, transactional_id=each.transactional_id, start_ms=known.start_ms if same and known else None)
    return one
