"""What must hold of the offset index that attempts have written, exactly once, in clusters in memory."""

from __future__ import annotations

from mirror.client import OffsetAndMetadata, TopicPartition
from mirror.cluster.types import EpochEndOffset
from mirror.relay.offsets.index import OffsetIndex, Place
from mirror.relay.offsets.segments import EpochEnds, Segment, parse, standing
from mirror.relay.progress.committed import Progress, from_offset, group_of, latest_of, lazy_group_of
from mirror.relay.progress.flow_topic import offset_topic_of
from mirror.wire.decode import records_of
from tests.fakes.cluster import FakeCluster
from tests.fakes.log import PartitionLog
from tests.relay.offsets.logs import LogReader, resolved


def check_offsets(flow: str, source_log: PartitionLog, cluster: FakeCluster, tp: TopicPartition, *, lost: bool) -> int:
    """Every offset up to the progress is translated to its record, or the next one, and back.

    It may be unknown if a log has ``lost`` some.

    What was not written of the index is found in the logs. Return how many records were translated.
    """
    progress, topic_id, log = _progress(flow, cluster, tp), str(cluster.topics[tp.topic].topic_id), cluster.log(*tp)
    if progress is None or progress.target is None or progress.target.topic_id != topic_id:
        return 0
    source, target = LogReader.of(source_log), LogReader.of(log)
    ends = EpochEnds(
        *(
            {epoch: EpochEndOffset(*each.end_of_epoch(epoch)) for epoch in range(each.leader_epoch + 1)}
            for each in (source_log, log)
        )
    )
    segments = standing(_segments(flow, cluster), progress, ends, target_topic_id=topic_id, exactly_once=True)
    index = OffsetIndex(
        segments,
        progress.offset,
        exactly_once=True,
        beginning=progress.beginning,
        target_end=progress.target.indexed_end(exactly_once=True),
    )
    own = progress.appender_ids | {one.end.target.producer_id for one in segments}
    begin = progress.offset if index.begin is None else index.begin
    records, values, translated = target.records(), source.records(), 0
    following: int | None = None
    for offset in range(progress.offset - 1, begin - 1, -1):
        found = resolved(index, index.translate, offset, source, target, exactly_once=True, producer_ids=own)
        if offset in values:
            following = offset
        if found.place is Place.UNKNOWN and lost:
            continue
        if following is None:
            assert found.place is Place.END, (offset, found, segments)
            continue
        assert found.place is (Place.RECORD if offset == following else Place.NEXT), (offset, found, segments)
        assert found.offset is not None
        value = values[following]
        assert records.get(found.offset, value if lost else None) == value, (offset, found, segments)
        assert index.translate_back(found.offset) == (Place.RECORD, following)
        translated += offset == following
    return translated


def _progress(flow: str, cluster: FakeCluster, tp: TopicPartition) -> Progress | None:
    claim, lazy = (cluster.groups[group(flow, tp)].get(tp) for group in (group_of, lazy_group_of))
    if claim is None:
        return None
    read = [
        None if one is None else from_offset(OffsetAndMetadata(one.offset, one.leader_epoch, one.metadata or ""))
        for one in (claim, lazy)
    ]
    assert read[0] is not None
    return latest_of(read[0], read[1])


def _segments(flow: str, cluster: FakeCluster) -> list[Segment]:
    kept: dict[bytes | None, bytes | None] = {}
    for one in cluster.log(offset_topic_of(flow)).batches():
        kept |= {record.key: record.value for record in records_of(one)}
    return [segment for value in kept.values() if (segment := parse(value)) is not None]
