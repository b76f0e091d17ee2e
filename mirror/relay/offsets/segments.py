"""Segments: parts of a partition's offset index as they are stored in the flow's offset topic. Pure.

A segment ends with an anchor, so that it is known to which logs its offsets belong, and whether the target still has
them. A copy writes the segment at which it is again and again, until it is full; so each segment stands alone, and
what one lacks that could not be written is found in the logs.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from mirror.cluster.types import TopicPartition
from mirror.relay.offsets.runs import Run, Span, decode_numbers, decode_runs, encode_numbers, span_of
from mirror.relay.progress import anchors as anchored
from mirror.relay.progress import stored_json as stored
from mirror.relay.progress.anchors import Anchor, stands, usable
from mirror.relay.progress.committed import Progress

_ANYWHERE: Final = 2**63 - 1
_INT32_MAX: Final = 2**31 - 1
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
    """Its runs, for :func:`mirror.relay.offsets.runs.decode_runs`."""

    @property
    def runs(self) -> Iterator[Run]:
        """Its runs, in order."""
        return decode_runs(self.start, self.target_start, self.encoded)


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
    target = replace(end.target, end=span.target_end, batch=None)
    return Segment(span.start, span.target_start, replace(end, offset=span.end, target=target), span.encoded)


def standing(
    segments: Iterable[Segment],
    progress: Progress,
    epoch_ends: Mapping[int, tuple[int, int]],
    *,
    target_topic_id: str,
    exactly_once: bool,
) -> list[Segment]:
    """Return those ``segments`` that are of the logs of ``progress``, and which the target has not lost.

    ``epoch_ends`` are the responses to OffsetForLeaderEpoch, (known epoch, its end), for the leader epochs of their
    ends.
    """
    return [
        one
        for one in segments
        if usable(
            [one.end],
            source_cluster_id=progress.source_cluster_id,
            topic_id=progress.topic_id,
            target_topic_id=target_topic_id,
            series=progress.series,
            copied_to=_ANYWHERE,
            exactly_once=exactly_once,
        )
        and (epoch := one.end.target.leader_epoch) is not None
        and stands(one.end, *epoch_ends.get(epoch, (-1, -1)))
    ]


# --- as records of the offset topic


def encode_key(key: SegmentKey) -> bytes:
    """Return ``key`` as JSON."""
    fields = {"topic": key.tp.topic, "partition": key.tp.partition, "series": key.series, "start": key.start}
    return json.dumps(fields, separators=(",", ":")).encode()


def parse_key(key: bytes | None) -> SegmentKey | None:
    """Parse :func:`encode_key`; None for anything else."""
    fields = stored.parse_object(key)
    topic, partition = stored.text(fields.get("topic")), stored.number(fields.get("partition"), _INT32_MAX)
    series, start = stored.time_ms(fields.get("series")), stored.number(fields.get("start"))
    if not topic or partition is None or series is None or start is None:
        return None
    return SegmentKey(TopicPartition(topic, partition), series, start)


def encode(segment: Segment) -> bytes:
    """Return the anchor as JSON, a line feed, and behind it the other numbers."""
    numbers = encode_numbers(segment.start, segment.target_start)
    return anchored.encode(segment.end) + _SEPARATOR + numbers + segment.encoded


def parse(value: bytes | None) -> Segment | None:
    """Parse :func:`encode`; None for anything else, such as a segment of a later version."""
    header, separator, body = (value or b"").partition(_SEPARATOR)
    end = anchored.parse(header) if separator else None
    if end is None:
        return None
    try:
        start, target_start, *_ = (number for number, _ in zip(decode_numbers(body), range(2), strict=False))
        segment = Segment(start, target_start, end, body[len(encode_numbers(start, target_start)) :])
        last = deque(segment.runs, maxlen=1)
    except ValueError:
        return None
    # A segment without runs, or with other ends than its anchor, was not written by this program.
    ends = [(run.source + run.length <= end.offset, run.target + run.length == end.target.end) for run in last]
    return segment if ends == [(True, True)] else None


# --- fewer and larger segments


def tidied(segments: Sequence[Segment], *, source_start: int) -> tuple[list[Segment], list[Segment]]:
    """Return the segments to write, and those to delete, so that fewer of them say the same.

    ``segments`` are those of one partition and series that still count. Adjoining ones are merged, but not the newest
    one, because a copy may be writing it. Those in front of the offset ``source_start``, at which the source's log
    begins now, are deleted.
    """
    ordered = sorted(segments, key=lambda one: (one.target_start, one.start))
    deleted = [one for one in ordered[:-1] if one.end.offset <= source_start]
    kept = [one for one in ordered[:-1] if one.end.offset > source_start]
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
        group[0].start, end.offset, group[0].target_start, (run for segment in group for run in segment.runs)
    )
    return [segment_of(span, end) for span in spans]
