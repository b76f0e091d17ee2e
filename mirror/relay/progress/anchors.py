"""Anchors: places at which a source offset and a target offset belong together, kept for a target that loses records.

All that was copied from below an anchor's source offset is in front of its target offset, and all that was copied
later is behind it. If the target loses acknowledged records (an unclean election), the newest anchor that still stands
there is where the search for the exact position begins. Anchors are written to the flow's progress topic lazily and
best effort: a lost one only makes such a search longer. Pure.

They are thinned by their numbers: a new anchor replaces an older one of the same slot. Kept are the ``2 * SLOTS``
newest, and up to ``SLOTS`` for each doubling of the distance before them, and the first one: at most
``1 + SLOTS * number.bit_length()`` for each target partition whose last anchor has this ``number``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from mirror.cluster.types import TopicPartition
from mirror.relay.progress import stored_json as stored
from mirror.relay.progress.stored_record import Int32
from mirror.relay.progress.target_log import TargetMark
from mirror.wire.integers import INT32_MAX

SLOTS: Final = 4
INTERVAL_MS: Final = 60_000
"""While a partition is copied, an anchor follows at most this long after the last one, with the next commit."""
INTERVAL_BYTES: Final = 64 * 1024 * 1024
"""An anchor follows after so many bytes, with the next commit."""


class AnchorCount(NamedTuple):
    """The number of the last anchor of a partition, and when it was made; it is stored with the progress."""

    number: int
    time_ms: int

    def next(self, now_ms: int) -> AnchorCount:
        """Return the count of an anchor that is made now (ms since 1970)."""
        return AnchorCount(self.number + 1, now_ms)


NO_ANCHOR: Final = AnchorCount(-1, 0)
"""There is no anchor yet, or it is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Anchor:
    """A place up to which a partition was copied and, in transactions, committed."""

    number: int
    """Counts the anchors of the partition from 0."""
    offset: int
    """The next source offset to copy there."""
    leader_epoch: Int32 | None
    """The source's leader epoch of the last batch before it; None if there is none."""
    source_cluster_id: str
    topic_id: str
    """The id of the source topic."""
    target: TargetMark
    """The target's log. Its end is exact: all that was copied later is behind it."""
    exactly_once: bool
    """Otherwise what is behind it may repeat what is in front of it."""
    time_ms: int
    """When it was made (ms since 1970)."""
    series: int = 0
    """That of the progress it was made of: another series copied the same source offsets to other places."""


class AnchorKey(NamedTuple):
    """Identifies a record of the progress topic that holds an anchor."""

    tp: TopicPartition
    """The target partition."""
    slot: int


def slot_of(number: int) -> int:
    """Return the slot of the anchor with this number.

    Every second number belongs to the first level, every second one of the others to the next, and so on; each level
    has ``SLOTS`` slots, which are used in turn. Number 0 has a slot of its own.
    """
    if number == 0:
        return 0
    level = (number & -number).bit_length() - 1
    return 1 + level * SLOTS + (number >> (level + 1)) % SLOTS


def is_due(last: AnchorCount, now_ms: int, copied_bytes: int) -> bool:
    """Whether another anchor is to be made; ``copied_bytes`` were copied since the ``last`` one, or this start."""
    elapsed_ms = now_ms - last.time_ms
    return last == NO_ANCHOR or copied_bytes >= INTERVAL_BYTES or not 0 <= elapsed_ms < INTERVAL_MS


def usable(
    anchors: Iterable[Anchor],
    *,
    source_cluster_id: str,
    topic_id: str,
    target_topic_id: str,
    series: int,
    copied_to: int,
    exactly_once: bool,
) -> list[Anchor]:
    """Return the anchors of these topics, the newest first, which are those with the highest target offset.

    Only those of the progress' ``series`` count that are not beyond the source offset ``copied_to``: what is in front
    of any other one may never have been copied there. Exactly once, those that were made at least once do not count.
    Ids that are empty were not known.
    """
    matching = [
        anchor
        for anchor in anchors
        if (anchor.exactly_once or not exactly_once)
        and anchor.series == series
        and anchor.offset <= copied_to
        and anchor.source_cluster_id in {"", source_cluster_id}
        and _is_same(anchor.topic_id, topic_id)
        and _is_same(anchor.target.topic_id, target_topic_id)
    ]
    return sorted(matching, key=lambda anchor: (anchor.target.end, anchor.time_ms, anchor.number), reverse=True)


def _is_same(one: str, other: str) -> bool:
    return not one or not other or one == other


def stands(anchor: Anchor, known_epoch: int, epoch_end: int) -> bool:
    """Whether the log still holds all that was in front of ``anchor``, according to OffsetForLeaderEpoch (KIP-101).

    The response for the anchor's leader epoch is the largest epoch not above it that the log has (-1: none), and where
    that one ends. Logs that have records of the same epoch are equal up to there: a smaller epoch proves nothing.
    """
    if anchor.target.end == 0:
        return True
    return known_epoch == anchor.target.leader_epoch and epoch_end >= anchor.target.end


def obsolete(anchors: Iterable[Anchor], source_start: int) -> list[Anchor]:
    """Return the anchors that the source's retention has made useless: its log begins at ``source_start`` now.

    The last one in front of that offset is kept: the records between it and the first one behind it remain provable.
    """
    before = sorted((one for one in anchors if one.offset <= source_start), key=lambda one: (one.offset, one.number))
    return before[:-1]


# --- as records of the progress topic


def key_of(tp: TopicPartition, anchor: Anchor) -> AnchorKey:
    """Return the key of ``anchor``, which belongs to target partition ``tp``."""
    return AnchorKey(tp, slot_of(anchor.number))


def encode_key(key: AnchorKey) -> bytes:
    """Return ``key`` as JSON. It is nested: it would be that of a progress record otherwise."""
    fields = {"topic": key.tp.topic, "partition": key.tp.partition, "slot": key.slot}
    return json.dumps({"anchor": fields}, separators=(",", ":")).encode()


def parse_key(fields: dict[str, Any]) -> AnchorKey | None:
    """Parse the JSON object of a key; None if it is not that of an anchor."""
    nested = fields.get("anchor")
    if not isinstance(nested, dict):
        return None
    topic, partition, slot = stored.text(nested.get("topic")), nested.get("partition"), nested.get("slot")
    partition, slot = stored.number(partition, INT32_MAX), stored.number(slot, INT32_MAX)
    return None if not topic or partition is None or slot is None else AnchorKey(TopicPartition(topic, partition), slot)
