"""Decides whether MirrorMaker 2 copies again what a flow has taken over. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime

from mirror.mirrormaker.connect_status import State, Status, StatusKey
from mirror.mirrormaker.source_offsets import SourceOffsetKey, parse_offset
from mirror.relay.progress import stored_json as stored
from mirror.takeover.takeover_topic import TakeoverRecord
from mirror.wire.decode import Record


def stored_position(record: TakeoverRecord, records: Iterable[Record], copies: Callable[[str], bool]) -> str:
    """Return which position the connector has stored for a topic that the flow ``copies``; empty for none.

    ``records`` are those of the positions' topic behind the ends at the takeover. A tombstone, which resets a position
    of a connector that was stopped, is none.
    """
    for one in records:
        key, offset = SourceOffsetKey.parse(one.key), parse_offset(one.value)
        if key is None or offset is None or (key.connector, key.cluster) != (record.key.connector, record.key.source):
            continue
        if copies(key.tp.topic):
            return f"it has stored offset {offset} of {key.tp} in topic {record.key.offsets_topic}{_at(one)}"
    return ""


def running_task(record: TakeoverRecord, records: Iterable[Record]) -> str:
    """Return which task of the connector has begun to run; empty for none.

    ``records`` are those of the status topic behind its ends at the takeover. A connector without tasks copies nothing:
    that of a pair with ``enabled = false`` is RUNNING, too, for its heartbeats.
    """
    for one in () if record.others else records:
        key, status = StatusKey.parse(one.key), Status.parse(one.value)
        if key is None or status is None or key.connector != record.key.connector:
            continue
        if key.task is not None and status.state == State.RUNNING:
            return f"its task {key.task} is {status} according to topic {record.status_topic}{_at(one)}"
    return ""


def resumption(record: TakeoverRecord, sign: str, flow: str) -> str:
    """Return the line about a MirrorMaker 2 that copies again, and what to do."""
    return (
        f"MirrorMaker 2 copies again ({record.key.connector} from {record.key.source}): {sign}. Both would double"
        f" records: stop it, and repeat mirror takeover --flow {flow}; with --back it continues instead of the flow,"
        " and with --while-it-writes beside it, if it copies other topics only"
    )


def _at(record: Record) -> str:
    time_ms = stored.time_ms(record.timestamp_ms)
    return "" if time_ms is None else f" at {datetime.fromtimestamp(time_ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"
