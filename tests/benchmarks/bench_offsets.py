"""How large the offset index is, and what gathering it costs: a million records of each kind of topic.

    PYTHONPATH=. python tests/benchmarks/bench_offsets.py [--records 1000000]

Needs no brokers. The kinds: ``plain`` (batches of 100 records, by sequences), ``plain, in transactions`` (one commit
for each 1,000 records, whose marker takes an offset of the target), ``transactional`` (source transactions of 100
records, each with a marker, by sequences), ``compacted`` (of ten records in a row three are gone, at random places),
and ``compacted, each second`` (every second record is gone, the worst case). Prints for each the runs, the records of
the offset topic that stay after compaction, their bytes with keys, and the CPU time of gathering them for each batch.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from mirror.cluster.types import TopicPartition
from mirror.relay.offsets.extents import AppendedExtents
from mirror.relay.offsets.segments import Segment, encode, encode_key, key_of, segment_of
from mirror.relay.progress.anchors import Anchor
from mirror.relay.progress.target_log import TargetMark

_BATCH: Final = 100
_COMMIT: Final = 1_000
_PARTITION: Final = TopicPartition("paris.orders", 11)
_IDS: Final = "3f0c3a53-6f1d-4a4d-9d3d-2d3ce2a7a4b1"


@dataclass(frozen=True, slots=True)
class Append:
    """A batch as it is acknowledged."""

    source: int
    target: int
    count: int
    jumps: tuple[int, ...] = ()

    @property
    def next_offset(self) -> int:
        """The source offset behind its last record."""
        if not self.jumps:
            return self.source + self.count
        return self.jumps[-1] + self.count - self.jumps[-2]


def plain(records: int) -> Iterator[Append]:
    """One run for ever."""
    for first in range(0, records, _BATCH):
        yield Append(first, first + 1, _BATCH)


def in_transactions(records: int) -> Iterator[Append]:
    """A marker of the target behind each commit."""
    for first in range(0, records, _BATCH):
        yield Append(first, first + first // _COMMIT, _BATCH)


def transactional(records: int) -> Iterator[Append]:
    """A marker of the source behind each batch."""
    for number in range(records // _BATCH):
        yield Append(number * (_BATCH + 1), number * _BATCH, _BATCH)


def compacted(records: int, gone: int, of: int) -> Iterator[Append]:
    """Batches of what is left where ``gone`` ``of`` so many records in a row were compacted away."""
    rng, target, offset = random.Random(1), 0, 0
    while target < records:
        kept: list[int] = []
        while len(kept) < _BATCH:
            window = range(offset, offset + of)
            kept += [one for one in window if one not in set(rng.sample(window, gone))] if of > 2 else window[::2]
            offset += of
        jumps = [
            number for index, one in enumerate(kept) if index and one != kept[index - 1] + 1 for number in (index, one)
        ]
        yield Append(kept[0], target, len(kept), tuple(jumps))
        target += len(kept)


def measure(name: str, appends: list[Append]) -> None:
    """Print a line of the table."""
    gathered = AppendedExtents()
    gathered.restart(appends[0].source, None)
    segments: dict[int, Segment] = {}
    took = 0.0
    per_commit = _COMMIT // _BATCH
    for first in range(0, len(appends), per_commit):
        began = time.process_time()
        for one in appends[first : first + per_commit]:
            gathered.append(one.source, one.target, one.count, one.jumps, one.next_offset)
        gathered.commit()
        if gathered.is_full:
            segments.update((span.start, segment_of(span, _END)) for span in gathered.take())
        took += time.process_time() - began
    gathered.commit()
    segments.update((span.start, segment_of(span, _END)) for span in gathered.take())
    runs = sum(1 for one in segments.values() for _ in one.extents)
    size = sum(len(encode(one)) + len(encode_key(key_of(_PARTITION, one))) for one in segments.values())
    records = sum(one.count for one in appends)
    sys.stdout.write(
        f"{name:26} {runs:>9,} {len(segments):>9,} {size:>11,} {size / runs:>11.1f} {size * 1e6 / records:>14,.0f}"
        f" {took / len(appends) * 1e6:>11.2f}\n"
    )


_END: Final = Anchor(
    number=77,
    offset=0,
    leader_epoch=12,
    source_cluster_id="5L6g3nShT-eMCtK--X86sw",
    topic_id=_IDS,
    target=TargetMark(topic_id=_IDS, end=0, leader_epoch=7, producer_id=4_711),
    exactly_once=True,
    time_ms=1_790_000_000_000,
    series=1_780_000_000_000,
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=1_000_000)
    records = parser.parse_args().records
    heads = ("runs", 9), ("segments", 9), ("bytes", 11), ("bytes/run", 11), ("bytes/million", 14), ("us/batch", 11)
    sys.stdout.write(f"{'':26} {' '.join(head.rjust(width) for head, width in heads)}\n")
    measure("plain", list(plain(records)))
    measure("plain, in transactions", list(in_transactions(records)))
    measure("transactional", list(transactional(records)))
    measure("compacted", list(compacted(records, 3, 10)))
    measure("compacted, each second", list(compacted(records, 1, 2)))


if __name__ == "__main__":
    main()
