"""What a stream has done since it began, partition by partition: the epochs' results, added up."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from mirror.relay.model.ranges import Counted

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mirror.relay.model.ranges import RangeResult

KEPT_EXPIRIES: Final = 10
"""Of each partition, the last ones: a stream may run for years beside a partition that is sick."""


class StreamTotals:
    """One entry per partition: counts are sums, how it stands is the last epoch's word."""

    def __init__(self) -> None:
        self._by_partition: dict[tuple[str, int], RangeResult] = {}

    def add(self, results: Iterable[RangeResult]) -> None:
        """The results of one more epoch, which has all partitions of the flow.

        One that is gone since leaves only what was done: of a topic that could not be copied and was deleted, nothing.
        """
        kept = {key: one for key, one in self._by_partition.items() if _did_something(one)}
        for one in results:
            key = (one.topic, one.partition)
            before = self._by_partition.get(key)
            kept[key] = one if before is None else _added(before, one)
        self._by_partition = kept

    def results(self) -> list[RangeResult]:
        """By topic and partition."""
        return [self._by_partition[key] for key in sorted(self._by_partition)]


def _did_something(one: RangeResult) -> bool:
    return bool(one.records or one.skipped or one.gaps or one.expiries)


def _added(before: RangeResult, one: RangeResult) -> RangeResult:
    # A task that was lost tells nothing: what is known of the partition stays known.
    known = before if one.counted is Counted.UNKNOWN else one
    return replace(
        one,
        start=one.start if before.counted is Counted.UNKNOWN else before.start,
        end=known.end,
        counted=known.counted,
        records=before.records + one.records,
        batches=before.batches + one.batches,
        bytes=before.bytes + one.bytes,
        seconds=before.seconds + one.seconds,
        skipped=_sum(before.skipped, one.skipped),
        deep=_sum(before.deep, one.deep),
        gaps=_sum(before.gaps, one.gaps),
        expiries=[*before.expiries, *one.expiries][-KEPT_EXPIRIES:],
        retries=before.retries + one.retries,
    )


def _sum(one: dict[str, int], other: dict[str, int]) -> dict[str, int]:
    return {key: one.get(key, 0) + other.get(key, 0) for key in [*one, *(key for key in other if key not in one)]}
