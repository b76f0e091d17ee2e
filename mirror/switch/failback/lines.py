"""What a failback shows as text. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from mirror.errors import named
from mirror.switch.failback.deciding import exported, with_tail
from mirror.switch.failback.inspection import Verdict

if TYPE_CHECKING:
    from collections.abc import Collection

    from mirror.switch.failback.inspection import Inspection
    from mirror.switch.failback.listing import GroupCost, TopicTail
    from mirror.switch.record import SwitchRecord


def inspected(found: Inspection) -> Iterator[str]:
    """Yield a line for the cluster, each topic, and each partition that is not as it was."""
    if found.is_same_cluster:
        yield f"cluster {found.cluster}: the one that the failover has left"
    else:
        yield f"cluster {found.cluster}: another one; the failover has left {found.known}"
    for one in found.topics:
        why = f": {one.why}" if one.why else ""
        yield f"topic {one.topic}: {one.verdict}{why}; at most {one.tail} records that only this cluster has"
        for partition in one.partitions:
            if partition.verdict is not Verdict.SAME:
                yield f"  {one.topic}-{partition.partition}: {partition.verdict}: {partition.why}"
            elif partition.deleted:
                lost = f"retention has deleted {partition.deleted} offsets behind the divergence"
                yield f"  {one.topic}-{partition.partition}: {lost}"


def listed(tails: Sequence[TopicTail], groups: Sequence[GroupCost]) -> Iterator[str]:
    """Yield a line for each topic, partition and group."""
    for one in tails:
        times = "" if one.times is None else f", {_time(one.times[0])} to {_time(one.times[1])}"
        about = "" if one.written_since_is_exact else "about "
        keys = "" if one.written_since is None else f"; {about}{one.written_since} of its keys were written since"
        yield f"topic {one.topic}: {one.records} records, {one.bytes} bytes{times}{keys}"
        for part in one.partitions:
            if part.start < part.end:
                yield f"  {one.topic}-{part.partition}: offsets {part.start} to {part.end}, {part.records} records"
    for cost in groups:
        yield f"group {cost.group}: would read {cost.tail} records of tails, and {cost.again} offsets again"


def next_lines(name: str, back: Sequence[str], record: SwitchRecord, appends: Collection[str]) -> Iterator[str]:
    """Yield what to do next."""
    done = record.failback
    if done.lifted_ms:
        yield "the old cluster is open: nothing is left to do"
        return
    missing = {*exported(done, appends)} - {*done.exported}
    appended = [topic for topic in with_tail(done) if topic in appends and topic not in done.exported]
    if done.broken and not missing:
        yield f"mirror failback {name} --rebuild-all --dry-run: shows how {named('topic', done.broken)} would come back"
        return
    if not done.released_ms:
        confirmed = " --append" if appended else ""
        what = f"exports the tail of {len(missing)} topics, and releases" if missing else "releases"
        yield f"mirror failback {name} --export{confirmed}: {what} the flows"
        return
    for flow in back:
        yield f"mirror run --flow {flow}: copies what clients have written since"
    if back:
        for flow in record.flows:
            yield f"mirror run --flow {flow}: passes these copies, so that groups read nothing again"
        yield f"mirror cutover HOME, with the table below: brings clients back; then mirror failback {name} --lift"
        flows, ahead = (", ".join(f'"{flow}"' for flow in names) for names in (back, record.flows))
        yield f"[switches.HOME] flows = [{flows}], back = [{ahead}]"
    else:
        yield f"mirror failback {name} --lift: opens the old cluster; no flow back is configured"


def _time(unix_ms: int) -> str:
    moment = datetime.fromtimestamp(max(0, unix_ms) / 1000, UTC)
    return moment.isoformat(timespec="seconds").replace("+00:00", "Z")
