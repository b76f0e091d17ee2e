"""The sandbox's judge over many partitions at once: it waits half a second at the end of each one's log.

What is compared, and how, is the judge's own (:mod:`mirror.sandbox.judge`); only the loop over partitions is here.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

from mirror.sandbox import judge
from mirror.sandbox.judge import Verdict

_AT_ONCE: Final = 8
_MANY: Final = 8


def compare(source: str, topic: str, target: str, copy: str) -> Verdict:
    """As judge.compare has it."""
    partitions = judge._partitions(source, topic)
    if partitions <= _MANY or judge._partitions(target, copy) != partitions:
        return judge.compare(source, topic, target, copy)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        found = list(pool.map(partial(_one, source, topic, target, copy), range(partitions)))
    return Verdict(
        sum(verdict.records for verdict in found),
        next((verdict.difference for verdict in found if not verdict.equal), None),
    )


def _one(source: str, topic: str, target: str, copy: str, partition: int) -> Verdict:
    right = judge._records(target, copy, partition, timestamps=True)
    records = 0
    for one in judge._records(source, topic, partition, timestamps=True):
        other = next(right, None)
        if other is None or one[1:] != other[1:]:
            return Verdict(records, judge._difference(topic, partition, one, other))
        records += 1
    extra = next(right, None)
    return Verdict(records, None if extra is None else f"{copy}-{partition} offset {extra[0]}: not in the source")
