"""Segments: parts of a partition's offset index as they are stored in the flow's offset topic. Pure.

A segment ends with an anchor, so that it is known to which logs its offsets belong, and whether the target still has
them. A copy writes the segment at which it is again and again, until it is full; so each segment stands alone, and
what one lacks that could not be written is found in the logs.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from mirror.cluster.types import EpochEndOffset, TopicPartition
from mirror.relay.offsets.extents import Extent, Span, decode_extents, decode_numbers, encode_numbers, span_of
from mirror.relay.progress import stored_json as stored
from mirror.relay.progress import stored_record
from mirror.relay.progress.anchors import Anchor, usable
from mirror.relay.progress.committed import Progress
from mirror.wire.integers import INT32_MAX, INT64_MAX

_SEPARATOR: Final = b"\n"


@dataclass(frozen=True, slots=True)
class Segment:
    """Which target offsets the records at the source offsets from ``start`` to those of the anchor ``end`` have."""

    start: int
    target_start: int
    """None of its records is in front of this target offset."""
    end: Anchor
    """Where it ends in both logs."""
    encoded: bytes
    """Its extents, for :func:`mirror.relay.offsets.extents.decode_extents`."""

    @property
    def extents(self) -> Iterator[Extent]:
        """Its extents, in order."""
        return decode_extents(self.start, self.target_start, self.encoded)


class SegmentKey(NamedTuple):
    """Identifies a record of the offset topic."""

    tp: TopicPartition
    """The target partition."""
    series: int
    """That of the anchors: a copy that started over writes beside what the former one has written."""
    start: int


def key_of(tp: TopicPartition, segment: Segment) -> SegmentKey:
    """Return the key of ``segment``, which belongs to target partition ``tp``."""
    return SegmentKey(tp, segment.end.series, segment.start)


def segment_of(span: Span, end: Anchor) -> Segment:
    """Return ``span`` as a segment; ``end`` is an anchor behind it, in the same logs."""
    target = replace(end.target, end=span.target_end, batch=None, since=None)
    return Segment(span.start, span.target_start, replace(end, offset=span.end, target=target), span.encoded)


class EpochEnds(NamedTuple):
    """Where leader epochs end in the logs of one partition now: the responses to OffsetForLeaderEpoch, by epoch.

    None where a leader does not offer that API.
    """

    source: Mapping[int, EpochEndOffset | None]
    target: Mapping[int, EpochEndOffset | None]


# Invariant: Of a segment counts only what both logs still have, by the leader epochs of its anchor.
# Test: tests/relay/offsets/
#   test_lost_logs_on_fakes.py::test_offsets_that_a_source_has_used_again_are_not_those_of_the_records_that_it_lost
def standing(
    segments: Iterable[Segment],
    copied: Progress | Anchor,
    ends: EpochEnds,
    *,
    target_topic_id: str,
    exactly_once: bool,
) -> list[Segment]:
    """Return what counts of those ``segments`` that are of the logs of ``copied``.

    Of a segment counts what is in front of the place where one of the two logs was cut back since. ``ends`` are those
    of the leader epochs of all segments.
    """
    of_logs = [
        one
        for one in segments
        if usable(
            [one.end],
            source_cluster_id=copied.source_cluster_id,
            topic_id=copied.topic_id,
            target_topic_id=target_topic_id,
            series=copied.series,
            copied_to=INT64_MAX,
            exactly_once=exactly_once,
        )
    ]
    parts = (_in_front(one, _source_cut(one, ends.source), _target_cut(one, ends.target)) for one in of_logs)
    return [part for part in parts if part is not None]


def _target_cut(segment: Segment, ends: Mapping[int, EpochEndOffset | None]) -> int:
    """Return where the target's log may differ from the one that was copied into.

    Logs that have records of the same epoch are equal up to its end in one of them; a smaller epoch proves nothing.
    """
    mark = segment.end.target
    known = None if mark.leader_epoch is None else ends.get(mark.leader_epoch)
    return known.end_offset if known is not None and known.leader_epoch == mark.leader_epoch else 0


def _source_cut(segment: Segment, ends: Mapping[int, EpochEndOffset | None]) -> int:
    """Return where the source's log may differ from the one that was copied; a log without epochs does not say it."""
    epoch = segment.end.leader_epoch
    known = None if epoch is None else ends.get(epoch)
    if known is None or known.end_offset < 0:
        return INT64_MAX
    return known.end_offset if known.leader_epoch == epoch else 0


def _in_front(segment: Segment, source_cut: int, target_cut: int) -> Segment | None:
    """Return the part of ``segment`` in front of both offsets; None if there are no records in it."""
    if segment.end.offset <= source_cut and segment.end.target.end <= target_cut:
        return segment
    extents: list[Extent] = []
    end = min(segment.end.offset, source_cut)
    for extent in segment.extents:
        length = max(0, min(extent.length, source_cut - extent.source, target_cut - extent.target))
        if length:
            extents.append(extent._replace(length=length))
        if length < extent.length:
            end = min(end, extent.source + length)
            break
    if not extents:
        return None
    (span,) = span_of(segment.start, end, segment.target_start, extents)
    return segment_of(span, segment.end)


# --- as records of the offset topic


def encode_key(key: SegmentKey) -> bytes:
    """Return ``key`` as JSON."""
    fields = {"topic": key.tp.topic, "partition": key.tp.partition, "series": key.series, "start": key.start}
    return json.dumps(fields, separators=(",", ":")).encode()


def parse_key(key: bytes | None) -> SegmentKey | None:
    """Parse :func:`encode_key`; None for anything else."""
    fields = stored.parse_object(key)
    topic, partition = stored.text(fields.get("topic")), stored.number(fields.get("partition"), INT32_MAX)
    series, start = stored.time_ms(fields.get("series")), stored.number(fields.get("start"))
    if not topic or partition is None or series is None or start is None:
        return None
    return SegmentKey(TopicPartition(topic, partition), series, start)


def encode(segment: Segment) -> bytes:
    """Return the anchor as JSON, a line feed, and behind it the other numbers."""
    numbers = encode_numbers(segment.start, segment.target_start)
    return stored_record.encode(segment.end) + _SEPARATOR + numbers + segment.encoded


def parse(value: bytes | None) -> Segment | None:
    """Parse :func:`encode`; None for anything else, such as a segment of a later version."""
    header, separator, body = (value or b"").partition(_SEPARATOR)
    end = stored_record.decode(Anchor, header) if separator else None
    if end is None:
        return None
    try:
        start, target_start, *_ = (number for number, _ in zip(decode_numbers(body), range(2), strict=False))
        segment = Segment(start, target_start, end, body[len(encode_numbers(start, target_start)) :])
        last = deque(segment.extents, maxlen=1)
    except ValueError:
        return None
    # A segment with other ends than its anchor was not written by this program. One without extents says that nothing
    # was copied there: a failback has exported it.
    behind = [(extent.source + extent.length, extent.target + extent.length) for extent in last]
    source_end, target_end = behind[0] if behind else (start, target_start)
    return segment if source_end <= end.offset and target_end == end.target.end else None


# --- fewer and larger segments


def tidied(
    segments: Sequence[Segment], standing: Collection[Segment], *, source_start: int
) -> tuple[list[Segment], list[Segment]]:
    """Return the segments to write, and those to delete once these are written, so that fewer of them say the same.

    ``segments`` are those of one partition and series. Adjoining ones are merged if they count as a whole, that is, if
    they are in ``standing``: otherwise the anchor of a later one would speak for what a log has lost. The newest one is
    not, because a copy may be writing it. Those in front of the offset ``source_start``, at which the source's log
    begins now, are deleted.
    """
    ordered, whole = sorted(segments, key=lambda one: (one.target_start, one.start)), frozenset(standing)
    deleted = [one for one in ordered[:-1] if one.end.offset <= source_start]
    kept = [one for one in ordered[:-1] if one.end.offset > source_start and one in whole]
    written: list[Segment] = []
    for group in _adjoining(kept):
        merged = _merged(group)
        if len(merged) < len(group):
            unchanged = {(one.start, one.encoded, one.end.offset) for one in group}
            written += [one for one in merged if (one.start, one.encoded, one.end.offset) not in unchanged]
            starts = {one.start for one in merged}
            deleted += [one for one in group if one.start not in starts]
    return written, deleted


def _adjoining(segments: Iterable[Segment]) -> Iterator[list[Segment]]:
    group: list[Segment] = []
    for segment in segments:
        last = group[-1] if group else None
        if last is not None and not (segment.start == last.end.offset and segment.target_start >= last.end.target.end):
            yield group
            group = []
        group.append(segment)
    if group:
        yield group


def _merged(group: Sequence[Segment]) -> list[Segment]:
    """Return adjoining segments as few. The anchor of the last one is behind all of them."""
    end = group[-1].end
    spans = span_of(
        group[0].start, end.offset, group[0].target_start, (extent for segment in group for extent in segment.extents)
    )
    return [segment_of(span, end) for span in spans]
