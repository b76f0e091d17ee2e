"""Topics with numbered records, and copies that must fail at a gap."""

from __future__ import annotations

from typing import Any

from mirror.relay.model.ranges import Outcome, RangeResult
from mirror.relay.progress.gaps import GapKind
from tests.copying.pair import TwoClusters
from tests.copying.writers import batch_of, made, write_batches


def put(pair: TwoClusters, topic: str, first: int, count: int) -> None:
    """Write numbered records, in batches of ten."""
    starts = range(first, first + count, 10)
    write_batches(pair.source.address, topic, [batch_of(made(10, first=start)) for start in starts])


def keys(pair: TwoClusters, topic: str) -> list[bytes | None]:
    return [seen.key for seen in pair.target.records(topic)]


def numbered(*spans: range) -> list[bytes]:
    return [b"k%d" % number for span in spans for number in span]


def refused(pair: TwoClusters, topic: str, kind: GapKind, **policy: Any) -> RangeResult:
    """Copy; assert that it fails at the gap, and leaves its progress unchanged."""
    before = pair.target.progress(pair.flow, topic)
    (result,) = pair.copy(topic, **policy)
    assert (result.outcome, result.records, result.gaps) == (Outcome.FAILED, 0, {})
    assert f"{kind}: copied up to offset {before}" in str(result.error)
    assert 'on-gap = "skip"' in str(result.error)
    assert pair.target.progress(pair.flow, topic) == before
    return result
